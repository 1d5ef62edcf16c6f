"""`samzapy checkpoint list`: the positions of a job, from its checkpoint topic.

Read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import output_option
from samzapy.cli.output.table import show_rows
from samzapy.cli.target.address import read_of_a_job
from samzapy.errors import MissingTopicError
from samzapy.model.topics import checkpoint_topic

if TYPE_CHECKING:
    from samzapy.container.start_rules import Positions
    from samzapy.runtime.job_address import JobAddress

_COLUMNS = ("ssp", "checkpoint", "epoch", "task", "execution", "progress", "progressEpoch", "progressExecution")
_NUMBERS = ("checkpoint", "epoch", "progress", "progressEpoch")


@click.group(cls=HintingGroup)
def checkpoint() -> None:
    """List the committed position of each key bucket."""


@checkpoint.command(name="list")
@read_of_a_job
@output_option()
def list_(
    address: JobAddress,
    output: str,
) -> None:
    """List checkpoint and progress of each key bucket of each input partition.

    Both are the offset of the next record to process; progress is recorded for idle buckets. A position is valid if its
    epoch is that of the grant in force; the larger valid one is used. Exits with 3 if there is no such job.

    \b
    Example:
      samzapy checkpoint list --job flight-delays-1 --bootstrap-servers localhost:9092
    """
    from samzapy.adapters.kafka.reading import beginning_offsets, read_to_end
    from samzapy.container.start_rules import read_positions
    from samzapy.runtime.job_address import no_such_job

    topic = checkpoint_topic(address.job)
    try:
        first = beginning_offsets(address.connection, [(topic, 0)])[topic, 0]
    except MissingTopicError as error:
        raise no_such_job(address.job) from error
    records = read_to_end(address.connection, topic, 0, first)
    rows = _rows(read_positions(records, topic=topic))
    show_rows(rows, _COLUMNS, output, numbers=_NUMBERS, nothing="0 positions: nothing is committed yet")


def _rows(positions: Positions) -> list[Mapping[str, object]]:
    rows: list[Mapping[str, object]] = []
    for ssp_kb in sorted({*positions.checkpoints, *positions.progress}):
        done, read = positions.checkpoints.get(ssp_kb), positions.progress.get(ssp_kb)
        rows.append(
            {
                "ssp": str(ssp_kb),
                "checkpoint": None if done is None else done.offset_next,
                "epoch": None if done is None else done.epoch,
                "task": None if done is None else done.task_name,
                "execution": None if done is None else done.execution_id,
                "progress": None if read is None else read.offset_next,
                "progressEpoch": None if read is None else read.epoch,
                "progressExecution": None if read is None else read.execution_id,
            }
        )
    return rows
