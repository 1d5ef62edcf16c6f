"""Decisions: each command becomes the records to append.

One row for each kind of command; the rule itself is in the module of its concept.

Pure. A repeated command decides nothing (law L2); equal state and equal sightings decide equally (law L7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from samzapy.coordinator.assignment.grants import grant_tasks, noticed_taken_away, overdue, release
from samzapy.coordinator.assignment.liveness import (
    Sightings,
    expire,
    failed_starts_noted,
    give_up,
    hear,
    held_up,
    mark_fenced,
    sighted,
    still_named,
    without_the_dead,
)
from samzapy.coordinator.commands import (
    CollectRequests,
    Command,
    ContainerGone,
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
from samzapy.coordinator.requests.request_queue import answered, collect, collected, read_requests, review_requests
from samzapy.coordinator.requests.rewind import offset_bounds_read
from samzapy.coordinator.state import CoordinatorState, Round, evolve, uncommitted
from samzapy.stream.records import CoordinatorRecord

COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records to append in one transaction, and for the audit what led to them and who asked.

    In this order, and such that every beginning of it is harmless by itself.
    """

    records: tuple[CoordinatorRecord, ...]
    cause: str
    actor: str


def decide(command: Command, state: CoordinatorState, seen: Sightings) -> Decision:
    """What `command` changes.

    Raises:
        ConfigError, DataError, RejectedError: `StartTerm` or `SubmitJob` asks for what the log does not allow.
        TopicIdentityError: `TopicsLooked` shows a topic that is not the recorded one. Other commands never raise:
            news that does not fit is late or repeated, and changes nothing.
    """
    match command:
        case StartTerm():
            cause = f"take-over by {command.coordinator_id}"
            return Decision(records=start_term(command, state), cause=cause, actor=COORDINATOR)
        case SubmitJob():
            return Decision(records=submit_job(command, state, seen), cause=command.cause, actor=command.actor)
        case Heartbeat():
            actor = f"container {command.execution_id}"
            heard = (*suspended_by_heartbeat(command, state), *hear(command, state))
            return Decision(records=(*heard, *release(command, state)), cause="heartbeat", actor=actor)
        case Tick():
            silent = expire(command, state, seen)
            holding = overdue(command, evolve(state, uncommitted(silent)), seen)
            cause = "heartbeat expired" if silent else "release timed out"
            return Decision(records=(*silent, *holding), cause=cause, actor=COORDINATOR)
        case ReviewMembers():
            records, cause = review_members(command, state, seen)
            return Decision(records=records, cause=cause, actor=COORDINATOR)
        case TopicsLooked():
            refuse_made_again(state, command)
            looked = inputs_looked(command, state, seen)
            came = topics_looked(command, evolve(state, uncommitted(looked)))
            return Decision(records=(*looked, *came), cause="topics", actor=COORDINATOR)
        case ReviewInputs():
            left_out, why = review_departures(command, state)
            taken_in, cause = review_inputs(command, evolve(state, uncommitted(left_out)), seen)
            said = why if not taken_in else cause if not left_out else f"{why}; {cause}"
            return Decision(records=(*left_out, *taken_in), cause=said, actor=COORDINATOR)
        case EndsRead():
            cause = f"ends of {command.system_stream}"
            return Decision(records=ends_read(command, state), cause=cause, actor=COORDINATOR)
        case OffsetBoundsRead():
            return Decision(
                records=offset_bounds_read(command, state), cause=f"request {command.uuid}", actor="operator"
            )
        case RequestsRead():
            cause = f"requests before offset {command.offset_next}"
            return Decision(records=read_requests(command, state), cause=cause, actor="operator")
        case ReviewRequests():
            return Decision(records=review_requests(command, state, seen), cause="requests", actor=COORDINATOR)
        case CollectRequests():
            return Decision(records=collect(command, state), cause="retention", actor=COORDINATOR)
        case ResponsesWritten():
            return Decision(records=answered(command, state), cause="responses written", actor=COORDINATOR)
        case MessagesRemoved():
            return Decision(records=collected(command, state), cause="messages removed", actor=COORDINATOR)
        case ReviewLaunches():
            return _launches_reviewed(command, state, seen)
        case LaunchesLooked():
            suspended = suspended_by_launcher(command, state)
            looked = launches_looked(command, evolve(state, uncommitted(suspended)))
            return Decision(records=(*suspended, *looked), cause="launcher", actor=COORDINATOR)
        case LaunchTroubles():
            return Decision(records=(), cause="launcher", actor=COORDINATOR)
        case ContainerGone():
            return Decision(records=give_up(command, state), cause=command.reason, actor=COORDINATOR)
        case ExecutionFenced():
            return Decision(
                records=mark_fenced(command, state),
                cause=f"fence {command.execution_id} attempt {command.attempt}",
                actor=COORDINATOR,
            )
        case StartsResolved():
            return Decision(
                records=grant_tasks(command, state),
                cause=f"plan {command.generation}",
                actor=COORDINATOR,
            )
        case _:
            assert_never(command)


def _launches_reviewed(command: ReviewLaunches, state: CoordinatorState, seen: Sightings) -> Decision:
    """The loss first: a standby that takes over for it does so at once, and not when this is said again (L2)."""
    steps, causes = Round(state), []
    causes += ["containers did not stop in time"] if steps.add(stopped_too_late(command, state)) else []
    causes += ["containers end at one step of their start"] if steps.add(suspended_at_a_step(state, seen)) else []
    causes += ["a standby takes over"] if steps.add(promotions(steps.state, seen)) else []
    launched, cause = review_launches(command, steps.state, seen)
    causes += [cause] if steps.add(launched) else []
    causes += ["standbys"] if steps.add(review_standbys(command, steps.state, seen)) else []
    causes += ["launches are over"] if steps.add(launches_superseded(steps.state)) else []
    return Decision(records=tuple(steps.records), cause="; ".join(causes), actor=COORDINATOR)


def observe(command: Command, state: CoordinatorState, seen: Sightings) -> Sightings:
    """What a term has heard after `command`; `state` is the one after the decision."""
    match command:
        case Heartbeat():
            return noted_step(command, state, sighted(seen, command, state))
        case Tick():
            return noticed_taken_away(command, state, without_the_dead(seen, state))
        case ReviewMembers():
            return noticed(command, state, seen)
        case TopicsLooked():
            return noticed_missing(command, state, seen)
        case ReviewInputs():
            return noticed_unsettled(command, state, seen)
        case LaunchesLooked():
            return still_named(failed_starts_noted(seen, state), command.hosts)
        case ReviewLaunches():
            known = failed_starts_noted(without_suspended(state, seen), state)
            return replace(known, standbys_missing=missing_standbys(command, state, known))
        case LaunchTroubles():
            return held_up(command, seen)
        case _:
            return seen
