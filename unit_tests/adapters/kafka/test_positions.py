from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from samzapy.adapters.kafka import positions
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.positions import KafkaPositions
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.errors import MissingTopicError, TemporaryError
from samzapy.testing.builders import an_ssp

ORDERS, REFUNDS = an_ssp("kafka.orders.0"), an_ssp("kafka.refunds.0")


@pytest.fixture
def reader_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[set[str]], KafkaPositions]:
    """Positions on a cluster that lacks a topic at the first question for offsets.

    At the second question the topics of `there` exist.
    """

    def after(there: set[str]) -> KafkaPositions:
        answers = iter([{"orders", "refunds"}, there])

        def led(self: KafkaAdmin, names: Any) -> Mapping[str, frozenset[int]]:
            return dict.fromkeys(next(answers), frozenset({0}))

        def offsets(*_: Any) -> None:
            raise MissingTopicError("wanted the offsets of refunds, found no such topic")

        monkeypatch.setattr(KafkaAdmin, "led", led)
        monkeypatch.setattr(KafkaTopics, "checkpoint_records", lambda _: iter(()))
        monkeypatch.setattr(positions, "beginning_offsets", offsets)
        return KafkaPositions(KafkaConnection(bootstrap_servers="b:1"), "flights-1")

    return after


def test_an_input_that_is_deleted_between_two_questions_is_a_temporary_error(reader_with: Any) -> None:
    with pytest.raises(TemporaryError, match="refunds"):
        reader_with({"orders"}).read([ORDERS, REFUNDS])


def test_a_missing_topic_error_of_an_input_with_a_leader_is_raised(reader_with: Any) -> None:
    with pytest.raises(MissingTopicError, match="refunds"):
        reader_with({"orders", "refunds"}).read([ORDERS, REFUNDS])


def test_a_partition_without_a_leader_is_left_out_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def led(self: KafkaAdmin, names: Any) -> Mapping[str, frozenset[int]]:
        return dict.fromkeys(names, frozenset({0}))

    def offsets(_: Any, places: Any, *__: Any) -> Mapping[tuple[str, int], int]:
        return dict.fromkeys(places, 7)

    monkeypatch.setattr(KafkaAdmin, "led", led)
    monkeypatch.setattr(KafkaTopics, "checkpoint_records", lambda _: iter(()))
    monkeypatch.setattr(positions, "beginning_offsets", offsets)
    monkeypatch.setattr(positions, "end_offsets", offsets)
    partitions = [an_ssp("kafka.orders.0"), an_ssp("kafka.orders.1")]

    read_positions = KafkaPositions(KafkaConnection(bootstrap_servers="b:1"), "flights-1").read(partitions)

    assert [partitions[0]] == list(read_positions.bounds)
