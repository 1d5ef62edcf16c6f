from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition, is_covered
from samzapy.plan.elasticity import key_bucket
from samzapy.plan.task_names import TaskNameParts

# Everything Kafka allows in a topic's name, the unpleasant ones among them.
streams = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True) | st.sampled_from(
    [".a", "a.", "a..b", "1", "1.2", "a-1-4", "orders.3", "-", "_", "...", "Partition_3"]
)
systems = st.from_regex(r"[A-Za-z0-9_]{1,20}", fullmatch=True)
ssps = st.builds(SystemStreamPartition, systems, streams, st.integers(0, 10**9))


@st.composite
def key_buckets(draw: st.DrawFn, of: st.SearchStrategy[SystemStreamPartition] = ssps) -> SspKeyBucket:
    factor = 2 ** draw(st.integers(0, 8))
    return SspKeyBucket(draw(of), draw(st.integers(0, factor - 1)), factor)


# Of a broadcast input; users may name their tasks as they like.
readers = st.text(min_size=1, max_size=30) | ssps.map("SystemStreamPartition_{}-1-4".format)
as_read_by_a_task = st.builds(SspKeyBucket, ssps, st.just(0), st.just(1), readers)


@given(ssps)
def test_every_legal_topic_name_survives_in_all_text_forms(ssp: SystemStreamPartition) -> None:
    assert ssp.system_stream == SystemStream.parse(str(ssp.system_stream))
    assert ssp == SystemStreamPartition.parse(str(ssp))
    assert SspKeyBucket(ssp) == SspKeyBucket.parse(str(ssp))


@given(key_buckets() | as_read_by_a_task)
def test_every_key_bucket_survives_its_text_form(ssp_kb: SspKeyBucket) -> None:
    assert ssp_kb == SspKeyBucket.parse(str(ssp_kb))


@given(key_buckets())
def test_every_task_name_survives_with_every_legal_topic_name(ssp_kb: SspKeyBucket) -> None:
    of_ssp = TaskNameParts(base=ssp_kb.ssp, bucket=ssp_kb.bucket, factor=ssp_kb.factor)
    of_partition = TaskNameParts(base=ssp_kb.ssp.partition, bucket=ssp_kb.bucket, factor=ssp_kb.factor)

    assert of_ssp == TaskNameParts.parse(of_ssp.name)
    assert of_partition == TaskNameParts.parse(of_partition.name)


@given(key_buckets() | as_read_by_a_task, key_buckets() | as_read_by_a_task)
def test_two_key_buckets_never_share_a_text_form(one: SspKeyBucket, other: SspKeyBucket) -> None:
    assert (one == other) == (str(one) == str(other))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kafka",
        "kafka.orders",
        ".orders.3",
        "kafka..3",
        "kafka.3",
        "kafka.orders.03",
        "kafka.orders.-1",
        "kafka.orders.",
        "kafka.orders.٣",
        "kafka.orders.3 ",
        "kafka.orders.+3",
        "kafka.orders.3_0",
    ],
)
def test_a_text_that_is_no_ssp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        SystemStreamPartition.parse(text)


@pytest.mark.parametrize(
    "rest", [":", ":1", ":1/", ":/4", ":4/4", ":1/3", ":0/0", ":0/512", ":01/4", ":1/4/8", ":-1/4", ":0/1@task", "@"]
)
def test_a_text_that_is_no_key_bucket_is_refused(rest: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        SspKeyBucket.parse(f"kafka.orders.3{rest}")


@pytest.mark.parametrize(("system", "stream"), [("", "orders"), ("kafka", ""), ("a.b", "orders")])
def test_a_system_has_no_dots_and_neither_part_is_empty(system: str, stream: str) -> None:
    with pytest.raises(ValueError, match="wanted a system without dots and a stream"):
        SystemStream(system, stream)


one_ssp = st.just(SystemStreamPartition("kafka", "orders", 3))


@given(key_buckets(one_ssp), key_buckets(one_ssp))
def test_buckets_overlap_exactly_when_some_message_falls_into_both(one: SspKeyBucket, other: SspKeyBucket) -> None:
    # Messages without a key go by offset, so 256 offsets are every bucket there can be.
    shared = [
        offset
        for offset in range(256)
        if key_bucket(None, offset, one.factor) == one.bucket
        and key_bucket(None, offset, other.factor) == other.bucket
    ]

    assert bool(shared) == one.overlaps(other) == other.overlaps(one)


@given(key_buckets(one_ssp), st.lists(key_buckets(one_ssp), max_size=6))
@example(
    SspKeyBucket.parse("kafka.orders.3:1/2"), [SspKeyBucket.parse(f"kafka.orders.3:{n}") for n in ("1/4", "3/4")]
)
@example(
    SspKeyBucket.parse("kafka.orders.3:1/2"), [SspKeyBucket.parse(f"kafka.orders.3:{n}") for n in ("1/4", "7/8")]
)
@example(SspKeyBucket.parse("kafka.orders.3:3/4"), [SspKeyBucket.parse("kafka.orders.3:1/2")])
def test_a_bucket_is_covered_exactly_when_each_message_of_it_falls_into_one_of_the_others(
    bucket: SspKeyBucket, others: list[SspKeyBucket]
) -> None:
    def falls_into(offset: int, bucket: SspKeyBucket) -> bool:
        return key_bucket(None, offset, bucket.factor) == bucket.bucket

    left_out = [
        offset
        for offset in range(256)
        if falls_into(offset, bucket) and not any(falls_into(offset, other) for other in others)
    ]

    pairs = [(other.bucket, other.factor) for other in others]
    assert (not left_out) == is_covered((bucket.bucket, bucket.factor), pairs)


@given(key_buckets())
def test_buckets_of_two_partitions_never_overlap(ssp_kb: SspKeyBucket) -> None:
    elsewhere = SystemStreamPartition(ssp_kb.ssp.system, ssp_kb.ssp.stream, ssp_kb.ssp.partition + 1)

    assert not ssp_kb.overlaps(SspKeyBucket(elsewhere))


def test_an_input_that_tasks_read_for_themselves_overlaps_only_with_itself() -> None:
    ours, theirs = (SspKeyBucket.parse(f"kafka.rules.0@{task}") for task in ("Partition_0", "Partition_1"))

    assert ours.overlaps(ours)
    assert not ours.overlaps(theirs)
    assert not ours.overlaps(SspKeyBucket.parse("kafka.rules.0:0/1"))
    assert not SspKeyBucket.parse("kafka.rules.0:0/1").overlaps(ours)


def test_a_task_reads_all_of_a_broadcast_partition_for_itself_or_none() -> None:
    with pytest.raises(
        ValueError, match="wanted all of kafka.rules.0 for its reader Partition_0, found a factor of 2"
    ):
        SspKeyBucket(SystemStreamPartition.parse("kafka.rules.0"), 1, 2, "Partition_0")


def test_ssps_are_ordered_by_the_number_of_the_partition_not_by_its_text() -> None:
    texts = ["kafka.a.10", "kafka.b.0", "kafka.a.9"]

    assert ["kafka.a.9", "kafka.a.10", "kafka.b.0"] == [
        str(ssp) for ssp in sorted(map(SystemStreamPartition.parse, texts))
    ]
