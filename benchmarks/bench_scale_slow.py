"""The effect of a slow task on its neighbours: `scripts/bench scale slow`.

A micro-batch is over when its slowest task is. So the other tasks wait as long as the slow one takes for its part of a
batch. A batch has bounds on that part, in records and in time. For the bound in time the batch ends, and a query with
smaller batches begins. So the number of such queries is shown beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice

import bench_report as report
import click
from bench_measure import percentile
from bench_scale_job import OUTPUT, Ground, Metrics, ScaledJob
from bench_scale_probe import Probe, Probing

from samzapy.plan.elasticity import key_bucket

PARTITIONS = 2
FACTOR = 2
COST_US = 200
SLOWER = 10
KEYS_PER_TASK = 5
RATE_PER_S = 200.0
BURST_PER_TASK = 1500
_MEASURE_S = 12.0
_SLOW = (0, 0)
"""Partition and bucket of the slow task."""
BOUNDS: tuple[Mapping[str, str], ...] = (
    {"task.batch.offsets.max": "200000"},
    {"task.batch.offsets.max": "200000", "task.transaction.max.ms": "200"},
    {"task.batch.offsets.max": "200000", "task.batch.max.ms": "2000"},
    {"task.batch.offsets.max": "2000"},
    {"task.batch.offsets.max": "500"},
)
_STEP = "micro-batches of [0-9]+ offsets at most instead of [0-9]+"
"""A container's log line when it ends its query and begins one with another bound."""
_GROUPS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "the task itself": (_SLOW,),
    "same partition": ((0, 1),),
    "other partition": ((1, 0), (1, 1)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Latencies by group, and the share of batch, for one bound and one cost.

    Attributes:
        steps: how often the query was begun anew, because a micro-batch took too long, or they were short again.
    """

    bound: str
    slower: int
    latencies_ms: Mapping[str, tuple[float, float]]
    share: float
    batches_per_s: float
    steps: int


def slow(ground: Ground) -> str:
    """Latencies of a task's neighbours at 1x and at 10x cost, by bounds of a batch."""
    results: list[Found] = []
    for number, bound in enumerate(BOUNDS[-1:] if ground.is_quick else BOUNDS):
        settings = {**bound, "job.elasticity.factor": str(FACTOR)}
        with ScaledJob(ground, f"scale-slow-{number}", "burn.py", partitions=PARTITIONS, settings=settings) as job:
            job.start()
            job.wait_at_work()
            for slower in (1, SLOWER):
                results.append(_measured(job, ", ".join(f"`{key}={value}`" for key, value in bound.items()), slower))
                click.echo(f"{results[-1]}")
    return "\n\n".join(
        [
            "## Elasticity: a slow virtual task and its neighbours",
            report.table(
                (
                    *("bound of a batch", "cost of the task"),
                    *(f"{group}: {figure}" for group in _GROUPS for figure in ("p50 ms", "longest")),
                    *("its share of batches", "batches/s", "queries begun anew"),
                ),
                [
                    (
                        one.bound,
                        f"{one.slower}x",
                        *(
                            cell
                            for group in _GROUPS
                            for cell in (
                                f"{one.latencies_ms[group][0]:.0f}",
                                f"**{one.latencies_ms[group][1]:.0f}**",
                            )
                        ),
                        f"{one.share:.0%}",
                        f"{one.batches_per_s:.1f}",
                        f"{one.steps}",
                    )
                    for one in results
                ],
            ),
            report.bullets(
                [
                    f"One container, `local[2]`, {PARTITIONS} partitions with factor {FACTOR}: four tasks, user code "
                    f"of {COST_US} us CPU per record, and of {SLOWER} times that in one task. {RATE_PER_S:g} records "
                    f"per second over all tasks, and at one moment {BURST_PER_TASK:,} more for each task of the slow "
                    "one's partition. Latencies are of the steady records (not of the burst) that were sent within "
                    f"{_MEASURE_S:g} s from the burst on, until a `read_committed` reader of the output had them.",
                    "*Same partition* is the other bucket of the slow task's partition: its records stand behind the "
                    "burst in the same log, whatever the bounds. *Other partition* has no burst and waits for batches "
                    "alone.",
                    "*Queries begun anew*: the cost of a bound by time. A batch that takes longer than "
                    "`task.batch.max.ms` (a minute by default) is ended, and the query continues with smaller ones, "
                    "and with larger ones again when those are short; each time all keys wait until the new query "
                    "runs, a second or two that are in all latencies of the row.",
                    "*Its share*: for how much of the time of the micro-batches the task held a worker "
                    "(`samzapy_task_busy_seconds_total`).",
                ]
            ),
        ]
    )


def _measured(job: ScaledJob, bound: str, slower: int) -> Found:
    keys = {place: _keys(place) for places in _GROUPS.values() for place in places}
    probes = [
        Probe(key, place[0], b"%08d" % (COST_US * (slower if place == _SLOW else 1)))
        # In turn, so that each task gets its share all the time.
        for one_of_each in zip(*keys.values(), strict=True)
        for place, key in zip(keys, one_of_each, strict=True)
    ]
    with Probing(job.ground.servers, job.input, OUTPUT, PARTITIONS, probes, RATE_PER_S) as probing:
        probing.settle()
        before = job.wait_at_work()
        steps_before = job.count_in_logs(_STEP)
        burst_s = time.monotonic()
        job.write(_burst(job.ground, keys, slower), partition=_SLOW[0])
        time.sleep(max(0.0, burst_s + _MEASURE_S - time.monotonic()))
        measured_s = time.monotonic()
        after = job.wait_at_work()
        probing.wait_received(measured_s)
        latencies_ms = {}
        for group, places in _GROUPS.items():
            latencies = probing.latencies_ms([key for place in places for key in keys[place]], burst_s, measured_s)
            latencies_ms[group] = percentile(latencies, 50), max(latencies)
    return Found(
        bound=bound,
        slower=slower,
        latencies_ms=latencies_ms,
        share=_share(before, after, f"SystemStreamPartition_kafka.{job.input}.{_SLOW[0]}-{_SLOW[1]}-{FACTOR}"),
        batches_per_s=(after.total("container_batches_total") - before.total("container_batches_total"))
        / (measured_s - burst_s),
        steps=job.count_in_logs(_STEP) - steps_before,
    )


def _share(before: Metrics, after: Metrics, task: str) -> float:
    busy_s = after.total("task_busy_seconds_total", task=task) - before.total("task_busy_seconds_total", task=task)
    batch_s = after.total("container_batch_seconds_total") - before.total("container_batch_seconds_total")
    return busy_s / batch_s


def _keys(place: tuple[int, int]) -> list[bytes]:
    partition, bucket = place
    drawn = (b"%d-%06d" % (partition, number) for number in count())
    return list(islice((key for key in drawn if key_bucket(key, 0, FACTOR) == bucket), KEYS_PER_TASK))


def _burst(ground: Ground, keys: Mapping[tuple[int, int], list[bytes]], slower: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(ground.sized(BURST_PER_TASK, 200)):
        for place, own in keys.items():
            if place[0] == _SLOW[0]:
                yield own[number % KEYS_PER_TASK], b"%08d" % (COST_US * (slower if place == _SLOW else 1))
