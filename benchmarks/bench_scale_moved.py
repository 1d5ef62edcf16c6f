"""How long a key waits when a part of the state changes host: the part `moved` of `scripts/bench scale`.

Two containers with local stores of their own stand for two hosts: what one has on disk is not there for the other, and
comes out of the changelog. What moved, and how long that took, is asked of the job; the same change of a job without
state says what of the pause is not the state's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import bench_report as report
import click
from bench_scale_job import BEGINS_WITHIN_S, Ground, ScaledJob, Told
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
        moved_mib: what those take on disk, of `whole_mib`.
        restore_s: what the container with the most to restore took for it, by its own figures.
        copy_s: the same of state that was made of what its host had.
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
    """A task as its container tells of it."""

    processor: str
    disk_bytes: float
    identify_s: float


def moved(ground: Ground) -> str:
    """The pause where a part of the state changes host, by how much that is."""
    found: list[Moved] = []
    for mb in (0, 1) if ground.is_quick else STATE_MB:
        # As by default: who joins tries its query out while it waits to be planned for.
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
                found += _round(job, mb)
    return _text(found, ground.sized(ROUNDS, 1))


def _round(job: ScaledJob, mb: int) -> list[Moved]:
    """One container has all of the state; the second one joins; then the factor changes, and goes back unmeasured."""
    with probing_of(job) as probing:
        probing.settle()
        before = tasks_of(_told(job, mb))
        began_s = time.monotonic()
        job.start(2)
        joined = _change(job, probing, mb, JOIN, before, began_s)
        before = tasks_of(_told(job, mb))
        began_s = time.monotonic()
        job.scale(2)
        found = [joined, _change(job, probing, mb, SPLIT, before, began_s)]
        job.scale(1)
        probing.settle()
    return found


def _change(
    job: ScaledJob, probing: Probing, mb: int, kind: str, before: Mapping[str, Task], began_s: float
) -> Moved:
    """What there is to be told of a change that began then."""
    job.wait_at_work()
    probing.settle()
    silences_ms = probing.silences(began_s, time.monotonic())
    found = moved_of(before, tasks_of(_told(job, mb)), mb=mb, kind=kind, silences_ms=silences_ms)
    click.echo(
        f"{mb:4} MB  {kind}  longest {found.longest_s:.2f} s  moved {found.moved:.0%}, restored in "
        f"{found.restore_s:.2f} s, copied in {found.copy_s:.2f} s"
    )
    return found


def moved_of(
    before: Mapping[str, Task], after: Mapping[str, Task], *, mb: int, kind: str, silences_ms: Sequence[float]
) -> Moved:
    """What changed host between two looks: a task of which no relative was on its host before."""
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


def tasks_of(told: Told) -> Mapping[str, Task]:
    """The tasks that containers told of."""
    disk_bytes, identify_s = (told.by_task(name) for name in ("task_disk_usage_bytes", "task_store_identify_seconds"))
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


def _told(job: ScaledJob, mb: int) -> Told:
    """When every task of the plan was told of, with what it has on disk."""

    def told() -> Told | None:
        found = job.told()
        if found is None:
            return None
        tasks = tasks_of(found)
        is_whole = len(tasks) == found.total("job_tasks") and (
            not mb or all(task.disk_bytes for task in tasks.values())
        )
        return found if is_whole else None

    return wait_until(told, BEGINS_WITHIN_S, f"{job.name} to tell of all its tasks")


def verdicts(found: Sequence[Moved]) -> list[tuple[str, ...]]:
    """For each size of the state: what of the longest pause of a split is the state's, and what that may be.

    Not of the join: the first micro-batch of a new JVM varies by more than is allowed here.
    """
    own = [one for one in found if one.kind == SPLIT]
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


def _text(found: Sequence[Moved], rounds: int) -> str:
    rows = []
    for mb in sorted({one.mb for one in found}):
        for kind in (JOIN, SPLIT):
            own = [one for one in found if (one.mb, one.kind) == (mb, kind)]
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
                verdicts(found),
            ),
            report.table(
                (
                    *("state", "change", "moved, MiB on disk", "restored in s", "copied on its host in s"),
                    *("a key heard nothing for, ms: median", "longest"),
                ),
                rows,
            ),
            report.bullets(
                [
                    f"Two containers with `local[1]` and local stores of their own, as on two hosts; {PARTITIONS} "
                    f"partitions, state in values of {VALUE_BYTES:,} bytes. {PROBES} keys get "
                    f"{RATE_PER_S / PROBES:g} records per second each. Rounds: {rounds}. In each, one container has "
                    "all of the state, a second one with an empty disk joins, then the factor changes.",
                    "*At most*: what the container with the most to restore took for the state that came from the "
                    "other host (`samzapy_task_store_identify_seconds` of those tasks, which are restored one after "
                    f"the other), and {TOLERANCE_S:g} s, by which pauses differ without any state. *Beyond that "
                    "without state*: the longest pause of any key, minus the longest of the same change of a job "
                    "without a store. *Moved* is what is now on a host where no part of its partition was before: of "
                    "the values by the keys that there are, and by what the containers say that they have on disk.",
                    "*Copied on its host*: parts that were made of the store that was there. A container restores "
                    "and copies one after the other, so where both stand the pause has both; the bound has only what "
                    "was restored. The pause of a join is not held against it: the first micro-batch of a new JVM "
                    "varies by more than that, though its query was tried out while it waited for "
                    "`job.debounce.time.ms`, 20 s as by default.",
                ]
            ),
        ]
    )
