"""JSON as its standard has it and no more, for bytes that come from outside.

A value that is read here can be written again, so it never fails only when a task sends it on.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import msgspec

from samzapy.model.first_bytes import looks_like

LEVELS_MAX: Final = 400
"""The deepest nesting that is read. Python writes as deep a value from any place of a program, and not a deeper one."""

_SHOWN_MAX = 100


def parse_json(raw: bytes) -> Any:
    """The value of `raw`.

    Python's own reader also takes NaN and Infinity, which other readers refuse. Of a key that occurs twice in an object
    it takes the last value, where others take the first. It reads a number beyond the largest double as infinity, which
    is no JSON.

    Raises:
        ValueError: it is not JSON; numbers too long or too large, bad UTF-8 and nesting too deep among the reasons.
            Describes the first bytes if they are of a known format.
    """
    try:
        return parse_json_text(raw.decode())
    except ValueError as error:
        hint = looks_like(raw)
        if hint:
            raise ValueError(f"{error}{hint}") from error
        raise


def parse_json_text(text: str) -> Any:
    """As `parse_json`."""
    try:
        value = _DECODER.decode(text)
    except msgspec.ValidationError:
        # Read once more, slowly, because the fast reader does not say which number it was.
        return _NAMING_DECODER.decode(text)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    if may_be_deep(text) and not _is_within(value, LEVELS_MAX):
        raise ValueError(_too_deep())
    return value


def may_be_deep(text: str) -> bool:
    """Whether JSON has brackets enough for more than `LEVELS_MAX` levels.

    Brackets inside of texts are counted too.
    """
    return text.count("[") + text.count("{") > LEVELS_MAX


def _too_deep() -> str:
    return f"nested too deep: wanted at most {LEVELS_MAX} levels of arrays and objects, found more"


def _is_within(value: Any, levels_max: int) -> bool:
    containers = [value] if isinstance(value, dict | list) else []
    for _ in range(levels_max):
        containers = [
            inner
            for container in containers
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, dict | list)
        ]
    return not containers


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name[:_SHOWN_MAX]!r} stands twice in an object")
            seen.add(name)
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:_SHOWN_MAX]} is larger than a number can be (1.8e308)")
    return value


# Kept: json.loads with options builds a decoder at each call. Numbers with a fraction or an exponent are read by
# msgspec, which refuses one that overflows, and takes no longer than Python's own reader does: a function in Python
# takes half as long again for all of a message.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_repetition,
    parse_constant=_refuse_constant,
    parse_float=msgspec.json.Decoder(float).decode,
)
_NAMING_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_repetition, parse_constant=_refuse_constant, parse_float=_finite
)
