"""One owner at a time, and the start rule."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import AcceptedLoss
from samzapy.coordinator.commands import LossUsed, Tick
from samzapy.coordinator.grants import Bounds, PositionsRead, newest_grants, owner_of, starts_of, wanted_grants
from samzapy.coordinator.liveness import Sightings
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import DataError, MissingTopicError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import BucketStart
from samzapy.stream.records import PlannedTaskPut
from samzapy.testing.builders import a_grant, a_heartbeat, a_submission, an_ssp, an_ssp_kb
from unit_tests.coordinator.histories import Machine, a_term

TASK = "SystemStreamPartition_kafka.orders.0"


# --- who may have a task ---


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
    return [wanted.execution_id for wanted in wanted_grants(machine.state)]


def test_a_task_that_is_taken_away_is_not_granted_before_its_owner_let_it_go():
    machine = moves_to_the_other_processor(a_machine())
    assert [] == next_owners(machine)

    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next, held=[(TASK, 1)]))
    assert [] == next_owners(machine)

    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))
    assert ["e3"] == next_owners(machine)


def test_a_release_is_recorded_and_whoever_takes_over_grants_without_waiting_for_it():
    machine = moves_to_the_other_processor(a_machine())
    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))

    machine.seen = Sightings()

    assert machine.state.grants[TASK, 1].released
    assert ["e3"] == next_owners(machine)
    assert owner_of(machine.state, TASK) is None


def test_a_task_that_is_given_back_after_it_was_let_go_is_granted_anew():
    machine = moves_to_the_other_processor(a_machine())
    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))

    machine.plan_for("0")

    assert ["e1"] == next_owners(machine)
    machine.perform(0)
    assert (2, False) == (newest_grants(machine.state)[TASK].epoch, newest_grants(machine.state)[TASK].released)


def test_a_task_that_is_given_back_before_it_was_let_go_stays_as_it_was():
    machine = moves_to_the_other_processor(a_machine())
    machine.plan_for("0")

    machine.step(a_heartbeat("e1", stream_offset=machine.offset_next))

    assert [] == next_owners(machine)
    assert not machine.state.grants[TASK, 1].released


def test_who_does_not_let_go_in_time_is_given_up_as_a_whole():
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
    ("phase", "owners"),
    [
        (ContainerPhase.RUNNING, []),
        (ContainerPhase.LOST, []),
        (ContainerPhase.FENCED, ["e3"]),
        (ContainerPhase.STOPPED, ["e3"]),
    ],
)
def test_a_lost_execution_keeps_its_tasks_until_it_is_fenced(phase, owners):
    machine = moves_to_the_other_processor(a_machine())
    container = replace(machine.state.containers["e1"], phase=phase)

    machine.state = replace(machine.state, containers=machine.state.containers | {"e1": container})

    assert owners == next_owners(machine)
    lives = phase is ContainerPhase.RUNNING
    assert ("e1" if lives else None) == getattr(owner_of(machine.state, TASK), "execution_id", None)


def test_an_overlapping_bucket_of_another_task_blocks_too():
    machine = a_machine()
    planned = replace(machine.state.plan[0], task_name="another", processor_id="1")
    machine.state = replace(machine.state, planned_tasks={(1, "another"): planned})

    assert [] == next_owners(machine)


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


# --- the start rule ---

SSP_KB = an_ssp_kb()
PLANNED = PlannedTaskPut(
    generation=1,
    task_name=TASK,
    partition_id=0,
    mode="active",
    processor_id="0",
    changelog_partition=0,
    ssp_kbs=(SSP_KB,),
)


def resolved(
    *,
    grants=(),
    checkpoint=None,
    progress=None,
    bounds=(0, 100),
    default="oldest",
    losses=(),
    planned=PLANNED,
    begun_anew_after=None,
):
    """Start and losses; `checkpoint` and `progress` are (epoch, offset_next)."""
    starts, used = starts_of(
        planned,
        grants,
        PositionsRead(
            checkpoints={} if checkpoint is None else {SSP_KB: a_checkpoint(*checkpoint)},
            progress={} if progress is None else {SSP_KB: a_progress(*progress)},
            bounds={an_ssp(): Bounds(*bounds)} if bounds else {},
        ),
        offset_default_of={an_ssp(): default},
        accepted_losses=[AcceptedLoss(ssp_kb=text, offset_from=a, offset_to=b) for text, a, b in losses],
        epoch_before_of={} if begun_anew_after is None else {an_ssp(): begun_anew_after},
    )
    return starts[0].offset_next, used


def a_checkpoint(epoch, offset_next):
    return Checkpoint(ssp_kb=SSP_KB, offset_next=offset_next, epoch=epoch, task_name=TASK, execution_id="e1")


def a_progress(epoch, offset_next):
    return Progress(ssp_kb=SSP_KB, offset_next=offset_next, epoch=epoch, execution_id="e1")


@pytest.mark.parametrize(("default", "start"), [("oldest", 10), ("upcoming", 90)])
def test_what_was_never_granted_begins_at_the_default(default, start):
    assert (start, ()) == resolved(bounds=(10, 90), default=default)


def test_positions_that_belong_to_no_grant_do_not_count():
    assert (0, ()) == resolved(checkpoint=(1, 50), progress=(1, 60))


@given(start=st.integers(0, 99), checkpoint=st.integers(0, 99), progress=st.integers(0, 99))
def test_the_largest_of_start_checkpoint_and_progress_counts(start, checkpoint, progress):
    found = resolved(grants=[a_grant(epoch=3, offset_next=start)], checkpoint=(3, checkpoint), progress=(3, progress))

    assert (max(start, checkpoint, progress), ()) == found


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_position_of_another_epoch_does_not_count_however_large_it_is(epoch):
    found = resolved(grants=[a_grant(epoch=3, offset_next=5)], checkpoint=(epoch, 70), progress=(epoch, 80))

    assert (5, ()) == found


def test_a_rewind_wins_over_what_was_reached_before_it():
    grants = [a_grant(epoch=1, offset_next=0), a_grant(epoch=2, offset_next=7)]

    assert (7, ()) == resolved(grants=grants[::-1], checkpoint=(1, 70))


@pytest.mark.parametrize(("begun_anew_after", "start"), [(None, 70), (2, 70), (3, 10), (4, 10)])
def test_what_earlier_runs_read_does_not_count_for_a_stream_that_each_run_begins_anew(begun_anew_after, start):
    found = resolved(
        grants=[a_grant(epoch=3, offset_next=5)],
        checkpoint=(3, 70),
        bounds=(10, 90),
        begun_anew_after=begun_anew_after,
    )

    assert (start, ()) == found


def test_a_start_outside_what_the_topic_holds_is_left_for_the_container_to_name():
    assert (5, ()) == resolved(grants=[a_grant(offset_next=5)], bounds=(20, 100))
    assert (500, ()) == resolved(grants=[a_grant(offset_next=500)], bounds=(20, 100))


@pytest.mark.parametrize(
    ("loss", "start"),
    [
        (("kafka.orders.0:0/1", 5, 20), 20),
        (("kafka.orders.0", 5, 20), 20),
        (("kafka.orders.0:0/1", 5, 25), 20),
        (("kafka.orders.0:0/1", 5, 19), 5),
        (("kafka.orders.0:0/1", 4, 20), 5),
        (("kafka.orders.1:0/1", 5, 20), 5),
    ],
)
def test_an_accepted_loss_counts_only_for_the_very_range_that_is_lost(loss, start):
    found = resolved(grants=[a_grant(offset_next=5)], bounds=(20, 100), losses=[loss])

    assert (start, (LossUsed(SSP_KB, 5, 20),) if start == 20 else ()) == found


def test_an_accepted_loss_does_not_move_a_start_that_is_still_held():
    assert (5, ()) == resolved(
        grants=[a_grant(offset_next=5)], bounds=(5, 100), losses=[("kafka.orders.0:0/1", 5, 20)]
    )


def test_an_input_that_is_gone_is_named():
    with pytest.raises(MissingTopicError, match="kafka.orders.0"):
        resolved(bounds=None)


def test_grants_of_a_higher_factor_are_refused_and_not_guessed_at():
    with pytest.raises(DataError, match="cannot join key buckets"):
        resolved(grants=[a_grant(ssp_kb="kafka.orders.0:0/2")])


def test_a_bucket_that_is_split_off_begins_where_the_whole_had_come_to():
    planned = replace(PLANNED, ssp_kbs=(an_ssp_kb("kafka.orders.0:1/2"),))

    assert (70, ()) == resolved(grants=[a_grant()], checkpoint=(1, 70), planned=planned)


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


def test_a_task_goes_on_where_it_was_in_a_broadcast_input_whatever_the_others_did():
    planned = replace(PLANNED, broadcast_ssps=(RULES,))
    mine, theirs = an_ssp_kb(f"kafka.rules.0@{TASK}"), an_ssp_kb("kafka.rules.0@another")
    positions = {
        mine: replace(a_checkpoint(1, 7), ssp_kb=mine),
        theirs: replace(a_checkpoint(2, 50), ssp_kb=theirs, task_name="another"),
    }
    grants = [
        replace(
            a_grant(epoch=1),
            starts=(BucketStart(ssp_kb=SSP_KB, offset_next=0), BucketStart(ssp_kb=mine, offset_next=3)),
        ),
        replace(a_grant("another", epoch=2), starts=(BucketStart(ssp_kb=theirs, offset_next=40),)),
    ]

    starts, _ = starts_of(
        planned,
        grants,
        PositionsRead(checkpoints=positions, progress={}, bounds={ssp: Bounds(0, 100) for ssp in (an_ssp(), RULES)}),
        offset_default_of={an_ssp(): "oldest", RULES: "oldest"},
        accepted_losses=(),
    )

    assert [(SSP_KB, 0), (mine, 7)] == [(start.ssp_kb, start.offset_next) for start in starts]


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
