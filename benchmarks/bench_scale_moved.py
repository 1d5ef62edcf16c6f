"""The wait of a key when state changes host: `scripts/bench scale moved`.

Two containers with local stores of their own act as two hosts: files of one do not exist for the other, which restores
the state from the changelog. The job reports the moved state and its time; the same change of a job without state shows
the part of the pause that is not the state's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import bench_report as report
import click
from bench_scale_job import BEGINS_WITHIN_S, Ground, Metrics, ScaledJob
from bench_scale_pause import PARTITIONS, PROBES, RATE_PER_S, VALUE_BYTES, fill, probing_of
from bench_scale_probe import Probing

from samzapy.plan.task_names import TaskNameParts
from samzapy.testing.waiting import wait_until

STATE_MB = (0, 10, 200)
ROUNDS = 2
JOIN, SPLIT = "a second container joins", "1 -> 2 in two containers"
TOLERANCE_S = 1.0
"""By so much two pauses of the same change differ without any state."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One change in which tasks, or parts of them, changed host.

    Attributes:
        silences_ms: of each key, as a reader of the output saw them.
        moved: the share of the tasks that changed host: of equal parts of the keys, so of the state.
        moved_mib: the disk space of those, of `whole_mib`.
        restore_s: the restore time of the container with the most to restore, by its own figures.
        copy_s: the same for state that was copied on its host.
    """

    mb: int
    kind: str
    silences_ms: Sequence[float]
    moved: float
    moved_mib: float
    whole_mib: float
    restore_s: float
    copy_s: float

    @property
    def longest_s(self) -> float:
        return max(self.silences_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as its container reports it."""

    processor: str
    disk_bytes: float
    identify_s: float


def moved(ground: Ground) -> str:
    """The pause where a part of the state changes host, by how much that is."""
    moves: list[Moved] = []
    for mb in (0, 1) if ground.is_quick else STATE_MB:
        # As by default: a joining container tries its query out while it waits to be planned for.
        settings = {"job.debounce.time.ms": "20000", **({"stores.last.msg.serde": "bytes"} if mb else {})}
        job_file = "keep_last.py" if mb else "copy_each.py"
        with ScaledJob(
            ground, f"scale-moved-{mb}", job_file, partitions=PARTITIONS, cores=1, settings=settings, own_stores=True
        ) as job:
            job.start()
            job.wait_at_work()
            job.wait_handled(fill(job, mb))
            for number in range(ground.sized(ROUNDS, 1)):
                if number:
                    job.stop()
                    job.forget_local_state()
                    job.start()
                moves += _round(job, mb)
    return _text(moves, ground.sized(ROUNDS, 1))


def _round(job: ScaledJob, mb: int) -> list[Moved]:
    """One container has all state; a second one joins; then the factor changes."""
    with probing_of(job) as probing:
        probing.settle()
        before = tasks_of(_metrics_of_all_tasks(job, mb))
        began_s = time.monotonic()
        job.start(2)
        joined = _change(job, probing, mb, JOIN, before, began_s)
        before = tasks_of(_metrics_of_all_tasks(job, mb))
        began_s = time.monotonic()
        job.scale(2)
        moves = [joined, _change(job, probing, mb, SPLIT, before, began_s)]
        job.scale(1)
        probing.settle()
    return moves


def _change(
    job: ScaledJob, probing: Probing, mb: int, kind: str, before: Mapping[str, Task], began_s: float
) -> Moved:
    """The figures of a change that began then."""
    job.wait_at_work()
    probing.settle()
    silences_ms = probing.silences(began_s, time.monotonic())
    change = moved_of(before, tasks_of(_metrics_of_all_tasks(job, mb)), mb=mb, kind=kind, silences_ms=silences_ms)
    click.echo(
        f"{mb:4} MB  {kind}  longest {change.longest_s:.2f} s  moved {change.moved:.0%}, restored in "
        f"{change.restore_s:.2f} s, copied in {change.copy_s:.2f} s"
    )
    return change


def moved_of(
    before: Mapping[str, Task], after: Mapping[str, Task], *, mb: int, kind: str, silences_ms: Sequence[float]
) -> Moved:
    """The tasks that changed host: no relative of them was on the host before."""
    hosts: dict[str, set[str]] = {}
    for name, task in before.items():
        hosts.setdefault(_base(name), set()).add(task.processor)
    new = {name: task for name, task in after.items() if task.processor not in hosts[_base(name)]}
    made = {name: task for name, task in after.items() if name not in new and name not in before}
    return Moved(
        mb=mb,
        kind=kind,
        silences_ms=silences_ms,
        moved=len(new) / len(after),
        moved_mib=sum(task.disk_bytes for task in new.values()) / _MIB,
        whole_mib=sum(task.disk_bytes for task in after.values()) / _MIB,
        restore_s=_longest_s(new.values()),
        copy_s=_longest_s(made.values()),
    )


def tasks_of(metrics: Metrics) -> Mapping[str, Task]:
    """The tasks that containers reported."""
    disk_bytes, identify_s = (
        metrics.by_task(name) for name in ("task_disk_usage_bytes", "task_store_identify_seconds")
    )
    return {
        task: Task(processor=processor, disk_bytes=disk_bytes.get((processor, task), 0.0), identify_s=value)
        for (processor, task), value in identify_s.items()
    }


def _longest_s(tasks: Iterable[Task]) -> float:
    """Containers restore at the same time, each one task after the other."""
    by_processor: dict[str, float] = {}
    for task in tasks:
        by_processor[task.processor] = by_processor.get(task.processor, 0.0) + task.identify_s
    return max(by_processor.values(), default=0.0)


def _base(name: str) -> str:
    return str(TaskNameParts.parse(name).base_name)


def _metrics_of_all_tasks(job: ScaledJob, mb: int) -> Metrics:
    """Wait until every task of the plan is reported, with its disk space."""

    def complete_metrics() -> Metrics | None:
        metrics = job.metrics()
        if metrics is None:
            return None
        tasks = tasks_of(metrics)
        is_whole = len(tasks) == metrics.total("job_tasks") and (
            not mb or all(task.disk_bytes for task in tasks.values())
        )
        return metrics if is_whole else None

    return wait_until(complete_metrics, BEGINS_WITHIN_S, f"{job.name} to report all its tasks")


def verdicts(moves: Sequence[Moved]) -> list[tuple[str, ...]]:
    """For each size of the state: its part of a split's longest pause, and a bound.

    Not of the join: the first micro-batch of a new JVM varies by more than is allowed here.
    """
    own = [one for one in moves if one.kind == SPLIT]
    base_s = max(one.longest_s for one in own if not one.mb)
    rows: list[tuple[str, ...]] = []
    for mb in sorted({one.mb for one in own} - {0}):
        of_size = [one for one in own if one.mb == mb]
        beyond_s = max(one.longest_s for one in of_size) - base_s
        restore_s = max(one.restore_s for one in of_size)
        moved_mb = statistics.median(one.moved for one in of_size) * mb
        is_kept = beyond_s <= restore_s + TOLERANCE_S
        rows.append(
            (
                f"{mb} MB",
                SPLIT,
                f"{moved_mb:g} of {mb}",
                f"{restore_s:.2f} + {TOLERANCE_S:g}",
                f"**{beyond_s:.2f}**",
                "nothing moved" if not moved_mb else "pass" if is_kept else "**fail**",
            )
        )
    return rows


def _text(moves: Sequence[Moved], rounds: int) -> str:
    rows = []
    for mb in sorted({one.mb for one in moves}):
        for kind in (JOIN, SPLIT):
            own = [one for one in moves if (one.mb, one.kind) == (mb, kind)]
            rows.append(
                (
                    f"{mb} MB",
                    kind,
                    f"{statistics.median(one.moved_mib for one in own):.0f} of "
                    f"{statistics.median(one.whole_mib for one in own):.0f}",
                    f"{statistics.median(one.restore_s for one in own):.2f}",
                    f"{statistics.median(one.copy_s for one in own):.2f}",
                    f"**{statistics.median(ms for one in own for ms in one.silences_ms):.0f}**",
                    f"{max(one.longest_s for one in own) * 1000:.0f}",
                )
            )
    return "\n\n".join(
        [
            "## Elasticity: the pause where a part of the state changes host",
            report.table(
                ("state", "change", "moved, MB", "at most: s", "longest pause beyond that without state: s", ""),
                verdicts(moves),
            ),
            report.table(
                (
                    *("state", "change", "moved, MiB on disk", "restored in s", "copied on its host in s"),
                    *("silence of a key, ms: median", "longest"),
                ),
                rows,
            ),
            report.bullets(
                [
                    f"Two containers with `local[1]` and local stores of their own, as on two hosts; {PARTITIONS} "
                    f"partitions, state in values of {VALUE_BYTES:,} bytes. {PROBES} keys get "
                    f"{RATE_PER_S / PROBES:g} records per second each. Rounds: {rounds}. In each, one container has "
                    "all of the state, a second one with an empty disk joins, then the factor changes.",
                    "*At most*: the time of the container with the most to restore for the state that came from the "
                    "other host (`samzapy_task_store_identify_seconds` of those tasks, which are restored one after "
                    f"the other), and {TOLERANCE_S:g} s, by which pauses differ without any state. *Beyond that "
                    "without state*: the longest pause of any key, minus the longest of the same change of a job "
                    "without a store. *Moved* is the state that is now on a host where no part of its partition was "
                    "before: its values, by the keys, and its size on disk, by the containers' figures.",
                    "*Copied on its host*: parts that were made of the store that was there. A container restores "
                    "and copies one after the other, so where both have a figure the pause has both; the bound has "
                    "the restored part only. The pause of a join is not held against it: the first micro-batch of a "
                    "new JVM varies by more than that, though its query was tried out while it waited for "
                    "`job.debounce.time.ms`, 20 s as by default.",
                ]
            ),
        ]
    )
