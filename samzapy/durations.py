"""Durations in milliseconds, for `ttl=` and for timers."""

from __future__ import annotations


def is_duration(value: object) -> bool:
    """Whether a value is a whole number of milliseconds, 1 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


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
