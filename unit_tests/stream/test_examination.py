"""What records tell about their writers: each sign of a foreign hand is found, and a healthy stream has none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from samzapy.model.checkpoint import Checkpoint
from samzapy.model.finding import Finding
from samzapy.stream.changelog import changelog_key
from samzapy.stream.codec import encode, headers
from samzapy.stream.examination import examine_changelog, examine_checkpoints, examine_coordinator_stream
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, EpochPut, Record, Removed
from samzapy.testing.builders import a_submission, an_ssp_kb
from unit_tests.coordinator.world import World

TOPIC = "__samzapy-coordinator-flights-1"
HORIZON_MS = 1_000


def written(
    seq: int | None,
    *,
    term: int = 1,
    offset: int = 0,
    at_ms: int = HORIZON_MS + 1,
    record: Record | None = None,
    value: bytes | None = None,
) -> LogRecord:
    """A record of the coordinator; without `seq` one without headers."""
    key, encoded = encode(record or EpochPut(epoch=offset))
    said = {} if seq is None else headers(term=term, seq=seq, event="EpochAdvanced", cause="c", actor="a")
    return LogRecord(offset=offset, timestamp_ms=at_ms, key=key, value=value or encoded, headers=tuple(said.items()))


def examined(*records: LogRecord) -> Sequence[Finding]:
    return examine_coordinator_stream(records, topic=TOPIC, horizon_ms=HORIZON_MS)


def codes(findings: Sequence[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_what_a_coordinator_writes_is_well_also_over_terms_and_compacted() -> None:
    world = World()
    world.topic.now_ms = HORIZON_MS + 1
    for _ in range(3):
        service = world.coordinator()
        service.take_office()
        service.submit(a_submission(partition_counts={"kafka.orders": 2}))

    assert examined(*world.log().read()) == ()
    assert examined() == ()


def test_a_number_that_is_missing_inside_the_horizon_is_a_gap() -> None:
    (finding,) = examined(written(4, offset=7), written(7, offset=9))

    assert finding.code == "stream-gap"
    assert "offset 9: (term, seq) (1, 7) follows (1, 4): 2 record(s) in between are missing" in finding.found


def test_what_compaction_may_have_taken_is_no_gap() -> None:
    assert examined(written(4, at_ms=HORIZON_MS), written(7)) == ()


def test_numbers_go_on_over_terms() -> None:
    assert examined(written(4, term=1), written(5, term=2)) == ()
    assert codes(examined(written(4, term=1), written(6, term=2))) == ["stream-gap"]


@pytest.mark.parametrize(
    ("before", "after"),
    [((1, 4), (1, 4)), ((1, 4), (1, 3)), ((2, 4), (1, 5))],
    ids=["twice", "back", "of an older term"],
)
def test_numbers_of_two_writers_are_told_apart_at_any_age(before: tuple[int, int], after: tuple[int, int]) -> None:
    old, new = (written(seq, term=term, at_ms=1) for term, seq in (before, after))

    assert codes(examined(old, new)) == ["stream-two-writers"]


def test_a_record_without_a_coordinators_headers_is_foreign_and_makes_no_gap() -> None:
    (finding,) = examined(written(1), written(None, offset=5), written(2, offset=6))

    assert finding.code == "record-foreign"
    assert "offset 5" in finding.found
    assert "'epoch'" in finding.found


def test_a_position_on_the_coordinator_stream_is_foreign() -> None:
    position = CheckpointPut(
        checkpoint=Checkpoint(ssp_kb=an_ssp_kb(), offset_next=1, epoch=1, task_name="t", execution_id="e")
    )

    assert codes(examined(written(1), written(2, record=position), written(2))) == ["record-foreign"]


def test_what_cannot_be_read_is_told_and_has_its_number() -> None:
    (finding,) = examined(written(1), written(2, offset=5, value=b"junk"), written(3))

    assert finding.code == "record-unreadable"
    assert "offset 5" in finding.found


def test_many_of_a_kind_are_one_finding_that_counts() -> None:
    (finding,) = examined(*(written(None, offset=offset) for offset in range(50)))

    assert "offset 0" in finding.found
    assert finding.found.endswith("(the first of 50)")


def test_positions_and_their_removal_are_well_on_the_checkpoint_topic_and_nothing_else_is() -> None:
    position = CheckpointPut(
        checkpoint=Checkpoint(ssp_kb=an_ssp_kb(), offset_next=1, epoch=1, task_name="t", execution_id="e")
    )
    key, _ = encode(position)
    well = [written(None, record=position), written(None, record=Removed(key=key.decode()))]

    assert examine_checkpoints(well, topic="t") == ()
    assert codes(examine_checkpoints([written(None)], topic="t")) == ["record-foreign"]
    assert codes(examine_checkpoints([written(None, value=b"x")], topic="t")) == ["record-unreadable"]


def test_entries_of_a_changelog_have_keys_that_can_be_taken_apart() -> None:
    def entry(key: bytes | None) -> LogRecord:
        return LogRecord(offset=3, timestamp_ms=0, key=key, value=b"v")

    assert examine_changelog([entry(changelog_key(b"k", b"s"))], topic="t", partition=2) == ()
    for wrong in (None, b"\x7fshort"):
        (finding,) = examine_changelog([entry(wrong)], topic="t", partition=2)
        assert finding.code == "record-unreadable"
        assert "t-2 at offset 3" in finding.found
