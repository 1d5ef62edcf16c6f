"""A compacted log in memory, with Kafka's behaviour, also the unpleasant parts.

- Offsets have gaps: each transaction ends with a marker that occupies an offset and is never read.
- An open transaction hides all records after its first one from readers, also committed ones of others.
- The latest owner of a transactional id wins, the one before is fenced, and its open transaction is aborted.
- Compaction keeps offsets, never passes an open transaction, and may happen at any time (`compact`).
- An append whose answer is lost was committed, aborted, is still open, or was torn: half of it is there for good.

It is single-threaded, so no transaction can end while a reader waits: `read` raises `DeadlineError` at once where
`adapters.kafka.log` would wait first. The same suite (`unit_tests/conformance/log_contract.py`) holds both to the
contract.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from samzapy.errors import DeadlineError, FencedError, ProducerError
from samzapy.stream.log import LogRecord, Write


class _Outcome(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


_COMMITTED: Final = _Outcome.COMMITTED
"""Asked of each entry that is read: a member of an enum is looked up anew each time that it is named."""


@dataclass(frozen=True, slots=True)
class _Break:
    """The fate of an append whose answer is lost.

    `survivors`: how many records arrive; None is all.
    """

    outcome: _Outcome
    survivors: int | None = None


@dataclass(slots=True)
class _Transaction:
    transactional_id: str
    offset_first: int
    began_ms: int
    outcome: _Outcome = _Outcome.OPEN


class _Entry(NamedTuple):
    transaction: _Transaction
    record: LogRecord | None
    """None is the marker at the end of a transaction."""
    offset: int


class MemoryTopic:
    """One partition of a compacted topic.

    The `MemoryLog`s of all its writers share it.

    Args:
        together_with: another one; a transaction may write to both, and ends on both.

    Attributes:
        now_ms: the "broker's" time of the records that are appended from now on.
    """

    def __init__(self, name: str = "memory", together_with: MemoryTopic | None = None) -> None:
        self.name = name
        self.now_ms = 0
        # All that share their transactions, this one included; the epochs are theirs together.
        self._together: list[MemoryTopic] = [] if together_with is None else together_with._together
        self._together.append(self)
        self._entries: list[_Entry] = []
        self._offsets: list[int] = []
        self._offset_end = 0
        self._epoch_of: dict[str, int] = {} if together_with is None else together_with._epoch_of
        self._open: dict[str, _Transaction] = {}

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        return self._offset_end

    @property
    def stable_offset(self) -> int:
        """The last stable offset: readers of committed records see nothing at or after it."""
        if not self._open:
            return self._offset_end
        return min(open_.offset_first for open_ in self._open.values())

    def compact(self, *, keep_until: int | None = None, tombstones_until: int = 0) -> None:
        """Do a pass of a log cleaner.

        Any sequence of passes is a legal history, so a test may choose both numbers freely.

        Args:
            keep_until: nothing at or after this offset is touched. Below it only the latest committed record
                of each key stays. None means: as far as the cleaner may go (to the first open transaction).
            tombstones_until: tombstones below this offset are older than `delete.retention.ms` and go too.
        """
        limit = self.stable_offset if keep_until is None else min(keep_until, self.stable_offset)
        latest: dict[bytes | None, int] = {}
        for entry in self._entries:
            if entry.offset < limit and entry.record is not None and entry.transaction.outcome is _COMMITTED:
                latest[entry.record.key] = entry.offset

        def stays(entry: _Entry) -> bool:
            if entry.offset >= limit or entry.record is None:
                return True
            if entry.transaction.outcome is not _COMMITTED or latest[entry.record.key] > entry.offset:
                return False
            return entry.record.value is not None or entry.offset >= tombstones_until

        self._entries = [entry for entry in self._entries if stays(entry)]
        self._offsets = [entry.offset for entry in self._entries]

    def read_stable(self, offset_from: int, count_max: int | None = None) -> tuple[list[LogRecord], int]:
        """At most `count_max` committed records, and the position of the reader then.

        This is a reader that does not wait.

        It stands before the first open transaction, at the latest: that is no end, nothing can be concluded from it.
        """
        stable = self.stable_offset
        entries = self._entries[bisect_left(self._offsets, offset_from) : bisect_left(self._offsets, stable)]
        records = [
            entry.record for entry in entries if entry.record is not None and entry.transaction.outcome is _COMMITTED
        ]
        if count_max is not None and len(records) > count_max:
            return records[:count_max], records[count_max].offset
        return records, max(offset_from, stable)

    def open_since(self) -> Mapping[str, int]:
        """The transactional ids with an open transaction here.

        Each has the time of its first record.
        """
        return {transactional_id: open_.began_ms for transactional_id, open_ in self._open.items()}

    def time_out(self, transactional_id: str) -> None:
        """Abort transactions that are open for too long, and fence their owners.

        The broker does the same.
        """
        self._take_over(transactional_id)

    def is_owner(self, transactional_id: str, epoch: int | None) -> bool:
        """Whether the id was not initialised again since `epoch` was given out."""
        return epoch is not None and self._epoch_of[transactional_id] == epoch

    def dump(self) -> bytes:
        """Every byte there is, in one string: equal topics give equal dumps."""
        return repr(
            [
                (entry.offset, entry.transaction.transactional_id, entry.transaction.outcome.value, entry.record)
                for entry in self._entries
            ]
        ).encode()

    def _take_over(self, transactional_id: str) -> int:
        self._end_transaction(transactional_id, _Outcome.ABORTED)
        epoch = self._epoch_of.get(transactional_id, -1) + 1
        self._epoch_of[transactional_id] = epoch
        return epoch

    def _check_epoch(self, transactional_id: str, epoch: int | None) -> None:
        if epoch is None:
            raise ProducerError(
                f"wanted the owner of {transactional_id!r} on {self.name}, found one that has not taken over "
                "since its last error: take over and read before the next append"
            )
        newest = self._epoch_of[transactional_id]
        if newest != epoch:
            raise FencedError(
                f"{transactional_id!r} on {self.name} has a newer owner (epoch {newest}, ours is {epoch}): "
                "take over, read and decide again"
            )

    def _append(self, transactional_id: str, writes: Sequence[Write]) -> int:
        transaction = self._open.get(transactional_id)
        if transaction is None:
            transaction = _Transaction(transactional_id, self._offset_end, self.now_ms)
            self._open[transactional_id] = transaction
        for write in writes:
            record = LogRecord(
                offset=self._offset_end,
                timestamp_ms=self.now_ms,
                key=write.key,
                value=write.value,
                headers=tuple(write.headers.items()),
            )
            self._put(transaction, record)
        return self._offset_end

    def _end_transaction(self, transactional_id: str, outcome: _Outcome) -> None:
        for topic in self._together:
            transaction = topic._open.pop(transactional_id, None)
            if transaction is not None:
                transaction.outcome = outcome
                topic._put(transaction, None)

    def _put(self, transaction: _Transaction, record: LogRecord | None) -> None:
        self._entries.append(_Entry(transaction=transaction, record=record, offset=self._offset_end))
        self._offsets.append(self._offset_end)
        self._offset_end += 1

    def _read(self, offset_from: int, offset_end: int) -> Iterator[LogRecord]:
        offset_next = offset_from
        entries, place = self._entries, bisect_left(self._offsets, offset_from)
        while True:
            # The log may be compacted, or grow, while a reader is in it.
            if entries is not self._entries:
                entries, place = self._entries, bisect_left(self._offsets, offset_next)
            if place == len(entries):
                return
            transaction, record, offset = entries[place]
            if offset >= offset_end:
                return
            if self._open and offset >= self.stable_offset:
                raise DeadlineError(
                    f"wanted to read {self.name} up to offset {offset_end}, found an open transaction of "
                    f"{self._blocker()!r} from offset {self.stable_offset} on: no process can end it meanwhile"
                )
            place, offset_next = place + 1, offset + 1
            if record is not None and transaction.outcome is _COMMITTED:
                yield record

    def _blocker(self) -> str:
        return min(self._open.values(), key=lambda open_: open_.offset_first).transactional_id


class MemoryLog:
    """A `CompactedLog` on a `MemoryTopic`, as the writer `transactional_id`."""

    def __init__(self, topic: MemoryTopic, transactional_id: str = "writer") -> None:
        self.topic = topic
        self.transactional_id = transactional_id
        self._epoch: int | None = None
        self._breaks_next: _Break | None = None

    def take_over(self) -> None:
        """See `CompactedLog.take_over`."""
        self._epoch = self.topic._take_over(self.transactional_id)

    def append_atomically(self, writes: Sequence[Write]) -> int:
        """See `CompactedLog.append_atomically`."""
        breaks, self._breaks_next = self._breaks_next, None
        if breaks is not None:
            self.append_and_stop(writes[: breaks.survivors])
            self._epoch = None
            if breaks.outcome is not _Outcome.OPEN:
                self.topic._end_transaction(self.transactional_id, breaks.outcome)
            raise ProducerError(
                f"the connection broke at the commit on {self.topic.name}; whether it was committed is "
                "unknown: take over, read and decide again"
            )
        offset_after = self.append_and_stop(writes)
        self.commit()
        return offset_after

    def read(self, offset_from: int = 0) -> Iterator[LogRecord]:
        """See `CompactedLog.read`."""
        return self.topic._read(offset_from, self.topic.end_offset)

    def end_offset(self) -> int:
        """See `CompactedLog.end_offset`."""
        return self.topic.end_offset

    def append_and_stop(self, writes: Sequence[Write], to: MemoryTopic | None = None) -> int:
        """Do only the first half of an append.

        The transaction stays open, as if the writer died or hung.

        Args:
            to: another topic that shares its transactions with this log's.
        """
        assert writes, "an append of nothing"
        self._checked()
        return (to or self.topic)._append(self.transactional_id, writes)

    def commit(self) -> None:
        """The second half of an append that `append_and_stop` began."""
        self._checked()
        self.topic._end_transaction(self.transactional_id, _Outcome.COMMITTED)

    def abort(self) -> None:
        """End the transaction of `append_and_stop` without a trace (but its offsets)."""
        self._checked()
        self.topic._end_transaction(self.transactional_id, _Outcome.ABORTED)

    def break_next_append(self, *, committed: bool) -> None:
        """Let the next append raise `ProducerError`, whether it is committed or not."""
        self._breaks_next = _Break(_Outcome.COMMITTED if committed else _Outcome.ABORTED)

    def tear_next_append(self, survivors: int) -> None:
        """Let only the first `survivors` records of the next append be committed.

        It is cut by a delayed EndTxn.

        At least one record survives: an EndTxn before the first one is of another transaction.
        """
        assert survivors > 0, "an append of which nothing survives is one that was aborted"
        self._breaks_next = _Break(_Outcome.COMMITTED, survivors)

    def hang_next_append(self) -> None:
        """Let the next append raise `ProducerError` and leave its transaction open.

        The client gave up.
        """
        self._breaks_next = _Break(_Outcome.OPEN)

    @property
    def is_owner(self) -> bool:
        """Whether this log may still append: it is the latest owner."""
        return self.topic.is_owner(self.transactional_id, self._epoch)

    def _checked(self) -> None:
        try:
            self.topic._check_epoch(self.transactional_id, self._epoch)
        except FencedError:
            # As with Kafka this is fatal for the producer.
            self._epoch = None
            raise
