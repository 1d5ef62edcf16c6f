"""Initial offsets for partitions without a checkpoint.

Also the epoch before which checkpoints are ignored.

What the coordinator grants by, and what `samzapy job rewind --plan` shows: one rule for both.
"""

from __future__ import annotations

from collections.abc import Mapping

from samzapy.config import JobConfig
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.ssp import SystemStreamPartition
from samzapy.stream.records import PlannedTaskPut


def offset_defaults(
    planned: PlannedTaskPut, state: CoordinatorState, config: JobConfig
) -> Mapping[SystemStreamPartition, str]:
    """`oldest` or `upcoming` for each SSP of a task, as far as it was never granted."""
    return {found.ssp: _offset_default(found.ssp, state, config) for found in planned.positions}


def begun_anew(
    planned: PlannedTaskPut, state: CoordinatorState, config: JobConfig
) -> Mapping[SystemStreamPartition, int]:
    """The SSPs of a task of which what earlier runs read, or what was read of earlier topics, does not count, and where
    the epochs of those end."""
    run = state.run
    if run is None:
        return {}
    return {
        found.ssp: max(
            run.epoch_before if config.resets_offset(str(found.ssp.system_stream)) else run.counts_after,
            epoch_before(found.ssp, state),
        )
        for found in planned.positions
    }


def epoch_before(ssp: SystemStreamPartition, state: CoordinatorState) -> int:
    """Up to which epoch positions are of another topic of the name."""
    known = state.inputs.get(ssp.system_stream)
    return 0 if known is None else known.epoch_before


def _offset_default(ssp: SystemStreamPartition, state: CoordinatorState, config: JobConfig) -> str:
    """A partition that was added while the job ran is read from its beginning, whatever the default."""
    known = state.inputs.get(ssp.system_stream)
    if known is not None and ssp.partition >= known.partition_count_first:
        return "oldest"
    return config.offset_default(str(ssp.system_stream))
