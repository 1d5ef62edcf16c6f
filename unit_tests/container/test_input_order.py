"""The order in which a task reads its inputs.

Its use by a container is in `test_service`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import JobConfig
from samzapy.container.input_order import BootstrapInputs, batch_order
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.ssp import SspKeyBucket
from samzapy.testing.builders import a_config, a_grant, an_ssp_kb

TABLE, TABLE_1, ORDERS = (an_ssp_kb(f"kafka.{place}:0/1") for place in ("ztable.0", "ztable.1", "orders.0"))
BOOTSTRAP = {"systems_kafka_streams_ztable_samza_bootstrap": "true"}


def a_joined_task(name: str = "Partition_0", *ssp_kbs: SspKeyBucket, epoch: int = 1) -> Grant:
    starts = tuple(BucketStart(ssp_kb=ssp_kb, offset_next=0) for ssp_kb in ssp_kbs or (ORDERS, TABLE))
    return replace(a_grant(name, epoch=epoch), starts=starts)


def in_order(config: JobConfig, *texts: str) -> list[str]:
    starts = [BucketStart(ssp_kb=an_ssp_kb(text), offset_next=0) for text in texts]
    random.Random(1).shuffle(starts)
    return [str(start.ssp_kb).removesuffix(":0/1") for start in sorted(starts, key=batch_order(config))]


# --- within a micro-batch ---


def test_the_order_is_that_of_task_inputs_and_not_of_the_topics_names() -> None:
    assert ["kafka.b.0", "kafka.b.1", "kafka.a.0", "kafka.c.0"] == in_order(
        a_config(task_inputs="kafka.b,kafka.a,kafka.c"), "kafka.a.0", "kafka.b.1", "kafka.c.0", "kafka.b.0"
    )


def test_broadcast_inputs_come_first_in_the_order_of_their_setting() -> None:
    config = a_config(task_inputs="kafka.a", task_broadcast_inputs="z#0,kafka.y#[0-1]")

    assert ["kafka.z.0@t", "kafka.y.0@t", "kafka.y.1@t", "kafka.a.0"] == in_order(
        config, "kafka.a.0", "kafka.y.0@t", "kafka.y.1@t", "kafka.z.0@t"
    )


def test_under_all_ssps_to_single_task_inputs_keep_the_order_of_task_inputs() -> None:
    config = a_config(
        task_inputs="kafka.b,kafka.a", task_partition_scheme="all-ssps-to-single-task", processor_id="0"
    )

    assert ["kafka.b.0@Task_0", "kafka.a.0@Task_0"] == in_order(config, "kafka.a.0@Task_0", "kafka.b.0@Task_0")


def test_a_larger_priority_comes_before_broadcast_inputs_and_a_bootstrap_input_before_both() -> None:
    config = a_config(
        task_inputs="kafka.a,kafka.b,kafka.ztable",
        task_broadcast_inputs="kafka.rules",
        systems_kafka_streams_b_samza_priority="2",
        systems_kafka_streams_a_samza_priority="1",
        **BOOTSTRAP,
    )

    assert ["kafka.ztable.0", "kafka.b.0", "kafka.a.0", "kafka.rules.0@t"] == in_order(
        config, "kafka.a.0", "kafka.b.0", "kafka.rules.0@t", "kafka.ztable.0"
    )


def test_streams_of_patterns_follow_those_that_are_named_and_intermediate_streams_come_last() -> None:
    config = a_config(task_inputs="kafka.~y.*,kafka.~x.*,kafka.z", task_intermediate_a_partitions="1")
    own = config.intermediates[0].system_stream

    assert ["kafka.z.0", "kafka.y1.0", "kafka.y2.0", "kafka.x1.0", f"{own}.0"] == in_order(
        config, "kafka.x1.0", "kafka.y2.0", "kafka.y1.0", "kafka.z.0", f"{own}.0"
    )


# --- bootstrap ---


def begin(
    bootstrap: BootstrapInputs, grants: Sequence[Grant], starts: Mapping[SspKeyBucket, int], **ends: int
) -> set:
    by_topic = {ssp_kb: ends[ssp_kb.ssp.stream] for ssp_kb in starts}
    return set(bootstrap.begin(grants, starts, lambda ssp_kb: by_topic[ssp_kb]))


def test_a_task_whose_bootstrap_input_is_behind_reads_only_that() -> None:
    bootstrap = BootstrapInputs(a_config(task_inputs="kafka.orders,kafka.ztable", **BOOTSTRAP))

    assert {TABLE} == begin(bootstrap, [a_joined_task()], {ORDERS: 0, TABLE: 3}, orders=9, ztable=5)
    assert {TABLE: 5} == bootstrap.ends
    bootstrap.read_to({ORDERS: 0, TABLE: 4})
    assert not bootstrap.is_over
    bootstrap.read_to({ORDERS: 0, TABLE: 5})
    assert bootstrap.is_over
    assert {ORDERS, TABLE} == begin(bootstrap, [a_joined_task()], {ORDERS: 0, TABLE: 5}, orders=9, ztable=8)
    assert not bootstrap.is_over


@pytest.mark.parametrize(("table", "end"), [(5, 5), (0, 0)])
def test_a_bootstrap_input_that_is_at_its_end_is_waited_for_by_nothing(table: int, end: int) -> None:
    bootstrap = BootstrapInputs(a_config(task_inputs="kafka.orders,kafka.ztable", **BOOTSTRAP))

    assert {ORDERS, TABLE} == begin(bootstrap, [a_joined_task()], {ORDERS: 0, TABLE: table}, orders=9, ztable=end)
    # Later partitions are read beside the others, also when the query is started again.
    assert {ORDERS, TABLE} == begin(bootstrap, [a_joined_task()], {ORDERS: 0, TABLE: table}, orders=9, ztable=99)


def test_the_end_of_a_bootstrap_input_is_set_by_the_first_start_under_a_grant() -> None:
    bootstrap = BootstrapInputs(a_config(task_inputs="kafka.orders,kafka.ztable", **BOOTSTRAP))
    begin(bootstrap, [a_joined_task()], {ORDERS: 0, TABLE: 0}, orders=9, ztable=5)

    assert {TABLE} == begin(bootstrap, [a_joined_task()], {ORDERS: 0, TABLE: 2}, orders=9, ztable=7)
    assert {TABLE: 5} == bootstrap.ends
    assert {TABLE} == begin(bootstrap, [a_joined_task(epoch=2)], {ORDERS: 0, TABLE: 2}, orders=9, ztable=7)
    assert {TABLE: 7} == bootstrap.ends


def test_a_position_that_was_read_to_its_end_does_not_wait_again_though_its_progress_was_not_recorded() -> None:
    """A record after the last message of a bucket, such as a marker: no checkpoint."""
    bootstrap = BootstrapInputs(a_config(task_inputs="kafka.orders,kafka.ztable", **BOOTSTRAP))
    begin(bootstrap, [a_joined_task()], {ORDERS: 0, TABLE: 0}, orders=9, ztable=6)
    bootstrap.read_to({ORDERS: 0, TABLE: 6})

    assert {ORDERS, TABLE} == begin(bootstrap, [a_joined_task()], {ORDERS: 0, TABLE: 5}, orders=9, ztable=6)


def test_a_task_waits_for_all_partitions_of_its_own_bootstrap_inputs_and_for_no_other_task_s() -> None:
    bootstrap = BootstrapInputs(a_config(task_inputs="kafka.orders,kafka.ztable", **BOOTSTRAP))
    orders_1 = an_ssp_kb("kafka.orders.1:0/1")
    grants = [a_joined_task("a", ORDERS, TABLE, TABLE_1), a_joined_task("b", orders_1)]
    starts = {ORDERS: 0, TABLE: 0, TABLE_1: 5, orders_1: 0}

    assert {TABLE, TABLE_1, orders_1} == begin(bootstrap, grants, starts, orders=9, ztable=5)


def test_a_task_that_reads_nothing_else_has_no_bootstrap_phase() -> None:
    bootstrap = BootstrapInputs(a_config(task_inputs="kafka.orders,kafka.ztable", **BOOTSTRAP))

    assert {TABLE} == begin(bootstrap, [a_joined_task("a", TABLE)], {TABLE: 0}, ztable=5)
    assert {} == bootstrap.ends
    assert not bootstrap.waiting


@given(
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1),
    st.integers(0, 9),
    st.lists(st.integers(0, 4), max_size=30),
)
def test_no_other_input_is_read_before_each_bootstrap_position_has_reached_its_end(
    places: dict[int, tuple[int, int]], orders_end: int, steps: list[int]
) -> None:
    """The phase ends in any order of partitions, with restarts of the query between."""
    config = a_config(task_inputs="kafka.orders,kafka.ztable", **BOOTSTRAP)
    bootstrap = BootstrapInputs(config)
    at = {an_ssp_kb(f"kafka.ztable.{number}:0/1"): start for number, (start, _) in places.items()} | {ORDERS: 0}
    ends = {an_ssp_kb(f"kafka.ztable.{number}:0/1"): end for number, (_, end) in places.items()} | {
        ORDERS: orders_end
    }
    grant = a_joined_task("a", *at)
    read = bootstrap.begin([grant], at, ends.__getitem__)
    # 4 starts the query again; the rest of the list is read partition by partition.
    for step in [*steps, *[0] * 40]:
        behind = [ssp_kb for ssp_kb in ends if ssp_kb != ORDERS and at[ssp_kb] < ends[ssp_kb]]
        assert (ORDERS in read) == (not behind)
        if ORDERS in read:
            break
        if step == 4:
            read = bootstrap.begin([grant], at, ends.__getitem__)
            continue
        ssp_kb = behind[step % len(behind)]
        at[ssp_kb] += 1
        bootstrap.read_to(at)
        if bootstrap.is_over:
            read = bootstrap.begin([grant], at, ends.__getitem__)
    assert ORDERS in read
