"""One line a minute about the progress of a container.

It has records, rate, lag, and the task that is furthest behind.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from samzapy.container.ports import Clock
from samzapy.container.stats import ContainerFigures
from samzapy.model.grant import Grant

_LOG = logging.getLogger(__name__)


class ProgressLine:
    """Writes the line when it is due.

    Args:
        interval_ms: the time between two lines; 0: none.
    """

    def __init__(self, interval_ms: int, clock: Clock, figures: ContainerFigures) -> None:
        self._interval_ms = interval_ms
        self._clock = clock
        self._figures = figures
        self._last_ms: int | None = None
        self._records = 0

    def write_if_due(self, grants: Collection[Grant]) -> None:
        """Write the line if the interval is over; the first call begins it."""
        now_ms = self._clock.monotonic_ms()
        if self._last_ms is None:
            self._last_ms, self._records = now_ms, self._figures.records_in
            return
        passed_ms = now_ms - self._last_ms
        if not self._interval_ms or passed_ms < self._interval_ms:
            return
        records = self._figures.records_in - self._records
        self._last_ms, self._records = now_ms, self._figures.records_in
        rate = records * 1000 // passed_ms
        _LOG.info("%d records in %d s (%d/s), %s", records, passed_ms // 1000, rate, self._lag(grants))

    def _lag(self, grants: Collection[Grant]) -> str:
        lags = {grant.task_name: self._figures.lag(start.ssp_kb for start in grant.starts) for grant in grants}
        worst = max(lags, key=lambda task_name: (lags[task_name], task_name), default=None)
        if worst is None or not lags[worst]:
            return f"{len(lags)} tasks, none behind"
        behind = sum(1 for lag in lags.values() if lag)
        return f"{behind} of {len(lags)} tasks behind, most {worst} by {lags[worst]} offsets"
