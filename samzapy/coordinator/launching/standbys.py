"""Standbys: their number, hosts, readiness and promotion.

A standby is an execution of a processor that runs none of its tasks and keeps their state local on another host
(`container.local_state.standby`). To promote it is one record, `placed/<processor>`, which names it. The hand-over that
follows is the same as for each change (`coordinator.assignment.grants`). So there is little to decide here:

- *Number.* The processor's own record (`control-standby`) gives it, else the configuration: one less than
  `job.standbytasks.replication.factor`. A job without state has no standbys, because there is no state to keep.
- *Host.* A standby never shares a host with another execution of the processor, nor a fault domain if those are used.
  The host is chosen here among the known ones, and checked again once the standby has started.
- *Readiness.* A standby is ready if its last heartbeat has read the plan in force and reports that the state of all
  tasks is local, except for a small lag.
- *Promotion.* After a loss the best ready standby takes over at once. A container that drains is not a loss: it comes
  back, or an operator has chosen the new host.

Standbys are numbered from 0: `4-0` is the first one of processor 4. The name belongs to the number and not to an
execution: when `4-0` takes over it becomes the container of processor 4, and the next standby is `4-0`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.grants import executions_to_grant, newest_grants
from samzapy.coordinator.assignment.liveness import Liveness, is_alive
from samzapy.coordinator.launching.hosts import clash, hosts_allowed, place_of
from samzapy.coordinator.launching.launches import (
    has_grants,
    has_lasted,
    is_asked_for,
    is_exhausted,
    is_on,
    is_put_off,
    last_of_kind,
    launch_wanted,
    ordered_to_stop,
    wanted_processors,
)
from samzapy.coordinator.state import CoordinatorState, Round, sorted_processors
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ContainerModel, ExecutionId, JobModel, ProcessorId, TaskMode
from samzapy.model.launch import UP, Launch, LaunchPhase, LaunchRole, standby_name
from samzapy.model.placement import (
    LAST_SEEN,
    STANDBY,
    UNFINISHED,
    Action,
    ContainerPlacementRequestMessage,
    Refusal,
)
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, PlacedPut

if TYPE_CHECKING:
    from samzapy.coordinator.commands import ReviewLaunches

LAG_MAX = 50_000
"""The number of changelog offsets that a start catches up within a fraction of a second."""

_NAME = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def named(name: str, state: CoordinatorState) -> tuple[ProcessorId, int | None]:
    """The processor and the number of the standby that a request names.

    `4-0` is a standby of processor 4. If the containers are self-managed, any text may be the name of a processor.
    """
    match = None if state.container_count is None else _NAME.fullmatch(name)
    return (ProcessorId(name), None) if match is None else (ProcessorId(match[1]), int(match[2]))


def refused_standby(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """The refusal if a request that needs a container with tasks names a standby."""
    if named(message.processor_id, state)[1] is None:
        return None
    return Refusal(
        f"processorId: wanted a processor, found {message.processor_id}, which names a standby, and that runs no "
        f"query; {Action.PLACE_CONTAINER} to {LAST_SEEN} starts it anew"
    )


def has_state(state: CoordinatorState) -> bool:
    """Whether the recorded configuration has stores."""
    return any(key.startswith("stores.") for key in state.config)


def standby_count(processor_id: ProcessorId, state: CoordinatorState) -> int:
    """The number of standbys that a processor is to have."""
    if not has_state(state):
        return 0
    own = state.standbys.get(processor_id)
    return standby_count_configured(state) if own is None else own.count


def standby_count_configured(state: CoordinatorState) -> int:
    """The number of standbys of a processor without a number of its own."""
    return int(state.config.get("job.standbytasks.replication.factor", "1")) - 1


def standbys_of(processor_id: ProcessorId, state: CoordinatorState) -> tuple[Launch, ...]:
    """The standbys of a processor that are up, by number and age.

    A standby that was promoted runs the tasks and is omitted.
    """
    standbys = _launched_as_standbys(processor_id, state.launches.values())
    if not standbys:
        return ()
    runner = executions_to_grant(state).get(processor_id)
    return tuple(launch for launch in standbys if launch.execution_id != runner)


def role_of(execution_id: ExecutionId, state: CoordinatorState) -> LaunchRole:
    """The current role of an execution.

    A standby or a reserve that got the tasks is ACTIVE.
    """
    launch = state.launches.get(execution_id)
    if launch is None or executions_to_grant(state).get(launch.processor_id) == execution_id:
        return LaunchRole.ACTIVE
    return launch.role


def standby_called(execution_id: ExecutionId, state: CoordinatorState) -> str | None:
    """The name of a standby, like `4-0`; None for other executions."""
    is_standby = role_of(execution_id, state) is LaunchRole.STANDBY
    return standby_name(state.launches[execution_id]) if is_standby else None


def with_standbys(plan: JobModel, state: CoordinatorState) -> JobModel:
    """`plan` with a container for each standby.

    It has the tasks of its processor, as in Samza's JobModel. The planner does not make these containers: standbys are
    executions, which come and go without a new plan.
    """
    standbys = [
        ContainerModel(
            processor_id=ProcessorId(standby_name(launch)),
            location_id=launch.host_found or launch.host or None,
            tasks=tuple(replace(task, mode=TaskMode.STANDBY) for task in container.tasks),
        )
        for container in plan.containers
        if container.tasks
        for launch in standbys_of(container.processor_id, state)
    ]
    return replace(plan, containers=(*plan.containers, *standbys))


def _launched_as_standbys(processor_id: ProcessorId, launches: Iterable[Launch]) -> tuple[Launch, ...]:
    standbys = (
        launch
        for launch in launches
        if launch.processor_id == processor_id and launch.role is LaunchRole.STANDBY and launch.phase in UP
    )
    return tuple(sorted(standbys, key=lambda launch: (launch.standby, launch.wanted_at_ms, launch.execution_id)))


def is_warm(execution_id: ExecutionId, state: CoordinatorState, liveness: Liveness) -> bool:
    """Whether an execution that runs no tasks could run its processor's tasks at once."""
    return is_level(execution_id, state, liveness, needs_warm_query=True)


def is_level(
    execution_id: ExecutionId, state: CoordinatorState, liveness: Liveness, *, needs_warm_query: bool = False
) -> bool:
    """Whether an execution has the state of its processor's tasks local.

    Its first query may still take some seconds, unless `needs_warm_query`.
    """
    sighting, container = liveness.last.get(execution_id), state.containers.get(execution_id)
    if container is None or not is_alive(state, execution_id) or sighting is None or sighting.warm is None:
        return False
    count = sum(planned.processor_id == container.processor_id for planned in state.plan)
    return (
        sighting.stream_offset > state.generation_offset
        and sighting.warm.tasks == sighting.warm.level == count
        and sighting.warm.lag <= LAG_MAX
        and (sighting.warm.is_query_warm or not needs_warm_query)
    )


def best_standby(processor_id: ProcessorId, state: CoordinatorState, liveness: Liveness) -> Launch | None:
    """The living standby of a processor that has the least to catch up, or None."""

    def rank(launch: Launch) -> tuple[bool, int, int, str]:
        sighting = liveness.last.get(launch.execution_id)
        warm = None if sighting is None else sighting.warm
        is_cold = not is_warm(launch.execution_id, state, liveness)
        return is_cold, 0 if warm is None else -warm.level, 0 if warm is None else warm.lag, launch.execution_id

    living = [launch for launch in standbys_of(processor_id, state) if is_alive(state, launch.execution_id)]
    return min(living, key=rank) if living else None


def promotions(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> tuple[PlacedPut, ...]:
    """The standbys that take over from lost executions.

    They do so at once, before other executions are started. A processor that failed too often gets none, because no
    container is started for it either.
    """
    if not is_on(state):
        return ()
    lost = _processors_lost(state)
    runners = executions_to_grant(state)
    placed = []
    # A suspended processor gets no promotion, because its standby would fail as its container did.
    for processor_id in sorted_processors(
        (lost & frozenset(wanted_processors(state) or ())) - state.suspended.keys()
    ):
        runner = runners.get(processor_id)
        # One that was told to stop and lives has its other tasks until it has stopped, or is lost.
        if runner is not None and is_alive(state, runner):
            continue
        last = last_of_kind(state, processor_id, LaunchRole.ACTIVE)
        if last is not None and is_put_off(last, command):
            continue
        best = best_standby(processor_id, state, liveness)
        # The tasks are down meanwhile, and a standby with their state is up sooner than a new container.
        if best is not None and is_level(best.execution_id, state, liveness):
            left = _host_to_leave(processor_id, state)
            placed.append(
                PlacedPut(processor_id=processor_id, execution_id=best.execution_id, uuid="", left_host=left)
            )
    return tuple(placed)


def _host_to_leave(processor_id: ProcessorId, state: CoordinatorState) -> str:
    """The host that a move to a standby is to leave; empty without such a move."""
    for request in state.requests.values():
        source = state.launches.get(ExecutionId(request.source_id))
        is_move = (request.processor_id, request.destination_host) == (processor_id, STANDBY)
        if is_move and request.status_code in UNFINISHED and source is not None:
            return place_of(source, state)
    return ""


def _processors_lost(state: CoordinatorState) -> frozenset[ProcessorId]:
    """The processors with a task whose newest grant belongs to a lost execution."""
    lost = {
        container.execution_id
        for container in state.containers.values()
        if container.phase in (ContainerPhase.LOST, ContainerPhase.FENCED)
    }
    newest = newest_grants(state) if lost else {}
    return frozenset(
        planned.processor_id
        for planned in state.plan
        if planned.task_name in newest and newest[planned.task_name].execution_id in lost
    )


# --- standbys to start and to stop ---


def review_standbys(
    command: ReviewLaunches, state: CoordinatorState, liveness: Liveness
) -> tuple[CoordinatorRecord, ...]:
    """The records that start missing standbys and stop surplus or misplaced ones."""
    if not is_on(state):
        return ()
    up = _standbys_up(state)
    # This runs many times a second and mostly has nothing to do, so the runners are computed only if needed.
    concerned = [
        processor_id
        for processor_id in wanted_processors(state) or ()
        if processor_id in up or standby_count(processor_id, state)
    ]
    runners = executions_to_grant(state) if concerned else {}
    standbys = Round(state)
    for processor_id in concerned:
        standbys.add(_of_processor(processor_id, runners.get(processor_id), command, standbys.state, liveness))
    return tuple(standbys.records)


def _standbys_up(state: CoordinatorState) -> Mapping[ProcessorId, Sequence[Launch]]:
    up: dict[ProcessorId, list[Launch]] = {}
    for launch in state.launches.values():
        if launch.role is LaunchRole.STANDBY and launch.phase in UP:
            up.setdefault(launch.processor_id, []).append(launch)
    return up


def _of_processor(
    processor_id: ProcessorId,
    runner: ExecutionId | None,
    command: ReviewLaunches,
    state: CoordinatorState,
    liveness: Liveness,
) -> Iterable[CoordinatorRecord]:
    count = standby_count(processor_id, state)
    standbys = _ready_first(processor_id, runner, state, liveness)
    stays: list[Launch] = []
    misplaced: set[int] = set()
    steps = Round(state)
    for launch in standbys:
        over = _why_over(launch, stays, state)
        wrong = "" if over else _why_misplaced(launch, stays, standbys, runner, state, liveness)
        if not (over or wrong) and len(_numbers(stays, launch)) <= count:
            stays.append(launch)
        elif not has_grants(launch, state):
            text = over or wrong or f"processor {processor_id} is to have {count} standbys"
            misplaced |= {launch.standby} if wrong else set()
            steps.add([ordered_to_stop(_fruitless(launch, command, state) if wrong else launch, command, text)])
    if runner is not None and is_alive(state, runner):  # Otherwise the host to avoid is not known yet.
        for number in _numbers_missing(count, stays):
            steps.add(_started(processor_id, number, number in misplaced, command, steps.state, liveness))
    return steps.records


def _ready_first(
    processor_id: ProcessorId, runner: ExecutionId | None, state: CoordinatorState, liveness: Liveness
) -> Sequence[Launch]:
    """The standbys of a processor that are up, the ready ones first.

    Surplus standbys are stopped from the end.
    """
    standbys = [
        launch
        for launch in _launched_as_standbys(processor_id, state.launches.values())
        if launch.execution_id != runner
    ]
    return sorted(standbys, key=lambda launch: not is_warm(launch.execution_id, state, liveness))


def _started(
    processor_id: ProcessorId,
    number: int,
    is_misplaced: bool,
    command: ReviewLaunches,
    state: CoordinatorState,
    liveness: Liveness,
) -> Iterable[CoordinatorRecord]:
    """The start of a standby, if there is a host for it now."""
    if any(not place_of(launch, state) for launch in standbys_of(processor_id, state)):
        return  # The next one is started once the host of this one is known.
    last = _last_standby(processor_id, number, state)
    # While a misplaced standby occupies its place, a cluster manager that chooses hosts itself chooses another one.
    if last is not None and not (
        _may_follow(last, command, state, liveness) and (is_misplaced or _has_left(last, command))
    ):
        return
    host = _host_for(processor_id, last, command, state, liveness)
    if host is not None:
        yield launch_wanted(command, state, processor_id, LaunchRole.STANDBY, host=host, standby=number)


def _last_standby(processor_id: ProcessorId, number: int, state: CoordinatorState) -> Launch | None:
    """The last standby with a number; None if it runs the tasks.

    Such an execution is not a standby any more, and its place is not free.
    """
    last = last_of_kind(state, processor_id, LaunchRole.STANDBY, number)
    is_runner = last is not None and last.execution_id == executions_to_grant(state).get(processor_id)
    return None if is_runner else last


def _numbers_missing(count: int, stays: Sequence[Launch]) -> Sequence[int]:
    """The numbers of the standbys that are to be started."""
    taken = _numbers(stays)
    free = (number for number in range(len(taken) + count) if number not in taken)
    return tuple(islice(free, max(0, count - len(_numbers(stays)))))


def missing_standbys(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Mapping[str, str]:
    """The reason why each missing standby is not started, by the standby's name."""
    wanted = [processor_id for processor_id in wanted_processors(state) or () if standby_count(processor_id, state)]
    if not wanted or not is_on(state):
        return {}
    reasons: dict[str, str] = {}
    runners, up = executions_to_grant(state), _standbys_up(state)
    for processor_id in wanted:
        runner = runners.get(processor_id)
        if runner is None or not is_alive(state, runner):
            continue
        stays = [launch for launch in up.get(processor_id, []) if launch.execution_id != runner]
        for number in _numbers_missing(standby_count(processor_id, state), stays):
            if reason := _why_missing(processor_id, number, command, state, liveness):
                reasons[f"{processor_id}-{number}"] = reason
    return reasons


def _why_missing(
    processor_id: ProcessorId, number: int, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness
) -> str:
    last = _last_standby(processor_id, number, state)
    if last is not None and not _may_follow(last, command, state, liveness):
        again = "" if is_put_off(last, command) else ", and none is started as long as that is so"
        return (
            f"{last.failures} starts in a row came to nothing (cluster-manager.container.retry.count is "
            f"{command.retry_count}); the last one, {last.execution_id}: {last.reason}{again}"
        )
    if last is not None and not _has_left(last, command):
        return ""
    if _host_for(processor_id, last, command, state, liveness) is not None or not command.hosts:
        return ""
    why = [_why_not_on(host, processor_id, state, liveness) for host in sorted(command.hosts)]
    return f"no host may have it and has a place: {some(why)}"


def _why_not_on(host: str, processor_id: ProcessorId, state: CoordinatorState, liveness: Liveness) -> str:
    if reason := clash(host, processor_id, state, liveness):
        return reason
    placed = state.placed.get(processor_id)
    if placed is not None and host == placed.left_host:
        return f"processor {processor_id} was moved off {host} to its standby"
    return f"{host} is full"


def _fruitless(launch: Launch, command: ReviewLaunches, state: CoordinatorState) -> Launch:
    """The launch of a misplaced standby, with a failure unless the host was requested.

    A cluster manager that chose the host may choose it again. If the host was requested, its fault domain is known from
    now on, so it is not requested again. If the processor came to the host later, the start itself was right, and the
    failures before it do not make a row with this one.
    """
    if launch.host and place_of(launch, state) == launch.host:
        return launch
    was_in_place = has_lasted(command.retry_window_ms, launch.wanted_at_ms, command.now_ms)
    if was_in_place or _is_followed(launch, state) or not launch.failures:
        return replace(launch, failures=1, window_began_ms=command.now_ms)
    return replace(launch, failures=launch.failures + 1)


def _is_followed(launch: Launch, state: CoordinatorState) -> bool:
    """Whether an active execution of the processor was wanted after a standby."""
    return any(
        other.processor_id == launch.processor_id
        and other.role is LaunchRole.ACTIVE
        and other.phase in UP
        and other.wanted_at_ms > launch.wanted_at_ms
        for other in state.launches.values()
    )


def _numbers(launches: Sequence[Launch], *more: Launch) -> frozenset[int]:
    return frozenset(launch.standby for launch in (*launches, *more))


def _why_over(launch: Launch, stays: Sequence[Launch], state: CoordinatorState) -> str:
    """The reason why a standby is not needed any more; else an empty text."""
    container = state.containers.get(launch.execution_id)
    if container is not None and container.phase is ContainerPhase.RUNNING:
        return "it ran the tasks, and they were moved to another one"
    twin = _twin(launch, stays)
    if twin is not None and not is_asked_for(launch, state):
        return f"{twin.execution_id} is standby {standby_name(launch)}, and the move of that is over"
    return ""


def _twin(launch: Launch, stays: Sequence[Launch]) -> Launch | None:
    return next((other for other in stays if other.standby == launch.standby), None)


def _why_misplaced(
    launch: Launch,
    stays: Sequence[Launch],
    standbys: Sequence[Launch],
    runner: ExecutionId | None,
    state: CoordinatorState,
    liveness: Liveness,
) -> str:
    """The reason why a standby cannot stay on its host; else an empty text."""
    if launch.execution_id not in state.containers:
        return ""
    # A standby must not clash with those that stay before it, nor with the runner. A reserve's request checks its host.
    others = {standby.execution_id for standby in standbys if standby not in stays}
    others |= {
        other.execution_id
        for other in state.launches.values()
        if other.processor_id == launch.processor_id
        and other.execution_id != runner
        and (other.role is LaunchRole.RESERVE or other.phase not in UP or other == _twin(launch, stays))
    }
    return clash(place_of(launch, state), launch.processor_id, state, liveness, others)


def _may_follow(last: Launch, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> bool:
    """Whether another standby may be started under the number of `last`.

    `last` has ended or is about to stop. Too many failed starts in a row defer the next one. Misplaced starts defer it
    until their host is suitable, because the cluster manager would choose that host again.
    """
    if not is_exhausted(last, command.retry_count):
        return True
    is_wrong = last.host_found and clash(last.host_found, last.processor_id, state, liveness, [last.execution_id])
    return not is_wrong and not is_put_off(last, command)


def _has_left(last: Launch, command: ReviewLaunches) -> bool:
    """Whether the execution has given back its place."""
    return last.phase is not LaunchPhase.STOPPING or command.now_ms >= last.expires_at_ms


def _host_for(
    processor_id: ProcessorId,
    last: Launch | None,
    command: ReviewLaunches,
    state: CoordinatorState,
    liveness: Liveness,
) -> str | None:
    """The host on which to start a standby; empty for any host, None for no host now.

    Among the suitable hosts that are not full, the host of the last standby is chosen first, because the state is
    there. Otherwise the best host is chosen (`coordinator.launching.hosts`), preferably not the one that had no place
    for the last standby. The host that the processor left for its standby is excluded if another one is named.
    """
    if not command.names_hosts:
        return ""
    has_come = last is not None and last.execution_id in state.containers
    before, refused = (place_of(last, state), "") if last and has_come else ("", last.host if last else "")
    there = dict(hosts_allowed(processor_id, command, state, liveness))
    placed = state.placed.get(processor_id)
    if placed is not None and command.hosts and len(there) > 1:
        # An operator moved the processor off that host. If hosts are not named, the other known ones may be gone.
        there.pop(placed.left_host, None)
    if free := {host: use for host, use in there.items() if not use.is_full}:
        return min(free, key=lambda host: (host == refused, host != before, free[host].rank, host))
    if command.hosts:
        return None  # These are all hosts, and each is full or has an execution of the processor.
    # The cluster manager may have other hosts; it is asked once per timeout only.
    is_due = last is None or has_lasted(command.request_timeout_ms, last.wanted_at_ms, command.now_ms)
    return "" if is_due else None
