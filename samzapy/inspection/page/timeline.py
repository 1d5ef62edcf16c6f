"""The events of a job that the page lists, as far as this leader knows them.

The coordinator stream has every event; the state has only the latest value of each key. So a leader begins with the
moments that its state records, and adds the differences between two states as it sees them. `samzapy stream replay`
shows the whole history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from samzapy.coordinator.assignment.grants import newest_grants
from samzapy.coordinator.snapshot import Snapshot
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ExecutionId
from samzapy.model.text import some
from samzapy.stream.records import RequestPut

EVENTS_MAX: Final = 500


class EventKind(StrEnum):
    """The kinds of events."""

    TERM = "term"
    GENERATION = "generation"
    SCALING = "scaling"
    MOVE = "move"
    CONTAINER = "container"
    LOSS = "loss"
    REQUEST = "request"
    REWIND = "rewind"
    INPUT = "input"
    FINDING = "finding"


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        at_ms: wall clock.
        subject: the uuid of a request, for its history; empty for other events.
        offset: of the last record of the coordinator stream when this leader saw it; None: it saw only its effect.
    """

    at_ms: int
    kind: EventKind
    text: str
    subject: str = ""
    offset: int | None = None


K = EventKind
Events = tuple[Event, ...]
"""At most `EVENTS_MAX`, the oldest first."""


def with_events(events: Events, before: Snapshot | None, after: Snapshot, wall_ms: int) -> Events:
    """`events` with those between two snapshots.

    Without an earlier snapshot they are those that the state records.
    """
    if before is None:
        return tuple(sorted(_recorded(after.state), key=lambda event: (event.at_ms, event.text)))[-EVENTS_MAX:]
    new = [
        Event(wall_ms, kind, text, subject, after.state.offset_next - 1)
        for kind, text, subject in _changes(before, after)
    ]
    return (*events, *new)[-EVENTS_MAX:] if new else events


def _recorded(state: CoordinatorState) -> Iterator[Event]:
    """The moments that a state records."""
    if state.term is not None:
        yield Event(state.term.started_at_ms, K.TERM, _term_text(state))
    for launch in state.launches.values():
        where = launch.host_found or launch.host or "any host"
        text = f"A start for processor {launch.processor_id} was decided: {where}, {launch.role.value}"
        yield Event(launch.wanted_at_ms, K.CONTAINER, text)
    for known in state.inputs.values():
        for step in known.expansions:
            text = f"{known.system_stream} has {step.partition_count} partitions; {known.partition_count} are read"
            yield Event(step.seen_at_ms, K.INPUT, text)
        if known.gone_at_ms:
            yield Event(known.gone_at_ms, K.INPUT, f"{known.system_stream} was deleted")
    for request in state.requests.values():
        accepted = _request_name(request)
        yield Event(request.accepted_at_ms, K.REQUEST, f"{accepted} was read", request.uuid)
        if request.decided_at_ms:
            yield Event(request.decided_at_ms, K.REQUEST, _request_text(request), request.uuid)
    for memory in state.request_memory.values():
        text = f"{memory.action or 'A request'}{_for(memory.processor_id)}: {memory.status_code.value}"
        yield Event(memory.decided_at_ms, K.REQUEST, text, memory.uuid)


Change = tuple[EventKind, str, str]


def _changes(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    old, new = before.state, after.state
    if new is not old:
        yield from _of_term_and_plan(old, new)
        yield from _of_owners(old, new)
        yield from _of_containers(old, new)
        yield from _of_requests(old, new)
        yield from _of_positions(old, new)
        yield from _of_inputs(old, new)
    for finding in after.findings:
        if finding not in before.findings:
            yield K.FINDING, str(finding), ""
    for finding in before.findings:
        if finding not in after.findings:
            yield K.FINDING, f"Resolved: {finding.code}: {finding.found}", ""


def _of_term_and_plan(old: CoordinatorState, new: CoordinatorState) -> Iterator[Change]:
    if new.term is not None and (old.term is None or old.term.term != new.term.term):
        yield K.TERM, _term_text(new), ""
    if new.generation is None or old.generation == new.generation:
        return
    made = new.generation
    factor = 1 if old.generation is None else old.generation.factor
    if made.factor != factor:
        text = f"Factor {factor} became {made.factor}: {len(old.plan)} tasks became {made.task_count}"
        yield K.SCALING, f"{text} (generation {made.generation})", ""
    processor_before = {planned.task_name: planned.processor_id for planned in old.plan}
    moves = sum(processor_before.get(task.task_name, task.processor_id) != task.processor_id for task in new.plan)
    members = f"{len(made.processor_ids)} processor{'' if len(made.processor_ids) == 1 else 's'}"
    text = f"Generation {made.generation}: {made.task_count} tasks on {members}"
    moved = "1 task moves" if moves == 1 else f"{moves} tasks move"
    yield K.GENERATION, f"{text}; {moved}" if moves else text, ""


def _of_owners(old: CoordinatorState, new: CoordinatorState) -> Iterator[Change]:
    if new.grants is old.grants:
        return
    before, after = newest_grants(old), newest_grants(new)
    moved: dict[tuple[str, str], list[str]] = {}
    for task_name in sorted(after):
        earlier = before.get(task_name)
        if earlier is not None and earlier.execution_id != after[task_name].execution_id:
            pair = earlier.execution_id, after[task_name].execution_id
            moved.setdefault(pair, []).append(task_name)
    for (source, target), names in sorted(moved.items()):
        yield K.MOVE, f"From {_container_name(source, old)} to {_container_name(target, new)}: {some(names)}", ""


def _of_containers(old: CoordinatorState, new: CoordinatorState) -> Iterator[Change]:
    if new.containers is not old.containers:
        for container in new.containers_sorted:
            earlier = old.containers.get(container.execution_id)
            if earlier is not None and earlier.phase is container.phase:
                continue
            phase = container.phase
            kind = K.LOSS if phase in (ContainerPhase.LOST, ContainerPhase.FENCED) else K.CONTAINER
            reason = f": {container.reason}" if container.reason else ""
            yield kind, f"{_container_name(container.execution_id, new)} is {phase.value}{reason}", ""
    for processor_id, end in sorted(new.container_ends.items()):
        if old.container_ends.get(processor_id) != end:
            text = str(end)
            yield K.LOSS, f"{text[:1].upper()}{text[1:]}", ""
    for processor_id in sorted(new.suspended.keys() - old.suspended.keys()):
        put = new.suspended[processor_id]
        yield K.LOSS, f"Processor {processor_id} is suspended (exit code {put.exit_code}): {put.reason}", ""
    for processor_id in sorted(old.suspended.keys() - new.suspended.keys()):
        yield K.CONTAINER, f"Processor {processor_id} is not suspended any more", ""
    for execution_id in sorted(new.launches.keys() - old.launches.keys()):
        launch = new.launches[execution_id]
        where = launch.host or "any host"
        yield (
            K.CONTAINER,
            f"A start for processor {launch.processor_id} was decided: {where}, {launch.role.value}",
            "",
        )


def _of_requests(old: CoordinatorState, new: CoordinatorState) -> Iterator[Change]:
    for uuid in sorted(new.requests):
        request, earlier = new.requests[uuid], old.requests.get(uuid)
        if earlier is None or _answer_of(earlier) != _answer_of(request):
            yield K.REQUEST, _request_text(request), uuid
    for uuid in sorted(new.request_memory.keys() - old.request_memory.keys() - old.requests.keys()):
        memory = new.request_memory[uuid]
        yield (
            K.REQUEST,
            f"{memory.action or 'A request'}{_for(memory.processor_id)}: {memory.status_code.value}",
            uuid,
        )


def _of_positions(old: CoordinatorState, new: CoordinatorState) -> Iterator[Change]:
    epochs = {startpoint.epoch for startpoint in old.startpoints.values()}
    ordered: dict[str, list[str]] = {}
    for startpoint in sorted(new.startpoints.values(), key=lambda item: str(item.ssp_kb)):
        if startpoint.epoch not in epochs:
            ordered.setdefault(startpoint.uuid, []).append(f"{startpoint.ssp_kb} to {startpoint.offset_next}")
    for uuid in sorted(ordered):
        yield K.REWIND, f"Positions are set: {some(ordered[uuid])}", uuid
    for ssp_kb in sorted(new.accepted_losses.keys() - old.accepted_losses.keys()):
        loss = new.accepted_losses[ssp_kb]
        yield K.LOSS, f"{ssp_kb}: the offsets {loss.offset_from} to {loss.offset_to - 1} are given up", ""


def _of_inputs(old: CoordinatorState, new: CoordinatorState) -> Iterator[Change]:
    if new.inputs is old.inputs:
        return
    for stream in sorted(new.inputs):
        known, earlier = new.inputs[stream], old.inputs.get(stream)
        if earlier is None:
            yield K.INPUT, f"{stream} is an input, with {known.partition_count} partitions", ""
            continue
        if known.partition_count != earlier.partition_count:
            yield (
                K.INPUT,
                f"{stream}: {known.partition_count} partitions are read, {earlier.partition_count} before",
                "",
            )
        if len(known.expansions) > len(earlier.expansions):
            yield K.INPUT, f"{stream} has {known.expansions[-1].partition_count} partitions", ""
        if known.gone_at_ms and not earlier.gone_at_ms:
            yield K.INPUT, f"{stream} was deleted", ""


def _term_text(state: CoordinatorState) -> str:
    term = state.term
    assert term is not None, "a term has begun"
    return f"Term {term.term} began: {term.host}, process {term.pid}"


def _container_name(execution_id: str, state: CoordinatorState) -> str:
    container = state.containers.get(ExecutionId(execution_id))
    if container is None:
        return f"container {execution_id}"
    return f"container {execution_id} (processor {container.processor_id} on {container.host})"


def _request_name(request: RequestPut) -> str:
    return f"{request.action or 'A request'}{_for(request.processor_id)}"


def _for(processor_id: str) -> str:
    return f" of processor {processor_id}" if processor_id else ""


def _answer_of(request: RequestPut) -> tuple[str, str, str]:
    return request.status_code.value, request.phase, request.response_message


def _request_text(request: RequestPut) -> str:
    words = [_request_name(request), ": ", request.status_code.value]
    if request.phase:
        words.append(f" ({request.phase})")
    if request.response_message:
        words.append(f": {request.response_message}")
    return "".join(words)
