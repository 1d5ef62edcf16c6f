"""Assign tasks to processors: balanced, with few moves, near their state.

Seed 001's order of preference: the processor that had the task, then one on the host that holds its state,
then any. A task that moves takes its state with it, so it stays unless its processor is gone or has more than
its share; and since a processor id is worth more than a host, it also stays with a processor that came back
elsewhere.

Balanced means that no two processors differ by more than one task. If the number of tasks is no multiple, some
processors take one more. Which ones is left open as long as possible: first those that had most tasks, then those on
whose host state waits, then the first in order.

The parts of a task (key buckets, SEP-32) are spread, so that a partition which keeps its processor busy gets more than
one: no processor keeps more than its share of them, and the others go to the processor with the fewest parts of the
same task. Parts that need not move begin where their parents were: a child with its parent, a merged task with its
first part. With `job.elasticity.colocate` all parts of a task stay together and count as one.

On purpose unlike Samza 1.8: tasks are taken by number, not by name as text; processors may be more than tasks;
a mapping that is out of balance is balanced; the previous processor is asked before the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from samzapy.model.container import NO_LOCALITY, Locality
from samzapy.model.job import ContainerModel, ProcessorId, TaskModel, TaskName
from samzapy.plan.task_names import TaskNameParts

Place = TypeVar("Place")


class ByCountAndLocality:
    """The built-in assignment of tasks to processors: `group_tasks` with localities."""

    def __init__(self, locality: Locality = NO_LOCALITY, *, colocates_buckets: bool = False) -> None:
        self._locality = locality
        self._colocates_buckets = colocates_buckets

    def group(
        self,
        tasks: Sequence[TaskModel],
        processor_ids: Sequence[ProcessorId],
        previous_containers: Sequence[ContainerModel],
    ) -> tuple[ContainerModel, ...]:
        """A container for each processor, also for one without tasks, with its location."""
        before = {task.name: one.processor_id for one in previous_containers for task in one.tasks}
        numbered = sorted(tasks, key=lambda task: (task.partition_id, task.name))
        names = [task.name for task in numbered]
        base_of = {name: TaskNameParts.parse(name).base_name for name in names}
        units = base_of if self._colocates_buckets else {name: name for name in names}
        asked = tuple(dict.fromkeys(units.values()))
        home = _inherited(asked, before)
        places = Locality(processors=self._locality.processors, tasks=dict(_inherited(asked, self._locality.tasks)))
        owner_of_unit = group_tasks(asked, processor_ids, home, places, base_of)
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
    base_of: Mapping[TaskName, TaskName] | None = None,
) -> Mapping[TaskName, ProcessorId]:
    """The processor of each task.

    A task leaves a processor that is still there only if balance, or the spreading of parts, requires it. Tasks whose
    state is on another host leave first, and as many as possible of the leaving tasks go to their state.

    Args:
        task_names: in the order in which they are given out.
        processor_ids: at least one; their order does not matter.
        previous: the earlier processors of tasks; tasks and processors may be gone.
        base_of: the base of each task; without it each is a task by itself.
    """
    assert processor_ids, "a plan needs a processor"
    processors = sorted(set(processor_ids), key=processor_order)
    shares = _Shares({name: (base_of or {}).get(name, name) for name in task_names}, processors)
    for processor, had in _by_processor(task_names, shares, previous, locality):
        for task in had[: shares.room(processor, len(had))]:
            shares.give(task, processor)
    _give_to_hosts_with_state(task_names, processors, locality, shares)
    for within_base in (True, False):
        for task in task_names:
            if task not in shares.owner:
                shares.give(task, shares.best(task, processors, within_base=within_base))
    for task in task_names:
        if task not in shares.owner:
            shares.make_room(task)
    return {task: shares.owner[task] for task in task_names}


def _give_to_hosts_with_state(
    task_names: Sequence[TaskName], processors: Sequence[ProcessorId], locality: Locality, shares: _Shares
) -> None:
    """Give each task without an owner to a processor on the host that has its state."""
    for within_base in (True, False):
        for task in task_names:
            host = locality.tasks.get(task)
            if task not in shares.owner and host is not None:
                on_host = [one for one in processors if locality.processors.get(one) == host]
                shares.give(task, shares.best(task, on_host, within_base=within_base))


def _inherited(task_names: Sequence[TaskName], known: Mapping[TaskName, Place]) -> Mapping[TaskName, Place]:
    """The earlier places of tasks.

    A new task has the place of the first task that had any of its buckets.
    """
    parts = {name: TaskNameParts.parse(name) for name in known}
    of_base: dict[TaskName, list[TaskName]] = {}
    for name in sorted(known, key=lambda name: (parts[name].factor, parts[name].bucket)):
        of_base.setdefault(parts[name].base_name, []).append(name)
    places: dict[TaskName, Place] = {}
    for name in task_names:
        wanted = TaskNameParts.parse(name)
        of_kin = (other for other in of_base.get(wanted.base_name, ()) if wanted.overlaps(parts[other]))
        origin = name if name in known else next(of_kin, None)
        if origin is not None:
            places[name] = known[origin]
    return places


def processor_order(processor_id: ProcessorId) -> tuple[int, str]:
    """Orders `2` before `10`, and is total for any text."""
    return len(processor_id), processor_id


class _Shares:
    """The tasks of each processor, and the number that it may still get.

    That is `base` tasks each, and `spare` of them one more; and of the parts of a task no more than its share.

    Attributes:
        owner: the processor of each task that has one so far.
    """

    def __init__(self, base_of: Mapping[TaskName, TaskName], processors: Sequence[ProcessorId]) -> None:
        self.processors = processors
        self.owner: dict[TaskName, ProcessorId] = {}
        self._base_of = base_of
        self._base, self._spare = divmod(len(base_of), len(processors))
        self._parts_max = {base: -(-count // len(processors)) for base, count in Counter(base_of.values()).items()}
        self._taken = dict.fromkeys(processors, 0)
        # Of each base task how many parts each processor has.
        self._parts: dict[TaskName, Counter[ProcessorId]] = {base: Counter() for base in base_of.values()}

    def spread(self, task_names: Sequence[TaskName]) -> Sequence[TaskName]:
        """The first of these that one processor may have."""
        count: Counter[TaskName] = Counter()
        leaving = []
        for task in task_names:
            base = self._base_of[task]
            count[base] += 1
            if count[base] <= self._parts_max[base]:
                leaving.append(task)
        return leaving

    def room(self, processor: ProcessorId, wanted: int) -> int:
        """How many of `wanted` a processor without tasks may have."""
        return min(wanted, self._base + (wanted > self._base and self._spare > 0))

    def best(self, task: TaskName, candidates: Sequence[ProcessorId], *, within_base: bool) -> ProcessorId | None:
        """The best candidate that may have the task; None if there is none.

        It has the fewest parts of the same task, then the fewest tasks, then comes first.
        """
        limit = self._base if within_base else self._limit
        base, taken = self._base_of[task], self._taken
        parts, parts_max = self._parts[base], self._parts_max[base]
        free = [one for one in candidates if taken[one] < limit and parts.get(one, 0) < parts_max]
        return min(free, key=lambda one: (parts.get(one, 0), taken[one]), default=None)

    def give(self, task: TaskName, processor: ProcessorId | None) -> None:
        """Let it have the task; None changes nothing."""
        if processor is None:
            return
        self._spare -= self._taken[processor] == self._base
        self._taken[processor] += 1
        self._parts[self._base_of[task]][processor] += 1
        self.owner[task] = processor

    def make_room(self, task: TaskName) -> None:
        """Give a task to a processor that may have it but has no room.

        That one passes one of its tasks on, to one with room, or to one that passes one on itself. This is the shortest
        such way; each processor is on it at most once.
        """
        reached: dict[ProcessorId, tuple[TaskName, ProcessorId | None]] = {
            one: (task, None) for one in self.processors if self._may_have(one, task)
        }
        for one in (queue := list(reached)):
            if self._taken[one] < self._limit:
                self._pass_on(one, reached)
                return
            for other in self.processors:
                if other not in reached:
                    given = next((had for had in self._tasks_of(one) if self._may_have(other, had)), None)
                    if given is not None:
                        reached[other] = given, one
                        queue.append(other)
        # Balance comes first.
        self.give(task, min(self.processors, key=lambda one: self._taken[one]))

    def _pass_on(
        self, processor: ProcessorId | None, reached: Mapping[ProcessorId, tuple[TaskName, ProcessorId | None]]
    ) -> None:
        while processor is not None:
            task, giver = reached[processor]
            if giver is not None:
                self._take(task, giver)
            self.give(task, processor)
            processor = giver

    def _take(self, task: TaskName, processor: ProcessorId) -> None:
        self._taken[processor] -= 1
        self._spare += self._taken[processor] == self._base
        self._parts[self._base_of[task]][processor] -= 1

    def _tasks_of(self, processor: ProcessorId) -> Sequence[TaskName]:
        return [task for task, owner in self.owner.items() if owner == processor]

    def _may_have(self, processor: ProcessorId, task: TaskName) -> bool:
        base = self._base_of[task]
        return self._parts[base][processor] < self._parts_max[base]

    @property
    def _limit(self) -> int:
        return self._base + (self._spare > 0)


def _by_processor(
    task_names: Sequence[TaskName],
    shares: _Shares,
    previous: Mapping[TaskName, ProcessorId],
    locality: Locality,
) -> Sequence[tuple[ProcessorId, Sequence[TaskName]]]:
    """The tasks that each living processor had and may keep, the best first.

    The processor with most tasks comes first, and is first to keep one more.
    """
    had: dict[ProcessorId, list[TaskName]] = {processor: [] for processor in shares.processors}
    for task in task_names:
        processor = previous.get(task)
        if processor in had:
            had[processor].append(task)
    kept = []
    for processor, tasks in had.items():
        # A task whose state stayed on another host has the least to lose.
        here = locality.processors.get(processor)
        at_home = sorted(tasks, key=lambda task: here is None or locality.tasks.get(task, here) != here)
        kept.append((processor, shares.spread(at_home)))
    return sorted(kept, key=lambda item: (-len(item[1]), processor_order(item[0])))
