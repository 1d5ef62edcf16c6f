"""Rows for people in columns, or as JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from samzapy.cli.output.columns import Columns
from samzapy.cli.output.option import is_json, print_json


def show_rows(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    output: str,
    *,
    numbers: Collection[str] = (),
    nothing: str = "0 rows",
) -> None:
    """Print the rows in a format of `-o`; a table has these columns only."""
    if is_json(output):
        print_json(list(rows), output)
    else:
        print_rows(rows, columns, numbers=numbers, nothing=nothing)


def print_rows(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    *,
    numbers: Collection[str] = (),
    nothing: str = "0 rows",
) -> None:
    """Print these columns of the rows under their names.

    Those of `numbers` are aligned to the right. An empty cell is shown as `-`. Without rows, `nothing` is printed.
    """
    cells = [["-" if row[column] in (None, "") else str(row[column]) for column in columns] for row in rows]
    print_table(columns, cells, right=numbers, heading=str, nothing=nothing)


def print_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    heading: Callable[[str], str] = str.upper,
    nothing: str = "",
) -> None:
    """Print the rows under their heading; the arguments are those of `Columns`."""
    Columns(names, right=right, heading=heading, nothing=nothing).write(rows)
