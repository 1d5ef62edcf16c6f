"""Compares a changelog with the last record that local state contains of it.

A changelog may lose its end (an unclean leader election, a lost disk) and grow beyond it again while nothing runs. Its
end offset then lies behind the position of local state, as it would without a loss, but other records stand in front of
it. So local state keeps a mark of the last of the task's records that it contains. A start compares the record at that
offset. Where it is the same record, everything in front of it is the same too.

Compaction may have removed the record. Then a later record has the same key, and the start reads that one: the mark is
the last record of the task, so any later one lies behind the position. A tombstone may disappear without a successor,
so its absence proves nothing.

The mark is a record of the task itself. Only the task writes its keys, so no mark falls behind while the position does
not: a later record of the same key is at most as old as the position, and half of the tombstone retention is the
highest age of a position (`restore.doubt`). Siblings may write and remove their own keys while the task is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samzapy.container.task.changelog_mark import ChangelogMark, key_digest, mark_of
from samzapy.stream.log import LogRecord


class ChangelogDivergedError(Exception):
    """Local state contains a record that its changelog does not have: it is rebuilt."""


class ContinuityCheck:
    """Compares records with a mark as they are read, and makes the next mark.

    Args:
        place: the changelog partition, for messages.
        expected: the mark of local state; None to compare nothing.
        is_own: whether a changelog key belongs to the task.
    """

    def __init__(self, place: str, expected: ChangelogMark | None, is_own: Callable[[bytes], bool]) -> None:
        self._place = place
        self._expected = expected
        self._is_own = is_own
        self._last: ChangelogMark | None = None

    @property
    def mark(self) -> ChangelogMark | None:
        """The mark of local state that contains all records read.

        It is the former mark until that one is confirmed.
        """
        return self._last if self._expected is None else self._expected

    def read(self, records: Sequence[LogRecord]) -> None:
        """Take records in the order of their offsets.

        The first call begins at the mark's offset or in front of it.

        Raises:
            ChangelogDivergedError: another record stands at the mark's offset.
        """
        if self._expected is not None and self._is_confirmed(records, self._expected):
            self._expected = None
        for record in reversed(records):
            if self._owns(record.key or b""):
                self._last = mark_of(record.offset, record.key or b"", record.value)
                break

    def at_end(self) -> None:
        """The changelog was read to its end.

        Raises:
            ChangelogDivergedError: the mark's record is missing, and no later record has its key.
        """
        if self._expected is None:
            return
        if self._expected.key:
            raise ChangelogDivergedError(
                f"{self._place}: wanted the record at offset {self._expected.offset} that local state contains, or a "
                f"later one of the same key, found neither: {_CAUSE}"
            )
        self._expected = None

    def _is_confirmed(self, records: Sequence[LogRecord], expected: ChangelogMark) -> bool:
        for record in records:
            if record.offset == expected.offset:
                if mark_of(record.offset, record.key or b"", record.value) != expected:
                    raise ChangelogDivergedError(
                        f"{self._place}: wanted the record at offset {expected.offset} that local state contains, "
                        f"found another one: {_CAUSE}"
                    )
                return True
            if record.offset > expected.offset and expected.key == key_digest(record.key or b""):
                return True
        return False

    def _owns(self, key: bytes) -> bool:
        try:
            return self._is_own(key)
        except ValueError:
            return False  # Another program writes to this topic (`restore.entries_of`).


_CAUSE = "the changelog lost its end and grew again, as after an unclean leader election"
