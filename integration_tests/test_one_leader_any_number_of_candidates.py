"""Candidates of one job on a real broker, without Spark: elections and takeovers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to export them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from integration_tests.candidates import CandidateProcess, Contest
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.election import ASKED_WITHIN_S, KafkaElection
from samzapy.config import JobConfig
from samzapy.errors import ConfigError
from samzapy.placement import ANY_HOST, ContainerPlacementMetadataStore
from samzapy.stream.codec import parse_headers
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_config
from samzapy.testing.waiting import wait_until

CONFIG: JobConfig = a_config()
JOINS = 20
STOPPED_S = 60.0
ALONE_STOPPED_S = 9.0
"""Longer than the session, and longer than a leader may answer without a look at its stream (both 6 s)."""


@pytest.fixture
def contest(broker: DevBroker) -> Iterator[Contest]:
    with Contest(broker.bootstrap_servers) as new_contest:
        yield new_contest


@pytest.fixture
def leader(contest: Contest) -> CandidateProcess:
    candidate = contest.candidate()
    wait_until(candidate.leads, 30, "the only candidate to lead")
    return candidate


def election(
    contest: Contest, session_ms: int = CONFIG.election_session_ms, asked_within_s: float = ASKED_WITHIN_S
) -> KafkaElection:
    kafka_election = KafkaElection(
        contest.connection,
        f"{contest.job_name}-1",
        session_ms=session_ms,
        heartbeat_ms=CONFIG.election_heartbeat_ms,
        asked_within_s=asked_within_s,
    )
    kafka_election.start()
    return kafka_election


def findings(candidate: CandidateProcess) -> set[str]:
    """The codes that it shows."""
    _, answer = candidate.ask()
    shown = answer["findings"]
    assert isinstance(shown, list)
    return {finding["code"] for finding in shown}


def assert_each_term_was_begun_once(contest: Contest) -> None:
    """Fails if a term has two records, or if one is missing.

    On a busy machine a successor may have lost its office for a moment, so there may be more than two terms.
    """
    terms = [term.term for term in contest.terms()]
    assert [*range(1, len(terms) + 1)] == terms


@pytest.fixture
def long_sessions(broker: DevBroker) -> Iterator[Contest]:
    """A contest in which a slow machine takes no office from a leader."""
    keys = {
        "job_coordinator_election_session_ms": "30000",
        "job_container_lease_ms": "60000",
        "job_container_lost_ms": "90000",
    }
    with Contest(broker.bootstrap_servers, **keys) as new_contest:
        yield new_contest


def test_a_second_candidate_that_joins_twenty_times_ends_no_term(long_sessions: Contest) -> None:
    contest, leader = long_sessions, long_sessions.candidate()
    wait_until(leader.leads, 30, "the only candidate to lead")
    answers: list[bool] = []
    ended = threading.Event()

    def ask_all_the_time() -> None:
        while not ended.wait(0.02):
            answers.append(leader.leads())

    asking = threading.Thread(target=ask_all_the_time)
    asking.start()
    try:
        members = []
        for _ in range(JOINS):
            joined = election(contest)
            members.append(joined.wait(400))
            joined.close()
    finally:
        ended.set()
        asking.join()

    assert [False] * JOINS == members
    assert [(1, leader.pid)] == [(term.term, term.pid) for term in contest.terms()]
    assert answers
    assert all(answers), f"{answers.count(False)} of {len(answers)} answers were not a leader's"


def test_the_joins_really_were_rebalances(contest: Contest) -> None:
    """A candidate that leaves in order hands its seat on before its session ends."""
    session_ms = 30_000
    first = election(contest, session_ms)
    assert first.wait(15_000)
    second = election(contest, session_ms)
    assert not second.wait(1500)
    began_s = time.monotonic()

    first.close()

    try:
        assert second.wait(2 * session_ms)
        assert time.monotonic() - began_s < session_ms / 1000 / 2
    finally:
        second.close()


def test_a_candidate_that_rejoins_queues_after_the_others(contest: Contest) -> None:
    first = election(contest)
    assert first.wait(15_000)
    second = election(contest)
    try:
        assert not second.wait(1500)

        first.rejoin()

        assert not first.wait(0)
        assert second.wait(15_000)
        assert not first.wait(1500)
    finally:
        first.close()
        second.close()


def test_an_unused_seat_is_given_up(contest: Contest) -> None:
    """A coordinator that hangs must not keep the others out for ever."""
    hanging = election(contest, asked_within_s=3.0)
    assert hanging.wait(15_000)
    second = election(contest)
    try:
        assert second.wait(30_000)
    finally:
        hanging.close()
        second.close()


def test_a_seat_is_kept_during_a_long_operation(contest: Contest) -> None:
    """A stream of millions of records is read for longer than a coordinator may hang."""
    busy = election(contest, asked_within_s=10.0)
    try:
        assert busy.wait(15_000)
        ends_at_s = time.monotonic() + 25.0

        def is_over() -> bool:
            busy.still_at_work()
            return time.monotonic() > ends_at_s

        wait_until(is_over, 60, "the long operation to end")
        assert busy.wait(0)
    finally:
        busy.close()


def test_a_session_that_the_broker_does_not_allow_is_named(broker: DevBroker, contest: Contest) -> None:
    connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
    too_short = KafkaElection(connection, f"{contest.job_name}-1", session_ms=100, heartbeat_ms=30)
    too_short.start()
    try:
        with pytest.raises(ConfigError, match=r"job\.coordinator\.election\.session\.ms"):
            too_short.wait(15_000)
    finally:
        too_short.close()


def test_a_killed_leader_is_replaced_by_a_successor_in_the_next_term(
    contest: Contest, leader: CandidateProcess
) -> None:
    others = [contest.candidate(), contest.candidate()]

    leader.kill()

    term = contest.wait_for_term(2)
    assert term.pid in {other.pid for other in others}
    successor = next(other for other in others if other.pid == term.pid)
    wait_until(successor.leads, 30, "the successor to answer")
    assert_each_term_was_begun_once(contest)


def test_a_successor_acts_on_state_that_its_predecessor_only_reported(
    broker: DevBroker, contest: Contest, leader: CandidateProcess
) -> None:
    """A setting that may lose data, and a missing input: a start would refuse both."""
    other = contest.candidate()
    kept = ConfigResource(ConfigResource.Type.TOPIC, contest.topic)
    kept.add_incremental_config(
        ConfigEntry("delete.retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    )
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    client.incremental_alter_configs([kept])[kept].result()
    client.delete_topics([contest.input_topic])[contest.input_topic].result()
    admin = KafkaAdmin(contest.connection)
    wait_until(lambda: not admin.find([contest.input_topic]), 30, "the input to be deleted")

    leader.kill()

    assert other.pid == contest.wait_for_term(2).pid
    wait_until(other.leads, 30, "the other one to lead")
    wait_until(lambda: {"topic-tombstone-retention"} <= findings(other), 30, "it to show the setting")
    assert_each_term_was_begun_once(contest)


def test_a_leader_that_was_stopped_answers_503_and_writes_nothing(contest: Contest, leader: CandidateProcess) -> None:
    """After a SIGSTOP longer than the session it is a candidate, and can lead again.

    On both topics that a leader writes to: it may have had a request in its hands when it was stopped.
    """
    other = contest.candidate()
    assert not other.leads()
    with ContainerPlacementMetadataStore(contest.bootstrap_servers, job=f"{contest.job_name}-1") as store:
        # Of no run of the job, so it is refused.
        request = store.write_container_placement_request_message("0-00000000", "0", ANY_HOST)
        leader.stop()
        stopped_s = time.monotonic()
        wait_until(lambda: store.read_container_placement_response_message(request), 60, "an answer to the request")
    second = contest.wait_for_term(2)
    wait_until(other.leads, 30, "the other one to lead")
    wait_until(lambda: time.monotonic() - stopped_s > STOPPED_S, 2 * STOPPED_S, "the stop to have been long enough")
    answered = contest.answers()
    leader.go_on()

    answers = [leader.ask() for _ in range(50)]
    assert {503} == {code for code, _ in answers}
    wait_until(lambda: leader.ask()[1]["leader"] == other.url, 30, "the old leader to name the new one")
    assert second.pid == other.pid
    # On a busy machine the other one may have lost its office for a moment, and got it back.
    after = [record for record in contest.records() if record.offset >= second.offset]
    terms = {term.term: term.pid for term in contest.terms()}
    assert {other.pid} == {terms[parse_headers(record.headers).term] for record in after}
    assert answered == contest.answers()

    other.kill()
    last = max(term.term for term in contest.terms())

    assert leader.pid == contest.wait_for_term(last + 1).pid
    wait_until(leader.leads, 30, "the old leader to lead again")


def test_a_single_candidate_that_was_stopped_leads_again(contest: Contest, leader: CandidateProcess) -> None:
    """It is out of the group without a fence: its time-out must not end its candidacy."""
    leader.stop()
    stopped_s = time.monotonic()
    wait_until(lambda: time.monotonic() - stopped_s > ALONE_STOPPED_S, 2 * ALONE_STOPPED_S, "the session to run out")
    leader.go_on()

    assert leader.pid == contest.wait_for_term(2, deadline_s=60).pid
    wait_until(leader.leads, 30, "it to lead again")
