"""`samzapy stream replay`: everything the coordinator decided, read off its stream. Read-only."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samzapy.adapters.kafka.reading import beginning_offsets, read_to_end
from samzapy.cli.job_address import JobAddress, of_a_job
from samzapy.cli.terminal import printable
from samzapy.errors import CorruptRecordError
from samzapy.model.topics import coordinator_topic
from samzapy.stream.audit import HistoryEntry, UnreadableEntry, as_json, change_text, history, time_text

_COLUMNS = ("offset", "time", "term", "event", "key", "change", "cause", "actor")


@click.group()
def stream() -> None:
    """What the coordinator decided, when and why."""


@stream.command()
@of_a_job
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True)
def replay(
    address: JobAddress,
    output: str,
) -> None:
    """List every record of the coordinator stream: what it changed, in which term, for which cause.

    Records that cannot be read are listed with their offset and the reason; then the command ends with 8.

    \b
    Example:
      samzapy stream replay --job flight-delays-1 --bootstrap-servers localhost:9092 -o jsonl
    """
    topic = coordinator_topic(address.job)
    first = beginning_offsets(address.connection, [(topic, 0)])[topic, 0]
    unreadable: list[UnreadableEntry] = []
    entries = _noting(history(read_to_end(address.connection, topic, 0, first), topic=topic), unreadable)
    if output == "table":
        _print_table(entries)
    elif output == "json":
        click.echo(json.dumps([as_json(entry) for entry in entries], indent=2))
    else:
        for entry in entries:
            click.echo(json.dumps(as_json(entry)))
    if unreadable:
        raise CorruptRecordError(
            f"wanted to read all of {topic}, found {len(unreadable)} record(s) that cannot be read, the first at "
            f"offset {unreadable[0].offset}: {unreadable[0].reason}"
        )


def _noting(
    entries: Iterable[HistoryEntry | UnreadableEntry], unreadable: list[UnreadableEntry]
) -> Iterable[HistoryEntry | UnreadableEntry]:
    for entry in entries:
        if isinstance(entry, UnreadableEntry):
            unreadable.append(entry)
        yield entry


def _print_table(entries: Iterable[HistoryEntry | UnreadableEntry]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column.upper(), no_wrap=True, justify="right" if column in ("offset", "term") else "left")
    for entry in entries:
        table.add_row(*(Text(printable(cell)) for cell in _cells(entry)))
    # Wide enough that nothing is ever cut: a terminal folds lines, a pipe wants them whole.
    Console(width=1000).print(table)


def _cells(entry: HistoryEntry | UnreadableEntry) -> tuple[str, ...]:
    place = (str(entry.offset), time_text(entry.timestamp_ms))
    if isinstance(entry, UnreadableEntry):
        return (*place, "", "CANNOT BE READ", entry.key, entry.reason, "", "")
    said = entry.headers
    if said is None:
        return (*place, "", entry.event, entry.key, change_text(entry), "", "")
    return (*place, str(said.term), entry.event, entry.key, change_text(entry), said.cause, said.actor)
