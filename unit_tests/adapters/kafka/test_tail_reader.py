from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from samzapy.adapters.kafka import tail_reader
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.tail_reader import KafkaTailReader
from samzapy.container.task.ports import TailEndedError


class Message:
    """A record of partition 0 of topic "t", or an error."""

    def __init__(self, offset: int, error: KafkaError | None = None, has_odd_header: bool = False) -> None:
        self._offset, self._error, self._has_odd_header = offset, error, has_odd_header

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def headers(self) -> None:
        if self._has_odd_header:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return (0, 0)


class Consumer:
    """Gives these messages once."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)
        self.assigned: list[int] = []

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned.extend(place.offset for place in places)

    def poll(self, _: float) -> Message | None:
        return self.messages.pop(0) if self.messages else None

    def consume(self, _count: int, _timeout_s: float) -> Sequence[Message]:
        messages, self.messages = self.messages, []
        return messages


def a_reader(monkeypatch: pytest.MonkeyPatch, *messages: Message) -> tuple[KafkaTailReader, Consumer]:
    consumer = Consumer(messages)

    def make_consumer(*_: Any) -> Consumer:
        return consumer

    monkeypatch.setattr(tail_reader, "make_consumer", make_consumer)
    reader = KafkaTailReader(KafkaConnection(bootstrap_servers="none:1"))
    reader.assign({("t", 0): 0})
    return reader, consumer


def test_a_consumer_keeps_its_place_from_one_tail_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, consumer = a_reader(monkeypatch, Message(0), Message(1))
    assert [0, 1] == [record.offset for record in reader.poll(0, 10)]

    reader.assign({("t", 0): 2})

    assert [0] == consumer.assigned


def test_a_consumer_moves_back_for_records_that_no_tail_has_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, consumer = a_reader(monkeypatch, Message(0), Message(1))
    reader.poll(0, 10)

    reader.assign({("t", 0): 1})

    assert [0, 1] == consumer.assigned


@pytest.mark.parametrize(("offset", "is_kept"), [(1002, True), (1003, False), (100_000, False)])
def test_a_consumer_does_not_read_a_backlog_again_that_micro_batches_have_read(
    monkeypatch: pytest.MonkeyPatch, offset: int, is_kept: bool
) -> None:
    reader, consumer = a_reader(monkeypatch, Message(0), Message(1))
    reader.poll(0, 10)

    reader.assign({("t", 0): offset})

    assert ([0] if is_kept else [0, offset]) == consumer.assigned


@pytest.mark.parametrize(
    "odd", [Message(1, has_odd_header=True), Message(1, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))]
)
def test_a_consumer_that_had_to_give_up_is_positioned_again(monkeypatch: pytest.MonkeyPatch, odd: Message) -> None:
    """The reader is ahead of the records that the tail got, or dropped a partition."""
    reader, consumer = a_reader(monkeypatch, Message(0), odd, Message(2))
    with pytest.raises(TailEndedError):
        reader.poll(0, 10)

    reader.assign({("t", 0): 2})

    assert [0, 2] == consumer.assigned
