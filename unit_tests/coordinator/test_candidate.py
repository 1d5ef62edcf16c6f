"""Candidates on one memory log: the leader, when election and lock agree or not."""

from dataclasses import replace

import pytest

from samzapy.coordinator.candidate import FAILURES_MAX, TERM_ENDS, Candidate
from samzapy.coordinator.replay import replay
from samzapy.errors import BrokerUnavailableError, MissingTopicError, RejectedError, TopicIdentityError
from samzapy.model.container import ContainerPhase
from samzapy.stream.codec import decode
from samzapy.stream.records import TermPut
from samzapy.testing.builders import a_config, a_heartbeat, a_submission
from unit_tests.fixtures.coordinator_world import World


class Seat:
    """An election whose result the test sets."""

    def __init__(self):
        self.elected = False
        self.rejoins = 0
        self.waited = []

    def wait(self, timeout_ms):
        self.waited.append(timeout_ms)
        return self.elected

    def rejoin(self):
        self.rejoins += 1
        self.elected = False


class CandidateProcess:
    """A candidate, its seat and its coordinator."""

    def __init__(self, world, name, *, pid, submission=None):
        self.seat = Seat()
        self.service = world.coordinator(name, pid=pid)
        self.candidate = Candidate(
            self.service, self.seat, submission or (lambda state: a_submission(config=world.config))
        )

    def run(self, elected=None):
        if elected is not None:
            self.seat.elected = elected
        self.candidate.run_once(0)


@pytest.fixture
def world():
    new_world = World()
    # All on one host, all alive.
    new_world.alive.update({1: True, 2: True, 3: True})
    return new_world


def terms(world):
    decoded = [decode(record, topic="t") for record in world.log().read()]
    return [(record.term, record.coordinator_id) for record in decoded if isinstance(record, TermPut)]


def test_a_candidate_that_is_not_elected_writes_nothing(world):
    a = CandidateProcess(world, "a", pid=1)

    a.run(elected=False)

    assert ([], False) == (terms(world), a.service.is_leader)


def test_the_elected_candidate_leads_and_submits_the_job_once_per_term(world):
    submissions = []
    a = CandidateProcess(
        world, "a", pid=1, submission=lambda state: submissions.append(1) or a_submission(config=world.config)
    )

    a.run(elected=True)
    a.run()
    a.run()

    assert [(1, "a")] == terms(world)
    assert (True, [1]) == (a.service.is_leader, submissions)
    assert "flights" == a.service.status().state.config["job.name"]


def test_candidates_that_join_and_leave_end_no_term(world):
    a = CandidateProcess(world, "a", pid=1)
    a.run(elected=True)

    for number in range(20):
        CandidateProcess(world, f"b{number}", pid=2).run(elected=False)
        a.run()

    assert [(1, "a")] == terms(world)


def test_losing_the_election_ends_the_term_and_winning_it_begins_another(world):
    a = CandidateProcess(world, "a", pid=1)
    a.run(elected=True)

    a.run(elected=False)
    assert (False, None) == (a.service.is_leader, a.service.status().verified_ms)
    a.run(elected=True)

    assert [(1, "a"), (2, "a")] == terms(world)


def test_a_candidate_elected_after_another_leader_takes_over_at_the_first_try(world):
    a, b = CandidateProcess(world, "a", pid=1), CandidateProcess(world, "b", pid=2)
    a.run(elected=True)
    a.run(elected=False)
    b.run(elected=True)
    b.run(elected=False)

    a.run(elected=True)

    assert [(1, "a"), (2, "b"), (3, "a")] == terms(world)
    assert 0 == a.seat.rejoins


def test_a_paused_leader_writes_nothing_and_rejoins_the_election(world):
    """The hint and the lock disagree: the lock wins."""
    a, b = CandidateProcess(world, "a", pid=1), CandidateProcess(world, "b", pid=2)
    a.run(elected=True)
    b.run(elected=True)
    end = world.topic.end_offset
    world.clock.advance(60_000)
    world.queue.append(a_heartbeat())

    a.run()

    assert (end, False, 1) == (world.topic.end_offset, a.service.is_leader, a.seat.rejoins)
    b.run()
    assert b.service.is_leader
    assert [(1, "a"), (2, "b")] == terms(world)


def test_a_leader_whose_append_is_fenced_rejoins_the_election(world):
    a, b = CandidateProcess(world, "a", pid=1), CandidateProcess(world, "b", pid=2)
    a.run(elected=True)
    b.run(elected=True)
    # No look at the tail is due: the append itself meets the fence.
    world.queue.append(a_heartbeat())

    a.run()

    assert (False, 1) == (a.service.is_leader, a.seat.rejoins)
    assert [(1, "a"), (2, "b")] == terms(world)


def test_an_unreachable_broker_ends_the_term_but_not_the_candidacy(world):
    answers = iter([BrokerUnavailableError("no broker answered"), None])

    def submission(state):
        if (error := next(answers)) is not None:
            raise error
        return a_submission(config=world.config)

    a = CandidateProcess(world, "a", pid=1, submission=submission)

    with pytest.raises(BrokerUnavailableError):
        a.run(elected=True)
    assert (False, 0) == (a.service.is_leader, a.seat.rejoins)
    a.run()

    assert [(1, "a"), (2, "a")] == terms(world)


def test_a_missing_topic_ends_the_term_but_not_the_candidacy(world):
    """A broker that was just restarted may not know it yet; at a start it was there."""
    answers = iter([MissingTopicError("found no such topic"), None])

    def submission(state):
        if (error := next(answers)) is not None:
            raise error
        return a_submission(config=world.config)

    a = CandidateProcess(world, "a", pid=1, submission=submission)

    with pytest.raises(TERM_ENDS, match="no such topic"):
        a.run(elected=True)
    a.run()

    assert ([(1, "a"), (2, "a")], True, 0) == (terms(world), a.service.is_leader, a.seat.rejoins)


def test_a_new_leader_submits_a_job_made_from_the_state_on_the_stream(world):
    states = []
    a, b = (
        CandidateProcess(
            world, name, pid=pid, submission=lambda state: states.append(state) or a_submission(config=world.config)
        )
        for name, pid in (("a", 1), ("b", 2))
    )

    a.run(elected=True)
    b.run(elected=True)

    assert [(1, set()), (2, {"kafka.orders"})] == [
        (state.term.term, {str(stream) for stream in state.inputs}) for state in states
    ]


def test_a_candidate_that_fails_several_times_rejoins_behind_the_others(world):
    """A candidate that cannot lead must not keep the seat: the others wait for it."""
    fails = [True]

    def submission(state):
        if fails[0]:
            raise BrokerUnavailableError("no broker answered")
        return a_submission(config=world.config)

    a, b = CandidateProcess(world, "a", pid=1, submission=submission), CandidateProcess(world, "b", pid=2)
    for _ in range(FAILURES_MAX - 1):
        with pytest.raises(BrokerUnavailableError):
            a.run(elected=True)
    assert 0 == a.seat.rejoins

    with pytest.raises(BrokerUnavailableError):
        a.run(elected=True)

    assert (1, False, False) == (a.seat.rejoins, a.seat.elected, a.service.is_leader)
    b.run(elected=True)
    assert b.service.is_leader


def test_a_successful_round_resets_the_count_of_failures(world):
    answers = iter([False, False, True, False, False, False])

    def submission(state):
        if not next(answers):
            raise BrokerUnavailableError("no broker answered")
        return a_submission(config=world.config)

    a = CandidateProcess(world, "a", pid=1, submission=submission)
    for fails in (True, True, False, True, True):
        a.run(elected=False)
        if fails:
            with pytest.raises(BrokerUnavailableError):
                a.run(elected=True)
        else:
            a.run(elected=True)

    assert 0 == a.seat.rejoins
    with pytest.raises(BrokerUnavailableError):
        a.run()
    assert 1 == a.seat.rejoins


def test_a_job_that_cannot_be_led_raises_and_is_not_led(world):
    def submission(state):
        raise TopicIdentityError("wanted the topic with id a, found id b")

    a = CandidateProcess(world, "a", pid=1, submission=submission)

    with pytest.raises(TopicIdentityError):
        a.run(elected=True)
    assert not a.service.is_leader


def test_only_the_first_submission_of_a_process_expects_a_generation(world):
    def submission(state):
        return replace(a_submission(config=world.config), expected_generation=0)

    a = CandidateProcess(world, "a", pid=1, submission=submission)
    a.run(elected=True)
    for state in (ContainerPhase.RUNNING, ContainerPhase.STOPPED):
        world.queue.append(a_heartbeat(state=state))
        a.run()
    a.run(elected=False)

    a.run(elected=True)

    assert a.service.is_leader

    def other_submission(state):
        return replace(a_submission(config=a_config(job_container_heartbeat_ms="500")), expected_generation=0)

    with pytest.raises(RejectedError, match="generation 0 of flights-1, found generation 1"):
        CandidateProcess(world, "b", pid=2, submission=other_submission).run(elected=True)


def test_commands_to_an_earlier_term_are_dropped(world):
    a = CandidateProcess(world, "a", pid=1)
    a.run(elected=True)
    world.queue.append(a_heartbeat(execution_id="long-gone"))

    a.run(elected=False)
    a.run(elected=True)

    assert {} == replay(world.log().read(), topic="t").state.containers


def test_a_leader_does_not_wait_for_the_election(world):
    a = CandidateProcess(world, "a", pid=1)
    a.seat.elected = True

    a.candidate.run_once(500)
    a.candidate.run_once(500)

    assert [500, 0] == a.seat.waited
