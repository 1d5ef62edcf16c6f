"""The query of a container in memory.

It reads the topics, and runs the tasks in this process. It does the part of Spark: it reads each partition from its
start, filters by key bucket with the table of the real query, hands each task its rows in their order, and reports. A
crash point ends the worker, not the container.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from samzapy.adapters.host.threads import HostThreads
from samzapy.container.ports import BatchDone, EndsSeen, QueryEvent, QueryFailed
from samzapy.container.task.clocks import FAR_MS, ended
from samzapy.container.task.lookup_table import lookup_table
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.tail_routes import TailRoutes
from samzapy.container.task.transaction import TransactionLimits
from samzapy.container.task.work_plan import NO_TIMER, Report, Rows, WorkPlan, any_failed
from samzapy.errors import SamzapyError
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.stream.log import LogRecord
from samzapy.task import TaskFactory
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.local_state import MemoryEnvironment, MemoryStateDirectory
from samzapy.testing.memory.process import Crash, CrashAt
from samzapy.testing.memory.slot import MemorySlot
from samzapy.testing.virtual_clock import VirtualClock

BATCH_MAX = 100
"""The most records of a partition in a micro-batch."""


class _Tasks:
    """The tasks of the worker, each with its local state."""

    def __init__(
        self,
        new_task: TaskFactory,
        state_of: Callable[[str], MemoryStateDirectory],
        clock: VirtualClock,
        crash_points: CrashAt,
    ) -> None:
        self._new_task = new_task
        self._state_of = state_of
        self._clock = clock
        self._crash_points = crash_points
        self._runners: dict[int, TaskRunner] = {}
        self._environments: list[MemoryEnvironment] = []

    def runner(self, plan: WorkPlan, routes: Sequence[int]) -> TaskRunner:
        """The runner of the task with these routes; it is made at its first use."""
        first = routes[0]
        if first not in self._runners:
            config = plan.config
            environment = self._state_of(plan.routes[first].task_name).existing()
            assert environment is not None, "the start has made it"
            self._environments.append(environment)
            self._runners[first] = TaskRunner(
                plan=plan,
                routes=routes,
                new_task=self._new_task,
                environment=environment,
                limits=TransactionLimits(
                    duration_max_s=config.transaction_max_ms / 1000,
                    bytes_max=config.transaction_max_bytes,
                    now_s=lambda: self._clock.monotonic_ms() / 1000,
                    wall_ms=self._clock.wall_ms,
                    boot_ms=self._clock.boot_ms,
                ),
                crash_points=self._crash_points,
                is_interrupted=lambda: False,
                threads=HostThreads(),
            )
        return self._runners[first]

    def timed(self, plan: WorkPlan) -> Sequence[TaskRunner]:
        """The runners of all tasks, if the job acts by time."""
        if not self._new_task.declared.acts_by_time:
            return ()
        return [self.runner(plan, routes) for routes in plan.tasks]

    def close(self) -> None:
        """Close the instances of user code."""
        for runner in self._runners.values():
            runner.close()

    def drop(self) -> None:
        """Drop the tasks where they are."""
        self._runners = {}
        for environment in self._environments:
            environment.close()
        self._environments = []


class MemoryQuery:
    """A query and its only worker (`container.ports.Query`).

    Args:
        slot: the worker's.
        pause: lets time pass.

    Attributes:
        batch_max: the most records of a partition in the next micro-batches.
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
        self.batch_max = BATCH_MAX
        self._kafka = kafka
        self._tasks = _Tasks(new_task, state_of, clock, crash_points)
        self._slot = slot
        self._clock = clock
        self._pause = pause
        self._plan: WorkPlan | None = None
        self._read_to: dict[SystemStreamPartition, int] = {}
        self._must_tick = False
        self._ends: EndsSeen | None = None
        # Whether the driver has looked at the ends since the last micro-batch.
        self._ends_are_new = False

    def start(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> None:
        self.stop()
        self._plan, self._ends = plan, None
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
        if self._plan is None:
            return None
        event = self._batch(self._plan) or (self._tick(self._plan) if self._must_tick else None)
        if event is None and timeout_ms:
            self._pause(timeout_ms)
        return event

    def batch_runs_ms(self) -> int:
        return 0

    def note_ends(self, seen: EndsSeen) -> None:
        self._ends, self._ends_are_new = seen, True

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
        if self._plan is None or any(read_to.get(place, 0) < self._kafka.offset_stable(*place) for place in places):
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

    def _batch(self, plan: WorkPlan) -> QueryEvent | None:
        by_route: dict[int, list[LogRecord]] = {}
        ends = {}
        for ssp, offset in sorted(self._read_to.items()):
            stable = self._kafka.offset_stable(ssp.stream, ssp.partition)
            committed = self._kafka.committed(ssp.stream, ssp.partition, offset, stable)
            records = committed[: self.batch_max]
            if stable <= offset:
                continue
            # Also past the markers of transactions.
            ends[ssp] = stable if len(records) == len(committed) else records[-1].offset + 1
            for record in records:
                for route in self._routes.of(ssp.stream, ssp.partition, record.key, record.offset):
                    by_route.setdefault(route, []).append(record)
        if not ends:
            return None
        self._read_to |= ends
        works = [(routes, [_rows(route, by_route[route]) for route in routes if route in by_route])
                 for routes in plan.tasks]  # fmt: skip
        return self._run(plan, [work for work in works if work[1]], ends, is_tick=False)

    def _tick(self, plan: WorkPlan) -> QueryEvent:
        self._must_tick = False
        return self._run(plan, [(routes, []) for routes in plan.tasks], {}, is_tick=True)

    def _run(
        self,
        plan: WorkPlan,
        works: Sequence[tuple[Sequence[int], Sequence[Rows]]],
        ends: Mapping[SystemStreamPartition, int],
        *,
        is_tick: bool,
    ) -> QueryEvent:
        reports: list[Report] = []
        covered_ms = self._covered_ms() if is_tick else ended(self._covered_ms())
        self._ends_are_new = False
        try:
            for routes, rows in works:
                runner = self._tasks.runner(plan, routes)
                runner.covered(covered_ms)
                reports.extend(runner.run(rows, self._slot))
                if any_failed(reports):
                    break
        except Crash as crash:
            self.kill_worker()
            return QueryFailed(reason=f"Python worker exited unexpectedly (crashed): {crash}")
        except SamzapyError as error:
            self.kill_worker()
            return QueryFailed(reason=f"samzapy.errors.{type(error).__name__}: {error}", kind=type(error))
        return BatchDone(reports=reports, offsets_end=ends, is_tick=is_tick)


def _first(moments: Iterable[int]) -> int:
    return min((due_ms for due_ms in moments if due_ms != NO_TIMER), default=NO_TIMER)


def _rows(route: int, records: Sequence[LogRecord]) -> Rows:
    has_headers = any(record.headers for record in records)
    return Rows(
        route,
        [record.offset for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.timestamp_ms for record in records],
        [record.headers for record in records] if has_headers else None,
    )
