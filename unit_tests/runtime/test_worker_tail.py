"""The names of a worker's crash points."""

from __future__ import annotations

from samzapy.adapters.host.crash_points import ArmedCrashPoints
from samzapy.runtime.worker_tail import WorkerCrashPoints


class Hits(ArmedCrashPoints):
    """Keeps the names, and ends no process."""

    def __init__(self) -> None:
        super().__init__(())
        self.names: list[str] = []

    def hit(self, name: str) -> None:
        self.names.append(name)


def test_a_crash_point_in_a_tail_also_has_a_name_of_its_own() -> None:
    hits = Hits()
    points = WorkerCrashPoints(hits)

    points.hit("before-begin")
    points.in_tail = True
    points.hit("before-begin")
    points.in_tail = False
    points.hit("before-commit")

    assert ["before-begin", "before-begin", "tail-before-begin", "before-commit"] == hits.names


def test_a_crash_point_that_only_tails_have_is_hit_once() -> None:
    hits = Hits()
    points = WorkerCrashPoints(hits)
    points.in_tail = True

    points.hit("tail-at-the-common-end")

    assert ["tail-at-the-common-end"] == hits.names
