"""The schedule on which unused local state is removed from this host."""

from __future__ import annotations

import logging

from samzapy.container.local_state.cleanup import REMOVED_AT_ONCE_MAX, remove_unused
from samzapy.container.ownership import Ownership
from samzapy.container.ports import ContainerPorts
from samzapy.model.text import some

_LOG = logging.getLogger(__name__)
_EVERY_MS = 3_600_000
_REST_MS = 60_000


class StateCleanup:
    """Removes unused local state after the first start, and then from time to time."""

    def __init__(self, ports: ContainerPorts, ownership: Ownership) -> None:
        self._ports = ports
        self._ownership = ownership
        self._next_at_ms = 0

    def run(self) -> None:
        """Remove local state of tasks that no longer exist, if a cleanup is due.

        The caller calls it when this delays no messages, and after the stream was read at least up to the registration
        of this execution.
        """
        ports = self._ports
        now_ms = ports.clock.monotonic_ms()
        if now_ms < self._next_at_ms:
            return  # This runs many times a second, and the rest computes over every task of the job.
        in_use = self._ownership.orders.tasks_in_use()
        if in_use is None:
            return
        self._next_at_ms = now_ms + _EVERY_MS
        removed = remove_unused(in_use, ports.tasks_here(), ports.state_of, ports.clock.wall_ms())
        if len(removed) == REMOVED_AT_ONCE_MAX:
            self._next_at_ms = now_ms + _REST_MS  # There may be more, and the disk may be filling up.
        if removed:
            _LOG.info("removed local state of tasks that are no more: %s", some(removed))
