"""The stream as history: events, their times and causes, and earlier values.

A history is made of the records alone, in their order. Compaction removes older entries and never changes one: inside
the audit horizon the history is whole (`stream.horizon`), and an entry in front of it is marked as the latest value
only. A record that cannot be read is an entry too, with its offset and reason, because an auditor must not skip
records.

Event names are past tense and depend on the earlier value of the key: the same kind of record says that an input was
first seen, and that it grew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from samzapy.errors import CorruptRecordError
from samzapy.stream.codec import RecordHeaders, decode, plain_fields
from samzapy.stream.keys import Namespace, key_of, parse_key
from samzapy.stream.kinds import KIND_OF_NAMESPACE, KIND_OF_TYPE
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, Foreign, Numbering, is_key, place
from samzapy.stream.records import Record, Removed

Fields = Mapping[str, object]
"""A record's fields as JSON can hold them."""

LATEST_VALUE_ONLY: Final = "latest value only"
"""An entry before the horizon: earlier values of its key may have been compacted away."""


class HistoryEntry(NamedTuple):
    """One record and its change.

    `before` is None for a new key, `after` for a removed one.

    `is_whole`: it is inside the horizon, so `before` is complete.
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
    """Reads records in their order, and remembers the latest value of each key.

    Args:
        whole_from: entries before that offset are marked as `LATEST_VALUE_ONLY`.
        wanted: the raw keys to report; no other record is decoded, or remembered.
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
        for record in records:
            self._numbering, headers = place(record, self._numbering)
            if self._wanted is None or self._wanted(record.key or b""):
                yield self._entry(record, headers)

    def _entry(self, raw: LogRecord, headers: RecordHeaders | Foreign) -> Entry:
        if isinstance(headers, Foreign):
            return ForeignEntry(
                offset=raw.offset,
                timestamp_ms=raw.timestamp_ms,
                key=headers.key_text,
                reason=headers.text(self._topic),
                is_readable=headers.is_readable,
            )
        try:
            record = decode(raw, topic=self._topic, partition=self._partition)
        except CorruptRecordError as error:
            if raw.value is None and not is_key(raw.key):
                return self._tombstone_of_foreign(raw, headers)
            key = "" if raw.key is None else raw.key.decode(errors="backslashreplace")
            return UnreadableEntry(offset=raw.offset, timestamp_ms=raw.timestamp_ms, key=key, reason=str(error))
        key = key_of(record)
        fields_before = self._latest.pop(key, None)
        after = None
        if not isinstance(record, Removed):
            after = fields_of(record)
            self._latest[key] = after
        return HistoryEntry(
            offset=raw.offset,
            timestamp_ms=raw.timestamp_ms,
            event=headers.event,
            key=key,
            before=fields_before,
            after=after,
            headers=headers,
            is_whole=raw.offset >= self._whole_from,
        )

    def _tombstone_of_foreign(self, raw: LogRecord, headers: RecordHeaders) -> HistoryEntry:
        """A leader's tombstone under a foreign key.

        It lets compaction remove a foreign record.
        """
        key = "" if raw.key is None else raw.key.decode(errors="backslashreplace")
        is_whole = raw.offset >= self._whole_from
        return HistoryEntry(raw.offset, raw.timestamp_ms, headers.event, key, None, None, headers, is_whole)


def history(records: Iterable[LogRecord], *, topic: str, partition: int = 0) -> Iterator[Entry]:
    """One entry for each record, in their order; raises nothing for any bytes."""
    return History(topic, partition).read(records)


def event_name(record: Record, before: Record | None) -> str:
    """The name of the event when `record` replaced `before`, in the past tense."""
    if isinstance(record, Removed):
        return KIND_OF_NAMESPACE[parse_key(record.key).namespace].removal
    return KIND_OF_TYPE[type(record)].event(record, before)


def fields_of(record: Record) -> Fields:
    """The fields of `record` as JSON, by the names in its schema.

    SSPs are in their text form.
    """
    return plain_fields(record)


def change_text(entry: HistoryEntry) -> str:
    """The change in one line: `partition_count 4 -> 8`."""
    return fields_change_text(entry.key, entry.before, entry.after)


def fields_change_text(key: str, before: Fields | None, after: Fields | None) -> str:
    """The change of the value that `key` had before, in one line."""
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
    """The removal in one line.

    Of a setting it names the old value, which no other record has.
    """
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
    """An entry as `samzapy stream replay -o json` shows it.

    The names are an interface.
    """
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
    headers = entry.headers
    return where | {
        "event": entry.event,
        "term": None if headers is None else headers.term,
        "seq": None if headers is None else headers.seq,
        "cause": None if headers is None else headers.cause,
        "actor": None if headers is None else headers.actor,
        "before": entry.before,
        "after": entry.after,
        "latest_value_only": not entry.is_whole,
    }


def _short(value: object, length_max: int = 80) -> str:
    """A field's value for a table, cut if it is long.

    A position is `kafka.a.0:0/1@85162`.
    """
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
