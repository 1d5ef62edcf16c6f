"""The wait of a key when the factor changes with a million timers.

`scripts/bench scale --only timers` runs it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import bench_report as report
from bench_scale_job import Ground, ScaledJob
from bench_scale_pause import PARTITIONS, Change, measured_changes, probing_of, split_and_merge

TIMERS = 1_000_000
TIMES_MAX = 1.3
_SMALL_BYTES, _LARGE_BYTES = 28, 1000
_LARGE_ON_DISK_BYTES = 1700
"""Of a large value, as in the section about state in values."""
_HANDLED_WITHIN_S = 900.0
_VALUES: Mapping[str, str] = {"stores.last.msg.serde": "bytes"}
_TIMERS: Mapping[str, str] = {"stores._timers.size.max.bytes": "4294967296"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The changes of a job with some state."""

    state: str
    changes: Sequence[Change]
    disk_mib: float

    def named(self, change: str) -> Sequence[Change]:
        """The changes of this name."""
        return [one for one in self.changes if one.name == change]

    def silence_ms(self, change: str) -> float:
        """The median over keys and changes of this name."""
        return statistics.median(ms for one in self.named(change) for ms in one.silences_ms)


def timers(ground: Ground) -> str:
    """The pause at 1 -> 2 -> 1 with timers, and with values.

    There are as many values as timers, and then values of as many bytes on disk.
    """
    count = ground.sized(TIMERS, 1000)
    small, large = (random.Random(ground.seed).randbytes(size) for size in (_SMALL_BYTES, _LARGE_BYTES))
    with_timers = _scaled(ground, f"{count:,} timers", count, small, keeps_timers=True)
    as_many = _scaled(ground, f"{count:,} values of {len(small)} bytes", count, small)
    fewer = max(1, int(with_timers.disk_mib * (1 << 20)) // _LARGE_ON_DISK_BYTES)
    as_large = _scaled(ground, f"{fewer:,} values of {len(large):,} bytes", fewer, large)
    return _text(ground, with_timers, as_many, as_large)


def _scaled(ground: Ground, state: str, count: int, value: bytes, *, keeps_timers: bool = False) -> Scaled:
    job_file, kind, settings = (
        ("keep_timers.py", "timers", _TIMERS) if keeps_timers else ("keep_last.py", "values", _VALUES)
    )
    name = f"scale-{len(value)}-{kind}"
    with ScaledJob(ground, name, job_file, partitions=PARTITIONS, settings=settings, declares=keeps_timers) as job:
        job.start()
        job.wait_at_work()
        written = job.write((b"%08d" % number, value) for number in range(count))
        job.wait_handled(written, _HANDLED_WITHIN_S)
        with probing_of(job) as probing:
            probing.settle()
            split_and_merge(job, probing)  # The first one meets code that was never run.
            changes = measured_changes(job, probing, state)
        return Scaled(state=state, changes=changes, disk_mib=job.disk_mib())


def _text(ground: Ground, with_timers: Scaled, *with_values: Scaled) -> str:
    rows = []
    for scaled in (with_timers, *with_values):
        for change in ("1 -> 2", "2 -> 1"):
            of_name = scaled.named(change)
            rows.append(
                (
                    scaled.state,
                    change,
                    f"**{scaled.silence_ms(change):.0f}**",
                    f"{max(ms for one in of_name for ms in one.silences_ms):.0f}",
                    f"{statistics.median(one.identify_s for one in of_name):.2f}",
                    f"{scaled.disk_mib:.0f}",
                )
            )
    return "\n\n".join(
        [
            "## Elasticity: the pause of a key while a million timers are set",
            "\n\n".join(_verdict(with_timers, scaled) for scaled in with_values),
            report.table(
                (
                    "state",
                    "change",
                    "silence of a key, ms: median",
                    "longest",
                    "state taken over in s",
                    "MiB on disk",
                ),
                rows,
            ),
            report.bullets(
                [
                    f"As in the section before: one container, `local[2]`, {PARTITIONS} partitions. Each key has one "
                    "timer, due in a month, or one value."
                ]
            ),
        ]
    )


def _verdict(with_timers: Scaled, with_values: Scaled) -> str:
    times = with_timers.silence_ms("1 -> 2") / with_values.silence_ms("1 -> 2")
    verdict = "pass" if times <= TIMES_MAX else "**fail**"
    return (
        f"To be reached at 1 -> 2: at most {TIMES_MAX:g} times the pause with {with_values.state}; "
        f"it was {times:.2f} times: {verdict}."
    )
