"""Removes the local state of tasks that the job no longer has, from time to time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from samzapy.container.local_state.cleanup import REMOVED_AT_ONCE_MAX, remove_unused
from samzapy.container.orders import Orders
from samzapy.container.ports import Clock, StateDirectory
from samzapy.model.job import TaskName
from samzapy.model.text import some

_LOG = logging.getLogger(__name__)
_EVERY_MS = 3_600_000
_NEXT_PART_MS = 60_000


class OrphanedState:
    """The schedule of the removal: at the first call that finds the tasks in use, and then every hour."""

    def __init__(
        self, clock: Clock, tasks_here: Callable[[], Sequence[TaskName]], state_of: Callable[[str], StateDirectory]
    ) -> None:
        self._clock = clock
        self._tasks_here = tasks_here
        self._state_of = state_of
        self._next_ms = 0

    def remove(self, orders: Orders) -> None:
        """Remove it if it is due. The caller has read the coordinator stream to the end, or up to its registration."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return  # Called many times a second, and the tasks in use take a look at every task of the job.
        in_use = orders.tasks_in_use()
        if in_use is None:
            return
        self._next_ms = now_ms + _EVERY_MS
        removed = remove_unused(in_use, self._tasks_here(), self._state_of, self._clock.wall_ms())
        if len(removed) == REMOVED_AT_ONCE_MAX:
            self._next_ms = now_ms + _NEXT_PART_MS  # There may be more, and a disk that fills up.
        if removed:
            _LOG.info("removed local state of tasks that the job no longer has: %s", some(removed))
