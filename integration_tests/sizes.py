"""The lengths of ledger runs: short as in CI, or long with `SAMZAPY_LEDGERS=full`."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

VARIABLE = "SAMZAPY_LEDGERS"
_ASKED_FOR = os.environ.get(VARIABLE, "")
if _ASKED_FOR not in ("", "full"):
    raise ValueError(f"{VARIABLE}: wanted `full`, or nothing for the short runs, found `{_ASKED_FOR}`")
FULL = _ASKED_FOR == "full"


def sized(full: T, *, short: T) -> T:
    """The one of the two that this run is for."""
    return full if FULL else short
