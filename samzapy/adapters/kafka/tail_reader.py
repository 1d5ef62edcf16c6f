"""Read input partitions in a worker, as Spark's source does in the JVM.

This is a `container.task.ports.TailReader`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.message_headers import UNREADABLE_HEADERS, headers_of
from samzapy.adapters.kafka.reading import READING, lasting
from samzapy.container.task.ports import BUNCH_MAX, Place, TailEndedError
from samzapy.container.task.work_plan import InputRecord

_SETTINGS: Mapping[str, Any] = {
    **READING,
    # A broker answers at once when there is a record, so this is only how often it answers without one.
    "fetch.wait.max.ms": 500,
    "fetch.message.max.bytes": 1024 * 1024,
    "queued.max.messages.kbytes": 16 * 1024,
    # A small request must not wait for the acknowledgement of the one before.
    "socket.nagle.disable": True,
}


class KafkaTailReader:
    """Reads partitions over one connection, which it keeps from one tail to the next."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._events = ErrorEvents()
        self._consumer: Consumer | None = None
        self._next: dict[Place, int] = {}

    def assign(self, offsets: Mapping[Place, int]) -> None:
        if self._consumer is None:
            self._consumer = make_consumer(self._connection, _SETTINGS, self._events)
        elif self._keeps_place(offsets):
            # Records below the offsets are dropped by the tail. To assign again would cost tens of milliseconds.
            return
        self._next = dict(offsets)
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in sorted(offsets.items())])

    def _keeps_place(self, offsets: Mapping[Place, int]) -> bool:
        """Whether the consumer is at these offsets, or at most one bunch before them.

        To read more of them again, as behind a backlog that micro-batches have read, would let the tail fall behind.
        """
        if self._next.keys() != offsets.keys():
            return False
        behind = [offset - self._next[place] for place, offset in offsets.items()]
        return min(behind, default=0) >= 0 and sum(behind) <= BUNCH_MAX

    def poll(self, timeout_s: float, count_max: int) -> Sequence[InputRecord]:
        try:
            return self._poll(timeout_s, count_max)
        except BaseException:
            # The consumer is past records that the tail does not get, or reads a partition no more.
            self._next = {}
            raise

    def _poll(self, timeout_s: float, count_max: int) -> Sequence[InputRecord]:
        assert self._consumer is not None
        try:
            # `consume` with a time-out would wait for all of `count_max`.
            first = self._consumer.poll(timeout_s)
            if first is None:
                return ()
            messages = [first, *self._consumer.consume(count_max - 1, 0)]
        except KafkaException as error:
            raise TailEndedError(f"a tail cannot read its inputs: {error}") from error
        return [record for record in map(self._record, messages) if record is not None]

    def offsets_next(self) -> Mapping[Place, int]:
        return self._next

    def lag(self) -> int:
        assert self._consumer is not None
        lag = 0
        for (topic, partition), offset in self._next.items():
            watermarks = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
            lag += 0 if watermarks is None else max(0, watermarks[1] - offset)
        return lag

    def close(self) -> None:
        """Close the connection."""
        consumer, self._consumer, self._next = self._consumer, None, {}
        if consumer is not None:
            consumer.close()

    def _record(self, message: Any) -> InputRecord | None:
        error = message.error()
        if error is not None:
            self._see(error, message)
            return None
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        headers = headers_of(message)
        if headers is UNREADABLE_HEADERS:
            # The JVM, which reads the input in micro-batches, can.
            raise TailEndedError(f"a record of {topic} has a header that the client cannot read")
        self._next[topic, partition] = offset + 1
        return InputRecord(topic, partition, offset, message.key(), message.value(), message.timestamp()[1], headers)

    def _see(self, error: KafkaError, message: Any) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            # Also past markers of transactions, which no consumer sees.
            place = (message.topic(), message.partition())
            self._next[place] = max(self._next[place], message.offset())
            return
        failure = lasting(error, f"reading {message.topic() or 'the inputs'} in a tail", self._events)
        if failure is not None:
            raise TailEndedError(str(failure))
