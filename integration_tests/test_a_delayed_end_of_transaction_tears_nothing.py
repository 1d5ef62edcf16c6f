"""The EndTxn guard (`stream.end_txn_guard`) on a broker, with a holding proxy.

The same events, with the guard and without it. The end of transaction 1 is held on its way and the connection is cut;
the client sends it again and gets "committed". While transaction 2 is open the held one arrives. Without the guard
it ends transaction 2 in its middle, and half of that transaction stays. With it transaction 2 has a newer
epoch, and the broker refuses the late request.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from integration_tests.support.holding_proxy import HoldingProxy
from samzapy.adapters.kafka import end_txn_signs
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.adapters.kafka.transactions import TransactionalProducer
from samzapy.errors import SamzapyError
from samzapy.stream.end_txn_guard import TransactionSigns, must_renew
from samzapy.stream.log import Write
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import wants_containers
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

REFUSED = {47: "INVALID_PRODUCER_EPOCH"}
"""Kafka's error codes for an EndTxn of an older epoch."""


class World:
    """A broker that is only reached through the proxy, and a topic on it."""

    def __init__(self, proxy: HoldingProxy, topic: str) -> None:
        self.proxy = proxy
        self.topic = topic
        self.connection = KafkaConnection(bootstrap_servers=f"127.0.0.1:{proxy.port_number}")
        self.transactional_id = f"{topic}/writer"

    def new_producer(self) -> TransactionalProducer:
        producer = TransactionalProducer(self.connection, self.transactional_id)
        producer.take_over()
        return producer

    def visible(self) -> list[str]:
        """The values that a `read_committed` reader gets."""
        return [(record.value or b"").decode() for record in read_to_end(self.connection, self.topic)]

    def write_whole(self, producer: TransactionalProducer, *values: str) -> None:
        producer.begin()
        for value in values:
            producer.produce(self.topic, b"key", value, 0)
        producer.commit()

    def write_with_the_late_ends_in_the_middle(self, producer: TransactionalProducer) -> list[int]:
        """Transaction 2; returns the broker's answers to the late requests."""
        producer.begin()
        producer.produce(self.topic, b"key", "2 first half", 0)
        producer.flush()
        answers = [self.proxy.deliver(number) for number in range(self.proxy.held_count)]
        if 0 in answers:
            # An end of a transaction is answered before its markers are written.
            wait_until(lambda: "2 first half" in self.visible(), 60.0, "the first half to be seen")
        # Without the guard this fails: the broker knows of no transaction any more.
        with suppress(SamzapyError):
            producer.produce(self.topic, b"key", "2 second half", 0)
            producer.commit()
        return answers


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[DevBroker, int]]:
    if wants_containers():
        pytest.skip("the broker must advertise the proxy's port: needs the local broker")
    with HoldingProxy() as picked:
        port_number = picked.port_number
    with DevBroker(advertised_port=port_number) as broker:
        yield broker, port_number


@pytest.fixture
def world(proxied: tuple[DevBroker, int]) -> Iterator[World]:
    broker, port_number = proxied
    with HoldingProxy(broker.port_number, port_number=port_number) as proxy:
        topic = f"torn-{uuid.uuid4().hex[:12]}"
        make_topics(broker.bootstrap_servers, {topic: 1})
        yield World(proxy, topic)


@pytest.fixture
def asked_signs(monkeypatch: pytest.MonkeyPatch) -> list[TransactionSigns]:
    """The signs that the guard was asked about."""
    asked: list[TransactionSigns] = []

    def noting(signs: TransactionSigns, *, retry_backoff_min_s: float) -> bool:
        asked.append(signs)
        return must_renew(signs, retry_backoff_min_s=retry_backoff_min_s)

    monkeypatch.setattr(end_txn_signs, "must_renew", noting)
    return asked


@pytest.fixture
def without_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_txn_signs, "must_renew", lambda signs, **_: False)


def one_cut(world: World) -> TransactionalProducer:
    """Transaction 1, whose EndTxn is held while the client's second try gets through."""
    producer = world.new_producer()
    world.proxy.hold_next()
    world.write_whole(producer, "1")
    assert world.proxy.held_count == 1, "nothing was held: the test shows nothing"
    return producer


def a_cut_before_and_one_at_the_end(world: World) -> TransactionalProducer:
    """Within 30 s, in which librdkafka does not report an equal error again."""
    producer = world.new_producer()
    assert world.proxy.cut_all() > 0

    def has_reported() -> bool:
        # Asking serves the event of this cut before the transaction begins, so it is no sign for it.
        assert not producer.must_be_renewed
        return producer._events.count > 0

    wait_until(has_reported, 20.0, "the client to report the first cut")
    world.proxy.hold_next()
    world.write_whole(producer, "1")
    assert world.proxy.held_count == 1, "nothing was held: the test shows nothing"
    return producer


def two_cuts_at_the_end(world: World) -> TransactionalProducer:
    """The second try is held too; the third gets through."""
    producer = world.new_producer()
    world.proxy.hold_next(2)
    world.write_whole(producer, "1")
    assert world.proxy.held_count == 2, "nothing was held twice: the test shows nothing"
    return producer


Cut = Callable[[World], TransactionalProducer]
CUTS = [one_cut, a_cut_before_and_one_at_the_end, two_cuts_at_the_end]


@pytest.mark.parametrize("cut", CUTS)
def test_without_the_guard_a_late_end_cuts_the_next_transaction_in_two(
    world: World, without_guard: None, cut: Cut
) -> None:
    producer = cut(world)
    assert not producer.must_be_renewed

    answers = world.write_with_the_late_ends_in_the_middle(producer)

    producer.close()
    assert answers[0] == 0, "the broker took the late one for the end of transaction 2"
    assert world.visible() == ["1", "2 first half"]


@pytest.mark.parametrize("cut", CUTS)
def test_with_the_guard_the_late_end_is_refused_and_nothing_is_torn(
    world: World, asked_signs: list[TransactionSigns], cut: Cut
) -> None:
    producer = cut(world)
    assert producer.must_be_renewed
    producer.close()
    renewed = world.new_producer()

    answers = world.write_with_the_late_ends_in_the_middle(renewed)

    renewed.close()
    assert [REFUSED.get(answer, answer) for answer in answers] == ["INVALID_PRODUCER_EPOCH"] * len(answers)
    assert world.visible() == ["1", "2 first half", "2 second half"]


def test_the_duration_alone_reveals_a_single_cut(world: World, asked_signs: list[TransactionSigns]) -> None:
    """The client reports no error of a closed connection, and late statistics."""
    producer = one_cut(world)

    assert producer.must_be_renewed

    producer.close()
    alone = replace(asked_signs[-1], error_events=0, counters_after=asked_signs[-1].counters_before)
    assert must_renew(alone, retry_backoff_min_s=end_txn_signs.RETRY_BACKOFF_MIN_S)


def test_a_log_renews_itself_before_its_next_append(world: World) -> None:
    log = KafkaLog(world.connection, world.topic, world.transactional_id)
    log.take_over()
    world.proxy.hold_next()
    log.append_atomically([Write(key=b"a", value=b"1"), Write(key=b"b", value=b"2")])
    assert world.proxy.held_count == 1, "nothing was held: the test shows nothing"

    log.append_atomically([Write(key=b"a", value=b"3"), Write(key=b"b", value=b"4")])

    log.close()
    assert REFUSED[world.proxy.deliver()] == "INVALID_PRODUCER_EPOCH"
    assert world.visible() == ["1", "2", "3", "4"]
