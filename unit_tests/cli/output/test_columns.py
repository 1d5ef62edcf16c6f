"""Tables as they come out of a pipe."""

from __future__ import annotations

import pytest

from samzapy.cli import doctor
from samzapy.cli.job import group
from samzapy.cli.output import columns
from samzapy.cli.output.columns import Columns
from samzapy.cli.output.table import print_rows
from samzapy.model.finding import Finding

LONG = "x" * 2000


def test_a_cell_is_never_cut_or_folded(capsys: pytest.CaptureFixture[str]) -> None:
    Columns(("name", "reason")).write([("a", LONG), (LONG, "b")])

    assert ["NAME  REASON", f"a     {LONG}", f"{LONG}  b"] == capsys.readouterr().out.splitlines()


def test_a_long_cell_puts_no_blanks_into_other_rows(capsys: pytest.CaptureFixture[str]) -> None:
    wide = "y" * columns._PADDED_MAX

    Columns(("name", "found", "end")).write([("a", LONG, "1"), ("b", "short", "2"), ("c", wide, "3")])

    lines = capsys.readouterr().out.splitlines()
    assert f"a     {LONG}  1" == lines[1]
    assert f"b     {'short'.ljust(columns._PADDED_MAX)}  2" == lines[2]
    assert lines[2].index("2") == lines[3].index("3") == lines[0].index("END")


def test_the_last_column_is_not_padded(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "a", "reason": LONG}, {"name": "b", "reason": None}], ("name", "reason"))

    lines = capsys.readouterr().out.splitlines()
    assert ["name  reason", f"a     {LONG}", "b     -"] == lines


def test_numbers_stand_at_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "a", "lag": 5}, {"name": "b", "lag": 12345}], ("name", "lag"), numbers=("lag",))

    assert ["name    lag", "a         5", "b     12345"] == capsys.readouterr().out.splitlines()


def test_findings_of_doctor_are_whole_and_not_spread(capsys: pytest.CaptureFixture[str]) -> None:
    short = Finding(code="cluster-unreachable", subject="cluster", found="no answer", remedy="start it")
    long = Finding(code="cluster-unreachable", subject="cluster", found=LONG, remedy=LONG)

    doctor._print([short, long], [])

    _, first, second = capsys.readouterr().out.splitlines()
    assert len(first) < 200 and first.endswith("start it")
    assert second.endswith(f"{LONG}  {LONG}")


def test_the_status_of_a_job_is_whole_and_not_spread(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"processorId": "0", "executionId": "c-0", "host": "h", "pid": 7, "phase": "RUNNING", "reason": LONG},
        {"processorId": "1", "executionId": "c-1", "host": "h", "pid": 8, "phase": "RUNNING", "reason": ""},
    ]
    positions = [{"ssp": f"kafka.orders.{number}", "offsetNext": number} for number in range(200)]
    tasks = [
        {"task": "Partition 0", "processorId": "0", "owner": "c-0", "epoch": 1, "positions": positions, "lag": 3},
        {"task": "Partition 1", "processorId": "1", "owner": "c-1", "epoch": 2, "positions": [], "lag": 4},
    ]

    group._print({"job": "orders-1", "containers": rows, "tasks": tasks})

    lines = capsys.readouterr().out.splitlines()
    assert 7 == len(lines) and lines[2].endswith(LONG)
    assert not [line for line in lines if line != line.rstrip()]
    assert all("  " * 50 not in line for line in lines)
