"""`samzapy stream`: the coordinator's decisions, from its stream or an export.

Read-only; `history` has the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import output_option
from samzapy.cli.stream.source import PositionParam, of_a_stream
from samzapy.stream.position import Position

if TYPE_CHECKING:
    from samzapy.runtime.stream_source import StreamSource


@click.group(cls=HintingGroup)
def stream() -> None:
    """Read and verify the history of the coordinator's decisions."""


@stream.command()
@of_a_stream
@click.option("--until", type=PositionParam(), help="Stop after this offset or time.")
@click.option("--follow", is_flag=True, help="Wait for further records, until Ctrl-C.")
@click.option(
    "--key", "prefix", default="", metavar="PREFIX", help="Show only records whose key begins with PREFIX (grant/)."
)
@output_option()
def replay(source: StreamSource, until: Position | None, follow: bool, prefix: str, output: str) -> None:
    """List every record of the coordinator stream with its change, term and cause.

    Records before the horizon (older than min.compaction.lag.ms) are marked `latest value only`: records between them
    may have been compacted away. FOREIGN records were not written by a leader and have no effect. Unreadable records
    are listed with offset and reason; the command then exits with 8.

    \b
    Examples:
      samzapy stream replay --job flight-delays-1 --bootstrap-servers localhost:9092 -o jsonl
      samzapy stream replay --config flights.properties --key container/ --until 2026-03-01T12:00
    """
    from samzapy.cli.stream.history import replay_history

    replay_history(source, until, follow, prefix, output)


@stream.command()
@of_a_stream
@click.option(
    "--at", "position", type=PositionParam(), help="Show the state after this offset or time [default: now]."
)
@output_option()
def state(source: StreamSource, position: Position | None, output: str) -> None:
    """Show the state of the job at a point in time.

    It has the plan, localities, containers, and grants with their starts. The state is folded by the coordinator's own
    code. Before the horizon, overwritten records may be gone: the output says `latest value only` then.

    \b
    Examples:
      samzapy stream state --config flights.properties --at 2026-03-01T12:00
      samzapy stream state --from flights.avro --at 4711 -o json
    """
    from samzapy.cli.stream.history import show_state

    show_state(source, position, output)


@stream.command()
@of_a_stream
@click.argument("first", type=PositionParam(), metavar="A")
@click.argument("second", type=PositionParam(), metavar="B")
@output_option()
def diff(source: StreamSource, first: Position, second: Position, output: str) -> None:
    """Show what changed between A and B, and the record responsible.

    A and B are offsets or times. Changes that were undone in between are not shown; `stream replay` lists them.

    \b
    Example:
      samzapy stream diff --config flights.properties 2026-03-01T12:00 2026-03-01T13:00
    """
    from samzapy.cli.stream.history import show_differences

    show_differences(source, first, second, output)


@stream.command()
@of_a_stream
@output_option()
@click.pass_context
def verify(context: click.Context, source: StreamSource, output: str) -> None:
    """Verify the stream, and show each finding with offset and remedy.

    It checks for unreadable records, gaps, foreign writers, violated invariants and topic settings. Each finding has an
    offset and a remedy; the codes are those of `samzapy doctor`. Exits with 0 without findings, with 8 if data is
    wrong, with 6 if findings are only degradations.

    \b
    Example:
      samzapy stream verify --config flights.properties
    """
    from samzapy.cli.stream.history import verify_history

    context.exit(verify_history(source, output))


@stream.command()
@of_a_stream
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@output_option()
def export(source: StreamSource, file: Path, output: str) -> None:
    """Export the history to FILE, which the other stream commands read with --from.

    FILE is an Avro object container file with every record of the topic and their schemas. Weekly exports keep more
    history than the topic; give several with --from to merge them.

    \b
    Examples:
      samzapy stream export --config flights.properties flights-2026-03.avro
      samzapy stream export --from flights-2026-02.avro --from flights-2026-03.avro flights.avro
    """
    from samzapy.cli.stream.history import export_history

    export_history(source, file, output)
