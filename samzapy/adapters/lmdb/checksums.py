"""A checksum in front of each stored value, over key and value, and a look at the neighbours of a key that is absent.

What the disk or the memory changes in place is found when it is read: an entry whose checksum does not hold is no
entry. A changed *key* would hide its entry instead. It still stands where the search for the true key ends: a search in
a sorted page that misses an entry of that page was led astray by an entry that compares wrongly, and ends beside one.
So both neighbours of an absent key must be whole and in order.

What is left is a page whose own header or pointers were changed to other values that are possible too, which is one
change in a hundred thousand; most of these end in an error of LMDB's, or in a fault (`use_mark`).
"""

from __future__ import annotations

from typing import Any, Final

from xxhash import xxh3_64_digest

SUM_BYTES: Final = 8


def sealed(stored: bytes, value: bytes) -> bytes:
    """The value as it is stored under the key `stored`."""
    return xxh3_64_digest(stored + value) + value


def unsealed(stored: bytes, raw: bytes) -> bytes | None:
    """The value that was stored; None where key or value are not what was written."""
    value = raw[SUM_BYTES:]
    return value if xxh3_64_digest(stored + value) == raw[:SUM_BYTES] else None


def is_absent(cursor: Any, stored: bytes) -> bool:
    """Whether a key that was not found is not there: False where an entry beside its place is damaged."""
    if not cursor.set_range(stored):
        return not cursor.last() or _is_whole(cursor, stored, is_before=True)
    if not _is_whole(cursor, stored, is_before=False):
        return False
    return not cursor.prev() or _is_whole(cursor, stored, is_before=True)


def _is_whole(cursor: Any, absent: bytes, *, is_before: bool) -> bool:
    key, raw = cursor.item()
    return (key < absent if is_before else key > absent) and unsealed(key, raw) is not None
