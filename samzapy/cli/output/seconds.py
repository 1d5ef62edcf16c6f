"""A number of seconds on the command line."""

from __future__ import annotations

import math
from typing import Any

import click

from samzapy.model.placement import EXPIRY_MS_MAX

_MOST = EXPIRY_MS_MAX / 1000


class Seconds(click.FloatRange):
    """From `least` up to the longest time that a request may take: `nan` and `inf` are numbers, but no times."""

    def __init__(self, least: float = 0) -> None:
        super().__init__(min=least, max=_MOST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"wanted a number of seconds from {self.min:g} to {self.max:g}, found {value}.", param, ctx)
        return found
