"""A moment of the coordinator stream, as people name one: an offset, or a time.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from samzapy.stream.log import LogRecord

_UTC: Final = " UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The moment after the record at `offset`, or at the broker's `timestamp_ms`.

    One of the two is given.
    """

    offset: int | None = None
    timestamp_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read `4711`, `2026-03-01`, `2026-03-01T12:00`, or a time with a zone.

        Without a zone it is UTC. `2026-03-01 12:00:00 UTC` is a time as the page shows it.

        Raises:
            ValueError: neither an offset nor a time.
        """
        if text.isascii() and text.isdigit():
            return cls(offset=int(text))
        try:
            # Python's ISO 8601 has no names of zones. A time with a zone of its own is refused here.
            time = datetime.fromisoformat(f"{text[: -len(_UTC)]}+00:00" if text.endswith(_UTC) else text)
        except ValueError:
            raise ValueError(
                f"wanted an offset (4711) or a time (2026-03-01T12:00:00, in UTC unless it has a zone), found {text!r}"
            ) from None
        zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return cls(timestamp_ms=round(zoned.timestamp() * 1000))

    def __str__(self) -> str:
        return f"offset {self.offset}" if self.timestamp_ms is None else f"time {self.timestamp_ms}"

    def includes(self, record: LogRecord) -> bool:
        """Whether `record` had been written at that moment.

        Brokers stamp records in their order.
        """
        if self.timestamp_ms is not None:
            return record.timestamp_ms <= self.timestamp_ms
        assert self.offset is not None, "one of the two is given"
        return record.offset <= self.offset


class Reading:
    """Records read up to one moment after the other; nothing is lost in between.

    Attributes:
        last: the last record that was handed out.
        next: the first one behind the moment that was read to; None at the end.
    """

    def __init__(self, records: Iterable[LogRecord]) -> None:
        self._records = iter(records)
        self.next: LogRecord | None = None
        self.last: LogRecord | None = None

    def until(self, position: Position | None) -> Iterator[LogRecord]:
        """The records up to `position`; None is the end."""
        while True:
            record = self.next if self.next is not None else next(self._records, None)
            self.next = record
            if record is None or (position is not None and not position.includes(record)):
                return
            self.next, self.last = None, record
            yield record
