"""The spread of keys over buckets: `scripts/bench scale spread`, without a broker.

A producer has chosen the partition by a hash of the key before the bucket is chosen by another one. Were both the same
hash, keys of one partition would leave buckets empty; that is shown beside it.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import bench_report as report
from bench_scale_job import Ground

from samzapy.plan.elasticity import key_bucket

KEYS = 1_000_000
PARTITIONS = 12
FACTORS = (2, 4, 8, 16, 32, 64)
_MULTIPLIER = 0x5BD1E995
_BITS_32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The keys of each bucket of each partition, against the partition's mean.

    Attributes:
        smallest, largest: the bucket with the fewest and the one with the most, over the mean of its partition.
        empty: buckets without any.
        variation: the standard deviation over the mean.
        chi_square: over its degrees of freedom; about 1 where keys fall by chance.
    """

    smallest: float
    largest: float
    empty: int
    variation: float
    chi_square: float


def spread(ground: Ground) -> str:
    """A table: smallest and largest bucket by partitioner and factor."""
    count = ground.sized(KEYS, 4_000)
    drawn = random.Random(ground.seed)
    shapes: Mapping[str, Sequence[bytes]] = {
        "numbers, `user-0000042`": [b"user-%07d" % number for number in range(count)],
        "16 random bytes": [drawn.randbytes(16) for _ in range(count)],
    }
    rows = []
    for shape, keys in shapes.items():
        xxhash = [key_bucket(key, 0, max(FACTORS)) for key in keys]
        for partitioner, hash_of in PARTITIONERS.items():
            hashes = [hash_of(key) for key in keys]
            partitions = [hashed % PARTITIONS for hashed in hashes]
            for factor in FACTORS:
                rows.append(_row(shape, partitioner, "xxhash64", factor, spread_of(partitions, xxhash, factor)))
            rows.append(_row(shape, partitioner, "the same", 4, spread_of(partitions, hashes, 4)))
    return "\n\n".join(
        [
            "## Elasticity: keys per bucket",
            report.table(
                (
                    *("keys", "partitioner", "bucket by", "factor", "keys per bucket"),
                    *("smallest", "largest", "empty", "variation", "chi-square"),
                ),
                [(*row[:4], f"{count / PARTITIONS / int(row[3]):,.0f}", *row[4:]) for row in rows],
            ),
            report.bullets(
                [
                    f"{count:,} different keys, {PARTITIONS} partitions, seed {ground.seed}. *Smallest* and *largest* "
                    "are of all buckets of all partitions, each over the mean of its partition; *variation* is the "
                    "standard deviation over the mean; *chi-square* is over its degrees of freedom, about 1 for keys "
                    "that fall by chance.",
                    "The last row of each group is why the bucket has a hash of its own: with the partitioner's, most "
                    "buckets of a partition would get nothing.",
                ]
            ),
        ]
    )


def spread_of(partitions: Sequence[int], hashes: Sequence[int], factor: int) -> Spread:
    """Of keys given by partition and hash."""
    counts = Counter(zip(partitions, (hashed % factor for hashed in hashes), strict=True))
    total_of = Counter(partitions)
    shares, chi_square = [], 0.0
    for partition, total in total_of.items():
        mean = total / factor
        for bucket in range(factor):
            count = counts[partition, bucket]
            shares.append(count / mean)
            chi_square += (count - mean) ** 2 / mean
    return Spread(
        smallest=min(shares),
        largest=max(shares),
        empty=shares.count(0.0),
        variation=(sum((share - 1) ** 2 for share in shares) / len(shares)) ** 0.5,
        chi_square=chi_square / (len(total_of) * (factor - 1)),
    )


def murmur2(key: bytes) -> int:
    """Kafka's murmur2 of a key, made positive as Java's partitioner does."""
    length = len(key)
    hashed = (0x9747B28C ^ length) & _BITS_32
    whole = length - length % 4
    for at in range(0, whole, 4):
        block = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _BITS_32
        block = (block ^ block >> 24) * _MULTIPLIER & _BITS_32
        hashed = hashed * _MULTIPLIER & _BITS_32 ^ block
    if length % 4:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _BITS_32
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _BITS_32
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF


PARTITIONERS: Mapping[str, Callable[[bytes], int]] = {"murmur2 (Java)": murmur2, "crc32 (librdkafka)": zlib.crc32}


def _row(shape: str, partitioner: str, bucket_by: str, factor: int, spread: Spread) -> tuple[str, ...]:
    return (
        shape,
        partitioner,
        bucket_by,
        f"{factor}",
        f"**{spread.smallest:.3f}**",
        f"**{spread.largest:.3f}**",
        f"{spread.empty}",
        f"{spread.variation:.4f}",
        f"{spread.chi_square:.2f}",
    )
