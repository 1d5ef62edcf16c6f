"""Failures of standbys and reserves that had taken over count on their processor."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.grants import executions_to_grant
from samzapy.coordinator.assignment.liveness import Liveness, Sighting
from samzapy.coordinator.commands import Figures, LaunchesLooked
from samzapy.coordinator.decide import decide
from samzapy.coordinator.launching.launches import failed_job
from samzapy.coordinator.requests.place_container import placements_over
from samzapy.errors import ExitCode
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ProcessorId
from samzapy.model.launch import UP, Launched, LaunchedState, LaunchPhase, LaunchRole
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.records import ConfigPut, ContainerPut, LaunchPut, PlacedPut, SuspendedPut
from samzapy.testing.builders import a_container, a_heartbeat, a_launch
from unit_tests.fixtures.decided_job import HOUR_MS, DecidedJob, a_launch_review

P = ProcessorId("0")
MINUTE_MS = 60_000
LEVEL = StandbyProgress(tasks=2, level=2, lag=0, restored=9, total=9)


class JobWithStandby(DecidedJob):
    """Processor 0 with one standby.

    Its containers start at once, and each standby is level at once.
    """

    def __init__(self, **review):
        super().__init__(ConfigPut(config_key="job.standbytasks.replication.factor", value="2"))
        self.review, self.rounds = a_launch_review(**review), 0

    def decides(self, command):
        standbys = [launch for launch in self.state.launches.values() if launch.role is LaunchRole.STANDBY]
        sightings = {
            launch.execution_id: Sighting(
                at_ms=0, stream_offset=10**6, held=frozenset(), figures=Figures(), warm=LEVEL
            )
            for launch in standbys
        }
        self.apply(*decide(command, self.state, Liveness(last=sightings)).records)

    def settles(self):
        for _ in range(3):
            self.rounds += 1
            self.decides(replace(self.review, now_ms=self.now_ms, seed=f"s{self.rounds}"))
            self.apply(*placements_over(self.state))
            self.starts_wanted()

    @property
    def runner(self):
        return executions_to_grant(self.state).get(P)

    def crashes(self):
        runner = self.runner
        self.works(runner)
        self.is_now(runner, ContainerPhase.LOST, reason="it ended with signal 9")
        self.settles()
        self.is_now(runner, ContainerPhase.FENCED)
        self.now_ms += MINUTE_MS
        self.settles()


def test_a_job_whose_standbys_take_over_and_crash_ends_after_as_many_failures_as_without_standbys():
    job = JobWithStandby()
    job.settles()

    finished = []
    for _ in range(4):
        job.crashes()
        finished.append(job.state.run.finished)

    assert [False, False, False, True] == finished
    assert "processor 0 failed 4 times in a row" in failed_job(job.state, 3)
    assert "-s0-s" in failed_job(job.state, 3)
    assert "which had taken over, it ended with signal 9" in failed_job(job.state, 3)


def test_no_standby_takes_over_within_the_window_after_too_many_failures():
    job = JobWithStandby(fails_job=False)
    job.settles()
    for _ in range(5):
        job.crashes()

    assert not job.state.run.finished
    assert job.runner is None
    job.now_ms += HOUR_MS
    job.settles()
    assert job.runner is not None


def test_failures_that_are_further_apart_than_the_window_end_no_job():
    job = JobWithStandby(retry_window_ms=MINUTE_MS // 2)
    job.settles()

    for _ in range(9):
        job.crashes()

    assert not job.state.run.finished


def seen_by_launcher(job, execution_id, exit_code):
    ended = Launched(state=LaunchedState.ENDED, host="host-b", exit_code=exit_code)
    return LaunchesLooked(
        launched={execution_id: ended}, now_ms=job.now_ms, retry_window_ms=job.review.retry_window_ms
    )


def test_the_end_of_a_standby_that_took_over_counts_once_also_if_the_launcher_reports_it():
    job = JobWithStandby()
    job.settles()
    job.crashes()
    standby = job.runner
    job.works(standby)

    job.decides(seen_by_launcher(job, standby, 1))
    job.decides(seen_by_launcher(job, standby, 1))
    job.settles()

    assert LaunchRole.STANDBY is job.state.launches.get(standby, a_launch(role=LaunchRole.STANDBY)).role
    assert 2 == job.state.launches["e1"].failures


def test_a_standby_that_fails_before_it_takes_over_counts_on_no_processor():
    job = JobWithStandby()
    job.settles()
    (standby,) = (launch for launch in job.state.launches.values() if launch.role is LaunchRole.STANDBY)

    job.decides(seen_by_launcher(job, standby.execution_id, 1))

    assert 0 == job.state.launches["e1"].failures
    assert 1 == job.state.launches[standby.execution_id].failures


def test_a_standby_starts_in_spite_of_the_failures_of_those_that_had_taken_over():
    job = JobWithStandby(retry_count=1, fails_job=False, retry_window_ms=10 * HOUR_MS)
    job.settles()
    job.crashes()

    (standby,) = (
        launch
        for launch in job.state.launches.values()
        if launch.role is LaunchRole.STANDBY and launch.phase in UP and launch.execution_id != job.runner
    )
    assert 0 == standby.failures


def usage_error(job, execution_id):
    container = job.state.containers[execution_id]
    heartbeat = a_heartbeat(execution_id, processor_id="0", host=container.host, pid=container.pid)
    return replace(heartbeat, state=ContainerPhase.STOPPED, exit_code=ExitCode.USAGE, reason="no such option")


@pytest.mark.parametrize("failures", [0, 1])
def test_wrong_usage_of_a_container_that_took_over_suspends_its_processor_at_the_second_failure(failures):
    job = JobWithStandby()
    job.settles()
    job.apply(LaunchPut(launch=replace(job.state.launches["e1"], phase=LaunchPhase.ENDED, failures=failures)))
    job.apply(PlacedPut(processor_id=P, execution_id=standby_of(job), uuid=""))
    runner = job.runner
    job.works(runner)

    job.decides(usage_error(job, runner))

    assert (P in job.state.suspended) is bool(failures)


def test_wrong_usage_long_after_the_failure_before_a_take_over_suspends_nothing():
    job = JobWithStandby()
    job.settles()
    job.crashes()
    runner = job.runner
    job.works(runner)
    job.now_ms += HOUR_MS
    job.settles()

    job.decides(usage_error(job, runner))

    assert {} == job.state.suspended


def test_wrong_usage_long_after_the_failure_of_a_container_that_cannot_be_ended_suspends_nothing():
    lost = a_launch("e1", phase=LaunchPhase.STOPPING, expires_at_ms=0, failures=1, window_began_ms=1)
    job = DecidedJob(
        LaunchPut(launch=lost),
        ContainerPut(container=a_container("e1", phase=ContainerPhase.FENCED)),
        LaunchPut(launch=a_launch("e2", host="host-b", failures=1, window_began_ms=1, wanted_at_ms=2)),
        ContainerPut(container=a_container("e2", host="host-b", phase=ContainerPhase.STARTED)),
    )
    job.works("e2")
    job.apply(*decide(a_launch_review(now_ms=2 * HOUR_MS), job.state, Liveness()).records)

    records = decide(usage_error(job, "e2"), job.state, Liveness()).records

    assert [] == [record for record in records if isinstance(record, SuspendedPut)]


def test_a_failure_is_kept_within_its_window_and_until_the_tasks_run():
    job = JobWithStandby(retry_window_ms=10 * MINUTE_MS)
    job.settles()
    job.crashes()
    job.settles()
    assert 1 == job.state.launches["e1"].failures, "the tasks run, and the window is not over"
    job.works(job.runner)
    job.is_now(job.runner, ContainerPhase.STARTED)

    job.now_ms += HOUR_MS
    job.settles()
    assert 1 == job.state.launches["e1"].failures, "the window is over, and the tasks do not run"

    job.works(job.runner)
    job.settles()
    assert 0 == job.state.launches["e1"].failures


def standby_of(job):
    (standby,) = (launch for launch in job.state.launches.values() if launch.role is LaunchRole.STANDBY)
    return standby.execution_id
