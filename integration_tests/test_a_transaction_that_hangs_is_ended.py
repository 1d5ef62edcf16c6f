"""Transactions left open by a restarted broker, and the next owner of their id."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel

from integration_tests.candidates import Contest
from integration_tests.small_job import heartbeat_from_elsewhere
from samzapy.adapters.host.outputs_file import OutputsFile
from samzapy.adapters.kafka import hanging
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.hanging import WrittenTopics
from samzapy.adapters.kafka.reading import end_offsets, read_to_end
from samzapy.adapters.kafka.transactions import TransactionalProducer, fence_transactional_ids
from samzapy.errors import TemporaryError
from samzapy.model.container import slot_transactional_id
from samzapy.model.job import ExecutionId
from samzapy.testing.broker_cluster import DevCluster
from samzapy.testing.builders import a_config
from samzapy.testing.container_broker import wants_containers
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

# Long enough for a slow machine to write in, short enough to wait for.
TIMEOUT_MS = 10_000
TOPICS = {"hung": 6, "hung-too": 6}
PLACES = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
WRITTEN = WrittenTopics(own=["hung"], outputs=lambda: ["hung-too"])
ONE_REPLICA = {"default.replication.factor": "1", "min.insync.replicas": "1"}
_WITHIN_S = 60.0
_HANGS_AT_THE_LATEST = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    if wants_containers():
        pytest.skip("kills a broker, which one in a container cannot do: needs local brokers")
    with DevCluster(overrides=ONE_REPLICA) as running:
        make_topics(running.bootstrap_servers, TOPICS)
        yield running


@pytest.fixture
def connection(cluster: DevCluster) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=cluster.bootstrap_servers)


def open_places(connection: KafkaConnection, places: list[tuple[str, int]]) -> list[tuple[str, int]]:
    ends = end_offsets(connection, places, IsolationLevel.READ_UNCOMMITTED)
    stable = end_offsets(connection, places, IsolationLevel.READ_COMMITTED)
    return [place for place in places if stable[place] < ends[place]]


def write(producer: TransactionalProducer, value: bytes) -> None:
    producer.begin()
    for topic, partition in PLACES:
        producer.produce(topic, b"key", value, partition)
    producer.flush()


def time_out(cluster: DevCluster, connection: KafkaConnection, transactional_id: str = "") -> tuple[str, bytes, int]:
    """Let a transaction time out while the only leader of some partitions is away.

    Its partitions have no leader then, and get no end of the transaction.

    Returns:
        The transactional id, the value that its records have, and the broker that is away.
    """
    transactional_id, value = transactional_id or f"w-{uuid.uuid4().hex}", uuid.uuid4().hex.encode()
    producer = TransactionalProducer(connection, transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    producer.take_over()
    write(producer, value)
    leaders = {topic: cluster.leaders(topic) for topic in TOPICS}
    node_id = leaders["hung"][0]
    cluster.node(node_id).kill()
    led = [(topic, number) for topic in TOPICS for number, node in leaders[topic].items() if node != node_id]
    assert led and len(led) < len(PLACES)
    wait_until(lambda: not open_places(connection, led), _WITHIN_S, "the other brokers to end the transaction")
    producer.close()
    return transactional_id, value, node_id


def bring_back(cluster: DevCluster, node_id: int) -> None:
    cluster.node(node_id).start()
    wait_until(
        lambda: all(-1 not in cluster.leaders(topic).values() for topic in TOPICS),
        _WITHIN_S,
        "all partitions to be led",
    )


def hang(cluster: DevCluster, connection: KafkaConnection, transactional_id: str = "") -> tuple[str, bytes]:
    """Let a transaction hang in some of its partitions.

    Returns:
        The transactional id, and the value that its records have.
    """
    # On a busy machine the transaction may be over before the broker is killed.
    for _ in range(_HANGS_AT_THE_LATEST):
        transactional_id, value, node_id = time_out(cluster, connection, transactional_id)
        bring_back(cluster, node_id)
        fence_transactional_ids(connection, [transactional_id])
        if open_places(connection, PLACES):
            return transactional_id, value
    raise AssertionError("the fault: a transaction that is over, and open in the partitions of that broker")


def values(connection: KafkaConnection) -> set[bytes | None]:
    return {record.value for topic, partition in PLACES for record in read_to_end(connection, topic, partition)}


def commit(connection: KafkaConnection, transactional_id: str, written: WrittenTopics | None) -> bytes:
    """Take the id over and commit a transaction; returns the value of its records."""
    value = uuid.uuid4().hex.encode()
    owner = TransactionalProducer(connection, transactional_id, transaction_timeout_ms=60_000, written=written)
    owner.take_over()
    write(owner, value)
    owner.commit()
    owner.close()
    return value


def test_the_next_owner_of_an_id_ends_its_transaction_where_a_broker_has_left_it_open(
    cluster: DevCluster, connection: KafkaConnection
) -> None:
    transactional_id, hung = hang(cluster, connection)

    committed = commit(connection, transactional_id, WRITTEN)

    # Kafka answers the end of a transaction before it writes the markers.
    wait_until(lambda: not open_places(connection, PLACES), _WITHIN_S, "all partitions to be readable to their ends")
    assert committed in values(connection) and hung not in values(connection)


def test_an_id_is_not_taken_over_while_a_partition_where_it_may_hang_has_no_leader(
    cluster: DevCluster, connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "_LED_WITHIN_S", 1.0)
    transactional_id, hung, node_id = time_out(cluster, connection)

    try:
        with pytest.raises(TemporaryError, match=r"wanted a leader for each partition .*, found none for hung"):
            commit(connection, transactional_id, WRITTEN)
    finally:
        bring_back(cluster, node_id)
    committed = commit(connection, transactional_id, WRITTEN)

    wait_until(lambda: not open_places(connection, PLACES), _WITHIN_S, "all partitions to be readable to their ends")
    assert committed in values(connection) and hung not in values(connection)


def test_a_fence_ends_the_transactions_of_its_ids_where_a_broker_has_left_them_open(
    cluster: DevCluster, connection: KafkaConnection
) -> None:
    transactional_id, hung = hang(cluster, connection)

    fence_transactional_ids(connection, ["another", transactional_id], written=WRITTEN)

    wait_until(lambda: not open_places(connection, PLACES), _WITHIN_S, "all partitions to be readable to their ends")
    assert hung not in values(connection)


def test_a_leader_ends_hanging_transactions_in_outputs_that_a_lost_host_has_named(
    cluster: DevCluster, connection: KafkaConnection, tmp_path: Path
) -> None:
    """They are undeclared, and no other host has noted them."""
    with Contest(cluster.bootstrap_servers, local_store_dir=str(tmp_path / "host-a")) as contest:
        lost = a_config(job_name=contest.job_name, local_store_dir=str(tmp_path / "host-b"))
        for topic in TOPICS:
            OutputsFile.of(lost).note(topic)
        _, hung = hang(cluster, connection, slot_transactional_id(lost.job, ExecutionId("e1"), 0))
        leader = contest.candidate()

        def is_heard() -> bool:
            named = [*OutputsFile.of(lost).topics()]
            answer = heartbeat_from_elsewhere(leader.url, lost.job, "e1", outputs=named)
            return answer is not None and answer.alive

        wait_until(is_heard, _WITHIN_S, "the container to be one of the job")
        assert open_places(connection, PLACES)
        heartbeat_from_elsewhere(leader.url, lost.job, "e1", exitCode=8, reason="the host is lost")

        wait_until(
            lambda: not open_places(connection, PLACES), _WITHIN_S, "all partitions to be readable to their ends"
        )
        assert hung not in values(connection)


def test_without_that_the_next_commit_of_the_id_would_commit_the_records_too(
    cluster: DevCluster, connection: KafkaConnection
) -> None:
    """An owner checks for hanging transactions before it begins."""
    transactional_id, hung = hang(cluster, connection)

    commit(connection, transactional_id, None)

    assert hung in values(connection)


def test_a_transaction_of_another_id_is_left_open(cluster: DevCluster, connection: KafkaConnection) -> None:
    other = TransactionalProducer(connection, "another's", transaction_timeout_ms=60_000)
    other.take_over()
    write(other, b"another's")

    commit(connection, "owner", WRITTEN)
    assert len(PLACES) == len(open_places(connection, PLACES))
    other.commit()
    other.close()

    assert b"another's" in values(connection)
