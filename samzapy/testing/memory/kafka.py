"""Kafka in memory, with transactions over several topics.

Offsets have gaps (markers), an open transaction hides what lies behind it, and the latest owner of a transactional id
wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from samzapy.container.task.ports import Headers
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.errors import (
    DeadlineError,
    FencedError,
    ProducerError,
)
from samzapy.stream.log import LogRecord
from samzapy.testing.memory.process import CrashAt, Trace


class _Outcome(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class _Transaction:
    outcome: _Outcome = _Outcome.OPEN
    partitions: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    transaction: _Transaction
    record: LogRecord | None
    # Its number among the entries of all partitions, and the partition that its producer named.
    number: int = 0
    partition: int | None = None


class MemoryKafka:
    """Topics in memory.

    A partition exists as soon as it is named. Topic ids change when a topic is made again.
    """

    def __init__(self) -> None:
        self.topic_ids: dict[str, str] = {}
        self.absent: set[str] = set()
        self.topic_limits: dict[str, TopicLimits | None] = {}
        self._partitions: dict[tuple[str, int], list[_Entry]] = {}
        self._offset_ends: Counter[tuple[str, int]] = Counter()
        self._epochs: Counter[str] = Counter()
        self._open: dict[str, _Transaction] = {}
        self._appended = 0
        self.fenced: list[str] = []

    def committed(
        self, topic: str, partition: int = 0, offset_from: int = 0, offset_to: int | None = None
    ) -> list[LogRecord]:
        """The records that a `read_committed` reader gets.

        Raises DeadlineError at an open transaction, at which such a reader waits.
        """
        entries = self._committed(topic, partition, offset_from, offset_to)
        return [entry.record for entry in entries if entry.record is not None]

    def committed_of_all(self, topic: str) -> list[tuple[int | None, LogRecord]]:
        """The committed records of all partitions, in the order of their appends.

        Each with the partition that its producer named; None if it left the choice to the client.

        Raises DeadlineError as `committed`.
        """
        numbers = [partition for name, partition in self._partitions if name == topic]
        entries = [entry for partition in numbers for entry in self._committed(topic, partition)]
        entries.sort(key=lambda entry: entry.number)
        return [(entry.partition, entry.record) for entry in entries if entry.record is not None]

    def topics(self) -> set[str]:
        """The topics that records were appended to."""
        return {topic for topic, _ in self._partitions}

    def _committed(
        self, topic: str, partition: int, offset_from: int = 0, offset_to: int | None = None
    ) -> Iterator[_Entry]:
        for entry in self._partitions.get((topic, partition), []):
            if entry.offset < offset_from or (offset_to is not None and entry.offset >= offset_to):
                continue
            if entry.transaction.outcome is _Outcome.OPEN:
                raise DeadlineError(f"{topic}-{partition}: an open transaction from offset {entry.offset} on")
            if entry.transaction.outcome is _Outcome.COMMITTED and entry.record is not None:
                yield entry

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.committed(topic, partition)]

    def offset_end(self, topic: str, partition: int = 0) -> int:
        return self._offset_ends[topic, partition]

    def offset_stable(self, topic: str, partition: int = 0) -> int:
        """The first offset of an open transaction, else the end."""
        entries = self._partitions.get((topic, partition), [])
        open_ones = (entry.offset for entry in entries if entry.transaction.outcome is _Outcome.OPEN)
        return min(open_ones, default=self.offset_end(topic, partition))

    def init(self, transactional_id: str) -> int:
        """Take over a transactional id.

        The owner before is fenced, and its open transaction is aborted.
        """
        self._end(transactional_id, _Outcome.ABORTED)
        self._epochs[transactional_id] += 1
        self.fenced.append(transactional_id)
        return self._epochs[transactional_id]

    def has_open_transaction(self, transactional_id: str) -> bool:
        return transactional_id in self._open

    def write(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> None:
        """Append committed records of another producer."""
        for key, value in records:
            transaction = _Transaction(outcome=_Outcome.COMMITTED)
            self._append(transaction, topic, partition, key, value, headers, timestamp_ms)

    def cut(self, topic: str, partition: int, offset: int) -> None:
        """Lose the end of a partition from `offset` on, as in an unclean leader election."""
        place = topic, partition
        assert self._offset_ends[place] > offset, "nothing to cut: no fault was injected"
        self._partitions[place] = [entry for entry in self._partitions[place] if entry.offset < offset]
        self._offset_ends[place] = offset

    def compact(self, topic: str, partition: int = 0, *, keeps_tombstones: bool = True) -> None:
        """Keep the last committed record of each key."""
        place = topic, partition
        last = {record.key: record.offset for record in self.committed(topic, partition)}
        self._partitions[place] = [
            entry
            for entry in self._partitions[place]
            if entry.record is not None
            and entry.offset == last[entry.record.key]
            and (keeps_tombstones or entry.record.value is not None)
        ]

    def check_owner(self, transactional_id: str, epoch: int) -> None:
        if self._epochs[transactional_id] != epoch:
            raise FencedError(f"{transactional_id} has a newer owner")

    def begin(self, transactional_id: str) -> None:
        assert transactional_id not in self._open, "a transaction is open already"
        self._open[transactional_id] = _Transaction()

    def append(
        self,
        transactional_id: str,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> int:
        transaction = self._open[transactional_id]
        place = topic, partition or 0
        if place not in transaction.partitions:
            transaction.partitions.append(place)
        return self._append(transaction, topic, partition, key, value, headers, timestamp_ms)

    def end(self, transactional_id: str, *, committed: bool) -> None:
        self._end(transactional_id, _Outcome.COMMITTED if committed else _Outcome.ABORTED)

    def _append(
        self,
        transaction: _Transaction,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> int:
        place = (topic, partition or 0)
        offset = self._offset_ends[place]
        record = LogRecord(
            offset=offset, timestamp_ms=timestamp_ms or 0, key=key, value=value, headers=tuple(headers)
        )
        self._appended += 1
        self._partitions.setdefault(place, []).append(_Entry(offset, transaction, record, self._appended, partition))
        self._offset_ends[place] += 1
        return offset

    def _end(self, transactional_id: str, outcome: _Outcome) -> None:
        transaction = self._open.pop(transactional_id, None)
        if transaction is None:
            return
        transaction.outcome = outcome
        for place in transaction.partitions:
            self._partitions[place].append(_Entry(self._offset_ends[place], transaction, None))
            self._offset_ends[place] += 1


CLIENT_NOW_MS = 1_700_000_000_000
"""The clock of producers in memory that are given none."""


class MemoryProducer:
    """A transactional producer (`container.task.ports.Producer`).

    It acknowledges in `flush`, as the real one may. With `commit_fails` set to "unknown-committed" or
    "unknown-aborted", the next commit raises, and has that outcome.
    """

    def __init__(
        self,
        kafka: MemoryKafka,
        transactional_id: str,
        trace: Trace,
        crash_points: CrashAt,
        now_ms: Callable[[], int] = lambda: CLIENT_NOW_MS,
    ) -> None:
        self.transactional_id = transactional_id
        self._now_ms = now_ms
        self.commit_fails = ""
        self.while_flushing: Callable[[], None] = lambda: None
        self._kafka = kafka
        self._trace = trace
        self._crash_points = crash_points
        self._epoch = kafka.init(transactional_id)
        self._unacknowledged: list[tuple[Callable[[int], None], int]] = []

    def begin(self) -> None:
        self._kafka.check_owner(self.transactional_id, self._epoch)
        self._kafka.begin(self.transactional_id)
        self._trace.append("begin")

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_offset: Callable[[int], None] | None = None,
    ) -> None:
        self._kafka.check_owner(self.transactional_id, self._epoch)
        # As librdkafka does: no time is now, and so is 0; a header's name ends at a zero character.
        sent = [(name.encode().partition(b"\0")[0].decode(), content) for name, content in headers or ()]
        offset = self._kafka.append(
            self.transactional_id, topic, partition, key, value, sent, timestamp_ms or self._now_ms()
        )
        self._trace.append(f"produce {topic}")
        if on_offset is not None:
            self._unacknowledged.append((on_offset, offset))

    def partition_count(self, topic: str) -> int | None:
        return None if topic in self._kafka.absent else 4

    def topic_limits(self, topic: str) -> TopicLimits | None:
        return self._kafka.topic_limits.get(topic, TopicLimits(batch_bytes_max=1_048_588))

    def flush(self) -> None:
        self.while_flushing()
        for on_offset, offset in self._unacknowledged:
            on_offset(offset)
        self._unacknowledged.clear()
        self._trace.append("flush")

    def commit(self) -> None:
        self._kafka.check_owner(self.transactional_id, self._epoch)
        if self.commit_fails:
            committed, self.commit_fails = self.commit_fails == "unknown-committed", ""
            self._kafka.end(self.transactional_id, committed=committed)
            raise ProducerError("the connection broke at the commit: its outcome is unknown")
        self._crash_points.hit("kafka-commit")
        self._kafka.end(self.transactional_id, committed=True)
        self._trace.append("commit")

    def abort(self) -> None:
        self._kafka.check_owner(self.transactional_id, self._epoch)
        self._kafka.end(self.transactional_id, committed=False)
        self._trace.append("abort")
