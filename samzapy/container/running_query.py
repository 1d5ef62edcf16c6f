"""The query that runs: its routes, its batches, and the bound of a batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from samzapy.config import JobConfig
from samzapy.container.batch_limit import BatchLimiter
from samzapy.container.idle_progress import IdleProgress
from samzapy.container.input_order import BootstrapInputs
from samzapy.container.ports import BatchDone, Clock, EndsSeen, Query, TailProgress, TopicBounds
from samzapy.container.query_failures import QueryFailures
from samzapy.container.stats import ContainerFigures
from samzapy.container.task.clocks import FAR_MS
from samzapy.container.task.coverage import Coverage
from samzapy.container.task.work_plan import Report, ReportKind, Route, WorkPlan
from samzapy.container.ticks import Ticks
from samzapy.container.work_planner import WorkPlanner
from samzapy.errors import SamzapyError, TaskError
from samzapy.model import clock_entry
from samzapy.model.grant import Grant
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.task_stats import TaskStats
from samzapy.model.text import some

_LOG = logging.getLogger(__name__)
_BEFORE_THE_END_MS = FAR_MS - 1
"""Later than any moment, and before the end of an input."""


class RunningQuery:
    """Processes the finished batches of a query, until it is drained or fails.

    Attributes:
        routes: the routes of the current or last query.
        restart: the number of the newest order to restart that the query was started after.
        bootstrap: the tasks that read only their bootstrap inputs for now.
        begun_ms: the time at which the query started; monotonic.
        keeps_time: whether the job keeps event time.
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
        self._failures = failures
        self._idle = idle
        self._planner = planner
        self.routes: tuple[Route, ...] = ()
        self.restart = 0
        self.bootstrap = BootstrapInputs(config)
        self.begun_ms = 0
        self._limiter = BatchLimiter(config)
        self._ticks = Ticks(config)
        self.keeps_time = any(store.kind == clock_entry.KIND for store in config.stores)
        self._coverage: Coverage[SystemStreamPartition] = Coverage()
        # Up to which moment the inputs of each task are covered.
        self._covered_ms: Mapping[TaskName, int] = {}
        # The tasks of a bounded run that have acted on the end of their inputs.
        self._ended: set[TaskName] = set()
        # The number of a query that has not ended its first batch yet.
        self._first_batch_of: int | None = None
        # When the last batch ended or the query started, and when the inputs were last read to their ends.
        self._batch_ended_at_ms = self._caught_up_at_ms = clock.monotonic_ms()

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
        return self._failures.limit([route for route in routes if route.ssp_kb in at_once], at_once)

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
        self._covered_ms, self._ended = {}, set()
        self._figures.begin(starts, restored)
        self._figures.bootstrap_ends = self.bootstrap.ends

    def started(self, number: int, restart: int) -> None:
        """Note that this query was started, after this order to restart."""
        self._first_batch_of, self.restart = number, restart
        self._batch_ended_at_ms = self.begun_ms = self._clock.monotonic_ms()

    def work_plan(self, routes: Sequence[Route], starts: Mapping[SspKeyBucket, int] | None = None) -> WorkPlan:
        """The plan of a query that starts now; without `starts` its workers have no tails."""
        return self._planner.work_plan(routes, starts, self._limiter.bound, self._failures.deaths)

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
            self._batch_ended_at_ms = self._clock.monotonic_ms() - event.stalled_ms
            ends = event.read_to
        self._ticks.reported(event.reports, self.routes)
        self._ended |= {self.routes[report.route].task_name for report in event.reports if report.has_ended}
        if any(report.commits for report in event.reports):
            self._failures.reset()
        failed = [report.error for report in event.reports if report.kind is ReportKind.TASK_FAILED]
        if failed:
            raise TaskError("\n".join(failed))
        self._advance(ends, event.reports)
        self.bootstrap.read_to(self._figures.positions)
        self._figures.bootstrap_ends = self.bootstrap.ends

    def _log_first_batch(self, number: int, done: BatchDone) -> None:
        _LOG.info(
            "the first micro-batch of query %d ended after %.1f s: %d records in, %d out",
            number,
            (self._clock.monotonic_ms() - self._batch_ended_at_ms) / 1000,
            sum(report.records_in for report in done.reports),
            sum(report.records_out for report in done.reports),
        )

    def _batch_done(self, done: BatchDone) -> None:
        offsets_read = self._figures.add(done, self.routes)
        if done.is_tick:
            self._batch_ended_at_ms = self._clock.monotonic_ms()
            return
        if self._first_batch_of is not None:
            self._log_first_batch(self._first_batch_of, done)
            self._first_batch_of = None
        self._batch_ended_at_ms = self._clock.monotonic_ms()
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
        """Move the position of each route to its end."""
        committed = {report.route: report.offset_next for report in reports if report.commits}
        for index, end in ends.items():
            ssp_kb = self.routes[index].ssp_kb
            if end > self._figures.positions[ssp_kb]:
                self._figures.positions[ssp_kb] = end
                self._idle.advance(ssp_kb, end, is_committed=committed.get(index) == end)

    # --- checks while it runs ---

    def tick_if_due(self) -> None:
        """Have timers fire that no micro-batch and no tail fires."""
        now_ms = self._clock.monotonic_ms()
        if self._ticks.is_due(self._clock.wall_ms(), now_ms, self._covered_ms) and self._query.tick():
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
        self._coverage.note_ends(at_ms, ends)
        covered_ms = {route.ssp_kb: self._covered(route) for route in self.routes}
        of_tasks: dict[TaskName, int] = {}
        for route in self.routes:
            least_ms = of_tasks.get(route.task_name, FAR_MS)
            of_tasks[route.task_name] = min(least_ms, covered_ms[route.ssp_kb])
        self._covered_ms = of_tasks
        known = {ssp_kb: moment_ms for ssp_kb, moment_ms in covered_ms.items() if moment_ms >= 0}
        self._query.note_ends(EndsSeen(at_ms=at_ms, ends=ends, covered_ms=known))

    def _covered(self, route: Route) -> int:
        """Up to which moment a route is covered.

        `FAR_MS` at the end of its input, and -1 if it is not known. A broadcast input has no clock, and holds a task
        only until its end.
        """
        position = self._figures.positions.get(route.ssp_kb)
        if position is None:
            return -1
        if route.offset_end is not None and position >= route.offset_end:
            return FAR_MS
        if route.ssp_kb.reader:
            return _BEFORE_THE_END_MS
        covered_ms = self._coverage.covered_ms(route.ssp_kb.ssp, position)
        return -1 if covered_ms is None else covered_ms

    def inputs_end(self, bounds: Mapping[SystemStreamPartition, TopicBounds]) -> None:
        """Set the current ends of the inputs, for the lag and the check for a hang."""
        self._figures.ends = {ssp: self._planner.readable(ssp, offsets) for ssp, offsets in bounds.items()}

    def why_again(self) -> str:
        """The reason to restart the query itself gives; empty to keep it running."""
        if self._query.must_restart():
            return "its tails have read far ahead of Spark's source"
        return self._limiter.change(self._query.batch_runs_ms())

    def check_hang(self) -> None:
        """Raise an error if a micro-batch runs for longer than task.hang.timeout.ms."""
        now_ms = self._clock.monotonic_ms()
        is_behind = any(
            ssp_kb.ssp in self._figures.ends and self._figures.ends[ssp_kb.ssp].offset_end > offset
            for ssp_kb, offset in self._figures.positions.items()
        )
        if not is_behind:
            # Without records there are no micro-batches. So the first batch after a quiet hour has the full time.
            self._caught_up_at_ms = now_ms
        waited_ms = now_ms - max(self._batch_ended_at_ms, self._caught_up_at_ms)
        if waited_ms > self._config.hang_timeout_ms:
            raise SamzapyError(
                f"wanted a micro-batch to end within task.hang.timeout.ms ({self._config.hang_timeout_ms}), "
                f"found one running for {waited_ms} ms; a message may hang in user code"
            )

    def has_finished(self, grants: Sequence[Grant]) -> bool:
        """True if the query covers exactly these grants and has read each to its end."""
        must_end = self.keeps_time and self._config.is_bounded_job
        return (
            bool(self.routes)
            and not self.bootstrap.waiting
            and (not must_end or {route.task_name for route in self.routes} == self._ended)
            and self._failures.deaths.trial is None
            # A new grant without a query has not been processed yet.
            and {(route.task_name, route.epoch) for route in self.routes}
            == {(grant.task_name, grant.epoch) for grant in grants}
            and all(
                route.offset_end is not None and self._figures.positions[route.ssp_kb] >= route.offset_end
                for route in self.routes
            )
        )
