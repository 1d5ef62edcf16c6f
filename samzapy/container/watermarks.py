"""The watermark of a task now, from the clocks that its worker has reported. Pure.

Time that passes without messages is committed only when a timer is due by it (`container.task.clocks`). So the reported
watermark of a quiet task stands. Shown is the one that a timer would meet, in which quiet inputs' clocks run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from samzapy.container.task.clocks import FAR_MS, UNKNOWN_MS, ran_ms
from samzapy.model.time_figures import SeenClock, TimeFigures


def standing(seen: TimeFigures, covered_ms: Mapping[str, int], *, idle_ms: int, wall_ms: int) -> TimeFigures:
    """The watermark, its lag, and the input that holds it back.

    Args:
        seen: as the worker has reported it.
        covered_ms: by input, up to which moment it is covered, on the host's clock since its boot; `FAR_MS` for one
            that has ended. Inputs of which that is not known are missing.
        idle_ms: of task.event.time.idle.ms.
        wall_ms: the host's clock now.
    """
    clocks = {ssp_kb: _clock_ms(clock, covered_ms.get(ssp_kb), idle_ms) for ssp_kb, clock in seen.inputs.items()}
    held_by = min(clocks, key=lambda ssp_kb: (clocks[ssp_kb], ssp_kb), default="")
    least_ms = clocks.get(held_by, FAR_MS)
    reported_ms = UNKNOWN_MS if seen.watermark_ms is None else seen.watermark_ms
    # It never falls, also where an input is new or was rewound.
    watermark_ms = max(reported_ms, least_ms) if least_ms < FAR_MS else reported_ms
    has_one = watermark_ms != UNKNOWN_MS
    return replace(
        seen,
        watermark_ms=watermark_ms if has_one else None,
        lag_ms=max(0, wall_ms - watermark_ms) if has_one else None,
        held_by=held_by if least_ms < FAR_MS else "",
        inputs={},
    )


def _clock_ms(clock: SeenClock, covered_ms: int | None, idle_ms: int) -> int:
    """The clock of an input now; `FAR_MS` if it holds nothing back."""
    if covered_ms is None:
        return clock.clock_ms if clock.is_known else UNKNOWN_MS
    if covered_ms == FAR_MS or clock.clock_ms == FAR_MS:
        return FAR_MS
    return clock.clock_ms + ran_ms(covered_ms, clock.quiet_since_ms, idle_ms)
