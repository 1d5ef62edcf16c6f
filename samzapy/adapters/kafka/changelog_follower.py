"""Follow many changelog partitions over one connection.

This is a `container.ports.ChangelogFollower`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.reading import READING, lasting, record_of
from samzapy.container.ports import ChangelogRead
from samzapy.errors import LostRangeError
from samzapy.model.topics import changelog_topic
from samzapy.stream.log import LogRecord

_FIRST_WAIT_S = 0.05
_FOLLOWING: Mapping[str, Any] = {
    **READING,
    # No task waits for these records, and there are many partitions.
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 200,
    "fetch.message.max.bytes": 1024 * 1024,
}


class KafkaChangelogFollower:
    """Follows partitions of one job's changelogs; connected only while there are any.

    `job` is `<name>-<id>`.
    """

    def __init__(self, connection: KafkaConnection, job: str) -> None:
        self._connection = connection
        self._job = job
        self._events = ErrorEvents()
        self._consumer: Consumer | None = None
        # By topic and partition, the store and the partition.
        self._place_of: dict[tuple[str, int], tuple[str, int]] = {}
        self._offsets_next: dict[tuple[str, int], int] = {}
        self._at_end: set[tuple[str, int]] = set()

    def assign(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._offsets_next, self._at_end = dict(offsets), set()
        self._place_of = {
            (changelog_topic(self._job, store), partition): (store, partition) for store, partition in offsets
        }
        if not offsets:
            self.close()
            return
        if self._consumer is None:
            self._consumer = make_consumer(self._connection, _FOLLOWING, self._events)
        self._consumer.assign(
            [
                TopicPartition(topic, partition, offsets[place])
                for (topic, partition), place in sorted(self._place_of.items())
            ]
        )

    def poll(self, count_max: int) -> Mapping[tuple[str, int], ChangelogRead]:
        if self._consumer is None:
            return {}
        records: dict[tuple[str, int], list[LogRecord]] = {place: [] for place in self._offsets_next}
        first = self._consumer.poll(_FIRST_WAIT_S)
        messages: Sequence[Any] = [] if first is None else [first, *self._consumer.consume(count_max - 1, 0)]
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._check(error, message.topic())
                continue
            place, offset = self._place_of.get((message.topic(), message.partition())), message.offset()
            if place is None:
                continue  # Of an assignment that is over.
            if error is not None:
                self._offsets_next[place] = max(self._offsets_next[place], offset)
                self._at_end.add(place)
            else:
                records[place].append(record_of(message, offset))
                self._offsets_next[place] = offset + 1
                self._at_end.discard(place)
        return {
            place: ChangelogRead(
                records=read,
                offset_next=self._offsets_next[place],
                offset_end=max(self._offsets_next[place], self._end_of(place)),
                is_at_end=place in self._at_end,
            )
            for place, read in records.items()
        }

    def close(self) -> None:
        """Close the connection."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _end_of(self, place: tuple[str, int]) -> int:
        """The high watermark of the broker's last answer; -1 before the first answer."""
        assert self._consumer is not None
        store, partition = place
        watermarks = self._consumer.get_watermark_offsets(
            TopicPartition(changelog_topic(self._job, store), partition), cached=True
        )
        return -1 if watermarks is None else int(watermarks[1])

    def _check(self, error: KafkaError, topic: str | None) -> None:
        """Raise, unless the client recovers by itself."""
        failure = lasting(error, f"following {topic or f'the changelogs of {self._job}'}", self._events)
        if failure is None:
            return
        if isinstance(failure, LostRangeError):
            raise LostRangeError(
                f"following the changelogs of {self._job}: wanted to read on, found that a topic does not hold the "
                f"next offset ({error.str()})"
            )
        raise failure
