"""Read requests from the placement topic: accept, refuse, or answer at once.

Theory. The position on the topic (`inbox`) is written after the decisions on the records below it. If the transaction
is torn, these records are read again, and the uuids that are known by then change nothing. A record below the position
is never a new request. A message with a known uuid repeats that request, even if its other fields differ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.assignment.liveness import LIVING
from samzapy.coordinator.launching.launches import wanted_processors
from samzapy.coordinator.launching.standbys import named
from samzapy.coordinator.requests.handler import listed, subject_of
from samzapy.coordinator.requests.registry import HANDLERS, IMMEDIATE
from samzapy.coordinator.requests.turns import in_order, order_of, run_id_of, turn_of, turns_taken
from samzapy.model.placement import (
    MESSAGE_LENGTH_MAX,
    UNFINISHED,
    Action,
    ContainerPlacementRequestMessage,
    Refusal,
    StatusCode,
    expiry_ms,
)
from samzapy.stream.records import CoordinatorRecord, InboxPut, MemoryPhase, RequestMemoryPut, RequestPut

if TYPE_CHECKING:
    from samzapy.coordinator.commands import RequestsRead
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.stream.placement import Requested

FUTURE_MS_MAX: Final = 24 * 60 * 60 * 1000
"""How far a request may be ahead of the coordinator's clock.

A request of the year 9999, once forgotten, would make every other request too old.
"""

WAITING_MAX: Final = 100
"""Requests that may wait in one queue; a flood for one processor must not fill the memory of the coordinator."""

S = StatusCode


def read_requests(command: RequestsRead, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The decisions on the records that were read; the new position comes last."""
    position = state.inbox.offset_next
    if command.offset_from > position or command.offset_next <= position:
        return ()  # Read before, or records before these are missing.
    new: dict[str, Requested] = {}
    repeated: dict[str, RequestMemoryPut] = {}
    for requested in sorted(command.requests, key=lambda requested: requested.offset):
        memory = state.request_memory.get(requested.uuid)
        if requested.offset < position or requested.uuid in state.requests:
            continue
        if memory is None:
            new.setdefault(requested.uuid, requested)
        elif memory.phase is MemoryPhase.COLLECTED and requested.offset >= memory.offset:
            # The message is on the topic again, so it must be removed again before its uuid may be forgotten.
            repeated[memory.uuid] = replace(memory, phase=MemoryPhase.COLLECTING, offset=requested.offset)
    read: list[RequestPut] = []
    turns = set(turns_taken(state))
    for requested in sorted(new.values(), key=_written):
        request = _read(requested, command.now_ms, state, turns)
        if request.status_code is S.ACCEPTED and Action(request.action) in HANDLERS:
            turns.add(turn_of(request, state))
        read.append(request)
    decided = tuple(_decided(in_order(read), state))
    return (
        *_effects(decided, state),
        *decided,
        *(repeated[uuid] for uuid in sorted(repeated)),
        replace(state.inbox, offset_next=command.offset_next),
    )


def _effects(decided: Iterable[RequestPut], state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """The effects of the requests that were answered at once, once for each action.

    They come first: if the transaction is torn after them, the requests are read again.
    """
    succeeded = [Action(request.action) for request in decided if request.status_code is S.SUCCEEDED]
    for action in dict.fromkeys(succeeded):
        yield from IMMEDIATE[action].effects(state)


def _written(requested: Requested) -> tuple[int, str]:
    """The key of `order_of` for a request that is not decided yet."""
    return 0 if requested.message is None else requested.message.timestamp_ms, requested.uuid


def _read(requested: Requested, now_ms: int, state: CoordinatorState, turns: Container[str]) -> RequestPut:
    """The request of a message: accepted, or refused with the reason.

    Args:
        turns: the queues in which an earlier request waits or is under way.
    """
    message = requested.message
    put = RequestPut(
        uuid=requested.uuid,
        offset=requested.offset,
        place=str(requested.place),
        action="",
        deployment_id="",
        processor_id="",
        destination_host="",
        request_expiry_ms=0,
        timestamp_ms=0,
        run_id=run_id_of(state),
        status_code=S.BAD_REQUEST,
        response_message=f"the request {'is refused' if requested.is_refused else 'cannot be read'}: "
        f"{requested.reason}"[:MESSAGE_LENGTH_MAX],
        accepted_at_ms=now_ms,
        decided_at_ms=now_ms,
    )
    if message is None:
        return put
    put = replace(
        put,
        action=message.action.value,
        deployment_id=message.deployment_id,
        processor_id=message.processor_id,
        destination_host=message.destination_host,
        request_expiry_ms=0 if message.request_expiry is None else expiry_ms(message.request_expiry),
        arguments=json.dumps(dict(message.arguments), separators=(",", ":"), sort_keys=True)
        if message.arguments
        else "",
    )
    if message.timestamp_ms > now_ms + FUTURE_MS_MAX:
        # With timestamp 0 it is the first to be forgotten, and makes no other request too old.
        return replace(
            put,
            response_message=f"timestamp: wanted at most {FUTURE_MS_MAX} ms ahead of the coordinator's clock "
            f"({now_ms}), found {message.timestamp_ms}",
        )
    put = replace(put, timestamp_ms=message.timestamp_ms)
    refusal = _too_old(put, state.inbox) or refused(message, state, turns)
    if refusal is not None:
        return replace(put, response_message=refusal)
    return replace(put, status_code=S.ACCEPTED, response_message="waits for its turn")


def _too_old(request: RequestPut, inbox: InboxPut) -> Refusal | None:
    """Why a request is refused that may have been served and forgotten, or None."""
    if order_of(request) > (inbox.forgotten_timestamp_ms, inbox.forgotten_uuid):
        return None
    return Refusal(
        f"too old: requests up to timestamp {inbox.forgotten_timestamp_ms} are no longer remembered, so this one may "
        "have been served already; write a new one"
    )


def refused(
    message: ContainerPlacementRequestMessage, state: CoordinatorState, turns: Container[str]
) -> Refusal | None:
    """Why this job cannot serve a readable request now; None if it can."""
    run_id = run_id_of(state)
    if message.deployment_id != run_id:
        return Refusal(
            f"deploymentId: wanted the run of the job, {run_id or '(none has begun)'}, found {message.deployment_id}; "
            "`samzapy job status` shows it"
        )
    if not message.action.is_of_job and message.processor_id:
        known = _known_processors(state)
        if named(message.processor_id, state)[0] not in known:
            return Refusal(
                f"processorId: wanted one of {listed(known) or '(none has joined)'}, found {message.processor_id}"
            )
    elif not message.action.is_of_job:
        return None  # It asks for the state of a request; the handler also knows the requests read with it.
    immediate = IMMEDIATE.get(message.action)
    if immediate is not None:
        return immediate.refusal(message, state)
    handler = HANDLERS[message.action]
    refusal = handler.refusal(message, state)
    if refusal is None and named(message.processor_id, state)[0] not in turns:
        refusal = handler.refusal_now(message, state)
    return refusal


def _decided(read: Sequence[RequestPut], state: CoordinatorState) -> Iterable[RequestPut]:
    """Answer the requests that need no turn, and refuse those beyond `WAITING_MAX`."""
    together = {request.uuid: request for request in read}
    waiting = Counter(
        turn_of(request, state) for request in state.requests.values() if request.status_code in UNFINISHED
    )
    for request in read:
        if request.status_code is not S.ACCEPTED:
            yield request
        elif (handler := IMMEDIATE.get(Action(request.action))) is not None:
            yield handler.answer(request, together, state)
        elif waiting[turn_of(request, state)] >= WAITING_MAX:
            text = f"{WAITING_MAX} requests for {subject_of(request)} wait already; write a new one later"
            yield replace(request, status_code=S.BAD_REQUEST, response_message=text)
        else:
            waiting[turn_of(request, state)] += 1
            yield request


def _known_processors(state: CoordinatorState) -> frozenset[str]:
    """The processors that have a plan, live containers, or ran before."""
    planned = () if state.generation is None else state.generation.processor_ids
    living = (container.processor_id for container in state.containers.values() if container.phase in LIVING)
    return frozenset((*planned, *living, *state.localities, *(wanted_processors(state) or ())))
