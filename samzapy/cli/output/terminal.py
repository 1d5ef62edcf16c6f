"""What a terminal may be sent of that which comes from elsewhere."""

from __future__ import annotations


def printable(text: str) -> str:
    """What an answer or a topic holds may be codes that a terminal obeys; they are shown, not sent."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))
