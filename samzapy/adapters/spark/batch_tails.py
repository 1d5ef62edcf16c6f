"""Order the tails of a micro-batch, and read their reports.

A micro-batch with tails ends for Spark when its tails end. For the container its rows end before: `BatchDone` comes
once all workers have handled their rows, and `TailProgress` follows. Both are read from the workers' files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from samzapy.adapters.spark.slots import boottime_ns
from samzapy.adapters.spark.tail_board import ReportsFile, TailFile, TailOrder, handled_of, reports_path
from samzapy.container.ports import BatchDone, QueryEvent, TailProgress
from samzapy.container.task.tail import FELL_BEHIND
from samzapy.container.task.work_plan import Report, TailPlan, WorkPlan, any_failed
from samzapy.model.ssp import SystemStreamPartition

_FULL_SHARE = 0.9
# The next micro-batch reads again everything that the tails have read. Where that is more than this share of a
# micro-batch, or where records may be gone from the topic meanwhile, a query that begins behind it is better.
_READ_AGAIN_SHARE = 0.5
_READ_AGAIN_NS = 600_000_000_000
_NS_PER_MS = 1_000_000
# More than a worker may take for a record if it is to tail for all tasks.
_SLOW_NS = 1_000_000_000
_REST_NS = 60_000_000_000

Ends = Mapping[SystemStreamPartition, int]
"""The end offset of a micro-batch, by partition that it read."""


class BatchTails:
    """The tails of one query's micro-batches, one after the other.

    Args:
        first: the offset at which the query reads each partition first.
        has_task_each: whether Spark has one task per partition with records, and not one per slot.
        before: of the query before, which may have learned that one worker is too slow alone.
    """

    def __init__(
        self,
        plan: WorkPlan,
        tail: TailPlan,
        file: TailFile,
        first: Ends,
        *,
        has_task_each: bool,
        before: BatchTails | None = None,
    ) -> None:
        self._plan = plan
        self._tail = tail
        self._file = file
        self._ends = dict(first)
        self._has_task_each = has_task_each
        # By route, the offset below which everything is handled, as far as reports say.
        self._read_to = list(tail.starts)
        # Records handled since the order before, and their time in user code. None once one worker was too slow alone.
        self._handled: tuple[int, int] | None = (0, 0)
        self._rest_until_ns = 0
        # Whether the tails that ended last have read so much that Spark should not read it again.
        self.is_far_ahead = False
        if before is not None and _reads_the_same(before._plan, plan):
            self._handled = (0, 0) if before._handled is not None else None
            self._rest_until_ns = before._rest_until_ns
        # Spark's thread begins and finishes a micro-batch, the container's thread polls.
        self._lock = threading.Lock()
        self._current: _TailedBatch | None = None

    def begin(self, batch_id: int, ends: Ends) -> None:
        """Order the workers of the next micro-batch to tail, or not to."""
        self._begin(batch_id, ends, None)

    def begin_tick(self, number: int) -> None:
        """The same for a tick, which has no rows, and a Spark task for each slot.

        Args:
            number: of the tick, from 1 on.
        """
        self._begin(-number, {}, self._plan.slot_count)

    def _begin(self, batch_id: int, ends: Ends, tick_tasks: int | None) -> None:
        sizes = {ssp: end - self._ends.get(ssp, end) for ssp, end in ends.items()}
        self._ends.update(ends)
        if tick_tasks is not None:
            spark_tasks = tick_tasks
        else:
            spark_tasks = sum(size > 0 for size in sizes.values()) if self._has_task_each else self._plan.slot_count
        is_full = sum(sizes.values()) >= _FULL_SHARE * self._plan.batch_offsets_max
        may_tail = spark_tasks > 0 and not is_full and self._unread() <= self._tail.lag_max
        may_tail = may_tail and boottime_ns() >= self._rest_until_ns
        # If the micro-batch fails, the query ends, so this is only used after all of its rows were handled.
        self._read_to = [
            max(read_to, ends.get(route.ssp_kb.ssp, read_to))
            for route, read_to in zip(self._plan.routes, self._read_to, strict=True)
        ]
        order = TailOrder(
            query=self._plan.query_number,
            batch=batch_id,
            spark_tasks=spark_tasks,
            slots=self._plan.slot_count,
            end_ns=self._end_ns() if may_tail else 0,
            records=1 if self._handled is None else self._handled[0],
            process_ns=_SLOW_NS if self._handled is None else self._handled[1],
        )
        with self._lock:
            if self._handled is not None:
                self._handled = (0, 0)
            self._file.begin(order, self._read_to)
            self._current = _TailedBatch(self._plan, self._file, order, self._ends) if may_tail else None

    def _unread(self) -> int:
        """The number of offsets before the end of the micro-batch that no tail has read."""
        return sum(max(0, self._ends[ssp] - offset) for ssp, offset in self._read_to_by_partition(min).items())

    def _read_to_by_partition(self, choose: Callable[[int, int], int]) -> Ends:
        """The least or greatest offset of each partition that a micro-batch has read."""
        read_to: dict[SystemStreamPartition, int] = {}
        for route, offset in zip(self._plan.routes, self._read_to, strict=True):
            ssp = route.ssp_kb.ssp
            if ssp in self._ends:
                read_to[ssp] = choose(offset, read_to.get(ssp, offset))
        return read_to

    def _end_ns(self) -> int:
        return boottime_ns() + self._tail.duration_ms * _NS_PER_MS

    def poll(self) -> Sequence[QueryEvent]:
        """The events since the last call, while the micro-batch runs."""
        with self._lock:
            return () if self._current is None else self._events(self._current)

    def finish(self, done: BatchDone) -> Sequence[QueryEvent]:
        """The last events of the micro-batch, which Spark has ended.

        Args:
            done: of the rows as Spark has them, for a micro-batch without tails.
        """
        with self._lock:
            batch, self._current = self._current, None
            if batch is None:
                return (done,)
            events = [_without_tails(event) for event in self._events(batch)]
            batch.remove_files()
            if batch.fell_behind:
                self._fell_behind(batch)
            read = self._read_in_tails()
            is_much = read > _READ_AGAIN_SHARE * self._plan.batch_offsets_max
            self.is_far_ahead = is_much or (read > 0 and boottime_ns() - batch.begun_ns > _READ_AGAIN_NS)
            return events if batch.rows_are_done else (done,)

    def fail(self) -> None:
        """End the tails of a micro-batch that failed.

        The next start reads on from what they committed.
        """
        self._file.end()
        with self._lock:
            batch, self._current = self._current, None
            if batch is not None:
                batch.remove_files()

    def _fell_behind(self, batch: _TailedBatch) -> None:
        """Have the workers share the tasks from now on.

        If they did, micro-batches alone read the inputs for a while.
        """
        if self._handled is None or batch.has_one_group_at_most:
            self._rest_until_ns = boottime_ns() + _REST_NS
        self._handled = None

    def _events(self, batch: _TailedBatch) -> Sequence[QueryEvent]:
        events = batch.events()
        for event in events:
            if isinstance(event, TailProgress):
                for route, offset in event.read_to.items():
                    self._read_to[route] = max(offset, self._read_to[route])
            if isinstance(event, BatchDone | TailProgress) and self._handled is not None:
                records, process_ns = handled_of(event.reports)
                self._handled = self._handled[0] + records, self._handled[1] + process_ns
        if batch.is_idle:
            batch.move_end(self._end_ns())
        return events

    def _read_in_tails(self) -> int:
        """The number of offsets that the tails of the current micro-batch have read."""
        return sum(offset - self._ends[ssp] for ssp, offset in self._read_to_by_partition(max).items())

    def rows_are_done(self) -> bool:
        """Whether only tails are left of the current micro-batch."""
        with self._lock:
            return self._current is not None and self._current.has_only_tails

    def end(self) -> None:
        """End the tails of the current micro-batch now; without any this does nothing."""
        self._file.end()


class _TailedBatch:
    """The driver's view of a micro-batch whose workers may tail."""

    def __init__(self, plan: WorkPlan, file: TailFile, order: TailOrder, ends: Ends) -> None:
        self.ends = dict(ends)
        self.rows_are_done = False
        self._plan = plan
        self._file = file
        self._order = order
        self.begun_ns = self._polled_ns = boottime_ns()
        self._files: list[ReportsFile] = []
        self._has_handled = False
        self.fell_behind = False

    @property
    def has_one_group_at_most(self) -> bool:
        return self._order.groups_max == 1

    @property
    def has_only_tails(self) -> bool:
        return self._file.counts().done == self._order.spark_tasks

    @property
    def is_idle(self) -> bool:
        """Whether the tails run and have handled nothing so far."""
        return self.rows_are_done and not self._has_handled

    def move_end(self, end_ns: int) -> None:
        """Move the common end on."""
        self._order = replace(self._order, end_ns=end_ns)
        self._file.move_end(self._order)

    def events(self) -> list[QueryEvent]:
        """The events since the last call; none before all workers have handled their rows."""
        counts = self._file.counts()
        if counts.done < self._order.spark_tasks:
            return []
        for number in range(len(self._files), counts.numbered):
            self._files.append(ReportsFile(reports_path(self._file.scratch_dir, self._order, number)))
        documents = [document for file in self._files for document in file.read_on()]
        events: list[QueryEvent] = []
        if not self.rows_are_done:
            self.rows_are_done, self._polled_ns = True, counts.done_ns
            events.append(
                BatchDone(
                    reports=_reports(documents, "rows"),
                    offsets_end=self.ends,
                    duration_ns=counts.done_ns - self.begun_ns,
                    is_tick=self._order.batch < 0,
                )
            )
        events.append(self._progress(documents, self._order.groups(counts)))
        return events

    def _progress(self, documents: Sequence[Mapping[str, Any]], groups: int) -> TailProgress:
        reports = _reports(documents, "reports")
        self.fell_behind = self.fell_behind or any(document.get("ended") == FELL_BEHIND for document in documents)
        self._has_handled = self._has_handled or bool(reports)
        now_ns, since_ns = boottime_ns(), self._polled_ns
        self._polled_ns = now_ns
        seen = [seen_ns for seen_ns in self._file.seen_ns(self._order.groups_max) if seen_ns]
        return TailProgress(
            reports=reports,
            read_to={route: offset for document in documents for route, offset in document.get("readTo", ())},
            duration_ns=max(0, now_ns - since_ns),
            stalled_ms=max(0, now_ns - min(seen)) // _NS_PER_MS if seen else 0,
            tailing=range(len(self._plan.routes)) if groups else (),
        )

    def remove_files(self) -> None:
        # Also those that were never read, because the tails ended before all rows were handled.
        for number in range(self._file.counts().numbered):
            reports_path(self._file.scratch_dir, self._order, number).unlink(missing_ok=True)


def _reports(documents: Sequence[Mapping[str, Any]], name: str) -> tuple[Report, ...]:
    return tuple(Report.from_json(report) for document in documents for report in document.get(name, ()))


def _reads_the_same(one: WorkPlan, other: WorkPlan) -> bool:
    return [route.ssp_kb for route in one.routes] == [route.ssp_kb for route in other.routes]


def _without_tails(event: QueryEvent) -> QueryEvent:
    """The event after the tails have ended."""
    return replace(event, tailing=()) if isinstance(event, TailProgress) else event


def has_failed(events: Sequence[QueryEvent]) -> bool:
    """Whether a task failed in one of these events."""
    return any(any_failed(event.reports) for event in events if isinstance(event, BatchDone | TailProgress))
