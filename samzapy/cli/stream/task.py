"""`samzapy task explain`: why a task runs on its processor. Read-only."""

from __future__ import annotations

import json

import click

from samzapy.cli.output.columns import Columns
from samzapy.cli.output.option import output_option
from samzapy.cli.output.terminal import printable
from samzapy.cli.stream.group import REPLAY_COLUMNS, replay_cells
from samzapy.cli.stream.source import PositionParam, of_a_stream, print_horizon
from samzapy.inspection.explanation import Explanation, explanation_json
from samzapy.inspection.explanation import explain as explained
from samzapy.model.job import TaskName
from samzapy.runtime.stream_source import StreamSource, check_reached
from samzapy.stream.audit import time_text
from samzapy.stream.position import Position, Reading


@click.group()
def task() -> None:
    """Explain why a task runs on its processor."""


@task.command()
@of_a_stream
@click.argument("name")
@click.option(
    "--at", "position", type=PositionParam(), help="Explain the state after this offset or time [default: now]."
)
@output_option()
def explain(source: StreamSource, name: str, position: Position | None, output: str) -> None:
    """Show the plan that placed a task, the reason, and the task's owner.

    It also shows the records responsible.

    \b
    Example:
      samzapy task explain --config flights.properties SystemStreamPartition_kafka.flights.0
    """
    check_reached(position, source, "--at")
    reading = Reading(source.records())
    records = reading.until(position)
    explanation = explained(records, TaskName(name), topic=source.topic, whole_from=source.extent.whole_from)
    if output == "json":
        click.echo(json.dumps(explanation_json(explanation), indent=2))
    else:
        print_horizon(source, reading)
        _print(explanation)


def _print(explanation: Explanation) -> None:
    if explanation.planned is not None:
        reads = ", ".join(str(ssp_kb) for ssp_kb in explanation.planned.positions)
        click.echo(
            printable(f"task {explanation.task_name}  processor {explanation.planned.processor_id}  reads {reads}")
        )
    click.echo(printable(f"run by {explanation.runs}"))
    click.echo()
    Columns(("generation", "offset", "time", "from", "to", "why"), right=("generation", "offset")).write(
        (
            str(item.generation),
            str(item.offset),
            time_text(item.timestamp_ms),
            item.processor_before or "-",
            item.processor_id,
            item.why,
        )
        for item in explanation.assignments
    )
    click.echo()
    Columns(REPLAY_COLUMNS, right=("offset", "term")).write(replay_cells(entry) for entry in explanation.evidence)
