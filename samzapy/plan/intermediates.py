"""How many partitions the topic of an intermediate stream is to have: the configuration held against what is there.

A topic is only ever made or given more partitions, because Kafka takes none away; so what must not be is refused before
anything is done. Partitions that are added are read in their turn, like those of any input
(`coordinator.inputs.growth`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samzapy.config import IntermediateStream
from samzapy.errors import ConfigError


def partition_count_to_be(stream: IntermediateStream, partition_count: int | None) -> int:
    """How many partitions the topic is to have.

    More than the configuration asks for do no harm: somebody has added them, and they are read.

    Args:
        partition_count: how many it has; None where there is no such topic yet.

    Raises:
        ConfigError: the configuration asks for more, and for no whole multiple of what is there.
    """
    wanted = stream.partition_count
    if partition_count is None:
        return wanted
    if wanted > partition_count and wanted % partition_count:
        raise ConfigError(
            f"task.intermediate.{stream.name}.partitions: wanted a whole multiple of the {partition_count} partitions "
            f"that its topic {stream.topic} has, found {wanted}. Its keys would fall into partitions of other tasks "
            f"than those that hold their state, and Kafka takes no partition back; set {partition_count} or "
            f"{2 * partition_count}"
        )
    return max(wanted, partition_count)


def refuse_fewer_partitions(streams: Iterable[IntermediateStream], recorded: Mapping[str, str]) -> None:
    """Raise ConfigError where the configuration asks for fewer than when the job was handed in before.

    Args:
        recorded: the properties of then; empty for a job that is new.
    """
    for stream in streams:
        key = f"task.intermediate.{stream.name}.partitions"
        before = int(recorded.get(key) or 0)
        if stream.partition_count < before:
            raise ConfigError(
                f"{key}: wanted at least {before}, with which the job was handed in before, found "
                f"{stream.partition_count}. Kafka takes no partition away, and there may be messages in it that were "
                f"not read: set {before}, or give the job a new job.id"
            )
