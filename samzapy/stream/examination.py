"""Findings about the records of our topics and their writers.

Pure.

The coordinator numbers its records without a gap (`stream.numbering`). Inside the audit horizon, where compaction takes
nothing away, a number that is missing was never written, or its record was removed. Foreign records change no state,
and each is told here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from samzapy.errors import CorruptRecordError
from samzapy.model.finding import Finding, unreadable_request
from samzapy.model.topics import AUDITED_DELETE_RETENTION_MS, coordinator_topic
from samzapy.stream.changelog import split_changelog_key
from samzapy.stream.codec import RecordHeaders, decode, fingerprint_of, is_schema_of
from samzapy.stream.keys import Namespace
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, VALUE_RESTORED, Foreign, Numbering, fact_of, place
from samzapy.stream.placement import Unreadable, read_message
from samzapy.stream.records import (
    CheckpointPut,
    CoordinatorRecord,
    JobIdentityPut,
    ProgressPut,
    Record,
    Removed,
    SchemaPut,
)
from samzapy.stream.single_object import HEADER_BYTES
from samzapy.stream.unheard_end import unheard_end_of

_TERM_KEY = Namespace.TERM.encode()
_SHOWN_MAX = 20
_SEE_STREAM = "See it with `samzapy stream replay`"
_ONLY_OURS = (
    "find out which program writes there and stop it; only samzapy may (with ACLs: WRITE on its topics for its own "
    "user alone)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A record that no coordinator writes: `code` of `model.finding`, at `offset`."""

    code: str
    offset: int
    text: str


REMEDIES: Final[Mapping[str, str]] = {
    "record-unreadable": f"{_SEE_STREAM}; if a newer release wrote it, upgrade, else {_ONLY_OURS}",
    "record-foreign": f"{_SEE_STREAM}, and {_ONLY_OURS}",
    "stream-gap": f"{_SEE_STREAM}; a program removed records, or the topic lost them: what is decided from here "
    "on may rest on a history that is not whole",
    "stream-two-writers": f"{_SEE_STREAM}; the headers name the writer, and {_ONLY_OURS}",
    "stream-wrong-term": f"{_SEE_STREAM}; the headers name the writer, and {_ONLY_OURS}",
    "stream-law": f"{_SEE_STREAM}, up to this offset; the headers name the writer. If that is a coordinator of yours, "
    "it has a defect: keep the history with `samzapy stream export`, and report it; else stop the writer",
    "stream-schema": f"An export may not be readable by itself; {_SEE_STREAM}, and {_ONLY_OURS}",
}
"""The remedy for each kind of fault of a coordinator stream."""


@dataclass(slots=True)
class _Tally:
    """Findings of one kind in one topic: the text of the first, and their number."""

    first_of: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, code: str, text: str) -> None:
        first, count = self.first_of.get(code, (text, 0))
        self.first_of[code] = (first, count + 1)

    def findings(self, topic: str, remedies: Mapping[str, str]) -> tuple[Finding, ...]:
        return tuple(
            Finding(
                code=code,
                subject=f"topic {topic}",
                found=text if count == 1 else f"{text} (the first of {count})",
                remedy=remedies[code],
            )
            for code, (text, count) in sorted(self.first_of.items())
        )


class InvariantCheck(Protocol):
    """The invariant that a coordinator's record violates, if any.

    See `inspection.invariants.Invariants.check`.
    """

    def __call__(
        self, offset: int, record: CoordinatorRecord, is_whole: bool, is_restored: bool = False, /
    ) -> str: ...


def examine_coordinator_stream(
    records: Iterable[LogRecord], *, topic: str, whole_from: int, check: InvariantCheck
) -> tuple[Finding, ...]:
    """`faults_of_coordinator_stream` without all the places.

    A finding has the first place of its kind, and their number.
    """
    tally = _Tally()
    for fault in faults_of_coordinator_stream(records, topic=topic, whole_from=whole_from, check=check):
        tally.add(fault.code, fault.text)
    return tally.findings(topic, REMEDIES)


def faults_of_coordinator_stream(
    records: Iterable[LogRecord], *, topic: str, whole_from: int, check: InvariantCheck
) -> Iterator[Fault]:
    """Every record of a coordinator stream that a coordinator would not write.

    Each comes with its place.

    Args:
        records: from the first that the topic holds.
        whole_from: the offset from which on compaction has taken nothing (`stream.horizon`).
        check: is given each record that a coordinator wrote, as far as its form tells. Where a record is missing, or
            one that has its number cannot be read, nothing behind it is checked: it may be right.
    """
    examination = _Examination(topic, whole_from, check)
    for record in records:
        yield from examination.look(record)
    yield from examination.finish()


class _Examination:
    """One look at one coordinator stream, from its beginning to its end."""

    def __init__(self, topic: str, whole_from: int, check: InvariantCheck) -> None:
        self._topic = topic
        self._whole_from = whole_from
        self._check = check
        self._has_hole = False
        self._numbering: Numbering = BEGINNING
        # When the last record of a leader was appended.
        self._last_ms = 0
        self._schemas: set[str] = set()
        # By the first bytes of the values.
        self._schema_used_at: dict[bytes, int] = {}

    def look(self, record: LogRecord) -> Sequence[Fault]:
        before = self._numbering
        self._numbering, headers = place(record, before)
        if isinstance(headers, Foreign):
            return [Fault(code=headers.code, offset=record.offset, text=headers.text(self._topic))]
        of_number = list(self._number(record, headers, before))
        self._last_ms = record.timestamp_ms
        try:
            fact = fact_of(record, headers, topic=self._topic)
        except CorruptRecordError as error:
            self._has_hole = True
            text = f"{error} ({record.size_and_digest})"
            return [Fault(code="record-unreadable", offset=record.offset, text=text), *of_number]
        if fact is None:
            return of_number
        faults = [*self._content(record, fact), *of_number]
        self._has_hole = self._has_hole or any(fault.code == "stream-gap" for fault in faults)
        if faults:
            return faults
        is_whole = record.offset >= self._whole_from and not self._has_hole
        violation = self._check(record.offset, fact, is_whole, headers.event == VALUE_RESTORED)
        return [self._fault("stream-law", record, violation)] if violation else []

    def finish(self) -> Iterator[Fault]:
        """The faults that are known only at the end.

        A stream without any schema is no coordinator's, and told about as such.
        """
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

    def _number(self, record: LogRecord, headers: RecordHeaders, before: Numbering) -> Iterator[Fault]:
        """The faults in the number of a record that every reader takes for a leader's."""
        if before.offset < 0:
            return
        numbers = f"(term, number) ({headers.term}, {headers.seq}) follows ({before.term}, {before.seq})"
        if headers.seq <= before.seq and record.timestamp_ms - self._last_ms <= AUDITED_DELETE_RETENTION_MS:
            # Later the tombstones at the end may have been compacted, and their numbers come again (exported files).
            yield self._fault("stream-two-writers", record, f"{numbers}: the number was given out before")
        elif before.offset < self._whole_from:
            # Missing records may have been compacted.
            return
        elif headers.term > before.term and not (record.key == _TERM_KEY and headers.term == before.term + 1):
            yield self._fault("stream-wrong-term", record, f"{numbers}: no term {headers.term} was begun")
        elif headers.seq > before.seq + 1:
            yield self._fault(
                "stream-gap", record, f"{numbers}: {headers.seq - before.seq - 1} record(s) in between are missing"
            )

    def _fault(self, code: str, record: LogRecord, text: str) -> Fault:
        return Fault(code=code, offset=record.offset, text=f"{self._topic}-0 at offset {record.offset}: {text}")


def examine_checkpoints(records: Iterable[LogRecord], *, topic: str) -> tuple[Finding, ...]:
    """Records of the checkpoint topic that are neither positions nor reports on ends."""
    tally = _Tally()
    for record in records:
        try:
            fact = decode(record, topic=topic)
        except CorruptRecordError as error:
            tally.add("record-unreadable", f"{error} ({record.size_and_digest})")
            continue
        if not isinstance(fact, CheckpointPut | ProgressPut | Removed) and unheard_end_of(fact) is None:
            tally.add(
                "record-foreign",
                f"{topic}-0 at offset {record.offset}: wanted a checkpoint or a progress record, found "
                f"{_shown(record.key)}",
            )
    return tally.findings(
        topic,
        {
            "record-unreadable": "It changes no position that another record of its key holds; else the error of the "
            f"tasks that need that position says how to go on. If a newer release wrote it, upgrade, else {_ONLY_OURS}",
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
            text = f"{topic}-{partition} at offset {record.offset}: {error} ({record.size_and_digest})"
            tally.add("record-unreadable", text)
    return tally.findings(
        topic,
        {"record-unreadable": f"It is no entry of any store, and changes none, but {_ONLY_OURS}"},
    )


def examine_placement(records: Iterable[LogRecord], *, topic: str) -> tuple[Finding, ...]:
    """Records on the placement topic that cannot be handled."""
    standing: dict[bytes | None, LogRecord] = {}
    for record in records:
        standing.pop(record.key, None)
        if record.value is not None:
            standing[record.key] = record
    read = (read_message(record) for record in standing.values())
    bad = [item for item in read if isinstance(item, Unreadable) or (item is not None and item.message is None)]
    return tuple(unreadable_request(topic, item.offset, item.reason) for item in bad[-_SHOWN_MAX:])


def _shown(key: bytes | None) -> str:
    return "none" if key is None else repr(key.decode(errors="backslashreplace"))
