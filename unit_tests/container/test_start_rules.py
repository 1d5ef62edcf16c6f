from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.container.ports import TopicBounds
from samzapy.container.start_rules import (
    Positions,
    check_bounds,
    check_identity,
    copies_taken,
    positions_of,
    read_positions,
    stale_keys,
    start_offset,
    starts_of,
    superseded_keys,
)
from samzapy.errors import CorruptRecordError, LostRangeError, TopicIdentityError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.grant import BucketStart, Floor, Grant
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream
from samzapy.stream.codec import encode
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, ProgressPut, Removed, TermPut
from samzapy.testing.builders import a_config, a_grant, an_ssp, an_ssp_kb


def a_checkpoint(offset_next: int, *, epoch: int = 1, ssp_kb: str = "kafka.orders.0:0/1") -> CheckpointPut:
    return CheckpointPut(
        checkpoint=Checkpoint(
            ssp_kb=SspKeyBucket.parse(ssp_kb),
            offset_next=offset_next,
            epoch=epoch,
            task_name=TaskName("t"),
            execution_id=ExecutionId("e1"),
        )
    )


def a_progress(offset_next: int, *, epoch: int = 1, ssp_kb: str = "kafka.orders.0:0/1") -> ProgressPut:
    return ProgressPut(
        progress=Progress(
            ssp_kb=SspKeyBucket.parse(ssp_kb), offset_next=offset_next, epoch=epoch, execution_id=ExecutionId("e1")
        )
    )


GRANTED_FROM_10 = BucketStart(ssp_kb=an_ssp_kb(), offset_next=10)


def granted_from_10() -> Grant:
    return replace(a_grant("a", epoch=1), starts=(GRANTED_FROM_10,))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], 10),
        ([a_checkpoint(20)], 20),
        ([a_progress(30)], 30),
        ([a_checkpoint(20), a_progress(30)], 30),
        ([a_checkpoint(40), a_progress(30)], 40),
        ([a_checkpoint(5)], 10),
        ([a_checkpoint(20, epoch=0)], 10),
        ([a_progress(20, epoch=2)], 10),
        ([a_checkpoint(20), a_progress(99, epoch=0)], 20),
        ([a_checkpoint(20, ssp_kb="kafka.orders.0:0/2")], 10),
        ([a_checkpoint(20, ssp_kb="kafka.orders.1:0/1")], 10),
    ],
)
def test_the_start_is_the_largest_position_under_the_grant_s_own_epoch(
    records: list[CheckpointPut | ProgressPut], expected: int
) -> None:
    assert expected == start_offset(GRANTED_FROM_10, 1, positions_of(records))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 99), st.integers(0, 3)), max_size=8))
def test_nothing_written_under_another_epoch_moves_a_start(written: list[tuple[bool, int, int]]) -> None:
    records = [
        (a_checkpoint if is_checkpoint else a_progress)(offset, epoch=epoch)
        for is_checkpoint, offset, epoch in written
    ]
    latest = list({type(record): record for record in records}.values())
    own = [
        record
        for record in latest
        if (record.checkpoint if isinstance(record, CheckpointPut) else record.progress).epoch == 1
    ]

    assert start_offset(GRANTED_FROM_10, 1, positions_of(own)) == start_offset(
        GRANTED_FROM_10, 1, positions_of(records)
    )


def test_the_latest_record_of_a_bucket_counts_and_others_are_no_positions() -> None:
    term = TermPut(
        term=1, coordinator_id="c", host="h", boot_id="b", pid=1, process_started_ms=1, url="u", started_at_ms=1
    )

    positions = positions_of([a_checkpoint(20), term, a_checkpoint(15)])

    assert 15 == positions.checkpoints[an_ssp_kb()].offset_next
    assert {} == positions.progress


def positions_from(*entries: tuple[bytes, bytes | None]) -> Positions:
    records = [LogRecord(offset, 0, key, value) for offset, (key, value) in enumerate(entries)]
    return read_positions(records, topic="t")


CHECKPOINT = encode(a_checkpoint(20))


@pytest.mark.parametrize("value", [b"junk", b"", b"\xc3\x01" + bytes(9), (CHECKPOINT[1] or b"")[:-1]])
def test_an_unreadable_checkpoint_changes_no_other_position(value: bytes) -> None:
    key = CHECKPOINT[0]
    others = [(b"\xff", value), (b"checkpoint/what", value), (b"weather/today", None)]

    for records in (positions_from(CHECKPOINT, *others, (key, value)), positions_from((key, value), CHECKPOINT)):
        assert 20 == records.checkpoints[an_ssp_kb()].offset_next
        assert {an_ssp_kb(): 20} == starts_of([granted_from_10()], records)


def test_a_task_does_not_start_if_an_unreadable_record_may_have_replaced_its_position() -> None:
    """Compaction removed the earlier record of the key."""
    records = positions_from((CHECKPOINT[0], b"junk"))

    with pytest.raises(
        CorruptRecordError, match=r"t-0 at offset 0.*replaced the position of kafka.orders.0:0/1.*null"
    ):
        starts_of([granted_from_10()], records)
    assert {} == starts_of([], records)
    # The way out, and a position that was committed since.
    assert {an_ssp_kb(): 10} == starts_of(
        [granted_from_10()], positions_from((CHECKPOINT[0], b"junk"), (CHECKPOINT[0], None))
    )


def test_a_position_that_was_removed_is_none() -> None:
    positions = positions_of(
        [
            *(a_checkpoint(20), a_progress(30), a_checkpoint(8, ssp_kb="kafka.orders.1:0/1")),
            *(Removed(key="checkpoint/kafka.orders.0:0/1"), Removed(key="progress/kafka.orders.0:0/1")),
        ]
    )

    assert ([an_ssp_kb("kafka.orders.1:0/1")], []) == (list(positions.checkpoints), list(positions.progress))


def test_positions_of_earlier_runs_in_granted_buckets_are_stale() -> None:
    positions = positions_of(
        [
            *(a_checkpoint(20, epoch=5), a_progress(30, epoch=6)),
            *(a_checkpoint(1, epoch=6, ssp_kb="kafka.orders.1:0/1"), a_progress(2, ssp_kb="kafka.orders.1:0/1")),
            a_checkpoint(1, ssp_kb="kafka.orders.2:0/1"),
        ]
    )
    grants = [
        a_grant("a", epoch=7, counts_after=5),
        a_grant("b", epoch=8, counts_after=5, ssp_kb="kafka.orders.1:0/1"),
    ]

    assert [b"checkpoint/kafka.orders.0:0/1", b"progress/kafka.orders.1:0/1"] == stale_keys(grants, positions)
    assert [] == stale_keys([a_grant("a", epoch=7)], positions)


def test_positions_of_another_factor_are_dropped_when_their_grant_is_gone_from_the_log() -> None:
    positions = positions_of(
        [
            *(a_checkpoint(20, epoch=5), a_progress(30, epoch=6)),
            *(
                a_checkpoint(9, epoch=3, ssp_kb="kafka.orders.0:1/4"),
                a_checkpoint(9, epoch=4, ssp_kb="kafka.orders.0:2/4"),
            ),
            # Its own, which it will write over; a sibling's part; another partition's; and one of a newer grant.
            *(a_checkpoint(5, epoch=2, ssp_kb="kafka.orders.0:0/2"), a_progress(1, ssp_kb="kafka.orders.0:3/4")),
            *(a_checkpoint(1, ssp_kb="kafka.orders.1:0/1"), a_progress(1, epoch=12, ssp_kb="kafka.orders.0:0/4")),
        ]
    )
    grant = a_grant("a", epoch=9, ssp_kb="kafka.orders.0:0/2")

    assert [b"checkpoint/kafka.orders.0:2/4", b"progress/kafka.orders.0:0/1"] == superseded_keys(
        [grant], positions, {5, 9}
    )
    assert [] == superseded_keys([grant], positions, {4, 5, 6, 9})
    of_an_earlier_run = replace(grant, counts_after=5)
    assert [b"checkpoint/kafka.orders.0:0/1", b"checkpoint/kafka.orders.0:2/4"] == superseded_keys(
        [of_an_earlier_run], positions, {4, 5, 6, 9}
    )


def test_positions_in_a_broadcast_input_are_dropped_with_the_task_whose_buckets_were_taken_over() -> None:
    readers = ("Partition_3", "Partition_3-0-4", "Partition_3-1-4", "Partition_3-0-2", "Partition_30", "Partition_2")
    positions = positions_of([a_checkpoint(1, ssp_kb=f"kafka.rules.0@{reader}") for reader in readers])
    grants = [
        a_grant("Partition_3-0-2", epoch=7, ssp_kb="kafka.rules.0@Partition_3-0-2"),
        a_grant("Partition_2-0-2", epoch=8, ssp_kb="kafka.limits.0@Partition_2-0-2"),
    ]

    assert [
        b"checkpoint/kafka.rules.0@Partition_3",
        b"checkpoint/kafka.rules.0@Partition_3-0-4",
    ] == superseded_keys(grants, positions, {7, 8})


def test_a_task_that_copied_broadcast_stores_is_marked_until_it_has_committed() -> None:
    """The task whose copy it was waits for that checkpoint.

    There may be no message for a long time.
    """
    own, rules = an_ssp_kb("kafka.orders.0:1/4"), an_ssp_kb("kafka.rules.0@Partition_0-1-4")
    target = a_grant("Partition_0-1-4", epoch=7, ssp_kb=str(own))
    target = replace(target, starts=(*target.starts, BucketStart(ssp_kb=rules, offset_next=3)))
    starts = {own: 5, rules: 4}

    copied = replace(target, broadcast_parent="Partition_0-0-4")
    copies = copies_taken([copied], starts, {}, ExecutionId("e1"))

    assert [ProgressPut(progress=Progress(ssp_kb=rules, offset_next=4, epoch=7, execution_id=ExecutionId("e1")))] == (
        list(copies)
    )
    assert () == copies_taken([copied], starts, {own: 5}, ExecutionId("e1"))
    assert () == copies_taken([target], starts, {}, ExecutionId("e1"))


def test_each_bucket_of_each_grant_has_its_start() -> None:
    grants = [
        a_grant("a", ssp_kb="kafka.orders.0:0/2", offset_next=3),
        a_grant("b", epoch=2, ssp_kb="kafka.orders.0:1/2"),
    ]
    positions = positions_of([a_checkpoint(8, epoch=2, ssp_kb="kafka.orders.0:1/2")])

    assert {an_ssp_kb("kafka.orders.0:0/2"): 3, an_ssp_kb("kafka.orders.0:1/2"): 8} == dict(
        starts_of(grants, positions)
    )
    assert {} == dict(starts_of([], Positions()))


@pytest.mark.parametrize("offset", [100, 150, 200])
def test_a_start_within_the_topic_or_at_its_end_is_good(offset: int) -> None:
    check_bounds({an_ssp_kb(): offset}, {an_ssp(): TopicBounds(offset_first=100, offset_end=200)})


def test_a_start_below_the_first_record_names_the_lost_range_and_the_setting_that_accepts_it() -> None:
    with pytest.raises(LostRangeError) as lost:
        check_bounds({an_ssp_kb(): 40}, {an_ssp(): TopicBounds(offset_first=100, offset_end=200)})

    assert (
        "kafka.orders.0:0/1: wanted to read on from offset 40, but the topic now begins at 100: "
        "60 offsets, 40 to 99, are gone unread (retention, or deleted). Nothing was skipped. "
        "To give exactly this range up: --set task.lost.range.accept=kafka.orders.0:0/1@40-100"
    ) == str(lost.value)


def test_the_setting_that_accepts_a_lost_range_is_valid() -> None:
    with pytest.raises(LostRangeError) as lost:
        check_bounds({an_ssp_kb(): 40}, {an_ssp(): TopicBounds(offset_first=100, offset_end=200)})
    words = str(lost.value).rpartition("task.lost.range.accept=")[2]

    (accepted,) = a_config(task_lost_range_accept=words).accepted_losses

    assert ("kafka.orders.0:0/1", 40, 100) == (accepted.ssp_kb, accepted.offset_from, accepted.offset_to)


def test_several_lost_ranges_are_given_up_by_one_setting() -> None:
    ssps = [f"kafka.orders.{partition}" for partition in range(2)]
    starts = {an_ssp_kb(f"{ssp}:0/1"): 40 + number for number, ssp in enumerate(ssps)}
    with pytest.raises(LostRangeError) as lost:
        check_bounds(starts, {an_ssp(ssp): TopicBounds(offset_first=100, offset_end=200) for ssp in ssps})
    last = str(lost.value).splitlines()[-1]

    accepted = a_config(task_lost_range_accept=last.partition("task.lost.range.accept=")[2]).accepted_losses

    assert [("kafka.orders.0:0/1", 40), ("kafka.orders.1:0/1", 41)] == [
        (loss.ssp_kb, loss.offset_from) for loss in accepted
    ]


def test_a_start_past_the_end_means_that_the_log_was_cut() -> None:
    with pytest.raises(LostRangeError) as lost:
        check_bounds({an_ssp_kb(): 201}, {an_ssp(): TopicBounds(offset_first=100, offset_end=200)})

    assert (
        "kafka.orders.0:0/1: wanted to read on from offset 201, but the topic ends at 200: its log was cut (deleted "
        "and made again, or an unclean leader election), so offsets have changed their meaning. Nothing was read. "
        "Restore the topic, or start the job anew under another job.id"
    ) == str(lost.value)


def test_every_bucket_that_cannot_start_is_named_in_order() -> None:
    bounds = TopicBounds(offset_first=100, offset_end=200)
    starts = {
        an_ssp_kb("kafka.orders.1:0/1"): 300,
        an_ssp_kb("kafka.orders.0:1/2"): 1,
        an_ssp_kb("kafka.orders.0:0/2"): 150,
    }

    with pytest.raises(LostRangeError) as lost:
        check_bounds(starts, {an_ssp("kafka.orders.0"): bounds, an_ssp("kafka.orders.1"): bounds})

    assert ["kafka.orders.0:1/2", "kafka.orders.1:0/1"] == [
        line.partition(": ")[0] for line in str(lost.value).splitlines()
    ]


def test_an_input_that_is_the_topic_that_was_recorded_is_good() -> None:
    orders, refunds = SystemStream("kafka", "orders"), SystemStream("kafka", "refunds")

    assert frozenset() == check_identity(a_config(), {orders: "id-1"}, {orders: "id-1", refunds: "id-2"})


def test_missing_and_recreated_topics_of_a_pattern_are_left_out() -> None:
    config = a_config(task_inputs="kafka.orders,kafka.~.*")
    orders, gone, another = (SystemStream("kafka", name) for name in ("orders", "gone", "another"))

    left_out = check_identity(config, {orders: "1", gone: "2", another: "3"}, {orders: "1", another: "4"})

    assert frozenset({gone, another}) == left_out
    with pytest.raises(TopicIdentityError, match=r"kafka\.orders: wanted the topic with id 1, found 5"):
        check_identity(config, {orders: "1", gone: "2"}, {orders: "5"})


def test_an_input_that_was_made_again_is_refused_by_name_with_the_way_out() -> None:
    stream = SystemStream("kafka", "orders")

    with pytest.raises(TopicIdentityError) as refused:
        check_identity(a_config(), {stream: "id-1"}, {stream: "id-2"})

    assert (
        "kafka.orders: wanted the topic with id id-1, found id-2: it was deleted and made again, so checkpoints say "
        "nothing about it. Nothing of it is read. Start the job under another job.id to read the new topic from its "
        "beginning"
    ) == str(refused.value)


def test_a_floor_past_the_end_means_that_the_log_was_cut_too() -> None:
    floors = [Floor(ssp_kb=an_ssp_kb("kafka.orders.0:1/2"), offset_next=offset) for offset in (200, 201)]

    with pytest.raises(LostRangeError) as lost:
        check_bounds({an_ssp_kb(): 150}, {an_ssp(): TopicBounds(offset_first=100, offset_end=200)}, floors)

    assert str(lost.value).startswith(
        "kafka.orders.0:1/2: wanted to read on from offset 201, but the topic ends at 200"
    )
