"""A worker's slot in memory."""

from __future__ import annotations

from collections.abc import Callable

from samzapy.errors import (
    LostContainerError,
)
from samzapy.testing.memory.kafka import CLIENT_NOW_MS, MemoryKafka, MemoryProducer
from samzapy.testing.memory.process import CrashAt, Trace


class MemorySlot:
    """A slot while this process holds it (`container.task.ports.SlotGuard`).

    The lease runs out after `lease_checks`.
    """

    def __init__(
        self,
        kafka: MemoryKafka,
        transactional_id: str = "samzapy/flights-1/e1/0",
        *,
        trace: Trace | None = None,
        crash_points: CrashAt | None = None,
        now_ms: Callable[[], int] = lambda: CLIENT_NOW_MS,
    ) -> None:
        self.trace = Trace() if trace is None else trace
        self.state = "clean"
        self.lease_checks: int | None = None
        self.notes: list[tuple[int, int]] = []
        self._kafka = kafka
        self._now_ms = now_ms
        self._transactional_id = transactional_id
        self._crash_points = crash_points or CrashAt()
        self._producer: MemoryProducer | None = None

    def producer(self) -> MemoryProducer:
        if self._producer is None:
            self._producer = MemoryProducer(
                self._kafka, self._transactional_id, self.trace, self._crash_points, self._now_ms
            )
        return self._producer

    def renew(self) -> None:
        """Let the next user have a producer of its own; no transaction is open."""
        self._producer, self.state = None, "clean"

    def mark_open(self) -> None:
        self.state = "open"
        self.trace.append("open")

    def mark_clean(self) -> None:
        self.state = "clean"
        self.trace.append("clean")

    def note(self, route: int, offset: int) -> None:
        self.notes.append((route, offset))

    def check_lease(self) -> None:
        self.trace.append("lease")
        if self.lease_checks is not None:
            if self.lease_checks == 0:
                raise LostContainerError("the container's lease ran out")
            self.lease_checks -= 1
