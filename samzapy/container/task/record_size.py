"""How large a record may be. One that no topic takes is refused while it is known whose it is."""

from __future__ import annotations

from collections.abc import Sequence


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """How large a record is; each header has two lengths in front of it."""
    return (
        (0 if key is None else len(key))
        + (0 if value is None else len(value))
        + sum(len(name.encode()) + (0 if found is None else len(found)) + 10 for name, found in headers)
    )


def too_large(what: str, size: int, size_max: int) -> str:
    """The complaint about a record of `size` bytes."""
    return (
        f"{what}: wanted at most {size_max} bytes of key, value and headers, found {size}; make it smaller, or raise "
        "max.message.bytes of the topic and systems.<system>.client.message.max.bytes"
    )
