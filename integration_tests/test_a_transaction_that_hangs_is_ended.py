"""Transactions that a broker leaves open as it restarts, and the next owner of their id."""

from __future__ import annotations

from confluent_kafka import IsolationLevel

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.hanging import WrittenTopics
from samzapy.adapters.kafka.reading import end_offsets, read_to_end
from samzapy.adapters.kafka.transactions import TransactionalProducer, fence_transactional_ids
from samzapy.testing.broker import DevBroker
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

TIMEOUT_MS = 1000
TOPICS = {"hung": 8, "hung-too": 8}
PLACES = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
WRITTEN = WrittenTopics(own=["hung"], outputs=lambda: ["hung-too"])
_TRIES = 6
_WITHIN_S = 30.0


def open_places(connection: KafkaConnection) -> list[tuple[str, int]]:
    ends = end_offsets(connection, PLACES, IsolationLevel.READ_UNCOMMITTED)
    stable = end_offsets(connection, PLACES, IsolationLevel.READ_COMMITTED)
    return [place for place in PLACES if stable[place] < ends[place]]


def write(producer: TransactionalProducer, value: bytes) -> None:
    producer.begin()
    for topic, partition in PLACES:
        producer.produce(topic, b"key", value, partition)
    producer.flush()


def hang(broker: DevBroker, connection: KafkaConnection) -> str:
    """Let the broker die with an open transaction, come back after its time-out, and leave it open.

    Whether it leaves the transaction open is a matter of chance, so it is tried several times.
    """
    for number in range(_TRIES):
        transactional_id = f"w{number}"
        producer = TransactionalProducer(connection, transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        producer.take_over()
        write(producer, b"hanging")
        broker.kill()
        producer.close()
        broker.start()
        # Long after the time-out the broker has ended it, or has forgotten it.
        fence_transactional_ids(connection, [transactional_id])
        if open_places(connection):
            return transactional_id
    raise AssertionError(f"no transaction hung in {_TRIES} restarts of the broker")


def values(connection: KafkaConnection) -> set[bytes | None]:
    return {record.value for topic, partition in PLACES for record in read_to_end(connection, topic, partition)}


def test_the_next_owner_of_an_id_ends_its_transaction_where_the_broker_has_left_it_open(
    own_broker: DevBroker,
) -> None:
    make_topics(own_broker.bootstrap_servers, TOPICS)
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    transactional_id = hang(own_broker, connection)

    owner = TransactionalProducer(connection, transactional_id, transaction_timeout_ms=60_000, written=WRITTEN)
    owner.take_over()
    wait_until(lambda: not open_places(connection), _WITHIN_S, "all partitions to be readable to their ends")
    write(owner, b"committed")
    owner.commit()
    owner.close()

    assert {b"committed"} == values(connection)


def test_without_that_the_next_commit_of_the_id_would_commit_the_records_too(own_broker: DevBroker) -> None:
    """The reason why an owner looks before it begins."""
    make_topics(own_broker.bootstrap_servers, TOPICS)
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    transactional_id = hang(own_broker, connection)

    owner = TransactionalProducer(connection, transactional_id, transaction_timeout_ms=60_000)
    owner.take_over()
    write(owner, b"committed")
    owner.commit()
    owner.close()

    assert {b"hanging", b"committed"} == values(connection)


def test_a_transaction_of_another_id_is_left_open(own_broker: DevBroker) -> None:
    make_topics(own_broker.bootstrap_servers, TOPICS)
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    other = TransactionalProducer(connection, "another", transaction_timeout_ms=60_000)
    other.take_over()
    write(other, b"another's")

    owner = TransactionalProducer(connection, "w", transaction_timeout_ms=60_000, written=WRITTEN)
    owner.take_over()
    owner.close()
    other.commit()
    other.close()

    assert {b"another's"} == values(connection)
