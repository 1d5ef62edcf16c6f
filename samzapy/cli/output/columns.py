"""Streams rows as columns to a terminal, so that a history may exceed memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

import click

from samzapy.cli.output.terminal import Terminal, printable, terminal

_WIDTHS_BY_ROWS = 500
_PADDED_MAX = 60
"""A longer cell moves the rest of its own row to the right, and puts no blanks into all other rows."""

_GAP: Final = "  "
_COLUMN_MIN: Final = 6
_ID_MIN: Final = 8
IDS: Final = frozenset({"container", "executionid", "execution", "owner", "granted to", "progressexecution"})
"""Columns of ids, which a terminal shows as short as they are unique."""

_STATES: Final = frozenset({"state", "phase", "severity"})
_COLOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("running", "runs"), "green"),
    **dict.fromkeys(("started", "wanted", "launched", "stopping", "notice", "degraded"), "yellow"),
    **dict.fromkeys(("lost", "fenced", "data", "not running"), "red"),
}


class Columns:
    """Writes rows under a heading.

    The first rows decide how wide a column is. On a terminal, rows fit its width: a longer cell of a later row gets the
    room that is left, and is cut beyond it. Elsewhere nothing is cut or folded.

    Args:
        right: the right-aligned columns.
        heading: makes the heading of a column from its name.
        nothing: the line in place of a table without rows.
        on: the terminal; None: that of this command.

    Attributes:
        is_cut: whether a cell was cut to the terminal so far.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        right: Collection[str] = (),
        heading: Callable[[str], str] = str.upper,
        nothing: str = "",
        on: Terminal | None = None,
    ) -> None:
        self._names = [heading(name) for name in names]
        self._right = [name in right for name in names]
        self._is_id = [name.lower() in IDS for name in names]
        self._is_state = [name.lower() in _STATES for name in names]
        self._nothing = nothing
        self._terminal = terminal() if on is None else on
        # Empty until the first rows are known.
        self._widths: Sequence[int] = ()
        self._id_length = _ID_MIN
        self.is_cut = False

    def write(self, rows: Iterable[Sequence[str]]) -> None:
        """Append `rows` to those already written."""
        for line in self.lines(rows):
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def lines(self, rows: Iterable[Sequence[str]]) -> Iterator[str]:
        """The lines of `rows`, under the heading if they are the first ones."""
        coming: Iterator[Sequence[str]] = iter(rows)
        if not self._widths:
            first = list(islice(coming, _WIDTHS_BY_ROWS))
            if not first and self._nothing:
                yield self._nothing
                self._nothing = ""
                return
            self._widths = self._widths_of(first)
            yield self._line(self._names, is_heading=True)
            coming = chain(first, coming)
        for row in coming:
            yield self._line(row)

    def _widths_of(self, rows: Sequence[Sequence[str]]) -> Sequence[int]:
        shown = [[printable(cell) for cell in row] for row in rows]
        columns = list(zip(self._names, *shown, strict=True))
        if self._terminal.width is None:
            return [_width(column) for column in columns]
        ids = {cell for column, is_id in zip(columns, self._is_id, strict=True) if is_id for cell in column[1:]}
        self._id_length = unique_length(ids)
        widths = [
            max(len(column[0]), *(min(len(cell), self._id_length) if is_id else len(cell) for cell in column))
            for column, is_id in zip(columns, self._is_id, strict=True)
        ]
        return fitted(widths, self._terminal.width - len(_GAP) * (len(widths) - 1))

    def _width_of_all(self) -> int:
        return sum(self._widths) + len(_GAP) * (len(self._widths) - 1)

    def _line(self, cells: Sequence[str], *, is_heading: bool = False) -> str:
        parts = []
        last = len(cells) - 1
        room = 0 if self._terminal.width is None else self._terminal.width - self._width_of_all()
        for number, cell in enumerate(cells):
            text, width = printable(cell), self._widths[number]
            if self._terminal.width is not None:
                text = text[: self._id_length] if self._is_id[number] and not is_heading else text
                # In this row only: one long cell must not take the room of all later rows.
                more = max(0, min(len(text) - width, room))
                room, width = room - more, width + more
                if len(text) > width:
                    text, self.is_cut = f"{text[: width - 1]}…", True
            padded = text.rjust(width) if self._right[number] else text.ljust(width)
            padded = padded.rstrip() if number == last else padded
            if self._terminal.is_coloured and self._is_state[number] and not is_heading:
                padded = _coloured(padded)
            parts.append(padded)
        return _GAP.join(parts).rstrip()


def fitted(widths: Sequence[int], room: int) -> Sequence[int]:
    """The widths, of which the widest are narrowed until all fit into `room`.

    No column is narrower than a few letters, so many columns may still be wider than the room.
    """
    narrowed = list(widths)
    while sum(narrowed) > room and max(narrowed) > _COLUMN_MIN:
        widest = max(range(len(narrowed)), key=narrowed.__getitem__)
        narrowed[widest] -= 1
    return narrowed


def unique_length(ids: Collection[str]) -> int:
    """The length, eight at least, at which the beginnings of all ids still differ."""
    longest = max(map(len, ids), default=0)
    return next(
        (length for length in range(_ID_MIN, longest) if len({text[:length] for text in ids}) == len(ids)),
        max(longest, _ID_MIN),
    )


def _coloured(padded: str) -> str:
    colour = _COLOURS.get(padded.strip().lower())
    return padded if colour is None else click.style(padded, fg=colour)


def _width(column: Sequence[str]) -> int:
    """The width of a column; its first cell is the heading."""
    return max(len(cell) for number, cell in enumerate(column) if number == 0 or len(cell) <= _PADDED_MAX)
