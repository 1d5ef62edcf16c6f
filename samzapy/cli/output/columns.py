"""Streams rows as columns to a terminal, so that a history may exceed memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice

from samzapy.cli.output.terminal import printable

_WIDTHS_BY_ROWS = 500
_PADDED_MAX = 60
"""A longer cell moves the rest of its own row to the right, and puts no blanks into all other rows."""


class Columns:
    """Writes rows under a heading.

    The first rows decide how wide a column is; nothing is ever cut or folded.

    Args:
        right: the right-aligned columns.
        heading: makes the heading of a column from its name.
    """

    def __init__(
        self, names: Sequence[str], *, right: Collection[str] = (), heading: Callable[[str], str] = str.upper
    ) -> None:
        self._names = [heading(name) for name in names]
        self._right = {heading(name) for name in right}
        # A row as a text with a place for each cell; None until the widths are known.
        self._row: str | None = None

    def write(self, rows: Iterable[Sequence[str]]) -> None:
        """Append `rows` to those already written."""
        coming: Iterator[Sequence[str]] = iter(rows)
        if self._row is None:
            first = list(islice(coming, _WIDTHS_BY_ROWS))
            shown = [[printable(cell) for cell in row] for row in first]
            widths = [_width(column) for column in zip(self._names, *shown, strict=True)]
            self._row = "  ".join(
                f"%{'' if name in self._right else '-'}{width}s"
                for name, width in zip(self._names, widths, strict=True)
            )
            self._line(self._names)
            coming = chain(first, coming)
        for row in coming:
            self._line(row)
        sys.stdout.flush()

    def _line(self, cells: Sequence[str]) -> None:
        assert self._row is not None, "widths come first"
        line = self._row % tuple(cells)
        if not line.isprintable():
            # Formatted again, because an escaped cell is longer.
            line = self._row % tuple(map(printable, cells))
        sys.stdout.write(line.rstrip() + "\n")


def _width(column: Sequence[str]) -> int:
    """The width of a column; its first cell is the heading."""
    return max(len(cell) for number, cell in enumerate(column) if number == 0 or len(cell) <= _PADDED_MAX)
