"""The table; that the JVM reads it the same way is an integration test (`test_key_bucket_is_the_same_in_the_jvm`)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samzapy.adapters.spark.lookup import LookupTable, lookup_table
from samzapy.model.ssp import SspKeyBucket
from samzapy.plan.elasticity import key_bucket


def a_table(*starts: tuple[str, int]) -> LookupTable:
    return lookup_table([(SspKeyBucket.parse(text), offset) for text, offset in starts])


def test_without_elasticity_each_partition_is_one_place() -> None:
    table = a_table(("kafka.orders.2:0/1", 20), ("kafka.orders.0:0/1", 7), ("kafka.refunds.1:0/1", 9))

    assert (
        LookupTable(factor=1, bases={"orders": 0, "refunds": 3}, routes=[1, -1, 0, -1, 2], floors=[7, 0, 20, 0, 9])
        == table
    )


def test_a_bucket_of_a_coarser_factor_stands_at_all_its_finer_places() -> None:
    table = a_table(("kafka.orders.0:1/2", 5), ("kafka.orders.0:2/4", 6))

    assert (4, [-1, 0, 1, 0], [0, 5, 6, 5]) == (table.factor, table.routes, table.floors)


def test_topics_stand_in_the_order_of_their_names_whatever_the_order_of_routes() -> None:
    one = a_table(("kafka.b.0:0/1", 1), ("kafka.a.0:0/1", 2))
    other = a_table(("kafka.a.0:0/1", 2), ("kafka.b.0:0/1", 1))

    assert one.bases == other.bases == {"a": 0, "b": 1}
    assert ([1, 0], [0, 1]) == (one.routes, other.routes)


def test_routes_of_one_input_that_several_tasks_read_stand_in_a_list() -> None:
    table = a_table(
        ("kafka.rules.0@a", 7), ("kafka.orders.0:0/2", 5), ("kafka.rules.0@b", 3), ("kafka.orders.0:1/2", 6)
    )

    assert ([1, 3, -2, -2], [5, 6, 3, 3], ((0, 2),)) == (table.routes, table.floors, table.lists)


def test_an_input_that_one_task_alone_reads_here_needs_no_list_whoever_owns_its_position() -> None:
    assert ([0], ()) == (a_table(("kafka.rules.0@a", 7)).routes, a_table(("kafka.rules.0@a", 7)).lists)


factors = st.sampled_from([1, 2, 4, 8])


@given(
    st.dictionaries(st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 3)), factors, min_size=1),
    st.lists(st.tuples(st.none() | st.binary(max_size=8), st.integers(0, 1000)), max_size=30),
)
def test_each_message_of_a_granted_partition_has_the_route_of_its_own_bucket(
    granted: dict[tuple[str, int], int], messages: list[tuple[bytes | None, int]]
) -> None:
    buckets = [
        SspKeyBucket.parse(f"kafka.{topic}.{partition}:{bucket}/{factor}")
        for (topic, partition), factor in granted.items()
        for bucket in range(factor)
    ]
    table = lookup_table([(ssp_kb, 10 * route) for route, ssp_kb in enumerate(buckets)])

    for topic, partition in granted:
        for key, offset in messages:
            place = (table.bases[topic] + partition) * table.factor + key_bucket(key, offset, table.factor)
            ssp_kb = buckets[table.routes[place]]
            assert (topic, partition) == (ssp_kb.ssp.stream, ssp_kb.ssp.partition)
            assert key_bucket(key, offset, ssp_kb.factor) == ssp_kb.bucket
            assert 10 * table.routes[place] == table.floors[place]
