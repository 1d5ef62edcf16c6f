"""The state of each task in one word, with its load.

| state | the task |
|---|---|
| RUNNING | runs, and keeps up with its inputs, or its rate is not known yet |
| LAGGING | runs, and its lag would take longer than `load.KEEPS_UP_S` at its rate |
| STALLED | has messages and does not move, or its watermark does not; `inspection.standstill` has the cause |
| RESTORING | is in a container whose start restores local state |
| STARTING | is in a container that starts, or that has not read the grant yet |
| FAILING | is in a container whose query fails without a commit |
| WAITING | has no owner |
| STOPPED | belongs to a run that is over |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from samzapy.coordinator.assignment.grants import newest_grants
from samzapy.coordinator.assignment.liveness import LIVING, Sighting
from samzapy.coordinator.snapshot import Snapshot
from samzapy.inspection.load import KEEPS_UP_S, TaskLoad
from samzapy.inspection.page.recent_figures import Pace
from samzapy.inspection.standstill import Cause, Standstill, standstills
from samzapy.inspection.status import is_stopped
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.start_step import waits_for_transaction
from samzapy.stream.records import PlannedTaskPut

TASKS_BETWEEN_RESTS: Final = 25
_UNHEARD: Final = frozenset({Cause.SILENT, Cause.BROKER})
"""Where the last report of a container is not its present state."""


class TaskState(StrEnum):
    """The state of a task in one word; the worst comes first."""

    FAILING = "FAILING"
    STALLED = "STALLED"
    WAITING = "WAITING"
    RESTORING = "RESTORING"
    STARTING = "STARTING"
    LAGGING = "LAGGING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class Moved:
    """The sum of a task's positions, and since when it has had this value.

    Attributes:
        execution_id: that reported it. The sum of another one is no movement.
        since_ms: monotonic.
        is_commit: False: this is the first report, so the last commit is older and not known.
    """

    execution_id: ExecutionId
    offsets: int
    since_ms: int
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task as the page lists it.

    Attributes:
        cause: why it does not process messages; None if it does, or is stopped.
        detail: further words on the state; empty where there are none.
        still_since_ms: since when it stands still, monotonic; None if it moves, or for an unknown time.
        host: of the owner; empty without one.
        moved: None while its positions are not known.
    """

    load: TaskLoad
    state: TaskState
    cause: Cause | None
    detail: str
    host: str
    moved: Moved | None
    still_since_ms: int | None = None

    @property
    def task(self) -> str:
        return self.load.task


@dataclass(frozen=True, slots=True)
class TaskRows:
    """All tasks of the plan, in its order, and the lag of each position that is known.

    `is_lag_complete`: no position of a task is unknown.
    """

    rows: tuple[TaskRow, ...]
    moved: Mapping[TaskName, Moved]
    lags: tuple[tuple[SspKeyBucket, int], ...]
    is_lag_complete: bool


def task_rows(
    snapshot: Snapshot,
    paces: Mapping[ExecutionId, Pace],
    moved: Mapping[TaskName, Moved],
    now_ms: int,
    rest: Callable[[], None],
) -> TaskRows:
    """The rows at `now_ms`, where `moved` is of the look before."""
    state, newest = snapshot.state, newest_grants(snapshot.state)
    still = standstills(state, snapshot.liveness, now_ms)
    rows: list[TaskRow] = []
    now_moved: dict[TaskName, Moved] = {}
    lags: list[tuple[SspKeyBucket, int]] = []
    is_complete = bool(state.plan)
    for number, planned in enumerate(state.plan):
        if number % TASKS_BETWEEN_RESTS == 0:
            rest()
        grant = newest.get(planned.task_name)
        container = None if grant is None else state.containers.get(grant.execution_id)
        owned = _Owned.of(grant, container, snapshot, paces, planned)
        own_lags = None if owned is None else owned.lags
        if own_lags is None:
            is_complete = False
        else:
            lags.extend(own_lags)
        movement = None if owned is None else owned.movement(moved.get(planned.task_name))
        if movement is not None:
            now_moved[planned.task_name] = movement
        load = _load(planned, owned)
        standstill = still.get(planned.task_name)
        task_state, cause, detail = _state(load, owned, standstill, snapshot)
        since_ms = None
        if standstill is not None and standstill.for_ms is not None:
            since_ms = now_ms - standstill.for_ms
        host = "" if owned is None else owned.container.host
        row = TaskRow(
            load=load,
            state=task_state,
            cause=cause,
            detail=detail,
            host=host,
            moved=movement,
            still_since_ms=since_ms,
        )
        rows.append(row)
    return TaskRows(tuple(rows), now_moved, tuple(lags), is_complete)


class _Owned:
    """A task with a living owner, and the last report about it."""

    __slots__ = ("container", "grant", "lags", "pace", "planned", "sighting")

    def __init__(
        self,
        grant: Grant,
        container: Container,
        sighting: Sighting | None,
        pace: Pace | None,
        planned: PlannedTaskPut,
    ) -> None:
        self.grant, self.container, self.sighting, self.pace = grant, container, sighting, pace
        self.planned = planned
        self.lags = self._lags()

    @classmethod
    def of(
        cls,
        grant: Grant | None,
        container: Container | None,
        snapshot: Snapshot,
        paces: Mapping[ExecutionId, Pace],
        planned: PlannedTaskPut,
    ) -> _Owned | None:
        if grant is None or container is None or grant.released or container.phase not in LIVING:
            return None
        execution_id = grant.execution_id
        return cls(grant, container, snapshot.liveness.last.get(execution_id), paces.get(execution_id), planned)

    def _lags(self) -> tuple[tuple[SspKeyBucket, int], ...] | None:
        """The lag of each position; None if one is not known."""
        if self.sighting is None:
            return None
        positions = self.sighting.figures.positions
        lags = []
        for start in self.grant.starts:
            position = positions.get(start.ssp_kb)
            if position is None:
                return None
            lags.append((start.ssp_kb, max(0, position.offset_end - position.offset_next)))
        return tuple(lags)

    def movement(self, before: Moved | None) -> Moved | None:
        """The present sum of positions, and since when it is so."""
        if self.sighting is None or self.lags is None:
            return None
        positions, execution_id = self.sighting.figures.positions, self.grant.execution_id
        offsets = sum(positions[ssp_kb].offset_next for ssp_kb, _ in self.lags)
        if before is None or before.execution_id != execution_id:
            return Moved(execution_id, offsets, self.sighting.at_ms, False)
        return before if before.offsets == offsets else Moved(execution_id, offsets, self.sighting.at_ms, True)

    def is_read(self) -> bool:
        """Whether the container has read the grant."""
        return self.sighting is not None and self.sighting.has_read(self.grant)

    def is_tailing(self) -> bool:
        positions = {} if self.sighting is None else self.sighting.figures.positions
        return any(ssp_kb in positions and positions[ssp_kb].tailing for ssp_kb in self._ssp_kbs())

    def records_per_s(self) -> float | None:
        if self.pace is None:
            return None
        rates = [self.pace.records_per_s(ssp_kb) for ssp_kb in self._ssp_kbs()]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None

    def _ssp_kbs(self) -> Iterator[SspKeyBucket]:
        return (start.ssp_kb for start in self.grant.starts)


def _load(planned: PlannedTaskPut, owned: _Owned | None) -> TaskLoad:
    if owned is None:
        return TaskLoad(
            task=planned.task_name,
            processor_id=planned.processor_id,
            records_per_s=None,
            lag=None,
            batch_share=None,
        )
    stats = None if owned.sighting is None else owned.sighting.figures.tasks.get(planned.task_name)
    busiest = None if stats is None else stats.keys.busiest()
    return TaskLoad(
        task=planned.task_name,
        processor_id=planned.processor_id,
        records_per_s=owned.records_per_s(),
        lag=None if owned.lags is None else sum(ssp_kb.part_of(lag) for ssp_kb, lag in owned.lags),
        batch_share=None if owned.pace is None else owned.pace.batch_share(planned.task_name),
        owner=owned.grant.execution_id,
        tailing=owned.is_tailing(),
        key=None if busiest is None else busiest[0],
        key_share=None if busiest is None else busiest[1],
    )


def _state(
    load: TaskLoad, owned: _Owned | None, standstill: Standstill | None, snapshot: Snapshot
) -> tuple[TaskState, Cause | None, str]:
    if is_stopped(snapshot.state):
        return TaskState.STOPPED, None, ""
    cause = None if standstill is None else standstill.cause
    detail = "" if standstill is None else f"{standstill.cause.value}: {standstill.detail}"
    if owned is None:
        return TaskState.WAITING, cause, detail
    if cause not in _UNHEARD:
        start = _start(owned)
        if start is not None:
            return start
    if cause is not None:
        return TaskState.STALLED, cause, detail
    if load.lag and load.records_per_s is not None and load.lag > KEEPS_UP_S * load.records_per_s:
        return TaskState.LAGGING, None, ""
    return TaskState.RUNNING, None, ""


def _start(owned: _Owned) -> tuple[TaskState, Cause, str] | None:
    """The state of a task whose container does not process it yet; None if it does."""
    sighting = owned.sighting
    if sighting is None:
        return TaskState.STARTING, Cause.STEP, "its container has sent no heartbeat to this leader yet"
    failing, figures = sighting.failing, sighting.figures
    if failing is not None:
        times = "once" if failing.attempts == 1 else f"{failing.attempts} times"
        return TaskState.FAILING, Cause.FAILING, f"the query of its container failed {times}: {failing.reason}"
    is_held_up = waits_for_transaction(sighting.step)
    if figures.restore_total:
        percent = min(99, figures.restored * 100 // figures.restore_total)
        cause, waits = (Cause.OPEN_TRANSACTION, f"; {sighting.step}") if is_held_up else (Cause.RESTORING, "")
        return TaskState.RESTORING, cause, f"{percent} %, about {figures.restore_left_ms // 1000} s left{waits}"
    if sighting.step or owned.container.phase is ContainerPhase.STARTED:
        cause = Cause.OPEN_TRANSACTION if is_held_up else Cause.STEP
        return TaskState.STARTING, cause, sighting.step or "its container has not started its query yet"
    return None if owned.is_read() else (TaskState.STARTING, Cause.STEP, "its container has not read the grant yet")
