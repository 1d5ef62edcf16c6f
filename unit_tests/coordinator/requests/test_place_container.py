"""Moves of a processor's tasks, with containers that follow the stream."""

import re
from datetime import timedelta

import pytest

from samzapy.cli.target.requests import every_processor
from samzapy.container.orders import Orders, follow
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.commands import ReviewMembers
from samzapy.coordinator.decide import decide
from samzapy.coordinator.requests.restart_query import processors_with_query
from samzapy.inspection.invariants import Invariants
from samzapy.model.container import ContainerPhase
from samzapy.model.placement import Action, StatusCode
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.stream.codec import decode
from samzapy.stream.placement import Place
from samzapy.stream.records import PlacedPut
from samzapy.testing.builders import a_heartbeat
from unit_tests.fixtures.operated_job import CONTROL, Job

S = StatusCode
PLACE, RESTART, STATUS = Action.PLACE_CONTAINER, Action.RESTART_QUERY, Action.CONTAINER_STATUS
ANSWERS = Place(namespace=PLACE.namespace)


class MovedJob(Job):
    """Processors 0, 1 and 2 on hosts of their own, with the tasks of the stream.

    `asleep`: executions that read and send nothing.
    """

    def __init__(self, **settings):
        self.containers = {}
        self.asleep = set()
        super().__init__(job_debounce_time_ms="0", **settings)

    def receives_heartbeats(self, **restarts):
        for number in range(3):
            self.starts(f"e{number}", str(number), f"host-{'abc'[number]}")
        self.settles(12)

    def starts(self, execution_id, processor_id, host):
        self.containers[execution_id] = {
            "execution_id": execution_id,
            "processor_id": processor_id,
            "host": host,
            "pid": 100 + len(self.containers),
        }
        self.world.alive[self.containers[execution_id]["pid"]] = True
        self.settles()

    def dies(self, execution_id):
        self.world.alive[self.containers.pop(execution_id)["pid"]] = False
        self.world.clock.advance(1_000)

    def settles(self, rounds=6):
        for _ in range(rounds):
            for name in self.containers:
                if name not in self.asleep:
                    self.sends_heartbeat(name)
            self.world.clock.advance(100)
            self.service.run_once(0)

    def sends_heartbeat(self, name, stream_offset=None):
        end = self.world.topic.end_offset if stream_offset is None else stream_offset
        orders = self.orders(name, end)
        held = [(grant.task_name, grant.epoch) for grant in orders.own_grants()]
        self.world.queue.append(
            a_heartbeat(
                **self.containers[name],
                stream_offset=end,
                received_ms=self.world.clock.monotonic_ms(),
                held=held,
                restart=orders.restart,
            )
        )

    def orders(self, name, end):
        records = [decode(record, topic="t") for record in self.world.log().read() if record.offset < end]
        return follow(Orders(execution_id=name), records, end)

    def moves(self, number, host, processor_id="0", **changes):
        self.ask(number, PLACE, processor_id=processor_id, destination_host=host, **changes)
        self.reads()

    def runs(self):
        """Which execution runs the tasks of which processors."""
        processor_of = {planned.task_name: planned.processor_id for planned in self.state.plan}
        runs = {}
        for name in sorted(self.containers):
            grants = self.orders(name, self.world.topic.end_offset).own_grants()
            runs[name] = sorted({processor_of[grant.task_name] for grant in grants})
        return runs

    def text(self, number):
        return self.answer(number, ANSWERS).response_message

    def broken(self):
        invariants = Invariants()
        judged = (
            invariants.check(record.offset, decode(record, topic="t"), True) for record in self.world.log().read()
        )
        return [broken for broken in judged if broken]


AT_HOME = {"e0": ["0"], "e1": ["1"], "e2": ["2"]}


def test_the_tasks_move_to_the_container_on_the_host_and_no_other_task_is_revoked():
    job = MovedJob()
    assert AT_HOME == job.runs()
    before = {grant.task_name: grant.epoch for grant in job.state.grants_sorted}
    plan = job.state.generation

    job.moves(1, "host-b")
    assert S.IN_PROGRESS is job.status(1, ANSWERS)
    job.settles()

    assert {"e0": [], "e1": ["0", "1"], "e2": ["2"]} == job.runs()
    assert S.SUCCEEDED is job.status(1, ANSWERS)
    assert "tasks of processor 0 run in e1 of processor 1 on host-b" in job.text(1)
    assert plan == job.state.generation
    moved = {planned.task_name for planned in job.state.plan if planned.processor_id == "0"}
    assert moved == {grant.task_name for grant in job.state.grants_sorted if grant.epoch != before[grant.task_name]}
    assert [] == job.broken()


def test_nothing_is_granted_before_the_owner_has_read_the_placement_and_released():
    job = MovedJob()
    job.asleep = {"e0"}
    job.moves(1, "host-b")
    placed_at = job.state.placed_offsets["0"]

    job.settles()
    assert {"e0": [], "e1": ["1"], "e2": ["2"]} == job.runs()
    # It holds nothing, but of a moment when it did not know: that is no release.
    job.world.queue.append(
        a_heartbeat(
            **job.containers["e0"], stream_offset=placed_at, received_ms=job.world.clock.monotonic_ms(), held=[]
        )
    )
    job.service.run_once(0)
    job.settles()
    assert ["1"] == job.runs()["e1"]

    job.asleep = set()
    job.settles()
    assert ["0", "1"] == job.runs()["e1"]


def test_a_moved_processor_can_return_to_its_own_container():
    job = MovedJob()
    job.moves(1, "host-b")
    job.settles()

    job.moves(2, "host-a")
    job.settles()

    assert AT_HOME == job.runs()
    assert "tasks of processor 0 run in e0 of processor 0 on host-a" in job.text(2)
    assert [] == job.broken()


def test_a_processor_that_was_moved_is_planned_for_while_the_container_that_has_it_lives():
    job = MovedJob(job_processor_grace_ms="60000")
    job.moves(1, "host-b")
    job.settles()
    plan = job.state.generation

    job.dies("e0")
    job.settles()
    job.world.clock.advance(100_000)
    job.settles()

    assert {"e1": ["0", "1"], "e2": ["2"]} == job.runs()
    assert plan == job.state.generation


def test_the_own_container_of_a_processor_has_the_tasks_again_when_the_other_one_is_gone():
    job = MovedJob(job_processor_grace_ms="60000")
    job.moves(1, "host-b")
    job.settles()

    job.dies("e1")
    job.settles()

    assert {"e0": ["0"], "e2": ["2"]} == job.runs()
    assert {} == job.state.placed
    assert [] == job.broken()


def test_a_leader_that_takes_over_in_the_middle_continues_the_move():
    job = MovedJob()
    job.asleep = {"e0"}
    job.moves(1, "host-b")

    job.service = job.leader("b")
    job.asleep = set()
    job.settles()

    assert ["0", "1"] == job.runs()["e1"]
    assert S.SUCCEEDED is job.status(1, ANSWERS)
    assert 1 == len(job.records(PlacedPut))


def test_a_move_under_way_does_not_expire_as_a_waiting_one_does():
    job = MovedJob(job_placement_expiry_ms="30000")
    job.asleep = {"e0"}
    job.moves(1, "host-b", request_expiry=timedelta(seconds=1))
    job.moves(2, "host-c", request_expiry=timedelta(seconds=1))

    for _ in range(8):
        job.settles()
    assert (S.IN_PROGRESS, S.FAILED) == (job.status(1, ANSWERS), job.status(2, ANSWERS))

    job.asleep = set()
    job.settles()
    assert S.SUCCEEDED is job.status(1, ANSWERS)


def test_a_move_that_takes_too_long_is_answered_and_continues():
    job = MovedJob(job_placement_expiry_ms="2000", job_release_timeout_ms="1000")
    job.asleep = {"e0", "e1"}
    job.moves(1, "host-b", request_expiry=timedelta(seconds=1))

    for _ in range(8):
        job.settles()

    assert S.FAILED is job.status(1, ANSWERS)
    assert "expired: 3000 ms after it was ready" in job.text(1)
    assert "the move goes on" in job.text(1)


def test_a_move_torn_between_its_records_is_made_once():
    for survivors in range(1, 4):
        job = MovedJob()
        job.ask(1, PLACE, destination_host="host-b")
        job.log.tear_next_append(survivors)

        job.reads()
        job.service = job.leader("b")
        job.reads()
        job.settles()

        assert S.SUCCEEDED is job.status(1, ANSWERS), survivors
        assert [("0", "e1")] == [(record.processor_id, record.execution_id) for record in job.records(PlacedPut)]
        assert [] == job.broken()


def test_a_destination_that_dies_before_it_is_done_fails_and_the_tasks_stay():
    job = MovedJob(job_processor_grace_ms="60000")
    job.asleep = {"e0"}
    job.moves(1, "host-b")

    job.dies("e1")
    job.asleep = set()
    job.settles()

    assert S.FAILED is job.status(1, ANSWERS)
    assert "e1, which processor 0 was to go to, is gone" in job.text(1)
    assert ["0"] == job.runs()["e0"]


def test_a_move_to_where_it_runs_restarts_its_query():
    job = MovedJob()

    job.moves(1, "host-a")
    job.settles()

    assert S.SUCCEEDED is job.status(1, ANSWERS)
    assert "the query of processor 0 runs again, in e0" in job.text(1)
    assert 1 == job.state.restarts["0"].number
    assert {} == job.state.placed


@pytest.mark.parametrize(("host", "execution_id"), [("ANY_HOST", "e1"), ("LAST_SEEN", "e0")])
def test_any_host_and_the_last_one_can_be_requested(host, execution_id):
    job = MovedJob()

    job.moves(1, host)
    job.settles()

    assert S.SUCCEEDED is job.status(1, ANSWERS)
    assert ["0"] == [name for name in job.runs()[execution_id] if name == "0"]


def test_any_host_is_another_one_if_there_is_one_and_the_container_with_the_fewest_tasks():
    job = MovedJob()
    job.starts("e9", "9", "host-a")
    job.settles()
    job.moves(1, "host-b", processor_id="2")
    job.settles()

    job.moves(2, "ANY_HOST")
    job.settles()

    assert {"e0": [], "e1": ["1", "2"], "e2": ["0"], "e9": ["9"]} == job.runs()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("host-z", r"host where a container of the job runs \(host-a, host-b, host-c\), found host-z"),
        ("STANDBY", "the job has no standbys"),
        ("FORCE_RESTART_LAST_SEEN", "request restart-query"),
    ],
)
def test_nothing_moves_to_a_host_without_a_container(host, reason):
    job = MovedJob()

    job.moves(1, host)

    assert S.BAD_REQUEST is job.status(1, ANSWERS)
    assert re.search(reason, job.text(1))
    assert {} == job.state.placed


def test_the_last_container_cannot_move():
    job = MovedJob()
    for name in ("e1", "e2"):
        job.dies(name)
    job.settles()

    job.moves(1, "ANY_HOST")

    assert S.BAD_REQUEST is job.status(1, ANSWERS)
    assert "wanted another container than that of processor 0, found none that runs" in job.text(1)


def test_a_destination_that_is_gone_by_the_time_its_turn_comes_is_left_out():
    job = MovedJob(job_processor_grace_ms="60000")
    job.asleep = {"e0"}
    job.ask(1, RESTART)
    job.moves(2, "host-b")
    assert S.ACCEPTED is job.status(2, ANSWERS)

    job.dies("e1")
    job.asleep = set()
    job.settles()

    assert S.FAILED is job.status(2, ANSWERS)
    assert "found host-b; start one there first (spark-submit), its processor takes the tasks; nothing was done" in (
        job.text(2)
    )
    assert ["0"] == job.runs()["e0"]


def test_a_query_that_was_moved_is_not_restarted_by_its_processor():
    job = MovedJob()
    job.moves(1, "host-b")
    job.settles()

    job.ask(2, RESTART)
    job.reads()

    assert S.FAILED is job.status(2, CONTROL)
    assert "were moved to processor 1 on host-b; restart that one's query" in job.answer(2).response_message


def test_the_query_of_the_new_owner_is_restarted_though_the_plan_gives_it_no_tasks():
    job = MovedJob()
    for number, host in enumerate("def", start=3):
        job.starts(f"e{number}", str(number), f"host-{host}")
    idle = next(name for name in "012345" if name not in {task.processor_id for task in job.state.plan})
    host = f"host-{'abcdef'[int(idle)]}"
    moved = next(task.processor_id for task in job.state.plan)
    assert idle not in processors_with_query(job.state)
    job.moves(1, host, processor_id=moved)
    job.settles()

    job.ask(2, RESTART, processor_id=idle)
    job.reads()

    assert S.IN_PROGRESS is job.status(2, CONTROL)
    assert {idle} == processors_with_query(job.state) - {task.processor_id for task in job.state.plan}
    assert moved not in every_processor(job.state, Action.RESTART_QUERY)
    assert idle in every_processor(job.state, Action.RESTART_QUERY)


def test_a_placement_that_is_over_is_removed_once():
    job = MovedJob(job_processor_grace_ms="60000")
    job.moves(1, "host-b")
    job.settles()
    job.dies("e1")
    job.settles()
    review = ReviewMembers(
        groupers=NO_GROUPERS,
        now_ms=job.world.clock.monotonic_ms(),
        debounce_ms=1,
        grace_ms=60_000,
        run_id_next="1-00000000",
    )

    assert () == decide(review, job.state, Liveness()).records
    assert ContainerPhase.FENCED is job.state.containers["e1"].phase
