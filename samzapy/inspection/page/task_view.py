"""Why a task is where it is, and how far it has read, as far as the state says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from samzapy.coordinator.assignment.grants import newest_grants
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import RejectedError
from samzapy.inspection.explanation import runs_text
from samzapy.inspection.page.look import Look
from samzapy.inspection.page.task_rows import TaskRow
from samzapy.model.task_stats import TaskStats
from samzapy.stream.records import PlannedTaskPut


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRow:
    """A position of a task.

    `offset_next` is where its grant starts, until its container reports it.
    """

    ssp: str
    offset_next: int
    offset_end: int | None
    lag: int | None
    records_per_s: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task.

    Attributes:
        reasons: why it is there, as sentences.
        stats: None if its container does not report it one by one.
    """

    row: TaskRow
    epoch: int | None
    reasons: Sequence[str]
    positions: Sequence[PositionRow]
    stats: TaskStats | None


def task_view(look: Look, task_name: str) -> TaskView:
    """The view of one task.

    Raises:
        RejectedError: the plan in force has no such task.
    """
    row = next((row for row in look.tasks if row.load.task == task_name), None)
    state = look.snapshot.state
    planned = next((item for item in state.plan if item.task_name == task_name), None)
    if row is None or planned is None:
        raise RejectedError(
            f"name: wanted a task of the plan in force, found {task_name[:300]!r}; see the list of tasks"
        )
    grant = newest_grants(state).get(planned.task_name)
    sighting = None if grant is None else look.snapshot.liveness.last.get(grant.execution_id)
    return TaskView(
        row=row,
        epoch=None if grant is None else grant.epoch,
        reasons=reasons(planned, state),
        positions=_positions(look, planned),
        stats=None if sighting is None else sighting.figures.tasks.get(planned.task_name),
    )


def reasons(planned: PlannedTaskPut, state: CoordinatorState) -> Sequence[str]:
    """Why a task is where it is, as sentences, the reason of its processor first."""
    processor_id = planned.processor_id
    placed, known = state.placed.get(processor_id), state.task_localities.get(planned.task_name)
    sentences = [f"Generation {planned.generation} plans it on processor {processor_id}."]
    if placed is not None:
        sentences.append(f"Request {placed.uuid} placed that processor in container {placed.execution_id}.")
    if known is not None:
        sentences.append(f"Its state was last on {known.host}, with processor {known.processor_id}.")
    sentences.append(f"Now: {runs_text(state, planned.task_name, planned)}.")
    return sentences


def _positions(look: Look, planned: PlannedTaskPut) -> Sequence[PositionRow]:
    grant = newest_grants(look.snapshot.state).get(planned.task_name)
    if grant is None:
        return []
    sighting, pace = look.snapshot.liveness.last.get(grant.execution_id), look.paces().get(grant.execution_id)
    rows = []
    for start in grant.starts:
        position = None if sighting is None else sighting.figures.positions.get(start.ssp_kb)
        note = ""
        if position is not None and position.bootstrap_end:
            note = f"is read to {position.bootstrap_end} before the other inputs of the task"
        elif position is not None and position.tailing:
            note = "is read in a tail"
        row = PositionRow(
            ssp=str(start.ssp_kb),
            offset_next=start.offset_next if position is None else position.offset_next,
            offset_end=None if position is None else position.offset_end,
            lag=None if position is None else max(0, position.offset_end - position.offset_next),
            records_per_s=None if pace is None else pace.records_per_s(start.ssp_kb),
            note=note,
        )
        rows.append(row)
    return rows
