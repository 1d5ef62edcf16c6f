"""When local state that no task on this host needs is removed.

A task may be gone for good: its input was deleted, or the grouping of inputs or the cutting of keys has changed. Its
local state would stay for ever, since everything else looks only at granted tasks. It is removed when

- the task is in no plan in force, and no execution that is not gone may still work for it (`Orders.tasks_in_use`);
- no process on this host has it open;
- it was not written for half of the changelog's tombstone retention. Then `restore.doubt` refuses it, also as a source
  for another task. An execution that is granted the task or its keys builds the state from the changelog.

If a worker's directory is removed all the same, its query fails, and the next start builds the state from the
changelog. So no state is lost when two processes know different plans; the conditions only avoid double work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from samzapy.container.ports import StateDirectory
from samzapy.model.job import TaskName
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS

UNUSED_MS: Final = CHANGELOG_DELETE_RETENTION_MS // 2
REMOVED_AT_ONCE_MAX: Final = 10
"""Files may be large, and the thread that removes them also watches the query. The rest follows a minute later."""


def remove_unused(
    in_use: Collection[TaskName],
    tasks_here: Sequence[TaskName],
    state_of: Callable[[str], StateDirectory],
    now_ms: int,
) -> Sequence[TaskName]:
    """Remove local state of tasks that are not `in_use`; returns those tasks.

    `now_ms` is wall clock.
    """
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
