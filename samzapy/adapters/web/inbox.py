"""Where commands wait between the server's thread and the coordinator's."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from samzapy.coordinator.commands import Command

WAITING_MAX = 10_000
"""More than any number of containers says in the time a coordinator may take for a round."""


class CommandInbox:
    """A `coordinator.ports.CommandSource`; `put` may be called from any thread."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._waiting: queue.Queue[Command] = queue.Queue(waiting_max)

    def put(self, command: Command) -> bool:
        """Whether there was room; never waits."""
        try:
            self._waiting.put_nowait(command)
        except queue.Full:
            return False
        return True

    def take(self, timeout_ms: int) -> Sequence[Command]:
        """See `CommandSource.take`."""
        found: list[Command] = []
        try:
            found.append(self._waiting.get(timeout=timeout_ms / 1000) if timeout_ms else self._waiting.get_nowait())
            while True:
                found.append(self._waiting.get_nowait())
        except queue.Empty:
            return found
