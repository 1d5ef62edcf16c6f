"""Requests from the placement topic to their answers, on memory logs.

Coordinators succeed one another in between.
"""

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from samzapy.coordinator import action_performer
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.assignment.replanning import replan
from samzapy.coordinator.assignment.starts import Bounds, PositionsRead
from samzapy.coordinator.commands import RequestsRead
from samzapy.coordinator.decide import decide
from samzapy.coordinator.requests import scale_factor
from samzapy.coordinator.requests.handler import counted
from samzapy.coordinator.requests.read import FUTURE_MS_MAX, WAITING_MAX, read_requests
from samzapy.coordinator.state import INITIAL, committed, evolve
from samzapy.inspection.status import status_of_log
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import Floor
from samzapy.model.launch import LaunchRole
from samzapy.model.placement import (
    REQUEST_TYPE,
    RESPONSE_TYPE,
    Action,
    ContainerPlacementRequestMessage,
    StatusCode,
)
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.keys import KeyForm
from samzapy.stream.placement import Encoding, Place, Requested, decode_message, message_key
from samzapy.stream.records import InboxPut, LaunchPut, MemoryPhase, RequestPut, RestartPut, RunPut
from samzapy.testing.builders import a_config, a_heartbeat, a_launch, a_submission
from samzapy.testing.memory_placement import read_inbox
from unit_tests.fixtures.launched_job import a_move
from unit_tests.fixtures.operated_job import CONTROL, Job, ScaledJob, an_id

S = StatusCode
RESTART, STATUS, PLACE = Action.RESTART_QUERY, Action.CONTAINER_STATUS, Action.PLACE_CONTAINER


# --- restarting a query ---


def test_a_restart_is_ordered_and_succeeds_when_the_query_runs_again():
    job = Job()
    job.ask(1)

    job.reads()

    assert job.status(1) is S.IN_PROGRESS
    assert job.state.restarts["0"] == RestartPut(processor_id="0", number=1, uuid=an_id(1))
    job.receives_heartbeats()
    assert job.status(1) is S.IN_PROGRESS
    job.receives_heartbeats(e1=1)
    assert job.status(1) is S.IN_PROGRESS
    job.receives_heartbeats(e0=1)
    assert job.status(1) is S.SUCCEEDED
    assert "runs again, in e0" in job.answer(1).response_message
    assert job.state.requests == {}
    assert job.state.request_memory[an_id(1)].phase is MemoryPhase.ANSWERED


def test_requests_for_one_processor_are_served_by_timestamp_and_uuid_and_those_for_others_at_once():
    job = Job()
    early = job.now_ms() - 5000
    job.ask(3)
    job.ask(2, timestamp_ms=early)
    job.ask(1, timestamp_ms=early)
    job.ask(4, processor_id="1")

    job.reads()

    assert [job.status(number) for number in (1, 2, 3, 4)] == [S.IN_PROGRESS, S.ACCEPTED, S.ACCEPTED, S.IN_PROGRESS]
    job.receives_heartbeats(e0=1)
    assert [job.status(number) for number in (1, 2, 3, 4)] == [S.SUCCEEDED, S.IN_PROGRESS, S.ACCEPTED, S.IN_PROGRESS]
    # A later request with an older timestamp is next, but never takes the place of one under way.
    job.ask(5, timestamp_ms=early - 1)
    job.reads()
    assert [job.status(number) for number in (2, 5)] == [S.IN_PROGRESS, S.ACCEPTED]
    job.receives_heartbeats(e0=2)
    assert [job.status(number) for number in (2, 3, 5)] == [S.SUCCEEDED, S.ACCEPTED, S.IN_PROGRESS]


def test_a_coordinator_that_dies_after_any_number_of_its_records_leaves_nothing_undone_and_does_nothing_twice():
    """Torn appends and deaths between all effects: one order and one answer per cut."""
    for survivors in range(1, 4):
        job = Job()
        log = job.service._stream.log
        job.ask(1)
        log.tear_next_append(survivors)

        job.reads()
        job.service = job.leader("b")
        job.reads()
        job.receives_heartbeats(e0=1)

        assert job.status(1) is S.SUCCEEDED, survivors
        assert [(record.number, record.uuid) for record in job.records(RestartPut)] == [(1, an_id(1))], survivors


def test_a_coordinator_that_dies_between_request_and_response_is_succeeded_by_one_that_answers():
    job = Job()
    job.ask(1)
    job.world.writing_fails = 1
    job.reads()
    assert job.status(1) is None
    assert "requests are not answered" in job.service.status().trouble

    job.service = job.leader("b")
    job.receives_heartbeats()
    assert job.status(1) is S.IN_PROGRESS

    job.service = job.leader("c")
    job.receives_heartbeats(e0=1)
    assert job.status(1) is S.SUCCEEDED


def test_a_container_that_dies_during_its_restart_has_restarted_when_its_processor_runs_again():
    job = Job()
    job.ask(1)
    job.reads()
    job.world.alive = {100: False}
    job.passes(1000)
    assert job.state.containers["e0"].phase is ContainerPhase.FENCED
    assert job.status(1) is S.IN_PROGRESS

    job.world.queue.append(a_heartbeat("e9", pid=900, restart=1, received_ms=job.world.clock.monotonic_ms()))
    job.service.run_once(0)

    assert job.status(1) is S.SUCCEEDED
    assert "e9" in job.answer(1).response_message


@pytest.mark.parametrize("expiry", [None, timedelta(seconds=5)])
def test_a_request_that_is_not_done_in_time_fails_and_the_next_one_is_served(expiry):
    job = Job(job_placement_expiry_ms="5000", job_container_heartbeat_ms="1000")
    job.ask(1, request_expiry=expiry)
    job.ask(2, request_expiry=timedelta(seconds=60))
    job.reads()
    job.receives_heartbeats()

    job.passes(4999)
    assert job.status(1) is S.IN_PROGRESS
    job.passes(1)

    assert (job.status(1), job.status(2)) == (S.FAILED, S.IN_PROGRESS)
    assert "does not run again" in job.answer(1).response_message
    # A query that knows the second order knows the first, but that one is over.
    job.receives_heartbeats(e0=2)
    assert (job.status(1), job.status(2)) == (S.FAILED, S.SUCCEEDED)


def test_a_request_that_was_done_while_no_leader_listened_succeeds_after_its_expiry():
    job = Job(job_placement_expiry_ms="5000")
    job.ask(1)
    job.reads()
    job.world.clock.advance(60_000)

    job.service = job.leader("b")
    job.service.run_once(0)
    assert job.status(1) is S.IN_PROGRESS, "no container has reported to the new leader yet"
    job.receives_heartbeats(e0=1)

    assert job.status(1) is S.SUCCEEDED


def test_the_query_of_a_processor_without_tasks_is_not_restarted():
    job = Job()
    job.service.submit(a_submission(config=job.world.config))
    job.world.queue.append(a_heartbeat("e7", pid=700, processor_id="7"))
    job.service.run_once(0)
    job.ask(1, processor_id="7")

    job.reads()

    assert job.status(1) is S.FAILED
    assert "no task" in job.answer(1).response_message
    assert not job.state.restarts


def test_a_restart_that_is_ordered_fails_when_the_plan_gives_the_tasks_to_others():
    """Not when it expires: that may be long after, where the clock was put back."""
    job = Job()
    job.ask(1, processor_id="1")
    job.reads()
    assert job.status(1, CONTROL) is S.IN_PROGRESS

    job.world.alive = {101: False}
    for _ in range(60):
        if all(planned.processor_id == "0" for planned in job.state.plan):
            break
        job.world.clock.advance(1000)
        job.world.queue.append(a_heartbeat("e0", pid=100, received_ms=job.world.clock.monotonic_ms()))
        job.service.run_once(0)
    job.passes(0)

    assert job.status(1) is S.FAILED
    assert "no task" in job.answer(1).response_message


# --- scale ---


def test_a_job_is_scaled_when_every_task_is_granted_under_the_new_factor_and_its_owner_has_read_that():
    job = ScaledJob()
    job.settles()

    job.scale(1, 4)
    assert job.status(1) is S.IN_PROGRESS
    assert (4, 16) == (job.state.generation.factor, len(job.state.plan))
    assert {"e0": 2, "e1": 2} == Counter(grant.execution_id for grant in job.state.grants.values())

    job.settles()
    assert job.status(1) is S.SUCCEEDED
    assert "16 tasks run with factor 4" in job.answer(1).response_message
    assert {4} == job.factors()
    # Each child is where its parent was: nothing moved between processors.
    assert {"e0": 8, "e1": 8} == Counter(grant.execution_id for grant in job.state.grants.values())

    assert {grant.task_name for grant in job.state.grants.values()} == set(job.state.task_localities)

    job.scale(2, 1)
    job.settles()
    assert (job.status(2), job.factors(), len(job.state.grants)) == (S.SUCCEEDED, {1}, 4)
    # Nothing is left of the parts.
    assert {grant.task_name for grant in job.state.grants.values()} == set(job.state.task_localities)


def test_a_scale_reports_how_many_tasks_are_at_work_and_nothing_twice():
    job = ScaledJob()
    job.settles()
    job.scale(1, 2)
    begun_ms = job.now_ms()

    def held(name):
        return [(grant.task_name, grant.epoch) for grant in job.state.grants_sorted if grant.execution_id == name]

    job.receives_grants({"e0": [], "e1": []})
    job.passes(3000)
    job.receives_grants({"e0": held("e0"), "e1": []})
    assert (S.IN_PROGRESS, "STARTING", "4 of 8 tasks are at work with factor 2") == (
        job.answer(1).status_code,
        job.answer(1).phase,
        job.answer(1).response_message,
    )
    written = job.world.topic.end_offset
    for _ in range(3):
        job.receives_grants({"e0": held("e0"), "e1": []})
        job.passes(100)
    assert written == job.world.topic.end_offset
    job.receives_grants({"e0": held("e0"), "e1": held("e1")})

    assert [
        ("STARTING", "from factor 1 to 2"),
        ("STARTING", "4 of 8 tasks are at work with factor 2"),
    ] == job.progress_of(1)
    assert (S.SUCCEEDED, "") == (job.status(1), job.answer(1).phase)
    # It is counted from the beginning, not from the last report.
    assert f"{job.now_ms() - begun_ms} ms after the change began" in job.answer(1).response_message


@pytest.mark.parametrize(("of", "words_max"), [(1, 2), (16, 17), (21, 12), (1000, 21), (9_999, 21)])
def test_the_progress_of_a_change_of_many_tasks_is_one_short_sentence(of, words_max):
    words = list(dict.fromkeys(counted(done, of) for done in range(of + 1)))

    assert (f"0 of {of}", f"{of} of {of}") == (words[0], counted(of, of))
    assert len(words) <= words_max


def test_a_job_scaled_back_to_one_leaves_the_records_of_an_undivided_job():
    def facts(job):
        """The requests in force, without the numbers that a change uses up."""
        grants = {
            grant.task_name: (grant.execution_id, grant.partition_id, grant.changelog_partition, grant.starts)
            for grant in job.state.grants.values()
        }
        return job.plan_texts(), grants, job.state.changelog_partitions, job.state.task_localities

    never_divided = ScaledJob()
    never_divided.settles()
    job = ScaledJob()
    job.settles()
    job.scale(1, 4)
    job.settles()
    assert facts(job) != facts(never_divided)
    job.scale(2, 1)
    job.settles()

    assert facts(job) == facts(never_divided)
    assert (1, 1) == (job.state.generation.factor, job.state.factor.factor)
    assert 1 == job.shown()["factorFinest"]


def test_parts_that_were_at_different_places_leave_floors_until_they_are_passed():
    job = ScaledJob()
    job.settles()
    job.scale(1, 2)
    job.settles()
    for grant in job.state.grants.values():
        bucket = grant.starts[0].ssp_kb
        job.world.checkpoints[bucket] = Checkpoint(
            ssp_kb=bucket,
            offset_next=10 if bucket.bucket else 5,
            epoch=grant.epoch,
            task_name=grant.task_name,
            execution_id=grant.execution_id,
        )
    job.scale(2, 1)
    job.settles()

    starts = [start for grant in job.state.grants_sorted for start in grant.starts]
    assert [(5, (Floor(ssp_kb=SspKeyBucket(start.ssp_kb.ssp, 1, 2), offset_next=10),)) for start in starts] == [
        (start.offset_next, start.floors) for start in starts
    ]
    assert (1, 2) == (job.shown()["factor"], job.shown()["factorFinest"])

    def at(offset):
        read = PositionsRead(
            checkpoints={
                start.ssp_kb: Checkpoint(
                    ssp_kb=start.ssp_kb,
                    offset_next=offset,
                    epoch=grant.epoch,
                    task_name=grant.task_name,
                    execution_id=grant.execution_id,
                )
                for grant in job.state.grants.values()
                for start in grant.starts
            },
            progress={},
            bounds={
                start.ssp_kb.ssp: Bounds(0, 100) for grant in job.state.grants.values() for start in grant.starts
            },
        )
        return status_of_log("flights-1", job.state, read)["factorFinest"]

    assert (2, 1) == (at(9), at(10))


def test_a_scale_is_planned_once_however_often_it_is_looked_at(monkeypatch):
    """Counted, not timed: a change of a large plan takes many reviews."""
    plans = []
    monkeypatch.setattr(scale_factor, "replan", lambda *args: plans.append(1) or replan(*args))
    job = ScaledJob()
    job.settles()

    job.scale(1, 4)
    job.settles()

    assert (S.SUCCEEDED, 1) == (job.status(1), len(plans))


def test_the_next_leader_finishes_a_scaling_that_ended_at_any_record():
    job = ScaledJob()
    job.settles()
    job.ask(1, Action.SCALE, processor_id="", arguments={"factor": "2"})
    whole = len(list(job.world.log().read()))
    job.reads()
    written = len(list(job.world.log().read())) - whole
    assert written > 10

    for torn in range(1, written):
        job = ScaledJob()
        job.settles()
        job.ask(1, Action.SCALE, processor_id="", arguments={"factor": "2"})
        job.log.tear_next_append(torn)
        job.reads()
        assert 1 < job.state.term.term
        job.service = job.leader("b")
        job.reads()
        job.settles()
        assert (torn, S.SUCCEEDED, {2}) == (torn, job.status(1), job.factors())


def restarted(job, **settings):
    """All are killed; a coordinator with another configuration comes up.

    Containers come up when the old ones are lost.
    """
    job.world.config = a_config(**settings)
    job.service = job.leader("b")
    for _ in range(40):
        job.passes(1_000)


def test_a_factor_that_is_set_again_ends_a_scale_under_way():
    job = ScaledJob(job_placement_expiry_ms="3600000")
    job.settles()
    job.scale(1, 4)
    job.ask(2, Action.SCALE, processor_id="", arguments={"factor": "8"})
    job.ask(3, Action.SCALE, processor_id="", arguments={"factor": "2"})
    job.reads()
    assert [S.IN_PROGRESS, S.ACCEPTED, S.ACCEPTED] == [job.status(number) for number in (1, 2, 3)]

    restarted(job, job_placement_expiry_ms="3600000", job_elasticity_factor="2")

    assert (2, 2) == (job.state.factor.factor, job.state.generation.factor)
    assert [S.FAILED, S.FAILED, S.IN_PROGRESS] == [job.status(number) for number in (1, 2, 3)]
    assert "job.elasticity.factor=2" in job.answer(1).response_message
    assert job.now_ms() - 60_000 < job.answer(1).timestamp_ms <= job.now_ms()


def test_a_restart_with_the_same_configuration_lets_a_scale_continue():
    job = ScaledJob(job_placement_expiry_ms="3600000", job_elasticity_factor="1")
    job.settles()
    job.scale(1, 4)

    restarted(job, job_placement_expiry_ms="3600000", job_elasticity_factor="1")

    assert (4, S.IN_PROGRESS) == (job.state.factor.factor, job.status(1))


def test_one_scale_is_under_way_at_a_time_and_restarts_do_not_wait_for_it():
    job = ScaledJob()
    job.settles()
    job.ask(3)
    job.ask(1, Action.SCALE, processor_id="", arguments={"factor": "2"})
    job.ask(2, Action.SCALE, processor_id="", arguments={"factor": "8"})

    job.reads()
    assert [S.IN_PROGRESS, S.ACCEPTED, S.IN_PROGRESS] == [job.status(number) for number in (1, 2, 3)]

    job.settles(12)
    assert [S.SUCCEEDED, S.SUCCEEDED] == [job.status(number) for number in (1, 2)]
    assert {8} == job.factors()


def test_a_scale_for_a_plan_that_is_no_more_fails_and_changes_nothing():
    job = ScaledJob()
    job.settles()

    job.scale(1, 2, expectedGeneration=job.state.generation.generation - 1)
    job.scale(2, 4, expectedGeneration=job.state.generation.generation)

    assert (S.FAILED, S.IN_PROGRESS) == (job.status(1), job.status(2))
    assert "look again" in job.answer(1).response_message
    assert 4 == job.state.generation.factor


def test_the_leader_keeps_the_reasons_of_its_latest_answers(monkeypatch):
    monkeypatch.setattr(action_performer, "REASONS_KEPT_MAX", 2)
    job = ScaledJob()
    job.settles()
    for number in (1, 2, 3):
        job.scale(number, 2, expectedGeneration=job.state.generation.generation - 1)
    job.settles()

    reasons = job.service.status().reasons
    assert [an_id(2), an_id(3)] == list(reasons)
    assert all("expectedGeneration: wanted the plan" in reason for reason in reasons.values())


def test_each_action_fails_when_it_was_made_for_another_plan():
    job = ScaledJob()
    job.settles()
    old = {"expectedGeneration": str(job.state.generation.generation - 1), "by": "me"}
    new = {**old, "expectedGeneration": str(job.state.generation.generation)}

    job.ask(1, Action.RESTART_QUERY, arguments=old)
    job.ask(2, Action.PLACE_CONTAINER, destination_host="ANY_HOST", arguments=old)
    job.ask(3, Action.REWIND, processor_id="", arguments={"stream": "kafka.orders", "to": "oldest", **old})
    job.ask(4, Action.RESTART_QUERY, arguments=new)
    job.reads()

    answers = [job.answer(1), job.answer(2, Place()), job.answer(3)]
    assert [S.FAILED] * 3 == [answer.status_code for answer in answers]
    assert all("expectedGeneration: wanted the plan" in answer.response_message for answer in answers)
    assert S.IN_PROGRESS is job.status(4)


def test_a_scale_to_the_factor_that_is_in_force_is_done_at_once_and_keeps_no_other_waiting():
    job = ScaledJob()
    job.settles()
    generation = job.state.generation
    for number, factor in enumerate((1, 1, 2), start=1):
        job.ask(number, Action.SCALE, processor_id="", arguments={"factor": str(factor)})

    job.reads()

    assert [S.SUCCEEDED, S.SUCCEEDED, S.IN_PROGRESS] == [job.status(number) for number in (1, 2, 3)]
    assert generation.generation + 1 == job.state.generation.generation


class SmallJob(ScaledJob):
    """An input of one partition."""

    def submission(self):
        return a_submission(config=self.world.config, partition_counts={"kafka.orders": 1})


def test_a_scale_that_leaves_a_processor_without_tasks_ends_its_restart_in_the_same_look():
    job = SmallJob()
    job.settles()
    job.scale(1, 2)
    job.settles()
    assert {"0", "1"} == {planned.processor_id for planned in job.state.plan}

    job.ask(2, processor_id="1")
    job.ask(3, Action.SCALE, processor_id="", arguments={"factor": "1"})
    job.reads()

    assert ["0"] == [planned.processor_id for planned in job.state.plan]
    assert (S.FAILED, S.IN_PROGRESS) == (job.status(2), job.status(3))
    assert "no task" in job.answer(2).response_message


def test_a_scale_that_cannot_be_planned_fails_with_the_reason():
    job = ScaledJob(task_partition_scheme="all-ssps-to-single-task", processor_id="0")

    job.scale(1, 2)

    assert job.status(1) is S.FAILED
    assert "nothing that key buckets could divide" in job.answer(1).response_message
    assert job.state.factor is None


def test_a_scaling_that_takes_too_long_fails_and_reports_that_it_continues():
    job = ScaledJob(job_placement_expiry_ms="5000", job_container_heartbeat_ms="1000")
    job.settles()
    job.scale(1, 2)

    job.passes(5000)

    assert job.status(1) is S.FAILED
    assert "8 of 8 tasks are not at work yet" in job.answer(1).response_message
    assert "The factor is 2 from now on" in job.answer(1).response_message
    job.settles()
    assert {2} == job.factors()


# --- container-status ---


def test_a_status_is_answered_at_once_from_the_log():
    job = Job()
    job.ask(1)
    job.reads()
    job.ask(2, STATUS)

    job.reads()

    answer = job.answer(2, Place())
    assert answer.status_code is S.SUCCEEDED
    status = json.loads(answer.response_message)
    assert status | {"tasks": None} == {
        "processorId": "0",
        "isRunning": True,
        "lastSeenHost": "host-a",
        "containers": [{"executionId": "e0", "role": "ACTIVE", "phase": "RUNNING", "host": "host-a"}],
        "taskCount": 2,
        "tasks": None,
        "requests": [
            {
                "uuid": an_id(1),
                "action": "restart-query",
                "statusCode": "IN_PROGRESS",
                "phase": "",
                "responseMessage": "processor 0 is to restart its query",
            }
        ],
        "answers": [],
    }
    assert len(status["tasks"]) == 2


def test_a_status_has_the_last_answers_to_requests_for_the_processor_newest_first():
    job = Job()
    for number in range(1, 8):
        job.ask(number)
        job.reads()
        job.passes(10)
        job.receives_heartbeats(e0=number)
    job.ask(8, PLACE, destination_host="nowhere")
    job.ask(9, processor_id="1")
    job.ask(10, STATUS)
    job.reads()
    job.passes(10)

    job.ask(11, STATUS)
    job.reads()

    status = json.loads(job.answer(11, Place()).response_message)
    assert status["requests"] == []
    assert status["answers"] == [
        {"uuid": an_id(8), "action": "place-container", "statusCode": "BAD_REQUEST"},
        *({"uuid": an_id(n), "action": "restart-query", "statusCode": "SUCCEEDED"} for n in (7, 6, 5, 4)),
    ]


def test_a_status_of_a_request_has_its_progress_while_it_is_known():
    job = Job()
    job.ask(1)

    def status_of(number):
        job.ask(number, STATUS, processor_id="", arguments={"uuid": an_id(1)})
        job.reads()
        answer = job.answer(number, Place())
        assert answer.status_code is S.SUCCEEDED
        return json.loads(answer.response_message)

    known = {"uuid": an_id(1), "action": "restart-query"}
    waits = {"statusCode": "ACCEPTED", "phase": "", "responseMessage": "waits for its turn"}
    assert known | waits == status_of(2)
    in_progress = {"statusCode": "IN_PROGRESS", "phase": "", "responseMessage": "processor 0 is to restart its query"}
    assert known | in_progress == status_of(3)
    job.receives_heartbeats(e0=1)
    assert known | {"statusCode": "SUCCEEDED"} == status_of(4)


def test_a_status_of_a_move_has_its_destination():
    state = evolve(
        INITIAL,
        committed(
            [
                LaunchPut(launch=a_launch("r", role=LaunchRole.RESERVE, host="host-b", uuid=an_id(1))),
                RunPut(run_id="run", ended=False),
                replace(a_move(S.IN_PROGRESS), uuid=an_id(1)),
            ],
            0,
        ),
    )
    asks = ContainerPlacementRequestMessage(
        uuid=UUID(an_id(2)),
        deployment_id="run",
        processor_id="",
        destination_host="",
        timestamp_ms=1,
        action=STATUS,
        arguments={"uuid": an_id(1)},
    )
    request = Requested(uuid=an_id(2), offset=2, place=Place(), message=asks, reason="")

    decision, _ = read_requests(
        RequestsRead(offset_from=0, offset_next=3, requests=(request,), unreadable=(), now_ms=2), state
    )

    status = json.loads(decision.response_message)
    assert ("r", "host-b") == (status["executionId"], status["host"])


# --- bad requests ---


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"deployment_id": "1-00000000"}, "deploymentId: wanted the run of the job"),
        ({"processor_id": "9"}, "processorId: wanted one of 0, 1, found 9"),
        ({"action": PLACE}, "wanted a host where a container of the job runs (host-a), found host-b"),
        (
            {"action": Action.CONTROL_STANDBY, "arguments": {"command": "start"}},
            "control-standby needs a job started with `samzapy job submit`",
        ),
        (
            {"action": Action.RESTART_CONTAINER},
            "restart-container needs a job started with `samzapy job submit`",
        ),
        (
            {"action": STATUS, "processor_id": "", "arguments": {"uuid": an_id(9)}},
            f"arguments.uuid: wanted a request that is known, found {an_id(9)}",
        ),
    ],
)
def test_a_request_that_this_job_cannot_serve_is_answered_with_the_reason(changes, reason):
    job = Job()
    changes = dict(changes)
    action = changes.pop("action", RESTART)
    job.ask(1, action, **changes)

    job.reads()

    answer = job.answer(1, Place(namespace=action.namespace))
    assert answer.status_code is S.BAD_REQUEST
    assert reason in answer.response_message


@pytest.mark.parametrize(("ahead_ms", "status"), [(FUTURE_MS_MAX, S.IN_PROGRESS), (FUTURE_MS_MAX + 1, S.BAD_REQUEST)])
def test_a_request_of_the_far_future_is_refused(ahead_ms, status):
    job = Job()
    job.ask(1, timestamp_ms=job.now_ms() + ahead_ms)

    job.reads()

    assert job.status(1) is status


def test_bytes_of_a_rogue_producer_stop_nothing_and_are_listed_with_their_offsets():
    job = Job()
    place = Place()
    job.put(b"\xff\xfe", b"junk")
    job.put(message_key(an_id(1), REQUEST_TYPE, place), b"{")
    job.put(message_key(an_id(2), REQUEST_TYPE, place), None)
    job.put(message_key(an_id(3), RESPONSE_TYPE, place), b"a forged answer")
    job.ask(4, STATUS)

    job.reads()

    assert job.status(1, place) is S.BAD_REQUEST
    assert job.status(4, place) is S.SUCCEEDED
    findings = job.service.status().findings
    assert [finding.code for finding in findings] == ["request-unreadable"] * 2
    assert "__samzapy-placement-flights-1-0 at offset 0:" in findings[0].found
    assert "at offset 2:" in findings[1].found
    job.passes(60 * 60 * 1000)
    assert job.service.status().findings == ()


def test_a_copy_of_a_request_changes_nothing_and_is_listed():
    job = Job()
    job.ask(1, STATUS)
    job.ask(1, STATUS)
    job.reads()
    job.ask(1, STATUS)
    job.ask(2, STATUS)

    job.reads()

    findings = job.service.status().findings
    assert [finding.code for finding in findings] == ["request-repeated"] * 2
    assert [f"found request {an_id(1)}" in finding.found for finding in findings] == [True, True]
    assert [put.uuid for put in job.records(RequestPut)] == [an_id(1), an_id(2)]


def test_the_queue_of_one_processor_is_bounded_and_the_other_is_served():
    job = Job()
    for number in range(WAITING_MAX + 3):
        job.ask(number, timestamp_ms=job.now_ms() + number)
    job.ask(999, processor_id="1")

    job.reads()

    statuses = [job.status(number) for number in range(WAITING_MAX + 3)]
    assert statuses == [S.IN_PROGRESS, *[S.ACCEPTED] * (WAITING_MAX - 1), *[S.BAD_REQUEST] * 3]
    assert job.status(999) is S.IN_PROGRESS


# --- once ---


def test_a_uuid_that_comes_again_changes_nothing_whatever_the_request():
    job = Job()
    job.ask(1)
    job.reads()
    job.receives_heartbeats(e0=1)
    first_answer = job.answer(1)

    job.ask(1)
    job.ask(1, processor_id="1", timestamp_ms=5)
    job.put(message_key(an_id(1), REQUEST_TYPE, CONTROL), b"junk")
    job.reads()
    job.service = job.leader("b")
    job.ask(1)
    job.reads()

    assert job.answer(1) == first_answer
    assert [record.number for record in job.records(RestartPut)] == [1]


def test_a_request_below_the_position_is_never_a_new_one():
    job = Job()
    job.ask(1)
    job.reads()
    job.receives_heartbeats(e0=1)
    late = read_inbox(job.world.placement, 0, job.now_ms())
    state = replace(job.state, requests={}, request_memory={}, inbox=replace(job.state.inbox, offset_next=1))

    assert decide(late, state, Liveness()).records == (replace(state.inbox, offset_next=late.offset_next),)


def test_the_position_is_written_after_the_decisions_and_requests_after_a_gap_are_not_taken():
    job = Job()
    job.ask(1)
    job.ask(2, STATUS)
    command = read_inbox(job.world.placement, 0, job.now_ms())
    records = decide(command, job.state, Liveness()).records

    assert [type(record) for record in records] == [RequestPut, RequestPut, InboxPut]
    assert decide(replace(command, offset_from=1), job.state, Liveness()).records == ()


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("key_form", KeyForm)
def test_the_answer_is_written_as_the_request_was(encoding, key_form):
    job = Job()
    place = Place(key_form=key_form, encoding=encoding)
    job.ask(1, STATUS, place=place)

    job.reads()

    value = job.latest()[message_key(an_id(1), RESPONSE_TYPE, place)]
    assert value.startswith(b"{") is (encoding is Encoding.JSON)
    assert decode_message(value).status_code is S.SUCCEEDED


def test_a_run_that_ends_ends_its_requests_and_the_next_one_removes_the_remains():
    job = Job()
    job.ask(1, STATUS)
    job.ask(2)
    job.reads()
    stopped = [a_heartbeat(f"e{n}", processor_id=str(n), pid=100 + n, state=ContainerPhase.STOPPED) for n in (0, 1)]
    job.world.queue.extend(stopped)
    job.service.run_once(0)
    assert job.state.run.ended
    assert job.status(2) is S.FAILED
    assert "the run" in job.answer(2).response_message
    job.world.clock.advance(1000)

    job.world.queue.append(a_heartbeat("e5", pid=500))
    job.service.run_once(0)

    assert (job.status(1, Place()), job.status(2)) == (None, None)
    assert message_key(an_id(1), REQUEST_TYPE, Place()) in job.latest()
    assert job.latest()[message_key(an_id(1), REQUEST_TYPE, Place())] is None


# --- forgetting ---


def test_messages_are_removed_after_the_retention_and_their_uuids_are_still_known():
    job = Job(job_placement_retention_ms="60000")
    job.ask(1, STATUS)
    job.reads()

    job.passes(59_000)
    assert job.status(1, Place()) is S.SUCCEEDED
    job.passes(1_000)

    assert job.latest()[message_key(an_id(1), REQUEST_TYPE, Place())] is None
    assert job.status(1, Place()) is None
    assert job.state.request_memory[an_id(1)].phase is MemoryPhase.COLLECTED
    job.ask(1, STATUS)
    job.reads()
    assert job.status(1, Place()) is None
    # It was there again, and is removed again.
    assert job.latest()[message_key(an_id(1), REQUEST_TYPE, Place())] is None


def test_the_oldest_uuids_are_forgotten_once_their_messages_are_gone_and_then_are_too_old():
    job = Job(job_placement_uuids_max="2")
    early = job.now_ms() - 1000
    for number in (1, 2, 3):
        job.ask(number, STATUS, timestamp_ms=early + number)
    job.reads()

    job.passes(1000)
    assert set(job.state.request_memory) == {an_id(1), an_id(2), an_id(3)}
    assert job.state.request_memory[an_id(1)].phase is MemoryPhase.COLLECTED
    job.reads()
    job.passes(1000)

    assert set(job.state.request_memory) == {an_id(2), an_id(3)}
    assert job.state.inbox.forgotten_timestamp_ms == early + 1
    job.service = job.leader("b")
    job.ask(1, timestamp_ms=early + 1)
    job.ask(4, timestamp_ms=early)
    job.ask(5, timestamp_ms=early + 2)
    job.reads()
    assert [job.status(number) for number in (1, 4, 5)] == [S.BAD_REQUEST, S.BAD_REQUEST, S.IN_PROGRESS]
    assert "too old" in job.answer(1).response_message


def test_a_request_of_the_far_future_that_is_forgotten_makes_nothing_too_old():
    job = Job(job_placement_uuids_max="1")
    job.ask(1, STATUS, timestamp_ms=253_402_300_800_000)
    job.ask(2, STATUS)
    for _ in range(3):
        job.reads()
        job.passes(1000)
    assert set(job.state.request_memory) == {an_id(2)}

    job.ask(3)
    job.reads()

    assert job.status(3) is S.IN_PROGRESS
