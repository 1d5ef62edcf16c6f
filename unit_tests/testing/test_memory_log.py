from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.errors import DeadlineError, FencedError, ProducerError
from samzapy.stream.log import CompactedLog, LogRecord, Write
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from unit_tests.conformance.log_contract import LogContract, LogWorld, pairs, put
from unit_tests.conformance.log_scripts import a_script, play


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

    def fence(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids:
            MemoryLog(self.topic, transactional_id).take_over()

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
    values: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


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


@pytest.mark.parametrize(("survivors", "expected"), [(1, [("a", "1")]), (2, [("a", "1"), ("b", "1")])])
def test_a_torn_append_leaves_its_beginning_for_good(survivors: int, expected: list[tuple[str, str]]) -> None:
    log = a_log()
    log.tear_next_append(survivors)

    with pytest.raises(ProducerError, match="unknown"):
        log.append_atomically([put("a", "1"), put("b", "1")])

    assert not log.is_owner
    assert expected == pairs(log.read())


def test_a_hanging_append_hides_later_records_until_it_is_ended() -> None:
    log = a_log()
    log.hang_next_append()
    with pytest.raises(ProducerError):
        log.append_atomically([put("a", "1")])
    other = MemoryLog(log.topic, "other")
    other.take_over()
    other.append_atomically([put("b", "1")])

    with pytest.raises(DeadlineError):
        list(log.read())
    assert log.topic.read_stable(0) == ([], 0)
    assert log.topic.open_since() == {"writer": 0}
    log.topic.time_out("writer")

    assert pairs(log.read()) == [("b", "1")]
    with pytest.raises(ProducerError):
        log.append_atomically([put("a", "2")])


def test_a_reader_that_does_not_wait_gets_stable_records_in_portions() -> None:
    log = a_log()
    for value in "123":
        log.append_atomically([put("a", value)])

    first, offset = log.topic.read_stable(0, 2)
    rest, end = log.topic.read_stable(offset)

    assert (pairs(first), pairs(rest), end) == ([("a", "1"), ("a", "2")], [("a", "3")], log.end_offset())


def test_equal_histories_give_equal_dumps_and_others_do_not() -> None:
    logs = [a_log(), a_log(), a_log()]
    for log, value in zip(logs, "112", strict=True):
        log.append_atomically([put("a", value)])

    dumps = [log.topic.dump() for log in logs]

    assert dumps[0] == dumps[1] != dumps[2]


def test_scripts_meet_all_that_a_log_can_answer() -> None:
    """Otherwise the broker's equal result would prove little.

    See `test_kafka_log_keeps_the_contract`.
    """
    transcript = "\n".join(line for seed in range(12) for line in play(MemoryWorld(), a_script(seed)))

    for answer in (
        "commit is refused",
        "abort is refused",
        ": commit",
        ": abort",
        "and waits",
        "and ends at",
        ":None",
    ):
        assert answer in transcript, answer


def test_a_transaction_of_topics_that_belong_together_ends_on_both_and_its_owner_is_fenced_on_both() -> None:
    topic = MemoryTopic("positions")
    other = MemoryTopic("changelog", together_with=topic)
    first, second = MemoryLog(topic, "slot"), MemoryLog(topic, "slot")
    first.take_over()
    first.append_and_stop([Write(key=b"k", value=b"1")], other)
    first.append_and_stop([Write(key=b"p", value=b"1")])
    first.commit()
    first.append_and_stop([Write(key=b"k", value=b"2")], other)

    second.take_over()

    with pytest.raises(FencedError):
        first.append_and_stop([Write(key=b"p", value=b"2")])
    assert [b"1"] == [record.value for record in MemoryLog(other).read()]
    assert [b"1"] == [record.value for record in MemoryLog(topic).read()]
