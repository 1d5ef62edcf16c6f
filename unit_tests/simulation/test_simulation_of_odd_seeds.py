"""The other half of the histories of `test_simulation`, and walks.

Files run side by side; tests of one file do not.
"""

from __future__ import annotations

import pytest

from simulation.configurations import Kind
from simulation.simulate import simulate
from unit_tests.simulation.test_simulation import COUNT, PARTS

pytestmark = pytest.mark.slow

WALKS = 2
"""Tests that share the walks."""
WALK_EVENT_COUNT = 600
WALK_COUNT = max(4, COUNT // 40)
COUNTED = 16
"""Walks whose changes are counted; always as many, so that the figures below are theirs."""


@pytest.mark.parametrize("part", range(1, PARTS, 2))
def test_no_history_breaks_a_law_and_each_comes_to_rest(part: int) -> None:
    for seed in range(part, COUNT, PARTS):
        simulate(seed)


@pytest.mark.parametrize("part", range(WALKS))
def test_a_job_that_is_scaled_all_the_time_comes_to_rest_with_all_its_state(part: int) -> None:
    """The operator's walk between 1 and 8 key buckets, with growth and deaths.

    Inputs grow, and processes die anywhere.
    """
    for seed in range(part, WALK_COUNT, WALKS):
        simulate(seed, WALK_EVENT_COUNT, kind=Kind.WALK)


def test_walks_have_many_changes_and_deaths() -> None:
    """A walk shows changes only while they happen.

    The means were 4.2, 4.1 and 9.7 of each walk.
    """
    walks = [simulate(seed, WALK_EVENT_COUNT, kind=Kind.WALK) for seed in range(COUNTED)]

    assert sum(walk.factor_changes for walk in walks) / COUNTED >= 3
    assert sum(walk.expansions for walk in walks) / COUNTED >= 3
    assert sum(walk.deaths for walk in walks) / COUNTED >= 7
    assert max(walk.factor_changes for walk in walks) >= 6
    assert sum(walk.floored_grants for walk in walks) >= COUNTED
