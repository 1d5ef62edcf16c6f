"""The order of requests, and the queues that they wait in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from samzapy.coordinator.launching.standbys import named
from samzapy.coordinator.state import CoordinatorState, remembered
from samzapy.model.placement import UNFINISHED
from samzapy.stream.records import RequestMemoryPut, RequestPut

R = TypeVar("R", RequestPut, RequestMemoryPut)


def in_order(requests: Iterable[R]) -> tuple[R, ...]:
    """By (timestamp, uuid), in which requests are served and forgotten."""
    return tuple(sorted(requests, key=order_of))


def order_of(request: RequestPut | RequestMemoryPut) -> tuple[int, str]:
    """The place of a request among all of them."""
    return request.timestamp_ms, request.uuid


def turn_of(request: RequestPut, state: CoordinatorState) -> str:
    """The queue a request belongs to; a processor shares one with its standbys."""
    return named(request.processor_id, state)[0]


@remembered
def turns_taken(state: CoordinatorState) -> frozenset[str]:
    """The queues in which a request waits or is under way."""
    return frozenset(
        turn_of(request, state) for request in state.requests.values() if request.status_code in UNFINISHED
    )


def run_id_of(state: CoordinatorState) -> str:
    """The run of the job that requests are for; empty before the first one."""
    return "" if state.run is None else state.run.run_id
