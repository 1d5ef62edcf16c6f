"""Whether an LMDB data file is as long as its meta pages say, without mapping it.

A page behind the end of the file is no error to LMDB but a SIGBUS to the process that reads it. Both meta pages have
the number of the last page in use (`mdb.c`, `MDB_meta`; the data version 1 of LMDB 0.9).

LMDB does not write pages that a transaction took at the end of the file and freed again. So a file may be shorter than
its meta pages say and lack nothing: this happens after one of seven commits of a random load. `extend` corrects the
length after each commit, with a hole that takes no room. Then a short file is one that was cut.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
# Page header; magic and version; address and map size; the records of two databases, of which the first begins with the
# page size; last page; transaction.
_META: Final = struct.Struct("<16xII8x8xI44x48xQQ")
_PAGE_SIZES: Final = tuple(1 << bits for bits in range(8, 17))


@dataclass(frozen=True, slots=True)
class _Meta:
    page_size: int
    last_page: int
    transaction: int


def check_whole(path: Path) -> int:
    """Compare the length of a data file with its newer meta page; return the length.

    Raises:
        ValueError: it is too short, or has no meta pages of LMDB. The text has the wanted and the found values.
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        first = _meta(file.read(_META.size), 0)
        file.seek(first.page_size)
        second = _meta(file.read(_META.size), 1)
    newer = max(first, second, key=lambda meta: meta.transaction)
    wanted, length = (newer.last_page + 1) * newer.page_size, path.stat().st_size
    if length < wanted:
        raise ValueError(f"wanted {wanted} bytes, as its own pages say, found {length}: it was cut short")
    return length


def extend(descriptor: int, last_page: int, page_size: int) -> int:
    """Make an open file as long as its meta pages say; return its length.

    LMDB may have left the last pages out.

    Raises:
        OSError: the file cannot be extended.
    """
    wanted, length = (last_page + 1) * page_size, os.fstat(descriptor).st_size
    if length >= wanted:
        return length
    os.ftruncate(descriptor, wanted)
    return wanted


def _meta(raw: bytes, number: int) -> _Meta:
    if len(raw) < _META.size:
        raise ValueError(f"wanted meta page {number}, found the end of the file")
    magic, version, page_size, last_page, transaction = _META.unpack(raw)
    if magic != _MAGIC or version != _VERSION or page_size not in _PAGE_SIZES:
        raise ValueError(f"wanted meta page {number} of LMDB, found magic {magic:#x}, version {version}")
    return _Meta(page_size, last_page, transaction)
