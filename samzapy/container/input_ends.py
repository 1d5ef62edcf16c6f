"""The ends of the inputs of the running query.

They tell the lag, the timers in event time that are due, and the inputs that were deleted.
"""

from __future__ import annotations

import logging

from samzapy.container.missing_inputs import MissingInputs
from samzapy.container.ports import ContainerPorts
from samzapy.container.running_query import RunningQuery
from samzapy.container.stats import ContainerFigures
from samzapy.errors import MissingTopicError, TemporaryError

_LOG = logging.getLogger(__name__)
_EVERY_MS = 1000
_WAIT_MS = 1000


class InputEnds:
    """Looks up the ends, every second or when a timer may be due by them."""

    def __init__(
        self, ports: ContainerPorts, missing: MissingInputs, figures: ContainerFigures, query: RunningQuery
    ) -> None:
        self._clock = ports.clock
        self._topics = ports.topics
        self._missing = missing
        self._figures = figures
        self._query = query
        self._looked_at_ms = self._looked_at_boot_ms = 0

    def look_if_due(self) -> bool:
        """Look up the ends, and say whether there is news to publish.

        If a broker does not answer, the ends that were read before stay.
        """
        now_ms, boot_ms = self._clock.monotonic_ms(), self._clock.boot_ms()
        is_due = now_ms - self._looked_at_ms >= _EVERY_MS
        if not is_due and not self._query.wants_ends(self._looked_at_boot_ms, boot_ms):
            return False
        self._looked_at_ms, self._looked_at_boot_ms = now_ms, boot_ms
        try:
            # A topic that was created again may be longer than the old one. Only its id shows the difference then.
            self._missing.look()
        except TemporaryError as error:
            _LOG.debug("cannot look up the topics of the inputs: %s", error)
        if self._missing.has_changed:
            return False
        try:
            self._read(now_ms, boot_ms)
            self._missing.all_answered()
        except TemporaryError as error:
            _LOG.debug("cannot read the ends of the inputs: %s", error)
        except MissingTopicError as error:
            self._missing.tolerate(error)
        return True

    def _read(self, now_ms: int, boot_ms: int) -> None:
        ssps = sorted({ssp_kb.ssp for ssp_kb in self._figures.positions})
        bounds = self._missing.bounds(ssps, _WAIT_MS)
        self._query.inputs_end(bounds)
        is_time, waiting = self._query.event_time.is_kept, self._figures.caught_up(bounds)
        if is_time or waiting:
            # A transaction that is open holds back what is behind it.
            high = self._topics.input_high_watermarks(ssps if is_time else waiting, _WAIT_MS)
            self._figures.open_transactions.note(bounds, high, now_ms)
            if is_time:
                self._query.high_watermarks(boot_ms, high)
