"""The query that runs: its routes, its batches, and the bound of a batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from samzapy.config import JobConfig
from samzapy.container.batch_limit import BatchLimiter
from samzapy.container.batch_times import BatchTimes
from samzapy.container.idle_progress import IdleProgress
from samzapy.container.input_order import BootstrapInputs
from samzapy.container.ports import BatchDone, Clock, EndsSeen, Query, TailProgress, TopicBounds
from samzapy.container.query_event_time import QueryEventTime
from samzapy.container.query_failures import QueryFailures
from samzapy.container.stats import ContainerFigures
from samzapy.container.task.so_far import SoFar
from samzapy.container.task.work_plan import Report, ReportKind, Route, WorkPlan
from samzapy.container.ticks import Ticks
from samzapy.container.work_planner import WorkPlanner
from samzapy.errors import SamzapyError, TaskError
from samzapy.model.grant import Grant
from samzapy.model.job import TaskName
from samzapy.model.slow_message import SlowMessage
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.task_stats import TaskStats
from samzapy.model.text import some

_LOG = logging.getLogger(__name__)


class RunningQuery:
    """Processes the finished batches of a query, until it is drained or fails.

    Attributes:
        routes: the routes of the current or last query.
        restart: the number of the newest order to restart that the query was started after.
        bootstrap: the tasks that read only their bootstrap inputs for now.
        times: when the query started, and when its batches ended.
        event_time: how far its inputs are covered.
        failures: the failures of queries since the last commit.
    """

    def __init__(
        self,
        config: JobConfig,
        query: Query,
        clock: Clock,
        figures: ContainerFigures,
        failures: QueryFailures,
        idle: IdleProgress,
        planner: WorkPlanner,
    ) -> None:
        self._config = config
        self._query = query
        self._clock = clock
        self._figures = figures
        self.failures = failures
        self._idle = idle
        self._planner = planner
        self.routes: tuple[Route, ...] = ()
        self.restart = 0
        self.bootstrap = BootstrapInputs(config)
        self.times = BatchTimes(clock)
        self._limiter = BatchLimiter(config)
        self._ticks = Ticks(config)
        self.event_time = QueryEventTime(config)

    # --- start and drain ---

    def choose_routes(
        self,
        grants: Sequence[Grant],
        routes: Sequence[Route],
        starts: Mapping[SspKeyBucket, int],
        bounds: Mapping[SystemStreamPartition, TopicBounds],
    ) -> tuple[Route, ...]:
        """The routes that the next query reads.

        Bootstrap inputs come first, and a suspect message is processed alone.
        """

        def end_of(ssp_kb: SspKeyBucket) -> int:
            return self._planner.readable(ssp_kb.ssp, bounds[ssp_kb.ssp]).offset_end

        at_once = self.bootstrap.begin(grants, starts, end_of)
        if self.bootstrap.waiting:
            ends = some([f"{ssp_kb} up to offset {end}" for ssp_kb, end in sorted(self.bootstrap.ends.items())])
            _LOG.info("bootstrap inputs are read before the other inputs: %s", ends)
        return self.failures.limit([route for route in routes if route.ssp_kb in at_once], at_once)

    def prepare(
        self,
        routes: Sequence[Route],
        starts: Mapping[SspKeyBucket, int],
        restored: Mapping[TaskName, TaskStats],
    ) -> None:
        """Set the routes of the next query, and all its positions."""
        self.routes = tuple(routes)
        self._limiter.query_starts()
        self._ticks.query_starts(routes)
        self.event_time.query_starts()
        self._figures.begin(starts, restored)
        self._figures.covered_ms, self._figures.event_time_idle_ms = {}, self._config.event_time_idle_ms
        self._figures.bootstrap_ends = self.bootstrap.ends

    def started(self, number: int, restart: int) -> None:
        """Note that this query was started, after this order to restart."""
        self.restart = restart
        self.times.query_started(number)

    def work_plan(self, routes: Sequence[Route], starts: Mapping[SspKeyBucket, int] | None = None) -> WorkPlan:
        """The plan of a query that starts now; without `starts` its workers have no tails."""
        return self._planner.work_plan(routes, starts, self._limiter.bound, self.failures.deaths)

    def drain(self) -> bool:
        """End the query, and count its last micro-batches.

        Returns:
            False if the last micro-batch did not end in time.
        """
        finished = self._query.drain(self._config.drain_ms)
        # While their grants are still held: later, these events would be counted for the next query.
        while isinstance(event := self._query.next_event(0), BatchDone | TailProgress):
            self.progressed(event)
        self._figures.tailing = frozenset()
        return finished

    def stop(self) -> None:
        """End the query after it failed."""
        self._query.stop()
        self._figures.tailing = frozenset()

    # --- batches ---

    def progressed(self, event: BatchDone | TailProgress) -> None:
        """Count a micro-batch that ended, or the work of its tails.

        Raises:
            TaskError: a task failed under policy `fail`.
        """
        if isinstance(event, BatchDone):
            self._batch_done(event)
            ends = self._ends_of(event)
        else:
            self._figures.add_tails(event, self.routes)
            self.times.worked(event.stalled_ms)
            ends = event.read_to
        self._ticks.reported(event.reports, self.routes)
        self.event_time.reported(event.reports, self.routes)
        committed = {
            self.routes[report.route].ssp_kb: report.offset_next for report in event.reports if report.commits
        }
        if committed:
            self.failures.committed(committed)
        failed = [report.error for report in event.reports if report.kind is ReportKind.TASK_FAILED]
        if failed:
            raise TaskError("\n".join(failed))
        self._advance(ends, event.reports)
        self.bootstrap.read_to(self._figures.positions)
        self._figures.bootstrap_ends = self.bootstrap.ends

    def _batch_done(self, done: BatchDone) -> None:
        offsets_read = self._figures.add(done, self.routes)
        if done.is_tick:
            self.times.worked()
            return
        self.times.batch_ended(done.reports)
        self._limiter.batch_ended(done.duration_ns // 1_000_000, offsets_read)

    def _ends_of(self, done: BatchDone) -> Mapping[int, int]:
        """By route, the offset up to which a micro-batch read it."""
        ends: dict[int, int] = {}
        for index, route in enumerate(self.routes):
            end = done.offsets_end.get(route.ssp_kb.ssp)
            if end is not None:
                ends[index] = end if route.offset_end is None else min(end, route.offset_end)
        return ends

    def _advance(self, ends: Mapping[int, int], reports: Sequence[Report]) -> None:
        """Move the position of each route to its end.

        A bucket that was released meanwhile has no position. The last events of a query may come after that.
        """
        committed = {report.route: report.offset_next for report in reports if report.commits}
        for index, end in ends.items():
            ssp_kb = self.routes[index].ssp_kb
            position = self._figures.positions.get(ssp_kb)
            if position is not None and end > position:
                self._figures.positions[ssp_kb] = end
                self._idle.advance(ssp_kb, end, is_committed=committed.get(index) == end)

    # --- checks while it runs ---

    def tick_if_due(self) -> None:
        """Have timers fire that no micro-batch and no tail fires."""
        now_ms = self._clock.monotonic_ms()
        tasks = self._ticks.due_tasks(self._clock.wall_ms(), now_ms, self.event_time.covered_ms)
        if tasks and self._query.tick(tasks):
            self._ticks.ticked(now_ms)

    def wants_ends(self, seen_at_ms: int, now_ms: int) -> bool:
        """Whether the ends of the inputs may show that a timer is due.

        Args:
            seen_at_ms: when they were seen last; the host's clock since its boot.
        """
        return self._ticks.is_due_when_quiet(seen_at_ms, now_ms)

    def high_watermarks(self, at_ms: int, ends: Mapping[SystemStreamPartition, int]) -> None:
        """Note the high watermarks of the inputs, for a job that keeps event time.

        Args:
            at_ms: before they were asked for; the host's clock since its boot.
        """
        known = self.event_time.note_ends(at_ms, ends, self.routes, self._figures.positions)
        self._figures.covered_ms = {str(ssp_kb): moment_ms for ssp_kb, moment_ms in known.items()}
        self._query.note_ends(EndsSeen(at_ms=at_ms, ends=ends, covered_ms=known))

    def inputs_end(self, bounds: Mapping[SystemStreamPartition, TopicBounds]) -> None:
        """Set the current ends of the inputs, for the lag and the check for a hang."""
        self._figures.ends = {ssp: self._planner.readable(ssp, offsets) for ssp, offsets in bounds.items()}

    def why_again(self) -> str:
        """The reason to restart the query itself gives; empty to keep it running."""
        if self._query.must_restart():
            return "its tails have read far ahead of Spark's source"
        return self._limiter.change(self._query.batch_runs_ms())

    def slow_messages(self, noted: Sequence[tuple[int, int, int]], now_boot_ms: int) -> tuple[SlowMessage, ...]:
        """The messages that workers have noted as slow (`ports.Slots.slow_messages`)."""
        return tuple(
            SlowMessage(
                task_name=self.routes[route].task_name,
                ssp=self.routes[route].ssp_kb.ssp,
                offset=offset,
                for_ms=max(0, now_boot_ms - since_boot_ms),
            )
            for route, offset, since_boot_ms in noted
            # Before the first query there are no routes.
            if route < len(self.routes)
        )

    def note_so_far(self, noted: Sequence[SoFar]) -> None:
        """Note the costs that workers have not reported yet."""
        self._figures.unreported.note(noted, self.routes)

    def check_hang(self) -> None:
        """Raise an error if a micro-batch runs for longer than task.hang.timeout.ms."""
        is_behind = any(
            ssp_kb.ssp in self._figures.ends and self._figures.ends[ssp_kb.ssp].offset_end > offset
            for ssp_kb, offset in self._figures.positions.items()
        )
        if not is_behind:
            self.times.caught_up()
        waited_ms = self.times.waited_ms
        if waited_ms > self._config.hang_timeout_ms:
            raise SamzapyError(
                f"wanted a micro-batch to end within task.hang.timeout.ms ({self._config.hang_timeout_ms}), "
                f"found one running for {waited_ms} ms; a message may hang in user code"
            )

    def has_finished(self, grants: Sequence[Grant]) -> bool:
        """True if the query covers exactly these grants and has read each to its end."""
        return (
            bool(self.routes)
            and not self.bootstrap.waiting
            and not self.event_time.must_end(self.routes)
            and self.failures.deaths.trial is None
            # A new grant without a query has not been processed yet.
            and {(route.task_name, route.epoch) for route in self.routes}
            == {(grant.task_name, grant.epoch) for grant in grants}
            and all(route.is_at_end(self._figures.positions[route.ssp_kb]) for route in self.routes)
        )
