"""Read topics for a container (`container.ports.Topics`).

A container reads them to start, to restore, and to measure its lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.reading import DEADLINE_S, PartitionReader, beginning_offsets, end_offsets
from samzapy.model.topics import changelog_topic, checkpoint_topic

if TYPE_CHECKING:
    from samzapy.container.ports import ChangelogPlace, TopicBounds
    from samzapy.model.ssp import SystemStream, SystemStreamPartition
    from samzapy.stream.log import LogRecord


class KafkaTopics:
    """Reads the topics of one job. `job` is `<job.name>-<job.id>`."""

    def __init__(self, connection: KafkaConnection, job: str) -> None:
        self._connection = connection
        self._job = job
        self._admin = KafkaAdmin(connection)
        self._offsets = Admin(connection)
        # Connected only during a read; between reads it remembers the end of the topic.
        self._checkpoints = PartitionReader(
            connection, checkpoint_topic(job), admin=self._offsets, may_end_earlier=False
        )
        # By place, the readers that fetch it, the oldest first; several tasks may share a partition.
        self._ahead: dict[ChangelogPlace, list[PartitionReader]] = {}
        # Readers that are done, kept until the next call of `read_ahead`: a new reader would first have to connect, and
        # to look for the leaders.
        self._spare: list[PartitionReader] = []

    def checkpoint_records(self) -> Sequence[LogRecord]:
        """Every committed record of the checkpoint topic, read to the end.

        Raises:
            TruncatedTopicError: the topic ends before an end that was seen in an earlier call.
        """
        with self._checkpoints as reader:
            first = beginning_offsets(self._offsets, [(reader.topic, 0)])[reader.topic, 0]
            return list(reader.read_to_end(first))

    def changelog_records(self, store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        prepared = self._ahead.get((store, partition, offset_from))
        reader = prepared.pop(0) if prepared else self._spare_reader(store, partition)
        if reader is None:
            # Closed when it is done, because `read_ahead` may never be called again.
            return self._new_reader(store, partition).read_to_end_once(offset_from)
        return self._read_and_spare(reader, offset_from)

    def read_ahead(self, places: Sequence[ChangelogPlace]) -> None:
        wanted = Counter(places)
        for place in sorted(self._ahead.keys() | wanted.keys()):
            readers = self._ahead.setdefault(place, [])
            while len(readers) > wanted[place]:
                readers.pop().close()
            while len(readers) < wanted[place]:
                store, partition, offset_from = place
                readers.append(self._spare_reader(store, partition) or self._new_reader(store, partition))
                readers[-1].prepare(offset_from)
        self._ahead = {place: readers for place, readers in self._ahead.items() if readers}
        while self._spare:
            self._spare.pop().close()

    def _read_and_spare(self, reader: PartitionReader, offset_from: int) -> Iterator[LogRecord]:
        """Like `read_to_end`; a reader that comes to the end without an error is kept."""
        try:
            yield from reader.read_to_end(offset_from)
        except BaseException:
            reader.close()
            raise
        self._spare.append(reader)

    def _spare_reader(self, store: str, partition: int) -> PartitionReader | None:
        topic = changelog_topic(self._job, store)
        for number, reader in enumerate(self._spare):
            if reader.topic == topic:
                reader.turn_to(partition)
                return self._spare.pop(number)
        return None

    def _new_reader(self, store: str, partition: int) -> PartitionReader:
        return PartitionReader(self._connection, changelog_topic(self._job, store), partition, admin=self._offsets)

    def changelog_bounds(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], TopicBounds]:
        asked = [(changelog_topic(self._job, store), partition) for store, partition in places]
        # In this order: an end that grows in between belongs to an open transaction.
        stable = end_offsets(self._offsets, asked, IsolationLevel.READ_COMMITTED)
        bounds = zip(asked, self._bounds(asked, IsolationLevel.READ_UNCOMMITTED), strict=True)
        known = [
            replace(one, offset_open=stable[place]) if stable[place] < one.offset_end else one
            for place, one in bounds
        ]
        return dict(zip(places, known, strict=True))

    def changelog_topic_ids(self, stores: Sequence[str]) -> Mapping[str, str]:
        topics = {store: changelog_topic(self._job, store) for store in stores}
        described = self._admin.describe(topics.values()) if topics else {}
        return {store: described[topic].topic_id for store, topic in topics.items()}

    def input_topic_ids(self, streams: Sequence[SystemStream]) -> Mapping[SystemStream, str]:
        topics = self._admin.find(stream.stream for stream in streams)
        return {stream: topics[stream.stream].topic_id for stream in streams if stream.stream in topics}

    def input_bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        """Bounds of input partitions.

        The end is that of committed data, which a task can read.
        """
        places = [(ssp.stream, ssp.partition) for ssp in ssps]
        return dict(zip(ssps, self._bounds(places, IsolationLevel.READ_COMMITTED, wait_ms / 1000), strict=True))

    def input_high_watermarks(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, int]:
        """The ends of input partitions, with open transactions and what is behind them."""
        places = [(ssp.stream, ssp.partition) for ssp in ssps]
        ends = end_offsets(self._offsets, places, IsolationLevel.READ_UNCOMMITTED, wait_ms / 1000)
        return {ssp: ends[place] for ssp, place in zip(ssps, places, strict=True)}

    def _bounds(
        self, places: Sequence[tuple[str, int]], isolation: IsolationLevel, deadline_s: float = DEADLINE_S
    ) -> Sequence[TopicBounds]:
        # Only a container comes here: a command loads no ports of a container.
        from samzapy.container.ports import TopicBounds

        ends = end_offsets(self._offsets, places, isolation, deadline_s)
        firsts = beginning_offsets(self._offsets, places, deadline_s)
        return [TopicBounds(offset_first=firsts[place], offset_end=ends[place]) for place in places]
