"""The coordinator with one safeguard taken out, which a simulation must notice.

A simulation that cannot tell it from the real one proves nothing.

Each mutant replaces one function of the product by one without the safeguard, and nothing else. The
table in docs/internals/testing.md is made of the docstrings here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from samzapy.adapters.host import launch_watch
from samzapy.container.local_state import restore, split_and_merge
from samzapy.coordinator import action_performer, decide, leader_log, snapshot, state
from samzapy.coordinator import actions as actions_module
from samzapy.coordinator.action_performer import ActionPerformer
from samzapy.coordinator.assignment import grants, liveness, replanning, starts
from samzapy.coordinator.inputs import growth
from samzapy.coordinator.launching import launches, standbys
from samzapy.coordinator.leader_log import LeaderLog
from samzapy.coordinator.lifecycle import membership
from samzapy.coordinator.requests import (
    place_with_reserve,
    registry,
    restart_query,
    rewind,
    scale_factor,
)
from samzapy.coordinator.requests.read import read_requests
from samzapy.coordinator.service import CoordinatorService
from samzapy.errors import DeadlineError, FencedError, ProducerError, SamzapyError
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.launch import LaunchedState
from samzapy.model.placement import Action, StatusCode
from samzapy.stream import numbering
from samzapy.stream.records import EpochPut, FactorPut, GenerationPut, Removed
from samzapy.testing.memory_log import MemoryLog
from simulation import containers, world
from simulation.checks import BrokenLawError
from simulation.configurations import PROCESSORS, Kind
from simulation.containers import SimulatedContainer
from simulation.coordinators import CoordinatorProcess
from simulation.inputs import FINEST, KEYS
from simulation.simulate import simulate

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
HISTORIES_MAX = 600


def replay_before_fence(patch: Patch) -> None:
    """L4: a new coordinator reads the stream before it takes the transactional id."""
    become_leader = CoordinatorService.become_leader

    def mutated(self: CoordinatorService) -> None:
        log = self._stream.log
        records = list(log.read())
        log.take_over()
        self._stream.log = _AsItWas(log, records)  # type: ignore[assignment]
        try:
            become_leader(self)
        finally:
            self._stream.log = log

    patch.setattr(CoordinatorService, "become_leader", mutated)


class _AsItWas:
    def __init__(self, log, records):  # type: ignore[no-untyped-def]
        self._log, self._records = log, records

    def __getattr__(self, name):  # type: ignore[no-untyped-def]
        return getattr(self._log, name)

    def take_over(self) -> None:
        pass

    def read(self, offset_from=0):  # type: ignore[no-untyped-def]
        return iter(self._records)


def no_fence_at_all(patch: Patch) -> None:
    """L4: a new coordinator takes no transactional id, but writes under its epoch."""

    def mutated(self: MemoryLog) -> None:
        self._epoch = self.topic._epoch_of.setdefault(self.transactional_id, 0)

    patch.setattr(MemoryLog, "take_over", mutated)


def wall_clock_in_the_lease(patch: Patch) -> None:
    """Leases and silence are measured by the wall clock."""
    patch.setattr(CoordinatorProcess, "monotonic_ms", CoordinatorProcess.wall_ms)


def lease_renewed_without_looking(patch: Patch) -> None:
    """A coordinator answers for as long as it believes that it leads."""
    patch.setattr(snapshot.Snapshot, "may_answer", lambda self, now_ms, limit_ms: self.verified_ms is not None)


def tombstone_ignored(patch: Patch) -> None:
    """L1: a removed key keeps its value in memory."""
    patch.setattr(state, "_remove", lambda *_: None)


def a_record_that_is_a_change(patch: Patch) -> None:
    """L1: each epoch record counts one further, instead of holding the number."""
    fold = state._fold

    def mutated(before, changed, offset, record):  # type: ignore[no-untyped-def]
        fold(before, changed, offset, record)
        if isinstance(record, EpochPut):
            changed["epoch"] = before.epoch + 1

    patch.setattr(state, "_fold", mutated)


def end_of_replay_at_the_last_stable_offset(patch: Patch) -> None:
    """A reader concludes at an open transaction instead of waiting for it."""
    patch.setattr(MemoryLog, "read", lambda self, offset_from=0: iter(self.topic.read_stable(offset_from)[0]))


def end_of_replay_at_high_minus_one(patch: Patch) -> None:
    """A reader waits for a record at `high - 1`, the offset of a marker."""
    read = MemoryLog.read

    def mutated(self: MemoryLog, offset_from: int = 0):  # type: ignore[no-untyped-def]
        records = list(read(self, offset_from))
        if records and records[-1].offset != self.topic.end_offset - 1:
            raise DeadlineError("waited for a record at high - 1")
        return iter(records)

    patch.setattr(MemoryLog, "read", mutated)


def dict_order_of_containers(patch: Patch) -> None:
    """L7: containers are walked in the order in which they came into memory."""
    unsorted = property(lambda self: tuple(self.containers.values()))
    patch.setattr(state.CoordinatorState, "containers_sorted", unsorted)


def dict_order_of_the_plan(patch: Patch) -> None:
    """L7: the tasks of a plan are walked in the order in which they came into memory."""

    def mutated(self: state.CoordinatorState) -> tuple[object, ...]:
        in_force = self.generation.generation if self.generation is not None else None
        return tuple(planned for (number, _), planned in self.planned_tasks.items() if number == in_force)

    patch.setattr(state.CoordinatorState, "plan", property(mutated))


def grant_before_fenced(patch: Patch) -> None:
    """L6: tasks of a lost execution are granted before its ids are initialised."""
    gone = (ContainerPhase.STOPPED, ContainerPhase.LOST, ContainerPhase.FENCED)
    patch.setattr(Container, "is_gone", property(lambda self: self.phase in gone))
    real = actions_module.hand_overs

    def mutated(job_state):  # type: ignore[no-untyped-def]
        actions = real(job_state)
        return tuple(action for action in actions if not isinstance(action, actions_module.FenceExecution)) or actions

    patch.setattr(action_performer, "hand_overs", mutated)


def fenced_without_fencing(patch: Patch) -> None:
    """L6: FENCED is recorded although the broker was not asked."""

    def mutated(self, starts, outputs):  # type: ignore[no-untyped-def]
        return [action_performer.ExecutionFenced(action.execution_id, action.attempt) for action in starts]

    patch.setattr(ActionPerformer, "_fence", mutated)


def half_of_the_ids_fenced(patch: Patch) -> None:
    """L6: of a lost execution's transactional ids, that of the driver is forgotten."""
    ids = actions_module.transactional_ids
    patch.setattr(actions_module, "transactional_ids", lambda *args: ids(*args)[:-1])


def release_by_reading_alone(patch: Patch) -> None:
    """L6: a container that has read past the plan counts as one that has released."""
    release = grants.release
    patch.setattr(
        decide, "release", lambda heartbeat, job_state: release(replace(heartbeat, held=frozenset()), job_state)
    )


def release_not_waited_for(patch: Patch) -> None:
    """L6: a grant is free as soon as the plan takes it away."""
    is_free = grants.is_free
    patch.setattr(
        grants,
        "is_free",
        lambda grant, job_state: is_free(grant, job_state) or grant in grants.revoked_grants(job_state),
    )


def stopped_while_holding(patch: Patch) -> None:
    """L6: the stop of an execution is believed, although it lists unreleased grants."""
    hear = liveness.hear
    patch.setattr(decide, "hear", lambda heartbeat, job_state: hear(replace(heartbeat, held=frozenset()), job_state))


def epoch_reused(patch: Patch) -> None:
    """L6: the next epoch is counted from present grants, not from its own record."""
    grant_tasks = grants.grant_tasks

    def mutated(command, job_state):  # type: ignore[no-untyped-def]
        highest = max((grant.epoch for grant in job_state.grants.values()), default=0)
        return grant_tasks(command, replace(job_state, epoch=highest))

    patch.setattr(decide, "grant_tasks", mutated)


def progress_ignored(patch: Patch) -> None:
    """A start is computed from checkpoints alone."""
    reached = starts.reached
    patch.setattr(starts, "reached", lambda grant, start, read: reached(grant, start, replace(read, progress={})))


def grant_in_front_of_its_epoch(patch: Patch) -> None:
    """M1: within its transaction, a grant precedes the record of its epoch."""
    _reordered(patch, "grant_tasks", lambda records: sorted(records, key=lambda record: isinstance(record, EpochPut)))


def old_grant_removed_first(patch: Patch) -> None:
    """M1: a transaction removes a grant's predecessor before it writes the grant."""
    _reordered(
        patch, "grant_tasks", lambda records: sorted(records, key=lambda record: not isinstance(record, Removed))
    )


def generation_in_front_of_its_tasks(patch: Patch) -> None:
    """M1: a plan takes effect before its tasks are written."""
    real = replanning._records

    def mutated(*args):  # type: ignore[no-untyped-def]
        return sorted(real(*args), key=lambda record: not isinstance(record, GenerationPut))

    patch.setattr(replanning, "_records", mutated)


def _reordered(patch: Patch, name: str, order: Callable[[Iterable[object]], Iterable[object]]) -> None:
    real = getattr(decide, name)
    patch.setattr(decide, name, lambda *args: tuple(order(real(*args))))


def generation_reused(patch: Patch) -> None:
    """The number of a plan that was torn is given out again."""

    def mutated(job_state: state.CoordinatorState) -> tuple[int, ...]:
        return () if job_state.generation is None else (job_state.generation.generation,)

    patch.setattr(replanning, "generations", mutated)


def plan_for_the_dead(patch: Patch) -> None:
    """Membership: a processor stays a member when its last execution is gone."""
    real = membership.living_processors

    def mutated(job_state: state.CoordinatorState) -> frozenset[str]:
        return real(job_state) | {container.processor_id for container in job_state.containers.values()}

    patch.setattr(membership, "living_processors", mutated)


def failed_append_believed(patch: Patch) -> None:
    """L5: an append of unknown outcome counts as committed."""
    append = LeaderLog.append

    def mutated(self, records, writes):  # type: ignore[no-untyped-def]
        try:
            append(self, records, writes)
        except ProducerError:
            self.log.take_over()
            self._fold(records, writes, self.log.end_offset() + len(writes))

    patch.setattr(LeaderLog, "append", mutated)


def office_kept_after_a_failure(patch: Patch) -> None:
    """L5: a failed or unelected coordinator continues as the leader with its state."""
    patch.setattr(CoordinatorService, "step_down", lambda self: None)


def failed_append_sent_again(patch: Patch) -> None:
    """L5: after an append of unknown outcome the same records are sent again."""
    append = LeaderLog.append

    def mutated(self, records, writes):  # type: ignore[no-untyped-def]
        try:
            append(self, records, writes)
        except ProducerError:
            self.log.take_over()
            append(self, records, writes)

    patch.setattr(LeaderLog, "append", mutated)


def fence_known_only_to_one_leader(patch: Patch) -> None:
    """L3: the coordinator that gave up an execution fences it; a successor does not."""
    real, become_leader = actions_module.hand_overs, CoordinatorService.become_leader
    lost_before: set[str] = set()

    def becomes_leader(self: CoordinatorService) -> None:
        become_leader(self)
        containers = self._stream.state.containers_sorted
        lost_before.update(
            container.execution_id for container in containers if container.phase is ContainerPhase.LOST
        )

    def mutated(job_state):  # type: ignore[no-untyped-def]
        return tuple(
            action
            for action in real(job_state)
            if getattr(action, "transactional_ids", None) is None or action.execution_id not in lost_before
        )

    patch.setattr(CoordinatorService, "become_leader", becomes_leader)
    patch.setattr(action_performer, "hand_overs", mutated)


def numbers_from_zero(patch: Patch) -> None:
    """L5: a successor numbers its records from the beginning."""
    real = leader_log.replay

    def mutated(records, *, topic, before=leader_log.NOTHING):  # type: ignore[no-untyped-def]
        replayed = real(records, topic=topic, before=before)
        return replace(replayed, numbering=replayed.numbering._replace(seq=before.numbering.seq))

    patch.setattr(leader_log, "replay", mutated)


def foreign_records_folded(patch: Patch) -> None:
    """Every readable record on the stream is taken for the leader's."""
    real = numbering.place

    def mutated(record, before):  # type: ignore[no-untyped-def]
        after, foreign = real(record, before)
        if isinstance(foreign, numbering.Foreign) and foreign.is_readable:
            return after, numbering.RecordHeaders(before.term, before.seq, "Foreign", "", "")
        return after, foreign

    patch.setattr(numbering, "place", mutated)


def foreign_records_stay(patch: Patch) -> None:
    """The leader writes nothing again, and compaction keeps a foreign record's value."""
    patch.setattr(LeaderLog, "restore", lambda self: False)


def a_heartbeat_registers_each_time(patch: Patch) -> None:
    """L2: a registration that is repeated is written again."""
    hear = liveness.hear

    def mutated(heartbeat, job_state):  # type: ignore[no-untyped-def]
        records = hear(heartbeat, job_state)
        if records or heartbeat.execution_id not in job_state.containers:
            return records
        return (liveness.ContainerPut(container=job_state.containers[heartbeat.execution_id]),)

    patch.setattr(decide, "hear", mutated)


def the_dead_come_back(patch: Patch) -> None:
    """L6: an execution that was given up, and sends a heartbeat again, runs again."""
    P, N = liveness.P, liveness.N
    rows: Mapping[ContainerPhase, Mapping[liveness.News, ContainerPhase]] = {
        **liveness.TRANSITIONS,
        P.LOST: {N.FENCED: P.FENCED, N.RUNS: P.RUNNING},
        P.FENCED: {N.RUNS: P.RUNNING},
    }
    patch.setattr(liveness, "TRANSITIONS", rows)
    patch.setattr(
        "simulation.world.is_expected",
        lambda job_state, heartbeat: heartbeat.execution_id in job_state.containers,
    )
    patch.setattr(
        liveness, "is_expected", lambda job_state, heartbeat: heartbeat.execution_id in job_state.containers
    )


def uuid_memory_lost_at_failover(patch: Patch) -> None:
    """A coordinator that takes over remembers no request that is over."""
    replayed = leader_log.replay

    def mutated(records, *, topic, before=leader_log.NOTHING):  # type: ignore[no-untyped-def]
        replayed_state = replayed(records, topic=topic, before=before)
        return replace(replayed_state, state=replace(replayed_state.state, request_memory={}))

    patch.setattr(leader_log, "replay", mutated)


def uuid_that_comes_again_is_new(patch: Patch) -> None:
    """A request whose uuid was answered already is served once more."""
    read = read_requests
    patch.setattr(
        decide, "read_requests", lambda command, job_state: read(command, replace(job_state, request_memory={}))
    )


def position_in_front_of_its_decisions(patch: Patch) -> None:
    """The position on the placement topic is written before the requests are decided."""
    read = read_requests
    patch.setattr(decide, "read_requests", lambda command, job_state: tuple(reversed(read(command, job_state))))


def restart_in_front_of_its_request(patch: Patch) -> None:
    """M1: a restart is ordered before its request is recorded, and so twice if torn."""
    mutated = replace(
        restart_query.RESTARTING, begin=lambda *known: tuple(reversed(tuple(restart_query.begin(*known))))
    )
    patch.setitem(registry.HANDLERS, Action.RESTART_QUERY, mutated)


def restart_taken_for_granted(patch: Patch) -> None:
    """A restart has succeeded once a container of the processor runs, with any order."""

    def mutated(request, review):  # type: ignore[no-untyped-def]
        return next(iter(restart_query._lives(request, review.state)), None)

    patch.setitem(registry.HANDLERS, Action.RESTART_QUERY, replace(restart_query.RESTARTING, completion=mutated))


def ordered_restart_waits_for_no_query(patch: Patch) -> None:
    """A restart waits until it expires when the plan moves the processor's tasks."""
    lacks = restart_query.RESTARTING.why_lost

    def mutated(request, job_state):  # type: ignore[no-untyped-def]
        return lacks(request, job_state) if request.status_code is StatusCode.ACCEPTED else ""

    patch.setitem(registry.HANDLERS, Action.RESTART_QUERY, replace(restart_query.RESTARTING, why_lost=mutated))


def answered_before_it_is_written(patch: Patch) -> None:
    """L3: a response counts as written when the broker did not answer."""

    def mutated(self: object, writes: list[object]) -> int:
        return 0

    patch.setattr("simulation.coordinators._Placement.write", mutated)


def new_partitions_not_waiting(patch: Patch) -> None:
    """New partitions are planned as soon as the ends of the old ones are known."""
    patch.setattr(growth, "_has_passed", lambda *_: True)


def merge_from_the_largest(patch: Patch) -> None:
    """A merged task begins at the largest position of its parts, not the smallest."""
    joined = starts._joined
    patch.setattr(starts, "_joined", lambda ssp_kb, positions: joined(ssp_kb, [max(positions)] * len(positions)))


def floors_forgotten(patch: Patch) -> None:
    """A merged task has no floors for parts with a larger position."""
    joined = starts._joined
    patch.setattr(starts, "_joined", lambda *known: replace(joined(*known), floors=()))


def floors_of_before_forgotten(patch: Patch) -> None:
    """A change on top of an unfinished merge does not look at the floors of that."""
    positions = starts._positions

    def mutated(ssp_kb, known):  # type: ignore[no-untyped-def]
        given = {id(grant): grant for _, grant in known.grants.overlapping(ssp_kb)}.values()
        bare = [replace(grant, starts=tuple(replace(start, floors=()) for start in grant.starts)) for grant in given]
        return positions(ssp_kb, replace(known, grants=starts.GrantIndex(bare)))

    patch.setattr(starts, "_positions", mutated)


def children_granted_before_the_release(patch: Patch) -> None:
    """L6: only the same task's earlier grant is waited for, not an overlapping one."""
    mutated = lambda self, planned: self.newest_of(planned.task_name) is not None  # noqa: E731
    patch.setattr(starts.GrantIndex, "clashes_with", mutated)


def parent_removed_with_its_first_child(patch: Patch) -> None:
    """A grant is removed as soon as newer ones give some of its buckets."""
    patch.setattr(grants._GrantLog, "_is_covered", lambda self, grant: True)


def positions_removed_with_the_first_child(patch: Patch) -> None:
    """A container removes positions of another factor that starts may still need."""
    real = containers.superseded_keys
    patch.setattr(containers, "superseded_keys", lambda given, positions, epochs: real(given, positions, ()))


def factor_written_each_time(patch: Patch) -> None:
    """L2: a scale under way records its factor once more."""

    def mutated(request, job_state, groupers):  # type: ignore[no-untyped-def]
        return [FactorPut(factor=scale_factor.scale_wanted(request).factor, uuid=request.uuid)]

    _beside(patch, "scaled", mutated)


def plan_of_a_scale_taken_twice(patch: Patch) -> None:
    """L2: a scale under way puts its plan in force once more, under the next number."""

    def mutated(request, job_state, groupers):  # type: ignore[no-untyped-def]
        if job_state.generation is None:
            return []
        return replanning.replan(
            replace(job_state, generation=replace(job_state.generation, factor=0)), PROCESSORS, groupers
        )

    _beside(patch, "scaled", mutated)


def _beside(patch: Patch, name: str, mutated: Callable[..., Iterable[object]]) -> None:
    """The result of `mutated` where the real one gives nothing."""
    real = getattr(scale_factor, name)
    patch.setattr(scale_factor, name, lambda *known: list(real(*known)) or mutated(*known))


def scale_taken_for_granted(patch: Patch) -> None:
    """A scale has succeeded once the plan has its factor, before owners released."""
    patch.setattr(scale_factor, "awaited", lambda *_: ())


# --- state of tasks, rewinds, inputs that end ---


def local_state_taken_to_be_level(patch: Patch) -> None:
    """Kept local state is taken to have everything that the changelog has."""
    patch.setattr(restore, "_has_caught_up", lambda *_: True)


def entries_of_siblings_taken(patch: Patch) -> None:
    """A virtual task restores all of a changelog partition that siblings share."""
    patch.setattr(restore, "is_own_entry", lambda grant, scope: lambda key: True)


def heir_made_of_a_part(patch: Patch) -> None:
    """A task begins with its relatives' state on this host, even if incomplete."""

    def mutated(bucket, factor, candidates):  # type: ignore[no-untyped-def]
        finest = max((factor, *(grant.factor for grant in candidates)))
        pieces = range(bucket, finest, factor)
        having = {piece: [grant for grant in candidates if piece % grant.factor == grant.bucket] for piece in pieces}
        chosen = {piece: holders[0] for piece, holders in having.items() if holders}
        return (finest, chosen) if chosen else None

    patch.setattr(split_and_merge, "choose", mutated)


def broadcast_positions_of_several_parents(patch: Patch) -> None:
    """A task has the smallest position of all tasks in each broadcast partition."""
    real = starts._broadcast_start

    def mutated(ssp_kb, parent, known):  # type: ignore[no-untyped-def]
        positions = real(ssp_kb, parent, known)
        others = [starts._broadcast_position(grant, ssp_kb.ssp, known) for grant in known.grants._newest.values()]
        return min((offset for offset in (positions, *others) if offset is not None), default=None)

    patch.setattr(starts, "_broadcast_start", mutated)


def broadcast_positions_without_the_copy(patch: Patch) -> None:
    """A task takes the broadcast positions of its parent, and keeps a copy of its own."""
    patch.setattr(starts, "_source_of_copy", lambda *_: "")


def startpoints_ignored(patch: Patch) -> None:
    """A task that was rewound begins where it was."""
    real = action_performer.starts_of
    patch.setattr(action_performer, "starts_of", lambda *args, startpoints, **named: real(*args, **named))


def startpoint_removed_at_once(patch: Patch) -> None:
    """A startpoint is removed before it is in all grants that it is for."""
    patch.setattr(rewind, "is_taken_up", lambda *_: True)


def rewind_taken_for_granted(patch: Patch) -> None:
    """A rewind has succeeded once it is recorded, before owners released."""
    patch.setattr(rewind, "awaited", lambda *_: ())


def state_of_an_earlier_run_kept(patch: Patch) -> None:
    """ADR 0009: a container does not check which grants belong to a bounded run."""
    real = containers.catch_up_or_rebuild

    def mutated(directory, job):  # type: ignore[no-untyped-def]
        return real(directory, replace(job, grant=replace(job.grant, counts_after=0, changelog_starts=())))

    patch.setattr(containers, "catch_up_or_rebuild", mutated)


def end_of_an_input_fixed_by_each_grant(patch: Patch) -> None:
    """ADR 0009: each grant sets a bounded input's end, not only a run's first."""
    patch.setattr(grants, "input_end", lambda *_: None)
    patch.setattr(action_performer, "input_end", lambda *_: None)


def finished_when_one_has_finished(patch: Patch) -> None:
    """A bounded run is over once one of its containers has read its tasks to the end."""

    def mutated(job_state: state.CoordinatorState, seen: liveness.Liveness) -> bool:
        if job_state.run is None or job_state.run.finished or job_state.run.ended or not job_state.plan:
            return False
        return any(sighting.finished for sighting in seen.last.values())

    patch.setattr(membership, "_is_finished", mutated)


def named_at_its_start(patch: Patch) -> None:
    """ADR 0015: a container gets its name at its start, not with the record of it."""
    to_start = launch_watch.to_start

    def mutated(job_state: state.CoordinatorState) -> tuple[object, ...]:
        return tuple(replace(launch, execution_id=f"{launch.execution_id}-1") for launch in to_start(job_state))

    patch.setattr(launch_watch, "to_start", mutated)


def no_container_is_killed(patch: Patch) -> None:
    """A container that does not stop in time is given up, and its process stays."""
    patch.setattr(launch_watch, "to_kill", lambda *_: ())


def silence_is_an_end(patch: Patch) -> None:
    """ADR 0015: a launch that the cluster manager does not know has ended."""
    looked = launches._after_look

    def mutated(launch, seen, command, job_state):  # type: ignore[no-untyped-def]
        if seen.state is LaunchedState.UNKNOWN:
            seen = replace(seen, state=LaunchedState.ENDED)
        return looked(launch, seen, command, job_state)

    patch.setattr(launches, "_after_look", mutated)


def surplus_stays(patch: Patch) -> None:
    """A container that is not wanted any more gets no order to stop."""
    patch.setattr(launches, "_surplus", lambda _: {})


def copies_are_answered(patch: Patch) -> None:
    """ADR 0015: both processes of an execution that was started twice are answered."""

    def mutated(job_state: state.CoordinatorState, heartbeat) -> bool:  # type: ignore[no-untyped-def]
        return liveness.is_alive(job_state, heartbeat.execution_id)

    for module in (liveness, grants, world):
        patch.setattr(module, "is_expected", mutated)


def moved_before_it_is_level(patch: Patch) -> None:
    """Tasks move to a reserve, or a standby, as soon as it is up."""

    def mutated(execution_id, job_state, seen):  # type: ignore[no-untyped-def]
        return liveness.is_alive(job_state, execution_id)

    for module in (place_with_reserve, standbys):
        patch.setattr(module, "is_warm", mutated)


def standby_beside_its_runner(patch: Patch) -> None:
    """A standby may be on a host with another container of its processor."""
    for module in (place_with_reserve, standbys):
        patch.setattr(module, "clash", lambda *_: "")


def standbys_blind_to_each_other(patch: Patch) -> None:
    """The standbys of several processors are decided on the state before the round."""

    class Blind(state.Round):
        state = property(lambda self: self._state)  # type: ignore[assignment]

    patch.setattr(standbys, "Round", Blind)


def job_ends_that_is_to_continue(patch: Patch) -> None:
    """A processor whose containers fail too often ends the run in any configuration."""
    run_failed = launches._run_failed
    patch.setattr(
        launches, "_run_failed", lambda command, job_state: run_failed(replace(command, fails_job=True), job_state)
    )


def the_unanswered_live_on(patch: Patch) -> None:
    """A container without answers is kept as long as its heartbeats arrive."""
    patch.setattr(liveness.Sighting, "unanswered_for_ms", lambda self, listening_since_ms: 0)


def tailed_rows_not_skipped(patch: Patch) -> None:
    """A micro-batch handles the rows that a tail has handled before."""
    patch.setattr(SimulatedContainer, "_done", lambda self, ssp_kb: 0)


def tail_position_before_its_output(patch: Patch) -> None:
    """A tail commits its positions first, and its outputs in a transaction after that."""
    begin_work = SimulatedContainer._begin_work

    def mutated(self, work, writes):  # type: ignore[no-untyped-def]
        if self._is_tailing and not work.is_of_driver:
            grant_of = {start.ssp_kb: grant for grant in self.serving for start in grant.starts}
            moved = [self._write(grant_of[ssp_kb], ssp_kb, end, False) for ssp_kb, _, end in work.ranges]
            with suppress(FencedError, ProducerError):
                self._driver.append_atomically(moved)
        return begin_work(self, work, writes)

    patch.setattr(SimulatedContainer, "_begin_work", mutated)


def tail_of_a_released_bucket(patch: Patch) -> None:
    """A container that releases a task leaves a tail of it at work."""
    must_start_anew, held = SimulatedContainer._must_start_anew, SimulatedContainer.held

    def held_without_tails(self):  # type: ignore[no-untyped-def]
        held_tasks = {(grant.task_name, grant.epoch) for grant in self.wanted()}
        every = held(self)
        return (
            frozenset(one for one in every if (one.task_name, one.epoch) in held_tasks) if self._is_tailing else every
        )

    patch.setattr(SimulatedContainer, "held", held_without_tails)
    patch.setattr(SimulatedContainer, "_must_start_anew", lambda self: not self._is_tailing and must_start_anew(self))


def another_bucket_for_one_key_in_tails(patch: Patch) -> None:
    """A tail's rule for key buckets differs from a micro-batch's for one key."""

    def inputs_of_tail(self):  # type: ignore[no-untyped-def]
        differing = copy(self._inputs)
        differing._buckets = {
            ssp: [
                (bucket + 1) % FINEST if key == KEYS[0] else bucket
                for bucket, key in zip(buckets, self._inputs._keys[ssp], strict=True)
            ]
            for ssp, buckets in self._inputs._buckets.items()
        }
        return differing

    patch.setattr(SimulatedContainer, "_inputs_of_tail", inputs_of_tail)


KIND_OF: Mapping[Callable[[Patch], None], Kind] = {
    tailed_rows_not_skipped: Kind.STATELESS,
    tail_position_before_its_output: Kind.STATELESS,
    tail_of_a_released_bucket: Kind.STATELESS,
    another_bucket_for_one_key_in_tails: Kind.KEYED,
    local_state_taken_to_be_level: Kind.KEYED,
    entries_of_siblings_taken: Kind.KEYED,
    heir_made_of_a_part: Kind.KEYED,
    broadcast_positions_of_several_parents: Kind.RULES,
    broadcast_positions_without_the_copy: Kind.RULES,
    foreign_records_folded: Kind.FOREIGN,
    foreign_records_stay: Kind.FOREIGN,
    startpoints_ignored: Kind.KEYED,
    startpoint_removed_at_once: Kind.STATELESS,
    rewind_taken_for_granted: Kind.RULES,
    state_of_an_earlier_run_kept: Kind.BOUNDED,
    end_of_an_input_fixed_by_each_grant: Kind.BOUNDED,
    finished_when_one_has_finished: Kind.BOUNDED,
    named_at_its_start: Kind.LAUNCHED,
    no_container_is_killed: Kind.LAUNCHED,
    silence_is_an_end: Kind.LAUNCHED,
    surplus_stays: Kind.LAUNCHED,
    copies_are_answered: Kind.LAUNCHED,
    moved_before_it_is_level: Kind.LAUNCHED,
    standby_beside_its_runner: Kind.LAUNCHED,
    standbys_blind_to_each_other: Kind.LAUNCHED,
    job_ends_that_is_to_continue: Kind.LAUNCHED,
}
"""The kind of job in which a mutant is soonest seen; of the others the seeds choose."""

MUTANTS = (
    replay_before_fence,
    no_fence_at_all,
    wall_clock_in_the_lease,
    lease_renewed_without_looking,
    tombstone_ignored,
    a_record_that_is_a_change,
    end_of_replay_at_the_last_stable_offset,
    end_of_replay_at_high_minus_one,
    dict_order_of_containers,
    dict_order_of_the_plan,
    grant_before_fenced,
    fenced_without_fencing,
    half_of_the_ids_fenced,
    release_by_reading_alone,
    release_not_waited_for,
    stopped_while_holding,
    epoch_reused,
    progress_ignored,
    grant_in_front_of_its_epoch,
    old_grant_removed_first,
    generation_in_front_of_its_tasks,
    generation_reused,
    plan_for_the_dead,
    failed_append_believed,
    office_kept_after_a_failure,
    failed_append_sent_again,
    fence_known_only_to_one_leader,
    numbers_from_zero,
    a_heartbeat_registers_each_time,
    the_dead_come_back,
    uuid_memory_lost_at_failover,
    uuid_that_comes_again_is_new,
    position_in_front_of_its_decisions,
    restart_in_front_of_its_request,
    restart_taken_for_granted,
    ordered_restart_waits_for_no_query,
    answered_before_it_is_written,
    new_partitions_not_waiting,
    merge_from_the_largest,
    floors_forgotten,
    floors_of_before_forgotten,
    children_granted_before_the_release,
    parent_removed_with_its_first_child,
    positions_removed_with_the_first_child,
    factor_written_each_time,
    plan_of_a_scale_taken_twice,
    scale_taken_for_granted,
    the_unanswered_live_on,
    *KIND_OF,
)


SHOWN_BY: Mapping[Callable[[Patch], None], int] = {
    the_unanswered_live_on: 145,
    fence_known_only_to_one_leader: 11,
    replay_before_fence: 134,
    wall_clock_in_the_lease: 82,
    grant_before_fenced: 123,
    half_of_the_ids_fenced: 16,
    lease_renewed_without_looking: 418,
    fenced_without_fencing: 19,
    stopped_while_holding: 123,
    heir_made_of_a_part: 14,
    position_in_front_of_its_decisions: 10,
    answered_before_it_is_written: 41,
    release_by_reading_alone: 151,
    positions_removed_with_the_first_child: 13,
    generation_reused: 13,
    end_of_replay_at_the_last_stable_offset: 13,
    startpoint_removed_at_once: 7,
    no_container_is_killed: 5,
    job_ends_that_is_to_continue: 5,
    ordered_restart_waits_for_no_query: 5,
    restart_taken_for_granted: 4,
    restart_in_front_of_its_request: 4,
}
"""Histories that showed mutants which are seldom seen; tried first. Their histories change with the simulation, and
then the others are tried."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_kills(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)

    for seed in (*([SHOWN_BY[mutant]] if mutant in SHOWN_BY else ()), *range(HISTORIES_MAX)):
        try:
            simulate(seed, kind=KIND_OF.get(mutant))
        except (BrokenLawError, SamzapyError):
            # In either way: by a law that does not hold, or by a coordinator that cannot continue. Any other error may
            # be the mutant's own, which is none any more because the replaced function has changed.
            return
    pytest.fail(f"lives after {HISTORIES_MAX} histories")


def test_the_page_on_testing_lists_every_mutant_with_the_rule_that_it_removes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "testing.md").read_text(encoding="utf-8")

    for mutant in MUTANTS:
        assert f"| `{mutant.__name__}` | {(mutant.__doc__ or '').strip()} |" in page
