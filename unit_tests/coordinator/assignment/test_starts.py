"""Where a task begins: after its owner before, or the owners of its parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import AcceptedLoss
from samzapy.coordinator.assignment.starts import (
    Bounds,
    GrantIndex,
    PositionsRead,
    copies_awaited,
    kin_of,
    refuse_newer_positions,
    starts_of,
)
from samzapy.coordinator.grant_values import LossUsed
from samzapy.errors import MissingTopicError, TruncatedTopicError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.grant import BucketStart, Floor, Grant
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.startpoint import Startpoint, StartpointIndex
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.records import PlannedTaskPut
from samzapy.testing.builders import a_grant, an_ssp, an_ssp_kb

TASK = "SystemStreamPartition_kafka.orders.0"
RULES = an_ssp("kafka.rules.0")

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
    startpoints=(),
):
    """Start and losses; `checkpoint` and `progress` are (epoch, offset_next)."""
    starts = starts_of(
        planned,
        GrantIndex(grants),
        PositionsRead(
            checkpoints={} if checkpoint is None else {SSP_KB: a_checkpoint(*checkpoint)},
            progress={} if progress is None else {SSP_KB: a_progress(*progress)},
            bounds={an_ssp(): Bounds(*bounds)} if bounds else {},
        ),
        offset_default_of={an_ssp(): default},
        accepted_losses=[AcceptedLoss(ssp_kb=text, offset_from=a, offset_to=b) for text, a, b in losses],
        epoch_before_of={} if begun_anew_after is None else {an_ssp(): begun_anew_after},
        startpoints=StartpointIndex(startpoints),
    )
    return starts.of_buckets[0].offset_next, starts.losses


def a_checkpoint(epoch, offset_next):
    return Checkpoint(ssp_kb=SSP_KB, offset_next=offset_next, epoch=epoch, task_name=TASK, execution_id="e1")


def a_progress(epoch, offset_next):
    return Progress(ssp_kb=SSP_KB, offset_next=offset_next, epoch=epoch, execution_id="e1")


@pytest.mark.parametrize(("default", "start"), [("oldest", 10), ("upcoming", 90)])
def test_a_bucket_that_was_never_granted_begins_at_the_default(default, start):
    assert (start, ()) == resolved(bounds=(10, 90), default=default)


def test_positions_that_belong_to_no_grant_do_not_count():
    assert (0, ()) == resolved(checkpoint=(1, 50), progress=(1, 60))


@given(start=st.integers(0, 99), checkpoint=st.integers(0, 99), progress=st.integers(0, 99))
def test_the_largest_of_start_checkpoint_and_progress_counts(start, checkpoint, progress):
    starts = resolved(
        grants=[a_grant(epoch=3, offset_next=start)], checkpoint=(3, checkpoint), progress=(3, progress)
    )

    assert (max(start, checkpoint, progress), ()) == starts


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_position_of_another_epoch_does_not_count_however_large_it_is(epoch):
    starts = resolved(grants=[a_grant(epoch=3, offset_next=5)], checkpoint=(epoch, 70), progress=(epoch, 80))

    assert (5, ()) == starts


def a_startpoint(epoch, offset_next, text="kafka.orders.0:0/1"):
    return Startpoint(ssp_kb=an_ssp_kb(text), offset_next=offset_next, epoch=epoch, uuid="u")


def test_a_rewind_wins_over_positions_reached_before_it():
    grants = [a_grant(epoch=1, offset_next=0), a_grant(epoch=2, offset_next=7)]

    assert (7, ()) == resolved(grants=grants[::-1], checkpoint=(1, 70))
    assert (3, ()) == resolved(grants=grants[::-1], checkpoint=(1, 70), startpoints=[a_startpoint(3, 3)])


def test_positions_reached_after_a_rewind_win_over_it():
    grants = [a_grant(epoch=1), a_grant(epoch=3, offset_next=7)]

    assert (9, ()) == resolved(grants=grants, checkpoint=(3, 9), startpoints=[a_startpoint(2, 7)])


def test_a_rewind_before_the_first_grant_wins_over_the_default():
    assert (30, ()) == resolved(startpoints=[a_startpoint(1, 30)])


def test_a_rewind_to_offsets_that_retention_removed_since_is_left_for_the_container_to_report():
    assert (3, ()) == resolved(
        grants=[a_grant()], checkpoint=(1, 70), bounds=(5, 90), startpoints=[a_startpoint(2, 3)]
    )


def test_a_rewind_of_an_earlier_run_does_not_count_for_a_stream_that_each_run_begins_again():
    starts = resolved(grants=[a_grant()], bounds=(10, 90), startpoints=[a_startpoint(2, 30)], begun_anew_after=2)

    assert (10, ()) == starts


@pytest.mark.parametrize(("begun_anew_after", "start"), [(None, 70), (2, 70), (3, 10), (4, 10)])
def test_positions_of_earlier_runs_do_not_count_for_a_stream_that_each_run_begins_again(begun_anew_after, start):
    starts = resolved(
        grants=[a_grant(epoch=3, offset_next=5)],
        checkpoint=(3, 70),
        bounds=(10, 90),
        begun_anew_after=begun_anew_after,
    )

    assert (start, ()) == starts


def test_a_start_outside_the_topic_is_left_for_the_container_to_report():
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
    starts = resolved(grants=[a_grant(offset_next=5)], bounds=(20, 100), losses=[loss])

    assert (start, (LossUsed(SSP_KB, 5, 20),) if start == 20 else ()) == starts


def test_an_accepted_loss_does_not_move_a_start_that_is_still_held():
    assert (5, ()) == resolved(
        grants=[a_grant(offset_next=5)], bounds=(5, 100), losses=[("kafka.orders.0:0/1", 5, 20)]
    )


def test_an_input_that_is_gone_is_named():
    with pytest.raises(MissingTopicError, match="kafka.orders.0"):
        resolved(bounds=None)


def test_a_bucket_that_is_split_off_begins_where_the_whole_had_come_to():
    planned = replace(PLANNED, ssp_kbs=(an_ssp_kb("kafka.orders.0:1/2"),))

    assert (70, ()) == resolved(grants=[a_grant()], checkpoint=(1, 70), planned=planned)


def test_a_task_keeps_its_own_position_in_a_broadcast_input():
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

    starts = starts_of(
        planned,
        GrantIndex(grants),
        PositionsRead(checkpoints=positions, progress={}, bounds={ssp: Bounds(0, 100) for ssp in (an_ssp(), RULES)}),
        offset_default_of={an_ssp(): "oldest", RULES: "oldest"},
        accepted_losses=(),
    )

    assert [(SSP_KB, 0), (mine, 7)] == [(start.ssp_kb, start.offset_next) for start in starts.of_buckets]


# --- splits and merges ---


def planned_for(bucket, factor, *, broadcast=()):
    ssp_kb = SspKeyBucket(an_ssp(), bucket, factor)
    name = TaskNameParts(base=an_ssp(), bucket=bucket, factor=factor).name
    return replace(PLANNED, task_name=name, ssp_kbs=(ssp_kb,), broadcast_ssps=broadcast)


def start_for(planned, grants, checkpoints=(), *, bounds=(0, 1000), startpoints=()):
    return starts_of(
        planned,
        GrantIndex(grants),
        PositionsRead(
            checkpoints={checkpoint.ssp_kb: checkpoint for checkpoint in checkpoints},
            progress={},
            bounds={ssp: Bounds(*bounds) for ssp in (an_ssp(), RULES)},
        ),
        offset_default_of={an_ssp(): "oldest", RULES: "oldest"},
        accepted_losses=(),
        startpoints=StartpointIndex(startpoints),
    )


def at(ssp_kb, epoch, offset_next):
    return Checkpoint(
        ssp_kb=an_ssp_kb(ssp_kb), offset_next=offset_next, epoch=epoch, task_name=TASK, execution_id="e1"
    )


def test_both_children_begin_where_the_parent_had_come_to():
    starts = [
        start_for(planned_for(bucket, 2), [a_grant()], [at("kafka.orders.0:0/1", 1, 70)]).of_buckets
        for bucket in (0, 1)
    ]

    assert [70, 70] == [start.offset_next for (start,) in starts]
    assert not any(start.floors for (start,) in starts)


def test_a_merge_begins_at_the_smallest_position_and_keeps_floors_for_parts_ahead():
    grants = [a_grant(f"{TASK}-{b}-4", epoch=2 + b, ssp_kb=f"kafka.orders.0:{b}/4", offset_next=10) for b in range(4)]
    checkpoints = [at("kafka.orders.0:1/4", 3, 40), at("kafka.orders.0:3/4", 5, 40), at("kafka.orders.0:2/4", 4, 25)]

    [start] = start_for(planned_for(0, 1), grants, checkpoints).of_buckets

    assert 10 == start.offset_next
    # Buckets 1 and 3 of 4 are bucket 1 of 2.
    assert [("kafka.orders.0:1/2", 40), ("kafka.orders.0:2/4", 25)] == [
        (str(floor.ssp_kb), floor.offset_next) for floor in start.floors
    ]


def test_a_merge_of_buckets_at_one_offset_has_no_floors():
    grants = [a_grant(f"{TASK}-{b}-2", epoch=2 + b, ssp_kb=f"kafka.orders.0:{b}/2", offset_next=10) for b in (0, 1)]

    assert (BucketStart(ssp_kb=SSP_KB, offset_next=10),) == start_for(planned_for(0, 1), grants).of_buckets


def test_a_change_on_top_of_an_unfinished_merge_takes_the_floors_that_are_left_apart():
    floors = (Floor(ssp_kb=an_ssp_kb("kafka.orders.0:1/2"), offset_next=40),)
    merged = a_grant(epoch=5, offset_next=10)
    merged = replace(merged, starts=(replace(merged.starts[0], floors=floors),))
    checkpoints = [at("kafka.orders.0:0/1", 5, 25)]

    starts = [start_for(planned_for(bucket, 2), [merged], checkpoints).of_buckets[0] for bucket in (0, 1)]

    assert [(25, ()), (40, ())] == [(start.offset_next, start.floors) for start in starts]


def test_floors_below_a_loss_that_was_accepted_are_dropped():
    grants = [a_grant(f"{TASK}-{b}-2", epoch=2 + b, ssp_kb=f"kafka.orders.0:{b}/2", offset_next=10) for b in (0, 1)]
    checkpoints = [at("kafka.orders.0:1/2", 3, 15)]

    starts = starts_of(
        planned_for(0, 1),
        GrantIndex(grants),
        PositionsRead(
            checkpoints={item.ssp_kb: item for item in checkpoints}, progress={}, bounds={an_ssp(): Bounds(20, 90)}
        ),
        offset_default_of={an_ssp(): "oldest"},
        accepted_losses=[AcceptedLoss(ssp_kb="kafka.orders.0:0/1", offset_from=10, offset_to=20)],
    )

    assert (BucketStart(ssp_kb=SSP_KB, offset_next=20),) == starts.of_buckets
    assert (LossUsed(SSP_KB, 10, 20),) == starts.losses


ALL_FACTORS = (1, 2, 4, 8, 16)


class Walk:
    """One partition under changing factors, a message per offset, each done once."""

    FINEST = 16

    def __init__(self, length):
        self.length = length
        self.done = [0] * length
        self.epoch = 0
        self.grants = []
        self.checkpoints = {}
        self.startpoints = {}
        self.tasks = {}

    def change(self, factor, granted):
        """A new generation: all owners release, and `granted` of the new tasks get grants."""
        self.tasks = {}
        for bucket in range(factor):
            if granted[bucket % len(granted)]:
                self.grant(bucket, factor)

    def grant(self, bucket, factor):
        planned = planned_for(bucket, factor)
        starts = start_for(
            planned,
            self.grants,
            self.checkpoints.values(),
            bounds=(0, self.length),
            startpoints=self.startpoints.values(),
        ).of_buckets
        self.epoch += 1
        self.grants.append(
            Grant(
                task_name=planned.task_name,
                epoch=self.epoch,
                execution_id="e1",
                generation=1,
                partition_id=0,
                changelog_partition=0,
                starts=starts,
            )
        )
        self.tasks[planned.task_name] = (self.epoch, starts[0], starts[0].offset_next)

    def work(self, task_name, until):
        """The task continues to offset `until`.

        It follows `container.start_rules` and the lookup table.
        """
        epoch, start, offset_next = self.tasks[task_name]
        for offset in range(offset_next, until):
            mine = self.bucket(offset) % start.ssp_kb.factor == start.ssp_kb.bucket
            is_done = any(
                self.bucket(offset) % floor.ssp_kb.factor == floor.ssp_kb.bucket and offset < floor.offset_next
                for floor in start.floors
            )
            if mine and not is_done:
                self.do(offset)
        if until > offset_next:
            self.tasks[task_name] = epoch, start, until
            self.checkpoints[start.ssp_kb] = at(str(start.ssp_kb), epoch, until)

    def do(self, offset):
        self.done[offset] += 1

    def bucket(self, offset):
        return (offset * 7 + offset // 5) % self.FINEST


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, 4, 8, 16]),
            st.lists(st.booleans(), min_size=1, max_size=5),
            st.lists(st.integers(0, 60), min_size=1, max_size=16),
        ),
        max_size=8,
    ),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_over_any_walk_of_factors_each_message_is_done_exactly_once(steps, factor_last):
    walk = Walk(60)
    for factor, granted, progress in steps:
        walk.change(factor, granted)
        for number, task_name in enumerate(sorted(walk.tasks)):
            walk.work(task_name, progress[number % len(progress)])
            assert max(walk.done) <= 1
    walk.change(factor_last, [True])
    for task_name in sorted(walk.tasks):
        walk.work(task_name, walk.length)

    assert walk.done == [1] * walk.length


@pytest.mark.parametrize("factor_first", ALL_FACTORS)
def test_over_every_path_of_three_changes_each_message_is_done_exactly_once(factor_first):
    """Each path of the test above, where that one draws some of them.

    Progress is random, and now and then a task of a factor never begins.
    """
    for path in product(ALL_FACTORS, repeat=3):
        drawn = Random(str((factor_first, *path)))
        walk = Walk(48)
        for factor in (factor_first, *path):
            walk.change(factor, [drawn.random() < 0.8 for _ in range(factor)])
            for task_name in sorted(walk.tasks):
                walk.work(task_name, drawn.randint(0, walk.length))
            assert max(walk.done) <= 1, path
        walk.change(path[-1], [True])
        for task_name in sorted(walk.tasks):
            walk.work(task_name, walk.length)
        assert walk.done == [1] * walk.length, path


class RewoundWalk(Walk):
    """A walk with rewinds: each finest bucket is read in order from its startpoint.

    The newest startpoint counts.
    """

    def __init__(self, length):
        super().__init__(length)
        self.next_of = dict.fromkeys(range(self.FINEST), 0)

    def do(self, offset):
        bucket = self.bucket(offset)
        assert offset == self.next_in(bucket), f"bucket {bucket}"
        self.next_of[bucket] = offset + 1

    def next_in(self, bucket):
        return next((o for o in range(self.next_of[bucket], self.length) if self.bucket(o) == bucket), None)

    def rewind(self, bucket, factor, offset_next, late):
        """Tasks of those messages continue for a while, and then release."""
        self.epoch += 1
        startpoint = a_startpoint(self.epoch, offset_next, f"kafka.orders.0:{bucket % factor}/{factor}")
        self.startpoints[startpoint.ssp_kb] = startpoint
        for task_name in sorted(self.tasks):
            if self.tasks[task_name][1].ssp_kb.overlaps(startpoint.ssp_kb):
                self.work(task_name, late)
                del self.tasks[task_name]
        self.next_of |= dict.fromkeys(range(bucket % factor, self.FINEST, factor), offset_next)


FACTORS = st.sampled_from([1, 2, 4, 8, 16])
OFFSETS = st.integers(0, 60)


@given(
    st.lists(
        st.tuples(
            FACTORS, st.lists(st.booleans(), min_size=1, max_size=5), st.lists(OFFSETS, min_size=1, max_size=16)
        )
        | st.tuples(st.integers(0, 15), FACTORS, OFFSETS, OFFSETS),
        max_size=10,
    ),
    FACTORS,
)
def test_over_any_walk_of_factors_and_rewinds_each_part_starts_at_its_newest_position(steps, factor_last):
    walk = RewoundWalk(60)
    for step in steps:
        if len(step) == 4:
            walk.rewind(*step)
            continue
        factor, granted, progress = step
        walk.change(factor, granted)
        for number, task_name in enumerate(sorted(walk.tasks)):
            walk.work(task_name, progress[number % len(progress)])
    walk.change(factor_last, [True])
    for task_name in sorted(walk.tasks):
        walk.work(task_name, walk.length)

    assert [None] * walk.FINEST == [walk.next_in(bucket) for bucket in range(walk.FINEST)]


# --- broadcast inputs: a task takes the positions of one parent ---


def with_rules(grant, offset_next, *, parent=""):
    own = BucketStart(ssp_kb=SspKeyBucket(RULES, reader=grant.task_name), offset_next=offset_next)
    return replace(grant, starts=(*grant.starts, own), broadcast_parent=parent)


def read_of_rules(task_name, epoch, offset_next):
    ssp_kb = SspKeyBucket(RULES, reader=task_name)
    return Checkpoint(ssp_kb=ssp_kb, offset_next=offset_next, epoch=epoch, task_name=task_name, execution_id="e1")


def rules_of(start):
    return start.of_buckets[-1].offset_next, start.broadcast_parent


def test_a_child_takes_its_parent_s_positions_in_broadcast_inputs_and_its_copy():
    grants = [with_rules(a_grant(), 3)]

    starts = start_for(planned_for(1, 2, broadcast=(RULES,)), grants, [read_of_rules(TASK, 1, 8)])

    assert (8, TASK) == rules_of(starts)


def test_a_merge_takes_those_of_the_parent_that_read_least():
    children = [
        with_rules(a_grant(f"{TASK}-{b}-2", epoch=2 + b, ssp_kb=f"kafka.orders.0:{b}/2"), 3, parent=TASK)
        for b in (0, 1)
    ]
    checkpoints = [read_of_rules(f"{TASK}-0-2", 2, 9), read_of_rules(f"{TASK}-1-2", 3, 7)]

    assert (7, f"{TASK}-1-2") == rules_of(start_for(planned_for(0, 1, broadcast=(RULES,)), children, checkpoints))


def test_a_task_that_only_moves_keeps_its_own_positions():
    grants = [with_rules(a_grant(), 3)]

    assert (3, "") == rules_of(start_for(planned_for(0, 1, broadcast=(RULES,)), grants))


def test_a_broadcast_input_that_was_none_for_a_while_is_read_on_where_the_task_was():
    grants = [with_rules(a_grant(), 3), a_grant(epoch=2)]

    starts = start_for(planned_for(0, 1, broadcast=(RULES,)), grants, [read_of_rules(TASK, 1, 8)])

    assert (8, "") == rules_of(starts)


def of_rules(epoch, offset_next, task_name=TASK):
    return a_startpoint(epoch, offset_next, f"kafka.rules.0@{task_name}")


@pytest.mark.parametrize(
    ("startpoints", "start"),
    [
        ([of_rules(5, 40)], 40),
        ([of_rules(5, 40), of_rules(6, 50, f"{TASK}-1-2")], 50),
        ([of_rules(6, 40), of_rules(5, 50, f"{TASK}-1-2")], 50),
        ([of_rules(1, 50, f"{TASK}-1-2")], 8),
        ([of_rules(5, 40, f"{TASK}-0-2")], 8),
    ],
)
def test_a_child_s_own_rewind_wins_over_its_parent_s_position_and_one_of_before_the_parent_does_not(
    startpoints, start
):
    grants = [with_rules(a_grant(epoch=2), 3)]

    starts = start_for(
        planned_for(1, 2, broadcast=(RULES,)), grants, [read_of_rules(TASK, 2, 8)], startpoints=startpoints
    )

    assert (start, TASK) == rules_of(starts)


def test_a_rewound_task_and_its_descendants_know_the_epoch_of_the_rewind():
    rewound = replace(a_grant(epoch=3, offset_next=7), epoch_rewound=2)

    assert 5 == start_for(planned_for(0, 1), [rewound], startpoints=[a_startpoint(5, 40)]).epoch_rewound
    assert (
        2
        == start_for(
            planned_for(1, 2), [rewound], startpoints=[a_startpoint(5, 40, "kafka.orders.0:0/2")]
        ).epoch_rewound
    )
    assert 0 == start_for(planned_for(0, 1), [a_grant()]).epoch_rewound


def test_a_copy_that_may_not_have_been_made_is_asked_for_again():
    """The child's grant moves on before the child committed anything.

    Its copy may be missing; its parent's is the same.
    """
    child = with_rules(a_grant(f"{TASK}-0-2", epoch=2, ssp_kb="kafka.orders.0:0/2"), 3, parent=TASK)
    planned = planned_for(0, 2, broadcast=(RULES,))

    assert (3, TASK) == rules_of(start_for(planned, [child]))
    assert (3, "") == rules_of(start_for(planned, [child], [at("kafka.orders.0:0/2", 2, 50)]))


PARTS = [f"{TASK}-{bucket}-4" for bucket in range(4)]


def of_four(bucket, epoch, *, parent=""):
    return with_rules(a_grant(PARTS[bucket], epoch=epoch, ssp_kb=f"kafka.orders.0:{bucket}/4"), 3, parent=parent)


@pytest.mark.parametrize(
    ("granted_again", "positions", "awaited"),
    [
        ([], [], PARTS[1:]),
        ([of_four(1, 6, parent=PARTS[0])], [], PARTS[1:]),
        ([of_four(1, 6, parent=PARTS[0])], [read_of_rules(PARTS[1], 6, 3)], PARTS[2:]),
        # Its position under an earlier grant is of an earlier copy.
        ([of_four(1, 6, parent=PARTS[0])], [read_of_rules(PARTS[1], 2, 3)], PARTS[1:]),
    ],
)
def test_the_task_whose_copy_the_others_take_waits_for_them(granted_again, positions, awaited):
    """Four parts, one task that never begins, and four parts again.

    The copy of the task is still that of the first part.
    """
    merged = with_rules(a_grant(epoch=5), 3, parent=PARTS[0])
    grants = GrantIndex([*(of_four(bucket, 1 + bucket) for bucket in range(4)), merged, *granted_again])
    plan = [planned_for(bucket, 4, broadcast=(RULES,)) for bucket in range(4)]
    read = PositionsRead(
        checkpoints={checkpoint.ssp_kb: checkpoint for checkpoint in positions}, progress={}, bounds={}
    )

    awaited_copies = [copies_awaited(planned, kin_of(plan), grants, read) for planned in plan]

    assert [tuple(awaited), (), (), ()] == awaited_copies


def test_no_bucket_waits_if_the_one_task_had_started():
    merged = with_rules(a_grant(epoch=5), 3, parent=PARTS[0])
    grants = GrantIndex([*(of_four(bucket, 1 + bucket) for bucket in range(4)), merged])
    plan = [planned_for(bucket, 4, broadcast=(RULES,)) for bucket in range(4)]
    read = PositionsRead(
        checkpoints={checkpoint.ssp_kb: checkpoint for checkpoint in [read_of_rules(TASK, 5, 3)]},
        progress={},
        bounds={},
    )

    assert [()] * 4 == [copies_awaited(planned, kin_of(plan), grants, read) for planned in plan]


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_position_of_an_epoch_that_the_stream_does_not_have_is_a_stream_that_lost_records(epoch) -> None:
    read = PositionsRead(checkpoints={SSP_KB: a_checkpoint(5, 42)}, progress={}, bounds={})

    if epoch < 5:
        with pytest.raises(TruncatedTopicError, match="wanted the-stream to hold the grant of epoch 5"):
            refuse_newer_positions(read, epoch, topic="the-stream")
    else:
        refuse_newer_positions(read, epoch, topic="the-stream")
