"""The longest silence of outputs after a fault."""

from __future__ import annotations

import pytest

from integration_tests.support.silence import Silence, longest_silence


@pytest.mark.parametrize(
    ("arrivals_s", "silence"),
    [
        pytest.param([10.5, 11.0, 14.0, 14.5], Silence(1.0, 3.0), id="between two outputs"),
        pytest.param([2.0, 9.9, 12.5, 14.0], Silence(0.0, 2.5), id="from the fault on, not from the output before"),
        pytest.param([11.0, 20.0], Silence(1.0, 4.0), id="until now, if the outputs have not come again"),
        pytest.param([], Silence(0.0, 5.0), id="without any output"),
    ],
)
def test_the_longest_silence_begins_at_the_fault_or_later(arrivals_s: list[float], silence: Silence) -> None:
    assert silence == longest_silence([arrivals_s], 10.0, 15.0)


def test_a_partition_is_silent_although_another_one_is_not() -> None:
    assert Silence(1.0, 3.0) == longest_silence([[11.0, 12.0, 13.0, 14.0], [11.0, 14.0]], 10.0, 15.0)
