"""The results of the benchmark as text: tables and bounds.

`docs/internals/performance.md` has one section per subcommand. A run replaces its own and leaves the
others unchanged.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_latency import Latency
from bench_measure import CPU_ROLES, ROLES, Steady, percentile

TITLE = """# Performance

The cost of the data path beside Spark and Kafka by themselves, \
the pauses of keys when a container moves or is lost, and the cost of elasticity.
Written by `scripts/bench`; do not edit.
Read the figures as ratios within one table: on another machine, or under another load, all of them move.
"""
SCALE = ("pause", "timers", "moved", "cpu", "cores", "slow", "memory", "tasks", "store", "spread")
"""Parts of `scripts/bench scale`, in the order of the page."""
PLACEMENT = ("move", "loss")
"""Parts of `scripts/bench placement`, in the same way."""
SECTIONS = (
    *("data", "latency", "rss", "audit", "heartbeats", "connections"),
    *(f"placement-{part}" for part in PLACEMENT),
    *(f"scale-{part}" for part in SCALE),
    *("timers", "api", "due", "reader", "start"),
)
MEMORY_GROWTH_MAX = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One run of one subject.

    `first_s`: from the start of the process to the end of the first batch. `others_cores`: cores of other processes
    meanwhile.
    """

    subject: str
    size: int
    steady: Steady
    first_s: float
    others_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A bound for `subject` over `base`: the least, or for latency the most."""

    title: str
    subject: str
    base: str
    size: int
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Proportional set sizes in MiB by role, when so many records were done."""

    records: int
    mib: Mapping[str, float]

    @property
    def total_mib(self) -> float:
        return sum(self.mib.values())


def with_section(page: str, name: str, body: str) -> str:
    """`page` with `body` as the section `name`, in its place among `SECTIONS`.

    The text written by hand is after the sections, and stays.

    Raises:
        ValueError: the section has no place. Its old text would stay below, as if it were written by hand.
    """
    if name not in SECTIONS:
        raise ValueError(f"wanted a section of {', '.join(SECTIONS)}, found {name}; give it a place in SECTIONS")
    sections = {other: _between(page, other) for other in SECTIONS}
    by_hand = page[max(_end_of(page, other) for other in SECTIONS) :].strip()
    sections[name] = body.strip()
    parts = [f"{_mark(other)}\n{text}\n{_mark(other, 'end')}\n" for other, text in sections.items() if text]
    return "\n".join([TITLE, *parts, *([f"{by_hand}\n"] if by_hand else [])])


def write_section(path: Path, name: str, body: str) -> None:
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(with_section(page, name, body), encoding="utf-8")


def _mark(name: str, edge: str = "begin") -> str:
    return f"<!-- {edge} {name} -->"


def _end_of(page: str, name: str) -> int:
    """The offset after the section; 0 if there is none."""
    _, end, rest = page.partition(_mark(name, "end"))
    return len(page) - len(rest) if end else 0


def _between(page: str, name: str) -> str:
    _, begin, rest = page.partition(_mark(name))
    text, end, _ = rest.partition(_mark(name, "end"))
    return text.strip() if begin and end else ""


def throughput_table(runs: Sequence[Throughput], names: Mapping[str, str]) -> str:
    """One row per subject and record size: medians, and the range of the figure."""
    lines = [
        "| bytes | subject | k records per CPU-second | of runs | k records per s | us CPU per record: "
        + " | ".join(CPU_ROLES)
        + " | first batch s | others, cores |",
        "|" + "---|" * (7 + len(CPU_ROLES)),
    ]
    for size in dict.fromkeys(run.size for run in runs):
        for name in names:
            of_size = [run for run in runs if (run.size, run.subject) == (size, name)]
            if not of_size:
                continue
            per_cpu_s = [run.steady.per_cpu_s / 1e3 for run in of_size]
            roles = [_median(run.steady.cpu_us_per_record(role) for run in of_size) for role in CPU_ROLES]
            lines.append(
                f"| {size} | {names[name]} | **{_median(per_cpu_s):.0f}** | {_range(per_cpu_s)} "
                f"| {_median(run.steady.per_wall_s / 1e3 for run in of_size):.0f} | "
                + " | ".join(f"{us:.2f}" for us in roles)
                + f" | {_median(run.first_s for run in of_size):.1f}"
                + f" | {_median(run.others_cores for run in of_size):.2f} |"
            )
    return "\n".join(lines)


def latency_table(latencies_by_name: Mapping[str, Sequence[Latency]], names: Mapping[str, str]) -> str:
    lines = ["| subject | p50 ms | of runs | p99 ms | first output s | records | others, cores |", "|" + "---|" * 7]
    for name, latencies in latencies_by_name.items():
        p50, p99 = ([percentile(latency.latencies_ms, percent) for latency in latencies] for percent in (50.0, 99.0))
        lines.append(
            f"| {names[name]} | **{_median(p50):.0f}** | {_range(p50)} | {_median(p99):.0f} "
            f"| {_median(latency.startup_s for latency in latencies):.1f} "
            f"| {sum(len(latency.latencies_ms) for latency in latencies)} "
            f"| {_median(latency.others_cores for latency in latencies):.2f} |"
        )
    return "\n".join(lines)


def reach_table(
    runs: Sequence[Throughput], latencies: Mapping[str, Sequence[Latency]], reaches: Sequence[Reach]
) -> str:
    """Each bound, and whether it is reached; without subjects that did not run."""
    lines = ["| to be reached | bytes | wanted | found | |", "|" + "---|" * 5]
    for reach in reaches:
        if reach.size:
            ratio = ratio_of(runs, reach)
            if ratio is not None:
                verdict = "pass" if ratio >= reach.bound else "**fail**"
                lines.append(f"| {reach.title} | {reach.size} | >= {reach.bound:.2f} | {ratio:.2f} | {verdict} |")
        elif reach.subject in latencies and reach.base in latencies:
            ratio = _p50(latencies[reach.subject]) / _p50(latencies[reach.base])
            verdict = "pass" if ratio <= reach.bound else "**fail**"
            lines.append(f"| {reach.title} | - | <= {reach.bound:.2f} | {ratio:.2f} | {verdict} |")
    return "\n".join(lines)


def ratio_of(runs: Sequence[Throughput], reach: Reach) -> float | None:
    """The ratio of the medians of records per CPU-second."""
    both = [
        [run.steady.per_cpu_s for run in runs if (run.size, run.subject) == (reach.size, name)]
        for name in (reach.subject, reach.base)
    ]
    return _median(both[0]) / _median(both[1]) if all(both) else None


def memory_by_million(samples: Sequence[Memory], step: int = 1_000_000) -> Sequence[Memory]:
    """The largest sample of each step; its step is that of the last record done."""
    steps: dict[int, Memory] = {}
    for sample in samples:
        number = max(0, sample.records - 1) // step
        if number not in steps or sample.total_mib > steps[number].total_mib:
            steps[number] = sample
    return [Memory(records=(number + 1) * step, mib=steps[number].mib) for number in sorted(steps)]


def growth_of(steps: Sequence[Memory], measure: Callable[[Memory], float]) -> float:
    """The last step's figure over the second's: the first step loads and compiles."""
    return measure(steps[-1]) / measure(steps[1])


def memory_table(steps: Sequence[Memory]) -> str:
    lines = ["| records | " + " | ".join(ROLES) + " | together |", "|" + "---|" * (2 + len(ROLES))]
    lines += [
        f"| {step.records / 1e6:g} M | "
        + " | ".join(f"{step.mib.get(role, 0.0):.0f}" for role in ROLES)
        + f" | {step.total_mib:.0f} |"
        for step in steps
    ]
    return "\n".join(lines)


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _p50(latencies: Sequence[Latency]) -> float:
    return _median(percentile(latency.latencies_ms, 50) for latency in latencies)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _range(values: Sequence[float]) -> str:
    return "-".join(f"{value:.0f}" for value in (min(values), max(values)))
