"""The cost of elasticity and the wait of keys: the parts of `scripts/bench scale`.

Each part is a section of docs/internals/performance.md with its own conditions, so parts may be measured one at a time;
only figures of one section are to be compared.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping

import bench_report as report
import click
from bench_conditions import busy, load, machine, versions
from bench_scale_cost import cores, cpu
from bench_scale_job import Ground
from bench_scale_memory import memory
from bench_scale_moved import moved
from bench_scale_pause import pause
from bench_scale_slow import slow
from bench_scale_spread import spread
from bench_scale_store import store
from bench_scale_tasks import tasks
from bench_scale_timers import timers

PARTS: Mapping[str, Callable[[Ground], str]] = {
    "pause": pause,
    "timers": timers,
    "moved": moved,
    "cpu": cpu,
    "cores": cores,
    "slow": slow,
    "memory": memory,
    "tasks": tasks,
    "store": store,
    "spread": spread,
}
"""The parts in the order of the page; the most important is measured first."""
WITHOUT_BROKER = ("store", "spread")


def section(part: str, ground: Ground) -> str:
    """Measure a part; its section, conditions included."""
    return measured(PARTS[part], ground, has_broker=part not in WITHOUT_BROKER)


def measured(measure: Callable[[Ground], str], ground: Ground, *, has_broker: bool = True) -> str:
    """The text of `measure`, with its conditions.

    The load afterwards is shown and marks nothing: it is the benchmark's own too (5.6 after `pause` on a machine of two
    cores without other processes), and cannot be distinguished from others'.
    """
    begun, begun_s, load_before = datetime.datetime.now(datetime.UTC), time.monotonic(), load()
    body = measure(ground)
    conditions = [
        f"{machine(begun, load_before)} Seed {ground.seed}; {time.monotonic() - begun_s:.0f} s in all.",
        *(["Small sizes: **it works, and the figures mean nothing.**"] if ground.is_quick else []),
        *busy([load_before]),
    ]
    if has_broker:
        conditions.append(
            "One broker and the job share the machine; CPU is that of the job's processes alone. "
            + versions("pyspark", "confluent-kafka", "pyarrow")
        )
    click.echo(body)
    return f"{body}\n{report.bullets(conditions)}"
