"""How partitions become tasks (`task.partition.scheme`, seed 003).

A scheme is a function of the inputs, in the order of `task.inputs`, and their partition counts; its result
is in the order in which a job's first generation numbers its tasks. It knows no previous plan: which task
keeps which number, and what may change at all, is `plan.job_plan`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from samzapy.model.job import TaskName
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.plan.task_names import TaskNameParts


@dataclass(frozen=True, slots=True)
class SspGroup:
    """What one task reads."""

    task_name: TaskName
    ssps: tuple[SystemStreamPartition, ...]


Scheme = Callable[[Sequence[SystemStream], Mapping[SystemStream, int]], tuple[SspGroup, ...]]


def one_task_per_partition(
    inputs: Sequence[SystemStream], partition_counts: Mapping[SystemStream, int]
) -> tuple[SspGroup, ...]:
    """Scheme `max`: a task for each partition of each input, in the order of `inputs`.

    The highest parallelism Kafka allows; no task sees two inputs, so nothing can be joined.
    """
    ssps = [
        SystemStreamPartition(stream.system, stream.stream, partition)
        for stream in inputs
        for partition in range(partition_counts[stream])
    ]
    return tuple(SspGroup(TaskNameParts(base=ssp).name, (ssp,)) for ssp in ssps)


SCHEMES: Final[Mapping[str, Scheme]] = {"max": one_task_per_partition}
