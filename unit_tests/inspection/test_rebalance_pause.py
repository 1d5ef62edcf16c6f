"""How long key buckets paused, from the times of their commits."""

from samzapy.inspection.rebalance_pause import Pauses
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.stream.records import CheckpointPut, ProgressPut, Removed
from samzapy.testing.builders import a_grant, an_ssp_kb

WHOLE, LEFT, RIGHT = (an_ssp_kb(f"kafka.orders.0:{part}") for part in ("0/1", "0/2", "1/2"))


def at(at_ms, ssp_kb, epoch, *, idle=False):
    if idle:
        return at_ms, ProgressPut(progress=Progress(ssp_kb=ssp_kb, offset_next=1, epoch=epoch, execution_id="e1"))
    checkpoint = Checkpoint(ssp_kb=ssp_kb, offset_next=1, epoch=epoch, task_name="task", execution_id="e1")
    return at_ms, CheckpointPut(checkpoint=checkpoint)


def pauses_ms(positions, grants, epoch_before=1, planned_ms=0):
    pauses = Pauses(grants, epoch_before, planned_ms)
    for at_ms, record in positions:
        pauses.add(at_ms, record)
    given = [grant for grant in grants if grant.epoch > epoch_before]
    assert pauses.are_over == (len(pauses.found_ms) == len(given))
    return pauses.found_ms


CHILDREN = [a_grant("left", epoch=2, ssp_kb=str(LEFT)), a_grant("right", epoch=3, ssp_kb=str(RIGHT))]


def test_a_child_s_pause_begins_with_its_parent_s_last_commit_and_ends_with_its_own_first():
    positions = [
        at(100, WHOLE, 1),
        at(900, WHOLE, 1),
        (950, Removed(key="checkpoint/kafka.orders.0:0/4")),
        at(1500, RIGHT, 3, idle=True),
        at(1700, LEFT, 2),
        at(1800, RIGHT, 3),
    ]

    assert {LEFT: 800, RIGHT: 600} == pauses_ms(positions, CHILDREN)


def test_a_merged_bucket_waited_since_the_last_of_its_parts():
    positions = [at(900, LEFT, 2), at(1000, RIGHT, 3), at(1200, WHOLE, 4)]

    assert {WHOLE: 200} == pauses_ms(positions, [a_grant(epoch=4)])


def test_a_task_without_messages_before_the_plan_waited_for_messages_and_not_for_the_plan():
    positions = [at(0, WHOLE, 1), at(301_000, LEFT, 2), at(301_200, RIGHT, 3)]

    assert {LEFT: 1000, RIGHT: 1200} == pauses_ms(positions, CHILDREN, planned_ms=300_000)


def test_a_task_that_committed_after_the_plan_waited_since_then():
    assert {LEFT: 300} == pauses_ms([at(1200, WHOLE, 1), at(1500, LEFT, 2)], CHILDREN, planned_ms=1000)


def test_a_task_that_has_not_started_or_had_no_owner_before_has_no_pause_yet():
    assert {} == pauses_ms([at(900, WHOLE, 1)], CHILDREN)
    assert {} == pauses_ms([at(900, LEFT, 2)], CHILDREN)


def test_other_partitions_and_readers_do_not_count():
    positions = [
        at(100, WHOLE, 1),
        at(500, an_ssp_kb("kafka.orders.1:0/1"), 1),
        at(600, an_ssp_kb("kafka.orders.0@task"), 1),
        at(700, LEFT, 2),
    ]

    assert {LEFT: 600} == pauses_ms(positions, CHILDREN)


def test_a_bucket_that_was_granted_before_the_change_was_kept_waiting_by_something_else():
    positions = [at(0, LEFT, 1), at(100_000, LEFT, 2), at(100_100, RIGHT, 2), at(100_400, RIGHT, 3)]

    assert {RIGHT: 300} == pauses_ms(positions, CHILDREN, epoch_before=2)
    assert {} == pauses_ms(positions, CHILDREN, epoch_before=3)
