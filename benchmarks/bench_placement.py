"""The wait of keys when a container moves or is lost: `scripts/bench placement`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench_placement_loss import loss
from bench_placement_move import move
from bench_scale import measured
from bench_scale_job import Ground

from samzapy.cli.class_archive import made_archive

STATE_MB = 200
QUICK_MB = 5
PLACEMENTS: Mapping[str, Callable[[Ground, int], str]] = {"move": move, "loss": loss}


def placement_section(part: str, ground: Ground, state_mb: int) -> str:
    """Measure a part; its section, conditions included."""
    made_archive({})
    return measured(lambda at: PLACEMENTS[part](at, at.sized(state_mb, QUICK_MB)), ground)
