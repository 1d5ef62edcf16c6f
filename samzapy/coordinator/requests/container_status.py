"""Report the state of a processor, a standby or a request: `container-status`.

Theory. The answer is a JSON object (docs/reference/placement-messages.md). It is made of the log alone, so it is given
when the request is read. Long lists are cut, because the answer is one message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import Final

from samzapy.coordinator.assignment.liveness import LIVING
from samzapy.coordinator.launching.hosts import place_of
from samzapy.coordinator.launching.standbys import named, role_of, standby_called
from samzapy.coordinator.requests.handler import ImmediateHandler, listed
from samzapy.coordinator.requests.turns import in_order, turn_of
from samzapy.coordinator.state import CoordinatorState, remembered
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import by_age
from samzapy.model.placement import (
    UNFINISHED,
    Action,
    ContainerPlacementRequestMessage,
    Refusal,
    StatusCode,
    recorded_arguments,
    request_meant,
)
from samzapy.stream.records import RequestMemoryPut, RequestPut

_SHOWN_MAX: Final = 5
_NAMES_LENGTH_MAX: Final = 2000
_TEXT_LENGTH_MAX: Final = 200


def refused_status(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why a standby cannot be reported: the processor has none of that name."""
    processor_id, number = named(message.processor_id, state)
    standbys = {
        name
        for launch in state.launches.values()
        if launch.processor_id == processor_id and (name := standby_called(launch.execution_id, state)) is not None
    }
    if number is None or message.processor_id in standbys:
        return None
    return Refusal(
        f"processorId: wanted a standby of processor {processor_id} ({listed(standbys) or 'it has none'}), found "
        f"{message.processor_id}"
    )


def answer(request: RequestPut, together: Mapping[str, RequestPut], state: CoordinatorState) -> RequestPut:
    """See `ImmediateHandler`."""
    if not request.arguments:
        text = _as_text(_processor_as_json(request.processor_id, state))
        return replace(request, status_code=StatusCode.SUCCEEDED, response_message=text)
    uuid = request_meant(recorded_arguments(request.arguments))
    known = state.requests.get(uuid) or state.request_memory.get(uuid) or together.get(uuid)
    if known is None:
        text = f"arguments.uuid: wanted a request that is known, found {uuid}"
        return replace(request, status_code=StatusCode.BAD_REQUEST, response_message=text)
    text = _as_text(_request_as_json(known, state))
    return replace(request, status_code=StatusCode.SUCCEEDED, response_message=text)


def _processor_as_json(name: str, state: CoordinatorState) -> Mapping[str, object]:
    """The state that the log has of a processor, or of one of its standbys."""
    processor_id, number = named(name, state)
    containers = [
        container
        for container in state.containers_sorted
        if container.processor_id == processor_id and (number is None or _role(container.execution_id, state) == name)
    ]
    living = [container for container in containers if container.phase in LIVING]
    tasks = [planned.task_name for planned in state.plan if planned.processor_id == processor_id]
    locality = state.localities.get(processor_id)
    return {
        "processorId": name,
        "isRunning": any(container.phase is ContainerPhase.RUNNING for container in living),
        "lastSeenHost": None if locality is None else locality.host[:100],
        "containers": [_container_as_json(container, state) for container in (living or containers)[:_SHOWN_MAX]],
        "taskCount": len(tasks),
        "tasks": _first_names(tasks),
        "requests": [_request_as_json(request, state) for request in _unfinished(processor_id, state)[:_SHOWN_MAX]],
        "answers": [_request_as_json(memory, state) for memory in _last_answers(state).get(processor_id, ())],
    }


def _container_as_json(container: Container, state: CoordinatorState) -> Mapping[str, object]:
    return {
        "executionId": container.execution_id,
        "role": _role(container.execution_id, state),
        "phase": container.phase.value,
        "host": container.host[:100],
    }


def _first_names(names: Iterable[str]) -> Sequence[str]:
    """The first names, up to the length that one message may have."""
    shown: list[str] = []
    length = 0
    for name in names:
        length += len(name)
        if length > _NAMES_LENGTH_MAX:
            break
        shown.append(name)
    return shown


def _unfinished(processor_id: ProcessorId, state: CoordinatorState) -> Sequence[RequestPut]:
    return in_order(
        request
        for request in state.requests.values()
        if turn_of(request, state) == processor_id and request.status_code in UNFINISHED
    )


def _request_as_json(request: RequestPut | RequestMemoryPut, state: CoordinatorState) -> Mapping[str, object]:
    """The fields that the log has of a request.

    The text of an answered request is no longer in the log; it is on the placement topic.
    """
    fields: dict[str, object] = {
        "uuid": request.uuid,
        "action": request.action,
        "statusCode": request.status_code.value,
    }
    if isinstance(request, RequestPut):
        fields |= {"phase": request.phase, "responseMessage": request.response_message[:_TEXT_LENGTH_MAX]}
        execution_id, host = _execution_of(request, state)
        fields |= {"executionId": execution_id, "host": host[:100]} if execution_id else {}
    return fields


def _execution_of(request: RequestPut, state: CoordinatorState) -> tuple[str, str]:
    """The execution that a request moves its processor to, and its host.

    Both are empty while there is no such execution.
    """
    tries = [launch for launch in state.launches.values() if launch.uuid == request.uuid]
    execution_id = ExecutionId(request.execution_id)
    if not execution_id and tries:
        execution_id = max(tries, key=by_age).execution_id
    launch, container = state.launches.get(execution_id), state.containers.get(execution_id)
    if container is not None:
        return execution_id, container.host
    return execution_id, "" if launch is None else place_of(launch, state)


def _as_text(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":"))


@remembered
def _last_answers(state: CoordinatorState) -> Mapping[ProcessorId, Sequence[RequestMemoryPut]]:
    """The last answered requests of each processor, the newest first.

    Requests for `container-status` are left out.
    """
    by_processor: dict[ProcessorId, list[RequestMemoryPut]] = {}
    for memory in state.request_memory.values():
        if memory.processor_id and memory.action != Action.CONTAINER_STATUS:
            by_processor.setdefault(named(memory.processor_id, state)[0], []).append(memory)
    return {
        processor_id: nlargest(_SHOWN_MAX, answers, key=lambda memory: (memory.decided_at_ms, memory.uuid))
        for processor_id, answers in by_processor.items()
    }


def _role(execution_id: ExecutionId, state: CoordinatorState) -> str:
    """ACTIVE or RESERVE, or the name of a standby."""
    return standby_called(execution_id, state) or role_of(execution_id, state).value


CONTAINER_STATUS = ImmediateHandler(refusal=refused_status, answer=answer)
