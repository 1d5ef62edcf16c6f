"""External actions, derived from committed state (law L3).

A coordinator that dies between an append and its actions comes back, replays, and asks for the same actions again. So
every action may be performed any number of times. `attempt` tells a repetition within one term (already done) from a
request of a new term (done once more, which does no harm).
"""

from __future__ import annotations

from dataclasses import dataclass

from samzapy.coordinator.assignment.grants import wanted_grants
from samzapy.coordinator.inputs.growth import ends_wanted
from samzapy.coordinator.requests.rewind import offset_bounds_wanted
from samzapy.coordinator.requests.turns import in_order
from samzapy.coordinator.state import CoordinatorState, remembered
from samzapy.model.container import ContainerPhase, transactional_ids
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.placement import StatusCode
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.stream.records import MemoryPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceExecution:
    """Initialise all transactional ids of a lost execution.

    Its result is `ExecutionFenced`.
    """

    execution_id: ExecutionId
    transactional_ids: tuple[str, ...]
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveStarts:
    """Read positions to the end and compute a task's starts.

    Its result is `StartsResolved`.
    """

    task_name: TaskName
    execution_id: ExecutionId
    generation: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEnds:
    """Ask where partitions end, for the expansion of their stream.

    Its result is `EndsRead`.
    """

    system_stream: SystemStream
    partition_count: int
    ssps: tuple[SystemStreamPartition, ...]
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOffsetBounds:
    """Ask where partitions can be rewound to, for a request.

    Its result is `OffsetBoundsRead`.
    """

    uuid: str
    ssps: tuple[SystemStreamPartition, ...]
    timestamp_ms: int | None
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResponse:
    """Write a response with the status of a request to the placement topic.

    Its result is `ResponsesWritten`.
    """

    uuid: str
    status_code: StatusCode
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMessages:
    """Remove a request and its response from the placement topic.

    Its result is `MessagesRemoved`.
    """

    uuid: str
    attempt: int


HandOver = FenceExecution | ResolveStarts | ReadEnds | ReadOffsetBounds
Answer = WriteResponse | RemoveMessages
Action = HandOver | Answer


def actions(state: CoordinatorState) -> tuple[Action, ...]:
    """All actions that the state asks for, in a fixed order."""
    return (*hand_overs(state), *answers(state))


@remembered
def hand_overs(state: CoordinatorState) -> tuple[HandOver, ...]:
    """The actions that tasks or requests wait for."""
    if state.term is None or state.job is None:
        return ()
    job = f"{state.job.job_name}-{state.job.job_id}"
    fences = [
        FenceExecution(
            execution_id=container.execution_id,
            transactional_ids=transactional_ids(job, container.execution_id, container.slot_count),
            attempt=state.term.term,
        )
        for container in state.containers_sorted
        if container.phase is ContainerPhase.LOST
    ]
    resolves = [
        ResolveStarts(
            task_name=wanted.planned.task_name,
            execution_id=wanted.execution_id,
            generation=wanted.planned.generation,
            attempt=state.term.term,
        )
        for wanted in wanted_grants(state)
    ]
    ends = [
        ReadEnds(
            system_stream=wanted.system_stream,
            partition_count=wanted.partition_count,
            ssps=wanted.ssps,
            attempt=state.term.term,
        )
        for wanted in ends_wanted(state)
    ]
    offset_bounds = [
        ReadOffsetBounds(
            uuid=wanted.uuid, ssps=wanted.ssps, timestamp_ms=wanted.timestamp_ms, attempt=state.term.term
        )
        for wanted in offset_bounds_wanted(state)
    ]
    return (*fences, *resolves, *ends, *offset_bounds)


@remembered
def answers(state: CoordinatorState) -> tuple[Answer, ...]:
    """The answers that operators wait for."""
    if state.term is None or state.job is None:
        return ()
    responses = [
        WriteResponse(uuid=request.uuid, status_code=request.status_code, attempt=state.term.term)
        for request in in_order(state.requests.values())
        if not request.answered
    ]
    removals = [
        RemoveMessages(uuid=memory.uuid, attempt=state.term.term)
        for memory in in_order(
            memory for memory in state.request_memory.values() if memory.phase is MemoryPhase.COLLECTING
        )
    ]
    return (*responses, *removals)
