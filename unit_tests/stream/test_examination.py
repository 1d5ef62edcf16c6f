"""Each sign of a foreign writer is found in records; a healthy stream has none."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from samzapy.errors import TaskError
from samzapy.inspection.invariants import Invariants
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container_end import ContainerEnd
from samzapy.model.finding import Finding
from samzapy.model.placement import ContainerPlacementRequestMessage
from samzapy.model.topics import DAY_MS
from samzapy.stream.changelog import changelog_key
from samzapy.stream.codec import encode, headers
from samzapy.stream.examination import (
    examine_changelog,
    examine_checkpoints,
    examine_coordinator_stream,
    examine_placement,
)
from samzapy.stream.log import LogRecord
from samzapy.stream.placement import Place, encode_message
from samzapy.stream.records import (
    CheckpointPut,
    ContainerPut,
    CoordinatorRecord,
    EpochPut,
    Record,
    Removed,
    TermPut,
)
from samzapy.stream.unheard_end import encode_unheard_end
from samzapy.testing.builders import a_container, a_submission, an_ssp_kb
from unit_tests.fixtures.coordinator_world import World

TOPIC = "__samzapy-coordinator-flights-1"
WHOLE_FROM = 100


def lenient(offset: int, record: CoordinatorRecord, is_whole: bool, is_restored: bool = False) -> str:
    """The records of a coordinator are in unit_tests/cli/stream/test_verify.py."""
    return ""


def written(
    seq: int | None,
    *,
    term: int = 1,
    offset: int = WHOLE_FROM,
    record: Record | None = None,
    value: bytes | None = None,
) -> LogRecord:
    """A record of the coordinator; without `seq` one without headers."""
    key, encoded = encode(record or EpochPut(epoch=offset))
    record_headers = {} if seq is None else headers(term=term, seq=seq, event="EpochAdvanced", cause="c", actor="a")
    return LogRecord(
        offset=offset, timestamp_ms=0, key=key, value=value or encoded, headers=tuple(record_headers.items())
    )


def examined(*records: LogRecord) -> Sequence[Finding]:
    return examine_coordinator_stream(records, topic=TOPIC, whole_from=WHOLE_FROM, check=lenient)


def begun(number: int, *, seq: int, term: int | None = None, offset: int = WHOLE_FROM) -> LogRecord:
    """The record of a term; `term` is that of its headers, if another one."""
    put = TermPut(
        term=number,
        coordinator_id="c",
        host="h",
        boot_id="b",
        pid=1,
        process_started_ms=1,
        url="u",
        started_at_ms=1,
    )
    return written(seq, term=number if term is None else term, record=put, offset=offset)


def codes(findings: Sequence[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_the_records_of_a_coordinator_have_no_finding_also_over_terms_and_compacted() -> None:
    world = World()
    for _ in range(3):
        service = world.coordinator()
        service.become_leader()
        service.submit(a_submission(partition_counts={"kafka.orders": 2}))

    assert examine_coordinator_stream(world.log().read(), topic=TOPIC, whole_from=0, check=Invariants().check) == ()
    assert examined() == ()


def test_a_number_that_is_missing_inside_the_horizon_is_a_gap() -> None:
    (finding,) = examined(written(4, offset=107), written(7, offset=110))

    assert finding.code == "stream-gap"
    assert "offset 110: (term, number) (1, 7) follows (1, 4): 2 record(s) in between are missing" in finding.found


def test_records_that_compaction_may_have_removed_are_no_gap() -> None:
    assert examined(written(4, offset=WHOLE_FROM - 3), written(7)) == ()


def test_numbers_continue_over_terms() -> None:
    assert examined(written(4, term=1), begun(2, seq=5, offset=102)) == ()
    assert codes(examined(written(4, term=1), begun(2, seq=6, offset=102))) == ["stream-gap"]


def test_a_term_without_a_leader_is_reported_inside_the_horizon() -> None:
    for offset in (101, 105):
        # A record that is missing may have begun the term; inside the horizon that is reported.
        assert codes(examined(written(4, term=1), written(5, term=2, offset=offset))) == ["stream-wrong-term"]
        assert codes(examined(written(4, term=1), begun(3, seq=5, offset=offset))) == ["stream-wrong-term"]
    assert codes(examined(begun(3, seq=5, term=2))) == ["stream-wrong-term"]
    assert examined(written(4, term=1, offset=WHOLE_FROM - 7), written(7, term=3)) == ()


def test_a_number_comes_again_in_the_next_term_where_the_tombstones_at_the_end_were_forgotten() -> None:
    """As files have it that were exported before and after."""
    tombstone = written(7, record=Removed(key="epoch"))
    weeks_later = begun(2, seq=6, offset=102)._replace(timestamp_ms=8 * DAY_MS)

    assert examined(tombstone, weeks_later) == ()
    assert codes(examined(tombstone, weeks_later._replace(timestamp_ms=6 * DAY_MS))) == ["stream-two-writers"]
    assert codes(examined(written(7), weeks_later)) == ["stream-two-writers"]
    later = written(6, offset=102)._replace(timestamp_ms=8 * DAY_MS)
    assert codes(examined(tombstone, later)) == ["stream-two-writers"]


def test_a_wrong_number_of_one_writer_puts_no_other_in_the_wrong() -> None:
    foreign = [written(9, term=7, offset=102), written(3, offset=103), written(5, term=2, offset=104)]

    assert len(examined(written(4), *foreign[:1], written(5, offset=105))) == 1
    assert codes(examined(written(4), *foreign, written(5, offset=105))) == [
        "stream-two-writers",
        "stream-wrong-term",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [((1, 4), (1, 4)), ((1, 4), (1, 3)), ((2, 4), (1, 5))],
    ids=["twice", "back", "of an older term"],
)
def test_numbers_of_two_writers_are_distinguished_at_any_age(before: tuple[int, int], after: tuple[int, int]) -> None:
    old, new = (written(seq, term=term, offset=seq) for term, seq in (before, after))

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


def test_unreadable_records_are_reported_and_counted() -> None:
    (finding,) = examined(written(1), written(2, offset=5, value=b"junk"), written(3))

    assert finding.code == "record-unreadable"
    assert "offset 5" in finding.found


def test_many_of_a_kind_are_one_finding_that_counts() -> None:
    (finding,) = examined(*(written(None, offset=offset) for offset in range(50)))

    assert "offset 0" in finding.found
    assert finding.found.endswith("(the first of 50)")


def test_positions_and_their_removal_have_no_finding_on_the_checkpoint_topic_and_other_records_do() -> None:
    position = CheckpointPut(
        checkpoint=Checkpoint(ssp_kb=an_ssp_kb(), offset_next=1, epoch=1, task_name="t", execution_id="e")
    )
    key, _ = encode(position)
    well = [written(None, record=position), written(None, record=Removed(key=key.decode()))]

    assert examine_checkpoints(well, topic="t") == ()
    assert codes(examine_checkpoints([written(None)], topic="t")) == ["record-foreign"]
    (unreadable,) = examine_checkpoints([written(None, value=b"x")], topic="t")
    assert unreadable.code == "record-unreadable"
    assert "bytes, sha256 " in unreadable.found


def test_a_report_on_an_unheard_end_has_no_finding_on_the_checkpoint_topic() -> None:
    end = ContainerEnd.of_error(TaskError("x"), processor_id="0", execution_id="e1", host="h", at_ms=5)

    def on_the_topic(key: bytes, value: bytes | None) -> LogRecord:
        return LogRecord(offset=3, timestamp_ms=0, key=key, value=value)

    well = on_the_topic(*encode_unheard_end(a_container("e1"), end))
    without_report = on_the_topic(*encode(ContainerPut(container=a_container("e1", reason="drained"))))

    assert examine_checkpoints([well], topic="t") == ()
    assert codes(examine_checkpoints([without_report], topic="t")) == ["record-foreign"]


def test_entries_of_a_changelog_have_keys_that_can_be_taken_apart() -> None:
    def entry(key: bytes | None) -> LogRecord:
        return LogRecord(offset=3, timestamp_ms=0, key=key, value=b"v")

    assert examine_changelog([entry(changelog_key(b"k", b"s"))], topic="t", partition=2) == ()
    for wrong in (None, b"\x7fshort"):
        (finding,) = examine_changelog([entry(wrong)], topic="t", partition=2)
        assert finding.code == "record-unreadable"
        assert "t-2 at offset 3" in finding.found
        assert f"({len(wrong or b'') + 1} bytes, sha256 " in finding.found


def test_a_record_on_the_placement_topic_that_is_no_request_is_reported_until_it_is_removed() -> None:
    good = encode_message(
        ContainerPlacementRequestMessage(
            uuid=UUID(int=1), deployment_id="d", processor_id="0", destination_host="h", timestamp_ms=5
        ),
        Place(),
    )

    def standing(*writes: tuple[bytes, bytes | None]) -> Sequence[Finding]:
        records = [
            LogRecord(offset=offset, timestamp_ms=0, key=key, value=value)
            for offset, (key, value) in enumerate(writes)
        ]
        return examine_placement(records, topic="p")

    assert standing((good.key, good.value)) == ()
    findings = standing((good.key, b"junk"), (b"junk", b"x"), (good.key, good.value), (b"other", b"y"))
    assert ["p-0 at offset 1:", "p-0 at offset 3:"] == [finding.found[:16] for finding in findings]
    assert ["request-unreadable"] * 2 == codes(findings)
    assert "(5 bytes, sha256 " in findings[0].found
    assert standing((b"junk", b"x"), (b"junk", None)) == ()
