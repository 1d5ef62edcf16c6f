"""`samzapy job`: `status` tells how a job is, from its leader if one answers, else from its topics. Read-only.

`plan` is in `cli.plan`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samzapy.adapters.kafka.positions import KafkaPositions
from samzapy.adapters.kafka.reading import beginning_offsets, read_to_end
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.cli.job_address import JobAddress, of_a_job
from samzapy.cli.plan import plan
from samzapy.cli.terminal import printable
from samzapy.coordinator.grants import PositionsRead
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import CoordinatorState
from samzapy.coordinator.status import is_stopped, status_of_log
from samzapy.errors import DataError, DeadlineError, ExitCode, MissingTopicError, RejectedError, TemporaryError
from samzapy.model.topics import coordinator_topic

LEADER_WAIT_MS = 2000
READ_WAIT_S = 15.0
"""Longer than a coordinator's transaction may stay open after it died."""


@click.group()
def job() -> None:
    """How a job is, and what it would do."""


job.add_command(plan)


@job.command()
@of_a_job
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def status(
    context: click.Context,
    address: JobAddress,
    output: str,
) -> None:
    """Show who leads, which containers live, who owns each task, how far it is and how far behind.

    Ends with 0 when a leader answers and every task has an owner, or when the job was stopped in good order; with 6
    when neither is so (what is shown is then read off the topics, as far as they tell); with 3 when there is no such
    job.

    \b
    Example:
      samzapy job status --job flight-delays-1 --bootstrap-servers localhost:9092 -o json
    """
    found = read_status(address)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)
    if found["degraded"]:
        context.exit(ExitCode.DEGRADED)


def read_status(address: JobAddress) -> Mapping[str, object]:
    """The shape of `coordinator.status`, and `degraded`: a list of what is not as it should be.

    Raises:
        RejectedError: there is no such job.
    """
    topic = coordinator_topic(address.job)
    try:
        first = beginning_offsets(address.connection, [(topic, 0)])[topic, 0]
    except MissingTopicError as error:
        raise RejectedError(
            f"wanted the job {address.job}, found no topic {topic}; is it NAME-ID (job.name and job.id), and the "
            "right cluster?"
        ) from error
    records = read_to_end(address.connection, topic, 0, first, deadline_s=READ_WAIT_S)
    state = replay(records, topic=topic).state
    if state.job is None:
        raise RejectedError(f"wanted the job {address.job}, found an empty {topic}: it never ran")
    told = None
    if state.term is not None:
        told = HttpCoordinatorClient().status(state.term.url, address.job, LEADER_WAIT_MS)
    if told is None:
        trouble = [] if is_stopped(state) else [_no_leader(state), *_ownerless(state)]
        return dict(status_of_log(address.job, state, _positions(address, state))) | {"degraded": trouble}
    trouble = [str(told["trouble"])] if told.get("trouble") else []
    return dict(told) | {"degraded": [*trouble, *_told_findings(told), *_told_ownerless(told)]}


def _positions(address: JobAddress, state: CoordinatorState) -> PositionsRead | None:
    """None where they cannot be read now: the rest of the status is worth showing all the same."""
    ssps = sorted({ssp_kb.ssp for planned in state.plan for ssp_kb in planned.positions})
    try:
        return KafkaPositions(address.connection, address.job).read(ssps)
    except (DataError, DeadlineError, TemporaryError) as error:
        click.echo(f"samzapy: positions are not known: {error}", err=True)
        return None


def _no_leader(state: CoordinatorState) -> str:
    if state.term is None:
        return "no coordinator ever led this job"
    return f"no leader answers; the last one was {state.term.url} on {state.term.host} (term {state.term.term})"


def _ownerless(state: CoordinatorState) -> list[str]:
    return _told_ownerless(status_of_log("", state, None))


def _told_ownerless(status: Mapping[str, object]) -> list[str]:
    tasks = status.get("tasks")
    rows = [row for row in tasks if isinstance(row, dict)] if isinstance(tasks, list) else []
    without = [str(row.get("task")) for row in rows if row.get("owner") is None]
    if not rows:
        return ["nothing is planned: no processor has joined yet"]
    return [f"{len(without)} of {len(rows)} tasks have no owner: {', '.join(without[:10])}"] if without else []


def _told_findings(status: Mapping[str, object]) -> list[str]:
    findings = status.get("findings")
    rows = [row for row in findings if isinstance(row, dict)] if isinstance(findings, list) else []
    return [f"{row.get('code')}: {row.get('found')}. {row.get('remedy')}" for row in rows]


def _print(status: Mapping[str, object]) -> None:
    console = Console(width=1000, highlight=False)
    heading = [f"{name} {_cell(status.get(name))}" for name in ("job", "runId", "term", "generation", "leader")]
    console.print(Text("  ".join(heading)))
    totals = status.get("totals")
    if isinstance(totals, dict):
        console.print(Text("  ".join(f"{name} {_cell(totals[name])}" for name in totals)))
    for name, columns in (
        ("containers", ("processorId", "executionId", "host", "pid", "phase", "heartbeatAgeMs", "reason")),
        ("tasks", ("task", "processorId", "owner", "epoch", "positions", "lag")),
    ):
        rows = status.get(name)
        if isinstance(rows, list) and rows:
            console.print(_table(columns, [row for row in rows if isinstance(row, dict)]))
    for reason in _texts(status.get("degraded")):
        console.print(Text(f"degraded: {_cell(reason)}"))


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        numeric = column in ("epoch", "lag", "pid", "heartbeatAgeMs")
        table.add_column(column, no_wrap=True, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    return table


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
