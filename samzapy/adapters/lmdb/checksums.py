"""Checksums of stored values, and a check that an absent key is absent.

Each stored value has a checksum over key and value in front. So an entry that the disk or the memory changes in place
is noticed when it is read: its checksum is wrong. A changed *key* would hide its entry instead. The entry still stands
where the search for the true key ends: a search in a sorted page that misses an entry of that page was led astray by an
entry that compares wrongly, and ends beside one. So both neighbours of an absent key must be whole and in order.

One change in a hundred thousand is not noticed: the header or the pointers of a page change to other possible values.
Most of these changes end in an error of LMDB's, or in a fault (`use_mark`).
"""

from __future__ import annotations

from typing import Any, Final

from xxhash import xxh3_64_digest

SUM_BYTES: Final = 8


def sealed(stored: bytes, value: bytes) -> bytes:
    """The value as it is stored under the key `stored`."""
    return xxh3_64_digest(stored + value) + value


def unsealed(stored: bytes, raw: bytes) -> bytes | None:
    """The value that was stored; None if key or value have changed."""
    value = raw[SUM_BYTES:]
    return value if xxh3_64_digest(stored + value) == raw[:SUM_BYTES] else None


def is_absent(cursor: Any, stored: bytes) -> bool:
    """Whether a key that was not found is absent.

    False if an entry beside its place is damaged.
    """
    if not cursor.set_range(stored):
        return not cursor.last() or _is_whole(cursor, stored, is_before=True)
    if not _is_whole(cursor, stored, is_before=False):
        return False
    return not cursor.prev() or _is_whole(cursor, stored, is_before=True)


def _is_whole(cursor: Any, absent: bytes, *, is_before: bool) -> bool:
    key, raw = cursor.item()
    return (key < absent if is_before else key > absent) and unsealed(key, raw) is not None
