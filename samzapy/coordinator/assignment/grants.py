"""Grants: one owner per task at a time (law L6), and where it starts.

The start is computed when the last owner is done.

Theory. A grant is the right of one execution to run one task. The plan names the processor; a grant is given only
when every earlier grant of the task, or of any overlapping key bucket, is free:

- its execution is gone (STOPPED, or FENCED: it can commit nothing more), or
- it was released: the plan, a placement, a startpoint or another topic under the name of an input revoked it, and a
  heartbeat of its execution has read past that and does not list it. Offset and list of a heartbeat are of one moment,
  and a grant once read is in the list until it is released. So this can be read from any such heartbeat, early, late
  or repeated. It is recorded in the grant and final: if the next plan gives the task back, its execution gets a new
  grant. A new leader knows as much as the one that received the heartbeat.

Only then are the positions read, to the end, and the starts computed (`coordinator.assignment.starts`): nothing can
move them any more. The start is in the grant, so nothing that an earlier owner has written can win later, whatever its
offset. Positions of the checkpoint topic count only under the epoch of the grant they were written for.

In a run that starts without state (`coordinator.lifecycle.membership`), the earlier runs' grants, and everything
written under their epochs, do not count: its tasks begin as if they had never been granted, and the grant tells its
container so. Entries of changelogs carry no epoch. So the first grant of a task in the run records where the task's
changelogs end, at a moment when nothing can be written to them any more. The run's later grants repeat it: only entries
behind that count.

An older grant's record stays until newer grants cover all its buckets, because their starts are computed
from it. Epochs are one counter of the whole job, recorded in front of each grant; a number that was
given out and not used (a torn transaction) is simply skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.liveness import LIVING, Liveness, declare_lost, is_alive, is_expected
from samzapy.coordinator.assignment.starts import GrantIndex
from samzapy.coordinator.grant_values import ContainerGone, HeldGrant, LossUsed
from samzapy.coordinator.state import CoordinatorState, is_leaving, remembered, runs_its_own, tombstone, works_for
from samzapy.model.grant import ChangelogStart, Grant, is_of_earlier_topic
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition, is_covered
from samzapy.model.startpoint import StartpointIndex
from samzapy.stream.records import (
    CoordinatorRecord,
    EpochPut,
    GrantPut,
    InputEndPut,
    LossAcceptedPut,
    PlannedTaskPut,
    Removed,
)

if TYPE_CHECKING:
    from samzapy.coordinator.commands import Heartbeat, StartsResolved, TaskStarts, Tick
    from samzapy.model.job import ExecutionId, ProcessorId, TaskName


@dataclass(frozen=True, slots=True)
class WantedGrant:
    """A task that may be granted now, and the execution that gets it."""

    planned: PlannedTaskPut
    execution_id: ExecutionId


@remembered
def wanted_grants(state: CoordinatorState) -> tuple[WantedGrant, ...]:
    """The tasks of the plan that have no owner, or a wrong one, and may be granted.

    Between two runs there is none: the value of a grant depends on its run.
    """
    if state.run is not None and state.run.ended:
        return ()
    in_force = grants_in_force(state)
    waiting = [planned for planned in state.plan if planned.task_name not in in_force]
    if not waiting:
        return ()
    blocking = GrantIndex(grant for grant in state.grants.values() if not is_free(grant, state))
    owners = executions_to_grant(state)
    to_begin = _changelogs_to_begin(state)
    grantable = []
    for planned in waiting:
        execution_id = owners.get(planned.processor_id)
        if execution_id is None or not is_alive(state, execution_id) or is_leaving(execution_id, state):
            continue
        if planned.changelog_partition not in to_begin and not blocking.clashes_with(planned):
            grantable.append(WantedGrant(planned, execution_id))
    return tuple(grantable)


@remembered
def grants_in_force(state: CoordinatorState) -> Mapping[TaskName, Grant]:
    """Active grants that match the current plan, by task; unowned tasks are omitted."""
    newest, startpoints = newest_grants(state), StartpointIndex(state.startpoints.values())
    return {
        planned.task_name: newest[planned.task_name]
        for planned in state.plan
        if _is_in_force(newest.get(planned.task_name), planned, state, startpoints)
    }


def not_at_work(state: CoordinatorState, liveness: Liveness) -> tuple[TaskName, ...]:
    """The tasks of the plan that do not run yet, in the order of their numbers.

    They are not granted as planned, or their owner has not read the grant.
    """
    in_force = grants_in_force(state)

    def is_at_work(task_name: TaskName) -> bool:
        grant = in_force.get(task_name)
        sighting = None if grant is None else liveness.last.get(grant.execution_id)
        return grant is not None and sighting is not None and sighting.has_read(grant)

    return tuple(planned.task_name for planned in state.plan if not is_at_work(planned.task_name))


@remembered
def newest_grants(state: CoordinatorState) -> Mapping[TaskName, Grant]:
    """The grant with the highest epoch of each task."""
    return {grant.task_name: grant for grant in state.grants_sorted}


@remembered
def owners(state: CoordinatorState) -> Mapping[TaskName, Grant]:
    """By task, the grant under which a living execution runs it.

    Tasks without an owner are omitted.
    """
    return {task_name: grant for task_name, grant in newest_grants(state).items() if is_run(grant, state)}


def is_run(newest: Grant, state: CoordinatorState) -> bool:
    """Whether an execution that lives has the task under its newest grant."""
    return _lives(newest, state) and not newest.released


def is_free(grant: Grant, state: CoordinatorState) -> bool:
    """Whether nothing can be committed under `grant` any more."""
    container = state.containers.get(grant.execution_id)
    return grant.released or (container is not None and container.is_gone)


def release(heartbeat: Heartbeat, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The grants that `heartbeat` shows to be released.

    They were revoked by records that it has read, and are not in its list.
    """
    if not is_expected(state, heartbeat) or heartbeat.stream_offset <= state.generation_offset:
        return ()
    # Most hold all that is theirs. That is seen at once; the rest looks at every startpoint.
    missing = [
        grant
        for grant in state.grants.values()
        if grant.execution_id == heartbeat.execution_id
        and not grant.released
        and HeldGrant(grant.task_name, grant.epoch) not in heartbeat.held
    ]
    if not missing:
        return ()
    startpoints = StartpointIndex(state.startpoints.values())

    def has_read(grant: Grant) -> bool:
        newer = startpoints.newer_than(grant)
        return heartbeat.stream_offset > _placed_at(grant, state) and all(
            heartbeat.stream_offset > state.startpoint_offsets[startpoint.ssp_kb] for startpoint in newer
        )

    return tuple(
        GrantPut(grant=replace(grant, released=True))
        for grant in sorted(missing, key=lambda grant: grant.epoch)
        if _is_to_let_go(grant, state, startpoints) and has_read(grant)
    )


def _placed_at(grant: Grant, state: CoordinatorState) -> int:
    """The offset of the record that names the owner of the task's processor, or -1."""
    in_force = state.generation_number
    planned = state.planned_tasks.get((in_force, grant.task_name))
    return -1 if planned is None else state.placed_offsets.get(planned.processor_id, -1)


@remembered
def revoked_grants(state: CoordinatorState) -> tuple[Grant, ...]:
    """The grants that living executions must release and, by the log, have not."""
    startpoints = StartpointIndex(state.startpoints.values())
    return tuple(grant for grant in state.grants_sorted if _is_to_let_go(grant, state, startpoints))


def _is_to_let_go(grant: Grant, state: CoordinatorState, startpoints: StartpointIndex) -> bool:
    return (
        not grant.released
        and _lives(grant, state)
        and (_is_revoked(grant, state) or bool(startpoints.newer_than(grant)))
    )


def overdue(tick: Tick, state: CoordinatorState, liveness: Liveness) -> tuple[CoordinatorRecord, ...]:
    """Declare lost each execution that does not release in time, as a whole.

    Fencing sets all its tasks free.
    """
    reasons: dict[ExecutionId, str] = {}
    away = revoked_grants(state)
    since_of = _since(away, tick, liveness)
    for grant in away:
        waited_ms = tick.now_ms - since_of[HeldGrant(grant.task_name, grant.epoch)]
        if waited_ms >= tick.release_ms:
            reasons.setdefault(
                grant.execution_id,
                f"did not let go of {grant.task_name} for {waited_ms} ms (job.release.timeout.ms is {tick.release_ms})",
            )
    return tuple(
        record for name in sorted(reasons) for record in declare_lost(ContainerGone(name, reasons[name]), state)
    )


def note_revoked(tick: Tick, state: CoordinatorState, liveness: Liveness) -> Liveness:
    """`liveness`, with the grants to be released and the time since when."""
    since_of = _since(revoked_grants(state), tick, liveness)
    return liveness if since_of == liveness.revoked_since else replace(liveness, revoked_since=since_of)


def _since(away: Iterable[Grant], tick: Tick, liveness: Liveness) -> Mapping[HeldGrant, int]:
    held = [HeldGrant(grant.task_name, grant.epoch) for grant in away]
    return {grant: liveness.revoked_since.get(grant, tick.now_ms) for grant in held}


def grant_tasks(command: StartsResolved, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Grant tasks from the starts that were computed for them.

    A task is left out if its state has changed since the starts were asked for.
    """
    if state.generation is None or state.generation.generation != command.generation:
        return ()
    wanted = {(grant.planned.task_name, grant.execution_id): grant.planned for grant in wanted_grants(state)}
    changes = _ChangesSince(command.epoch_before, state)
    log = _GrantLog(state)
    begun, ends_fixed = changelogs_begun(state), set[SystemStreamPartition]()
    records: list[CoordinatorRecord] = []
    epoch = state.epoch
    for task in command.tasks:
        planned = wanted.get((task.task_name, task.execution_id))
        if planned is None or changes.affect(planned):
            continue
        assert tuple(start.ssp_kb for start in task.starts) == planned.positions, "starts of another plan"
        epoch += 1
        grant = Grant(
            task_name=planned.task_name,
            epoch=epoch,
            execution_id=task.execution_id,
            generation=command.generation,
            partition_id=planned.partition_id,
            changelog_partition=planned.changelog_partition,
            starts=task.starts,
            counts_after=counts_after(state),
            changelog_starts=_changelog_starts(task, planned, begun),
            broadcast_parent=task.broadcast_parent,
            epoch_rewound=task.epoch_rewound,
        )
        changes.add(grant)
        ends = [put for put in _ends_fixed(task, state) if put.ssp not in ends_fixed]
        ends_fixed |= {put.ssp for put in ends}
        records += [EpochPut(epoch=epoch), *ends, *map(_loss_accepted, task.losses), GrantPut(grant=grant)]
        records += log.superseded_by(grant)
    return tuple(records)


def counts_after(state: CoordinatorState) -> int:
    """The last epoch whose records no longer count; 0 if all count."""
    return 0 if state.run is None else state.run.counts_after


def changelogs_begun(state: CoordinatorState) -> Mapping[int, Mapping[str, int]]:
    """The offsets from which changelogs count, by partition and store.

    Changelogs that count as a whole, or whose offset is not fixed yet, are omitted.
    """
    offsets: dict[int, dict[str, int]] = {}
    after = counts_after(state)
    for grant in state.grants_sorted if after else ():
        if grant.epoch > after:
            of_partition = offsets.setdefault(grant.changelog_partition, {})
            of_partition.update({start.store: start.offset for start in grant.changelog_starts})
    return offsets


def _changelogs_to_begin(state: CoordinatorState) -> frozenset[int]:
    """Changelog partitions where this run's first entry cannot be fixed yet.

    A virtual task of an earlier run, lost and not fenced, may still write to the partition that it shares with its
    siblings.
    """
    after = counts_after(state)
    begun = changelogs_begun(state) if after else {}
    return frozenset(
        grant.changelog_partition
        for grant in (state.grants.values() if after else ())
        if grant.epoch <= after and grant.changelog_partition not in begun and not is_free(grant, state)
    )


def _changelog_starts(
    starts: TaskStarts, planned: PlannedTaskPut, begun: Mapping[int, Mapping[str, int]]
) -> tuple[ChangelogStart, ...]:
    """The first record counts: entries behind it may be the state of this run."""
    offsets = dict(starts.changelog_ends) | dict(begun.get(planned.changelog_partition, {}))
    return tuple(ChangelogStart(store=store, offset=offsets[store]) for store in sorted(offsets))


def _ends_fixed(starts: TaskStarts, state: CoordinatorState) -> Iterable[InputEndPut]:
    """The ends that this run has not fixed yet.

    The first record counts, for every task and owner.
    """
    if state.run is None:
        return
    for ssp, offset_end in starts.ends:
        if input_end(state, ssp) is None:
            yield InputEndPut(ssp=ssp, run_id=state.run.run_id, offset_end=offset_end)


def input_end(state: CoordinatorState, ssp: SystemStreamPartition) -> int | None:
    """Up to where the run that is on reads `ssp`; None while that is not fixed."""
    end = state.input_ends.get(ssp)
    return end.offset_end if end is not None and state.run is not None and end.run_id == state.run.run_id else None


@remembered
def executions_to_grant(state: CoordinatorState) -> Mapping[ProcessorId, ExecutionId]:
    """The execution that gets a processor's tasks.

    It is the one that they were placed on, if any. Of several living ones of the processor, it is the one that has
    most of the tasks. One that was ordered to stop gets none.
    """
    counts: dict[ExecutionId, int] = {}
    for grant in newest_grants(state).values():
        counts[grant.execution_id] = counts.get(grant.execution_id, 0) + 1
    living = [
        container
        for container in state.containers_sorted
        if container.phase in LIVING
        and runs_its_own(container, state)
        and not is_leaving(container.execution_id, state)
    ]
    # The last one set stays: the largest count and, among equals, the smallest id.
    ordered = sorted(living, key=lambda container: (-counts.get(container.execution_id, 0), container.execution_id))
    executions = {container.processor_id: container.execution_id for container in reversed(ordered)}
    # One that is gone gets none. No other execution does, until the log says that its placement has ended
    # (`coordinator.requests.place_container`).
    return executions | {placed.processor_id: placed.execution_id for placed in state.placed.values()}


def _is_in_force(
    grant: Grant | None, planned: PlannedTaskPut, state: CoordinatorState, startpoints: StartpointIndex
) -> bool:
    return (
        grant is not None
        and not grant.released
        and _lives(grant, state)
        and works_for(state.containers[grant.execution_id], planned.processor_id, state)
        and _gives(grant, planned)
        and not startpoints.newer_than(grant)
        and not is_of_earlier_topic(grant, epochs_before(state))
    )


def _is_revoked(grant: Grant, state: CoordinatorState) -> bool:
    """Whether the task belongs to another processor, to none, or was placed elsewhere.

    The plan in force decides, with its key buckets. Or a topic that it reads was created again.
    """
    if state.generation is None:
        return False
    planned = state.planned_tasks.get((state.generation.generation, grant.task_name))
    container = state.containers.get(grant.execution_id)
    return (
        planned is None
        or container is None
        or not works_for(container, planned.processor_id, state)
        or not _gives(grant, planned)
        or is_of_earlier_topic(grant, epochs_before(state))
    )


@remembered
def epochs_before(state: CoordinatorState) -> Mapping[SystemStream, int]:
    """The last epoch of the earlier topic, of each input that was created again."""
    return {stream: known.epoch_before for stream, known in state.inputs.items() if known.epoch_before}


def _lives(grant: Grant, state: CoordinatorState) -> bool:
    container = state.containers.get(grant.execution_id)
    return container is not None and container.phase in LIVING


class _ChangesSince:
    """Grants and startpoints recorded after positions were read.

    Starts of tasks that they affect are stale.
    """

    def __init__(self, epoch: int, state: CoordinatorState) -> None:
        self._grants = GrantIndex(grant for grant in state.grants.values() if grant.epoch > epoch)
        self._startpoints = StartpointIndex(
            startpoint for startpoint in state.startpoints.values() if startpoint.epoch > epoch
        )

    def affect(self, planned: PlannedTaskPut) -> bool:
        """Whether the task, or a part of it, was granted or rewound since."""
        return self._grants.clashes_with(planned) or any(map(self._startpoints.overlapping, planned.positions))

    def add(self, grant: Grant) -> None:
        """Count a grant of the same decision, so that no second one overlaps it."""
        self._grants.add(grant)


class _GrantLog:
    """The grants on the log while new ones are added.

    It names the older ones that the new ones make superfluous.
    """

    def __init__(self, state: CoordinatorState) -> None:
        self._grants = GrantIndex(state.grants.values())
        self._removed: set[int] = set()

    def superseded_by(self, newer: Grant) -> Sequence[Removed]:
        """Tombstones of the grants that newer ones cover, now that `newer` is added."""
        older = {grant.epoch: grant for start in newer.starts for _, grant in self._grants.overlapping(start.ssp_kb)}
        self._grants.add(newer)
        covered = [older[epoch] for epoch in sorted(older.keys() - self._removed) if self._is_covered(older[epoch])]
        self._removed |= {grant.epoch for grant in covered}
        return [tombstone(GrantPut(grant=grant)) for grant in covered]

    def _is_covered(self, grant: Grant) -> bool:
        """Whether grants behind `grant` give all that it gave.

        A grant that was removed is itself covered by later ones.
        """
        own = [start.ssp_kb for start in grant.starts if not start.ssp_kb.reader]
        if not all(self._is_given_anew(ssp_kb, grant.epoch) for ssp_kb in own):
            return False
        # The present owners of its buckets took over its positions in broadcast inputs too, if they still read those.
        return all(
            self._is_given_anew(start.ssp_kb, grant.epoch)
            or (own and all(self._is_given_anew(ssp_kb, grant.epoch, start.ssp_kb.ssp) for ssp_kb in own))
            for start in grant.starts
            if start.ssp_kb.reader
        )

    def _is_given_anew(
        self, wanted: SspKeyBucket, epoch: int, with_broadcast: SystemStreamPartition | None = None
    ) -> bool:
        """Whether grants behind `epoch` give all of `wanted`.

        Their tasks read `with_broadcast`.
        """
        return is_covered(
            (wanted.bucket, wanted.factor),
            (
                (start.ssp_kb.bucket, start.ssp_kb.factor)
                for start, grant in self._grants.overlapping(wanted)
                if grant.epoch > epoch and (with_broadcast is None or _reads(grant, with_broadcast))
            ),
        )


def _reads(grant: Grant, broadcast: SystemStreamPartition) -> bool:
    return any(start.ssp_kb.ssp == broadcast and start.ssp_kb.reader for start in grant.starts)


def _gives(grant: Grant, planned: PlannedTaskPut) -> bool:
    """Whether the grant gives the planned SSPKbs, in any order.

    Mostly the order is the same.
    """
    given, wanted = tuple(start.ssp_kb for start in grant.starts), planned.positions
    return given == wanted or frozenset(given) == frozenset(wanted)


def _loss_accepted(loss: LossUsed) -> LossAcceptedPut:
    return LossAcceptedPut(ssp_kb=loss.ssp_kb, offset_from=loss.offset_from, offset_to=loss.offset_to)
