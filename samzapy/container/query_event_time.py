"""How far event time can go in the inputs of the running query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from samzapy.config import JobConfig
from samzapy.container.task.clocks import FAR_MS
from samzapy.container.task.coverage import Coverage
from samzapy.container.task.work_plan import Report, Route
from samzapy.model import clock_entry
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition

_BEFORE_THE_END_MS: Final = FAR_MS - 1
"""Later than any moment, and before the end of an input."""


class QueryEventTime:
    """The moments up to which the inputs of a query are covered.

    It also knows the tasks that have acted on the ends of their inputs.

    Attributes:
        is_kept: whether the job keeps event time.
        covered_ms: by task, up to which moment all its inputs are covered.
    """

    def __init__(self, config: JobConfig) -> None:
        self.is_kept = any(store.kind == clock_entry.KIND for store in config.stores)
        self.covered_ms: Mapping[TaskName, int] = {}
        self._is_bounded = config.is_bounded_job
        self._coverage: Coverage[SystemStreamPartition] = Coverage()
        # The tasks of a bounded run that have acted on the end of their inputs.
        self._ended: set[TaskName] = set()

    def query_starts(self) -> None:
        """Forget about the query before."""
        self.covered_ms, self._ended = {}, set()

    def reported(self, reports: Iterable[Report], routes: Sequence[Route]) -> None:
        """Note the tasks that have acted on the end of their inputs."""
        self._ended |= {routes[report.route].task_name for report in reports if report.has_ended}

    def must_end(self, routes: Iterable[Route]) -> bool:
        """Whether a task has still to act on the end of its inputs."""
        return self.is_kept and self._is_bounded and {route.task_name for route in routes} != self._ended

    def note_ends(
        self,
        at_ms: int,
        ends: Mapping[SystemStreamPartition, int],
        routes: Iterable[Route],
        positions: Mapping[SspKeyBucket, int],
    ) -> Mapping[SspKeyBucket, int]:
        """Note the high watermarks of the inputs.

        Args:
            at_ms: before they were asked for; the host's clock since its boot.

        Returns:
            By key bucket, up to which moment it is covered, where that is known.
        """
        self._coverage.note_ends(at_ms, ends)
        of_inputs: dict[SspKeyBucket, int] = {}
        of_tasks: dict[TaskName, int] = {}
        for route in routes:
            moment_ms = self._covered(route, positions.get(route.ssp_kb))
            of_inputs[route.ssp_kb] = moment_ms
            of_tasks[route.task_name] = min(moment_ms, of_tasks.get(route.task_name, FAR_MS))
        self.covered_ms = of_tasks
        return {ssp_kb: moment_ms for ssp_kb, moment_ms in of_inputs.items() if moment_ms >= 0}

    def _covered(self, route: Route, position: int | None) -> int:
        """Up to which moment a route is covered.

        `FAR_MS` at the end of its input, and -1 if it is not known. A broadcast input has no clock, and holds a task
        only until its end.
        """
        if position is None:
            return -1
        if route.is_at_end(position):
            return FAR_MS
        if route.ssp_kb.reader:
            return _BEFORE_THE_END_MS
        covered_ms = self._coverage.covered_ms(route.ssp_kb.ssp, position)
        return -1 if covered_ms is None else covered_ms
