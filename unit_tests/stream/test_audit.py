from __future__ import annotations

import dataclasses
import json
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.model.container import ContainerPhase
from samzapy.stream.audit import (
    ForeignEntry,
    HistoryEntry,
    UnreadableEntry,
    as_json,
    change_text,
    event_name,
    fields_of,
    history,
    time_text,
)
from samzapy.stream.codec import encode, headers
from samzapy.stream.keys import key_of
from samzapy.stream.log import LogRecord
from samzapy.stream.records import (
    CheckpointPut,
    ContainerPut,
    Expansion,
    GrantPut,
    InputPut,
    LocalityPut,
    ProgressPut,
    Record,
    Removed,
    TermPut,
)
from unit_tests.fixtures.record_examples import EXAMPLES
from unit_tests.fixtures.record_strategies import records

T = TypeVar("T", bound=Record)


def example(kind: type[T]) -> T:
    return next(record for record in EXAMPLES if isinstance(record, kind))


def written(*records: Record, event: str = "") -> list[LogRecord]:
    """The records of a leader's first term, which names the event by the key's state.

    Records that it does not write then are left out.
    """
    written_records, latest = [], dict[bytes, Record]()
    own = (item for item in records if not isinstance(item, CheckpointPut | ProgressPut | TermPut))
    for offset, record in enumerate(own):
        key, value = encode(record)
        named = event or event_name(record, latest.get(key))
        latest[key] = record
        head = headers(term=1, seq=offset, event=named, cause="cmd-1", actor="ann")
        written_records.append(
            LogRecord(offset=offset, timestamp_ms=offset * 1000, key=key, value=value, headers=tuple(head.items()))
        )
    return written_records


def test_an_entry_has_the_values_before_and_after() -> None:
    first = dataclasses.replace(example(InputPut), partition_count=8, expansions=())
    second = dataclasses.replace(first, partition_count=16)

    entry = list(history(written(first, second), topic="t"))[1]

    assert isinstance(entry, HistoryEntry)
    assert entry.event == "InputExpanded"
    assert change_text(entry) == "partition_count 8 -> 16"
    assert entry.before == fields_of(first)
    assert entry.after == fields_of(second)


def test_an_expansion_shows_each_step() -> None:
    first = dataclasses.replace(example(InputPut), partition_count=2, expansions=())
    step = Expansion(partition_count=4, seen_at_ms=1)
    steps = [
        first,
        dataclasses.replace(first, expansions=(step,)),
        dataclasses.replace(first, expansions=(dataclasses.replace(step, refused="no"),)),
        dataclasses.replace(first, expansions=(step,)),
        dataclasses.replace(first, expansions=(dataclasses.replace(step, settled=True),)),
        dataclasses.replace(first, expansions=(dataclasses.replace(step, settled=True, ends=(7, 8)),)),
        dataclasses.replace(first, partition_count=4),
    ]

    events = [entry.event for entry in history(written(*steps), topic="t") if isinstance(entry, HistoryEntry)]

    assert events == [
        "InputRecorded",
        "InputExpanded",
        "ExpansionRefused",
        "InputChanged",
        "ExpansionSettled",
        "ExpansionEndsRead",
        "PartitionsAdded",
    ]


def test_the_history_shows_the_steps_of_a_removed_and_added_input() -> None:
    first = dataclasses.replace(
        example(InputPut), partition_count=2, expansions=(), gone_at_ms=0, gone_refused="", period=0, epoch_before=0
    )
    gone = dataclasses.replace(first, gone_at_ms=7)
    anew = dataclasses.replace(first, topic_id="another", partition_count=0, epoch_before=41)
    steps = [first, gone, first, gone, dataclasses.replace(gone, gone_refused="no"), gone, anew]

    events = [entry.event for entry in history(written(*steps), topic="t") if isinstance(entry, HistoryEntry)]

    assert events == [
        "InputRecorded",
        "InputGone",
        "InputBack",
        "InputGone",
        "InputNeeded",
        "InputChanged",
        "InputMadeAgain",
    ]


def test_the_event_that_the_writer_named_is_believed() -> None:
    (entry,) = history(written(example(InputPut), event="InputCounted"), topic="t")

    assert isinstance(entry, HistoryEntry)
    assert entry.event == "InputCounted"
    assert entry.headers is not None
    assert (entry.headers.cause, entry.headers.actor) == ("cmd-1", "ann")


def test_a_removal_shows_the_removed_values() -> None:
    grant = example(GrantPut)

    entries = list(history(written(grant, Removed(key=key_of(grant)), Removed(key=key_of(grant))), topic="t"))

    assert [entry.event for entry in entries if isinstance(entry, HistoryEntry)] == [
        "TaskGranted",
        "GrantEnded",
        "GrantEnded",
    ]
    assert [change_text(entry) for entry in entries[1:] if isinstance(entry, HistoryEntry)] == [
        "removed",
        "removed (was not there)",
    ]


def test_an_unreadable_record_is_an_entry_with_its_place_and_the_reason() -> None:
    good = written(example(InputPut), example(InputPut), example(InputPut))
    bad = good[1]._replace(key=b"\xffx", value=b"junk")

    entries = list(history([good[0], bad, good[2]], topic="t"))

    assert [type(entry) for entry in entries] == [HistoryEntry, UnreadableEntry, HistoryEntry]
    unreadable = entries[1]
    assert isinstance(unreadable, UnreadableEntry)
    assert (unreadable.offset, unreadable.key) == (1, "\\xffx")
    assert "t-0 at offset 1" in unreadable.reason
    assert as_json(unreadable)["error"] == unreadable.reason


def test_a_foreign_record_is_an_entry_and_changes_no_value() -> None:
    grant = example(GrantPut)
    key, _ = encode(grant)
    tombstone = LogRecord(offset=1, timestamp_ms=5, key=key, value=None)
    granted, ended = written(grant, Removed(key=key_of(grant)))

    entries = list(history([granted, tombstone, ended._replace(offset=2)], topic="t"))

    foreign, end = entries[1:]
    assert isinstance(foreign, ForeignEntry)
    assert isinstance(end, HistoryEntry)
    assert (foreign.offset, foreign.key) == (1, key.decode())
    assert "t-0 at offset 1" in str(as_json(foreign)["foreign"])
    assert "error" not in as_json(foreign)
    assert end.before == fields_of(grant)


@pytest.mark.parametrize(
    ("phase", "event"),
    [
        (ContainerPhase.RUNNING, "ContainerBeganRunning"),
        (ContainerPhase.FENCED, "ContainerFenced"),
        (ContainerPhase.LOST, "ContainerUpdated"),
    ],
)
def test_a_containers_phases_are_events_of_their_own(phase: ContainerPhase, event: str) -> None:
    lost = example(ContainerPut)

    assert event_name(ContainerPut(container=dataclasses.replace(lost.container, phase=phase)), lost) == event


def test_a_processor_that_starts_elsewhere_has_moved() -> None:
    assert event_name(example(LocalityPut), None) == "ProcessorLocated"
    assert event_name(example(LocalityPut), example(LocalityPut)) == "ProcessorMoved"


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_every_record_and_its_removal_have_an_event(record: Record) -> None:
    assert event_name(record, None)[0].isupper()
    assert event_name(Removed(key=key_of(record)), record) != event_name(record, None)


@given(st.lists(records, max_size=5))
def test_every_history_can_be_shown_as_text_and_as_json(stream: list[Record]) -> None:
    for entry in history(written(*stream), topic="t"):
        assert isinstance(entry, HistoryEntry)
        assert isinstance(change_text(entry), str)
        shown = json.loads(json.dumps(as_json(entry)))
        assert shown["key"] == entry.key


@given(st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=40)), max_size=5))
def test_no_bytes_make_a_history_fail(records: list[tuple[bytes | None, bytes | None]]) -> None:
    made = [
        LogRecord(offset=offset, timestamp_ms=0, key=key, value=value) for offset, (key, value) in enumerate(records)
    ]

    assert len(list(history(made, topic="t"))) == len(records)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_timestamp_can_be_shown(timestamp_ms: int) -> None:
    assert time_text(timestamp_ms)


def test_times_are_shown_in_utc() -> None:
    assert time_text(1_767_225_600_123) == "2026-01-01T00:00:00.123+00:00"


def test_the_starts_of_a_grant_read_as_positions() -> None:
    grant = next(record for record in EXAMPLES if isinstance(record, GrantPut))
    (entry,) = history(written(grant), topic="t")

    assert isinstance(entry, HistoryEntry)
    assert "starts=[kafka.page.views.3:1/4@1000 floors [kafka.page.views.3:5/8@1500]]" in change_text(entry)
