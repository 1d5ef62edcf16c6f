"""Each thing that can be wrong with a running job, and that none of it is found in a healthy one."""

import pytest

from samzapy.coordinator.assignment.cut_off import cut_off_findings
from samzapy.coordinator.commands import ContainerGone
from samzapy.inspection.diagnosis import (
    CLOCK_SKEW_MS,
    LeaderAnswer,
    OpenTransaction,
    clock_findings,
    container_findings,
    is_of_unknown_age,
    leader_findings,
    offline_findings,
    owner_findings,
    transaction_findings,
    truncation_findings,
)
from samzapy.model.container import ContainerPhase
from samzapy.testing.builders import a_heartbeat, a_submission
from unit_tests.fixtures.coordinator_world import World

LOST_MS = 15_000
NEVER = 10**12


@pytest.fixture
def world():
    return World()


@pytest.fixture
def service(world):
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(partition_counts={"kafka.orders": 2}))
    return service


def hears(world, service, *commands):
    world.queue.extend(commands)
    service.run_once(0)
    return service.status().state


def said(term=1, trouble="", **ages):
    return LeaderAnswer(term=term, trouble=trouble, heartbeat_ages_ms=ages)


def codes(findings):
    return [finding.code for finding in findings]


def ghosts(state, told, *, alive=None, now_ms=NEVER):
    return container_findings(state, told, is_alive=lambda _: alive, now_ms=now_ms, lost_ms=LOST_MS)


@pytest.mark.parametrize(("silent_ms", "expected"), [(0, []), (9_999, []), (40_000, ["container-cut-off"])])
def test_a_container_that_no_broker_answers_is_found(world, service, silent_ms, expected):
    state = hears(world, service, a_heartbeat())

    found = cut_off_findings({"e1": silent_ms, "another": 99_999}, state)

    assert expected == codes(found)
    assert all("no broker has answered it for 40 s" in finding.found for finding in found)


def an_open_transaction(since_ms, *, is_append_time=True):
    return OpenTransaction(
        topic="t", partition=3, offset_first=5, offset_end=9, since_ms=since_ms, is_append_time=is_append_time
    )


@pytest.mark.parametrize(("age_ms", "expected"), [(0, []), (1000, []), (1001, ["transaction-hanging"])])
def test_a_transaction_hangs_when_it_is_open_for_longer_than_one_may_be(age_ms, expected):
    found = transaction_findings(
        [an_open_transaction(50_000 - age_ms)], now_ms=50_000, patience_ms=1000, bootstrap_servers="b:1"
    )

    assert expected == codes(found)


@pytest.mark.parametrize(
    ("since_ms", "is_append_time", "expected"),
    [
        (None, False, True),
        # Of an event of long ago, or of one to come: it says nothing.
        (48_999, False, True),
        (50_001, False, True),
        # A record of just now is taken for one: what commits soon is waited for in vain.
        (49_000, False, False),
        (48_999, True, False),
    ],
)
def test_a_producer_s_time_tells_no_age(since_ms, is_append_time, expected):
    opened = an_open_transaction(since_ms, is_append_time=is_append_time)

    assert expected is is_of_unknown_age(opened, now_ms=50_000, patience_ms=1000)


def test_a_hanging_transaction_is_named_with_its_place_and_the_tool_that_names_its_producer():
    (found,) = transaction_findings(
        [an_open_transaction(None, is_append_time=False)], now_ms=50_000, patience_ms=1000, bootstrap_servers="b:1"
    )

    assert "t-3" in found.found
    assert "one open for the 1 s of this look at least" in found.found
    assert "offset 5 and the end, 9" in found.found
    assert "--bootstrap-server b:1 describe-producers --topic t --partition 3" in found.remedy


def test_a_compacted_topic_that_does_not_begin_at_0_was_cut():
    (found,) = truncation_findings({("a", 0): 0, ("b", 1): 7})

    assert ("topic-truncated", "topic b") == (found.code, found.subject)


def test_partitions_without_a_leader_are_reported_by_topic():
    (found,) = offline_findings({"a": [], "b": [2, 0]})

    assert ("partition-offline", "topic b") == (found.code, found.subject)
    assert "found none for 0, 2" in found.found


def test_a_leader_that_answers_and_has_no_trouble_is_well(service):
    assert () == leader_findings(service.status().state, said(), candidate_count=1)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, "leader-missing"),
        (said(term=7), "leader-stale"),
        (said(trouble="no broker answered"), "leader-trouble"),
    ],
)
def test_a_leader_that_is_not_as_it_should_be_is_found(service, told, expected):
    assert [expected] == codes(leader_findings(service.status().state, told, candidate_count=1))


@pytest.mark.parametrize(("count", "text"), [(0, "no election candidates"), (2, "2 election candidates")])
def test_the_finding_tells_whether_another_candidate_exists(service, count, text):
    (found,) = leader_findings(service.status().state, None, candidate_count=count)

    assert text in found.found


def test_a_job_that_was_stopped_in_order_needs_no_leader_and_no_owners(world, service):
    state = hears(world, service, a_heartbeat(), a_heartbeat(state=ContainerPhase.STOPPED, held=()))

    assert ContainerPhase.STOPPED is state.containers["e1"].phase
    assert () == leader_findings(state, None, candidate_count=0) + owner_findings(state) + ghosts(state, None)


def test_a_container_that_is_heard_of_is_no_ghost(world, service):
    state = hears(world, service, a_heartbeat())

    assert () == ghosts(state, said(e1=LOST_MS))
    assert () == owner_findings(state)


@pytest.mark.parametrize(
    ("told", "alive", "why"),
    [
        (said(e1=LOST_MS + 1), None, "last heartbeat was 15 s ago"),
        (said(), None, "heard nothing of it"),
        (said(e1=0), False, "its process has ended"),
        (None, None, "no leader to confirm it"),
        (None, False, "its process has ended"),
    ],
)
def test_a_container_that_is_recorded_and_gone_is_a_ghost(world, service, told, alive, why):
    state = hears(world, service, a_heartbeat())

    (found,) = ghosts(state, told, alive=alive)

    assert "container-ghost" == found.code
    assert why in found.found


def test_a_visible_process_is_no_ghost_without_a_leader(world, service):
    assert () == ghosts(hears(world, service, a_heartbeat()), None, alive=True)


def test_a_new_leader_may_lack_heartbeats(world, service):
    state = hears(world, service, a_heartbeat())

    assert () == ghosts(state, said(), now_ms=state.term.started_at_ms + LOST_MS)
    assert ["container-ghost"] == codes(ghosts(state, said(), now_ms=state.term.started_at_ms + LOST_MS + 1))


def test_a_container_that_was_given_up_and_is_not_fenced_is_found(world, service):
    hears(world, service, a_heartbeat())
    world.fencing_fails = 5

    state = hears(world, service, ContainerGone("e1", "gone"))

    assert ContainerPhase.LOST is state.containers["e1"].phase
    assert ["container-unfenced"] == codes(ghosts(state, said()))


def test_tasks_without_an_owner_are_reported(world, service):
    hears(world, service, a_heartbeat())
    (found,) = owner_findings(hears(world, service, ContainerGone("e1", "its process has ended")))

    assert "task-without-owner" == found.code
    assert "2 of 2 tasks" in found.found


@pytest.mark.parametrize("skew_ms", [CLOCK_SKEW_MS + 1, -CLOCK_SKEW_MS - 1])
def test_clocks_that_disagree_are_found(service, skew_ms):
    state = service.status().state
    at_ms = state.term.started_at_ms

    (found,) = clock_findings(state, at_ms - skew_ms)

    assert "clock-skew" == found.code
    assert ("ahead of" if skew_ms > 0 else "behind") in found.found
    assert () == clock_findings(state, at_ms) + clock_findings(state, None)
    assert () == clock_findings(state, at_ms - CLOCK_SKEW_MS)
