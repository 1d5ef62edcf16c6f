"""Which processors the job is planned for, and which run of the job it is.

Theory. A processor is there while one of its executions lives. The plan in force names its members; where the two
differ, somebody joined or left:

- Who joins a running job waits `job.debounce.time.ms`, counted from the first that came, so that machines started
  one after the other are planned for together and those that work pause once. The window does not move with
  each new arrival: a processor that comes and goes for ever cannot keep the others waiting for ever.
- Who is gone, drained or lost, keeps its tasks for `job.processor.grace.ms`, because what comes back under its
  id has its state at hand. Then the others take over; at once, if the id was made for that one process. Nothing is
  planned while nobody is there: the last plan stays as it is, and who comes back first finds its tasks.
- While no member is there, a plan is made at once for those who are: nobody works whom it could disturb, and who
  is the only one should not wait for others that may never come.

Where the coordinator starts the containers (`coordinator.launching.launches`), the members are those that are wanted,
whether they live or not: a lost one is started anew, and its tasks wait for it. A wanted one that was never planned
for is taken in when it has come, so that nobody lets go of tasks for whom has yet to start; together with the others
that are to come, or after `job.debounce.time.ms`. One that is no longer wanted goes at once. The next run begins when
it is submitted.

How long somebody was at odds with the plan is counted within a term (`Sightings.at_odds`): a coordinator that takes
over waits again, which delays a plan and never makes a wrong one.

A *run* begins when the job is handed in, and again with the first processor that joins after all had
left. Leaving is saying so: the run ends when the last living container says that it stopped. A crash is no leaving,
so a failover, a container that restarts, a change of the plan and a power cut all continue the run. State,
checkpoints and locality of a streaming job know nothing of runs and go on. A run that is finished (below) has nothing
to continue, and ends also when the last one is lost.

A job all of whose inputs have an end (`samza.offset.end`) finishes: when every task is held by a container that has
read what it holds to its end, the run is *finished*, and containers that read that stop by themselves. Its next run is
*fresh*: it begins with nothing that earlier ones left (ADR 0009). What they recorded of places goes with the record
of the run, and their plan keeps nobody's tasks waiting; positions and state are left out by each grant
(`coordinator.assignment.grants`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from samzapy.coordinator.assignment.grants import newest_grants
from samzapy.coordinator.assignment.liveness import LIVING, Sightings, is_alive
from samzapy.coordinator.assignment.replanning import config_of, replan
from samzapy.coordinator.commands import HeldGrant, ReviewMembers
from samzapy.coordinator.launching.launches import launches_forgotten, wanted_processors
from samzapy.coordinator.requests.place_container import placements_over
from samzapy.coordinator.state import (
    CoordinatorState,
    evolve,
    remembered,
    runs_its_own,
    sorted_processors,
    tombstone,
    uncommitted,
)
from samzapy.model.job import ProcessorId
from samzapy.stream.records import ContainerPut, CoordinatorRecord, LocalityPut, Removed, RunPut, TaskLocalityPut


def review_members(
    command: ReviewMembers, state: CoordinatorState, seen: Sightings
) -> tuple[tuple[CoordinatorRecord, ...], str]:
    """The run that begins and the plan that is due; and what led to them, for the audit."""
    if _is_finished(state, seen):
        assert state.run is not None, "only a run can be finished"
        return (replace(state.run, finished=True), *_forgotten(state)), "all inputs were read to their ends"
    over = placements_over(state)
    state = evolve(state, uncommitted(over))
    if state.run is not None and state.run.finished and not state.run.ended and not living_processors(state):
        # The last one was killed before it could say that it leaves. Who comes next would leave for nothing.
        return (*over, replace(state.run, ended=True)), "nobody is left of a run that is finished"
    begins = _begins_run(command, state)
    begins_afresh = begins and config_of(state).is_bounded_job
    run = _run_begun(command, state, is_fresh=begins_afresh) if begins else ()
    state = evolve(state, uncommitted(run))
    members = _members_due(command, state, seen, is_anybody_missed=not begins_afresh)
    if members is None:
        forgotten = _forgotten(state)
        cause = f"run {command.run_id_next}" if run else "the execution is gone" if over else "succeeded by others"
        return (*over, *run, *forgotten), cause
    planned_for = () if state.generation is None else state.generation.processor_ids
    plan = replan(state, members, command.groupers)
    # On what the plan leaves: said again, the same review must find nothing to do (law L2).
    forgotten = _forgotten(evolve(state, uncommitted(plan)))
    return (*over, *run, *plan, *forgotten), _change_text(planned_for, members)


def noticed(command: ReviewMembers, state: CoordinatorState, seen: Sightings) -> Sightings:
    """`seen`, with who is at odds with the plan and since when."""
    at_odds = _at_odds(command, state, seen)
    return seen if at_odds == seen.at_odds else replace(seen, at_odds=at_odds)


@remembered
def living_processors(state: CoordinatorState) -> frozenset[ProcessorId]:
    """Those that have an execution which may work: one of their own, or that which they were placed on."""
    own = (
        container.processor_id
        for container in state.containers.values()
        if container.phase in LIVING and runs_its_own(container, state)
    )
    placed = (found.processor_id for found in state.placed.values() if is_alive(state, found.execution_id))
    return frozenset((*own, *placed))


def _is_finished(state: CoordinatorState, seen: Sightings) -> bool:
    """Whether every task of the plan is held by a container that has read all it holds to its end.

    A container says so of a list of grants that it has read, and such a list holds until it is let go; so the
    heartbeats of different containers need not be of one moment.
    """
    if state.run is None or state.run.finished or state.run.ended or not state.plan:
        return False
    finished = {found for found, sighting in seen.last.items() if sighting.finished and is_alive(state, found)}
    newest = newest_grants(state) if finished else {}
    for planned in state.plan:
        grant = newest.get(planned.task_name)
        if grant is None or grant.execution_id not in finished:
            return False
        if {start.ssp_kb for start in grant.starts} != set(planned.positions):
            return False
        if HeldGrant(grant.task_name, grant.epoch) not in seen.last[grant.execution_id].held:
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
    # The places go first: torn behind them it is all done again, but a run that has begun does not begin once more.
    return (*launches_forgotten(state), *(_places(state) if is_fresh else ()), run)


def _places(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of all that is recorded of where processors and tasks were."""
    return (
        *(tombstone(LocalityPut(locality=state.localities[found])) for found in sorted(state.localities)),
        *(
            tombstone(TaskLocalityPut(locality=state.task_localities[found]))
            for found in sorted(state.task_localities)
        ),
    )


@remembered
def _forgotten(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of executions, and of the places of processors and tasks, that nothing is known for any more, so
    that their number does not grow for ever.

    An execution is kept while it lives or is to be fenced, while a grant names it (starts are computed from that),
    while it is the last word on a member of the plan, or on the job, and while its launch is remembered. Should a
    forgotten one be heard of after all, it is refused for what it holds, or is a new execution like any other. A task
    that was divided, or became part of another one, is remembered by its grant until those that have its keys are
    granted.
    """
    living = living_processors(state)
    if not living:
        return ()
    granted = {grant.execution_id for grant in state.grants.values()}
    members = frozenset(() if state.generation is None else state.generation.processor_ids)
    needed = members - living
    known = {grant.task_name for grant in state.grants.values()}
    in_force = 0 if state.generation is None else state.generation.generation
    gone = [
        found
        for found in state.containers_sorted
        if found.is_gone
        and found.execution_id not in granted
        and found.execution_id not in state.launches
        and found.processor_id not in needed
    ]
    # Nobody has such an id again. First, because only the container says so.
    never_back = {found.processor_id for found in gone if not found.comes_back} - living - members
    return (
        *(
            tombstone(LocalityPut(locality=state.localities[found]))
            for found in sorted_processors(never_back & state.localities.keys())
        ),
        *(tombstone(ContainerPut(container=found)) for found in gone),
        *(
            tombstone(TaskLocalityPut(locality=state.task_localities[name]))
            for name in sorted(state.task_localities.keys() - known)
            if (in_force, name) not in state.planned_tasks
        ),
    )


def _members_due(
    command: ReviewMembers, state: CoordinatorState, seen: Sightings, *, is_anybody_missed: bool
) -> tuple[ProcessorId, ...] | None:
    """For whom to plan now; None while the plan in force stays.

    Args:
        is_anybody_missed: whether the members of the plan have something to come back for.
    """
    living = living_processors(state)
    wanted = wanted_processors(state)
    if wanted is not None:
        return _launched_due(command, frozenset(wanted), living, state, seen)
    # In a run that is finished there is nothing left to do for who joins; it stops, as the others do.
    if state.run is None or state.run.finished or not living:
        return None
    planned = frozenset(() if state.generation is None else state.generation.processor_ids)
    if not planned & living or (planned != living and not is_anybody_missed):
        return sorted_processors(living)
    at_odds = _at_odds(command, state, seen)

    def are_due(processors: Iterable[ProcessorId], wait_ms: int) -> frozenset[ProcessorId]:
        return frozenset(found for found in processors if command.now_ms - at_odds[found] >= wait_ms)

    left = are_due(planned - living, command.grace_ms) | (planned - living - _who_may_come_back(state))
    if not left and not are_due(living - planned, command.debounce_ms):
        return None
    return sorted_processors((planned - left) | living)


def _launched_due(
    command: ReviewMembers,
    wanted: frozenset[ProcessorId],
    living: frozenset[ProcessorId],
    state: CoordinatorState,
    seen: Sightings,
) -> tuple[ProcessorId, ...] | None:
    """For whom to plan where the coordinator starts the containers; None while the plan in force stays."""
    if state.run is None or state.run.finished or state.run.ended:
        return None
    planned = frozenset(() if state.generation is None else state.generation.processor_ids)
    due = wanted
    if planned & wanted & living:
        # Those who have come wait for each other, those who work for nobody who has yet to start.
        came = living & wanted - planned
        since = min((seen.at_odds.get(found, command.now_ms) for found in came), default=command.now_ms)
        are_due = wanted <= planned | living or command.now_ms - since >= command.debounce_ms
        due = planned & wanted | (came if are_due else frozenset())
    return None if due == planned else sorted_processors(due)


def _who_may_come_back(state: CoordinatorState) -> frozenset[ProcessorId]:
    """All but those of whom the last execution said that no other has its processor's id. That is remembered of a
    member of the plan while it is gone (`_forgotten`)."""
    planned = () if state.generation is None else state.generation.processor_ids
    never = {container.processor_id for container in state.containers.values() if not container.comes_back}
    return frozenset(planned) - never


def _at_odds(command: ReviewMembers, state: CoordinatorState, seen: Sightings) -> Mapping[ProcessorId, int]:
    living = living_processors(state)
    planned = frozenset(() if state.generation is None else state.generation.processor_ids)
    # While nobody is there, nobody is missed: who begins a run waits for the others of the last one.
    at_odds = living ^ planned if living else frozenset()
    return {found: seen.at_odds.get(found, command.now_ms) for found in sorted_processors(at_odds)}


def _change_text(before: Iterable[ProcessorId], after: Iterable[ProcessorId]) -> str:
    joined, left = (sorted_processors(set(a) - set(b)) for a, b in ((after, before), (before, after)))
    said = [f"{what} {', '.join(who)}" for what, who in (("joined", joined), ("left", left)) if who]
    return f"members: {'; '.join(said)}"
