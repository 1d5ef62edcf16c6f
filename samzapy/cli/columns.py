"""Rows as columns on a terminal, written as they come: a history may be longer than memory, or have no end yet."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice

from samzapy.cli.terminal import printable

_WIDTHS_BY_ROWS = 500


class Columns:
    """Writes rows under a heading. The first rows decide how wide a column is; nothing is ever cut.

    Args:
        right: the columns whose cells stand at the right.
    """

    def __init__(self, names: Sequence[str], *, right: Collection[str] = ()) -> None:
        self._names = [name.upper() for name in names]
        self._right = {name.upper() for name in right}
        # A row as a text with a place for each cell; None until the widths are known.
        self._row: str | None = None

    def write(self, rows: Iterable[Sequence[str]]) -> None:
        """Write `rows` behind those written before."""
        coming: Iterator[Sequence[str]] = iter(rows)
        if self._row is None:
            first = list(islice(coming, _WIDTHS_BY_ROWS))
            shown = [[printable(cell) for cell in row] for row in first]
            widths = [max(map(len, column)) for column in zip(self._names, *shown, strict=True)]
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
            # Made anew, because what is shown is longer than what it stands for.
            line = self._row % tuple(map(printable, cells))
        sys.stdout.write(line.rstrip() + "\n")
