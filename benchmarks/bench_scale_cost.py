"""The cost and benefit of a factor: `scripts/bench scale cpu` and `cores`.

In one container a job stays up while its factor goes up and down, so that all factors meet the same warm JVM, and the
order of the factors runs there and back. In two containers each factor has a job of its own that begins with it, so
that the parts of each partition are spread over both. Each phase has the same number of records and the job has nothing
else to do.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

import bench_report as report
import click
from bench_input import random_records
from bench_measure import CPU_ROLES
from bench_scale_job import Ground, Phase, ScaledJob, measure_phase, there_and_back

PARTITIONS = 4
FACTORS = (1, 2, 4, 8)
RECORD_BYTES = 100
RECORDS = 500_000
COST_MAX = 1.4
_STORE = {"stores.counts.msg.serde": "bytes"}
SUBJECTS: Sequence[tuple[str, str, int, Mapping[str, str]]] = (
    ("1:1", "copy_each.py", 1, {}),
    ("keyed count", "count_keys.py", 1, _STORE),
    ("1:1", "copy_each.py", 2, {}),
    ("keyed count", "count_keys.py", 2, _STORE),
)
"""A title, a job file, the count of containers, and settings."""
BURN_US = 100
BURNT = 40_000
BURN_KEYS = 1000
SLOTS = 4


def cpu(ground: Ground) -> str:
    """CPU seconds per million records by factor, in one container and in two."""
    factors = (1, 8) if ground.is_quick else FACTORS
    rows, verdicts = [], []
    for number, (title, job_file, containers, settings) in enumerate(SUBJECTS[-1:] if ground.is_quick else SUBJECTS):
        name = f"scale-cpu-{number}"
        if containers == 1:
            with ScaledJob(ground, name, job_file, partitions=PARTITIONS, settings=settings) as job:
                phases = _phases(job, factors, 1, lambda: _copies(ground))
        else:
            phases = _phases_of_two(ground, name, job_file, settings, factors)
        row_title = f"{title}, {containers} container{'s' if containers > 1 else ''}"
        rows += _cost_rows(row_title, phases)
        ratio = _median(phases, 8) / _median(phases, 1)
        is_bound = containers == 1
        verdict = _verdict(ratio <= COST_MAX) if is_bound else ""
        verdicts.append((row_title, f"<= {COST_MAX:.2f}" if is_bound else "", f"{ratio:.2f}", verdict))
    return "\n\n".join(
        [
            "## Elasticity: CPU per record, by factor",
            report.table(("cost of factor 8 over factor 1", "wanted", "found", ""), verdicts),
            report.table(
                ("job", "factor", "CPU s per M records", "of runs", "to factor 1", *CPU_ROLES, "k records/s", "read"),
                rows,
            ),
            report.bullets(
                [
                    f"{_copies_count(ground):,} records of {RECORD_BYTES} bytes in a phase, {PARTITIONS} partitions; "
                    "two phases of each factor, after one that does not count. Medians; one container has `local[2]`, "
                    f"and the order {' '.join(map(str, there_and_back(factors, 1)))}.",
                    "Two containers have `local[1]` each, and are started anew with each factor: the parts of a "
                    "partition are spread, so both read all partitions but at factor 1, where each has half of them.",
                    "*read*: offsets read for each record handled, by all containers together; above 1 where several "
                    "containers read the same partition.",
                ]
            ),
        ]
    )


def cores(ground: Ground) -> str:
    """One partition whose task keeps a core busy, by factor, on four task slots."""
    rounds = ground.sized(2, 1)
    with ScaledJob(ground, "scale-cores", "burn.py", partitions=1, cores=SLOTS) as job:
        phases = _phases(job, (1, 2, 4), rounds, lambda: _burning(ground))
    base = statistics.median(phase.batch_s for phase in phases if phase.factor == 1)
    rows = []
    for factor, of_factor in _by_factor(phases):
        took_s = statistics.median(phase.batch_s for phase in of_factor)
        cpu_s = statistics.median(sum(phase.cpu_s.values()) for phase in of_factor)
        rows.append(
            (
                f"{factor}",
                f"**{took_s:.2f}**",
                "-".join(f"{value:.2f}" for value in _ends([phase.batch_s for phase in of_factor])),
                f"x {base / took_s:.2f}",
                f"{cpu_s:.2f}",
                f"{cpu_s / took_s:.2f}",
            )
        )
    return "\n\n".join(
        [
            "## Elasticity: one partition that keeps a core busy",
            report.table(("factor", "s", "of runs", "faster than factor 1", "CPU s", "cores busy"), rows),
            report.bullets(
                [
                    f"{_burnt(ground):,} records of one partition, {BURN_KEYS} keys; user code takes {BURN_US} us of "
                    f"CPU for each, waiting is none of it. `local[{SLOTS}]`: {SLOTS} task slots, however many cores "
                    "the machine has; with two of them, twice as fast is the most there can be. The time is that of "
                    "the micro-batches.",
                ]
            ),
        ]
    )


def _phases(
    job: ScaledJob,
    factors: Sequence[int],
    rounds: int,
    records: Callable[[], Iterator[tuple[bytes, bytes]]],
) -> list[Phase]:
    job.start()
    job.wait_at_work()
    measure_phase(job, factors[-1], records())
    return [_phase(job, factor, records()) for factor in there_and_back(factors, rounds)]


def _phases_of_two(
    ground: Ground, name: str, job_file: str, settings: Mapping[str, str], factors: Sequence[int]
) -> list[Phase]:
    """Two containers share the partitions of a job that begins with the factor."""
    two_phases = []
    for factor in factors:
        own = {**settings, "job.elasticity.factor": str(factor)}
        with ScaledJob(ground, f"{name}-{factor}", job_file, partitions=PARTITIONS, cores=1, settings=own) as job:
            job.factor = factor
            for containers in (1, 2):  # The first one is to lead.
                job.start(containers)
                job.wait_at_work()
            measure_phase(job, factor, _copies(ground))
            two_phases += [_phase(job, factor, _copies(ground)) for _ in range(2)]
    return two_phases


def _phase(job: ScaledJob, factor: int, records: Iterator[tuple[bytes, bytes]]) -> Phase:
    phase = measure_phase(job, factor, records)
    click.echo(
        f"{job.name}  factor {factor}  {phase.cpu_s_per_million:6.2f} CPU s/M  {phase.batch_s:5.2f} s  "
        f"read {phase.read:.2f}"
    )
    return phase


def _cost_rows(title: str, phases: Sequence[Phase]) -> list[tuple[str, ...]]:
    base = _median(phases, 1)
    return [
        (
            title,
            f"{factor}",
            f"**{_median(phases, factor):.1f}**",
            "-".join(f"{value:.1f}" for value in _ends([phase.cpu_s_per_million for phase in of_factor])),
            f"{_median(phases, factor) / base:.2f}",
            *(
                f"{statistics.median(phase.cpu_s[role] * 1e6 / phase.records for phase in of_factor):.1f}"
                for role in CPU_ROLES
            ),
            f"{statistics.median(phase.per_s for phase in of_factor) / 1e3:.0f}",
            f"{statistics.median(phase.read for phase in of_factor):.2f}",
        )
        for factor, of_factor in _by_factor(phases)
    ]


def _by_factor(phases: Sequence[Phase]) -> Iterator[tuple[int, list[Phase]]]:
    ordered = sorted(phases, key=lambda phase: phase.factor)
    for factor, group in itertools.groupby(ordered, key=lambda phase: phase.factor):
        yield factor, list(group)


def _median(phases: Sequence[Phase], factor: int) -> float:
    return statistics.median(phase.cpu_s_per_million for phase in phases if phase.factor == factor)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _verdict(is_reached: bool) -> str:
    return "pass" if is_reached else "**fail**"


def _copies_count(ground: Ground) -> int:
    return ground.sized(RECORDS, 40_000)


def _copies(ground: Ground) -> Iterator[tuple[bytes, bytes]]:
    return random_records(_copies_count(ground), RECORD_BYTES, ground.seed)


def _burnt(ground: Ground) -> int:
    return ground.sized(BURNT, 3000)


def _burning(ground: Ground) -> Iterator[tuple[bytes, bytes]]:
    return ((b"%04d" % (number * 7919 % BURN_KEYS), b"%08d" % BURN_US) for number in range(_burnt(ground)))
