"""The topics that a container reads, in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from samzapy.config import JobConfig
from samzapy.container.ports import (
    ChangelogPlace,
    ChangelogRead,
    TopicBounds,
)
from samzapy.errors import (
    MissingTopicError,
)
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.stream.log import LogRecord
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.process import Trace


class MemoryTopics:
    """The topics that a container reads to start (`container.ports.Topics`)."""

    def __init__(
        self, kafka: MemoryKafka, config: JobConfig, inputs: Mapping[SystemStreamPartition, TopicBounds] | None = None
    ) -> None:
        self._kafka = kafka
        self._config = config
        self.inputs = dict(inputs or {})
        self.absent: set[str] = set()
        self.changelog_reads: list[ChangelogPlace] = []
        self.read_aheads: list[list[ChangelogPlace]] = []
        self.fails: list[Exception] = []
        self.trace = Trace()

    def checkpoint_records(self) -> Sequence[LogRecord]:
        if self.fails:
            raise self.fails.pop(0)
        self.trace.append("read checkpoints")
        return self._kafka.committed(checkpoint_topic(self._config.job))

    def changelog_records(self, store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        self.changelog_reads.append((store, partition, offset_from))
        self.trace.append("read changelog")
        return iter(self._kafka.committed(changelog_topic(self._config.job, store), partition, offset_from))

    def read_ahead(self, places: Sequence[ChangelogPlace]) -> None:
        self.read_aheads.append(list(places))

    def changelog_bounds(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], TopicBounds]:
        return {(store, partition): self._bounds(store, partition) for store, partition in places}

    def _bounds(self, store: str, partition: int) -> TopicBounds:
        topic = changelog_topic(self._config.job, store)
        stable, end = self._kafka.offset_stable(topic, partition), self._kafka.offset_end(topic, partition)
        return TopicBounds(offset_first=0, offset_end=end, offset_open=stable if stable < end else None)

    def input_bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        self.trace.append("input bounds")
        missing = [ssp for ssp in ssps if str(ssp.system_stream) in self.absent]
        if missing:
            raise MissingTopicError(f"wanted the offsets of {missing[0]}, found no such topic")
        return {ssp: self.inputs.get(ssp, TopicBounds(offset_first=0, offset_end=1_000_000)) for ssp in ssps}

    def input_high_watermarks(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, int]:
        return {ssp: self._kafka.offset_end(ssp.stream, ssp.partition) for ssp in ssps}

    def changelog_topic_ids(self, stores: Sequence[str]) -> Mapping[str, str]:
        return {store: self._kafka.topic_ids.get(store, f"id-of-{store}") for store in stores}

    def input_topic_ids(self, streams: Sequence[SystemStream]) -> Mapping[SystemStream, str]:
        return {
            stream: self._kafka.topic_ids.get(str(stream), f"id-of-{stream}")
            for stream in streams
            if str(stream) not in self.absent
        }


class MemoryChangelogFollower:
    """Follows changelogs (`container.ports.ChangelogFollower`).

    Like the real one it waits at an open transaction.
    """

    def __init__(self, kafka: MemoryKafka, config: JobConfig) -> None:
        self._kafka = kafka
        self._config = config
        self.offsets: dict[tuple[str, int], int] = {}
        self.assigned: list[Mapping[tuple[str, int], int]] = []
        self.fails: list[Exception] = []
        self.records_max = 1_000_000

    def assign(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.offsets = dict(offsets)
        self.assigned.append(dict(offsets))

    def poll(self, count_max: int) -> Mapping[tuple[str, int], ChangelogRead]:
        if self.fails:
            raise self.fails.pop(0)
        return {place: self._read(place, min(count_max, self.records_max)) for place in sorted(self.offsets)}

    def _read(self, place: tuple[str, int], count_max: int) -> ChangelogRead:
        store, partition = place
        topic = changelog_topic(self._config.job, store)
        stable, end = self._kafka.offset_stable(topic, partition), self._kafka.offset_end(topic, partition)
        committed = self._kafka.committed(topic, partition, self.offsets[place], stable)
        read = committed[:count_max]
        is_at_end = len(read) == len(committed)
        self.offsets[place] = max(self.offsets[place], stable if is_at_end else read[-1].offset + 1)
        return ChangelogRead(records=read, offset_next=self.offsets[place], offset_end=end, is_at_end=is_at_end)
