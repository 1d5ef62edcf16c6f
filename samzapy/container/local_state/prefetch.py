"""Changelogs of the tasks that come next, read while one is brought level: most of a small restore is waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from samzapy.container.ports import ChangelogPlace, Topics
from samzapy.model.grant import Grant
from samzapy.model.job import TaskName

TASKS_AHEAD: Final = 4


class ReadAhead:
    """Tells `topics` what will be asked for next.

    Args:
        grants: in the order in which they are brought level.
        places_of: what of the changelogs a task has to read. Asked once for each task, and only when one before it has
            something to read: that takes a look into its state, and after a restart most tasks are level.
    """

    def __init__(
        self, grants: Sequence[Grant], places_of: Callable[[Grant], Sequence[ChangelogPlace]], topics: Topics
    ) -> None:
        self._grants = grants
        self._places_of = places_of
        self._topics = topics
        self._places: dict[TaskName, Sequence[ChangelogPlace]] = {}
        self._number = -1

    def task_reads(self, number: int) -> None:
        """The task with that number is being read; told as often as one likes."""
        if number == self._number:
            return
        self._number = number
        window = self._grants[number : number + 1 + TASKS_AHEAD]
        for grant in window[1:]:
            if grant.task_name not in self._places:
                self._places[grant.task_name] = self._places_of(grant)
        # The task's own are still wanted, if they are fetched: it is about to ask for them.
        self._topics.read_ahead([place for grant in window for place in self._places.get(grant.task_name, ())])

    def end(self) -> None:
        """Let go of what was read for nothing."""
        if self._places:
            self._topics.read_ahead(())
