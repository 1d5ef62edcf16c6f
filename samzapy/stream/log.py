"""A compacted log: the only way in which anything is stored.

Two implementations keep this contract and one conformance suite holds them to it
(`unit_tests/conformance/log_contract.py`): `testing.memory_log` and `adapters.kafka.log`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A record to append. `value=None` is a tombstone: it removes the key."""

    key: bytes
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)


class LogRecord(NamedTuple):
    """A committed record as read back.

    `timestamp_ms` is the broker's append time, for display only.

    A tuple, because a history has millions of them and a frozen dataclass takes three times as long to make.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def digest(self) -> str:
        """The first 16 digits of the SHA-256 of key and value."""
        return hashlib.sha256((self.key or b"") + (self.value or b"")).hexdigest()[:16]

    @property
    def size_and_digest(self) -> str:
        """A text to recognise the record by, such as `13 bytes, sha256 77af778b51abd4a3`."""
        return f"{self.size} bytes, sha256 {self.digest}"


class CompactedLog(Protocol):
    """One partition of a compacted topic, with at most one writer at a time."""

    def take_over(self) -> None:
        """Become the writer (law L4, the first step).

        It aborts the open transaction of the writer before, and fences it.

        Raises:
            BrokerUnavailableError: no answer in time; nothing is known to have changed.
        """
        ...

    def append_atomically(self, writes: Sequence[Write]) -> int:
        """Append all of `writes` in one transaction, in order.

        Returns the offset after the last of them.

        Raises:
            FencedError: another writer took over, or the transaction timed out. The outcome of an append that
                raises is unknown: take over and read before anything else.
            ProducerError: the same, for another reason.
        """
        ...

    def read(self, offset_from: int = 0) -> Iterator[LogRecord]:
        """All committed records from `offset_from` to the end, in order.

        The end is the high watermark at the time of the call. A record of an open transaction below it is
        waited for, never skipped.

        Raises:
            BrokerUnavailableError, DeadlineError.
        """
        ...

    def end_offset(self) -> int:
        """The high watermark: the offset of the next record.

        Open transactions are included.
        """
        ...
