"""The contract of `stream/log.py` on a real broker, and its behaviour only there."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from integration_tests.support.odd_header import write_with_header_name
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection, flush, make_client
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.message_headers import UNREADABLE_HEADERS
from samzapy.adapters.kafka.reading import (
    PartitionReader,
    beginning_offsets,
    end_offsets,
    offsets_at,
    read_to_end,
)
from samzapy.adapters.kafka.transactions import TransactionalProducer, fence_transactional_ids, producer_settings
from samzapy.config import MESSAGE_BYTES_MAX
from samzapy.errors import (
    BrokerUnavailableError,
    FencedError,
    LostRangeError,
    MissingTopicError,
    ProducerError,
    UndeliveredError,
)
from samzapy.stream.log import CompactedLog, Write
from samzapy.testing.broker import DevBroker
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until
from unit_tests.conformance.log_contract import LogContract, LogWorld, OpenTransaction, pairs, put
from unit_tests.conformance.log_scripts import Step, a_script, play
from unit_tests.testing.test_memory_log import MemoryWorld

# Compacts within a second or two of the roll of a segment, which the next append after 100 ms causes.
EAGER = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}
# Records appended after a compaction stay unchanged.
LAZY = {"segment.ms": "604800000", "min.compaction.lag.ms": "604800000"}
COMPACTED_WITHIN_S = 60.0
SCRIPTS = int(os.environ.get("SAMZAPY_LOG_SCRIPTS", "12"))
SCRIPTS_PER_TEST = 60
SCRIPTS_AT_ONCE = 12


class KafkaWorld:
    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self._open: list[KafkaLog | TransactionalProducer] = []

    def log(self, transactional_id: str = "writer") -> CompactedLog:
        log = KafkaLog(
            self.connection,
            self.topic,
            f"{self.topic}/{transactional_id}",
            take_over_deadline_s=20.0,
            read_deadline_s=15.0,
        )
        self._open.append(log)
        return log

    def open_transaction(self, transactional_id: str, writes: Sequence[Write]) -> OpenTransaction:
        producer = TransactionalProducer(self.connection, f"{self.topic}/{transactional_id}")
        self._open.append(producer)
        producer.take_over(20.0)
        producer.begin()
        for write in writes:
            producer.produce(self.topic, write.key, write.value, 0, write.headers)
        producer.flush()
        return producer

    def fence(self, transactional_ids: Sequence[str]) -> None:
        fence_transactional_ids(self.connection, [f"{self.topic}/{name}" for name in transactional_ids])

    def compact(self) -> None:
        # Only now: an eager cleaner would also compact the records that other tests read back.
        self._set(EAGER)
        roller = TransactionalProducer(self.connection, f"{self.topic}/roller")
        self._open.append(roller)
        roller.take_over(20.0)
        deadline = time.monotonic() + COMPACTED_WITHIN_S
        while True:
            time.sleep(0.3)
            roller.begin()
            roller.produce(self.topic, b"roller", b"", 0)
            roller.flush()
            roller.abort()
            records = pairs(read_to_end(self.connection, self.topic))
            if len({key for key, _ in records}) == len(records) and all(value is not None for _, value in records):
                break
            assert time.monotonic() < deadline, f"not compacted: {records}"
        self._set(LAZY)

    def _set(self, settings: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.connection.bootstrap_servers})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()

    def close(self) -> None:
        for opened in self._open:
            opened.close()


@pytest.fixture
def connection(broker: DevBroker) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=broker.bootstrap_servers)


def create_topic(connection: KafkaConnection, partition_count: int = 1, **settings: str) -> str:
    topic = f"log-{uuid.uuid4().hex[:12]}"
    make_topics(connection.bootstrap_servers, {topic: partition_count}, settings)
    return topic


@pytest.fixture
def topic(connection: KafkaConnection) -> str:
    return create_topic(connection, **{"cleanup.policy": "compact"})


class TestKafkaLogKeepsTheContract(LogContract):
    @pytest.fixture
    def world(self, connection: KafkaConnection, topic: str) -> Iterator[LogWorld]:
        world = KafkaWorld(connection, topic)
        yield world
        world.close()


@pytest.mark.parametrize("first", range(0, SCRIPTS, SCRIPTS_PER_TEST))
def test_the_log_in_memory_answers_like_the_broker(connection: KafkaConnection, first: int) -> None:
    """Random scripts on both logs give the same fences, aborts, records and offsets.

    A script waits most of the time: for the broker, and for its cleaner. Each has a topic and transactional ids of its
    own, so several are played at once.
    """
    scripts = {seed: a_script(seed) for seed in range(first, min(first + SCRIPTS_PER_TEST, SCRIPTS))}

    with ThreadPoolExecutor(SCRIPTS_AT_ONCE) as pool:
        outcomes = dict(
            zip(scripts, pool.map(lambda script: played(connection, script), scripts.values()), strict=True)
        )

    assert {seed: play(MemoryWorld(), script) for seed, script in scripts.items()} == outcomes


def played(connection: KafkaConnection, script: Sequence[Step]) -> list[str]:
    world = KafkaWorld(connection, create_topic(connection, **{"cleanup.policy": "compact"}))
    try:
        return play(world, script)
    finally:
        world.close()


@pytest.fixture
def world(connection: KafkaConnection, topic: str) -> Iterator[KafkaWorld]:
    world = KafkaWorld(connection, topic)
    yield world
    world.close()


def test_a_waiting_read_continues_when_the_open_transaction_ends(world: KafkaWorld) -> None:
    log = KafkaLog(world.connection, world.topic, "w", read_deadline_s=20.0)
    log.take_over()
    log.append_atomically([put("a", "1")])
    blocker = world.open_transaction("other", [put("b", "2")])
    log.append_atomically([put("c", "3")])
    timer = threading.Timer(1.0, blocker.commit)
    started = time.monotonic()

    timer.start()
    records = pairs(log.read())

    timer.join()
    assert records == [("a", "1"), ("b", "2"), ("c", "3")]
    assert time.monotonic() - started >= 0.9
    log.close()


def test_every_append_is_seen_by_a_read_that_starts_after_it(world: KafkaWorld) -> None:
    """EndTxn is answered before its markers are written: an EOF after it is too early."""
    log = world.log()
    log.take_over()
    with PartitionReader(world.connection, world.topic) as reader:
        for number in range(50):
            log.append_atomically([put("a", str(number))])
            assert [value for _, value in pairs(reader.read_to_end())][-1] == str(number)


def test_a_reader_follows_a_topic_from_its_last_offset(world: KafkaWorld) -> None:
    log = world.log()
    log.take_over()
    seen: list[tuple[str, str | None]] = []
    offset_next = 0
    with PartitionReader(world.connection, world.topic) as reader:
        for number in range(20):
            log.append_atomically([put("a", str(number)), put("b", str(number))])
            for record in reader.read_to_end(offset_next):
                offset_next = record.offset + 1
                seen.extend(pairs([record]))

    assert seen == [(key, str(number)) for number in range(20) for key in "ab"]


def test_a_read_reports_its_progress_while_it_runs(world: KafkaWorld) -> None:
    counted: list[int] = []
    log = KafkaLog(world.connection, world.topic, f"{world.topic}/counted", on_record=lambda: counted.append(1))
    log.take_over()
    log.append_atomically([put("a", str(number)) for number in range(30)])

    assert [1] * 10 == [counted[-1] for _ in itertools.islice(log.read(), 10)]
    assert 10 == len(counted)
    log.close()


def test_an_abandoned_iterator_does_not_disturb_the_next(world: KafkaWorld) -> None:
    log = world.log()
    log.take_over()
    log.append_atomically([put("a", str(number)) for number in range(3000)])
    with PartitionReader(world.connection, world.topic) as reader:
        for _ in range(5):
            assert len(list(itertools.islice(reader.read_to_end(), 10))) == 10
            assert len(list(reader.read_to_end(1000))) == 2000


def test_a_missing_topic_is_named(connection: KafkaConnection) -> None:
    with pytest.raises(MissingTopicError, match="no-such-topic"):
        list(read_to_end(connection, "no-such-topic", deadline_s=5.0))


def test_a_start_that_was_deleted_is_a_lost_range_and_not_skipped(world: KafkaWorld) -> None:
    topic = create_topic(world.connection)
    log = KafkaLog(world.connection, topic, f"{topic}/w")
    log.take_over()
    for number in range(5):
        log.append_atomically([put("a", str(number))])
    admin = AdminClient({"bootstrap.servers": world.connection.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result()

    with pytest.raises(LostRangeError, match=f"{topic}-0 from offset 2"):
        list(log.read(2))

    assert beginning_offsets(world.connection, [(topic, 0)]) == {(topic, 0): 4}
    assert [value for _, value in pairs(log.read(4))] == ["2", "3", "4"]
    log.close()


def test_no_broker_at_all_is_named_with_addresses_and_time() -> None:
    nowhere = KafkaConnection(bootstrap_servers="127.0.0.1:1")

    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1"):
        KafkaLog(nowhere, "t", "w", read_deadline_s=1.0).end_offset()
    with pytest.raises(BrokerUnavailableError, match=r"within \d s at 127\.0\.0\.1:1"):
        KafkaLog(nowhere, "t", "w", take_over_deadline_s=1.0).take_over()


def test_offsets_are_asked_for_many_partitions_at_once(connection: KafkaConnection) -> None:
    # Retention would delete records with such timestamps.
    topic = create_topic(connection, partition_count=3, **{"retention.ms": "-1"})
    where = [(topic, partition) for partition in range(3)]
    producer = TransactionalProducer(connection, f"{topic}/w")
    producer.take_over()
    producer.begin()
    for partition, count in enumerate([0, 1, 2]):
        for number in range(count):
            producer.produce(topic, b"k", b"v", partition, timestamp_ms=1000 + number)
    producer.flush()

    ends_open = end_offsets(connection, where)
    producer.commit()
    producer.close()
    for where_one in where:
        list(read_to_end(connection, *where_one))

    assert ends_open == {(topic, 0): 0, (topic, 1): 1, (topic, 2): 2}
    assert end_offsets(connection, where) == {(topic, 0): 0, (topic, 1): 2, (topic, 2): 3}
    assert beginning_offsets(connection, where) == dict.fromkeys(where, 0)
    # The marker of partition 1 is of now, so it is the first thing there that is not older.
    assert offsets_at(connection, where, 1001) == {(topic, 0): 0, (topic, 1): 1, (topic, 2): 1}


def test_a_record_that_the_broker_refuses_lets_the_commit_fail_before_anything_is_committed(
    connection: KafkaConnection,
) -> None:
    topic = create_topic(connection, **{"max.message.bytes": "1000"})
    producer = TransactionalProducer(connection, f"{topic}/w", settings={"compression.type": "none"})
    producer.take_over()
    producer.begin()
    producer.produce(topic, b"a", b"small", 0)
    producer.flush()

    producer.produce(topic, b"b", b"x" * 5000, 0)
    with pytest.raises(ProducerError, match=r"MSG_SIZE_TOO_LARGE|larger than"):
        producer.commit()

    assert producer.must_be_renewed
    producer.abort()
    producer.close()
    assert list(read_to_end(connection, topic)) == []


@pytest.mark.parametrize("wrong", ["no key", "ahead", "behind"])
def test_a_record_beyond_a_topic_s_limits_makes_the_broker_refuse_its_whole_transaction(
    connection: KafkaConnection, topic: str, wrong: str
) -> None:
    strict = create_topic(connection, **{"cleanup.policy": "compact", "message.timestamp.before.max.ms": "60000"})
    producer = TransactionalProducer(connection, f"{topic}/w")
    producer.take_over()
    assert producer.partition_count(strict) == 1
    now_ms = int(time.time() * 1000)
    key = None if wrong == "no key" else b"a"
    timestamp_ms = {"no key": now_ms, "ahead": now_ms + 3_700_000, "behind": now_ms - 70_000}[wrong]

    limits = producer.topic_limits(strict)

    assert limits is not None
    assert limits.refusal(key, timestamp_ms, now_ms)
    assert not limits.refusal(b"a", now_ms, now_ms)
    producer.begin()
    producer.produce(strict, key, b"1", 0, timestamp_ms=timestamp_ms)
    with pytest.raises(ProducerError, match=r"INVALID_RECORD|INVALID_TIMESTAMP"):
        producer.commit()
    producer.close()


@pytest.mark.parametrize("asked", ["at once", "when the record has timed out", "for room"])
def test_a_slow_broker_and_a_refusing_broker_have_different_errors(own_broker: DevBroker, asked: str) -> None:
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    topic = create_topic(connection)
    settings = {"queue.buffering.max.messages": 1} if asked == "for room" else {}
    producer = TransactionalProducer(connection, f"{topic}/w", transaction_timeout_ms=3000, settings=settings)
    producer.take_over()
    producer.begin()
    own_broker.pause()
    try:
        producer.produce(topic, b"a", b"1", 0)
        if asked == "when the record has timed out":
            wait_until(lambda: producer.serve() or not len(producer._producer), 30, "the client to give it up")
        waiting = partial(producer.produce, topic, b"b", b"2", 0) if asked == "for room" else producer.commit
        with pytest.raises(UndeliveredError):
            waiting()
    finally:
        own_broker.resume()
    assert producer.must_be_renewed
    producer.close()


def test_a_producer_knows_which_records_a_topic_takes_and_asks_once(
    connection: KafkaConnection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    look = KafkaAdmin.look
    monkeypatch.setattr(KafkaAdmin, "look", lambda admin, names: asked.extend(names) or look(admin, names))
    small = create_topic(connection, **{"max.message.bytes": "1000"})
    producer = TransactionalProducer(connection, f"{topic}/w")

    # As a worker does: it waits for a topic that is just being made.
    assert [1, 1] == [producer.partition_count(name) for name in (small, topic)]
    topic_limits = [producer.topic_limits(name) for name in (small, topic, "missing-topic", small)]
    producer.close()

    assert [1000, MESSAGE_BYTES_MAX, None, 1000] == [limits and limits.batch_bytes_max for limits in topic_limits]
    assert [small, topic, "missing-topic"] == asked


def test_a_producer_waits_for_space_in_a_full_queue(connection: KafkaConnection, topic: str) -> None:
    producer = TransactionalProducer(
        connection, f"{topic}/w", settings={"queue.buffering.max.messages": 10, "linger.ms": 0}
    )
    producer.take_over()
    producer.begin()
    offsets: list[int] = []

    for number in range(500):
        producer.produce(topic, b"k", str(number).encode(), 0, on_offset=offsets.append)
    producer.commit()
    producer.close()

    assert offsets == list(range(500))
    assert [value for _, value in pairs(read_to_end(connection, topic))] == [str(n) for n in range(500)]


def test_a_flush_waits_for_no_more_records(connection: KafkaConnection, topic: str) -> None:
    """Producers may hold records for long (`linger.ms`): no commit waits for it."""
    lingers_ms = 30_000
    producer = TransactionalProducer(connection, f"{topic}/w", settings={"linger.ms": lingers_ms})
    producer.take_over()
    producer.begin()
    producer.produce(topic, b"k", b"v", 0)
    begun_s = time.monotonic()

    producer.flush()
    producer.commit()
    producer.close()

    assert time.monotonic() - begun_s < lingers_ms / 1000 / 2
    assert [("k", "v")] == pairs(read_to_end(connection, topic))


def test_a_timed_out_transaction_is_reported_as_fenced(connection: KafkaConnection, topic: str) -> None:
    """Their errors are equal."""
    producer = TransactionalProducer(connection, f"{topic}/w", transaction_timeout_ms=10_000)
    producer.take_over()
    producer.begin()
    producer.produce(topic, b"a", b"1", 0)
    producer.flush()
    where = (topic, 0)
    wait_until(lambda: end_offsets(connection, [where])[where] == 2, 60, "the marker of the abort")

    with pytest.raises((FencedError, ProducerError)):
        producer.commit()
    assert producer.must_be_renewed
    producer.close()
    assert list(read_to_end(connection, topic)) == []


def test_fencing_ids_ends_the_open_transactions_of_their_owners(world: KafkaWorld) -> None:
    owners = {name: world.open_transaction(name, [put(name, "1")]) for name in ("x", "y", "z")}

    fence_transactional_ids(world.connection, [f"{world.topic}/{name}" for name in [*owners, "never-used"]])

    for owner in owners.values():
        with pytest.raises((FencedError, ProducerError)):
            owner.commit()
    assert list(read_to_end(world.connection, world.topic)) == []


def test_a_log_continues_with_a_new_producer_after_a_sign_of_trouble(world: KafkaWorld) -> None:
    log = KafkaLog(world.connection, world.topic, "w")
    log.take_over()
    log.append_atomically([put("a", "1")])
    first = log._producer
    assert first is not None
    first._signs.end(duration_s=1.0)

    log.append_atomically([put("a", "2")])

    assert log._producer is not first
    assert pairs(log.read()) == [("a", "1"), ("a", "2")]
    log.close()


def test_a_log_that_renews_its_id_notices_another_leader(world: KafkaWorld) -> None:
    """Else the renewal would fence the rightful owner and keep old state (L4 and L5)."""
    log = KafkaLog(world.connection, world.topic, "w")
    log.take_over()
    log.append_atomically([put("a", "1")])
    rightful = KafkaLog(world.connection, world.topic, "w")
    rightful.take_over()
    rightful.append_atomically([put("a", "2")])
    assert log._producer is not None
    log._producer._signs.end(duration_s=1.0)

    with pytest.raises(FencedError, match="another process led"):
        log.append_atomically([put("a", "stale")])

    assert pairs(log.read()) == [("a", "1"), ("a", "2")]
    log.close()
    rightful.close()


def test_the_partitioner_is_the_one_of_jvm_producers(connection: KafkaConnection) -> None:
    """Java's `toPositive(murmur2("foobar")) % 8`, from Kafka's UtilsTest (-790332482)."""
    topic = create_topic(connection, partition_count=8)
    producer = TransactionalProducer(connection, f"{topic}/w")
    producer.take_over()
    producer.begin()
    producer.produce(topic, b"foobar", b"v")
    producer.commit()
    producer.close()

    ends = end_offsets(connection, [(topic, partition) for partition in range(8)])

    assert [partition for (_, partition), end in ends.items() if end] == [(-790332482 & 0x7FFFFFFF) % 8]


def test_a_plain_consumer_sees_the_same_records(world: KafkaWorld) -> None:
    log = world.log()
    log.take_over()
    log.append_atomically([put("a", "1")])
    consumer = Consumer(
        {
            "bootstrap.servers": world.connection.bootstrap_servers,
            "group.id": "g",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(world.topic, 0, 0)])

    message = consumer.poll(10)

    assert message is not None
    assert (message.key(), message.value(), message.offset()) == (b"a", b"1", 0)
    consumer.close()


def a_producer_without_trouble(connection: KafkaConnection) -> TransactionalProducer:
    """One that has committed and need not be renewed.

    On a machine that stalls a commit may take so long that it must; not each one's does.
    """
    topic = create_topic(connection)
    for number in range(20):
        producer = TransactionalProducer(connection, f"{topic}/{number}")
        producer.take_over()
        producer.begin()
        producer.produce(topic, b"k", b"v", 0)
        producer.commit()
        if not producer.must_be_renewed:
            return producer
        producer.close()
    raise AssertionError("each of 20 producers must be renewed after its first commit")


def test_a_fence_that_a_flush_meets_is_an_exception_of_the_client(broker: DevBroker) -> None:
    """The client's own `flush` raises a SystemError.

    It goes on with delivery reports after the fatal error.
    """
    connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
    topic = create_topic(connection)
    fenced = make_client(Producer, producer_settings(connection, f"{topic}/w", 10_000, {}))
    fenced.init_transactions(10)
    successor = TransactionalProducer(connection, f"{topic}/w")
    successor.take_over()
    texts: list[str] = []

    fenced.begin_transaction()
    fenced.produce(topic, b"1", b"k", 0, on_delivery=lambda error, _: texts.append(str(error)))
    with pytest.raises(KafkaException, match="fenced by a newer instance"):
        flush(fenced, 10.0)

    assert flush(fenced, 10.0) == 0
    assert len(texts) == 1
    successor.close()


@pytest.mark.parametrize("trouble", ["slow", "lost"])
def test_after_trouble_at_a_commit_the_next_transaction_needs_a_new_producer(
    own_broker: DevBroker, trouble: str
) -> None:
    """A new epoch follows an EndTxn that may have been sent twice (`end_txn_guard`)."""
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    topic = create_topic(connection)
    producer = a_producer_without_trouble(connection)

    producer.begin()
    producer.produce(topic, b"k", b"1", 0)
    producer.flush()
    if trouble == "slow":
        own_broker.pause()
        resume = threading.Timer(0.6, own_broker.resume)
        resume.start()
        producer.commit()
        resume.join()
    else:
        producer.commit()
        own_broker.kill()
        own_broker.start()

    assert producer.must_be_renewed
    with pytest.raises(ProducerError, match="must be renewed"):
        producer.begin()
    producer.close()
    successor = TransactionalProducer(connection, producer.transactional_id)
    successor.take_over()
    successor.begin()
    successor.produce(topic, b"k", b"2", 0)
    successor.commit()
    successor.close()
    assert [value for _, value in pairs(read_to_end(connection, topic))] == ["1", "2"]


@pytest.mark.parametrize("is_open", [True, False])
def test_closing_does_not_wait_for_a_stopped_broker(own_broker: DevBroker, is_open: bool) -> None:
    connection = KafkaConnection(bootstrap_servers=own_broker.bootstrap_servers)
    topic = create_topic(connection)
    producer = TransactionalProducer(connection, f"{topic}/w")
    producer.take_over()
    producer.begin()
    producer.produce(topic, b"k", b"1", 0)
    if is_open:
        producer.flush()
    else:
        producer.commit()
    own_broker.kill()
    started = time.monotonic()

    producer.close()
    producer.close()

    # It tries for a second. The client's own `close` tries without a limit.
    assert time.monotonic() - started < 15
    assert producer.must_be_renewed


def test_a_header_name_that_is_no_text_stops_no_reader_of_a_log(connection: KafkaConnection, topic: str) -> None:
    """Many records come first, because Python then specialises the call."""
    producer = Producer({"bootstrap.servers": connection.bootstrap_servers})
    for _ in range(2000):
        producer.produce(topic, b"v", b"good", headers={"good": b"x"}, partition=0)
    assert producer.flush(30) == 0
    write_with_header_name(connection.bootstrap_servers, topic, b"odd", b"\xff")
    producer.produce(topic, b"v", b"after", partition=0)
    assert producer.flush(30) == 0

    with PartitionReader(connection, topic) as reader:
        followed = list(reader.read_to_end(0))

    read = list(read_to_end(connection, topic))
    assert followed[-2:] == read[-2:]
    assert [(record.key, record.headers) for record in read[-2:]] == [(b"odd", UNREADABLE_HEADERS), (b"after", ())]
