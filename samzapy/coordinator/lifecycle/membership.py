"""Membership: the processors that the job is planned for, and its runs.

A processor is present while one of its executions lives. The plan names its members. Where the two differ, processors
have joined or left:

- A processor that joins a running job waits `job.debounce.time.ms`, counted from the first one that joined. So machines
  that start one after the other are planned together, and working processors pause once. The window does not move with
  each arrival: a processor that keeps coming and going cannot delay the others for ever.
- An absent processor, drained or lost, keeps its tasks for `job.processor.grace.ms`, because a process that returns
  under its id has the state locally. Then the other processors take over; at once, if the id was made for that one
  process. Nothing is planned while no processor is present: the last plan stays, and the first processor that returns
  finds its tasks.
- While no member is present, the present processors are planned at once: there is no work to disturb, and a single
  processor should not wait for others that may never come.

With coordinator-managed containers (`coordinator.launching.launches`), the members are the wanted processors, living or
not: a lost one is started again, and its tasks wait for it. A wanted processor that was never planned for becomes a
member when it has started, so that no tasks are released for a processor that has yet to start. It waits for the others
that are to start, for at most `job.debounce.time.ms`. A processor that is no longer wanted leaves at once. The next run
begins when it is submitted.

The time that a processor differs from the plan is counted within a term (`Liveness.at_odds`): a new leader waits
again, which delays a plan and never makes a wrong one.

A *run* begins when the job is submitted, and again with the first processor that joins after all have left. The run
ends when the last living container reports that it has stopped. A crash does not end it, so a failover, a container
restart, a new plan and a power cut all continue the run. State, checkpoints and locality of a streaming job do not
depend on runs. A finished run (below) has nothing to continue, and also ends when the last container is lost.

A job whose inputs all have an end (`samza.offset.end`) finishes: when every task is held by a container that has read
its grants to their ends, the run is *finished*, and containers that read that stop by themselves. The next run is
*fresh*: it begins with nothing of earlier runs (ADR 0009). Recorded localities go with the record of the run, and no
task waits for their plan; each grant leaves out positions and state (`coordinator.assignment.grants`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.grants import newest_grants
from samzapy.coordinator.assignment.liveness import Liveness, is_alive
from samzapy.coordinator.assignment.replanning import config_of, replan
from samzapy.coordinator.launching.launches import launches_forgotten, wanted_processors
from samzapy.coordinator.lifecycle.absence import living_processors, returnable
from samzapy.coordinator.requests.place_container import placements_over
from samzapy.coordinator.state import (
    CoordinatorState,
    evolve,
    remembered,
    sorted_processors,
    tombstone,
    uncommitted,
)
from samzapy.stream.records import ContainerPut, CoordinatorRecord, LocalityPut, Removed, RunPut, TaskLocalityPut

if TYPE_CHECKING:
    from samzapy.coordinator.commands import ReviewMembers
    from samzapy.model.container import Container
    from samzapy.model.job import ProcessorId


def review_members(
    command: ReviewMembers, state: CoordinatorState, liveness: Liveness
) -> tuple[tuple[CoordinatorRecord, ...], str]:
    """The run that begins and the plan that is due.

    Also returns their cause, for the audit.
    """
    if _is_finished(state, liveness):
        assert state.run is not None, "only a run can be finished"
        return (replace(state.run, finished=True), *_forgotten(state)), "all inputs were read to their ends"
    over = placements_over(state)
    state = evolve(state, uncommitted(over))
    if state.run is not None and state.run.finished and not state.run.ended and not living_processors(state):
        # The last container was killed before it could report its stop. The next one would stop at once for nothing.
        return (*over, replace(state.run, ended=True)), "nobody is left of a run that is finished"
    begins = _begins_run(command, state)
    begins_afresh = begins and config_of(state).is_bounded_job
    run = _run_begun(command, state, is_fresh=begins_afresh) if begins else ()
    state = evolve(state, uncommitted(run))
    members = _members_due(command, state, liveness, may_members_return=not begins_afresh)
    if members is None:
        forgotten = _forgotten(state)
        cause = f"run {command.run_id_next}" if run else "the execution is gone" if over else "succeeded by others"
        return (*over, *run, *forgotten), cause
    planned_for = () if state.generation is None else state.generation.processor_ids
    plan = replan(state, members, command.groupers)
    # On the state after the plan: the same review again must find nothing to do (law L2).
    forgotten = _forgotten(evolve(state, uncommitted(plan)))
    return (*over, *run, *plan, *forgotten), _change_text(planned_for, members)


def noticed(command: ReviewMembers, state: CoordinatorState, liveness: Liveness) -> Liveness:
    """`liveness`, with the processors that differ from the plan, and since when."""
    at_odds = _at_odds(command, state, liveness)
    return liveness if at_odds == liveness.at_odds else replace(liveness, at_odds=at_odds)


def _is_finished(state: CoordinatorState, liveness: Liveness) -> bool:
    """Whether containers have read every task of the plan to its end.

    A container reports that for a list of grants that it has read, and such a list holds until it is released. So the
    heartbeats of different containers need not be of one moment.
    """
    if state.run is None or state.run.finished or state.run.ended or not state.plan:
        return False
    finished = {
        execution_id
        for execution_id, sighting in liveness.last.items()
        if sighting.finished and is_alive(state, execution_id)
    }
    newest = newest_grants(state) if finished else {}
    for planned in state.plan:
        grant = newest.get(planned.task_name)
        if grant is None or grant.execution_id not in finished:
            return False
        if {start.ssp_kb for start in grant.starts} != set(planned.positions):
            return False
        if not liveness.last[grant.execution_id].has_read(grant):
            return False
    return True


def _begins_run(command: ReviewMembers, state: CoordinatorState) -> bool:
    if state.run is None:
        return bool(state.config)
    if state.container_count is not None:
        return state.run.ended and state.run.run_id == command.run_over
    return state.run.ended and bool(living_processors(state))


def _run_begun(command: ReviewMembers, state: CoordinatorState, *, is_fresh: bool) -> tuple[CoordinatorRecord, ...]:
    inherited = 0 if state.run is None else state.run.counts_after
    run = RunPut(
        run_id=command.run_id_next,
        ended=False,
        epoch_before=state.epoch,
        counts_after=state.epoch if is_fresh else inherited,
    )
    # Localities come first: after a torn transaction they are removed again, but a begun run does not begin again.
    return (*launches_forgotten(state), *(_all_localities(state) if is_fresh else ()), run)


def _all_localities(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of all recorded localities of processors and tasks."""
    return (
        *(tombstone(LocalityPut(locality=state.localities[name])) for name in sorted(state.localities)),
        *(tombstone(TaskLocalityPut(locality=state.task_localities[name])) for name in sorted(state.task_localities)),
    )


@remembered
def _forgotten(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of executions and localities that are no longer needed.

    Without them their number would grow for ever.

    An execution is kept while it lives or is to be fenced, while a grant names it (starts are computed from that),
    while it is the last record of a member of the plan, or of the job, and while its launch is remembered. If a
    forgotten execution sends a heartbeat after all, it is refused for the grants it holds, or is a new execution like
    any other. A task that was split or merged is remembered by its grant until the tasks that have its keys are
    granted.
    """
    living = living_processors(state)
    if not living:
        return ()
    members = frozenset(() if state.generation is None else state.generation.processor_ids)
    gone = _executions_over(state, members - living)
    # An id made for one process never returns. Localities come first, because only the container record says so.
    never_back = {container.processor_id for container in gone if not container.comes_back} - living - members
    return (
        *(
            tombstone(LocalityPut(locality=state.localities[name]))
            for name in sorted_processors(never_back & state.localities.keys())
        ),
        *(tombstone(ContainerPut(container=container)) for container in gone),
        *_task_localities_over(state),
    )


def _executions_over(state: CoordinatorState, absent_members: frozenset[ProcessorId]) -> Sequence[Container]:
    """The executions that are gone and that no grant, launch or absent member needs."""
    granted = {grant.execution_id for grant in state.grants.values()}
    return [
        container
        for container in state.containers_sorted
        if container.is_gone
        and container.execution_id not in granted
        and container.execution_id not in state.launches
        and container.processor_id not in absent_members
    ]


def _task_localities_over(state: CoordinatorState) -> Iterable[Removed]:
    """Tombstones of the localities of tasks that have no grant and are not planned."""
    granted = {grant.task_name for grant in state.grants.values()}
    generation = state.generation_number
    return (
        tombstone(TaskLocalityPut(locality=state.task_localities[name]))
        for name in sorted(state.task_localities.keys() - granted)
        if (generation, name) not in state.planned_tasks
    )


def _members_due(
    command: ReviewMembers, state: CoordinatorState, liveness: Liveness, *, may_members_return: bool
) -> tuple[ProcessorId, ...] | None:
    """The processors to plan for now; None while the current plan stays.

    Args:
        may_members_return: whether absent members of the plan have tasks to return to.
    """
    living = living_processors(state)
    wanted = wanted_processors(state)
    if wanted is not None:
        return _launched_due(command, frozenset(wanted), living, state, liveness)
    # In a finished run there is no work for a processor that joins; it stops, as the others do.
    if state.run is None or state.run.finished or not living:
        return None
    planned = frozenset(() if state.generation is None else state.generation.processor_ids)
    if not planned & living or (planned != living and not may_members_return):
        return sorted_processors(living)
    at_odds = _at_odds(command, state, liveness)

    def are_due(processors: Iterable[ProcessorId], wait_ms: int) -> frozenset[ProcessorId]:
        return frozenset(name for name in processors if command.now_ms - at_odds[name] >= wait_ms)

    left = are_due(planned - living, command.grace_ms) | (planned - living - returnable(state))
    if not left and not are_due(living - planned, command.debounce_ms):
        return None
    return sorted_processors((planned - left) | living)


def _launched_due(
    command: ReviewMembers,
    wanted: frozenset[ProcessorId],
    living: frozenset[ProcessorId],
    state: CoordinatorState,
    liveness: Liveness,
) -> tuple[ProcessorId, ...] | None:
    """The coordinator-managed processors to plan for now; None for no change."""
    if state.run is None or state.run.finished or state.run.ended:
        return None
    planned = frozenset(() if state.generation is None else state.generation.processor_ids)
    due = wanted
    if planned & wanted & living:
        # Processors that have joined wait for each other; working ones do not wait for those that have yet to start.
        joined = living & wanted - planned
        since = min((liveness.at_odds.get(name, command.now_ms) for name in joined), default=command.now_ms)
        are_due = wanted <= planned | living or command.now_ms - since >= command.debounce_ms
        due = planned & wanted | (joined if are_due else frozenset())
    return None if due == planned else sorted_processors(due)


def _at_odds(command: ReviewMembers, state: CoordinatorState, liveness: Liveness) -> Mapping[ProcessorId, int]:
    living = living_processors(state)
    planned = frozenset(() if state.generation is None else state.generation.processor_ids)
    # While no processor is present, none is absent: the first one of a run waits for the others of the last run.
    at_odds = living ^ planned if living else frozenset()
    return {name: liveness.at_odds.get(name, command.now_ms) for name in sorted_processors(at_odds)}


def _change_text(before: Iterable[ProcessorId], after: Iterable[ProcessorId]) -> str:
    joined, left = (sorted_processors(set(a) - set(b)) for a, b in ((after, before), (before, after)))
    changes = [f"{verb} {', '.join(names)}" for verb, names in (("joined", joined), ("left", left)) if names]
    return f"members: {'; '.join(changes)}"
