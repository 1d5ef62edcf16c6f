"""Suspends a processor whose containers end repeatedly at one step of their start.

A container reports each step of its start in heartbeats, and no step once its query runs. If three containers in a row
end at the same step, the fourth one would end there too: a library crashes on the state, or the start needs more memory
than the host has. The count of failures within a window does not show this if each start takes long. So the processor
is suspended (`coordinator.launching.suspension`), with the step as the reason.

The count belongs to one term. A new leader counts from zero, and suspends the processor three starts later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from samzapy.coordinator.assignment.liveness import Liveness, StartUnderWay, is_alive, is_expected
from samzapy.coordinator.launching.launches import wanted_processors
from samzapy.coordinator.state import CoordinatorState, sorted_processors
from samzapy.errors import ExitCode
from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchPhase
from samzapy.stream.records import SuspendedPut

if TYPE_CHECKING:
    from samzapy.coordinator.commands import Heartbeat

DEATHS_MAX: Final = 3


def noted_step(heartbeat: Heartbeat, state: CoordinatorState, liveness: Liveness) -> Liveness:
    """`liveness` with the start step that a container reports."""
    if not is_expected(state, heartbeat) or heartbeat.execution_id not in state.launches:
        return liveness  # Only a processor whose containers the coordinator starts can be suspended.
    processor_id, before = heartbeat.processor_id, liveness.starts.get(heartbeat.processor_id)
    is_own = before is not None and before.execution_id == heartbeat.execution_id
    runs = heartbeat.state is ContainerPhase.RUNNING and heartbeat.held and not heartbeat.step
    if runs or (is_own and heartbeat.state is ContainerPhase.STOPPED):
        return _without(liveness, [processor_id])
    if not (heartbeat.step or is_own):
        return liveness  # The container waits for grants, or is a standby of the processor.
    if before is None:
        start = StartUnderWay(execution_id=heartbeat.execution_id, step=heartbeat.step)
    elif is_own:
        start = replace(before, step=heartbeat.step)
    else:
        start = StartUnderWay(
            execution_id=heartbeat.execution_id, step=heartbeat.step, died_at=before.step, deaths=_deaths(before)
        )
    return liveness if start == before else replace(liveness, starts={**liveness.starts, processor_id: start})


def suspended_at_a_step(state: CoordinatorState, liveness: Liveness) -> Iterable[SuspendedPut]:
    """Suspensions of wanted processors whose last containers all ended at one step."""
    if not liveness.starts:
        return
    wanted = frozenset(wanted_processors(state) or ())
    for processor_id in sorted_processors(liveness.starts.keys() & wanted):
        start = liveness.starts[processor_id]
        launch, container = state.launches.get(start.execution_id), state.containers.get(start.execution_id)
        if processor_id in state.suspended or launch is None or is_alive(state, start.execution_id):
            continue
        if launch.phase is LaunchPhase.STOPPING:
            continue  # It was ordered to stop. One that ends without an order is reviewed before it is to stop.
        if _deaths(start) >= DEATHS_MAX:
            last = launch.reason or ("" if container is None else container.reason)
            yield SuspendedPut(
                processor_id=processor_id,
                execution_id=start.execution_id,
                exit_code=ExitCode.FAILED,
                reason=f"{_deaths(start)} containers in a row ended while {start.step}; of the last one: {last}",
            )


def without_suspended(state: CoordinatorState, liveness: Liveness) -> Liveness:
    """`liveness` without the starts of suspended processors.

    The count starts from zero when such a processor is resumed. The starts of processors that are not wanted, and of
    containers that live and are to stop, go too: their ends are no deaths.
    """
    if not liveness.starts:
        return liveness
    wanted = frozenset(wanted_processors(state) or ())
    over = [
        processor_id
        for processor_id, start in liveness.starts.items()
        if processor_id in state.suspended or processor_id not in wanted or _is_ordered_to_stop(start, state)
    ]
    return _without(liveness, over)


def _is_ordered_to_stop(start: StartUnderWay, state: CoordinatorState) -> bool:
    launch = state.launches.get(start.execution_id)
    return launch is not None and launch.phase is LaunchPhase.STOPPING and is_alive(state, start.execution_id)


def _deaths(start: StartUnderWay) -> int:
    """The number of containers in a row that ended at this start's step.

    The container of this start is counted, so the number holds once it has ended.
    """
    return start.deaths + 1 if start.died_at == start.step else 1


def _without(liveness: Liveness, processor_ids: Iterable[str]) -> Liveness:
    removed = frozenset(processor_ids)
    kept = {processor_id: start for processor_id, start in liveness.starts.items() if processor_id not in removed}
    return liveness if len(kept) == len(liveness.starts) else replace(liveness, starts=kept)
