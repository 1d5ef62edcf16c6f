from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from samzapy.adapters.kafka import follow
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaFollower, KafkaLeaderSearch
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.errors import BrokerUnavailableError, MissingTopicError
from samzapy.stream.codec import encode, headers
from samzapy.stream.log import LogRecord
from samzapy.stream.records import TermPut

RECORDS = [LogRecord(offset=offset, timestamp_ms=0, key=b"k", value=b"v") for offset in range(5)]


class Broker:
    """A topic of five records; a reading takes three before the brokers go silent."""

    def __init__(self) -> None:
        self.fails = True

    def read_to_end(self, offset_from: int = 0, deadline_s: float = 0) -> Iterator[LogRecord]:
        yield from RECORDS[offset_from : 3 if self.fails else None]
        if self.fails:
            raise BrokerUnavailableError("nobody answers")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(PartitionReader, "read_to_end", lambda _, *given, **more: broker.read_to_end(*given, **more))
    return broker


def test_records_of_a_failed_read_to_the_end_are_read_again(broker: Broker) -> None:
    follower = KafkaFollower(KafkaConnection(bootstrap_servers="b:1"), "stream")

    with pytest.raises(BrokerUnavailableError):
        follower.to_the_end()
    assert 0 == follower.offset_next()
    broker.fails = False

    assert RECORDS == [*follower.poll()]


def test_records_of_a_failed_poll_are_handed_out_once(broker: Broker) -> None:
    follower = KafkaFollower(KafkaConnection(bootstrap_servers="b:1"), "stream")

    assert RECORDS[:3] == [*follower.poll()]
    broker.fails = False

    assert RECORDS[3:] == [*follower.to_the_end()]


def test_the_silence_of_the_brokers_counts_from_the_first_failed_poll(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    follower = KafkaFollower(KafkaConnection(bootstrap_servers="b:1"), "stream")
    assert 0 == follower.silent_ms()
    follower.poll()

    for passes_s in (15.0, 25.0):
        now_s[0] += passes_s
        follower.poll()
    assert 40_000 == follower.silent_ms()

    broker.fails = False
    now_s[0] += 1
    follower.poll()
    assert 0 == follower.silent_ms()


def test_a_stream_that_is_missing_for_a_moment_gives_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def missing(*_: object) -> Iterator[LogRecord]:
        raise MissingTopicError("no such topic")

    monkeypatch.setattr(PartitionReader, "read_to_end", missing)
    follower = KafkaFollower(KafkaConnection(bootstrap_servers="b:1"), "stream")

    for now_s[0] in (101.0, 110.0):
        assert [] == [*follower.poll()]
    now_s[0] = 120.0
    with pytest.raises(MissingTopicError):
        follower.poll()


def a_term(term: int, url: str, *, offset: int, is_leaders: bool) -> LogRecord:
    put = TermPut(
        term=term, coordinator_id="c", host="h", boot_id="b", pid=1, process_started_ms=1, url=url, started_at_ms=1
    )
    key, value = encode(put)
    record_headers = headers(term=term, seq=offset, event="TermStarted", cause="c", actor="a") if is_leaders else {}
    return LogRecord(offset, 0, key, value, tuple(record_headers.items()))


def test_the_leader_is_searched_among_the_leaders_own_records_and_others_stop_no_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    junk = LogRecord(offset=2, timestamp_ms=0, key=b"term", value=b"junk")
    records = [
        a_term(1, "http://one", offset=0, is_leaders=True),
        a_term(7, "http://nobody", offset=1, is_leaders=False),
        junk,
    ]
    monkeypatch.setattr(PartitionReader, "read_to_end", lambda *_, **__: iter(records))

    search = KafkaLeaderSearch(KafkaConnection(bootstrap_servers="b:1"), "stream").newest_term(0)

    assert search is not None
    assert (1, "http://one") == (search.term, search.url)
