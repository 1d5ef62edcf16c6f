"""The request handler interface: begin, advance, complete, time out.

The handlers are registered in `coordinator.requests.request_queue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from samzapy.coordinator.assignment.liveness import Sightings
from samzapy.coordinator.commands import ReviewRequests
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.placement import MESSAGE_LENGTH_MAX, Phase, StatusCode
from samzapy.stream.records import CoordinatorRecord, RequestPut

_PROGRESS_STEPS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How requests of one action are served.

    Attributes:
        begin: what the beginning of a request whose turn it is leads to. The request itself comes first: torn, what
            follows from it is written when it is looked at again.
        go_on: what one that is under way has still to bring about, or its end; nothing where all is on the log.
        done: what was done, once it is; empty before.
        late: what one that is under way has not reached, for people.
        follow_up: behind `go_on`, what follows from what was heard of containers.
        abandoned: what is to be as it was before, when one that was under way has failed.
    """

    begin: Callable[[RequestPut, ReviewRequests, CoordinatorState], Iterable[CoordinatorRecord]]
    go_on: Callable[[RequestPut, ReviewRequests, CoordinatorState], Iterable[CoordinatorRecord]]
    done: Callable[[RequestPut, int, CoordinatorState, Sightings], str]
    late: Callable[[RequestPut, CoordinatorState, Sightings], str]
    follow_up: Callable[[RequestPut, ReviewRequests, CoordinatorState, Sightings], Iterable[CoordinatorRecord]] = (
        lambda request, command, state, seen: ()
    )
    abandoned: Callable[[RequestPut, CoordinatorState], Iterable[CoordinatorRecord]] = lambda request, state: ()


def begun(
    request: RequestPut, text: str, now_ms: int, *, restart: int = 0, execution_id: str = "", phase: str = ""
) -> RequestPut:
    """The request under way."""
    return replace(
        request,
        status_code=StatusCode.IN_PROGRESS,
        response_message=text,
        decided_at_ms=now_ms,
        restart=restart,
        execution_id=execution_id,
        phase=phase,
        answered=False,
    )


def said(request: RequestPut, phase: Phase, text: str, now_ms: int) -> Iterable[RequestPut]:
    """The request that is under way with where it is, unless that is what it says already."""
    if (request.phase, request.response_message) != (phase, text):
        yield replace(request, phase=phase, response_message=text, decided_at_ms=now_ms, answered=False)


def counted(done: int, of: int) -> str:
    """How many of how many, for people: rounded down, so that it changes some twenty times at most."""
    step = max(1, -(-of // _PROGRESS_STEPS))
    return f"{done if done == of else done - done % step} of {of}"


def went_on(request: RequestPut, text: str) -> Iterable[RequestPut]:
    """The request that is under way with how far it is, unless that is what it says already. When it began stays."""
    if request.phase and request.response_message != text:
        yield replace(request, response_message=text, answered=False)


def ended(request: RequestPut, status_code: StatusCode, text: str, now_ms: int) -> RequestPut:
    """The request with its terminal status. One that failed says in which phase."""
    return replace(
        request,
        status_code=status_code,
        phase=request.phase if status_code is StatusCode.FAILED else "",
        response_message=text[:MESSAGE_LENGTH_MAX],
        decided_at_ms=now_ms,
        answered=False,
    )
