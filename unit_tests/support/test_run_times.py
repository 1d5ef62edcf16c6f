from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from integration_tests.support.run_times import LONGEST_FIRST, RunTimes, place

Phase = Literal["setup", "call", "teardown"]
REPOSITORY = Path(__file__).parents[2]
UNIT, STORY = "unit_tests/model/test_ssp.py", "integration_tests/test_an_auditor_reads_the_stream.py"


def a_report(
    path: str, worker: str, phase: Phase, duration_s: float, keyword: str = "", *, cpu_s: float = 0.0
) -> pytest.TestReport:
    keywords = {keyword: True} if keyword else {}
    place = (path, 1, "")
    report = pytest.TestReport(f"{path}::test", place, keywords, "passed", None, phase, (), duration_s)
    report.__dict__.update(worker_id=worker, cpu_s=cpu_s)
    return report


def test_every_file_that_runs_first_is_there() -> None:
    there = {path.name for path in REPOSITORY.glob("*_tests/**/test_*.py")}

    assert [] == [name for name in LONGEST_FIRST if name not in there]


def test_listed_files_run_first_and_unit_tests_last() -> None:
    """Else a long file that is not listed yet begins when the others have ended."""
    listed = [f"integration_tests/{name}" for name in LONGEST_FIRST[:2]]

    assert [*listed, STORY, UNIT] == sorted([UNIT, STORY, *reversed(listed)], key=place)


def test_the_summary_adds_up_all_phases_by_group_and_by_file() -> None:
    times = RunTimes()
    times.add(a_report(UNIT, "gw0", "setup", 0.5, cpu_s=0.25), 1.0)
    times.add(a_report(UNIT, "gw0", "call", 2.0), 3.0)
    times.add(a_report(STORY, "gw1", "setup", 8.0, "ledger"), 8.0)
    times.add(a_report(STORY, "gw1", "call", 30.0, "ledger", cpu_s=40.0), 38.0)
    times.add(a_report(STORY, "gw1", "teardown", 1.0, "ledger", cpu_s=0.5), 39.0)

    lines = times.lines(40.0, "setup 12 s")

    assert "before the tests: setup 12 s" == lines[0]
    assert "tests: 40 s; 2 workers spent 42 s and 41 s of CPU, and were without work at the end for 36 s" == lines[1]
    assert "   39.0 s,    9.0 s of it set-up,   40.5 s of CPU,     1 tests  integration: ledgers" == lines[2]
    assert "    2.5 s,    0.5 s of it set-up,    0.2 s of CPU,     1 tests  unit" == lines[3]
    assert "the 2 longest of 2 files:" == lines[4]
    assert [STORY, UNIT] == [line.split()[-1] for line in lines[5:]]
