"""What the parts of `scripts/bench scale` compute from what they measured."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from bench_report import SCALE
from bench_scale import PARTS, WITHOUT_BROKER, section
from bench_scale_job import Ground, Metrics, Phase, there_and_back
from bench_scale_moved import JOIN, SPLIT, Moved, Task, moved_of, tasks_of, verdicts
from bench_scale_probe import Received, silences_ms
from bench_scale_spread import PARTITIONS, murmur2, spread_of

METRICS_TEXT = """# TYPE samzapy_container_records_in_total counter
samzapy_container_records_in_total{job="a-1",processor="p0"} 10
samzapy_container_records_in_total{job="a-1",processor="p1"} 5
# TYPE samzapy_task_commit_seconds summary
samzapy_task_commit_seconds_sum{job="a-1",processor="p0",task="t0"} 3
samzapy_task_commit_seconds_count{job="a-1",processor="p0",task="t0"} 2
samzapy_task_commit_seconds_sum{job="a-1",processor="p1",task="t1"} 1
samzapy_task_commit_seconds_count{job="a-1",processor="p1",task="t1"} 2
"""


def received(key: bytes, *at_s: float) -> list[Received]:
    return [Received(key, 0.0, moment) for moment in at_s]


def test_series_are_added_up_or_picked_by_label() -> None:
    metrics = Metrics(METRICS_TEXT)

    assert (15, 5, 0) == (
        metrics.total("container_records_in_total"),
        metrics.total("container_records_in_total", processor="p1"),
        metrics.total("job_tasks"),
    )
    assert {"p0": 10.0, "p1": 5.0} == metrics.by("processor", "container_records_in_total")


def test_a_mean_is_of_the_records_since_then() -> None:
    before = Metrics(METRICS_TEXT)
    after = Metrics(METRICS_TEXT.replace('task="t0"} 3', 'task="t0"} 7').replace('task="t1"} 2', 'task="t1"} 4'))

    assert (1.0, 2.0) == (before.mean("task_commit_seconds"), after.mean("task_commit_seconds", since=before))


def test_nothing_has_no_mean_and_so_0() -> None:
    metrics = Metrics(METRICS_TEXT)

    assert (0.0, 0.0) == (metrics.mean("task_get_seconds"), metrics.mean("task_commit_seconds", since=metrics))


def test_the_longest_silence_of_a_key_counts_the_ends_of_the_while() -> None:
    records = [*received(b"a", 0.5, 1.0, 3.0), *received(b"b", 2.0, 9.0)]

    assert [2000.0, 2000.0, 4000.0] == silences_ms(records, [b"a", b"b", b"silent"], 0.0, 4.0)


def test_the_order_of_factors_is_symmetric() -> None:
    assert [1, 2, 4, 4, 2, 1, 1, 2, 4, 4, 2, 1] == there_and_back([1, 2, 4], 2)


def test_a_phase_costs_the_cpu_of_all_roles() -> None:
    phase = Phase(factor=2, records=500_000, cpu_s={"JVM": 4.0, "workers": 1.0}, batch_s=2.0)

    assert (10.0, 250_000.0) == (phase.cpu_s_per_million, phase.per_s)


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    """Answers of Kafka's own UtilsTest."""
    assert signed & 0x7FFFFFFF == murmur2(key)


def test_keys_in_equal_numbers_are_even() -> None:
    spread = spread_of([0, 0, 1, 1], [0, 1, 2, 3], 2)

    assert (1.0, 1.0, 0, 0.0, 0.0) == (
        spread.smallest,
        spread.largest,
        spread.empty,
        spread.variation,
        spread.chi_square,
    )


def test_a_bucket_without_keys_is_the_smallest_and_is_counted() -> None:
    spread = spread_of([0, 0, 0, 0], [0, 0, 0, 0], 2)

    assert (0.0, 2.0, 1, 1.0, 4.0) == (
        spread.smallest,
        spread.largest,
        spread.empty,
        spread.variation,
        spread.chi_square,
    )


def test_a_bucket_by_the_hash_of_the_partition_leaves_most_buckets_empty() -> None:
    hashes = [zlib.crc32(b"%08d" % number) for number in range(2000)]

    assert 3 * PARTITIONS == spread_of([number % PARTITIONS for number in hashes], hashes, 4).empty


TASKS_TOLD = """# TYPE samzapy_task_disk_usage_bytes gauge
samzapy_task_disk_usage_bytes{job="a-1",processor="p1",task="Partition_0-1-2"} 1048576
# TYPE samzapy_task_store_identify_seconds gauge
samzapy_task_store_identify_seconds{job="a-1",processor="p0",task="Partition_0-0-2"} 0.25
samzapy_task_store_identify_seconds{job="a-1",processor="p1",task="Partition_0-1-2"} 0.5
"""


def a_task(processor: str, mib: int = 0, identify_s: float = 0.0) -> Task:
    return Task(processor=processor, disk_bytes=mib << 20, identify_s=identify_s)


def a_change(mb: int, longest_s: float, *, kind: str = JOIN, moved: float = 0.5, restore_s: float = 0.0) -> Moved:
    return Moved(
        mb=mb,
        kind=kind,
        silences_ms=[1.0, 1000 * longest_s],
        moved=moved,
        moved_mib=0,
        whole_mib=0,
        restore_s=restore_s,
        copy_s=0,
    )


def test_tasks_are_listed_with_their_processors() -> None:
    assert {"Partition_0-0-2": a_task("p0", 0, 0.25), "Partition_0-1-2": a_task("p1", 1, 0.5)} == tasks_of(
        Metrics(TASKS_TOLD)
    )


def test_state_on_a_host_that_had_none_of_its_partition_has_moved() -> None:
    before = {"Partition_0": a_task("p0", 9, 5.0), "Partition_1": a_task("p0", 9, 5.0)}
    after = {
        "Partition_0-0-2": a_task("p0", 2, 0.1),
        "Partition_0-1-2": a_task("p1", 3, 1.0),
        "Partition_1-0-2": a_task("p0", 2, 0.2),
        "Partition_1-1-2": a_task("p1", 3, 2.0),
    }

    moved = moved_of(before, after, mb=10, kind=SPLIT, silences_ms=[1.0])

    assert (0.5, 6, 10, 3.0) == (moved.moved, moved.moved_mib, moved.whole_mib, moved.restore_s)
    assert moved.copy_s == pytest.approx(0.3)


def test_state_that_stayed_with_its_task_is_neither_moved_nor_copied() -> None:
    before = {"Partition_0": a_task("p0", 9, 5.0), "Partition_1": a_task("p0", 9, 5.0)}
    after = {"Partition_0": a_task("p0", 9, 5.0), "Partition_1": a_task("p1", 9, 3.0)}

    moved = moved_of(before, after, mb=10, kind=JOIN, silences_ms=[1.0])

    assert (0.5, 3.0, 0) == (moved.moved, moved.restore_s, moved.copy_s)


@pytest.mark.parametrize(
    ("longest_s", "moved", "verdict"),
    [(5.0, 0.5, "pass"), (5.1, 0.5, "**fail**"), (9.0, 0.0, "nothing moved")],
    ids=["within", "beyond", "vacuous"],
)
def test_a_pause_may_be_longer_by_the_restore_of_the_moved_state(
    longest_s: float, moved: float, verdict: str
) -> None:
    figures = [
        *(a_change(0, 2.0, kind=kind) for kind in (JOIN, SPLIT)),
        *(a_change(200, longest_s, kind=kind, moved=moved, restore_s=2.0) for kind in (JOIN, SPLIT)),
    ]

    assert [(SPLIT, verdict)] == [(row[1], row[-1]) for row in verdicts(figures)]


def test_the_page_has_a_place_for_each_part() -> None:
    assert tuple(PARTS) == SCALE


@pytest.mark.parametrize("part", WITHOUT_BROKER)
def test_a_part_without_a_broker_gives_its_section(tmp_path: Path, part: str) -> None:
    text = section(part, Ground(servers="", directory=tmp_path, is_quick=True))

    assert text.startswith("## Elasticity: ") and "it works, and the figures mean nothing" in text
