"""The order in which the files of tests run, and a summary of the time of a run.

A plugin of pytest, loaded by the `conftest.py` of the repository. The summary comes before pytest's last line.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

LONGEST_FIRST = (
    "test_crash_points_of_the_commit_path.py",
    "test_a_job_is_scaled_while_it_runs.py",
    "test_processors_come_and_go.py",
    "test_a_job_on_a_spark_cluster_survives_faults.py",
    "test_no_record_is_lost_or_doubled_under_kills.py",
    "test_secrets_are_found_nowhere.py",
    "test_simulation.py",
    "test_simulation_of_odd_seeds.py",
    "test_a_job_outlives_the_restart_of_each_broker.py",
    "test_timers_fire_once_under_kills.py",
    "test_the_demo_checks_every_aircraft.py",
    "test_odd_messages_and_stops.py",
    "test_stops_by_name.py",
    "test_a_second_step_by_another_key.py",
    "test_a_job_runs_with_the_least_rights.py",
    "test_the_ledger_shows_a_missing_safeguard.py",
    "test_a_tail_ends_with_its_lease.py",
    "test_crash_points_of_tails.py",
    "test_tails_meet_slow_tasks_and_odd_inputs.py",
    "test_one_leader_any_number_of_candidates.py",
    "test_spark_standalone_runs_containers.py",
    "test_a_coordinator_starts_its_containers.py",
    "test_damaged_state_is_rebuilt.py",
    "test_the_wheel_works_elsewhere.py",
    "test_a_table_is_joined.py",
    "test_rules_are_right_while_a_job_is_scaled.py",
    "test_simulation_kills_mutants.py",
    "test_no_record_is_lost_where_a_task_reads_several_inputs.py",
    "test_inputs_meet_in_one_task.py",
    "test_a_task_is_rewound_while_it_runs.py",
    "test_a_topic_of_a_pattern_is_deleted_and_made_again.py",
    "test_a_job_is_given_back_to_release_0_1_0.py",
    "test_dev_broker.py",
    "test_operators_ask_by_a_topic.py",
    "test_containers_keep_their_contract.py",
    "test_a_delayed_end_of_transaction_tears_nothing.py",
    "test_kafka_log_keeps_the_contract.py",
    "test_histories.py",
    "test_expiry_race.py",
    "test_invariants.py",
)
"""Files of more than a minute beside others. One begun last would leave the other workers without work."""
_CPU = "cpu_s"
"""An attribute of reports."""
BEFORE_TESTS = "SAMZAPY_BEFORE_TESTS"
"""Environment: the steps of `.ci/run` before the tests, with their seconds."""
FILES_TOLD = 30
FILES_TOLD_FROM = 30
"""A run of fewer tests is of a few files, and its time is plain from the output."""


def place(path: str) -> int:
    """The smaller, the earlier: listed files, then integration tests, then unit tests.

    A file of the last group takes seconds, so workers that have one each end at almost the same time.
    """
    name = path.rpartition("/")[2]
    if name in LONGEST_FIRST:
        return LONGEST_FIRST.index(name)
    return len(LONGEST_FIRST) + (not path.startswith("integration_tests/"))


def group(path: str, keywords: Sequence[str]) -> str:
    """The kind of test that a file's time is counted for."""
    if path.startswith("unit_tests/simulation/"):
        return "simulation"
    if path.startswith("unit_tests/"):
        return "unit"
    if "ledger" in keywords:
        return "integration: ledgers"
    return "integration: bad input" if path.startswith("integration_tests/bad_input/") else "integration: other"


@dataclass(slots=True)
class Spent:
    """Seconds of workers, added up.

    Attributes:
        cpu_s: of the worker, and of the processes that it started and that have ended.
    """

    setup_s: float = 0.0
    call_s: float = 0.0
    cpu_s: float = 0.0
    tests: int = 0

    @property
    def total_s(self) -> float:
        return self.setup_s + self.call_s

    def add(self, phase: str, duration_s: float, cpu_s: float) -> None:
        self.cpu_s += cpu_s
        if phase == "call":
            self.call_s += duration_s
        else:
            self.setup_s += duration_s
        self.tests += phase == "setup"


@dataclass(slots=True)
class RunTimes:
    """The time of the tests of a run, by file, by group and by worker."""

    files: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    groups: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    ends: dict[str, float] = field(default_factory=dict)
    """Worker -> when it last ended a test."""

    def add(self, report: pytest.TestReport, now: float) -> None:
        path = report.nodeid.partition("::")[0]
        for spent in (self.files[path], self.groups[group(path, list(report.keywords))]):
            spent.add(report.when, report.duration, getattr(report, _CPU, 0.0))
        self.ends[getattr(report, "worker_id", "main")] = now

    def lines(self, elapsed_s: float, before: str) -> list[str]:
        worked_s = sum(spent.total_s for spent in self.files.values())
        last = max(self.ends.values(), default=0.0)
        waited_s = sum(last - end for end in self.ends.values())
        return [
            *([f"before the tests: {before}"] if before else []),
            f"tests: {elapsed_s:.0f} s; {len(self.ends)} workers spent {worked_s:.0f} s and "
            f"{sum(spent.cpu_s for spent in self.files.values()):.0f} s of CPU, "
            f"and were without work at the end for {waited_s:.0f} s",
            *_table(self.groups, len(self.groups)),
            f"the {min(FILES_TOLD, len(self.files))} longest of {len(self.files)} files:",
            *_table(self.files, FILES_TOLD),
        ]


def _table(spent_by_name: dict[str, Spent], count: int) -> list[str]:
    rows = sorted(spent_by_name.items(), key=lambda row: -row[1].total_s)[:count]
    return [
        f"{spent.total_s:7.1f} s, {spent.setup_s:6.1f} s of it set-up, {spent.cpu_s:6.1f} s of CPU, "
        f"{spent.tests:5d} tests  {name}"
        for name, spent in rows
    ]


class Plugin:
    """Hears of each phase of each test, also where workers of xdist run them."""

    def __init__(self) -> None:
        self._times = RunTimes()
        self._begun = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._times.add(report, time.monotonic())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(spent.tests for spent in self._times.files.values()) < FILES_TOLD_FROM:
            return
        terminalreporter.section("where the time went")
        for line in self._times.lines(time.monotonic() - self._begun, os.environ.get(BEFORE_TESTS, "")):
            terminalreporter.write_line(line)


_cpu_before_s = 0.0


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Note the CPU time since the worker's last report; xdist carries the attribute."""
    global _cpu_before_s
    outcome = yield
    before_s, _cpu_before_s = _cpu_before_s, _cpu_s()
    setattr(outcome.get_result(), _CPU, _cpu_before_s - before_s)  # type: ignore[attr-defined]


def pytest_configure(config: pytest.Config) -> None:
    global _cpu_before_s
    _cpu_before_s = _cpu_s()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Plugin(), "run-times")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.nodeid.partition("::")[0]))
