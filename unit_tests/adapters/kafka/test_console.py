"""Reading messages by hand from a cluster that goes away.

Answers of a real cluster are in integration_tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from samzapy.adapters.kafka import console
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.console import read_messages
from samzapy.errors import BrokerUnavailableError

NOWHERE = KafkaConnection(bootstrap_servers="127.0.0.1:1")
PLACE = ("orders", 0)


class Cluster:
    """One message at offset 8, behind records that are no messages.

    Each poll takes a second.

    Args:
        polls: how many are without a message.
        answers: how many questions about offsets are answered.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, polls: int, answers: int) -> None:
        self._polls, self._answers, self.now_s = polls, answers, 0.0
        self.unread = {PLACE}
        monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(console, "_partition_count", lambda *_: 1)
        monkeypatch.setattr(console, "beginning_offsets", lambda *_: {PLACE: 0})
        monkeypatch.setattr(console, "end_offsets", self._ask)
        monkeypatch.setattr(console, "Scan", lambda *_: self)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def poll(self) -> Iterator[tuple[tuple[str, int], Any]]:
        self.now_s += 1.0
        if self.now_s > 1000.0:
            pytest.fail("it reads for ever")
        self._polls -= 1
        if self._polls < 0:
            yield PLACE, Message()
            self.unread.clear()

    def _ask(self, *_: Any) -> Mapping[tuple[str, int], int]:
        self._answers -= 1
        if self._answers < 0:
            raise BrokerUnavailableError("no broker answered within 10 s")
        return {PLACE: 9}


class Message:
    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_NOT_AVAILABLE, 0

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 8

    def headers(self) -> None:
        return None


def test_reading_up_to_an_end_stops_with_an_error_when_the_brokers_go_away(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch, polls=10_000, answers=1)

    with pytest.raises(BrokerUnavailableError, match="no broker answered"):
        list(read_messages(NOWHERE, "orders", from_end=False, follows=False))


def test_a_long_range_without_messages_is_read_on_while_its_leader_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of aborted transactions are no messages."""
    Cluster(monkeypatch, polls=60, answers=6)

    (message,) = read_messages(NOWHERE, "orders", from_end=False, follows=False)

    assert b"v" == message.value


def test_a_reader_that_follows_waits_for_brokers_that_went_away(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch, polls=600, answers=1)

    assert b"v" == next(iter(read_messages(NOWHERE, "orders", from_end=False, follows=True))).value
