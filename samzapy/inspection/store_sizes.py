"""The stores of a job with their sizes, as the containers report them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samzapy.coordinator.assignment.liveness import Liveness, is_alive
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.store_size import StoreSize, total_sizes


def store_settings(state: CoordinatorState) -> Mapping[str, Mapping[str, str]]:
    """By store of the configuration in force, its settings as they stand there."""
    settings: dict[str, dict[str, str]] = {}
    for key, value in sorted(state.config.items()):
        prefix, _, rest = key.partition(".")
        name, _, setting = rest.partition(".")
        if prefix == "stores" and setting:
            settings.setdefault(name, {})[setting] = value
    return settings


def sizes_by_store(state: CoordinatorState, liveness: Liveness | None) -> Mapping[str, StoreSize | None]:
    """The sizes of all stores over the tasks of all living containers.

    They are in the order of their names. Stores of the configuration are there, and those that only a container has:
    it may still run with an earlier one.

    Args:
        liveness: None without a leader.

    Returns:
        None for a store that no container reports.
    """
    sightings = {} if liveness is None else liveness.last
    living = [sighting for execution_id, sighting in sightings.items() if is_alive(state, execution_id)]
    reported = total_sizes(sighting.figures.stores for sighting in living)
    return {store: reported.get(store) for store in sorted({*store_settings(state), *reported})}


def stores_json(state: CoordinatorState, liveness: Liveness | None) -> Sequence[Mapping[str, object]]:
    """`stores` of `GET /status` (`inspection.status`)."""
    unknown = {"bytes": None, "entries": None}
    return [
        {"store": store, **(unknown if size is None else size.as_json())}
        for store, size in sizes_by_store(state, liveness).items()
    ]
