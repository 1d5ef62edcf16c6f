"""Change the number of key buckets per input partition while the job runs.

SEP-32 describes key buckets.

Theory. What is recorded is the wish, `factor`; the plan follows from it as from everything else on the log, and the
hand-over of what splits or merges is the one that every change of a plan has (`coordinator.assignment.grants`). So
there is no state of being scaled: whoever takes over a half-done change plans by the factor that stands there and
grants on.

A request is done when the plan has its factor, each task is granted, and each owner has read its grant. It fails where
that cannot be planned, and then nothing was changed; a request that expires is one whose change goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache

from samzapy.coordinator.assignment.grants import not_at_work
from samzapy.coordinator.assignment.liveness import Sightings
from samzapy.coordinator.assignment.replanning import factor_of, replan
from samzapy.coordinator.commands import ReviewRequests
from samzapy.coordinator.requests.handler import Kind, begun, counted, ended, went_on
from samzapy.coordinator.state import CoordinatorState, evolve, uncommitted
from samzapy.errors import ConfigError, DataError, RejectedError
from samzapy.model.job import TaskName
from samzapy.model.placement import Phase, Scale, StatusCode, scale_of
from samzapy.model.text import some
from samzapy.plan.groupers import Groupers
from samzapy.stream.records import CoordinatorRecord, FactorPut, RequestPut


def scale_wanted(request: RequestPut) -> Scale:
    """What a request that was accepted asks for."""
    return _scale_of(request.arguments)


@lru_cache(maxsize=256)
def _scale_of(text: str) -> Scale:
    """Of the arguments as they are recorded. Each step of each review asks for it."""
    arguments: Mapping[str, str] = json.loads(text)
    return scale_of(arguments)


def refused_scale(wanted: Scale, state: CoordinatorState) -> str:
    """Why a scale cannot begin on the plan that is in force; empty where it can."""
    generation = 0 if state.generation is None else state.generation.generation
    if wanted.generation_expected not in (None, generation):
        return (
            f"expectedGeneration: wanted the plan that is in force, {generation}, found {wanted.generation_expected}: "
            "the job was planned anew since you looked; look again (samzapy job status) and ask again"
        )
    return ""


def scaled(request: RequestPut, state: CoordinatorState, groupers: Groupers) -> Iterable[CoordinatorRecord]:
    """What is still to be written for the factor that `request` asks for to be the one that is planned by.

    Raises:
        SamzapyError: it cannot be planned; says why.
    """
    wanted = scale_wanted(request)
    assert wanted.factor is not None, "of the other scales `coordinator.requests.scale_containers` is the kind"
    found: list[CoordinatorRecord] = []
    if factor_of(state) != wanted.factor:
        found.append(FactorPut(factor=wanted.factor, uuid=request.uuid))
    # Asked in every review until all are at work, and a plan costs the more the larger the job is.
    if state.generation is not None and not _is_planned(wanted, state):
        found += replan(evolve(state, uncommitted(found)), state.generation.processor_ids, groupers)
    return found


def awaited(request: RequestPut, state: CoordinatorState, seen: Sightings) -> tuple[TaskName, ...]:
    """The tasks that are not yet at work under the factor asked for, in the order of their numbers."""
    if not _is_planned(scale_wanted(request), state):
        return tuple(planned.task_name for planned in state.plan)
    return not_at_work(state, seen)


def is_scaled(request: RequestPut, state: CoordinatorState, seen: Sightings) -> bool:
    """Whether everything runs under the factor asked for."""
    return _is_planned(scale_wanted(request), state) and not awaited(request, state, seen)


def begin(request: RequestPut, command: ReviewRequests, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """Plan for the factor. See `Kind`."""
    wanted = scale_wanted(request)
    if reason := refused_scale(wanted, state):
        return (ended(request, StatusCode.FAILED, reason, command.now_ms),)
    text = f"from factor {factor_of(state)} to {wanted.factor}"
    changes = begun(request, text, command.now_ms, phase=Phase.STARTING)
    found = tuple(go_on(changes, command, state))
    refused = [record for record in found if isinstance(record, RequestPut)]
    return refused or (changes, *found)


def go_on(request: RequestPut, command: ReviewRequests, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """Factor and plan, where they do not stand yet; the end of a change that cannot be planned. See `Kind`."""
    try:
        return scaled(request, state, command.groupers)
    except (ConfigError, DataError, RejectedError) as error:
        return (ended(request, StatusCode.FAILED, f"wanted another factor, found {error}", command.now_ms),)


def follow_up(
    request: RequestPut, command: ReviewRequests, state: CoordinatorState, seen: Sightings
) -> Iterable[CoordinatorRecord]:
    """How many tasks are at work under the factor, once some are. See `Kind`."""
    at_work = len(state.plan) - len(awaited(request, state, seen))
    if at_work:
        yield from went_on(
            request, f"{counted(at_work, len(state.plan))} tasks are at work with factor {factor_of(state)}"
        )


def done(request: RequestPut, now_ms: int, state: CoordinatorState, seen: Sightings) -> str:
    """How many tasks run under the factor. See `Kind`."""
    if not is_scaled(request, state, seen):
        return ""
    return (
        f"{len(state.plan)} tasks run with factor {factor_of(state)}, {now_ms - request.decided_at_ms} ms after the "
        "change began"
    )


def late(request: RequestPut, state: CoordinatorState, seen: Sightings) -> str:
    """Who is waited for. See `Kind`."""
    text = progress_text(request, state, seen)
    return f"{text}. The factor is {factor_of(state)} from now on, and the change goes on"


def _is_planned(wanted: Scale, state: CoordinatorState) -> bool:
    return state.generation is not None and state.generation.factor == wanted.factor


def progress_text(request: RequestPut, state: CoordinatorState, seen: Sightings) -> str:
    """Who is waited for, for people."""
    waiting = awaited(request, state, seen)
    return f"{len(waiting)} of {len(state.plan)} tasks are not at work yet ({some(waiting)})"


SCALING = Kind(begin=begin, go_on=go_on, done=done, late=late, follow_up=follow_up)
