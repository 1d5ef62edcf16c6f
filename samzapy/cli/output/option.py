"""The option `-o` of the commands that print for people or for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from samzapy.cli.output.terminal import printable

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS: Final = ("table", "wide", "json", "jsonl")


def output_option(first: Sequence[str] = ()) -> Callable[[Command], Command]:
    """The option for the output formats; the first one is the default.

    Args:
        first: formats that only this command has.
    """
    formats = [*first, *FORMATS]
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Choose the output format. table fits a terminal, wide cuts nothing, jsonl has an object per line.",
    )


def is_json(output: str) -> bool:
    """Whether the output is for programs."""
    return output in ("json", "jsonl")


def print_json(value: object, output: str) -> None:
    """Print one object, or the objects of a list.

    `json` is one indented value. `jsonl` is a line for each object.
    """
    if output == "json":
        click.echo(json.dumps(value, indent=2))
        return
    for item in value if isinstance(value, list | tuple) else [value]:
        click.echo(json.dumps(item))


def print_json_stream(items: Iterable[Mapping[str, object]], output: str) -> None:
    """Print items as they come: a line for each (`jsonl`), or one array (`json`)."""
    out = sys.stdout
    if output == "jsonl":
        out.writelines(f"{json.dumps(item)}\n" for item in items)
    else:
        before = "[\n"
        for item in items:
            out.write(f"{before}  {json.dumps(item)}")
            before = ",\n"
        out.write("[]\n" if before == "[\n" else "\n]\n")
    out.flush()


def print_result(facts: Mapping[str, object], text: str, output: str) -> None:
    """Print what a command did: its facts for programs, `text` for people."""
    if is_json(output):
        print_json(facts, output)
    else:
        click.echo(printable(text))
