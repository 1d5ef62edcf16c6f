"""Who runs which task, from where: one owner at a time (law L6), and starts computed when the last one is done.

Theory. A grant is the right of one execution to run one task. The plan says who should; a grant is given only
when every earlier grant of the task, or of any overlapping key bucket, is free:

- its execution is gone (STOPPED, or FENCED: nothing it still does can be committed), or
- it was released: the plan took it away, and a heartbeat of its execution has read past that plan and does
  not list it. Offset and list of a heartbeat are of one moment and a grant once read stands in the list
  until it is let go, so this can be read off any such heartbeat, early, late or repeated. It is recorded in
  the grant and final: should the next plan give the task back, its execution gets a new grant, and whoever
  takes over knows as much as who heard the heartbeat.

Only then are the positions read, to the end, and the starts computed: nothing can move them any more. The
start stands in the grant, so nothing written by an earlier owner can win later, whatever its offset. Positions
of the checkpoint topic count only under the epoch of the grant they were written for.

An older grant's record stays until newer grants cover all its buckets, because their starts are computed
from it. Epochs are one counter of the whole job, recorded in front of each grant; a number that was given
out and not used (a torn transaction) is simply skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from samzapy.config import AcceptedLoss
from samzapy.coordinator.commands import ContainerGone, Heartbeat, HeldGrant, LossUsed, StartsResolved, Tick
from samzapy.coordinator.liveness import LIVING, Sightings, give_up, is_expected
from samzapy.coordinator.state import CoordinatorState, tombstone
from samzapy.errors import DataError, MissingTopicError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.stream.records import (
    CoordinatorRecord,
    EpochPut,
    GrantPut,
    InputEndPut,
    LossAcceptedPut,
    PlannedTaskPut,
    Removed,
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: from `offset_first` up to, not including, `offset_end`."""

    offset_first: int
    offset_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsRead:
    """Everything of record about positions, read to the end after the earlier owners were done."""

    checkpoints: Mapping[SspKeyBucket, Checkpoint]
    progress: Mapping[SspKeyBucket, Progress]
    bounds: Mapping[SystemStreamPartition, Bounds]


@dataclass(frozen=True, slots=True)
class WantedGrant:
    """A task that may be granted now, and to whom."""

    planned: PlannedTaskPut
    execution_id: ExecutionId


def wanted_grants(state: CoordinatorState) -> tuple[WantedGrant, ...]:
    """The tasks of the plan in force that have no owner, or the wrong one, and may have the right one now."""
    newest = newest_grants(state)
    blocking = [grant for grant in state.grants_sorted if not is_free(grant, state)]
    owners = _executions_to_grant(state, newest)
    found = []
    for planned in state.plan:
        if _is_in_force(newest.get(planned.task_name), planned, state):
            continue
        execution_id = owners.get(planned.processor_id)
        if execution_id is not None and not any(_clashes(grant, planned) for grant in blocking):
            found.append(WantedGrant(planned, execution_id))
    return tuple(found)


def newest_grants(state: CoordinatorState) -> Mapping[TaskName, Grant]:
    """The grant with the highest epoch of each task."""
    return {grant.task_name: grant for grant in state.grants_sorted}


def owner_of(state: CoordinatorState, task_name: TaskName) -> Grant | None:
    """The grant under which a living execution runs the task; None while nobody does."""
    grant = newest_grants(state).get(task_name)
    return grant if grant is not None and _lives(grant, state) and not grant.released else None


def is_free(grant: Grant, state: CoordinatorState) -> bool:
    """Whether nothing can be committed under `grant` any more."""
    container = state.containers.get(grant.execution_id)
    return grant.released or (container is not None and container.is_gone)


def release(heartbeat: Heartbeat, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The grants that `heartbeat` shows to be let go: taken away by a plan that it has read, and not in its list."""
    if not is_expected(state, heartbeat) or heartbeat.stream_offset <= state.generation_offset:
        return ()
    return tuple(
        GrantPut(grant=replace(grant, released=True))
        for grant in taken_away(state)
        if grant.execution_id == heartbeat.execution_id
        and HeldGrant(grant.task_name, grant.epoch) not in heartbeat.held
    )


def taken_away(state: CoordinatorState) -> tuple[Grant, ...]:
    """The grants that living executions are to let go and have not, as far as is recorded."""
    return tuple(
        grant
        for grant in state.grants_sorted
        if not grant.released and _lives(grant, state) and _is_taken_away(grant, state)
    )


def overdue(tick: Tick, state: CoordinatorState, seen: Sightings) -> tuple[CoordinatorRecord, ...]:
    """Give up whoever does not let go for too long, as a whole: fencing sets all its tasks free."""
    found: dict[ExecutionId, str] = {}
    since_of = _since_taken_away(tick, state, seen)
    for grant in taken_away(state):
        waited_ms = tick.now_ms - since_of[HeldGrant(grant.task_name, grant.epoch)]
        if waited_ms >= tick.release_ms:
            found.setdefault(
                grant.execution_id,
                f"did not let go of {grant.task_name} for {waited_ms} ms (job.release.timeout.ms is {tick.release_ms})",
            )
    return tuple(record for name in sorted(found) for record in give_up(ContainerGone(name, found[name]), state))


def noticed_taken_away(tick: Tick, state: CoordinatorState, seen: Sightings) -> Sightings:
    """`seen`, with what is to be let go and since when."""
    since_of = _since_taken_away(tick, state, seen)
    return seen if since_of == seen.taken_away else replace(seen, taken_away=since_of)


def _since_taken_away(tick: Tick, state: CoordinatorState, seen: Sightings) -> Mapping[HeldGrant, int]:
    held = [HeldGrant(grant.task_name, grant.epoch) for grant in taken_away(state)]
    return {found: seen.taken_away.get(found, tick.now_ms) for found in held}


def grant_task(command: StartsResolved, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Grant a task from the starts that were computed for it, if all is as it was when they were asked for."""
    wanted = {(found.planned.task_name, found.execution_id): found.planned for found in wanted_grants(state)}
    planned = wanted.get((command.task_name, command.execution_id))
    if planned is None or state.generation is None or state.generation.generation != command.generation:
        return ()
    if any(grant.epoch > command.epoch_before and _clashes(grant, planned) for grant in state.grants.values()):
        return ()  # Somebody had it since the positions were read.
    assert tuple(start.ssp_kb for start in command.starts) == planned.positions, "starts of another plan"
    grant = Grant(
        task_name=planned.task_name,
        epoch=state.epoch + 1,
        execution_id=command.execution_id,
        generation=command.generation,
        partition_id=planned.partition_id,
        changelog_partition=planned.changelog_partition,
        starts=command.starts,
    )
    return (
        EpochPut(epoch=grant.epoch),
        *_ends_fixed(command, state),
        *(_loss_accepted(loss) for loss in command.losses),
        GrantPut(grant=grant),
        *_superseded(grant, state),
    )


def _ends_fixed(command: StartsResolved, state: CoordinatorState) -> Iterable[InputEndPut]:
    """The ends that this run has not fixed yet: the first word counts, for all tasks and whoever is granted them."""
    if state.run is None:
        return
    for ssp, offset_end in command.ends:
        if input_end(state, ssp) is None:
            yield InputEndPut(ssp=ssp, run_id=state.run.run_id, offset_end=offset_end)


def input_end(state: CoordinatorState, ssp: SystemStreamPartition) -> int | None:
    """Up to where the run that is on reads `ssp`; None while that is not fixed."""
    found = state.input_ends.get(ssp)
    return (
        found.offset_end if found is not None and state.run is not None and found.run_id == state.run.run_id else None
    )


def starts_of(
    planned: PlannedTaskPut,
    grants: Iterable[Grant],
    read: PositionsRead,
    *,
    offset_default_of: Mapping[SystemStreamPartition, str],
    accepted_losses: Sequence[AcceptedLoss],
    epoch_before_of: Mapping[SystemStreamPartition, int] | None = None,
) -> tuple[tuple[BucketStart, ...], tuple[LossUsed, ...]]:
    """Where each bucket of a task is to begin (the start rule of design section 6, for all earlier owners).

    Args:
        grants: every grant on the log.
        offset_default_of: `oldest` or `upcoming` for each SSP of the task, used where it was never granted.
        accepted_losses: the operator's word for ranges that retention took. One counts only when it begins
            exactly where the bucket stands and reaches to what the topic still holds: a word given for an
            earlier loss does not cover a later one.
        epoch_before_of: for SSPs that each run begins anew: grants up to this epoch are of earlier runs.

    Returns:
        A start for each SSPKb, and the losses that were used. A start outside what the topic holds, and not
        accepted, is returned as it is: the container stops that bucket by name.
    """
    by_epoch = sorted(grants, key=lambda grant: grant.epoch)
    starts: list[BucketStart] = []
    losses: list[LossUsed] = []
    for ssp_kb in planned.positions:
        bounds = read.bounds.get(ssp_kb.ssp)
        if bounds is None:
            raise MissingTopicError(
                f"wanted the bounds of input {ssp_kb.ssp} for task {planned.task_name}, found no such partition; "
                "was its topic deleted?"
            )
        counted_after = (epoch_before_of or {}).get(ssp_kb.ssp, 0)
        offset = _position(ssp_kb, [grant for grant in by_epoch if grant.epoch > counted_after], read)
        if offset is None:
            default = offset_default_of[ssp_kb.ssp]
            offset = bounds.offset_first if default == "oldest" else bounds.offset_end
        elif offset < bounds.offset_first and _is_accepted(ssp_kb, offset, bounds, accepted_losses):
            losses.append(LossUsed(ssp_kb, offset, bounds.offset_first))
            offset = bounds.offset_first
        starts.append(BucketStart(ssp_kb=ssp_kb, offset_next=offset))
    return tuple(starts), tuple(losses)


def _position(ssp_kb: SspKeyBucket, by_epoch: Sequence[Grant], read: PositionsRead) -> int | None:
    """How far the bucket was processed; None if it was never granted."""
    found: int | None = None
    for grant in by_epoch:
        for start in grant.starts:
            if not start.ssp_kb.overlaps(ssp_kb):
                continue
            if start.ssp_kb.factor > ssp_kb.factor or start.floors:
                raise DataError(
                    f"wanted grants of factor {ssp_kb.factor} or less for {ssp_kb}, found {start.ssp_kb} (epoch "
                    f"{grant.epoch}); this release cannot join key buckets: upgrade this process"
                )
            # A later grant began where the earlier ones had come to, so the newest one decides.
            found = reached(grant, start, read)
    return found


def reached(grant: Grant, start: BucketStart, read: PositionsRead) -> int:
    """How far a bucket came under `grant`; what was written under other epochs does not count."""
    written = (read.checkpoints.get(start.ssp_kb), read.progress.get(start.ssp_kb))
    return max(
        start.offset_next,
        *(found.offset_next for found in written if found is not None and found.epoch == grant.epoch),
        0,
    )


def _is_accepted(ssp_kb: SspKeyBucket, offset: int, bounds: Bounds, accepted_losses: Sequence[AcceptedLoss]) -> bool:
    return any(
        SspKeyBucket.parse(loss.ssp_kb) == ssp_kb
        and loss.offset_from == offset
        and loss.offset_to >= bounds.offset_first
        for loss in accepted_losses
    )


def _executions_to_grant(
    state: CoordinatorState, newest: Mapping[TaskName, Grant]
) -> Mapping[ProcessorId, ExecutionId]:
    """The execution that gets a processor's tasks; of several that live, the one that has most of them."""
    counts: dict[ExecutionId, int] = {}
    for grant in newest.values():
        counts[grant.execution_id] = counts.get(grant.execution_id, 0) + 1
    living = [container for container in state.containers_sorted if container.phase in LIVING]
    # The last one set stays: the largest count and, among equals, the smallest id.
    ordered = sorted(living, key=lambda found: (-counts.get(found.execution_id, 0), found.execution_id))
    return {container.processor_id: container.execution_id for container in reversed(ordered)}


def _is_in_force(grant: Grant | None, planned: PlannedTaskPut, state: CoordinatorState) -> bool:
    return (
        grant is not None
        and not grant.released
        and _lives(grant, state)
        and state.containers[grant.execution_id].processor_id == planned.processor_id
        and _buckets(grant) == frozenset(planned.positions)
    )


def _is_taken_away(grant: Grant, state: CoordinatorState) -> bool:
    """Whether the plan in force gives the task, with these buckets, to another processor, or to none."""
    if state.generation is None:
        return False
    planned = state.planned_tasks.get((state.generation.generation, grant.task_name))
    container = state.containers.get(grant.execution_id)
    return (
        planned is None
        or container is None
        or container.processor_id != planned.processor_id
        or _buckets(grant) != frozenset(planned.positions)
    )


def _lives(grant: Grant, state: CoordinatorState) -> bool:
    container = state.containers.get(grant.execution_id)
    return container is not None and container.phase in LIVING


def _clashes(grant: Grant, planned: PlannedTaskPut) -> bool:
    return grant.task_name == planned.task_name or any(
        start.ssp_kb.overlaps(ssp_kb) for start in grant.starts for ssp_kb in planned.ssp_kbs
    )


def _superseded(newer: Grant, state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of the grants that are covered by newer ones, now that `newer` is among them."""
    grants = [*state.grants_sorted, newer]
    found = []
    for index, grant in enumerate(grants[:-1]):
        overlapping = any(start.ssp_kb.overlaps(ssp_kb) for start in grant.starts for ssp_kb in _buckets(newer))
        having = [start.ssp_kb for later in grants[index + 1 :] for start in later.starts]
        if overlapping and all(_is_covered(start.ssp_kb, having) for start in grant.starts):
            found.append(tombstone(GrantPut(grant=grant)))
    return tuple(found)


def _is_covered(wanted: SspKeyBucket, having: Sequence[SspKeyBucket]) -> bool:
    same = [ssp_kb for ssp_kb in having if (ssp_kb.ssp, ssp_kb.reader) == (wanted.ssp, wanted.reader)]
    finest = max((wanted.factor, *(ssp_kb.factor for ssp_kb in same)))
    return all(
        any(bucket % ssp_kb.factor == ssp_kb.bucket for ssp_kb in same)
        for bucket in range(wanted.bucket, finest, wanted.factor)
    )


def _buckets(grant: Grant) -> frozenset[SspKeyBucket]:
    return frozenset(start.ssp_kb for start in grant.starts)


def _loss_accepted(loss: LossUsed) -> LossAcceptedPut:
    return LossAcceptedPut(ssp_kb=loss.ssp_kb, offset_from=loss.offset_from, offset_to=loss.offset_to)
