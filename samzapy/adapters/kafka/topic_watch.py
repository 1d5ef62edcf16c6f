"""Look at a job's topics at intervals, for the leader.

The watch has a thread of its own, because a cluster that does not answer must not keep the coordinator from answering.
The result becomes a command (`coordinator.commands.TopicsLooked`). One watch has two purposes, each with an interval of
its own: the check of the topics, and the search for new partitions and topics.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.coordinator.commands import TopicsLooked
from samzapy.errors import DeadlineError, SamzapyError, TemporaryError

_LOG = logging.getLogger(__name__)
_ROUND_S = 0.5
_AGAIN_MS = 10_000
"""A topic counts as gone only after several looks, and the containers that read it wait for that."""


def _none(topics: Collection[str]) -> Sequence[str]:
    return ()


class TopicWatch:
    """Looks at once, and every `interval_ms` from then on.

    It begins as soon as there are topics to look at.

    Args:
        names: topics of ours, whose settings are read; empty while this process does not lead.
        names_found: gets all topics of the cluster; returns further topics to look at, without settings.
        put: takes the command; called from the thread of this watch.
        monitor_ms: the interval of the search for new partitions and topics; 0: only at the first look.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        *,
        names: Callable[[], Sequence[str]],
        put: Callable[[TopicsLooked], object],
        interval_ms: int,
        monitor_ms: int = 0,
        names_found: Callable[[Collection[str]], Sequence[str]] = _none,
    ) -> None:
        self._admin = admin
        self._names = names
        self._names_found = names_found
        self._put = put
        self._check = _Due(interval_ms)
        self._monitor = _Due(monitor_ms)
        # A look that failed is owed to the next one.
        self._owes_monitoring = False
        self._trouble = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-topics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End after the current look; does not wait for it."""
        self._ended.set()

    def look(self, names: Sequence[str], *, is_monitoring: bool = True) -> TopicsLooked:
        """The topics as they are now. Raises TemporaryError, ConfigError."""
        topics = self._admin.topic_names()
        others = self._names_found(topics)
        wanted = sorted({*names, *others})
        described = self._admin.look(names, others)
        return TopicsLooked(
            described={name: described.get(name) for name in wanted},
            cluster=self._admin.cluster(),
            topics=topics,
            looked_at_ms=time.time_ns() // 1_000_000,
            is_monitoring=is_monitoring,
        )

    def _run(self) -> None:
        while not self._ended.is_set():
            names = self._names()
            if not names:
                # A new leader looks at once.
                self._check.begin()
                self._monitor.begin()
            else:
                is_check, is_monitoring = self._check.is_due(), self._monitor.is_due()
                self._owes_monitoring |= is_monitoring
                if is_check or is_monitoring:
                    self._look(names)
            self._ended.wait(_ROUND_S)

    def _look(self, names: Sequence[str]) -> None:
        try:
            looked = self.look(names, is_monitoring=self._owes_monitoring)
            self._put(looked)
            self._owes_monitoring = False
            self._trouble = ""
            if None in looked.described.values():
                self._check.hasten(_AGAIN_MS)
        except SamzapyError as error:
            # The next look tries again. A cluster that is away shows elsewhere, and a refusal is logged once.
            is_news = str(error) != self._trouble and not isinstance(error, TemporaryError | DeadlineError)
            _LOG.log(
                logging.WARNING if is_news else logging.DEBUG, "cannot look at the topics, will retry: %s", error
            )
            self._trouble = str(error)


class _Due:
    """Counts rounds.

    It is due in the first round, and `interval_ms` after it was due; with 0 never again.
    """

    def __init__(self, interval_ms: int) -> None:
        self._rounds = max(1, round(interval_ms / 1000 / _ROUND_S)) if interval_ms else 0
        self._left = 0

    def begin(self) -> None:
        """Make the next round the first one."""
        self._left = 0

    def hasten(self, within_ms: int) -> None:
        """Become due within that time, unless it is never due."""
        self._left = min(self._left, round(within_ms / 1000 / _ROUND_S))

    def is_due(self) -> bool:
        """Count one round; whether it is due now."""
        if self._left < 0:
            return False
        if self._left:
            self._left -= 1
            return False
        self._left = self._rounds - 1 if self._rounds else -1
        return True
