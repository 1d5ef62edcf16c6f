"""Change the number of key buckets per input partition while the job runs.

SEP-32 describes key buckets.

Theory. The record `factor` holds the wanted factor. The plan follows from it as from everything else on the log. Key
buckets that split or merge are handed over as in every change of a plan (`coordinator.assignment.grants`). So there is
no state of being scaled: a new leader that finds a half-done change plans by the recorded factor and goes on granting.

A request is done when the plan has its factor, each task is granted, and each owner has read its grant. It fails if the
factor cannot be planned, and then nothing was changed. If a request expires, its change goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from samzapy.coordinator.assignment.grants import not_at_work
from samzapy.coordinator.assignment.replanning import factor_of, replan
from samzapy.coordinator.requests.handler import RequestHandler, Review, begun, counted, ended, with_progress
from samzapy.coordinator.state import CoordinatorState, evolve, uncommitted
from samzapy.errors import ConfigError, DataError, RejectedError
from samzapy.model.job import TaskName
from samzapy.model.placement import Phase, Scale, StatusCode, recorded_arguments, scale_of
from samzapy.model.text import some
from samzapy.plan.groupers import Groupers
from samzapy.stream.records import CoordinatorRecord, FactorPut, RequestPut


def scale_wanted(request: RequestPut) -> Scale:
    """The scale that an accepted request asks for."""
    return _scale_of(request.arguments)


@lru_cache(maxsize=256)
def _scale_of(text: str) -> Scale:
    """The scale of recorded arguments; cached, because each review step needs it."""
    return scale_of(recorded_arguments(text))


def scaled(request: RequestPut, state: CoordinatorState, groupers: Groupers) -> Iterable[CoordinatorRecord]:
    """The records that are still missing until the plan has the wanted factor.

    Raises:
        SamzapyError: the factor cannot be planned; says why.
    """
    wanted = scale_wanted(request)
    assert wanted.factor is not None, "of the other scales `coordinator.requests.scale_containers` is the kind"
    records: list[CoordinatorRecord] = []
    if factor_of(state) != wanted.factor:
        records.append(FactorPut(factor=wanted.factor, uuid=request.uuid))
    # Every review calls this until all tasks are at work, and a plan of a large job is expensive.
    if state.generation is not None and not _is_planned(wanted, state):
        records += replan(evolve(state, uncommitted(records)), state.generation.processor_ids, groupers)
    return records


def awaited(request: RequestPut, review: Review) -> tuple[TaskName, ...]:
    """The tasks that are not yet at work with the wanted factor, in task order."""
    if not _is_planned(scale_wanted(request), review.state):
        return tuple(planned.task_name for planned in review.state.plan)
    return not_at_work(review.state, review.liveness)


def is_scaled(request: RequestPut, review: Review) -> bool:
    """Whether all tasks run with the wanted factor."""
    return _is_planned(scale_wanted(request), review.state) and not awaited(request, review)


def begin(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Plan for the factor. See `RequestHandler`."""
    text = f"from factor {factor_of(review.state)} to {scale_wanted(request).factor}"
    changes = begun(request, text, review.now_ms, phase=Phase.STARTING)
    records = tuple(advance(changes, review))
    refused = [record for record in records if isinstance(record, RequestPut)]
    return refused or (changes, *records)


def advance(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Record factor and plan, or why neither can be. See `RequestHandler`."""
    try:
        return scaled(request, review.state, review.command.groupers)
    except (ConfigError, DataError, RejectedError) as error:
        return (ended(request, StatusCode.FAILED, f"wanted another factor, found {error}", review.now_ms),)


def progress(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Report the tasks at work with the factor, once some are. See `RequestHandler`."""
    at_work = len(review.state.plan) - len(awaited(request, review))
    if at_work:
        yield from with_progress(
            request,
            f"{counted(at_work, len(review.state.plan))} tasks are at work with factor {factor_of(review.state)}",
        )


def completion(request: RequestPut, review: Review) -> str | None:
    """The number of tasks that run with the factor. See `RequestHandler`."""
    if not is_scaled(request, review):
        return None
    took_ms = review.ms_since(request.decided_at_ms)
    tasks, factor = len(review.state.plan), factor_of(review.state)
    return f"{tasks} tasks run with factor {factor}, {took_ms} ms after the change began"


def timeout_reason(request: RequestPut, review: Review) -> str:
    """The tasks that the change waits for. See `RequestHandler`."""
    text = progress_text(request, review)
    return f"{text}. The factor is {factor_of(review.state)} from now on, and the change goes on"


def _is_planned(wanted: Scale, state: CoordinatorState) -> bool:
    return state.generation is not None and state.generation.factor == wanted.factor


def progress_text(request: RequestPut, review: Review) -> str:
    """For people: the tasks that the change waits for."""
    waiting = awaited(request, review)
    return f"{len(waiting)} of {len(review.state.plan)} tasks are not at work yet ({some(waiting)})"


SCALING = RequestHandler(
    begin=begin, advance=advance, completion=completion, timeout_reason=timeout_reason, progress=progress
)
