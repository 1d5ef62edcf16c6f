"""`samzapy job`: the group of commands, and `samzapy job status`.

`stop`, `restart` and `list` are in `lifecycle`; each other command is in the module of its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click

from samzapy.cli.job.downgrade import downgrade
from samzapy.cli.job.lifecycle import list_jobs, restart, stop
from samzapy.cli.job.plan import plan
from samzapy.cli.job.rewind import rewind
from samzapy.cli.job.scale import scale
from samzapy.cli.job.submit import submit
from samzapy.cli.job.top import top
from samzapy.cli.output.option import output_option
from samzapy.cli.output.table import print_table
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.status import read_status
from samzapy.errors import ExitCode
from samzapy.inspection.load import json_rows
from samzapy.runtime.job_address import JobAddress


@click.group()
def job() -> None:
    """Manage a job: submit, stop, scale, rewind, plan, status."""


job.add_command(downgrade)
job.add_command(list_jobs)
job.add_command(plan)
job.add_command(restart)
job.add_command(rewind)
job.add_command(scale)
job.add_command(stop)
job.add_command(submit)
job.add_command(top)


@job.command()
@of_a_job
@output_option()
@click.pass_context
def status(
    context: click.Context,
    address: JobAddress,
    output: str,
) -> None:
    """Show leader, containers, and the owner, position and lag of each task.

    Exits with 0 if a leader answers and every task has an owner, or if the job was stopped normally; else with 6.
    Without a leader the status is read from the topics. Exits with 3 if there is no such job.

    \b
    Example:
      samzapy job status --job flight-delays-1 --bootstrap-servers localhost:9092 -o json
    """
    shown = read_status(address)
    if output == "json":
        click.echo(json.dumps(shown, indent=2))
    else:
        _print(shown)
    if shown["degraded"]:
        context.exit(ExitCode.DEGRADED)


def _print(status: Mapping[str, object]) -> None:
    heading = [
        f"{name} {_cell(status.get(name))}" for name in ("job", "runId", "term", "generation", "factor", "leader")
    ]
    click.echo("  ".join(heading))
    factor, finest = status.get("factor"), status.get("factorFinest")
    if isinstance(factor, int) and isinstance(finest, int) and factor < finest:
        click.echo(f"merging: parts of factor {finest} are not all passed, or not released")
    totals = status.get("totals")
    if isinstance(totals, dict):
        click.echo("  ".join(f"{name} {_cell(totals[name])}" for name in totals))
    for name, columns in (
        ("containers", ("processorId", "executionId", "host", "pid", "phase", "heartbeatAgeMs", "reason")),
        ("tasks", ("task", "processorId", "owner", "epoch", "positions", "lag")),
    ):
        rows = status.get(name)
        if isinstance(rows, list) and rows:
            _print_table(columns, [row for row in rows if isinstance(row, dict)])
    for line in (*tail_lines(status), *bootstrap_lines(status), *_expansions(status)):
        click.echo(line)
    for reason in _texts(status.get("degraded")):
        click.echo(f"degraded: {_cell(reason)}")


def tail_lines(status: Mapping[str, object]) -> list[str]:
    """A line about the tasks that tail; none while no task does."""
    tasks = json_rows(status, "tasks")
    tailing = sum(any(row.get("tailing") is True for row in json_rows(task, "positions")) for task in tasks)
    return [f"tails: {tailing} of {len(tasks)} tasks"] if tailing else []


def bootstrap_lines(status: Mapping[str, object]) -> list[str]:
    """A line for each task with inputs that wait for a bootstrap input."""
    lines = []
    for task in json_rows(status, "tasks"):
        first = [row for row in json_rows(task, "positions") if row.get("bootstrapEnd") is not None]
        if first:
            read = ", ".join(
                f"{_cell(row.get('ssp'))} ({_cell(row.get('offsetNext'))} of {_cell(row['bootstrapEnd'])})"
                for row in first
            )
            lines.append(f"bootstrap: {_cell(task.get('task'))} reads {read} before its other inputs")
    return lines


def _expansions(status: Mapping[str, object]) -> list[str]:
    """A line for each input with new partitions that are not read yet."""
    lines = []
    for row in json_rows(status, "expansions"):
        waits = row.get("waitsFor")
        positions = f", waits for {_cell(waits[:5])}" if isinstance(waits, list) and waits else ""
        count, count_new = _cell(row.get("partitionCount")), _cell(row.get("partitionCountNew"))
        lines.append(
            f"expansion: {_cell(row.get('stream'))} reads {count} of {count_new} partitions: {_cell(row.get('phase'))}"
            f"{positions}"
        )
    return lines


def _print_table(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    numbers = {"epoch", "lag", "pid", "heartbeatAgeMs"} & set(columns)
    print_table(columns, [[_cell(row.get(column)) for column in columns] for row in rows], right=numbers, heading=str)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_position(item) for item in value)
    return "-" if value is None else printable(str(value))


def _position(item: object) -> str:
    if not isinstance(item, dict):
        return _cell(item)
    return f"{_cell(item.get('ssp'))}@{_cell(item.get('offsetNext'))} of {_cell(item.get('offsetEnd'))}"


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
