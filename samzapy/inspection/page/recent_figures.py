"""The rates of executions, from the figures of their last heartbeats.

Counters are sums since an execution began, so a rate is a difference of two heartbeats of one execution. It is taken
over up to `SPAN_MS`, because a single heartbeat may stand in front of a micro-batch and the next one behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.commands import Figures
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket

SPAN_MS: Final = 15_000
APART_MS: Final = 3_000
"""Two kept heartbeats are at least so long apart, which bounds their number."""

Recent = Mapping[ExecutionId, tuple[Figures, ...]]
"""The kept figures of each living execution, the oldest first."""


def followed(recent: Recent, liveness: Liveness) -> Recent:
    """`recent` with the last heartbeat of each execution.

    Executions that are gone are dropped.
    """
    return {
        execution_id: _followed(recent.get(execution_id, ()), sighting.figures)
        for execution_id, sighting in liveness.last.items()
    }


def _followed(kept: tuple[Figures, ...], newest: Figures) -> tuple[Figures, ...]:
    if not kept or newest.at_ms < kept[-1].at_ms:
        return (newest,)
    if newest.at_ms == kept[-1].at_ms:
        return kept
    if len(kept) > 1 and newest.at_ms - kept[-2].at_ms < APART_MS:
        kept = kept[:-1]
    young = tuple(figures for figures in kept if newest.at_ms - figures.at_ms <= SPAN_MS)
    return (*(young or kept[-1:]), newest)


class Pace:
    """The rates of one execution; each is None while it is not known."""

    __slots__ = ("_before", "_seconds", "now")

    def __init__(self, kept: tuple[Figures, ...]) -> None:
        self._before, self.now = kept[0], kept[-1]
        self._seconds = (self.now.at_ms - self._before.at_ms) / 1000

    def per_s(self, counter: Callable[[Figures], int]) -> float | None:
        """The rate of a counter of the execution."""
        if not self._seconds:
            return None
        return max(0, counter(self.now) - counter(self._before)) / self._seconds

    def records_per_s(self, ssp_kb: SspKeyBucket) -> float | None:
        """The rate at which the records of an SSPKb are handled."""
        before, now = self._before.positions.get(ssp_kb), self.now.positions.get(ssp_kb)
        if not self._seconds or before is None or now is None:
            return None
        if before.records_in is None or now.records_in is None:
            return None
        return max(0, now.records_in - before.records_in) / self._seconds

    def batch_share(self, task_name: TaskName) -> float | None:
        """For how much of the micro-batches a task was busy (`TaskLoad.batch_share`)."""
        before, now = self._before.tasks.get(task_name), self.now.tasks.get(task_name)
        batch_ns = self.now.batch_ns - self._before.batch_ns
        if before is None or now is None or batch_ns <= 0:
            return None
        return min(1.0, max(0, now.busy_ns - before.busy_ns) / batch_ns)
