"""Each cause of a task that does not move, made true by the events before it."""

import re
from dataclasses import replace

import pytest

from samzapy.coordinator.commands import Figures
from samzapy.coordinator.grant_values import Position
from samzapy.inspection.standstill import STILL_MS, Cause, standstills
from samzapy.inspection.status import status_json
from samzapy.model.container import ContainerPhase
from samzapy.model.failing import Failing
from samzapy.model.launch import UP
from samzapy.model.placement import Action
from samzapy.model.slow_message import SlowMessage
from samzapy.model.start_step import transaction_step
from samzapy.stream.audit import time_text
from samzapy.stream.records import SuspendedPut
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_ssp_kb
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.launched_job import LaunchedJob
from unit_tests.fixtures.operated_job import ScaledJob

TASK = "SystemStreamPartition_kafka.orders.0"
SSP_KB = an_ssp_kb("kafka.orders.0:0/1")


class Job:
    """A job with one task and one container, `e1`, that holds it."""

    def __init__(self):
        self.world = World()
        self.service = self.world.coordinator()
        self.service.become_leader()
        self.service.submit(a_submission(config=a_config(), partition_counts={"kafka.orders": 1}))
        self.report()
        self.epoch = next(iter(self.state.grants.values())).epoch

    @property
    def state(self):
        return self.service.status().state

    def report(self, offset_next=None, offset_end=100, **fields):
        """A heartbeat of now; without an offset it has no figures."""
        position = Position(offset_next or 0, offset_end, open_for_ms=fields.pop("open_for_ms", 0))
        positions = {} if offset_next is None else {SSP_KB: fields.pop("position", position)}
        figures = fields.pop("figures", Figures(positions=positions))
        held = [(TASK, self.epoch)] if hasattr(self, "epoch") else []
        now_ms = self.world.clock.monotonic_ms()
        self.world.queue.append(a_heartbeat(**{"received_ms": now_ms, "held": held, "figures": figures, **fields}))
        self.service.run_once(0)

    def wait(self, ms, offset_next=None, **fields):
        """Time in which the same heartbeat comes every 5 s."""
        for _ in range(ms // 5000):
            self.world.clock.advance(5000)
            self.report(offset_next, **fields)

    def standstill(self):
        snapshot = self.service.status()
        return standstills(snapshot.state, snapshot.liveness, self.world.clock.monotonic_ms()).get(TASK)


@pytest.fixture
def job():
    return Job()


def test_a_task_that_moves_or_has_nothing_to_read_is_not_stalled(job):
    for offset in range(0, 40, 5):
        job.wait(5000, offset)
        assert job.standstill() is None

    job.wait(60_000, 100, offset_end=100)
    assert job.standstill() is None


def test_a_position_with_messages_after_it_that_does_not_move_is_stalled_after_a_while(job):
    job.report(10)
    job.wait(STILL_MS - 5000, 10)
    assert job.standstill() is None

    job.wait(10_000, 10)
    still = job.standstill()
    assert (Cause.NO_COMMIT, STILL_MS + 5000) == (still.cause, still.for_ms)
    assert "a slow message" in still.detail
    assert str(still).startswith(f"{TASK} stands still for 20 s: no-commit: container e1 on host-a works without")

    job.wait(5000, 11)
    assert job.standstill() is None


def test_messages_that_come_late_do_not_count_as_waiting_before_they_came(job):
    job.wait(60_000, 10, offset_end=10)
    job.wait(5_000, 10, offset_end=11)

    assert job.standstill() is None


def test_a_failing_query_is_the_cause_with_its_reason(job):
    failing = Failing(attempts=4, for_ms=30_000, left_ms=9_000, reason="ValueError at offset 10")
    job.report(10)
    job.wait(20_000, 10, failing=failing)

    still = job.standstill()
    assert (Cause.FAILING, "the query of container e1 on host-a has failed 4 times: ValueError at offset 10") == (
        still.cause,
        still.detail,
    )


def test_a_restore_is_the_cause_with_its_progress_and_the_time_left(job):
    restoring = Figures(restored=300, restore_total=1000, restore_left_ms=7000)
    job.wait(20_000, figures=restoring, step="bringing local state level")

    still = job.standstill()
    assert Cause.RESTORING is still.cause
    assert "has read 300 of 1000 changelog records, 7 s left" in still.detail


def test_a_step_of_the_start_is_the_cause_while_it_lasts(job):
    job.wait(20_000, step="reading positions")

    assert (Cause.STEP, "container e1 on host-a starts its query: reading positions") == (
        job.standstill().cause,
        job.standstill().detail,
    )


def test_a_bootstrap_input_that_is_not_read_yet_is_the_cause(job):
    bootstrapping = Figures(positions={SSP_KB: Position(10, 100, bootstrap_end=50)})
    job.wait(25_000, figures=bootstrapping)

    assert Cause.BOOTSTRAP is job.standstill().cause


def test_a_container_that_no_broker_answers_is_the_cause_also_where_nothing_is_known_to_wait(job):
    job.report(100, offset_end=100, kafka_silent_ms=9_000)
    assert job.standstill() is None
    job.report(100, offset_end=100, kafka_silent_ms=12_000)

    assert (Cause.BROKER, 12_000) == (job.standstill().cause, job.standstill().for_ms)


def test_a_container_without_heartbeats_is_the_cause(job):
    job.report(100, offset_end=100)
    job.world.clock.advance(STILL_MS)

    assert (Cause.SILENT, STILL_MS) == (job.standstill().cause, job.standstill().for_ms)


def test_a_new_leader_does_not_call_containers_silent_before_they_could_report(job):
    successor = job.world.coordinator("b", pid=2)
    successor.become_leader()
    job.service = successor
    job.world.clock.advance(STILL_MS - 1)
    assert job.standstill() is None

    job.world.clock.advance(1)
    assert (Cause.SILENT, STILL_MS) == (job.standstill().cause, job.standstill().for_ms)


def test_a_task_whose_only_container_stopped_has_no_container(job):
    job.report(100, offset_end=100, held=[], state=ContainerPhase.STOPPED)

    still = job.standstill()
    assert (Cause.NO_CONTAINER, None) == (still.cause, still.for_ms)
    assert "processor 0 has no running container" == still.detail


def test_the_tasks_of_a_processor_that_left_wait_for_its_return_and_the_time_is_named():
    job = ScaledJob(job_processor_grace_ms="60000")
    job.settles()
    job.handles([job.heartbeat("e0", state=ContainerPhase.STOPPED)])
    job.passes(10_500)

    stills = of(job)
    assert {Cause.DEBOUNCE} == {still.cause for still in stills}
    assert {"processor 0 has left. Others get its tasks in 50 s, unless it returns (job.processor.grace.ms)"} == {
        still.detail for still in stills
    }


def test_a_lost_container_that_is_not_fenced_is_the_cause(job):
    lost = {
        execution_id: replace(container, phase=ContainerPhase.LOST, reason="its process is gone")
        for execution_id, container in job.state.containers.items()
    }
    state = replace(job.state, containers=lost)

    (still,) = standstills(state, job.service.status().liveness, 0).values()
    assert Cause.FENCING is still.cause
    assert "was declared lost (its process is gone), and is not fenced yet" in still.detail


def test_a_processor_whose_container_ended_for_good_is_the_cause():
    job = LaunchedJob(count=1, partitions=1)
    (name,) = job.processes
    job.ends(name, exit_code=8)
    job.settles()

    (still,) = of(job)
    assert Cause.SUSPENDED is still.cause
    assert still.detail.startswith("processor 0 is suspended: ")


def test_a_suspended_processor_is_the_cause_with_its_reason(job):
    job.report(100, offset_end=100, held=[], state=ContainerPhase.STOPPED)
    suspended = SuspendedPut(processor_id="0", execution_id="e1", exit_code=8, reason="a range is gone")
    state = replace(job.state, suspended={"0": suspended})

    (still,) = standstills(state, job.service.status().liveness, 0).values()
    assert (Cause.SUSPENDED, "processor 0 is suspended: a range is gone") == (still.cause, still.detail)


def test_a_container_without_room_and_one_that_still_starts_are_causes():
    job = LaunchedJob(count=1, partitions=1, slots={"host-a": 1, "host-b": 1})
    (name,) = job.processes
    assert set() == causes_of(job)

    job.slots, job.says_why, job.is_broken = {"host-a": 0, "host-b": 0}, True, True
    job.ends(name, exit_code=1)
    job.settles()
    assert {"no-room"} == causes_of(job)
    assert [" on host-a, and is tried again: "] == re.findall(r" on [^:]*: ", details_of(job)[0])[:1]
    assert details_of(job)[0].endswith(". Mend that, free a slot, or add a host")

    job.slots = {"host-a": 1, "host-b": 1}
    job.settles()
    assert {"container-starting"} == causes_of(job)
    (launch,) = (launch for launch in job.state.launches.values() if launch.phase in UP)
    assert details_of(job)[0].endswith(f"; it is wanted since {time_text(launch.wanted_at_ms)}")


def of(job):
    snapshot = job.service.status()
    return standstills(snapshot.state, snapshot.liveness, job.world.clock.monotonic_ms()).values()


def causes_of(job):
    return {item.cause.value for item in of(job)}


def details_of(job):
    return [item.detail for item in of(job)]


def test_a_task_that_waits_for_its_release_names_the_container_that_has_it():
    job = ScaledJob(job_debounce_time_ms="1000", job_release_timeout_ms="60000")
    job.settles()
    before = {grant.task_name: grant for grant in job.state.grants_sorted}
    held = {
        name: [(grant.task_name, grant.epoch) for grant in before.values() if grant.execution_id == name]
        for name in ("e0", "e1")
    }
    job.ask(1, Action.SCALE, processor_id="", arguments={"factor": "2"})
    job.reads()
    read_to = job.world.topic.end_offset
    for _ in range(6):
        job.world.clock.advance(4000)
        job.receives_grants(held, read_to)

    assert {Cause.RELEASE} == {still.cause for still in of(job)}
    assert any(still.detail.startswith("container e0 on host-a has to release ") for still in of(job))


def test_a_task_whose_grant_its_container_has_not_read_waits_for_it_whatever_time_the_container_has_run():
    job = ScaledJob(job_debounce_time_ms="1000", job_processor_grace_ms="1000")
    job.settles()
    held = [(grant.task_name, grant.epoch) for grant in job.state.grants_sorted if grant.execution_id == "e1"]
    job.handles([job.heartbeat("e0", state=ContainerPhase.STOPPED)])
    for _ in range(8):
        job.world.clock.advance(5000)
        job.receives_grants({"e1": held})

    granted = {grant.task_name for grant in job.state.grants_sorted if grant.execution_id == "e1"}
    new = granted - {name for name, _ in held}
    assert new and {(Cause.GRANT, None, "container e1 on host-a has not read its grant yet")} == {
        (still.cause, still.for_ms, still.detail) for still in of(job) if still.task_name in new
    }
    job.settles(1)
    assert new.isdisjoint(still.task_name for still in of(job))


def test_the_status_shows_the_cause_of_each_task(job):
    job.report(10)
    job.wait(20_000, 10)

    status = status_json(job.service.status(), job.world.clock.monotonic_ms())

    assert ["no-commit"] == [row["standstill"]["cause"] for row in status["tasks"]]


def test_a_message_that_is_long_in_hand_is_the_cause_with_its_place_and_time(job):
    slow = SlowMessage(task_name=TASK, ssp=SSP_KB.ssp, offset=12, for_ms=40_000)
    job.report(10)
    job.wait(20_000, 10, slow_messages=(slow,))

    still = job.standstill()
    assert (Cause.SLOW_MESSAGE, f"one slow message since 40 s at {SSP_KB.ssp} offset 12") == (
        still.cause,
        still.detail,
    )


def test_a_slow_message_of_another_task_of_the_container_is_named_with_its_task(job):
    slow = SlowMessage(task_name="another", ssp=SSP_KB.ssp, offset=12, for_ms=40_000)
    job.report(10)
    job.wait(20_000, 10, slow_messages=(slow,))

    assert job.standstill().detail.endswith("offset 12, of task another in the same container")


def test_an_open_transaction_holds_back_a_task_that_has_read_all_that_kafka_shows(job):
    job.report(10, offset_end=10, open_for_ms=20_000)

    still = job.standstill()
    assert (Cause.OPEN_TRANSACTION, 20_000) == (still.cause, still.for_ms)
    assert "a transaction of another producer is open on" in still.detail
    assert still.detail.endswith("at offset 10")


def test_a_short_transaction_is_no_standstill(job):
    job.report(10, offset_end=10, open_for_ms=STILL_MS - 1)

    assert job.standstill() is None


@pytest.mark.parametrize(
    ("figures", "read"),
    [(Figures(), "and stands, waiting"), (Figures(restored=300, restore_total=1000), "after 300 of 1000 changelog")],
    ids=["nothing-read", "part-read"],
)
def test_an_open_transaction_is_the_cause_of_a_restore_that_waits_for_it_with_the_way_out(job, figures, read):
    job.wait(20_000, figures=figures, step=transaction_step("__samzapy-changelog-orders-1-totals-0", 51, 1))

    still = job.standstill()
    assert Cause.OPEN_TRANSACTION is still.cause
    assert read in still.detail
    assert "open on __samzapy-changelog-orders-1-totals-0 from offset 51 on, and on 1 more" in still.detail
    assert "samzapy doctor --patience 5" in still.detail
