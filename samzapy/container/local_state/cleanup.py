"""Local state that nobody on this host has a use for, and when it is removed.

A task may be gone for good: its input was deleted, or the inputs are grouped, or their keys cut, in another way. What
it had on this host would stay for ever, since every other look is at tasks that are granted. It is removed when

- the task is in no plan in force, and no execution that is not gone may still work for it (`Orders.tasks_in_use`);
- no process on this host has it open;
- nothing was written to it for half of the changelog's tombstone retention. Then `restore.doubt` refuses it, also
  where it would be inherited from, so whoever was granted the task, or its keys, would build the state anew.

A worker whose directory goes away all the same fails its query, and the start behind that builds the state from the
changelog. So nothing is lost when two processes know different plans; the conditions keep work from being done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from samzapy.container.ports import StateDirectory
from samzapy.model.job import TaskName
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS

UNUSED_MS: Final = CHANGELOG_DELETE_RETENTION_MS // 2
REMOVED_AT_ONCE_MAX: Final = 10
"""Files may be large, and whoever removes them also watches the query. What is left goes a minute later."""


def remove_unused(
    in_use: Collection[TaskName],
    tasks_here: Sequence[TaskName],
    state_of: Callable[[str], StateDirectory],
    now_ms: int,
) -> Sequence[TaskName]:
    """Remove local state of tasks that are not `in_use`; returns whose it was. `now_ms` is wall clock."""
    removed: list[TaskName] = []
    for name in sorted(set(tasks_here).difference(in_use)):
        if len(removed) == REMOVED_AT_ONCE_MAX:
            break
        directory = state_of(name)
        since_ms = directory.unused_since_ms()
        if since_ms is not None and now_ms - since_ms > UNUSED_MS:
            directory.remove()
            removed.append(name)
    return removed
