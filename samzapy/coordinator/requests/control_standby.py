"""Add or remove one standby of a processor while the job runs.

The request is `control-standby` (SEP-22).

Theory. The record `standby/<processor>` holds the number of standbys that the processor is to have. Starts and stops
of standbys follow from it (`coordinator.launching.standbys`). A request to start one is done when all of them are
ready; if the request expires before that, the number is set back. A request to stop one is done when no more standbys
than the number are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from samzapy.coordinator.assignment.liveness import is_alive
from samzapy.coordinator.launching.hosts import place_of
from samzapy.coordinator.launching.launches import to_look_at
from samzapy.coordinator.launching.standbys import (
    has_state,
    is_warm,
    named,
    standby_count,
    standby_count_configured,
    standbys_of,
)
from samzapy.coordinator.requests.handler import RequestHandler, Review, begun, ended, lacks_its_tasks, with_phase
from samzapy.coordinator.state import CoordinatorState, tombstone
from samzapy.model.job import ProcessorId
from samzapy.model.launch import LaunchPhase, LaunchRole, standby_name
from samzapy.model.placement import (
    ContainerPlacementRequestMessage,
    Phase,
    Refusal,
    StatusCode,
    is_standby_wanted,
    recorded_arguments,
)
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, RequestPut, StandbyPut

STANDBYS_MAX = 10
"""A request for more copies of a state than this is taken for a typing error."""


def refused_control(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why the number of standbys cannot change; None if it can.

    Checks only conditions that the requests before it cannot change.
    """
    if state.container_count is None:
        return Refusal(
            f"{message.action} needs a job started with `samzapy job submit`; this job's containers are self-managed"
        )
    if named(message.processor_id, state)[1] is not None:
        return Refusal(f"processorId: wanted a processor, found {message.processor_id}, which is a standby")
    if not has_state(state):
        return Refusal("the job has no state that a standby could have at hand")
    return None


def refused_control_now(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why a request whose turn it is cannot change the number; None if it can."""
    is_more = is_standby_wanted(message.arguments)
    return _refused_number(ProcessorId(message.processor_id), state, is_more=is_more)


def _refused_number(processor_id: ProcessorId, state: CoordinatorState, *, is_more: bool) -> Refusal | None:
    count = standby_count(processor_id, state)
    if not is_more and not count:
        return Refusal(f"wanted to stop a standby of processor {processor_id}, found that it has none")
    if is_more and count >= STANDBYS_MAX:
        return Refusal(
            f"wanted at most {STANDBYS_MAX} standbys of processor {processor_id}, found that it has {count}"
        )
    return None


def begin(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Record the new number. See `RequestHandler`."""
    processor_id = ProcessorId(request.processor_id)
    is_more, count = _is_more(request), standby_count(processor_id, review.state)
    # The number may have changed since the request was accepted.
    if reason := _refused_number(processor_id, review.state, is_more=is_more):
        return (ended(request, StatusCode.FAILED, reason, review.now_ms),)
    text = f"processor {processor_id} is to have {_after(count, is_more=is_more)} standbys, after {count}"
    under_way = begun(request, text, review.now_ms, phase=Phase.RESERVING if is_more else Phase.STOPPING)
    return (under_way, *advance(under_way, review))


def advance(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Record the number if it is not recorded yet. See `RequestHandler`."""
    processor_id = ProcessorId(request.processor_id)
    if _recorded(request, review.state) is None:
        count = _after(standby_count(processor_id, review.state), is_more=_is_more(request))
        yield StandbyPut(processor_id=processor_id, count=count, uuid=request.uuid)


def progress(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Report how far the standbys are. See `RequestHandler`."""
    recorded = _recorded(request, review.state)
    if recorded is None or not _is_more(request):
        return
    restoring = _restoring(recorded, review)
    if restoring is None:
        yield from with_phase(request, Phase.RESERVING, _starting(recorded, review), review.now_ms)
    else:
        yield from with_phase(request, Phase.RESTORING, f"of the state is there: {some(restoring)}", review.now_ms)


def _starting(recorded: StandbyPut, review: Review) -> str:
    """For people: how many standbys are up, and why others are not."""
    standing = standbys_of(recorded.processor_id, review.state)
    up = [launch for launch in standing if is_alive(review.state, launch.execution_id)]
    missing = {
        name: why
        for name, why in review.liveness.standbys_missing.items()
        if named(name, review.state)[0] == recorded.processor_id
    }
    return "".join(
        (
            f"{len(up)} of {recorded.count} standbys are up",
            next((why for launch in standing if (why := review.liveness.why_not(launch.execution_id))), ""),
            *(f"; {name}: {why}" for name, why in sorted(missing.items())),
        )
    )


def _restoring(recorded: StandbyPut, review: Review) -> Sequence[str] | None:
    """For people: how much state each cold standby has; None until all report it."""
    standing = standbys_of(recorded.processor_id, review.state)
    cold = [launch for launch in standing if not is_warm(launch.execution_id, review.state, review.liveness)]
    if len(standing) < recorded.count or any(launch.execution_id not in review.liveness.last for launch in cold):
        return None
    warm = {launch: review.liveness.last[launch.execution_id].warm for launch in cold}
    return [
        f"{standby_name(launch)} {0 if progress is None else progress.percent} %" for launch, progress in warm.items()
    ]


def completion(request: RequestPut, review: Review) -> str | None:
    """The standbys that there are now. See `RequestHandler`."""
    recorded = _recorded(request, review.state)
    if recorded is None:
        return None
    standing = standbys_of(recorded.processor_id, review.state)
    if _is_more(request):
        ready = [launch for launch in standing if is_warm(launch.execution_id, review.state, review.liveness)]
        is_done = len(ready) >= recorded.count
    else:
        is_done = len(standing) <= recorded.count and not _leaving(recorded.processor_id, review.state)
    shown = some([f"{standby_name(launch)} on {place_of(launch, review.state)}" for launch in standing]) or "nobody"
    return f"standing by for processor {recorded.processor_id}: {shown}" if is_done else None


def timeout_reason(request: RequestPut, review: Review) -> str:
    """The standbys that the request waits for. See `RequestHandler`."""
    if _is_more(request):
        progress_text = f"it was still {request.phase}: {request.response_message}"
        return f"{progress_text}; processor {request.processor_id} is to have as many as before"
    return "one that was told to stop had not ended yet; it will"


def roll_back(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Set the number back if a standby did not start in time. See `RequestHandler`."""
    recorded = _recorded(request, review.state)
    if recorded is not None and _is_more(request):
        # Without the request's uuid: if the transaction is torn before the request's end, the repetition must not
        # subtract again.
        before = replace(recorded, count=_after(recorded.count, is_more=False), uuid="")
        # A record would keep this number when the configuration changes.
        yield tombstone(before) if before.count == standby_count_configured(review.state) else before


def _is_more(request: RequestPut) -> bool:
    return is_standby_wanted(recorded_arguments(request.arguments))


def _after(count: int, *, is_more: bool) -> int:
    return count + 1 if is_more else count - 1


def _recorded(request: RequestPut, state: CoordinatorState) -> StandbyPut | None:
    """The number that the request recorded; None before it is recorded."""
    known = state.standbys.get(ProcessorId(request.processor_id))
    return known if known is not None and known.uuid == request.uuid else None


def _leaving(processor_id: ProcessorId, state: CoordinatorState) -> bool:
    return any(
        launch.processor_id == processor_id
        and launch.role is LaunchRole.STANDBY
        and launch.phase is LaunchPhase.STOPPING
        for launch in to_look_at(state)
    )


CONTROLLING_STANDBYS = RequestHandler(
    begin=begin,
    advance=advance,
    completion=completion,
    timeout_reason=timeout_reason,
    progress=progress,
    roll_back=roll_back,
    refusal=refused_control,
    refusal_now=refused_control_now,
    why_lost=lacks_its_tasks,
)
