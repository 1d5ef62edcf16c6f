"""The load of key buckets: a row for each partition, a column for each bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from samzapy.inspection.page.look import Look
from samzapy.model.ssp import SystemStreamPartition

CELLS_MAX: Final = 2048
ROWS_MAX: Final = 100
LEVELS: Final = 10


@dataclass(frozen=True, slots=True)
class HeatCell:
    """The rate of a key bucket; `level` from 0 to 9 is its share of the largest rate."""

    records_per_s: float | None
    level: int


@dataclass(frozen=True, slots=True)
class HeatRow:
    """The buckets of a partition, in their order."""

    ssp: SystemStreamPartition
    cells: Sequence[HeatCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """The busiest partitions first.

    Attributes:
        left_out: the partitions that there is no room for; they are the least busy ones.
        spread: how many times as busy as the mean bucket the busiest one is; None if no rate is known.
    """

    factor: int
    rows: Sequence[HeatRow]
    left_out: int
    spread: float | None


def heat_map(look: Look) -> HeatMap:
    """The heat map of a look, at the factor of the plan in force."""
    factor = look.load.factor
    buckets = _rates(look, factor)
    order = sorted(buckets, key=lambda ssp: (-sum(buckets[ssp].values()), ssp))
    shown = order[: min(ROWS_MAX, CELLS_MAX // factor)]
    known = [rate for ssp in order for rate in buckets[ssp].values()]
    largest = max(known, default=0.0)
    mean = sum(known) / len(known) if known else 0.0
    return HeatMap(
        factor=factor,
        rows=[HeatRow(ssp, [_cell(buckets[ssp].get(bucket), largest) for bucket in range(factor)]) for ssp in shown],
        left_out=len(order) - len(shown),
        spread=largest / mean if mean else None,
    )


def _rates(look: Look, factor: int) -> Mapping[SystemStreamPartition, Mapping[int, float]]:
    """The known rates by bucket.

    A broadcast input has no buckets, and those of another factor are on their way out.
    """
    rates: dict[SystemStreamPartition, dict[int, float]] = {}
    for pace in look.paces().values():
        for ssp_kb in pace.now.positions:
            rate = pace.records_per_s(ssp_kb)
            if rate is not None and not ssp_kb.reader and ssp_kb.factor == factor:
                rates.setdefault(ssp_kb.ssp, {})[ssp_kb.bucket] = rate
    return rates


def _cell(rate: float | None, largest: float) -> HeatCell:
    level = int(LEVELS * rate / largest) if rate is not None and largest else 0
    return HeatCell(rate, min(level, LEVELS - 1))
