"""A processor whose next container would end at once waits and is named.

The other processors continue.
"""

import pytest

from samzapy.coordinator.launching.launches import failed_job
from samzapy.errors import ExitCode
from samzapy.inspection.status import status_json
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchRole
from samzapy.model.placement import Action, StatusCode
from samzapy.model.standby_progress import StandbyProgress
from samzapy.testing.builders import a_config, a_heartbeat
from unit_tests.fixtures.launched_job import LaunchedJob
from unit_tests.fixtures.operated_job import Job

pytestmark = pytest.mark.slow

S = StatusCode
REASON = "kafka.orders.0:0/1: wanted offset 42, found that the topic begins at 60"
STATEFUL = {"stores_sums_msg_serde": "json", "local_store_dir": "/data"}


class SuspendedJob(LaunchedJob):
    """Containers that report in a last heartbeat why they end."""

    def fails(self, name, exit_code, reason=REASON, *, is_received=True):
        process = self.processes[name]
        if is_received:
            self.world.queue.append(
                a_heartbeat(
                    name,
                    processor_id=process.launch.processor_id,
                    host=process.host,
                    pid=process.pid,
                    stream_offset=self.world.topic.end_offset,
                    held=[(grant.task_name, grant.epoch) for grant in self.orders(name).own_grants()],
                    reason=reason,
                    exit_code=exit_code,
                    received_ms=self.world.clock.monotonic_ms(),
                )
            )
        self.ends(name, exit_code)

    def findings(self):
        status = status_json(self.service.status(), 0)
        return [
            (finding["code"], finding["subject"], finding["found"], finding["remedy"])
            for finding in status["findings"]
        ]


@pytest.mark.parametrize(
    ("exit_code", "is_received"),
    [
        *((exit_code, True) for exit_code in (ExitCode.REJECTED, ExitCode.TASK_FAILED, ExitCode.BAD_DATA)),
        *((exit_code, False) for exit_code in (ExitCode.TASK_FAILED, ExitCode.BAD_DATA)),
    ],
)
def test_a_container_that_would_fail_again_in_the_same_way_is_not_started_again(exit_code, is_received):
    job = SuspendedJob(count=2, **{"cluster-manager_container_retry_count": "2"})
    first = job.execution("1")

    job.fails(first, exit_code, is_received=is_received)
    job.settles(1200)

    assert 2 == len(job.started), "ten minutes went by"
    assert {"0": 2} == job.at_work()
    assert not job.state.run.finished
    assert "" == failed_job(job.state, 2)
    assert [0] == [launch.failures for launch in job.state.launches.values() if launch.processor_id == "1"]
    ((code, subject, finding, remedy),) = job.findings()
    assert ("processor-suspended", "processor 1") == (code, subject)
    assert f"{first} did, with exit code {exit_code}" in finding
    assert (REASON in finding) is is_received
    assert "`samzapy job restart --processor 1` starts it again" in remedy


def test_a_lost_range_is_named_with_its_ways_out():
    job = SuspendedJob(count=1)

    job.fails(job.execution("0"), ExitCode.BAD_DATA)
    job.settles()

    ((_, _, _, remedy),) = job.findings()
    assert "samzapy job rewind" in remedy
    assert "task.lost.range.accept" in remedy


def test_a_container_that_failed_in_another_way_is_started_again():
    job = SuspendedJob(count=1)

    job.fails(job.execution("0"), ExitCode.FAILED)
    job.settles()

    assert {"0": 4} == job.at_work()
    assert {} == job.state.suspended


@pytest.mark.parametrize("exit_code", [ExitCode.USAGE, ExitCode.REJECTED])
def test_an_end_that_may_be_due_to_one_host_is_tried_once_more(exit_code):
    job = SuspendedJob(count=1)

    for _ in range(2):
        job.fails(job.started[-1], exit_code, is_received=False)
        job.settles(30)

    assert 2 == len(job.started)
    assert ["0"] == [*job.state.suspended]


@pytest.mark.parametrize("exit_code", [ExitCode.USAGE, ExitCode.REJECTED])
def test_an_end_that_may_be_due_to_one_host_is_tried_once_more_after_an_earlier_failure_that_is_over(exit_code):
    job = SuspendedJob(count=1, **{"cluster-manager_container_retry_window_ms": "300000"})
    job.fails(job.started[-1], 137, is_received=False)
    job.settles(8)
    for _ in range(40):
        job.runs_a_round(15_000)
    assert {"0": 4} == job.at_work()

    job.fails(job.started[-1], exit_code, is_received=exit_code is ExitCode.USAGE)
    job.settles(30)

    assert 3 == len(job.started)
    assert {} == job.state.suspended
    assert {"0": 4} == job.at_work()


def test_a_restart_of_a_suspended_processor_starts_it_and_fails_with_the_reason_if_it_ends_in_the_same_way():
    job = SuspendedJob(count=1)
    job.fails(job.execution("0"), ExitCode.BAD_DATA)
    job.settles()

    job.ask(1, Action.RESTART_CONTAINER)
    job.reads()
    job.settles(1)
    job.fails(job.execution("0"), ExitCode.BAD_DATA)
    job.settles(4)

    assert S.FAILED is job.status(1)
    assert REASON in job.answer(1).response_message
    assert ["0"] == [*job.state.suspended]
    job.ask(2, Action.RESTART_CONTAINER)
    job.reads()
    job.settles()
    assert S.SUCCEEDED is job.status(2)
    assert {"0": 4} == job.at_work()
    assert {} == job.state.suspended
    assert [] == job.findings()


def test_a_rewind_of_its_input_starts_it_again():
    job = SuspendedJob(count=2)
    for name in ("0", "1"):
        job.fails(job.execution(name), ExitCode.BAD_DATA)
    job.settles()
    assert {} == job.at_work()
    ssp = next(task.positions[0].ssp for task in job.state.plan if task.processor_id == "1")

    arguments = {"stream": "kafka.orders", "to": "oldest", "partition": str(ssp.partition)}
    job.ask(1, Action.REWIND, processor_id="", arguments=arguments)
    job.reads()
    job.settles()

    assert S.SUCCEEDED is job.status(1)
    assert {"1": 2} == job.at_work()
    assert ["0"] == [*job.state.suspended]


def test_an_accepted_loss_starts_a_suspended_processor_again_and_an_earlier_one_does_not():
    job = SuspendedJob(count=1)
    job.fails(job.execution("0"), ExitCode.BAD_DATA)
    job.settles()

    job.fails_over()
    job.settles()
    assert ["0"] == [*job.state.suspended], "another leader knows no more than the last one"

    job.world.config = a_config(task_lost_range_accept="kafka.orders.0:0/1@42-60")
    job.fails_over("c")
    job.settles()
    assert {"0": 4} == job.at_work()


def test_another_run_starts_the_container_again():
    job = SuspendedJob(count=1)
    job.fails(job.execution("0"), ExitCode.TASK_FAILED)
    job.settles()
    job.ask(1, Action.STOP, processor_id="")
    job.reads()
    job.settles()
    assert job.state.run.ended

    job.run_over = job.run_id
    job.fails_over()
    job.settles()

    assert {"0": 4} == job.at_work()


def test_a_standby_does_not_take_over_a_task_that_it_would_fail_at():
    job = SuspendedJob(count=1, job_standbytasks_replication_factor="2", **STATEFUL)
    job.settles()
    standby = job.execution("0", LaunchRole.STANDBY)
    assert ContainerPhase.STARTED is job.state.containers[standby].phase
    warm = StandbyProgress(tasks=4, level=4, lag=0, restored=0, total=0, is_query_warm=True)
    process = job.processes[standby]
    at_hand = a_heartbeat(
        standby,
        host=process.host,
        pid=process.pid,
        stream_offset=job.world.topic.end_offset,
        state=ContainerPhase.STARTED,
        warm=warm,
        received_ms=job.world.clock.monotonic_ms(),
    )
    job.world.queue.append(at_hand)
    job.service.run_once(0)

    job.fails(job.execution("0"), ExitCode.BAD_DATA)
    job.service.run_once(0)
    job.settles()

    assert {} == job.state.placed
    assert {} == job.at_work()
    assert ["0"] == [*job.state.suspended]


def test_a_standby_that_fails_suspends_nothing_but_itself():
    job = SuspendedJob(count=1, job_standbytasks_replication_factor="2", **STATEFUL)
    job.settles()

    job.fails(job.execution("0", LaunchRole.STANDBY), ExitCode.BAD_DATA)
    job.settles()

    assert {} == job.state.suspended
    assert {"0": 4} == job.at_work()


def test_a_self_managed_job_records_the_reason_and_suspends_nothing():
    """Its supervisor must not start the container again.

    See docs/reference/exit-codes.md.
    """
    job = Job()
    last = job.heartbeat("e0", state=ContainerPhase.STOPPED, exit_code=ExitCode.BAD_DATA, reason=REASON)

    job.handles([last])

    container = job.state.containers["e0"]
    assert (ContainerPhase.FENCED, f"it ends with exit code 8: {REASON}") == (container.phase, container.reason)
    assert {} == job.state.suspended
