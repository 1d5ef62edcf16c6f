"""Write and read messages by hand.

This is for `samzapy dev produce` and `samzapy dev consume`. Partitions are chosen as Kafka's own clients choose them
(murmur2), so a job that reads several inputs by key finds equal keys in equal partitions. Reading shows committed
messages only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import Admin, KafkaConnection, flush, make_client
from samzapy.adapters.kafka.errors import translate
from samzapy.adapters.kafka.message_headers import headers_of
from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets
from samzapy.adapters.kafka.scan import Scan
from samzapy.errors import MissingTopicError, SamzapyError

ANSWER_S = 10.0
_DELIVERY_MS = 30_000
_POLL_S = 0.1


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
        _partition_count(connection, topic)
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
            try:
                for message in messages:
                    self._produce(message)
                    self._producer.poll(0)
            finally:
                flush(self._producer, _DELIVERY_MS / 1000 + 1)
        except KafkaException as error:
            raise translate(error, f"writing messages to {self._topic}") from error
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
        BrokerUnavailableError: no broker answers. A reader that follows waits for brokers that go away later.
    """
    admin = Admin(connection)
    places = [(topic, number) for number in range(_partition_count(connection, topic))]
    ends = end_offsets(admin, places, IsolationLevel.READ_COMMITTED, ANSWER_S)
    starts = ends if from_end else beginning_offsets(admin, places, ANSWER_S)
    with Scan(connection, starts, ends, f"reading {topic}") as scan:
        answered_s = time.monotonic()
        while scan.unread or follows:
            for place, message in scan.poll():
                read = _topic_message(message)
                if follows or read.offset < ends[place]:
                    yield read
                # After the caller is done with it, which may take long.
                answered_s = time.monotonic()
            if not follows and time.monotonic() - answered_s > ANSWER_S:
                # Records of aborted transactions are no messages. So a leader that answers is still being read.
                end_offsets(admin, scan.unread, IsolationLevel.READ_COMMITTED, ANSWER_S)
                answered_s = time.monotonic()


def _partition_count(connection: KafkaConnection, topic: str) -> int:
    """How many partitions the topic has.

    Raises MissingTopicError with the command that creates such a topic on the development broker.
    """
    try:
        return KafkaAdmin(connection, deadline_s=ANSWER_S).partition_count(topic)
    except MissingTopicError as error:
        raise MissingTopicError(
            f"wanted a topic {topic}, found none; samzapy dev topic {topic} creates it"
        ) from error


def _topic_message(message: Message) -> TopicMessage:
    kind, timestamp_ms = message.timestamp()
    # A message that is read has bytes; the client's stubs also allow text.
    key: Any = message.key()
    value: Any = message.value()
    return TopicMessage(
        key=key,
        value=value,
        headers=headers_of(message),
        partition=message.partition(),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        offset=message.offset() or 0,
    )
