"""Whether keys of several inputs meet in one task, by counts and sampled keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.model.job import JobModel
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.plan.input_keys import InputKeys, look_at_keys, refusal_of, warnings_of
from samzapy.plan.job_plan import plan_job
from samzapy.plan.partitioners import HASHES, Partitioner
from samzapy.testing.builders import a_config

MURMUR2, CRC32, FNV1A = Partitioner
ORDERS, CUSTOMERS = (SystemStream("kafka", name) for name in ("orders", "customers"))
KEYS = [f"customer-{number}".encode() for number in range(200)]
Sample = Mapping[SystemStreamPartition, frozenset[bytes]]


def a_plan(
    orders: int = 4, customers: int = 4, *, previous: JobModel | None = None, scheme: str = "cogroup", factor: int = 1
) -> JobModel:
    config = a_config(
        task_inputs="kafka.orders,kafka.customers",
        task_partition_scheme=scheme,
        stores_seen_msg_serde="json",
        local_store_dir="/data",
    )
    return plan_job(config, {ORDERS: orders, CUSTOMERS: customers}, previous, ["0"], factor=factor)


def written(
    stream: SystemStream, count: int, by: Partitioner | Callable[[bytes], int], keys: Iterable[bytes] = KEYS
) -> Sample:
    """The sample of a topic of `count` partitions that this partitioner wrote."""
    hash_of = HASHES[by] if isinstance(by, Partitioner) else by
    keys_written: dict[SystemStreamPartition, set[bytes]] = {}
    for key in keys:
        ssp = SystemStreamPartition(stream.system, stream.stream, hash_of(key) % count)
        keys_written.setdefault(ssp, set()).add(key)
    return {ssp: frozenset(keys) for ssp, keys in keys_written.items()}


def partitioners(keys: InputKeys) -> dict[str, Partitioner | None]:
    return {seen.system_stream.stream: seen.partitioner for group in keys.streams for seen in group}


@pytest.mark.parametrize("by", Partitioner)
@pytest.mark.parametrize("count", [2, 3, 12])
def test_the_keys_of_a_topic_show_its_partitioner(by: Partitioner, count: int) -> None:
    keys_of = {**written(ORDERS, count, by), **written(CUSTOMERS, count, by)}

    input_keys = look_at_keys(keys_of, a_plan(count, count))

    assert {"orders": by, "customers": by} == partitioners(input_keys)
    assert ("", ()) == (refusal_of(input_keys), warnings_of(input_keys))


def test_inputs_of_one_task_by_two_partitioners_are_refused_with_counts_and_the_way_out() -> None:
    keys_of = {**written(ORDERS, 4, CRC32), **written(CUSTOMERS, 8, MURMUR2)}

    refusal = refusal_of(look_at_keys(keys_of, a_plan(4, 8)))

    assert refusal.startswith(
        "kafka.orders, kafka.customers: wanted one partitioner for the inputs of one task, because the job keeps state "
        "by key; found "
    )
    assert "murmur2 in kafka.customers (200 of 200 sampled keys)" in refusal
    assert "CRC32 in kafka.orders (200 of 200 sampled keys)" in refusal
    assert "partitioner=murmur2_random" in refusal
    assert "task.partitioner.check=warn" in refusal


@pytest.mark.parametrize("others", [(MURMUR2, CRC32), (MURMUR2, FNV1A), (CRC32, FNV1A)])
def test_keys_that_are_in_one_topic_only_show_the_partitioner_too(others: tuple[Partitioner, Partitioner]) -> None:
    keys_of = {**written(ORDERS, 4, others[0], KEYS[:100]), **written(CUSTOMERS, 4, others[1], KEYS[100:])}

    input_keys = look_at_keys(keys_of, a_plan())

    assert {"orders": others[0], "customers": others[1]} == partitioners(input_keys)
    assert refusal_of(input_keys)


def test_keys_in_several_topics_show_an_unknown_partitioner() -> None:
    keys_of = {**written(ORDERS, 4, MURMUR2), **written(CUSTOMERS, 4, lambda key: key[-1])}

    refusal = refusal_of(look_at_keys(keys_of, a_plan()))

    assert "wanted a key of both in one task" in refusal
    assert "of 200 sampled keys that are in both in different tasks (customer-" in refusal


def test_a_partitioner_that_no_client_has_is_a_warning_where_no_key_is_in_both_and_none_where_they_meet() -> None:
    apart = {**written(ORDERS, 4, MURMUR2, KEYS[:100]), **written(CUSTOMERS, 4, lambda key: key[-1], KEYS[100:])}
    together = {**written(ORDERS, 4, lambda key: key[-1]), **written(CUSTOMERS, 4, lambda key: key[-1])}

    [warning] = warnings_of(look_at_keys(apart, a_plan()))
    assert warning.startswith("neither of murmur2, CRC32, FNV-1a in kafka.customers (at best ")
    assert warning.endswith("whether its keys meet those of kafka.orders is not known")
    assert "" == refusal_of(look_at_keys(apart, a_plan()))
    assert ("", ()) == (
        refusal_of(look_at_keys(together, a_plan())),
        warnings_of(look_at_keys(together, a_plan())),
    )


def test_a_few_records_in_another_partition_than_the_rest_are_a_warning() -> None:
    """As of a producer that names the partition itself."""
    strays = KEYS[:3]
    keys_of = {
        **written(ORDERS, 4, MURMUR2),
        **written(CUSTOMERS, 4, lambda key: HASHES[MURMUR2](key) + (key in strays)),
    }

    input_keys = look_at_keys(keys_of, a_plan())

    assert "" == refusal_of(input_keys)
    [warning] = warnings_of(input_keys)
    assert warning.startswith("3 of 200 sampled keys that are in both kafka.customers and kafka.orders are in ")


def test_too_few_keys_refuse_nothing() -> None:
    keys_of = {**written(ORDERS, 4, MURMUR2, KEYS[:9]), **written(CUSTOMERS, 4, CRC32, KEYS[:9])}

    input_keys = look_at_keys(keys_of, a_plan())

    assert {"orders": None, "customers": None} == partitioners(input_keys)
    assert "" == refusal_of(input_keys)


def test_records_without_a_key_and_with_the_empty_key_show_nothing() -> None:
    """librdkafka puts the empty key anywhere, or into one partition.

    The variant of the partitioner decides.
    """
    everywhere = {
        SystemStreamPartition("kafka", name, number): frozenset([b""])
        for name in ("orders", "customers")
        for number in range(4)
    }

    input_keys = look_at_keys(everywhere, a_plan())

    assert {"orders": None, "customers": None} == partitioners(input_keys)
    assert [0, 0] == [seen.key_count for group in input_keys.streams for seen in group]


def test_inputs_of_different_tasks_may_differ() -> None:
    keys_of = {**written(ORDERS, 4, CRC32), **written(CUSTOMERS, 4, MURMUR2)}

    input_keys = look_at_keys(keys_of, a_plan(scheme="max"))

    assert ((), "", ()) == (input_keys.streams, refusal_of(input_keys), warnings_of(input_keys))


def test_all_keys_meet_where_there_is_one_task() -> None:
    keys_of = {**written(ORDERS, 3, CRC32), **written(CUSTOMERS, 4, MURMUR2)}

    input_keys = look_at_keys(keys_of, a_plan(3, 4))

    assert ("", ()) == (refusal_of(input_keys), warnings_of(input_keys))


def test_the_tasks_show_a_topic_that_grew_under_a_job_with_state() -> None:
    """Keys that were written before are in partitions of the old count.

    They are in the same tasks.
    """
    grown = a_plan(8, 4, previous=a_plan(4, 4))
    before, after = written(ORDERS, 4, CRC32, KEYS[:100]), written(ORDERS, 8, CRC32, KEYS[100:])
    both = {ssp: before.get(ssp, frozenset()) | after.get(ssp, frozenset()) for ssp in {*before, *after}}

    input_keys = look_at_keys({**both, **written(CUSTOMERS, 4, MURMUR2)}, grown)

    assert {"orders": CRC32, "customers": MURMUR2} == partitioners(input_keys)


def test_different_partition_counts_under_group_by_partition_are_a_warning_whatever_the_hash() -> None:
    plan = a_plan(8, 12, scheme="group-by-partition")

    input_keys = look_at_keys({**written(ORDERS, 8, MURMUR2), **written(CUSTOMERS, 12, MURMUR2)}, plan)

    [warning] = warnings_of(input_keys)
    assert warning.startswith("kafka.customers has 12 partitions and kafka.orders 8, and both are read by the same")
    assert "" == refusal_of(input_keys)
    assert warnings_of(look_at_keys({}, plan)) == (warning,)
    # Cogroup brings these together, and so does the state of a job that a topic grew under.
    assert () == warnings_of(look_at_keys({}, a_plan(8, 12)))
    grown = a_plan(8, 4, previous=a_plan(4, 4, scheme="group-by-partition"), scheme="group-by-partition")
    assert () == warnings_of(look_at_keys({}, grown))


def test_an_intermediate_stream_has_another_key_so_its_partitioner_refuses_nothing() -> None:
    others = [f"group-{number}".encode() for number in range(200)]
    apart = look_at_keys(
        {**written(CUSTOMERS, 4, CRC32), **written(ORDERS, 4, MURMUR2, others)}, a_plan(), own=[ORDERS]
    )
    same = look_at_keys({**written(CUSTOMERS, 4, CRC32), **written(ORDERS, 4, MURMUR2)}, a_plan(), own=[ORDERS])

    assert ("", ()) == (refusal_of(apart), warnings_of(apart))
    # Nor do their numbers of partitions.
    uneven = look_at_keys({}, a_plan(8, 12, scheme="group-by-partition"), own=[ORDERS])
    assert () == warnings_of(uneven)
    assert "" == refusal_of(same)
    [warning] = warnings_of(same)
    assert "of 200 sampled keys that are in both kafka.customers and kafka.orders are in different tasks" in warning


def test_key_buckets_make_no_difference() -> None:
    keys_of = {**written(ORDERS, 4, CRC32), **written(CUSTOMERS, 4, MURMUR2)}

    assert look_at_keys(keys_of, a_plan()) == look_at_keys(keys_of, a_plan(factor=4))


@given(
    st.sampled_from(list(Partitioner)),
    st.sampled_from(list(Partitioner)),
    st.integers(1, 12),
    st.integers(1, 12),
    st.lists(st.binary(min_size=1, max_size=12), min_size=150, max_size=150, unique=True),
)
def test_a_job_is_refused_only_where_keys_do_not_meet(
    by: Partitioner, other: Partitioner, orders: int, customers: int, keys: list[bytes]
) -> None:
    plan = a_plan(orders, customers)
    keys_of = {**written(ORDERS, orders, by, keys), **written(CUSTOMERS, customers, other, keys)}

    input_keys = look_at_keys(keys_of, plan)

    tasks = {ssp_kb.ssp: task.name for task in plan.tasks for ssp_kb in task.ssp_kbs}
    places: dict[bytes, set[str]] = {}
    for ssp, sampled in keys_of.items():
        for key in sampled:
            places.setdefault(key, set()).add(tasks[ssp])
    apart = sum(len(tasks) > 1 for tasks in places.values())
    # With 150 keys chance explains neither.
    assert bool(refusal_of(input_keys)) == (apart > 0) == (by is not other and len(set(tasks.values())) > 1)
