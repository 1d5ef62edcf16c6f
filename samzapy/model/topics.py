"""The names of samzapy's own topics, and the settings that keep their data safe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from samzapy.config import IntermediateStream, JobConfig

DAY_MS = 24 * 60 * 60 * 1000
CHANGELOG_DELETE_RETENTION_MS = DAY_MS
AUDITED_DELETE_RETENTION_MS = 7 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as samzapy creates it and as it must be found.

    Attributes:
        settings: topic configs set at creation; those in `fixed` are refused when found otherwise.
        replication_factor: None means min(3, brokers).
        may_grow: `partition_count` is the least; samzapy adds missing ones, and more do no harm. Else it is exact.
    """

    name: str
    partition_count: int
    replication_factor: int | None
    settings: Mapping[str, str]
    fixed: tuple[str, ...] = ("cleanup.policy", "message.timestamp.type")
    may_grow: bool = False

    @property
    def is_compacted(self) -> bool:
        """Whether it holds facts, of which the newest stays for ever.

        Other topics hold messages, which are removed by age.
        """
        return self.settings.get("cleanup.policy") == "compact"


def coordinator_topic(job: str) -> str:
    return f"__samzapy-coordinator-{job}"


def checkpoint_topic(job: str) -> str:
    return f"__samzapy-checkpoint-{job}"


def placement_topic(job: str) -> str:
    return f"__samzapy-placement-{job}"


def changelog_topic(job: str, store: str) -> str:
    return f"__samzapy-changelog-{job}-{store}"


_SERDE_OF: Final = re.compile(r"systems\.[^.]+\.streams\.(?P<topic>.+)\.samza\.(?:key|msg)\.serde")


OUTPUTS_NAMED_MAX: Final = 200
"""The largest number of undeclared outputs that a heartbeat names. A name has 249 characters at most."""


def declared_outputs(config: JobConfig) -> frozenset[str]:
    """The topics of outputs that a configuration names.

    It names an output by its serde, or as the stream of dead letters. A task may send to others, which are not known
    before it does.
    """
    declared = {matched["topic"] for key in config.properties if (matched := _SERDE_OF.fullmatch(key))}
    dead = {_topic_of(config.dead_letter_output)} if config.dead_letter_output else set()
    return frozenset((declared | dead) - {_topic_of(stream) for stream in config.streams_read})


def _topic_of(system_stream: str) -> str:
    return system_stream.partition(".")[2]


_COMMON = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
_AUDITED = _COMMON | {
    "delete.retention.ms": str(AUDITED_DELETE_RETENTION_MS),
    "min.compaction.lag.ms": str(7 * DAY_MS),
}
# Compacted early: these get records with every micro-batch, and a start must read the live ones.
_BUSY = _COMMON | {
    "min.compaction.lag.ms": "0",
    "segment.ms": str(10 * 60 * 1000),
    "segment.bytes": str(64 * 1024 * 1024),
    "max.compaction.lag.ms": str(60 * 60 * 1000),
}


def coordinator_spec(job: str, replication_factor: int | None = None) -> TopicSpec:
    return TopicSpec(
        name=coordinator_topic(job),
        partition_count=1,
        replication_factor=replication_factor,
        settings=_AUDITED,
    )


def placement_spec(job: str, replication_factor: int | None = None) -> TopicSpec:
    return TopicSpec(
        name=placement_topic(job), partition_count=1, replication_factor=replication_factor, settings=_AUDITED
    )


def checkpoint_spec(job: str, replication_factor: int | None = None) -> TopicSpec:
    return TopicSpec(
        name=checkpoint_topic(job),
        partition_count=1,
        replication_factor=replication_factor,
        settings=_BUSY | {"delete.retention.ms": str(3 * 60 * 60 * 1000)},
    )


def changelog_spec(job: str, store: str, partition_count: int, replication_factor: int | None = None) -> TopicSpec:
    """A topic with a partition for each task.

    A task keeps its partition for ever, so partitions may be added as tasks are.
    """
    return TopicSpec(
        name=changelog_topic(job, store),
        partition_count=partition_count,
        replication_factor=replication_factor,
        settings=_BUSY | {"delete.retention.ms": str(CHANGELOG_DELETE_RETENTION_MS)},
        may_grow=True,
    )


def intermediate_spec(stream: IntermediateStream, replication_factor: int | None = None) -> TopicSpec:
    """An intermediate topic removes messages by age only, by the broker's clock.

    A task may send on messages that are years old by their own time.
    """
    return TopicSpec(
        name=stream.topic,
        partition_count=stream.partition_count,
        replication_factor=stream.replication_factor or replication_factor,
        settings={
            "cleanup.policy": "delete",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(stream.retention_ms),
            "retention.bytes": "-1",
        },
        fixed=("cleanup.policy", "message.timestamp.type", "retention.bytes"),
        may_grow=True,
    )
