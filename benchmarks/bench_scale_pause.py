"""The wait of a key when the factor changes: `scripts/bench scale pause`."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import bench_report as report
import click
from bench_scale_job import BEGINS_WITHIN_S, OUTPUT, Ground, ScaledJob
from bench_scale_probe import Probe, Probing

from samzapy.testing.waiting import wait_until

PARTITIONS = 4
STATE_MB = (0, 10, 200)
VALUE_BYTES = 1000
PROBES = 64
RATE_PER_S = 320.0
CHANGES = 3
WITHOUT_STATE_S_MAX = 3.0
QUIET_S = 5.0
_DRAWN_VALUES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the factor.

    Attributes:
        pauses_ms: of each key bucket, as `samzapy job scale` printed it.
        silences_ms: of each key, as a reader of the output saw it.
        identify_s: the containers' time for the state of the tasks, by their own figures.
    """

    name: str
    pauses_ms: Sequence[float]
    silences_ms: Sequence[float]
    identify_s: float


def pause(ground: Ground) -> str:
    """The pause at 1 -> 2 -> 1, by state."""
    changes: dict[int, Sequence[Change]] = {}
    quiet: dict[int, list[float]] = {}
    disk_mib: dict[int, float] = {}
    rebuilt_s = 0.0
    sizes = (1,) if ground.is_quick else STATE_MB
    for mb in sizes:
        settings = {"stores.last.msg.serde": "bytes"} if mb else {}
        job_file = "keep_last.py" if mb else "copy_each.py"
        with ScaledJob(ground, f"scale-pause-{mb}", job_file, partitions=PARTITIONS, settings=settings) as job:
            job.start()
            job.wait_at_work()
            job.wait_handled(fill(job, mb))
            with probing_of(job) as probing:
                probing.settle()
                split_and_merge(job, probing)  # The first one meets code that was never run.
                quiet[mb] = in_quiet(probing)
                changes[mb] = measured_changes(job, probing, f"{mb} MB")
            disk_mib[mb] = job.disk_mib()
            if mb == sizes[-1]:
                rebuilt_s = _rebuilt_s(job)
    return _text(ground, changes, quiet, disk_mib, rebuilt_s)


def fill(job: ScaledJob, mb: int) -> int:
    """Give the job its state; returns how many records that took."""
    drawn = random.Random(job.ground.seed)
    values = [drawn.randbytes(VALUE_BYTES) for _ in range(_DRAWN_VALUES)]
    return job.write(
        (b"%08d" % number, values[number % _DRAWN_VALUES]) for number in range(mb * 1_000_000 // VALUE_BYTES)
    )


def probing_of(job: ScaledJob) -> Probing:
    """Keys of which a record is sent several times a second, and received again."""
    probes = [Probe(b"probe%03d" % number) for number in range(PROBES)]
    return Probing(job.ground.servers, job.input, OUTPUT, PARTITIONS, probes, RATE_PER_S)


def measured_changes(job: ScaledJob, probing: Probing, state: str) -> Sequence[Change]:
    """The changes that count; prints each with the job's `state`."""
    changes: list[Change] = []
    for _ in range(job.ground.sized(CHANGES, 1)):
        for change in split_and_merge(job, probing):
            changes.append(change)
            click.echo(f"{state}  {_line_of(change)}")
    return changes


def split_and_merge(job: ScaledJob, probing: Probing) -> Sequence[Change]:
    """The factor 1 -> 2 -> 1 beside probes; after each change all came through again."""
    return [_change(job, probing, factor) for factor in (2, 1)]


def _change(job: ScaledJob, probing: Probing, factor: int) -> Change:
    name, began_s = f"{job.factor} -> {factor}", time.monotonic()
    pauses = job.scale(factor)
    probing.settle()
    metrics = job.wait_at_work()
    return Change(
        name=name,
        pauses_ms=list(pauses.values()),
        silences_ms=probing.silences(began_s, time.monotonic()),
        identify_s=metrics.total("task_store_identify_seconds"),
    )


def in_quiet(probing: Probing) -> list[float]:
    """The silences of a while in which nothing changes."""
    began_s = time.monotonic()
    time.sleep(QUIET_S)
    return probing.silences(began_s, began_s + QUIET_S)


def _rebuilt_s(job: ScaledJob) -> float:
    """The time of a start for the state if all of it comes from the changelog."""
    job.stop()
    job.forget_local_state()
    job.start()

    def identify_s() -> float:
        # A container has its grants before it has their state.
        metrics = job.metrics()
        return 0.0 if metrics is None else metrics.total("task_store_identify_seconds")

    return wait_until(identify_s, BEGINS_WITHIN_S, f"{job.name} to have its state again")


def _text(
    ground: Ground,
    changes: Mapping[int, Sequence[Change]],
    quiet: dict[int, list[float]],
    disk_mib: dict[int, float],
    rebuilt_s: float,
) -> str:
    rows, longest_s = [], {}
    for mb in quiet:
        for name in ("1 -> 2", "2 -> 1"):
            of_name = [change for change in changes[mb] if change.name == name]
            pauses = [ms for change in of_name for ms in change.pauses_ms]
            silences = [ms for change in of_name for ms in change.silences_ms]
            longest_s[mb, name] = max([*pauses, *silences]) / 1000
            rows.append(
                (
                    f"{mb} MB",
                    name,
                    f"**{statistics.median(silences):.0f}**",
                    f"{max(silences):.0f}",
                    f"{statistics.median(quiet[mb]):.0f}",
                    f"{statistics.median(pauses):.0f}",
                    f"{max(pauses):.0f}",
                    f"{statistics.median(change.identify_s for change in of_name):.2f}",
                    f"{disk_mib[mb]:.0f}",
                )
            )
    without_s = [found_s for (mb, _), found_s in longest_s.items() if mb == 0]
    largest = max(quiet)
    return "\n\n".join(
        [
            "## Elasticity: the pause of a key when the factor changes",
            *([_reached(max(without_s))] if without_s else []),
            report.table(
                (
                    *("state", "change", "silence of a key, ms: median", "longest", "in quiet"),
                    *(
                        "a bucket committed nothing for, ms: median",
                        "longest",
                        "state taken over in s",
                        "MiB on disk",
                    ),
                ),
                rows,
            ),
            f"Built anew from the changelog, as after a move to another host, the {largest} MB took {rebuilt_s:.1f} s.",
            report.bullets(
                [
                    f"One container, `local[2]`, {PARTITIONS} partitions; state in values of {VALUE_BYTES:,} bytes. "
                    f"{PROBES} keys get {RATE_PER_S / PROBES:g} records per second each. {ground.sized(CHANGES, 1)} "
                    "changes each way, after one each way that does not count.",
                    "*Silence of a key*: the longest time between two records of a key, as a `read_committed` "
                    "reader of the output saw them, from the request until every key came through again; the request "
                    "itself, a process that has to start, is not in it. *In quiet*: the same in "
                    f"{QUIET_S:g} s without a change. *A bucket committed nothing*: the figure of `samzapy job scale`, "
                    "by the broker's clock. *State taken over*: `samzapy_task_store_identify_seconds`, the sum over "
                    "all tasks, which are brought level one after the other.",
                ]
            ),
        ]
    )


def _reached(longest_s: float) -> str:
    verdict = "pass" if longest_s <= WITHOUT_STATE_S_MAX else "**fail**"
    return (
        f"To be reached without state: at most {WITHOUT_STATE_S_MAX:g} s; the longest of any key was "
        f"{longest_s:.1f} s: {verdict}."
    )


def _line_of(change: Change) -> str:
    return (
        f"{change.name}  silence {statistics.median(change.silences_ms):5.0f} "
        f"(longest {max(change.silences_ms):.0f}) ms  buckets {statistics.median(change.pauses_ms or [0]):5.0f} ms  "
        f"state {change.identify_s:.2f} s"
    )
