"""Rows for people, as every listing prints them: plain columns, no line broken, nothing that a terminal obeys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from samzapy.cli.terminal import printable


def print_rows(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, numbers: Collection[str] = ()
) -> None:
    """Print these columns of the rows under their names; those of `numbers` to the right. Nothing is shown as `-`."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True, justify="right" if column in numbers else "left")
    for row in rows:
        texts = ("-" if row[column] in (None, "") else printable(str(row[column])) for column in columns)
        table.add_row(*(Text(text) for text in texts))
    Console(width=1000, highlight=False).print(table)
