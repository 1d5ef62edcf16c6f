"""Change the number of coordinator-managed containers while the job runs.

The request is `scale` with `containers`.

Theory. The number is a record; everything else follows from it. A wanted processor without an execution gets one, and
joins the plan when that execution has registered. A processor that is no longer wanted leaves the plan, releases its
tasks, and is stopped (`coordinator.launching.launches`, `coordinator.lifecycle.membership`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from samzapy.coordinator.assignment.grants import executions_to_grant, not_at_work
from samzapy.coordinator.assignment.liveness import is_alive
from samzapy.coordinator.launching.launches import to_look_at, to_start, wanted_processors
from samzapy.coordinator.requests.handler import RequestHandler, Review, begun, counted, ended, with_progress
from samzapy.coordinator.requests.scale_factor import scale_wanted
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.launch import Launch
from samzapy.model.placement import Phase, Refusal, Scale, StatusCode
from samzapy.model.text import some
from samzapy.stream.records import ContainerCountPut, CoordinatorRecord, RequestPut

_LEAVING_SHOWN_MAX: Final = 20


def refused_resize(wanted: Scale, state: CoordinatorState) -> Refusal | None:
    """Why the job cannot have this number of containers; None if it can.

    None also for a change of key buckets.
    """
    if wanted.containers is None or state.container_count is not None:
        return None
    return Refusal(
        "containers: wanted a job started with `samzapy job submit`, found self-managed containers; start or stop "
        "one yourself"
    )


def begin(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Record the number. See `RequestHandler`."""
    wanted = scale_wanted(request)
    if reason := refused_resize(wanted, review.state):
        return (ended(request, StatusCode.FAILED, reason, review.now_ms),)
    assert review.state.container_count is not None, "refused where there is none"
    text = f"from {review.state.container_count.count} containers to {wanted.containers}"
    return (begun(request, text, review.now_ms, phase=Phase.STARTING), *advance(request, review))


def advance(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Record the number if it is not recorded yet. See `RequestHandler`."""
    wanted = scale_wanted(request).containers
    assert wanted is not None, "of the other scales `coordinator.requests.scale_factor` is the kind"
    if review.state.container_count is None or review.state.container_count.count != wanted:
        yield ContainerCountPut(count=wanted, uuid=request.uuid)


def progress(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Report the containers that run or are to end. See `RequestHandler`."""
    wanted = wanted_processors(review.state) or ()
    runners = executions_to_grant(review.state)
    running = [
        processor_id
        for processor_id in wanted
        if processor_id in runners and is_alive(review.state, runners[processor_id])
    ]
    text = f"{counted(len(running), len(wanted))} containers run"
    if leaving := len(_too_many(review.state)):
        # A large count is not shown: each change of the text is a record, and ten thousand containers may be to end.
        text += f", {leaving if leaving <= _LEAVING_SHOWN_MAX else f'over {_LEAVING_SHOWN_MAX}'} more to end"
    yield from with_progress(request, text)


def completion(request: RequestPut, review: Review) -> str | None:
    """The number of containers at work. See `RequestHandler`."""
    wanted = wanted_processors(review.state) or ()
    planned = frozenset(() if review.state.generation is None else review.state.generation.processor_ids)
    if len(wanted) != scale_wanted(request).containers or planned != frozenset(wanted):
        return None
    if not_at_work(review.state, review.liveness) or _too_many(review.state):
        return None
    took_ms = review.ms_since(request.decided_at_ms)
    return f"{len(review.state.plan)} tasks run in {len(wanted)} containers, {took_ms} ms after the change began"


def timeout_reason(request: RequestPut, review: Review) -> str:
    """The tasks and containers that the request waits for. See `RequestHandler`."""
    idle = not_at_work(review.state, review.liveness)
    leaving = [launch.execution_id for launch in _too_many(review.state)]
    why = next(
        (why for launch in to_start(review.state) if (why := review.liveness.why_not(launch.execution_id))), ""
    )
    return (
        f"{len(idle)} of {len(review.state.plan)} tasks are not at work yet ({some(idle)}), {len(leaving)} containers "
        f"have not ended yet ({some(leaving)}). The number stands, and the change goes on{why}"
    )


def _too_many(state: CoordinatorState) -> tuple[Launch, ...]:
    wanted = frozenset(wanted_processors(state) or ())
    return tuple(launch for launch in to_look_at(state) if launch.processor_id not in wanted)


RESIZING = RequestHandler(
    begin=begin, advance=advance, completion=completion, timeout_reason=timeout_reason, progress=progress
)
