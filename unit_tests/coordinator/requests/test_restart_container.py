"""Requests to replace the process of a container that the coordinator starts."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.commands import ReviewRequests
from samzapy.coordinator.decide import decide
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchPhase
from samzapy.model.placement import Action, StatusCode
from samzapy.stream.records import ContainerPut, LaunchPut
from samzapy.testing.builders import a_container, a_launch
from unit_tests.fixtures.decided_job import HOUR_MS, DecidedJob, a_launch_review
from unit_tests.fixtures.launched_job import LaunchedJob, a_move

LAUNCHING = a_launch_review(retry_count=8, fails_job=False, hosts={"host-a": 5})


def failed_too_often():
    request = replace(a_move(StatusCode.ACCEPTED), action=Action.RESTART_CONTAINER.value, accepted_at_ms=HOUR_MS)
    failed = a_launch("e1", phase=LaunchPhase.ENDED, failures=9, window_began_ms=HOUR_MS - 1000)
    return DecidedJob(
        LaunchPut(launch=failed),
        ContainerPut(container=a_container("e1", phase=ContainerPhase.FENCED)),
        replace(request, destination_host=""),
    )


@pytest.mark.parametrize("kept", range(3))
def test_a_restart_starts_a_container_in_spite_of_earlier_failures_wherever_the_log_is_torn(kept):
    job = failed_too_often()
    review = ReviewRequests(now_ms=HOUR_MS, expiry_ms=600_000, launching=LAUNCHING)
    whole = decide(review, job.state, Liveness()).records
    assert 2 == len(whole)

    # The rest is lost with a coordinator; the next one decides again.
    job.apply(*whole[:kept])
    for command in (review, LAUNCHING):
        job.apply(*decide(command, job.state, Liveness()).records)

    assert StatusCode.IN_PROGRESS is job.state.requests["u"].status_code
    assert LaunchPhase.WANTED in {launch.phase for launch in job.state.launches.values()}


def a_job_of_one_container():
    """It had two."""
    job = LaunchedJob(count=2)
    job.settles(6)
    job.ask(1, Action.SCALE, processor_id="", arguments={"containers": "1"})
    job.reads()
    return job


def test_a_restart_of_a_processor_that_the_job_no_longer_has_is_refused():
    job = a_job_of_one_container()
    job.settles(16)

    job.ask(2, Action.RESTART_CONTAINER, processor_id="1")
    job.reads()
    job.settles(1)

    assert StatusCode.BAD_REQUEST is job.answer(2).status_code
    assert "found 1: the job has 1 containers now" in job.answer(2).response_message


def test_a_restart_fails_if_its_processor_leaves_the_job_meanwhile():
    job = LaunchedJob(count=2)
    job.settles(6)
    job.is_broken = True
    job.ask(1, Action.RESTART_CONTAINER, processor_id="1")
    job.reads()
    job.settles(2)
    assert StatusCode.IN_PROGRESS is job.status(1)

    job.ask(2, Action.SCALE, processor_id="", arguments={"containers": "1"})
    job.reads()
    job.settles(8)

    assert StatusCode.SUCCEEDED is job.status(2)
    assert StatusCode.FAILED is job.status(1)


def test_an_expired_restart_ends_with_its_processor_though_no_container_has_reported_to_a_new_leader():
    request = replace(a_move(StatusCode.IN_PROGRESS), action=Action.RESTART_CONTAINER.value, accepted_at_ms=HOUR_MS)
    job = DecidedJob(replace(request, processor_id="1", destination_host=""))
    review = ReviewRequests(
        now_ms=HOUR_MS + 700_000, expiry_ms=600_000, reports_by_ms=HOUR_MS + 800_000, launching=LAUNCHING
    )

    (ended,) = decide(review, job.state, Liveness()).records

    assert StatusCode.FAILED is ended.status_code
    assert "found 1: the job has 1 containers now" in ended.response_message
