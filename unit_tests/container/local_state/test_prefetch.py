from __future__ import annotations

from collections.abc import Sequence

from samzapy.container.local_state.prefetch import TASKS_AHEAD, ReadAhead
from samzapy.container.ports import ChangelogPlace
from samzapy.model.grant import Grant
from samzapy.model.job import TaskName
from samzapy.testing.builders import a_grant


class AStart:
    """Tasks t0, t1, ... with one changelog each, the looks at them, and the reports."""

    def __init__(self, count: int) -> None:
        self.grants = [a_grant(f"t{number}") for number in range(count)]
        self.looked_at: list[TaskName] = []
        self.announced: list[list[ChangelogPlace]] = []
        self.ahead = ReadAhead(self.grants, self._places_of, self)  # type: ignore[arg-type]

    def _places_of(self, grant: Grant) -> Sequence[ChangelogPlace]:
        self.looked_at.append(grant.task_name)
        return [("sums", int(grant.task_name[1:]), 7)]

    def read_ahead(self, places: Sequence[ChangelogPlace]) -> None:
        self.announced.append(list(places))


def test_the_tasks_that_follow_are_read_ahead_and_each_is_looked_at_once() -> None:
    start = AStart(TASKS_AHEAD + 2)

    for number in (0, 0, 1, TASKS_AHEAD + 1):
        start.ahead.task_reads(number)
    start.ahead.end()

    window = [("sums", number, 7) for number in range(TASKS_AHEAD + 2)]
    # From the second on, that of the task itself as well: it has been fetched, and is about to be asked for.
    assert [window[1 : 1 + TASKS_AHEAD], window[1 : 2 + TASKS_AHEAD], window[-1:], []] == start.announced
    assert [grant.task_name for grant in start.grants[1:]] == start.looked_at


def test_where_nothing_is_read_no_state_is_looked_at() -> None:
    start = AStart(3)

    start.ahead.end()

    assert ([], []) == (start.looked_at, start.announced)
