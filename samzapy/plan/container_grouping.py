"""Tasks -> processors: balanced by count, least movement, and state is looked for where it is.

Seed 001's order of preference: the processor that had the task, then one on the host that holds its state,
then any. A task that moves takes its state with it, so it stays unless its processor is gone or has more than
its share; and since a processor id is worth more than a host, it also stays with a processor that came back
elsewhere.

Balanced means that no two processors differ by more than one task. Where the number of tasks is no multiple,
some processors take one more, and which ones is left open as long as it can be of use: they go to those that
had most, then to those on whose host state waits, then to the first.

The parts of a task (key buckets, SEP-32) begin where what they are made of was: a child with its parent, a merged
task with its first part. With `job.elasticity.colocate` all parts of a task stay together and count as one.

On purpose unlike Samza 1.8: tasks are taken by number, not by name as text; processors may be more than tasks;
a mapping that is out of balance is balanced; the previous processor is asked before the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from samzapy.model.container import NO_LOCALITY, Locality
from samzapy.model.job import ContainerModel, ProcessorId, TaskModel, TaskName
from samzapy.plan.task_names import TaskNameParts

Place = TypeVar("Place")


class ByCountAndLocality:
    """The built-in way from tasks to processors: `group_tasks` with what is known of places."""

    def __init__(self, locality: Locality = NO_LOCALITY, *, colocates_buckets: bool = False) -> None:
        self._locality = locality
        self._colocates_buckets = colocates_buckets

    def group(
        self,
        tasks: Sequence[TaskModel],
        processor_ids: Sequence[ProcessorId],
        previous_containers: Sequence[ContainerModel],
    ) -> tuple[ContainerModel, ...]:
        """A container for each processor, also for one without tasks, with the location it has."""
        before = {task.name: one.processor_id for one in previous_containers for task in one.tasks}
        numbered = sorted(tasks, key=lambda task: (task.partition_id, task.name))
        names = [task.name for task in numbered]
        units = {name: TaskNameParts.parse(name).base_name if self._colocates_buckets else name for name in names}
        asked = tuple(dict.fromkeys(units.values()))
        home = _inherited(asked, before)
        places = Locality(processors=self._locality.processors, tasks=dict(_inherited(asked, self._locality.tasks)))
        owner_of_unit = group_tasks(asked, processor_ids, home, places)
        owner = {name: owner_of_unit[units[name]] for name in names}
        return tuple(
            ContainerModel(
                processor_id=processor,
                location_id=self._locality.processors.get(processor),
                tasks=tuple(task for task in numbered if owner[task.name] == processor),
            )
            for processor in sorted(set(processor_ids), key=processor_order)
        )


def group_tasks(
    task_names: Sequence[TaskName],
    processor_ids: Sequence[ProcessorId],
    previous: Mapping[TaskName, ProcessorId],
    locality: Locality = NO_LOCALITY,
) -> Mapping[TaskName, ProcessorId]:
    """The processor of each task.

    No balanced answer has fewer tasks that leave a processor which is still there. Those that do leave are the
    ones whose state is on another host anyway, and of all that must go as many as can go to where their state is.

    Args:
        task_names: in the order in which they are given out.
        processor_ids: at least one; their order does not matter.
        previous: where tasks were, also those and processors that are no more.
    """
    assert processor_ids, "a plan needs a processor"
    shares = _Shares(len(task_names), sorted(set(processor_ids), key=processor_order))
    found: dict[TaskName, ProcessorId] = {}
    for processor, had in _by_processor(task_names, shares.processors, previous):
        # Whose state stayed on another host has the least to lose.
        here = locality.processors.get(processor)
        at_home = sorted(had, key=lambda task: here is None or locality.tasks.get(task, here) != here)
        for task in at_home[: shares.take(processor, len(had))]:
            found[task] = processor
    for within_base in (True, False):
        for task in task_names:
            host = locality.tasks.get(task)
            if task not in found and host is not None:
                on_host = [one for one in shares.processors if locality.processors.get(one) == host]
                _give(task, shares.least_loaded(on_host, within_base=within_base), shares, found)
    for within_base in (True, False):
        for task in task_names:
            if task not in found:
                _give(task, shares.least_loaded(shares.processors, within_base=within_base), shares, found)
    return {task: found[task] for task in task_names}


def _inherited(task_names: Sequence[TaskName], known: Mapping[TaskName, Place]) -> Mapping[TaskName, Place]:
    """What is known of tasks; of one that is new, what is known of the first task that had any of its buckets."""
    parts = {name: TaskNameParts.parse(name) for name in known}
    of_base: dict[TaskName, list[TaskName]] = {}
    for name in sorted(known, key=lambda name: (parts[name].factor, parts[name].bucket)):
        of_base.setdefault(parts[name].base_name, []).append(name)
    found: dict[TaskName, Place] = {}
    for name in task_names:
        wanted = TaskNameParts.parse(name)
        of_kin = (other for other in of_base.get(wanted.base_name, ()) if wanted.overlaps(parts[other]))
        origin = name if name in known else next(of_kin, None)
        if origin is not None:
            found[name] = known[origin]
    return found


def processor_order(processor_id: ProcessorId) -> tuple[int, str]:
    """Orders `2` before `10`, and is total for any text."""
    return len(processor_id), processor_id


class _Shares:
    """How many tasks each processor has, and may still get: `base` each, and `spare` of them one more."""

    def __init__(self, task_count: int, processors: Sequence[ProcessorId]) -> None:
        self.processors = processors
        self._base, self._spare = divmod(task_count, len(processors))
        self._taken = dict.fromkeys(processors, 0)

    def take(self, processor: ProcessorId, wanted: int) -> int:
        """Take as many of `wanted` as may be; at the beginning, before anything else is taken."""
        one_more = wanted > self._base and self._spare > 0
        self._spare -= one_more
        self._taken[processor] = min(wanted, self._base + one_more)
        return self._taken[processor]

    def least_loaded(self, candidates: Sequence[ProcessorId], *, within_base: bool) -> ProcessorId | None:
        """The first of those with the fewest tasks that may have another; None if all are full."""
        limit = self._base if within_base else self._base + (self._spare > 0)
        free = [one for one in candidates if self._taken[one] < limit]
        return min(free, key=lambda one: self._taken[one], default=None)

    def add(self, processor: ProcessorId) -> None:
        self._spare -= self._taken[processor] == self._base
        self._taken[processor] += 1


def _by_processor(
    task_names: Sequence[TaskName], processors: Sequence[ProcessorId], previous: Mapping[TaskName, ProcessorId]
) -> Sequence[tuple[ProcessorId, Sequence[TaskName]]]:
    """The tasks that each living processor had; who had most comes first, and is first to keep one more."""
    had: dict[ProcessorId, list[TaskName]] = {processor: [] for processor in processors}
    for task in task_names:
        processor = previous.get(task)
        if processor in had:
            had[processor].append(task)
    return sorted(had.items(), key=lambda item: (-len(item[1]), processor_order(item[0])))


def _give(task: TaskName, processor: ProcessorId | None, shares: _Shares, found: dict[TaskName, ProcessorId]) -> None:
    if processor is not None:
        shares.add(processor)
        found[task] = processor
