"""The compaction key of a changelog record.

It names the owner of the entry, the message's key or the task, and the entry.

A keyed store's entries belong to the message key they were written under. That key stands in front, with
its length, so that a reader of the changelog sees the key bucket of each entry from the entry's key alone:
a task of any factor takes exactly the entries of its buckets and skips the others undecoded.

The length is a varint (LEB128, the shortest form), so that each pair has one spelling and no pair runs into
another: `("ab", "c")` and `("a", "bc")` are different keys.

Entries of the other scopes belong to a task, and virtual tasks share the partition. So the task's name stands where
the message key does, and behind it one byte that tells entries from the mark that closes a copy (`copy_mark_key`).
"""

from __future__ import annotations

_LENGTH_BYTES_MAX = 5
_ENTRY, _MARK = b"\x00", b"\x01"


def changelog_key(message_key: bytes, sub_key: bytes) -> bytes:
    """The compaction key of the entry `sub_key` that messages with `message_key` own."""
    length = len(message_key)
    # One byte is the usual case and the hot path of every put.
    if length < 0x80:
        return bytes((length,)) + message_key + sub_key
    prefix = bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + message_key + sub_key


def split_changelog_key(key: bytes) -> tuple[bytes, bytes]:
    """`(message_key, sub_key)` of a compaction key made by `changelog_key`.

    Raises:
        ValueError: no such key. The caller knows the place of the record and makes it a `CorruptRecordError`.
    """
    # One byte is the usual case and the hot path of every timer that fires.
    if key and (length := key[0]) < 0x80 and length < len(key):
        return key[1 : 1 + length], key[1 + length :]
    length = 0
    for position, byte in enumerate(key[:_LENGTH_BYTES_MAX]):
        length |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            if position > 0 and byte == 0:
                raise ValueError(f"wanted a length in its shortest form, found {key[: position + 1].hex(' ')}")
            start = position + 1
            if start + length > len(key):
                raise ValueError(f"wanted a message key of {length} bytes, found {len(key) - start} bytes")
            return key[start : start + length], key[start + length :]
    raise ValueError(
        f"wanted a length of at most {_LENGTH_BYTES_MAX} bytes, found {key[:_LENGTH_BYTES_MAX].hex(' ')}"
    )


def task_entry_key(task_name: str, sub_key: bytes) -> bytes:
    """The compaction key of an entry that belongs to a task.

    Its store has the scope `broadcast` or `task`.
    """
    return changelog_key(task_name.encode(), _ENTRY + sub_key)


def split_task_entry_key(key: bytes) -> tuple[str, bytes] | None:
    """`(task_name, sub_key)` of a key made by `task_entry_key`; None for a mark.

    Raises:
        ValueError: no such key.
    """
    owner, rest = split_changelog_key(key)
    if rest[:1] == _MARK:
        return None
    if rest[:1] != _ENTRY:
        raise ValueError(f"wanted an entry of a task, found {rest[:1].hex() or 'nothing'} behind its name")
    return owner.decode(), rest[1:]


def copy_mark_key(task_name: str) -> bytes:
    """The key of the record that closes a task's copy of a broadcast store.

    Its value is an epoch, as text.
    """
    return changelog_key(task_name.encode(), _MARK)
