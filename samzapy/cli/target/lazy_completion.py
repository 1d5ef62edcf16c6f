"""Connects options with the completion of their values.

The completion is imported when a shell asks."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import click

Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def completes(what: str) -> Completion:
    """The completion of `jobs`, `tasks` or others, a function of `target.completion`."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        answer: Completion = getattr(import_module("samzapy.cli.target.completion"), f"complete_{what}")
        return answer(context, parameter, incomplete)

    return complete
