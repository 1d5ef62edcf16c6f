"""Questions for offsets while brokers come and go.

The answers of a real broker are in integration_tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from samzapy.adapters.kafka import reading
from samzapy.adapters.kafka.broker_wait import CommandWait
from samzapy.adapters.kafka.clients import ErrorEvents, KafkaConnection
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.errors import BrokerUnavailableError, ConfigError, DeadlineError, MissingTopicError


class Cluster:
    """An admin client whose topic `orders` has one partition, at first without leader."""

    def __init__(self, *, asks_without_leader: float, partitions: tuple[int, ...] = (0,)) -> None:
        self._asks_left = asks_without_leader
        self._partitions = partitions

    def list_offsets(self, partitions: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        self._asks_left -= 1
        futures: dict[TopicPartition, Future[Any]] = {at: Future() for at in partitions}
        for future in futures.values():
            if self._asks_left >= 0:
                error = KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")
                future.set_exception(KafkaException(error))
            else:
                future.set_result(SimpleNamespace(offset=42))
        return futures

    def list_topics(self, topic: str, **_: Any) -> SimpleNamespace:
        known = self._partitions if topic == "orders" else ()
        partitions = {number: SimpleNamespace(leader=-1) for number in known}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions, error=None)})


class Restarted(Cluster):
    """The broker was restarted: it refuses the client's epoch until it has a new one.

    The client gets the new epoch with its question for the leader.
    """

    def __init__(self) -> None:
        super().__init__(asks_without_leader=0)
        self._has_looked = False

    def list_offsets(self, partitions: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        if self._has_looked:
            return super().list_offsets(partitions)
        refused: Future[Any] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
        return dict.fromkeys(partitions, refused)

    def list_topics(self, topic: str, **_: Any) -> SimpleNamespace:
        self._has_looked = True
        return super().list_topics(topic)


class LeaderGone(Cluster):
    """A cluster whose client asks a former leader until it asks for the leader.

    Until then it gives neither an offset nor an error.
    """

    def __init__(self) -> None:
        super().__init__(asks_without_leader=0)
        self._has_looked = False

    def list_offsets(self, partitions: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        if self._has_looked:
            return super().list_offsets(partitions)
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=OFFSET_INVALID))
        return dict.fromkeys(partitions, answer)

    def list_topics(self, topic: str, **_: Any) -> SimpleNamespace:
        self._has_looked = True
        return super().list_topics(topic)


class Guarded(Cluster):
    """An admin client that may not see the topic: the answer is that of a missing one."""

    def list_topics(self, topic: str, **_: Any) -> SimpleNamespace:
        refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={}, error=refused)})


def read_topic(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    deadline_s: float,
    command_wait: CommandWait | None = None,
) -> int:
    monkeypatch.setattr(reading, "_APPEARS_WITHIN_S", 0.1)
    admin = SimpleNamespace(
        client=cluster, connection=KafkaConnection(bootstrap_servers="b:1", command_wait=command_wait)
    )
    admin.unavailable = lambda waited_s, doing: BrokerUnavailableError(doing)
    admin.reported, admin.note = list, lambda cause: None
    monkeypatch.setattr(reading, "Admin", lambda connection: admin)
    return PartitionReader(admin.connection, topic).end_offset(deadline_s)


def test_a_partition_without_a_leader_is_waited_for_longer_than_a_topic_that_may_not_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that is killed and comes back knows the topics before it leads them."""
    assert 42 == read_topic(Cluster(asks_without_leader=6), monkeypatch, "orders", 30.0)


def test_a_partition_that_never_gets_a_leader_is_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerUnavailableError):
        read_topic(Cluster(asks_without_leader=float("inf")), monkeypatch, "orders", 0.5)


def test_a_refused_client_looks_for_the_leader_and_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 42 == read_topic(Restarted(), monkeypatch, "orders", 30.0)


def test_an_answer_without_an_offset_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read up to there, a topic would be empty."""
    assert 42 == read_topic(LeaderGone(), monkeypatch, "orders", 30.0)


@pytest.mark.parametrize(("topic", "partitions"), [("others", (0,)), ("orders", (1,))])
def test_a_missing_topic_is_named_soon(
    monkeypatch: pytest.MonkeyPatch, topic: str, partitions: tuple[int, ...]
) -> None:
    cluster = Cluster(asks_without_leader=float("inf"), partitions=partitions)

    with pytest.raises(MissingTopicError, match=f"the offsets of {topic} at b:1"):
        read_topic(cluster, monkeypatch, topic, 30.0)


def test_a_topic_that_this_user_may_not_see_is_refused_and_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match="partitions of orders: .* this user lacks a right on the topic.*samzapy acl"
    ):
        read_topic(Guarded(asks_without_leader=10**6), monkeypatch, "orders", 60.0)


class Late:
    """A consumer that hands out `left` of its former partition after an assignment."""

    def __init__(self, held: Mapping[int, Sequence[Any]], left: Sequence[Any]) -> None:
        self._held = held
        self._left = [*left]
        self._queue: list[Any] = []
        self.rests = 0

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        (at,) = partitions
        late = self._left if self._queue else []
        self._queue = [*late, *self._held[at.partition]]

    def poll(self, _timeout_s: float) -> Any:
        return self._queue.pop(0) if self._queue else None

    def consume(self, count: int, _timeout_s: float) -> list[Any]:
        portion, self._queue[:count] = self._queue[:count], []
        return portion

    def unassign(self) -> None:
        self.rests += 1

    def close(self) -> None:
        """Nothing is held."""


class Message:
    """One of the topic `sums`; without a value, the end of the partition."""

    def __init__(self, partition: int, offset: int, value: bytes | None = None) -> None:
        self._partition = partition
        self._offset = offset
        self._value = value

    def topic(self) -> str:
        return "sums"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._value is None else None

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes:
        return b"k"

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def headers(self) -> None:
        return None


def test_late_messages_of_the_previous_partition_are_neither_records_nor_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A late end of the partition before must not count for the present one.

    It would hide the records of a whole task.
    """
    held = {0: [Message(0, 7, b"old"), Message(0, 99)], 1: [Message(1, 7, b"new"), Message(1, 42)]}
    consumer = Late(held, [Message(0, 8, b"late"), Message(0, 99)])
    monkeypatch.setattr(reading, "make_consumer", lambda *_: consumer)
    monkeypatch.setattr(PartitionReader, "end_offset", lambda *_: 42)
    with PartitionReader(KafkaConnection(bootstrap_servers="b:1"), "sums", 0) as reader:
        reader.prepare(7)
        reader.turn_to(1)

        # From the same offset as was prepared: that was of another partition.
        assert [b"new"] == [record.value for record in reader.read_to_end(7)]


def test_a_reader_that_is_kept_fetches_nothing_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Late({0: [Message(0, 7, b"a"), Message(0, 42)]}, [])
    monkeypatch.setattr(reading, "make_consumer", lambda *_: consumer)
    monkeypatch.setattr(PartitionReader, "end_offset", lambda *_: 42)
    with PartitionReader(KafkaConnection(bootstrap_servers="b:1"), "sums", 0) as reader:
        records = reader.read_to_end(7)
        next(records)
        assert consumer.rests == 0

        assert list(records) == []
        assert consumer.rests == 1


class Timed(Cluster):
    """A cluster that notes how long each question about offsets may take."""

    def __init__(self) -> None:
        super().__init__(asks_without_leader=float("inf"))
        self.timeouts_s: list[float] = []

    def list_offsets(
        self, partitions: dict[TopicPartition, Any], **options: Any
    ) -> dict[TopicPartition, Future[Any]]:
        self.timeouts_s.append(options["request_timeout"])
        return super().list_offsets(partitions)


def test_no_try_of_a_question_is_longer_than_the_time_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Timed()
    with pytest.raises(BrokerUnavailableError):
        read_topic(cluster, monkeypatch, "orders", 30.0, CommandWait(0.3, lambda _: None))

    assert max(cluster.timeouts_s) <= 0.3


class Silent(Late):
    """A consumer whose brokers send the end that the partition has so far, no more."""

    def __init__(self, *ends: int) -> None:
        super().__init__({0: [Message(0, end) for end in ends]}, [])


def stalled(monkeypatch: pytest.MonkeyPatch, consumer: Late, *, timeout_s: float, deadline_s: float) -> str:
    """The error of a command that waits `timeout_s` for brokers.

    It reads with `deadline_s`.
    """
    monkeypatch.setattr(reading, "make_consumer", lambda *_: consumer)
    monkeypatch.setattr(PartitionReader, "end_offset", lambda *_: 42)
    wait = CommandWait(timeout_s, lambda _: None)
    with (
        PartitionReader(KafkaConnection(bootstrap_servers="b:1", command_wait=wait), "sums") as reader,
        pytest.raises((BrokerUnavailableError, DeadlineError)) as raised,
    ):
        list(reader.read_to_end(7, deadline_s))
    return str(raised.value)


def test_a_command_gives_up_reading_after_its_own_time_without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no broker answered within 0.1 s" in stalled(monkeypatch, Silent(), timeout_s=0.1, deadline_s=30.0)


def test_an_open_transaction_is_waited_for_however_long_a_command_waits_for_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = stalled(monkeypatch, Silent(20), timeout_s=0.1, deadline_s=1.0)

    assert "an open transaction from offset 20 on for 1 s" in error


class OddConsumer:
    """Gives one error of the client, and nothing after it."""

    def __init__(self, code: int) -> None:
        self._code = code
        self.polls = 0

    def assign(self, places: Sequence[TopicPartition]) -> None:
        pass

    def poll(self, _: float) -> Any:
        self.polls += 1
        assert self.polls == 1, "the reader waits for a record that never comes"
        error = KafkaError(self._code)
        return SimpleNamespace(error=lambda: error, topic=lambda: "orders", partition=lambda: 0, offset=lambda: 5)

    def consume(self, _count: int, _timeout_s: float) -> Sequence[Any]:
        return ()

    def pause(self, places: Sequence[TopicPartition]) -> None:
        pass

    def close(self) -> None:
        pass


def test_the_time_of_a_record_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = OddConsumer(KafkaError._AUTO_OFFSET_RESET)
    monkeypatch.setattr(reading, "make_consumer", lambda *_: consumer)

    assert reading.stamps_at(KafkaConnection(bootstrap_servers="none:1"), {("orders", 0): 5}) == {}


def test_a_reader_leaves_a_fault_within_a_broker_to_the_client() -> None:
    events = ErrorEvents()

    assert reading.lasting(KafkaError(KafkaError.UNKNOWN), "reading orders", events) is None
    assert events.count == 1
    assert reading.lasting(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "reading orders", events) is not None
