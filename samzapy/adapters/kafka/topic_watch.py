"""Looks at a job's topics now and then, for the coordinator that leads it.

In a thread of its own, because a cluster that does not answer must not keep the coordinator from answering.
What was seen becomes a command like all other news (`coordinator.commands.TopicsLooked`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.coordinator.commands import TopicsLooked
from samzapy.errors import SamzapyError

_LOG = logging.getLogger(__name__)
_ROUND_S = 0.5


class TopicWatch:
    """Looks as soon as there is something to look at, and every `interval_ms` from then on.

    Args:
        names: the topics; empty while this process does not lead.
        put: takes the command; may be called from this thread.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        *,
        names: Callable[[], Sequence[str]],
        put: Callable[[TopicsLooked], object],
        interval_ms: int,
    ) -> None:
        self._admin = admin
        self._names = names
        self._put = put
        self._rounds = max(1, round(interval_ms / 1000 / _ROUND_S))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-topics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End after the look that is under way; does not wait for it."""
        self._ended.set()

    def look(self, names: Sequence[str]) -> TopicsLooked:
        """The topics as they are now. Raises TemporaryError, ConfigError."""
        found = self._admin.look(names)
        return TopicsLooked(
            found={name: found.get(name) for name in names},
            cluster=self._admin.cluster(),
            topics=self._admin.topic_names(),
        )

    def _run(self) -> None:
        waited = self._rounds
        while not self._ended.is_set():
            names = self._names()
            # Who begins to lead looks at once.
            waited = waited + 1 if names else self._rounds
            if names and waited > self._rounds:
                waited = 1
                self._look(names)
            self._ended.wait(_ROUND_S)

    def _look(self, names: Sequence[str]) -> None:
        try:
            self._put(self.look(names))
        except SamzapyError as error:
            # The next look comes; a cluster that is away shows elsewhere.
            _LOG.debug("the topics could not be looked at: %s", error)
