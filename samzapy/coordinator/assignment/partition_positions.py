"""The position of the job in each input partition. Pure.

It is made of the positions of the key buckets, as containers report them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from samzapy.coordinator.assignment.grants import newest_grants

if TYPE_CHECKING:
    from samzapy.coordinator.assignment.liveness import Liveness
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.model.ssp import SystemStreamPartition


def partition_positions(state: CoordinatorState, liveness: Liveness) -> Mapping[SystemStreamPartition, int]:
    """By partition, the offset below which all tasks have committed everything.

    That is the least position of its key buckets, or of the tasks that read all of it. A partition is left out while a
    position in it is not known: a task has no owner, or its owner has not reported since it got its grant.
    """
    positions: dict[SystemStreamPartition, int | None] = {}
    newest = newest_grants(state)
    for planned in state.plan:
        grant = newest.get(planned.task_name)
        sighting = None if grant is None else liveness.last.get(grant.execution_id)
        # Before an execution has read its grant, its positions are those under an older one, perhaps before a rewind.
        if grant is None or sighting is None or not sighting.has_read(grant):
            positions |= {ssp_kb.ssp: None for ssp_kb in planned.positions}
            continue
        for ssp_kb in planned.positions:
            position = sighting.figures.positions.get(ssp_kb)
            offset_next = None if position is None else position.offset_next
            positions[ssp_kb.ssp] = _least(offset_next, positions.get(ssp_kb.ssp, offset_next))
    return {ssp: offset for ssp, offset in positions.items() if offset is not None}


def _least(offset: int | None, other: int | None) -> int | None:
    """The least of both; None if one is not known."""
    return None if offset is None or other is None else min(offset, other)
