"""What the records of our topics say about who wrote them, for somebody who looks for what is wrong. Pure.

The coordinator numbers its records without a gap, so inside the audit horizon, where compaction takes nothing away, a
number that is missing was never written or was taken by somebody, and one that comes twice had two writers. Records
without the coordinator's headers are somebody else's. None of this is ever read by the fold (`stream.codec`): it is
evidence for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from samzapy.errors import CorruptRecordError
from samzapy.model.finding import Finding, unreadable_request
from samzapy.model.topics import AUDITED_DELETE_RETENTION_MS, coordinator_topic
from samzapy.stream.changelog import split_changelog_key
from samzapy.stream.codec import RecordHeaders, decode, fingerprint_of, is_schema_of, parse_headers
from samzapy.stream.keys import Namespace
from samzapy.stream.log import LogRecord
from samzapy.stream.placement import Unreadable, read_message
from samzapy.stream.records import (
    CheckpointPut,
    CoordinatorRecord,
    JobIdentityPut,
    ProgressPut,
    Record,
    Removed,
    SchemaPut,
    TermPut,
)
from samzapy.stream.single_object import HEADER_BYTES

_TERM_KEY = Namespace.TERM.encode()
_SHOWN_MAX = 20
_SEE_STREAM = "See it with `samzapy stream replay`"
_ONLY_OURS = (
    "find out which program writes there and stop it; only samzapy may (with ACLs: WRITE on its topics for its own "
    "user alone)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something in a stream that no coordinator writes: `code` of `model.finding`, at `offset`."""

    code: str
    offset: int
    text: str


REMEDIES: Final[Mapping[str, str]] = {
    "record-unreadable": f"{_SEE_STREAM}; if a newer release wrote it, upgrade, else {_ONLY_OURS}",
    "record-foreign": f"{_SEE_STREAM}, and {_ONLY_OURS}",
    "stream-gap": f"{_SEE_STREAM}; somebody removed records, or the topic lost them: what is decided from here "
    "on may rest on a history that is not whole",
    "stream-two-writers": f"{_SEE_STREAM}; the headers name who wrote, and {_ONLY_OURS}",
    "stream-wrong-term": f"{_SEE_STREAM}; the headers name who wrote, and {_ONLY_OURS}",
    "stream-law": f"{_SEE_STREAM}, up to this offset; the headers name who wrote. If that was a coordinator of yours, "
    "it has a defect: keep the history with `samzapy stream export`, and report it; else stop who writes there",
    "stream-schema": f"An export may not be readable by itself; {_SEE_STREAM}, and {_ONLY_OURS}",
}
"""What to do about each kind of fault of a coordinator stream."""


@dataclass(slots=True)
class _Tally:
    """Findings of one kind in one topic: the first is told, the others are counted."""

    told: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, code: str, text: str) -> None:
        first, count = self.told.get(code, (text, 0))
        self.told[code] = (first, count + 1)

    def findings(self, topic: str, remedies: Mapping[str, str]) -> tuple[Finding, ...]:
        return tuple(
            Finding(
                code=code,
                subject=f"topic {topic}",
                found=text if count == 1 else f"{text} (the first of {count})",
                remedy=remedies[code],
            )
            for code, (text, count) in sorted(self.told.items())
        )


Judge = Callable[[int, CoordinatorRecord, bool], str]
"""Given a coordinator's record, its offset, and whether all that is true before it is known: what it may not be, if it
may not (`coordinator.laws`)."""


def examine_coordinator_stream(
    records: Iterable[LogRecord], *, topic: str, whole_from: int, judge: Judge
) -> tuple[Finding, ...]:
    """`faults_of_coordinator_stream` for somebody who wants to know what is wrong, and not all the places."""
    tally = _Tally()
    for fault in faults_of_coordinator_stream(records, topic=topic, whole_from=whole_from, judge=judge):
        tally.add(fault.code, fault.text)
    return tally.findings(topic, REMEDIES)


def faults_of_coordinator_stream(
    records: Iterable[LogRecord], *, topic: str, whole_from: int, judge: Judge
) -> Iterator[Fault]:
    """Everything about the records of a coordinator stream that is not as a coordinator writes it, with its place.

    Args:
        records: from the first that the topic holds.
        whole_from: the offset from which on compaction has taken nothing (`stream.horizon`).
        judge: is given each record that a coordinator wrote, as far as its form tells. Where a record is missing, or
            one that has its number cannot be read, nothing behind it is judged: it may be right.
    """
    examination = _Examination(topic, whole_from, judge)
    for record in records:
        yield from examination.look(record)
    yield from examination.finish()


class _Examination:
    """One look at one coordinator stream, from its beginning to its end."""

    def __init__(self, topic: str, whole_from: int, judge: Judge) -> None:
        self._topic = topic
        self._whole_from = whole_from
        self._judge = judge
        self._has_hole = False
        # The last record whose number is believed, its number, and the term in office as the records tell it.
        self._before: tuple[LogRecord, RecordHeaders] | None = None
        self._schemas: set[str] = set()
        # By the first bytes of the values.
        self._schema_used_at: dict[bytes, int] = {}

    def look(self, record: LogRecord) -> Sequence[Fault]:
        said = parse_headers(record.headers)
        try:
            fact = decode(record, topic=self._topic)
        except CorruptRecordError as error:
            unreadable = Fault(code="record-unreadable", offset=record.offset, text=str(error))
            # What cannot be read has its number all the same.
            of_number = [] if said is None else list(self._number(record, said, None))
            self._has_hole = self._has_hole or (said is not None and not of_number)
            return [unreadable, *of_number]
        if said is None or isinstance(fact, CheckpointPut | ProgressPut):
            what = "a position" if said is not None else _headers_text(record)
            text = f"wanted a coordinator's record with its headers, found {what}, key {_shown(record.key)}"
            return [self._fault("record-foreign", record, text)]
        found = [*self._content(record, fact), *self._number(record, said, fact)]
        self._has_hole = self._has_hole or any(fault.code == "stream-gap" for fault in found)
        if found:
            return found
        is_whole = record.offset >= self._whole_from and not self._has_hole
        broken = self._judge(record.offset, fact, is_whole)
        return [self._fault("stream-law", record, broken)] if broken else []

    def finish(self) -> Iterator[Fault]:
        """What can only be said at the end. A stream without any schema is no coordinator's, and told about as such."""
        for header, offset in self._schema_used_at.items():
            used = fingerprint_of(header)
            if self._schemas and used not in self._schemas:
                yield Fault(
                    code="stream-schema",
                    offset=offset,
                    text=f"{self._topic}-0 at offset {offset}: wanted the schema that it is written in on the "
                    f"stream, under schema/{used}, found none",
                )

    def _content(self, record: LogRecord, fact: Record) -> Iterator[Fault]:
        if record.value is not None:
            self._schema_used_at.setdefault(record.value[:HEADER_BYTES], record.offset)
        if isinstance(fact, SchemaPut):
            self._schemas.add(fact.fingerprint)
            if not is_schema_of(fact.schema_json, fact.fingerprint):
                yield self._fault(
                    "stream-schema",
                    record,
                    f"wanted the schema with the fingerprint {fact.fingerprint}, found another",
                )
        if isinstance(fact, JobIdentityPut) and coordinator_topic(f"{fact.job_name}-{fact.job_id}") != self._topic:
            yield self._fault(
                "record-foreign", record, f"wanted the job of this topic, found {fact.job_name}-{fact.job_id}"
            )

    def _number(self, record: LogRecord, said: RecordHeaders, fact: Record | None) -> Iterator[Fault]:
        if isinstance(fact, TermPut) and fact.term != said.term:
            yield self._fault(
                "stream-wrong-term", record, f"the record of term {fact.term} says that it was written in {said.term}"
            )
            return
        before, self._before = self._before, (record, said)
        if before is None:
            return
        older, old = before
        numbers = f"(term, seq) ({said.term}, {said.seq}) follows ({old.term}, {old.seq})"
        if (said.seq <= old.seq and not _was_forgotten(before, (record, said))) or said.term < old.term:
            # The later of the two is taken for the one too many, so that what follows is held against the first.
            self._before = before
            yield self._fault(
                "stream-two-writers", record, f"{numbers}: two writers, or one that went on after it was replaced"
            )
        elif older.offset < self._whole_from:
            # What is missing may have been compacted.
            return
        elif said.term > old.term and not (record.key == _TERM_KEY and said.term == old.term + 1):
            self._before = before
            yield self._fault("stream-wrong-term", record, f"{numbers}: no term {said.term} was begun")
        elif said.seq > old.seq + 1:
            yield self._fault(
                "stream-gap", record, f"{numbers}: {said.seq - old.seq - 1} record(s) in between are missing"
            )

    def _fault(self, code: str, record: LogRecord, text: str) -> Fault:
        return Fault(code=code, offset=record.offset, text=f"{self._topic}-0 at offset {record.offset}: {text}")


def examine_checkpoints(records: Iterable[LogRecord], *, topic: str) -> tuple[Finding, ...]:
    """Records of the checkpoint topic that are no positions."""
    tally = _Tally()
    for record in records:
        try:
            fact = decode(record, topic=topic)
        except CorruptRecordError as error:
            tally.add("record-unreadable", str(error))
            continue
        if not isinstance(fact, CheckpointPut | ProgressPut | Removed):
            tally.add(
                "record-foreign",
                f"{topic}-0 at offset {record.offset}: wanted a checkpoint or a progress record, found "
                f"{_shown(record.key)}",
            )
    return tally.findings(
        topic,
        {
            "record-unreadable": f"No container starts on it; if a newer release wrote it, upgrade, else {_ONLY_OURS}",
            "record-foreign": f"It changes no position, but {_ONLY_OURS}",
        },
    )


def examine_changelog(records: Iterable[LogRecord], *, topic: str, partition: int) -> tuple[Finding, ...]:
    """Records of a changelog partition that are no entries of a keyed store."""
    tally = _Tally()
    for record in records:
        try:
            if record.key is None:
                raise ValueError("wanted a key, found none")
            split_changelog_key(record.key)
        except ValueError as error:
            tally.add("record-unreadable", f"{topic}-{partition} at offset {record.offset}: {error}")
    return tally.findings(
        topic,
        {
            "record-unreadable": f"No store is restored from it: {_ONLY_OURS}; to begin anew, give the job a new job.id"
        },
    )


def _was_forgotten(before: tuple[LogRecord, RecordHeaders], after: tuple[LogRecord, RecordHeaders]) -> bool:
    """Whether the number of `after` may come a second time: its coordinator did not find `before` any more.

    It goes on from the last number that is there, and compaction takes tombstones at the end after their time. Only
    exported files have both.
    """
    (older, old), (record, said) = before, after
    return (
        older.value is None
        and record.key == _TERM_KEY
        and said.term == old.term + 1
        and record.timestamp_ms - older.timestamp_ms > AUDITED_DELETE_RETENTION_MS
    )


def _headers_text(record: LogRecord) -> str:
    names = ", ".join(name for name, _ in record.headers)
    return f"the headers {names}, not as a coordinator writes them" if names else "none of them"


def examine_placement(records: Iterable[LogRecord], *, topic: str) -> tuple[Finding, ...]:
    """Records that stand on the placement topic and that nobody can act on."""
    standing: dict[bytes | None, LogRecord] = {}
    for record in records:
        standing.pop(record.key, None)
        if record.value is not None:
            standing[record.key] = record
    read = (read_message(record) for record in standing.values())
    bad = [found for found in read if isinstance(found, Unreadable) or (found is not None and found.message is None)]
    return tuple(unreadable_request(topic, found.offset, found.reason) for found in bad[-_SHOWN_MAX:])


def _shown(key: bytes | None) -> str:
    return "none" if key is None else repr(key.decode(errors="backslashreplace"))
