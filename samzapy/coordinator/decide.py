"""Decisions: each command becomes the records to append.

`DECISIONS` has a row for each type of command; the rule itself is in the module of its concept.

Pure. A repeated command decides nothing (law L2); equal state and equal sightings decide equally (law L7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from samzapy.coordinator.assignment.container_ends import ended_by_heartbeat, ended_by_launcher, ended_by_process
from samzapy.coordinator.assignment.grants import grant_tasks, note_revoked, overdue, release
from samzapy.coordinator.assignment.liveness import (
    Liveness,
    declare_lost,
    expire,
    failed_starts_noted,
    hear,
    held_up,
    mark_fenced,
    outputs_noted,
    sighted,
    still_named,
    without_the_dead,
)
from samzapy.coordinator.commands import (
    CollectRequests,
    Command,
    EndsRead,
    ExecutionFenced,
    Heartbeat,
    LaunchesLooked,
    LaunchTroubles,
    MessagesRemoved,
    OffsetBoundsRead,
    RequestsRead,
    ResponsesWritten,
    ReviewInputs,
    ReviewLaunches,
    ReviewMembers,
    ReviewRequests,
    StartsResolved,
    StartTerm,
    SubmitJob,
    Tick,
    TopicsLooked,
)
from samzapy.coordinator.grant_values import ContainerGone
from samzapy.coordinator.inputs.growth import ends_read, noticed_unsettled, review_inputs, topics_looked
from samzapy.coordinator.inputs.removal import inputs_looked, noticed_missing, review_departures
from samzapy.coordinator.inputs.topic_checks import refuse_made_again
from samzapy.coordinator.launching.dying_starts import noted_step, suspended_at_a_step, without_suspended
from samzapy.coordinator.launching.launches import (
    launches_looked,
    launches_superseded,
    review_launches,
    stopped_too_late,
)
from samzapy.coordinator.launching.standbys import missing_standbys, promotions, review_standbys
from samzapy.coordinator.launching.suspension import suspended_by_heartbeat, suspended_by_launcher
from samzapy.coordinator.lifecycle.membership import noticed, review_members
from samzapy.coordinator.lifecycle.submission import start_term, submit_job
from samzapy.coordinator.requests.read import read_requests
from samzapy.coordinator.requests.request_queue import answered, review_requests
from samzapy.coordinator.requests.retention import collect, collected
from samzapy.coordinator.requests.rewind import offset_bounds_read
from samzapy.coordinator.state import CoordinatorState, Round, evolve, uncommitted
from samzapy.stream.records import CoordinatorRecord

COORDINATOR: Final = "coordinator"
OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records to append in one transaction; for the audit, their cause and who asked.

    Order matters: any prefix must be safe, because a transaction can be torn (docs/internals/non-obvious.md).
    """

    records: tuple[CoordinatorRecord, ...]
    cause: str
    actor: str


def decide(command: Command, state: CoordinatorState, liveness: Liveness) -> Decision:
    """Return the records that `command` leads to.

    Raises:
        ConfigError, DataError, RejectedError: `StartTerm` or `SubmitJob` asks for a change that the log does not allow.
        TopicIdentityError: `TopicsLooked` shows a topic that is not the recorded one. Other commands never raise:
            late or repeated news changes nothing.
    """
    return DECISIONS[type(command)](command, state, liveness)


def _by_coordinator(records: Iterable[CoordinatorRecord], cause: str) -> Decision:
    return Decision(records=tuple(records), cause=cause, actor=COORDINATOR)


def _start_term(command: StartTerm, state: CoordinatorState, _: Liveness) -> Decision:
    return _by_coordinator(start_term(command, state), f"take-over by {command.coordinator_id}")


def _submit_job(command: SubmitJob, state: CoordinatorState, liveness: Liveness) -> Decision:
    return Decision(records=submit_job(command, state, liveness), cause=command.cause, actor=command.actor)


def _heartbeat(command: Heartbeat, state: CoordinatorState, _: Liveness) -> Decision:
    ends = ended_by_heartbeat(command, state)
    records = (*suspended_by_heartbeat(command, state), *ends, *hear(command, state), *release(command, state))
    return Decision(records=records, cause="heartbeat", actor=f"container {command.execution_id}")


def _tick(command: Tick, state: CoordinatorState, liveness: Liveness) -> Decision:
    silent = expire(command, state, liveness)
    holding = overdue(command, evolve(state, uncommitted(silent)), liveness)
    return _by_coordinator((*silent, *holding), "heartbeat expired" if silent else "release timed out")


def _review_members(command: ReviewMembers, state: CoordinatorState, liveness: Liveness) -> Decision:
    return _by_coordinator(*review_members(command, state, liveness))


def _topics_looked(command: TopicsLooked, state: CoordinatorState, liveness: Liveness) -> Decision:
    refuse_made_again(state, command)
    inputs = inputs_looked(command, state, liveness)
    grown = topics_looked(command, evolve(state, uncommitted(inputs)))
    return _by_coordinator((*inputs, *grown), "topics")


def _review_inputs(command: ReviewInputs, state: CoordinatorState, liveness: Liveness) -> Decision:
    removed, cause_of_removal = review_departures(command, state, liveness)
    grown, cause_of_growth = review_inputs(command, evolve(state, uncommitted(removed)), liveness)
    causes = [cause_of_removal] if removed or not grown else []
    causes += [cause_of_growth] if grown else []
    return _by_coordinator((*removed, *grown), "; ".join(causes))


def _ends_read(command: EndsRead, state: CoordinatorState, _: Liveness) -> Decision:
    return _by_coordinator(ends_read(command, state), f"ends of {command.system_stream}")


def _offset_bounds_read(command: OffsetBoundsRead, state: CoordinatorState, _: Liveness) -> Decision:
    records = offset_bounds_read(command, state)
    return Decision(records=records, cause=f"request {command.uuid}", actor=OPERATOR)


def _requests_read(command: RequestsRead, state: CoordinatorState, _: Liveness) -> Decision:
    records = read_requests(command, state)
    return Decision(records=records, cause=f"requests before offset {command.offset_next}", actor=OPERATOR)


def _review_requests(command: ReviewRequests, state: CoordinatorState, liveness: Liveness) -> Decision:
    return _by_coordinator(review_requests(command, state, liveness), "requests")


def _collect_requests(command: CollectRequests, state: CoordinatorState, _: Liveness) -> Decision:
    return _by_coordinator(collect(command, state), "retention")


def _responses_written(command: ResponsesWritten, state: CoordinatorState, _: Liveness) -> Decision:
    return _by_coordinator(answered(command, state), "responses written")


def _messages_removed(command: MessagesRemoved, state: CoordinatorState, _: Liveness) -> Decision:
    return _by_coordinator(collected(command, state), "messages removed")


def _review_launches(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Decision:
    """Review losses first, then launches, then standbys.

    A standby takes over in the decision that records the loss: a repeated command decides nothing (law L2).
    """
    steps, causes = Round(state), []
    causes += ["containers did not stop in time"] if steps.add(stopped_too_late(command, state)) else []
    causes += ["containers end at one step of their start"] if steps.add(suspended_at_a_step(state, liveness)) else []
    causes += ["a standby takes over"] if steps.add(promotions(command, steps.state, liveness)) else []
    launched, cause = review_launches(command, steps.state, liveness)
    causes += [cause] if steps.add(launched) else []
    causes += ["standbys"] if steps.add(review_standbys(command, steps.state, liveness)) else []
    causes += ["launches are over"] if steps.add(launches_superseded(steps.state)) else []
    return _by_coordinator(steps.records, "; ".join(causes))


def _launches_looked(command: LaunchesLooked, state: CoordinatorState, _: Liveness) -> Decision:
    suspended = suspended_by_launcher(command, state)
    launches = launches_looked(command, evolve(state, uncommitted(suspended)))
    return _by_coordinator((*suspended, *ended_by_launcher(command, state), *launches), "launcher")


def _launch_troubles(_: LaunchTroubles, __: CoordinatorState, ___: Liveness) -> Decision:
    return _by_coordinator((), "launcher")


def _container_gone(command: ContainerGone, state: CoordinatorState, _: Liveness) -> Decision:
    return _by_coordinator((*ended_by_process(command, state), *declare_lost(command, state)), command.reason)


def _execution_fenced(command: ExecutionFenced, state: CoordinatorState, _: Liveness) -> Decision:
    cause = f"fence {command.execution_id} attempt {command.attempt}"
    return _by_coordinator(mark_fenced(command, state), cause)


def _starts_resolved(command: StartsResolved, state: CoordinatorState, _: Liveness) -> Decision:
    return _by_coordinator(grant_tasks(command, state), f"plan {command.generation}")


DECISIONS: Final[Mapping[type[Any], Callable[[Any, CoordinatorState, Liveness], Decision]]] = {
    StartTerm: _start_term,
    SubmitJob: _submit_job,
    Heartbeat: _heartbeat,
    Tick: _tick,
    ReviewMembers: _review_members,
    TopicsLooked: _topics_looked,
    ReviewInputs: _review_inputs,
    EndsRead: _ends_read,
    OffsetBoundsRead: _offset_bounds_read,
    RequestsRead: _requests_read,
    ReviewRequests: _review_requests,
    CollectRequests: _collect_requests,
    ResponsesWritten: _responses_written,
    MessagesRemoved: _messages_removed,
    ReviewLaunches: _review_launches,
    LaunchesLooked: _launches_looked,
    LaunchTroubles: _launch_troubles,
    ContainerGone: _container_gone,
    ExecutionFenced: _execution_fenced,
    StartsResolved: _starts_resolved,
}
"""The deciding function of each type of command."""


def observe(command: Command, state: CoordinatorState, liveness: Liveness) -> Liveness:
    """The sightings of a term after `command`; `state` is the one after the decision."""
    match command:
        case Heartbeat():
            return noted_step(command, state, sighted(outputs_noted(liveness, command, state), command, state))
        case Tick():
            return note_revoked(command, state, without_the_dead(liveness, state))
        case ReviewMembers():
            return noticed(command, state, liveness)
        case TopicsLooked():
            return noticed_missing(command, state, liveness)
        case ReviewInputs():
            return noticed_unsettled(command, state, liveness)
        case LaunchesLooked():
            return still_named(failed_starts_noted(liveness, state), command.hosts)
        case ReviewLaunches():
            known = failed_starts_noted(without_suspended(state, liveness), state)
            return replace(known, standbys_missing=missing_standbys(command, state, known))
        case LaunchTroubles():
            return held_up(command, liveness)
        case _:
            return liveness
