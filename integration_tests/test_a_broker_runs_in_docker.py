"""The broker of testcontainers handles transactions as the local one does."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.topics import make_topics


@pytest.mark.docker
def test_a_committed_record_is_read() -> None:
    with ContainerBroker() as broker:
        make_topics(broker.bootstrap_servers, {"docker-a": 1})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "docker"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("docker-a", b"value", b"key")
        producer.commit_transaction(30)

        connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
        records = list(read_to_end(connection, "docker-a", 0, 0))

    assert [(b"key", b"value")] == [(record.key, record.value) for record in records]
