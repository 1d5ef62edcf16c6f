"""A tail: a worker that reads its inputs by itself after a small micro-batch.

Theory. A micro-batch costs 100 ms and more, however few records it has. So a worker keeps its slot after its rows, and
reads on with a consumer of its own: one transaction per bunch of records, over all of its tasks, until the
tails end. Nothing new is durable. The positions are those of the checkpoints and of the local store. The next
micro-batch brings the same records again, and the position of the local store makes the worker skip them.

A tail is for the head of the topics. One that falls behind ends the tails of all workers, because Spark reads a backlog
faster. Anything unusual in an input also ends the tails, so the next micro-batch treats it as it would without tails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from samzapy.container.task.lookup_table import lookup_table
from samzapy.container.task.ports import (
    BUNCH_MAX,
    CrashPoints,
    Place,
    SlotGuard,
    TailBoard,
    TailEndedError,
    TailReader,
)
from samzapy.container.task.tail_routes import TailRoutes
from samzapy.container.task.work_plan import NO_TIMER, InputRecord, Report, Rows, WorkPlan, any_failed
from samzapy.errors import LostContainerError
from samzapy.model.task_stats import TaskStats

POLL_S: Final = 0.02
"""How long a tail waits for records before it looks at the signals; a tail ends within this time and a transaction."""
FELL_BEHIND: Final = "a tail fell behind"
_YIELD_S: Final = 0.02
_PUBLISH_EVERY_S: Final = 0.5

TaskRows = tuple[Sequence[int], Iterable[Rows]]
"""The routes of a task, and rows of it."""
RunTasks = Callable[[Sequence[TaskRows], Callable[[], bool]], Sequence[Report]]
"""Handles rows of several tasks, and commits them together.

The second argument says whether to stop soon; the reports then show how far it came.
"""
DueMs = Callable[[Sequence[int], Mapping[int, int]], int]
"""When the next timer of a task with these routes is due, or `NO_TIMER`; 0 for one that is due.

The second argument is, by route, up to which moment all messages are handled once the tail's next rows are.
"""


class InputEnds(Protocol):
    """The ends of the inputs of a job that keeps event time."""

    def look(self) -> bool:
        """Look for newer ends; returns whether there are any."""
        ...

    def covered_ms(self, place: Place, offset_next: int) -> int | None:
        """The newest moment of which everything in a partition lies below an offset."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPorts:
    """The surroundings of a tail.

    Attributes:
        now_s: any clock that only goes forward.
        wall_ms: the clock of timers.
        due_ms: None for tasks without timers.
        ends: None for tasks that keep no event time.
    """

    reader: TailReader
    board: TailBoard
    slot: SlotGuard
    crash_points: CrashPoints
    now_s: Callable[[], float]
    wall_ms: Callable[[], int]
    due_ms: DueMs | None = None
    ends: InputEnds | None = None


class Tail:
    """The tail of one worker, over some of the tasks of a query."""

    def __init__(
        self,
        plan: WorkPlan,
        tasks: Sequence[Sequence[int]],
        read_from: Sequence[int],
        ports: TailPorts,
        run_tasks: RunTasks,
    ) -> None:
        """Take the routes of the tasks.

        Args:
            read_from: by route of the plan, the offset below which everything is handled.
        """
        assert plan.tail is not None
        self._tasks = tasks
        self._ports = ports
        self._run_tasks = run_tasks
        self._lag_max = plan.tail.lag_max
        own = [route for routes in tasks for route in routes]
        starts = [route.start_at(start) for route, start in zip(plan.routes, plan.tail.starts, strict=True)]
        self._routes = TailRoutes(lookup_table(starts), frozenset(own))
        self._place_of: dict[int, Place] = {
            route: (plan.routes[route].ssp_kb.ssp.stream, plan.routes[route].ssp_kb.ssp.partition) for route in own
        }
        self._read_to = {route: read_from[route] for route in own}
        # Where a route had to leave records that were read, because the tails ended.
        self._left_at: dict[int, int] = {}
        self._reports: dict[int, list[Report]] = {}
        self._is_over = False
        self._published_at_s = ports.now_s()
        # By route, up to which moment all messages are handled once the records that were read are.
        self._covered_ms: Mapping[int, int] = {}

    def run(self) -> None:
        """Read and handle records until the tails end.

        Raises:
            LostContainerError, SamzapyError: as `TaskRunner.run`.
        """
        try:
            self._ports.reader.assign(self._first_offsets())
            while not self._must_end():
                records = self._ports.reader.poll(self._wait_s(), BUNCH_MAX)
                self._handle(records)
                if len(records) >= BUNCH_MAX and self._ports.reader.lag() > self._lag_max:
                    self._ports.board.end_all(FELL_BEHIND)
                if self._ports.now_s() - self._published_at_s >= _PUBLISH_EVERY_S:
                    self._publish()
            self._ports.crash_points.hit("tail-at-the-common-end")
        except TailEndedError as ended:
            self._ports.board.end_all(str(ended))
        finally:
            self._publish()

    def _first_offsets(self) -> Mapping[Place, int]:
        first: dict[Place, int] = {}
        for route, place in self._place_of.items():
            first[place] = min(self._read_to[route], first.get(place, self._read_to[route]))
        return first

    def _must_end(self) -> bool:
        if self._is_over or self._ports.board.must_end():
            return True
        try:
            self._ports.slot.check_lease()
        except LostContainerError:
            # No error: the driver ends the query for the same reason, and nothing is open.
            return True
        return False

    def _wait_s(self) -> float:
        """How long to wait for records: until the next timer is due, at most."""
        if self._ports.due_ms is None:
            return POLL_S
        covered_ms = self._covered_ms
        due = [due_ms for routes in self._tasks if (due_ms := self._ports.due_ms(routes, covered_ms)) != NO_TIMER]
        return min(POLL_S, max(0, min(due) - self._ports.wall_ms()) / 1000) if due else POLL_S

    def _is_due(self, routes: Sequence[int]) -> bool:
        due_ms = NO_TIMER if self._ports.due_ms is None else self._ports.due_ms(routes, self._covered_ms)
        return due_ms != NO_TIMER and due_ms <= self._ports.wall_ms()

    def _handle(self, records: Sequence[InputRecord]) -> None:
        ends = self._ports.ends
        if ends is not None and (ends.look() or records):
            self._note_covered(ends)
        if (records or self._ports.due_ms is not None) and not self._commit(self._by_route(records)):
            return
        offsets_next = self._ports.reader.offsets_next()
        for route, place in self._place_of.items():
            self._read_to[route] = self._left_at.get(route, max(self._read_to[route], offsets_next[place]))

    def _note_covered(self, ends: InputEnds) -> None:
        offsets_next = self._ports.reader.offsets_next()
        moments = {route: ends.covered_ms(place, offsets_next[place]) for route, place in self._place_of.items()}
        self._covered_ms = {route: moment_ms for route, moment_ms in moments.items() if moment_ms is not None}

    def _commit(self, by_route: Mapping[int, Sequence[InputRecord]]) -> bool:
        """Handle records in one transaction, and fire timers that are due.

        Returns False if a task failed; then nothing is committed.
        """
        work: list[TaskRows] = []
        for routes in self._tasks:
            parts = [(route, by_route[route]) for route in routes if route in by_route]
            # First the look, which also tells the task what is covered.
            if self._is_due(routes) or parts:
                work.append((routes, (Rows.of(route, rows, _YIELD_S) for route, rows in parts)))
        reports = self._run_tasks(work, self._must_end) if work else ()
        for report in reports:
            self._reports.setdefault(report.route, []).append(report)
        if not any_failed(reports):
            self._note_left(by_route, {report.route: report.offset_next for report in reports})
            return True
        # The driver ends the query for it.
        self._is_over = True
        self._ports.board.end_all("a task failed")
        return False

    def _by_route(self, records: Sequence[InputRecord]) -> Mapping[int, list[InputRecord]]:
        by_route: dict[int, list[InputRecord]] = {}
        routes_of, read_to = self._routes.of, self._read_to
        for record in records:
            for route in routes_of(record.topic, record.partition, record.key, record.offset):
                # The consumer may keep its place from an earlier tail, below the end of the micro-batch.
                if record.offset >= read_to[route]:
                    by_route.setdefault(route, []).append(record)
        return by_route

    def _note_left(self, by_route: Mapping[int, Sequence[InputRecord]], reached: Mapping[int, int]) -> None:
        """Note the records that were left because the tails ended.

        The next micro-batch has them.
        """
        for route, records in by_route.items():
            # A task that had no turn may report no offset.
            offset = max(records[0].offset, reached.get(route, -1))
            if offset <= records[-1].offset:
                self._is_over = True
                self._left_at[route] = offset

    def _publish(self) -> None:
        reports, self._reports = [joined(of_route) for of_route in self._reports.values()], {}
        self._published_at_s = self._ports.now_s()
        self._ports.board.publish(reports, self._read_to)


def joined(reports: Sequence[Report]) -> Report:
    """One report for those of a route, in their order."""
    measured = [report.measured for report in reports if report.measured is not None]
    return replace(
        reports[-1],
        offset_next=max(report.offset_next for report in reports),
        records_in=sum(report.records_in for report in reports),
        records_out=sum(report.records_out for report in reports),
        dead_letters=sum(report.dead_letters for report in reports),
        commits=sum(report.commits for report in reports),
        measured=TaskStats.in_turn(measured) if measured else None,
    )
