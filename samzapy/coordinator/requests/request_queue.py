"""The queue of operator requests: read, review, answer, remove.

Requests come from the placement topic, and their responses go there.

Theory. A request is known by its uuid and gets one terminal status, whatever is delivered how often:

```
            read               begun                    done
 (new) ──► ACCEPTED ─────► IN_PROGRESS ─────► SUCCEEDED | FAILED ──► answered ──► memory ──► forgotten
    └────► BAD_REQUEST, or SUCCEEDED at once (container-status) ──────┘
```

*Reading.* The position on the topic (`inbox`) is written behind the decisions that the records below it led to: torn,
they are read again, and the uuids that are known by then change nothing. A record below the position is never a new
request. A message with a known uuid is the same request once more, whatever else it says.

*Order.* Of the requests for one processor one is under way; next is the one with the smallest (timestamp, uuid) of
those that were read. Processors do not wait for each other. A request that waits is held against what stands where when
its turn comes, because the requests before it change that.

*Serving.* Each action is a `RequestHandler` in a module of its name: `place_container`, `restart_query`,
`restart_container`, `scale_factor`, `scale_containers`, `rewind`, `control_standby`. A request for the whole job names
no processor, and of those one is under way too. To stop the job is one record, written when the request is read.

*Answers.* The response on the topic is a copy (law L3): an action writes it as long as the log does not say that it
stands there. After the terminal one only a memory is left, small, because there may be 20,000.

*Forgetting.* Messages are removed from the topic when they are of an earlier run, or old, or more than are to be
remembered. A uuid is forgotten, the smallest (timestamp, uuid) first, when its messages are removed and the position is
past the tombstones; from then on whatever is not newer than what was forgotten is refused as too old, so nothing is
ever done twice.

Waiting and ages are counted by the wall clock, because they must outlive a coordinator. A clock that jumps makes
requests fail early or late; it never makes one happen twice.
"""

from __future__ import annotations

import json
import uuid as uuids
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from heapq import nlargest
from typing import Final, TypeVar

from samzapy.coordinator.assignment.liveness import LIVING, Sightings
from samzapy.coordinator.commands import (
    CollectRequests,
    MessagesRemoved,
    RequestsRead,
    ResponsesWritten,
    ReviewRequests,
)
from samzapy.coordinator.launching.hosts import place_of
from samzapy.coordinator.launching.launches import by_age, wanted_processors
from samzapy.coordinator.launching.standbys import named, refused_standby, role_of, standby_called
from samzapy.coordinator.requests import rewind, scale_containers
from samzapy.coordinator.requests.control_standby import CONTROLLING_STANDBYS, refused_control, refused_control_now
from samzapy.coordinator.requests.handler import RequestHandler, Review, ended
from samzapy.coordinator.requests.place_container import MOVING, refused_move, refused_move_now
from samzapy.coordinator.requests.restart_container import REPLACING, refused_replacement
from samzapy.coordinator.requests.restart_query import RESTARTING, processors_with_query
from samzapy.coordinator.requests.rewind import REWINDING, taken_up
from samzapy.coordinator.requests.scale_containers import RESIZING
from samzapy.coordinator.requests.scale_factor import SCALING, scale_wanted
from samzapy.coordinator.state import CoordinatorState, Round, remembered, tombstone
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.placement import (
    MESSAGE_LENGTH_MAX,
    UNFINISHED,
    Action,
    ContainerPlacementRequestMessage,
    ContainerPlacementResponseMessage,
    StatusCode,
    expiry_ms,
    request_meant,
    scale_of,
)
from samzapy.model.text import some
from samzapy.stream.log import Write
from samzapy.stream.placement import Place, Requested, encode_message, tombstones
from samzapy.stream.records import (
    CoordinatorRecord,
    InboxPut,
    MemoryPhase,
    RequestMemoryPut,
    RequestPut,
    RunPut,
)

FUTURE_MS_MAX: Final = 24 * 60 * 60 * 1000
"""A request may be so much ahead of the coordinator's clock. One of the year 9999, once forgotten, would make
everything else too old."""

WAITING_MAX: Final = 100
"""Requests that one processor has waiting; a flood for one must not fill the memory of all."""

_STEPS_MAX: Final = 4
_SHOWN_MAX: Final = 5
_NAMES_LENGTH_MAX: Final = 2000
_TEXT_LENGTH_MAX: Final = 200
S = StatusCode
R = TypeVar("R", RequestPut, RequestMemoryPut)

_HANDLERS: Final = {
    Action.PLACE_CONTAINER: MOVING,
    Action.RESTART_QUERY: RESTARTING,
    Action.RESTART_CONTAINER: REPLACING,
    Action.CONTROL_STANDBY: CONTROLLING_STANDBYS,
    Action.SCALE: SCALING,
    Action.REWIND: REWINDING,
}
"""How what is not answered at once is served."""


def in_order(requests: Iterable[R]) -> tuple[R, ...]:
    """By (timestamp, uuid), in which requests are served and forgotten."""
    return tuple(sorted(requests, key=_order))


def read_requests(command: RequestsRead, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """What the records mean that were read; the new position comes last."""
    position = state.inbox.offset_next
    if command.offset_from > position or command.offset_next <= position:
        return ()  # Read before, or something was left out.
    new: dict[str, Requested] = {}
    standing: dict[str, RequestMemoryPut] = {}
    for requested in sorted(command.requests, key=lambda found: found.offset):
        memory = state.request_memory.get(requested.uuid)
        if requested.offset < position or requested.uuid in state.requests:
            continue
        if memory is None:
            new.setdefault(requested.uuid, requested)
        elif memory.phase is MemoryPhase.COLLECTED and requested.offset >= memory.offset:
            # It stands there again, so it is to be removed again before its uuid may be forgotten.
            standing[memory.uuid] = replace(memory, phase=MemoryPhase.COLLECTING, offset=requested.offset)
    read: list[RequestPut] = []
    turns = set(_turns_taken(state))
    for requested in sorted(new.values(), key=_written):
        request = _read(requested, command.now_ms, state, turns)
        if request.status_code is S.ACCEPTED and request.action in _HANDLERS:
            turns.add(_turn_of(request, state))
        read.append(request)
    decided = tuple(_decided(in_order(read), state))
    return (
        *_run_stopped(decided, state),
        *decided,
        *(standing[uuid] for uuid in sorted(standing)),
        replace(state.inbox, offset_next=command.offset_next),
    )


def _run_stopped(decided: Iterable[RequestPut], state: CoordinatorState) -> Iterable[RunPut]:
    """The run as finished, if somebody asked for that. It comes first: torn behind it, the request is read again."""
    is_asked = any(found.action == Action.STOP and found.status_code is S.SUCCEEDED for found in decided)
    if is_asked and state.run is not None and not state.run.finished and not state.run.ended:
        yield replace(state.run, finished=True)


def review_requests(
    command: ReviewRequests, state: CoordinatorState, seen: Sightings
) -> tuple[CoordinatorRecord, ...]:
    """The requests that are over or late, and those that are next; also where that follows from each other.

    A request that is over at once lets the next one begin, and a plan for another factor may leave a processor without
    the tasks for which its query was to be restarted.
    """
    steps = Round(state)
    # Requests only move forward, so this loop terminates; it is bounded anyway.
    for _ in range(_STEPS_MAX * (len(state.requests) + 1)):
        if not steps.add(_review_once(Review(command=command, state=steps.state, liveness=seen))):
            break
    return tuple(steps.records)


def _review_once(review: Review) -> Sequence[CoordinatorRecord]:
    """One step of each request. Two moves that may go to any host choose one after the other."""
    steps = Round(review.state)
    unfinished = in_order(request for request in review.state.requests.values() if request.status_code in UNFINISHED)
    busy: set[str] = set()
    waiting: list[RequestPut] = []
    for request in unfinished:
        end = _end(request, review)
        if end is not None:
            # What it has begun is undone first: torn behind its end nothing would come back to that.
            if end.status_code is S.FAILED and request.status_code is S.IN_PROGRESS:
                steps.add(_handler(request).roll_back(request, review))
            steps.add([end])
        elif request.status_code is S.IN_PROGRESS:
            busy.add(_turn_of(request, review.state))
            now = replace(review, state=steps.state)
            steps.add(_handler(request).advance(request, now))
            steps.add(_handler(request).progress(request, now))
        else:
            waiting.append(request)
    for request in waiting:
        turn = _turn_of(request, review.state)
        if turn not in busy:
            busy.add(turn)
            steps.add(_handler(request).begin(request, replace(review, state=steps.state)))
    return steps.records


def _turn_of(request: RequestPut, state: CoordinatorState) -> str:
    """The queue a request belongs to; a processor shares one with its standbys."""
    return named(request.processor_id, state)[0]


@remembered
def _turns_taken(state: CoordinatorState) -> frozenset[str]:
    """For what a request is waiting or under way."""
    return frozenset(
        _turn_of(request, state) for request in state.requests.values() if request.status_code in UNFINISHED
    )


def answered(command: ResponsesWritten, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Notes that responses stand on the topic; of a request that is over only the memory stays."""
    found: list[CoordinatorRecord] = []
    for uuid, status_code in command.answered:
        request = state.requests.get(uuid)
        if request is None or request.answered or request.status_code is not status_code:
            continue
        if not status_code.is_terminal:
            found.append(replace(request, answered=True))
            continue
        # The memory first: torn, the response is written once more.
        found.append(
            RequestMemoryPut(
                uuid=uuid,
                timestamp_ms=request.timestamp_ms,
                place=request.place,
                # That of the answer: what is left of an earlier run can be read for a while.
                run_id=_run_id(state),
                status_code=status_code,
                decided_at_ms=request.decided_at_ms,
                phase=MemoryPhase.ANSWERED,
                offset=request.offset,
                action=request.action,
                processor_id=request.processor_id,
            )
        )
        found.append(tombstone(request))
    return tuple(found)


def collect(command: CollectRequests, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The messages that are to be removed, the uuids that are forgotten, and startpoints that nobody needs any more."""
    run_id = _run_id(state)
    surplus = len(state.request_memory) - command.memory_max
    first = in_order(state.request_memory.values())[:surplus] if surplus > 0 else ()
    outdated = {
        memory.uuid: memory
        for memory in state.request_memory.values()
        if memory.phase is MemoryPhase.ANSWERED
        and (memory.run_id != run_id or command.now_ms - memory.decided_at_ms >= command.retention_ms)
    }
    outdated |= {memory.uuid: memory for memory in first if memory.phase is MemoryPhase.ANSWERED}
    forgotten = [
        memory
        for memory in first
        if memory.phase is MemoryPhase.COLLECTED and memory.offset <= state.inbox.offset_next
    ]
    return (
        *(replace(memory, phase=MemoryPhase.COLLECTING) for memory in in_order(outdated.values())),
        *_forget(forgotten, state.inbox),
        *taken_up(state),
    )


def collected(command: MessagesRemoved, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Notes that messages were removed from the topic."""
    memories = (state.request_memory.get(uuid) for uuid in command.uuids)
    return tuple(
        replace(memory, phase=MemoryPhase.COLLECTED, offset=max(memory.offset, command.offset_next))
        for memory in memories
        if memory is not None and memory.phase is MemoryPhase.COLLECTING
    )


def response_of(request: RequestPut) -> Write:
    """The copy of a decision for the placement topic, written as the request was."""
    response = ContainerPlacementResponseMessage(
        uuid=uuids.UUID(request.uuid),
        deployment_id=request.deployment_id,
        processor_id=request.processor_id,
        destination_host=request.destination_host,
        request_expiry=timedelta(milliseconds=request.request_expiry_ms) if request.request_expiry_ms else None,
        status_code=request.status_code,
        timestamp_ms=request.decided_at_ms,
        action=Action(request.action) if request.action else Action.PLACE_CONTAINER,
        response_message=request.response_message,
        phase=request.phase,
    )
    return encode_message(response, Place.parse(request.place))


def removal_of(memory: RequestMemoryPut) -> Sequence[Write]:
    """What removes the messages of a request from the placement topic."""
    return tombstones(memory.uuid, Place.parse(memory.place))


# --- reading ---


def _written(requested: Requested) -> tuple[int, str]:
    """As `_order`, of a request that was not read yet."""
    return 0 if requested.message is None else requested.message.timestamp_ms, requested.uuid


def _read(requested: Requested, now_ms: int, state: CoordinatorState, turns: Container[str]) -> RequestPut:
    """A request as it was read: accepted, or bad as it stands there.

    Args:
        turns: of what a request before it waits or is under way.
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
        run_id=_run_id(state),
        status_code=S.BAD_REQUEST,
        response_message=f"the request cannot be read: {requested.reason}"[:MESSAGE_LENGTH_MAX],
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
        # Without a timestamp it is forgotten first, and makes nothing else too old.
        return replace(
            put,
            response_message=f"timestamp: wanted at most {FUTURE_MS_MAX} ms ahead of the coordinator's clock "
            f"({now_ms}), found {message.timestamp_ms}",
        )
    put = replace(put, timestamp_ms=message.timestamp_ms)
    reason = _too_old(put, state.inbox) or _refused(message, state, turns)
    if reason:
        return replace(put, response_message=reason)
    return replace(put, status_code=S.ACCEPTED, response_message="waits for its turn")


def _too_old(request: RequestPut, inbox: InboxPut) -> str:
    """What may have been done and forgotten is not done."""
    if _order(request) > (inbox.forgotten_timestamp_ms, inbox.forgotten_uuid):
        return ""
    return (
        f"too old: requests up to timestamp {inbox.forgotten_timestamp_ms} are no longer remembered, so this one may "
        "have been served already; write a new one"
    )


def _refused(message: ContainerPlacementRequestMessage, state: CoordinatorState, turns: Container[str]) -> str:
    """Why a request that can be read is none for this job as it is; empty where it is one."""
    run_id = _run_id(state)
    if message.deployment_id != run_id:
        return (
            f"deploymentId: wanted the run of the job, {run_id or '(none has begun)'}, found {message.deployment_id}; "
            "`samzapy job status` shows it"
        )
    if message.action is Action.SCALE:
        return scale_containers.refused_resize(scale_of(message.arguments), state)
    if message.action.is_of_job or not message.processor_id:
        return ""  # Or a request is asked about: `_decided` knows those that were read with it.
    known = _known_processors(state)
    turn = named(message.processor_id, state)[0]
    if turn not in known:
        return f"processorId: wanted one of {_listed(known) or '(none has joined)'}, found {message.processor_id}"
    for refused in (_REFUSED.get(message.action), None if turn in turns else _REFUSED_NOW.get(message.action)):
        if refused is not None and (reason := refused(message, state)):
            return reason
    return ""


def _refused_status(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> str:
    processor_id, number = named(message.processor_id, state)
    standbys = {
        name
        for found in state.launches.values()
        if found.processor_id == processor_id and (name := standby_called(found.execution_id, state)) is not None
    }
    if number is None or message.processor_id in standbys:
        return ""
    return (
        f"processorId: wanted a standby of processor {processor_id} ({_listed(standbys) or 'it has none'}), found "
        f"{message.processor_id}"
    )


_REFUSED: Final = {
    Action.CONTAINER_STATUS: _refused_status,
    Action.PLACE_CONTAINER: refused_move,
    Action.RESTART_QUERY: refused_standby,
    Action.RESTART_CONTAINER: refused_replacement,
    Action.CONTROL_STANDBY: refused_control,
}
"""Why a request for a processor that is known is none for the job; empty where it is one."""

_REFUSED_NOW: Final = {Action.PLACE_CONTAINER: refused_move_now, Action.CONTROL_STANDBY: refused_control_now}
"""The same, of what a request before it may change: only where there is none. Looked at again when its turn comes."""


def _decided(read: Sequence[RequestPut], state: CoordinatorState) -> Iterable[RequestPut]:
    """What can be answered at once is; of the others only so many wait."""
    together = {found.uuid: found for found in read}
    waiting = Counter(
        _turn_of(request, state) for request in state.requests.values() if request.status_code in UNFINISHED
    )
    for request in read:
        if request.status_code is not S.ACCEPTED:
            yield request
        elif request.action == Action.CONTAINER_STATUS and request.arguments:
            uuid = request_meant(json.loads(request.arguments))
            known = state.requests.get(uuid) or state.request_memory.get(uuid) or together.get(uuid)
            status_code, text = S.SUCCEEDED, "" if known is None else _shown_text(_request_told(known, state))
            if known is None:
                status_code, text = S.BAD_REQUEST, f"arguments.uuid: wanted a request that is known, found {uuid}"
            yield replace(request, status_code=status_code, response_message=text)
        elif request.action == Action.CONTAINER_STATUS:
            text = _container_status(request.processor_id, state)
            yield replace(request, status_code=S.SUCCEEDED, response_message=text)
        elif request.action == Action.STOP:
            text = "the containers are told to stop; they drain, and the run ends with the last of them"
            yield replace(request, status_code=S.SUCCEEDED, response_message=text)
        elif waiting[_turn_of(request, state)] >= WAITING_MAX:
            text = f"{WAITING_MAX} requests for {_whom(request)} wait already; write a new one later"
            yield replace(request, status_code=S.BAD_REQUEST, response_message=text)
        else:
            waiting[_turn_of(request, state)] += 1
            yield request


def _container_status(name: str, state: CoordinatorState) -> str:
    """How a processor is, or one of its standbys, as far as the log says, as a JSON object
    (docs/reference/placement-messages.md)."""
    processor_id, number = named(name, state)
    containers = [
        found
        for found in state.containers_sorted
        if found.processor_id == processor_id and (number is None or _role(found.execution_id, state) == name)
    ]
    tasks = [planned.task_name for planned in state.plan if planned.processor_id == processor_id]
    requests = [
        found
        for found in in_order(state.requests.values())
        if _turn_of(found, state) == processor_id and found.status_code in UNFINISHED
    ]
    locality = state.localities.get(processor_id)
    shown: list[str] = []
    for task_name in tasks:
        if sum(map(len, shown)) + len(task_name) > _NAMES_LENGTH_MAX:
            break
        shown.append(task_name)
    living = [found for found in containers if found.phase in LIVING]
    return _shown_text(
        {
            "processorId": name,
            "isRunning": any(found.phase is ContainerPhase.RUNNING for found in living),
            "lastSeenHost": None if locality is None else locality.host[:100],
            "containers": [
                {
                    "executionId": found.execution_id,
                    "role": _role(found.execution_id, state),
                    "phase": found.phase.value,
                    "host": found.host[:100],
                }
                for found in (living or containers)[:_SHOWN_MAX]
            ],
            "taskCount": len(tasks),
            "tasks": shown,
            "requests": [_request_told(found, state) for found in requests[:_SHOWN_MAX]],
            "answers": [_request_told(found, state) for found in _last_answers(state).get(processor_id, ())],
        }
    )


def _request_told(found: RequestPut | RequestMemoryPut, state: CoordinatorState) -> Mapping[str, object]:
    """A request, as far as it is known; of one that is over and was answered the text stands on the placement topic."""
    told: dict[str, object] = {"uuid": found.uuid, "action": found.action, "statusCode": found.status_code.value}
    if isinstance(found, RequestPut):
        told |= {"phase": found.phase, "responseMessage": found.response_message[:_TEXT_LENGTH_MAX]}
        execution_id, host = _execution_of(found, state)
        told |= {"executionId": execution_id, "host": host[:100]} if execution_id else {}
    return told


def _execution_of(request: RequestPut, state: CoordinatorState) -> tuple[str, str]:
    """The execution that a request brings its processor to, and its host; empty while there is none."""
    tries = [launch for launch in state.launches.values() if launch.uuid == request.uuid]
    execution_id = ExecutionId(request.execution_id)
    if not execution_id and tries:
        execution_id = max(tries, key=by_age).execution_id
    launch, container = state.launches.get(execution_id), state.containers.get(execution_id)
    if container is not None:
        return execution_id, container.host
    return execution_id, "" if launch is None else place_of(launch, state)


def _shown_text(told: Mapping[str, object]) -> str:
    return json.dumps(told, separators=(",", ":"))


@remembered
def _last_answers(state: CoordinatorState) -> Mapping[ProcessorId, Sequence[RequestMemoryPut]]:
    """Of each processor the requests for it that were answered last, the newest first; without questions."""
    found: dict[ProcessorId, list[RequestMemoryPut]] = {}
    for memory in state.request_memory.values():
        if memory.processor_id and memory.action != Action.CONTAINER_STATUS:
            found.setdefault(named(memory.processor_id, state)[0], []).append(memory)
    return {
        processor_id: nlargest(_SHOWN_MAX, answers, key=lambda memory: (memory.decided_at_ms, memory.uuid))
        for processor_id, answers in found.items()
    }


def _role(execution_id: ExecutionId, state: CoordinatorState) -> str:
    """ACTIVE or RESERVE, or what a standby is called."""
    return standby_called(execution_id, state) or role_of(execution_id, state).value


# --- serving ---


def _end(request: RequestPut, review: Review) -> RequestPut | None:
    """The request with its terminal status; None while it has none."""
    state, command = review.state, review.command
    if request.run_id != _run_id(state) or (state.run is not None and state.run.ended):
        text = f"the run {request.run_id} of the job ended before it was done"
        if request.action == Action.REWIND and request.status_code is S.IN_PROGRESS:
            text = f"{text}; the next one begins where it asked for"
        return ended(request, S.FAILED, text, review.now_ms)
    answer = _handler(request).completion(request, review) if request.status_code is S.IN_PROGRESS else None
    if answer is not None:
        return ended(request, S.SUCCEEDED, answer, review.now_ms)
    since_ms, limit_ms = request.accepted_at_ms, request.request_expiry_ms or command.expiry_ms
    if request.paused_at_ms:
        # What was asked for was ready in time. What has begun since is to end, and in its own time; an execution that
        # does not release its tasks is declared lost first, and the move goes on (ADR 0016).
        since_ms, limit_ms = request.paused_at_ms, max(limit_ms, command.expiry_ms) + command.release_ms
    if review.now_ms - since_ms >= limit_ms:
        return ended(request, S.FAILED, _why_expired(request, review, limit_ms), review.now_ms)
    if _lacks_its_query(request, state):
        text = f"processor {request.processor_id} runs no query: the plan gives it no task"
        return ended(request, S.FAILED, text, review.now_ms)
    return None


def _why_expired(request: RequestPut, review: Review, limit_ms: int) -> str:
    what = f"expired: {limit_ms} ms after it was {'ready' if request.paused_at_ms else 'read'}"
    if request.status_code is S.ACCEPTED:
        if any(wanted.uuid == request.uuid for wanted in rewind.offset_bounds_wanted(review.state)):
            return f"{what} nobody could tell where the inputs begin and end; nothing was done"
        return f"{what} other requests for {_whom(request)} are still served; nothing was done"
    return f"{what} {_handler(request).timeout_reason(request, review)}"


def _lacks_its_query(request: RequestPut, state: CoordinatorState) -> bool:
    """Whether the plan gives the processor no task, and the request needs one."""
    if not _waits_for_a_query(request):
        return False
    turn = _turn_of(request, state)
    if request.action == Action.RESTART_QUERY and turn in processors_with_query(state):
        return False
    return turn not in _planned_processors(state)


@remembered
def _planned_processors(state: CoordinatorState) -> frozenset[str]:
    return frozenset(planned.processor_id for planned in state.plan)


def _handler(request: RequestPut) -> RequestHandler:
    action = Action(request.action)
    is_of_containers = action is Action.SCALE and scale_wanted(request).containers is not None
    return RESIZING if is_of_containers else _HANDLERS[action]


def _whom(request: RequestPut) -> str:
    return f"processor {request.processor_id}" if request.processor_id else "the job"


def _waits_for_a_query(request: RequestPut) -> bool:
    return bool(request.processor_id) and request.action != Action.RESTART_CONTAINER


# --- forgetting ---


def _forget(memories: Sequence[RequestMemoryPut], inbox: InboxPut) -> Iterable[CoordinatorRecord]:
    """What makes older requests too old comes first: torn, more is refused than was forgotten, and never less."""
    if not memories:
        return ()
    newest = max((inbox.forgotten_timestamp_ms, inbox.forgotten_uuid), *map(_order, memories))
    horizon = replace(inbox, forgotten_timestamp_ms=newest[0], forgotten_uuid=newest[1])
    return (horizon, *map(tombstone, memories))


def _order(request: RequestPut | RequestMemoryPut) -> tuple[int, str]:
    return request.timestamp_ms, request.uuid


def _run_id(state: CoordinatorState) -> str:
    return "" if state.run is None else state.run.run_id


def _known_processors(state: CoordinatorState) -> frozenset[str]:
    """Those that are planned for, that live, or that ran before."""
    planned = () if state.generation is None else state.generation.processor_ids
    living = (found.processor_id for found in state.containers.values() if found.phase in LIVING)
    return frozenset((*planned, *living, *state.localities, *(wanted_processors(state) or ())))


def _listed(processors: Iterable[str]) -> str:
    names = sorted(processors, key=lambda name: (len(name), name))
    return some(names, 20)
