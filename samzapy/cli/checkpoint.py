"""`samzapy checkpoint list`: how far each SSPKb of a job is, read off the checkpoint topic. Read-only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table

from samzapy.adapters.kafka.reading import beginning_offsets, read_to_end
from samzapy.cli.job_address import JobAddress, of_a_job
from samzapy.container.start import Positions, positions_of
from samzapy.model.topics import checkpoint_topic
from samzapy.stream.codec import decode

_COLUMNS = ("ssp", "checkpoint", "progress", "epoch", "task", "execution")


@click.group()
def checkpoint() -> None:
    """Positions of record."""


@checkpoint.command(name="list")
@of_a_job
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True)
def list_(
    address: JobAddress,
    output: str,
) -> None:
    """List checkpoint and progress of each key bucket of each input partition.

    Both are the offset of the next record to be processed. Progress is that of idle buckets; the larger counts, if
    its epoch is that of the grant in force.

    \b
    Example:
      samzapy checkpoint list --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    topic = checkpoint_topic(address.job)
    first = beginning_offsets(address.connection, [(topic, 0)])[topic, 0]
    records = read_to_end(address.connection, topic, 0, first)
    rows = _rows(positions_of(decode(record, topic=topic) for record in records))
    if output == "table":
        _print_table(rows)
    elif output == "json":
        click.echo(json.dumps(rows, indent=2))
    else:
        for row in rows:
            click.echo(json.dumps(row))


def _rows(positions: Positions) -> list[Mapping[str, object]]:
    rows: list[Mapping[str, object]] = []
    for ssp_kb in sorted({*positions.checkpoints, *positions.progress}):
        done, read = positions.checkpoints.get(ssp_kb), positions.progress.get(ssp_kb)
        newest = done or read
        assert newest is not None, "one of them put the bucket into the list"
        rows.append(
            {
                "ssp": str(ssp_kb),
                "checkpoint": None if done is None else done.offset_next,
                "progress": None if read is None else read.offset_next,
                "epoch": newest.epoch,
                "task": None if done is None else done.task_name,
                "execution": newest.execution_id,
            }
        )
    return rows


def _print_table(rows: Sequence[Mapping[str, object]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column.upper(), no_wrap=True, justify="right" if column in _COLUMNS[1:4] else "left")
    for row in rows:
        table.add_row(*("-" if row[column] is None else str(row[column]) for column in _COLUMNS))
    # Wide enough that nothing is ever cut: a terminal folds lines, a pipe wants them whole.
    Console(width=1000).print(table)
