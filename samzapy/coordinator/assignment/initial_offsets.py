"""Initial offsets for partitions without a checkpoint.

Also the epoch before which checkpoints are ignored.

The coordinator grants by this rule, and `samzapy job rewind --plan` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samzapy.config import JobConfig
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.model.ssp import SystemStreamPartition
    from samzapy.stream.records import PlannedTaskPut


def offset_defaults(
    planned: PlannedTaskPut, state: CoordinatorState, config: JobConfig
) -> Mapping[SystemStreamPartition, str]:
    """`oldest` or `upcoming` for each SSP of a task, as far as it was never granted."""
    return {ssp_kb.ssp: _offset_default(ssp_kb.ssp, state, config) for ssp_kb in planned.positions}


def begun_anew(
    planned: PlannedTaskPut, state: CoordinatorState, config: JobConfig
) -> Mapping[SystemStreamPartition, int]:
    """The SSPs of a task whose earlier positions do not count, and the epoch limit.

    The positions are of earlier runs, or of earlier topics of the same name. The epochs up to the limit are ignored.
    """
    run = state.run
    if run is None:
        return {}
    return {
        ssp_kb.ssp: max(
            run.epoch_before if config.resets_offset(str(ssp_kb.ssp.system_stream)) else run.counts_after,
            epoch_before(ssp_kb.ssp, state),
        )
        for ssp_kb in planned.positions
    }


def epoch_before(ssp: SystemStreamPartition, state: CoordinatorState) -> int:
    """Up to which epoch positions are of another topic of the name."""
    known = state.inputs.get(ssp.system_stream)
    return 0 if known is None else known.epoch_before


def _offset_default(ssp: SystemStreamPartition, state: CoordinatorState, config: JobConfig) -> str:
    """Read a partition that was added while the job ran from its beginning.

    This holds whatever the default is.
    """
    known = state.inputs.get(ssp.system_stream)
    if known is not None and ssp.partition >= known.partition_count_first:
        return "oldest"
    return config.offset_default(str(ssp.system_stream))
