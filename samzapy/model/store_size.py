"""The size of a store, as it is reported.

For people only, as all of `model.task_stats`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_LONG_MAX: Final = 2**63 - 1
_NAME_LENGTH_MAX: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSize:
    """The size of one store in local state.

    Attributes:
        bytes_used: of the pages that hold its entries. Pages that were freed are in the size on disk only.
        entries: their number.
    """

    bytes_used: int
    entries: int

    def as_json(self) -> dict[str, int]:
        """The fields in heartbeats and in `GET /status`."""
        return {"bytes": self.bytes_used, "entries": self.entries}


def total_sizes(sizes: Iterable[Mapping[str, StoreSize]]) -> dict[str, StoreSize]:
    """The sums by store, in the order of the names, over tasks or containers."""
    bytes_used, entries = Counter[str](), Counter[str]()
    for of_stores in sizes:
        for store, size in of_stores.items():
            bytes_used[store] += size.bytes_used
            entries[store] += size.entries
    return {store: StoreSize(bytes_used=bytes_used[store], entries=entries[store]) for store in sorted(bytes_used)}


def sizes_json(sizes: Mapping[str, StoreSize]) -> dict[str, dict[str, int]]:
    """The JSON of sizes by store."""
    return {store: size.as_json() for store, size in sizes.items()}


def sizes_from_json(fields: object) -> dict[str, StoreSize]:
    """The inverse of `sizes_json`, also for another release.

    Fields of a size that this release does not know are ignored.

    Raises:
        ValueError: it is no object of sizes, or a number is no whole number of 0 or more.
    """
    if not isinstance(fields, dict):
        raise ValueError(f"stores: wanted an object, found {repr(fields)[:100]}")
    return {_name(store): _size(size) for store, size in sorted(fields.items())}


def _name(store: str) -> str:
    if not 0 < len(store) <= _NAME_LENGTH_MAX:
        raise ValueError(f"stores: wanted names of 1 to {_NAME_LENGTH_MAX} characters, found {store[:100]!r}")
    # Lone surrogates are legal in JSON, and cannot be shown.
    return store.encode(errors="replace").decode()


def _size(fields: object) -> StoreSize:
    if not isinstance(fields, dict):
        raise ValueError(f"each of stores: wanted an object, found {repr(fields)[:100]}")
    return StoreSize(bytes_used=_number("bytes", fields), entries=_number("entries", fields))


def _number(name: str, fields: Mapping[str, object]) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LONG_MAX:
        raise ValueError(f"stores.{name}: wanted a whole number from 0 to {_LONG_MAX}, found {repr(value)[:100]}")
    return value
