"""The reader of a tail on a broker: open transactions, gaps, a deleted topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Producer

from integration_tests.bad_input.kit import Cluster, Message, unique
from integration_tests.support.odd_header import write_with_header_name
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.tail_reader import KafkaTailReader
from samzapy.container.task.ports import TailEndedError
from samzapy.container.task.work_plan import InputRecord
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.waiting import wait_until

WITHIN_S = 60.0
MANY = 2000
# Compacts within a second or two of the roll of a segment, which the next record after 100 ms causes.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
}


@pytest.fixture
def cluster(broker: DevBroker | ContainerBroker) -> Cluster:
    return Cluster(broker.bootstrap_servers)


@pytest.fixture
def reader(cluster: Cluster) -> Iterator[KafkaTailReader]:
    reader = KafkaTailReader(KafkaConnection(bootstrap_servers=cluster.bootstrap_servers))
    yield reader
    reader.close()


def read_to(reader: KafkaTailReader, topic: str, offset: int) -> Sequence[InputRecord]:
    """All records until the reader has come to an offset."""
    records: list[InputRecord] = []

    def is_there() -> bool:
        records.extend(reader.poll(0.1, 100))
        return reader.offsets_next()[topic, 0] >= offset

    wait_until(is_there, WITHIN_S, f"offset {offset} of {topic} to be read")
    return records


def test_a_tail_ends_at_a_header_name_that_is_no_text_and_the_next_one_reads_on(
    cluster: Cluster, reader: KafkaTailReader
) -> None:
    """Many records come first, because Python then specialises the call."""
    topic = cluster.topic("odd-header")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(MANY):
        producer.produce(topic, b"v", headers={"good": b"x"}, partition=0)
    assert producer.flush(WITHIN_S) == 0
    write_with_header_name(cluster.bootstrap_servers, topic, b"k", b"\xff")
    cluster.publish(topic, b"after")
    reader.assign({(topic, 0): 0})

    with pytest.raises(TailEndedError, match=f"a record of {topic} has a header that the client cannot read"):
        read_to(reader, topic, MANY + 1)

    reader.assign({(topic, 0): MANY + 1})
    assert [record.value for record in read_to(reader, topic, MANY + 2)] == [b"after"]


def test_a_tail_waits_for_the_end_of_a_transaction_and_skips_aborted_records(
    cluster: Cluster, reader: KafkaTailReader
) -> None:
    topic = cluster.topic("open")
    cluster.publish(topic, b"before")
    other_producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique("other-producer")}
    )
    other_producer.init_transactions(30)
    other_producer.begin_transaction()
    other_producer.produce(topic, b"never committed", partition=0)
    assert 0 == other_producer.flush(30)
    cluster.publish(topic, b"behind")

    reader.assign({(topic, 0): 0})
    before = read_to(reader, topic, 1)
    waited = [record for _ in range(10) for record in reader.poll(0.05, 100)]
    position = reader.offsets_next()[topic, 0]
    other_producer.abort_transaction(30)
    cluster.wait_for_markers(topic)
    after = read_to(reader, topic, cluster.end(topic))

    assert ([b"before"], [], 1) == ([record.value for record in before], waited, position)
    assert [b"behind"] == [record.value for record in after]
    assert cluster.end(topic) == reader.offsets_next()[topic, 0], "the marker of the transaction is passed, too"


def test_a_tail_reads_over_the_gaps_of_a_compacted_topic(cluster: Cluster, reader: KafkaTailReader) -> None:
    topic = unique("compacted")
    cluster.make(topic, settings=COMPACTED)
    cluster.publish(topic, *[Message(value=b"%d" % number, key=b"%d" % (number % 3)) for number in range(30)])

    def is_compacted() -> bool:
        cluster.publish(topic, Message(value=b"", key=b"roller"))
        return len(cluster.read(topic)) < 10

    wait_until(is_compacted, WITHIN_S, "compaction", poll_interval_s=0.3)
    reader.assign({(topic, 0): 0})
    records = read_to(reader, topic, cluster.end(topic))

    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    assert offsets[0] > 0, "there is a gap in front of the first record"
    # Compaction may go on meanwhile.
    assert {record.offset for record in cluster.read(topic)} <= set(offsets)


def test_a_tail_ends_when_its_topic_is_deleted_and_made_again(cluster: Cluster, reader: KafkaTailReader) -> None:
    topic = cluster.topic("deleted")
    cluster.publish(topic, b"of the old one", b"and another")
    reader.assign({(topic, 0): 0})
    assert 2 == len(read_to(reader, topic, 2))

    cluster.make_again(topic)
    cluster.publish(topic, b"of the new one")

    records: list[InputRecord] = []

    def has_ended() -> bool:
        try:
            records.extend(reader.poll(0.1, 100))
        except TailEndedError:
            return True
        return False

    wait_until(has_ended, WITHIN_S, "the tail to end")
    assert [] == records
    # The next tail begins where the next micro-batch has come to, in the new topic.
    reader.assign({(topic, 0): 0})
    assert [b"of the new one"] == [record.value for record in read_to(reader, topic, 1)]
