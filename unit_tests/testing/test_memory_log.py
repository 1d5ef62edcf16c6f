from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.errors import ProducerError
from samzapy.stream.log import CompactedLog, LogRecord, Write
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from unit_tests.conformance.log_contract import LogContract, LogWorld, pairs, put


class MemoryWorld:
    def __init__(self) -> None:
        self.topic = MemoryTopic("t")

    def log(self, transactional_id: str = "writer") -> CompactedLog:
        return MemoryLog(self.topic, transactional_id)

    def open_transaction(self, transactional_id: str, writes: Sequence[Write]) -> MemoryLog:
        log = MemoryLog(self.topic, transactional_id)
        log.take_over()
        log.append_and_stop(writes)
        return log

    def compact(self) -> None:
        self.topic.compact(tombstones_until=self.topic.end_offset)


class TestMemoryLogKeepsTheContract(LogContract):
    @pytest.fixture
    def world(self) -> LogWorld:
        return MemoryWorld()


def a_log() -> MemoryLog:
    log = MemoryLog(MemoryTopic("t"))
    log.take_over()
    return log


def latest(records: Sequence[LogRecord]) -> dict[bytes | None, bytes]:
    found: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from("12")), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 45), st.integers(0, 45)), max_size=4),
)
def test_no_sequence_of_compactions_changes_the_latest_value_of_a_key(
    writes: list[tuple[str, str | None]], passes: list[tuple[int, int]]
) -> None:
    log = a_log()
    for key, value in writes:
        log.append_atomically([put(key, value)])
    before = latest(list(log.read()))

    for keep_until, tombstones_until in passes:
        log.topic.compact(keep_until=keep_until, tombstones_until=tombstones_until)

    assert latest(list(log.read())) == before


def test_compaction_touches_nothing_at_or_after_its_limit() -> None:
    log = a_log()
    for value in "1234":
        log.append_atomically([put("a", value)])

    log.topic.compact(keep_until=4)

    # Offsets 0 and 2 are below the limit, 4 and 6 are not; the odd ones are markers.
    assert [(record.offset, record.value) for record in log.read()] == [(2, b"2"), (4, b"3"), (6, b"4")]


def test_a_tombstone_stays_until_its_retention_is_over() -> None:
    log = a_log()
    log.append_atomically([put("a", "1")])
    log.append_atomically([put("a", None)])

    log.topic.compact()
    assert pairs(log.read()) == [("a", None)]

    log.topic.compact(tombstones_until=log.end_offset())
    assert pairs(log.read()) == []


def test_compaction_does_not_pass_an_open_transaction() -> None:
    log = a_log()
    log.append_atomically([put("a", "1")])
    other = MemoryLog(log.topic, "other")
    other.take_over()
    other.append_and_stop([put("b", "1")])
    log.append_atomically([put("a", "2")])

    log.topic.compact()
    other.commit()

    assert pairs(log.read()) == [("a", "1"), ("b", "1"), ("a", "2")]


@pytest.mark.parametrize(("committed", "expected"), [(True, [("a", "1")]), (False, [])])
def test_a_broken_append_was_committed_or_not_and_must_be_taken_over_to_know(
    committed: bool, expected: list[tuple[str, str]]
) -> None:
    log = a_log()
    log.break_next_append(committed=committed)

    with pytest.raises(ProducerError, match="unknown"):
        log.append_atomically([put("a", "1")])

    with pytest.raises(ProducerError, match="take over"):
        log.append_atomically([put("a", "2")])
    log.take_over()
    assert expected == pairs(log.read())


def test_records_carry_the_time_that_the_topic_was_set_to() -> None:
    log = a_log()
    log.topic.now_ms = 1234
    log.append_atomically([put("a", "1")])

    assert [record.timestamp_ms for record in log.read()] == [1234]
