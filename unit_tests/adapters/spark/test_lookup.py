"""The lookup table of starts.

That the JVM reads it the same way is tested in `test_key_bucket_is_the_same_in_the_jvm`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from samzapy.adapters.spark.lookup import workers_of
from samzapy.container.task.lookup_table import LookupTable, lookup_table
from samzapy.model.grant import BucketStart, Floor
from samzapy.model.ssp import SspKeyBucket
from samzapy.plan.elasticity import key_bucket


def a_start(text: str, offset_next: int, *floors: tuple[str, int]) -> BucketStart:
    return BucketStart(
        ssp_kb=SspKeyBucket.parse(text),
        offset_next=offset_next,
        floors=tuple(Floor(ssp_kb=SspKeyBucket.parse(floor), offset_next=offset) for floor, offset in floors),
    )


def a_table(*starts: tuple[str, int]) -> LookupTable:
    return lookup_table([a_start(text, offset) for text, offset in starts])


def test_without_elasticity_each_partition_is_one_place() -> None:
    table = a_table(("kafka.orders.2:0/1", 20), ("kafka.orders.0:0/1", 7), ("kafka.refunds.1:0/1", 9))

    assert (
        LookupTable(factor=1, bases={"orders": 0, "refunds": 3}, routes=[1, -1, 0, -1, 2], floors=[7, 0, 20, 0, 9])
        == table
    )


def test_a_bucket_of_a_coarser_factor_fills_all_its_finer_places() -> None:
    table = a_table(("kafka.orders.0:1/2", 5), ("kafka.orders.0:2/4", 6))

    assert (4, [-1, 0, 1, 0], [0, 5, 6, 5]) == (table.factor, table.routes, table.floors)


def test_topics_are_ordered_by_name_whatever_the_order_of_routes() -> None:
    one = a_table(("kafka.b.0:0/1", 1), ("kafka.a.0:0/1", 2))
    other = a_table(("kafka.a.0:0/1", 2), ("kafka.b.0:0/1", 1))

    assert one.bases == other.bases == {"a": 0, "b": 1}
    assert ([1, 0], [0, 1]) == (one.routes, other.routes)


def test_routes_of_one_input_that_several_tasks_read_are_in_a_list() -> None:
    table = a_table(
        ("kafka.rules.0@a", 7), ("kafka.orders.0:0/2", 5), ("kafka.rules.0@b", 3), ("kafka.orders.0:1/2", 6)
    )

    assert ([1, 3, -2, -2], [5, 6, 3, 3], ((0, 2),)) == (table.routes, table.floors, table.lists)


def test_an_input_that_only_one_task_reads_here_needs_no_list_of_routes() -> None:
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
    table = lookup_table([BucketStart(ssp_kb=ssp_kb, offset_next=10 * route) for route, ssp_kb in enumerate(buckets)])

    for topic, partition in granted:
        for key, offset in messages:
            place = (table.bases[topic] + partition) * table.factor + key_bucket(key, offset, table.factor)
            ssp_kb = buckets[table.routes[place]]
            assert (topic, partition) == (ssp_kb.ssp.stream, ssp_kb.ssp.partition)
            assert key_bucket(key, offset, ssp_kb.factor) == ssp_kb.bucket
            assert 10 * table.routes[place] == table.floors[place]


# --- floors ---


def test_a_floor_of_a_finer_factor_makes_the_table_as_fine_and_holds_in_its_bucket_alone() -> None:
    table = lookup_table(
        [a_start("kafka.orders.0:0/1", 5, ("kafka.orders.0:1/4", 9)), a_start("kafka.orders.1:0/1", 3)]
    )

    assert (4, [0, 0, 0, 0, 1, 1, 1, 1]) == (table.factor, table.routes)
    assert [5, 9, 5, 5, 3, 3, 3, 3] == table.floors


def test_a_floor_of_all_that_is_granted_counts_although_the_scan_begins_before_it() -> None:
    table = lookup_table([a_start("kafka.orders.0:0/1", 5, ("kafka.orders.0:0/1", 9))])

    assert (1, [9], True) == (table.factor, table.floors, table.has_floors)
    assert [-1, 0] == [_routed(table, None, offset) for offset in (8, 9)]


def test_a_floor_holds_for_every_bucket_of_a_finer_factor_that_refines_it() -> None:
    table = lookup_table(
        [a_start("kafka.orders.0:0/2", 5, ("kafka.orders.0:2/4", 9)), a_start("kafka.orders.1:7/8", 1)]
    )

    assert [5, 0, 9, 0, 5, 0, 9, 0] == table.floors[:8]


FINEST = 16


def _cut(positions: Sequence[int], factor: int) -> list[BucketStart]:
    """The starts at `factor` when each finest bucket was done up to its own position."""
    pieces = []
    for bucket in range(factor):
        start = min(positions[bucket::factor])
        floors = sorted(_floors(positions, bucket, factor, start), key=lambda floor: (floor[1], floor[0]))
        pieces.append(
            a_start(
                f"kafka.orders.0:{bucket}/{factor}",
                start,
                *((f"kafka.orders.0:{one}/{of}", offset) for one, of, offset in floors),
            )
        )
    return pieces


def _floors(positions: Sequence[int], bucket: int, factor: int, start: int) -> list[tuple[int, int, int]]:
    """The coarsest buckets within which all have one position, above the start."""
    within = positions[bucket::factor]
    if len(set(within)) == 1:
        return [(bucket, factor, within[0])] if within[0] > start else []
    return [
        *_floors(positions, bucket, 2 * factor, start),
        *_floors(positions, bucket + factor, 2 * factor, start),
    ]


def _routed(table: LookupTable, key: bytes | None, offset: int) -> int:
    place = key_bucket(key, offset, table.factor)
    return table.routes[place] if offset >= table.floors[place] else -1


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4, 8, FINEST]), st.lists(st.integers(0, 20), min_size=FINEST)), min_size=1
    ),
    st.sampled_from([1, 2, 4, 8, FINEST]),
    st.lists(st.tuples(st.none() | st.binary(max_size=4), st.integers(0, 80)), max_size=60),
)
def test_after_any_splits_and_merges_exactly_the_messages_that_are_not_done_have_a_route(
    changes: list[tuple[int, list[int]]], last: int, messages: list[tuple[bytes | None, int]]
) -> None:
    """A bucket of a finer factor refines one of a coarser factor, also without keys.

    `offset mod 2F` refines `offset mod F`.
    """
    positions = [0] * FINEST
    for factor, steps in changes:
        # Each task is done up to some position, in each of its buckets.
        for bucket, start in enumerate(_cut(positions, factor)):
            reached = start.offset_next + steps[bucket]
            for finest in range(bucket, FINEST, factor):
                positions[finest] = max(positions[finest], reached)

    table = lookup_table(_cut(positions, last))

    for key, offset in messages:
        is_done = offset < positions[key_bucket(key, offset, FINEST)]
        assert (-1 if is_done else key_bucket(key, offset, last)) == _routed(table, key, offset)


# --- which core ---


@given(st.integers(1, 8), st.lists(st.integers(1, 4), min_size=1, max_size=40))
def test_tasks_are_spread_evenly_over_the_cores_and_those_of_one_partition_that_fit_on_one_each(
    core_count: int, routes_of_tasks: list[int]
) -> None:
    numbers = iter(range(1000))
    tasks = [[next(numbers) for _ in range(count)] for count in routes_of_tasks]

    workers = workers_of(tasks, core_count)

    of_tasks = [{workers[route] for route in routes} for routes in tasks]
    assert all(1 == len(cores) for cores in of_tasks), "all routes of a task go to one core"
    loads = [sum(cores == {core} for cores in of_tasks) for core in range(core_count)]
    assert max(loads) - min(loads) <= 1
    # Virtual tasks of one partition are neighbours in the plan, in the order of their names.
    for first in range(len(tasks)):
        siblings = of_tasks[first : first + core_count]
        assert len(siblings) == len(set.union(*siblings))
