"""The life table, and which containers are alive."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.liveness import (
    LIVING,
    OUTPUTS_KEPT_MAX,
    TRANSITIONS,
    KnownHost,
    Liveness,
    News,
    Sighting,
    declare_lost,
    expire,
    hear,
    is_expected,
    mark_fenced,
    may_register,
    outputs_noted,
    sighted,
    still_named,
    without_the_dead,
)
from samzapy.coordinator.commands import ExecutionFenced, Tick
from samzapy.coordinator.decide import observe
from samzapy.coordinator.grant_values import ContainerGone
from samzapy.coordinator.state import CoordinatorState, evolve, locality_of, uncommitted
from samzapy.model.container import ContainerPhase, ProcessorLocality
from samzapy.stream.records import ContainerPut, GrantPut, JobIdentityPut, LocalityPut, TaskLocalityPut
from samzapy.testing.builders import a_container, a_grant, a_heartbeat

P = ContainerPhase
# Task number, epoch, execution: t1 went from e1 to e2, t2 and t3 are e1's.
GRANTED = ((1, 1, "e1"), (2, 2, "e1"), (3, 3, "e1"), (1, 4, "e2"))


def a_state(*containers):
    return CoordinatorState(
        job=JobIdentityPut(job_name="flights", job_id="1"),
        format_level=1,
        containers={container.execution_id: container for container in containers},
    )


def phases(records):
    return [record.container.phase for record in records if isinstance(record, ContainerPut)]


def test_a_host_is_known_as_long_as_the_cluster_manager_names_it():
    liveness = Liveness(hosts={"host-a": KnownHost(), "host-b": KnownHost()})

    assert {"host-b"} == {*still_named(liveness, ["host-b", "host-c"]).hosts}
    # A cluster manager that names no hosts says nothing about them.
    assert liveness == still_named(liveness, [])


def test_the_phases_of_a_container_follow_the_table():
    expected = {
        (P.STARTED, News.RUNS): P.RUNNING,
        (P.STARTED, News.STOPPED): P.STOPPED,
        (P.STARTED, News.GIVEN_UP): P.LOST,
        (P.RUNNING, News.STOPPED): P.STOPPED,
        (P.RUNNING, News.GIVEN_UP): P.LOST,
        (P.LOST, News.FENCED): P.FENCED,
    }

    assert expected == {(phase, news): after for phase in P for news, after in TRANSITIONS[phase].items()}
    assert {P.STOPPED, P.FENCED} == {phase for phase in P if a_container(phase=phase).is_gone}


@pytest.mark.parametrize("phase", sorted(set(P) - LIVING))
def test_a_container_that_ended_or_was_given_up_cannot_return(phase):
    state = a_state(a_container(phase=phase))

    assert () == hear(a_heartbeat(state=P.RUNNING), state)
    assert () == hear(a_heartbeat(state=P.STARTED), state)
    assert not is_expected(state, a_heartbeat())
    assert Liveness() == sighted(Liveness(), a_heartbeat(), state)


def test_a_first_heartbeat_registers_in_its_reported_state():
    assert [P.STARTED] == phases(hear(a_heartbeat(state=P.STARTED), a_state()))
    assert [P.RUNNING] == phases(hear(a_heartbeat(state=P.RUNNING), a_state()))


@pytest.mark.parametrize(
    "heartbeat",
    [
        a_heartbeat(job="other-1"),
        a_heartbeat(held=[("t", 1)]),
        a_heartbeat(state=P.STOPPED),
        a_heartbeat(format_level=0),
    ],
    ids=["another job", "grants of another log", "already stopped", "cannot read our format"],
)
def test_an_execution_that_cannot_be_given_work_is_not_registered(heartbeat):
    assert not may_register(a_state(), heartbeat)
    assert () == hear(heartbeat, a_state())


def test_where_a_processor_runs_is_recorded_when_it_runs_and_only_when_it_changed():
    state = a_state(a_container(phase=P.STARTED))

    records = hear(a_heartbeat(state=P.RUNNING, host="host-a"), state)

    assert ["host-a"] == [record.locality.host for record in records if isinstance(record, LocalityPut)]
    assert () == hear(a_heartbeat(state=P.STARTED), state)
    moved = hear(a_heartbeat(fault_domain="rack-1"), evolve(state, uncommitted(records)))
    assert [ProcessorLocality(processor_id="0", host="host-a", fault_domain="rack-1")] == [
        record.locality for record in moved
    ]


def test_where_a_tasks_state_is_follows_the_newest_grant_of_the_container_that_runs():
    state = evolve(
        a_state(a_container("e1"), a_container("e2", processor_id="1", host="host-b")),
        uncommitted([GrantPut(grant=a_grant(f"t{n}", epoch=epoch, execution_id=one)) for n, epoch, one in GRANTED]),
    )

    def located(heartbeat):
        records = hear(heartbeat, state)
        return [(put.locality.task_name, put.locality.host) for put in records if isinstance(put, TaskLocalityPut)]

    held = [(f"t{n}", epoch) for n, epoch, _ in GRANTED] + [("t9", 9)]
    assert [("t2", "host-a"), ("t3", "host-a")] == located(a_heartbeat("e1", held=held))
    assert [("t1", "host-b")] == located(a_heartbeat("e2", processor_id="1", host="host-b", held=held))
    assert [] == located(a_heartbeat("e1", held=held, state=P.STARTED))
    # Reported once, it is not reported again.
    state = evolve(state, uncommitted(hear(a_heartbeat("e1", held=held), state)))
    assert [] == located(a_heartbeat("e1", held=held))


def test_a_living_execution_gives_the_present_place_of_its_processor_and_the_record_the_last_one():
    gone_on_another_host = a_container("e3", processor_id="2", host="host-c", phase=P.FENCED)
    state = a_state(a_container("e1", host="host-b", phase=P.STARTED), gone_on_another_host)
    records = [LocalityPut(locality=ProcessorLocality(processor_id=one, host="host-a")) for one in ("0", "2")]

    locality = locality_of(evolve(state, uncommitted(records)))

    assert {"0": "host-b", "2": "host-a"} == locality.processors


@pytest.mark.parametrize(
    "change", [{"pid": 2}, {"boot_id": "b2"}, {"host": "h2"}, {"slot_count": 9}, {"processor_id": "1"}]
)
def test_only_heartbeats_of_the_recorded_process_count(change):
    state = a_state(a_container())

    assert not is_expected(state, a_heartbeat(**change))
    assert () == hear(a_heartbeat(state=P.STOPPED, **change), state)


def test_silence_counts_from_the_last_heartbeat_of_this_term():
    state = a_state(a_container("heard"), a_container("unheard"), a_container("gone", phase=P.FENCED))
    last = {"heard": Sighting(at_ms=50, stream_offset=0, held=frozenset(), figures=None)}
    liveness = Liveness(listening_since_ms=10, last=last)

    def given_up(now_ms):
        return [record.container.execution_id for record in expire(Tick(now_ms=now_ms, lost_ms=100), state, liveness)]

    assert [[], ["unheard"], ["unheard"], ["heard", "unheard"]] == [given_up(now) for now in (109, 110, 149, 150)]


class Unanswered:
    """A container whose heartbeats arrive.

    `sends_heartbeat` has the time without an answer by the container's own clock.
    """

    def __init__(self, listening_since_ms=0):
        self.state = a_state(a_container())
        self.liveness = Liveness(listening_since_ms=listening_since_ms)

    def sends_heartbeat(self, at_ms, unanswered_ms):
        heartbeat = a_heartbeat(received_ms=at_ms, unanswered_ms=unanswered_ms)
        self.liveness = sighted(self.liveness, heartbeat, self.state)
        return [
            put.container.reason
            for put in expire(Tick(now_ms=at_ms, lost_ms=999, lease_ms=15), self.state, self.liveness)
        ]


def test_a_container_whose_heartbeats_arrive_and_have_no_answer_for_longer_than_a_lease_is_given_up():
    container = Unanswered()

    assert [[], [], [], []] == [container.sends_heartbeat(at_ms, at_ms) for at_ms in (0, 5, 10, 20)]
    (reason,) = container.sends_heartbeat(21, 21)

    assert "it has had no answer for 16 ms (job.container.lease.ms is 15)" in reason


def test_an_answer_in_between_restarts_the_count():
    container = Unanswered()

    answers = [
        container.sends_heartbeat(at_ms, unanswered_ms)
        for at_ms, unanswered_ms in ((5, 5), (15, 0), (16, 1), (31, 16))
    ]

    assert [[], [], [], []] == answers
    assert container.sends_heartbeat(32, 17)


def test_a_container_that_was_suspended_or_had_no_leader_is_not_blamed_for_questions_it_did_not_ask():
    assert [] == Unanswered().sends_heartbeat(1000, 900), "the first heartbeat that this coordinator receives"

    container = Unanswered()
    container.sends_heartbeat(10, 0)
    assert [] == container.sends_heartbeat(1000, 990), "it slept in the middle of a heartbeat"


def test_a_coordinator_that_was_away_does_not_count_the_time_before_it_listens():
    container = Unanswered()
    container.sends_heartbeat(10, 1)
    container.liveness = replace(container.liveness, listening_since_ms=990)

    assert [] == container.sends_heartbeat(1000, 990)
    assert container.sends_heartbeat(1006, 996)


def test_a_container_that_does_not_report_the_time_without_an_answer_is_given_up_for_silence_alone():
    container = Unanswered()

    assert [[], []] == [container.sends_heartbeat(at_ms, 0) for at_ms in (10, 500)]


def test_the_reason_of_giving_up_stays_when_it_is_fenced():
    lost = declare_lost(ContainerGone("e1", "its process has ended"), a_state(a_container()))[0].container

    fenced = mark_fenced(ExecutionFenced("e1", 1), a_state(lost))[0].container

    assert (P.LOST, P.FENCED) == (lost.phase, fenced.phase)
    assert "its process has ended" == fenced.reason


def test_news_of_an_unknown_execution_changes_nothing():
    assert () == declare_lost(ContainerGone("e9", ""), a_state())
    assert () == mark_fenced(ExecutionFenced("e9", 1), a_state())


def test_sightings_of_living_containers_are_kept_and_the_others_forgotten_as_time_passes():
    state = a_state(a_container("e1"), a_container("e2", phase=P.LOST))
    liveness = Liveness(last={"e2": Sighting(at_ms=1, stream_offset=0, held=frozenset(), figures=None)})
    sighting = sighted(liveness, a_heartbeat("e1"), state)

    assert {"e1"} == set(observe(Tick(now_ms=1, lost_ms=10, release_ms=10), state, sighting).last)
    assert sighting.last["e1"] == without_the_dead(sighting, state).last["e1"]


def naming(*outputs, **fields):
    return replace(a_heartbeat(**fields), outputs=frozenset(outputs))


def test_outputs_of_all_containers_are_kept_when_the_containers_are_gone():
    state = a_state(a_container("e1"), a_container("e2"))
    liveness = Liveness()
    for heartbeat in (naming("sums"), naming("totals", execution_id="e2"), a_heartbeat("e2")):
        liveness = observe(heartbeat, state, liveness)

    gone = a_state(a_container("e1", phase=P.LOST), a_container("e2", phase=P.FENCED))

    assert {"sums", "totals"} == observe(Tick(now_ms=1, lost_ms=10, release_ms=10), gone, liveness).outputs


def test_the_heartbeat_with_which_a_container_ends_may_name_an_output():
    """It is lost by then, and is fenced next."""
    lost = a_state(a_container(phase=P.LOST))

    assert {"sums"} == observe(naming("sums", exit_code=8), lost, Liveness()).outputs


@pytest.mark.parametrize("change", [{"pid": 2}, {"boot_id": "b2"}, {"execution_id": "e9"}])
def test_outputs_of_another_process_are_not_kept(change):
    assert Liveness() == outputs_noted(Liveness(), naming("sums", **change), a_state(a_container()))


def test_a_bounded_number_of_outputs_is_kept():
    state, liveness = a_state(a_container()), Liveness()
    for number in range(OUTPUTS_KEPT_MAX // 200 + 2):
        names = [f"out-{number}-{topic}" for topic in range(199)]
        liveness = outputs_noted(liveness, naming(*names), state)

    assert OUTPUTS_KEPT_MAX == len(liveness.outputs)
    assert "out-0-0" in liveness.outputs
