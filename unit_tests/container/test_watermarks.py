"""The watermark of a task now, and the input that holds it back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from samzapy.container.task.clocks import FAR_MS, UNKNOWN_MS, ClockRules, Inherited, Moment, TaskClocks
from samzapy.container.watermarks import standing
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.time_figures import SeenClock, TimeFigures

A, B = "kafka.orders.0:0/1", "kafka.rates.0:0/1"
IDLE_MS = 1000
WALL_MS = 1_000_000


def now(
    inputs: Mapping[str, SeenClock],
    covered_ms: Mapping[str, int] | None = None,
    *,
    watermark_ms: int | None = 400_000,
    idle_ms: int = IDLE_MS,
) -> tuple[int | None, int | None, str]:
    """Watermark, lag, and the input that holds it back."""
    seen = TimeFigures(at_ms=5, watermark_ms=watermark_ms, timers_pending=3, inputs=inputs)
    watermark = standing(seen, covered_ms or {}, idle_ms=idle_ms, wall_ms=WALL_MS)
    assert (5, 3, {}) == (watermark.at_ms, watermark.timers_pending, watermark.inputs)
    return watermark.watermark_ms, watermark.lag_ms, watermark.held_by


def clock(clock_ms: int, quiet_since_ms: int = 0, *, is_known: bool = True) -> SeenClock:
    return SeenClock(clock_ms, quiet_since_ms, is_known)


def test_the_input_with_the_least_clock_holds_the_watermark_back() -> None:
    assert (400_000, 600_000, B) == now({A: clock(900_000), B: clock(400_000)})


def test_an_unknown_input_holds_the_watermark_back_until_it_is_covered() -> None:
    inputs = {A: clock(400_000), B: clock(FAR_MS, is_known=False)}

    assert (None, None, B) == now(inputs, watermark_ms=None)
    assert (400_000, 600_000, A) == now(inputs, {B: 1}, watermark_ms=None)


def test_the_clock_of_a_quiet_input_runs_once_it_is_covered() -> None:
    quiet = {A: clock(400_000, quiet_since_ms=50)}

    assert 400_000 == now(quiet, {A: 50 + IDLE_MS})[0]
    assert (400_007, 599_993, A) == now(quiet, {A: 57 + IDLE_MS})
    assert 400_000 == now(quiet, {A: 10**9}, idle_ms=0)[0]


def test_a_quiet_input_passes_one_that_is_not_read_to_its_end() -> None:
    inputs = {A: clock(400_000), B: clock(400_100)}

    assert (400_100, 599_900, B) == now(inputs, {A: IDLE_MS + 5000})


def test_an_input_that_has_ended_holds_nothing_back() -> None:
    inputs = {A: clock(400_000), B: clock(450_000)}

    assert (450_000, 550_000, B) == now(inputs, {A: FAR_MS})
    for idle_ms in (0, IDLE_MS):
        assert (400_000, 600_000, "") == now(inputs, {A: FAR_MS, B: FAR_MS}, idle_ms=idle_ms)


def test_the_watermark_never_falls_to_the_clock_of_a_new_input() -> None:
    assert (400_000, 600_000, A) == now({A: clock(100)})


def test_a_watermark_ahead_of_the_hosts_clock_has_no_lag() -> None:
    assert (WALL_MS + 9, 0, A) == now({A: clock(WALL_MS + 9)})


@pytest.mark.parametrize("covered_ms", [2000, 2500, 10_000])
def test_the_watermark_is_that_of_a_timer_at_the_same_moment(covered_ms: int) -> None:
    """By the clocks of the worker, which let time pass only for a timer."""
    ssp_kbs = {0: SspKeyBucket.parse(A), 1: SspKeyBucket.parse(B)}
    clocks = TaskClocks(ClockRules(disorder_ms={0: 0, 1: 0}, idle_ms=IDLE_MS))
    ssp_of = {route: str(ssp_kb.ssp) for route, ssp_kb in ssp_kbs.items()}
    clocks.begin(Inherited(watermark_ms=None, inputs={}, parts=()), ssp_of, Moment(0, WALL_MS))
    clocks.advance(0, 5000)
    clocks.advance(1, 6000)
    clocks.entry(1, "e1", ssp_of, {0: 1, 1: 1}, Moment(900, WALL_MS))
    clocks.committed()
    seen = clocks.seen(ssp_kbs)
    covered = {0: covered_ms, 1: covered_ms}

    shown_ms = now(seen, {A: covered_ms, B: covered_ms}, watermark_ms=clocks.watermark_ms)[0]

    clocks.note_timer(clocks.watermark_ms + 1)
    clocks.pass_time(covered)
    assert clocks.watermark_ms == shown_ms > UNKNOWN_MS
