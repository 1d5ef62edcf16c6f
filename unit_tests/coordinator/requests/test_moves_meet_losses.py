"""Moves that meet a lost container or a torn transaction."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.liveness import Liveness, Sighting
from samzapy.coordinator.commands import Figures, ReviewRequests
from samzapy.coordinator.decide import decide
from samzapy.coordinator.grant_values import HeldGrant
from samzapy.coordinator.requests.handler import Review
from samzapy.model.container import ContainerPhase, ProcessorLocality
from samzapy.model.job import ProcessorId
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.model.placement import STANDBY, Phase, StatusCode
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.records import ContainerPut, LaunchPut, LocalityPut, PlacedPut, StandbyPut
from samzapy.testing.builders import a_container, a_launch
from unit_tests.fixtures.decided_job import HOUR_MS, DecidedJob, a_launch_review
from unit_tests.fixtures.launched_job import a_move

P = ProcessorId("0")
LAUNCHING = a_launch_review(hosts={"host-a": 3, "host-b": 3, "host-c": 3, "host-d": 3})
WARM = StandbyProgress(tasks=2, level=2, lag=0, restored=9, total=9, is_query_warm=True)
COLD = replace(WARM, is_query_warm=False)


class MovedJob(DecidedJob):
    """A job whose standby `s0` is on host-b, and one request for which is under way."""

    def __init__(self, request, *records, standbys=1, launching=LAUNCHING):
        super().__init__(
            StandbyPut(processor_id=P, count=standbys, uuid=""),
            LaunchPut(launch=a_launch("s0", role=LaunchRole.STANDBY, host="host-b")),
            ContainerPut(container=a_container("s0", host="host-b", phase=ContainerPhase.STARTED)),
            request,
            *records,
        )
        self.launching = launching

    def reviews(self, **warm):
        """One round of a leader, to which the executions in `warm` report."""
        self.now_ms += 1000
        sightings = self.sightings(warm)
        launching = replace(self.launching, now_ms=self.now_ms, seed=f"r{self.now_ms}")
        for command in (
            ReviewRequests(now_ms=self.now_ms, expiry_ms=600_000, launching=launching),
            launching,
        ):
            self.apply(*decide(command, self.state, Liveness(last=sightings)).records)

    def sightings(self, warm):
        return {
            name: Sighting(at_ms=0, stream_offset=10**6, held=self.held(name), figures=Figures(), warm=warm.get(name))
            for name in self.state.containers
        }

    def held(self, execution_id):
        grants = self.state.grants_sorted
        return frozenset(HeldGrant(g.task_name, g.epoch) for g in grants if g.execution_id == execution_id)

    @property
    def request(self):
        return self.state.requests["u"]


def a_request(**changes):
    under_way = {"phase": Phase.RESTORING, "accepted_at_ms": HOUR_MS, "decided_at_ms": HOUR_MS}
    return replace(a_move(StatusCode.IN_PROGRESS), **(under_way | changes))


def move_of_the_standby():
    """The standby `0-0` moves to host-d.

    `n0` is level there, and its first query is being tried out.
    """
    return (
        a_request(processor_id="0-0", destination_host="host-d"),
        LaunchPut(launch=a_launch("n0", role=LaunchRole.STANDBY, host="host-d", uuid="u", wanted_at_ms=HOUR_MS)),
        ContainerPut(container=a_container("n0", host="host-d", phase=ContainerPhase.STARTED)),
    )


def test_the_move_of_a_standby_fails_at_once_if_the_new_standby_takes_over():
    request, *records = move_of_the_standby()
    job = MovedJob(request, *records)
    job.is_now("e1", ContainerPhase.LOST)

    job.reviews(n0=COLD)
    job.reviews(n0=COLD)

    assert "n0" == job.placed_on
    assert StatusCode.FAILED is job.request.status_code
    assert "n0 has taken over the tasks of processor 0" in job.request.response_message


def test_the_move_of_a_standby_never_stops_the_container_that_took_over():
    request, *records = move_of_the_standby()
    job = MovedJob(request, *records, standbys=2, launching=replace(LAUNCHING, hosts={}, names_hosts=False))
    job.is_now("e1", ContainerPhase.LOST)
    job.reviews(n0=COLD)
    job.is_now("e1", ContainerPhase.FENCED)
    job.works("n0")

    for _ in range(4):
        job.reviews()
        # The cluster manager chooses the host of the container with the tasks.
        job.starts_wanted(host="host-d")

    assert LaunchPhase.LAUNCHED is job.state.launches["n0"].phase


def begun_move_to_a_standby():
    job = MovedJob(replace(a_move(StatusCode.ACCEPTED), destination_host=STANDBY, accepted_at_ms=HOUR_MS))
    job.reviews(s0=COLD)
    assert (StatusCode.IN_PROGRESS, "e1") == (job.request.status_code, job.request.source_id)
    return job


def test_a_move_to_a_standby_goes_on_with_the_standby_that_takes_over_from_a_lost_container():
    job = begun_move_to_a_standby()
    job.is_now("e1", ContainerPhase.LOST)

    job.reviews(s0=COLD)
    job.reviews()

    assert "s0" == job.request.execution_id
    job.is_now("e1", ContainerPhase.FENCED)
    job.works("s0")
    for _ in range(3):
        job.reviews(**{name: WARM for name in job.state.launches if name not in ("e1", "s0")})
        job.starts_wanted()
    assert StatusCode.SUCCEEDED is job.request.status_code
    assert "2 tasks of processor 0 run in s0 on host-b" in job.request.response_message
    assert "s0" == job.placed_on, "the tasks move once"
    assert "host-a" == job.state.placed[P].left_host
    standbys = [launch for launch in job.state.launches.values() if launch.role is LaunchRole.STANDBY]
    assert "host-a" not in {launch.host for launch in standbys if launch.phase is not LaunchPhase.ENDED}


def test_a_move_to_a_standby_is_as_before_if_nothing_is_lost():
    job = begun_move_to_a_standby()

    job.reviews(s0=WARM)

    assert "s0" == job.placed_on
    assert "host-a" == job.state.placed[P].left_host
    assert "waiting for e1 to release the tasks" == job.request.response_message


def test_a_processor_that_runs_in_a_standby_that_took_over_earlier_moves_to_its_next_standby():
    took_over = PlacedPut(processor_id=P, execution_id="s0", uuid="")
    job = MovedJob(
        replace(a_move(StatusCode.ACCEPTED), destination_host=STANDBY, accepted_at_ms=HOUR_MS),
        took_over,
        LaunchPut(launch=a_launch("e1", phase=LaunchPhase.ENDED)),
        ContainerPut(container=a_container("e1", phase=ContainerPhase.FENCED)),
        LaunchPut(launch=a_launch("s1", role=LaunchRole.STANDBY, host="host-c", standby=0, wanted_at_ms=5)),
        ContainerPut(container=a_container("s1", host="host-c", phase=ContainerPhase.STARTED)),
    )
    job.works("s0")

    job.reviews(s1=WARM)
    job.reviews(s1=WARM)

    assert "s1" == job.placed_on


@pytest.mark.parametrize("kept", range(4))
def test_a_move_without_a_second_place_leaves_no_reserve_wherever_the_log_is_torn(kept):
    reserve = a_launch(
        "r0",
        role=LaunchRole.RESERVE,
        phase=LaunchPhase.WANTED,
        host="host-a",
        uuid="u",
        wanted_at_ms=HOUR_MS - 11_000,
        expires_at_ms=HOUR_MS + 9_000,
    )
    here = LocalityPut(locality=ProcessorLocality(processor_id=P, host="host-a"))
    job = MovedJob(
        a_request(destination_host="host-a", phase=Phase.RESERVING),
        LaunchPut(launch=reserve),
        here,
        launching=replace(LAUNCHING, hosts={"host-a": 0, "host-b": 3, "host-c": 3}),
    )
    review = ReviewRequests(now_ms=job.now_ms, expiry_ms=600_000, launching=job.launching)
    whole = decide(review, job.state, Liveness()).records
    assert 3 == len(whole)

    # The rest is lost with a coordinator; the next one decides again.
    job.apply(*whole[:kept])
    job.reviews()

    assert LaunchPhase.STOPPING is job.state.launches["r0"].phase


def taken_over(job, reports_by_ms, sightings=None):
    """The first round of a leader, to which no container has reported yet by default."""
    launching = replace(LAUNCHING, now_ms=job.now_ms, seed=f"n{job.now_ms}")
    review = ReviewRequests(now_ms=job.now_ms, expiry_ms=600_000, launching=launching, reports_by_ms=reports_by_ms)
    for command in (review, launching):
        job.apply(*decide(command, job.state, Liveness(last=sightings or {})).records)


def second_standby():
    """A request for a second standby of processor 0, which is on host-c."""
    start = {"destination_host": "", "arguments": '{"command":"start"}'}
    return MovedJob(
        a_request(action="control-standby", **start),
        StandbyPut(processor_id=P, count=2, uuid="u"),
        LaunchPut(launch=a_launch("s1", role=LaunchRole.STANDBY, host="host-c", standby=1)),
        ContainerPut(container=a_container("s1", host="host-c", phase=ContainerPhase.STARTED)),
    )


def test_a_new_leader_waits_for_reports_before_a_request_for_a_standby_expires():
    job = second_standby()
    job.now_ms += 660_000

    taken_over(job, reports_by_ms=job.now_ms + 1)
    assert StatusCode.IN_PROGRESS is job.request.status_code
    assert LaunchPhase.LAUNCHED is job.state.launches["s1"].phase
    job.reviews(s0=WARM, s1=WARM)

    assert StatusCode.SUCCEEDED is job.request.status_code
    assert LaunchPhase.LAUNCHED is job.state.launches["s1"].phase


def test_a_request_expires_once_a_new_leader_had_reports():
    job = second_standby()
    job.now_ms += 660_000

    taken_over(job, reports_by_ms=job.now_ms)

    assert StatusCode.FAILED is job.request.status_code


def test_a_request_expires_as_soon_as_each_living_container_has_reported():
    job = second_standby()
    job.now_ms += 660_000
    reported = job.sightings({"s0": WARM, "s1": COLD})

    taken_over(job, job.now_ms + 1, {name: sighting for name, sighting in reported.items() if name != "s1"})
    assert StatusCode.IN_PROGRESS is job.request.status_code
    taken_over(job, job.now_ms + 1, reported)

    assert StatusCode.FAILED is job.request.status_code


def test_an_expired_request_that_was_rolled_back_is_not_carried_out_again_before_reports():
    """The end of the request was torn off behind its roll-back."""
    job = second_standby()
    job.apply(StandbyPut(processor_id=P, count=1, uuid=""))
    job.now_ms += 660_000

    taken_over(job, reports_by_ms=job.now_ms + 1)

    assert StatusCode.IN_PROGRESS is job.request.status_code
    assert 1 == job.state.standbys[P].count


def test_a_new_leader_waits_for_reports_before_a_move_expires():
    job = MovedJob(
        a_request(phase=Phase.STARTING, execution_id="r0", paused_at_ms=HOUR_MS, destination_host="host-d"),
        LaunchPut(launch=a_launch("r0", role=LaunchRole.RESERVE, host="host-d", uuid="u")),
        ContainerPut(container=a_container("r0", host="host-d", phase=ContainerPhase.RUNNING)),
        PlacedPut(processor_id=P, execution_id="r0", uuid="u"),
        LaunchPut(launch=a_launch("e1", phase=LaunchPhase.ENDED)),
        ContainerPut(container=a_container("e1", phase=ContainerPhase.STOPPED)),
    )
    job.works("r0")
    job.now_ms += 660_000

    taken_over(job, reports_by_ms=job.now_ms + 1)
    assert StatusCode.IN_PROGRESS is job.request.status_code
    job.reviews(s0=WARM)

    assert StatusCode.SUCCEEDED is job.request.status_code


def moved_to_a_host_that_has_no_place(host):
    """A reserve waits for the host, and the clock was set back by an hour."""
    job = MovedJob(
        a_request(phase=Phase.RESERVING, destination_host=host),
        LaunchPut(
            launch=a_launch(
                "r0",
                role=LaunchRole.RESERVE,
                phase=LaunchPhase.WANTED,
                host=host,
                uuid="u",
                wanted_at_ms=2 * HOUR_MS,
                expires_at_ms=2 * HOUR_MS,
            )
        ),
        launching=replace(LAUNCHING, hosts={"host-a": 0, "host-b": 3}),
    )
    job.reviews(s0=WARM)
    return job


def test_a_move_to_a_host_that_is_away_fails_at_once_after_the_clock_was_set_back():
    job = moved_to_a_host_that_has_no_place("host-away")

    assert StatusCode.FAILED is job.request.status_code


def test_a_move_to_a_full_host_of_its_own_stops_first_at_once_after_the_clock_was_set_back():
    job = moved_to_a_host_that_has_no_place("host-a")

    assert "e1" == job.request.source_id


def test_an_answer_tells_no_negative_time_after_the_clock_was_set_back():
    review = Review(
        command=ReviewRequests(now_ms=HOUR_MS, expiry_ms=1), state=MovedJob(a_request()).state, liveness=Liveness()
    )

    assert [1000, 0] == [review.ms_since(HOUR_MS - 1000), review.ms_since(HOUR_MS + 1000)]
