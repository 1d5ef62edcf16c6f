"""Replace the process of a coordinator-managed container: `restart-container`.

Theory. The request only stops the execution that runs the processor's tasks. That execution drains. The processor then
lacks an execution, so another one is started on the same host, where its state is
(`coordinator.launching.launches`). The request names the execution to stop, so a repetition stops no other one. The
request is done when the tasks run in an execution with another id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from samzapy.coordinator.assignment.liveness import is_alive
from samzapy.coordinator.launching.launches import (
    last_of_kind,
    may_live,
    ordered_to_stop,
    runner_of,
    wanted_processors,
)
from samzapy.coordinator.launching.standbys import refused_standby
from samzapy.coordinator.launching.suspension import resumed
from samzapy.coordinator.requests.handler import RequestHandler, Review, begun, ended
from samzapy.coordinator.requests.place_container import awaited
from samzapy.coordinator.state import CoordinatorState, tombstone
from samzapy.model.container_end import exit_text
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import UP, Launch, LaunchPhase, LaunchRole
from samzapy.model.placement import ContainerPlacementRequestMessage, Refusal, StatusCode
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, LaunchPut, RequestPut


def refused_replacement(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why the process cannot be replaced in the current state; None if it can."""
    if state.container_count is None:
        return Refusal(
            f"{message.action} needs a job started with `samzapy job submit`; this job's containers are self-managed: "
            "stop the process and start it again, or request restart-query"
        )
    return refused_standby(message, state)


def refused_replacement_now(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why a replacement whose turn it is cannot begin; None if it can."""
    reason = _lacks_its_processor(message.processor_id, state)
    return Refusal(f"processorId: {reason}") if reason else None


def _lacks_its_processor(name: str, state: CoordinatorState) -> str:
    """Why the job has no container for a processor; empty if it has."""
    wanted = wanted_processors(state)
    if wanted is None or name in wanted:
        return ""
    return (
        f"wanted one of the job's processors ({some(wanted)}), found {name}: the job has {len(wanted)} containers now"
    )


def begin(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Stop the processor's container. See `RequestHandler`."""
    processor_id = ProcessorId(request.processor_id)
    if reason := _lacks_its_processor(processor_id, review.state):
        return (ended(request, StatusCode.FAILED, f"{reason}; nothing was done", review.now_ms),)
    runner = runner_of(review.state, processor_id)
    if runner is None:
        text = f"no container of processor {processor_id} runs; one is started"
        last = last_of_kind(review.state, processor_id, LaunchRole.ACTIVE)
        # The request comes last: if the transaction is torn before it, the request begins as without a suspension and
        # without failures.
        return (
            *resumed((processor_id,), review.state),
            *_pardoned(last, review.state),
            begun(request, text, review.now_ms),
        )
    text = f"{runner.execution_id} is to stop, and another one to start in its place"
    under_way = begun(request, text, review.now_ms, execution_id=runner.execution_id)
    return (under_way, *advance(under_way, review))


def _pardoned(last: Launch | None, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """The last launch without its failures.

    An operator who requests a restart wants it in spite of the earlier failures.
    """
    if last is None or last.phase in UP:
        return
    # The launch record shows whether its execution may still act. It stays until the execution has ended and is fenced.
    forgiven = LaunchPut(launch=replace(last, failures=0, window_began_ms=0))
    is_over = last.phase is LaunchPhase.ENDED and not may_live(last, state)
    yield tombstone(forgiven) if is_over else forgiven


def advance(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Order the stop if it is not ordered yet. See `RequestHandler`.

    The request fails if the new execution ended the way the last one did.
    """
    suspended = review.state.suspended.get(ProcessorId(request.processor_id))
    if suspended is not None:
        text = f"{suspended.execution_id} {exit_text(suspended.exit_code)}: {suspended.reason}"
        yield ended(request, StatusCode.FAILED, text, review.now_ms)
        return
    launch = review.state.launches.get(ExecutionId(request.execution_id))
    if launch is not None and launch.phase in UP and review.launching is not None:
        yield ordered_to_stop(launch, review.launching, f"request {request.uuid}: it is started anew")


def completion(request: RequestPut, review: Review) -> str | None:
    """The execution that runs the tasks now. See `RequestHandler`."""
    runner = _successor(request, review.state)
    if runner is None or awaited(request, review):
        return None
    took_ms = review.ms_since(request.decided_at_ms)
    host = review.state.containers[runner.execution_id].host
    return (
        f"processor {request.processor_id} runs in {runner.execution_id} on {host}, {took_ms} ms after it was asked"
    )


def timeout_reason(request: RequestPut, review: Review) -> str:
    """The execution or tasks that the request waits for. See `RequestHandler`."""
    runner = _successor(request, review.state)
    if runner is None:
        wanted = runner_of(review.state, ProcessorId(request.processor_id))
        why = "" if wanted is None else review.liveness.why_not(wanted.execution_id)
        return f"no other container of processor {request.processor_id} was heard of; one is still to be started{why}"
    waiting = awaited(request, review)
    return f"{runner.execution_id} runs, and {len(waiting)} tasks are not at work there yet ({some(waiting)})"


def _successor(request: RequestPut, state: CoordinatorState) -> Launch | None:
    """The live execution that runs the tasks, unless it is the one to stop."""
    runner = runner_of(state, ProcessorId(request.processor_id))
    if runner is None or runner.execution_id == request.execution_id or not is_alive(state, runner.execution_id):
        return None
    return runner


REPLACING = RequestHandler(
    begin=begin,
    advance=advance,
    completion=completion,
    timeout_reason=timeout_reason,
    refusal=refused_replacement,
    refusal_now=refused_replacement_now,
    why_lost=lambda request, state: _lacks_its_processor(request.processor_id, state),
)
