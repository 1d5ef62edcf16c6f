"""What a submission does to the stores of a job: which are new, change, or go.

A store with entries may not change so that its task would not find them again, and may not be left out by mistake:
entries that nobody removes any more would be wrong when it comes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from samzapy.config import JobConfig, StoreConfig
from samzapy.model import timer_entry, window_entry
from samzapy.model.topics import changelog_topic

_DROP = "drop"


class StoreFate(StrEnum):
    """The change of a store."""

    NEW = "new"
    STAYS = "stays"
    CHANGES = "changes"
    DROPPED = "dropped"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class StoreChange:
    """The change of one store.

    Attributes:
        text: how it changes, or why that is refused; empty for one that is new or stays.
    """

    store: str
    fate: StoreFate
    text: str = ""


def store_changes(
    config: JobConfig, recorded: Mapping[str, str], topics: Collection[str], *, has_run: bool
) -> Sequence[StoreChange]:
    """The changes of all stores, by name.

    Args:
        recorded: the configuration of the newest submission.
        topics: those that samzapy has made for the job.
        has_run: whether a container has been granted tasks, so that there may be entries.
    """
    before = _recorded_stores(recorded)
    kept = {name for name in _names_of(config.job, topics, before, config) if has_run}
    changes = [_change(store, before.get(store.name), is_kept=store.name in kept) for store in config.stores]
    names = {store.name for store in config.stores}
    changes += [_left_out(name, before[name], config) for name in before.keys() & kept - names]
    return sorted((change for change in changes if change.store != window_entry.STORE), key=lambda c: c.store)


def _names_of(job: str, topics: Collection[str], before: Collection[str], config: JobConfig) -> Iterator[str]:
    for name in {*before, *(store.name for store in config.stores)}:
        if changelog_topic(job, name) in topics:
            yield name


def _recorded_stores(recorded: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """By store, its recorded settings."""
    stores: dict[str, dict[str, str]] = {}
    for key, text in recorded.items():
        if key.startswith("stores."):
            _, name, setting = key.split(".", 2)
            if setting != _DROP:
                stores.setdefault(name, {})[setting] = text
    return stores


def _change(store: StoreConfig, before: Mapping[str, str] | None, *, is_kept: bool) -> StoreChange:
    if not is_kept:
        return StoreChange(store.name, StoreFate.NEW)
    if before is None:
        return StoreChange(
            store.name,
            StoreFate.REFUSED,
            f"stores.{store.name}: wanted a store under a new name, found one that was left out before. Its old "
            "entries are still on its changelog topic and would come back as they were: give the "
            f"{'job a new job.id' if store.is_own else 'store a new name, or the job a new job.id'}",
        )
    settings = [("scope", "key", store.scope), ("kind", "value", store.kind)]
    if store.is_ordered:
        settings.append(("key.serde", "string", store.key_serde))
    for rest, default, wanted in settings:
        recorded = before.get(rest) or default
        if recorded != wanted:
            return StoreChange(
                store.name,
                StoreFate.REFUSED,
                f"stores.{store.name}.{rest}: wanted {recorded}, under which the job has kept what is in the store, "
                f"found {wanted}. Its entries would not be found again: give the store a new name, or the job a new "
                "job.id",
            )
    serde = before.get("msg.serde") or "bytes"
    if serde != store.msg_serde:
        text = f"values are read as {store.msg_serde}, and were written as {serde}"
        return StoreChange(store.name, StoreFate.CHANGES, text)
    return StoreChange(store.name, StoreFate.STAYS)


def _left_out(name: str, before: Mapping[str, str], config: JobConfig) -> StoreChange:
    if name in config.dropped_stores:
        return StoreChange(name, StoreFate.DROPPED, "its entries stay on its changelog topic, which nothing reads")
    what = (
        "timers, a ttl or their store, as the job has kept timers, found a task without. Those that are set would "
        "never fire"
        if name == timer_entry.STORE
        else f"the store (scope {before.get('scope') or 'key'}), as the job has kept entries in it, found it left out"
    )
    return StoreChange(
        name,
        StoreFate.REFUSED,
        f"stores.{name}: wanted {what}. To let them go for good, write stores.{name}.drop=true; else leave the "
        "declaration where it is",
    )


def refusals(changes: Sequence[StoreChange]) -> Sequence[str]:
    """Why these changes are refused, a text for each."""
    return [change.text for change in changes if change.fate is StoreFate.REFUSED]
