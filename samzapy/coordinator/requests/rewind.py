"""Move the input offsets of a running job: `job rewind`.

These are Samza's startpoints (SEP-18).

Theory. The record `startpoint/<ssp_kb>` holds the offset from which each selected SSPKb is to be read. Its epoch comes
from the counter that numbers grants. Everything else follows from that, as it does from a plan: a grant with an older
epoch is revoked, the released task is granted again, and its start is computed from the newest startpoint of each part
(`coordinator.assignment.starts`). So a rewind during a scale, a failover during a rewind, and two rewinds in a row need
no rule of their own. Tasks that are not selected keep their grants and positions.

Only the cluster knows the offsets of `oldest` or of a time, so a request whose turn has come first becomes an action.
The action's result turns the target into offsets, once: the startpoints are written first, then the request as
IN_PROGRESS. If the transaction is torn between them, the cluster is asked again, and the startpoints that are recorded
under the uuid of the request stay as they are.

A startpoint is removed when newer grants cover all that it is for, and no unfinished request refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.grants import not_at_work
from samzapy.coordinator.assignment.initial_offsets import begun_anew, offset_defaults
from samzapy.coordinator.assignment.replanning import config_of
from samzapy.coordinator.assignment.starts import GrantIndex, PositionsRead, starts_of
from samzapy.coordinator.launching.suspension import resumed
from samzapy.coordinator.requests.handler import (
    RequestHandler,
    Review,
    begun,
    counted,
    ended,
    refused_generation,
    with_progress,
)
from samzapy.coordinator.state import CoordinatorState, sorted_processors, tombstone
from samzapy.model.job import TaskName
from samzapy.model.placement import (
    UNFINISHED,
    Action,
    Mark,
    Phase,
    Refusal,
    Rewind,
    StatusCode,
    Target,
    recorded_arguments,
    rewind_of,
)
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition, is_covered
from samzapy.model.startpoint import Startpoint, StartpointIndex
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, EpochPut, PlannedTaskPut, Removed, RequestPut, StartpointPut

if TYPE_CHECKING:
    from samzapy.coordinator.commands import OffsetBounds, OffsetBoundsRead


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBoundsWanted:
    """The offset bounds that a request needs from the cluster when its turn comes."""

    uuid: str
    ssps: tuple[SystemStreamPartition, ...]
    timestamp_ms: int | None


def rewind_wanted(request: RequestPut) -> Rewind:
    """The rewind that an accepted request asks for."""
    return rewind_of(recorded_arguments(request.arguments))


def refused_rewind(wanted: Rewind, state: CoordinatorState) -> Refusal | None:
    """Why a rewind cannot begin on the plan in force; None if it can."""
    return (
        _refused_input(wanted, state) or _refused_readers(wanted, state.plan) or _refused_target(wanted, state.plan)
    )


def _refused_input(wanted: Rewind, state: CoordinatorState) -> Refusal | None:
    """Why the stream or partition cannot be rewound; None if it can."""
    stream = wanted.stream
    read = {ssp_kb.ssp for planned in state.plan for ssp_kb in planned.positions}
    streams = sorted({ssp.system_stream for ssp in read})
    if stream not in streams:
        return Refusal(
            f"stream: wanted an input of the job ({some(streams) or 'no plan is in force'}), found {_cut(stream)}"
        )
    if config_of(state).is_bounded(str(stream)):
        return Refusal(
            f"stream: wanted an input that is read for ever, found {stream}, which a run reads from its beginning to "
            "where it ended (samza.offset.end); the next run reads it anew"
        )
    partitions = sorted({ssp.partition for ssp in read if ssp.system_stream == stream})
    if wanted.partition is not None and wanted.partition not in partitions:
        return Refusal(
            f"partition: wanted one of {stream} that is read ({some(partitions)}), found {wanted.partition}"
        )
    return None


def _refused_readers(wanted: Rewind, plan: Sequence[PlannedTaskPut]) -> Refusal | None:
    """Why the task or processor cannot be selected; None if it can."""
    tasks = [planned.task_name for planned in plan]
    if wanted.task is not None and wanted.task not in tasks:
        return Refusal(f"task: wanted one of the plan in force ({some(tasks)}), found {_cut(wanted.task)}")
    processors = sorted_processors({planned.processor_id for planned in plan})
    if wanted.processor is not None and wanted.processor not in processors:
        return Refusal(f"processor: wanted one that has tasks ({some(processors)}), found {_cut(wanted.processor)}")
    return None


def _refused_target(wanted: Rewind, plan: Sequence[PlannedTaskPut]) -> Refusal | None:
    """Why the selected positions cannot move to the target; None if they can."""
    stream, ssps = wanted.stream, {ssp_kb.ssp for _, ssp_kb in meant(wanted, plan)}
    if not ssps:
        return Refusal(f"stream: wanted one that {_reader(wanted)} reads, found {stream}, of which it reads nothing")
    if wanted.to.mark is Mark.OFFSET and len(ssps) > 1:
        return Refusal(
            f"to: wanted oldest, newest or a time for {len(ssps)} partitions of {stream}, found one offset, which is a "
            "place in one partition: name the partition"
        )
    return None


def meant(wanted: Rewind, plan: Iterable[PlannedTaskPut]) -> Sequence[tuple[TaskName, SspKeyBucket]]:
    """The positions that a rewind selects, with their tasks, in the plan's order."""
    return [
        (planned.task_name, ssp_kb)
        for planned in plan
        if wanted.task in (None, planned.task_name) and wanted.processor in (None, planned.processor_id)
        for ssp_kb in planned.positions
        if ssp_kb.ssp.system_stream == wanted.stream and wanted.partition in (None, ssp_kb.ssp.partition)
    ]


def offset_of(target: Target, bounds: OffsetBounds) -> int:
    """The offset of `target` in a partition, within the bounds of the partition.

    Raises:
        ValueError: the partition does not hold the offset.
    """
    match target.mark:
        case Mark.OLDEST:
            return bounds.offset_first
        case Mark.NEWEST:
            return bounds.offset_end
        case Mark.TIME:
            assert bounds.offset_at is not None, "a time was asked for"
            # The offset of a time may be past the last committed record, and no task can begin there.
            return min(max(bounds.offset_at, bounds.offset_first), bounds.offset_end)
        case Mark.OFFSET:
            if not bounds.offset_first <= target.number <= bounds.offset_end:
                raise ValueError(
                    f"to: wanted an offset from {bounds.offset_first}, where the partition begins, to "
                    f"{bounds.offset_end}, where it ends, found {target.number}"
                )
            return target.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The change of a position: from one offset to another.

    Attributes:
        offset_from: the offset where the task would begin if it were granted again now.
    """

    task_name: TaskName
    ssp_kb: SspKeyBucket
    offset_from: int
    offset_to: int


def moves(
    wanted: Rewind,
    state: CoordinatorState,
    read: PositionsRead,
    offset_bounds: Mapping[SystemStreamPartition, OffsetBounds],
) -> Sequence[Move]:
    """For people: the changes that a rewind would make.

    Args:
        read: the positions of all inputs of its tasks.

    Raises:
        ValueError: see `offset_of`.
    """
    grants, startpoints = GrantIndex(state.grants.values()), StartpointIndex(state.startpoints.values())
    positions = meant(wanted, state.plan)
    tasks = {task_name for task_name, _ in positions}
    config = config_of(state)
    begins: dict[SspKeyBucket, int] = {}
    for planned in state.plan:
        if planned.task_name not in tasks:
            continue
        starts = starts_of(
            planned,
            grants,
            read,
            offset_default_of=offset_defaults(planned, state, config),
            accepted_losses=(),
            epoch_before_of=begun_anew(planned, state, config),
            startpoints=startpoints,
        )
        begins.update((start.ssp_kb, start.offset_next) for start in starts.of_buckets)
    return [
        Move(
            task_name=task_name,
            ssp_kb=ssp_kb,
            offset_from=begins[ssp_kb],
            offset_to=offset_of(wanted.to, offset_bounds[ssp_kb.ssp]),
        )
        for task_name, ssp_kb in positions
    ]


def offset_bounds_wanted(state: CoordinatorState) -> tuple[OffsetBoundsWanted, ...]:
    """The bounds to read from the cluster for the next request; at most one."""
    request = _next(state)
    if request is None:
        return ()
    wanted = rewind_wanted(request)
    if refused_generation(request, state) or refused_rewind(wanted, state):
        return ()  # The review of the request refuses it.
    return (
        OffsetBoundsWanted(
            uuid=request.uuid,
            ssps=tuple(sorted({ssp_kb.ssp for _, ssp_kb in meant(wanted, state.plan)})),
            timestamp_ms=wanted.to.number if wanted.to.mark is Mark.TIME else None,
        ),
    )


def offset_bounds_read(command: OffsetBoundsRead, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The startpoints of a request that is still next, or its refusal.

    The request is refused if a partition does not hold the offset.
    """
    request = _next(state)
    if request is None or request.uuid != command.uuid:
        return ()
    wanted = rewind_wanted(request)
    positions = [ssp_kb for _, ssp_kb in meant(wanted, state.plan)]
    if refused_generation(request, state):
        return ()  # The review of the request refuses it.
    if refused_rewind(wanted, state) or not command.offset_bounds.keys() >= {ssp_kb.ssp for ssp_kb in positions}:
        return ()  # The plan has changed since the bounds were read; they are read again.
    text = f"{len(positions)} positions in {wanted.stream} go to {wanted.to}"
    moves = begun(request, text, command.now_ms, phase=Phase.STARTING)
    epoch = state.epoch + 1
    try:
        startpoints = _startpoints(request, positions, epoch, command, state)
    except ValueError as error:
        return (ended(request, StatusCode.FAILED, f"{error}; nothing was done", command.now_ms),)
    tasks = {task_name for task_name, _ in meant(wanted, state.plan)}
    resumptions = resumed((planned.processor_id for planned in state.plan if planned.task_name in tasks), state)
    return (EpochPut(epoch=epoch), *startpoints, *resumptions, moves) if startpoints else (*resumptions, moves)


def _startpoints(
    request: RequestPut,
    positions: Iterable[SspKeyBucket],
    epoch: int,
    command: OffsetBoundsRead,
    state: CoordinatorState,
) -> Sequence[StartpointPut]:
    """The startpoints of a request that are not recorded yet.

    Raises:
        ValueError: see `offset_of`.
    """
    target = rewind_wanted(request).to
    recorded = StartpointIndex(
        startpoint for startpoint in state.startpoints.values() if startpoint.uuid == request.uuid
    )
    return [
        StartpointPut(
            startpoint=Startpoint(
                ssp_kb=ssp_kb,
                offset_next=offset_of(target, command.offset_bounds[ssp_kb.ssp]),
                epoch=epoch,
                uuid=request.uuid,
            )
        )
        for ssp_kb in sorted(positions)
        if not _is_recorded(ssp_kb, recorded)
    ]


def awaited(request: RequestPut, review: Review) -> tuple[TaskName, ...]:
    """The rewound tasks that do not work from their startpoints yet, in task order."""
    idle = frozenset(not_at_work(review.state, review.liveness))
    return tuple(task_name for task_name in _rewound(request, review.state) if task_name in idle)


def _rewound(request: RequestPut, state: CoordinatorState) -> Sequence[TaskName]:
    startpoints = StartpointIndex(
        startpoint for startpoint in state.startpoints.values() if startpoint.uuid == request.uuid
    )
    return [planned.task_name for planned in state.plan if any(map(startpoints.overlapping, planned.positions))]


def progress_text(request: RequestPut, review: Review) -> str:
    """For people: the tasks that the rewind waits for."""
    waiting = awaited(request, review)
    return f"{len(waiting)} tasks are not at work yet ({some(waiting)})"


def begin(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Refuse the rewind, or do nothing. See `RequestHandler`.

    The offset bounds from the cluster begin it (`offset_bounds_read`).
    """
    reason = refused_rewind(rewind_wanted(request), review.state)
    return (ended(request, StatusCode.FAILED, f"{reason}; nothing was done", review.now_ms),) if reason else ()


def advance(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Do nothing. See `RequestHandler`.

    The startpoints are recorded before the request is IN_PROGRESS, and grants follow from them.
    """
    return ()


def progress(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Report how many tasks work from there, once some do. See `RequestHandler`."""
    of = len(_rewound(request, review.state))
    at_work = of - len(awaited(request, review))
    if at_work:
        yield from with_progress(request, f"{_summary(request)}; {counted(at_work, of)} tasks are at work from there")


def completion(request: RequestPut, review: Review) -> str | None:
    """The positions that were rewound. See `RequestHandler`."""
    if awaited(request, review):
        return None
    return f"{_summary(request)}: done {review.ms_since(request.decided_at_ms)} ms after that was recorded"


def _summary(request: RequestPut) -> str:
    """The message that the request began with."""
    return request.response_message.partition("; ")[0]


def timeout_reason(request: RequestPut, review: Review) -> str:
    """The tasks that the rewind waits for. See `RequestHandler`."""
    return f"{progress_text(request, review)}. They begin there as soon as they are granted anew"


def taken_up(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of the startpoints that are no longer needed."""
    if not state.startpoints:
        return ()
    unfinished = {request.uuid for request in state.requests.values() if request.status_code in UNFINISHED}
    grants = GrantIndex(state.grants.values())
    return tuple(
        tombstone(StartpointPut(startpoint=startpoint))
        for startpoint in (state.startpoints[ssp_kb] for ssp_kb in sorted(state.startpoints))
        if startpoint.uuid not in unfinished and is_taken_up(startpoint, grants, state)
    )


def is_taken_up(startpoint: Startpoint, grants: GrantIndex, state: CoordinatorState) -> bool:
    """Whether newer grants cover all that a startpoint is for.

    No start is computed from such a startpoint any more.

    Args:
        grants: every grant on the log.
    """
    given = grants.overlapping(startpoint.ssp_kb)
    if not startpoint.ssp_kb.reader:
        newer = [start.ssp_kb for start, grant in given if grant.epoch > startpoint.epoch]
        return is_covered(
            (startpoint.ssp_kb.bucket, startpoint.ssp_kb.factor), ((ssp_kb.bucket, ssp_kb.factor) for ssp_kb in newer)
        )
    if given:
        return given[-1][1].epoch > startpoint.epoch
    # When other tasks own the key buckets of a removed task, its grants and its positions are removed.
    in_force = state.generation_number
    return (in_force, TaskName(startpoint.ssp_kb.reader)) not in state.planned_tasks


def _next(state: CoordinatorState) -> RequestPut | None:
    """The rewind request whose turn has come, if there is one.

    One request for the whole job is under way at a time.
    """
    of_job = [
        request
        for request in state.requests.values()
        if not request.processor_id and request.status_code in UNFINISHED
    ]
    if not of_job or any(request.status_code is StatusCode.IN_PROGRESS for request in of_job):
        return None
    first = min(of_job, key=lambda request: (request.timestamp_ms, request.uuid))
    return first if first.action == Action.REWIND else None


def _is_recorded(ssp_kb: SspKeyBucket, recorded: StartpointIndex) -> bool:
    covering = [startpoint.ssp_kb for startpoint in recorded.overlapping(ssp_kb)]
    return is_covered((ssp_kb.bucket, ssp_kb.factor), ((other.bucket, other.factor) for other in covering))


def _reader(wanted: Rewind) -> str:
    return f"task {wanted.task}" if wanted.task is not None else f"processor {wanted.processor}"


def _cut(text: object) -> str:
    return str(text)[:100]


REWINDING = RequestHandler(
    begin=begin,
    advance=advance,
    completion=completion,
    timeout_reason=timeout_reason,
    progress=progress,
    after_run="; the next one begins where it asked for",
)
