"""What the outside must do now, read off committed state and never told beside a record (law L3).

A coordinator that dies between an append and what follows from it comes back, replays, and asks for the same
again. So every action may be performed any number of times: `attempt` tells a repetition within one term
(already done) from a new term's asking (do it once more, it does no harm).
"""

from __future__ import annotations

from dataclasses import dataclass

from samzapy.coordinator.grants import wanted_grants
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.container import ContainerPhase, transactional_ids
from samzapy.model.job import ExecutionId, TaskName


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceExecution:
    """Initialise all transactional ids of a lost execution; its answer is `ExecutionFenced`."""

    execution_id: ExecutionId
    transactional_ids: tuple[str, ...]
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveStarts:
    """Read positions to the end and compute a task's starts; its answer is `StartsResolved`."""

    task_name: TaskName
    execution_id: ExecutionId
    generation: int
    attempt: int


Action = FenceExecution | ResolveStarts


def actions(state: CoordinatorState) -> tuple[Action, ...]:
    """Everything that is to be done, in a fixed order."""
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
    return (*fences, *resolves)
