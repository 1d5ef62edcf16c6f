"""The output of `samzapy job top` after two looks at a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from samzapy.cli.job import top as module
from samzapy.cli.job.group import job
from unit_tests.inspection.test_load import a_status

ARGUMENTS = ["top", "--job", "flights-1", "--bootstrap-servers", "nowhere:1"]


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> Sequence[Any]:
    """Two looks, two seconds apart, at a busy task and an idle one.

    The busy one has 400 records, and 1.5 of 2 s of batches.
    """
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
    monkeypatch.setattr("samzapy.cli.target.status.read_status", lambda address: next(looks))
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: None))
    return before, now


def test_without_a_terminal_the_load_is_printed_once_with_the_busiest_task_first() -> None:
    result = CliRunner().invoke(job, ARGUMENTS)

    assert 0 == result.exit_code, result.output
    heading, processor, hint, _, columns, first, second = result.stdout.splitlines()
    assert "flights-1  factor 2  tasks 2  200 records/s  lag 60" == heading
    assert "processor 0  2 tasks  0.8 of 2 cores busy" == processor
    assert hint.startswith("keeps-up: ")
    assert "SHARE OF BATCH" in columns
    assert ["Partition_0-1-2", "0", "200", "30", "75%", "-", "N1", "75%"] == first.split()[:8]
    assert "kafka.orders.0:1/2 200/s lag 30" in first
    assert ["Partition_0-0-2", "0", "-", "0", "0%", "-", "-", "-"] == second.split()


def test_the_load_is_printed_as_json() -> None:
    output = json.loads(CliRunner().invoke(job, [*ARGUMENTS, "-o", "json"]).stdout)

    assert ("keeps-up", 200.0) == (output["advice"], output["recordsPerS"])
    assert [False, False] == [task["tailing"] for task in output["tasks"]]


def test_a_task_that_tails_is_marked(looks: Sequence[Any]) -> None:
    looks[1]["tasks"][1]["positions"][0]["tailing"] = True

    text = CliRunner().invoke(job, ARGUMENTS).stdout.splitlines()

    assert ["75%", "yes", "N1"] == text[-2].split()[4:7]
    assert ["0%", "-", "-"] == text[-1].split()[4:7]


def test_a_task_that_tails_is_marked_for_programs(looks: Sequence[Any]) -> None:
    looks[1]["tasks"][1]["positions"][0]["tailing"] = True

    output = json.loads(CliRunner().invoke(job, [*ARGUMENTS, "-o", "json"]).stdout)

    assert {"Partition_0-0-2": False, "Partition_0-1-2": True} == {
        task["task"]: task["tailing"] for task in output["tasks"]
    }


def test_a_job_without_event_time_has_no_column_of_watermark_lags() -> None:
    assert "WATERMARK" not in CliRunner().invoke(job, ARGUMENTS).stdout


def test_the_lag_of_a_watermark_is_shown_in_seconds(looks: Sequence[Any]) -> None:
    looks[1]["tasks"][1]["figures"]["time"] = {"atMs": 1, "lagMs": 61_500, "heldBy": "kafka.orders.0:1/2"}

    *_, columns, first, second = CliRunner().invoke(job, ARGUMENTS).stdout.splitlines()

    assert "LAG  WATERMARK LAG  SHARE OF BATCH" in columns
    assert ["30", "61.5", "s", "75%"] == first.split()[3:7]
    assert ["0", "-", "0%"] == second.split()[3:6]


def test_the_lag_of_a_watermark_is_there_for_programs(looks: Sequence[Any]) -> None:
    looks[1]["tasks"][1]["figures"]["time"] = {"atMs": 1, "lagMs": 61_500}

    output = json.loads(CliRunner().invoke(job, [*ARGUMENTS, "-o", "json"]).stdout)

    assert [None, 61_500] == [task["watermarkLagMs"] for task in output["tasks"]]


def test_omitted_tasks_are_counted() -> None:
    output = CliRunner().invoke(job, [*ARGUMENTS, "--limit", "1"]).stdout

    assert "… and 1 more" in output
    assert "Partition_0-0-2" not in output
