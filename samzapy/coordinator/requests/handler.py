"""The request handler interface: begin, advance, complete, time out.

The handlers are registered in `coordinator.requests.registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.requests.turns import turn_of
from samzapy.coordinator.state import CoordinatorState, remembered
from samzapy.model.placement import (
    MESSAGE_LENGTH_MAX,
    ContainerPlacementRequestMessage,
    Phase,
    Refusal,
    StatusCode,
    generation_expected,
    recorded_arguments,
)
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, RequestPut

if TYPE_CHECKING:
    from samzapy.coordinator.assignment.liveness import Liveness
    from samzapy.coordinator.commands import ReviewLaunches, ReviewRequests
    from samzapy.model.job import ProcessorId

_PROGRESS_STEPS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The facts that a request is reviewed against.

    These are the log, the reports of the containers, the time and the limits.

    Attributes:
        liveness: the reports of the containers in this term. They are in no record.
    """

    command: ReviewRequests
    state: CoordinatorState
    liveness: Liveness

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self.command.now_ms

    def ms_since(self, recorded_ms: int) -> int:
        """For people: the time since a recorded one; 0 if the clock was set back since."""
        return max(0, self.now_ms - recorded_ms)

    @property
    def launching(self) -> ReviewLaunches | None:
        """How to start and stop containers; None if the coordinator does neither."""
        return self.command.launching


Records = Iterable[CoordinatorRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHandler:
    """How requests of one action are served.

    Attributes:
        begin: the records that begin a request whose turn has come. The request itself comes first: if the transaction
            is torn, `advance` writes the rest.
        advance: the records that a request under way still lacks, or its end. Needs the log alone.
        completion: the answer to a request that has succeeded; None before.
        timeout_reason: for people, the step that a request under way still waits for.
        progress: the records that follow from the reports of containers; written after those of `advance`.
        roll_back: the records that undo a request which failed while it was under way.
        refusal: why this job cannot serve a request; None if it can. Checks only conditions that earlier requests
            cannot change.
        refusal_now: the same for conditions that an earlier request may change. Called only if no request is before
            it in its queue; `begin` checks them again.
        why_lost: why a request can never be done, because the job has no longer what it is for; empty if it can.
        after_run: for people, the effect that remains of a request under way when its run ends.
    """

    begin: Callable[[RequestPut, Review], Records]
    advance: Callable[[RequestPut, Review], Records]
    completion: Callable[[RequestPut, Review], str | None]
    timeout_reason: Callable[[RequestPut, Review], str]
    progress: Callable[[RequestPut, Review], Records] = lambda request, review: ()
    roll_back: Callable[[RequestPut, Review], Records] = lambda request, review: ()
    refusal: Callable[[ContainerPlacementRequestMessage, CoordinatorState], Refusal | None] = lambda message, state: (
        None
    )
    refusal_now: Callable[[ContainerPlacementRequestMessage, CoordinatorState], Refusal | None] = (
        lambda message, state: None
    )
    why_lost: Callable[[RequestPut, CoordinatorState], str] = lambda request, state: ""
    after_run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmediateHandler:
    """How requests of one action are answered when they are read.

    Attributes:
        answer: the request with its terminal status; also gets the requests that were read with it, by uuid.
        refusal: see `RequestHandler`.
        effects: the records that follow from requests of this action that succeeded.
    """

    answer: Callable[[RequestPut, Mapping[str, RequestPut], CoordinatorState], RequestPut]
    refusal: Callable[[ContainerPlacementRequestMessage, CoordinatorState], Refusal | None] = lambda message, state: (
        None
    )
    effects: Callable[[CoordinatorState], Records] = lambda state: ()


@remembered
def planned_processors(state: CoordinatorState) -> frozenset[ProcessorId]:
    """The processors that have tasks in the plan in force."""
    return frozenset(planned.processor_id for planned in state.plan)


def lacks_its_tasks(request: RequestPut, state: CoordinatorState) -> str:
    """Why a request that needs its processor's query is lost.

    Empty while the plan gives the processor a task.
    """
    if turn_of(request, state) in planned_processors(state):
        return ""
    return f"processor {request.processor_id} runs no query: the plan gives it no task"


def refused_generation(request: RequestPut, state: CoordinatorState) -> Refusal | None:
    """Why a request does not fit the plan in force; None if it does."""
    wanted = _generation_of(request.arguments)
    in_force = state.generation_number
    if wanted in (None, in_force):
        return None
    return Refusal(
        f"expectedGeneration: wanted the plan that is in force, {in_force}, found {wanted}: the job was planned anew "
        "since you looked; look again (samzapy job status) and ask again"
    )


@lru_cache(maxsize=256)
def _generation_of(arguments: str) -> int | None:
    """The generation in recorded arguments; cached, because each review needs it."""
    return generation_expected(recorded_arguments(arguments)) if arguments else None


def subject_of(request: RequestPut) -> str:
    """For people: the processor or job that a request is for."""
    return f"processor {request.processor_id}" if request.processor_id else "the job"


def listed(names: Iterable[str]) -> str:
    """For people: names of processors or standbys, in the order of their numbers."""

    in_order = sorted(names, key=lambda name: (len(name), name))
    return some(in_order, 20)


def begun(
    request: RequestPut, text: str, now_ms: int, *, restart: int = 0, execution_id: str = "", phase: str = ""
) -> RequestPut:
    """The request with the status IN_PROGRESS."""
    return replace(
        request,
        status_code=StatusCode.IN_PROGRESS,
        response_message=text,
        decided_at_ms=now_ms,
        restart=restart,
        execution_id=execution_id,
        phase=phase,
        answered=False,
    )


def with_phase(request: RequestPut, phase: Phase, text: str, now_ms: int) -> Iterable[RequestPut]:
    """The request with this phase and message, unless it has them already."""
    if (request.phase, request.response_message) != (phase, text):
        yield replace(request, phase=phase, response_message=text, decided_at_ms=now_ms, answered=False)


def counted(done: int, of: int) -> str:
    """For people: `done` of `of`, rounded down.

    Rounding makes the text change about twenty times at most, because each change is a record.
    """
    step = max(1, -(-of // _PROGRESS_STEPS))
    return f"{done if done == of else done - done % step} of {of}"


def with_progress(request: RequestPut, text: str) -> Iterable[RequestPut]:
    """The request with this message, unless it has it already.

    The time at which the request began stays.
    """
    if request.phase and request.response_message != text:
        yield replace(request, response_message=text, answered=False)


def ended(request: RequestPut, status_code: StatusCode, text: str, now_ms: int) -> RequestPut:
    """The request with its terminal status; a failed one keeps its phase."""
    return replace(
        request,
        status_code=status_code,
        phase=request.phase if status_code is StatusCode.FAILED else "",
        response_message=text[:MESSAGE_LENGTH_MAX],
        decided_at_ms=now_ms,
        answered=False,
    )
