"""A grant: the right of one execution to run one task, with everything it needs to start."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Where an SSPKb is read from: the offset of the first record not yet processed, and floors after a merge.

    A message of `ssp_kb` is done already if it lies below `offset_next`, or below that of a floor whose bucket it falls
    into. Floors are disjoint, each of a bucket inside of `ssp_kb` (or all of it) and ahead of `offset_next`, ordered by
    factor and bucket. They hold as long as the grant does.
    """

    ssp_kb: SspKeyBucket
    offset_next: int
    floors: tuple[Floor, ...] = ()

    @property
    def finest_factor(self) -> int:
        """Of the bucket and of its floors: within a bucket of this factor all messages have one position."""
        return max((self.ssp_kb.factor, *(floor.ssp_kb.factor for floor in self.floors)))

    def positions(self, factor: int) -> Mapping[int, int]:
        """By bucket of `factor`, which is `finest_factor` or finer: the first offset that is not done."""
        found = dict.fromkeys(range(self.ssp_kb.bucket, factor, self.ssp_kb.factor), self.offset_next)
        for floor in self.floors:
            assert floor.ssp_kb.ssp == self.ssp_kb.ssp, f"{floor} is none of {self.ssp_kb}"
            for bucket in range(floor.ssp_kb.bucket, factor, floor.ssp_kb.factor):
                assert bucket in found, f"{floor} is none of {self.ssp_kb}"
                found[bucket] = max(found[bucket], floor.offset_next)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogStart:
    """Of the task's changelog partition of `store`, only what stands at `offset` or behind it counts."""

    store: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One task given to one execution.

    `epoch` is a counter of the whole job and never repeats.

    `partition_id` and `changelog_partition` are the task's, copied here because containers follow grants, never plans.
    `released`: its execution has let it go and will not take it up again; a new grant comes under a new epoch.
    `counts_after`: what was written under this epoch or an earlier one counts for nothing, because an earlier run of a
    bounded job wrote it; 0 where everything counts. `changelog_starts` say the same of changelogs, whose entries carry
    no epoch. `broadcast_parent` names the task whose copy of broadcast stores belongs to the grant's positions in
    broadcast inputs, and which is to be copied before the first message; empty: the task's own. `epoch_rewound`: the
    newest startpoint that the starts rest on. How far local state of an earlier epoch had come in the inputs can not be
    compared with them; 0 where all can.
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
    counts_after: int = 0
    changelog_starts: tuple[ChangelogStart, ...] = ()
    broadcast_parent: str = ""
    epoch_rewound: int = 0

    @property
    def key_bucket(self) -> tuple[int, int]:
        """`(bucket, factor)`: the keys whose state is this task's.

        The same in all inputs that it has to itself.
        """
        found = {(start.ssp_kb.bucket, start.ssp_kb.factor) for start in self.starts if not start.ssp_kb.reader}
        assert len(found) <= 1, f"task {self.task_name} has key buckets {sorted(found)}"
        return found.pop() if found else (0, 1)
