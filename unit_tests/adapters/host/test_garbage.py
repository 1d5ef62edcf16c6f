from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from samzapy.adapters.host.garbage import FULL_SEARCH_EVERY, leave_out_the_present, search_seldom


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def full_searches(rounds: int) -> int:
    """The number of full searches while many objects become old."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(note)
    try:
        kept = [[[number]] for number in range(rounds * gc.get_threshold()[0] * gc.get_threshold()[1])]
    finally:
        gc.callbacks.remove(note)
    assert kept
    return generations.count(2)


def test_full_searches_become_rare() -> None:
    # Python puts a full search off until a quarter of all objects is new, and this process may have many.
    leave_out_the_present()
    gc.collect()
    before = full_searches(60)
    search_seldom()
    gc.collect()

    assert full_searches(60) == 0 < before
    assert FULL_SEARCH_EVERY == gc.get_threshold()[2]


def test_objects_of_the_present_are_left_out_of_later_searches_and_are_still_freed() -> None:
    state = [[number] for number in range(1_000)]

    leave_out_the_present()

    frozen = gc.get_freeze_count()
    assert not any(item is state for item in gc.get_objects())
    state.clear()
    assert frozen - gc.get_freeze_count() >= 1_000
