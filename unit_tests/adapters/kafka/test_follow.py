from __future__ import annotations

from collections.abc import Iterator

import pytest

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaFollower
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.errors import BrokerUnavailableError
from samzapy.stream.log import LogRecord

RECORDS = [LogRecord(offset=offset, timestamp_ms=0, key=b"k", value=b"v") for offset in range(5)]


class Broker:
    """A topic of five records, of which a reading takes three before nobody answers any more."""

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


def test_what_a_reading_to_the_end_took_before_it_failed_comes_again(broker: Broker) -> None:
    follower = KafkaFollower(KafkaConnection(bootstrap_servers="b:1"), "stream")

    with pytest.raises(BrokerUnavailableError):
        follower.to_the_end()
    assert 0 == follower.offset_next()
    broker.fails = False

    assert RECORDS == [*follower.poll()]


def test_what_a_look_took_before_it_failed_is_handed_out_and_comes_once(broker: Broker) -> None:
    follower = KafkaFollower(KafkaConnection(bootstrap_servers="b:1"), "stream")

    assert RECORDS[:3] == [*follower.poll()]
    broker.fails = False

    assert RECORDS[3:] == [*follower.to_the_end()]
