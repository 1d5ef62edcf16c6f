"""The consumer group that shows a job's lag: rarely written, never in the way."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from samzapy.adapters.kafka import lag_group
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.lag_group import ALL_EVERY_S, KafkaLagGroup, LagCommits
from samzapy.errors import BrokerUnavailableError, ConfigError, SamzapyError
from samzapy.model.ssp import SystemStreamPartition
from samzapy.testing.builders import an_ssp

A, B = an_ssp("kafka.orders.0"), an_ssp("kafka.orders.1")


class AGroup(KafkaLagGroup):
    """A group that remembers its commits, on a cluster that may be away."""

    def __init__(self) -> None:
        super().__init__(KafkaConnection(bootstrap_servers="nowhere:1"), "samzapy-flights-1")
        self.commits: list[Mapping[SystemStreamPartition, int]] = []
        self.fails_with: Exception | None = None

    def commit(self, positions: Mapping[SystemStreamPartition, int]) -> None:
        if self.fails_with is not None:
            raise self.fails_with
        self.commits.append(dict(positions))


class ALeader:
    """A leader, its positions and its clock."""

    def __init__(self) -> None:
        self.group = AGroup()
        self.positions: dict[SystemStreamPartition, int] = {}
        self.now_s = 0.0
        self.lag_commits = LagCommits(self.group, positions=lambda: self.positions, now_s=lambda: self.now_s)

    def round(self, **offsets: int) -> list[Mapping[SystemStreamPartition, int]]:
        """The offsets committed in a round, with these positions in orders.0 and orders.1."""
        self.positions = {an_ssp(f"kafka.orders.{name[-1]}"): offset for name, offset in offsets.items()}
        self.group.commits.clear()
        self.lag_commits.go_on()
        return [*self.group.commits]


def test_only_positions_that_have_changed_are_committed() -> None:
    leader = ALeader()

    assert [{A: 1, B: 7}] == leader.round(p0=1, p1=7)
    assert [] == leader.round(p0=1, p1=7)
    assert [{B: 8}] == leader.round(p0=1, p1=8)


def test_a_position_that_moves_back_is_committed() -> None:
    """After a rewind the lag is the number of records to be read again."""
    leader = ALeader()
    leader.round(p0=9)

    assert [{A: 2}] == leader.round(p0=2)


def test_all_positions_are_committed_again_before_the_group_forgets_them() -> None:
    leader = ALeader()
    leader.round(p0=1, p1=7)

    leader.now_s = ALL_EVERY_S
    assert [{A: 1, B: 7}] == leader.round(p0=1, p1=7)
    assert [] == leader.round(p0=1, p1=7)


def test_a_process_that_leads_again_commits_all_positions() -> None:
    leader = ALeader()
    leader.round(p0=1)

    assert [] == leader.round()
    assert [{A: 1}] == leader.round(p0=1)


def test_a_failure_is_logged_once_and_the_commit_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    leader = ALeader()
    leader.group.fails_with = ConfigError("no right to read the group")

    with caplog.at_level(logging.INFO):
        assert [[], []] == [leader.round(p0=1), leader.round(p0=2)]
        leader.group.fails_with = None
        assert [{A: 2}] == leader.round(p0=2)
        leader.round(p0=3)

    warning, resolved = caplog.messages
    assert warning.startswith("no right to read the group. The job goes on") and "job.consumer.group=off" in warning
    assert "positions are committed to the consumer group samzapy-flights-1 again" == resolved


def test_a_failure_that_may_pass_is_logged_only_when_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """The coordinator of a new group is not known at once."""
    leader = ALeader()
    warned = []

    for fails, now_s in ((True, 0.0), (True, 59.0), (False, 60.0), (True, 61.0), (True, 120.0), (True, 121.0)):
        leader.group.fails_with = BrokerUnavailableError("not the coordinator") if fails else None
        leader.now_s = now_s
        leader.round(p0=int(now_s))
        warned.append(len(caplog.messages))

    assert [0, 0, 0, 0, 0, 1] == warned


def test_an_error_that_is_not_expected_ends_the_commits_and_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_group, "COMMIT_EVERY_S", 0.0)
    leader = ALeader()
    leader.positions, leader.group.fails_with = {A: 1}, ZeroDivisionError("1 / 0")

    leader.lag_commits.start()
    leader.lag_commits._thread.join(10)

    assert not leader.lag_commits._thread.is_alive()
    assert ["positions are no longer committed to the consumer group samzapy-flights-1"] == caplog.messages


# --- answers of a broker ---


class ABroker:
    """A consumer whose commits are answered in the next `poll`.

    The answer is `error` for all partitions, or one of `refusals` for each.
    """

    def __init__(self) -> None:
        self.commits: list[list[TopicPartition]] = []
        self.refusals: dict[int, KafkaError] = {}
        self.error: KafkaError | None = None
        self.answers_polls = True
        self.event: KafkaError | None = None
        self.on_commit: Any = None

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.commits.append(offsets)

    def poll(self, timeout_s: float) -> Any:
        event, self.event = self.event, None
        if event is not None:
            return SimpleNamespace(error=lambda: event)
        if self.answers_polls:
            places = [SimpleNamespace(topic=p.topic, partition=p.partition, error=None) for p in self.commits[-1]]
            for place in places:
                place.error = self.refusals.get(place.partition)
            self.on_commit(self.error, places)
        return None


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ABroker:
    broker = ABroker()

    def make_consumer(connection: Any, settings: Mapping[str, Any], events: Any) -> ABroker:
        assert "samzapy-flights-1" == settings["group.id"]
        broker.on_commit = settings["on_commit"]
        return broker

    monkeypatch.setattr(lag_group, "make_consumer", make_consumer)
    return broker


def a_group() -> KafkaLagGroup:
    return KafkaLagGroup(KafkaConnection(bootstrap_servers="nowhere:1"), "samzapy-flights-1")


def test_many_partitions_are_committed_in_several_requests(broker: ABroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_group, "_BATCH_MAX", 2)

    a_group().commit({an_ssp(f"kafka.orders.{number}"): 10 + number for number in range(5)})

    assert [2, 2, 1] == [len(places) for places in broker.commits]
    assert [10, 11, 12, 13, 14] == [place.offset for places in broker.commits for place in places]


def test_a_partition_that_is_refused_is_named(broker: ABroker) -> None:
    broker.refusals = {1: KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)}

    with pytest.raises(SamzapyError, match="the position in orders-1 to the consumer group samzapy-flights-1"):
        a_group().commit({A: 1, B: 2})


def test_a_group_that_may_not_be_written_is_named(broker: ABroker) -> None:
    broker.error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(SamzapyError, match="positions to the consumer group samzapy-flights-1.*GROUP_AUTH"):
        a_group().commit({A: 1})


def test_a_missing_right_is_named_until_a_commit_is_answered(broker: ABroker) -> None:
    """The client reports it once, and then goes on asking for the group's coordinator."""
    group = a_group()
    broker.answers_polls = False
    broker.event = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

    for _ in range(2):
        with pytest.raises(SamzapyError, match="GROUP_AUTH"):
            group.commit({A: 1})

    broker.answers_polls = True
    group.commit({A: 1})


def test_no_commit_is_sent_while_an_earlier_one_is_not_answered(
    broker: ABroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag_group, "_TIMEOUT_S", 0.0)
    group = a_group()
    broker.answers_polls = False
    for offset in (1, 2):
        with pytest.raises(BrokerUnavailableError):
            group.commit({A: offset})
    assert [[1]] == [[place.offset for place in places] for places in broker.commits]

    monkeypatch.setattr(lag_group, "_TIMEOUT_S", 20.0)
    broker.answers_polls = True
    group.commit({A: 3})
    assert [[1], [3]] == [[place.offset for place in places] for places in broker.commits]
