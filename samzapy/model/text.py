"""Words for people that several parts need."""

from __future__ import annotations

from collections.abc import Sequence


def some(names: Sequence[object], count_max: int = 5) -> str:
    """The first few of a list that may be long, and how many more there are."""
    more = f" and {len(names) - count_max} more" if len(names) > count_max else ""
    return ", ".join(map(str, names[:count_max])) + more
