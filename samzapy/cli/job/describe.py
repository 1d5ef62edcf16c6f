"""`samzapy job describe`: all about a job on one screen. Read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.option import is_json, output_option, print_json
from samzapy.cli.output.table import print_rows
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.address import read_of_a_job
from samzapy.cli.target.requests import recorded_state
from samzapy.inspection.load import json_rows
from samzapy.model.ssp import SystemStream
from samzapy.model.topics import changelog_topic

if TYPE_CHECKING:
    from samzapy.config import JobConfig
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.runtime.job_address import JobAddress

_CONTAINERS = ("processorId", "executionId", "host", "phase", "tasks", "heartbeatAgeMs", "reason")
_INPUTS = ("stream", "partitions", "kind")
_STORES = ("store", "scope", "topic", "partitions", "bytes", "entries")
_FACTS = ("job", "state", "runId", "leader", "version", "term", "generation", "factor", "taskCount")


@click.command()
@read_of_a_job
@output_option()
def describe(address: JobAddress, output: str) -> None:
    """Show all about a job on one screen.

    It has run, leader, containers, inputs, stores and topics, and what is wrong. Tasks are counted; `samzapy job
    status` lists them. Exits with 3 if there is no such job, and with 0 also for a degraded job.

    \b
    Example:
      samzapy job describe --config flights.properties
    """
    from samzapy.cli.target.status import read_status
    from samzapy.coordinator.assignment.replanning import recorded_config

    status = read_status(address)
    state = recorded_state(address)
    described = describe_job(status, state, recorded_config(state))
    if is_json(output):
        print_json(described, output)
    else:
        _print(described)


def describe_job(
    status: Mapping[str, object], state: CoordinatorState, config: JobConfig | None
) -> Mapping[str, object]:
    """The facts of a job from its status and its recorded configuration."""
    tasks = json_rows(status, "tasks")
    stopped = state.run is not None and state.run.ended
    return {
        **{name: status.get(name) for name in _FACTS},
        "taskCount": len(tasks),
        "state": "stopped" if stopped else "degraded" if status.get("degraded") else "running",
        "totals": status.get("totals"),
        "containers": [
            {**row, "tasks": sum(task.get("owner") == row.get("executionId") for task in tasks)}
            for row in json_rows(status, "containers")
        ],
        "inputs": [] if config is None else _inputs(state, config),
        "stores": [] if config is None else _stores(status, state, config),
        "topics": sorted(state.own_topics),
        "consumerGroup": None if config is None else config.lag_group,
        "degraded": status.get("degraded"),
    }


def _inputs(state: CoordinatorState, config: JobConfig) -> Sequence[Mapping[str, object]]:
    """The streams that the job reads.

    A partition count is unknown before the first plan.
    """
    rows = []
    for name in config.streams_read:
        recorded = state.inputs.get(SystemStream.parse(name))
        count = None if recorded is None else recorded.partition_count
        rows.append({"stream": name, "partitions": count, "kind": _kind(name, config)})
    return rows


def _kind(name: str, config: JobConfig) -> str:
    if config.intermediate_of(name) is not None:
        return "intermediate"
    return "broadcast" if name in {item.system_stream for item in config.broadcast_inputs} else "input"


def _stores(
    status: Mapping[str, object], state: CoordinatorState, config: JobConfig
) -> Sequence[Mapping[str, object]]:
    """The stores. A size is unknown without a leader that reports it."""
    sizes = {row.get("store"): row for row in json_rows(status, "stores")}
    rows = []
    for store in config.stores:
        topic = changelog_topic(config.job, store.name)
        recorded = state.own_topics.get(topic)
        count = None if recorded is None else recorded.partition_count
        size = {name: sizes.get(store.name, {}).get(name) for name in ("bytes", "entries")}
        rows.append({"store": store.name, "scope": store.scope, "topic": topic, "partitions": count, **size})
    return rows


def _print(described: Mapping[str, object]) -> None:
    for name in _FACTS:
        click.echo(f"{name:<14}{printable(_cell(described[name]))}")
    totals = described["totals"]
    if isinstance(totals, dict):
        click.echo(f"{'totals':<14}{'  '.join(f'{name} {_cell(value)}' for name, value in totals.items())}")
    click.echo(f"{'lag group':<14}{printable(_cell(described['consumerGroup']))}")
    for name, columns, numbers in (
        ("containers", _CONTAINERS, ("tasks", "heartbeatAgeMs")),
        ("inputs", _INPUTS, ("partitions",)),
        ("stores", _STORES, ("partitions", "bytes", "entries")),
    ):
        click.echo()
        rows = [{column: row.get(column) for column in columns} for row in json_rows(described, name)]
        print_rows(rows, columns, numbers=numbers, nothing=f"0 {name}")
    click.echo()
    degraded = described["degraded"]
    reasons = degraded if isinstance(degraded, list) else []
    for reason in reasons:
        click.echo(printable(f"degraded: {reason}"))
    if not reasons:
        click.echo("nothing is wrong")


def _cell(value: object) -> str:
    return "-" if value in (None, "") else str(value)
