"""What a submission does to the stores of a job: which are new, change, or go.

A store with entries may not change so that its task would not find them again, and may not be left out by mistake:
entries that nobody removes any more would be wrong when it comes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from samzapy.config import JobConfig, StoreConfig, stores_of
from samzapy.model import clock_entry, timer_entry, window_entry
from samzapy.model.topics import changelog_topic

_MAY_GO = frozenset({window_entry.STORE, clock_entry.STORE})
"""Stores whose entries do no harm where nobody reads them, or where they come back."""


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
    config: JobConfig,
    recorded: Mapping[str, str],
    topics: Collection[str],
    *,
    has_run: bool,
    gone: Collection[str] = (),
) -> Sequence[StoreChange]:
    """The changes of all stores, by name.

    Args:
        recorded: the configuration of the newest submission.
        topics: those that samzapy has made for the job.
        has_run: whether a container has been granted tasks, so that there may be entries.
        gone: those of `topics` that were deleted. A store that was dropped before may have their names again.
    """
    before = {store.name: store for store in stores_of(recorded) if store.name not in _MAY_GO}
    after = {store.name: store for store in config.stores if store.name not in _MAY_GO}
    names = {name: changelog_topic(config.job, name) for name in before.keys() | after.keys()}
    kept = {
        name for name, topic in names.items() if has_run and topic in topics and (name in before or topic not in gone)
    }
    changes = [_change(store, before.get(name), is_kept=name in kept) for name, store in after.items()]
    changes += [_left_out(before[name], config) for name in before.keys() & kept - after.keys()]
    return sorted(changes, key=lambda change: change.store)


def _change(store: StoreConfig, before: StoreConfig | None, *, is_kept: bool) -> StoreChange:
    if not is_kept:
        return StoreChange(store.name, StoreFate.NEW)
    if before is None:
        return StoreChange(
            store.name,
            StoreFate.REFUSED,
            f"stores.{store.name}: wanted a store under a new name, found one that was left out before. Its old "
            "entries are still on its changelog topic and would come back as they were: delete them with "
            f"`samzapy state drop --store {store.name}`, or give the "
            f"{'job a new job.id' if store.is_own else 'store a new name, or the job a new job.id'}",
        )
    settings = [("scope", before.scope, store.scope), ("kind", before.kind, store.kind)]
    if store.is_ordered:
        settings.append(("key.serde", before.key_serde, store.key_serde))
    for rest, recorded, wanted in settings:
        if recorded != wanted:
            return StoreChange(
                store.name,
                StoreFate.REFUSED,
                f"stores.{store.name}.{rest}: wanted {recorded}, under which the job has kept what is in the store, "
                f"found {wanted}. Its entries would not be found again: give the store a new name, or the job a new "
                "job.id",
            )
    texts = list(_texts(before, store))
    return StoreChange(store.name, StoreFate.CHANGES if texts else StoreFate.STAYS, "; ".join(texts))


def _texts(before: StoreConfig, store: StoreConfig) -> Iterator[str]:
    """How a store changes that keeps its entries."""
    if before.msg_serde != store.msg_serde:
        yield f"values are read as {store.msg_serde}, and were written as {before.msg_serde}"
    if before.ttl_clock and store.ttl_clock and before.ttl_clock != store.ttl_clock:
        clock = {"host": "the host's clock", "event": "event time"}[store.ttl_clock]
        yield f"entries expire by {clock} from their next use on, and those that are not used as they did before"


def _left_out(before: StoreConfig, config: JobConfig) -> StoreChange:
    name = before.name
    if name in config.dropped_stores:
        text = (
            f"its entries stay on its changelog topic until `samzapy state drop --store {name}`; nothing reads them"
        )
        return StoreChange(name, StoreFate.DROPPED, text)
    what = (
        "timers, a ttl or their store, as the job has kept timers, found a task without. Those that are set would "
        "never fire"
        if name == timer_entry.STORE
        else f"the store (scope {before.scope}), as the job has kept entries in it, found it left out"
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
