"""The mark by which local state recognises its changelog at the next start."""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_64_hexdigest


class ChangelogMark(NamedTuple):
    """A record of a changelog. A tuple, because it is stored as one.

    Attributes:
        key: a digest of its key; empty for a tombstone, which compaction may remove without a successor.
        record: a digest of its key and value.
    """

    offset: int
    key: str
    record: str


def mark_of(offset: int, key: bytes, value: bytes | None) -> ChangelogMark:
    if value is None:
        return ChangelogMark(offset, "", xxh3_64_hexdigest(b"\x00" + key))
    return ChangelogMark(offset, key_digest(key), xxh3_64_hexdigest(b"\x01" + key + value))


def key_digest(key: bytes) -> str:
    return xxh3_64_hexdigest(key)
