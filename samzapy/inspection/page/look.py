"""A look at a job: everything that the views of the page need, at one moment.

The next look is made from the snapshot of then and the look before: rates, the time since which a task stands, the last
hour and the timeline need both. A look is immutable, so any thread may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from samzapy.coordinator.commands import Figures
from samzapy.coordinator.launching.standbys import role_of
from samzapy.coordinator.snapshot import Snapshot
from samzapy.inspection.load import JobLoad, ProcessorLoad
from samzapy.inspection.page.recent_figures import SPAN_MS, Pace, Recent, followed
from samzapy.inspection.page.task_rows import Moved, TaskRow, task_rows
from samzapy.inspection.page.timeline import Events, with_events
from samzapy.inspection.page.trend import Trend, TrendSample, sampled
from samzapy.inspection.status import furthest_behind
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.launch import LaunchRole
from samzapy.model.ssp import SystemStream, SystemStreamPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A job at one moment.

    Attributes:
        number: counts the looks of this process.
        now_ms, wall_ms: when the look was taken, by the monotonic and the wall clock.
        tasks: in the order of the plan.
        load: for advice (`load.hint_of`).
        records_in_per_s, records_out_per_s: of all containers; None if none is known.
        lags: of each SSP, by its slowest reader, as far as they are known.
        lag: of the whole job; None if a position is not known.
    """

    number: int
    snapshot: Snapshot
    now_ms: int
    wall_ms: int
    tasks: tuple[TaskRow, ...]
    load: JobLoad
    records_in_per_s: float | None
    records_out_per_s: float | None
    lags: Mapping[SystemStreamPartition, int]
    lag: int | None
    recent: Recent
    moved: Mapping[TaskName, Moved]
    trend: Trend
    events: Events

    def wall_of(self, monotonic_ms: int) -> int:
        """The wall clock time of a monotonic time."""
        return self.wall_ms - (self.now_ms - monotonic_ms)

    def paces(self) -> Mapping[ExecutionId, Pace]:
        """The rates of the executions that sent a heartbeat lately."""
        return _paces(self.snapshot, self.recent, self.now_ms)


def look_at(
    snapshot: Snapshot, before: Look | None, *, now_ms: int, wall_ms: int, rest: Callable[[], None] = lambda: None
) -> Look:
    """The look at a snapshot.

    Args:
        before: the look that this process took before. Behind the term of another leader only its number counts.
        rest: called after some tasks, to let other threads run.
    """
    number = 1 if before is None else before.number + 1
    if before is not None and not _is_continued(before.snapshot, snapshot):
        # The decisions of the other leader would be events of now.
        before = None
    recent = followed({} if before is None else before.recent, snapshot.liveness)
    paces = _paces(snapshot, recent, now_ms)
    tasks = task_rows(snapshot, paces, {} if before is None else before.moved, now_ms, rest)
    lags = furthest_behind(tasks.lags)
    lag = sum(lags.values()) if tasks.is_lag_complete else None
    rate = _sum(pace.per_s(_records_in) for pace in paces.values())
    trend = () if before is None else before.trend
    events = () if before is None else before.events
    return Look(
        number=number,
        snapshot=snapshot,
        now_ms=now_ms,
        wall_ms=wall_ms,
        tasks=tasks.rows,
        load=_load(snapshot, tasks.rows, lag),
        records_in_per_s=rate,
        records_out_per_s=_sum(pace.per_s(_records_out) for pace in paces.values()),
        lags=lags,
        lag=lag,
        recent=recent,
        moved=tasks.moved,
        trend=sampled(trend, TrendSample(now_ms, rate, lag)),
        events=with_events(events, None if before is None else before.snapshot, snapshot, wall_ms),
    )


def lag_by_stream(lags: Mapping[SystemStreamPartition, int]) -> Mapping[SystemStream, int]:
    """The lag of each stream, as far as it is known."""
    sums: dict[SystemStream, int] = {}
    for ssp, lag in lags.items():
        sums[ssp.system_stream] = sums.get(ssp.system_stream, 0) + lag
    return sums


def _is_continued(before: Snapshot, after: Snapshot) -> bool:
    """Whether one leader made all decisions between two snapshots."""
    old, new = before.state.term, after.state.term
    if old is None or new is None or old.term == new.term:
        return True
    return new.term == old.term + 1 and new.coordinator_id == old.coordinator_id


def _paces(snapshot: Snapshot, recent: Recent, now_ms: int) -> Mapping[ExecutionId, Pace]:
    last = snapshot.liveness.last
    return {
        execution_id: Pace(kept)
        for execution_id, kept in recent.items()
        if execution_id in last and now_ms - last[execution_id].at_ms <= SPAN_MS
    }


def _load(snapshot: Snapshot, rows: Sequence[TaskRow], lag: int | None) -> JobLoad:
    state = snapshot.state
    busy: dict[str, float] = {}
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.load.owner] = counts.get(row.load.owner, 0) + 1
        if row.load.batch_share is not None:
            busy[row.load.owner] = busy.get(row.load.owner, 0.0) + row.load.batch_share
    return JobLoad(
        job=snapshot.job,
        factor=1 if state.generation is None else state.generation.factor,
        lag=lag,
        tasks=tuple(row.load for row in rows),
        processors=tuple(
            ProcessorLoad(
                execution_id=container.execution_id,
                processor_id=container.processor_id,
                cores=container.slot_count,
                tasks=counts.get(container.execution_id, 0),
                cores_busy=busy.get(container.execution_id),
            )
            for container in state.containers_sorted
            if container.execution_id in counts or role_of(container.execution_id, state) is LaunchRole.ACTIVE
        ),
    )


def _records_in(figures: Figures) -> int:
    return figures.records_in


def _records_out(figures: Figures) -> int:
    return figures.records_out


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
