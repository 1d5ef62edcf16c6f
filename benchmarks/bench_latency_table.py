"""The results of `scripts/bench latency` as text: a row per subject and rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench_latency import Latency, percentiles
from bench_measure import CPU_ROLES
from bench_report import bullets, table

PERCENTS = (50, 90, 95, 99, 99.9, 100)
_COLUMNS = ("p50 ms", "p90", "p95", "p99", "p99.9", "max")
_LATENCY_MAX_MS = ((50, 8), (95, 20), (99, 100), (99.9, 500))
_CORES_MAX = 0.3
_CORES_SHARE_MAX = 0.6
_IDLE_CORES_MAX = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One subject at one rate; `load` is the load average after it."""

    subject: str
    name: str
    rate: str
    latency: Latency
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A figure that is to be at most `bound`; `measured` is None with too few records."""

    title: str
    unit: str
    bound: float
    measured: float | None


def rows_table(rows: Sequence[Row]) -> str:
    """Everything measured, in the order in which it was."""
    return table(
        (
            "subject",
            "records/s",
            *_COLUMNS,
            "cores",
            "by JVM, JIT, driver, workers",
            "idle cores",
            "lost",
            "doubled",
            "records",
            "others",
            "load",
        ),
        [
            (
                row.name,
                row.rate,
                *(f"{'-' if ms is None else f'{ms:.1f}'}" for ms in percentiles(row.latency.latencies_ms, PERCENTS)),
                f"{row.latency.cores:.2f}",
                ", ".join(f"{row.latency.cores_of.get(role, 0.0):.2f}" for role in CPU_ROLES),
                "-" if row.latency.idle_cores is None else f"{row.latency.idle_cores:.3f}",
                f"{row.latency.lost}",
                f"{row.latency.doubled}",
                f"{len(row.latency.latencies_ms)}",
                f"{row.latency.others_cores:.2f}",
                f"{row.load:.1f}",
            )
            for row in rows
        ],
    )


def bars_table(rows: Sequence[Row]) -> str:
    """Each bar whose rows were measured, and whether it is reached."""
    return table(
        ("to be reached", "wanted", "found", ""),
        [
            (
                bar.title,
                f"<= {bar.bound:g}{bar.unit}",
                "too few records" if bar.measured is None else f"{bar.measured:.3g}{bar.unit}",
                "-" if bar.measured is None else "pass" if bar.measured <= bar.bound else "**fail**",
            )
            for bar in bars(rows)
        ],
    )


def bars(rows: Sequence[Row]) -> Sequence[Bar]:
    """The bars of samzapy with tails; the share of cores needs the row without tails."""
    bars_of_rows: list[Bar] = []
    for row in rows:
        if not row.subject.startswith("samzapy") or "no-tail" in row.subject:
            continue
        where = f"{row.name}, {row.rate}/s"
        bars_of_rows += [*_latency_bars(row, where), *_cores_bars(row, where, rows)]
        bars_of_rows.append(
            Bar(title=f"{where}: lost and doubled", unit="", bound=0, measured=row.latency.lost + row.latency.doubled)
        )
    return bars_of_rows


def _latency_bars(row: Row, where: str) -> Sequence[Bar]:
    if row.rate != "200":
        return ()
    values = percentiles(row.latency.latencies_ms, [percent for percent, _ in _LATENCY_MAX_MS])
    return [
        Bar(title=f"{where}: p{percent:g}", unit=" ms", bound=bound, measured=ms)
        for (percent, bound), ms in zip(_LATENCY_MAX_MS, values, strict=True)
    ]


def _cores_bars(row: Row, where: str, rows: Sequence[Row]) -> Sequence[Bar]:
    cores_bars = []
    if row.rate in ("50", "200"):
        cores_bars.append(Bar(title=f"{where}: cores", unit="", bound=_CORES_MAX, measured=row.latency.cores))
    name = row.subject.replace("samzapy", "samzapy-no-tail", 1)
    without = next((other for other in rows if (other.subject, other.rate) == (name, row.rate)), None)
    if row.rate == "2000" and without is not None:
        share = row.latency.cores / without.latency.cores
        cores_bars.append(
            Bar(title=f"{where}: cores, of those without tails", unit="", bound=_CORES_SHARE_MAX, measured=share)
        )
    if row.latency.idle_cores is not None:
        cores_bars.append(
            Bar(title=f"{row.name}: idle cores", unit="", bound=_IDLE_CORES_MAX, measured=row.latency.idle_cores)
        )
    return cores_bars


def section(rows: Sequence[Row], skipped: Sequence[str], conditions: Sequence[str]) -> str:
    """The section of the page; `skipped` has the subjects that did not run, and why."""
    notes = bullets([*conditions, *skipped])
    return "\n\n".join(["## Latency side by side", bars_table(rows), rows_table(rows), "Conditions:", notes])
