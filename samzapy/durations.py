"""Durations in milliseconds, for `ttl=` and for timers."""

from __future__ import annotations

from typing import Final

DURATION_MAX_MS: Final = 10**15
"""The longest one, 30,000 years: a moment so far from now still fits into the entry of a timer."""


def is_duration(value: object) -> bool:
    """Whether a value is a whole number of milliseconds, 1 or more, and not too long."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= DURATION_MAX_MS


def seconds(count: float) -> int:
    """So many seconds in milliseconds."""
    return round(count * 1000)


def minutes(count: float) -> int:
    """So many minutes in milliseconds."""
    return round(count * 60_000)


def hours(count: float) -> int:
    """So many hours in milliseconds."""
    return round(count * 3_600_000)


def days(count: float) -> int:
    """So many days in milliseconds."""
    return round(count * 86_400_000)
