"""Processors that are there, and those of the plan that are not.

It is apart from the reviews of members: a command that reads a job needs it, and no command of a leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.liveness import LIVING, Liveness, is_alive
from samzapy.coordinator.assignment.replanning import readable_config
from samzapy.coordinator.launching.launches import wanted_processors
from samzapy.coordinator.state import CoordinatorState, remembered, runs_its_own

if TYPE_CHECKING:
    from samzapy.model.job import ProcessorId


@remembered
def living_processors(state: CoordinatorState) -> frozenset[ProcessorId]:
    """The processors with an execution that may work.

    It is one of their own, or the one that their tasks were placed on.
    """
    own = (
        container.processor_id
        for container in state.containers.values()
        if container.phase in LIVING and runs_its_own(container, state)
    )
    placed = (record.processor_id for record in state.placed.values() if is_alive(state, record.execution_id))
    return frozenset((*own, *placed))


@remembered
def returnable(state: CoordinatorState) -> frozenset[ProcessorId]:
    """The members whose id another process may have again.

    The last execution of the others reported that its id was made for one process. The record of that execution is kept
    while its member is absent (`_forgotten`).
    """
    planned = () if state.generation is None else state.generation.processor_ids
    never = {container.processor_id for container in state.containers.values() if not container.comes_back}
    return frozenset(planned) - never


def grace_left_ms(processor_id: ProcessorId, state: CoordinatorState, liveness: Liveness, now_ms: int) -> int | None:
    """The time that the tasks of a self-managed processor still wait for its return.

    None if they wait for nothing, because no processor is there that could get them, or it cannot return.
    """
    since_ms = liveness.at_odds.get(processor_id)
    is_absent = since_ms is not None and processor_id not in living_processors(state)
    if not is_absent or wanted_processors(state) is not None or processor_id not in returnable(state):
        return None
    assert since_ms is not None
    config = readable_config(state)
    return None if config is None else max(0, config.processor_grace_ms - (now_ms - since_ms))
