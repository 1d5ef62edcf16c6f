"""Messages written and read by hand, for `samzapy dev produce` and `samzapy dev consume`.

Partitions are chosen as Kafka's own clients choose them (murmur2), so a job that reads several inputs by key finds
equal keys in equal partitions. Reading shows committed messages only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from samzapy.adapters.kafka.clients import Admin, ErrorEvents, KafkaConnection, make_client, make_consumer
from samzapy.adapters.kafka.errors import translate
from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets
from samzapy.errors import MissingTopicError, SamzapyError, TemporaryError

ANSWER_S = 10.0
_DELIVERY_MS = 30_000
_POLL_S = 0.1
_MESSAGES_PER_POLL = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMessage:
    """One message: key, value and headers as bytes; None for none.

    `partition` and `timestamp_ms` are None where the client chooses them; `offset` is -1 until it is written.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    offset: int = -1


class MessageWriter:
    """Writes messages to one topic and counts the acknowledged ones.

    Raises:
        MissingTopicError: the topic does not exist.
        BrokerUnavailableError: no broker answers.
    """

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        partition_count(connection, topic)
        self._topic = topic
        self._error: SamzapyError | None = None
        self.count = 0
        self._producer = make_client(
            Producer,
            connection.settings(
                {
                    "enable.idempotence": True,
                    "partitioner": "murmur2_random",
                    "linger.ms": 5,
                    "message.timeout.ms": _DELIVERY_MS,
                    "allow.auto.create.topics": False,
                }
            ),
        )

    def write(self, messages: Iterable[TopicMessage]) -> None:
        """Write all messages and wait for their acknowledgements.

        Where `messages` raises, the ones before are still written, and its error is raised afterwards.

        Raises:
            SamzapyError: Kafka refuses a message; `count` says how many were written.
        """
        try:
            for message in messages:
                self._produce(message)
                self._producer.poll(0)
        finally:
            self._producer.flush(_DELIVERY_MS / 1000 + 1)
        if self._error is not None:
            raise self._error

    def _produce(self, message: TopicMessage) -> None:
        chosen: dict[str, Any] = {}
        if message.partition is not None:
            chosen["partition"] = message.partition
        if message.timestamp_ms is not None:
            chosen["timestamp"] = message.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    on_delivery=self._delivered,
                    **chosen,
                )
                return
            except BufferError:
                self._producer.poll(_POLL_S)
            except KafkaException as error:
                raise translate(error, f"writing a message to {self._topic}") from error

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.count += 1
        elif self._error is None:
            self._error = translate(error, f"writing a message to {self._topic}")


def read_messages(
    connection: KafkaConnection, topic: str, *, from_end: bool, follows: bool
) -> Iterator[TopicMessage]:
    """Read the committed messages of a topic, partition by partition as they arrive.

    Args:
        from_end: whether to leave out the messages that are there already.
        follows: whether to wait for further messages at the end, for ever.

    Raises:
        MissingTopicError: the topic does not exist.
        BrokerUnavailableError: no broker answers.
    """
    admin = Admin(connection)
    places = [(topic, number) for number in range(partition_count(connection, topic, admin))]
    ends = end_offsets(admin, places, IsolationLevel.READ_COMMITTED, ANSWER_S)
    starts = ends if from_end else beginning_offsets(admin, places, ANSWER_S)
    unread = {place for place in places if starts[place] < ends[place]}
    consumer = make_consumer(
        connection,
        {
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": "earliest",
        },
        ErrorEvents(),
    )
    try:
        consumer.assign([TopicPartition(*place, starts[place]) for place in places])
        while unread or follows:
            for message in consumer.consume(_MESSAGES_PER_POLL, _POLL_S):
                place = (topic, message.partition() or 0)
                error = message.error()
                if error is None:
                    read = _topic_message(message)
                    if read.offset < ends[place] or follows:
                        yield read
                    if read.offset + 1 >= ends[place]:
                        unread.discard(place)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(place)
                elif not isinstance(failure := translate(error, f"reading {topic}"), TemporaryError):
                    raise failure
    finally:
        consumer.close()


def partition_count(connection: KafkaConnection, topic: str, admin: Admin | None = None) -> int:
    """The number of partitions of a topic.

    Raises:
        MissingTopicError: the topic does not exist.
        BrokerUnavailableError: no broker answers within `ANSWER_S`.
    """
    asking = admin or Admin(connection)
    give_up_at = time.monotonic() + ANSWER_S
    while True:
        try:
            topics: Mapping[str, Any] = asking.client.list_topics(topic, timeout=_POLL_S * 20).topics
        except KafkaException as error:
            if time.monotonic() >= give_up_at:
                raise asking.unavailable(ANSWER_S, f"looking for the topic {topic}") from error
            continue
        description = topics[topic]
        if description.error is None:
            return len(description.partitions)
        if time.monotonic() >= give_up_at or description.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise MissingTopicError(f"wanted a topic {topic}, found none; samzapy dev topic {topic} creates it")


def _topic_message(message: Message) -> TopicMessage:
    kind, timestamp_ms = message.timestamp()
    # What is read is bytes; the client's stubs allow text, and forms of headers that are only written.
    headers: Any = message.headers() or ()
    key: Any = message.key()
    value: Any = message.value()
    return TopicMessage(
        key=key,
        value=value,
        headers=tuple(headers),
        partition=message.partition(),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        offset=message.offset() or 0,
    )
