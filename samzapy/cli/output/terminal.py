"""Sanitises untrusted text before it is printed to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control codes escaped, so that a terminal does not obey them."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def printable_lines(text: str) -> str:
    """`printable` for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))
