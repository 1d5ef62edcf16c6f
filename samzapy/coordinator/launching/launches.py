"""Launches of coordinator-managed containers: start, stop, outcome (ADR 0015).

Theory. Every execution that is to be started has a record, `launch/<execution id>`, before anybody starts it. So no
start is forgotten and none is made twice under two names: a coordinator that dies between record and act comes back,
reads what is wanted, and asks for it again; the launcher adopts what runs already. What the launcher is to do is read
off the records (`to_start`, `to_kill`), and what it sees comes back as a command like all other news.

```
            the launcher has it          it is not wanted, or failed           it is gone
 WANTED ──────────────────► LAUNCHED ─────────────────────────► STOPPING ─────────────────► ENDED ──► forgotten
    └───────────────────────────┴─────────── it ended by itself ─────────────────────────────┘
```

*Who is wanted.* While a run is on, one execution for each of the processors 0 to N-1 (`container-count`), the one that
its tasks were placed on or else an active one of its own. Standbys and reserves are wanted by others
(`coordinator.launching.standbys`, `coordinator.requests.place_container`); from its record on each lives by the rules
here.

*Stopping* is told on the stream: the container reads it, drains and ends. It is killed when it has not ended in time;
at once, when it failed. Who is to be killed is given up as well, because maybe nobody can kill it: fenced, what it held
is free.

*Failures* are counted in the records, from one execution of a processor to the next, within a window. A container
failed when it ended without being told to, was given up, or was not heard of in time. After too many the job ends, or
goes on without that processor. One that ended as each other one would is no failure: its processor is suspended
(`coordinator.launching.suspension`).

*Where.* On the host where the processor was last, because its state is there; after a start that came to nothing, on
another one, because what was wrong there may be wrong for each; and after the second in a row not at once.

Times are of the wall clock, because they must outlive a coordinator. A clock that jumps makes a start be given up
early or late, and starts nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from samzapy.coordinator.assignment.grants import executions_to_grant
from samzapy.coordinator.assignment.liveness import LIVING, NO_LIVENESS, Liveness, give_up, is_alive
from samzapy.coordinator.commands import ContainerGone, LaunchesLooked, ReviewLaunches
from samzapy.coordinator.launching.hosts import elsewhere, hosts_allowed, hosts_there, there_or_elsewhere
from samzapy.coordinator.launching.suspension import is_suspended_by, resumed, suspensions_over
from samzapy.coordinator.state import CoordinatorState, Round, locality_of, remembered, tombstone
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import UP, Launch, Launched, LaunchedState, LaunchPhase, LaunchRole
from samzapy.model.placement import ANY_HOST, UNFINISHED
from samzapy.stream.records import CoordinatorRecord, LaunchPut, Removed

_PAUSE_MAX_MS = 30_000
HOST_AWAY_MS = 10_000
"""So long a container is wanted on a host that the cluster does not have: its state is there."""
HOST_FULL_MS = 5_000
"""So long one is wanted on a host that is full: what ends there gives its place back a moment later. Samza waits as
long for a preferred host (`cluster-manager.container.request.timeout.ms`)."""
P = LaunchPhase
_Kind = tuple[ProcessorId, LaunchRole, int]
"""Whose an execution is, what it was started for, and as which of several."""


def wanted_processors(state: CoordinatorState) -> tuple[ProcessorId, ...] | None:
    """The processors that containers are started for, in their order; None where people start them."""
    if state.container_count is None:
        return None
    return tuple(ProcessorId(str(number)) for number in range(state.container_count.count))


def review_launches(
    command: ReviewLaunches, state: CoordinatorState, liveness: Liveness = NO_LIVENESS
) -> tuple[tuple[CoordinatorRecord, ...], str]:
    """What is to be started, stopped and forgotten now; and what led to it, for the audit."""
    if state.container_count is None and not state.launches:
        return (), ""
    steps = Round(state)
    causes: list[str] = []
    for what, step in (
        ("not started by the coordinator", _foreign),
        ("a suspended processor runs again", lambda command, state: suspensions_over(state)),
        ("containers failed or are not wanted", partial(_stopped, liveness=liveness)),
        ("a container failed too often", _run_failed),
        ("the run is finished", _dismissed),
        ("containers are wanted", partial(_wanted, liveness=liveness)),
    ):
        causes += [what] if steps.add(step(command, steps.state)) else []
    return tuple(steps.records), "; ".join(causes)


def stopped_too_late(command: ReviewLaunches, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Executions that are to be killed, given up: a cluster manager may be unable to, and one that says how it is all
    the while would keep its tasks for ever."""
    return tuple(
        record
        for launch in to_kill(state, command.now_ms)
        if is_alive(state, launch.execution_id)
        for record in give_up(
            ContainerGone(launch.execution_id, f"it was told to stop and has not in time: {launch.reason}"), state
        )
    )


def launches_looked(command: LaunchesLooked, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """What the launcher's news change; an execution that ended without a word is given up."""
    found: list[CoordinatorRecord] = []
    for execution_id in sorted(command.launched.keys() & state.launches.keys()):
        launch, seen = state.launches[execution_id], command.launched[execution_id]
        after = _looked(launch, seen, command, state)
        if after == launch:
            continue
        found.append(LaunchPut(launch=after))
        if after.phase is P.ENDED:
            found.extend(give_up(ContainerGone(execution_id, after.reason), state))
    return tuple(found)


def to_start(state: CoordinatorState) -> tuple[Launch, ...]:
    """What the launcher is to start, unless it runs already. Who was heard of was started."""
    return tuple(
        launch
        for launch in _sorted(state)
        if launch.phase is P.WANTED and launch.execution_id not in state.containers
    )


def to_kill(state: CoordinatorState, now_ms: int) -> tuple[Launch, ...]:
    """What the launcher is to end at once."""
    return tuple(launch for launch in _sorted(state) if launch.phase is P.STOPPING and now_ms >= launch.expires_at_ms)


def to_look_at(state: CoordinatorState) -> tuple[Launch, ...]:
    """What the launcher is asked about: all that may still run."""
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
    """The record of an execution that is to be started. It inherits the failures of the last one of its kind.

    Args:
        host: where it is wanted; empty for any.
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
    """The id `text`, with a number behind it if an execution has it already.

    Reviews of one round share a seed. After an append of unknown outcome they are decided again, on a state that may
    have their first launches.
    """
    ids = (text if number == 1 else f"{text}-{number}" for number in count(1))
    return next(ExecutionId(each) for each in ids if each not in state.launches and each not in state.containers)


def ordered_to_stop(launch: Launch, command: ReviewLaunches, reason: str) -> LaunchPut:
    """The record that tells an execution to drain and end. It is no failure."""
    expires_at_ms = command.now_ms + command.stop_timeout_ms
    return LaunchPut(launch=replace(launch, phase=P.STOPPING, reason=reason, expires_at_ms=expires_at_ms))


def runner_of(state: CoordinatorState, processor_id: ProcessorId) -> Launch | None:
    """The execution that runs a processor's tasks, or is to once it is up; None while there is none."""
    runner = executions_to_grant(state).get(processor_id)
    if runner is not None and runner in state.launches and is_alive(state, runner):
        return state.launches[runner]
    up = [
        found
        for found in _sorted(state)
        if found.phase in UP and _kind(found) == (processor_id, LaunchRole.ACTIVE, 0)
    ]
    return min(up, key=_age) if up else None


def last_of_kind(
    state: CoordinatorState, processor_id: ProcessorId, role: LaunchRole, standby: int = 0
) -> Launch | None:
    """The newest execution of a kind that was started for a processor, as far as it is remembered."""
    return _newest(state).get((processor_id, role, standby))


def is_exhausted(launch: Launch, retry_count: int) -> bool:
    """Whether so many of its kind failed that no other one is to be started."""
    return launch.failures > retry_count and launch.phase not in UP


def failed_job(state: CoordinatorState, retry_count: int) -> str:
    """Why the job ended: which processor's containers failed too often; empty where none did. A standby that cannot be
    started, or a reserve, is missed by nobody's tasks."""
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
    """Whether the run has ended and nothing of it may still run."""
    return state.run is not None and state.run.ended and not to_look_at(state)


def launches_forgotten(state: CoordinatorState) -> tuple[Removed | LaunchPut, ...]:
    """For a run that begins: failures of an earlier one do not count. Tombstones of all launches that have ended, and
    those that may still live without their failures."""
    found: list[Removed | LaunchPut] = []
    for launch in _sorted(state):
        if launch.phase is P.ENDED and not may_live(launch, state):
            found.append(tombstone(LaunchPut(launch=launch)))
        elif launch.failures:
            found.append(LaunchPut(launch=replace(launch, failures=0, window_began_ms=0)))
    return (*resumed(state.suspended, state), *found)


# --- what ends ---


def _foreign(command: ReviewLaunches, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """Living executions that were started by somebody else than the job's coordinator."""
    for container in state.containers_sorted if state.container_count is not None else ():
        if container.phase in LIVING and container.execution_id not in state.launches:
            reason = "the job's containers are started by its coordinator (samzapy job submit), and this one was not"
            yield from give_up(ContainerGone(container.execution_id, reason), state)


def _stopped(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Iterable[CoordinatorRecord]:
    surplus = _surplus(state)
    for launch in _up(state) if is_on(state) else ():
        container = state.containers.get(launch.execution_id)
        not_started = _not_started(launch, command, state, liveness) if container is None else None
        if not_started is not None:
            yield not_started
        elif is_suspended_by(launch, state):
            yield ordered_to_stop(launch, command, "" if container is None else container.reason)
        elif container is not None and container.phase not in LIVING:
            yield _ended_unasked(launch, container, command)
        elif launch.execution_id in surplus and not _holds(launch, state):
            yield ordered_to_stop(launch, command, surplus[launch.execution_id])
        elif container is not None and launch.phase is P.WANTED:
            yield LaunchPut(launch=replace(launch, phase=P.LAUNCHED, host_found=container.host))


def _not_started(
    launch: Launch, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness
) -> LaunchPut | None:
    """The end of a start without a heartbeat: it is overdue, or its host has no place. None while it may still come."""
    if command.now_ms >= _expires_at_ms(launch, command):
        waited_ms = command.now_ms - launch.wanted_at_ms
        reason = f"it was not heard of within {waited_ms} ms (cluster-manager.container.request.timeout.ms)"
        return _given_up(launch, command, f"{reason}{liveness.why_not(launch.execution_id)}")
    if reason := _why_not_there(launch, command, state, liveness):
        return _withdrawn(launch, command, reason)
    return None


def _ended_unasked(launch: Launch, container: Container, command: ReviewLaunches) -> LaunchPut:
    """The failure of a launch whose container ended, or was lost, without an order to stop."""
    if container.phase is ContainerPhase.STOPPED:
        failed = _failed(launch, command.now_ms, command.retry_window_ms)
        return ordered_to_stop(failed, command, f"it stopped by itself: {container.reason}")
    return _given_up(launch, command, container.reason)


def _expires_at_ms(launch: Launch, command: ReviewLaunches) -> int:
    """By when an execution must have been heard of. One that was started while nobody led, or nobody was heard, waits
    for whoever does: it has the whole time to find them."""
    heard_by_ms = command.listening_since_ms + command.request_timeout_ms
    return launch.expires_at_ms if launch.phase is P.WANTED else max(launch.expires_at_ms, heard_by_ms)


def _why_not_there(launch: Launch, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> str:
    """Why an execution is not to be started any more on the host that was chosen for it; empty where it is. One that
    an operator asked for there waits for as long as that request does."""
    if launch.phase is not P.WANTED or not launch.host or _is_asked_for_there(launch, state):
        return ""
    if not command.names_hosts:
        return "the cluster manager names no hosts, so it is wanted on any"
    waited_ms, there = command.now_ms - launch.wanted_at_ms, command.hosts
    if there and launch.host not in there:
        return f"the cluster has no host {launch.host} any more" if waited_ms >= HOST_AWAY_MS else ""
    if there.get(launch.host) != 0 or waited_ms < HOST_FULL_MS:
        return ""
    # Its own kind has a place elsewhere: an active one anywhere, others apart from their processor's executions.
    others = hosts_there(command, state, liveness)
    if launch.role is not LaunchRole.ACTIVE:
        others = hosts_allowed(launch.processor_id, command, state, liveness)
    has_room = any(not found.is_full for host, found in others.items() if host != launch.host)
    return f"{launch.host} is full, and another host is not" if has_room else ""


def _is_asked_for_there(launch: Launch, state: CoordinatorState) -> bool:
    request = state.requests.get(launch.uuid)
    return request is not None and request.destination_host != ANY_HOST and is_asked_for(launch, state)


def _withdrawn(launch: Launch, command: ReviewLaunches, reason: str) -> LaunchPut:
    """One that was not started and is to be elsewhere. It is no failure; should it come all the same it is killed."""
    return LaunchPut(launch=replace(launch, phase=P.STOPPING, reason=reason, expires_at_ms=command.now_ms))


def _surplus(state: CoordinatorState) -> Mapping[ExecutionId, str]:
    """The executions that are not wanted, and why; each is told so once it has let go of its tasks."""
    wanted = frozenset(wanted_processors(state) or ())
    runners = executions_to_grant(state)
    # While none of its active executions was heard of, the one that was wanted first is to be it.
    first = {_kind(launch): launch for launch in sorted(_up(state), key=_age, reverse=True)}
    found: dict[ExecutionId, str] = {}
    for launch in _up(state):
        runner = runners.get(launch.processor_id)
        if launch.processor_id not in wanted:
            found[launch.execution_id] = f"the job has {len(wanted)} containers now"
        elif launch.execution_id == runner:
            continue
        elif launch.role is LaunchRole.ACTIVE and _is_up(runner, state):
            found[launch.execution_id] = f"{runner} runs the tasks of processor {launch.processor_id}"
        elif launch.role is LaunchRole.ACTIVE and first[_kind(launch)] != launch:
            other = first[_kind(launch)].execution_id
            found[launch.execution_id] = f"{other} is to run the tasks of processor {launch.processor_id}"
        elif launch.role is LaunchRole.RESERVE and not is_asked_for(launch, state):
            found[launch.execution_id] = "the request that it was for is over"
    return found


def _is_up(execution_id: ExecutionId | None, state: CoordinatorState) -> bool:
    return execution_id is not None and is_alive(state, execution_id)


def is_asked_for(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the request that it was started for is not over; False where there was none."""
    request = state.requests.get(launch.uuid)
    return request is not None and request.status_code in UNFINISHED


def _holds(launch: Launch, state: CoordinatorState) -> bool:
    """Whether something may still be committed under a grant of it."""
    return is_alive(state, launch.execution_id) and has_grants(launch, state)


def has_grants(launch: Launch, state: CoordinatorState) -> bool:
    """Whether a grant of it was not let go, as far as is recorded."""
    return any(grant.execution_id == launch.execution_id and not grant.released for grant in state.grants.values())


def _given_up(launch: Launch, command: ReviewLaunches, reason: str) -> LaunchPut:
    """One that failed and may still run somewhere: killed as soon as the launcher can."""
    failed = _failed(launch, command.now_ms, command.retry_window_ms)
    return LaunchPut(launch=replace(failed, phase=P.STOPPING, reason=reason, expires_at_ms=command.now_ms))


def _failed(launch: Launch, now_ms: int, window_ms: int) -> Launch:
    """The launch with one failure more; the first one, when the others were too long ago."""
    if not launch.failures or now_ms - launch.window_began_ms > window_ms:
        return replace(launch, failures=1, window_began_ms=now_ms)
    return replace(launch, failures=launch.failures + 1)


def _run_failed(command: ReviewLaunches, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """The run ends for all when the containers of one processor cannot be kept running."""
    if command.fails_job and is_on(state) and failed_job(state, command.retry_count):
        assert state.run is not None, "a run that is on is there"
        yield replace(state.run, finished=True)


def _dismissed(command: ReviewLaunches, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    for launch in _up(state) if not is_on(state) else ():
        yield ordered_to_stop(launch, command, "the run of the job is finished")


def launches_superseded(state: CoordinatorState) -> Iterable[Removed]:
    """Tombstones of launches that have ended, once a later one of their kind counts their failures, or none of the kind
    is wanted. They come behind all that is wanted, which may be what makes them so (law L2).

    One that a request asked for is remembered until that is over. In a run that is finished all are: they tell why.
    """
    wanted, newest = frozenset(wanted_processors(state) or ()), _newest(state)
    for launch in _sorted(state) if is_on(state) else ():
        is_needed = launch == newest[_kind(launch)] and launch.processor_id in wanted
        if launch.role is LaunchRole.RESERVE or is_asked_for(launch, state):
            is_needed = is_asked_for(launch, state)
        if launch.phase is P.ENDED and not is_needed and not may_live(launch, state):
            yield tombstone(LaunchPut(launch=launch))


def may_live(launch: Launch, state: CoordinatorState) -> bool:
    """Whether the role of an execution still matters: until nothing of it can be committed any more."""
    container = state.containers.get(launch.execution_id)
    return container is not None and not container.is_gone


# --- what is wanted ---


def _wanted(command: ReviewLaunches, state: CoordinatorState, liveness: Liveness) -> Iterable[CoordinatorRecord]:
    """An active execution for each processor that has none and whose tasks are not placed on another one."""
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
    """The processors that are to get an active execution now, each with its last one."""
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
    return _failed_to_come(last, state) and command.now_ms - last.wanted_at_ms < _pause_ms(last.failures)


def _failed_to_come(last: Launch, state: CoordinatorState) -> bool:
    # Without a failure it was ordered to stop before it was up: no reason to leave its state.
    return bool(last.failures) and last.execution_id not in state.containers


def _next_host(
    last: Launch | None, host: str, command: ReviewLaunches, state: CoordinatorState, liveness: Liveness
) -> str:
    """Where the next active execution is started: on `host`, which has its state, unless that did not work."""
    if last is None or last.execution_id in state.containers:
        return host
    if _failed_to_come(last, state):
        return elsewhere(last, host, command, state, liveness)
    return there_or_elsewhere(host, command, state, liveness) if host and last.host == host else host


def _pause_ms(failures: int) -> int:
    """So long after the last one was wanted the next one is, so that what passes in a minute does not end the job."""
    return 0 if failures < 2 else min(_PAUSE_MAX_MS, 1000 << failures - 1)


def _occupies(launch: Launch, now_ms: int) -> bool:
    """Whether another one of the kind waits for it: one that drains is to give back its place and its state first. One
    that is to be killed may be where nobody can reach it."""
    return launch.phase in UP or (launch.phase is P.STOPPING and now_ms < launch.expires_at_ms)


def is_put_off(last: Launch, command: ReviewLaunches) -> bool:
    """Whether too many failed, and not long ago."""
    is_recent = command.now_ms - last.window_began_ms <= command.retry_window_ms
    return is_exhausted(last, command.retry_count) and is_recent


def is_on(state: CoordinatorState) -> bool:
    """Whether the job is to run, in containers that the coordinator starts."""
    is_on = state.run is not None and not state.run.ended and not state.run.finished
    return is_on and state.container_count is not None


# --- what the launcher sees ---


def _looked(launch: Launch, seen: Launched, command: LaunchesLooked, state: CoordinatorState) -> Launch:
    if launch.phase is P.ENDED or seen.state is LaunchedState.UNKNOWN:
        return launch
    found = replace(launch, host_found=seen.host or launch.host_found, handle=seen.handle or launch.handle)
    if seen.state is not LaunchedState.ENDED:
        return replace(found, phase=P.LAUNCHED) if launch.phase is P.WANTED else found
    what = _end_text(seen)
    if launch.phase is P.STOPPING:
        return replace(found, phase=P.ENDED, reason=f"{launch.reason}; {what}")
    is_failed = is_on(state) and not is_suspended_by(launch, state)
    ended = _failed(found, command.now_ms, command.retry_window_ms) if is_failed else found
    return replace(ended, phase=P.ENDED, reason=what)


def _end_text(seen: Launched) -> str:
    code = "it ended" if seen.exit_code is None else f"it ended with exit code {seen.exit_code}"
    return f"{code}: {seen.reason}" if seen.reason else code


def _sorted(state: CoordinatorState) -> tuple[Launch, ...]:
    return tuple(state.launches[execution_id] for execution_id in sorted(state.launches))


def _up(state: CoordinatorState) -> tuple[Launch, ...]:
    return tuple(launch for launch in _sorted(state) if launch.phase in UP)


@remembered
def _newest(state: CoordinatorState) -> Mapping[_Kind, Launch]:
    """Of each kind the newest. One that is to be there is newer than those that go or are gone: a wall clock that was
    set back made the others later. Of those two neither counts for more: one that nobody can end goes for hours."""
    return {_kind(launch): launch for launch in sorted(state.launches.values(), key=by_age)}


def by_age(launch: Launch) -> tuple[bool, int, str]:
    """The order in which executions of a kind followed one another."""
    return launch.phase in UP, *_age(launch)


def _kind(launch: Launch) -> _Kind:
    return launch.processor_id, launch.role, launch.standby


def _age(launch: Launch) -> tuple[int, str]:
    return launch.wanted_at_ms, launch.execution_id
