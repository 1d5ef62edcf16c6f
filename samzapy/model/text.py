"""Words for people that several parts need."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

ERROR_CHARS_MAX = 2_000


def some(names: Sequence[object], count_max: int = 5) -> str:
    """The first few of a list that may be long, and how many more there are."""
    more = f" and {len(names) - count_max} more" if len(names) > count_max else ""
    return ", ".join(map(str, names[:count_max])) + more


def camel_case(name: str) -> str:
    """The name in JSON of a Python name: `for_ms` is `forMs`."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def cut(text: str, chars_max: int) -> str:
    """`text`, or its beginning with a mark that gives the whole length and a digest."""
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}... [{cut_mark(len(text), 'characters', text.encode(errors='replace'))}]"


def cut_mark(length: int, unit: str, whole: bytes) -> str:
    """The mark of a cut text: the length of the whole, and its digest."""
    return f"cut, whole length {length} {unit}, sha256 {hashlib.sha256(whole).hexdigest()}"


def error_text(error: BaseException, chars_max: int = ERROR_CHARS_MAX) -> str:
    """Class and text of an error of user code, in valid UTF-8.

    It is cut to `chars_max` characters and a mark.

    The text is made by user code too (`__str__`), which may raise anything.
    """
    name = _class_name(error)
    try:
        text = str(error)
    except BaseException as raised:  # User code may raise anything.
        text = f"<its text cannot be made: {_class_name(raised)} in __str__>"
    text = text.encode(errors="replace").decode()
    return cut(f"{name}: {text}" if text else name, chars_max)


def _class_name(error: BaseException) -> str:
    # Not type(error).__name__: a metaclass may make it anything.
    return str(type.__dict__["__name__"].__get__(type(error)))
