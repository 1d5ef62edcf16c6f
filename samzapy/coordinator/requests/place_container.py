"""Move a processor's tasks to another host while the job runs: `place-container`.

SEP-22 describes the request.

Theory. The record `placed/<processor>` names the execution that runs the processor's tasks. The plan does not change,
and neither do the tasks of other processors. The hand-over is the one that every change has
(`coordinator.assignment.grants`): the current owner reads that it must release the tasks and finishes its batch, and
the new owner is granted them from the offsets that the old one reached. So the pause is as long as a restart of the
query, plus the restore of the state that the destination lacks. A coordinator that dies in between leaves nothing to
repair, because its successor goes on from the record.

With self-managed containers, a move needs a container that already runs on the destination. That container then works
for its own processor and for the one that was placed on it. The processor's own container stays, without tasks: the
processor can be moved back to it. It also gets the tasks again when the other container is gone, because a placement
ends with the execution that it names.

With coordinator-managed containers, a container is started for the move, and the move has phases
(`coordinator.requests.place_with_reserve`).

A move to the host of the tasks is a restart of their query. The destination is fixed when a move begins: if that
execution dies, the move fails, and the tasks run on another container.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from samzapy.coordinator.assignment.grants import executions_to_grant
from samzapy.coordinator.assignment.liveness import is_alive
from samzapy.coordinator.requests import restart_query
from samzapy.coordinator.requests.handler import RequestHandler, Review, begun, ended, lacks_its_tasks
from samzapy.coordinator.requests.place_with_reserve import (
    advance_reserve,
    begin_reserve,
    refused_reserve,
    refused_reserve_now,
    reserve_completion,
    reserve_timeout_reason,
    tasks_awaited,
)
from samzapy.coordinator.state import CoordinatorState, locality_of, sorted_processors, tombstone
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.placement import (
    ANY_HOST,
    FORCE_RESTART_LAST_SEEN,
    LAST_SEEN,
    STANDBY,
    ContainerPlacementRequestMessage,
    Refusal,
    StatusCode,
)
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, PlacedPut, Removed, RequestPut


def refused_move_now(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why a move whose turn it is cannot begin in the current state; None if it can."""
    return None if state.container_count is None else refused_reserve_now(message, state)


def refused_move(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why a move is impossible; None if it is possible.

    Checks only conditions that the requests before it cannot change.
    """
    if state.container_count is not None:
        return refused_reserve(message, state)
    target = destination(message.processor_id, message.destination_host, state)
    return Refusal(target) if isinstance(target, str) else None


def destination(processor_id: str, host: str, state: CoordinatorState) -> Container | str:
    """The execution that is to get a processor's tasks, or why there is none.

    On a host the processor's own execution comes first, then the one with the fewest tasks. `ANY_HOST` means a host
    other than the current one, if there is one. `LAST_SEEN` means the host where the tasks run, or ran last.
    """
    if host == STANDBY:
        return f"destinationHost: wanted a host, {ANY_HOST} or {LAST_SEEN}, found {STANDBY}: the job has no standbys"
    if host == FORCE_RESTART_LAST_SEEN:
        return (
            f"destinationHost: wanted a host, {ANY_HOST} or {LAST_SEEN}, found {host}, which needs a job "
            "started with `samzapy job submit`; this job's containers are self-managed: stop the process and start it "
            "again, or request restart-query"
        )
    wanted = ProcessorId(processor_id)
    candidates = _on_another_host(wanted, state) if host == ANY_HOST else _on_host(wanted, host, state)
    return candidates if isinstance(candidates, str) else _least_loaded(wanted, candidates, state)


def _on_another_host(processor_id: ProcessorId, state: CoordinatorState) -> Sequence[Container] | str:
    """The other running containers, or why there are none.

    Containers of another host are preferred: if there are any, only they are returned.
    """
    runner, here = executions_to_grant(state).get(processor_id), locality_of(state).processors.get(processor_id)
    others = [container for container in _running(state) if container.execution_id != runner]
    elsewhere = [container for container in others if container.host != here]
    if others:
        return elsewhere or others
    return f"destinationHost: wanted another container than that of processor {processor_id}, found none that runs"


def _on_host(processor_id: ProcessorId, host: str, state: CoordinatorState) -> Sequence[Container] | str:
    """The running containers on a host, or why there are none."""
    if host == LAST_SEEN:
        here = locality_of(state).processors.get(processor_id)
        if here is None:
            return f"destinationHost: wanted a host where processor {processor_id} ran, found that it never did"
        host = here
    running = _running(state)
    if there := [container for container in running if container.host == host]:
        return there
    hosts = some(sorted({container.host for container in running})) or "none does"
    return (
        f"destinationHost: wanted a host where a container of the job runs ({hosts}), found {host[:100]}; start one "
        "there first (spark-submit), its processor takes the tasks"
    )


def _running(state: CoordinatorState) -> Sequence[Container]:
    return [container for container in state.containers_sorted if container.phase is ContainerPhase.RUNNING]


def _least_loaded(processor_id: ProcessorId, candidates: Iterable[Container], state: CoordinatorState) -> Container:
    """The processor's own container if it is a candidate, else the least loaded one."""
    to_grant = executions_to_grant(state)
    load = Counter(to_grant.get(planned.processor_id) for planned in state.plan)
    return min(
        candidates,
        key=lambda container: (
            container.processor_id != processor_id,
            load[container.execution_id],
            container.execution_id,
        ),
    )


def begin(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Place the processor on another execution. See `RequestHandler`."""
    if review.state.container_count is not None:
        return begin_reserve(request, review)
    target = destination(request.processor_id, request.destination_host, review.state)
    if isinstance(target, str):
        return (ended(request, StatusCode.FAILED, f"{target}; nothing was done", review.now_ms),)
    processor_id = ProcessorId(request.processor_id)
    if (
        target.execution_id == executions_to_grant(review.state).get(processor_id)
        and target.processor_id == processor_id
    ):
        return restart_query.begin(request, review)
    text = (
        f"processor {processor_id} goes to {target.execution_id} of processor {target.processor_id} on {target.host}"
    )
    # The target runs already, so the request cannot expire while it waits; from now on the move has its own time limit.
    moves = replace(begun(request, text, review.now_ms, execution_id=target.execution_id), paused_at_ms=review.now_ms)
    return (moves, *advance(moves, review))


def advance(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Record the placement if it is missing. See `RequestHandler`.

    A move ends if its destination is gone.
    """
    if request.phase:
        return  # `progress` does it, because it also needs the reports of the containers.
    if not request.execution_id:
        yield from restart_query.advance(request, review)
        return
    if not is_alive(review.state, ExecutionId(request.execution_id)):
        text = (
            f"{request.execution_id}, which processor {request.processor_id} was to go to, is gone; its tasks go to a "
            "container of its own, or are planned anew"
        )
        yield ended(request, StatusCode.FAILED, text, review.now_ms)
    elif not _is_placed(request, review.state):
        yield PlacedPut(
            processor_id=ProcessorId(request.processor_id),
            execution_id=ExecutionId(request.execution_id),
            uuid=request.uuid,
        )


def completion(request: RequestPut, review: Review) -> str | None:
    """The container that the tasks run in now. See `RequestHandler`."""
    if request.phase:
        return reserve_completion(request, review)
    if not request.execution_id:
        return restart_query.completion(request, review)
    if not _is_placed(request, review.state) or awaited(request, review):
        return None
    container = review.state.containers[ExecutionId(request.execution_id)]
    count = sum(planned.processor_id == request.processor_id for planned in review.state.plan)
    return (
        f"{count} tasks of processor {request.processor_id} run in {container.execution_id} of processor "
        f"{container.processor_id} on {container.host}, {review.ms_since(request.decided_at_ms)} ms after the move "
        "began"
    )


def timeout_reason(request: RequestPut, review: Review) -> str:
    """The tasks that have not arrived yet. See `RequestHandler`."""
    if request.phase:
        return reserve_timeout_reason(request, review)
    if not request.execution_id:
        return restart_query.timeout_reason(request, review)
    waiting = awaited(request, review)
    return f"{len(waiting)} tasks are not at work on {request.execution_id} yet ({some(waiting)}); the move goes on"


def progress(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Advance a move with a reserve. See `RequestHandler`.

    A move without a reserve has no phases.
    """
    return advance_reserve(request, review) if request.phase else ()


def awaited(request: RequestPut, review: Review) -> tuple[TaskName, ...]:
    """The tasks of the processor that are not at work in their new container yet."""
    return tasks_awaited(request.processor_id, review)


def placements_over(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of the placements whose execution is gone.

    The tasks return to the processors' own executions.
    """
    return tuple(
        tombstone(state.placed[processor_id])
        for processor_id in sorted_processors(state.placed)
        if not is_alive(state, state.placed[processor_id].execution_id)
    )


def _is_placed(request: RequestPut, state: CoordinatorState) -> bool:
    placed = state.placed.get(ProcessorId(request.processor_id))
    return placed is not None and placed.execution_id == request.execution_id


MOVING = RequestHandler(
    begin=begin,
    advance=advance,
    completion=completion,
    timeout_reason=timeout_reason,
    progress=progress,
    refusal=refused_move,
    refusal_now=refused_move_now,
    why_lost=lacks_its_tasks,
)
