"""The number of offsets that a micro-batch may read, so that it ends in time.

All tasks of a container wait for the slowest one of a micro-batch. Spark gets the number when a query starts, and the
time that it takes is known only afterwards. So the number is adapted: a micro-batch that takes too long is ended, and
the next query reads fewer offsets; after a full one that was short, the next query reads more. Transactions are shorter
than a micro-batch, so all that was committed before it was ended stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from samzapy.config import JobConfig

OFFSETS_LEAST: Final = 100
COLD_MS: Final = 20_000
"""Extra time for the first micro-batch of a process, in which the JVM compiles and workers start. Without it, a slow
first batch would leave a container with the least bound, though its offsets do not need that."""
_STEP: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBound:
    """The bound of the micro-batches of a query.

    Attributes:
        offsets: at most so many are read in one, over all partitions.
        offsets_max: as configured.
        limit_ms: how long one is to take at most.
    """

    offsets: int
    offsets_max: int
    limit_ms: int

    @classmethod
    def of(cls, config: JobConfig) -> Self:
        """The bound that a container begins with."""
        most = config.batch_offsets_max
        return cls(offsets=most, offsets_max=most, limit_ms=config.batch_max_ms)

    def overrun(self, ran_ms: int, *, is_first: bool = False) -> Self:
        """The bound for the next query; the same one lets the micro-batch run on.

        Args:
            is_first: no micro-batch of this process has ended yet.

        With the least bound nothing is gained by another start: one message takes its time, or hangs
        (`task.hang.timeout.ms`).
        """
        may_ms = self.limit_ms + (COLD_MS if is_first else 0)
        if ran_ms <= may_ms or self.offsets <= OFFSETS_LEAST:
            return self
        return replace(self, offsets=max(OFFSETS_LEAST, self.offsets // _STEP))

    def ended(self, took_ms: int, offsets_read: int) -> Self:
        """The bound after a micro-batch; a wider one leaves room for twice the time."""
        is_full = 2 * offsets_read >= self.offsets
        if not is_full or 2 * _STEP * took_ms > self.limit_ms:
            return self
        return replace(self, offsets=min(self.offsets_max, self.offsets * _STEP))


class BatchLimiter:
    """The bound of the query that runs, and the one that the next query gets.

    Attributes:
        bound: the one of the query that runs.
    """

    def __init__(self, config: JobConfig) -> None:
        self.bound = self._next = BatchBound.of(config)
        self._has_ended_batch = False

    def query_starts(self) -> None:
        """The next query begins, with what was learned from the ones before."""
        self.bound = self._next

    def batch_ended(self, took_ms: int, offsets_read: int) -> None:
        """A micro-batch ended: the next query may read more in one."""
        self._has_ended_batch = True
        self._next = self._next.ended(took_ms, offsets_read)

    def change(self, ran_ms: int) -> str:
        """Why a query with another bound is to start; empty to let this one go on.

        Args:
            ran_ms: how long the micro-batch that is under way has run.
        """
        self._next = self._next.overrun(ran_ms, is_first=not self._has_ended_batch)
        if self._next == self.bound:
            return ""
        cause = f"one has run for {ran_ms} ms" if self._next.offsets < self.bound.offsets else "they are short"
        return (
            f"micro-batches of {self._next.offsets} offsets at most instead of {self.bound.offsets}, because {cause} "
            f"(task.batch.max.ms={self.bound.limit_ms})"
        )
