"""What `scripts/bench latency` found as text: one row per subject and rate, and what is to be reached."""

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

    word: str
    name: str
    rate: str
    found: Latency
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What was found is to be at most `bound`; `found` is None where there were too few records."""

    what: str
    unit: str
    bound: float
    found: float | None


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
                *(f"{'-' if ms is None else f'{ms:.1f}'}" for ms in percentiles(row.found.latencies_ms, PERCENTS)),
                f"{row.found.cores:.2f}",
                ", ".join(f"{row.found.cores_of.get(role, 0.0):.2f}" for role in CPU_ROLES),
                "-" if row.found.idle_cores is None else f"{row.found.idle_cores:.3f}",
                f"{row.found.lost}",
                f"{row.found.doubled}",
                f"{len(row.found.latencies_ms)}",
                f"{row.found.others_cores:.2f}",
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
                bar.what,
                f"<= {bar.bound:g}{bar.unit}",
                "too few records" if bar.found is None else f"{bar.found:.3g}{bar.unit}",
                "-" if bar.found is None else "pass" if bar.found <= bar.bound else "**fail**",
            )
            for bar in bars(rows)
        ],
    )


def bars(rows: Sequence[Row]) -> Sequence[Bar]:
    """Of the rows of samzapy with tails; its share of cores needs the row without tails at the same rate."""
    found: list[Bar] = []
    for row in rows:
        if not row.word.startswith("samzapy") or "no-tail" in row.word:
            continue
        where = f"{row.name}, {row.rate}/s"
        found += [*_latency_bars(row, where), *_cores_bars(row, where, rows)]
        found.append(
            Bar(what=f"{where}: lost and doubled", unit="", bound=0, found=row.found.lost + row.found.doubled)
        )
    return found


def _latency_bars(row: Row, where: str) -> Sequence[Bar]:
    if row.rate != "200":
        return ()
    values = percentiles(row.found.latencies_ms, [percent for percent, _ in _LATENCY_MAX_MS])
    return [
        Bar(what=f"{where}: p{percent:g}", unit=" ms", bound=bound, found=ms)
        for (percent, bound), ms in zip(_LATENCY_MAX_MS, values, strict=True)
    ]


def _cores_bars(row: Row, where: str, rows: Sequence[Row]) -> Sequence[Bar]:
    found = []
    if row.rate in ("50", "200"):
        found.append(Bar(what=f"{where}: cores", unit="", bound=_CORES_MAX, found=row.found.cores))
    word = row.word.replace("samzapy", "samzapy-no-tail", 1)
    without = next((other for other in rows if (other.word, other.rate) == (word, row.rate)), None)
    if row.rate == "2000" and without is not None:
        share = row.found.cores / without.found.cores
        found.append(
            Bar(what=f"{where}: cores, of those without tails", unit="", bound=_CORES_SHARE_MAX, found=share)
        )
    if row.found.idle_cores is not None:
        found.append(Bar(what=f"{row.name}: idle cores", unit="", bound=_IDLE_CORES_MAX, found=row.found.idle_cores))
    return found


def section(rows: Sequence[Row], skipped: Sequence[str], conditions: Sequence[str]) -> str:
    """The section of the page; `skipped` says what did not run, and why."""
    said = bullets([*conditions, *skipped])
    return "\n\n".join(["## Latency side by side", bars_table(rows), rows_table(rows), "Conditions:", said])
