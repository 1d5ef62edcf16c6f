"""Tasks that do not move although they have messages, each with one cause.

The causes are a closed list, and the cause that explains the others counts. A container that no broker answers, for
instance, also has a failing query.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.assignment.cut_off import KAFKA_SILENT_MS
from samzapy.coordinator.assignment.grants import is_free, is_run, newest_grants
from samzapy.coordinator.assignment.liveness import Liveness, Sighting, living_runners
from samzapy.coordinator.assignment.replanning import readable_config
from samzapy.coordinator.launching.launches import runner_of
from samzapy.coordinator.lifecycle.absence import grace_left_ms
from samzapy.coordinator.state import CoordinatorState, remembered, works_for
from samzapy.errors import LostRangeError
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.launch import LaunchPhase
from samzapy.model.start_step import waits_for_transaction
from samzapy.stream.audit import time_text

if TYPE_CHECKING:
    from samzapy.model.grant import Grant
    from samzapy.model.job import ExecutionId, ProcessorId, TaskName
    from samzapy.model.slow_message import SlowMessage
    from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
    from samzapy.stream.records import PlannedTaskPut

STILL_MS: Final = 15_000
"""A position that does not move for so long, with messages behind it, stands still. It is three default heartbeats."""
_SILENT_MS: Final = 15_000
_SERVERS: Final = re.compile(r"systems\.[^.]+\.bootstrap\.servers")


class Cause(StrEnum):
    """The reason why a task does not move."""

    LOST_RANGE = "lost-range"
    SUSPENDED = "processor-suspended"
    NO_ROOM = "no-room"
    STARTING = "container-starting"
    DEBOUNCE = "waits-for-return"
    NO_CONTAINER = "no-container"
    FENCING = "container-lost"
    RELEASE = "waits-for-release"
    GRANT = "waits-for-grant"
    SILENT = "container-silent"
    BROKER = "broker-unreachable"
    FAILING = "query-failing"
    RESTORING = "restoring"
    STEP = "starting-query"
    BOOTSTRAP = "bootstrap-input"
    OPEN_TRANSACTION = "transaction-open"
    SLOW_MESSAGE = "slow-message"
    NO_COMMIT = "no-commit"
    WATERMARK = "watermark-held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """A task that does not move.

    Attributes:
        for_ms: for how long, as far as this leader knows; None: unknown.
        detail: one sentence.
    """

    task_name: TaskName
    cause: Cause
    for_ms: int | None
    detail: str

    def as_json(self) -> Mapping[str, object]:
        return {"cause": self.cause.value, "forMs": self.for_ms, "detail": self.detail}

    def __str__(self) -> str:
        return standstill_text(self.task_name, self.as_json())


def standstill_text(task_name: object, fields: Mapping[str, object]) -> str:
    """The line about a task that stands still.

    Args:
        fields: of `Standstill.as_json`, as a leader's status has them.
    """
    for_ms = fields.get("forMs")
    since = f" for {for_ms // 1000} s" if isinstance(for_ms, int) else ""
    return f"{task_name} stands still{since}: {fields.get('cause')}: {fields.get('detail')}"


def standstills(state: CoordinatorState, liveness: Liveness, now_ms: int) -> Mapping[TaskName, Standstill]:
    """The tasks of the plan in force that stand still.

    Args:
        now_ms: monotonic, as the sightings are.
    """
    newest = newest_grants(state)
    all_tasks = (
        _standstill(planned, newest.get(planned.task_name), state, liveness, now_ms) for planned in state.plan
    )
    return {item.task_name: item for item in all_tasks if item is not None}


def _standstill(
    planned: PlannedTaskPut, grant: Grant | None, state: CoordinatorState, liveness: Liveness, now_ms: int
) -> Standstill | None:
    container = None if grant is None else state.containers.get(grant.execution_id)
    if grant is None or container is None or not is_run(grant, state):
        cause, detail = _without_owner(planned, grant, state, liveness, now_ms)
        return Standstill(task_name=planned.task_name, cause=cause, for_ms=None, detail=detail)
    unheard = _unheard(container, state, liveness, now_ms)
    if unheard is not None:
        cause, for_ms, detail = unheard
        return Standstill(task_name=planned.task_name, cause=cause, for_ms=for_ms, detail=detail)
    sighting = liveness.last.get(grant.execution_id)
    still_ms = None if sighting is None else _still_ms(grant, sighting, now_ms)
    if sighting is None or still_ms is None or still_ms < STILL_MS:
        return _held_in_time(grant, sighting, state, now_ms)
    # The times of a container are those of the grants that it has read.
    known_ms = still_ms if sighting.has_read(grant) else None
    if not works_for(container, planned.processor_id, state):
        cause, detail = Cause.RELEASE, f"{_named(container)} has to release it for processor {planned.processor_id}"
    elif known_ms is None:
        cause, detail = Cause.GRANT, f"{_named(container)} has not read its grant yet"
    else:
        cause, detail = _at_work(grant, container, sighting)
    return Standstill(task_name=planned.task_name, cause=cause, for_ms=known_ms, detail=detail)


def _unheard(
    container: Container, state: CoordinatorState, liveness: Liveness, now_ms: int
) -> tuple[Cause, int, str] | None:
    """The cause of a silent container, or of one without a broker; else None."""
    name, sighting = _named(container), liveness.last.get(container.execution_id)
    if sighting is None:
        for_ms, detail = now_ms - liveness.listening_since_ms, f"{name} has sent no heartbeat to this leader"
    else:
        for_ms, detail = now_ms - sighting.at_ms, f"{name} has sent no heartbeat since then"
    if for_ms >= _SILENT_MS:
        return Cause.SILENT, for_ms, detail
    if sighting is not None and sighting.kafka_silent_ms >= KAFKA_SILENT_MS:
        detail = f"no broker of {_brokers(state)} has answered {name} since then"
        return Cause.BROKER, sighting.kafka_silent_ms, detail
    return None


@remembered
def _brokers(state: CoordinatorState) -> str:
    """The bootstrap servers of the job, as its configuration names them."""
    return ", ".join(value for key, value in sorted(state.config.items()) if _SERVERS.fullmatch(key)) or "the job"


def _still_ms(grant: Grant, sighting: Sighting, now_ms: int) -> int | None:
    """For how long no position of the task has moved; None while one moves.

    Positions at their ends do not count.
    """
    reported = [start.ssp_kb for start in grant.starts if start.ssp_kb in sighting.figures.positions]
    if not reported:
        # Nothing was read under this grant yet: the container starts its query.
        return now_ms - sighting.first_ms
    behind = [ssp_kb for ssp_kb in reported if _is_behind(ssp_kb, sighting)]
    if not behind:
        # Records behind an open transaction are not in the end of a topic that a task can read.
        return _held_back(grant, sighting)[1] or None
    if any(ssp_kb not in sighting.still_since_ms for ssp_kb in behind):
        return None
    return min(now_ms - sighting.still_since_ms[ssp_kb] for ssp_kb in behind)


def _is_behind(ssp_kb: SspKeyBucket, sighting: Sighting) -> bool:
    position = sighting.figures.positions[ssp_kb]
    return position.offset_next < position.offset_end


def _at_work(grant: Grant, container: Container, sighting: Sighting) -> tuple[Cause, str]:
    name, figures, failing = _named(container), sighting.figures, sighting.failing
    if failing is not None:
        return Cause.FAILING, f"the query of {name} has failed {failing.attempts} times: {failing.reason}"
    if waits_for_transaction(sighting.step):
        read = (
            f" after {figures.restored} of {figures.restore_total} changelog records" if figures.restore_total else ""
        )
        return Cause.OPEN_TRANSACTION, f"{name} restores its state, and stands{read}, {sighting.step}"
    if figures.restore_total > figures.restored:
        left = f", {figures.restore_left_ms // 1000} s left" if figures.restore_left_ms else ""
        return (
            Cause.RESTORING,
            f"{name} has read {figures.restored} of {figures.restore_total} changelog records{left}",
        )
    if sighting.step:
        return Cause.STEP, f"{name} starts its query: {sighting.step}"
    if any(_waits_for_bootstrap(start.ssp_kb, sighting) for start in grant.starts):
        return Cause.BOOTSTRAP, "its other inputs wait until its bootstrap input is read"
    held_back, _ = _held_back(grant, sighting)
    if held_back is not None:
        offset = sighting.figures.positions[held_back].offset_next
        return (
            Cause.OPEN_TRANSACTION,
            f"a transaction of another producer is open on {held_back.ssp} at offset {offset}",
        )
    if sighting.slow_messages:
        own = [item for item in sighting.slow_messages if item.task_name == grant.task_name]
        return Cause.SLOW_MESSAGE, _slow_text((own or sighting.slow_messages)[0], is_own=bool(own))
    return (
        Cause.NO_COMMIT,
        f"{name} works without a commit: a long micro-batch (see `samzapy job top`), a slow message, or a transaction "
        "that cannot end",
    )


def _held_in_time(grant: Grant, sighting: Sighting | None, state: CoordinatorState, now_ms: int) -> Standstill | None:
    """A task that goes on, and whose timers wait for a watermark; else None.

    An input without messages holds it back for `task.event.time.idle.ms` in any case.
    """
    stood = None if sighting is None else sighting.watermarks.get(grant.task_name)
    stats = None if sighting is None else sighting.figures.tasks.get(grant.task_name)
    if stood is None or stats is None or stats.time is None or stats.records_in == stood.records_in:
        return None
    for_ms, config = now_ms - stood.since_ms, readable_config(state)
    if for_ms < STILL_MS + (0 if config is None else config.event_time_idle_ms):
        return None
    at = "there is none" if stood.watermark_ms is None else f"it is {time_text(stood.watermark_ms)}"
    return Standstill(
        task_name=grant.task_name,
        cause=Cause.WATERMARK,
        for_ms=for_ms,
        detail=f"{stats.time.held_by} holds its watermark back ({at}), and {stats.time.timers_pending} timers wait",
    )


def _held_back(grant: Grant, sighting: Sighting) -> tuple[SspKeyBucket | None, int]:
    """The position that an open transaction holds back the longest, and that time.

    None and 0 if there is none, or if the task has messages to read in another input.
    """
    positions = sighting.figures.positions
    reported = [start.ssp_kb for start in grant.starts if start.ssp_kb in positions]
    if not reported or any(_is_behind(ssp_kb, sighting) for ssp_kb in reported):
        return None, 0
    longest = max(reported, key=lambda ssp_kb: positions[ssp_kb].open_for_ms)
    for_ms = positions[longest].open_for_ms
    return (longest, for_ms) if for_ms else (None, 0)


def _slow_text(slow: SlowMessage, *, is_own: bool) -> str:
    text = f"one slow message since {slow.for_ms // 1000} s at {slow.ssp} offset {slow.offset}"
    return text if is_own else f"{text}, of task {slow.task_name} in the same container"


def _waits_for_bootstrap(ssp_kb: SspKeyBucket, sighting: Sighting) -> bool:
    position = sighting.figures.positions.get(ssp_kb)
    return position is not None and position.bootstrap_end > position.offset_next


def _without_owner(
    planned: PlannedTaskPut, grant: Grant | None, state: CoordinatorState, liveness: Liveness, now_ms: int
) -> tuple[Cause, str]:
    processor_id = planned.processor_id
    suspended = state.suspended.get(processor_id)
    if suspended is not None:
        if _has_lost_a_range(suspended.execution_id, processor_id, state):
            return Cause.LOST_RANGE, f"processor {processor_id} is suspended: {suspended.reason}"
        return Cause.SUSPENDED, f"processor {processor_id} is suspended: {suspended.reason}"
    former = None if grant is None or grant.released else state.containers.get(grant.execution_id)
    if former is not None and former.phase is ContainerPhase.LOST:
        return Cause.FENCING, _unfenced(former)
    living = living_runners(state).get(processor_id)
    if living is None:
        return _without_container(processor_id, state, liveness, now_ms)
    other = _holder(planned, state)
    if other is not None:
        holder = state.containers[other.execution_id]
        if holder.phase is ContainerPhase.LOST:
            return Cause.FENCING, _unfenced(holder)
        return Cause.RELEASE, f"{_named(holder)} has to release {other.task_name} of the plan before"
    return Cause.GRANT, f"{_named(living)} waits for its grant"


def _unfenced(container: Container) -> str:
    return f"{_named(container)} was declared lost ({container.reason}), and is not fenced yet"


def _holder(planned: PlannedTaskPut, state: CoordinatorState) -> Grant | None:
    """A grant of another task, of an earlier plan, for messages of this one."""
    held = _held(state)
    return next(
        (
            grant
            for own in planned.positions
            for ssp_kb, grant in held.get(own.ssp, ())
            if grant.task_name != planned.task_name and ssp_kb.overlaps(own)
        ),
        None,
    )


@remembered
def _held(state: CoordinatorState) -> Mapping[SystemStreamPartition, Sequence[tuple[SspKeyBucket, Grant]]]:
    """By partition, what can still be committed under grants of any plan."""
    held: defaultdict[SystemStreamPartition, list[tuple[SspKeyBucket, Grant]]] = defaultdict(list)
    for grant in state.grants_sorted:
        if not is_free(grant, state) and grant.execution_id in state.containers:
            for start in grant.starts:
                held[start.ssp_kb.ssp].append((start.ssp_kb, grant))
    return held


def _has_lost_a_range(execution_id: ExecutionId, processor_id: ProcessorId, state: CoordinatorState) -> bool:
    """Whether messages that this execution needed are gone from their topic."""
    end = state.container_ends.get(processor_id)
    return end is not None and (end.execution_id, end.error) == (execution_id, LostRangeError.__name__)


def _without_container(
    processor_id: ProcessorId, state: CoordinatorState, liveness: Liveness, now_ms: int
) -> tuple[Cause, str]:
    launch = runner_of(state, processor_id)
    if launch is not None and launch.execution_id in state.containers:
        ended = _named(state.containers[launch.execution_id])
        return Cause.NO_CONTAINER, f"{ended} has ended, and its launcher has not said so yet"
    if launch is None:
        end = state.container_ends.get(processor_id)
        last = "" if end is None else f"; {end}"
        if end is not None and _has_lost_a_range(end.execution_id, processor_id, state):
            return Cause.LOST_RANGE, f"processor {processor_id} has no running container{last}"
        left_ms = grace_left_ms(processor_id, state, liveness, now_ms)
        if left_ms is not None:
            return Cause.DEBOUNCE, (
                f"processor {processor_id} has left. Others get its tasks in {-(-left_ms // 1000)} s, unless it "
                f"returns (job.processor.grace.ms){last}"
            )
        return Cause.NO_CONTAINER, f"processor {processor_id} has no running container{last}"
    trouble = liveness.troubles.get(launch.execution_id, "")
    if trouble:
        where = f" on {launch.host}" if launch.host else ""
        return (
            Cause.NO_ROOM,
            f"container {launch.execution_id} cannot be started{where}, and is tried again: {trouble}. "
            "Mend that, free a slot, or add a host",
        )
    wanted = "is to be started" if launch.phase is LaunchPhase.WANTED else "was started and has not reported yet"
    return (
        Cause.STARTING,
        f"container {launch.execution_id} {wanted}; it is wanted since {time_text(launch.wanted_at_ms)}",
    )


def _named(container: Container) -> str:
    return f"container {container.execution_id} on {container.host}"
