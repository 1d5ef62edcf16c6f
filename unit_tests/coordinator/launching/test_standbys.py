"""Standbys: when one is ready, which takes over, and the laws.

The stories are in `unit_tests/scenarios`.
"""

import json
from dataclasses import replace
from itertools import permutations

import pytest

from samzapy.coordinator.assignment.liveness import KnownHost, Liveness, Sighting, failed_starts_noted
from samzapy.coordinator.commands import Figures, ReviewLaunches, ReviewRequests
from samzapy.coordinator.decide import decide
from samzapy.coordinator.launching.standbys import (
    LAG_MAX,
    best_standby,
    clash,
    is_warm,
    missing_standbys,
    named,
    promotions,
    review_standbys,
    standby_count,
    with_standbys,
)
from samzapy.coordinator.requests.control_standby import CONTROLLING_STANDBYS, STANDBYS_MAX
from samzapy.coordinator.requests.handler import Review
from samzapy.coordinator.requests.request_queue import review_requests
from samzapy.coordinator.state import INITIAL, committed, evolve, job_model
from samzapy.inspection.invariants import Invariants
from samzapy.model.container import ContainerPhase, ProcessorLocality
from samzapy.model.job import ProcessorId, TaskMode
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.model.placement import Action, StatusCode
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.records import (
    ConfigPut,
    ContainerCountPut,
    ContainerPut,
    GrantPut,
    LaunchPut,
    LocalityPut,
    PlacedPut,
    RunPut,
    StandbyPut,
)
from samzapy.testing.builders import a_container, a_grant, a_launch
from unit_tests.fixtures.container_worlds import plan_in_force
from unit_tests.fixtures.launched_job import a_move

P = ProcessorId("0")
HOUR_MS = 3_600_000
REVIEW = ReviewLaunches(
    now_ms=HOUR_MS,
    seed="s",
    request_timeout_ms=20_000,
    stop_timeout_ms=26_000,
    retry_count=3,
    retry_window_ms=30_000,
)
WARM = StandbyProgress(tasks=2, level=2, lag=LAG_MAX, restored=9, total=9)


def a_state(*records, lost=ContainerPhase.LOST):
    """Processor 0 has tasks a and b, in `e1` on host-a.

    Its standbys are `s0` on host-b and `s1` on host-c.
    """
    state_records = [
        ContainerCountPut(count=1),
        RunPut(run_id="run", ended=False),
        ConfigPut(config_key="stores.sums.msg.serde", value="json"),
        *plan_in_force(1, a="0", b="0"),
        *(GrantPut(grant=a_grant(task, epoch=epoch)) for epoch, task in enumerate("ab", start=1)),
    ]
    for name, role, host, phase in (
        ("e1", LaunchRole.ACTIVE, "host-a", lost),
        ("s0", LaunchRole.STANDBY, "host-b", ContainerPhase.STARTED),
        ("s1", LaunchRole.STANDBY, "host-c", ContainerPhase.STARTED),
    ):
        number = int(name == "s1")
        state_records.append(LaunchPut(launch=a_launch(name, role=role, host=host, standby=number)))
        state_records.append(ContainerPut(container=a_container(name, host=host, phase=phase)))
    return evolve(INITIAL, committed([*state_records, *records], 0))


def standbys_wanted(count):
    return StandbyPut(processor_id=P, count=count, uuid="")


def liveness(stream_offset=1000, domain="", **warm):
    return Liveness(
        last={
            name: Sighting(
                at_ms=0,
                stream_offset=stream_offset,
                held=frozenset(),
                figures=Figures(),
                warm=progress,
            )
            for name, progress in warm.items()
        },
        hosts={"host-b": KnownHost(fault_domain=domain)} if domain else {},
    )


@pytest.mark.parametrize(
    ("warm", "changes"),
    [
        (None, {}),
        (replace(WARM, level=1), {}),
        (replace(WARM, tasks=1, level=1), {}),
        (replace(WARM, lag=LAG_MAX + 1), {}),
        (replace(WARM, is_query_warm=False), {}),
        # Of another plan.
        (WARM, {"stream_offset": 5}),
    ],
)
def test_a_standby_that_lacks_anything_is_not_ready(warm, changes):
    state = a_state()

    assert is_warm("s0", state, liveness(s0=WARM))
    assert not is_warm("s0", state, liveness(s0=warm, **changes))
    assert not is_warm("e1", state, liveness(e1=WARM)), "it was given up"


def test_after_a_loss_one_that_has_not_tried_its_query_out_takes_over_if_there_is_no_other():
    state, new = a_state(), replace(WARM, lag=0, is_query_warm=False)

    assert ["s0"] == [promotion.execution_id for promotion in promotions(REVIEW, state, liveness(s0=WARM, s1=new))]
    assert ["s1"] == [promotion.execution_id for promotion in promotions(REVIEW, state, liveness(s1=new))]


def test_after_a_loss_the_one_that_lacks_least_takes_over():
    state, live = a_state(), liveness(s0=WARM, s1=replace(WARM, lag=1))

    assert "s1" == best_standby(P, state, live).execution_id
    (promoted,) = promotions(REVIEW, state, live)
    assert (P, "s1", "") == (promoted.processor_id, promoted.execution_id, promoted.uuid)
    assert () == promotions(REVIEW, evolve(state, committed([promoted], 90)), live), "written once"


def test_a_standby_takes_over_at_once_from_a_container_that_does_not_stop_in_time():
    stopping = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING, expires_at_ms=1_000))
    review = ReviewLaunches(
        now_ms=1_000, seed="s", request_timeout_ms=1, stop_timeout_ms=1, retry_count=8, retry_window_ms=1
    )
    state = a_state(stopping, lost=ContainerPhase.RUNNING)

    decision = decide(review, state, liveness(s0=WARM))
    after = evolve(state, committed(decision.records, 100))

    (lost,) = [record.container for record in decision.records if isinstance(record, ContainerPut)]
    (placed,) = [record for record in decision.records if isinstance(record, PlacedPut)]
    assert ("e1", ContainerPhase.LOST) == (lost.execution_id, lost.phase)
    assert "s0" == placed.execution_id
    assert "containers did not stop in time; a standby takes over" in decision.cause
    assert () == decide(review, after, liveness(s0=WARM)).records


@pytest.mark.parametrize("phase", [ContainerPhase.RUNNING, ContainerPhase.STOPPED])
def test_no_standby_takes_over_from_a_running_or_drained_container(phase):
    assert () == promotions(REVIEW, a_state(lost=phase), liveness(s0=WARM, s1=WARM))


def test_no_standby_takes_over_unless_ready_wanted_and_in_a_current_run():
    assert () == promotions(REVIEW, a_state(), liveness(s0=replace(WARM, level=1)))
    leaving = LaunchPut(launch=a_launch("s0", role=LaunchRole.STANDBY, host="host-b", phase=LaunchPhase.STOPPING))
    assert () == promotions(REVIEW, a_state(leaving), liveness(s0=WARM))
    assert () == promotions(REVIEW, a_state(RunPut(run_id="run", ended=False, finished=True)), liveness(s0=WARM))


def test_no_standby_takes_over_while_an_active_container_is_back():
    back = ContainerPut(container=a_container("e2", phase=ContainerPhase.STARTED))

    assert () == promotions(REVIEW, a_state(LaunchPut(launch=a_launch("e2")), back), liveness(s0=WARM))


def test_no_standby_takes_over_from_a_living_container_that_is_to_stop():
    """A task of a lost container was planned onto its processor."""
    placed = [
        LaunchPut(launch=a_launch("e2", phase=LaunchPhase.STOPPING)),
        ContainerPut(container=a_container("e2", phase=ContainerPhase.RUNNING)),
        PlacedPut(processor_id=P, execution_id="e2", uuid=""),
    ]
    stopped = ContainerPut(container=a_container("e2", phase=ContainerPhase.STOPPED))

    assert () == promotions(REVIEW, a_state(*placed), liveness(s0=WARM))
    assert ["s0"] == [put.execution_id for put in promotions(REVIEW, a_state(*placed, stopped), liveness(s0=WARM))]


@pytest.mark.parametrize(("wanted_ms_ago", "failures"), [(0, 4), (29_999, 4), (30_000, 1), (-1, 1), (-HOUR_MS, 1)])
def test_a_misplaced_standby_failed_once_more_unless_it_was_in_place_or_the_clock_was_set_back(
    wanted_ms_ago, failures
):
    launch = a_launch(
        "s0",
        role=LaunchRole.STANDBY,
        host="",
        wanted_at_ms=HOUR_MS - wanted_ms_ago,
        failures=3,
        window_began_ms=HOUR_MS,
    )
    on_its_host = ContainerPut(container=a_container("s0", host="host-a", phase=ContainerPhase.STARTED))
    state = a_state(standbys_wanted(1), LaunchPut(launch=launch), on_its_host, lost=ContainerPhase.RUNNING)

    records = review_standbys(REVIEW, state, Liveness())

    stopped = {record.launch.execution_id: record.launch for record in records if isinstance(record, LaunchPut)}
    assert (LaunchPhase.STOPPING, failures) == (stopped["s0"].phase, stopped["s0"].failures)


def test_a_standby_to_whose_host_the_processor_came_later_was_no_misplaced_start():
    standby = a_launch("s0", role=LaunchRole.STANDBY, host="", wanted_at_ms=HOUR_MS - 2, failures=3)
    runner = a_launch("e1", wanted_at_ms=HOUR_MS - 1)
    on_its_host = ContainerPut(container=a_container("s0", host="host-a", phase=ContainerPhase.STARTED))
    records = (standbys_wanted(1), LaunchPut(launch=standby), LaunchPut(launch=runner), on_its_host)
    state = a_state(*records, lost=ContainerPhase.RUNNING)

    stopped = {
        record.launch.execution_id: record.launch
        for record in review_standbys(REVIEW, state, Liveness())
        if isinstance(record, LaunchPut)
    }

    assert (LaunchPhase.STOPPING, 1) == (stopped["s0"].phase, stopped["s0"].failures)


@pytest.mark.parametrize(("wanted_ms_ago", "count"), [(19_999, 0), (20_000, 1), (-1, 1), (-HOUR_MS, 1)])
def test_a_cluster_manager_without_hosts_is_asked_for_a_standby_once_per_timeout_also_after_a_clock_jump(
    wanted_ms_ago, count
):
    gone = {"role": LaunchRole.STANDBY, "phase": LaunchPhase.ENDED, "host": "host-a"}
    last = a_launch("s0", wanted_at_ms=HOUR_MS - wanted_ms_ago, **gone)
    other = a_launch("s1", standby=1, **gone)
    state = a_state(standbys_wanted(1), LaunchPut(launch=last), LaunchPut(launch=other), lost=ContainerPhase.RUNNING)

    records = review_standbys(REVIEW, state, Liveness())

    assert [""] * count == [record.launch.host for record in records if isinstance(record, LaunchPut)]


def test_the_job_model_shows_each_standby_with_the_tasks_of_its_processor():
    state = a_state(lost=ContainerPhase.RUNNING)
    plan = job_model(state)

    shown = with_standbys(plan, state)

    assert plan.containers == shown.containers[:1]
    assert [
        (name, host, [(task, TaskMode.STANDBY) for task in "ab"])
        for name, host in (("0-0", "host-b"), ("0-1", "host-c"))
    ] == [
        (one.processor_id, one.location_id, [(task.name, task.mode) for task in one.tasks])
        for one in shown.containers[1:]
    ]
    # One that runs the tasks is none any more.
    taken_over = a_state(PlacedPut(processor_id=P, execution_id="s0", uuid=""), lost=ContainerPhase.RUNNING)
    assert ["0", "0-1"] == [one.processor_id for one in with_standbys(plan, taken_over).containers]


def test_the_number_of_standbys_is_that_of_the_last_request_or_the_configuration():
    factor = ConfigPut(config_key="job.standbytasks.replication.factor", value="3")

    assert 0 == standby_count(P, a_state())
    assert 2 == standby_count(P, a_state(factor))
    assert 1 == standby_count(P, a_state(factor, StandbyPut(processor_id=P, count=1, uuid="u")))
    assert 0 == standby_count(P, replace(a_state(factor), config={"job.standbytasks.replication.factor": "3"}))


def test_the_name_of_a_standby_has_its_processor_and_number():
    assert ("4", 0) == named("4-0", a_state())
    assert ("4", None) == named("4", a_state())
    assert ("4-0", None) == named("4-0", INITIAL), "where people start containers it is the name of one"


def test_a_host_or_a_fault_domain_has_one_container_of_a_processor():
    domains = ConfigPut(config_key="cluster-manager.fault-domain-aware.standby.enabled", value="true")
    rack = LocalityPut(locality=ProcessorLocality(processor_id=ProcessorId("9"), host="host-z", fault_domain="rack"))
    live = liveness(domain="rack", s0=WARM)

    assert "s0 of processor 0 is on host-b already" in clash("host-b", P, a_state(), live)
    assert "" == clash("host-b", P, a_state(), live, ["s0"])
    assert "" == clash("host-z", P, a_state(rack), live)
    assert "in the fault domain of host-z already (rack)" in clash("host-z", P, a_state(rack, domains), live)
    assert "" == clash("host-b", ProcessorId("1"), a_state(), live)


# --- laws ---


def judged(*records, lost=ContainerPhase.LOST):
    """The broken law of the last record."""
    invariants, broken = Invariants(), ""
    base = [
        ContainerCountPut(count=1),
        LaunchPut(launch=a_launch("e1", phase=LaunchPhase.WANTED)),
        LaunchPut(launch=a_launch("s0", role=LaunchRole.STANDBY, phase=LaunchPhase.WANTED, host="host-b")),
        ContainerPut(container=a_container("e1", phase=ContainerPhase.STARTED)),
        ContainerPut(container=a_container("s0", host="host-b", pid=7, phase=ContainerPhase.STARTED)),
    ]
    for offset, record in enumerate([*base, *records]):
        broken = invariants.check(offset, record, True)
    return broken


def test_only_a_standby_of_the_processor_takes_over():
    assert not judged(PlacedPut(processor_id=P, execution_id="s0", uuid=""))
    assert "one of the standbys of processor 0" in judged(PlacedPut(processor_id=P, execution_id="e1", uuid=""))
    assert "one of the standbys of processor 1" in judged(
        PlacedPut(processor_id=ProcessorId("1"), execution_id="s0", uuid="")
    )


def test_a_standby_is_placed_apart_from_its_active_container_if_that_is_recorded():
    def wanted_standby(host, **changes):
        return LaunchPut(
            launch=a_launch("s1", **{"role": LaunchRole.STANDBY, "phase": LaunchPhase.WANTED, "host": host} | changes)
        )

    assert "wanted a standby of processor 0 apart from e1, found both on host-a" == judged(wanted_standby("host-a"))
    assert "apart from s0" in judged(wanted_standby("host-b"))
    for fine in (
        wanted_standby("host-c"),
        wanted_standby(""),
        wanted_standby("host-a", processor_id="1"),
        wanted_standby("host-a", uuid="u"),
    ):
        assert not judged(fine)
    assert not judged(wanted_standby("host-a", role=LaunchRole.RESERVE))


def test_a_request_under_way_reports_its_progress_and_keeps_its_choices():
    request = a_move(StatusCode.ACCEPTED)
    begun = replace(request, status_code=StatusCode.IN_PROGRESS, phase="RESERVING")
    chosen = replace(begun, phase="STOPPING", execution_id="s0", paused_at_ms=5, response_message="it goes")

    assert not judged(request, begun, chosen)
    assert not judged(request, begun, chosen, replace(chosen, phase="STARTING", answered=True))
    for changes in ({"execution_id": "e1"}, {"paused_at_ms": 6}, {"destination_host": "host-c"}, {"offset": 3}):
        assert "to say how far it is" in judged(request, begun, chosen, replace(chosen, **changes)), changes


def a_control(command, status_code=StatusCode.ACCEPTED):
    return replace(
        a_move(status_code),
        action=Action.CONTROL_STANDBY.value,
        destination_host="",
        arguments=json.dumps({"command": command}),
    )


@pytest.mark.parametrize(
    ("command", "count", "reason"), [("start", STANDBYS_MAX, "at most"), ("stop", 0, "has none")]
)
def test_a_number_that_has_changed_since_the_request_was_accepted_may_refuse_it(command, count, reason):
    state = a_state(StandbyPut(processor_id=P, count=count, uuid="of another one"))

    (refusal,) = CONTROLLING_STANDBYS.begin(
        a_control(command),
        Review(command=ReviewRequests(now_ms=1, expiry_ms=1), state=state, liveness=Liveness()),
    )

    assert StatusCode.FAILED is refusal.status_code
    assert reason in refusal.response_message


def test_a_standby_that_is_given_up_is_removed_once_wherever_the_log_is_torn():
    begun = a_control("start", StatusCode.IN_PROGRESS)
    command = ReviewRequests(now_ms=10**9, expiry_ms=60_000)
    before = a_state(begun, StandbyPut(processor_id=P, count=3, uuid=begun.uuid))

    whole = review_requests(command, before, Liveness())
    counts = []
    for kept in range(len(whole) + 1):
        # The rest is lost with a coordinator; the next one decides again.
        torn = evolve(before, committed(whole[:kept], 100))
        after = evolve(torn, committed(review_requests(command, torn, Liveness()), 200))
        counts.append((after.requests[begun.uuid].status_code, after.standbys[P].count))

    assert [(StatusCode.FAILED, 2)] * (len(whole) + 1) == counts


@pytest.mark.parametrize(("factor", "expected"), [("4", 3), ("1", 0)])
def test_a_processor_whose_further_standby_was_given_up_follows_the_configuration_again(factor, expected):
    begun = a_control("start", StatusCode.IN_PROGRESS)
    command = ReviewRequests(now_ms=10**9, expiry_ms=60_000)
    one_standby = ConfigPut(config_key="job.standbytasks.replication.factor", value="2")
    state = a_state(one_standby, begun, StandbyPut(processor_id=P, count=2, uuid=begun.uuid))

    failed = evolve(state, committed(review_requests(command, state, Liveness()), 100))
    assert (StatusCode.FAILED, 1) == (failed.requests[begun.uuid].status_code, standby_count(P, failed))
    other_factor = ConfigPut(config_key="job.standbytasks.replication.factor", value=factor)

    assert expected == standby_count(P, evolve(failed, committed([other_factor], 200)))


def test_a_failed_start_on_a_host_does_not_make_its_recorded_fault_domain_unknown():
    domains = ConfigPut(config_key="cluster-manager.fault-domain-aware.standby.enabled", value="true")
    recorded = LocalityPut(
        locality=ProcessorLocality(processor_id=ProcessorId("9"), host="host-z", fault_domain="rack")
    )
    failed = a_launch("x9", processor_id="9", host="host-z", phase=LaunchPhase.STOPPING, failures=1, wanted_at_ms=50)
    state = a_state(recorded, domains, LaunchPut(launch=failed))

    noted = failed_starts_noted(liveness(domain="rack", s0=WARM), state)

    assert "host-z" in noted.hosts
    assert "is in the fault domain of host-z already (rack)" in clash("host-z", P, state, noted)


def test_a_missing_standby_names_the_host_that_its_processor_was_moved_off():
    gone = ContainerPhase.STOPPED
    moved = PlacedPut(processor_id=P, execution_id="s0", uuid="", left_host="host-a")
    state = a_state(
        moved,
        standbys_wanted(1),
        LaunchPut(launch=a_launch("e1", phase=LaunchPhase.ENDED)),
        LaunchPut(launch=a_launch("s1", role=LaunchRole.STANDBY, standby=1, host="host-c", phase=LaunchPhase.ENDED)),
        ContainerPut(container=a_container("s1", host="host-c", phase=gone)),
        ContainerPut(container=a_container("s0", host="host-b", phase=ContainerPhase.RUNNING)),
        lost=gone,
    )
    command = replace(REVIEW, hosts={"host-a": 4, "host-b": 0, "host-c": 0})

    (reason,) = missing_standbys(command, state, Liveness()).values()

    assert () == review_standbys(command, state, Liveness())
    assert "processor 0 was moved off host-a to its standby" in reason
    assert "host-c is full" in reason


DOMAINS_COUNT = ConfigPut(config_key="cluster-manager.fault-domain-aware.standby.enabled", value="true")


def recorded(processor_id, host, domain):
    locality = ProcessorLocality(processor_id=ProcessorId(processor_id), host=host, fault_domain=domain)
    return LocalityPut(locality=locality)


def test_equal_states_choose_equal_hosts_though_a_host_has_two_recorded_fault_domains():
    """Law L7.

    A leader that replays a compacted log has the same tables in another order.
    """
    domains = {"1": "one", "2": "two", "10": "one"}
    places = [recorded("0", "host-a", "one"), *(recorded(number, "host-z", domains[number]) for number in domains)]
    review = replace(REVIEW, hosts={"host-a": 5, "host-z": 5})

    states = [
        a_state(DOMAINS_COUNT, standbys_wanted(3), *in_order, lost=ContainerPhase.RUNNING)
        for in_order in permutations(places)
    ]
    decisions = [decide(review, state, Liveness()) for state in states]

    assert [states[0]] * len(states) == states
    assert [decisions[0]] * len(states) == decisions


def test_the_fault_domain_of_a_host_is_that_of_a_processor_that_runs_there():
    places = [recorded("0", "host-a", "old"), recorded("1", "host-z", "new"), recorded("2", "host-z", "old")]
    runs = ContainerPut(container=a_container("x1", processor_id="1", host="host-z", phase=ContainerPhase.RUNNING))

    before, after = (a_state(DOMAINS_COUNT, *places, *more, lost=ContainerPhase.RUNNING) for more in ((), (runs,)))

    assert "is in the fault domain of host-z already (old)" in clash("host-z", P, before, Liveness())
    assert "" == clash("host-z", P, after, Liveness())
