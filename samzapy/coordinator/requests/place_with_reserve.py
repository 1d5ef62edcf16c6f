"""Move a processor with a reserve container: reserve, restore, stop, start.

The coordinator starts the reserve container (SEP-22).

Theory. A move is done when the tasks are at work in another execution. The current owner keeps running until that one
is ready:

```
              a reserve is up       the reserve caught up         the owner released the tasks
 RESERVING ─────────────────► RESTORING ───────────────► STOPPING ─────────────────────────► STARTING ──► SUCCEEDED
     └──── no place, no start ────┴──► FAILED, and the current owner of the tasks goes on as before
```

From STOPPING on the move is the hand-over of every placement (`coordinator.requests.place_container`): one record
places the processor on the reserve. The old execution is no longer wanted and is stopped once it released the tasks
(`coordinator.launching.launches`). If the reserve dies after that, the processor has no execution: one is started on
its last host, and if that fails, on any host.

The launch record of the reserve names the request. A request may have several tries, each with a reserve of its own.

With the destination `STANDBY` there is no reserve: the move waits for the best standby to catch up and places the
processor on it. If the container is lost meanwhile and a standby takes over, the move goes on with that standby. To
move a standby, a second one with the same number is started; the first is stopped when the second has caught up. If
the second one takes over from a lost container meanwhile, it is no standby any more, and the move fails.

A processor that moves to its current host gets a reserve too, which finds the state on that host. If the cluster
manager reports that the host is full, the current execution is stopped first, and the answer says so. A cluster manager
that does not answer has not reported a full host: stopping first could leave the processor down until it answers.
`FORCE_RESTART_LAST_SEEN` stops the current execution first in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from samzapy.coordinator.assignment.grants import executions_to_grant, grants_in_force, newest_grants, not_at_work
from samzapy.coordinator.assignment.liveness import Liveness, is_alive
from samzapy.coordinator.commands import ReviewLaunches
from samzapy.coordinator.launching.hosts import clash, hosts_allowed, place_of
from samzapy.coordinator.launching.launches import (
    HOST_AWAY_MS,
    has_lasted,
    is_on,
    launch_wanted,
    ordered_to_stop,
    runner_of,
)
from samzapy.coordinator.launching.standbys import (
    best_standby,
    has_state,
    is_warm,
    named,
    standbys_of,
)
from samzapy.coordinator.requests.handler import Review, begun, ended, with_phase
from samzapy.coordinator.state import CoordinatorState, is_leaving, locality_of
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import UP, Launch, LaunchPhase, LaunchRole, by_age, standby_name
from samzapy.model.placement import (
    ANY_HOST,
    FORCE_RESTART_LAST_SEEN,
    LAST_SEEN,
    STANDBY,
    UNFINISHED,
    ContainerPlacementRequestMessage,
    Phase,
    Refusal,
    StatusCode,
)
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, PlacedPut, RequestPut

_IN_PLACE: Final = frozenset({LAST_SEEN, FORCE_RESTART_LAST_SEEN})
SECOND_PLACE_WAIT_MS: Final = 10_000
"""The time for a cluster manager to find a second place on a host. After it the execution there is stopped first."""


def refused_reserve(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why a move is impossible; None if it is possible.

    Checks only conditions that the requests before it cannot change.
    """
    name, host = message.processor_id, message.destination_host
    _, number = named(name, state)
    if host == STANDBY and number is not None:
        return Refusal(f"destinationHost: wanted a host or {ANY_HOST} for the standby {name}, found {STANDBY}")
    if host == STANDBY and not has_state(state):
        return Refusal(
            f"destinationHost: wanted a host or {ANY_HOST}, found {STANDBY}: the job has no state to have at hand"
        )
    return None


def refused_reserve_now(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why a move whose turn it is cannot begin in the current state; None if it can."""
    return _refused_now(message.processor_id, message.destination_host, state)


def _refused_now(name: str, host: str, state: CoordinatorState) -> Refusal | None:
    processor_id, number = named(name, state)
    if host == STANDBY and not standbys_of(processor_id, state):
        return Refusal(
            f"destinationHost: wanted a host or {ANY_HOST}, found {STANDBY}: processor {processor_id} has no standby"
        )
    if number is not None and not _standbys(processor_id, number, state):
        standing = some([standby_name(launch) for launch in standbys_of(processor_id, state)]) or "it has none"
        return Refusal(f"processorId: wanted a standby of processor {processor_id} ({standing}), found {name}")
    wanted = _host_wanted(name, host, state)
    if not wanted:
        return None
    if reason := clash(wanted, processor_id, state, Liveness(), _replaced_executions(processor_id, number, state)):
        return Refusal(
            f"destinationHost: wanted a host apart from standbys and what they stand by, found {wanted}: {reason}"
        )
    return None


def begin_reserve(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Begin a move. See `RequestHandler`."""
    if reason := _refused_now(request.processor_id, request.destination_host, review.state):
        yield ended(request, StatusCode.FAILED, f"{reason}; nothing was done", review.now_ms)
    else:
        text = f"a container of processor {request.processor_id} is wanted on {request.destination_host}"
        if request.destination_host == FORCE_RESTART_LAST_SEEN:
            text = f"the container of processor {request.processor_id} is stopped, and another one started then"
        under_way = begun(request, text, review.now_ms, phase=Phase.RESERVING)
        runner = runner_of(review.state, ProcessorId(request.processor_id))
        if request.destination_host == STANDBY and runner is not None:
            under_way = replace(under_way, source_id=runner.execution_id)
        yield under_way


def advance_reserve(request: RequestPut, review: Review) -> Iterable[CoordinatorRecord]:
    """Advance a move that is under way. See `RequestHandler`."""
    processor_id, number = named(request.processor_id, review.state)
    if review.launching is None:
        return  # Nothing can be started: the job is being taken over by other means.
    if request.execution_id and number is None:
        yield from _hand_over(request, processor_id, review)
    elif number is None and request.destination_host == STANDBY:
        yield from _await_standby(request, processor_id, review)
    elif request.source_id:
        yield from _stop_first(request, processor_id, number, review)
    elif not request.execution_id:
        yield from _await_reserve(request, processor_id, number, review)


def reserve_completion(request: RequestPut, review: Review) -> str | None:
    """The container of the tasks, or of the standby, now. See `RequestHandler`."""
    processor_id, number = named(request.processor_id, review.state)
    if number is not None:
        return _standby_moved(request, number, review)
    runner = _successor(request, processor_id, review.state)
    # A container lists a grant when it has read it; the query that works for the grant runs a little later.
    if runner is None or runner.phase is not ContainerPhase.RUNNING or tasks_awaited(processor_id, review):
        return None
    count = sum(planned.processor_id == processor_id for planned in review.state.plan)
    text = (
        f"{count} tasks of processor {processor_id} run in {runner.execution_id} on {runner.host}; their "
        f"query runs again after {review.ms_since(request.paused_at_ms)} ms"
    )
    if request.destination_host == STANDBY:
        return f"{text}. {_next_standby(processor_id, review.state)}"
    if request.source_id and request.destination_host == FORCE_RESTART_LAST_SEEN:
        return f"{text}. {request.source_id} was stopped first, as was asked for"
    if request.source_id:
        return f"{text}. There was no second place on the host, so {request.source_id} was stopped first"
    return text


def _successor(request: RequestPut, processor_id: ProcessorId, state: CoordinatorState) -> Container | None:
    """The live execution that the move gave the tasks to; None before there is one."""
    runner = executions_to_grant(state).get(processor_id)
    if runner is None or not is_alive(state, runner):
        return None
    if request.execution_id or request.destination_host == STANDBY:
        is_successor = runner == request.execution_id and runner != request.source_id
    else:
        is_successor = bool(request.source_id) and runner != request.source_id
    return state.containers[runner] if is_successor else None


def reserve_timeout_reason(request: RequestPut, review: Review) -> str:
    """The step that the move waits for. See `RequestHandler`."""
    processor_id, number = named(request.processor_id, review.state)
    is_stopped_first = request.source_id and request.destination_host != STANDBY
    if is_stopped_first or (request.execution_id and number is None):
        waiting = tasks_awaited(processor_id, review)
        return f"{len(waiting)} tasks are not at work yet ({some(waiting)}); the move goes on"
    return f"it was still {request.phase}: {request.response_message}. Whatever ran was not touched"


def tasks_awaited(processor_id: str, review: Review) -> tuple[TaskName, ...]:
    """The tasks of the processor that are not at work in their new container yet."""
    idle, in_force = frozenset(not_at_work(review.state, review.liveness)), grants_in_force(review.state)

    def is_awaited(task_name: TaskName) -> bool:
        # A stopping container keeps working until drained, so its activity does not count for its successor.
        return task_name in idle or is_leaving(in_force[task_name].execution_id, review.state)

    return tuple(
        planned.task_name
        for planned in review.state.plan
        if planned.processor_id == processor_id and is_awaited(planned.task_name)
    )


# --- until the reserve is ready ---


class _Reserve(Enum):
    """How far the newest reserve container of a move is."""

    NONE = auto()
    ENDING = auto()
    ENDED = auto()
    STARTING = auto()
    LOST = auto()
    MISPLACED = auto()
    RESTORING = auto()
    READY = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """A move without a reserve container that is ready to take over.

    Attributes:
        number: the number of the standby that moves; None if a processor moves.
        host: the destination; empty for any host.
        replaced: the executions that the reserve is to replace.
        in_place: those of `replaced` that run on `host` already.
        started: the launches for this move, the oldest first.
        tries: those of `started` that were not withdrawn before they started.
    """

    request: RequestPut
    processor_id: ProcessorId
    number: int | None
    launching: ReviewLaunches
    host: str
    replaced: Sequence[ExecutionId]
    in_place: Sequence[ExecutionId]
    started: Sequence[Launch]
    tries: Sequence[Launch]

    @property
    def reserve(self) -> Launch:
        """The newest launch; there is one unless the step is `_Reserve.NONE`."""
        return self.started[-1]


def _move(request: RequestPut, processor_id: ProcessorId, number: int | None, review: Review) -> _Move:
    assert review.launching is not None, "checked by the caller"
    state = review.state
    host = _host_wanted(request.processor_id, request.destination_host, state)
    replaced = tuple(name for name in _replaced_executions(processor_id, number, state) if name in state.launches)
    started = _tries(request, state)
    return _Move(
        request=request,
        processor_id=processor_id,
        number=number,
        launching=review.launching,
        host=host,
        replaced=replaced,
        in_place=[name for name in replaced if host and place_of(state.launches[name], state) == host],
        started=started,
        tries=[launch for launch in started if not _was_withdrawn(launch, started)],
    )


def _await_reserve(
    request: RequestPut, processor_id: ProcessorId, number: int | None, review: Review
) -> Iterable[CoordinatorRecord]:
    """Start another execution and restore its state, one try after the other."""
    move = _move(request, processor_id, number, review)
    if number is not None and (runner := _taken_over(move, review.state)):
        text = (
            f"{runner} has taken over the tasks of processor {processor_id}, whose container was lost, so it is no "
            "standby any more; the next standby starts by itself"
        )
        return (ended(request, StatusCode.FAILED, text, review.now_ms),)
    if number is not None and move.in_place:
        # Two standbys of one number on one host would write the same directory.
        return _stop(request, move.in_place[0], "a standby is started anew where it is", review)
    if request.destination_host == FORCE_RESTART_LAST_SEEN and move.replaced:
        return _stop(request, move.replaced[0], "it is to be started anew without a second place", review)
    return _STEPS[_reserve_of(move, review)](move, review)


def _taken_over(move: _Move, state: CoordinatorState) -> ExecutionId | None:
    """The standby that was started for the move and runs the tasks now."""
    runner = executions_to_grant(state).get(move.processor_id)
    return runner if any(launch.execution_id == runner for launch in move.started) else None


def _reserve_of(move: _Move, review: Review) -> _Reserve:
    if not move.started:
        return _Reserve.NONE
    execution_id, phase = move.reserve.execution_id, move.reserve.phase
    if phase not in UP:
        return _Reserve.ENDED if phase is LaunchPhase.ENDED else _Reserve.ENDING
    if execution_id not in review.state.containers:
        return _Reserve.STARTING
    if not is_alive(review.state, execution_id):
        return _Reserve.LOST
    if _why_misplaced(move, review):
        return _Reserve.MISPLACED
    return _Reserve.READY if is_warm(execution_id, review.state, review.liveness) else _Reserve.RESTORING


def _start_reserve(move: _Move, review: Review) -> Iterable[CoordinatorRecord]:
    if not is_on(review.state):
        # The launches of a finished run are stopped in the same round, and another one would be requested in the next.
        text = "the run is finished: no container is started any more"
        yield from with_phase(move.request, Phase.RESERVING, text, review.now_ms)
        return
    role = LaunchRole.RESERVE if move.number is None else LaunchRole.STANDBY
    host = move.host or _host_for(move.processor_id, move.started, move.launching, review)
    if host is None:
        text = "no host that may have it has a place now; it is started as soon as one has"
        yield from with_phase(move.request, Phase.RESERVING, text, review.now_ms)
        return
    yield launch_wanted(
        move.launching,
        review.state,
        move.processor_id,
        role,
        host=host,
        standby=move.number or 0,
        uuid=move.request.uuid,
    )


def _start_next_reserve(move: _Move, review: Review) -> Iterable[CoordinatorRecord]:
    if len(move.tries) < review.command.tries_max:
        return _start_reserve(move, review)
    text = (
        f"{len(move.tries)} containers were started for it and none came to be of use; the last one, "
        f"{move.reserve.execution_id}: {move.reserve.reason}. Whatever ran was not touched"
    )
    return (ended(move.request, StatusCode.FAILED, text, review.now_ms),)


def _await_start(move: _Move, review: Review) -> Iterable[CoordinatorRecord]:
    reserve, host = move.reserve, move.host
    if move.in_place and _has_no_second_place(move, review):
        # The reserve first: if the transaction is torn after it, the move tries again; `_stop_first` stops no reserve.
        yield ordered_to_stop(reserve, move.launching, f"there is no second place on {host}")
        yield from _stop(move.request, move.in_place[0], f"there is no second place on {host}", review)
        return
    why = review.liveness.why_not(reserve.execution_id)
    if _has_no_such_host(host, reserve, move.launching):
        known = some(sorted(move.launching.hosts))
        text = f"the cluster has no host {host}, known: {known}{why}. Whatever ran was not touched"
        yield ended(move.request, StatusCode.FAILED, text, review.now_ms)
        return
    where = f"on {host}" if host else "on any host"
    text = f"container {reserve.execution_id} is to start {where} ({_which_try(move, review)}){why}"
    yield from with_phase(move.request, Phase.RESERVING, text, review.now_ms)


def _has_no_second_place(move: _Move, review: Review) -> bool:
    """Whether the host had no second place for `SECOND_PLACE_WAIT_MS`."""
    has_waited = has_lasted(SECOND_PLACE_WAIT_MS, move.reserve.wanted_at_ms, review.now_ms)
    is_full = move.launching.hosts.get(move.host) == 0
    return move.reserve.phase is LaunchPhase.WANTED and is_full and has_waited


def _stop_misplaced(move: _Move, review: Review) -> Iterable[CoordinatorRecord]:
    yield ordered_to_stop(move.reserve, move.launching, _why_misplaced(move, review))


def _report_restoring(move: _Move, review: Review) -> Iterable[CoordinatorRecord]:
    text = f"{_restoring(move.reserve, review)} ({_which_try(move, review)})"
    return with_phase(move.request, Phase.RESTORING, text, review.now_ms)


def _which_try(move: _Move, review: Review) -> str:
    return f"try {len(move.tries)} of {review.command.tries_max}"


def _use_reserve(move: _Move, review: Review) -> Iterable[CoordinatorRecord]:
    """Give a processor's tasks to the reserve, or replace the standby that moves."""
    execution_id = move.reserve.execution_id
    if move.number is None:
        yield from _place(move.request, move.processor_id, execution_id, review)
        return
    for replaced in move.replaced:
        text = f"request {move.request.uuid}: {execution_id} stands by in its place"
        yield ordered_to_stop(review.state.launches[replaced], move.launching, text)
    text = f"{execution_id} is level; {some(move.replaced)} stops"
    yield from with_phase(move.request, Phase.STOPPING, text, review.now_ms)


def _wait(move: _Move, review: Review) -> Iterable[CoordinatorRecord]:
    return ()


_STEPS: Final[Mapping[_Reserve, Callable[[_Move, Review], Iterable[CoordinatorRecord]]]] = {
    _Reserve.NONE: _start_reserve,
    # It may still occupy the place that the next one needs.
    _Reserve.ENDING: _wait,
    _Reserve.ENDED: _start_next_reserve,
    _Reserve.STARTING: _await_start,
    # Its end is about to be recorded.
    _Reserve.LOST: _wait,
    _Reserve.MISPLACED: _stop_misplaced,
    _Reserve.RESTORING: _report_restoring,
    _Reserve.READY: _use_reserve,
}
"""The next step of a move, by the progress of its newest reserve."""


def _has_no_such_host(host: str, last: Launch, command: ReviewLaunches) -> bool:
    """Whether the requested host has been missing for `HOST_AWAY_MS`.

    A host that restarts is missing for less time than that.
    """
    is_unknown = bool(host and command.hosts) and host not in command.hosts
    has_waited = has_lasted(HOST_AWAY_MS, last.wanted_at_ms, command.now_ms)
    return is_unknown and last.phase is LaunchPhase.WANTED and has_waited


def _await_standby(request: RequestPut, processor_id: ProcessorId, review: Review) -> Iterable[CoordinatorRecord]:
    runner = runner_of(review.state, processor_id)
    if (
        runner is not None
        and runner.role is LaunchRole.STANDBY
        and request.source_id not in ("", runner.execution_id)
    ):
        text = f"{request.source_id} is gone, and {runner.execution_id} has taken over"
        yield replace(_pausing(request, text, review.now_ms), execution_id=runner.execution_id)
        return
    best = best_standby(processor_id, review.state, review.liveness)
    if best is not None and is_warm(best.execution_id, review.state, review.liveness):
        yield from _place(request, processor_id, best.execution_id, review)
    elif best is not None:
        yield from with_phase(request, Phase.RESTORING, _restoring(best, review), review.now_ms)
    elif not standbys_of(processor_id, review.state):
        text = f"processor {processor_id} has no standby any more; {_not_touched(processor_id, review.state)}"
        yield ended(request, StatusCode.FAILED, text, review.now_ms)


def _place(
    request: RequestPut, processor_id: ProcessorId, execution_id: ExecutionId, review: Review
) -> Iterable[CoordinatorRecord]:
    """Place the processor on an execution.

    The request comes first: if the transaction is torn after it, the next review writes the rest.
    """
    text = f"moving the tasks to {execution_id} (state restored); waiting for their current owner to release them"
    yield replace(_pausing(request, text, review.now_ms), execution_id=execution_id)
    yield _placed(request, processor_id, execution_id, review.state)


def _placed(
    request: RequestPut, processor_id: ProcessorId, execution_id: ExecutionId, state: CoordinatorState
) -> PlacedPut:
    runner = runner_of(state, processor_id) if request.destination_host == STANDBY else None
    left = "" if runner is None else place_of(runner, state)
    return PlacedPut(processor_id=processor_id, execution_id=execution_id, uuid=request.uuid, left_host=left)


def _stop(request: RequestPut, source_id: ExecutionId, reason: str, review: Review) -> Iterable[CoordinatorRecord]:
    assert review.launching is not None, "checked by the caller"
    text = f"{reason}: {source_id} is stopped, and another one started then"
    yield replace(_pausing(request, text, review.now_ms), source_id=source_id)
    launch = review.state.launches.get(source_id)
    if launch is not None and launch.phase in UP:
        yield ordered_to_stop(launch, review.launching, f"request {request.uuid}: {reason}")


def _pausing(request: RequestPut, text: str, now_ms: int) -> RequestPut:
    """The request with the time from which no execution works on the tasks."""
    return replace(
        request,
        phase=Phase.STOPPING,
        response_message=text,
        decided_at_ms=now_ms,
        paused_at_ms=now_ms,
        answered=False,
    )


# --- once the reserve is ready ---


def _hand_over(request: RequestPut, processor_id: ProcessorId, review: Review) -> Iterable[CoordinatorRecord]:
    execution_id = ExecutionId(request.execution_id)
    placed = review.state.placed.get(processor_id)
    if not is_alive(review.state, execution_id):
        text = (
            f"{execution_id}, which processor {processor_id} was to go to, is gone; the tasks go on where they are, "
            "or in a container that is started where they were, and if there is no place, on any host"
        )
        yield ended(request, StatusCode.FAILED, text, review.now_ms)
    elif placed is None or placed.execution_id != execution_id:
        yield _placed(request, processor_id, execution_id, review.state)
    else:
        holders = _holders(processor_id, execution_id, review.state)
        text = (
            f"waiting for {some(holders)} to release the tasks" if holders else f"the tasks begin in {execution_id}"
        )
        yield from with_phase(request, Phase.STOPPING if holders else Phase.STARTING, text, review.now_ms)


def _stop_first(
    request: RequestPut, processor_id: ProcessorId, number: int | None, review: Review
) -> Iterable[CoordinatorRecord]:
    """Stop the current execution before another one starts.

    Repeats the order to stop if it was lost in a torn transaction. The successor is started by the review of launches,
    as every execution that is missing.
    """
    assert review.launching is not None, "checked by the caller"
    source = review.state.launches.get(ExecutionId(request.source_id))
    if source is not None and source.phase in UP:
        yield ordered_to_stop(source, review.launching, f"request {request.uuid}: it is started anew")
    elif source is not None and source.phase is not LaunchPhase.ENDED:
        return
    elif number is None:
        runner = runner_of(review.state, processor_id)
        host = _host_wanted(request.processor_id, request.destination_host, review.state)
        container = None if runner is None else review.state.containers.get(runner.execution_id)
        if container is not None and request.destination_host not in _IN_PLACE and container.host != host:
            text = (
                f"{request.source_id} was stopped, and {container.execution_id} started on {container.host} instead"
            )
            yield ended(request, StatusCode.FAILED, text, review.now_ms)
            return
        successor = "one in its place is to start"
        if runner is not None:
            successor = f"{runner.execution_id} starts in its place{review.liveness.why_not(runner.execution_id)}"
        yield from with_phase(request, Phase.STARTING, f"{request.source_id} has stopped; {successor}", review.now_ms)
    else:
        yield from with_phase(
            request, Phase.STARTING, f"{request.source_id} has stopped; another one starts", review.now_ms
        )


def _holders(processor_id: ProcessorId, but: ExecutionId, state: CoordinatorState) -> list[str]:
    """The executions that may still commit for tasks of the processor."""
    newest = newest_grants(state)
    return sorted(
        {
            grant.execution_id
            for planned in state.plan
            if planned.processor_id == processor_id
            and (grant := newest.get(planned.task_name)) is not None
            and grant.execution_id != but
            and not grant.released
            and is_alive(state, grant.execution_id)
        }
    )


def _standby_moved(request: RequestPut, number: int, review: Review) -> str | None:
    processor_id, _ = named(request.processor_id, review.state)
    if request.source_id:
        source = review.state.launches.get(ExecutionId(request.source_id))
        if source is not None and source.phase is not LaunchPhase.ENDED:
            return None
        mine: Sequence[Launch] = _standbys(processor_id, number, review.state)
        text = "; the one before it was stopped first, because both keep the same directory"
    else:
        mine = [launch for launch in _tries(request, review.state) if launch.phase in UP]
        text = ""
        if request.phase != Phase.STOPPING or len(_standbys(processor_id, number, review.state)) > len(mine):
            return None
    for launch in mine:
        if is_warm(launch.execution_id, review.state, review.liveness):
            host = place_of(launch, review.state)
            return f"standby {request.processor_id} is {launch.execution_id} on {host}, and level{text}"
    return None


def _next_standby(processor_id: ProcessorId, state: CoordinatorState) -> str:
    """For people: the standbys that are left after one has taken over."""
    standing = [launch for launch in standbys_of(processor_id, state) if place_of(launch, state)]
    came = [launch for launch in standing if launch.execution_id in state.containers]
    if came:
        return f"Standing by: {_on_hosts(came, state)}"
    if any(launch.phase is LaunchPhase.LAUNCHED for launch in standing):
        return f"A new standby starts: {_on_hosts(standing, state)}"
    if standing:
        # The cluster manager reports neither a host without a place nor a container that is about to start.
        return f"A new standby starts as soon as there is a place for it: {_on_hosts(standing, state)}"
    return "No host is free for a new standby yet; it is started as soon as there is one"


def _on_hosts(standing: Iterable[Launch], state: CoordinatorState) -> str:
    return some([f"{standby_name(launch)} on {place_of(launch, state)}" for launch in standing])


# --- the executions and hosts of a move ---


def _host_wanted(name: str, destination: str, state: CoordinatorState) -> str:
    """The host that a request asks for; empty for any host.

    Without host affinity every destination means any host.
    """
    if destination == ANY_HOST or state.config.get("job.host-affinity.enabled") == "false":
        return ""
    if destination not in _IN_PLACE:
        return destination
    processor_id, number = named(name, state)
    if number is not None:
        standing = _standbys(processor_id, number, state)
        return place_of(standing[0], state) if standing else ""
    return locality_of(state).processors.get(processor_id, "")


def _host_for(
    processor_id: ProcessorId, tries: Sequence[Launch], command: ReviewLaunches, review: Review
) -> str | None:
    """The host for a move to any host, or None if all hosts are full.

    Hosts that were not tried come first. Empty if no host is known, or if the cluster manager takes no host names.
    """
    if not command.names_hosts:
        return ""
    tried = {launch.host for launch in tries}
    there = hosts_allowed(processor_id, command, review.state, review.liveness)
    free = {host: place for host, place in there.items() if not place.is_full}
    if there and not free:
        return None
    return min(free, key=lambda host: (host in tried, free[host].rank, host), default="")


def _replaced_executions(processor_id: ProcessorId, number: int | None, state: CoordinatorState) -> list[ExecutionId]:
    """The executions that a move replaces."""
    if number is not None:
        moving = {request.uuid for request in state.requests.values() if request.status_code in UNFINISHED}
        return [launch.execution_id for launch in _standbys(processor_id, number, state) if launch.uuid not in moving]
    runner = runner_of(state, processor_id)
    return [] if runner is None else [runner.execution_id]


def _standbys(processor_id: ProcessorId, number: int, state: CoordinatorState) -> list[Launch]:
    return [launch for launch in standbys_of(processor_id, state) if launch.standby == number]


def _tries(request: RequestPut, state: CoordinatorState) -> list[Launch]:
    launches = [launch for launch in state.launches.values() if launch.uuid == request.uuid]
    return sorted(launches, key=by_age)


def _was_withdrawn(launch: Launch, tries: Sequence[Launch]) -> bool:
    """Whether a launch never started because its host had no place.

    Such a launch does not count as a failed try.
    """
    before = tries[tries.index(launch) - 1].failures if launch != tries[0] else 0
    return launch.phase not in UP and launch.failures <= before and not launch.handle and not launch.host_found


def _why_misplaced(move: _Move, review: Review) -> str:
    """Why the host of the reserve is unsuitable; empty where it is suitable."""
    host = review.state.containers[move.reserve.execution_id].host
    if move.host and host != move.host:
        return f"wanted on {move.host}, it was started on {host}"
    in_the_way = [
        replaced for replaced in move.replaced if place_of(review.state.launches[replaced], review.state) == host
    ]
    if move.number is not None and in_the_way:
        return f"it was started on {host}, where {in_the_way[0]} keeps the same directory"
    others = (*move.replaced, move.reserve.execution_id)
    return clash(host, move.processor_id, review.state, review.liveness, others)


def _restoring(launch: Launch, review: Review) -> str:
    sighting = review.liveness.last.get(launch.execution_id)
    warm = None if sighting is None else sighting.warm
    where = f"{launch.execution_id} on {place_of(launch, review.state)}"
    if warm is None:
        return f"{where} has begun"
    text = f"{where}: {warm.percent} %, {warm.level} of {warm.tasks} tasks level"
    return text if warm.is_query_warm or warm.level < warm.tasks else f"{text}, the query is tried out"


def _not_touched(processor_id: ProcessorId, state: CoordinatorState) -> str:
    runner = runner_of(state, processor_id)
    return "nothing runs it" if runner is None else f"{runner.execution_id} goes on as before"
