"""The signals of tails, as files in the execution's scratch directory.

The driver and the workers of a container share a host. `tail` has the order of the driver for one micro-batch, and the
counts of its workers. Each worker appends its reports to a file of its own, `tail-<batch>-<worker>`, one JSON document
between two new lines; the driver reads on where it stopped.

A POSIX lock is dropped when its process closes any descriptor of the file, so each process opens `tail` once.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from samzapy.adapters.spark.scratch_json import read_json
from samzapy.adapters.spark.slots import boottime_ns
from samzapy.container.task.work_plan import Report
from samzapy.errors import SamzapyError

# Of the driver: query, batch, number of Spark tasks, number of slots, common end, handled before: records, time.
_ORDER = struct.Struct("<qqqqqqq")
# Of the driver and the workers: whether the tails have been ended early.
_ENDED = struct.Struct("<q")
# Of the workers: how many have a number, how many have handled their rows, when the last of them had, who may tail
# (bits), handled rows: records, time.
_COUNTS = struct.Struct("<qqqqqq")
_ENDED_AT = _ORDER.size
_COUNTS_AT = _ENDED_AT + _ENDED.size
_SEEN_AT = _COUNTS_AT + _COUNTS.size
_SEEN = struct.Struct("<q")
_LOOK_S = 0.002
GROUPS_MAX: Final = 62
"""A group of tasks is one bit of a signed number of eight bytes."""
CHEAP_NS: Final = 500_000
"""The mean time to process a record up to which one worker tails for all tasks.

It handles records that arrive together in one transaction, which costs far more than they do.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOrder:
    """The driver's order to the workers of one micro-batch.

    Attributes:
        end_ns: the common end on the clock of `boottime_ns`; 0: no tails.
        records: the number of records that were handled lately, and `process_ns` their time in user code.
    """

    query: int
    batch: int
    spark_tasks: int
    slots: int
    end_ns: int
    records: int = 0
    process_ns: int = 0

    @property
    def groups_max(self) -> int:
        """The number of workers that may tail: the last ones to handle their rows."""
        return min(self.spark_tasks, self.slots, GROUPS_MAX)

    def groups(self, counts: TailCounts) -> int:
        """The number of workers that tail, once all have handled their rows."""
        records, process_ns = self.records + counts.records, self.process_ns + counts.process_ns
        return 1 if process_ns <= CHEAP_NS * max(1, records) else counts.claimed.bit_count()


@dataclass(frozen=True, slots=True)
class TailCounts:
    """The progress of a micro-batch's workers.

    Attributes:
        numbered: workers that have a number.
        done: workers that have handled their rows.
        done_ns: when the last of them had, on the clock of `boottime_ns`.
        claimed: the groups of tasks that may have a tail, as bits.
        records: the records that they handled, and `process_ns` their time in user code.
    """

    numbered: int
    done: int
    done_ns: int
    claimed: int
    records: int
    process_ns: int


_ORDER_FIELDS = tuple(TailOrder.__dataclass_fields__)


class TailFile:
    """The file `tail`, open once in this process."""

    def __init__(self, scratch_dir: Path) -> None:
        self.scratch_dir = scratch_dir
        self._descriptor = os.open(scratch_dir / "tail", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def order(self) -> TailOrder:
        """The newest order; one of query 0 without any."""
        raw = os.pread(self._descriptor, _ORDER.size, 0).ljust(_ORDER.size, b"\0")
        return TailOrder(**dict(zip(_ORDER_FIELDS, _ORDER.unpack(raw), strict=True)))

    def begin(self, order: TailOrder, read_from: Sequence[int]) -> None:
        """Give an order; the driver does while no worker of the query runs."""
        os.pwrite(self._descriptor, _ORDER.pack(*(0,) * 7), 0)
        (self.scratch_dir / "tail-positions").write_text(json.dumps(list(read_from)))
        nothing = _ENDED.pack(0) + _COUNTS.pack(*(0,) * 6) + _SEEN.pack(0) * order.slots
        os.pwrite(self._descriptor, nothing, _ENDED_AT)
        os.pwrite(self._descriptor, _packed(order), 0)

    def move_end(self, order: TailOrder) -> None:
        """Replace the common end of an order; the rest is the same."""
        os.pwrite(self._descriptor, _packed(order), 0)

    def read_from(self) -> Sequence[int]:
        """By route, the offset that its tail reads from."""
        path = self.scratch_dir / "tail-positions"
        return read_json(path.read_bytes(), list[int], path)

    def end(self) -> None:
        """End the tails of this micro-batch now."""
        os.pwrite(self._descriptor, _ENDED.pack(1), _ENDED_AT)

    def has_ended(self, order: TailOrder) -> bool:
        """Whether the tails of an order have ended, or another order is in force."""
        raw = os.pread(self._descriptor, _ENDED_AT + _ENDED.size, 0)
        (query, batch, _, _, end_ns, _, _), (ended,) = _ORDER.unpack(raw[:_ENDED_AT]), _ENDED.unpack(raw[_ENDED_AT:])
        return bool(ended) or (query, batch) != (order.query, order.batch) or boottime_ns() >= end_ns

    def counts(self) -> TailCounts:
        return TailCounts(*_COUNTS.unpack(os.pread(self._descriptor, _COUNTS.size, _COUNTS_AT)))

    @contextmanager
    def counting(self) -> Iterator[list[int]]:
        """The counts, to be changed by this process alone meanwhile."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            counts = list(_COUNTS.unpack(os.pread(self._descriptor, _COUNTS.size, _COUNTS_AT)))
            yield counts
            os.pwrite(self._descriptor, _COUNTS.pack(*counts), _COUNTS_AT)
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def see(self, group: int) -> None:
        """Note that a tail is at work now; a message may hang in one that is not."""
        os.pwrite(self._descriptor, _SEEN.pack(boottime_ns()), _SEEN_AT + group * _SEEN.size)

    def seen_ns(self, groups: int) -> Sequence[int]:
        """When each tail was last at work; 0 before its first time, and after its end."""
        raw = os.pread(self._descriptor, groups * _SEEN.size, _SEEN_AT)
        return [seen for (seen,) in _SEEN.iter_unpack(raw)]

    def leave(self, group: int) -> None:
        """Note that a tail is over."""
        os.pwrite(self._descriptor, _SEEN.pack(0), _SEEN_AT + group * _SEEN.size)


class WorkerTailBoard:
    """The part of one worker in a micro-batch (`container.task.ports.TailBoard`)."""

    def __init__(self, file: TailFile, order: TailOrder) -> None:
        self._file = file
        self.order = order
        self._is_ended = False
        self._read_to: Mapping[int, int] = {}
        with file.counting() as counts:
            number = counts[0]
            counts[0] += 1
        self._reports = reports_path(file.scratch_dir, order, number)
        self._reports.write_bytes(b"")
        self.group: int | None = None

    def rows_done(self, reports: Sequence[Report], preferred: int) -> bool:
        """Report the rows of the micro-batch.

        Args:
            preferred: the group of tasks whose inputs this process has read before; -1 for any.

        Returns:
            True if this worker may keep its slot for a tail. Otherwise a Spark task waits for the slot.
        """
        self._append({"rows": [report.as_json() for report in reports]})
        order, (records, process_ns) = self.order, handled_of(reports)
        with self._file.counting() as counts:
            if self.must_end():
                # The counts may be those of the next order, if this process stood still for a while.
                return False
            counts[1] += 1
            counts[2] = max(counts[2], boottime_ns())
            counts[4] += records
            counts[5] += process_ns
            free = [group for group in range(order.groups_max) if not counts[3] >> group & 1]
            tailing = order.groups_max - len(free)
            if free and order.spark_tasks - counts[1] <= order.slots - tailing - 1:
                self.group = preferred if preferred in free else free[0]
                counts[3] |= 1 << self.group
        return self.group is not None

    def await_others(self) -> int:
        """Wait until all workers have handled their rows.

        A tail may have a task whose rows another worker has in hand.

        Returns:
            The number of groups that tail; this worker's is one of them if it is below. 0 if the tails end before that.
        """
        while (counts := self._file.counts()).done < self.order.spark_tasks:
            if self.must_end():
                return 0
            time.sleep(_LOOK_S)
        return self.order.groups(counts)

    def must_end(self) -> bool:
        self._is_ended = self._is_ended or self._file.has_ended(self.order)
        return self._is_ended

    def end_all(self, reason: str) -> None:
        self._is_ended = True
        self._append({"ended": reason})
        self._file.end()

    def publish(self, reports: Sequence[Report], read_to: Mapping[int, int]) -> None:
        assert self.group is not None
        if reports or read_to != self._read_to:
            # A tail without messages lasts for hours, so it writes nothing.
            self._read_to = dict(read_to)
            self._append({"reports": [report.as_json() for report in reports], "readTo": list(read_to.items())})
        self._file.see(self.group)

    def close(self) -> None:
        """Give up the part; the driver has all reports."""
        if self.group is not None:
            self._file.leave(self.group)

    def _append(self, document: Mapping[str, Any]) -> None:
        # It begins with a new line, because a write before it may have been cut short on a full disk.
        with self._reports.open("a") as file:
            file.write(f"\n{json.dumps(document)}\n")


class ReportsFile:
    """The driver's view of a worker's reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def read_on(self) -> Sequence[Mapping[str, Any]]:
        """The documents that the worker has appended since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                text = file.read()
        except FileNotFoundError:
            # A worker of an older order took the number.
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        documents = []
        for line, following in pairwise(whole.split(b"\n")):
            try:
                documents += [read_json(line, dict[str, Any], self._path)] if line else []
            except SamzapyError:
                # An empty line follows each line but one that was cut short. The worker that wrote it has failed.
                if not following:
                    raise
        return documents


def reports_path(scratch_dir: Path, order: TailOrder, number: int) -> Path:
    """The file of a worker's reports."""
    return scratch_dir / f"tail-{order.query}-{order.batch}-{number}"


def handled_of(reports: Sequence[Report]) -> tuple[int, int]:
    """The number of records, and their time in user code in ns."""
    measured = [report.measured for report in reports if report.measured is not None]
    return sum(report.records_in for report in reports), sum(stats.process_ns for stats in measured)


def _packed(order: TailOrder) -> bytes:
    return _ORDER.pack(*(getattr(order, name) for name in _ORDER_FIELDS))
