"""The option `-o` of the commands that print for people or for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(formats: Sequence[str] = ("table", "json")) -> Callable[[Command], Command]:
    """The option for these output formats; the first one is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(list(formats)),
        default=formats[0],
        show_default=True,
        help="Choose the output format.",
    )
