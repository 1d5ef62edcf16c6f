"""`samzapy task explain`: why a task runs on its processor. Read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import output_option
from samzapy.cli.stream.source import PositionParam, of_a_stream
from samzapy.cli.target.lazy_completion import completes
from samzapy.stream.position import Position

if TYPE_CHECKING:
    from samzapy.runtime.stream_source import StreamSource


@click.group(cls=HintingGroup)
def task() -> None:
    """Explain why a task runs on its processor."""


@task.command()
@of_a_stream
@click.argument("name", shell_complete=completes("tasks"))
@click.option(
    "--at", "position", type=PositionParam(), help="Explain the state after this offset or time [default: now]."
)
@click.option("--time", "shows_time", is_flag=True, help="Explain the watermark of the task instead.")
@output_option()
def explain(source: StreamSource, name: str, position: Position | None, shows_time: bool, output: str) -> None:
    """Show the plan that placed a task, the reason, and the task's owner.

    It also shows the records responsible. With --time: the watermark of a task that keeps event time, the clocks of
    its inputs, and which of them holds it back.

    \b
    Examples:
      samzapy task explain --config flights.properties SystemStreamPartition_kafka.flights.0
      samzapy task explain --config flights.properties --time Partition_3
    """
    from samzapy.cli.stream.task_explanation import explain_task, explain_time

    if shows_time:
        explain_time(source, name, position, output)
    else:
        explain_task(source, name, position, output)
