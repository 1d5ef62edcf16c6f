"""Look up the route of each record with one JVM expression.

Foreign records are dropped before they are decoded. A record of an SSP that several tasks here read (a broadcast input)
has several routes. Such a list of routes has a number of its own in the table, below -1, and `one_row_per_route` makes
a row for each route.

A record's place is (topic, partition, bucket), with bucket = pmod(xxhash64(key), L), or offset modulo L without a key.
The table is `container.task.lookup_table`, and `tail_routes` beside it has the same rule in Python; a test runs both on
random input. Here the table is one literal, read at a computed index, so its size does not change the
plan (measured: a CASE or a map of 8,000 entries takes seconds to plan).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from samzapy.container.task.lookup_table import FIRST_LIST, FOREIGN, LookupTable

_ROUTE_WIDTH = 8
_FLOOR_WIDTH = 20
# Spark makes the array again for each micro-batch: 1 ms for a thousand entries, half a second for a hundred thousand.
_IN_ARRAY_AT_MOST = 4096


def route_column(table: LookupTable) -> Column:
    """The record's route, or its list of routes.

    It is -1 if the record is foreign or already processed.
    """
    index = _index(table)
    route = _entry(table.routes, index, _ROUTE_WIDTH)
    if _scan_starts_suffice(table):
        return route
    return F.when(F.col("offset") >= _entry(table.floors, index, _FLOOR_WIDTH), route).otherwise(F.lit(FOREIGN))


def is_ours(route: Column) -> Column:
    """Whether the record has a route, or several."""
    return route != F.lit(FOREIGN)


def one_row_per_route(frame: DataFrame, table: LookupTable) -> DataFrame:
    """Give each record of a list of routes one row per route.

    `frame` has the column of `route_column`. Records below a route's own start are not dropped here, because a worker
    skips them.
    """
    if not table.lists:
        return frame
    counts = [len(routes) for routes in table.lists]
    firsts = [0, *accumulate(counts)][:-1]
    # Without a list the number is invalid, but then it is not used: a CASE stops at the first branch that fits.
    number = (F.lit(FIRST_LIST) - F.col("route")).cast("int")
    single = F.col("route") >= 0
    count = F.when(single, F.lit(1)).otherwise(_entry(counts, number, _ROUTE_WIDTH).cast("int"))
    spread = frame.select("*", F.explode(F.sequence(F.lit(1), count)).alias("nth"))
    position = _entry(firsts, number, _ROUTE_WIDTH).cast("int") + F.col("nth") - 1
    shared = _entry([route for routes in table.lists for route in routes], position, _ROUTE_WIDTH)
    return spread.withColumn("route", F.when(single, F.col("route")).otherwise(shared)).drop("nth")


def worker_column(tasks: Sequence[Sequence[int]], worker_count: int) -> Column:
    """The Spark partition of a row, of `worker_count`, by its column `route`.

    Whole tasks are assigned in turn.

    Args:
        tasks: the routes of each task.
    """
    return _entry(workers_of(tasks, worker_count), F.col("route").cast("int"), _ROUTE_WIDTH).cast("int")


def workers_of(tasks: Sequence[Sequence[int]], worker_count: int) -> Sequence[int]:
    """The Spark partition of each route.

    Virtual tasks of a partition are neighbours in `tasks`, so they are spread over all cores.
    """
    workers = {route: number % worker_count for number, routes in enumerate(tasks) for route in routes}
    return [workers[route] for route in sorted(workers)]


def _scan_starts_suffice(table: LookupTable) -> bool:
    """Whether the scan itself begins at each bucket's start.

    It does with one bucket per partition.
    """
    return table.factor == 1 and not table.has_floors


def _index(table: LookupTable) -> Column:
    base: Column | None = None
    for topic, first in sorted(table.bases.items()):
        matches = F.col("topic") == F.lit(topic)
        base = F.when(matches, F.lit(first)) if base is None else base.when(matches, F.lit(first))
    assert base is not None
    place = F.lit(0) if len(table.bases) == 1 else base
    return (place + F.col("partition")) * F.lit(table.factor) + _bucket(table.factor)


def _bucket(factor: int) -> Column:
    if factor == 1:
        return F.lit(0)
    # xxhash64 skips nulls and would put every message without a key into one bucket.
    of_key = F.when(F.col("key").isNull(), F.col("offset")).otherwise(F.xxhash64(F.col("key")))
    return F.pmod(of_key, F.lit(factor).cast("long")).cast("int")


def _entry(entries: Sequence[int], index: Column, width: int) -> Column:
    """The entry at `index`; null for null, an error beyond the end.

    `width` is the number of digits of the longest entry.
    """
    if len(entries) <= _IN_ARRAY_AT_MOST:
        return F.split(F.lit(" ".join(map(str, entries))), " ").cast("array<long>")[index]
    # This needs no preparation per batch, but reading a number costs ten times as much.
    literal = F.lit("".join(f"{entry:0{width}d}" for entry in entries).encode())
    # `substring` of a binary copies `width` bytes; of a string it would walk over all entries before.
    return F.substring(literal, index * width + 1, F.lit(width)).cast("string").cast("long")
