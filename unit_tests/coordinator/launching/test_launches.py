"""Containers that the coordinator starts, from the wish to the stop.

They are started, lost, retried, scaled, replaced and stopped.
"""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.liveness import Liveness, Sighting
from samzapy.coordinator.commands import Figures, LaunchesLooked, ReviewLaunches, ReviewRequests
from samzapy.coordinator.decide import decide
from samzapy.coordinator.grant_values import HeldGrant
from samzapy.coordinator.launching.launches import (
    failed_job,
    is_over,
    launch_wanted,
    launches_forgotten,
    launches_looked,
    review_launches,
    stopped_too_late,
    to_kill,
    to_start,
)
from samzapy.coordinator.lifecycle.membership import _forgotten
from samzapy.coordinator.requests.handler import Review
from samzapy.coordinator.requests.restart_container import REPLACING
from samzapy.coordinator.requests.scale_containers import RESIZING
from samzapy.coordinator.state import INITIAL, committed, evolve, tombstone, uncommitted
from samzapy.errors import RejectedError
from samzapy.inspection.invariants import Invariants
from samzapy.model.container import ContainerPhase, ProcessorLocality
from samzapy.model.launch import Launched, LaunchedState, LaunchPhase, LaunchRole
from samzapy.model.placement import Action, StatusCode
from samzapy.stream.codec import decode
from samzapy.stream.placement import Place
from samzapy.stream.records import (
    ConfigPut,
    ContainerCountPut,
    ContainerPut,
    GrantPut,
    LaunchPut,
    LocalityPut,
    RunPut,
)
from samzapy.testing.builders import a_container, a_grant, a_heartbeat, a_launch, a_submission
from unit_tests.fixtures.container_worlds import plan_in_force
from unit_tests.fixtures.launched_job import HOSTS, ROUND_MS, LaunchedJob, a_move

S = StatusCode
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
REVIEW = ReviewLaunches(
    now_ms=1_000,
    seed="s",
    request_timeout_ms=120_000,
    stop_timeout_ms=26_000,
    retry_count=8,
    retry_window_ms=300_000,
)


def a_state(*records, count=1):
    run = RunPut(run_id="run", ended=False)
    return evolve(INITIAL, committed((ContainerCountPut(count=count), run, *records), 0))


def a_review(state, *, now_ms, liveness=Liveness()):  # noqa: B008
    command = ReviewRequests(now_ms=now_ms, expiry_ms=60_000, launching=REVIEW)
    return Review(command=command, state=state, liveness=liveness)


def launches_of(records):
    return [record.launch for record in records if isinstance(record, LaunchPut)]


# --- launches ---


def test_a_job_gets_a_container_for_each_processor_and_its_tasks_run_there():
    job = LaunchedJob(count=3)

    assert {"0", "1", "2"} == set(job.runners())
    assert {"0": 2, "1": 1, "2": 1} == job.at_work()
    assert ("0", "1", "2") == job.state.generation.processor_ids
    assert 1 == job.state.generation.generation


def test_a_launch_is_recorded_before_it_is_started():
    job = LaunchedJob(count=1)

    events = [
        record.launch.phase for record in job.records(LaunchPut) if record.launch.execution_id == job.started[0]
    ]

    assert [LaunchPhase.WANTED, LaunchPhase.LAUNCHED] == events


def test_the_same_review_a_second_time_changes_nothing():
    state = a_state(count=3)
    records, _ = review_launches(REVIEW, state)
    after = evolve(state, committed(records, 10))

    assert 3 == len(launches_of(records))
    assert ((), "") == review_launches(REVIEW, after)


def decided_once(command, state):
    """The decision; the same decision once more changes nothing (law L2)."""
    records = decide(command, state, Liveness()).records
    after = evolve(state, committed(records, 10))
    assert () == decide(command, after, Liveness()).records
    return records


def test_a_launch_that_has_ended_is_forgotten_in_the_review_that_starts_the_next_one():
    ended = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.ENDED))

    records = decided_once(REVIEW, a_state(ended))

    assert ["container-0-s"] == [launch.execution_id for launch in launches_of(records)]
    assert tombstone(ended) == records[-1]


def test_the_review_that_ends_the_run_stops_all_containers():
    failed = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.ENDED, failures=9))
    other = LaunchPut(launch=a_launch("e2", processor_id="1"))

    records = decided_once(REVIEW, a_state(failed, other, ContainerPut(container=a_container("e2")), count=2))

    assert [True] == [record.finished for record in records if isinstance(record, RunPut)]
    assert [("e2", LaunchPhase.STOPPING)] == [(launch.execution_id, launch.phase) for launch in launches_of(records)]


def test_a_standby_starts_on_a_host_that_only_the_cluster_manager_knows():
    def host_of_standby(*named):
        job = LaunchedJob(
            count=1,
            named=named,
            job_standbytasks_replication_factor="2",
            stores_sums_msg_serde="json",
            local_store_dir="state",
        )
        job.settles()
        (standby,) = [launch for launch in job.state.launches.values() if launch.role is LaunchRole.STANDBY]
        (active,) = [launch for launch in job.state.launches.values() if launch.role is LaunchRole.ACTIVE]
        return standby.host, active.host_found

    assert "" == host_of_standby()[0], "wherever there is room"
    host, taken = host_of_standby(*HOSTS)
    assert host in set(HOSTS) - {taken}


def test_standbys_are_started_together_where_it_is_known_where_each_will_be():
    config = [
        ConfigPut(config_key="stores.sums.msg.serde", value="json"),
        ConfigPut(config_key="job.standbytasks.replication.factor", value="3"),
    ]
    state = a_state(*config, LaunchPut(launch=a_launch("e1")), ContainerPut(container=a_container("e1")))

    known = decided_once(replace(REVIEW, hosts=dict.fromkeys(["host-a", "host-b", "host-c"])), state)
    unknown = decided_once(REVIEW, state)

    assert [(0, "host-b"), (1, "host-c")] == [(launch.standby, launch.host) for launch in launches_of(known)]
    assert [(0, "")] == [(launch.standby, launch.host) for launch in launches_of(unknown)]


def test_a_standby_starts_where_there_is_room_beside_the_launches_that_wait_there():
    config = [
        ConfigPut(config_key="stores.sums.msg.serde", value="json"),
        ConfigPut(config_key="job.standbytasks.replication.factor", value="2"),
    ]
    running = (LaunchPut(launch=a_launch("e1")), ContainerPut(container=a_container("e1")))
    coming = LaunchPut(launch=a_launch("e2", processor_id="1", phase=LaunchPhase.WANTED, host="host-c"))
    busy = [LaunchPut(launch=a_launch(f"d{number}", processor_id=number, host="host-d")) for number in "23"]

    def host_of_standby(*records, **room):
        hosts = {f"host-{name}": count for name, count in room.items()}
        decision = decide(replace(REVIEW, hosts=hosts), a_state(*config, *running, *records, count=4), Liveness())
        standbys = [launch for launch in launches_of(decision.records) if launch.role is LaunchRole.STANDBY]
        return standbys[0].host if standbys else None

    assert "host-b" == host_of_standby(b=None, c=None)
    assert "host-c" == host_of_standby(b=0, c=1)
    assert "host-c" == host_of_standby(b=0, c=None)
    assert host_of_standby(b=0, c=0) is None, "it is wanted on the first one that becomes free"
    assert "host-d" == host_of_standby(coming, *busy, b=0, c=1, d=1)


def test_a_request_reports_its_new_container_in_the_review_that_asks_for_it():
    running = (LaunchPut(launch=a_launch("e1")), ContainerPut(container=a_container("e1")))
    state = a_state(*running, *plan_in_force(1, a="0", b="0"), a_move(S.ACCEPTED))

    records = decided_once(ReviewRequests(now_ms=1, expiry_ms=60_000, launching=REVIEW, tries_max=3), state)

    assert [LaunchRole.RESERVE] == [launch.role for launch in launches_of(records)]
    assert "container container-0-r-s is to start on host-b (try 1 of 3)" == records[-1].response_message


def test_nothing_is_started_for_a_self_managed_job():
    state = evolve(INITIAL, committed([RunPut(run_id="run", ended=False)], 0))

    assert ((), "") == review_launches(REVIEW, state)


def test_a_recorded_launch_is_repeated_after_a_failover_and_starts_no_container_twice():
    job = LaunchedJob(count=2)
    before = dict(job.runners())
    started = list(job.started)

    job.fails_over()
    job.settles()

    assert started == job.started
    assert before == job.runners()
    assert [] == job.killed


def test_a_coordinator_that_dies_between_record_and_start_is_followed_by_one_that_starts():
    job = LaunchedJob(count=1)
    job.ends(job.execution("0"), 1)
    job.is_away = True
    job.settles(4)
    pending = job.execution("0")
    assert pending not in job.started

    job.fails_over()
    job.is_away = False
    job.settles()

    assert pending == job.started[-1] == job.execution("0")
    assert {"0": 4} == job.at_work()


def test_a_container_that_sent_a_heartbeat_is_not_started_though_its_start_was_never_recorded():
    registered = ContainerPut(container=a_container("e1"))
    state = a_state(LaunchPut(launch=a_launch("e1", phase=LaunchPhase.WANTED)), registered)

    records, _ = review_launches(REVIEW, state)

    assert () == to_start(state)
    assert [LaunchPhase.LAUNCHED] == [launch.phase for launch in launches_of(records)]


# --- hosts ---


def test_a_container_that_is_lost_is_started_again_on_its_host():
    job = LaunchedJob(count=2)
    host = job.runners()["1"]

    job.ends(job.execution("1"), 137)
    job.settles()

    assert host == job.runners()["1"]
    assert 3 == len(job.started)
    assert job.state.launches[job.execution("1")].host == host


def test_without_host_affinity_any_host_will_do():
    here = LocalityPut(locality=ProcessorLocality(processor_id="0", host="host-b"))
    state = a_state(here)

    with_affinity, _ = review_launches(REVIEW, state)
    without, _ = review_launches(ReviewLaunches(**(fields(REVIEW) | {"has_affinity": False})), state)

    assert ["host-b"] == [launch.host for launch in launches_of(with_affinity)]
    assert [""] == [launch.host for launch in launches_of(without)]


def fields(command):
    return {name: getattr(command, name) for name in command.__slots__}


def test_a_start_on_the_preferred_host_that_came_to_nothing_is_tried_anywhere():
    job = LaunchedJob(count=1)
    here = job.runners()["0"]
    job.slots[here] = 0  # Without a report of it.
    job.ends(job.execution("0"), 137)

    job.settles(4)
    waits = job.state.launches[job.execution("0")]
    assert (LaunchPhase.WANTED, here) == (waits.phase, waits.host)
    job.runs_a_round(2 * MINUTE_MS)
    job.settles()

    assert job.runners()["0"] not in ("", here)
    assert {"0": 4} == job.at_work()


def test_a_host_on_which_nothing_can_be_started_is_left_at_once():
    job = LaunchedJob(count=1)
    here = job.runners()["0"]
    job.slots.pop(here)
    job.refused.add(here)
    job.ends(job.execution("0"), 137)

    job.settles()

    assert here != job.runners()["0"]


def hosts_of_next_launches(last, hosts, *, now_ms=100_000, count=1):
    """The hosts on which the next ones are wanted; all processors were on host-a last."""
    names = [str(number) for number in range(count)]
    places = [LocalityPut(locality=ProcessorLocality(processor_id=name, host="host-a")) for name in names]
    lasts = [replace(last, execution_id=f"e{name}", processor_id=name) for name in names]
    state = a_state(*places, *(LaunchPut(launch=launch) for launch in lasts), count=count)
    command = replace(REVIEW, now_ms=now_ms, hosts=hosts)
    return [launch.host for launch in launches_of(review_launches(command, state)[0]) if launch.phase is P.WANTED]


P = LaunchPhase
FAILED = a_launch("e0", phase=P.ENDED, host="host-a", failures=1, wanted_at_ms=0)


@pytest.mark.parametrize(
    ("last", "hosts", "expected"),
    [
        # The fault of the one host does not affect the others, though it looks the emptiest: everything dies there.
        (FAILED, {"host-a": 9, "host-b": 1, "host-c": 2}, "host-c"),
        (replace(FAILED, host="", host_found="host-a"), {"host-a": 9, "host-b": 1}, "host-b"),
        (replace(FAILED, host="host-b", host_found="host-b"), {"host-a": 1, "host-b": 9}, "host-a"),
        # For a cluster manager that does not report free slots, by name.
        (FAILED, {"host-a": None, "host-b": None}, "host-b"),
        # There is no other, or it is full.
        (FAILED, {"host-a": 3}, ""),
        (FAILED, {"host-a": 3, "host-b": 0}, ""),
        # Nothing was wrong where it was: there was no room anywhere.
        (replace(FAILED, host=""), {"host-a": 1, "host-b": 2}, "host-a"),
        # No cluster manager names hosts.
        (FAILED, {}, ""),
        (replace(FAILED, host="", host_found="host-b"), {}, "host-a"),
    ],
)
def test_after_a_start_that_came_to_nothing_another_host_is_tried(last, hosts, expected):
    assert [expected] == hosts_of_next_launches(last, hosts)


def test_several_containers_that_have_to_move_find_room_each():
    room = {"host-a": 4, "host-b": 2, "host-c": 1}

    assert ["host-b", "host-b", "host-c", ""] == sorted(
        hosts_of_next_launches(FAILED, room, count=4), key=lambda host: host or "z"
    )


@pytest.mark.parametrize(("failures", "pause_ms"), [(1, 0), (2, 2_000), (3, 4_000), (5, 16_000), (8, 30_000)])
def test_after_two_failures_in_a_row_the_next_start_waits_a_little(failures, pause_ms):
    last = replace(FAILED, failures=failures, wanted_at_ms=50_000)

    assert [] == hosts_of_next_launches(last, {}, now_ms=50_000 + pause_ms - 1) or not pause_ms
    assert [""] == hosts_of_next_launches(last, {}, now_ms=50_000 + pause_ms)


# --- failures ---


def test_an_execution_of_which_the_launcher_has_seen_the_end_is_given_up_at_once():
    running = a_state(LaunchPut(launch=a_launch("e1")), ContainerPut(container=a_container("e1")))
    launched = {"e1": Launched(state=LaunchedState.ENDED, exit_code=137)}

    launch, container = launches_looked(LaunchesLooked(launched=launched, now_ms=5, retry_window_ms=9), running)

    assert (LaunchPhase.ENDED, 1, 5) == (launch.launch.phase, launch.launch.failures, launch.launch.window_began_ms)
    assert (ContainerPhase.LOST, "it ended with exit code 137 (SIGKILL)") == (
        container.container.phase,
        container.container.reason,
    )


def test_a_container_without_a_heartbeat_in_time_is_killed_and_another_one_is_started():
    job = LaunchedJob(count=1)
    job.is_broken = True
    job.ends(job.execution("0"), 1)
    job.settles(4)
    silent = job.execution("0")
    assert silent in job.started

    job.is_broken = False
    # By rounds: a suspended coordinator receives nothing.
    job.settles(2 * MINUTE_MS // ROUND_MS)
    job.settles()

    assert [silent] == job.killed
    assert {"0": 4} == job.at_work()


@pytest.mark.parametrize(("phase", "is_given_up"), [(LaunchPhase.LAUNCHED, False), (LaunchPhase.WANTED, True)])
def test_a_container_that_started_without_a_leader_has_time_to_find_one(phase, is_given_up):
    state = a_state(LaunchPut(launch=a_launch("e1", phase=phase, expires_at_ms=120_000)))

    def given_up(now_ms):
        records, _ = review_launches(replace(REVIEW, now_ms=now_ms, listening_since_ms=200_000), state)
        return [launch.execution_id for launch in launches_of(records) if launch.phase is LaunchPhase.STOPPING]

    # A launch that was not even started when a new leader comes is tried somewhere else.
    assert (["e1"] if is_given_up else []) == given_up(319_999)
    assert ["e1"] == given_up(320_000)


def test_containers_that_started_without_a_leader_are_kept_by_the_next_leader():
    job = LaunchedJob(count=1)
    job.is_broken = True
    job.ends(job.execution("0"), 1)
    job.settles(4)
    silent = job.execution("0")
    assert silent in job.started
    # There is no leader for longer than a start may take; the container waits.
    job.world.clock.advance(3 * MINUTE_MS)

    job.fails_over()
    job.service.run_once(0)
    job.processes[silent].is_silent = False
    job.settles()

    assert [] == job.killed
    assert silent == job.execution("0")
    assert {"0": 4} == job.at_work()


@pytest.mark.parametrize(
    ("hosts", "now_ms", "expected"),
    [
        ({"host-b": 1}, 9_999, []),
        ({"host-b": 1}, 10_000, ["", "host-b"]),
        # The cluster manager has not reported its hosts yet.
        ({}, 60_000, []),
        # It is full, and gets a moment for the place of the one that ended there.
        ({"host-a": 0, "host-b": 1}, 4_999, []),
        ({"host-a": 0, "host-b": 1}, 5_000, ["", "host-b"]),
        ({"host-a": 0, "host-b": 0}, 60_000, []),
        ({"host-a": 0, "host-b": 0, "host-c": None}, 60_000, ["", "host-c"]),
        ({"host-a": None, "host-b": 1}, 60_000, []),
    ],
)
def test_a_host_that_stays_away_or_full_is_not_waited_for(hosts, now_ms, expected):
    place = LocalityPut(locality=ProcessorLocality(processor_id="0", host="host-a"))
    waits = a_launch("e1", phase=LaunchPhase.WANTED, host="host-a", wanted_at_ms=0)

    records, _ = review_launches(replace(REVIEW, now_ms=now_ms, hosts=hosts), a_state(place, LaunchPut(launch=waits)))

    launches = launches_of(records)
    assert expected == ["" if launch.phase is not P.WANTED else launch.host for launch in launches]
    assert {0} >= {launch.failures for launch in launches}, "it is no failure"


def test_a_host_is_wanted_only_of_a_cluster_manager_that_names_hosts():
    place = LocalityPut(locality=ProcessorLocality(processor_id="0", host="host-a"))
    waits = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.WANTED, host="host-a", wanted_at_ms=0))
    nameless = replace(REVIEW, now_ms=1, names_hosts=False)

    fresh, _ = review_launches(nameless, a_state(place))
    after, _ = review_launches(nameless, a_state(place, waits))

    assert [(P.WANTED, "")] == [(launch.phase, launch.host) for launch in launches_of(fresh)]
    assert [(P.STOPPING, 0), (P.WANTED, 0)] == [(launch.phase, launch.failures) for launch in launches_of(after)]
    assert "" == launches_of(after)[-1].host


def test_a_launch_that_an_operator_asked_for_on_a_host_is_waited_for_there():
    waits = a_launch("e2", role=LaunchRole.RESERVE, phase=P.WANTED, host="host-b", wanted_at_ms=0, uuid="u")
    runs = (LaunchPut(launch=a_launch("e1")), ContainerPut(container=a_container("e1")))
    state = a_state(*runs, LaunchPut(launch=waits), a_move(S.IN_PROGRESS))

    records, _ = review_launches(replace(REVIEW, now_ms=60_000, hosts={"host-b": 0, "host-c": 1}), state)

    assert () == tuple(launches_of(records))


def test_a_container_stopped_before_it_started_is_launched_where_its_state_is():
    place = LocalityPut(locality=ProcessorLocality(processor_id="0", host="host-a"))
    stopping = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.ENDED, host="host-a"))

    records, _ = review_launches(replace(REVIEW, hosts={"host-a": 1, "host-b": 9}), a_state(place, stopping))

    assert ["host-a"] == [launch.host for launch in launches_of(records)]


def test_failures_are_counted_after_an_execution_that_cannot_be_ended():
    stuck = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING, failures=1, expires_at_ms=0))
    failed = LaunchPut(launch=a_launch("e2", phase=LaunchPhase.ENDED, failures=2, wanted_at_ms=10))

    (launch,) = launches_of(review_launches(replace(REVIEW, now_ms=30_000), a_state(stuck, failed))[0])

    assert 2 == launch.failures


def test_a_container_that_drains_is_waited_for_though_another_one_is_newer():
    drains = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING, expires_at_ms=50_000))
    ended = LaunchPut(launch=a_launch("e2", phase=LaunchPhase.ENDED, wanted_at_ms=10))

    assert [] == launches_of(review_launches(replace(REVIEW, now_ms=30_000), a_state(drains, ended))[0])


def test_a_silent_container_is_killed_and_its_processor_gets_another_one():
    job = LaunchedJob(count=2)
    zombie = job.execution("1")
    job.processes[zombie].is_silent = True
    job.world.alive[job.processes[zombie].pid] = None

    job.settles(50)

    assert [zombie] == job.killed
    assert zombie != job.execution("1")
    assert {"0": 2, "1": 2} == job.at_work()


def test_a_cluster_manager_that_does_not_answer_reports_nothing_of_its_containers():
    job = LaunchedJob(count=1)
    runner = job.execution("0")

    job.is_away = True
    job.settles()
    unknown = {runner: Launched(state=LaunchedState.UNKNOWN, reason="no answer")}
    records = launches_looked(LaunchesLooked(launched=unknown, now_ms=job.now_ms(), retry_window_ms=1), job.state)

    assert () == records
    assert runner == job.execution("0")
    assert 1 == len(job.started)


def test_an_end_in_a_run_that_is_finished_is_no_failure():
    finished = RunPut(run_id="run", ended=False, finished=True)
    state = a_state(LaunchPut(launch=a_launch("e1")), finished)
    launched = {"e1": Launched(state=LaunchedState.ENDED, exit_code=0)}

    (put,) = launches_looked(LaunchesLooked(launched=launched, now_ms=5, retry_window_ms=9), state)

    assert (LaunchPhase.ENDED, 0) == (put.launch.phase, put.launch.failures)


def test_the_job_ends_when_a_processors_containers_fail_too_often():
    job = LaunchedJob(count=2, **{"cluster-manager_container_retry_count": "2"})

    for _ in range(3):
        job.ends(job.execution("1"), 1)
        job.settles(6)
    job.settles()

    assert job.state.run.finished
    assert job.state.run.ended
    assert is_over(job.state)
    assert "exit code 1" in failed_job(job.state, 2)
    assert "processor 1 failed 3 times" in failed_job(job.state, 2)
    assert 2 + 2 == len(job.started)


def test_the_job_continues_without_a_processor_until_its_retry_window_ends():
    settings = {"cluster-manager_container_retry_count": "0"}
    job = LaunchedJob(count=2, **settings, **{"cluster-manager_container_fail_job_after_retries": "false"})

    job.ends(job.execution("1"), 1)
    job.settles()

    assert not job.state.run.finished
    assert {"0": 2} == job.at_work()
    assert 2 == len(job.started)
    job.runs_a_round(6 * MINUTE_MS)
    job.settles()
    assert {"0": 2, "1": 2} == job.at_work()


def test_failures_that_are_far_apart_are_not_counted_together():
    job = LaunchedJob(count=1, **{"cluster-manager_container_retry_count": "1"})

    for _ in range(4):
        job.ends(job.execution("0"), 1)
        job.settles(8)
        job.runs_a_round(5 * MINUTE_MS)

    assert not job.state.run.finished
    assert 5 == len(job.started)


def test_failures_in_a_row_are_counted_from_one_execution_to_the_next():
    job = LaunchedJob(count=1)

    for number in range(1, 4):
        job.ends(job.execution("0"), 1)
        job.settles(6)
        assert number == job.state.launches[job.execution("0")].failures

    job.fails_over()
    job.settles(4)
    assert 3 == job.state.launches[job.execution("0")].failures


def test_an_ended_launch_is_forgotten_once_its_failures_are_counted():
    job = LaunchedJob(count=1)
    first = job.execution("0")

    job.ends(first, 1)
    job.settles()

    assert first not in job.state.launches
    assert [("0", "LAUNCHED")] == job.phases()


def test_a_launch_is_remembered_while_its_execution_may_still_commit_something():
    standby = a_launch("e1", role=LaunchRole.STANDBY, phase=LaunchPhase.ENDED, processor_id="7")
    lost = ContainerPut(container=a_container("e1", processor_id="7", phase=ContainerPhase.LOST))
    fenced = ContainerPut(container=a_container("e1", processor_id="7", phase=ContainerPhase.FENCED))

    def forgotten(*records):
        return tombstone(LaunchPut(launch=standby)) in decide(REVIEW, a_state(*records), Liveness()).records

    assert not forgotten(LaunchPut(launch=standby), lost)
    assert forgotten(LaunchPut(launch=standby), fenced)


def test_whether_an_execution_ever_came_up_is_known_as_long_as_its_launch_is():
    gone = ContainerPut(container=a_container("e1", phase=ContainerPhase.FENCED))
    living = ContainerPut(container=a_container("e2"))
    launch = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.ENDED))

    assert (tombstone(gone),) == _forgotten(a_state(gone, living))
    assert () == _forgotten(a_state(gone, living, launch))


# --- stops ---


def test_of_two_active_containers_of_a_processor_the_one_that_does_not_run_its_tasks_is_stopped():
    records = (
        LaunchPut(launch=a_launch("e1", wanted_at_ms=5)),
        LaunchPut(launch=a_launch("e2", wanted_at_ms=1)),
        ContainerPut(container=a_container("e1")),
    )

    stopped, _ = review_launches(REVIEW, a_state(*records))
    not_up, _ = review_launches(REVIEW, a_state(*records[:2]))

    assert [("e2", LaunchPhase.STOPPING)] == [(launch.execution_id, launch.phase) for launch in launches_of(stopped)]
    assert [("e1", LaunchPhase.STOPPING)] == [(launch.execution_id, launch.phase) for launch in launches_of(not_up)]


def a_job_whose_container_is_deaf_to_its_stop(**request):
    """A restart was asked for, and read."""
    job = LaunchedJob(count=1)
    deaf = job.execution("0")
    job.processes[deaf].is_deaf = True
    job.ask(1, Action.RESTART_CONTAINER, **request)
    job.reads()
    return job, deaf


def test_a_container_that_does_not_end_in_time_is_killed():
    job, deaf = a_job_whose_container_is_deaf_to_its_stop(request_expiry=None)

    job.settles(20)
    assert [] == job.killed
    job.settles(50)

    assert [deaf] == job.killed
    assert {"0": 4} == job.at_work()


def test_a_container_that_does_not_stop_in_time_is_given_up_even_if_it_cannot_be_killed():
    job, deaf = a_job_whose_container_is_deaf_to_its_stop()
    job.kills = lambda launch: None

    job.settles(80)

    assert [] == job.killed
    assert S.SUCCEEDED is job.status(1)
    assert {"0": 4} == job.at_work()
    assert deaf != job.execution("0")


def test_a_container_that_still_has_time_to_stop_is_not_given_up():
    stopping = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING, expires_at_ms=REVIEW.now_ms + 1))
    state = a_state(stopping, ContainerPut(container=a_container("e1")))

    assert () == stopped_too_late(REVIEW, state)


def test_a_stale_coordinator_kills_only_containers_that_were_to_stop():
    state = a_state(
        LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING, expires_at_ms=50)),
        LaunchPut(launch=a_launch("e2", phase=LaunchPhase.LAUNCHED, expires_at_ms=50)),
        LaunchPut(launch=a_launch("e3", phase=LaunchPhase.ENDED, expires_at_ms=50)),
    )

    assert [] == [launch.execution_id for launch in to_kill(state, 49)]
    assert ["e1"] == [launch.execution_id for launch in to_kill(state, 50)]


def test_a_container_that_the_coordinator_did_not_start_is_given_up():
    foreign = ContainerPut(container=a_container("e9", processor_id="9"))

    records, cause = review_launches(REVIEW, a_state(foreign))

    (lost,) = [record.container for record in records if isinstance(record, ContainerPut)]
    assert ("e9", ContainerPhase.LOST) == (lost.execution_id, lost.phase)
    assert "not started by the coordinator" in cause


def test_a_copy_of_a_container_is_not_registered():
    job = LaunchedJob(count=1)

    for name, processor_id in (("foreign", "0"), (job.execution("0"), "1")):
        job.world.queue.append(a_heartbeat(name, processor_id=processor_id, pid=999, held=[]))
    job.settles(4)

    assert "foreign" not in job.state.containers
    assert {"0": 4} == job.at_work()


# --- more, fewer, others ---


def scaled(job, number, containers):
    job.ask(number, Action.SCALE, processor_id="", arguments={"containers": str(containers)})
    job.reads()
    job.settles(30)


def test_a_running_job_gets_more_containers_before_others_release_tasks():
    job = LaunchedJob(count=2)
    job.ask(1, Action.SCALE, processor_id="", arguments={"containers": "3"})
    job.reads()
    job.is_away = True
    job.settles(4)
    assert {"0": 2, "1": 2} == job.at_work()

    job.is_away = False
    job.settles(30)

    assert S.SUCCEEDED is job.status(1)
    assert "4 tasks run in 3 containers" in job.answer(1).response_message
    assert {"0": 2, "1": 1, "2": 1} == job.at_work()


def test_status_shows_each_container_as_it_starts_and_ends():
    job = LaunchedJob(count=1)
    job.slots = {"host-a": 2}

    scaled(job, 1, 3)
    assert (S.IN_PROGRESS, "2 of 3 containers run") == (job.status(1), job.answer(1).response_message)
    job.slots = {"host-a": 3}
    job.settles(20)
    scaled(job, 2, 1)

    assert [
        ("STARTING", "from 1 containers to 3"),
        ("STARTING", "1 of 3 containers run"),
        ("STARTING", "2 of 3 containers run"),
        ("STARTING", "3 of 3 containers run"),
    ] == job.progress_of(1)
    assert [
        ("STARTING", "from 3 containers to 1"),
        ("STARTING", "1 of 1 containers run, 2 more to end"),
    ] == job.progress_of(2)[:2]
    assert [S.SUCCEEDED, S.SUCCEEDED] == [job.status(1), job.status(2)]
    assert "" == job.answer(2).phase


@pytest.mark.parametrize(
    ("leaving", "text"), [(0, ""), (1, ", 1 more to end"), (20, ", 20 more to end"), (21, ", over 20 more to end")]
)
def test_the_loss_of_many_containers_is_one_short_sentence(leaving, text):
    launches = [LaunchPut(launch=a_launch(f"e{number}", processor_id=f"{number}")) for number in range(leaving + 1)]
    state = evolve(INITIAL, committed([ContainerCountPut(count=1), *launches], 0))
    request = replace(a_move(S.IN_PROGRESS), phase="STARTING")

    (request_put,) = RESIZING.progress(request, a_review(state, now_ms=0))

    assert f"0 of 1 containers run{text}" == request_put.response_message
    assert () == tuple(RESIZING.progress(request_put, a_review(state, now_ms=1)))


def test_new_containers_that_come_one_by_one_are_planned_for_together_or_after_a_while():
    job = LaunchedJob(count=1)
    job.slots = {"host-a": 2}
    scaled(job, 1, 3)
    assert {"0": 4} == job.at_work()
    job.settles(20)
    assert {"0": 2, "1": 2} == job.at_work()

    job.slots = {"host-a": 3}
    job.settles(20)

    assert {"0": 2, "1": 1, "2": 1} == job.at_work()


def test_a_job_gets_fewer_containers_and_those_that_stop_release_first():
    job = LaunchedJob(count=3)
    leaving = job.execution("2")

    scaled(job, 1, 2)

    assert S.SUCCEEDED is job.status(1)
    assert {"0": 2, "1": 2} == job.at_work()
    assert 0 == job.processes[leaving].exit_code
    assert [] == job.killed
    records = [decode(record, topic="t") for record in job.world.log().read()]
    grants_of_leaving = [
        record for record in records if isinstance(record, GrantPut) and record.grant.execution_id == leaving
    ]
    launches = [
        record for record in records if isinstance(record, LaunchPut) and record.launch.execution_id == leaving
    ]
    stopping = next(record for record in launches if record.launch.phase is LaunchPhase.STOPPING)
    assert grants_of_leaving[-1].grant.released
    assert records.index(grants_of_leaving[-1]) < records.index(stopping)
    assert ContainerPhase.LOST not in {record.container.phase for record in job.records(ContainerPut)}


def test_a_job_keeps_the_number_that_it_was_scaled_to():
    job = LaunchedJob(count=2)
    scaled(job, 1, 3)

    job.fails_over()
    job.settles()

    assert {"0": 2, "1": 1, "2": 1} == job.at_work()


def test_a_number_of_containers_is_refused_for_a_self_managed_job():
    job = LaunchedJob(count=2)
    job.count = None
    plain = a_submission(config=job.world.config)

    with pytest.raises(RejectedError, match="samzapy job stop"):
        job.service.submit(plain)


def test_a_container_is_replaced_by_another_process_on_its_host():
    job = LaunchedJob(count=2)
    before, host = job.execution("1"), job.runners()["1"]
    job.ask(1, Action.RESTART_CONTAINER, processor_id="1")
    job.reads()

    job.settles(20)

    assert S.SUCCEEDED is job.status(1)
    assert before != job.execution("1")
    assert host == job.runners()["1"]
    assert {"0": 2, "1": 2} == job.at_work()
    assert 0 == job.state.launches[job.execution("1")].failures
    assert 0 == job.processes[before].exit_code


def test_a_replacement_is_not_done_while_the_one_that_is_to_stop_has_the_tasks():
    first = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING, expires_at_ms=9_000))
    grants = [GrantPut(grant=a_grant(task, epoch=epoch)) for epoch, task in enumerate("ab", start=1)]
    second = (LaunchPut(launch=a_launch("e2")), ContainerPut(container=a_container("e2")))
    state = a_state(
        first, ContainerPut(container=a_container("e1")), *plan_in_force(1, a="0", b="0"), *grants, *second
    )
    request = replace(a_move(S.IN_PROGRESS), action=Action.RESTART_CONTAINER.value, execution_id="e1")
    liveness = Liveness(last={"e1": a_sighting(("a", 1), ("b", 2)), "e2": a_sighting()})

    review = a_review(state, now_ms=5_000, liveness=liveness)
    assert REPLACING.completion(request, review) is None
    assert "2 tasks are not at work there yet (a, b)" in REPLACING.timeout_reason(request, review)


def a_sighting(*held):
    return Sighting(at_ms=0, stream_offset=99, held=frozenset(HeldGrant(*grant) for grant in held), figures=Figures())


def test_a_replacement_that_a_fail_over_interrupts_is_made_once():
    job = LaunchedJob(count=1)
    job.ask(1, Action.RESTART_CONTAINER)
    job.reads()
    job.runs_a_round()

    job.fails_over()
    job.settles(20)

    assert S.SUCCEEDED is job.status(1)
    assert 2 == len(job.started)


def test_the_only_container_may_drain_and_the_run_continues_in_the_next_one():
    job = LaunchedJob(count=1)
    run_id = job.run_id
    job.ask(1, Action.RESTART_CONTAINER)
    job.reads()

    job.settles(20)

    assert S.SUCCEEDED is job.status(1)
    assert run_id == job.run_id
    assert not job.state.run.ended


def test_a_request_for_another_container_is_served_in_spite_of_the_failures_before():
    settings = {"cluster-manager_container_retry_count": "0"}
    job = LaunchedJob(count=1, **settings, **{"cluster-manager_container_fail_job_after_retries": "false"})
    job.ends(job.execution("0"), 1)
    job.settles()
    assert {} == job.at_work()

    job.ask(1, Action.RESTART_CONTAINER)
    job.reads()
    job.settles()

    assert S.SUCCEEDED is job.status(1)
    assert {"0": 4} == job.at_work()


@pytest.mark.parametrize("phase", [ContainerPhase.LOST, ContainerPhase.FENCED])
def test_the_failures_of_a_run_are_forgotten_but_not_executions_that_may_still_commit(phase):
    launch = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.ENDED, failures=9))
    lost = ContainerPut(container=a_container("e1", phase=phase))
    state = a_state(launch, lost)
    request = replace(a_move(S.ACCEPTED), action=Action.RESTART_CONTAINER.value)

    pardon, _ = REPLACING.begin(request, a_review(state, now_ms=1))
    after = evolve(state, committed([pardon], 10))

    assert (tombstone(launch) == pardon) is (phase is ContainerPhase.FENCED)
    assert ["container-0-s"] == [launch.execution_id for launch in launches_of(review_launches(REVIEW, after)[0])]


# --- the end, and the next run ---


def test_a_stopped_job_ends_with_its_last_container_and_starts_no_other():
    job = LaunchedJob(count=2)
    job.ask(1, Action.STOP, processor_id="")
    job.reads()

    job.settles()

    assert S.SUCCEEDED is job.status(1)
    assert job.state.run.ended
    assert is_over(job.state)
    assert "" == failed_job(job.state, 0)
    assert 2 == len(job.started)
    assert {0} == {process.exit_code for process in job.processes.values()}


def test_the_next_run_begins_when_the_job_is_submitted_again_and_only_then():
    job = LaunchedJob(count=2)
    job.ask(1, Action.STOP, processor_id="")
    job.reads()
    job.settles()
    over = job.run_id

    job.fails_over("b")
    job.settles()
    assert over == job.run_id
    assert job.state.run.ended
    job.run_over = over
    job.fails_over("c")
    job.settles()

    assert over != job.run_id
    assert {"0": 2, "1": 2} == job.at_work()
    assert {("0", "LAUNCHED"), ("1", "LAUNCHED")} == set(job.phases())


def test_failures_of_an_earlier_run_do_not_count():
    job = LaunchedJob(count=1, **{"cluster-manager_container_retry_count": "0"})
    job.ends(job.execution("0"), 1)
    job.settles()
    assert job.state.run.ended

    job.run_over = job.run_id
    job.fails_over()
    job.settles()

    assert {"0": 4} == job.at_work()
    assert 0 == job.state.launches[job.execution("0")].failures


@pytest.mark.parametrize(
    ("phase", "lives"), [(LaunchPhase.STOPPING, False), (LaunchPhase.STOPPING, True), (LaunchPhase.ENDED, True)]
)
def test_failures_of_an_execution_that_may_still_run_do_not_count_either(phase, lives):
    stuck = LaunchPut(launch=a_launch("e1", phase=phase, failures=9, window_began_ms=500, expires_at_ms=0))
    lost = (ContainerPut(container=a_container("e1", phase=ContainerPhase.LOST)),) if lives else ()
    state = a_state(stuck, *lost)

    begun = evolve(state, committed(launches_forgotten(state), 10))

    assert (0, 0) == (begun.launches["e1"].failures, begun.launches["e1"].window_began_ms)
    records, _ = review_launches(REVIEW, begun)
    assert [] == [record for record in records if isinstance(record, RunPut)]
    assert ["container-0-s"] == [launch.execution_id for launch in launches_of(records) if launch.phase is P.WANTED]


def test_a_container_that_comes_when_its_job_is_stopped_is_not_taken_in():
    job = LaunchedJob(count=1)
    job.ask(1, Action.STOP, processor_id="")
    job.reads()
    late = job.started[0]

    state = job.state
    assert LaunchPhase.STOPPING is state.launches[late].phase
    job.settles()
    assert is_over(job.state)


@pytest.mark.parametrize("seed", range(4))
def test_every_record_of_a_job_with_a_hard_life_follows_the_laws(seed):
    job = LaunchedJob(count=3)
    for step in range(6):
        match (seed + step) % 4:
            case 0:
                job.ends(job.execution("0"), 137)
            case 1:
                scaled(job, 10 + step, 2 + step % 2)
            case 2:
                job.ask(20 + step, Action.RESTART_CONTAINER)
                job.reads()
            case _:
                job.fails_over(f"c{step}")
        job.settles(15)

    invariants = Invariants()
    for log_record in job.world.log().read():
        record = decode(log_record, topic="t")
        assert "" == invariants.check(log_record.offset, record, is_whole=True), record
    assert 4 == sum(job.at_work().values())


def test_a_review_decides_the_same_on_equal_states():
    state = a_state(count=2)

    once = decide(REVIEW, state, Liveness())

    assert once == decide(REVIEW, state, Liveness())
    assert "containers are wanted" == once.cause


def test_a_reserve_is_stopped_once_the_request_that_it_was_for_is_over():
    request = a_move(StatusCode.IN_PROGRESS)
    active, reserve = a_launch("e1"), a_launch("e2", role=LaunchRole.RESERVE, uuid="u")
    records = (LaunchPut(launch=active), LaunchPut(launch=reserve), ContainerPut(container=a_container("e1")))

    assert ((), "") == review_launches(REVIEW, a_state(*records, request))
    stopped, _ = review_launches(REVIEW, a_state(*records))

    assert [("e2", LaunchPhase.STOPPING)] == [(launch.execution_id, launch.phase) for launch in launches_of(stopped)]


def test_a_clock_that_is_set_back_starts_no_container_twice():
    """The one that was lost is remembered, and by its clock it is the newer one."""
    job = LaunchedJob(count=1)
    job.ends(job.execution("0"), 137)
    job.settles(2)
    job.world.clock.jump_wall(-3_600_000)
    job.ends(job.execution("0"), 137)
    job.settles(40)

    assert 3 == len(job.started)
    assert {"0": 4} == job.at_work()


@pytest.mark.parametrize("hosts", [{"host-b": 1}, {"host-a": 0, "host-b": 1}])
def test_a_host_that_is_away_or_full_is_not_waited_for_after_the_clock_was_set_back(hosts):
    waits = a_launch("e1", phase=LaunchPhase.WANTED, wanted_at_ms=2 * HOUR_MS, expires_at_ms=HOUR_MS + 1)

    place = LocalityPut(locality=ProcessorLocality(processor_id="0", host="host-a"))

    state = a_state(place, LaunchPut(launch=waits))
    records, _ = review_launches(replace(REVIEW, now_ms=HOUR_MS, hosts=hosts), state)

    withdrawn, wanted = launches_of(records)
    assert (LaunchPhase.STOPPING, 0) == (withdrawn.phase, withdrawn.failures)
    assert (LaunchPhase.WANTED, "host-b") == (wanted.phase, wanted.host)


def test_a_start_that_is_given_up_names_its_limit_also_after_the_clock_was_set_back():
    silent = a_launch("e1", phase=LaunchPhase.WANTED, wanted_at_ms=2 * HOUR_MS, expires_at_ms=HOUR_MS)

    records, _ = review_launches(replace(REVIEW, now_ms=HOUR_MS), a_state(LaunchPut(launch=silent)))

    limit_ms = REVIEW.request_timeout_ms
    assert f"it was not heard of within {limit_ms} ms" in launches_of(records)[0].reason


@pytest.mark.parametrize("set_back_ms", [1, 20_000, HOUR_MS])
def test_a_failure_after_the_clock_was_set_back_is_the_first_one_again(set_back_ms):
    running = a_launch("e1", failures=3, window_began_ms=HOUR_MS)
    ended = {"e1": Launched(state=LaunchedState.ENDED, exit_code=1)}
    look = LaunchesLooked(launched=ended, now_ms=HOUR_MS - set_back_ms, retry_window_ms=30_000)

    (launch,) = launches_of(launches_looked(look, a_state(LaunchPut(launch=running))))

    assert (1, look.now_ms) == (launch.failures, launch.window_began_ms)


def test_the_retry_window_of_a_processor_ends_though_the_clock_was_set_back():
    settings = {"cluster-manager_container_retry_count": "0"}
    job = LaunchedJob(count=2, **settings, **{"cluster-manager_container_fail_job_after_retries": "false"})
    job.ends(job.execution("1"), 1)
    job.settles()
    assert {"0": 2} == job.at_work()

    job.world.clock.jump_wall(-HOUR_MS)
    job.runs_a_round(6 * MINUTE_MS)
    job.settles()

    assert {"0": 2, "1": 2} == job.at_work()


def test_the_pause_after_failed_starts_ends_though_the_clock_was_set_back():
    last = replace(FAILED, failures=8, wanted_at_ms=HOUR_MS)

    assert [""] == hosts_of_next_launches(last, {}, now_ms=HOUR_MS - 60_000)


@pytest.mark.parametrize(
    ("phase", "timeout_ms"),
    [
        (LaunchPhase.STOPPING, REVIEW.stop_timeout_ms),
        (LaunchPhase.WANTED, REVIEW.request_timeout_ms),
        (LaunchPhase.LAUNCHED, REVIEW.request_timeout_ms),
    ],
)
def test_a_deadline_counts_anew_once_the_clock_was_set_back(phase, timeout_ms):
    launch = a_launch("e1", phase=phase, wanted_at_ms=HOUR_MS, expires_at_ms=HOUR_MS + timeout_ms)
    in_time, set_back = replace(REVIEW, now_ms=HOUR_MS), replace(REVIEW, now_ms=HOUR_MS // 2)

    assert () == decided_once(in_time, a_state(LaunchPut(launch=launch)))
    (after,) = launches_of(decided_once(set_back, a_state(LaunchPut(launch=launch))))

    assert replace(launch, expires_at_ms=set_back.now_ms + timeout_ms) == after


def test_a_container_that_runs_has_no_deadline_to_count_anew():
    launch = LaunchPut(launch=a_launch("e1", expires_at_ms=2 * HOUR_MS))

    assert () == decided_once(REVIEW, a_state(launch, ContainerPut(container=a_container("e1"))))


def test_a_container_that_hangs_is_killed_in_time_though_the_clock_was_set_back():
    job, hangs = a_job_whose_container_is_deaf_to_its_stop()
    job.world.clock.jump_wall(-HOUR_MS)

    job.settles(2 * MINUTE_MS // ROUND_MS)

    assert [hangs] == job.killed
    assert {"0": 4} == job.at_work()


def test_a_move_starts_no_reserve_once_the_run_is_finished():
    job = LaunchedJob(count=2)
    slow, lives = set(job.processes), job.lives
    job.ask(1, Action.PLACE_CONTAINER, destination_host="host-c")
    job.reads()
    job.ask(2, Action.STOP, processor_id="")
    job.reads()
    job.lives = lambda name: None if name in slow else lives(name)

    job.settles(4)

    reserves = {
        record.launch.execution_id
        for record in (decode(row, topic="t") for row in job.world.log().read())
        if isinstance(record, LaunchPut) and record.launch.role is LaunchRole.RESERVE
    }
    assert 1 >= len(reserves)
    assert not job.state.run.ended
    job.lives = lives
    job.settles()
    assert job.state.run.ended
    assert S.FAILED is job.status(1, Place(namespace=Action.PLACE_CONTAINER.namespace))


def test_two_launches_of_one_round_never_share_an_id():
    state = a_state()
    first = launch_wanted(REVIEW, state, "0", LaunchRole.STANDBY, host="host-a")

    second = launch_wanted(REVIEW, evolve(state, uncommitted([first])), "0", LaunchRole.STANDBY, host="host-b")

    assert f"{first.launch.execution_id}-2" == second.launch.execution_id
