"""Metrics: named as Prometheus has it, readable by its own parser, and bounded however large a job is."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from samzapy.adapters.web.metrics import exposition
from samzapy.coordinator import metrics
from samzapy.coordinator.commands import Figures, Position
from samzapy.coordinator.metrics import METRICS, Kind, samples_of
from samzapy.coordinator.service import Snapshot
from samzapy.model.container import ContainerPhase
from samzapy.model.figures import KeySketch, TaskFigures
from samzapy.model.launch import LaunchRole
from samzapy.model.warmth import Warmth
from samzapy.testing.builders import a_config, a_heartbeat, a_launch, a_submission, an_ssp_kb
from unit_tests.coordinator.world import World

TASK_0, TASK_1 = (f"SystemStreamPartition_kafka.orders.{number}" for number in range(2))
FIGURES = Figures(
    records_in=7,
    batch_ns=2_000_000_000,
    positions={an_ssp_kb(f"kafka.orders.{number}:0/1"): Position(90, 100 + number) for number in range(2)},
    tasks={
        TASK_0: TaskFigures(
            records_in=4, process_ns=2_000_000_000, get_ns=3000, gets_timed=3, keys=KeySketch(4, {"hot": 3})
        ),
        TASK_1: TaskFigures(records_in=3, busy_ns=500_000_000),
    },
)


def told(*heartbeats: Any, **properties: str) -> Snapshot:
    """What the leader of a job of two tasks knows after these heartbeats."""
    world = World()
    service = world.coordinator()
    service.take_office()
    service.submit(a_submission(config=a_config(**properties), partition_counts={"kafka.orders": 2}))
    for heartbeat in heartbeats:
        world.queue.append(heartbeat)
        service.run_once(0)
    return service.status()


def numbers(snapshot: Snapshot, *, leads: bool = True) -> dict[tuple[str, ...], float]:
    """By name and labels (in the order of their names) but the job's, as Prometheus' own parser reads them."""
    text = exposition(samples_of(snapshot, 1_000_000, leads=leads)).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert "flights-1" == sample.labels.pop("job")
            key = (sample.name, *sample.labels.values())
            assert key not in found, "the same series twice"
            found[key] = sample.value
    return found


def test_names_and_units_are_as_prometheus_has_them() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"samzapy_[a-z_]+", metric.name)
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total"), metric.name
        assert not re.search(r"_(ms|ns|millis|nanos)(_|$)", metric.name)
        assert "job" == metric.labels[0]
        assert set(metric.labels) <= {"job", "task", "processor", "ssp", "standby"}
    assert [] == [name for name, count in Counter(metric.name for metric in METRICS).items() if count > 1]


def test_every_metric_of_seed_002_is_there() -> None:
    wanted = {
        *(
            "job-model-generation-ns",
            "keyhash-compute-ns",
            "checkpoint-compute-ns",
            "store-identify-ns",
            "task-count",
        ),
        *("total-input-consumption-ns", "process-ns", "commit-ns", "get-ns", "put-ns", "delete-ns", "disk-usage"),
        "skipped-envelopes",
    }

    assert wanted == {metric.sep32 for metric in METRICS} - {""}


def test_the_offsets_that_are_read_before_other_inputs_are_counted_up_to_where_those_wait_for() -> None:
    positions = {
        an_ssp_kb("kafka.orders.0:0/1"): Position(20, 100, bootstrap_end=50),
        an_ssp_kb("kafka.orders.1:0/1"): Position(3, 10),
    }
    heard = told(a_heartbeat(figures=Figures(positions=positions)))

    assert 30 == numbers(heard)["samzapy_container_bootstrap_lag_records", "0"]
    assert 0 == numbers(told(a_heartbeat(figures=FIGURES)))["samzapy_container_bootstrap_lag_records", "0"]


def test_a_job_is_told_with_its_processors_its_tasks_and_its_ssps() -> None:
    found = numbers(told(a_heartbeat(figures=FIGURES, received_ms=999_000)))

    assert (1, 1, 2, 1) == tuple(
        found[(f"samzapy_{name}",)]
        for name in ("coordinator_leads", "coordinator_term", "job_tasks", "job_elasticity_factor")
    )
    assert {("0", 7), ("0", 2.0), ("0", 1.0)} == {
        (key[1], value)
        for key, value in found.items()
        if key[0]
        in (
            "samzapy_container_records_in_total",
            "samzapy_container_batch_seconds_total",
            "samzapy_container_heartbeat_age_seconds",
        )
    }
    assert (2.0, 4) == (
        found["samzapy_task_process_seconds_sum", "0", TASK_0],
        found["samzapy_task_process_seconds_count", "0", TASK_0],
    )
    assert 0.5 == found["samzapy_task_busy_seconds_total", "0", TASK_1]
    assert 0.75 == found["samzapy_task_busiest_key_ratio", "0", TASK_0]
    assert ("samzapy_task_busiest_key_ratio", "0", TASK_1) not in found
    assert [10, 11] == [
        found["samzapy_ssp_lag_records", f"kafka.orders.{number}:0/1", task]
        for number, task in enumerate((TASK_0, TASK_1))
    ]


def test_every_metric_is_told_of_a_job_that_runs() -> None:
    samples = samples_of(with_a_standby(), 1_000_000, leads=True)

    assert {metric.name for metric in METRICS} == {sample.metric.name for sample in samples}
    assert {sample.metric.name: len(sample.metric.labels) for sample in samples} == {
        sample.metric.name: len(sample.labels) for sample in samples
    }


def test_no_key_of_a_message_is_told() -> None:
    assert b"hot" not in exposition(samples_of(told(a_heartbeat(figures=FIGURES)), 1_000_000, leads=True))


def test_who_does_not_lead_says_only_that() -> None:
    assert {("samzapy_coordinator_leads",): 0} == numbers(told(a_heartbeat(figures=FIGURES)), leads=False)


def test_of_two_executions_of_one_processor_the_one_that_holds_tasks_is_told() -> None:
    held = [(TASK_0, 1), (TASK_1, 2)]
    snapshot = told(a_heartbeat(figures=FIGURES), a_heartbeat(held=held, figures=FIGURES), a_heartbeat("e2", pid=200))
    assert 2 == len(snapshot.seen.last)

    assert 2 == numbers(snapshot)["samzapy_container_tasks", "0"]


def test_an_execution_that_is_gone_is_not_told() -> None:
    snapshot = told(a_heartbeat(figures=FIGURES), a_heartbeat(state=ContainerPhase.STOPPED, figures=FIGURES))

    assert [] == [key for key in numbers(snapshot) if "0" in key]
    assert 2 == numbers(snapshot)[("samzapy_job_tasks_without_owner",)]


def test_tasks_that_a_container_told_in_one_sum_are_told_so() -> None:
    figures = replace(FIGURES, other_tasks=TaskFigures(records_in=5), other_task_count=9)

    found = numbers(told(a_heartbeat(figures=figures)))

    assert 5 == found["samzapy_task_records_in_total", "0", "*"]


def test_a_job_of_very_many_tasks_is_told_by_processor_and_by_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = told(a_heartbeat(figures=replace(FIGURES, other_tasks=TaskFigures(records_in=5))))
    monkeypatch.setattr(metrics, "TASKS_TOLD_MAX", 1)
    monkeypatch.setattr(metrics, "SSPS_TOLD_MAX", 1)

    found = numbers(snapshot)

    assert 4 + 3 + 5 == found["samzapy_task_records_in_total", "0", "*"]
    assert 21 == found["samzapy_ssp_lag_records", "kafka.orders.*", "*"]
    assert [] == [key for key in found if TASK_0 in key or TASK_1 in key]


def test_the_lag_of_a_stream_does_not_grow_with_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SSPS_TOLD_MAX", 1)
    positions = {
        an_ssp_kb(f"kafka.orders.{number}:{bucket}/2"): Position(90, 100)
        for number in range(2)
        for bucket in range(2)
    }

    found = numbers(told(a_heartbeat(figures=Figures(positions=positions)), job_elasticity_factor="2"))

    assert 20 == found["samzapy_ssp_lag_records", "kafka.orders.*", "*"]


def with_a_standby() -> Snapshot:
    """Beside the container `e1` a standby, which is behind with one of its two tasks."""
    snapshot = told(
        a_heartbeat("e1", figures=FIGURES),
        a_heartbeat("s1", host="host-b", pid=7, warm=Warmth(tasks=2, level=1, lag=120, total=9)),
    )
    launch = a_launch("s1", role=LaunchRole.STANDBY, standby=1)
    return replace(snapshot, state=replace(snapshot.state, launches={launch.execution_id: launch}))


def test_how_far_a_standby_is_behind() -> None:
    found = numbers(with_a_standby())

    assert (120, 1) == (
        found["samzapy_standby_lag_records", "0", "0-1"],
        found["samzapy_standby_tasks_behind", "0", "0-1"],
    )
