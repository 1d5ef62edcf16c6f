"""When the micro-batches of the running query ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from samzapy.container.ports import Clock
from samzapy.container.task.work_plan import Report

_LOG = logging.getLogger(__name__)


class BatchTimes:
    """The times of a query's start and of its last work; all are monotonic.

    Attributes:
        begun_ms: when the query started.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begun_ms = 0
        # The number of a query that has not ended its first batch yet.
        self._first_batch_of: int | None = None
        self._worked_at_ms = self._caught_up_at_ms = clock.monotonic_ms()

    def query_started(self, number: int) -> None:
        """Note that a query starts."""
        self._first_batch_of = number
        self._worked_at_ms = self.begun_ms = self._clock.monotonic_ms()

    def batch_ended(self, reports: Sequence[Report]) -> None:
        """Note that a micro-batch ended; the first one of a query is logged."""
        if self._first_batch_of is not None:
            _LOG.info(
                "the first micro-batch of query %d ended after %.1f s: %d records in, %d out",
                self._first_batch_of,
                (self._clock.monotonic_ms() - self._worked_at_ms) / 1000,
                sum(report.records_in for report in reports),
                sum(report.records_out for report in reports),
            )
            self._first_batch_of = None
        self.worked()

    def worked(self, stalled_ms: int = 0) -> None:
        """Note that a tick ended now, or that tails worked until `stalled_ms` ago."""
        self._worked_at_ms = self._clock.monotonic_ms() - stalled_ms

    def caught_up(self) -> None:
        """Note that the inputs are read to their ends.

        Without records there are no micro-batches. So the first batch after a quiet hour has the full time.
        """
        self._caught_up_at_ms = self._clock.monotonic_ms()

    @property
    def waited_ms(self) -> int:
        """For how long a micro-batch that has records has not ended."""
        return self._clock.monotonic_ms() - max(self._worked_at_ms, self._caught_up_at_ms)
