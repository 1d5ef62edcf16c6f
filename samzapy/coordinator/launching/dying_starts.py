"""Containers that end again and again at one step of their start.

Theory. A container reports each step of its start in heartbeats, and none once its query runs. What ends it at the same
step three times in a row would end the fourth one, too: a library that crashes over its state, a start that needs more
memory than there is. Failures that are counted within a window do not see that where each start takes long. So the
processor is suspended (`coordinator.launching.suspension`), with the step as the reason.

The count is this term's: a coordinator that takes over begins anew, and three starts later it knows, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from samzapy.coordinator.assignment.liveness import Liveness, StartUnderWay, is_alive, is_expected
from samzapy.coordinator.commands import Heartbeat
from samzapy.coordinator.state import CoordinatorState, sorted_processors
from samzapy.errors import ExitCode
from samzapy.model.container import ContainerPhase
from samzapy.stream.records import SuspendedPut

DEATHS_MAX: Final = 3


def noted_step(heartbeat: Heartbeat, state: CoordinatorState, liveness: Liveness) -> Liveness:
    """`liveness` with the step that a container has come to."""
    if not is_expected(state, heartbeat):
        return liveness
    processor_id, before = heartbeat.processor_id, liveness.starts.get(heartbeat.processor_id)
    is_own = before is not None and before.execution_id == heartbeat.execution_id
    runs = heartbeat.state is ContainerPhase.RUNNING and heartbeat.held and not heartbeat.step
    if runs or (is_own and heartbeat.state is ContainerPhase.STOPPED):
        return _without(liveness, [processor_id])
    if not (heartbeat.step or is_own):
        return liveness  # It waits: for grants, or as a standby of the processor.
    if before is None:
        found = StartUnderWay(execution_id=heartbeat.execution_id, step=heartbeat.step)
    elif is_own:
        found = replace(before, step=heartbeat.step)
    else:
        found = StartUnderWay(
            execution_id=heartbeat.execution_id, step=heartbeat.step, died_at=before.step, deaths=_deaths(before)
        )
    return liveness if found == before else replace(liveness, starts={**liveness.starts, processor_id: found})


def suspended_at_a_step(state: CoordinatorState, liveness: Liveness) -> Iterable[SuspendedPut]:
    """The processors whose last containers all ended at one step."""
    for processor_id in sorted_processors(liveness.starts):
        start = liveness.starts[processor_id]
        launch, container = state.launches.get(start.execution_id), state.containers.get(start.execution_id)
        if processor_id in state.suspended or launch is None or is_alive(state, start.execution_id):
            continue
        if _deaths(start) >= DEATHS_MAX:
            last = launch.reason or ("" if container is None else container.reason)
            yield SuspendedPut(
                processor_id=processor_id,
                execution_id=start.execution_id,
                exit_code=ExitCode.FAILED,
                reason=f"{_deaths(start)} containers in a row ended while {start.step}; of the last one: {last}",
            )


def without_suspended(state: CoordinatorState, liveness: Liveness) -> Liveness:
    """`liveness` without the starts of suspended processors: resumed, they begin anew."""
    return _without(liveness, [found for found in liveness.starts if found in state.suspended])


def _deaths(start: StartUnderWay) -> int:
    """How many containers in a row ended at the step that this one is at, if it has ended."""
    return start.deaths + 1 if start.died_at == start.step else 1


def _without(liveness: Liveness, processor_ids: Iterable[str]) -> Liveness:
    left = {found: start for found, start in liveness.starts.items() if found not in set(processor_ids)}
    return liveness if len(left) == len(liveness.starts) else replace(liveness, starts=left)
