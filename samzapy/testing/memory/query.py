"""The query of a container in memory.

It reads the topics, and runs the tasks in this process. It does the part of Spark: it reads each partition from its
start, filters by key bucket with the table of the real query, hands each task its rows in their order, and reports. A
crash point ends the worker, not the container. The tail behind a micro-batch is the real one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from samzapy.container.ports import BatchDone, EndsSeen, QueryEvent, QueryFailed
from samzapy.container.task.clocks import FAR_MS, ended
from samzapy.container.task.lookup_table import lookup_table
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.tail_routes import TailRoutes
from samzapy.container.task.work_plan import NO_TIMER, InputRecord, Report, Rows, WorkPlan, any_failed
from samzapy.errors import SamzapyError
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.task import TaskFactory
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.local_state import MemoryStateDirectory
from samzapy.testing.memory.process import Crash, CrashAt
from samzapy.testing.memory.slot import MemorySlot
from samzapy.testing.memory.tail import MemoryTails, Pace, read
from samzapy.testing.memory.tasks import MemoryTasks
from samzapy.testing.virtual_clock import VirtualClock


class MemoryQuery:
    """A query and its only worker (`container.ports.Query`).

    Args:
        slot: the worker's.
        pause: lets time pass.

    Attributes:
        pace: of the next micro-batches, and of the tails behind them.
    """

    def __init__(
        self,
        kafka: MemoryKafka,
        new_task: TaskFactory,
        slot: MemorySlot,
        state_of: Callable[[str], MemoryStateDirectory],
        clock: VirtualClock,
        crash_points: CrashAt,
        pause: Callable[[int], None],
    ) -> None:
        self.pace = Pace()
        self._kafka = kafka
        self._tasks = MemoryTasks(new_task, state_of, clock, crash_points)
        self._tails = MemoryTails(kafka, self._tasks, slot)
        self._slot = slot
        self._clock = clock
        self._pause = pause
        self._plan: WorkPlan | None = None
        self._read_to: dict[SystemStreamPartition, int] = {}
        self._must_tick = False
        self._ends: EndsSeen | None = None
        # Whether the driver has looked at the ends since the last micro-batch.
        self._ends_are_new = False
        self._events: deque[QueryEvent] = deque()

    def start(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> None:
        self.stop()
        self._plan, self._ends = plan, None
        self._events.clear()
        self._tails.query_starts(plan)
        table = lookup_table([route.start_at(starts[route.ssp_kb]) for route in plan.routes])
        self._routes = TailRoutes(table, range(len(plan.routes)))
        self._read_to = {}
        for ssp_kb, offset in starts.items():
            self._read_to[ssp_kb.ssp] = min(offset, self._read_to.get(ssp_kb.ssp, offset))

    def start_warm_up(self, plan: WorkPlan, ssp: SystemStreamPartition, offset: int) -> None:
        """There is nothing to warm up."""

    def is_warming_up(self) -> bool:
        return False

    def next_event(self, timeout_ms: int) -> QueryEvent | None:
        if not self._events and self._plan is not None:
            self._events.extend(self._batch(self._plan) or (self._tick(self._plan) if self._must_tick else ()))
            if not self._events and timeout_ms:
                self._pause(timeout_ms)
        return self._events.popleft() if self._events else None

    def batch_runs_ms(self) -> int:
        return 0

    def note_ends(self, seen: EndsSeen) -> None:
        self._ends, self._ends_are_new = seen, True
        self._tails.note_ends(seen)

    def must_restart(self) -> bool:
        return False

    def tick(self, tasks: Collection[TaskName]) -> bool:
        self._must_tick = self._plan is not None
        return self._must_tick

    def drain(self, timeout_ms: int) -> bool:
        self.stop()
        return True

    def stop(self) -> None:
        """End the query, and the worker with it."""
        self._tasks.close()
        self.kill_worker()

    def kill_worker(self) -> None:
        """End the worker where it is."""
        self._plan, self._must_tick = None, False
        self._tasks.drop()

    def is_level(self, places: Iterable[tuple[str, int]]) -> bool:
        """Whether a query runs that has nothing to do.

        It has read these partitions to their ends, and fired what is due.
        """
        read_to = {(ssp.stream, ssp.partition): offset for ssp, offset in self._read_to.items()}
        if self._plan is None or self._events:
            return False
        if any(read_to.get(place, 0) < self._kafka.offset_stable(*place) for place in places):
            return False
        due_ms = _first(runner.due_ms() for runner in self._timed_runners())
        has_fired = due_ms == NO_TIMER or due_ms > self._clock.wall_ms()
        return has_fired and (self.due_when_quiet_ms() == NO_TIMER or self._is_level_in_event_time())

    def due_ms(self) -> int:
        """When the next timer of a task is due, or `NO_TIMER`, in a job that is level."""
        quiet_ms = self.due_when_quiet_ms()
        if quiet_ms not in (NO_TIMER, FAR_MS):
            quiet_ms += self._clock.wall_ms() - self._clock.boot_ms()
        due = [*(runner.due_ms() for runner in self._timed_runners()), quiet_ms]
        # What should be due by now waits for something else than time.
        return _first(due_ms for due_ms in due if due_ms > self._clock.wall_ms())

    def due_when_quiet_ms(self) -> int:
        """The same for timers in event time, on the host's clock since its boot."""
        return _first(runner.due_when_quiet_ms() for runner in self._timed_runners())

    def _is_level_in_event_time(self) -> bool:
        """Whether nothing is due by the ends that the driver sees now.

        It must have looked at them since the last micro-batch.
        """
        if self._ends is None or not self._ends_are_new or self._ends.at_ms < self._clock.boot_ms():
            return False
        covered_ms = self._covered_ms()
        for runner in self._timed_runners():
            due_ms = runner.due_when_quiet_ms()
            own = [covered_ms.get(route) for route in runner.routes]
            if due_ms != NO_TIMER and all(moment_ms is not None and due_ms <= moment_ms for moment_ms in own):
                return False
        return True

    def _covered_ms(self) -> Mapping[int, int]:
        """By route, up to which moment everything was handled, as the driver knows it."""
        if self._plan is None or self._ends is None:
            return {}
        moments = self._ends.covered_ms
        own = {index: route.ssp_kb for index, route in enumerate(self._plan.routes) if route.ssp_kb in moments}
        return {index: moments[ssp_kb] for index, ssp_kb in own.items()}

    def _timed_runners(self) -> Sequence[TaskRunner]:
        return () if self._plan is None else self._tasks.timed(self._plan)

    # --- the work ---

    def _batch(self, plan: WorkPlan) -> Sequence[QueryEvent]:
        by_route: dict[int, list[InputRecord]] = {}
        ends = {}
        for ssp, offset in sorted(self._read_to.items()):
            records, end = read(self._kafka, (ssp.stream, ssp.partition), offset, self.pace.batch_max)
            if end == offset:
                continue
            ends[ssp] = end
            for record in records:
                for route in self._routes.of(record.topic, record.partition, record.key, record.offset):
                    by_route.setdefault(route, []).append(record)
        if not ends:
            return ()
        self._read_to |= ends
        works = [(routes, [Rows.of(route, by_route[route], None) for route in routes if route in by_route])
                 for routes in plan.tasks]  # fmt: skip
        return self._run(plan, [work for work in works if work[1]], ends, is_tick=False)

    def _tick(self, plan: WorkPlan) -> Sequence[QueryEvent]:
        self._must_tick = False
        return self._run(plan, [(routes, []) for routes in plan.tasks], {}, is_tick=True)

    def _run(
        self,
        plan: WorkPlan,
        works: Sequence[tuple[Sequence[int], Sequence[Rows]]],
        ends: Mapping[SystemStreamPartition, int],
        *,
        is_tick: bool,
    ) -> Sequence[QueryEvent]:
        """The events of a micro-batch or a tick, and of the tail behind it."""
        events: list[QueryEvent] = []
        covered_ms = self._covered_ms() if is_tick else ended(self._covered_ms())
        self._ends_are_new = False
        try:
            reports = self._handle(plan, works, covered_ms)
            events.append(BatchDone(reports=reports, offsets_end=ends, is_tick=is_tick))
            if plan.tail is not None and self.pace.tail_looks and not any_failed(reports):
                events.append(self._tails.follow(plan, self._read_to, self.pace))
        except Crash as crash:
            self.kill_worker()
            events.append(QueryFailed(reason=f"Python worker exited unexpectedly (crashed): {crash}"))
        except SamzapyError as error:
            self.kill_worker()
            events.append(QueryFailed(reason=f"samzapy.errors.{type(error).__name__}: {error}", kind=type(error)))
        return events

    def _handle(
        self,
        plan: WorkPlan,
        works: Sequence[tuple[Sequence[int], Sequence[Rows]]],
        covered_ms: Mapping[int, int],
    ) -> Sequence[Report]:
        reports: list[Report] = []
        for routes, rows in works:
            runner = self._tasks.runner(plan, routes)
            runner.covered(covered_ms)
            reports.extend(runner.run(rows, self._slot))
            if any_failed(reports):
                break
        return reports


def _first(moments: Iterable[int]) -> int:
    return min((due_ms for due_ms in moments if due_ms != NO_TIMER), default=NO_TIMER)
