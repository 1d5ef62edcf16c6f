"""A grant: the right of one execution to run one task.

It has all that is needed to start the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Messages of `ssp_kb` below `offset_next` are done already and are skipped.

    `ssp_kb` is of an earlier factor.
    """

    ssp_kb: SspKeyBucket
    offset_next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStart:
    """Where an SSPKb is read from.

    `offset_next` is the first record that is not processed; floors come from a merge.

    A message of `ssp_kb` is done already if it lies below `offset_next`, or below the offset of a floor whose bucket
    has its key. Floors are disjoint, each of a bucket inside of `ssp_kb` (or all of it) and ahead of `offset_next`,
    ordered by factor and bucket. They hold as long as the grant does.
    """

    ssp_kb: SspKeyBucket
    offset_next: int
    floors: tuple[Floor, ...] = ()

    @property
    def finest_factor(self) -> int:
        """The finest factor of the bucket and its floors.

        Within a bucket of this factor all messages have one position.
        """
        return max((self.ssp_kb.factor, *(floor.ssp_kb.factor for floor in self.floors)))

    def positions(self, factor: int) -> Mapping[int, int]:
        """The first offset that is not done, by bucket of `factor`.

        `factor` is `finest_factor` or finer.
        """
        offsets = dict.fromkeys(range(self.ssp_kb.bucket, factor, self.ssp_kb.factor), self.offset_next)
        for floor in self.floors:
            assert floor.ssp_kb.ssp == self.ssp_kb.ssp, f"{floor} is none of {self.ssp_kb}"
            for bucket in range(floor.ssp_kb.bucket, factor, floor.ssp_kb.factor):
                assert bucket in offsets, f"{floor} is none of {self.ssp_kb}"
                offsets[bucket] = max(offsets[bucket], floor.offset_next)
        return offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogStart:
    """Where a task's changelog partition of `store` begins to be valid.

    Records in front of `offset` are ignored.
    """

    store: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One task given to one execution.

    `epoch` is a counter of the whole job and never repeats.

    `partition_id` and `changelog_partition` are the task's, copied here because containers follow grants, never plans.
    `released`: its execution has released it and will not take it up again; a new grant has a new epoch.
    `counts_after`: records under this epoch or an earlier one are ignored, because an earlier run of a bounded job
    wrote them; 0 if all are valid. `changelog_starts` are the same for changelogs, whose entries carry no epoch.
    `broadcast_parent` names the task whose copy of broadcast stores belongs to the grant's positions in broadcast
    inputs; it is copied before the first message. Empty: the task's own copy. `epoch_rewound`: the newest startpoint of
    the starts. Local state of an earlier epoch cannot be compared with them; 0 if all can.
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
        """`(bucket, factor)`: the keys whose state belongs to this task.

        The same in all inputs that it has to itself.
        """
        buckets = {(start.ssp_kb.bucket, start.ssp_kb.factor) for start in self.starts if not start.ssp_kb.reader}
        assert len(buckets) <= 1, f"task {self.task_name} has key buckets {sorted(buckets)}"
        return buckets.pop() if buckets else (0, 1)


def is_of_earlier_topic(grant: Grant, epochs_before: Mapping[SystemStream, int]) -> bool:
    """Whether a topic that the grant reads was created again after it.

    Args:
        epochs_before: the last epoch of the earlier topic, of each input that was created again.
    """
    return bool(epochs_before) and any(
        grant.epoch <= epochs_before.get(start.ssp_kb.ssp.system_stream, 0) for start in grant.starts
    )
