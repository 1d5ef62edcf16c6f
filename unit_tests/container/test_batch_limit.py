from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.container.batch_limit import COLD_MS, OFFSETS_LEAST, BatchBound

BOUND = BatchBound(offsets=10_000, offsets_max=200_000, limit_ms=1000)


def test_a_micro_batch_within_its_time_continues() -> None:
    assert BOUND == BOUND.overrun(1000)


def test_a_batch_that_takes_longer_is_ended_and_the_next_ones_are_a_quarter() -> None:
    assert 2500 == BOUND.overrun(1001).offsets


def test_the_first_batch_of_a_process_may_take_longer() -> None:
    assert BOUND == BOUND.overrun(1000 + COLD_MS, is_first=True)
    assert 2500 == BOUND.overrun(1001 + COLD_MS, is_first=True).offsets


def test_batches_of_the_least_size_are_not_ended() -> None:
    least = BatchBound(offsets=OFFSETS_LEAST, offsets_max=200_000, limit_ms=1000)

    assert least == least.overrun(10**9)


def test_a_short_and_full_batch_lets_the_next_ones_grow_up_to_the_configured_size() -> None:
    assert 40_000 == BOUND.ended(125, 10_000).offsets
    assert 200_000 == BatchBound(offsets=100_000, offsets_max=200_000, limit_ms=1000).ended(1, 100_000).offsets


@pytest.mark.parametrize(("took_ms", "read"), [(126, 10_000), (1, 4_999)], ids=["not short", "not full"])
def test_other_batches_change_nothing(took_ms: int, read: int) -> None:
    assert BOUND == BOUND.ended(took_ms, read)


@given(st.floats(0.0001, 1000.0), st.integers(1, 500_000))
def test_the_limit_settles_if_a_record_always_costs_the_same(record_ms: float, offsets_max: int) -> None:
    bound = BatchBound(offsets=offsets_max, offsets_max=offsets_max, limit_ms=1000)
    seen = []
    for _ in range(30):
        seen.append(bound)
        took_ms = int(bound.offsets * record_ms)
        bound = bound.overrun(min(took_ms, 1001)).ended(took_ms, bound.offsets)

    assert seen[-1] == bound
    assert bound.offsets <= max(OFFSETS_LEAST, 1001 / record_ms) or bound.offsets == min(OFFSETS_LEAST, offsets_max)
