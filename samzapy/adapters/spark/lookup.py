"""One JVM expression per record: which route takes it, if any; foreign records drop before they are decoded.

A record's place is (topic, partition, bucket), with bucket = pmod(xxhash64(key), L), or offset modulo L without a
key: the same rule as `plan.elasticity.key_bucket`, and a test runs both on random input. L is the finest factor in
force. The table stands in one binary literal of fixed-width decimal entries, read at a computed index: its size
does not change the plan (spark.md, additions: a CASE or a map of 8,000 entries takes seconds to plan).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from samzapy.model.ssp import SspKeyBucket

_ROUTE_WIDTH = 8
_FLOOR_WIDTH = 20
_FOREIGN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupTable:
    """Entries by place. `bases` gives the index of each topic's partition 0; `routes` and `floors` are the entries."""

    factor: int
    bases: Mapping[str, int]
    routes: Sequence[int]
    floors: Sequence[int]


def lookup_table(starts: Sequence[tuple[SspKeyBucket, int]]) -> LookupTable:
    """The table for routes in the order of `starts`: an SSPKb and its first offset each."""
    factor = max(ssp_kb.factor for ssp_kb, _ in starts)
    partitions: dict[str, int] = {}
    for ssp_kb, _ in starts:
        topic = ssp_kb.ssp.stream
        partitions[topic] = max(partitions.get(topic, 0), ssp_kb.ssp.partition + 1)
    bases, size = {}, 0
    for topic in sorted(partitions):
        bases[topic] = size
        size += partitions[topic]
    routes, floors = [_FOREIGN] * (size * factor), [0] * (size * factor)
    for route, (ssp_kb, offset) in enumerate(starts):
        place = (bases[ssp_kb.ssp.stream] + ssp_kb.ssp.partition) * factor
        for bucket in range(ssp_kb.bucket, factor, ssp_kb.factor):
            routes[place + bucket], floors[place + bucket] = route, offset
    return LookupTable(factor=factor, bases=bases, routes=routes, floors=floors)


def route_column(table: LookupTable) -> Column:
    """The record's route, or -1 when it is foreign or lies below its bucket's start."""
    index = _index(table)
    route = _entry(table.routes, index, _ROUTE_WIDTH)
    if _scan_starts_suffice(table):
        return route
    return F.when(F.col("offset") >= _entry(table.floors, index, _FLOOR_WIDTH), route).otherwise(F.lit(_FOREIGN))


def _scan_starts_suffice(table: LookupTable) -> bool:
    """With one bucket per partition the scan itself begins at the bucket's start."""
    return table.factor == 1


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
    literal = F.lit("".join(f"{entry:0{width}d}" for entry in entries).encode())
    # substring of a binary is a copy of `width` bytes; of a string it would walk over all entries before it.
    return F.substring(literal, index * width + 1, F.lit(width)).cast("string").cast("long")
