"""The timers and the event time of one task, where it has them.

Most tasks have neither, and then nothing happens here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from samzapy.container.task.entry_time import EntryTime, HostExpiry
from samzapy.container.task.event_time import EventTime, TaskTime
from samzapy.container.task.firing import Timers
from samzapy.container.task.handling import Handler, without_time
from samzapy.container.task.message_scope import MessageScope
from samzapy.container.task.ports import CrashPoints, LocalTransaction
from samzapy.container.task.ports import TaskEnvironment as Environment
from samzapy.container.task.transaction import Transaction
from samzapy.container.task.user_calls import UserCalls
from samzapy.container.task.window_ticks import WindowTicks
from samzapy.container.task.work_plan import NO_TIMER, Report, WorkPlan
from samzapy.declared_task import Declared
from samzapy.model.time_figures import TimeFigures
from samzapy.task import LoadedTask, ProcessFunction


class TimeKeeping:
    """Timers and event time of one task.

    Attributes:
        timers: None for a task without timers, window and `end_of_stream`.
        event_time: None for a task that keeps no event time.
    """

    def __init__(
        self,
        plan: WorkPlan,
        routes: Sequence[int],
        declared: Declared,
        calls: UserCalls,
        scope: MessageScope,
        crash_points: CrashPoints,
        environment: Environment,
    ) -> None:
        """Know no moment yet."""
        self._environment = environment
        self._limits, state = calls.limits, calls.state
        self.event_time: EventTime | None = None
        if declared.keeps_time:
            own_routes = {index: plan.routes[index] for index in routes}
            self.event_time = EventTime(plan, own_routes, declared.streams, state, calls.limits)
            state.keys.watermark_ms = self.event_time.watermark_ms
        self._expiry: EntryTime | HostExpiry = HostExpiry(calls.limits.wall_ms)
        if self.event_time is not None and declared.goes_by_event_time:
            self._expiry = self.event_time.entries
        self.timers: Timers | None = None
        if declared.acts_by_time:
            task_name, config = plan.routes[routes[0]].task_name, plan.config
            state.keys.decode = declared.timer_key(config).decode
            self.timers = Timers(
                calls,
                scope,
                crash_points,
                has_timers=declared.has_timers,
                window=WindowTicks(calls, task_name, config.window_ms) if declared.has_window else None,
                event_time=self.event_time,
            )

    # --- user code ---

    def handler(self, route: int, process: ProcessFunction) -> Handler:
        """`process`, which moves the clock of its input, if there is one."""
        event_time = self.event_time
        return without_time(process) if event_time is None else event_time.handler(route, process)

    def of_task(self) -> TaskTime:
        """The clocks that the task's timers and entries go by."""
        return TaskTime(self._limits.wall_ms, self.event_time, self._expiry)

    def call(self, task: LoadedTask) -> None:
        """Call these methods from now on."""
        if self.timers is not None:
            self.timers.calls.handlers = task.timers
            self.timers.end_of_stream = task.end_of_stream
            if self.timers.window is not None:
                self.timers.window.handler = task.window

    # --- moments ---

    def begin_batch(self) -> None:
        """Forget what another worker may have changed since this one last served the task."""
        if self.timers is not None:
            self.timers.is_known = False
        if self.event_time is not None:
            self.event_time.is_known = False
        self.covered({})

    def covered(self, covered_ms: Mapping[int, int]) -> None:
        """As `TaskRunner.covered`."""
        if self.event_time is not None:
            self.event_time.covered_ms = covered_ms

    def look_behind_rows(self) -> None:
        """Let quiet inputs' clocks run, now that all rows are handled."""
        if self.event_time is None:
            return
        if self.timers is not None and self.event_time.covered_ms:
            self.timers.look(self._environment)
        self.event_time.look_behind_rows()

    @property
    def is_due(self) -> bool:
        """Whether a timer is due now."""
        return self.timers is not None and self.timers.is_due(self._environment)

    @property
    def is_event_due(self) -> bool:
        """Whether a timer in event time is due."""
        return self.timers is not None and self.timers.is_event_due

    @property
    def off_time_counts(self) -> tuple[int, int]:
        """The messages of the open transaction that were late, and too far ahead."""
        if self.event_time is None:
            return 0, 0
        lateness = self.event_time.clocks.lateness
        return lateness.count, lateness.ahead_count

    def due_ms(self) -> int:
        """As `TaskRunner.due_ms`."""
        if self.timers is not None:
            self.timers.look(self._environment)
        return 0 if self._is_due_when_covered() else self._due_ms()

    def due_when_quiet_ms(self) -> int:
        """As `TaskRunner.due_when_quiet_ms`."""
        if self.timers is not None:
            self.timers.look(self._environment)
        return self._due_when_quiet_ms()

    def _due_when_quiet_ms(self) -> int:
        return NO_TIMER if self.event_time is None else self.event_time.due_when_quiet_ms()

    def _is_due_when_covered(self) -> bool:
        event_time = self.event_time
        return event_time is not None and (
            event_time.clocks.is_due or event_time.clocks.would_be_due(event_time.covered_ms)
        )

    def _due_ms(self) -> int:
        """As `due_ms`, without a look at the local store.

        0, due at once, where only a look can tell.
        """
        if self.timers is None:
            return NO_TIMER
        # A tail or a tick may end before all timers in event time that are due have fired.
        if not self.timers.is_known or self.timers.is_event_due:
            return 0
        return NO_TIMER if self.timers.next_ms is None else self.timers.next_ms

    # --- reports ---

    @property
    def is_reported(self) -> bool:
        """Whether reports have moments; then a task without rows has a report, too."""
        return self.timers is not None or self.event_time is not None

    def dated(self, reports: Iterable[Report]) -> Sequence[Report]:
        """The reports, with the moments of the next timers."""
        due_ms, due_when_quiet_ms = self._due_ms(), self._due_when_quiet_ms()
        has_ended = self.event_time is not None and self.event_time.clocks.has_ended
        return [
            replace(report, due_ms=due_ms, due_when_quiet_ms=due_when_quiet_ms, has_ended=has_ended)
            for report in reports
        ]

    def figures(self) -> TimeFigures | None:
        """The watermark and the timers; None while they are not known."""
        timers, event_time = self.timers, self.event_time
        if timers is None or not timers.has_timers:
            return None if event_time is None or not event_time.is_known else event_time.seen()
        if not timers.is_known:
            return None
        time = TimeFigures(at_ms=self._limits.boot_ms()) if event_time is None else event_time.seen()
        return replace(time, timers_pending=timers.pending)

    # --- transactions ---

    def begin(self, local: LocalTransaction) -> None:
        """Read what another worker may have changed, when a transaction begins."""
        if self.timers is not None:
            self.timers.begin(local)
        elif self.event_time is not None:
            self.event_time.begin(local)

    def write(self, transaction: Transaction) -> None:
        """Write the clocks, and note the next timer, before a commit."""
        if self.event_time is not None:
            self.event_time.write(transaction)
        if self.timers is not None:
            self.timers.note_next(transaction.local)

    def committed(self) -> None:
        """Note that the transaction was committed."""
        if self.event_time is not None:
            self.event_time.committed()

    def forget(self) -> None:
        """Forget what was known, because the transaction was given up."""
        if self.timers is not None:
            self.timers.is_known = False
        if self.event_time is not None:
            self.event_time.forget()
