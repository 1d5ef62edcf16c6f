"""A grant: the right of one execution to run one task, with everything it needs to start (design section 8)."""

from __future__ import annotations

from dataclasses import dataclass

from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Messages of `ssp_kb` (of an earlier factor) below `offset_next` are done already and must be skipped."""

    ssp_kb: SspKeyBucket
    offset_next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStart:
    """Where an SSPKb is read from: the offset of the first record not yet processed, and floors after a merge."""

    ssp_kb: SspKeyBucket
    offset_next: int
    floors: tuple[Floor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One task given to one execution. `epoch` is a counter of the whole job and never repeats.

    `partition_id` and `changelog_partition` are the task's, copied here because containers follow grants, never plans.
    `released`: its execution has let it go and will not take it up again; a new grant comes under a new epoch.
    """

    task_name: TaskName
    epoch: int
    execution_id: ExecutionId
    generation: int
    partition_id: int
    changelog_partition: int
    starts: tuple[BucketStart, ...]
    tick_last: int = 0
    released: bool = False
