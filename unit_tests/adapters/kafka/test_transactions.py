"""The parts of a transactional producer that need no broker.

The rest is in integration_tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from samzapy.adapters.kafka import end_txn_signs, transactions
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.hanging import WrittenTopics
from samzapy.adapters.kafka.positions import KafkaFence
from samzapy.adapters.kafka.transactions import TransactionalProducer
from samzapy.errors import TemporaryError
from samzapy.stream.end_txn_guard import ConnectionCounters
from samzapy.testing.waiting import wait_until

NOWHERE = KafkaConnection(bootstrap_servers="127.0.0.1:1")


def test_serving_a_producer_drains_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics: list[str] = []

    def parse(text: str) -> ConnectionCounters:
        statistics.append(text)
        return ConnectionCounters()

    monkeypatch.setattr(end_txn_signs, "parse_counters", parse)
    producer = TransactionalProducer(NOWHERE, "flights-1/w")

    def has_statistics() -> bool:
        producer.serve()
        return bool(statistics)

    wait_until(has_statistics, 30.0, "the first statistics")
    producer.close()
    producer.serve()


def test_a_fence_asks_for_the_time_out_of_its_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    fences: list[tuple[str, int]] = []

    class Producer:
        def __init__(self, connection: KafkaConnection, transactional_id: str, **settings: Any) -> None:
            fences.append((transactional_id, settings["transaction_timeout_ms"]))

        def take_over(self, deadline_s: float) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(transactions, "TransactionalProducer", Producer)

    KafkaFence(NOWHERE, 7_000).fence(["a", "b"])

    assert [("a", 7_000), ("b", 7_000)] == sorted(fences)


def test_a_fence_looks_at_named_outputs_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has no leader keeps no other topic from being readable."""
    ended: list[list[tuple[str, int]]] = []

    class Producer:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def take_over(self, deadline_s: float) -> None:
            pass

        def close(self) -> None:
            pass

    def places_that_hang(connection: KafkaConnection, written: WrittenTopics) -> list[tuple[str, int]]:
        if "leaderless" in written.all:
            raise TemporaryError("found no leader")
        return [(topic, 0) for topic in sorted(written.all)]

    monkeypatch.setattr(transactions, "TransactionalProducer", Producer)
    monkeypatch.setattr(transactions, "places_that_hang", places_that_hang)
    monkeypatch.setattr(transactions, "end_in", lambda producer, places: ended.append(places))
    fence = KafkaFence(NOWHERE, 7_000, written=WrittenTopics(own=["own"], read=frozenset({"orders"})))

    fence.fence(["a"], ["own", "sums", "orders"])
    fence.fence(["a"], ["leaderless"])
    fence.fence(["a"], ["orders"])

    assert [[("own", 0)], [("sums", 0)], [("own", 0)], [("own", 0)]] == ended


def test_closing_waits_for_records_under_way_before_it_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that reaches its broker behind the abort hangs there."""
    calls: list[tuple[str, Any]] = []

    class Client:
        produce = poll = cluster_id = init_transactions = begin_transaction = staticmethod(lambda *_: 0)

        def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
            calls.append(("purge", (in_queue, in_flight)))

        def abort_transaction(self, timeout_s: float) -> None:
            calls.append(("abort", timeout_s))

        def close(self) -> None:
            calls.append(("close", None))

    monkeypatch.setattr(transactions, "make_client", lambda *_: Client())
    producer = TransactionalProducer(NOWHERE, "flights-1/w")
    producer.take_over()
    producer.begin()

    producer.close()

    assert calls == [("purge", (True, False)), ("abort", 1.0), ("close", None)]
