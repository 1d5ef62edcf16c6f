"""Metrics: named as in Prometheus, readable by its parser, bounded in a large job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from samzapy.adapters.web.metrics import exposition
from samzapy.coordinator.commands import Figures
from samzapy.coordinator.grant_values import Position
from samzapy.coordinator.snapshot import Snapshot, Timings
from samzapy.inspection import metrics
from samzapy.inspection.metrics import METRICS, STANDBY_LAG, Kind, Refusals, samples_of
from samzapy.inspection.standstill import Cause
from samzapy.model.container import ContainerPhase
from samzapy.model.finding import Finding, insecure_coordinator
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.store_size import StoreSize
from samzapy.model.task_stats import KeySketch, TaskStats
from samzapy.model.time_figures import TimeFigures
from samzapy.plan.groupers import Groupers
from samzapy.testing.builders import a_config, a_heartbeat, a_launch, a_submission, an_ssp_kb
from unit_tests.fixtures.coordinator_world import World

METRICS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
SAME_AS_ANOTHER = {
    "samzapy_task_stalled",
    # The count of a summary of handled records, which are counted by themselves too; and small numbers of small stores.
    *("samzapy_task_process_seconds_count", "samzapy_job_tasks_without_owner", "samzapy_container_tasks"),
    *("samzapy_standby_tasks_behind", "samzapy_container_tailing_key_buckets"),
}
TASK_0, TASK_1 = (f"SystemStreamPartition_kafka.orders.{number}" for number in range(2))
FIGURES = Figures(
    stores={"sums": StoreSize(bytes_used=8192, entries=90)},
    records_in=7,
    batch_ns=2_000_000_000,
    positions={an_ssp_kb(f"kafka.orders.{number}:0/1"): Position(90, 100 + number) for number in range(2)},
    tasks={
        TASK_0: TaskStats(
            records_in=4,
            process_ns=2_000_000_000,
            get_ns=3000,
            gets_timed=3,
            keys=KeySketch(4, {"hot": 3}),
            time=TimeFigures(at_ms=1, watermark_ms=1000, lag_ms=20_000, held_by="kafka.orders.0:0/1"),
        ),
        TASK_1: TaskStats(records_in=3, busy_ns=500_000_000),
    },
)


def snapshot_after(*heartbeats: Any, **properties: str) -> Snapshot:
    """The snapshot of the leader of a job of two tasks after these heartbeats."""
    world = World()
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=a_config(**properties), partition_counts={"kafka.orders": 2}))
    for heartbeat in heartbeats:
        world.queue.append(heartbeat)
        service.run_once(0)
    return service.status()


def numbers(snapshot: Snapshot, *, leads: bool = True) -> dict[tuple[str, ...], float]:
    """Values by name and labels but the job's, as Prometheus' own parser reads them.

    Labels are in the order of their names.
    """
    return parsed(exposition(samples_of(snapshot, 1_000_000, leads=leads)).decode())


def parsed(text: str) -> dict[tuple[str, ...], float]:
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert "flights-1" == sample.labels.pop("job")
            key = (sample.name, *sample.labels.values())
            assert key not in samples, "the same series twice"
            samples[key] = sample.value
    return samples


def test_names_and_units_are_as_prometheus_has_them() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"samzapy_[a-z_]+", metric.name)
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total"), metric.name
        assert not re.search(r"_(ms|ns|millis|nanos)(_|$)", metric.name)
        assert "job" == metric.labels[0]
        assert set(metric.labels) <= {"job", "task", "processor", "ssp", "standby", "store", "cause"}
    assert [] == [name for name, count in Counter(metric.name for metric in METRICS).items() if count > 1]


def test_every_promised_metric_exists() -> None:
    expected = {
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

    assert expected == {metric.sep32 for metric in METRICS} - {""}


def test_the_offsets_that_are_read_before_other_inputs_are_counted_up_to_where_those_wait_for() -> None:
    positions = {
        an_ssp_kb("kafka.orders.0:0/1"): Position(20, 100, bootstrap_end=50),
        an_ssp_kb("kafka.orders.1:0/1"): Position(3, 10),
    }
    snapshot = snapshot_after(a_heartbeat(figures=Figures(positions=positions)))

    assert 30 == numbers(snapshot)["samzapy_container_bootstrap_lag_records", "0"]
    assert 0 == numbers(snapshot_after(a_heartbeat(figures=FIGURES)))["samzapy_container_bootstrap_lag_records", "0"]


def test_the_key_buckets_that_tail_are_counted_by_container() -> None:
    positions = {
        an_ssp_kb("kafka.orders.0:0/1"): Position(20, 100, tailing=True),
        an_ssp_kb("kafka.orders.1:0/1"): Position(3, 10),
    }

    values = numbers(snapshot_after(a_heartbeat(figures=Figures(positions=positions))))

    assert 1 == values["samzapy_container_tailing_key_buckets", "0"]


def test_the_silence_of_the_broker_is_a_metric_in_seconds() -> None:
    values = numbers(snapshot_after(a_heartbeat(unanswered_ms=1500, kafka_silent_ms=40_000)))

    assert 1.5 == values["samzapy_container_unanswered_seconds", "0"]
    assert 40 == values["samzapy_container_kafka_silent_seconds", "0"]


def test_metrics_cover_processors_tasks_and_ssps() -> None:
    values = numbers(snapshot_after(a_heartbeat(figures=FIGURES, received_ms=999_000)))

    assert (1, 1, 2, 1) == tuple(
        values[(f"samzapy_{name}",)]
        for name in ("coordinator_leads", "coordinator_term", "job_tasks", "job_elasticity_factor")
    )
    assert {("0", 7), ("0", 2.0), ("0", 1.0)} == {
        (key[1], value)
        for key, value in values.items()
        if key[0]
        in (
            "samzapy_container_records_in_total",
            "samzapy_container_batch_seconds_total",
            "samzapy_container_heartbeat_age_seconds",
        )
    }
    assert (2.0, 4) == (
        values["samzapy_task_process_seconds_sum", "0", TASK_0],
        values["samzapy_task_process_seconds_count", "0", TASK_0],
    )
    assert 0.5 == values["samzapy_task_busy_seconds_total", "0", TASK_1]
    assert 0.75 == values["samzapy_task_busiest_key_ratio", "0", TASK_0]
    assert ("samzapy_task_busiest_key_ratio", "0", TASK_1) not in values
    assert [10, 11] == [
        values["samzapy_ssp_lag_records", f"kafka.orders.{number}:0/1", task]
        for number, task in enumerate((TASK_0, TASK_1))
    ]


def test_a_running_job_has_every_metric() -> None:
    samples = samples_of(with_a_standby(), 1_000_000, leads=True)

    assert {metric.name for metric in METRICS} == {sample.metric.name for sample in samples}
    assert {sample.metric.name: len(sample.metric.labels) for sample in samples} == {
        sample.metric.name: len(sample.labels) for sample in samples
    }


OF_A_TASK = TaskStats(
    records_in=101,
    records_out=102,
    dead_letters=103,
    skipped=104,
    transactions=105,
    busy_ns=1_060_000_000,
    process_ns=1_070_000_000,
    commit_ns=1_080_000_000,
    input_ns=1_090_000_000,
    gets_timed=110,
    get_ns=1_110_000_000,
    puts_timed=112,
    put_ns=1_130_000_000,
    deletes_timed=114,
    delete_ns=1_150_000_000,
    disk_bytes=116,
    store_identify_ns=1_170_000_000,
    timers_fired=118,
    timers_timed=119,
    timer_lag_ns=1_200_000_000,
    late=121,
    ahead=126,
    expired=122,
    keys=KeySketch(8, {"hot": 3}),
    time=TimeFigures(
        at_ms=1, watermark_ms=1_230_500, lag_ms=124_250, held_by="kafka.rates.1:0/1", timers_pending=125
    ),
)
OF_A_CONTAINER = Figures(
    records_in=201,
    records_out=202,
    dead_letters=203,
    commits=204,
    batches=205,
    recoveries=206,
    batch_ns=2_070_000_000,
    input_ns=2_080_000_000,
    keyhash_ns=2_090_000_000,
    offsets_read=210,
    skipped=211,
    positions={an_ssp_kb("kafka.orders.0:0/1"): Position(90, 302, bootstrap_end=303, tailing=True)},
    tasks={TASK_0: OF_A_TASK},
    stores={"seen": StoreSize(bytes_used=501, entries=502), "sums": StoreSize(bytes_used=503, entries=504)},
)
OF_THE_JOB = {
    ("samzapy_coordinator_leads",): 1,
    ("samzapy_coordinator_term",): 7,
    ("samzapy_coordinator_invalid_heartbeats_total",): 8,
    ("samzapy_coordinator_refused_requests_total",): 4091,
    ("samzapy_task_stalled", "broker-unreachable"): 1,
    ("samzapy_task_stalled", "waits-for-grant"): 1,
    ("samzapy_job_generation",): 9,
    ("samzapy_job_elasticity_factor",): 16,
    ("samzapy_job_tasks",): 2,
    ("samzapy_job_tasks_without_owner",): 1,
    ("samzapy_job_findings",): 3,
    ("samzapy_job_model_generation_seconds",): 0.25,
    ("samzapy_checkpoint_compute_seconds",): 0.5,
}
OF_PROCESSOR_0 = {
    "container_heartbeat_age_seconds": 1.5,
    "container_cores": 6,
    "container_tasks": 2,
    "container_unanswered_seconds": 2.5,
    "container_kafka_silent_seconds": 41,
    "container_records_in_total": 201,
    "container_records_out_total": 202,
    "container_dead_letters_total": 203,
    "container_commits_total": 204,
    "container_batches_total": 205,
    "container_recoveries_total": 206,
    "container_batch_seconds_total": 2.07,
    "container_input_consumption_seconds_total": 2.08,
    "container_keyhash_compute_seconds_total": 2.09,
    "container_offsets_read_total": 210,
    "container_skipped_envelopes_total": 211,
    "container_bootstrap_lag_records": 213,
    "container_tailing_key_buckets": 1,
}
OF_TASK_0 = {
    "task_records_in_total": 101,
    "task_records_out_total": 102,
    "task_dead_letters_total": 103,
    "task_skipped_envelopes_total": 104,
    "task_busy_seconds_total": 1.06,
    "task_process_seconds_sum": 1.07,
    "task_process_seconds_count": 101,
    "task_commit_seconds_sum": 1.08,
    "task_commit_seconds_count": 105,
    "task_get_seconds_sum": 1.11,
    "task_get_seconds_count": 110,
    "task_put_seconds_sum": 1.13,
    "task_put_seconds_count": 112,
    "task_delete_seconds_sum": 1.15,
    "task_delete_seconds_count": 114,
    "task_disk_usage_bytes": 116,
    "task_store_identify_seconds": 1.17,
    "task_busiest_key_ratio": 0.375,
    "task_watermark_timestamp_seconds": 1230.5,
    "task_timers_pending": 125,
    "task_timer_lag_seconds_sum": 1.2,
    "task_timer_lag_seconds_count": 119,
    "task_timers_fired_total": 118,
    "task_late_records_total": 121,
    "task_ahead_records_total": 126,
    "task_expired_entries_total": 122,
}
EXPECTED: Mapping[tuple[str, ...], float] = {
    **OF_THE_JOB,
    **{(f"samzapy_{name}", "0"): value for name, value in OF_PROCESSOR_0.items()},
    **{(f"samzapy_{name}", "0", TASK_0): value for name, value in OF_TASK_0.items()},
    ("samzapy_task_watermark_lag_seconds", "0", "kafka.rates.1:0/1", TASK_0): 124.25,
    ("samzapy_standby_lag_records", "0", "0-1"): 401,
    ("samzapy_standby_tasks_behind", "0", "0-1"): 3,
    ("samzapy_store_bytes", "0", "seen"): 501,
    ("samzapy_store_entries", "0", "seen"): 502,
    ("samzapy_store_bytes", "0", "sums"): 503,
    ("samzapy_store_entries", "0", "sums"): 504,
    ("samzapy_ssp_lag_records", "kafka.orders.0:0/1", TASK_0): 212,
}
"""Each value of a metric, and none like another: by name and labels, but the job's."""


def with_a_value_of_each() -> Snapshot:
    snapshot = snapshot_after(
        a_heartbeat("e1", slot_count=6, figures=OF_A_CONTAINER, received_ms=998_500),
        a_heartbeat(
            "e1",
            slot_count=6,
            held=[(TASK_0, 1), (TASK_1, 2)],
            figures=OF_A_CONTAINER,
            unanswered_ms=2_500,
            kafka_silent_ms=41_000,
            received_ms=998_500,
        ),
        a_heartbeat("s1", host="host-b", pid=7, warm=StandbyProgress(tasks=5, level=2, lag=401, total=900)),
    )
    state, launch = snapshot.state, a_launch("s1", role=LaunchRole.STANDBY, standby=1)
    assert state.term is not None and state.generation is not None
    finding = Finding(code="cluster-unreachable", subject="cluster", found="no answer", remedy="start it")
    planned = {(9, task): planned_task for (_, task), planned_task in state.planned_tasks.items()}
    state = replace(
        state,
        term=replace(state.term, term=7),
        generation=replace(state.generation, generation=9, factor=16),
        planned_tasks=planned,
        grants={key: replace(grant, released=key[0] == TASK_1) for key, grant in state.grants.items()},
        launches={launch.execution_id: launch},
    )
    timings = Timings(job_model_generation_ns=250_000_000, checkpoint_compute_ns=500_000_000)
    return replace(
        snapshot, state=state, timings=timings, findings=(*(finding,) * 3, insecure_coordinator("0.0.0.0"))
    )


def test_each_metric_has_the_value_of_its_source() -> None:
    text = exposition(
        samples_of(
            with_a_value_of_each(),
            1_000_000,
            leads=True,
            refusals=Refusals(invalid_heartbeats=8, refused_requests=4091),
        )
    ).decode()

    causes = {("samzapy_task_stalled", cause.value): 0 for cause in Cause}
    assert causes | EXPECTED == parsed(text)


def test_each_documented_metric_has_a_value_above() -> None:
    names = re.findall(r"^\| `(samzapy_\w+)` \| (\w+) \|", METRICS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    expected = {
        series
        for name, kind in names
        for series in ((f"{name}_sum", f"{name}_count") if kind == Kind.SUMMARY else (name,))
    }

    assert expected == {name for name, *_ in EXPECTED} and all(EXPECTED.values())
    own_values = [value for (name, *_), value in EXPECTED.items() if name not in SAME_AS_ANOTHER]
    assert len(own_values) == len(set(own_values))


def test_a_task_without_timers_and_event_time_has_no_metrics_of_them() -> None:
    values = numbers(snapshot_after(a_heartbeat(figures=FIGURES)))

    assert 20.0 == values["samzapy_task_watermark_lag_seconds", "0", "kafka.orders.0:0/1", TASK_0]
    assert [] == [key for key in values if TASK_1 in key and ("watermark" in key[0] or "timer" in key[0])]


def test_of_tasks_in_one_sum_the_watermark_is_that_of_the_one_furthest_behind() -> None:
    times = [
        TimeFigures(at_ms=1, watermark_ms=5000, lag_ms=lag_ms, held_by=f"kafka.orders.{lag_ms}:0/1", timers_pending=2)
        for lag_ms in (3000, 9000, 6000)
    ]
    others = TaskStats.total([TaskStats(time=time) for time in times] + [TaskStats()])

    values = numbers(snapshot_after(a_heartbeat(figures=Figures(other_tasks=others, other_task_count=4))))

    assert 9.0 == values["samzapy_task_watermark_lag_seconds", "0", "kafka.orders.9000:0/1", "*"]
    assert 6 == values["samzapy_task_timers_pending", "0", "*"]


def test_no_metric_has_the_key_of_a_message() -> None:
    assert b"hot" not in exposition(samples_of(snapshot_after(a_heartbeat(figures=FIGURES)), 1_000_000, leads=True))


def test_a_candidate_that_does_not_lead_answers_only_that() -> None:
    assert {("samzapy_coordinator_leads",): 0} == numbers(snapshot_after(a_heartbeat(figures=FIGURES)), leads=False)


def test_of_two_executions_of_a_processor_the_one_with_tasks_counts() -> None:
    held = [(TASK_0, 1), (TASK_1, 2)]
    snapshot = snapshot_after(
        a_heartbeat(figures=FIGURES), a_heartbeat(held=held, figures=FIGURES), a_heartbeat("e2", pid=200)
    )
    assert 2 == len(snapshot.liveness.last)

    assert 2 == numbers(snapshot)["samzapy_container_tasks", "0"]


def test_an_execution_that_is_gone_has_no_metrics() -> None:
    snapshot = snapshot_after(
        a_heartbeat(figures=FIGURES), a_heartbeat(state=ContainerPhase.STOPPED, figures=FIGURES)
    )

    assert [] == [key for key in numbers(snapshot) if "0" in key]
    assert 2 == numbers(snapshot)[("samzapy_job_tasks_without_owner",)]


def test_tasks_of_a_container_that_lists_only_some_are_one_sum() -> None:
    figures = replace(FIGURES, other_tasks=TaskStats(records_in=5), other_task_count=9)

    values = numbers(snapshot_after(a_heartbeat(figures=figures)))

    assert 4 + 3 + 5 == values["samzapy_task_records_in_total", "0", "*"]
    assert [] == [key for key in values if key[0].startswith("samzapy_task_records") and key[-1] != "*"]


def test_no_counter_falls_when_another_task_becomes_one_of_the_busiest() -> None:
    was_busy, before = TaskStats(records_in=10, busy_ns=2_000), TaskStats(records_in=100, busy_ns=1_000)
    after = TaskStats(records_in=101, busy_ns=3_000)

    earlier, later = (
        numbers(snapshot_after(a_heartbeat(figures=Figures(tasks=listed, other_tasks=other, other_task_count=1))))
        for listed, other in (({TASK_0: was_busy}, before), ({TASK_1: after}, was_busy))
    )

    counters = [key for key in earlier if key[0].endswith(("_total", "_sum", "_count"))]
    assert earlier.keys() == later.keys()
    assert [] == [key for key in counters if later[key] < earlier[key]]


def test_a_job_of_very_many_tasks_has_metrics_by_processor_and_by_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_after(a_heartbeat(figures=replace(FIGURES, other_tasks=TaskStats(records_in=5))))
    monkeypatch.setattr(metrics, "TASKS_SHOWN_MAX", 1)
    monkeypatch.setattr(metrics, "SSPS_SHOWN_MAX", 1)

    values = numbers(snapshot)

    assert 4 + 3 + 5 == values["samzapy_task_records_in_total", "0", "*"]
    assert 21 == values["samzapy_ssp_lag_records", "kafka.orders.*", "*"]
    assert [] == [key for key in values if TASK_0 in key or TASK_1 in key]


def test_the_lag_of_a_stream_does_not_grow_with_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SSPS_SHOWN_MAX", 1)
    positions = {
        an_ssp_kb(f"kafka.orders.{number}:{bucket}/2"): Position(90, 100)
        for number in range(2)
        for bucket in range(2)
    }

    values = numbers(snapshot_after(a_heartbeat(figures=Figures(positions=positions)), job_elasticity_factor="2"))

    assert 20 == values["samzapy_ssp_lag_records", "kafka.orders.*", "*"]


def with_a_standby() -> Snapshot:
    """Beside the container `e1` a standby, which is behind with one of its two tasks."""
    snapshot = snapshot_after(
        a_heartbeat("e1", figures=FIGURES),
        a_heartbeat("s1", host="host-b", pid=7, warm=StandbyProgress(tasks=2, level=1, lag=120, total=9)),
    )
    launch = a_launch("s1", role=LaunchRole.STANDBY, standby=1)
    return replace(snapshot, state=replace(snapshot.state, launches={launch.execution_id: launch}))


def test_the_lag_of_a_standby_is_a_metric() -> None:
    values = numbers(with_a_standby())

    assert (120, 1) == (
        values["samzapy_standby_lag_records", "0", "0-1"],
        values["samzapy_standby_tasks_behind", "0", "0-1"],
    )


def test_a_newer_heartbeat_of_a_standby_resets_no_counter_of_its_processor() -> None:
    """The active container holds no grant, as at each change of the plan."""
    snapshot = with_a_standby()
    last = snapshot.liveness.last
    assert not last["e1"].held
    newer = {**last, "s1": replace(last["s1"], at_ms=last["e1"].at_ms + 1)}

    values = numbers(replace(snapshot, liveness=replace(snapshot.liveness, last=newer)))

    assert (7, 4) == (
        values["samzapy_container_records_in_total", "0"],
        values["samzapy_task_records_in_total", "0", TASK_0],
    )


def test_a_standby_that_is_replaced_is_one_series() -> None:
    """The one that stops and the one in its place have the same name."""
    with_one = with_a_standby()
    going = replace(a_launch("s0", role=LaunchRole.STANDBY, standby=1), phase=LaunchPhase.STOPPING)
    sighting = replace(with_one.liveness.last["s1"], warm=StandbyProgress(tasks=2, level=2, lag=0, total=9))
    both = replace(
        with_one,
        state=replace(with_one.state, launches={"s0": going, **with_one.state.launches}),
        liveness=replace(with_one.liveness, last={"s0": sighting, **with_one.liveness.last}),
    )

    lags = [sample for sample in samples_of(both, 1_000_000, leads=True) if sample.metric.name == STANDBY_LAG.name]

    assert [120] == [sample.value for sample in lags]


class SlowWorld(World):
    """Positions take 400 ms to be read, and a fence 7 s, which is none of that."""

    def read(self, ssps: Any, changelogs: Any = ()) -> Any:
        self.clock.advance(400)
        return super().read(ssps, changelogs)

    def fence(self, transactional_ids: Any, outputs: Any) -> None:
        self.clock.advance(7000)
        super().fence(transactional_ids, outputs)


class SlowGrouper:
    """A grouper of a job's own that takes a while."""

    def __init__(self, world: World, took_ms: int) -> None:
        self._world, self._took_ms = world, took_ms

    def group(self, previous: Any, ssps: Any) -> Mapping[str, Any]:
        self._world.clock.advance(self._took_ms)
        return {"all": ssps}


def test_time_of_planning_and_of_computing_starts_is_measured() -> None:
    world = SlowWorld()
    service = world.coordinator()
    service.become_leader()
    grouper = SlowGrouper(world, 30)
    config = a_config(job_systemstreampartition_grouper_factory="own:Slow")
    service.submit(replace(a_submission(config=config), groupers=Groupers(ssps=grouper)))

    world.queue.append(a_heartbeat())
    service.run_once(0)

    # The planner asks a grouper twice.
    assert Timings(job_model_generation_ns=60_000_000, checkpoint_compute_ns=400_000_000) == service.status().timings
