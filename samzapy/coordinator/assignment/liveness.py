"""Which executions live: registering, stopping, declaring lost.

Theory. A heartbeat is a statement of the present state, never of a change, so any of them may be lost, doubled or
late. Facts that the log must remember (that an execution exists, on which process; that it runs, stopped, was declared
lost, was fenced) are recorded when they differ from the log. Facts that only this term needs (the last heartbeat, the
grants held, the counters) stay in `Liveness`, and the next coordinator learns them again.

An execution is declared lost when its process is known to be gone, when it ends because of an error or stops while it
still holds grants, when it was silent for too long, or when it reports for longer than a lease that its heartbeats have
no answer. Both times are measured from when this coordinator listens at the earliest. A coordinator that was itself
away, or could not answer and so received nothing, must not blame the containers for it. The declaration is safe at any
moment, because nothing is granted to others before all its transactional ids are initialised (FENCED);
the waiting only avoids needless moves. There is no way back: an execution that returns is ordered to stop, and
its processor comes back as a new execution.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.grant_values import HeldGrant
from samzapy.coordinator.state import CoordinatorState, is_leaving, remembered, works_for
from samzapy.model.container import Container, ContainerPhase, ProcessorLocality, TaskLocality
from samzapy.model.launch import UP
from samzapy.stream.records import ContainerPut, CoordinatorRecord, LocalityPut, TaskLocalityPut

if TYPE_CHECKING:
    from samzapy.config import AcceptedLoss
    from samzapy.coordinator.commands import ExecutionFenced, Figures, Heartbeat, LaunchTroubles, Tick
    from samzapy.coordinator.grant_values import ContainerGone
    from samzapy.model.failing import Failing
    from samzapy.model.grant import Grant
    from samzapy.model.job import ExecutionId, ProcessorId, TaskName
    from samzapy.model.slow_message import SlowMessage
    from samzapy.model.ssp import SspKeyBucket, SystemStream
    from samzapy.model.standby_progress import StandbyProgress


class News(Enum):
    """An event in the life of an execution."""

    RUNS = "said that it runs"
    STOPPED = "said that it stopped, holding nothing"
    GIVEN_UP = "was given up"
    FENCED = "was fenced"


P, N = ContainerPhase, News
TRANSITIONS: Final[Mapping[ContainerPhase, Mapping[News, ContainerPhase]]] = {
    P.STARTED: {N.RUNS: P.RUNNING, N.STOPPED: P.STOPPED, N.GIVEN_UP: P.LOST},
    P.RUNNING: {N.STOPPED: P.STOPPED, N.GIVEN_UP: P.LOST},
    P.STOPPED: {},
    P.LOST: {N.FENCED: P.FENCED},
    P.FENCED: {},
}
"""News that has no row changes nothing: it is late, or repeated."""

LIVING: Final = frozenset({P.STARTED, P.RUNNING})
_TROUBLE_LENGTH_MAX: Final = 500
OUTPUTS_KEPT_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class StoodWatermark:
    """A watermark that an input holds back while timers wait for it.

    Attributes:
        since_ms: when it was first reported as it is.
        records_in: of the task then.
    """

    watermark_ms: int | None
    since_ms: int
    records_in: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The last heartbeat of a living execution.

    Attributes:
        unanswered_from_ms: when the first heartbeat came of those since then that say that the last one had no answer.
        first_ms: when this leader received the first heartbeat with the present grants.
        still_since_ms: since when a position with messages behind it has not moved. Others are left out.
        watermarks: of the tasks whose watermark is held back.
    """

    at_ms: int
    stream_offset: int
    held: frozenset[HeldGrant]
    figures: Figures
    finished: bool = False
    accepted_losses: tuple[AcceptedLoss, ...] = ()
    restart: int = 0
    warm: StandbyProgress | None = None
    failing: Failing | None = None
    step: str = ""
    slow_messages: tuple[SlowMessage, ...] = ()
    unanswered_ms: int = 0
    unanswered_from_ms: int | None = None
    kafka_silent_ms: int = 0
    first_ms: int = 0
    still_since_ms: Mapping[SspKeyBucket, int] = field(default_factory=dict)
    watermarks: Mapping[TaskName, StoodWatermark] = field(default_factory=dict)

    def has_read(self, grant: Grant) -> bool:
        """Whether the execution had read the grant when it sent the heartbeat."""
        return HeldGrant(grant.task_name, grant.epoch) in self.held

    def unanswered_for_ms(self, listening_since_ms: int) -> int:
        """For how long its heartbeats arrive here without an answer.

        It is the time on which both sides agree.
        """
        if self.unanswered_from_ms is None:
            return 0
        return min(self.unanswered_ms, self.at_ms - max(self.unanswered_from_ms, listening_since_ms))


@dataclass(frozen=True, slots=True)
class KnownHost:
    """The facts about a host, kept as long as the cluster manager names it.

    Attributes:
        fault_domain: as the last container there reported it.
        failed_at_ms: wall clock time of the last start there that came to nothing; 0 once one succeeded.
    """

    fault_domain: str = ""
    failed_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Missed:
    """An input that so many checks in a row have missed, the last one at that time.

    The time is of the wall clock.

    Attributes:
        topic_id, partition_count: of another topic that is there under the name and may be read; empty without one.
    """

    count: int
    looked_at_ms: int
    topic_id: str = ""
    partition_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUnderWay:
    """A container that starts, and the deaths of those before it (`dying_starts`).

    Attributes:
        step: the step of the start procedure that it has reached.
        died_at: the step at which the one before it ended; empty if none did.
        deaths: how many in a row ended there.
    """

    execution_id: ExecutionId
    step: str
    died_at: str = ""
    deaths: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """The reports of containers and launchers to this leader.

    Times are monotonic, in milliseconds. It is in no record: a new leader begins without it.

    Attributes:
        listening_since_ms: since when this coordinator receives heartbeats: its term record is committed, and its own
            lease has not lapsed since (`coordinator.service`).
        last: the last heartbeat of each living execution in this term.
        at_odds: since when a processor is present and not in the plan, or in the plan and not present.
        revoked_since: since when a grant must be released that is not.
        unsettled: since when an input is known to have grown, by stream and new partition count; until it has settled.
        missing: how many checks in a row have missed an input that may go (`coordinator.inputs.removal`).
        starts: of each processor the container that starts, until its query runs.
        hosts: the facts about each host; they outlive the containers that reported them.
        standbys_missing: the reasons why standbys are not running and not started, by their names.
        troubles: the launcher's last reasons why executions are not started, or not killed.
        outputs: the undeclared outputs that containers have named. They outlive the containers, and a term.
    """

    listening_since_ms: int = 0
    last: Mapping[ExecutionId, Sighting] = field(default_factory=dict)
    at_odds: Mapping[ProcessorId, int] = field(default_factory=dict)
    revoked_since: Mapping[HeldGrant, int] = field(default_factory=dict)
    unsettled: Mapping[tuple[SystemStream, int], int] = field(default_factory=dict)
    missing: Mapping[SystemStream, Missed] = field(default_factory=dict)
    starts: Mapping[ProcessorId, StartUnderWay] = field(default_factory=dict)
    hosts: Mapping[str, KnownHost] = field(default_factory=dict)
    standbys_missing: Mapping[str, str] = field(default_factory=dict)
    troubles: Mapping[ExecutionId, str] = field(default_factory=dict)
    outputs: frozenset[str] = frozenset()

    def why_not(self, execution_id: ExecutionId) -> str:
        """The obstacle to its start or its end, to append to a text; empty if unknown."""
        trouble = self.troubles.get(execution_id, "")
        return f": {trouble}" if trouble else ""


NO_LIVENESS: Final = Liveness()


def sighted(liveness: Liveness, heartbeat: Heartbeat, state: CoordinatorState) -> Liveness:
    """`liveness` with `heartbeat` in it; unchanged when `state` does not expect it."""
    if not is_expected(state, heartbeat):
        return liveness
    before = liveness.last.get(heartbeat.execution_id)
    from_ms = None
    if heartbeat.unanswered_ms:
        known = None if before is None else before.unanswered_from_ms
        from_ms = heartbeat.received_ms if known is None else known
    sighting = Sighting(
        at_ms=heartbeat.received_ms,
        stream_offset=heartbeat.stream_offset,
        held=heartbeat.held,
        figures=heartbeat.figures,
        finished=heartbeat.finished,
        accepted_losses=heartbeat.accepted_losses,
        restart=heartbeat.restart,
        warm=heartbeat.warm,
        failing=heartbeat.failing,
        step=heartbeat.step,
        slow_messages=heartbeat.slow_messages,
        unanswered_ms=heartbeat.unanswered_ms,
        unanswered_from_ms=from_ms,
        kafka_silent_ms=heartbeat.kafka_silent_ms,
        first_ms=before.first_ms if before is not None and before.held == heartbeat.held else heartbeat.received_ms,
        still_since_ms=_still_since(heartbeat, before),
        watermarks=_watermarks(heartbeat, before),
    )
    last = {**liveness.last, heartbeat.execution_id: sighting}
    return replace(liveness, last=last, hosts=_with_host_of(heartbeat, state, liveness.hosts))


def outputs_noted(liveness: Liveness, heartbeat: Heartbeat, state: CoordinatorState) -> Liveness:
    """`liveness` with the outputs that `heartbeat` names.

    The last heartbeat of an execution counts too: it is given up by that, and then fenced.
    """
    news = heartbeat.outputs - liveness.outputs
    container = state.containers.get(heartbeat.execution_id)
    if not news or container is None or not _is_of_process(heartbeat, container, state):
        return liveness
    room = OUTPUTS_KEPT_MAX - len(liveness.outputs)
    return replace(liveness, outputs=liveness.outputs.union(sorted(news)[:room]))


def _still_since(heartbeat: Heartbeat, before: Sighting | None) -> Mapping[SspKeyBucket, int]:
    known = {} if before is None else before.figures.positions
    since = {} if before is None else before.still_since_ms
    still = {}
    for ssp_kb, position in heartbeat.figures.positions.items():
        if position.offset_next >= position.offset_end:
            continue
        last = known.get(ssp_kb)
        has_moved = last is None or last.offset_next != position.offset_next
        still[ssp_kb] = heartbeat.received_ms if has_moved else since.get(ssp_kb, heartbeat.received_ms)
    return still


def _watermarks(heartbeat: Heartbeat, before: Sighting | None) -> Mapping[TaskName, StoodWatermark]:
    stood = {}
    for task_name, stats in heartbeat.figures.tasks.items():
        time = stats.time
        if time is None or not (time.held_by and time.timers_pending):
            continue
        known = None if before is None else before.watermarks.get(task_name)
        if known is None or known.watermark_ms != time.watermark_ms or stats.records_in < known.records_in:
            known = StoodWatermark(time.watermark_ms, heartbeat.received_ms, stats.records_in)
        stood[task_name] = known
    return stood


def _with_host_of(
    heartbeat: Heartbeat, state: CoordinatorState, hosts: Mapping[str, KnownHost]
) -> Mapping[str, KnownHost]:
    host, launch = state.containers[heartbeat.execution_id].host, state.launches.get(heartbeat.execution_id)
    before = hosts.get(host, KnownHost())
    came = launch is not None and launch.wanted_at_ms > before.failed_at_ms
    after = KnownHost(fault_domain=heartbeat.fault_domain, failed_at_ms=0 if came else before.failed_at_ms)
    return hosts if after == before else {**hosts, host: after}


def still_named(liveness: Liveness, hosts: Collection[str]) -> Liveness:
    """`liveness` with the hosts that the cluster manager still names.

    If it names none, all of them stay.
    """
    kept = {host: known for host, known in liveness.hosts.items() if host in hosts} if hosts else liveness.hosts
    return liveness if len(kept) == len(liveness.hosts) else replace(liveness, hosts=kept)


def failed_starts_noted(liveness: Liveness, state: CoordinatorState) -> Liveness:
    """`liveness` with the hosts on which starts came to nothing."""
    hosts = dict(liveness.hosts)
    for launch in state.launches.values():
        host = launch.host_found or launch.host
        if launch.phase in UP or not launch.failures or launch.execution_id in state.containers or not host:
            continue
        known = hosts.get(host, KnownHost())
        if launch.wanted_at_ms > known.failed_at_ms:
            hosts[host] = replace(known, failed_at_ms=launch.wanted_at_ms)
    return liveness if hosts == liveness.hosts else replace(liveness, hosts=hosts)


def held_up(command: LaunchTroubles, liveness: Liveness) -> Liveness:
    """`liveness` with the launcher's present troubles.

    Their number is limited, because an answer has room for only so much.
    """
    return replace(
        liveness, troubles={subject: text[:_TROUBLE_LENGTH_MAX] for subject, text in command.troubles.items()}
    )


def without_the_dead(liveness: Liveness, state: CoordinatorState) -> Liveness:
    """`liveness` without executions that are not alive any more.

    It is cleaned as time passes, not with each of a thousand heartbeats.
    """
    living = {
        execution_id: sighting for execution_id, sighting in liveness.last.items() if is_alive(state, execution_id)
    }
    return liveness if len(living) == len(liveness.last) else replace(liveness, last=living)


def is_alive(state: CoordinatorState, execution_id: ExecutionId) -> bool:
    """Whether the execution is one that may work."""
    container = state.containers.get(execution_id)
    return container is not None and container.phase in LIVING


@remembered
def living_runners(state: CoordinatorState) -> Mapping[ProcessorId, Container]:
    """By processor, the living container that is to run its tasks."""
    living = {item.execution_id: item for item in state.containers_sorted if item.phase in LIVING}
    own: dict[ProcessorId, Container] = {}
    for container in living.values():
        if works_for(container, container.processor_id, state):
            own.setdefault(container.processor_id, container)
    placed = {
        processor_id: living[placement.execution_id]
        for processor_id, placement in state.placed.items()
        if placement.execution_id in living
    }
    return {**own, **placed}


def may_work(state: CoordinatorState, execution_id: ExecutionId) -> bool:
    """Whether an execution lives, or was launched and has not reported yet."""
    launch = state.launches.get(execution_id)
    is_awaited = launch is not None and not is_leaving(execution_id, state) and execution_id not in state.containers
    return is_awaited or is_alive(state, execution_id)


def is_expected(state: CoordinatorState, heartbeat: Heartbeat) -> bool:
    """Whether `heartbeat` is of a living execution, and of its recorded process.

    Another process under the same id (a copied environment) is not: fencing the one would not fence the other.
    """
    container = state.containers.get(heartbeat.execution_id)
    return container is not None and container.phase in LIVING and _is_of_process(heartbeat, container, state)


def _is_of_process(heartbeat: Heartbeat, container: Container, state: CoordinatorState) -> bool:
    # The name that a launcher has for the host is recorded once; the heartbeat may say another one.
    host = container.host if heartbeat.execution_id in state.launches else heartbeat.host
    return _container(heartbeat, host=host, phase=container.phase, reason=container.reason) == container


def may_register(state: CoordinatorState, heartbeat: Heartbeat) -> bool:
    """Whether `heartbeat` introduces an execution that may be given work.

    An execution that already holds grants got them from another log (ours was deleted and made again). One
    that cannot read the stream's format would misunderstand its grants. If the coordinator starts the
    containers, an execution that it did not start, or does not want any more, does not belong to the job: it may be a
    copy, or one that a cluster manager started again.
    """
    return (
        state.job is not None
        and heartbeat.job == f"{state.job.job_name}-{state.job.job_id}"
        and heartbeat.execution_id not in state.containers
        and heartbeat.state in LIVING
        and not heartbeat.held
        and heartbeat.format_level >= (state.format_level or 0)
        and _is_launched(state, heartbeat)
    )


def _is_launched(state: CoordinatorState, heartbeat: Heartbeat) -> bool:
    """Whether the execution was started in the job's way: by the coordinator, or not."""
    launch = state.launches.get(heartbeat.execution_id)
    if launch is None:
        return state.container_count is None
    return launch.processor_id == heartbeat.processor_id and not is_leaving(heartbeat.execution_id, state)


def hear(heartbeat: Heartbeat, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The facts in a heartbeat that the log does not have yet."""
    if may_register(state, heartbeat):
        registered = _container(heartbeat, host=_host(heartbeat, state), phase=heartbeat.state)
        return (ContainerPut(container=registered), *_locality(registered, heartbeat, state))
    if not is_expected(state, heartbeat):
        return ()
    container = state.containers[heartbeat.execution_id]
    if heartbeat.exit_code:
        return _after(News.GIVEN_UP, container, f"it ends with exit code {heartbeat.exit_code}: {heartbeat.reason}")
    if heartbeat.state is P.STOPPED and heartbeat.held:
        count = len(heartbeat.held)
        return _after(News.GIVEN_UP, container, f"stopped while it held {count} grants: {heartbeat.reason}")
    if heartbeat.state is P.STOPPED:
        return (*_after(News.STOPPED, container, heartbeat.reason), *_end_of_run(container, state))
    if heartbeat.state is P.RUNNING:
        changed = _after(News.RUNS, container, "")
        running = replace(container, phase=P.RUNNING)
        return (*changed, *_locality(running, heartbeat, state), *_task_localities(running, heartbeat, state))
    return ()


def expire(tick: Tick, state: CoordinatorState, liveness: Liveness) -> tuple[CoordinatorRecord, ...]:
    """Declare lost the containers that are silent, or get no answer, for too long.

    The latter send heartbeats and do no work: answers do not reach them, but their heartbeats reach us. Their limit is
    a lease.
    """
    records: list[CoordinatorRecord] = []
    for container in state.containers_sorted:
        sighting = liveness.last.get(container.execution_id)
        since_ms = (
            liveness.listening_since_ms if sighting is None else max(sighting.at_ms, liveness.listening_since_ms)
        )
        silent_ms = tick.now_ms - since_ms
        if silent_ms >= tick.lost_ms:
            reason = f"no heartbeat for {silent_ms} ms (job.container.lost.ms is {tick.lost_ms})"
            records.extend(_after(News.GIVEN_UP, container, reason))
            continue
        unanswered_ms = 0 if sighting is None else sighting.unanswered_for_ms(liveness.listening_since_ms)
        if tick.lease_ms is not None and unanswered_ms > tick.lease_ms:
            reason = (
                f"its heartbeats arrive, and it has had no answer for {unanswered_ms} ms (job.container.lease.ms is "
                f"{tick.lease_ms}): the network between this coordinator and it loses what goes there"
            )
            records.extend(_after(News.GIVEN_UP, container, reason))
    return tuple(records)


def declare_lost(command: ContainerGone, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Declare lost an execution whose process is known to be gone."""
    container = state.containers.get(command.execution_id)
    return () if container is None else _after(News.GIVEN_UP, container, command.reason)


def mark_fenced(command: ExecutionFenced, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Nothing that a lost execution still does can be committed: its tasks are free."""
    container = state.containers.get(command.execution_id)
    return () if container is None else _after(News.FENCED, container, container.reason)


def _after(news: News, container: Container, reason: str) -> tuple[CoordinatorRecord, ...]:
    phase = TRANSITIONS[container.phase].get(news)
    if phase is None:
        return ()
    return (ContainerPut(container=replace(container, phase=phase, reason=reason)),)


def _end_of_run(leaving: Container, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """End the run with the last execution that leaves.

    See `coordinator.lifecycle.membership`. If the coordinator starts the containers, the execution leaves to be started
    again, unless the run is finished.
    """
    others = [
        container for container in state.containers.values() if container.phase in LIVING and container != leaving
    ]
    if state.run is None or others or (state.container_count is not None and not state.run.finished):
        return ()
    return (replace(state.run, ended=True),)


def _locality(container: Container, heartbeat: Heartbeat, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Where the processor's state is being built up, once it runs."""
    wanted = ProcessorLocality(
        processor_id=container.processor_id, host=container.host, fault_domain=heartbeat.fault_domain
    )
    if container.phase is not P.RUNNING or state.localities.get(container.processor_id) == wanted:
        return ()
    return (LocalityPut(locality=wanted),)


def _task_localities(
    container: Container, heartbeat: Heartbeat, state: CoordinatorState
) -> tuple[CoordinatorRecord, ...]:
    """The host on which the state of a task is being restored, once it runs.

    It is read from the grants that the container holds. A grant is listed from when it was read, so this may be early
    by one restore, and then a move finds less state there than expected. It may not be late: a grant that is not the
    execution's own, or no longer the newest of its task, is ignored.
    """
    names = {held.task_name for held in heartbeat.held}
    newest: dict[TaskName, Grant] = {}
    for grant in state.grants.values():
        if grant.task_name in names and (
            grant.task_name not in newest or grant.epoch > newest[grant.task_name].epoch
        ):
            newest[grant.task_name] = grant
    records = []
    for held in sorted(heartbeat.held):
        granted = newest.get(held.task_name)
        if granted is None or (granted.epoch, granted.execution_id) != (held.epoch, heartbeat.execution_id):
            continue
        wanted = TaskLocality(task_name=held.task_name, processor_id=container.processor_id, host=container.host)
        if state.task_localities.get(held.task_name) != wanted:
            records.append(TaskLocalityPut(locality=wanted))
    return tuple(records)


def _host(heartbeat: Heartbeat, state: CoordinatorState) -> str:
    """The host of an execution that registers.

    It is the launcher's name for the host, if it has one. Executions are placed, matched and counted by the launcher's
    names, so a second name for a host would be another host.
    """
    launch = state.launches.get(heartbeat.execution_id)
    return heartbeat.host if launch is None else launch.host_found or launch.host or heartbeat.host


def _container(heartbeat: Heartbeat, *, host: str, phase: ContainerPhase, reason: str = "") -> Container:
    return Container(
        execution_id=heartbeat.execution_id,
        processor_id=heartbeat.processor_id,
        host=host,
        boot_id=heartbeat.boot_id,
        pid=heartbeat.pid,
        process_started_ms=heartbeat.process_started_ms,
        slot_count=heartbeat.slot_count,
        phase=phase,
        reason=reason,
        format_level=heartbeat.format_level,
        comes_back=heartbeat.comes_back,
    )
