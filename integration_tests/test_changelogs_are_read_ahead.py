"""Fetching ahead changes no result: a reader also gets the later commits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from samzapy.adapters.kafka import reading
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.container.local_state.prefetch import TASKS_AHEAD, ReadAhead
from samzapy.container.ports import ChangelogPlace
from samzapy.model.topics import changelog_topic
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_grant
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

JOB = "read-ahead-1"
TOPIC = changelog_topic(JOB, "sums")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    """The consumers that were made in the test."""
    consumers: list[Consumer] = []
    make_consumer = reading.make_consumer

    def kept(*arguments: Any) -> Consumer:
        consumers.append(make_consumer(*arguments))
        return consumers[-1]

    monkeypatch.setattr(reading, "make_consumer", kept)
    return consumers


def test_a_changelog_that_is_fetched_ahead_is_read_to_where_it_ends_then(
    broker: DevBroker | ContainerBroker, made: Sequence[Consumer]
) -> None:
    make_topics(broker.bootstrap_servers, {TOPIC: 2})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "read-ahead"})
    producer.init_transactions()
    _commit(producer, b"1")
    topics = KafkaTopics(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), JOB)

    # Two tasks share the partition; of the other one nothing is wanted any more when they are read.
    topics.read_ahead([("sums", 0, 0), ("sums", 0, 0), ("sums", 1, 0)])
    topics.read_ahead([("sums", 0, 0), ("sums", 0, 0)])
    assert 3 == len(made)
    _commit(producer, b"2")

    for _ in range(3):
        assert [b"1", b"2"] == [record.value for record in topics.changelog_records("sums", 0, 0)]
    # A reader at another offset had to begin to fetch, as the third one, over an existing connection.
    assert [b"2"] == [record.value for record in topics.changelog_records("sums", 0, 2)]
    topics.read_ahead(())
    assert 3 == len(made)
    assert all(_is_closed(consumer) for consumer in made)


def test_the_bounds_of_a_changelog_tell_an_open_transaction_while_it_is_open(
    broker: DevBroker | ContainerBroker,
) -> None:
    job = "read-ahead-4"
    make_topics(broker.bootstrap_servers, {changelog_topic(job, "sums"): 2})
    other_producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "read-ahead-other"})
    other_producer.init_transactions()
    other_producer.begin_transaction()
    other_producer.produce(changelog_topic(job, "sums"), key=b"k", value=b"1", partition=0)
    other_producer.flush()
    topics = KafkaTopics(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), job)
    places = [("sums", 0), ("sums", 1)]

    assert [0, None] == [bounds.offset_open for bounds in topics.changelog_bounds(places).values()]
    other_producer.abort_transaction()
    # The marker of the end may be written after the answer.
    wait_until(
        lambda: [None, None] == [bounds.offset_open for bounds in topics.changelog_bounds(places).values()],
        30.0,
        "the end of the transaction",
    )


def test_of_two_that_fetch_the_same_the_one_that_began_first_is_read(
    broker: DevBroker | ContainerBroker, made: Sequence[Consumer]
) -> None:
    """The other one has not got far yet, and the task would wait for it."""
    job = "read-ahead-3"
    make_topics(broker.bootstrap_servers, {changelog_topic(job, "sums"): 1})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(changelog_topic(job, "sums"), key=b"k", value=b"1")
    producer.flush()
    topics = KafkaTopics(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), job)
    topics.read_ahead([("sums", 0, 0), ("sums", 0, 0)])

    records = topics.changelog_records("sums", 0, 0)
    assert b"1" == next(records).value
    # Left half way, so it is closed.
    del records
    assert [True, False] == [_is_closed(consumer) for consumer in made]
    topics.read_ahead(())
    assert all(_is_closed(consumer) for consumer in made)


def test_one_after_the_other_changelogs_are_read_over_the_same_few_connections(
    broker: DevBroker | ContainerBroker, made: Sequence[Consumer]
) -> None:
    """Each range is read to its end in any order: tasks share partitions."""
    job, random = "read-ahead-2", Random(1)
    held = _Changelogs(broker, job, ("counts", "sums"), 4)
    for _ in range(15):
        held.write(random)
    topics = KafkaTopics(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), job)
    places = [held.of_a_task(random) for _ in range(60)]
    grants = [a_grant(f"t{number}") for number in range(len(places))]
    ahead = ReadAhead(grants, lambda grant: places[int(grant.task_name[1:])], topics)
    left_half_way = 0
    for number, own in enumerate(places):
        ahead.task_reads(number)
        if random.random() < 0.3:
            held.write(random)
        for place in own:
            wanted = held.behind(place)
            records = ((record.offset, record.value) for record in topics.changelog_records(*place))
            if random.random() < 0.1:
                assert wanted[:2] == list(islice(records, 2))
                left_half_way += 1
            else:
                assert wanted == list(records), f"task {number}, {place}"
            del records
    ahead.end()

    # Of the first task, of those that are fetched, and for each that was not read to its end.
    assert len(made) <= 2 + 2 * (1 + TASKS_AHEAD) + left_half_way
    assert all(_is_closed(consumer) for consumer in made)


class _Changelogs:
    """Changelogs of a job, and the committed records of each."""

    def __init__(
        self, broker: DevBroker | ContainerBroker, job: str, stores: Sequence[str], partition_count: int
    ) -> None:
        self._job = job
        self._stores = stores
        self._partition_count = partition_count
        self._committed: dict[tuple[str, int], list[tuple[int, bytes]]] = {
            (store, partition): [] for store in stores for partition in range(partition_count)
        }
        make_topics(broker.bootstrap_servers, {changelog_topic(job, store): partition_count for store in stores})
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": job})
        self._producer.init_transactions()
        self._written = 0

    def write(self, random: Random) -> None:
        """A transaction of a few records in a few places; one in five is aborted."""
        places = random.sample(sorted(self._committed), 3)
        written: list[tuple[tuple[str, int], int, bytes]] = []
        self._producer.begin_transaction()
        for store, partition in random.choices(places, k=random.randint(1, 20)):
            self._written += 1
            self._producer.produce(
                changelog_topic(self._job, store),
                key=b"k",
                value=b"%s/%d: %d" % (store.encode(), partition, self._written),
                partition=partition,
                on_delivery=lambda _, message, store=store: written.append(
                    ((store, message.partition()), message.offset(), message.value())
                ),
            )
        if random.random() < 0.2:
            self._producer.flush()
            self._producer.abort_transaction()
            return
        self._producer.commit_transaction()
        for place, offset, value in written:
            self._committed[place].append((offset, value))

    def of_a_task(self, random: Random) -> Sequence[ChangelogPlace]:
        """One partition of each store, from the beginning, some record or the end on."""
        partition = random.randrange(self._partition_count)
        places: list[ChangelogPlace] = []
        for store in self._stores:
            offsets = [offset for offset, _ in self._committed[store, partition]]
            places.append((store, partition, random.choice([0, *offsets, *(offset + 1 for offset in offsets[-1:])])))
        return places

    def behind(self, place: ChangelogPlace) -> Sequence[tuple[int, bytes]]:
        store, partition, offset_from = place
        return [record for record in self._committed[store, partition] if record[0] >= offset_from]


def _commit(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, value=value, key=b"k", partition=0)
    producer.commit_transaction()


def _is_closed(consumer: Consumer) -> bool:
    try:
        consumer.assignment()
    except RuntimeError:
        return True
    return False
