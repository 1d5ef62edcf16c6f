"""The parts of a transactional producer that need no broker.

The rest is in integration_tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from samzapy.adapters.host.crash_points import crash_points
from samzapy.adapters.kafka import end_txn_signs, transactions
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.hanging import WrittenTopics
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.placement import KafkaPlacementWriter
from samzapy.adapters.kafka.positions import KafkaFence, KafkaProgressLog
from samzapy.adapters.kafka.transactions import TransactionalProducer, new_owner
from samzapy.errors import ProducerError, TemporaryError
from samzapy.runtime import worker_process
from samzapy.runtime.worker_tail import WorkerCrashPoints
from samzapy.stream.end_txn_guard import ConnectionCounters
from samzapy.stream.log import Write
from samzapy.testing.builders import a_work_plan
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


def test_a_fence_looks_at_outputs_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has no leader keeps no topic of samzapy from being readable."""
    ended: list[list[tuple[str, int]]] = []

    class Producer:
        must_be_renewed = False

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
    ended.clear()

    KafkaFence(NOWHERE, 7_000, written=WrittenTopics(own=["own"], outputs=lambda: ["leaderless"])).fence(["a"])

    assert [[("own", 0)]] == ended


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


class SlowAborts:
    """Clients whose aborts take half a second by the clock of their producers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fatal: KafkaError | None = None) -> None:
        self.now_s = 0.0
        self.fatal = fatal
        self.calls: list[str] = []
        monkeypatch.setattr(transactions, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(transactions, "make_client", lambda *_: self)
        monkeypatch.setattr(transactions, "places_that_hang", lambda connection, written: [("own", 0)])

    cluster_id = purge = poll = flush = staticmethod(lambda *_, **__: 0)

    def __len__(self) -> int:
        return 0

    def init_transactions(self, timeout_s: float) -> None:
        self.calls.append("init")

    def begin_transaction(self) -> None:
        if self.fatal is not None:
            raise KafkaException(self.fatal)
        self.calls.append("begin")

    def produce(self, *_: Any, on_delivery: Any = None, **__: Any) -> None:
        if on_delivery is not None:
            on_delivery(None, SimpleNamespace(offset=lambda: 0))

    def abort_transaction(self, timeout_s: float) -> None:
        self.calls.append("abort")
        self.now_s += 0.5

    def commit_transaction(self, timeout_s: float) -> None:
        self.calls.append("commit")

    def close(self) -> None:
        self.calls.append("close")


def append_to_log() -> None:
    owner = KafkaLog(NOWHERE, "own", "flights-1/w")
    owner.take_over()
    owner.append_atomically([Write(key=b"k", value=b"v")])


def answer_requests() -> None:
    owner = KafkaPlacementWriter(NOWHERE, "own", "flights-1/w")
    owner.acquire()
    owner.write([Write(key=b"k", value=b"v")])


def append_progress() -> None:
    owner = KafkaProgressLog(NOWHERE, "flights-1", "flights-1/w", 60_000, WrittenTopics(own=["own"]))
    owner.acquire()
    owner.append([(b"k", b"v")])


def commit_in_a_slot() -> None:
    owner = worker_process._Producers(a_work_plan(), NOWHERE, WorkerCrashPoints(crash_points({}))).make(0)
    owner.begin()
    owner.commit()


@pytest.mark.parametrize("write", [append_to_log, answer_requests, append_progress, commit_in_a_slot])
def test_an_owner_may_begin_after_it_aborted_a_hanging_transaction_slowly(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[], None]
) -> None:
    """It takes over once more, and looks no more: the next abort would be as slow."""
    cluster = SlowAborts(monkeypatch)
    monkeypatch.setattr(worker_process, "read_to_end", lambda *_: iter(()))

    write()

    assert ["init", "begin", "abort", "close", "init", "begin", "commit"] == cluster.calls


def test_a_fence_goes_on_to_outputs_after_a_slow_abort_in_topics_of_samzapy(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SlowAborts(monkeypatch)

    KafkaFence(NOWHERE, 7_000, written=WrittenTopics(own=["own"], outputs=lambda: ["sums"])).fence(["a"])

    assert ["init", "begin", "abort", "close", "init", "begin", "abort", "close"] == cluster.calls


def test_an_owner_that_was_fenced_while_it_ended_a_hanging_transaction_takes_over_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would fence the newer owner."""
    cluster = SlowAborts(monkeypatch, fatal=KafkaError(KafkaError._FENCED, fatal=True))

    owner = new_owner(partial(TransactionalProducer, NOWHERE, "flights-1/w", written=WrittenTopics(own=["own"])))

    assert ["init"] == cluster.calls
    with pytest.raises(ProducerError, match="must be renewed"):
        owner.begin()
