"""How long a failing query is retried, and the pause before each start.

A failure may be temporary: a busy machine, a worker that the kernel killed, a full disk. So the retries are limited by
time (`task.query.retry.ms`) and not by number. Three exceptions:

- A failure that the job or its data causes happens again in the same way. Three starts are enough to know. Where it
  names a message, other tasks may commit in each start while that message stands. So failures at a message are counted
  for that message, until its bucket is committed past it.
- A worker that ends without an error was mostly killed from outside. A quarter of the time until such a failure counts.
- Brokers that are unreachable are waited for without a limit (`ports.QueryFailed.is_outage`) and not counted here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from samzapy.container.ports import QueryFailed
from samzapy.errors import ConfigError, DataError, SamzapyError, TaskError
from samzapy.model.container_end import with_key_digests
from samzapy.model.failing import Failing
from samzapy.model.ssp import SspKeyBucket

STARTS_MIN: Final = 3
"""The least number of starts, and the exact number if the failure will repeat."""
_PAUSES_MS: Final = (200, 1000, 3000, 6000, 12_000, 24_000, 30_000)
_KILLED_COUNTS: Final = 0.25

MessageAt = tuple[SspKeyBucket, int]
"""The SSPKb and the offset of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailuresAt:
    """The failures at one message that is not committed, and the first's time."""

    count: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRetries:
    """The failures since the last commit, and those at messages before it.

    Attributes:
        count: the number of failures since the last commit.
        last: the last failure; None before the first, and after a commit unless its message still stands.
        message: the message that caused it; None where none is known.
        since_ms, last_ms: the times of the first and the last failure; monotonic.
        spent_ms: the part of `task.query.retry.ms` that they have used.
        under: the goal of the container; another goal resets the count.
        at: the failures at each message that still stands.
    """

    count: int = 0
    last: QueryFailed | None = None
    message: MessageAt | None = None
    since_ms: int = 0
    last_ms: int = 0
    spent_ms: float = 0.0
    under: Hashable = None
    at: Mapping[MessageAt, FailuresAt] = field(default_factory=dict)

    def failed(
        self, failure: QueryFailed, now_ms: int, under: Hashable, message: MessageAt | None = None
    ) -> QueryRetries:
        """The retries after one more failure.

        Args:
            message: the message that caused it, if the failure will come again with it.
        """
        if under != self.under:
            return replace(NO_FAILURES, under=under).failed(failure, now_ms, under, message)
        at, since_ms = self.at, now_ms
        if message is not None:
            before = at.get(message, FailuresAt(count=0, since_ms=now_ms))
            at, since_ms = {**at, message: replace(before, count=before.count + 1)}, before.since_ms
        after = replace(self, count=self.count + 1, last=failure, message=message, last_ms=now_ms, at=at)
        if not self.count:
            return replace(after, since_ms=since_ms)
        weight = _KILLED_COUNTS if failure.is_of_a_killed_worker else 1.0
        return replace(after, spent_ms=self.spent_ms + weight * (now_ms - self.last_ms))

    def committed(self, positions: Mapping[SspKeyBucket, int]) -> QueryRetries:
        """The retries after a commit: those at messages that still stand.

        Args:
            positions: the next offsets of the buckets that were committed; others may be among them.
        """
        at = {message: failures for message, failures in self.at.items() if _stands(message, positions)}
        if self.message is None or self.message not in at:
            return replace(NO_FAILURES, under=self.under, at=at)
        since_ms = at[self.message].since_ms
        return replace(self, count=0, since_ms=since_ms, spent_ms=0.0, at=at)

    @property
    def _count_at_message(self) -> int:
        return 0 if self.message is None else self.at[self.message].count

    @property
    def attempts(self) -> int:
        """The number of failures since the last commit.

        Or those at the message of the last failure, if they are more.
        """
        return max(self.count, self._count_at_message)

    @property
    def pause_ms(self) -> int:
        """The pause before the next start."""
        return _PAUSES_MS[min(self.attempts, len(_PAUSES_MS)) - 1] if self.attempts else 0

    def error(self, retry_ms: int) -> SamzapyError | None:
        """The error that ends the container; None while the query is retried.

        Returns:
            A TaskError, ConfigError or DataError if the failure is one; else a SamzapyError.
        """
        if self.last is None or self.attempts < STARTS_MIN:
            return None
        kind = _kind_that_comes_again(self.last)
        if kind is not None:
            of_it = " of the message" if self._count_at_message >= STARTS_MIN else ""
            wanted = f"wanted a commit{of_it} within {STARTS_MIN} starts of the query, found none"
            return kind(f"{wanted}; last failure: {self.last.reason}")
        if self.spent_ms < retry_ms:
            return None
        return SamzapyError(
            f"wanted a commit within task.query.retry.ms ({retry_ms}) of the query's first failure, found none in "
            f"{self.attempts} starts over {(self.last_ms - self.since_ms) // 1000} s; last failure: {self.last.reason}"
        )

    def report(self, now_ms: int, retry_ms: int) -> Failing | None:
        """The failures for heartbeats.

        None if nothing has failed since the last commit, and its message does not stand.
        """
        if self.last is None:
            return None
        return Failing(
            attempts=self.attempts,
            for_ms=now_ms - self.since_ms,
            left_ms=max(0, retry_ms - int(self.spent_ms)),
            reason=with_key_digests(self.last.reason),
        )


def comes_again(failure: QueryFailed) -> bool:
    """Whether the job or its data causes a failure, so that it happens again."""
    return _kind_that_comes_again(failure) is not None


def _kind_that_comes_again(failure: QueryFailed) -> type[SamzapyError] | None:
    return next((kind for kind in _COME_AGAIN if issubclass(failure.kind, kind)), None)


def _stands(message: MessageAt, positions: Mapping[SspKeyBucket, int]) -> bool:
    ssp_kb, offset = message
    return positions.get(ssp_kb, offset) <= offset


NO_FAILURES: Final = QueryRetries()
_COME_AGAIN: Final[tuple[type[SamzapyError], ...]] = (TaskError, ConfigError, DataError)
