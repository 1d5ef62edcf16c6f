"""The routes of an input's records, by place.

A record's place is (topic, partition, bucket), with the bucket of `plan.elasticity.key_bucket` for a factor L. L is the
finest factor of the routes and of their floors, so all messages of a place have one route and one first unprocessed
offset: the route's start, or its floor after a merge. The JVM reads the table in `adapters.spark.lookup`, a worker in
`tail_routes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from samzapy.model.grant import BucketStart

FOREIGN = -1
"""The entry of a place without a route."""
FIRST_LIST = -2
"""The entry of the first list of routes; the next ones are below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupTable:
    """Routes and first offsets by place.

    `bases` has the index of each topic's partition 0.

    Attributes:
        floors: the first unprocessed offset of each place.
        lists: routes that share their records; the entry of the n-th list is -2 - n.
        has_floors: whether some place is processed beyond the start of its route.
    """

    factor: int
    bases: Mapping[str, int]
    routes: Sequence[int]
    floors: Sequence[int]
    lists: Sequence[Sequence[int]] = ()
    has_floors: bool = False


def lookup_table(starts: Sequence[BucketStart]) -> LookupTable:
    """The table for routes in the order of `starts`."""
    factor = max(start.finest_factor for start in starts)
    bases, partition_count = _bases(starts)
    size = partition_count * factor
    taken: list[list[int]] = [[] for _ in range(size)]
    floors: dict[int, int] = {}
    for route, start in enumerate(starts):
        ssp = start.ssp_kb.ssp
        first = (bases[ssp.stream] + ssp.partition) * factor
        for bucket, offset in start.positions(factor).items():
            place = first + bucket
            taken[place].append(route)
            # With several routes, each worker skips the records below its own start.
            floors[place] = min(offset, floors.get(place, offset))
    entries, lists = _numbered(taken)
    return LookupTable(
        factor=factor,
        bases=bases,
        routes=entries,
        floors=[floors.get(place, 0) for place in range(size)],
        lists=lists,
        has_floors=any(start.floors for start in starts),
    )


def _bases(starts: Sequence[BucketStart]) -> tuple[Mapping[str, int], int]:
    """The index of each topic's partition 0, and the number of all partitions."""
    counts: dict[str, int] = {}
    for ssp in (start.ssp_kb.ssp for start in starts):
        counts[ssp.stream] = max(counts.get(ssp.stream, 0), ssp.partition + 1)
    bases, size = {}, 0
    for topic in sorted(counts):
        bases[topic] = size
        size += counts[topic]
    return bases, size


def _numbered(taken: Sequence[Sequence[int]]) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
    """One number for the routes of each place, and the numbered lists of routes."""
    lists = sorted({tuple(routes) for routes in taken if len(routes) > 1})
    numbers = {routes: FIRST_LIST - number for number, routes in enumerate(lists)}
    entries = [numbers[tuple(routes)] if len(routes) > 1 else routes[0] if routes else FOREIGN for routes in taken]
    return entries, tuple(lists)
