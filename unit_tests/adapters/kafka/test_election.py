"""A candidate's reaction to errors of the client.

The rest is in integration_tests.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from samzapy.adapters.kafka import election
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.election import KafkaElection
from samzapy.errors import SamzapyError

WITHIN_S = 30.0


class Consumer:
    """Gives one error of the client, and then nothing."""

    def __init__(self, code: int) -> None:
        self._errors = [KafkaError(code)]
        self.goes_on = threading.Event()

    def subscribe(self, topics: list[str], **_: Any) -> None:
        pass

    def poll(self, _: float) -> Any:
        if self._errors:
            error = self._errors.pop()
            return SimpleNamespace(error=lambda: error)
        self.goes_on.set()
        return None

    def close(self) -> None:
        pass


def a_candidate(monkeypatch: pytest.MonkeyPatch, code: int) -> tuple[KafkaElection, Consumer]:
    consumer = Consumer(code)
    monkeypatch.setattr(election, "make_consumer", lambda *_: consumer)
    return KafkaElection(
        KafkaConnection(bootstrap_servers="none:1"), "flights-1", session_ms=6_000, heartbeat_ms=500
    ), consumer


def test_a_fault_within_a_broker_ends_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate, consumer = a_candidate(monkeypatch, KafkaError.UNKNOWN)
    candidate.start()

    assert consumer.goes_on.wait(WITHIN_S)
    assert not candidate.wait(0)
    candidate.close()


def test_a_missing_right_ends_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate, _ = a_candidate(monkeypatch, KafkaError.GROUP_AUTHORIZATION_FAILED)
    candidate.start()

    with pytest.raises(SamzapyError, match="GROUP_AUTHORIZATION_FAILED"):
        candidate.wait(int(WITHIN_S * 1000))
    candidate.close()


def test_a_candidate_that_is_closed_as_it_joins_again_leaves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The close comes just before the thread forgets an earlier wish to leave."""
    candidate, _ = a_candidate(monkeypatch, KafkaError.UNKNOWN)

    class ClosedMeanwhile(threading.Event):
        def clear(self) -> None:
            candidate._ended.set()
            super().clear()

    candidate._leaves = ClosedMeanwhile()
    candidate.start()

    candidate._thread.join(WITHIN_S)
    is_alive = candidate._thread.is_alive()
    candidate.close()
    assert not is_alive


def test_a_closed_candidate_that_is_assigned_the_seat_is_not_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate, _ = a_candidate(monkeypatch, KafkaError.UNKNOWN)
    candidate._ended.set()
    client: Any = SimpleNamespace(incremental_assign=lambda _: None, pause=lambda _: None)

    candidate._assigned(client, [TopicPartition("coordination", 0)])

    assert not candidate.wait(0)
