"""Medians, ratios, verdicts, and a page in which each run replaces its section."""

from __future__ import annotations

import re

import pytest
from bench import PAGE, memory_section
from bench_latency import Latency
from bench_measure import Steady
from bench_report import (
    SECTIONS,
    Memory,
    Reach,
    Throughput,
    growth_of,
    latency_table,
    memory_by_million,
    memory_table,
    ratio_of,
    reach_table,
    throughput_table,
    with_section,
)


def a_run(subject: str = "copy", per_cpu_s: float = 100.0, size: int = 100) -> Throughput:
    steady = Steady(records=int(per_cpu_s * 1000), wall_s=500.0, cpu_s={"JVM": 600.0, "workers": 400.0})
    return Throughput(subject=subject, size=size, steady=steady, first_s=10.0, others_cores=0.25)


def a_reach(bound: float, size: int = 100) -> Reach:
    return Reach(title="1:1", subject="copy", base="plain", size=size, bound=bound)


def a_latency(*values: float) -> Latency:
    return Latency(startup_s=12.0, latencies_ms=values, others_cores=0.25)


def test_a_ratio_is_that_of_the_medians() -> None:
    runs = [a_run("copy", 1.0), a_run("copy", 90.0), a_run("copy", 80.0), a_run("plain", 100.0)]

    assert 0.8 == ratio_of(runs, a_reach(0.9))


def test_runs_of_another_record_size_are_not_compared() -> None:
    runs = [a_run("copy", 50.0), a_run("plain", 100.0), a_run("copy", 90.0, size=1000)]

    assert 0.5 == ratio_of(runs, a_reach(0.9))


def test_without_both_subjects_there_is_no_ratio() -> None:
    assert ratio_of([a_run("copy")], a_reach(0.9)) is None
    assert 2 == len(reach_table([a_run("copy")], {}, [a_reach(0.9)]).splitlines())


def test_a_bound_that_is_just_reached_is_reached() -> None:
    runs = [a_run("copy", 90.0), a_run("plain", 100.0)]

    assert "| >= 0.90 | 0.90 | pass |" in reach_table(runs, {}, [a_reach(0.9)])
    assert "| >= 0.91 | 0.90 | **fail** |" in reach_table(runs, {}, [a_reach(0.91)])


def test_latency_is_to_be_at_most_its_bound() -> None:
    latencies = {"copy": [a_latency(130.0)], "plain": [a_latency(100.0)]}

    assert "| <= 1.30 | 1.30 | pass |" in reach_table([], latencies, [a_reach(1.3, size=0)])
    assert "| <= 1.29 | 1.30 | **fail** |" in reach_table([], latencies, [a_reach(1.29, size=0)])


def test_a_row_has_the_median_the_range_and_the_cost_by_role() -> None:
    runs = [a_run("copy", 1000.0), a_run("copy", 3000.0), a_run("copy", 2000.0)]

    *_, row = throughput_table(runs, {"copy": "1:1"}).splitlines()

    assert "| 100 | 1:1 | **2** | 1-3 | 4 | 300.00 | 0.00 | 0.00 | 200.00 | 10.0 | 0.25 |" == row


def test_a_latency_row_has_median_and_tail() -> None:
    *_, row = latency_table({"copy": [a_latency(1.0, 2.0, 9.0)]}, {"copy": "1:1"}).splitlines()

    assert "| 1:1 | **2** | 2-2 | 9 | 12.0 | 3 | 0.25 |" == row


def test_a_run_replaces_its_own_section_and_no_other() -> None:
    page = with_section(with_section("", "rss", "memory"), "data", "old figures")

    page = with_section(page, "data", "new figures")

    assert "old" not in page
    assert page.index("new figures") < page.index("memory")


def test_text_written_by_hand_stays() -> None:
    page = with_section(with_section("", "rss", "memory"), "data", "figures") + "\n## Failover\n\nby hand\n"

    page = with_section(with_section(page, "audit", "replay"), "data", "other figures")

    assert page.endswith("\n## Failover\n\nby hand\n")
    assert page.count("by hand") == page.count("replay") == page.count("other figures") == 1


def test_the_same_section_twice_is_the_same_page() -> None:
    page = with_section(with_section("", "rss", "memory"), "data", "figures")

    assert page == with_section(page, "data", "figures")


@pytest.mark.parametrize("name", re.findall("<!-- begin (.+) -->", PAGE.read_text(encoding="utf-8")))
def test_a_section_of_the_page_is_replaced_in_its_place(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
    before, old, after = re.split(f"{begin}|{end}", page)

    assert page == with_section(page, name, old)
    assert f"{before}{begin}new figures{end}{after}" == with_section(page, name, "new figures")


def test_a_section_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match=f"wanted a section of {', '.join(SECTIONS)}, found timer"):
        with_section("", "timer", "figures")


def test_of_each_million_the_largest_moment_counts() -> None:
    samples = [
        Memory(records=done, mib={"JVM": mib})
        for done, mib in ((0, 10), (900, 30), (1000, 20), (1001, 40), (2000, 5))
    ]

    steps = memory_by_million(samples, step=1000)

    assert [(1000, 30), (2000, 40)] == [(step.records, step.total_mib) for step in steps]
    assert "| 0.002 M | 40 | 0 | 0 | 40 |" == memory_table(steps).splitlines()[-1]


def test_growth_leaves_the_first_step_out() -> None:
    steps = [Memory(records=number, mib={"JVM": mib}) for number, mib in ((1, 10), (2, 100), (3, 110))]

    assert 1.1 == growth_of(steps, lambda step: step.total_mib)


def test_memory_is_shown_with_the_conditions_under_which_it_was_measured() -> None:
    steps = [Memory(records=million * 1_000_000, mib={"JVM": 500.0, "workers": 100.0}) for million in (1, 2, 3)]

    section = memory_section(3_000_000, steps, ["2026-11-24; 2 x a processor; load average 0.1 before, 2.0 after."])

    assert "A keyed count over 3,000,000 records" in section
    assert "x 1.00 (at most" in section
    assert section.endswith("Conditions:\n\n- 2026-11-24; 2 x a processor; load average 0.1 before, 2.0 after.")
