"""A topic that a broker does not know is tolerated for a moment, and is an error after that.

Brokers that have just started, and brokers that have not heard of a new topic yet, answer for a moment that it does not
exist.
"""

from __future__ import annotations

import logging

from samzapy.container.ports import Clock
from samzapy.errors import MissingTopicError

_LOG = logging.getLogger(__name__)
_APPEARS_WITHIN_MS = 15_000
_NEW_SERIES_MS = 10_000


class MissingTopics:
    """The series of answers that a topic does not exist."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: int | None = None
        self._last_ms = 0

    def tolerate(self, error: MissingTopicError) -> None:
        """Return, so that the caller asks again; raise `error` if the topic has been missing for too long."""
        now_ms, last_ms = self._clock.monotonic_ms(), self._last_ms
        self._last_ms = now_ms
        if self._since_ms is None or now_ms - last_ms > _NEW_SERIES_MS:
            self._since_ms = now_ms
            _LOG.warning("asking again for %d s: %s", _APPEARS_WITHIN_MS // 1000, error)
        elif now_ms - self._since_ms > _APPEARS_WITHIN_MS:
            raise error

    def clear(self) -> None:
        """Every topic exists: the next answer begins another series."""
        self._since_ms = None
