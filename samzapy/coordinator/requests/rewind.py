"""Move the input offsets of a running job: `job rewind`.

These are Samza's startpoints (SEP-18).

Theory. What is recorded is where each SSPKb that is meant is to be read from, `startpoint/<ssp_kb>`, under a number of
the counter that grants have theirs from. Everything else follows from that, as it does from a plan: a grant that is
older is to be let go, what was let go is granted anew, and its start is computed from the newest startpoint of each
part (`coordinator.assignment.starts`). So a rewind in the middle of a scale, a failover in the middle of a rewind, and
two rewinds one after the other need no rule of their own. Who is not meant keeps grants and positions.

Where `oldest` or a time lie only the cluster knows, so a request whose turn it is becomes an action first. Its answer
makes offsets of it, once: the startpoints, and behind them the request as IN_PROGRESS. Torn between two of these it is
asked for again, and what stands there under the uuid of the request is left as it is.

A startpoint is removed when grants that are newer have everything it is for, and nobody asks for it any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from samzapy.coordinator.assignment.grants import not_at_work
from samzapy.coordinator.assignment.initial_offsets import begun_anew, offset_defaults
from samzapy.coordinator.assignment.replanning import config_of
from samzapy.coordinator.assignment.starts import GrantIndex, PositionsRead, starts_of
from samzapy.coordinator.commands import OffsetBounds, OffsetBoundsRead
from samzapy.coordinator.launching.suspension import resumed
from samzapy.coordinator.requests.handler import RequestHandler, Review, begun, counted, ended, with_progress
from samzapy.coordinator.state import CoordinatorState, sorted_processors, tombstone
from samzapy.model.job import TaskName
from samzapy.model.placement import UNFINISHED, Action, Mark, Phase, Refusal, Rewind, StatusCode, Target, rewind_of
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition, is_covered
from samzapy.model.startpoint import Startpoint, StartpointIndex
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, EpochPut, PlannedTaskPut, Removed, RequestPut, StartpointPut


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBoundsWanted:
    """A request whose turn it is, and what is to be asked for it."""

    uuid: str
    ssps: tuple[SystemStreamPartition, ...]
    timestamp_ms: int | None


def rewind_wanted(request: RequestPut) -> Rewind:
    """What a request that was accepted asks for."""
    arguments: Mapping[str, str] = json.loads(request.arguments)
    return rewind_of(arguments)


def refused_rewind(wanted: Rewind, state: CoordinatorState) -> Refusal | None:
    """Why a rewind cannot begin on the plan that is in force; None where it can."""
    return (
        _refused_input(wanted, state) or _refused_readers(wanted, state.plan) or _refused_target(wanted, state.plan)
    )


def _refused_input(wanted: Rewind, state: CoordinatorState) -> Refusal | None:
    """Why the stream or partition cannot be rewound; None where it can."""
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
    """Why the task or processor cannot be meant; None where it can."""
    tasks = [planned.task_name for planned in plan]
    if wanted.task is not None and wanted.task not in tasks:
        return Refusal(f"task: wanted one of the plan in force ({some(tasks)}), found {_cut(wanted.task)}")
    processors = sorted_processors({planned.processor_id for planned in plan})
    if wanted.processor is not None and wanted.processor not in processors:
        return Refusal(f"processor: wanted one that has tasks ({some(processors)}), found {_cut(wanted.processor)}")
    return None


def _refused_target(wanted: Rewind, plan: Sequence[PlannedTaskPut]) -> Refusal | None:
    """Why the positions that are meant cannot be moved there; None where they can."""
    stream, ssps = wanted.stream, {ssp_kb.ssp for _, ssp_kb in meant(wanted, plan)}
    if not ssps:
        return Refusal(f"stream: wanted one that {_who(wanted)} reads, found {stream}, of which it reads nothing")
    if wanted.to.mark is Mark.OFFSET and len(ssps) > 1:
        return Refusal(
            f"to: wanted oldest, newest or a time for {len(ssps)} partitions of {stream}, found one offset, which is a "
            "place in one partition: name the partition"
        )
    return None


def meant(wanted: Rewind, plan: Iterable[PlannedTaskPut]) -> Sequence[tuple[TaskName, SspKeyBucket]]:
    """The positions that a rewind is about, and whose they are; in the order of the plan."""
    return [
        (planned.task_name, ssp_kb)
        for planned in plan
        if wanted.task in (None, planned.task_name) and wanted.processor in (None, planned.processor_id)
        for ssp_kb in planned.positions
        if ssp_kb.ssp.system_stream == wanted.stream and wanted.partition in (None, ssp_kb.ssp.partition)
    ]


def offset_of(target: Target, bounds: OffsetBounds) -> int:
    """The offset in a partition that `target` stands for, within what it holds.

    Raises:
        ValueError: an offset that the partition does not hold.
    """
    match target.mark:
        case Mark.OLDEST:
            return bounds.offset_first
        case Mark.NEWEST:
            return bounds.offset_end
        case Mark.TIME:
            assert bounds.offset_at is not None, "a time was asked for"
            # What is not committed yet may be looked at, but nobody can begin behind it.
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
    """Where a position would go: `offset_from` is where its task would begin if it were granted anew now."""

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
    """What a rewind would change, for people.

    Args:
        read: of everything that its tasks read.

    Raises:
        ValueError: as `offset_of`.
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
    """What is to be asked of the cluster, for the request that is next; at most one."""
    request = _next(state)
    if request is None:
        return ()
    wanted = rewind_wanted(request)
    if refused_rewind(wanted, state):
        return ()  # Its review says so.
    return (
        OffsetBoundsWanted(
            uuid=request.uuid,
            ssps=tuple(sorted({ssp_kb.ssp for _, ssp_kb in meant(wanted, state.plan)})),
            timestamp_ms=wanted.to.number if wanted.to.mark is Mark.TIME else None,
        ),
    )


def offset_bounds_read(command: OffsetBoundsRead, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The startpoints that a request asks for, where it is still next; a refusal where there is no such place."""
    request = _next(state)
    if request is None or request.uuid != command.uuid:
        return ()
    wanted = rewind_wanted(request)
    positions = [ssp_kb for _, ssp_kb in meant(wanted, state.plan)]
    if refused_rewind(wanted, state) or not command.offset_bounds.keys() >= {ssp_kb.ssp for ssp_kb in positions}:
        return ()  # Planned anew since it was asked: asked again.
    text = f"{len(positions)} positions in {wanted.stream} go to {wanted.to}"
    moves = begun(request, text, command.now_ms, phase=Phase.STARTING)
    epoch = state.epoch + 1
    try:
        startpoints = _startpoints(request, positions, epoch, command, state)
    except ValueError as error:
        return (ended(request, StatusCode.FAILED, f"{error}; nothing was done", command.now_ms),)
    tasks = {task_name for task_name, _ in meant(wanted, state.plan)}
    anew = resumed((planned.processor_id for planned in state.plan if planned.task_name in tasks), state)
    return (EpochPut(epoch=epoch), *startpoints, *anew, moves) if startpoints else (*anew, moves)


def _startpoints(
    request: RequestPut,
    positions: Iterable[SspKeyBucket],
    epoch: int,
    command: OffsetBoundsRead,
    state: CoordinatorState,
) -> Sequence[StartpointPut]:
    """The startpoints of a request that are not recorded yet.

    Raises:
        ValueError: as `offset_of`.
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
    """The tasks that are not yet at work from where they were rewound to, in the order of their numbers."""
    idle = frozenset(not_at_work(review.state, review.liveness))
    return tuple(task_name for task_name in _rewound(request, review.state) if task_name in idle)


def _rewound(request: RequestPut, state: CoordinatorState) -> Sequence[TaskName]:
    startpoints = StartpointIndex(
        startpoint for startpoint in state.startpoints.values() if startpoint.uuid == request.uuid
    )
    return [planned.task_name for planned in state.plan if any(map(startpoints.overlapping, planned.positions))]


def progress_text(request: RequestPut, review: Review) -> str:
    """Who is waited for, for people."""
    waiting = awaited(request, review)
    return f"{len(waiting)} tasks are not at work yet ({some(waiting)})"


def begin(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """A refusal, or nothing: what the cluster says begins it (`offset_bounds_read`). See `RequestHandler`."""
    reason = refused_rewind(rewind_wanted(request), review.state)
    return (ended(request, StatusCode.FAILED, f"{reason}; nothing was done", review.now_ms),) if reason else ()


def advance(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Nothing: the startpoints stand there, and grants follow from them. See `RequestHandler`."""
    return ()


def progress(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """How many tasks are at work from there, once some are. See `RequestHandler`."""
    of = len(_rewound(request, review.state))
    at_work = of - len(awaited(request, review))
    if at_work:
        yield from with_progress(request, f"{_what(request)}; {counted(at_work, of)} tasks are at work from there")


def completion(request: RequestPut, review: Review) -> str | None:
    """What was rewound. See `RequestHandler`."""
    if awaited(request, review):
        return None
    return f"{_what(request)}: done {review.now_ms - request.decided_at_ms} ms after that was recorded"


def _what(request: RequestPut) -> str:
    """What it was said to do when it began."""
    return request.response_message.partition("; ")[0]


def timeout_reason(request: RequestPut, review: Review) -> str:
    """Who is waited for. See `RequestHandler`."""
    return f"{progress_text(request, review)}. They begin there as soon as they are granted anew"


def taken_up(state: CoordinatorState) -> tuple[Removed, ...]:
    """Tombstones of the startpoints that nobody needs any more."""
    if not state.startpoints:
        return ()
    asked = {request.uuid for request in state.requests.values() if request.status_code in UNFINISHED}
    grants = GrantIndex(state.grants.values())
    return tuple(
        tombstone(StartpointPut(startpoint=startpoint))
        for startpoint in (state.startpoints[ssp_kb] for ssp_kb in sorted(state.startpoints))
        if startpoint.uuid not in asked and is_taken_up(startpoint, grants, state)
    )


def is_taken_up(startpoint: Startpoint, grants: GrantIndex, state: CoordinatorState) -> bool:
    """Whether no start will be computed from a startpoint any more: newer grants have all that it is for.

    `grants`: every grant on the log.
    """
    given = grants.overlapping(startpoint.ssp_kb)
    if not startpoint.ssp_kb.reader:
        newer = [start.ssp_kb for start, grant in given if grant.epoch > startpoint.epoch]
        return is_covered(
            (startpoint.ssp_kb.bucket, startpoint.ssp_kb.factor), ((ssp_kb.bucket, ssp_kb.factor) for ssp_kb in newer)
        )
    if given:
        return given[-1][1].epoch > startpoint.epoch
    # The grants of a task that is no more go when others have its key buckets, and its positions with them.
    in_force = 0 if state.generation is None else state.generation.generation
    return (in_force, TaskName(startpoint.ssp_kb.reader)) not in state.planned_tasks


def _next(state: CoordinatorState) -> RequestPut | None:
    """The request to rewind whose turn it is: of those for the whole job one is under way at a time."""
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


def _who(wanted: Rewind) -> str:
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
