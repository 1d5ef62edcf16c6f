"""Which records of a coordinator stream its leaders wrote.

Pure; every reader of the stream asks here.

A leader names each record by its term and its number (`codec.headers`). Terms only rise, each begins with its own
record, and within a term each number is the one before plus one. Any other record is *foreign*: another program wrote
it, or a copy of it. A foreign record changes no state, whatever its bytes are.

Compaction removes records and leaves their offsets. So numbers and terms may be skipped, but only as many as offsets
are missing between two records of the leader. An offset that is missing may also be a marker, or a record of an aborted
transaction. So a record with forged headers that are exactly next passes here. The leader itself knows its own records,
and repairs that (`coordinator.repair`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from samzapy.errors import CorruptRecordError
from samzapy.stream.codec import RecordHeaders, decode, parse_headers, unreadable_reason
from samzapy.stream.keys import Namespace, parse_key
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, CoordinatorRecord, ProgressPut, Record, TermPut

VALUE_RESTORED: Final = "ValueRestored"
"""The event of a record by which a leader writes the value of a key again, because a foreign record stood there."""

_TERM_KEY: Final = Namespace.TERM.encode()
POSITION_PREFIXES: Final = (f"{Namespace.CHECKPOINT}/".encode(), f"{Namespace.PROGRESS}/".encode())
"""Of keys of the checkpoint topic. A record with such a key is foreign here, also a tombstone of the leader's."""
_KEY_SHOWN_MAX: Final = 200


class Numbering(NamedTuple):
    """How far the numbering has come.

    Attributes:
        term, seq: of the leader's last record; (0, -1) before the first.
        seq_highest: the highest number so far. It may be above `seq`: a leader that did not find the tombstones at the
            end any more, since compaction took them, gave their numbers out again.
        offset: of that record; -1 before the first.
        foreign_count: the foreign records that were read behind it.
        is_tombstone: whether that record was one.
    """

    term: int = 0
    seq: int = -1
    seq_highest: int = -1
    offset: int = -1
    foreign_count: int = 0
    is_tombstone: bool = False

    @property
    def seq_next(self) -> int:
        """The number of the next record to be written."""
        return self.seq + 1


BEGINNING: Final = Numbering()


class Foreign(NamedTuple):
    """A record that no reader folds.

    Attributes:
        code: of `model.finding`.
        reason: the wanted and the actual headers.
        size: bytes of key and value.
        digest: the first 16 digits of the SHA-256 of key and value.
        is_readable: whether it could be decoded, had a leader written it.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    code: str
    reason: str
    size: int
    digest: str
    is_readable: bool

    @property
    def key_text(self) -> str:
        """The key for people, escaped and cut."""
        text = "" if self.key is None else self.key.decode(errors="backslashreplace")
        return text if len(text) <= _KEY_SHOWN_MAX else f"{text[:_KEY_SHOWN_MAX]}..."

    @property
    def brief(self) -> str:
        """The reason why it is foreign, and its content."""
        return f"{self.reason} ({self.size} bytes, sha256 {self.digest})"

    def text(self, topic: str) -> str:
        """The record in one line."""
        key = "no key" if self.key is None else f"key {self.key_text!r}"
        return f"{topic}-0 at offset {self.offset}, {key}: {self.brief}"


class Read(NamedTuple):
    """A record, with its fact or the reason why it has none.

    Attributes:
        fact: None of a foreign record, and of a leader's tombstone under a key that is none: it only lets compaction
            take a foreign record.
    """

    record: LogRecord
    fact: CoordinatorRecord | None
    foreign: Foreign | None


class Reading:
    """Reads a stream on from `before`: `place` for many records."""

    def __init__(self, before: Numbering, *, topic: str) -> None:
        self._topic = topic
        self._before = before
        self._is_begun = False
        self._term_text = self._seq_text = b""
        self._turn_to(before)

    @property
    def numbering(self) -> Numbering:
        """The numbering after the last record that was handed out."""
        before = self._before
        if self._seq == before.seq:
            return before
        # Each record so far was the next one.
        highest = max(self._seq, before.seq_highest)
        return Numbering(before.term, self._seq, highest, self._offset, 0, self._is_tombstone)

    def read(self, records: Iterable[LogRecord]) -> Iterator[Read]:
        """`records`, told apart, with the facts of the leader's.

        Raises:
            UnknownSchemaError, CorruptRecordError: a record that a leader wrote cannot be read.
        """
        topic = self._topic
        for record in records:
            if self._is_begun and _is_plainly_next(record, self._term_text, self._seq_text):
                self._seq += 1
                self._seq_text = b"%d" % (self._seq + 1)
                self._offset, self._is_tombstone = record.offset, record.value is None
                try:
                    fact: Record | None = decode(record, topic=topic)
                except CorruptRecordError:
                    fact = self._read_otherwise(record)
                yield Read(record, fact, None)  # type: ignore[arg-type]  # no position is plainly next
                continue
            after, content = place(record, self.numbering)
            self._turn_to(after)
            if isinstance(content, Foreign):
                yield Read(record, None, content)
            else:
                yield Read(record, fact_of(record, content, topic=topic), None)

    def _turn_to(self, numbering: Numbering) -> None:
        self._before = numbering
        self._seq, self._offset, self._is_tombstone = numbering.seq, numbering.offset, numbering.is_tombstone
        # Before the first record nothing is next.
        self._is_begun = numbering.offset >= 0
        self._term_text, self._seq_text = b"%d" % numbering.term, b"%d" % numbering.seq_next

    def _read_otherwise(self, record: LogRecord) -> CoordinatorRecord | None:
        headers = parse_headers(record.headers)
        assert headers is not None, "it was plainly next"
        return fact_of(record, headers, topic=self._topic)


def place(record: LogRecord, before: Numbering) -> tuple[Numbering, RecordHeaders | Foreign]:
    """The numbering after `record`, and its headers if a leader wrote it."""
    headers = parse_headers(record.headers)
    code, reason = _flaw(record, headers, before)
    if headers is None or code:
        return before._replace(foreign_count=before.foreign_count + 1), foreign_record(record, code, reason)
    highest = headers.seq if headers.seq > before.seq_highest else before.seq_highest
    return Numbering(headers.term, headers.seq, highest, record.offset, 0, record.value is None), headers


def fact_of(record: LogRecord, headers: RecordHeaders, *, topic: str) -> CoordinatorRecord | None:
    """The fact of a leader's record, as `Read.fact`.

    Raises:
        UnknownSchemaError, CorruptRecordError: it cannot be read.
    """
    try:
        fact = decode(record, topic=topic)
    except CorruptRecordError as error:
        if record.value is None and not is_key(record.key):
            return None
        raise type(error)(
            f"{error}. Its headers are the leader's (term {headers.term}, number {headers.seq}), so nothing is decided "
            "without it. If a newer release wrote it, upgrade this process. Else the data of the topic were damaged: "
            "keep the history with `samzapy stream export`, note the positions with `samzapy checkpoint list`, and "
            "start the job under another job.id"
        ) from error
    assert not isinstance(fact, CheckpointPut | ProgressPut), "`place` refuses positions"
    return fact


def _is_plainly_next(record: LogRecord, term: bytes, seq: bytes) -> bool:
    """Whether `place` takes the record for the next one of the same term.

    Most records are; comparing bytes tells.
    """
    headers, key = record.headers, record.key
    if len(headers) != 5 or headers[1] != ("seq", seq) or headers[0] != ("term", term):
        return False
    (event, an_event), (cause, a_cause), (actor, an_actor) = headers[2:]
    return (
        (event == "event" and cause == "cause" and actor == "actor")
        and (an_event is not None and a_cause is not None and an_actor is not None)
        and key is not None
        and key != _TERM_KEY
        and not key.startswith(POSITION_PREFIXES)
    )


def _flaw(record: LogRecord, headers: RecordHeaders | None, before: Numbering) -> tuple[str, str]:
    """The code and text of the reason why no leader wrote the record.

    Empty if one did.
    """
    if headers is None:
        names = ", ".join(name for name, _ in record.headers[:10])
        headers_text = (
            f"the headers {names[:_KEY_SHOWN_MAX]}, not as a leader writes them" if names else "none of them"
        )
        return "record-foreign", f"wanted a record with the leader's headers, found {headers_text}"
    if record.key is not None and record.key.startswith(POSITION_PREFIXES):
        return "record-foreign", "wanted a record of the coordinator, found a position, of the checkpoint topic"
    if record.key == _TERM_KEY and not _is_of_its_term(record, headers):
        return "stream-wrong-term", f"the record of a term says that it was written in term {_number(headers.term)}"
    if before.offset < 0 or (headers.term == before.term and headers.seq == before.seq + 1):
        # The first record of the topic begins the numbering. Most others are next.
        return "", ""
    return _flaw_of_number(record, headers, before)


def _flaw_of_number(record: LogRecord, headers: RecordHeaders, before: Numbering) -> tuple[str, str]:
    """The code and text of a flaw of term or sequence number.

    Empty if a leader may have written it.
    """
    if headers.term <= before.term and (headers.term < before.term or headers.seq <= before.seq):
        return (
            "stream-two-writers",
            f"{_numbers(headers, before)}: the number was given out before, or the term is over",
        )
    missing = max(0, record.offset - before.offset - 1 - before.foreign_count)
    if headers.term > before.term and not _can_have_begun(record, headers, before, missing):
        return "stream-wrong-term", f"{_numbers(headers, before)}: no term {_number(headers.term)} was begun"
    if headers.seq <= before.seq and not before.is_tombstone:
        return "stream-two-writers", f"{_numbers(headers, before)}: the number was given out before"
    if headers.seq - before.seq_highest - 1 > missing:
        return "stream-two-writers", f"{_numbers(headers, before)}: the numbers in between were never written"
    return "", ""


def _is_of_its_term(record: LogRecord, headers: RecordHeaders) -> bool:
    """Whether a record of a term names the term that it was written in.

    `fact_of` tells of one that cannot be read.
    """
    if record.value is None:
        return True
    try:
        fact = decode(record, topic="")
    except CorruptRecordError:
        return True
    return isinstance(fact, TermPut) and fact.term == headers.term


def _can_have_begun(record: LogRecord, headers: RecordHeaders, before: Numbering, missing: int) -> bool:
    """Whether a term may have begun between two records, or with the second.

    The records of terms in between, and their markers, were compacted: their offsets are missing. A marker comes after
    the records of its transaction.
    """
    terms = headers.term - before.term
    if record.key == _TERM_KEY and record.value is not None:
        return terms - 1 <= missing
    return terms + 1 <= missing


def _numbers(headers: RecordHeaders, before: Numbering) -> str:
    shown = f"({_number(headers.term)}, {_number(headers.seq)})"
    return f"wanted the next (term, number), found {shown} behind ({before.term}, {before.seq})"


def _number(number: int) -> str:
    return str(number) if number < 10**20 else "a number of more than 20 digits"


def is_key(key: bytes | None) -> bool:
    """Whether it is a key of ours."""
    try:
        parse_key((key or b"").decode())
    except ValueError:
        return False
    return True


def foreign_record(record: LogRecord, code: str, reason: str) -> Foreign:
    """`record`, told as a foreign one; one that cannot be read either says so."""
    unreadable = unreadable_reason(record)
    if unreadable:
        code = "record-unreadable" if code == "record-foreign" else code
        reason = f"{reason}; it cannot be read either ({unreadable})"
    return Foreign(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        code=code,
        reason=reason,
        size=record.size,
        digest=record.digest,
        is_readable=not unreadable,
    )
