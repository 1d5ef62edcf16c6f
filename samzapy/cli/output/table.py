"""Rows for people in plain columns.

No line is broken, and a terminal obeys no cell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from samzapy.cli.output.columns import Columns


def print_rows(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, numbers: Collection[str] = ()
) -> None:
    """Print these columns of the rows under their names.

    Those of `numbers` are aligned to the right. An empty cell is shown as `-`.
    """
    cells = [["-" if row[column] in (None, "") else str(row[column]) for column in columns] for row in rows]
    print_table(columns, cells, right=numbers, heading=str)


def print_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    heading: Callable[[str], str] = str.upper,
) -> None:
    """Print the rows under their heading; the arguments are those of `Columns`."""
    Columns(names, right=right, heading=heading).write(rows)
