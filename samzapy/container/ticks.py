"""Decides when timers fire, and `window` is called, without a message.

Timers fire in the micro-batches and tails of their tasks. For a task that has neither, the driver orders a tick: a
micro-batch without rows. It does so only while a timer is due, because a tick is a Spark job. Workers report when the
next timer of each task is due: by the clock, or, in event time, once its inputs are covered up to a moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from samzapy.config import JobConfig
from samzapy.container.task.work_plan import NO_TIMER, Report, Route
from samzapy.model.job import TaskName

_NOT_KNOWN = 0
"""Due at once: only a look at the local state can tell."""


class Ticks:
    """The next timer of each task of a query, as far as workers have reported it."""

    def __init__(self, config: JobConfig) -> None:
        self._acts_by_time = any(store.is_own for store in config.stores)
        self._interval_ms = config.timer_resolution_ms
        self._due_ms: dict[TaskName, int] = {}
        self._due_when_quiet_ms: dict[TaskName, int] = {}
        self._ticked_at_ms: int | None = None

    def query_starts(self, routes: Iterable[Route]) -> None:
        """Forget the timers of the query before: another container may have fired them."""
        self._due_ms = {route.task_name: _NOT_KNOWN for route in routes} if self._acts_by_time else {}
        self._due_when_quiet_ms = {}

    def reported(self, reports: Iterable[Report], routes: Sequence[Route]) -> None:
        """Note when the next timers of the tasks are due."""
        if self._acts_by_time:
            for report in reports:
                self._due_ms[routes[report.route].task_name] = report.due_ms
                self._due_when_quiet_ms[routes[report.route].task_name] = report.due_when_quiet_ms

    def due_tasks(self, wall_ms: int, now_ms: int, covered_ms: Mapping[TaskName, int]) -> Collection[TaskName]:
        """The tasks for which a tick is to be ordered; empty if none is.

        Args:
            wall_ms: the clock of timers.
            now_ms: a clock that only goes forward.
            covered_ms: by task, up to which moment its inputs are covered.
        """
        if self._ticked_at_ms is not None and now_ms < self._ticked_at_ms + self._interval_ms:
            return ()
        by_clock = {task for task, due_ms in self._due_ms.items() if due_ms != NO_TIMER and due_ms <= wall_ms}
        return by_clock | {
            task
            for task, due_ms in self._due_when_quiet_ms.items()
            if due_ms != NO_TIMER and task in covered_ms and due_ms <= covered_ms[task]
        }

    def is_due_when_quiet(self, after_ms: int, until_ms: int) -> bool:
        """Whether a timer in event time becomes due within a time.

        That is, if its inputs are covered.

        Args:
            after_ms, until_ms: on the host's clock since its boot.
        """
        return any(after_ms < due_ms <= until_ms for due_ms in self._due_when_quiet_ms.values())

    def ticked(self, now_ms: int) -> None:
        """Note that a tick was ordered."""
        self._ticked_at_ms = now_ms
