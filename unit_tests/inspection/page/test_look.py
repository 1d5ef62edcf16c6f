"""Looks at a job: the state of each task and the job, rates, the last hour."""

from dataclasses import replace

import pytest

from samzapy.coordinator.commands import Figures
from samzapy.inspection.load import Advice
from samzapy.inspection.page.look import look_at
from samzapy.inspection.page.overview import CAUSES_MAX, JobState, overview
from samzapy.inspection.page.recent_figures import APART_MS, SPAN_MS, Pace, followed
from samzapy.inspection.page.task_rows import TASKS_BETWEEN_RESTS, TaskState
from samzapy.inspection.page.trend import INTERVAL_MS, SAMPLES_MAX, TrendSample, sampled
from samzapy.inspection.standstill import STILL_MS
from samzapy.model.container import ContainerPhase
from samzapy.model.failing import Failing
from samzapy.model.finding import Finding, Severity
from samzapy.model.start_step import transaction_step
from samzapy.model.store_size import StoreSize
from samzapy.model.task_stats import TaskStats
from samzapy.stream.records import Expansion, SuspendedPut
from samzapy.testing.builders import a_launch
from unit_tests.fixtures.page_job import PageJob


class Watched:
    """A job and the latest look at it."""

    def __init__(self, *args, **more):
        self.job = PageJob(*args, **more)
        self.look = None

    def see(self, **changes):
        self.job.receive_heartbeats(**changes)
        return self.see_again()

    def see_again(self):
        clock = self.job.clock
        self.look = look_at(self.job.snapshot(), self.look, now_ms=clock.monotonic_ms(), wall_ms=clock.wall_ms())
        return self.look

    def states(self):
        return [row.state for row in self.look.tasks]


@pytest.fixture
def watched():
    return Watched()


S = TaskState


def test_a_task_that_keeps_up_runs_with_its_rate_lag_and_share(watched):
    watched.see(lag=50)
    look = watched.see(handled=100, lag=50, after_ms=5_000)

    row = look.tasks[0]
    assert (S.RUNNING, "e0", "host-0", 50, 20.0) == (
        row.state,
        row.load.owner,
        row.host,
        row.load.lag,
        row.load.records_per_s,
    )
    assert pytest.approx(0.1) == row.load.batch_share
    assert (80.0, 80.0, 200) == (look.records_in_per_s, look.records_out_per_s, look.lag)


def test_a_lag_of_more_than_five_seconds_of_its_rate_is_lagging(watched):
    watched.see()
    assert {S.RUNNING} == {row.state for row in watched.see(handled=100, lag=100, after_ms=5_000).tasks}
    assert {S.LAGGING} == {row.state for row in watched.see(handled=100, lag=101, after_ms=5_000).tasks}


def test_a_task_that_does_not_process_its_messages_is_stalled_with_the_cause(watched):
    watched.see(lag=5)
    watched.see(lag=5)
    standstill_ms = watched.job.clock.monotonic_ms()
    for _ in range(STILL_MS // 5_000):
        assert S.STALLED not in watched.states()
        watched.see(lag=5, stalled=["Partition_0"])

    assert [S.STALLED, S.RUNNING, S.RUNNING, S.RUNNING] == watched.states()
    assert standstill_ms == watched.look.tasks[0].still_since_ms
    assert watched.look.tasks[0].detail.startswith("no-commit: container e0 on host-0 works without a commit")
    watched.see(lag=5)
    assert (S.RUNNING, None) == (watched.look.tasks[0].state, watched.look.tasks[0].still_since_ms)


def test_tasks_of_a_silent_container_are_stalled_whatever_it_reported_last(watched):
    watched.see(heartbeats={"e0": {"step": "restores"}})
    assert S.STARTING is watched.states()[0]
    watched.job.clock.advance(STILL_MS)
    watched.see_again()

    assert {S.STALLED} == set(watched.states())
    assert "container-silent: container e0 on host-0 has sent no heartbeat" in watched.look.tasks[0].detail


def test_a_step_of_the_start_that_takes_long_has_the_time_since_when(watched):
    restores = {"e0": {"step": "bringing local state level"}}
    watched.see(lag=5, heartbeats=restores)
    watched.see(lag=5, heartbeats=restores)
    begun_ms = watched.job.clock.monotonic_ms()
    for _ in range(STILL_MS // 5_000):
        assert (S.STARTING, None) == (watched.look.tasks[0].state, watched.look.tasks[0].still_since_ms)
        watched.see(lag=5, stalled=["Partition_0"], heartbeats=restores)

    assert (S.STARTING, begun_ms) == (watched.look.tasks[0].state, watched.look.tasks[0].still_since_ms)
    assert "bringing local state level" == watched.look.tasks[0].detail


def test_a_task_without_lag_never_stalls(watched):
    watched.see()
    for _ in range(10):
        watched.see(lag=0, stalled=watched.job.task_names)

    assert {S.RUNNING} == set(watched.states())


def test_the_first_report_of_an_owner_is_no_commit(watched):
    watched.see()
    assert not watched.look.tasks[0].moved.is_commit
    watched.see()
    assert watched.look.tasks[0].moved.is_commit

    grant = watched.job.state.grants["Partition_0", 1]
    moved = replace(grant, epoch=99, execution_id="e1")
    watched.job.owner["Partition_0"] = "e1"
    watched.job.change(grants={**watched.job.state.grants, ("Partition_0", 99): moved})
    watched.see()
    assert ("e1", False) == (watched.look.tasks[0].load.owner, watched.look.tasks[0].moved.is_commit)


def test_a_task_without_a_living_owner_waits_and_names_the_suspension(watched):
    watched.see()
    watched.job.change_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat")
    watched.see()
    assert [S.RUNNING, S.WAITING] * 2 == watched.states()
    assert watched.look.lag is None

    put = SuspendedPut(processor_id="1", execution_id="e1", exit_code=8, reason="a range is gone")
    watched.job.change(suspended={"1": put})
    watched.see()
    assert "a range is gone" in watched.look.tasks[1].detail


@pytest.mark.parametrize(
    ("figures", "heartbeat", "phase", "state", "detail"),
    [
        ({}, {"failing": Failing(attempts=3, for_ms=1, left_ms=1, reason="boom")}, "RUNNING", S.FAILING, "boom"),
        ({"restored": 63, "restore_total": 100, "restore_left_ms": 7000}, {}, "STARTED", S.RESTORING, "63 %"),
        ({}, {"step": "fences slot 1"}, "STARTED", S.STARTING, "fences slot 1"),
        ({}, {}, "STARTED", S.STARTING, "not started its query"),
        ({}, {"held": frozenset()}, "RUNNING", S.STARTING, "not read the grant"),
    ],
)
def test_a_task_has_the_reason_why_its_container_does_not_process_it(
    watched, figures, heartbeat, phase, state, detail
):
    watched.job.change_container("e0", phase=ContainerPhase(phase))
    watched.see(heartbeats={"e0": heartbeat}, figures={"e0": figures})

    assert state is watched.look.tasks[0].state
    assert detail in watched.look.tasks[0].detail
    assert S.RUNNING is watched.look.tasks[1].state


def test_a_look_at_many_tasks_lets_other_threads_run():
    rests = []
    look_at(PageJob(4 * TASKS_BETWEEN_RESTS).snapshot(), None, now_ms=1, wall_ms=1, rest=lambda: rests.append(1))

    assert 4 == len(rests)


def test_a_leader_without_heartbeats_yet_shows_starting_tasks(watched):
    watched.see_again()

    assert {S.STARTING} == set(watched.states())
    assert watched.look.lag is None


def test_rates_of_a_silent_container_are_not_shown_for_longer_than_their_span(watched):
    watched.see()
    watched.see()
    watched.job.clock.advance(SPAN_MS)
    assert watched.see_again().records_in_per_s is not None
    watched.job.clock.advance(1)
    assert watched.see_again().records_in_per_s is None


def test_rates_are_taken_over_up_to_the_span_and_few_heartbeats_are_kept():
    watched = Watched(2, 1)
    recent = {}
    for _ in range(200):
        watched.job.receive_heartbeats(after_ms=200, handled=2)
        recent = followed(recent, watched.job.liveness)

    (kept,) = recent.values()
    assert len(kept) <= SPAN_MS // APART_MS + 2
    assert SPAN_MS - APART_MS <= kept[-1].at_ms - kept[0].at_ms <= SPAN_MS
    assert pytest.approx(20) == Pace(kept).per_s(lambda figures: figures.records_in)


def test_a_new_execution_has_no_rate_of_the_earlier_one():
    watched = Watched(2, 1)
    watched.job.receive_heartbeats(figures={"e0": {"at_ms": 50_000, "records_in": 1_000}})
    recent = followed({}, watched.job.liveness)
    watched.job.receive_heartbeats(figures={"e0": {"at_ms": 10, "records_in": 5}})

    (kept,) = followed(recent, watched.job.liveness).values()
    assert [10] == [figures.at_ms for figures in kept]
    assert Pace(kept).per_s(lambda figures: figures.records_in) is None


def test_a_rate_needs_both_reports_of_a_position():
    pace = Pace((Figures(at_ms=0), Figures(at_ms=1000)))

    assert pace.records_per_s(PageJob(1, 1).ssp_kb["Partition_0"]) is None
    assert pace.batch_share("Partition_0") is None


def test_a_long_bunch_that_ends_between_two_reports_fills_no_more_than_the_time_between_them():
    before = Figures(at_ms=0, tasks={"Partition_0": TaskStats()})
    now = Figures(at_ms=1000, batch_ns=10**9, tasks={"Partition_0": TaskStats(busy_ns=9 * 10**9)})

    assert 1.0 == Pace((before, now)).batch_share("Partition_0")


def test_the_last_hour_is_a_ring_of_bounded_size():
    trend = ()
    for number in range(2 * SAMPLES_MAX):
        trend = sampled(trend, TrendSample(number * INTERVAL_MS, float(number), number))
        assert sampled(trend, TrendSample(number * INTERVAL_MS + INTERVAL_MS - 1, 0.0, 0)) is trend

    assert SAMPLES_MAX == len(trend)
    assert [2 * SAMPLES_MAX - 1, SAMPLES_MAX] == [trend[-1].lag, trend[0].lag]


def test_samples_from_before_a_pause_of_an_hour_are_dropped():
    trend = sampled((), TrendSample(0, 1.0, 1))

    assert [3_600_001] == [sample.at_ms for sample in sampled(trend, TrendSample(3_600_001, None, None))]


# --- the job ---


def job_state_of(watched):
    shown = overview(watched.look)
    return shown.state, shown.sentence


def test_a_job_that_keeps_up_is_running_in_one_sentence(watched):
    watched.see()
    watched.see()

    assert (JobState.RUNNING, "4 tasks in 2 containers on 2 hosts; lag 0.") == job_state_of(watched)
    assert Advice.KEEPS_UP is overview(watched.look).hint.advice


def test_the_worst_state_of_a_task_is_the_state_of_the_job(watched):
    watched.see()
    watched.see(lag=1000)
    assert JobState.LAGGING is job_state_of(watched)[0]
    watched.see(lag=1000, heartbeats={"e0": {"step": "restores"}})
    assert (JobState.STARTING, "2 of 4 tasks start; 2 containers on 2 hosts; lag 4,000.") == job_state_of(watched)
    watched.job.change_container("e1", phase=ContainerPhase.LOST)
    watched.see()
    assert (JobState.WAITING, "2 of 4 tasks wait for an owner; 1 container on 1 host.") == job_state_of(watched)
    watched.job.change(run=replace(watched.job.state.run, ended=True))
    watched.see()
    assert JobState.STOPPED is job_state_of(watched)[0]


def test_the_hint_that_the_job_keeps_up_is_for_a_job_that_runs(watched):
    watched.see()
    watched.see()
    assert "The job keeps up with its inputs." == overview(watched.look).advice
    watched.see(heartbeats={"e0": {"failing": Failing(attempts=1, for_ms=1, left_ms=1, reason="no space")}})

    assert (JobState.FAILING, Advice.KEEPS_UP) == (job_state_of(watched)[0], overview(watched.look).hint.advice)
    assert "" == overview(watched.look).advice


def test_findings_that_are_more_than_a_notice_are_named_beside_the_state(watched):
    watched.job.findings = tuple(
        Finding(code=code, subject="s", found="f", remedy="r")
        for code in ("topic-missing", "container-ended", "topic-missing")
    )
    watched.see()

    assert Severity.NOTICE is watched.job.findings[1].severity
    assert ["topic-missing"] == overview(watched.look).serious_codes


def test_tasks_that_restore_count_as_starting_and_one_task_is_worded_in_the_singular():
    watched = Watched(3, 3)
    watched.see(figures={"e0": {"restored": 1, "restore_total": 9}})
    assert (JobState.STARTING, "1 of 3 tasks starts; 3 containers on 3 hosts; lag 0.") == job_state_of(watched)
    watched.see(figures={"e0": {"restored": 1, "restore_total": 9}}, heartbeats={"e1": {"step": "fences"}})
    assert "2 of 3 tasks start; 3 containers on 3 hosts; lag 0." == job_state_of(watched)[1]


def causes_of(watched):
    return [(row.state, row.task_count, row.text) for row in overview(watched.look).causes]


def test_a_job_that_moves_has_no_cause(watched):
    watched.see()
    watched.see(lag=100_000)

    assert S.LAGGING in watched.states()
    assert [] == causes_of(watched)


def test_the_overview_names_the_failure_of_a_query(watched):
    failing = Failing(attempts=2, for_ms=1, left_ms=1, reason="Input/output error, and 0.0 MB free on its disk")
    watched.see(heartbeats={"e0": {"failing": failing}})

    text = "the query of its container failed 2 times: Input/output error, and 0.0 MB free on its disk"
    assert [(S.FAILING, 2, text)] == causes_of(watched)


def test_the_overview_names_the_reason_why_a_container_cannot_be_started(watched):
    watched.job.change_container("e0", phase=ContainerPhase.FENCED, reason="no heartbeat")
    watched.job.change(launches={"l": replace(a_launch("l", processor_id="0"), host="host-b")})
    watched.see()
    watched.job.liveness = replace(watched.job.liveness, troubles={"l": "the host does not answer"})
    watched.see_again()

    ((state, count, text),) = causes_of(watched)
    assert (S.WAITING, 2) == (state, count)
    assert text.startswith("no-room: container l cannot be started on host-b, and is tried again: the host does not")


@pytest.mark.parametrize("progress", [{}, {"restored": 30, "restore_total": 100, "restore_left_ms": 4000}])
def test_the_overview_names_the_transaction_that_holds_a_restore_up(watched, progress):
    step = transaction_step("__samzapy-changelog-orders-1-totals-0", 51)
    watched.see(lag=5, heartbeats={"e0": {"step": step}, "e1": {"step": "reads"}}, figures={"e0": progress})

    assert step in causes_of(watched)[0][2]
    assert 2 == causes_of(watched)[0][1]


def test_the_causes_of_a_job_begin_with_the_worst_and_are_few():
    watched = Watched(6, 6)
    watched.job.change(
        suspended={"5": SuspendedPut(processor_id="5", execution_id="e5", exit_code=8, reason="a range is gone")}
    )
    for execution_id in ("e3", "e4", "e5"):
        watched.job.change_container(execution_id, phase=ContainerPhase.LOST)
    failing = Failing(attempts=1, for_ms=1, left_ms=1, reason="boom")
    watched.see(heartbeats={"e0": {"failing": failing}, "e1": {"step": "fences"}})

    shown = causes_of(watched)
    assert [(S.FAILING, 1), (S.WAITING, 2), (S.WAITING, 1)] == [cause[:2] for cause in shown]
    assert "declared lost" in shown[1][2]
    assert "a range is gone" in shown[2][2]
    assert CAUSES_MAX == len(shown), "that of the task that starts is left out"


def test_a_cause_that_ends_by_itself_stands_behind_one_that_needs_a_person():
    watched = Watched(3, 3)
    watched.see(
        lag=5,
        figures={f"e{number}": {"restored": 1, "restore_total": 9} for number in range(3)},
        heartbeats={"e2": {"step": transaction_step("changelog-0", 51)}},
    )

    assert [(S.RESTORING, 1), (S.RESTORING, 2)] == [cause[:2] for cause in causes_of(watched)]


def test_a_job_without_a_plan_shows_that(watched):
    watched.job.change(generation=None)
    watched.see_again()

    assert JobState.EMPTY is job_state_of(watched)[0]


def test_inputs_have_rate_and_lag_and_list_the_partitions_that_are_not_read(watched):
    ((stream, known),) = watched.job.state.inputs.items()
    watched.see(lag=50)
    watched.see(lag=50)
    (row,) = overview(watched.look).inputs
    assert ("kafka.orders", 4, 200, 80.0, "") == (
        row.stream,
        row.partition_count,
        row.lag,
        row.records_per_s,
        row.note,
    )

    grown = replace(known, expansions=(Expansion(partition_count=8, seen_at_ms=1),))
    watched.job.change(inputs={stream: grown})
    watched.see()
    assert ["8 partitions exist"] == [row.note for row in overview(watched.look).inputs]
    watched.job.change(inputs={stream: replace(known, gone_at_ms=1)})
    watched.see()
    assert ["the topic is gone"] == [row.note for row in overview(watched.look).inputs]


def test_stores_are_those_of_the_configuration_with_their_size_on_disk(watched):
    watched.job.change(
        config={"stores.sums.msg.serde": "json", "stores.seen.scope": "task", "stores.sums.key.serde": "string"}
    )
    watched.see()

    shown = overview(watched.look)
    assert [("seen", "task", ""), ("sums", "key", "key.serde=string, msg.serde=json")] == [
        (row.store, row.scope, row.settings) for row in shown.stores
    ]
    assert 40_000_000 == shown.disk_bytes
    assert {(None, None)} == {(row.bytes_used, row.entries) for row in shown.stores}


def test_the_size_of_a_store_is_that_in_all_containers_together(watched):
    watched.job.change(config={"stores.sums.scope": "task", "stores.new.msg.serde": "json"})
    first = {"sums": StoreSize(bytes_used=8192, entries=90), "dropped": StoreSize(bytes_used=4096, entries=1)}
    second = {"sums": StoreSize(bytes_used=4096, entries=3)}

    watched.see(figures={"e0": {"stores": first}, "e1": {"stores": second}})

    shown = [(row.store, row.scope, row.bytes_used, row.entries) for row in overview(watched.look).stores]
    assert [("dropped", "", 4096, 1), ("new", "key", None, None), ("sums", "task", 12288, 93)] == shown


def test_the_size_of_a_store_is_without_containers_that_are_gone(watched):
    sizes = {"sums": StoreSize(bytes_used=8192, entries=90)}
    watched.see(figures={"e0": {"stores": sizes}, "e1": {"stores": sizes}})

    watched.job.change_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat")
    watched.see(figures={"e0": {"stores": sizes}})

    assert [("sums", 90)] == [(row.store, row.entries) for row in overview(watched.look).stores]


def test_findings_and_trouble_of_the_coordinator_are_shown(watched):
    finding = Finding(code="topic-missing", subject="topic a", found="it is not there", remedy="Make it")
    watched.job.findings, watched.job.trouble = (finding,), "no broker answered"
    watched.see()

    assert ((finding,), "no broker answered") == (overview(watched.look).findings, overview(watched.look).trouble)


def test_a_restore_that_waits_for_another_producer_names_the_transaction_beside_its_progress(watched):
    step = transaction_step("__samzapy-changelog-orders-1-totals-0", 51)
    progress = {"restored": 30, "restore_total": 100, "restore_left_ms": 4000}
    watched.see(lag=5, heartbeats={"e0": {"step": step}})
    assert (S.STARTING, step) == (watched.look.tasks[0].state, watched.look.tasks[0].detail)

    watched.see(lag=5, heartbeats={"e0": {"step": step}}, figures={"e0": progress})

    assert S.RESTORING is watched.look.tasks[0].state
    assert watched.look.tasks[0].detail == f"30 %, about 4 s left; {step}"
