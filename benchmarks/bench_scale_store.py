"""A store before and after its split (`scripts/bench scale store`), brokerless.

The split is that of a container: `hand_over`, from a file to files, by key bucket.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import bench_report as report
from bench_measure import percentile
from bench_scale_job import Ground

from samzapy.adapters.lmdb.store import LmdbEnvironment
from samzapy.config import StoreConfig
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import changelog_key

KEYS = 200_000
VALUE_BYTES = 1000
STORE = StoreConfig(
    name="last", msg_serde="bytes", key_serde="string", replication_factor=None, size_max_bytes=1 << 34
)
_WRITES_PER_TRANSACTION = 10_000
_OPERATIONS = 20_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFigures:
    """One store: its disk space, and the times of single operations (us)."""

    stage: str
    keys: int
    disk_bytes: int
    get_us: Sequence[float]
    put_us: Sequence[float]


def store(ground: Ground) -> str:
    """Bytes on disk and latencies of a store, of its halves, and of their merger."""
    keys = [b"%08d" % number for number in range(ground.sized(KEYS, 5000))]
    drawn = random.Random(ground.seed)
    root = ground.directory / "stores"
    operations = ground.sized(_OPERATIONS, 500)
    stores: list[StoreFigures] = []
    whole = _filled(root / "whole", keys, drawn)
    stores.append(_measure_store("before", whole, keys, drawn, operations))
    halves = [_made(root / f"half-{bucket}") for bucket in range(2)]
    split_s = _handed_over([whole], halves, [0, 1])
    whole.close()
    for bucket, half in enumerate(halves):
        own = [key for key in keys if key_bucket(key, 0, 2) == bucket]
        stores.append(_measure_store(f"split: bucket {bucket} of 2", half, own, drawn, operations))
    merged = _made(root / "merged")
    merge_s = _handed_over(halves, [merged], [0])
    for half in halves:
        half.close()
    stores.append(_measure_store("merged again", merged, keys, drawn, operations))
    merged.close()
    mib = len(keys) * VALUE_BYTES / _MIB
    return "\n\n".join(
        [
            "## Elasticity: a store that is split",
            report.table(
                ("store", "keys", "MiB on disk", "bytes per key", "get us: p50", "p99", "put us: p50", "p99"),
                [_row(figures) for figures in stores],
            ),
            f"The split took {split_s:.2f} s ({mib / split_s:.0f} MiB/s of values), the merge {merge_s:.2f} s "
            f"({mib / merge_s:.0f} MiB/s).",
            report.bullets(
                [
                    f"{len(keys):,} keys of 8 bytes with {VALUE_BYTES:,} bytes each, written in random order in "
                    f"transactions of {_WRITES_PER_TRANSACTION:,}, as a job does; seed {ground.seed}. {operations:,} "
                    "gets and puts of random keys, one by one, within a local transaction; the file is in the page "
                    "cache. The commit is not in it.",
                    "A split writes each entry once, in the order of the keys, so its files are packed; in the file "
                    "that a job wrote pages are as full as random inserts leave them. A merge appends the entries of "
                    "the first file and puts those of the second between them.",
                ]
            ),
        ]
    )


def _filled(path: Path, keys: Sequence[bytes], drawn: random.Random) -> LmdbEnvironment:
    environment = _made(path)
    order = list(keys)
    drawn.shuffle(order)
    for begin in range(0, len(order), _WRITES_PER_TRANSACTION):
        transaction = environment.begin()
        batch = order[begin : begin + _WRITES_PER_TRANSACTION]
        transaction.write(STORE.name, {changelog_key(key, b""): drawn.randbytes(VALUE_BYTES) for key in batch})
        transaction.commit()
    environment.sync()
    return environment


def _made(path: Path) -> LmdbEnvironment:
    return LmdbEnvironment(path, [STORE])


def _handed_over(
    sources: Sequence[LmdbEnvironment], targets: Sequence[LmdbEnvironment], target_of_bucket: Sequence[int]
) -> float:
    began_s = time.monotonic()
    for source in sources:
        source.hand_over([STORE.name], targets, target_of_bucket)
    return time.monotonic() - began_s


def _measure_store(
    stage: str, environment: LmdbEnvironment, keys: Sequence[bytes], drawn: random.Random, operations: int
) -> StoreFigures:
    environment.sync()
    disk_bytes = environment.bytes_on_disk()
    transaction = environment.begin()
    get_us, put_us = [], []
    value = drawn.randbytes(VALUE_BYTES)
    picked = [changelog_key(key, b"") for key in drawn.choices(keys, k=operations)]
    for key in picked:
        began_ns = time.perf_counter_ns()
        read = transaction.get(STORE.name, key)
        get_us.append((time.perf_counter_ns() - began_ns) / 1e3)
        assert read is not None, "every key has its value, in the store that it belongs to"
    for key in picked:
        began_ns = time.perf_counter_ns()
        transaction.write(STORE.name, {key: value})
        put_us.append((time.perf_counter_ns() - began_ns) / 1e3)
    transaction.abort()
    return StoreFigures(stage=stage, keys=len(keys), disk_bytes=disk_bytes, get_us=get_us, put_us=put_us)


def _row(figures: StoreFigures) -> tuple[str, ...]:
    latencies = (percentile(values_us, at) for values_us in (figures.get_us, figures.put_us) for at in (50, 99))
    return (
        figures.stage,
        f"{figures.keys:,}",
        f"**{figures.disk_bytes / _MIB:.1f}**",
        f"{figures.disk_bytes / figures.keys:,.0f}",
        *(f"{latency_us:.1f}" for latency_us in latencies),
    )
