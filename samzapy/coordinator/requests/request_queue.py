"""The queue of operator requests: review and answer.

Requests come from the placement topic, and their responses go there.

Theory. A request is identified by its uuid and gets one terminal status, even if it is delivered many times:

```
            read               begun                    done
 (new) ──► ACCEPTED ─────► IN_PROGRESS ─────► SUCCEEDED | FAILED ──► answered ──► memory ──► forgotten
    └────► BAD_REQUEST, or SUCCEEDED at once (container-status) ──────┘
```

*Reading.* See `coordinator.requests.read`.

*Order.* One request per processor is under way; the next is the waiting one with the smallest (timestamp, uuid).
Processors do not wait for each other. A waiting request is checked again when its turn comes, because the requests
before it change the state.

*Serving.* Each action is a `RequestHandler` in a module of its name: `place_container`, `restart_query`,
`restart_container`, `scale_factor`, `scale_containers`, `rewind`, `control_standby`. A request for the whole job names
no processor; these requests share one queue. `container_status` and `stop_job` are answered when they are read.

*Answers.* The response on the topic is a copy (law L3): an action writes it until the log records that it is on the
topic. After the terminal response only a memory of the request is left. It is small, because there may be 20,000.

*Forgetting.* See `coordinator.requests.retention`.

Waiting and ages are counted by the wall clock, because they must outlive a coordinator. A clock that jumps makes
requests fail early or late; it never makes one happen twice.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from samzapy.coordinator.assignment.liveness import LIVING, Liveness
from samzapy.coordinator.commands import ResponsesWritten, ReviewRequests
from samzapy.coordinator.requests.handler import RequestHandler, Review, ended, refused_generation, subject_of
from samzapy.coordinator.requests.registry import HANDLERS
from samzapy.coordinator.requests.rewind import offset_bounds_wanted
from samzapy.coordinator.requests.turns import in_order, run_id_of, turn_of
from samzapy.coordinator.state import CoordinatorState, Round, tombstone
from samzapy.model.placement import (
    ACTION_OF_UNREADABLE,
    UNFINISHED,
    Action,
    ContainerPlacementResponseMessage,
    StatusCode,
)
from samzapy.stream.log import Write
from samzapy.stream.placement import Place, encode_message
from samzapy.stream.records import CoordinatorRecord, MemoryPhase, RequestMemoryPut, RequestPut

_STEPS_MAX: Final = 4
S = StatusCode


def review_requests(
    command: ReviewRequests, state: CoordinatorState, liveness: Liveness
) -> tuple[CoordinatorRecord, ...]:
    """End, advance and begin requests until no step is left.

    Steps follow from each other. A request that ends at once lets the next one begin, and a plan for another factor may
    leave a processor without the tasks for which its query was to be restarted.
    """
    steps = Round(state)
    # Requests only move forward, so this loop terminates; it is bounded anyway.
    for _ in range(_STEPS_MAX * (len(state.requests) + 1)):
        if not steps.add(_review_once(Review(command=command, state=steps.state, liveness=liveness))):
            break
    return tuple(steps.records)


def _review_once(review: Review) -> Sequence[CoordinatorRecord]:
    """One step of each request.

    Each step sees the steps before it, so two moves to any host choose their hosts one after the other.
    """
    steps = Round(review.state)
    unfinished = in_order(request for request in review.state.requests.values() if request.status_code in UNFINISHED)
    busy: set[str] = set()
    waiting: list[RequestPut] = []
    for request in unfinished:
        end = _end(request, review)
        if end is not None:
            # The roll-back comes first: if the transaction were torn after the end, no review would roll back.
            if end.status_code is S.FAILED and request.status_code is S.IN_PROGRESS:
                steps.add(_handler(request).roll_back(request, review))
            steps.add([end])
        elif request.status_code is S.IN_PROGRESS:
            busy.add(turn_of(request, review.state))
            if review.now_ms >= _expires_at_ms(request, review.command):
                continue  # It only waits for reports, and may be rolled back already.
            now = replace(review, state=steps.state)
            steps.add(_handler(request).advance(request, now))
            steps.add(_handler(request).progress(request, now))
        else:
            waiting.append(request)
    for request in waiting:
        turn = turn_of(request, review.state)
        if turn not in busy:
            busy.add(turn)
            steps.add(_begun(request, replace(review, state=steps.state)))
    return steps.records


def _begun(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """The records that begin a request, or its end if it is for another plan."""
    if reason := refused_generation(request, review.state):
        return (ended(request, S.FAILED, reason, review.now_ms),)
    return _handler(request).begin(request, review)


def _end(request: RequestPut, review: Review) -> RequestPut | None:
    """The request with its terminal status; None if it is not over."""
    state, command = review.state, review.command
    if request.run_id != run_id_of(state) or (state.run is not None and state.run.ended):
        text = f"the run {request.run_id} of the job ended before it was done"
        if request.status_code is S.IN_PROGRESS:
            text += _handler(request).after_run
        return ended(request, S.FAILED, text, review.now_ms)
    answer = _handler(request).completion(request, review) if request.status_code is S.IN_PROGRESS else None
    if answer is not None:
        return ended(request, S.SUCCEEDED, answer, review.now_ms)
    is_expired = review.now_ms >= _expires_at_ms(request, command)
    if is_expired and (request.status_code is not S.IN_PROGRESS or _has_reports(review)):
        return ended(request, S.FAILED, _why_expired(request, review), review.now_ms)
    if reason := _handler(request).why_lost(request, state):
        return ended(request, S.FAILED, reason, review.now_ms)
    return None


def _expires_at_ms(request: RequestPut, command: ReviewRequests) -> int:
    since_ms = request.paused_at_ms or request.accepted_at_ms
    return since_ms + _limit_ms(request, command)


def _limit_ms(request: RequestPut, command: ReviewRequests) -> int:
    """How long a request may take, or its hand-over once that has begun.

    The replacement was ready in time then. An execution that does not release its tasks is declared lost first, and
    the move goes on (ADR 0016).
    """
    limit_ms = request.request_expiry_ms or command.expiry_ms
    return max(limit_ms, command.expiry_ms) + command.release_ms if request.paused_at_ms else limit_ms


def _has_reports(review: Review) -> bool:
    """Whether this leader knows what a request under way waits for.

    A new leader knows once the living containers have reported to it.
    """
    containers, reports = review.state.containers.values(), review.liveness.last
    return review.now_ms >= review.command.reports_by_ms or all(
        container.execution_id in reports for container in containers if container.phase in LIVING
    )


def _why_expired(request: RequestPut, review: Review) -> str:
    limit_ms = _limit_ms(request, review.command)
    expired = f"expired: {limit_ms} ms after it was {'ready' if request.paused_at_ms else 'read'}"
    if request.status_code is S.ACCEPTED:
        if any(wanted.uuid == request.uuid for wanted in offset_bounds_wanted(review.state)):
            return f"{expired} the offsets of the inputs could not be read; nothing was done"
        return f"{expired} other requests for {subject_of(request)} are still served; nothing was done"
    return f"{expired} {_handler(request).timeout_reason(request, review)}"


def _handler(request: RequestPut) -> RequestHandler:
    return HANDLERS[Action(request.action)]


def answered(command: ResponsesWritten, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Record that responses are on the topic.

    A request that is over is replaced with its memory.
    """
    records: list[CoordinatorRecord] = []
    for uuid, status_code in command.answered:
        request = state.requests.get(uuid)
        if request is None or request.answered or request.status_code is not status_code:
            continue
        if not status_code.is_terminal:
            records.append(replace(request, answered=True))
            continue
        # The memory first: if the transaction is torn after it, the response is written again.
        records.append(
            RequestMemoryPut(
                uuid=uuid,
                timestamp_ms=request.timestamp_ms,
                place=request.place,
                # The run of the answer, so that answers to requests of an earlier run stay readable for a while.
                run_id=run_id_of(state),
                status_code=status_code,
                decided_at_ms=request.decided_at_ms,
                phase=MemoryPhase.ANSWERED,
                offset=request.offset,
                action=request.action,
                processor_id=request.processor_id,
            )
        )
        records.append(tombstone(request))
    return tuple(records)


def response_of(request: RequestPut) -> Write:
    """The copy of a decision for the placement topic, in the format of the request."""
    response = ContainerPlacementResponseMessage(
        uuid=uuids.UUID(request.uuid),
        deployment_id=request.deployment_id,
        processor_id=request.processor_id,
        destination_host=request.destination_host,
        request_expiry=timedelta(milliseconds=request.request_expiry_ms) if request.request_expiry_ms else None,
        status_code=request.status_code,
        timestamp_ms=request.decided_at_ms,
        action=Action(request.action) if request.action else ACTION_OF_UNREADABLE,
        response_message=request.response_message,
        phase=request.phase,
    )
    return encode_message(response, Place.parse(request.place))
