"""Each fault of a running job, and that none of them is found in a healthy one."""

import pytest

from samzapy.coordinator.assignment.cut_off import cut_off_findings
from samzapy.coordinator.grant_values import ContainerGone
from samzapy.inspection.diagnosis import (
    CLOCK_SKEW_MS,
    LeaderAnswer,
    OpenTransaction,
    clock_findings,
    container_findings,
    findings_of_leader,
    is_of_unknown_age,
    leader_findings,
    offline_findings,
    owner_findings,
    transaction_findings,
    truncation_findings,
)
from samzapy.model.container import ContainerPhase
from samzapy.model.finding import (
    finding_json,
    insecure_coordinator,
    refused_request,
    repeated_request,
    unreadable_request,
)
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


def handle(world, service, *commands):
    world.queue.extend(commands)
    service.run_once(0)
    return service.status().state


def leader_answer(term=1, trouble="", **ages):
    return LeaderAnswer(term=term, trouble=trouble, heartbeat_ages_ms=ages)


def not_asked():
    raise AssertionError("the group of the election is asked only if no leader answers")


def codes(findings):
    return [finding.code for finding in findings]


def ghosts(state, answer, *, alive=None, now_ms=NEVER):
    return container_findings(state, answer, is_alive=lambda _: alive, now_ms=now_ms, lost_ms=LOST_MS)


@pytest.mark.parametrize(("silent_ms", "expected"), [(0, []), (9_999, []), (40_000, ["container-cut-off"])])
def test_a_container_that_no_broker_answers_is_reported(world, service, silent_ms, expected):
    state = handle(world, service, a_heartbeat())

    findings = cut_off_findings({"e1": silent_ms, "another": 99_999}, state)

    assert expected == codes(findings)
    assert all("no broker has answered it for 40 s" in finding.found for finding in findings)


def an_open_transaction(since_ms, *, is_append_time=True):
    return OpenTransaction(
        topic="t", partition=3, offset_first=5, offset_end=9, since_ms=since_ms, is_append_time=is_append_time
    )


@pytest.mark.parametrize(("age_ms", "expected"), [(0, []), (1000, []), (1001, ["transaction-hanging"])])
def test_a_transaction_hangs_when_it_is_open_for_longer_than_one_may_be(age_ms, expected):
    findings = transaction_findings(
        [an_open_transaction(50_000 - age_ms)], now_ms=50_000, patience_ms=1000, bootstrap_servers="b:1"
    )

    assert expected == codes(findings)


@pytest.mark.parametrize(
    ("since_ms", "is_append_time", "expected"),
    [
        (None, False, True),
        # Of an event of long ago, or of one to come: it proves nothing.
        (48_999, False, True),
        (50_001, False, True),
        # A record of just now is taken for one: a commit that comes soon is waited for in vain.
        (49_000, False, False),
        (48_999, True, False),
    ],
)
def test_a_producer_s_time_gives_no_age(since_ms, is_append_time, expected):
    opened = an_open_transaction(since_ms, is_append_time=is_append_time)

    assert expected is is_of_unknown_age(opened, now_ms=50_000, patience_ms=1000)


def test_a_hanging_transaction_is_named_with_its_place_and_the_tool_that_names_its_producer():
    (finding,) = transaction_findings(
        [an_open_transaction(None, is_append_time=False)], now_ms=50_000, patience_ms=1000, bootstrap_servers="b:1"
    )

    assert "t-3" in finding.found
    assert "one open for the 1 s of this look at least" in finding.found
    assert "offset 5 and the end, 9" in finding.found
    assert "--bootstrap-server b:1 describe-producers --topic t --partition 3" in finding.remedy


def test_a_compacted_topic_that_does_not_begin_at_0_was_cut():
    (finding,) = truncation_findings({("a", 0): 0, ("b", 1): 7})

    assert ("topic-truncated", "topic b") == (finding.code, finding.subject)


def test_partitions_without_a_leader_are_reported_by_topic():
    (finding,) = offline_findings({"a": [], "b": [2, 0]})

    assert ("partition-offline", "topic b") == (finding.code, finding.subject)
    assert "found none for 0, 2" in finding.found


def test_a_leader_that_answers_and_has_no_trouble_is_no_finding(service):
    assert () == leader_findings(service.status().state, leader_answer(), count_candidates=not_asked)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, "leader-missing"),
        (leader_answer(term=0), "leader-stale"),
        (leader_answer(trouble="no broker answered"), "leader-trouble"),
    ],
)
def test_a_leader_that_is_not_as_it_should_be_is_reported(service, answer, expected):
    assert [expected] == codes(leader_findings(service.status().state, answer, count_candidates=lambda: 1))


def test_a_leader_of_a_later_term_than_the_stream_that_was_read_is_no_finding(world, service):
    state = handle(world, service, a_heartbeat())

    assert () == leader_findings(state, leader_answer(term=7), count_candidates=not_asked)
    assert () == ghosts(state, leader_answer(term=7))


def test_findings_that_only_a_leader_can_make_are_taken_from_it_and_no_others(service):
    made = (insecure_coordinator("0.0.0.0"), refused_request("p", 1, "unsigned"), repeated_request("p", 2, "u"))
    rows = [finding_json(finding) for finding in (*made, unreadable_request("p", 3, "junk"))]
    wrong = [{}, {"code": 7}, {**rows[1], "found": None}, {**rows[1], "code": "no-such-code"}]

    taken = findings_of_leader([*rows, *wrong])

    assert made == taken
    answer = LeaderAnswer(term=1, trouble="", heartbeat_ages_ms={}, findings=taken)
    assert made == leader_findings(service.status().state, answer, count_candidates=not_asked)


@pytest.mark.parametrize(("count", "text"), [(0, "no election candidates"), (2, "2 election candidates")])
def test_the_finding_shows_whether_another_candidate_exists(service, count, text):
    (finding,) = leader_findings(service.status().state, None, count_candidates=lambda: count)

    assert text in finding.found


def test_a_job_that_was_stopped_in_order_needs_no_leader_and_no_owners(world, service):
    state = handle(world, service, a_heartbeat(), a_heartbeat(state=ContainerPhase.STOPPED, held=()))

    assert ContainerPhase.STOPPED is state.containers["e1"].phase
    assert () == leader_findings(state, None, count_candidates=not_asked) + owner_findings(state) + ghosts(
        state, None
    )


def test_a_container_with_heartbeats_is_no_ghost(world, service):
    state = handle(world, service, a_heartbeat())

    assert () == ghosts(state, leader_answer(e1=LOST_MS))
    assert () == owner_findings(state)


@pytest.mark.parametrize(
    ("answer", "alive", "why"),
    [
        (leader_answer(e1=LOST_MS + 1), None, "last heartbeat was 15 s ago"),
        (leader_answer(), None, "heard nothing of it"),
        (leader_answer(e1=0), False, "its process has ended"),
        (None, None, "no leader to confirm it"),
        (None, False, "its process has ended"),
    ],
)
def test_a_container_that_is_recorded_and_gone_is_a_ghost(world, service, answer, alive, why):
    state = handle(world, service, a_heartbeat())

    (finding,) = ghosts(state, answer, alive=alive)

    assert "container-ghost" == finding.code
    assert why in finding.found


def test_a_visible_process_is_no_ghost_without_a_leader(world, service):
    assert () == ghosts(handle(world, service, a_heartbeat()), None, alive=True)


def test_a_new_leader_may_lack_heartbeats(world, service):
    state = handle(world, service, a_heartbeat())

    assert () == ghosts(state, leader_answer(), now_ms=state.term.started_at_ms + LOST_MS)
    assert ["container-ghost"] == codes(ghosts(state, leader_answer(), now_ms=state.term.started_at_ms + LOST_MS + 1))


def test_a_container_that_was_given_up_and_is_not_fenced_is_reported(world, service):
    handle(world, service, a_heartbeat())
    world.fencing_fails = 5

    state = handle(world, service, ContainerGone("e1", "gone"))

    assert ContainerPhase.LOST is state.containers["e1"].phase
    assert ["container-unfenced"] == codes(ghosts(state, leader_answer()))


def test_tasks_without_an_owner_are_reported(world, service):
    handle(world, service, a_heartbeat())
    (finding,) = owner_findings(handle(world, service, ContainerGone("e1", "its process has ended")))

    assert "task-without-owner" == finding.code
    assert "2 of 2 tasks" in finding.found


@pytest.mark.parametrize("skew_ms", [CLOCK_SKEW_MS + 1, -CLOCK_SKEW_MS - 1])
def test_clocks_that_disagree_are_reported(service, skew_ms):
    state = service.status().state
    at_ms = state.term.started_at_ms

    (finding,) = clock_findings(state, at_ms - skew_ms)

    assert "clock-skew" == finding.code
    assert ("ahead of" if skew_ms > 0 else "behind") in finding.found
    assert () == clock_findings(state, at_ms) + clock_findings(state, None)
    assert () == clock_findings(state, at_ms - CLOCK_SKEW_MS)


def test_clocks_of_a_job_that_was_stopped_in_order_are_no_finding(world, service):
    state = handle(world, service, a_heartbeat(), a_heartbeat(state=ContainerPhase.STOPPED, held=()))

    assert () == clock_findings(state, state.term.started_at_ms + 2 * CLOCK_SKEW_MS)
