"""What is fetched ahead is a saving only: whoever reads finds what was committed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from samzapy.adapters.kafka import reading
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.model.topics import changelog_topic
from samzapy.testing.broker import ContainerBroker, DevBroker
from samzapy.testing.topics import make_topics

JOB = "read-ahead-1"
TOPIC = changelog_topic(JOB, "sums")


def test_a_changelog_that_is_fetched_ahead_is_read_to_where_it_ends_then(
    broker: DevBroker | ContainerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topics(broker.bootstrap_servers, {TOPIC: 2})
    made: list[Consumer] = []
    make_consumer = reading.make_consumer

    def counted(*arguments: Any) -> Consumer:
        made.append(make_consumer(*arguments))
        return made[-1]

    monkeypatch.setattr(reading, "make_consumer", counted)
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
    assert [b"2"] == [record.value for record in topics.changelog_records("sums", 0, 2)]
    # The third of them, and who began elsewhere, had to begin to fetch.
    assert 5 == len(made)
    topics.read_ahead(())
    assert 5 == len(made)


def _commit(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.produce(TOPIC, value=value, key=b"k", partition=0)
    producer.commit_transaction()
