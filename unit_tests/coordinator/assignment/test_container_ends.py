"""Which ends are recorded, once, and by whose words."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment import container_ends
from samzapy.coordinator.assignment.container_ends import end_findings, newest_ends
from samzapy.coordinator.assignment.liveness import NO_LIVENESS
from samzapy.coordinator.commands import Heartbeat
from samzapy.coordinator.decide import decide
from samzapy.coordinator.grant_values import ContainerGone
from samzapy.coordinator.state import CoordinatorState, evolve, uncommitted
from samzapy.model.container import ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.stream.records import ContainerEndPut, ContainerPut, JobIdentityPut, Removed
from samzapy.testing.builders import a_container, a_heartbeat
from unit_tests.fixtures.launched_job import LaunchedJob


def an_end(execution_id="e1", **changed):
    fields = {"processor_id": "0", "execution_id": execution_id, "host": "host-a", "ended_at_ms": 5}
    return ContainerEnd(**(fields | changed))


REPORTED = an_end(exit_code=7, error="ValueError", message="no such plane")
SEEN = an_end(message="process gone, no reason given")


def a_state(*containers, ends=()):
    return CoordinatorState(
        job=JobIdentityPut(job_name="flights", job_id="1"),
        format_level=1,
        containers={container.execution_id: container for container in containers},
        container_ends={end.processor_id: end for end in ends},
    )


def after(state, *commands):
    """The state after the commands, each of which decides nothing when it is repeated."""
    for command in commands:
        state = evolve(state, uncommitted(decide(command, state, NO_LIVENESS).records))
        assert decide(command, state, NO_LIVENESS).records == ()
    return state


def reports(*, end=None, former=()) -> Heartbeat:
    code = 0 if end is None else 7
    return replace(a_heartbeat(exit_code=code), end=end, former_ends=tuple(former))


def test_a_container_that_ends_by_an_error_has_the_reason_in_its_last_heartbeat():
    state = after(a_state(a_container()), reports(end=REPORTED))

    assert state.container_ends == {"0": REPORTED}
    assert state.containers["e1"].phase is ContainerPhase.LOST


def test_the_leaders_name_of_the_host_is_recorded():
    state = after(a_state(a_container()), reports(end=replace(REPORTED, host="another name")))

    assert state.container_ends["0"].host == "host-a"


def test_a_stranger_records_nothing():
    of_another_job = replace(reports(end=REPORTED, former=[an_end("e0")]), job="other-1")

    assert after(a_state(), of_another_job).container_ends == {}
    assert after(a_state(a_container(pid=101)), reports(end=REPORTED)).container_ends == {}


def test_a_container_may_hand_ends_over_in_its_first_heartbeat():
    state = after(a_state(), replace(a_heartbeat(), former_ends=(an_end("e0"),)))

    assert state.container_ends["0"].execution_id == "e0"
    assert state.containers.keys() == {"e1"}


def test_a_container_reports_the_ends_that_no_leader_received():
    former = an_end("e0", processor_id="5", error="DeadlineError")

    assert after(a_state(a_container()), reports(former=[former])).container_ends == {"5": former}


def test_the_finder_of_a_gone_process_records_it():
    state = after(a_state(a_container()), ContainerGone("e1", "its process has ended", SEEN))

    assert state.container_ends == {"0": SEEN}


def test_the_finder_of_a_container_that_stopped_records_nothing():
    stopped = a_state(a_container(phase=ContainerPhase.STOPPED))

    assert after(stopped, ContainerGone("e1", "its process has ended", SEEN)).container_ends == {}


@pytest.mark.parametrize(
    ("known", "reported", "kept"),
    [
        (SEEN, REPORTED, REPORTED),
        (REPORTED, SEEN, REPORTED),
        (REPORTED, replace(REPORTED, message="again"), REPORTED),
        (SEEN, replace(SEEN, exit_code=137), replace(SEEN, exit_code=137)),
        (replace(SEEN, exit_code=137), SEEN, replace(SEEN, exit_code=137)),
        (REPORTED, an_end("e0", ended_at_ms=4, error="Earlier"), REPORTED),
        (REPORTED, an_end("e2", ended_at_ms=6), an_end("e2", ended_at_ms=6)),
    ],
)
def test_the_container_knows_better_than_its_finder_and_the_last_end_counts(known, reported, kept):
    state = a_state(a_container("e9"), ends=[known])

    heartbeat = replace(a_heartbeat("e9"), former_ends=(reported,))

    assert after(state, heartbeat).container_ends == {"0": kept}


def test_the_number_of_ends_is_bounded_and_the_newest_stay(monkeypatch):
    monkeypatch.setattr(container_ends, "ENDS_MAX", 3)
    former = [an_end(f"e{n}", processor_id=f"p{n}", ended_at_ms=10 + n) for n in range(5)]

    state = after(a_state(a_container("e9")), replace(a_heartbeat("e9"), former_ends=tuple(former)))

    assert [end.processor_id for end in newest_ends(state)] == ["p4", "p3", "p2"]


def test_an_end_stays_when_its_container_is_forgotten():
    state = after(a_state(a_container()), reports(end=REPORTED))

    state = evolve(state, uncommitted([Removed(key="container/e1")]))

    assert state.container_ends == {"0": REPORTED}


def test_doctor_shows_when_and_why_a_container_ended():
    (finding,) = end_findings(a_state(ends=[REPORTED]))

    assert finding.code == "container-ended"
    assert finding.found == (
        "1970-01-01T00:00:00.005+00:00: container e1 on host-a ended with exit code 7: no such plane"
    )


def test_the_launcher_reports_the_exit_code_of_a_killed_container():
    job = LaunchedJob()
    job.settles()
    killed = job.started[0]

    job.ends(killed, 137)
    job.settles()

    end = next(end for end in job.state.container_ends.values() if end.execution_id == killed)
    assert (end.exit_code, end.error) == (137, "")
    assert end.message.startswith("process gone, no reason given")


def test_a_container_that_is_ordered_to_stop_leaves_no_end():
    job = LaunchedJob()
    job.settles()

    job.run_over = job.state.run.run_id
    job.settles()

    assert job.state.container_ends == {}


def test_records_of_an_end_come_before_the_loss():
    """The standby that takes over in the same decision reads why."""
    decision = decide(reports(end=REPORTED), a_state(a_container()), NO_LIVENESS)

    assert [type(record) for record in decision.records] == [ContainerEndPut, ContainerPut]
