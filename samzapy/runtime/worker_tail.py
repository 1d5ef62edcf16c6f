"""The tails of one worker process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from samzapy.adapters.host.crash_points import ArmedCrashPoints
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.tail_reader import KafkaTailReader
from samzapy.adapters.spark.ends_file import EndsFile
from samzapy.adapters.spark.tail_board import TailFile, WorkerTailBoard
from samzapy.container.task.ports import Place, SlotGuard
from samzapy.container.task.tail import DueMs, RunTasks, Tail, TailPorts
from samzapy.container.task.work_plan import Report, WorkPlan


class WorkerTails:
    """The objects that a worker process keeps for its tails."""

    def __init__(self, scratch_dir: Path, connection: KafkaConnection, crash_points: WorkerCrashPoints) -> None:
        self._file = TailFile(scratch_dir)
        self._reader = KafkaTailReader(connection)
        self._crash_points = crash_points
        # The group of tasks whose inputs the reader has.
        self._group = -1

    def board(self, plan: WorkPlan) -> WorkerTailBoard | None:
        """This worker's part in the micro-batch; None if the driver ordered no tails."""
        if plan.tail is None:
            return None
        order = self._file.order()
        is_ordered = order.query == plan.query_number and order.end_ns > 0
        return WorkerTailBoard(self._file, order) if is_ordered else None

    def follow(
        self,
        plan: WorkPlan,
        board: WorkerTailBoard,
        reports: Sequence[Report],
        slot: SlotGuard,
        run_tasks: RunTasks,
        due_ms: DueMs | None,
        ends: EndsFile | None,
    ) -> None:
        """Report the rows of the micro-batch, and tail if a group of tasks is left.

        Args:
            due_ms: as of `TailPorts`.
            ends: of the inputs, for a job that keeps event time.

        Raises:
            LostContainerError, SamzapyError: as `Tail.run`.
        """
        groups = board.await_others() if board.rows_done(reports, self._group) else 0
        if board.group is None or board.group >= groups:
            # Another worker may have these inputs now.
            self.close()
            return
        self._group = board.group
        ports = TailPorts(
            reader=self._reader,
            board=board,
            slot=slot,
            crash_points=self._crash_points,
            now_s=time.monotonic,
            wall_ms=lambda: time.time_ns() // 1_000_000,
            due_ms=due_ms,
            ends=None if ends is None else _TailEnds(ends, plan.query_number),
        )
        with self._crash_points.during("tail"):
            Tail(plan, plan.tasks[board.group :: groups], self._file.read_from(), ports, run_tasks).run()

    def close(self) -> None:
        """Close the connection; the next tail opens another one."""
        self._group = -1
        self._reader.close()


class _TailEnds:
    """The ends of the inputs in the tails of one query."""

    def __init__(self, ends: EndsFile, query_number: int) -> None:
        self._ends = ends
        self._query_number = query_number

    def look(self) -> bool:
        return self._ends.look(self._query_number)

    def covered_ms(self, place: Place, offset_next: int) -> int | None:
        return self._ends.covered_at(place, offset_next)


class WorkerCrashPoints:
    """Crash points of a worker.

    Each name also counts as `tail-<name>` while the worker tails, and as `tick-<name>` in a tick.
    """

    def __init__(self, points: ArmedCrashPoints) -> None:
        self._points = points
        self._prefix = ""

    @contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Count each name also as one of this stage."""
        before, self._prefix = self._prefix, f"{stage}-"
        try:
            yield
        finally:
            self._prefix = before

    def hit(self, name: str) -> None:
        self._points.hit(name)
        if self._prefix and not name.startswith(self._prefix):
            self._points.hit(f"{self._prefix}{name}")
