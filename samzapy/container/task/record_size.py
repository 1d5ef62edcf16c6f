"""The size of a record.

A record that no topic takes is refused while its message is in hand.
"""

from __future__ import annotations

from collections.abc import Sequence


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """The size of a record; each header has two lengths in front of it."""
    return (
        (0 if key is None else len(key))
        + (0 if value is None else len(value))
        + sum(len(name.encode()) + (0 if content is None else len(content)) + 10 for name, content in headers)
    )


def too_large(record: str, size: int, size_max: int) -> str:
    """The error text about a record of `size` bytes."""
    return (
        f"{record}: wanted at most {size_max} bytes of key, value and headers, found {size}; make it smaller, or raise "
        "max.message.bytes of the topic and systems.<system>.client.message.max.bytes"
    )
