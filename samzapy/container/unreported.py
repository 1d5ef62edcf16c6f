"""The costs of tasks before their workers report them (`container.task.so_far`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samzapy.container.ports import BatchDone, TailProgress
from samzapy.container.task.so_far import SoFar
from samzapy.container.task.work_plan import Route
from samzapy.model.job import TaskName
from samzapy.model.task_stats import TaskStats


class Unreported:
    """The costs that are not reported yet, by task."""

    def __init__(self) -> None:
        self._noted: dict[TaskName, SoFar] = {}

    def note(self, noted: Sequence[SoFar], routes: Sequence[Route]) -> None:
        """Note the newest costs.

        A task that is missing has ended its work, and its report is under way. So its last cost stays.
        """
        # Before the first query there are no routes.
        self._noted |= {routes[one.route].task_name: one for one in noted if one.route < len(routes)}

    def reported(self, event: BatchDone | TailProgress, routes: Sequence[Route]) -> None:
        """Drop the costs that the event reports: a micro-batch reports all of them."""
        if isinstance(event, BatchDone):
            self._noted = {}
        for report in event.reports:
            self._noted.pop(routes[report.route].task_name, None)

    def take(self) -> tuple[int, Mapping[TaskName, TaskStats]]:
        """Take the costs of a query that ends without a report.

        Returns:
            `batch_ns` and `stats`.
        """
        taken = self.batch_ns, self.stats
        self._noted = {}
        return taken

    @property
    def batch_ns(self) -> int:
        """The time of the micro-batch under way."""
        return max((one.elapsed_ns for one in self._noted.values()), default=0)

    @property
    def stats(self) -> Mapping[TaskName, TaskStats]:
        return {task_name: one.stats for task_name, one in self._noted.items()}
