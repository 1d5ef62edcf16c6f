"""The signs of incidents in readable text, and the table of a check. Pure.

A sign is a regular expression. It is searched in the text of the page, and in the output of commands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Final

WITHIN_S: Final = 60.0
"""A cause that is shown later is not shown in time."""
_WORDS_MAX: Final = 160
_NO_TEXT: Final = frozenset({"script", "style", "title"})


class _Text(HTMLParser):
    """Collects the text that a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _NO_TEXT

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _NO_TEXT

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def text_of_page(html: str) -> str:
    """The text of a page that a reader sees, without that for programs."""
    parser = _Text()
    parser.feed(html)
    parser.close()
    return " ".join(" ".join(parser.parts).split())


def text_of_command(output: str) -> str:
    """The texts of a command's JSON, a line for each; another output is its own text."""
    try:
        document = json.loads(output)
    except ValueError:
        return output
    return "\n".join(_texts(document))


def words_seen(text: str, sign: str) -> str:
    """The words that match `sign`, on one line and cut; empty if none do."""
    match = re.search(sign, text)
    words = " ".join(match.group().split()) if match else ""
    return words if len(words) <= _WORDS_MAX else f"{words[: _WORDS_MAX - 1]}…"


def answered(answer: str, names: Sequence[str]) -> str:
    """The name that an answer means by number or by a unique part; else empty."""
    text = answer.strip().lower()
    if text.isdigit():
        return names[int(text) - 1] if 1 <= int(text) <= len(names) else ""
    meant = [name for name in names if text and text.replace(" ", "-") in name]
    return meant[0] if len(meant) == 1 else ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """The words that showed a cause, where, and so many seconds after the incident."""

    seconds: float
    where: str
    words: str


@dataclass(frozen=True, slots=True)
class Row:
    """An incident in the table; None: the cause was not shown in time."""

    incident: str
    cli: Sighting | None
    page: Sighting | None
    load: float

    @property
    def is_shown(self) -> bool:
        return all(one is not None and one.seconds <= WITHIN_S for one in (self.cli, self.page))


def table(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown."""
    heading = ("incident", "CLI s", "command, words", "page s", "view, words", "load")
    lines = [heading, tuple("---" for _ in heading)]
    for row in rows:
        cells = [cell for one in (row.cli, row.page) for cell in _cells(one)]
        lines.append((row.incident, *cells, f"{row.load:.1f}"))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(sighting: Sighting | None) -> tuple[str, str]:
    if sighting is None:
        return "-", f"not shown within {WITHIN_S:.0f} s"
    words = sighting.words.replace("|", "\\|")
    return f"{sighting.seconds:.0f}", f"`{sighting.where}`: {words}"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
