"""A start with many tasks, and with a carry-over: `scripts/bench scale tasks`.

A carry-over is the extra work of a start under another factor than the last one's: positions of all
parents are read and divided, and the children take their state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import bench_report as report
import click
from bench_conditions import load
from bench_scale_job import Ground, ScaledJob

PARTITIONS = 125
FACTOR = 8
KEYS_PER_TASK = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the whole job.

    Attributes:
        owned_s: from the start of the process until every task had an owner.
        handled_s: until all records of the input were handled.
        commit_s: the mean of `commit-ns` after that, once every task had committed before.
        commit_first_s: the mean of it until then.
    """

    name: str
    tasks: int
    owned_s: float
    handled_s: float
    checkpoint_compute_s: float
    model_s: float
    identify_s: float
    commit_first_s: float
    commit_s: float
    load: float


def tasks(ground: Ground) -> str:
    """Start-up and `commit-ns` of 1,000 tasks."""
    partitions, factor = ground.sized(PARTITIONS, 10), ground.sized(FACTOR, 4)
    settings = {"stores.counts.msg.serde": "bytes"}
    kinds = (
        ("the first ever", factor),
        ("the same factor", factor),
        ("half the factor: parts merge", factor // 2),
        ("the same factor", factor // 2),
        ("twice the factor: parts split", factor),
        ("the same factor", factor),
    )
    with ScaledJob(ground, "scale-tasks", "count_keys.py", partitions=partitions, settings=settings) as job:
        starts = [_start(job, name, of) for name, of in (kinds[::2] if ground.is_quick else kinds)]
    return "\n\n".join(
        [
            "## Elasticity: a start with many tasks",
            report.table(
                (
                    *("start", "tasks", "s until all had an owner", "s until all was handled"),
                    *("positions: s", "job model: s", "local state: s", "commit ms: first", "later", "load"),
                ),
                [
                    (
                        start.name,
                        f"{start.tasks:,}",
                        f"**{start.owned_s:.1f}**",
                        f"**{start.handled_s:.1f}**",
                        f"{start.checkpoint_compute_s:.2f}",
                        f"{start.model_s:.2f}",
                        f"{start.identify_s:.2f}",
                        f"{start.commit_first_s * 1000:.1f}",
                        f"{start.commit_s * 1000:.1f}",
                        f"{start.load:.0f}",
                    )
                    for start in starts
                ],
            ),
            report.bullets(
                [
                    f"One container, `local[2]`, a keyed count over {partitions} partitions with factor {factor}, "
                    f"{factor // 2} and {factor} again, set in the configuration of a job that is stopped. Before each "
                    f"start {KEYS_PER_TASK} records of different keys stand in front of each task.",
                    "*Until all was handled* is the start-up: from the start of the process on. *Positions* is "
                    "`samzapy_checkpoint_compute_seconds`, *job model* `samzapy_job_model_generation_seconds`, *local "
                    "state* `samzapy_task_store_identify_seconds` of all tasks together, *commit* the mean of "
                    "`samzapy_task_commit_seconds`: until everything was handled, and of as many records again.",
                ]
            ),
        ]
    )


def _start(job: ScaledJob, name: str, factor: int) -> Start:
    tasks_wanted = job.partitions * factor
    count = job.write(_records(tasks_wanted))
    started_s = job.start(job_elasticity_factor=str(factor))
    owned = job.wait_at_work()
    owned_s = time.monotonic() - started_s
    first = job.wait_handled(count)
    handled_s = time.monotonic() - started_s
    job.write(_records(tasks_wanted))
    later = job.wait_handled(2 * count)
    start = Start(
        name=name,
        tasks=int(first.total("job_tasks")),
        owned_s=owned_s,
        handled_s=handled_s,
        checkpoint_compute_s=owned.total("checkpoint_compute_seconds"),
        model_s=owned.total("job_model_generation_seconds"),
        identify_s=first.total("task_store_identify_seconds"),
        commit_first_s=first.mean("task_commit_seconds"),
        commit_s=later.mean("task_commit_seconds", since=first),
        load=load(),
    )
    click.echo(
        f"{start.tasks} tasks, {name}: owned {owned_s:.1f} s, handled {handled_s:.1f} s, positions "
        f"{start.checkpoint_compute_s:.2f} s, state {start.identify_s:.2f} s, commit {start.commit_s * 1000:.1f} ms"
    )
    job.stop()
    return start


def _records(tasks_wanted: int) -> Iterator[tuple[bytes, bytes]]:
    return ((b"%08d" % number, b"x" * 92) for number in range(tasks_wanted * KEYS_PER_TASK))
