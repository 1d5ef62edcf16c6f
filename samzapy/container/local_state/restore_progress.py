"""The progress of a start that restores local state, and the time left.

It is reported only when the restore takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

REPORT_EVERY_MS: Final = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    """How far it is. Counts of records are of offsets, markers included.

    Attributes:
        tasks, level: how many there are, and how many of them are level.
        restored, total: records of the changelogs that were read, and that are to be read in all.
        left_ms: how long the rest takes at the pace so far; None while nothing was read.
    """

    tasks: int
    level: int
    restored: int
    total: int
    left_ms: int | None

    def as_json(self) -> Mapping[str, int]:
        """As figures of a heartbeat (`coordinator.assignment.heartbeat_json`)."""
        left = {} if self.left_ms is None else {"restoreLeftMs": self.left_ms}
        return {"restored": self.restored, "restoreTotal": self.total, **left}

    def __str__(self) -> str:
        left = "" if self.left_ms is None else f", about {-(-self.left_ms // 1000)} s left"
        read = f"{self.restored:,} of {self.total:,} records were read"
        return f"{self.level} of {self.tasks} tasks are level, {read}{left}"


class RestoreProgress:
    """Counts the tasks that were restored, and reports the progress from time to time.

    Args:
        ahead_of: the number of offsets that each task from that number on has to read. Called once, at the first
            report: the call opens each task's state, and most starts are over by then.
        now_ms: monotonic.
    """

    def __init__(
        self,
        tasks: int,
        *,
        ahead_of: Callable[[int], Sequence[int]],
        now_ms: Callable[[], int],
        report: Callable[[Restoring], None],
    ) -> None:
        self._tasks = tasks
        self._ahead_of = ahead_of
        self._now_ms = now_ms
        self._report = report
        self._begun_ms = self._reported_ms = now_ms()
        self._level = 0
        self._restored = 0
        self._own = (0, 0)
        # By task, from `_ahead_from` on.
        self._ahead: Sequence[int] | None = None
        self._ahead_from = 0

    def task_reads(self, read: int, to_read: int) -> None:
        """Note the number of offsets that the current task has read, of `to_read`."""
        self._own = (read, to_read)
        now_ms = self._now_ms()
        if now_ms - self._reported_ms < REPORT_EVERY_MS:
            return
        self._reported_ms = now_ms
        so_far = self._so_far(now_ms)
        if so_far.restored < so_far.total:
            self._report(so_far)

    def task_is_level(self) -> None:
        """Note that the current task has caught up; the next one follows."""
        self._level += 1
        self._restored += self._own[1]
        self._own = (0, 0)

    def _so_far(self, now_ms: int) -> Restoring:
        if self._ahead is None:
            self._ahead_from = self._level + 1
            self._ahead = self._ahead_of(self._ahead_from)
        restored = self._restored + self._own[0]
        left = self._own[1] - self._own[0] + sum(self._ahead[self._level + 1 - self._ahead_from :])
        return Restoring(
            tasks=self._tasks,
            level=self._level,
            restored=restored,
            total=restored + left,
            left_ms=(now_ms - self._begun_ms) * left // restored if restored else None,
        )
