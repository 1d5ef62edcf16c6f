"""The queue of commands between the server's thread and the coordinator's.

A round of the coordinator looks at the whole job, however few commands it has. With many containers a heartbeat is
always waiting, and rounds without a pause would leave the server's thread, which shares the interpreter, no time to
answer. So the coordinator pauses for as long as the round took, and the next round takes more commands.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence

from samzapy.coordinator.commands import Command

WAITING_MAX = 10_000
"""More than all containers of a job send during one round of the coordinator."""

REST_S_MAX = 0.1
"""The longest pause between rounds; it delays the registration of a new container."""


class CommandInbox:
    """A `coordinator.ports.CommandSource`; `put` may be called from any thread.

    Args:
        monotonic_s, rest: a clock, and a sleep by that clock.
    """

    def __init__(
        self,
        waiting_max: int = WAITING_MAX,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._waiting: queue.Queue[Command] = queue.Queue(waiting_max)
        self._monotonic_s = monotonic_s
        self._rest = rest
        self._taken_at_s: float | None = None

    def put(self, command: Command) -> bool:
        """Add a command; whether there was room. Never waits."""
        try:
            self._waiting.put_nowait(command)
        except queue.Full:
            return False
        return True

    def take(self, timeout_ms: int) -> Sequence[Command]:
        """See `CommandSource.take`."""
        if timeout_ms and self._taken_at_s is not None:
            self._rest(min(self._monotonic_s() - self._taken_at_s, REST_S_MAX, timeout_ms / 1000))
        commands = self._all(timeout_ms)
        self._taken_at_s = self._monotonic_s()
        return commands

    def _all(self, timeout_ms: int) -> Sequence[Command]:
        commands: list[Command] = []
        try:
            commands.append(
                self._waiting.get(timeout=timeout_ms / 1000) if timeout_ms else self._waiting.get_nowait()
            )
            while True:
                commands.append(self._waiting.get_nowait())
        except queue.Empty:
            return commands
