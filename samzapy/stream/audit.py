"""The stream as a person reads it: what happened, when, on whose word, and what it was before.

A history is made of the records alone, in their order. Compaction takes older entries away, never changes
one: inside the audit horizon it is whole (`stream.horizon`), and what stands before it is marked as the latest value
only. What cannot be read is an entry too, with its offset and reason, because an auditor who skips has seen nothing.

Event names are past tense and depend on what the key held before: the same kind of record says that an
input was first seen, and that it grew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from samzapy.errors import CorruptRecordError
from samzapy.stream.codec import RecordHeaders, decode, plain_fields
from samzapy.stream.keys import Namespace, key_of, parse_key
from samzapy.stream.kinds import KIND_OF_TYPE, KIND_OF_WORD
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, Foreign, Numbering, is_key, place
from samzapy.stream.records import Record, Removed

Fields = Mapping[str, object]
"""A record's fields as JSON can hold them."""

LATEST_VALUE_ONLY: Final = "latest value only"
"""Of an entry before the horizon: what its key held before, and what else there was, may have been compacted away."""


class HistoryEntry(NamedTuple):
    """One record and what it changed.

    `before` is None for a new key, `after` for a removed one.

    `is_whole`: it stands inside the horizon, so that `before` is really what was before.
    """

    offset: int
    timestamp_ms: int
    event: str
    key: str
    before: Fields | None
    after: Fields | None
    headers: RecordHeaders | None
    is_whole: bool = True


class UnreadableEntry(NamedTuple):
    """A record that says nothing to this release."""

    offset: int
    timestamp_ms: int
    key: str
    reason: str


class ForeignEntry(NamedTuple):
    """A record that no leader wrote: it changes nothing (`stream.numbering`)."""

    offset: int
    timestamp_ms: int
    key: str
    reason: str
    is_readable: bool


Entry = HistoryEntry | UnreadableEntry | ForeignEntry


class History:
    """Reads records in their order, as they come, and remembers the latest value of each key.

    Args:
        whole_from: what stands before that offset is marked as `LATEST_VALUE_ONLY`.
        wanted: of which raw keys to tell; nothing else is decoded, or remembered.
    """

    def __init__(
        self,
        topic: str,
        partition: int = 0,
        *,
        whole_from: int = 0,
        wanted: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._whole_from = whole_from
        self._wanted = wanted
        self._latest: dict[str, Fields] = {}
        self._numbering: Numbering = BEGINNING

    def read(self, records: Iterable[LogRecord]) -> Iterator[Entry]:
        """One entry for each record that is wanted; raises nothing for any bytes."""
        for found in records:
            self._numbering, said = place(found, self._numbering)
            if self._wanted is None or self._wanted(found.key or b""):
                yield self._entry(found, said)

    def _entry(self, found: LogRecord, headers: RecordHeaders | Foreign) -> Entry:
        if isinstance(headers, Foreign):
            return ForeignEntry(
                offset=found.offset,
                timestamp_ms=found.timestamp_ms,
                key=headers.key_text,
                reason=headers.text(self._topic),
                is_readable=headers.is_readable,
            )
        try:
            record = decode(found, topic=self._topic, partition=self._partition)
        except CorruptRecordError as error:
            if found.value is None and not is_key(found.key):
                return self._tombstone_of_foreign(found, headers)
            key = "" if found.key is None else found.key.decode(errors="backslashreplace")
            return UnreadableEntry(offset=found.offset, timestamp_ms=found.timestamp_ms, key=key, reason=str(error))
        key = key_of(record)
        fields_before = self._latest.pop(key, None)
        after = None
        if not isinstance(record, Removed):
            after = fields_of(record)
            self._latest[key] = after
        return HistoryEntry(
            offset=found.offset,
            timestamp_ms=found.timestamp_ms,
            event=headers.event,
            key=key,
            before=fields_before,
            after=after,
            headers=headers,
            is_whole=found.offset >= self._whole_from,
        )

    def _tombstone_of_foreign(self, found: LogRecord, headers: RecordHeaders) -> HistoryEntry:
        """A leader's tombstone under a key that is none: it lets compaction take a foreign record."""
        key = "" if found.key is None else found.key.decode(errors="backslashreplace")
        is_whole = found.offset >= self._whole_from
        return HistoryEntry(found.offset, found.timestamp_ms, headers.event, key, None, None, headers, is_whole)


def history(records: Iterable[LogRecord], *, topic: str, partition: int = 0) -> Iterator[Entry]:
    """One entry for each record, in their order; raises nothing for any bytes."""
    return History(topic, partition).read(records)


def event_name(record: Record, before: Record | None) -> str:
    """What happened when `record` took the place of `before`, in the past tense."""
    if isinstance(record, Removed):
        return KIND_OF_WORD[parse_key(record.key).namespace].removal
    return KIND_OF_TYPE[type(record)].event(record, before)


def fields_of(record: Record) -> Fields:
    """The fields of `record` as JSON can hold them, by the names in its schema; SSPs in their text form."""
    return plain_fields(record)


def change_text(entry: HistoryEntry) -> str:
    """What changed, in one line: `partition_count 4 -> 8`."""
    return fields_change_text(entry.key, entry.before, entry.after)


def fields_change_text(key: str, before: Fields | None, after: Fields | None) -> str:
    """What became of what `key` held before, in one line."""
    if after is None:
        return _removed_text(key, before)
    if before is None:
        return " ".join(f"{name}={_short(value)}" for name, value in after.items())
    changed = [
        f"{name} {_short(before.get(name))} -> {_short(value)}"
        for name, value in after.items()
        if before.get(name) != value
    ]
    return ", ".join(changed) or "unchanged"


def _removed_text(key: str, before: Fields | None) -> str:
    """Of a setting also what it was: nothing else on the stream says it."""
    if before is None:
        return "removed (was not there)"
    if key.partition("/")[0] == Namespace.CONFIG:
        return f"removed (was {_short(before.get('value'))})"
    return "removed"


@lru_cache(maxsize=1)
def time_text(timestamp_ms: int) -> str:
    """UTC to the millisecond; the number itself where no calendar reaches.

    A broker stamps a batch as one.
    """
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def as_json(entry: Entry) -> Fields:
    """An entry as `samzapy stream replay -o json` shows it; the names are an interface."""
    where = {
        "offset": entry.offset,
        "time": time_text(entry.timestamp_ms),
        "timestamp_ms": entry.timestamp_ms,
        "key": entry.key,
    }
    if isinstance(entry, UnreadableEntry):
        return where | {"error": entry.reason}
    if isinstance(entry, ForeignEntry):
        error = {} if entry.is_readable else {"error": entry.reason}
        return where | {"foreign": entry.reason} | error
    said = entry.headers
    return where | {
        "event": entry.event,
        "term": None if said is None else said.term,
        "seq": None if said is None else said.seq,
        "cause": None if said is None else said.cause,
        "actor": None if said is None else said.actor,
        "before": entry.before,
        "after": entry.after,
        "latest_value_only": not entry.is_whole,
    }


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
