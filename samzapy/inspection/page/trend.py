"""The last hour of a job's rate and lag, in a ring of bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INTERVAL_MS: Final = 10_000
SPAN_MS: Final = 60 * 60 * 1000
SAMPLES_MAX: Final = SPAN_MS // INTERVAL_MS


@dataclass(frozen=True, slots=True)
class TrendSample:
    """Rate and lag at one moment; None where they were not known."""

    at_ms: int
    records_per_s: float | None
    lag: int | None


Trend = tuple[TrendSample, ...]
"""At most `SAMPLES_MAX` samples, the oldest first. Times are monotonic."""


def sampled(trend: Trend, sample: TrendSample) -> Trend:
    """`trend` with `sample`, unless the last sample is younger than the interval."""
    if trend and sample.at_ms - trend[-1].at_ms < INTERVAL_MS:
        return trend
    kept = trend[-(SAMPLES_MAX - 1) :]
    return (*(item for item in kept if sample.at_ms - item.at_ms <= SPAN_MS), sample)
