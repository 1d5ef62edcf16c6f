"""Restart the query of a processor in the same process: `restart-query`.

Theory. A restart is a number: `restart/<processor>` counts orders. A container that reads a higher number than the one
its query started with drains and starts a new query; its heartbeats report the number. So a lost heartbeat, a new
coordinator, and a container that died and was started again need no special rule: a container that starts begins a
query with the newest number.
"""

from __future__ import annotations

from collections.abc import Iterable

from samzapy.coordinator.assignment.liveness import LIVING
from samzapy.coordinator.launching.standbys import refused_standby
from samzapy.coordinator.requests.handler import RequestHandler, Review, begun, ended, lacks_its_tasks
from samzapy.coordinator.requests.turns import turn_of
from samzapy.coordinator.state import CoordinatorState, remembered
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.placement import StatusCode
from samzapy.stream.records import CoordinatorRecord, RequestPut, RestartPut


@remembered
def processors_with_query(state: CoordinatorState) -> frozenset[ProcessorId]:
    """The processors whose containers run tasks of the plan.

    These are their own tasks, or the tasks of processors that were moved to them.
    """
    planned = {task.processor_id for task in state.plan}
    runners = {processor_id: _placed_on(processor_id, state) for processor_id in planned}
    return frozenset(name if runner is None else runner.processor_id for name, runner in runners.items())


def _placed_on(processor_id: ProcessorId, state: CoordinatorState) -> Container | None:
    placed = state.placed.get(processor_id)
    return None if placed is None else state.containers.get(placed.execution_id)


def begin(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Order the processor's query to restart. See `RequestHandler`."""
    processor_id = ProcessorId(request.processor_id)
    runner = _placed_on(processor_id, review.state)
    if runner is not None and processor_id not in processors_with_query(review.state):
        text = (
            f"the tasks of processor {processor_id} were moved to processor {runner.processor_id} on "
            f"{runner.host}; restart that one's query. Nothing was done"
        )
        return (ended(request, StatusCode.FAILED, text, review.now_ms),)
    before = review.state.restarts.get(ProcessorId(request.processor_id))
    text = f"processor {request.processor_id} is to restart its query"
    under_way = begun(request, text, review.now_ms, restart=1 if before is None else before.number + 1)
    return (under_way, *advance(under_way, review))


def advance(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Record the order if it is not recorded yet. See `RequestHandler`."""
    processor_id = ProcessorId(request.processor_id)
    before = review.state.restarts.get(processor_id)
    if before is None or before.number < request.restart:
        yield RestartPut(processor_id=processor_id, number=request.restart, uuid=request.uuid)


def completion(request: RequestPut, review: Review) -> str | None:
    """The execution that runs the new query. See `RequestHandler`."""
    for execution_id in _lives(request, review.state):
        sighting = review.liveness.last.get(execution_id)
        is_running = review.state.containers[execution_id].phase is ContainerPhase.RUNNING
        if is_running and sighting is not None and sighting.restart >= request.restart:
            return f"the query of processor {request.processor_id} runs again, in {execution_id}"
    return None


def timeout_reason(request: RequestPut, review: Review) -> str:
    """The container or query that the request waits for. See `RequestHandler`."""
    if not any(_lives(request, review.state)):
        return f"no container of processor {request.processor_id} lives; one that starts begins a new query"
    return f"the query of processor {request.processor_id} does not run again; it was ordered to restart"


def _lives(request: RequestPut, state: CoordinatorState) -> Iterable[ExecutionId]:
    return (
        container.execution_id
        for container in state.containers_sorted
        if container.processor_id == request.processor_id and container.phase in LIVING
    )


def _lacks_its_query(request: RequestPut, state: CoordinatorState) -> str:
    """Why the request is lost; empty if it is not.

    A processor without tasks of its own may run those of another one.
    """
    if turn_of(request, state) in processors_with_query(state):
        return ""
    return lacks_its_tasks(request, state)


RESTARTING = RequestHandler(
    begin=begin,
    advance=advance,
    completion=completion,
    timeout_reason=timeout_reason,
    refusal=refused_standby,
    why_lost=_lacks_its_query,
)
