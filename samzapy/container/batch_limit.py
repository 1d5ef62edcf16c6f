"""The number of offsets that a micro-batch may read, so that it ends in time.

All tasks of a container wait for the slowest one of a micro-batch. Spark takes the number when a query starts, before
the duration of a micro-batch is known. So the number is adapted. A micro-batch that takes too long is ended, and the
next query reads fewer offsets. After a full micro-batch that was short, the next query reads more. Transactions are
shorter than a micro-batch, so the records that it committed before its end stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from samzapy.config import JobConfig

OFFSETS_LEAST: Final = 100
COLD_MS: Final = 20_000
"""Extra time for the first micro-batch of a process, because the JVM compiles code and workers start meanwhile.

Without it, a slow first batch would leave a container with the least bound, although its messages do not need that.
"""
_STEP: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBound:
    """The bound of the micro-batches of a query.

    Attributes:
        offsets: the maximum that one micro-batch reads, over all partitions.
        offsets_max: the configured maximum of `offsets`.
        limit_ms: the maximum duration of one micro-batch.
    """

    offsets: int
    offsets_max: int
    limit_ms: int

    @classmethod
    def of(cls, config: JobConfig) -> Self:
        """The bound of the first query of a container."""
        most = config.batch_offsets_max
        return cls(offsets=most, offsets_max=most, limit_ms=config.batch_max_ms)

    def overrun(self, ran_ms: int, *, is_first: bool = False) -> Self:
        """The bound for the next query; an unchanged bound keeps this query running.

        Args:
            is_first: no micro-batch of this process has ended yet.

        At the least bound a restart does not help: a single message is slow, or it hangs (`task.hang.timeout.ms`).
        """
        may_ms = self.limit_ms + (COLD_MS if is_first else 0)
        if ran_ms <= may_ms or self.offsets <= OFFSETS_LEAST:
            return self
        return replace(self, offsets=max(OFFSETS_LEAST, self.offsets // _STEP))

    def ended(self, took_ms: int, offsets_read: int) -> Self:
        """The bound after a micro-batch; it grows only with room for twice the time."""
        is_full = 2 * offsets_read >= self.offsets
        if not is_full or 2 * _STEP * took_ms > self.limit_ms:
            return self
        return replace(self, offsets=min(self.offsets_max, self.offsets * _STEP))


class BatchLimiter:
    """The bound of the query that runs, and the one that the next query gets.

    Attributes:
        bound: the bound of the query that runs.
    """

    def __init__(self, config: JobConfig) -> None:
        self.bound = self._next = BatchBound.of(config)
        self._has_ended_batch = False

    def query_starts(self) -> None:
        """Apply the bound that earlier queries led to, because the next query begins."""
        self.bound = self._next

    def batch_ended(self, took_ms: int, offsets_read: int) -> None:
        """Count a micro-batch that ended; the next query may read more at once."""
        self._has_ended_batch = True
        self._next = self._next.ended(took_ms, offsets_read)

    def change(self, ran_ms: int) -> str:
        """The reason to restart the query with another bound; empty to keep it running.

        Args:
            ran_ms: the duration so far of the current micro-batch.
        """
        self._next = self._next.overrun(ran_ms, is_first=not self._has_ended_batch)
        if self._next == self.bound:
            return ""
        cause = f"one has run for {ran_ms} ms" if self._next.offsets < self.bound.offsets else "they are short"
        return (
            f"micro-batches of {self._next.offsets} offsets at most instead of {self.bound.offsets}, because {cause} "
            f"(task.batch.max.ms={self.bound.limit_ms})"
        )
