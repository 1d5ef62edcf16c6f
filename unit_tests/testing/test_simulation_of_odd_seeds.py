"""The other half of the histories of `test_simulation`: files run side by side, tests of one file do not."""

from __future__ import annotations

import pytest

from samzapy.testing.simulation.world import simulate
from unit_tests.testing.test_simulation import COUNT, PARTS


@pytest.mark.parametrize("part", range(1, PARTS, 2))
def test_no_history_breaks_a_law_and_each_comes_to_rest(part: int) -> None:
    for seed in range(part, COUNT, PARTS):
        simulate(seed)
