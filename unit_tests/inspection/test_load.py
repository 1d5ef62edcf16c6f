"""The result of two looks at a job's status, and the hint for its operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samzapy.inspection.load import Advice, JobLoad, ProcessorLoad, TaskLoad, hint_of, load_json, load_of


def a_task_load(name: str = "a", **fields: Any) -> TaskLoad:
    """Of a task that is far behind and busy all the time."""
    defaults: dict[str, Any] = {
        "task": name,
        "processor_id": "0",
        "records_per_s": 100.0,
        "lag": 1_000_000,
        "batch_share": 0.95,
        "owner": "e1",
    }
    return TaskLoad(**(defaults | fields))


def a_load(*tasks: TaskLoad, cores: int = 4, cores_busy: float | None = None, factor: int = 1) -> JobLoad:
    busy = sum(task.batch_share or 0.0 for task in tasks) if cores_busy is None else cores_busy
    return JobLoad(
        job="flights-1",
        factor=factor,
        lag=0,
        tasks=tasks,
        processors=(
            ProcessorLoad(execution_id="e1", processor_id="0", cores=cores, tasks=len(tasks), cores_busy=busy),
        ),
    )


def test_one_busy_task_beside_idle_cores_wants_a_larger_factor() -> None:
    hint = hint_of(a_load(a_task_load("a"), a_task_load("b", batch_share=0.25, lag=0), factor=2))

    assert Advice.LARGER_FACTOR is hint.advice
    assert "a is busy for 95% of the time of its batches and gets 50% of all records" in hint.text
    assert "2.8 of the 4 cores of processor 0 are idle. Try 4." in hint.text


def test_a_task_whose_records_have_one_key_gains_nothing_from_a_larger_factor() -> None:
    hint = hint_of(a_load(a_task_load(key="N1", key_share=0.8)))

    assert Advice.ONE_KEY is hint.advice
    assert "at least 80% of its records have the key N1" in hint.text
    assert "more than 1.2 times" in hint.text


def test_a_frequent_key_limits_the_gain_of_a_larger_factor() -> None:
    hint = hint_of(a_load(a_task_load(key="N1", key_share=0.4)))

    assert Advice.LARGER_FACTOR is hint.advice
    assert "its busiest key, N1, bounds the gain to 2.5 times" in hint.text


def test_a_key_is_no_problem_in_a_task_that_is_not_busy() -> None:
    hint = hint_of(a_load(a_task_load(batch_share=0.2, key="N1", key_share=0.9)))

    assert Advice.INPUT is hint.advice


def test_busy_cores_want_more_of_them() -> None:
    hint = hint_of(a_load(*(a_task_load(f"t{number}") for number in range(4)), cores=4))

    assert Advice.MORE_CORES is hint.advice
    assert "3.8 of its 4" in hint.text


def test_a_single_busy_key_is_reported_although_all_cores_are_busy() -> None:
    assert Advice.ONE_KEY is hint_of(a_load(a_task_load(key="N1", key_share=0.9), cores=1)).advice


def test_many_tasks_that_are_each_busy_for_a_little_may_keep_all_cores_busy() -> None:
    tasks = [a_task_load(f"t{number}", batch_share=0.2) for number in range(10)]

    assert Advice.MORE_CORES is hint_of(a_load(*tasks, cores=2)).advice


def test_the_largest_factor_is_not_exceeded() -> None:
    assert Advice.MORE_CORES is hint_of(a_load(a_task_load(), factor=256)).advice


@pytest.mark.parametrize("cores", [1, 4])
def test_a_larger_factor_is_not_advised_where_it_would_be_refused(cores: int) -> None:
    fixed = replace(a_load(a_task_load(), cores=cores, factor=2), factor_fixed_by="stores.totals.scope=task")

    hint = hint_of(fixed)

    assert Advice.MORE_CORES is hint.advice
    assert "stores.totals.scope=task lets the factor be no other than 2" in hint.text
    assert "larger factor" not in hint.text


@pytest.mark.parametrize("lag", [0, 499])
def test_a_lag_that_is_worked_off_in_seconds_is_none(lag: int) -> None:
    assert Advice.KEEPS_UP is hint_of(a_load(a_task_load(lag=lag))).advice


def test_only_tasks_that_are_behind_are_looked_at() -> None:
    busy_and_level = a_task_load("level", lag=0, batch_share=1.0, key="N1", key_share=1.0)

    hint = hint_of(a_load(busy_and_level, a_task_load("behind", batch_share=0.8)))

    assert Advice.LARGER_FACTOR is hint.advice
    assert "behind is busy" in hint.text


@pytest.mark.parametrize(
    "load",
    [
        a_load(),
        a_load(a_task_load(lag=None)),
        a_load(a_task_load(records_per_s=None)),
        a_load(a_task_load(batch_share=None)),
    ],
)
def test_an_unknown_load_gives_no_advice(load: JobLoad) -> None:
    assert Advice.UNKNOWN is hint_of(load).advice


# --- reading a status ---


def a_status(at_ms: int, *, owner: str = "e1", records: int = 0, busy_ns: int = 0, batch_ns: int = 0) -> Any:
    return {
        "job": "flights-1",
        "factor": 2,
        "factorFixedBy": "stores.totals.scope=task",
        "containers": [
            {
                "executionId": owner,
                "processorId": "0",
                "slotCount": 2,
                "figures": {"atMs": at_ms, "batchNs": batch_ns},
            }
        ],
        "tasks": [
            {
                "task": "Partition_0-1-2",
                "processorId": "0",
                "owner": owner,
                "lag": 30,
                "figures": {"keysSampled": 4, "keys": {"N1": 3}} | ({"busyNs": busy_ns} if busy_ns else {}),
                "positions": [{"ssp": "kafka.orders.0:1/2", "lag": 60, "recordsIn": records}],
            }
        ],
        "totals": {"lag": 60},
    }


def test_rates_and_shares_are_differences_over_the_time_of_the_container() -> None:
    before = a_status(1000, records=100)
    now = a_status(3000, records=500, busy_ns=1_500_000_000, batch_ns=2_000_000_000)

    load = load_of(before, now)

    (task,), (processor,) = load.tasks, load.processors
    assert (200.0, 30, 0.75) == (task.records_per_s, task.lag, task.batch_share)
    assert ("N1", 0.75) == (task.key, task.key_share)
    assert [("kafka.orders.0:1/2", 200.0, 30)] == [
        (bucket.ssp, bucket.records_per_s, bucket.lag) for bucket in task.buckets
    ]
    assert (2, 0.75, 1) == (processor.cores, processor.cores_busy, processor.tasks)
    assert "stores.totals.scope=task" == load.factor_fixed_by
    assert (2, 200.0, 60) == (load.factor, load.records_per_s, load.lag)


def test_a_long_bunch_that_ends_between_two_looks_fills_no_more_than_the_time_between_them() -> None:
    before, now = a_status(1000), a_status(3000, records=400, busy_ns=9 * 10**9, batch_ns=2 * 10**9)

    load = load_of(before, now)

    assert (1.0, 1.0) == (load.tasks[0].batch_share, load.processors[0].cores_busy)


@pytest.mark.parametrize("role", ["STANDBY", "RESERVE"])
def test_the_cores_are_those_of_the_container_that_runs_the_tasks(role: str) -> None:
    before, now = a_status(1000), a_status(3000, records=400, busy_ns=2 * 10**9, batch_ns=2 * 10**9)
    for status in (before, now):
        status["containers"].insert(0, {"executionId": "s1", "processorId": "0", "slotCount": 64, "role": role})
        status["tasks"][0]["lag"] = 10**6
        status["tasks"][0]["figures"]["keys"] = {}
        del status["factorFixedBy"]

    load = load_of(before, now)

    assert ["e1"] == [processor.execution_id for processor in load.processors]
    assert "1.0 of the 2 cores of processor 0 are idle" in hint_of(load).text
    now["tasks"][0]["owner"] = before["tasks"][0]["owner"] = "s1"
    assert ["s1", "e1"] == [processor.execution_id for processor in load_of(before, now).processors]


def test_a_new_execution_s_figures_are_not_compared_with_the_old_one_s() -> None:
    load = load_of(a_status(1000, owner="e1", records=500), a_status(3000, owner="e2", records=10, batch_ns=5))

    assert (None, None) == (load.tasks[0].records_per_s, load.tasks[0].batch_share)


def test_the_same_heartbeat_twice_gives_no_rate() -> None:
    status = a_status(1000, records=100, batch_ns=1)

    assert (None, None) == (
        load_of(status, status).tasks[0].records_per_s,
        load_of(status, status).tasks[0].batch_share,
    )


def test_a_task_reported_for_the_first_time_has_no_share() -> None:
    before, now = a_status(1000, batch_ns=1), a_status(2000, busy_ns=10**12, batch_ns=10**9)
    before["tasks"][0]["figures"] = None

    assert load_of(before, now).tasks[0].batch_share is None


@pytest.mark.parametrize("status", [{}, {"tasks": None, "containers": [1]}, {"tasks": [{}], "containers": [{}]}])
def test_a_status_of_another_shape_shows_less(status: Any) -> None:
    load = load_of(status, status)

    assert Advice.UNKNOWN is hint_of(load).advice
    assert "" == load_json(load)["job"]


def test_programs_read_all_figures_of_the_load() -> None:
    load: Any = load_json(load_of(a_status(1000), a_status(3000, records=400, batch_ns=10**9)))

    assert ("flights-1", 2, 200.0, 60, "keeps-up") == tuple(
        load[name] for name in ("job", "factor", "recordsPerS", "lag", "advice")
    )
    assert {
        "task": "Partition_0-1-2",
        "processorId": "0",
        "recordsPerS": 200.0,
        "lag": 30,
        "batchShare": 0.0,
        "tailing": False,
        "watermarkLagMs": None,
        "busiestKey": "N1",
        "busiestKeyShare": 0.75,
        "buckets": [{"ssp": "kafka.orders.0:1/2", "recordsPerS": 200.0, "lag": 30}],
    } == load["tasks"][0]
