"""The form of a serde, and its error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class SerdeError(ValueError):
    """A value that its serde refuses; the message names the serde and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSerde:
    """A named pair of functions, as the runtime calls them.

    Both raise `SerdeError` and nothing else. `None` (no key, a tombstone) passes through.
    """

    name: str
    encode: Callable[[Any], bytes | None]
    decode: Callable[[bytes | None], Any]
