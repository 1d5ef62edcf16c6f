"""Reads changelogs ahead: those of the next tasks, while one is restored.

Most of the time of a small restore is waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from samzapy.container.ports import ChangelogPlace, Topics
from samzapy.model.grant import Grant
from samzapy.model.job import TaskName

TASKS_AHEAD: Final = 4


class ReadAhead:
    """Requests the changelogs of the next tasks from `topics`.

    Args:
        grants: in the order of the restores.
        places_of: the parts of the changelogs that a task has to read. Called once for each task, and only when a task
            before it has something to read, because the call opens the task's state.
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
        """Note that this task is being restored; may be called any number of times."""
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
        """Release the connections of tasks that were not read."""
        if self._places:
            self._topics.read_ahead(())
