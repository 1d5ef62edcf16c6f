"""The stream as a person reads it: what happened, when, on whose word, and what it was before.

A history is made of the records alone, in their order. Compaction takes older entries away, never changes
one: inside the audit horizon it is whole (design section 3). What cannot be read is an entry too, with its
offset and reason, because an auditor who skips has seen nothing.

Event names are past tense and depend on what the key held before: the same kind of record says that an
input was first seen, and that it grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import assert_never

from samzapy.errors import CorruptRecordError
from samzapy.model.container import ContainerPhase
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.stream.codec import RecordHeaders, decode, parse_headers
from samzapy.stream.keys import Namespace, key_of, parse_key
from samzapy.stream.log import LogRecord
from samzapy.stream.records import (
    ChangelogPartitionPut,
    CheckpointPut,
    ConfigPut,
    ContainerPut,
    EpochPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InputEndPut,
    InputPut,
    JobIdentityPut,
    LocalityPut,
    LossAcceptedPut,
    OwnTopicPut,
    PlannedTaskPut,
    ProgressPut,
    Record,
    Removed,
    RunPut,
    SchemaPut,
    TaskLocalityPut,
    TermPut,
)

Fields = Mapping[str, object]
"""A record's fields as JSON can hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One record and what it changed. `before` is None for a new key, `after` for a removed one."""

    offset: int
    timestamp_ms: int
    event: str
    key: str
    before: Fields | None
    after: Fields | None
    headers: RecordHeaders | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableEntry:
    """A record that says nothing to this release."""

    offset: int
    timestamp_ms: int
    key: str
    reason: str


def history(
    records: Iterable[LogRecord], *, topic: str, partition: int = 0
) -> Iterator[HistoryEntry | UnreadableEntry]:
    """One entry for each record, in their order; raises nothing for any bytes."""
    latest: dict[str, Record] = {}
    for found in records:
        try:
            record = decode(found, topic=topic, partition=partition)
        except CorruptRecordError as error:
            key = "" if found.key is None else found.key.decode(errors="backslashreplace")
            yield UnreadableEntry(offset=found.offset, timestamp_ms=found.timestamp_ms, key=key, reason=str(error))
            continue
        key = key_of(record)
        before = latest.pop(key, None)
        if not isinstance(record, Removed):
            latest[key] = record
        headers = parse_headers(found.headers)
        yield HistoryEntry(
            offset=found.offset,
            timestamp_ms=found.timestamp_ms,
            event=headers.event if headers is not None else event_name(record, before),
            key=key,
            before=None if before is None else fields_of(before),
            after=None if isinstance(record, Removed) else fields_of(record),
            headers=headers,
        )


def event_name(record: Record, before: Record | None) -> str:
    """What happened when `record` took the place of `before`, in the past tense."""
    match record:
        case SchemaPut():
            return "SchemaRecorded"
        case FormatLevelPut():
            return "FormatLevelSet" if before is None else "FormatLevelRaised"
        case JobIdentityPut():
            return "JobCreated"
        case TermPut():
            return "TermStarted"
        case ConfigPut():
            return "ConfigSet" if before is None else "ConfigChanged"
        case InputPut():
            return _input_event(record, before)
        case OwnTopicPut():
            return "TopicRecorded" if before is None else "TopicChanged"
        case ChangelogPartitionPut():
            return "ChangelogPartitionAssigned"
        case PlannedTaskPut():
            return "TaskPlanned"
        case GenerationPut():
            return "GenerationStarted"
        case RunPut():
            return "RunEnded" if record.ended else "RunFinished" if record.finished else "RunStarted"
        case InputEndPut():
            return "InputEndFixed"
        case ContainerPut():
            return _container_event(record, before)
        case LocalityPut():
            return "ProcessorLocated" if before is None else "ProcessorMoved"
        case TaskLocalityPut():
            return "TaskStateLocated" if before is None else "TaskStateMoved"
        case EpochPut():
            return "EpochAdvanced"
        case GrantPut():
            return "GrantReleased" if record.grant.released else "TaskGranted"
        case LossAcceptedPut():
            return "LossAccepted"
        case Removed():
            return _REMOVALS[parse_key(record.key).namespace]
        case CheckpointPut():
            return "CheckpointCommitted"
        case ProgressPut():
            return "ProgressRecorded"
        case _:
            assert_never(record)


def fields_of(record: Record) -> Fields:
    """The fields of `record` as JSON can hold them; SSPs in their text form."""
    plain = _plain(record)
    assert isinstance(plain, dict), "a record has fields"
    # Of a record that only wraps a value, the value's.
    inner = next(iter(plain.values()), None)
    return inner if len(plain) == 1 and isinstance(inner, dict) else plain


def change_text(entry: HistoryEntry) -> str:
    """What changed, in one line: `partition_count 4 -> 8`."""
    if entry.after is None:
        return "removed" if entry.before is not None else "removed (was not there)"
    if entry.before is None:
        return " ".join(f"{name}={_short(value)}" for name, value in entry.after.items())
    changed = [
        f"{name} {_short(entry.before.get(name))} -> {_short(value)}"
        for name, value in entry.after.items()
        if entry.before.get(name) != value
    ]
    return ", ".join(changed) or "unchanged"


def time_text(timestamp_ms: int) -> str:
    """UTC to the millisecond; the number itself where no calendar reaches."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def as_json(entry: HistoryEntry | UnreadableEntry) -> Fields:
    """An entry as `samzapy stream replay -o json` shows it; the names are an interface."""
    place = {
        "offset": entry.offset,
        "time": time_text(entry.timestamp_ms),
        "timestamp_ms": entry.timestamp_ms,
        "key": entry.key,
    }
    if isinstance(entry, UnreadableEntry):
        return place | {"error": entry.reason}
    said = entry.headers
    return place | {
        "event": entry.event,
        "term": None if said is None else said.term,
        "seq": None if said is None else said.seq,
        "cause": None if said is None else said.cause,
        "actor": None if said is None else said.actor,
        "before": entry.before,
        "after": entry.after,
    }


def _input_event(record: InputPut, before: Record | None) -> str:
    if not isinstance(before, InputPut):
        return "InputRecorded"
    return "InputExpanded" if record.partition_count > before.partition_count else "InputChanged"


_CONTAINER_EVENTS: Mapping[ContainerPhase, str] = {
    ContainerPhase.STARTED: "ContainerStarted",
    ContainerPhase.RUNNING: "ContainerBeganRunning",
    ContainerPhase.STOPPED: "ContainerStopped",
    ContainerPhase.LOST: "ContainerLost",
    ContainerPhase.FENCED: "ContainerFenced",
}


def _container_event(record: ContainerPut, before: Record | None) -> str:
    if isinstance(before, ContainerPut) and before.container.phase is record.container.phase:
        return "ContainerUpdated"
    return _CONTAINER_EVENTS[record.container.phase]


_REMOVALS: Mapping[Namespace, str] = {
    Namespace.SCHEMA: "SchemaRemoved",
    Namespace.FORMAT: "FormatLevelRemoved",
    Namespace.JOB: "JobRemoved",
    Namespace.TERM: "TermRemoved",
    Namespace.CONFIG: "ConfigRemoved",
    Namespace.INPUT: "InputRemoved",
    Namespace.TOPIC: "TopicRemoved",
    Namespace.CHANGELOG: "ChangelogPartitionRemoved",
    Namespace.PLAN: "PlannedTaskRemoved",
    Namespace.GENERATION: "GenerationRemoved",
    Namespace.RUN: "RunRemoved",
    Namespace.END: "InputEndRemoved",
    Namespace.CONTAINER: "ContainerForgotten",
    Namespace.LOCALITY: "LocalityRemoved",
    Namespace.TASK_LOCALITY: "TaskLocalityRemoved",
    Namespace.EPOCH: "EpochRemoved",
    Namespace.GRANT: "GrantEnded",
    Namespace.ACCEPTED_LOSS: "AcceptedLossRemoved",
    Namespace.CHECKPOINT: "CheckpointRemoved",
    Namespace.PROGRESS: "ProgressRemoved",
}


def _plain(value: object) -> object:
    match value:
        case SspKeyBucket() | SystemStream() | SystemStreamPartition():
            return str(value)
        case Enum():
            return value.value
        case tuple():
            return [_plain(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def _short(value: object, length_max: int = 80) -> str:
    """A field's value for a table: `kafka.a.0:0/1@85162` for a position, and cut where it is long."""
    text = _compact(value)
    return text if len(text) <= length_max else f"{text[:length_max]}..."


def _compact(value: object) -> str:
    match value:
        case list():
            return f"[{', '.join(_compact(item) for item in value)}]"
        case {"ssp_kb": ssp_kb, "offset_next": offset, **rest}:
            floors = rest.get("floors")
            return f"{ssp_kb}@{offset}" + (f" floors {_compact(floors)}" if floors else "")
        case _:
            return str(value)
