"""The work of `samzapy task explain`, apart from its options."""

from __future__ import annotations

import click

from samzapy.cli.output.columns import Columns
from samzapy.cli.output.option import is_json, print_json
from samzapy.cli.output.terminal import printable
from samzapy.cli.stream.history import REPLAY_COLUMNS, replay_cells
from samzapy.cli.stream.source import print_horizon
from samzapy.coordinator.assignment.replanning import recorded_config
from samzapy.coordinator.replay import replay
from samzapy.errors import ConfigError, RejectedError
from samzapy.inspection.explanation import Explanation, explanation_json
from samzapy.inspection.explanation import explain as explained
from samzapy.model.job import TaskName
from samzapy.runtime.stream_source import StreamSource, check_reached
from samzapy.runtime.task_time import time_of_task
from samzapy.stream.audit import time_text
from samzapy.stream.position import Position, Reading


def explain_task(source: StreamSource, name: str, position: Position | None, output: str) -> None:
    """Show the plan that placed a task, the reason, and the task's owner."""
    check_reached(position, source, "--at")
    reading = Reading(source.records())
    records = reading.until(position)
    explanation = explained(records, TaskName(name), topic=source.topic, whole_from=source.extent.whole_from)
    if is_json(output):
        print_json(explanation_json(explanation), output)
    else:
        print_horizon(source, reading)
        _print(explanation)


def explain_time(source: StreamSource, name: str, position: Position | None, output: str) -> None:
    """Show the watermark of a task, and the input that holds it back."""
    if position is not None or source.connection is None:
        raise ConfigError("--time: wanted a job and no --at, because clocks are those of now; found --at or --from")
    state = replay(source.records(), topic=source.topic).state
    config = recorded_config(state)
    planned = next((planned for planned in state.plan if planned.task_name == name), None)
    if config is None or planned is None:
        raise RejectedError(f"wanted a task of the plan in force, found no {name}; `samzapy job status` names them")
    explanation = time_of_task(source.connection, config, planned)
    if is_json(output):
        print_json({"task": name, **explanation.as_json()}, output)
        return
    click.echo(printable(f"task {name}  {explanation.text}"))
    click.echo()
    Columns(("input", "clock", "last message", "unread", "holds", "why"), right=("unread",)).write(
        (
            item.ssp,
            "-" if item.clock_ms is None else time_text(item.clock_ms),
            "-" if item.message_at_ms is None else time_text(item.message_at_ms),
            str(item.unread),
            "yes" if item.holds else "",
            item.why,
        )
        for item in explanation.inputs
    )


def _print(explanation: Explanation) -> None:
    if explanation.planned is not None:
        reads = ", ".join(str(ssp_kb) for ssp_kb in explanation.planned.positions)
        click.echo(
            printable(f"task {explanation.task_name}  processor {explanation.planned.processor_id}  reads {reads}")
        )
    click.echo(printable(f"run by {explanation.runs}"))
    if explanation.end is not None:
        click.echo(printable(f"ended at {time_text(explanation.end.ended_at_ms)}: {explanation.end}"))
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
