"""A click parameter type for seconds."""

from __future__ import annotations

import math
from typing import Any

import click

from samzapy.model.expiry import EXPIRY_MS_MAX

_MOST = EXPIRY_MS_MAX / 1000


class Seconds(click.FloatRange):
    """Seconds from `least` up to the longest request time.

    `nan` and `inf` are refused.
    """

    def __init__(self, least: float = 0) -> None:
        super().__init__(min=least, max=_MOST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"wanted a number of seconds from {self.min:g} to {self.max:g}, found {value}.", param, ctx)
        return seconds
