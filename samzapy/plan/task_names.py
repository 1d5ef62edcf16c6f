"""The names of tasks, as SEP-32 writes them.

They are frozen, because checkpoints, grants and changelogs carry them.

| name | task |
|---|---|
| `Partition_3` | all inputs' partitions of number 3 (or, under `cogroup`, of remainder 3) |
| `SystemStreamPartition_kafka.orders.3` | one SSP |
| `Task_0` | everything that processor 0 is to read, under `all-ssps-to-single-task` |
| any other | a task of the job's own grouper |
| `Partition_3-1-4`, `SystemStreamPartition_kafka.orders.3-1-4` | the same narrowed to key bucket 1 of 4 |

The bucket stands behind the partition's number and a stream's name ends before it, so a name is read from
the right and a stream that is itself called `orders-1-4` or `a.b` makes no doubt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from samzapy.model.job import TaskName
from samzapy.model.ssp import SystemStreamPartition, check_factor

_NUMBER = r"0|[1-9][0-9]*"
_PARTITION = re.compile(rf"Partition_(?P<partition>{_NUMBER})(?:-(?P<bucket>{_NUMBER})-(?P<factor>{_NUMBER}))?")
_SSP = re.compile(
    rf"SystemStreamPartition_(?P<ssp>.+\.(?:{_NUMBER}))(?:-(?P<bucket>{_NUMBER})-(?P<factor>{_NUMBER}))?"
)
# Names become keys, and directories of local state: no slash, no leading dot, not too long for a file name.
_OTHER = re.compile(
    rf"(?!Partition_|SystemStreamPartition_)(?P<base>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,199}}?)"
    rf"(?:-(?P<bucket>{_NUMBER})-(?P<factor>{_NUMBER}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNameParts:
    """A task name in parts: the base, and the key bucket.

    Attributes:
        base: a partition number (`Partition_…`), one SSP (`SystemStreamPartition_…`), or any other name as it is.
        bucket, factor: 0 of 1 where the name has no bucket.
    """

    base: int | SystemStreamPartition | TaskName
    bucket: int = 0
    factor: int = 1

    def __post_init__(self) -> None:
        check_factor(self.factor)
        if not 0 <= self.bucket < self.factor:
            raise ValueError(f"wanted a key bucket in 0..{self.factor - 1}, found {self.bucket}")

    @classmethod
    def parse(cls, name: str) -> Self:
        """Read a task name. Raises ValueError for a text that no task can be called."""
        if matched := _PARTITION.fullmatch(name):
            return cls(base=int(matched["partition"]), **_bucket(matched))
        if matched := _SSP.fullmatch(name):
            return cls(base=SystemStreamPartition.parse(matched["ssp"]), **_bucket(matched))
        if matched := _OTHER.fullmatch(name):
            return cls(base=TaskName(matched["base"]), **_bucket(matched))
        raise ValueError(
            "wanted a task name (Partition_3, SystemStreamPartition_kafka.orders.3, or up to 200 letters, digits, "
            f"dots, dashes and underscores; with -bucket-factor behind it where it is elastic), found {name!r}"
        )

    @property
    def name(self) -> TaskName:
        """The text form; a bucket 0 of 1 is not written."""
        suffix = "" if self.factor == 1 else f"-{self.bucket}-{self.factor}"
        return TaskName(f"{self.base_name}{suffix}")

    @property
    def base_name(self) -> TaskName:
        """The name without the bucket.

        Virtual tasks of one base share it, and its changelog partition.
        """
        if isinstance(self.base, int):
            return TaskName(f"Partition_{self.base}")
        if isinstance(self.base, str):
            return self.base
        return TaskName(f"SystemStreamPartition_{self.base}")

    def overlaps(self, other: TaskNameParts) -> bool:
        """Whether both are tasks of some message.

        The base is the same, and the buckets are equal modulo the smaller factor.
        """
        smaller = min(self.factor, other.factor)
        return self.base == other.base and self.bucket % smaller == other.bucket % smaller


def _bucket(matched: re.Match[str]) -> dict[str, int]:
    if matched["factor"] is None:
        return {}
    if matched["factor"] == "1":
        # One spelling for each task: factor 1 is written without a bucket.
        raise ValueError(f"wanted no bucket at factor 1, found {matched[0]!r}")
    return {"bucket": int(matched["bucket"]), "factor": int(matched["factor"])}
