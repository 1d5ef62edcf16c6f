"""The terminal that a command prints to, and text that it does not obey."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import NamedTuple

import click


class Terminal(NamedTuple):
    """The width and the colours of a terminal; without a width nothing is cut."""

    width: int | None = None
    is_coloured: bool = False


def terminal() -> Terminal:
    """The terminal of this command; a pipe and `-o wide` have no width."""
    is_terminal = sys.stdout.isatty()
    context = click.get_current_context(silent=True)
    is_wide = context is not None and context.params.get("output") == "wide"
    return Terminal(
        width=shutil.get_terminal_size().columns if is_terminal and not is_wide else None,
        is_coloured=is_terminal and takes_colours(os.environ),
    )


def takes_colours(environment: Mapping[str, str]) -> bool:
    """Whether the user wants colours; https://no-color.org names the variable."""
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def printable(text: str) -> str:
    """The text with control codes escaped, so that a terminal does not obey them."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def printable_lines(text: str) -> str:
    """`printable` for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))
