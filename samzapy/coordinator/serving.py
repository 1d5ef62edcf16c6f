"""What the kinds of requests have in common: how one is begun, gone on with, done or late (`coordinator.requests`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from samzapy.coordinator.commands import ReviewRequests
from samzapy.coordinator.liveness import Sightings
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.placement import MESSAGE_LENGTH_MAX, StatusCode
from samzapy.stream.records import CoordinatorRecord, RequestPut

UNFINISHED: Final = frozenset({StatusCode.ACCEPTED, StatusCode.IN_PROGRESS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How requests of one action are served.

    Attributes:
        begin: what the beginning of a request whose turn it is leads to. The request itself comes first: torn, what
            follows from it is written when it is looked at again.
        go_on: what one that is under way has still to bring about, or its end; nothing where all is on the log.
        done: what was done, once it is; empty before.
        late: what one that is under way has not reached, for people.
    """

    begin: Callable[[RequestPut, ReviewRequests, CoordinatorState], Iterable[CoordinatorRecord]]
    go_on: Callable[[RequestPut, ReviewRequests, CoordinatorState], Iterable[CoordinatorRecord]]
    done: Callable[[RequestPut, int, CoordinatorState, Sightings], str]
    late: Callable[[RequestPut, CoordinatorState, Sightings], str]


def begun(request: RequestPut, text: str, now_ms: int, *, restart: int = 0, execution_id: str = "") -> RequestPut:
    """The request under way."""
    return replace(
        request,
        status_code=StatusCode.IN_PROGRESS,
        response_message=text,
        decided_at_ms=now_ms,
        restart=restart,
        execution_id=execution_id,
        answered=False,
    )


def ended(request: RequestPut, status_code: StatusCode, text: str, now_ms: int) -> RequestPut:
    """The request with its terminal status."""
    return replace(
        request,
        status_code=status_code,
        response_message=text[:MESSAGE_LENGTH_MAX],
        decided_at_ms=now_ms,
        answered=False,
    )
