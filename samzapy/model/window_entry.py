"""The entry that keeps when a task's `window` was called last.

It belongs to the task (`stream.changelog.task_entry_key`), has no name, and its value is the moment of the call as a
long: milliseconds since 1970, a multiple of task.window.ms as it was then. A task also takes the entries of the tasks
that had its keys before (`container.task.window_ticks`).
"""

from __future__ import annotations

from typing import Final

STORE: Final = "_window"
"""The name of the store."""
KIND: Final = "window"
"""Its kind, `stores._window.kind`. Its scope is `bucket`, as of clocks."""


def tick_at(wall_ms: int, interval_ms: int) -> int:
    """The moment of the newest tick up to `wall_ms`."""
    return wall_ms // interval_ms * interval_ms


def next_tick_ms(last_ms: int, interval_ms: int) -> int:
    """The moment of the first tick after `last_ms`, which may be of another interval."""
    return tick_at(last_ms, interval_ms) + interval_ms
