"""Launches of coordinator-managed containers: start, stop, outcome (ADR 0015).

Each wanted execution has a record, `launch/<execution id>`, before the launcher starts it. So no start is forgotten,
and no execution is started twice under two names. If a coordinator dies between the record and the start, the next
leader reads the records and requests the same starts again, and the launcher adopts executions that already run. The
launcher's work is read off the records (`to_start`, `to_kill`), and its observations come back as a command.

```
            the launcher has it          it is not wanted, or failed           it is gone
 WANTED ──────────────────► LAUNCHED ─────────────────────────► STOPPING ─────────────────► ENDED ──► forgotten
    └───────────────────────────┴─────────── it ended by itself ─────────────────────────────┘
```

*Wanted executions.* While a run is on, each of the processors 0 to N-1 (`container-count`) has one wanted execution:
the one on which its tasks were placed, or else an active one of its own. Other modules want standbys and reserves
(`coordinator.launching.standbys`, `coordinator.requests.place_container`). From its record on, each execution follows
the rules here.

*Stopping.* The order to stop is a record on the stream: the container reads it, drains and ends. A container that has
not ended in time is killed, and a failed one is killed at once. An execution that is to be killed is also declared
lost, because the kill may be impossible: after fencing, its tasks are free.

*Failures* are counted in the records, from one execution of a processor to the next, within a window. A container
failed if it ended without an order, was declared lost, or sent no heartbeat in time. The failure of a standby or a
reserve that had taken over counts on the newest active execution of its processor, because the tasks were down with it.
After too many failures the job ends, or runs on without that processor. An end that every other container would repeat
is not a failure: its processor is suspended (`coordinator.launching.suspension`).

*Host.* A container is started on the host where the processor ran last, because its state is there. After a failed
start another host is used, because the fault may be the host's. After the second failed start in a row there is a pause
first.

Times are wall-clock times, because they must outlive a coordinator. If the clock jumps, a start is declared failed too
early, or late by one timeout, but nothing is started twice. After the clock was set back, recorded times lie in the
future. It is unknown how long ago they were. So waits and windows that began there are over (`has_lasted`), and
deadlines are counted anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.grants import executions_to_grant
from samzapy.coordinator.assignment.liveness import LIVING, NO_LIVENESS, Liveness, declare_lost, is_alive
from samzapy.coordinator.grant_values import ContainerGone
from samzapy.coordinator.launching.hosts import elsewhere, hosts_allowed, hosts_there, there_or_elsewhere
from samzapy.coordinator.launching.suspension import is_suspended_by, resumed, suspensions_over
from samzapy.coordinator.state import CoordinatorState, Round, locality_of, remembered, tombstone
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.container_end import exit_text
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import UP, Launch, Launched, LaunchedState, LaunchPhase, LaunchRole, by_age
from samzapy.model.placement import ANY_HOST, UNFINISHED
from samzapy.stream.records import CoordinatorRecord, LaunchPut, Removed

if TYPE_CHECKING:
    from samzapy.coordinator.commands import LaunchesLooked, ReviewLaunches

_PAUSE_MAX_MS = 30_000
HOST_AWAY_MS = 10_000
"""How long a container stays wanted on a host that the cluster does not name any more, because its state is there."""
HOST_FULL_MS = 5_000
"""How long a container stays wanted on a full host, because a container that ends there frees its place shortly after.
Samza waits as long for a preferred host (`cluster-manager.container.request.timeout.ms`)."""
P = LaunchPhase
_Kind = tuple[ProcessorId, LaunchRole, int]
"""An execution's processor, its role, and its number among several standbys."""


def wanted_processors(state: CoordinatorState) -> tuple[ProcessorId, ...] | None:
    """The processors for which containers are started, in order.

    None if the containers are self-managed.
    """
    if state.container_count is None:
        return None
    return tuple(ProcessorId(str(number)) for number in range(state.container_count.count))


def review_launches(
    command: ReviewLaunches, state: CoordinatorState, liveness: Liveness = NO_LIVENESS
) -> tuple[tuple[CoordinatorRecord, ...], str]:
    """Records of the executions to start, stop and forget, with causes for the audit."""
    if state.container_count is None and not state.launches:
        return (), ""
    steps = Round(state)
    causes: list[str] = []
    for cause, step in (
        ("the clock was set back", _deadlines_anew),
        ("not started by the coordinator", _foreign),
        ("a suspended processor runs again", lambda command, state: suspensions_over(state)),
        ("containers failed or are not wanted", partial(_stopped, liveness=liveness)),
        ("failures are over", _failures_over),
        ("a container failed too often", _run_failed),
        ("the run is finished", _dismissed),
        ("containers are wanted", partial(_wanted, liveness=liveness)),
    ):
        causes += [cause] if steps.add(step(command, steps.state)) else []
    return tuple(steps.records), "; ".join(causes)


def stopped_too_late(command: ReviewLaunches, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Declare the executions lost that are to be killed.

    The cluster manager may be unable to kill them. An execution that still sends heartbeats would then keep its tasks
    for ever.
    """
    return tuple(
        record
        for launch in to_kill(state, command.now_ms)
        if is_alive(state, launch.execution_id)
        for record in declare_lost(
            ContainerGone(launch.execution_id, f"it was told to stop and has not in time: {launch.reason}"), state
        )
    )


def launches_looked(command: LaunchesLooked, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The changes that follow from the launcher's observations.

    An execution that ended without a last heartbeat is declared lost.
    """
    steps = Round(state)
    for execution_id in sorted(command.launched.keys() & state.launches.keys()):
        launch = steps.state.launches[execution_id]
        looked = _after_look(launch, command.launched[execution_id], command, steps.state)
        after = looked[0].launch
        if after == launch:
            continue
        steps.add(looked)
        if after.phase is P.ENDED:
            steps.add(declare_lost(ContainerGone(execution_id, after.reason), steps.state))
    return tuple(steps.records)


def to_start(state: CoordinatorState) -> tuple[Launch, ...]:
    """The launches that the launcher is to start, unless they already run.

    An execution that has sent a heartbeat was started.
    """
    return tuple(
        launch
        for launch in _sorted(state)
        if launch.phase is P.WANTED and launch.execution_id not in state.containers
    )


def to_kill(state: CoordinatorState, now_ms: int) -> tuple[Launch, ...]:
    """The launches that the launcher is to kill at once."""
    return tuple(launch for launch in _sorted(state) if launch.phase is P.STOPPING and now_ms >= launch.expires_at_ms)


def to_look_at(state: CoordinatorState) -> tuple[Launch, ...]:
    """The launches that the launcher is asked about: all that may still run."""
    return tuple(launch for launch in _sorted(state) if launch.phase is not P.ENDED)


def launch_wanted(
    command: ReviewLaunches,
    state: CoordinatorState,
    processor_id: ProcessorId,
    role: LaunchRole,
    *,
    host: str,
    standby: int = 0,
    uuid: str = "",
) -> LaunchPut:
    """The record of a wanted execution, with the failures of the last one of its kind.

    Args:
        host: the host where the execution is wanted; empty for any host.
    """
    last = last_of_kind(state, processor_id, role, standby)
    kind = {LaunchRole.ACTIVE: "", LaunchRole.STANDBY: f"s{standby}-", LaunchRole.RESERVE: "r-"}[role]
    return LaunchPut(
        launch=Launch(
            execution_id=_unused_id(f"container-{processor_id}-{kind}{command.seed}", state),
            processor_id=processor_id,
            role=role,
            phase=P.WANTED,
            standby=standby,
            host=host,
            wanted_at_ms=command.now_ms,
            expires_at_ms=command.now_ms + command.request_timeout_ms,
            failures=0 if last is None else last.failures,
            window_began_ms=0 if last is None else last.window_began_ms,
            uuid=uuid,
        )
    )


def _unused_id(text: str, state: CoordinatorState) -> ExecutionId:
    """The id `text`, followed by a number if an execution has this id already.

    Reviews of one round share a seed. After an append of unknown outcome they are decided again, on a state that may
    contain their first launches.
    """
    ids = (text if number == 1 else f"{text}-{number}" for number in count(1))
    return next(ExecutionId(each) for each in ids if each not in state.launches and each not in state.containers)


def ordered_to_stop(launch: Launch, command: ReviewLaunches, reason: str) -> LaunchPut:
    """The record that orders an execution to drain and end. This is not a failure."""
    expires_at_ms = command.now_ms + command.stop_timeout_ms
    return LaunchPut(launch=replace(launch, phase=P.STOPPING, reason=reason, expires_at_ms=expires_at_ms))


def runner_of(state: CoordinatorState, processor_id: ProcessorId) -> Launch | None:
    """The execution that runs a processor's tasks, or will once it is up; else None."""
    runner = executions_to_grant(state).get(processor_id)
    if runner is not None and runner in state.launches and is_alive(state, runner):
        return state.launches[runner]
    up = [
        launch
        for launch in _sorted(state)
        if launch.phase in UP and _kind(launch) == (processor_id, LaunchRole.ACTIVE, 0)
    ]
    return min(up, key=_age) if up else None


def last_of_kind(
    state: CoordinatorState, processor_id: ProcessorId, role: LaunchRole, standby: int = 0
) -> Launch | None:
    """The newest recorded execution of a kind that was started for a processor."""
    return _newest(state).get((processor_id, role, standby))


def has_lasted(limit_ms: int, since_ms: int, now_ms: int) -> bool:
    """Whether `limit_ms` are over since a recorded time of the wall clock.

    They are over if that time lies in the future: the clock was set back since. Otherwise, a wait would be longer by as
    much, and failures that are hours apart would count as failures in a row.
    """
    return not 0 <= now_ms - since_ms < limit_ms


def is_exhausted(launch: Launch, retry_count: int) -> bool:
    """Whether too many executions of its kind failed, so that no other one is started."""
    return launch.failures > retry_count and launch.phase not in UP


def failed_job(state: CoordinatorState, retry_count: int) -> str:
    """The reason why the job ended; else an empty text.

    It names the processor whose containers failed too often. Standbys and reserves do not count until they have taken
    over, because all tasks run without them.
    """
    exhausted = [
        launch for launch in _sorted(state) if launch.role is LaunchRole.ACTIVE and is_exhausted(launch, retry_count)
    ]
    return (
        ""
        if not exhausted
        else f"containers of processor {exhausted[0].processor_id} failed {exhausted[0].failures} times in a row "
        f"(cluster-manager.container.retry.count is {retry_count}); the last one, {exhausted[0].execution_id}: "
        f"{exhausted[0].reason}"
    )


def is_over(state: CoordinatorState) -> bool:
    """Whether the run has ended and none of its executions may still run."""
    return state.run is not None and state.run.ended and not to_look_at(state)


def launches_forgotten(state: CoordinatorState) -> tuple[Removed | LaunchPut, ...]:
    """The records that clear the failures of earlier runs when a run begins.

    These are tombstones of the launches that have ended, and the launches that may still run, with zero failures.
    """
    records: list[Removed | LaunchPut] = []
    for launch in _sorted(state):
        if launch.phase is P.ENDED and not may_live(launch, state):
            records.append(tombstone(LaunchPut(launch=launch)))
        elif launch.failures:
            records.append(LaunchPut(launch=replace(launch, failures=0, window_began_ms=0)))
    return (*resumed(state.suspended, state), *records)


# --- executions that end ---


def _deadlines_anew(command: ReviewLaunches, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """Count a deadline from now if it is further away than its timeout.

    The clock was set back after the deadline was recorded. A hung execution would be killed later by as much.
    """
    for launch in to_look_at(state):
        is_stopping = launch.phase is P.STOPPING
        latest_ms = command.now_ms + (command.stop_timeout_ms if is_stopping else command.request_timeout_ms)
        is_awaited = is_stopping or launch.execution_id not in state.containers
        if is_awaited and launch.expires_at_ms > latest_ms:
            yield LaunchPut(launch=replace(launch, expires_at_ms=latest_ms))


def _foreign(command: ReviewLaunches, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """Declare the living executions lost that the job's coordinator did not start."""
    for container in state.containers_sorted if state.container_count is not None else ():
        if container.phase in LIVING and container.execution_id not in state.launches:
            reason = "the job's containers are started by its coordinator (samzapy job submit), and this one was not"
            yield from declare_lost(ContainerGone(container.execution_id, reason), state)


def _stopped(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Iterable[CoordinatorRecord]:
    surplus = _surplus(state)
    steps = Round(state)
    for execution_id in [launch.execution_id for launch in _up(state)] if is_on(state) else ():
        # A failure before it may have been counted on this one.
        launch = steps.state.launches[execution_id]
        container = state.containers.get(execution_id)
        not_started = _not_started(launch, command, state, liveness) if container is None else None
        if not_started is not None:
            steps.add([not_started])
        elif is_suspended_by(launch, state):
            steps.add([ordered_to_stop(launch, command, "" if container is None else container.reason)])
        elif container is not None and container.phase not in LIVING:
            steps.add(_ended_unasked(launch, container, command, steps.state))
        elif execution_id in surplus and not _holds(launch, state):
            steps.add([ordered_to_stop(launch, command, surplus[execution_id])])
        elif container is not None and launch.phase is P.WANTED:
            steps.add([LaunchPut(launch=replace(launch, phase=P.LAUNCHED, host_found=container.host))])
    return steps.records


def _not_started(
    launch: Launch, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness
) -> LaunchPut | None:
    """The end of a start without a heartbeat; None while the heartbeat may still come.

    A start ends if it is overdue, or if its host has no place for it.
    """
    if command.now_ms >= _expires_at_ms(launch, command):
        limit_ms = command.request_timeout_ms  # Not the time since the start: the clock may have been set back.
        reason = f"it was not heard of within {limit_ms} ms (cluster-manager.container.request.timeout.ms)"
        return _given_up(launch, command, f"{reason}{liveness.why_not(launch.execution_id)}")
    if reason := _why_not_there(launch, command, state, liveness):
        return _withdrawn(launch, command, reason)
    return None


def _ended_unasked(
    launch: Launch, container: Container, command: ReviewLaunches, state: CoordinatorState
) -> Iterable[LaunchPut]:
    """The failure of a launch whose container ended or was lost without an order."""
    failed, *counted = _failure(launch, container.reason, command.now_ms, command.retry_window_ms, state)
    if container.phase is ContainerPhase.STOPPED:
        ended = ordered_to_stop(failed.launch, command, f"it stopped by itself: {container.reason}")
    else:
        ended = _to_be_killed(failed.launch, command, container.reason)
    return (ended, *counted)


def _expires_at_ms(launch: Launch, command: ReviewLaunches) -> int:
    """The time by which an execution must have sent a heartbeat.

    An execution that was started while no leader listened has the whole timeout from when the leader listens.
    """
    heard_by_ms = command.listening_since_ms + command.request_timeout_ms
    return launch.expires_at_ms if launch.phase is P.WANTED else max(launch.expires_at_ms, heard_by_ms)


def _why_not_there(launch: Launch, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> str:
    """The reason to stop waiting for an execution's host; else an empty text.

    An execution that an operator requested on this host waits as long as the request does.
    """
    if launch.phase is not P.WANTED or not launch.host or _is_asked_for_there(launch, state):
        return ""
    if not command.names_hosts:
        return "the cluster manager names no hosts, so it is wanted on any"
    has_waited = partial(has_lasted, since_ms=launch.wanted_at_ms, now_ms=command.now_ms)
    there = command.hosts
    if there and launch.host not in there:
        return f"the cluster has no host {launch.host} any more" if has_waited(HOST_AWAY_MS) else ""
    if there.get(launch.host) != 0 or not has_waited(HOST_FULL_MS):
        return ""
    # An active execution may run on any host, and others only apart from their processor's executions.
    others = hosts_there(command, state, liveness)
    if launch.role is not LaunchRole.ACTIVE:
        others = hosts_allowed(launch.processor_id, command, state, liveness)
    has_room = any(not use.is_full for host, use in others.items() if host != launch.host)
    return f"{launch.host} is full, and another host is not" if has_room else ""


def _is_asked_for_there(launch: Launch, state: CoordinatorState) -> bool:
    request = state.requests.get(launch.uuid)
    return request is not None and request.destination_host != ANY_HOST and is_asked_for(launch, state)


def _withdrawn(launch: Launch, command: ReviewLaunches, reason: str) -> LaunchPut:
    """The launch with its start withdrawn, as it is to run on another host.

    This is not a failure. If the execution starts all the same, it is killed.
    """
    return LaunchPut(launch=replace(launch, phase=P.STOPPING, reason=reason, expires_at_ms=command.now_ms))


def _surplus(state: CoordinatorState) -> Mapping[ExecutionId, str]:
    """The executions that are not wanted, each with the reason.

    Each is ordered to stop once it has released its tasks.
    """
    wanted = frozenset(wanted_processors(state) or ())
    runners = executions_to_grant(state)
    # Until an active execution of a processor sends a heartbeat, the one that was wanted first is to run its tasks.
    first = {_kind(launch): launch for launch in sorted(_up(state), key=_age, reverse=True)}
    reasons: dict[ExecutionId, str] = {}
    for launch in _up(state):
        runner = runners.get(launch.processor_id)
        if launch.processor_id not in wanted:
            reasons[launch.execution_id] = f"the job has {len(wanted)} containers now"
        elif launch.execution_id == runner:
            continue
        elif launch.role is LaunchRole.ACTIVE and _is_up(runner, state):
            reasons[launch.execution_id] = f"{runner} runs the tasks of processor {launch.processor_id}"
        elif launch.role is LaunchRole.ACTIVE and first[_kind(launch)] != launch:
            other = first[_kind(launch)].execution_id
            reasons[launch.execution_id] = f"{other} is to run the tasks of processor {launch.processor_id}"
        elif launch.role is LaunchRole.RESERVE and not is_asked_for(launch, state):
            reasons[launch.execution_id] = "the request that it was for is over"
    return reasons


def _is_up(execution_id: ExecutionId | None, state: CoordinatorState) -> bool:
    return execution_id is not None and is_alive(state, execution_id)


def is_asked_for(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the request for which an execution was started is unfinished."""
    request = state.requests.get(launch.uuid)
    return request is not None and request.status_code in UNFINISHED


def _holds(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the execution may still commit under one of its grants."""
    return is_alive(state, launch.execution_id) and has_grants(launch, state)


def has_grants(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the execution has a grant that is not recorded as released."""
    return any(grant.execution_id == launch.execution_id and not grant.released for grant in state.grants.values())


def _given_up(launch: Launch, command: ReviewLaunches, reason: str) -> LaunchPut:
    """The failure of a launch that did not start in time."""
    return _to_be_killed(_failed(launch, command.now_ms, command.retry_window_ms), command, reason)


def _to_be_killed(launch: Launch, command: ReviewLaunches, reason: str) -> LaunchPut:
    """The record that ends an execution at once, without a drain."""
    return LaunchPut(launch=replace(launch, phase=P.STOPPING, reason=reason, expires_at_ms=command.now_ms))


def _failure(
    launch: Launch, reason: str, now_ms: int, window_ms: int, state: CoordinatorState
) -> tuple[LaunchPut, ...]:
    """The launch after its failure, and the other launch that counts it, if any.

    The other one comes second: if the transaction is torn after the first, a failure is not counted, rather than twice.
    """
    active = last_of_kind(state, launch.processor_id, LaunchRole.ACTIVE) if _has_taken_over(launch, state) else None
    if active is None:
        return (LaunchPut(launch=_failed(launch, now_ms, window_ms)),)
    counted = _failed(active, now_ms, window_ms)
    if counted.phase not in UP:
        counted = replace(counted, reason=f"{launch.execution_id}, which had taken over, {reason}")
    return LaunchPut(launch=launch), LaunchPut(launch=counted)


def _has_taken_over(launch: Launch, state: CoordinatorState) -> bool:
    """Whether a standby or a reserve got tasks of its processor."""
    return launch.role is not LaunchRole.ACTIVE and any(
        grant.execution_id == launch.execution_id for grant in state.grants.values()
    )


def _failed(launch: Launch, now_ms: int, window_ms: int) -> Launch:
    """The launch with one more failure; the earlier ones count only within the window."""
    if not launch.failures or has_lasted(window_ms, launch.window_began_ms, now_ms):
        return replace(launch, failures=1, window_began_ms=now_ms)
    return replace(launch, failures=launch.failures + 1)


def _failures_over(command: ReviewLaunches, state: CoordinatorState) -> Iterable[LaunchPut]:
    """Set failures to zero once their window is over and the processor runs.

    The next failure is a first one then. A last heartbeat has no wall clock by which the window could be checked when
    it reports an end that suspends the processor at the second failure.
    """
    over = [
        launch
        for launch in _sorted(state)
        if launch.failures and has_lasted(command.retry_window_ms, launch.window_began_ms, command.now_ms)
    ]
    runners = executions_to_grant(state) if over else {}
    for launch in over:
        runner = runners.get(launch.processor_id)
        # The newest active launch counts the failures, also while a standby or a reserve runs the tasks.
        is_counting = launch == last_of_kind(state, launch.processor_id, LaunchRole.ACTIVE)
        if (is_counting or launch.execution_id == runner) and _is_running(runner, state):
            yield LaunchPut(launch=replace(launch, failures=0, window_began_ms=0))


def _is_running(execution_id: ExecutionId | None, state: CoordinatorState) -> bool:
    container = None if execution_id is None else state.containers.get(execution_id)
    return container is not None and container.phase is ContainerPhase.RUNNING


def _run_failed(command: ReviewLaunches, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """The end of the whole run, if the containers of one processor failed too often."""
    if command.fails_job and is_on(state) and failed_job(state, command.retry_count):
        assert state.run is not None, "a run that is on is there"
        yield replace(state.run, finished=True)


def _dismissed(command: ReviewLaunches, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    for launch in _up(state) if not is_on(state) else ():
        yield ordered_to_stop(launch, command, "the run of the job is finished")


def launches_superseded(state: CoordinatorState) -> Iterable[Removed]:
    """Tombstones of ended launches that are not needed any more.

    A launch is not needed once a later one of its kind counts its failures, or none of the kind is wanted. The
    tombstones come after the wanted launches, because one of those may be the later launch (law L2).

    The launch that a request started is kept until the request is over. In a finished run all launches are kept,
    because they tell why the run ended.
    """
    wanted, newest = frozenset(wanted_processors(state) or ()), _newest(state)
    for launch in _sorted(state) if is_on(state) else ():
        is_needed = launch == newest[_kind(launch)] and launch.processor_id in wanted
        if launch.role is LaunchRole.RESERVE or is_asked_for(launch, state):
            is_needed = is_asked_for(launch, state)
        if launch.phase is P.ENDED and not is_needed and not may_live(launch, state):
            yield tombstone(LaunchPut(launch=launch))


def may_live(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the role of an execution still matters, because it may still commit."""
    container = state.containers.get(launch.execution_id)
    return container is not None and not container.is_gone


# --- executions that are wanted ---


def _wanted(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Iterable[CoordinatorRecord]:
    """An active execution for each processor that has none.

    A processor whose tasks are placed on another execution needs none.
    """
    if not is_on(state):
        return ()
    has_affinity = command.has_affinity and command.names_hosts
    hosts = locality_of(state).processors if has_affinity else {}
    wanted = Round(state)
    for processor_id, last in _to_start(command, state):
        host = _next_host(last, hosts.get(processor_id, ""), command, wanted.state, liveness)
        wanted.add([launch_wanted(command, state, processor_id, LaunchRole.ACTIVE, host=host)])
    return wanted.records


def _to_start(command: ReviewLaunches, state: CoordinatorState) -> Iterable[tuple[ProcessorId, Launch | None]]:
    """The processors that get an active execution now, each with its last one."""
    newest = _newest(state)
    occupied = {_kind(launch) for launch in state.launches.values() if _occupies(launch, command.now_ms)}
    for processor_id in wanted_processors(state) or ():
        kind = (processor_id, LaunchRole.ACTIVE, 0)
        last, placed = newest.get(kind), state.placed.get(processor_id)
        is_placed = placed is not None and is_alive(state, placed.execution_id)
        if is_placed or kind in occupied or processor_id in state.suspended:
            continue
        if last is None or not (is_put_off(last, command) or _is_pausing(last, command, state)):
            yield processor_id, last


def _is_pausing(last: Launch, command: ReviewLaunches, state: CoordinatorState) -> bool:
    """Whether the pause after a failed start is not over."""
    has_paused = has_lasted(_pause_ms(last.failures), last.wanted_at_ms, command.now_ms)
    return _failed_to_come(last, state) and not has_paused


def _failed_to_come(last: Launch, state: CoordinatorState) -> bool:
    # Without a failure it was ordered to stop before it was up. That is no reason to leave the host with its state.
    return bool(last.failures) and last.execution_id not in state.containers


def _next_host(
    last: Launch | None, host: str, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness
) -> str:
    """The host for the next active execution.

    This is `host`, because the state is there, unless a start failed there.
    """
    if last is None or last.execution_id in state.containers:
        return host
    if _failed_to_come(last, state):
        return elsewhere(last, host, command, state, liveness)
    return there_or_elsewhere(host, command, state, liveness) if host and last.host == host else host


def _pause_ms(failures: int) -> int:
    """The pause between two starts, so that a fault of a minute does not end the job."""
    return 0 if failures < 2 else min(_PAUSE_MAX_MS, 1000 << failures - 1)


def _occupies(launch: Launch, now_ms: int) -> bool:
    """Whether the next execution of the kind waits for this one.

    An execution that drains gives back its place and its state first. An execution that is to be killed is not waited
    for, because it may be unreachable.
    """
    return launch.phase in UP or (launch.phase is P.STOPPING and now_ms < launch.expires_at_ms)


def is_put_off(last: Launch, command: ReviewLaunches) -> bool:
    """Whether too many executions of the kind failed within the window."""
    is_recent = not has_lasted(command.retry_window_ms, last.window_began_ms, command.now_ms)
    return is_exhausted(last, command.retry_count) and is_recent


def is_on(state: CoordinatorState) -> bool:
    """Whether a run is on whose containers the coordinator starts."""
    is_on = state.run is not None and not state.run.ended and not state.run.finished
    return is_on and state.container_count is not None


# --- the launcher's observations ---


def _after_look(
    launch: Launch, launched: Launched, command: LaunchesLooked, state: CoordinatorState
) -> tuple[LaunchPut, ...]:
    """The launch as it is now, and the other launch that counts its failure, if any."""
    if launch.phase is P.ENDED or launched.state is LaunchedState.UNKNOWN:
        return (LaunchPut(launch=launch),)
    located = replace(launch, host_found=launched.host or launch.host_found, handle=launched.handle or launch.handle)
    if launched.state is not LaunchedState.ENDED:
        return (LaunchPut(launch=replace(located, phase=P.LAUNCHED) if launch.phase is P.WANTED else located),)
    reason = _end_text(launched)
    if launch.phase is P.STOPPING:
        return (LaunchPut(launch=replace(located, phase=P.ENDED, reason=f"{launch.reason}; {reason}")),)
    ended = replace(located, phase=P.ENDED, reason=reason)
    if not is_on(state) or is_suspended_by(launch, state):
        return (LaunchPut(launch=ended),)
    return _failure(ended, reason, command.now_ms, command.retry_window_ms, state)


def _end_text(launched: Launched) -> str:
    ended = f"it {exit_text(launched.exit_code)}"
    return f"{ended}: {launched.reason}" if launched.reason else ended


def _sorted(state: CoordinatorState) -> tuple[Launch, ...]:
    return tuple(state.launches[execution_id] for execution_id in sorted(state.launches))


def _up(state: CoordinatorState) -> tuple[Launch, ...]:
    return tuple(launch for launch in _sorted(state) if launch.phase in UP)


@remembered
def _newest(state: CoordinatorState) -> Mapping[_Kind, Launch]:
    """The newest launch of each kind.

    A launch that is up is newer than those that stop or have ended, because the wall clock may have been set back.
    Among these, only the age counts and not the phase, because an execution that cannot be ended may stop for hours.
    """
    return {_kind(launch): launch for launch in sorted(state.launches.values(), key=by_age)}


def _kind(launch: Launch) -> _Kind:
    return launch.processor_id, launch.role, launch.standby


def _age(launch: Launch) -> tuple[int, str]:
    return launch.wanted_at_ms, launch.execution_id
