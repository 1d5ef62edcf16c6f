"""Read a Java properties file as `java.util.Properties` does, with line numbers.

The format is that of `Properties.load(Reader)` (Java SE API): logical lines, escapes, comments. Own code, because the
parsers on PyPI tell no line numbers (jproperties) or differ at the edges, where a comment follows an empty continued
line (javaproperties 0.8); `unit_tests/config/test_properties_file.py` holds it against Java itself.

There are three differences, all on purpose:

- Blanks behind a value are no part of it, unless the last one is escaped. Java keeps them, and Kafka's own clients
  remove them again.
- Without a `Reader` Java takes a file for ISO-8859-1. This one is UTF-8; `\\u00e9` means the same in both.
- Input that Java accepts but that must be a mistake is refused: a byte order mark, an empty key, half of a
  surrogate pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from samzapy.errors import ConfigError

_BLANKS: Final = " \t\f"
_NEWLINE: Final = re.compile(r"\r\n|\r|\n")
_ENTRY: Final = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u(?P<hex>[0-9A-Fa-f]{4})|(?P<malformed>u)|(?P<other>.))", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LEADS_OF_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_MARK: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value, escapes undone.

    `number`: of the line in which the logical line begins, from 1 on.
    """

    number: int
    key: str
    value: str


def properties_text(raw: bytes, source: str) -> str:
    """The text of a file's bytes, which are UTF-8.

    Raises ConfigError; names `source` and the line.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if raw.startswith(_LEADS_OF_UTF_16):
            raise ConfigError(f"{source}: wanted UTF-8 text, found UTF-16; save the file as UTF-8") from None
        number = len(_NEWLINE.findall(raw[: error.start].decode())) + 1
        raise ConfigError(
            f"{source}:{number}: wanted UTF-8 text, found {error.reason} at byte {error.start} "
            f"(0x{raw[error.start]:02x}); save the file as UTF-8, or write the character as \\uXXXX"
        ) from None


def entries(text: str, source: str) -> Iterator[Entry]:
    """Each entry in its order; a key may come twice.

    Raises:
        ConfigError: the text begins with a byte order mark, or a line has no key or a malformed escape; names `source`
            and the line, and nothing of the value, which may be a secret.
    """
    if text.startswith(_MARK):
        raise ConfigError(
            f"{source}:1: wanted text, found a byte order mark (U+FEFF) in front of it, which Java takes for a part of "
            "the first key; save the file as UTF-8 without it"
        )
    for number, line in _logical_lines(text):
        matched = _ENTRY.fullmatch(line)
        if matched is None or not matched["key"]:
            # The line may be the rest of a secret whose line was broken.
            raise ConfigError(f"{source}:{number}: wanted key=value, found a line that begins with {line[0]!r}")
        place = f"{source}:{number}"
        yield Entry(number, _unescaped(matched["key"], place), _unescaped(_without_blanks(matched["value"]), place))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Without comments and blank lines; the number is that of the first line."""
    pending, begun_at = "", 0
    for number, raw in enumerate(_NEWLINE.split(text), start=1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            begun_at = number
        if _is_continued(line):
            pending += line[:-1]
            continue
        yield begun_at, pending + line
        pending = ""
    if pending:
        yield begun_at, pending


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _without_blanks(value: str) -> str:
    stripped = value.rstrip(_BLANKS)
    # An escaped blank is meant.
    return value[: len(stripped) + 1] if _is_continued(stripped) else stripped


def _unescaped(text: str, place: str) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        if match["malformed"]:
            raise ConfigError(f"{place}: wanted four hexadecimal digits behind \\u, found something else; correct it")
        if match["hex"]:
            return chr(int(match["hex"], 16))
        return _CONTROLS.get(match["other"], match["other"])

    characters = _ESCAPE.sub(character, text)
    try:
        # Java's characters are UTF-16: two escapes may be one of ours.
        return characters.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(
            f"{place}: wanted whole characters, found half of a surrogate pair (\\uD800 to \\uDFFF); correct it"
        ) from None
