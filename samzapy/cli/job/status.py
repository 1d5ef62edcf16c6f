"""`samzapy job status`: leader, containers and tasks of a job. Read-only."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.option import is_json, output_option, print_json
from samzapy.cli.output.table import print_table
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.address import read_of_a_job
from samzapy.errors import ExitCode
from samzapy.inspection.load import json_rows
from samzapy.model.container_end import end_text
from samzapy.model.finding import Severity

if TYPE_CHECKING:
    from samzapy.runtime.job_address import JobAddress

_ENDS_SHOWN_MAX = 10


@click.command()
@read_of_a_job
@output_option()
@click.pass_context
def status(
    context: click.Context,
    address: JobAddress,
    output: str,
) -> None:
    """Show leader, containers, tasks and stores.

    Each task has its owner, position and lag, and each store its size. Exits with 0 if a leader answers and every task
    has an owner, or if the job was stopped normally; else with 6.
    Without a leader the status is read from the topics. Exits with 3 if there is no such job.

    \b
    Example:
      samzapy job status --job flight-delays-1 --bootstrap-servers localhost:9092 -o json
    """
    from samzapy.cli.target.status import read_status

    shown = read_status(address)
    if is_json(output):
        print_json(shown, output)
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
        ("stores", ("store", "bytes", "entries")),
    ):
        rows = status.get(name)
        if isinstance(rows, list) and rows:
            _print_table(columns, [row for row in rows if isinstance(row, dict)])
    for line in (*tail_lines(status), *watermark_lines(status), *bootstrap_lines(status), *_expansions(status)):
        click.echo(line)
    for line in (*request_lines(status, time.time_ns() // 1_000_000), *_ends(status), *_notices(status)):
        click.echo(line)
    for reason in _texts(status.get("degraded")):
        click.echo(f"degraded: {_cell(reason)}")


def _ends(status: Mapping[str, object]) -> list[str]:
    """A line for each of the newest ends of containers by an error."""
    from samzapy.stream.audit import time_text

    ends = json_rows(status, "containerEnds")[:_ENDS_SHOWN_MAX]
    return [f"ended at {time_text(int(str(end.get('endedAtMs'))))}: {_cell(end_text(end))}" for end in ends]


def _notices(status: Mapping[str, object]) -> list[str]:
    rows = json_rows(status, "findings")
    return [f"notice: {_cell(row.get('found'))}" for row in rows if row.get("severity") == Severity.NOTICE.value]


def tail_lines(status: Mapping[str, object]) -> list[str]:
    """A line about the tasks that tail; none while no task does."""
    tasks = json_rows(status, "tasks")
    tailing = sum(any(row.get("tailing") is True for row in json_rows(task, "positions")) for task in tasks)
    return [f"tails: {tailing} of {len(tasks)} tasks"] if tailing else []


def watermark_lines(status: Mapping[str, object]) -> list[str]:
    """A line about the watermark that is furthest behind.

    None for a job without event time.
    """
    lags = []
    for task in json_rows(status, "tasks"):
        figures = task.get("figures")
        time = figures.get("time") if isinstance(figures, dict) else None
        if isinstance(time, dict) and isinstance(lag_ms := time.get("lagMs"), int):
            lags.append((lag_ms, _cell(task.get("task")), _cell(time.get("heldBy"))))
    if not lags:
        return []
    lag_ms, task_name, held_by = max(lags)
    held = "" if held_by == "-" else f", held by {held_by}"
    return [f"watermark: {task_name} is furthest behind, by {lag_ms / 1000:,.1f} s{held}"]


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


def request_lines(status: Mapping[str, object], now_ms: int) -> list[str]:
    """A line for each open request, and for each that failed lately.

    Args:
        now_ms: wall clock.
    """
    from samzapy.inspection.request_list import LATELY_MS
    from samzapy.model.placement import UNFINISHED
    from samzapy.stream.audit import time_text

    lines = []
    for row in json_rows(status, "requests"):
        decided_at_ms = row.get("decidedAtMs")
        if row.get("statusCode") in UNFINISHED:
            lines.append(_request_line(row, _cell(row.get("phase") or "")))
        elif isinstance(decided_at_ms, int) and now_ms - decided_at_ms < LATELY_MS:
            lines.append(_request_line(row, f"at {time_text(decided_at_ms)}"))
    return lines


def _request_line(row: Mapping[str, object], detail: str) -> str:
    """The line of a request; `detail` stands behind its status."""
    subject = " ".join(_cell(row[name]) for name in ("action", "processorId", "arguments") if row.get(name))
    host, message = (_cell(row.get(name) or "") for name in ("destinationHost", "responseMessage"))
    progress = f"{_cell(row.get('statusCode'))} {detail}".rstrip()
    texts = (f"request {_cell(row.get('uuid'))}", f"{subject} to {host}" if host else subject, progress, message)
    return ": ".join(filter(None, texts))


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
    numbers = {"epoch", "lag", "pid", "heartbeatAgeMs", "bytes", "entries"} & set(columns)
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
