"""How partitions become tasks (`task.partition.scheme`): the built-in groupers.

| scheme | one task for | named |
|---|---|---|
| `max`, `group-by-ssp` | each SSP (Samza's grouper by SSP) | `SystemStreamPartition_kafka.orders.3` |
| `group-by-partition` | each partition number, of all inputs together (Samza's grouper) | `Partition_3` |
| `cogroup` | each remainder by the GCD of the partition counts | `Partition_3` |
| `all-ssps-to-single-task` | each processor, which reads everything | `Task_0` |

Each but the last ties a key's messages to one task for ever, if the job keeps state: see `periods`. They trust that
they can do what they are asked for: `plan.job_plan` refuses the rest before it asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd
from typing import Final

from samzapy.errors import PartitionSchemeError
from samzapy.model.job import ProcessorId, TaskName
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.plan.groupers import SystemStreamPartitionGrouper
from samzapy.plan.task_names import TaskNameParts

Previous = Mapping[SystemStreamPartition, TaskName]
Groups = Mapping[TaskName, Sequence[SystemStreamPartition]]


class GroupBySystemStreamPartition:
    """`max`: a task for each SSP.

    The highest parallelism Kafka allows; nothing can be joined.
    """

    def group(self, previous: Previous, ssps: Sequence[SystemStreamPartition]) -> Groups:
        home = _homes(previous)
        return _collected(
            (TaskNameParts(base=SystemStreamPartition(ssp.system, ssp.stream, home(ssp))).name, ssp) for ssp in ssps
        )


class GroupByPartition:
    """`group-by-partition`: partitions of equal number meet.

    So inputs of equal partition count can be joined.
    """

    def group(self, previous: Previous, ssps: Sequence[SystemStreamPartition]) -> Groups:
        home = _homes(previous)
        return _collected((TaskNameParts(base=home(ssp)).name, ssp) for ssp in ssps)


class Cogroup:
    """`cogroup`: a key of any input is in one task, under any partition counts.

    The price is parallelism.

    Producers take a key to partition `hash(key) % count`, and the GCD divides every count, so the remainder by it is
    the key's own. Once there is state, the number of tasks stays the one with which the state began.
    """

    def group(self, previous: Previous, ssps: Sequence[SystemStreamPartition]) -> Groups:
        """Group the SSPs.

        Raises PartitionSchemeError: an input that came later cannot be divided like the ones that have state.
        """
        counts = partition_counts_of(ssps)
        bound = periods(previous)
        task_count = gcd(*(bound or counts).values())
        for stream in sorted(counts):
            if counts[stream] % task_count:
                raise PartitionSchemeError(
                    f"{stream}: wanted a multiple of {task_count} partitions under task.partition.scheme=cogroup, "
                    f"because the job keeps state in {task_count} tasks, found {counts[stream]}; a key's messages "
                    "would not meet its state. Copy the input to a topic with such a number of partitions, or give "
                    "the job a new job.id, which begins without state"
                )
        return _collected((TaskNameParts(base=ssp.partition % task_count).name, ssp) for ssp in ssps)


class AllSspsToSingleTask:
    """`all-ssps-to-single-task`: each processor has one task, which reads everything.

    The one grouper that gives an SSP to several tasks, so no checks of the others' answers apply to it. Its SSPs
    are broadcast to all intents: positions are the task's, and law L6 does not speak of them.
    """

    def __init__(self, processor_ids: Sequence[ProcessorId]) -> None:
        self._processor_ids = processor_ids

    def group(self, previous: Previous, ssps: Sequence[SystemStreamPartition]) -> Groups:
        return {task_of_processor(processor_id): ssps for processor_id in self._processor_ids}


GROUPERS: Final[Mapping[str, Callable[[], SystemStreamPartitionGrouper]]] = {
    "max": GroupBySystemStreamPartition,
    "group-by-ssp": GroupBySystemStreamPartition,
    "group-by-partition": GroupByPartition,
    "cogroup": Cogroup,
}
"""By scheme, but for `all-ssps-to-single-task`, which needs to know the processors."""


def task_of_processor(processor_id: ProcessorId) -> TaskName:
    """The task of a processor under `all-ssps-to-single-task`."""
    return TaskName(f"Task_{processor_id}")


def partition_counts_of(ssps: Iterable[SystemStreamPartition]) -> Mapping[SystemStream, int]:
    """How many of `ssps` each stream has.

    The streams are in the order in which they first appear.
    """
    counts: dict[SystemStream, int] = {}
    for ssp in ssps:
        counts[ssp.system_stream] = counts.get(ssp.system_stream, 0) + 1
    return counts


def periods(previous: Previous) -> Mapping[SystemStream, int]:
    """The number of partitions after which the tasks of a stream repeat.

    It is the least d such that p and `p mod d` share a task.

    Where each partition had its own task when the state began, d is the number of partitions then, however often
    the stream has grown since. Producers take a key to partition `hash(key) % count`, so as long as d divides the
    count, a key is always in the task of partition `hash(key) % d`: an added partition p belongs to the task of
    `p mod d`. (SEP-5 counts the stream's tasks instead, which is the same for Samza's groupers and wrong for one
    that puts neighbours together.)
    """
    tasks: dict[SystemStream, dict[int, TaskName]] = {}
    for ssp, task in previous.items():
        tasks.setdefault(ssp.system_stream, {})[ssp.partition] = task
    return {stream: _period([tasks[stream][p] for p in sorted(tasks[stream])]) for stream in sorted(tasks)}


def _period(tasks: Sequence[TaskName]) -> int:
    count = len(tasks)
    divisors = (number for number in range(1, count + 1) if count % number == 0)
    return next(d for d in divisors if all(tasks[p] == tasks[p % d] for p in range(d, count)))


def _homes(previous: Previous) -> Callable[[SystemStreamPartition], int]:
    """The partition whose task an SSP belongs to.

    It is its own, or the origin of an added partition's keys.
    """
    bound = periods(previous)

    def home(ssp: SystemStreamPartition) -> int:
        period = bound.get(ssp.system_stream)
        return ssp.partition if period is None else ssp.partition % period

    return home


def _collected(pairs: Iterable[tuple[TaskName, SystemStreamPartition]]) -> Groups:
    ssps_of: dict[TaskName, list[SystemStreamPartition]] = {}
    for task, ssp in pairs:
        ssps_of.setdefault(task, []).append(ssp)
    return ssps_of
