"""Failures of queries: when to start the next one, and when to end the container."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from samzapy.config import JobConfig
from samzapy.container.ownership import Ownership
from samzapy.container.ports import Clock, QueryFailed, Slots
from samzapy.container.query_retries import NO_FAILURES, MessageAt, comes_again
from samzapy.container.stats import ContainerFigures
from samzapy.container.task.work_plan import Route
from samzapy.container.worker_deaths import WorkerDeaths
from samzapy.model.container_end import message_of
from samzapy.model.failing import Failing
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.text import some

_LOG = logging.getLogger(__name__)
_OUTAGE_PAUSE_MS = 3000


class QueryFailures:
    """Counts failures since the last commit, and follows workers that died.

    Attributes:
        deaths: the workers that died, and the messages under suspicion.
    """

    def __init__(
        self, config: JobConfig, clock: Clock, slots: Slots, ownership: Ownership, figures: ContainerFigures
    ) -> None:
        self._config = config
        self._clock = clock
        self._slots = slots
        self._ownership = ownership
        self._figures = figures
        self._retries = NO_FAILURES
        self._starts: Mapping[SspKeyBucket, int] = {}
        # The worker death that was not examined yet.
        self._death: QueryFailed | None = None
        self.deaths = WorkerDeaths()

    def reset(self) -> None:
        """Forget earlier failures, because their cause is known."""
        self._retries = NO_FAILURES

    def committed(self, positions: Mapping[SspKeyBucket, int]) -> None:
        """Forget earlier failures after a commit.

        Those at messages that are not committed stay.

        Args:
            positions: the next offsets of the buckets that were committed.
        """
        self._retries = self._retries.committed(positions)

    def failed(self, failure: QueryFailed, query_begun_ms: int, routes: Sequence[Route]) -> int:
        """Count a failure, and return the pause before the next start.

        Args:
            routes: the routes of the query that failed.
        """
        self._figures.recoveries += 1
        now_ms = self._clock.monotonic_ms()
        if failure.is_of_a_killed_worker:
            self._death = failure
        if failure.is_outage:
            # As at a start: an outage has no time limit, and no record causes it.
            _LOG.warning("the query failed and is started anew: %s", failure.reason)
            return _OUTAGE_PAUSE_MS
        if now_ms - query_begun_ms > self._config.hang_timeout_ms:
            # The query ran longer than any micro-batch may, so it processed the messages that existed at its start.
            # Without this reset, a quiet job that fails once a week would end in the third week.
            self._retries = NO_FAILURES
        self._retries = self._retries.failed(failure, now_ms, self._ownership.goal, _message_at(failure, routes))
        attempts = self._retries.attempts
        _LOG.warning("the query failed and is started anew (%d without a commit): %s", attempts, failure.reason)
        return self._retries.pause_ms

    def failing(self) -> Failing | None:
        """The failures since the last commit, for heartbeats; None without any."""
        return self._retries.report(self._clock.monotonic_ms(), self._config.query_retry_ms)

    def look_into_death(self, open_slots: Sequence[int], routes: Sequence[Route]) -> None:
        """Read the messages that the workers handled if one of them died.

        Called before the next query number is taken, because the notes name the number of the last query.
        """
        death, self._death = self._death, None
        if death is None:
            return
        noted = self._slots.in_hand(open_slots, self._ownership.query_number)
        in_hand = [(routes[route].ssp_kb, offset) for route, offset in noted]
        before = self.deaths
        self.deaths = before.died(in_hand, death.reason, self._clock.monotonic_ms())
        if (self.deaths.suspects, self.deaths.refusals) != (before.suspects, before.refusals):
            self._retries = NO_FAILURES  # The search for the message made progress.
        trial = self.deaths.trial
        if trial is not None:
            _LOG.warning(
                "a worker process died; processing %s offset %d alone to see if it is the cause",
                trial.ssp_kb.ssp,
                trial.offset,
            )

    def limit(self, routes: Sequence[Route], starts: Mapping[SspKeyBucket, int]) -> tuple[Route, ...]:
        """All routes, or only the route of a suspect message that has a trial."""
        self.deaths = self.deaths.at(starts)
        return self.deaths.limited(routes)

    def trial_passed(self, positions: Mapping[SspKeyBucket, int]) -> bool:
        """True if the current trial reached its end; the next query continues after it."""
        if not self.deaths.is_passed(positions):
            return False
        self.deaths = self.deaths.passed()
        return True

    def check_commits(self, starts: Mapping[SspKeyBucket, int]) -> None:
        """Raise an error if the earlier starts led to no commit for too long.

        A commit also counts if its batch failed afterwards. It does not count for a message that it leaves unread.

        Raises:
            SamzapyError: as `QueryRetries.error`.
        """
        has_committed = any(offset > self._starts.get(ssp_kb, offset) for ssp_kb, offset in starts.items())
        if self._retries.under != self._ownership.goal:
            self._retries = NO_FAILURES
        elif has_committed:
            self._retries = self._retries.committed(starts)
        self._starts = starts
        error = self._retries.error(self._config.query_retry_ms)
        if error is not None:
            raise type(error)(f"{error}. Unread are {self._unread()}")

    def _unread(self) -> str:
        """A short list of the positions that still have messages to read."""
        ends = self._figures.ends
        return some(
            [
                f"{ssp_kb} from offset {offset}"
                for ssp_kb, offset in sorted(self._starts.items())
                if ssp_kb.ssp not in ends or offset < ends[ssp_kb.ssp].offset_end
            ]
        )


def _message_at(failure: QueryFailed, routes: Sequence[Route]) -> MessageAt | None:
    """The message that causes a failure each time; None where none is known."""
    # Spark passes only the text of a worker's error on.
    named = message_of(failure.reason) if comes_again(failure) else None
    if named is None:
        return None
    task_name, ssp, offset = named
    buckets = [route.ssp_kb for route in routes if (route.task_name, str(route.ssp_kb.ssp)) == (task_name, ssp)]
    return (buckets[0], offset) if buckets else None
