"""One owner at a time."""

from dataclasses import replace

import pytest

from samzapy.coordinator.assignment.grants import newest_grants, owners, wanted_grants
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.commands import Tick
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import BucketStart
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.records import RunPut
from samzapy.testing.builders import a_grant, a_heartbeat, a_submission, an_ssp, an_ssp_kb
from unit_tests.fixtures.coordinator_histories import Machine, a_term
from unit_tests.fixtures.coordinator_world import World

TASK = "SystemStreamPartition_kafka.orders.0"


# --- which execution may have a task ---


def a_machine(*, read_its_grant=True):
    """e1 of processor 0 runs the only task; e3 of processor 1 waits for work."""
    machine = Machine()
    machine.step(a_term(0))
    machine.step(a_submission(partition_counts={"kafka.orders": 1}))
    machine.plan_for("0")
    machine.step(a_heartbeat("e1"))
    machine.step(a_heartbeat("e3", processor_id="1"))
    machine.perform(0)
    held = [(TASK, 1)] if read_its_grant else []
    offset = machine.offset_next if read_its_grant else machine.state.generation_offset + 1
    machine.step(a_heartbeat("e1", stream_offset=offset, held=held))
    return machine


def moves_to_the_other_processor(machine):
    machine.plan_for("1")
    return machine


def next_owners(machine):
    return [grant.execution_id for grant in wanted_grants(machine.state)]


def test_a_task_that_is_taken_away_is_not_granted_before_its_owner_released_it():
    machine = moves_to_the_other_processor(a_machine())
    assert [] == next_owners(machine)

    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next, held=[(TASK, 1)]))
    assert [] == next_owners(machine)

    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))
    assert ["e3"] == next_owners(machine)


def test_a_recorded_release_lets_the_next_leader_grant_at_once():
    machine = moves_to_the_other_processor(a_machine())
    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))

    machine.liveness = Liveness()

    assert machine.state.grants[TASK, 1].released
    assert ["e3"] == next_owners(machine)
    assert TASK not in owners(machine.state)


def test_a_task_that_is_given_back_after_its_release_is_granted_again():
    machine = moves_to_the_other_processor(a_machine())
    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))

    machine.plan_for("0")

    assert ["e1"] == next_owners(machine)
    machine.perform(0)
    assert (2, False) == (newest_grants(machine.state)[TASK].epoch, newest_grants(machine.state)[TASK].released)


def test_a_task_that_is_given_back_before_its_release_keeps_its_grant():
    machine = moves_to_the_other_processor(a_machine())
    machine.plan_for("0")

    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))

    assert [] == next_owners(machine)
    assert not machine.state.grants[TASK, 1].released


def test_a_container_that_does_not_release_in_time_is_given_up_as_a_whole():
    machine = moves_to_the_other_processor(a_machine())
    holding = a_heartbeat("e1", stream_offset=machine.offset_next, held=[(TASK, 1)])

    def after(now_ms):
        machine.step(replace(holding, received_ms=now_ms))
        machine.step(Tick(now_ms=now_ms, lost_ms=20_000, release_ms=30_000))
        return machine.state.containers["e1"].phase

    phases = [after(now_ms) for now_ms in (1_000, 15_000, 30_999, 31_000)]

    assert [ContainerPhase.RUNNING] * 3 + [ContainerPhase.LOST] == phases
    assert "did not let go" in machine.state.containers["e1"].reason


def test_a_list_of_before_the_plan_was_read_releases_nothing():
    machine = moves_to_the_other_processor(a_machine())

    machine.step(a_heartbeat("e1", stream_offset=machine.state.generation_offset))
    assert [] == next_owners(machine)

    machine.step(a_heartbeat("e1", stream_offset=machine.state.generation_offset + 1))
    assert ["e3"] == next_owners(machine)


def test_a_grant_that_was_not_read_yet_is_no_release():
    machine = a_machine(read_its_grant=False)
    machine.step(a_heartbeat("e2", pid=200))
    machine.step(Tick(now_ms=0, lost_ms=1))
    machine.step(a_heartbeat("e2", pid=200))

    machine.state = replace(
        machine.state,
        containers=machine.state.containers
        | {"e1": replace(machine.state.containers["e1"], phase=ContainerPhase.LOST)},
    )

    assert [] == next_owners(machine)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (ContainerPhase.RUNNING, []),
        (ContainerPhase.LOST, []),
        (ContainerPhase.FENCED, ["e3"]),
        (ContainerPhase.STOPPED, ["e3"]),
    ],
)
def test_a_lost_execution_keeps_its_tasks_until_it_is_fenced(phase, expected):
    machine = moves_to_the_other_processor(a_machine())
    container = replace(machine.state.containers["e1"], phase=phase)

    machine.state = replace(machine.state, containers=machine.state.containers | {"e1": container})

    assert expected == next_owners(machine)
    lives = phase is ContainerPhase.RUNNING
    assert ("e1" if lives else None) == getattr(owners(machine.state).get(TASK), "execution_id", None)


def test_an_overlapping_bucket_of_another_task_blocks_too():
    machine = a_machine()
    planned = replace(machine.state.plan[0], task_name="another", processor_id="1")
    machine.state = replace(machine.state, planned_tasks={(1, "another"): planned})

    assert [] == next_owners(machine)


@pytest.mark.parametrize(
    ("phase", "counts_after", "expected"),
    [
        (ContainerPhase.LOST, 2, []),
        (ContainerPhase.FENCED, 2, ["e3"]),
        (ContainerPhase.LOST, 0, ["e3"]),
    ],
)
def test_where_the_state_of_a_new_run_begins_is_not_fixed_while_a_sibling_of_the_last_one_may_write(
    phase, counts_after, expected
):
    """Both halves share a changelog partition.

    Later commits of the lost half must precede that offset.
    """
    machine = a_machine()
    state, names = machine.state, [f"{TASK}-0-2", f"{TASK}-1-2"]
    halves = [an_ssp_kb("kafka.orders.0:0/2"), an_ssp_kb("kafka.orders.0:1/2")]
    planned = replace(state.plan[0], task_name=names[0], processor_id="1", ssp_kbs=(halves[0],))
    container = state.containers["e1"]
    machine.state = replace(
        state,
        planned_tasks={(state.generation.generation, names[0]): planned},
        run=RunPut(run_id="run-2", ended=False, epoch_before=2, counts_after=counts_after),
        grants={
            f"grant/{name}/{epoch}": a_grant(name, epoch=epoch, execution_id=f"e{epoch}", ssp_kb=str(half))
            for epoch, (name, half) in enumerate(zip(names, halves, strict=True), start=1)
        },
        containers=state.containers
        | {
            "e1": replace(container, phase=ContainerPhase.STOPPED),
            "e2": replace(container, execution_id="e2", phase=phase),
        },
    )

    assert expected == next_owners(machine)


def test_a_grant_carries_its_task_s_number_and_changelog_partition():
    machine = Machine()
    machine.step(a_term(0))
    machine.step(a_submission(partition_counts={"kafka.orders": 3}))
    machine.plan_for("0")
    machine.step(a_heartbeat("e1"))
    for _ in range(3):
        machine.perform(0)

    planned = {task.task_name: (task.partition_id, task.changelog_partition) for task in machine.state.plan}
    granted = {
        grant.task_name: (grant.partition_id, grant.changelog_partition) for grant in machine.state.grants.values()
    }
    assert [0, 1, 2] == sorted(number for number, _ in granted.values())
    assert planned == granted


def test_the_newest_grant_is_the_one_with_the_highest_epoch_in_any_order():
    first, second = a_grant(epoch=1), a_grant(epoch=2)

    for grants in ([first, second], [second, first]):
        state = CoordinatorState(grants={(grant.task_name, grant.epoch): grant for grant in grants})
        assert {TASK: second} == newest_grants(state)


def test_a_job_of_many_tasks_is_granted_without_looking_at_each_grant_for_each_task(monkeypatch):
    """Counted, not timed: the looks at grants grow with the tasks, not their square.

    10,000 tasks are granted in 2 s; with a look at each grant for each task it took days.
    """
    looks = []
    overlaps = SspKeyBucket.overlaps
    monkeypatch.setattr(SspKeyBucket, "overlaps", lambda *args: looks.append(1) or overlaps(*args))
    world, tasks = World(), 100
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(partition_counts={"kafka.orders": tasks}))
    world.queue.append(a_heartbeat())
    service.run_once(0)
    world.alive[100] = False
    world.clock.advance(1_000)
    world.queue.append(a_heartbeat("e2", pid=200))
    service.run_once(0)

    assert {("e2", tasks + number) for number in range(1, tasks + 1)} == {
        (grant.execution_id, grant.epoch) for grant in service.status().state.grants.values()
    }
    assert len(looks) <= 10 * tasks


# --- broadcast inputs: every task reads them for itself ---

RULES = an_ssp("kafka.rules.0")


def with_rules(machine):
    """The plan in force, in which each task reads `RULES` too."""
    plan = {key: replace(planned, broadcast_ssps=(RULES,)) for key, planned in machine.state.planned_tasks.items()}
    machine.state = replace(machine.state, planned_tasks=plan)
    return machine


def test_a_broadcast_input_has_any_number_of_owners_at_once():
    machine = Machine()
    machine.step(a_term(0))
    machine.step(a_submission(partition_counts={"kafka.orders": 2}))
    machine.plan_for("0", "1")
    machine.step(a_heartbeat("e1"))
    machine.step(a_heartbeat("e2", processor_id="1", pid=200))
    with_rules(machine)

    machine.perform(0)
    machine.perform(0)

    assert {"e1", "e2"} == {grant.execution_id for grant in machine.state.grants.values()}
    read = {grant.task_name: str(grant.starts[1].ssp_kb) for grant in machine.state.grants.values()}
    assert {task: f"kafka.rules.0@{task}" for task in read} == read
    assert () == wanted_grants(machine.state)


def test_a_broadcast_input_that_is_added_or_left_out_makes_a_new_grant_after_a_release():
    machine = with_rules(a_machine())
    assert [] == next_owners(machine)

    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))
    assert ["e1"] == next_owners(machine)


def test_a_grant_of_a_broadcast_input_is_not_covered_by_another_task_s():
    """Its record stays, because the task's position in it is computed from it."""
    mine, theirs = an_ssp_kb(f"kafka.rules.0@{TASK}"), an_ssp_kb("kafka.rules.0@another")
    machine = a_machine()
    older = replace(
        machine.state.grants[TASK, 1],
        starts=(*machine.state.grants[TASK, 1].starts, BucketStart(ssp_kb=mine, offset_next=3)),
    )
    other = replace(a_grant("another", epoch=2), starts=(BucketStart(ssp_kb=theirs, offset_next=40),))
    machine.state = replace(machine.state, epoch=2, grants={(TASK, 1): older, ("another", 2): other})

    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))
    machine.perform(0)

    assert {(TASK, 1), ("another", 2), (TASK, 3)} == set(machine.state.grants)


def test_the_grant_of_a_parent_stays_until_all_its_children_are_granted_with_its_broadcast_positions():
    machine = with_rules(a_machine())
    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))
    machine.perform(0)
    [parent] = machine.state.grants.values()
    assert [str(start.ssp_kb) for start in parent.starts] == ["kafka.orders.0:0/1", f"kafka.rules.0@{TASK}"]
    children = [f"{TASK}-{bucket}-2" for bucket in (0, 1)]
    planned = machine.state.plan[0]
    machine.state = replace(
        machine.state,
        planned_tasks={
            (1, name): replace(planned, task_name=name, ssp_kbs=(an_ssp_kb(f"kafka.orders.0:{bucket}/2"),))
            for bucket, name in enumerate(children)
        },
    )
    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))
    assert ["e1", "e1"] == next_owners(machine)

    machine.perform(0)
    assert {TASK, children[0]} == {task for task, _ in machine.state.grants}
    machine.perform(0)
    assert set(children) == {task for task, _ in machine.state.grants}
