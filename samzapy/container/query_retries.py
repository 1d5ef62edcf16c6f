"""How long a failing query is retried, and the pause before each start.

A failure may be temporary: a busy machine, a worker that the kernel killed, a full disk. So the retries are limited by
time (`task.query.retry.ms`) and not by number. Three exceptions:

- A failure that the job or its data causes happens again in the same way. Three starts are enough to know.
- A worker that ends without an error was mostly killed from outside. A quarter of the time until such a failure counts.
- Brokers that are unreachable are waited for without a limit (`ports.QueryFailed.is_outage`) and not counted here.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

from samzapy.container.ports import QueryFailed
from samzapy.errors import ConfigError, DataError, SamzapyError, TaskError
from samzapy.model.container_end import with_key_digests
from samzapy.model.failing import Failing

STARTS_MIN: Final = 3
"""The least number of starts, and the exact number if the failure will repeat."""
_PAUSES_MS: Final = (200, 1000, 3000, 6000, 12_000, 24_000, 30_000)
_KILLED_COUNTS: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRetries:
    """The failures since the last commit.

    Attributes:
        attempts: the number of failures.
        last: the last failure; None before the first.
        since_ms, last_ms: the times of the first and the last failure; monotonic.
        spent_ms: the part of `task.query.retry.ms` that they have used.
        under: the goal of the container; another goal resets the count.
    """

    attempts: int = 0
    last: QueryFailed | None = None
    since_ms: int = 0
    last_ms: int = 0
    spent_ms: float = 0.0
    under: Hashable = None

    def failed(self, failure: QueryFailed, now_ms: int, under: Hashable) -> QueryRetries:
        """The retries after one more failure."""
        if self.last is None or under != self.under:
            return QueryRetries(attempts=1, last=failure, since_ms=now_ms, last_ms=now_ms, under=under)
        weight = _KILLED_COUNTS if failure.is_of_a_killed_worker else 1.0
        return replace(
            self,
            attempts=self.attempts + 1,
            last=failure,
            last_ms=now_ms,
            spent_ms=self.spent_ms + weight * (now_ms - self.last_ms),
        )

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
        comes_again = next((kind for kind in _COME_AGAIN if issubclass(self.last.kind, kind)), None)
        if comes_again is not None:
            wanted = f"wanted a commit within {STARTS_MIN} starts of the query, found none"
            return comes_again(f"{wanted}; last failure: {self.last.reason}")
        if self.spent_ms < retry_ms:
            return None
        return SamzapyError(
            f"wanted a commit within task.query.retry.ms ({retry_ms}) of the query's first failure, found none in "
            f"{self.attempts} starts over {(self.last_ms - self.since_ms) // 1000} s; last failure: {self.last.reason}"
        )

    def report(self, now_ms: int, retry_ms: int) -> Failing | None:
        """The failures for heartbeats; None if nothing has failed since the last commit."""
        if self.last is None:
            return None
        return Failing(
            attempts=self.attempts,
            for_ms=now_ms - self.since_ms,
            left_ms=max(0, retry_ms - int(self.spent_ms)),
            reason=with_key_digests(self.last.reason),
        )


NO_FAILURES: Final = QueryRetries()
_COME_AGAIN: Final[tuple[type[SamzapyError], ...]] = (TaskError, ConfigError, DataError)
