"""What `samzapy job top` shows of two looks at a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from samzapy.cli.job import top as module
from samzapy.cli.job.group import job
from unit_tests.inspection.test_load import a_status

ARGUMENTS = ["top", "--job", "flights-1", "--bootstrap-servers", "nowhere:1"]


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> Sequence[Any]:
    """Two seconds apart: 400 records, and 1.5 of 2 s of batches, of one task; the other one was idle."""
    before, now = a_status(1000, records=100), a_status(3000, records=500, busy_ns=15 * 10**8, batch_ns=2 * 10**9)
    for status in (before, now):
        idle = {
            "task": "Partition_0-0-2",
            "processorId": "0",
            "owner": "e1",
            "lag": 0,
            "figures": {},
            "positions": [],
        }
        status["tasks"].insert(0, idle)
    looks = iter([before, now])
    monkeypatch.setattr(module, "read_status", lambda address: next(looks))
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    return before, now


def test_without_a_terminal_the_load_is_printed_once_with_the_busiest_task_first() -> None:
    found = CliRunner().invoke(job, ARGUMENTS)

    assert 0 == found.exit_code, found.output
    heading, processor, hint, _, columns, first, second = found.stdout.splitlines()
    assert "flights-1  factor 2  tasks 2  200 records/s  lag 60" == heading
    assert "processor 0  2 tasks  0.8 of 2 cores busy" == processor
    assert hint.startswith("keeps-up: ")
    assert "SHARE OF BATCH" in columns
    assert ["Partition_0-1-2", "0", "200", "30", "75%", "-", "N1", "75%"] == first.split()[:8]
    assert "kafka.orders.0:1/2 200/s lag 30" in first
    assert ["Partition_0-0-2", "0", "-", "0", "0%", "-", "-", "-"] == second.split()


def test_the_load_is_printed_as_json() -> None:
    found = json.loads(CliRunner().invoke(job, [*ARGUMENTS, "-o", "json"]).stdout)

    assert ("keeps-up", 200.0) == (found["advice"], found["recordsPerS"])
    assert [False, False] == [task["tailing"] for task in found["tasks"]]


def test_a_task_that_tails_is_marked(looks: Sequence[Any]) -> None:
    looks[1]["tasks"][1]["positions"][0]["tailing"] = True

    text = CliRunner().invoke(job, ARGUMENTS).stdout.splitlines()

    assert ["75%", "yes", "N1"] == text[-2].split()[4:7]
    assert ["0%", "-", "-"] == text[-1].split()[4:7]


def test_a_task_that_tails_is_marked_for_programs(looks: Sequence[Any]) -> None:
    looks[1]["tasks"][1]["positions"][0]["tailing"] = True

    found = json.loads(CliRunner().invoke(job, [*ARGUMENTS, "-o", "json"]).stdout)

    assert {"Partition_0-0-2": False, "Partition_0-1-2": True} == {
        task["task"]: task["tailing"] for task in found["tasks"]
    }


def test_omitted_tasks_are_counted() -> None:
    found = CliRunner().invoke(job, [*ARGUMENTS, "--limit", "1"]).stdout

    assert "… and 1 more" in found
    assert "Partition_0-0-2" not in found
