"""Walks over the owners of a store's entries: message keys, or tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from samzapy.container.task.ports import LocalTransaction
from samzapy.model.job import TaskName
from samzapy.stream.changelog import task_entry_key

_PAGE: Final = 100
_FIRST: Final[bytes | None] = b""


def owners_in(local: LocalTransaction, store: str) -> Iterator[bytes]:
    """The owners, each once, in no particular order.

    They are read in pages, by `LocalTransaction.owners`.
    """
    place = _FIRST
    while place is not None:
        page, place = local.owners(store, place, _PAGE)
        yield from page


def task_entries(local: LocalTransaction, store: str) -> Mapping[TaskName, bytes]:
    """By task, its entry without a name, in a store whose entries belong to tasks."""
    names = [TaskName(owner.decode()) for owner in owners_in(local, store)]
    entries = ((name, local.get(store, task_entry_key(name, b""))) for name in names)
    return {name: value for name, value in entries if value is not None}
