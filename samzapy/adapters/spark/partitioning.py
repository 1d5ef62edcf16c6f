"""Moves rows to Spark partitions that are named by number.

Spark 4.1 has `DataFrame.repartitionById`. Spark 4.0 has only the partitioning by hash, which takes a row to the
partition `hash of its key modulo number of partitions`. There, each partition gets a key whose hash leads to it.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_SEED: Final = 42
"""Of the Murmur3 hash in Spark's `HashPartitioning`."""
_32_BITS: Final = 0xFFFFFFFF


def repartition_by_id(frame: DataFrame, partition_count: int, number: Column) -> DataFrame:
    """The rows of `frame` in `partition_count` Spark partitions.

    Each row is in the partition that `number` gives.

    Args:
        number: an int from 0 to `partition_count - 1`.
    """
    if hasattr(DataFrame, "repartitionById"):
        return frame.repartitionById(partition_count, number)
    keys = F.array(*(F.lit(key) for key in keys_by_partition(partition_count)))
    return frame.repartition(partition_count, keys[number])


def keys_by_partition(partition_count: int) -> list[int]:
    """The smallest int >= 0 that Spark's hash takes to each partition."""
    keys: dict[int, int] = {}
    for key in count():
        keys.setdefault(hash_of_int(key) % partition_count, key)
        if len(keys) == partition_count:
            break
    return [keys[partition] for partition in range(partition_count)]


def hash_of_int(value: int) -> int:
    """Spark's `hash` of a column of type int: Murmur3 of 4 bytes, as a signed number."""
    mixed = _rotated(value * 0xCC9E2D51 & _32_BITS, 15) * 0x1B873593 & _32_BITS
    hashed = _rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _32_BITS
    hashed ^= 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _32_BITS
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _32_BITS
    hashed ^= hashed >> 16
    return hashed - (hashed >> 31 << 32)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _32_BITS
