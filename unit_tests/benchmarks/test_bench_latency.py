"""Records sent at a rate, percentiles that a run can tell, and their verdicts."""

from __future__ import annotations

import pytest
from bench import latency_plan
from bench_latency import Latency, percentiles, stream_of
from bench_latency_subjects import PLAN, latency_subjects
from bench_latency_table import Row, bars, bars_table, rows_table, section


def a_latency(
    *values: float, cores: float = 0.2, idle: float | None = None, lost: int = 0, doubled: int = 0
) -> Latency:
    return Latency(
        startup_s=9.0,
        latencies_ms=values or tuple(float(number % 7) for number in range(2000)),
        others_cores=0.0,
        cores_of={"JVM": cores},
        idle_cores=idle,
        lost=lost,
        doubled=doubled,
    )


def a_row(subject: str = "samzapy", rate: str = "200", latency: Latency | None = None) -> Row:
    return Row(subject=subject, name=subject, rate=rate, latency=latency or a_latency(), load=1.0)


@pytest.mark.parametrize(("rate", "per_s"), [("50", 50), ("200", 200), ("2000", 2000), ("10000", 10_000)])
def test_bursts_and_their_interval_make_the_rate(rate: str, per_s: int) -> None:
    stream = stream_of(rate, seconds=1, settle_s=0, idle_s=0, sparse_every_s=60)

    assert per_s == round(stream.burst / stream.every_s)
    assert stream.every_s >= 0.001


def test_a_sparse_stream_has_the_given_interval() -> None:
    stream = stream_of("sparse", seconds=1, settle_s=0, idle_s=0, sparse_every_s=5)

    assert (5, 4) == (stream.every_s, stream.burst)


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    assert [50, 99, 100] == percentiles([float(number) for number in range(1, 101)], (50, 99, 100))


def test_a_percentile_that_needs_more_records_is_left_out() -> None:
    assert [3, None, 5] == percentiles([1.0, 2.0, 3.0, 4.0, 5.0], (50, 99, 100))


def test_no_record_has_no_percentile() -> None:
    assert [None, None] == percentiles([], (50, 100))


def test_a_slow_median_fails_its_bar_alone() -> None:
    text = bars_table([a_row(latency=a_latency(*[9.0] * 2000))])

    assert "| samzapy, 200/s: p50 | <= 8 ms | 9 ms | **fail** |" in text
    assert "| samzapy, 200/s: p95 | <= 20 ms | 9 ms | pass |" in text


@pytest.mark.parametrize("latency", [a_latency(lost=1), a_latency(doubled=1)])
def test_one_record_lost_or_doubled_fails(latency: Latency) -> None:
    assert "| samzapy, 200/s: lost and doubled | <= 0 | 1 | **fail** |" in bars_table([a_row(latency=latency)])


def test_the_share_of_cores_is_of_the_same_rate_without_tails() -> None:
    rows = [
        a_row("samzapy-keyed", "2000", a_latency(cores=0.5)),
        a_row("samzapy-no-tail", "2000", a_latency(cores=9.0)),
        a_row("samzapy-no-tail-keyed", "200", a_latency(cores=9.0)),
        a_row("samzapy-no-tail-keyed", "2000", a_latency(cores=1.0)),
    ]

    assert [0.5] == [bar.measured for bar in bars(rows) if "of those without tails" in bar.title]


def test_others_than_samzapy_with_tails_have_no_bar() -> None:
    assert [] == bars([a_row("samzapy-no-tail"), a_row("client")])


def test_a_row_shows_idle_cores_only_where_they_were_measured() -> None:
    assert "| 0.20, 0.00, 0.00, 0.00 | 0.012 | 0 | 0 |" in rows_table([a_row(latency=a_latency(idle=0.012))])
    assert "| 0.20, 0.00, 0.00, 0.00 | - | 0 | 0 |" in rows_table([a_row()])


def test_the_section_names_skipped_subjects() -> None:
    assert "- bytewax: skipped; no wheel." in section([a_row()], ["bytewax: skipped; no wheel."], [])


def test_each_row_of_the_plan_has_a_subject() -> None:
    assert {subject for subject, _ in PLAN} <= set(latency_subjects({}))


def test_named_subjects_run_at_each_named_rate_and_others_as_planned() -> None:
    assert [("quix", "7"), ("quix", "8")] == latency_plan(["quix"], ["7", "8"])
    assert {"sparse"} == {rate for _, rate in latency_plan([], ["sparse"])}
    assert {"client"} == {subject for subject, _ in latency_plan(["client"], [])}
    assert PLAN == tuple(latency_plan([], []))
