"""Containers that end at the same start step again and again.

The step is named, and no other container is started.
"""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.liveness import Liveness, StartUnderWay
from samzapy.coordinator.decide import decide, observe
from samzapy.coordinator.launching.dying_starts import DEATHS_MAX, noted_step
from samzapy.inspection.status import status_json
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchPhase
from samzapy.model.placement import Action
from samzapy.stream.records import ContainerPut, LaunchPut
from samzapy.testing.builders import a_container, a_heartbeat, a_launch
from unit_tests.fixtures.decided_job import HOUR_MS, DecidedJob, a_launch_review
from unit_tests.fixtures.launched_job import LaunchedJob

pytestmark = pytest.mark.slow

RESTORING, READING = "bringing local state level", "reading positions"


class DyingJob(LaunchedJob):
    """A job whose processor 1 has containers that end at the steps of `dies_at`.

    Each start takes two minutes, so failures within a window never add up. The last start, if any, succeeds.
    """

    def __init__(self, *dies_at):
        self.dies_at = list(dies_at)
        self.plans = {}
        super().__init__(count=2)

    def lives(self, name):
        process = self.processes[name]
        super().lives(name)
        if process.launch.processor_id != "1" or process.is_over:
            return
        if name not in self.plans:
            self.plans[name] = self.dies_at.pop(0) if self.dies_at else ""
        heartbeat = self.world.queue.pop()
        if not heartbeat.held:
            self.world.queue.append(heartbeat)
            return
        step = self.plans[name]
        is_first = heartbeat.held and not hasattr(process, "granted")
        if is_first:
            process.granted = self.now_ms()
        if step and self.now_ms() - process.granted > 120_000:
            self.ends(name, 135)
            return
        self.world.queue.append(replace(heartbeat, step=step))

    def settles(self, rounds=12):
        for _ in range(rounds):
            self.runs_a_round(4000)

    def findings(self):
        status = status_json(self.service.status(), 0)
        return [(finding["subject"], finding["found"], finding["remedy"]) for finding in status["findings"]]

    def started_of_1(self):
        return [name for name in self.started if self.processes[name].launch.processor_id == "1"]


def test_a_container_that_ends_three_times_at_one_step_names_it_and_is_not_started_again():
    job = DyingJob(*[RESTORING] * 20)

    job.settles(450)

    assert DEATHS_MAX == len(job.started_of_1()), "half an hour went by"
    assert {"0": 2} == job.at_work()
    ((subject, finding, remedy),) = job.findings()
    assert "processor 1" == subject
    assert "3 containers in a row ended while bringing local state level" in finding
    assert "of the last one: " in finding
    assert "`samzapy job restart --processor 1` starts it again" in remedy


def test_containers_that_end_at_different_steps_are_started_on():
    job = DyingJob(RESTORING, RESTORING, READING, RESTORING, RESTORING)

    job.settles(450)

    assert 6 == len(job.started_of_1())
    assert {"0": 2, "1": 2} == job.at_work()
    assert [] == job.findings()


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_start_that_succeeds_restarts_the_count(deaths):
    job = DyingJob(*[RESTORING] * deaths, "", *[RESTORING] * 2)
    job.settles(190)
    assert {"0": 2, "1": 2} == job.at_work()

    job.ends(job.execution("1"), 137)
    job.settles(190)

    assert {"0": 2, "1": 2} == job.at_work()
    assert {} == job.state.suspended


def test_a_restart_that_an_operator_asks_for_has_three_starts_again():
    job = DyingJob(*[RESTORING] * 20)
    job.settles(375)

    job.ask(1, Action.RESTART_CONTAINER, processor_id="1")
    job.reads()
    job.settles(450)

    assert 2 * DEATHS_MAX == len(job.started_of_1())
    assert ["1"] == [*job.state.suspended]


def test_a_job_whose_coordinator_fails_over_meanwhile_is_suspended_three_starts_later_at_most():
    job = DyingJob(*[RESTORING] * 20)
    job.settles(45)

    job.fails_over()
    job.settles(450)

    assert DEATHS_MAX < len(job.started_of_1()) <= 2 * DEATHS_MAX
    assert ["1"] == [*job.state.suspended]


def started_at_a_step(execution_id, processor_id="0"):
    """Two containers of a processor ended at the step at which its third one is."""
    start = StartUnderWay(execution_id=execution_id, step=RESTORING, died_at=RESTORING, deaths=DEATHS_MAX - 1)
    return Liveness(starts={processor_id: start})


def reviewed(job, liveness):
    """The records of one review of the launches, and the sightings after it."""
    review = a_launch_review(now_ms=job.now_ms, seed=f"s{job.now_ms}")
    records = decide(review, job.state, liveness).records
    job.apply(*records)
    job.now_ms += 500
    return records, observe(review, job.state, liveness)


def test_a_processor_that_is_not_wanted_any_more_is_not_suspended_at_a_step():
    job = DecidedJob(
        LaunchPut(launch=a_launch("e9", processor_id="1", phase=LaunchPhase.STOPPING, expires_at_ms=0, failures=3)),
        ContainerPut(container=a_container("e9", processor_id="1", phase=ContainerPhase.LOST)),
    )

    first, liveness = reviewed(job, started_at_a_step("e9", processor_id="1"))
    second, _ = reviewed(job, liveness)

    assert ((), ()) == (first, second)
    assert {} == liveness.starts


@pytest.mark.parametrize("phase", [LaunchPhase.STOPPING, LaunchPhase.ENDED])
def test_a_container_that_is_lost_after_an_order_to_stop_has_not_ended_at_its_step(phase):
    stopping = a_launch("e1", phase=LaunchPhase.STOPPING, expires_at_ms=2 * HOUR_MS)
    job = DecidedJob(LaunchPut(launch=stopping))

    _, liveness = reviewed(job, started_at_a_step("e1"))
    job.apply(LaunchPut(launch=replace(stopping, phase=phase)))
    job.is_now("e1", ContainerPhase.LOST)
    reviewed(job, liveness)

    assert {} == job.state.suspended


def test_a_container_that_is_lost_right_after_the_order_to_stop_has_not_ended_at_its_step():
    job = DecidedJob(LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING, expires_at_ms=2 * HOUR_MS)))
    job.is_now("e1", ContainerPhase.LOST)

    reviewed(job, started_at_a_step("e1"))

    assert {} == job.state.suspended


def test_starts_of_containers_that_the_coordinator_did_not_launch_are_not_counted():
    """Each process may have an id of its own, so the counts would only grow."""
    own, by_hand = a_container("e1"), a_container("e2", processor_id="2", pid=2)
    job = DecidedJob(LaunchPut(launch=a_launch("e1")), ContainerPut(container=own), ContainerPut(container=by_hand))

    heartbeats = [
        replace(a_heartbeat(at.execution_id, processor_id=at.processor_id, pid=at.pid), step=RESTORING)
        for at in (own, by_hand)
    ]
    noted = [noted_step(heartbeat, job.state, Liveness()).starts for heartbeat in heartbeats]

    assert [{"0"}, set()] == [set(starts) for starts in noted]
