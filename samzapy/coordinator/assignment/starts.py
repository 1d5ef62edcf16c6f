"""The offsets from which a task starts in its next grant.

They follow from the progress of its key buckets under all earlier grants.

Theory. Positions are computed per key bucket of the finest factor in play, so a split, a merge, and a change on top
of an unfinished one are the same thing. For each such bucket the newest grant that covers it decides, because that one
began at the positions of the earlier ones. The position of the bucket is the largest of the grant's start, the
committed offset under the grant's epoch, and the grant's floor for it. If a startpoint is newer than that grant, it is
the startpoint.

- *Split*: each child has the position of its parent.
- *Merge*: the start is the smallest of the buckets' positions, and each bucket that is ahead of it gets a floor. So
  nothing is lost, and nothing is done twice.

A broadcast input has no buckets: its positions are the task's. A task with parents takes the positions of
*one* of them, all together, and that parent's copy of its state from broadcast messages (`Grant.broadcast_parent`):
positions of several parents would belong to no state that ever was. It is the parent whose list of positions, in SSP
order, is the smallest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.grant_values import LossUsed
from samzapy.errors import MissingTopicError, TruncatedTopicError
from samzapy.model.grant import BucketStart, Floor, Grant
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.startpoint import StartpointIndex
from samzapy.plan.task_names import TaskNameParts

if TYPE_CHECKING:
    from samzapy.config import AcceptedLoss
    from samzapy.model.checkpoint import Checkpoint, Progress
    from samzapy.model.job import TaskName
    from samzapy.stream.records import PlannedTaskPut

NO_STARTPOINTS: Final = StartpointIndex()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets in a partition.

    They reach from `offset_first` up to, not including, `offset_end`.
    """

    offset_first: int
    offset_end: int


ChangelogPlace = tuple[str, int]
"""A store and a partition of its changelog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsRead:
    """All records of positions, read to the end after the earlier owners were done.

    `changelog_ends`: the high watermarks of those that were asked for.
    """

    checkpoints: Mapping[SspKeyBucket, Checkpoint]
    progress: Mapping[SspKeyBucket, Progress]
    bounds: Mapping[SystemStreamPartition, Bounds]
    changelog_ends: Mapping[ChangelogPlace, int] = field(default_factory=dict)


def refuse_newer_positions(read: PositionsRead, epoch: int, *, topic: str) -> None:
    """Refuse a coordinator stream that lacks a decision on which positions rest.

    Each position names the epoch of its grant, and an epoch is recorded before it is granted (law L4). So a position of
    a newer epoch than the stream's last one means that the stream lost records.

    Args:
        epoch: the last one that the stream has given out.
        topic: the coordinator stream's.

    Raises:
        TruncatedTopicError: names the position.
    """
    newest = max(read.checkpoints.values(), key=lambda checkpoint: checkpoint.epoch, default=None)
    if newest is not None and newest.epoch > epoch:
        raise TruncatedTopicError(
            f"wanted {topic} to hold the grant of epoch {newest.epoch}, under which {newest.execution_id} committed "
            f"{newest.ssp_kb} at offset {newest.offset_next}, found that the last epoch there is {epoch}: the stream "
            'lost records, or was deleted and made again; see docs/guides/doctor.md, "Topics that became shorter"'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """The starts of a task, and the facts that they rest on.

    Attributes:
        of_buckets: one for each of the task's positions. A start outside the topic's offsets that was not accepted is
            left as it is: the container stops that bucket with a named error.
        losses: the ranges that the operator accepted as lost.
        broadcast_parent, epoch_rewound: as of `model.grant.Grant`.
    """

    of_buckets: tuple[BucketStart, ...]
    losses: tuple[LossUsed, ...]
    broadcast_parent: str = ""
    epoch_rewound: int = 0


class GrantIndex:
    """Grants indexed by their SSPs, so that overlapping ones need no full scan.

    A job may have 10,000 tasks, and a change of its plan may concern all of them.
    """

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._newest: dict[TaskName, Grant] = {}
        self._grants: dict[tuple[SystemStreamPartition, str], list[tuple[BucketStart, Grant]]] = {}
        for grant in grants:
            self.add(grant)

    def add(self, grant: Grant) -> None:
        known = self._newest.get(grant.task_name)
        if known is None or known.epoch < grant.epoch:
            self._newest[grant.task_name] = grant
        for start in grant.starts:
            place = start.ssp_kb.ssp, start.ssp_kb.reader
            self._grants.setdefault(place, []).append((start, grant))

    def discard(self, grant: Grant) -> None:
        """Take back an `add`. That its task was granted stays known."""
        for start in grant.starts:
            place = start.ssp_kb.ssp, start.ssp_kb.reader
            self._grants[place] = [item for item in self._grants[place] if item[1] is not grant]

    def newest_of(self, task_name: TaskName) -> Grant | None:
        """The task's grant with the highest epoch."""
        return self._newest.get(task_name)

    def overlapping(self, ssp_kb: SspKeyBucket) -> Sequence[tuple[BucketStart, Grant]]:
        """The grants that give messages of `ssp_kb`, with their starts; the oldest first."""
        overlapping = [
            item for item in self._grants.get((ssp_kb.ssp, ssp_kb.reader), ()) if item[0].ssp_kb.overlaps(ssp_kb)
        ]
        return sorted(overlapping, key=lambda item: item[1].epoch)

    def clashes_with(self, planned: PlannedTaskPut) -> bool:
        """Whether a grant is of the task, or of any of its buckets that have one owner."""
        return planned.task_name in self._newest or any(
            start.ssp_kb.overlaps(ssp_kb)
            for ssp_kb in planned.ssp_kbs
            for start, _ in self._grants.get((ssp_kb.ssp, ssp_kb.reader), ())
        )


def starts_of(
    planned: PlannedTaskPut,
    grants: GrantIndex,
    read: PositionsRead,
    *,
    offset_default_of: Mapping[SystemStreamPartition, str],
    accepted_losses: Sequence[AcceptedLoss],
    epoch_before_of: Mapping[SystemStreamPartition, int] | None = None,
    startpoints: StartpointIndex = NO_STARTPOINTS,
) -> Starts:
    """The start of each bucket of a task, from all earlier owners.

    Args:
        grants: every grant on the log.
        offset_default_of: `oldest` or `upcoming` for each SSP of the task, used where it was never granted.
        accepted_losses: ranges that retention deleted and that the operator accepts. One counts only when it begins
            exactly at the bucket's position and reaches to the topic's first offset: an acceptance of an
            earlier loss does not cover a later one.
        epoch_before_of: for SSPs that the run begins again: grants and startpoints up to this epoch are of earlier
        runs. startpoints: every one on the log.

    Raises:
        MissingTopicError: the bounds of one of the task's SSPs were not found.
    """
    starts: list[BucketStart] = []
    losses: list[LossUsed] = []
    known = _Known(grants, startpoints, read, epoch_before_of or {})
    parent = _broadcast_parent(planned, known)
    for ssp_kb in planned.positions:
        bounds = read.bounds.get(ssp_kb.ssp)
        if bounds is None:
            raise MissingTopicError(
                f"wanted the bounds of input {ssp_kb.ssp} for task {planned.task_name}, found no such partition; "
                "was its topic deleted?"
            )
        default = bounds.offset_first if offset_default_of[ssp_kb.ssp] == "oldest" else bounds.offset_end
        if ssp_kb.reader:
            offset = _broadcast_start(ssp_kb, parent, known)
            start = BucketStart(ssp_kb=ssp_kb, offset_next=default if offset is None else offset)
            is_known = offset is not None
        else:
            positions = _positions(ssp_kb, known)
            start = _joined(ssp_kb, [default if position is None else position for position in positions])
            is_known = any(position is not None for position in positions)
        if is_known and start.offset_next < bounds.offset_first:
            start, lost = _given_up(start, bounds, accepted_losses)
            losses += lost
        starts.append(start)
    source = "" if parent is None else _source_of_copy(parent, read)
    return Starts(
        of_buckets=tuple(starts),
        losses=tuple(losses),
        broadcast_parent="" if source == planned.task_name else source,
        epoch_rewound=_epoch_rewound(planned, parent, grants, startpoints),
    )


def kin_of(plan: Iterable[PlannedTaskPut]) -> Mapping[TaskName, Sequence[PlannedTaskPut]]:
    """By base task, its parts in a plan that read broadcast inputs."""
    parts: dict[TaskName, list[PlannedTaskPut]] = {}
    for planned in plan:
        if planned.broadcast_ssps:
            parts.setdefault(TaskNameParts.parse(planned.task_name).base_name, []).append(planned)
    return parts


def copies_awaited(
    planned: PlannedTaskPut,
    kin: Mapping[TaskName, Sequence[PlannedTaskPut]],
    grants: GrantIndex,
    read: PositionsRead,
    *,
    epoch_before_of: Mapping[SystemStreamPartition, int] | None = None,
    startpoints: StartpointIndex = NO_STARTPOINTS,
) -> tuple[TaskName, ...]:
    """Other parts of the base task that still copy broadcast stores from this one.

    Their copy is under the name of `planned`, which would write to it, so `planned` waits for them.

    A change on top of one that never began leads there: 4 buckets, 1, and 4 again before the one task had its first
    start. Its copy is still that of the part that it took over, and that part is a task of the new plan.
    """
    known = _Known(grants, startpoints, read, epoch_before_of or {})
    return tuple(
        part.task_name
        for part in kin.get(TaskNameParts.parse(planned.task_name).base_name, ())
        if part.task_name != planned.task_name
        and (parent := _broadcast_parent(part, known)) is not None
        and _source_of_copy(parent, read) == planned.task_name
    )


def reached(grant: Grant, start: BucketStart, read: PositionsRead) -> int:
    """The position of a bucket under `grant`; records under other epochs do not count.

    Some buckets with floors may be further: their position is their floor.
    """
    return max(start.offset_next, *_written(grant, start, read), 0)


def _written(grant: Grant, start: BucketStart, read: PositionsRead) -> Sequence[int]:
    """The positions of record that were written for `start` under `grant`."""
    records = (read.checkpoints.get(start.ssp_kb), read.progress.get(start.ssp_kb))
    return [item.offset_next for item in records if item is not None and item.epoch == grant.epoch]


@dataclass(frozen=True, slots=True)
class _Known:
    """The input of the computation of positions, as the arguments of `starts_of`."""

    grants: GrantIndex
    startpoints: StartpointIndex
    read: PositionsRead
    epoch_before_of: Mapping[SystemStreamPartition, int]

    def decisions(self, ssp_kb: SspKeyBucket) -> Sequence[tuple[int, BucketStart]]:
        """The decisions about messages of `ssp_kb`, with the positions that follow.

        The oldest comes first. A grant's position is read under its epoch; a startpoint's is the requested offset.
        """
        counted_after = self.epoch_before_of.get(ssp_kb.ssp, 0)
        decisions = [
            (grant.epoch, replace(start, offset_next=reached(grant, start, self.read)))
            for start, grant in self.grants.overlapping(ssp_kb)
        ]
        decisions += [
            (startpoint.epoch, BucketStart(ssp_kb=startpoint.ssp_kb, offset_next=startpoint.offset_next))
            for startpoint in self.startpoints.overlapping(ssp_kb)
        ]
        return sorted((item for item in decisions if item[0] > counted_after), key=lambda item: item[0])


def _positions(ssp_kb: SspKeyBucket, known: _Known) -> Sequence[int | None]:
    """How far each part of a bucket is; None where nothing was decided about it.

    The parts are its buckets of the finest factor in play, in their order.
    """
    decisions = known.decisions(ssp_kb)
    finest = max((ssp_kb.factor, *(start.finest_factor for _, start in decisions)))
    positions: dict[int, int] = {}
    for _, start in decisions:  # The oldest first, so the newest stays.
        positions |= start.positions(finest)
    return [positions.get(bucket) for bucket in range(ssp_kb.bucket, finest, ssp_kb.factor)]


def _joined(ssp_kb: SspKeyBucket, positions: Sequence[int]) -> BucketStart:
    """A start for buckets at `positions`: the smallest, with floors for those ahead.

    Args:
        positions: of the buckets of the finest factor that `ssp_kb` consists of, in their order.
    """
    first, finest = min(positions), ssp_kb.factor * len(positions)
    floors: list[Floor] = []

    def add(bucket: int, factor: int) -> None:
        """The floors of a bucket: one for a single offset, else those of its two halves."""
        ahead = {positions[(part - ssp_kb.bucket) // ssp_kb.factor] for part in range(bucket, finest, factor)}
        if len(ahead) > 1:
            add(bucket, 2 * factor)
            add(bucket + factor, 2 * factor)
        elif ahead != {first}:
            floors.append(Floor(ssp_kb=SspKeyBucket(ssp_kb.ssp, bucket, factor), offset_next=ahead.pop()))

    add(ssp_kb.bucket, ssp_kb.factor)
    return BucketStart(
        ssp_kb=ssp_kb,
        offset_next=first,
        floors=tuple(sorted(floors, key=lambda floor: (floor.ssp_kb.factor, floor.ssp_kb.bucket))),
    )


def _given_up(
    start: BucketStart, bounds: Bounds, accepted_losses: Sequence[AcceptedLoss]
) -> tuple[BucketStart, Sequence[LossUsed]]:
    """The start moved to the topic's first offset, if the operator accepted the loss."""
    first = bounds.offset_first
    if not any(
        SspKeyBucket.parse(loss.ssp_kb) == start.ssp_kb
        and loss.offset_from == start.offset_next
        and loss.offset_to >= first
        for loss in accepted_losses
    ):
        return start, ()
    floors = tuple(floor for floor in start.floors if floor.offset_next > first)
    moved = BucketStart(ssp_kb=start.ssp_kb, offset_next=first, floors=floors)
    return moved, (LossUsed(start.ssp_kb, start.offset_next, first),)


# --- broadcast inputs ---


def _broadcast_parent(planned: PlannedTaskPut, known: _Known) -> Grant | None:
    """The grant with the broadcast positions that a task takes over; None if none."""
    if not planned.broadcast_ssps:
        return None
    parents: dict[int, Grant] = {}
    for ssp_kb in planned.ssp_kbs:
        for grant in _deciding(ssp_kb, known.grants, known.epoch_before_of.get(ssp_kb.ssp, 0)):
            parents[grant.epoch] = grant
    if not parents:
        return known.grants.newest_of(planned.task_name)
    ssps = sorted(planned.broadcast_ssps)

    def positions(grant: Grant) -> list[int]:
        offsets = (_broadcast_position(grant, ssp, known) for ssp in ssps)
        return [-1 if offset is None else offset for offset in offsets]

    return min((parents[epoch] for epoch in sorted(parents)), key=positions)


def _deciding(ssp_kb: SspKeyBucket, grants: GrantIndex, counted_after: int) -> Iterable[Grant]:
    """The grants that are the newest of some part of a bucket."""
    given = [(start.ssp_kb, grant) for start, grant in grants.overlapping(ssp_kb) if grant.epoch > counted_after]
    finest = max((ssp_kb.factor, *(kb.factor for kb, _ in given)))
    newest: dict[int, Grant] = {}
    for kb, grant in given:
        newest.update(dict.fromkeys(range(kb.bucket, finest, kb.factor), grant))
    return (newest[bucket] for bucket in range(ssp_kb.bucket, finest, ssp_kb.factor) if bucket in newest)


def _broadcast_position(parent: Grant, ssp: SystemStreamPartition, known: _Known) -> int | None:
    """The position of the parent's task in a broadcast input.

    It may not have been an input when the parent was granted.
    """
    decisions = known.decisions(SspKeyBucket(ssp, reader=parent.task_name))
    return decisions[-1][1].offset_next if decisions else None


def _broadcast_start(ssp_kb: SspKeyBucket, parent: Grant | None, known: _Known) -> int | None:
    """The start of a task in a broadcast input.

    It is its parent's position, unless its own position was rewound since.
    """
    if parent is None or parent.task_name == ssp_kb.reader:
        own = known.decisions(ssp_kb)
        return own[-1][1].offset_next if own else None
    startpoints = known.startpoints.overlapping(ssp_kb)
    if startpoints and startpoints[-1].epoch > max(parent.epoch, known.epoch_before_of.get(ssp_kb.ssp, 0)):
        return startpoints[-1].offset_next
    return _broadcast_position(parent, ssp_kb.ssp, known)


def _epoch_rewound(
    planned: PlannedTaskPut, parent: Grant | None, grants: GrantIndex, startpoints: StartpointIndex
) -> int:
    """The newest startpoint on which the positions of a task may rest.

    It is its own, or one on which earlier grants rest.
    """
    epoch = 0 if parent is None else parent.epoch_rewound
    for ssp_kb in planned.positions:
        epoch = max((epoch, *(grant.epoch_rewound for _, grant in grants.overlapping(ssp_kb))))
        epoch = max((epoch, *(startpoint.epoch for startpoint in startpoints.overlapping(ssp_kb))))
    return epoch


def _source_of_copy(grant: Grant, read: PositionsRead) -> str:
    """The task whose name the copy has that belongs to a grant's broadcast positions.

    It is its own name once a commit was made under it: a container completes the copy before its first message. Before
    that it may have no copy yet, and its parent's is still the same.
    """
    has_begun = any(_written(grant, start, read) for start in grant.starts)
    return grant.task_name if has_begun or not grant.broadcast_parent else grant.broadcast_parent
