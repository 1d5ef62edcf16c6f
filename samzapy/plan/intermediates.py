"""The partition count of an intermediate stream: configured, and of the topic.

A topic is only ever created or given more partitions, because Kafka removes none. So a wrong count is refused before
anything is done. Added partitions are read like those of any input (`coordinator.inputs.growth`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samzapy.config import IntermediateStream
from samzapy.errors import ConfigError


def partition_count_to_be(stream: IntermediateStream, partition_count: int | None) -> int:
    """How many partitions the topic is to have.

    More partitions than configured do no harm: an operator has added them, and they are read.

    Args:
        partition_count: how many it has; None where there is no such topic yet.

    Raises:
        ConfigError: the configuration asks for more, and for no whole multiple of the topic's count.
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
    """Raise ConfigError if the configured count fell since the last submission.

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
