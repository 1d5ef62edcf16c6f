"""Standbys: their number, hosts, readiness and promotion.

Theory. A standby is an execution of its processor that runs none of its tasks and has their state at hand on another
host (`container.local_state.standby`). To take over is one record, `placed/<processor>` naming it; what follows is
the hand-over that each change has (`coordinator.assignment.grants`). So there is little to decide here:

- *How many* a processor has says its own record (`control-standby`), else the configuration: one less than
  `job.standbytasks.replication.factor`. A job without state has none: there would be nothing to have at hand.
- *Where*: on no host, and where it is asked for in no fault domain, of another execution of the processor. The host is
  chosen here among those that are known, and looked at once more when the standby has come.
- *Ready* is one whose last heartbeat has read the plan in force and says that the state of all tasks is there, but for
  a little.
- *After a loss* the best one that is ready takes over at once. Who drains in good order is no loss: it is to come back,
  or an operator has said where to.

Standbys have numbers from 0 on, `4-0` is the first one of processor 4. A name is of a place in the row, not of an
execution: when `4-0` takes over it is the container of processor 4, and the next standby is `4-0`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from samzapy.coordinator.assignment.grants import executions_to_grant, newest_grants
from samzapy.coordinator.assignment.liveness import Liveness, is_alive
from samzapy.coordinator.commands import ReviewLaunches
from samzapy.coordinator.launching.hosts import clash, hosts_allowed, place_of
from samzapy.coordinator.launching.launches import (
    has_grants,
    is_asked_for,
    is_exhausted,
    is_on,
    is_put_off,
    last_of_kind,
    launch_wanted,
    ordered_to_stop,
    wanted_processors,
)
from samzapy.coordinator.state import CoordinatorState, Round, is_leaving, sorted_processors
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ContainerModel, ExecutionId, JobModel, ProcessorId, TaskMode
from samzapy.model.launch import UP, Launch, LaunchPhase, LaunchRole, standby_name
from samzapy.model.placement import LAST_SEEN, Action, ContainerPlacementRequestMessage, Refusal
from samzapy.model.text import some
from samzapy.stream.records import CoordinatorRecord, PlacedPut

LAG_MAX = 50_000
"""Offsets of changelogs that a start catches up within a fraction of a second."""

_NAME = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def named(name: str, state: CoordinatorState) -> tuple[ProcessorId, int | None]:
    """The processor that a request is for, and the number of the standby that is meant: `4-0` is one of processor 4.

    Where people start the containers any text may be the name of a processor.
    """
    found = None if state.container_count is None else _NAME.fullmatch(name)
    return (ProcessorId(name), None) if found is None else (ProcessorId(found[1]), int(found[2]))


def refused_standby(message: ContainerPlacementRequestMessage, state: CoordinatorState) -> Refusal | None:
    """Why something that only whoever runs tasks can do is not asked of a standby; None where none is named."""
    if named(message.processor_id, state)[1] is None:
        return None
    return Refusal(
        f"processorId: wanted a processor, found {message.processor_id}, which names a standby, and that runs no "
        f"query; {Action.PLACE_CONTAINER} to {LAST_SEEN} starts it anew"
    )


def has_state(state: CoordinatorState) -> bool:
    """Whether the job has stores, as its configuration stands on the log."""
    return any(key.startswith("stores.") for key in state.config)


def standby_count(processor_id: ProcessorId, state: CoordinatorState) -> int:
    """How many standbys a processor is to have."""
    if not has_state(state):
        return 0
    own = state.standbys.get(processor_id)
    return int(state.config.get("job.standbytasks.replication.factor", "1")) - 1 if own is None else own.count


def standbys_of(processor_id: ProcessorId, state: CoordinatorState) -> tuple[Launch, ...]:
    """The standbys of a processor that are to be there, by number and age; without one that runs its tasks."""
    found = _standing(processor_id, state.launches.values())
    if not found:
        return ()
    runner = executions_to_grant(state).get(processor_id)
    return tuple(launch for launch in found if launch.execution_id != runner)


def role_of(execution_id: ExecutionId, state: CoordinatorState) -> LaunchRole:
    """What an execution is now. A standby or a reserve that the tasks went to is ACTIVE."""
    launch = state.launches.get(execution_id)
    if launch is None or executions_to_grant(state).get(launch.processor_id) == execution_id:
        return LaunchRole.ACTIVE
    return launch.role


def standby_called(execution_id: ExecutionId, state: CoordinatorState) -> str | None:
    """The name of an execution that stands by, `4-0`; None of others."""
    is_standby = role_of(execution_id, state) is LaunchRole.STANDBY
    return standby_name(state.launches[execution_id]) if is_standby else None


def with_standbys(plan: JobModel, state: CoordinatorState) -> JobModel:
    """`plan`, and a container for each standby with what it has at hand: the tasks of its processor, as in Samza's
    JobModel. No planner makes them: they are executions, which come and go without another plan."""
    found = [
        ContainerModel(
            processor_id=ProcessorId(standby_name(launch)),
            location_id=launch.host_found or launch.host or None,
            tasks=tuple(replace(task, mode=TaskMode.STANDBY) for task in container.tasks),
        )
        for container in plan.containers
        if container.tasks
        for launch in standbys_of(container.processor_id, state)
    ]
    return replace(plan, containers=(*plan.containers, *found))


def _standing(processor_id: ProcessorId, launches: Iterable[Launch]) -> tuple[Launch, ...]:
    found = (
        launch
        for launch in launches
        if launch.processor_id == processor_id and launch.role is LaunchRole.STANDBY and launch.phase in UP
    )
    return tuple(sorted(found, key=lambda launch: (launch.standby, launch.wanted_at_ms, launch.execution_id)))


def is_warm(execution_id: ExecutionId, state: CoordinatorState, liveness: Liveness) -> bool:
    """Whether an execution that runs nothing could go on with its processor's tasks at once."""
    return is_level(execution_id, state, liveness, must_be_rehearsed=True)


def is_level(
    execution_id: ExecutionId, state: CoordinatorState, liveness: Liveness, *, must_be_rehearsed: bool = False
) -> bool:
    """Whether it has the state of its processor's tasks at hand, though its first query may take some seconds more."""
    sighting, container = liveness.last.get(execution_id), state.containers.get(execution_id)
    if container is None or not is_alive(state, execution_id) or sighting is None or sighting.warm is None:
        return False
    count = sum(planned.processor_id == container.processor_id for planned in state.plan)
    return (
        sighting.stream_offset > state.generation_offset
        and sighting.warm.tasks == sighting.warm.level == count
        and sighting.warm.lag <= LAG_MAX
        and (sighting.warm.is_rehearsed or not must_be_rehearsed)
    )


def best_standby(processor_id: ProcessorId, state: CoordinatorState, liveness: Liveness) -> Launch | None:
    """The standby of a processor that lacks least; None where none of them lives."""

    def rank(launch: Launch) -> tuple[bool, int, int, str]:
        sighting = liveness.last.get(launch.execution_id)
        warm = None if sighting is None else sighting.warm
        is_cold = not is_warm(launch.execution_id, state, liveness)
        return is_cold, 0 if warm is None else -warm.level, 0 if warm is None else warm.lag, launch.execution_id

    living = [launch for launch in standbys_of(processor_id, state) if is_alive(state, launch.execution_id)]
    return min(living, key=rank) if living else None


def promotions(state: CoordinatorState, liveness: Liveness) -> tuple[PlacedPut, ...]:
    """The standbys that take over for an execution that was lost; at once, before another one is started for it."""
    if not is_on(state):
        return ()
    lost = _processors_lost(state)
    runners = executions_to_grant(state)
    found = []
    # What ended the container of a suspended processor would end its standby, too.
    for processor_id in sorted_processors(
        (lost & frozenset(wanted_processors(state) or ())) - state.suspended.keys()
    ):
        runner = runners.get(processor_id)
        if runner is not None and is_alive(state, runner) and not is_leaving(runner, state):
            continue
        best = best_standby(processor_id, state, liveness)
        # Nothing runs the tasks meanwhile: whoever has their state is sooner than one that has to be started.
        if best is not None and is_level(best.execution_id, state, liveness):
            found.append(PlacedPut(processor_id=processor_id, execution_id=best.execution_id, uuid=""))
    return tuple(found)


def _processors_lost(state: CoordinatorState) -> frozenset[ProcessorId]:
    """Those of which a task was granted last to an execution that was given up."""
    given_up = {
        container.execution_id
        for container in state.containers.values()
        if container.phase in (ContainerPhase.LOST, ContainerPhase.FENCED)
    }
    newest = newest_grants(state) if given_up else {}
    return frozenset(
        planned.processor_id
        for planned in state.plan
        if planned.task_name in newest and newest[planned.task_name].execution_id in given_up
    )


# --- what is to be ---


def review_standbys(
    command: ReviewLaunches, state: CoordinatorState, liveness: Liveness
) -> tuple[CoordinatorRecord, ...]:
    """The standbys that are to be started, and those that are to stop."""
    if not is_on(state):
        return ()
    standing = _standbys_up(state)
    # Looked at many times a second, and mostly there is nothing to do.
    concerned = [
        found for found in wanted_processors(state) or () if found in standing or standby_count(found, state)
    ]
    runners = executions_to_grant(state) if concerned else {}
    standbys = Round(state)
    for processor_id in concerned:
        standbys.add(_of_processor(processor_id, runners.get(processor_id), command, standbys.state, liveness))
    return tuple(standbys.records)


def _standbys_up(state: CoordinatorState) -> Mapping[ProcessorId, Sequence[Launch]]:
    standing: dict[ProcessorId, list[Launch]] = {}
    for launch in state.launches.values():
        if launch.role is LaunchRole.STANDBY and launch.phase in UP:
            standing.setdefault(launch.processor_id, []).append(launch)
    return standing


def _of_processor(
    processor_id: ProcessorId,
    runner: ExecutionId | None,
    command: ReviewLaunches,
    state: CoordinatorState,
    liveness: Liveness,
) -> Iterable[CoordinatorRecord]:
    count = standby_count(processor_id, state)
    standing = _ready_first(processor_id, runner, state, liveness)
    stays: list[Launch] = []
    misplaced: set[int] = set()
    steps = Round(state)
    for launch in standing:
        over = _why_over(launch, stays, state)
        wrong = "" if over else _why_misplaced(launch, stays, standing, runner, state, liveness)
        if not (over or wrong) and len(_numbers(stays, launch)) <= count:
            stays.append(launch)
        elif not has_grants(launch, state):
            text = over or wrong or f"processor {processor_id} is to have {count} standbys"
            misplaced |= {launch.standby} if wrong else set()
            steps.add([ordered_to_stop(_fruitless(launch, command, state) if wrong else launch, command, text)])
    if runner is not None and is_alive(state, runner):  # Else it is not known yet on which host it must not be.
        for number in _numbers_missing(count, stays):
            steps.add(_started(processor_id, number, number in misplaced, command, steps.state, liveness))
    return steps.records


def _ready_first(
    processor_id: ProcessorId, runner: ExecutionId | None, state: CoordinatorState, liveness: Liveness
) -> Sequence[Launch]:
    """The standbys of a processor that are up, the ready ones first: surplus ones are taken from the end."""
    standing = [
        launch for launch in _standing(processor_id, state.launches.values()) if launch.execution_id != runner
    ]
    return sorted(standing, key=lambda launch: not is_warm(launch.execution_id, state, liveness))


def _started(
    processor_id: ProcessorId,
    number: int,
    is_misplaced: bool,
    command: ReviewLaunches,
    state: CoordinatorState,
    liveness: Liveness,
) -> Iterable[CoordinatorRecord]:
    """The start of a standby, if there is a host for it now."""
    if any(not place_of(found, state) for found in standbys_of(processor_id, state)):
        return  # Another one when it is known where this one is.
    last = _last_standby(processor_id, number, state)
    # As long as one that is misplaced has its place, a cluster manager that chooses by itself takes another one.
    if last is not None and not (
        _may_follow(last, command, state, liveness) and (is_misplaced or _has_left(last, command))
    ):
        return
    host = _host_for(processor_id, last, command, state, liveness)
    if host is not None:
        yield launch_wanted(command, state, processor_id, LaunchRole.STANDBY, host=host, standby=number)


def _last_standby(processor_id: ProcessorId, number: int, state: CoordinatorState) -> Launch | None:
    """The last one under a number. One that runs the tasks is no standby any more, and its place is not free."""
    last = last_of_kind(state, processor_id, LaunchRole.STANDBY, number)
    is_runner = last is not None and last.execution_id == executions_to_grant(state).get(processor_id)
    return None if is_runner else last


def _numbers_missing(count: int, stays: Sequence[Launch]) -> Sequence[int]:
    """The numbers of the standbys that are still to be started."""
    taken = _numbers(stays)
    free = (number for number in range(len(taken) + count) if number not in taken)
    return tuple(islice(free, max(0, count - len(_numbers(stays)))))


def missing_standbys(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Mapping[str, str]:
    """Why standbys that are to be there are not started, for people; by what they are called."""
    wanted = [processor_id for processor_id in wanted_processors(state) or () if standby_count(processor_id, state)]
    if not wanted or not is_on(state):
        return {}
    reasons: dict[str, str] = {}
    runners, standing = executions_to_grant(state), _standbys_up(state)
    for processor_id in wanted:
        runner = runners.get(processor_id)
        if runner is None or not is_alive(state, runner):
            continue
        stays = [launch for launch in standing.get(processor_id, []) if launch.execution_id != runner]
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
    why = [clash(host, processor_id, state, liveness) or f"{host} is full" for host in sorted(command.hosts)]
    return f"no host may have it and has a place: {some(why)}"


def _fruitless(launch: Launch, command: ReviewLaunches, state: CoordinatorState) -> Launch:
    """One that came where it must not be. It is a failure where the cluster manager chose the host: it may do so again.
    Of a host that was asked for it is known from then on what it is."""
    if launch.host and place_of(launch, state) == launch.host:
        return launch
    was_in_place = command.now_ms - launch.wanted_at_ms > command.retry_window_ms
    if was_in_place or not launch.failures:
        return replace(launch, failures=1, window_began_ms=command.now_ms)
    return replace(launch, failures=launch.failures + 1)


def _numbers(standing: Sequence[Launch], *more: Launch) -> frozenset[int]:
    return frozenset(launch.standby for launch in (*standing, *more))


def _why_over(launch: Launch, stays: Sequence[Launch], state: CoordinatorState) -> str:
    """Why a standby is not needed any more; empty where it is."""
    container = state.containers.get(launch.execution_id)
    if container is not None and container.phase is ContainerPhase.RUNNING:
        return "it ran the tasks, and they were moved to another one"
    twin = _twin(launch, stays)
    if twin is not None and not is_asked_for(launch, state):
        return f"{twin.execution_id} is standby {standby_name(launch)}, and the move of that is over"
    return ""


def _twin(launch: Launch, stays: Sequence[Launch]) -> Launch | None:
    return next((found for found in stays if found.standby == launch.standby), None)


def _why_misplaced(
    launch: Launch,
    stays: Sequence[Launch],
    standing: Sequence[Launch],
    runner: ExecutionId | None,
    state: CoordinatorState,
    liveness: Liveness,
) -> str:
    """Why a standby cannot stay where it has come; empty where it can."""
    if launch.execution_id not in state.containers:
        return ""
    # Each is held against those that stay before it, and against the runner. Reserves are looked at by their moves.
    others = {found.execution_id for found in standing if found not in stays}
    others |= {
        found.execution_id
        for found in state.launches.values()
        if found.processor_id == launch.processor_id
        and found.execution_id != runner
        and (found.role is LaunchRole.RESERVE or found.phase not in UP or found == _twin(launch, stays))
    }
    return clash(place_of(launch, state), launch.processor_id, state, liveness, others)


def _may_follow(last: Launch, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> bool:
    """Whether another standby may be started under the number of `last`, which is not to be there any more.

    So many starts in a row that came to nothing put it off; those that came to the wrong place do until that is a right
    one, as the cluster manager would put the next one there again.
    """
    if not is_exhausted(last, command.retry_count):
        return True
    is_wrong = last.host_found and clash(last.host_found, last.processor_id, state, liveness, [last.execution_id])
    return not is_wrong and not is_put_off(last, command)


def _has_left(last: Launch, command: ReviewLaunches) -> bool:
    """Whether it has given back its place."""
    return last.phase is not LaunchPhase.STOPPING or command.now_ms >= last.expires_at_ms


def _host_for(
    processor_id: ProcessorId,
    last: Launch | None,
    command: ReviewLaunches,
    state: CoordinatorState,
    liveness: Liveness,
) -> str | None:
    """Where a standby is to be started; empty for anywhere, None for nowhere now.

    Among the hosts that may have it and are not full where the last one was, because its state is there; else the best
    one (`coordinator.launching.hosts`), and rather not the one that had no place for the last one. That which the
    processor left for its standby is none, as long as another one is named.
    """
    if not command.names_hosts:
        return ""
    has_come = last is not None and last.execution_id in state.containers
    before, refused = (place_of(last, state), "") if last and has_come else ("", last.host if last else "")
    there = dict(hosts_allowed(processor_id, command, state, liveness))
    placed = state.placed.get(processor_id)
    if placed is not None and command.hosts and len(there) > 1:
        # An operator wanted it off that host. Where hosts are not named another one may be known, and gone for good.
        there.pop(placed.left_host, None)
    if free := {host: found for host, found in there.items() if not found.is_full}:
        return min(free, key=lambda host: (host == refused, host != before, free[host].rank, host))
    if command.hosts:
        return None  # Those are all, and on each of them there is one, or no room.
    # The cluster manager may have others; it is not asked all the time.
    is_due = last is None or command.now_ms - last.wanted_at_ms >= command.request_timeout_ms
    return "" if is_due else None
