"""The reader of a standby reads past open transactions of changelogs."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Producer

from samzapy.adapters.kafka.changelog_follower import KafkaChangelogFollower
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.container.ports import ChangelogRead
from samzapy.model.topics import changelog_topic
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

JOB = "tailed-1"
TOPIC = changelog_topic(JOB, "sums")
Place = tuple[str, int]


class _Read:
    """Everything that a follower has handed out."""

    def __init__(self, follower: KafkaChangelogFollower) -> None:
        self._follower = follower
        self.values: dict[Place, list[bytes | None]] = {}
        self.last: Mapping[Place, ChangelogRead] = {}

    def has(self, **wanted: list[bytes]) -> bool:
        self.last = self._follower.poll(1000)
        for place, progress in self.last.items():
            self.values.setdefault(place, []).extend(record.value for record in progress.records)
        return {("sums", int(name[1:])): values for name, values in wanted.items()} == self.values


def test_a_standby_reads_past_transactions_and_reports_its_position(broker: DevBroker | ContainerBroker) -> None:
    make_topics(broker.bootstrap_servers, {TOPIC: 2})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tailed"})
    producer.init_transactions()
    follower = KafkaChangelogFollower(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), JOB)
    read = _Read(follower)
    try:
        follower.assign({("sums", 0): 0, ("sums", 1): 0})
        for value in (b"1", b"2"):
            _produce(producer, value)
            producer.commit_transaction()
        wait_until(lambda: read.has(p0=[b"1", b"2"], p1=[]), 60, "the committed records")
        wait_until(lambda: read.has(p0=[b"1", b"2"], p1=[]) and _is_at_end(read), 60, "the ends")
        # Two records, each with the marker of its transaction.
        assert (4, 4) == (read.last["sums", 0].offset_next, read.last["sums", 0].offset_end)

        _produce(producer, b"3")
        wait_until(lambda: read.has(p0=[b"1", b"2"], p1=[]) and read.last["sums", 0].offset_end == 5, 60, "a lag")
        assert 4 == read.last["sums", 0].offset_next
        producer.abort_transaction()
        _produce(producer, b"4")
        producer.commit_transaction()
        wait_until(
            lambda: read.has(p0=[b"1", b"2", b"4"], p1=[]) and _is_at_end(read),
            20,
            "the records that were not aborted",
        )
        assert (8, 8) == (read.last["sums", 0].offset_next, read.last["sums", 0].offset_end)

        follower.assign({("sums", 0): 2})
        read.values.clear()
        wait_until(lambda: read.has(p0=[b"2", b"4"]), 60, "the records that are read again")
    finally:
        follower.close()


def _produce(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, value=value, key=b"k", partition=0)
    producer.flush()


def _is_at_end(read: _Read) -> bool:
    return all(progress.is_at_end for progress in read.last.values())
