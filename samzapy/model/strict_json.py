"""JSON as its standard has it and no more, for bytes that come from outside."""

from __future__ import annotations

import json
from typing import Any, NoReturn

_SHOWN_MAX = 100


def parse_json(raw: bytes) -> Any:
    """The value of `raw`.

    Python's own reader also takes NaN and Infinity, which nobody else reads, and of a key that stands twice in an
    object the last, where others take the first.

    Raises:
        ValueError: it is not JSON; numbers too long, bad UTF-8 and nesting too deep among the reasons.
    """
    return parse_json_text(raw.decode())


def parse_json_text(text: str) -> Any:
    """As `parse_json`."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError(f"nested too deep: {error}") from None


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:_SHOWN_MAX]!r} stands twice in an object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Kept: json.loads with options builds a decoder at each call.
_DECODER = json.JSONDecoder(object_pairs_hook=_without_repetition, parse_constant=_refuse_constant)
