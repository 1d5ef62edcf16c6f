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


def test_a_crash_point_in_a_tail_or_a_tick_also_has_a_name_of_its_own() -> None:
    hits = Hits()
    points = WorkerCrashPoints(hits)

    points.hit("before-begin")
    with points.during("tick"):
        points.hit("before-fire")
        with points.during("tail"):
            points.hit("before-begin")
        points.hit("after-fire")
    points.hit("before-commit")

    of_tick = [
        "before-fire",
        "tick-before-fire",
        "before-begin",
        "tail-before-begin",
        "after-fire",
        "tick-after-fire",
    ]
    assert ["before-begin", *of_tick, "before-commit"] == hits.names


def test_a_crash_point_that_only_tails_have_is_hit_once() -> None:
    hits = Hits()
    points = WorkerCrashPoints(hits)

    with points.during("tail"):
        points.hit("tail-at-the-common-end")

    assert ["tail-at-the-common-end"] == hits.names
