"""Full searches for garbage, which stop all threads of a process.

Python looks through all its objects for cycles. With 1,000 containers that took 70 ms, and the page of 20 viewers made
it happen every few seconds: a heartbeat waited for it. The state of a coordinator has no cycles.
"""

from __future__ import annotations

import gc
from typing import Final

FULL_SEARCH_EVERY: Final = 200
"""Smaller searches before a full one; 10 by default."""


def search_seldom() -> None:
    """Make full searches rare. Smaller ones, of 3 ms at most, stay as they are."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_SEARCH_EVERY)


def leave_out_the_present() -> None:
    """Search once, and leave all objects that there are now out of later searches.

    They are freed as before when nothing refers to them; only a cycle among them stays.
    """
    gc.collect()
    gc.freeze()
