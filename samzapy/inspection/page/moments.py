"""The job as it was at a moment, and the difference of two moments. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from samzapy.coordinator.assignment.grants import newest_grants, owners
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.container import Container
from samzapy.model.ssp import SspKeyBucket

ROWS_MAX: Final = 500
"""So many rows of each table are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state at a moment.

    Attributes:
        offset: of the last record before it; None: there was none.
        at_ms: the broker's time of that record.
        offset_later: of the first record after it; None: there is none. Markers of transactions have offsets too.
        is_whole: False: overwritten records may be gone, so only latest values are known.
    """

    offset: int | None
    at_ms: int | None
    offset_later: int | None
    state: CoordinatorState
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A part of a table, and how many rows it has in all."""

    shown: Sequence[Sequence[str]]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentView:
    """A job at a moment.

    Attributes:
        facts: names and values, in their order.
        containers: container, processor, host, phase, tasks.
        tasks: task, processor of the plan, container, offsets where its grant begins.
    """

    facts: Sequence[tuple[str, str]]
    containers: Rows
    tasks: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentDifference:
    """What is different at the second of two moments.

    Attributes:
        facts: name, value before, value after.
        containers: container, phase before, phase after.
        tasks: task, place before, place after.
        positions: position, offset before, offset after.
    """

    facts: Sequence[tuple[str, str, str]]
    containers: Rows
    tasks: Rows
    positions: Rows


def moment_view(state: CoordinatorState) -> MomentView:
    """The view of a state."""
    running = owners(state)
    counts: dict[str, int] = {}
    for grant in running.values():
        counts[grant.execution_id] = counts.get(grant.execution_id, 0) + 1
    starts = _starts(state)
    return MomentView(
        facts=tuple(_facts(state).items()),
        containers=_rows(
            [
                (
                    container.execution_id,
                    container.processor_id,
                    container.host,
                    container.phase.value,
                    str(counts.get(container.execution_id, 0)),
                )
                for container in state.containers_sorted
            ]
        ),
        tasks=_rows(
            [
                (
                    planned.task_name,
                    planned.processor_id,
                    running[planned.task_name].execution_id if planned.task_name in running else "-",
                    ", ".join(f"{ssp_kb} from {starts[ssp_kb]}" for ssp_kb in planned.positions if ssp_kb in starts),
                )
                for planned in state.plan
            ]
        ),
    )


def moment_difference(before: CoordinatorState, after: CoordinatorState) -> MomentDifference:
    """The difference of two states."""
    old, new = _facts(before), _facts(after)
    return MomentDifference(
        facts=[(name, old[name], new[name]) for name in old if old[name] != new[name]],
        containers=_changed(_phases(before), _phases(after)),
        tasks=_changed(_places(before), _places(after)),
        positions=_changed(_position_texts(before), _position_texts(after)),
    )


def _facts(state: CoordinatorState) -> Mapping[str, str]:
    plan, term, run = state.generation, state.term, state.run
    count = state.container_count
    return {
        "Term": "-" if term is None else f"{term.term} on {term.host}",
        "Run": "-" if run is None else f"{run.run_id}{', ended' if run.ended else ''}",
        "Generation": "-" if plan is None else str(plan.generation),
        "Factor": "-" if plan is None else str(plan.factor),
        "Tasks": str(len(state.plan)),
        "Processors": "-" if plan is None else ", ".join(plan.processor_ids),
        "Containers wanted": "self-managed" if count is None else str(count.count),
        "Open requests": str(len(state.requests)),
    }


def _phases(state: CoordinatorState) -> Mapping[str, str]:
    return {container.execution_id: _phase(container) for container in state.containers.values()}


def _phase(container: Container) -> str:
    return f"{container.phase.value} (processor {container.processor_id} on {container.host})"


def _places(state: CoordinatorState) -> Mapping[str, str]:
    running = owners(state)
    return {
        planned.task_name: f"processor {planned.processor_id}, "
        + (running[planned.task_name].execution_id if planned.task_name in running else "no container")
        for planned in state.plan
    }


def _starts(state: CoordinatorState) -> Mapping[SspKeyBucket, int]:
    """Where the newest grant of each task begins."""
    return {start.ssp_kb: start.offset_next for grant in newest_grants(state).values() for start in grant.starts}


def _position_texts(state: CoordinatorState) -> Mapping[str, str]:
    return {str(ssp_kb): str(offset) for ssp_kb, offset in _starts(state).items()}


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> Rows:
    return _rows(
        [
            (name, old.get(name, "-"), new.get(name, "-"))
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        ]
    )


def _rows(rows: Sequence[Sequence[str]]) -> Rows:
    return Rows(shown=rows[:ROWS_MAX], count=len(rows))
