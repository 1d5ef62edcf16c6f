"""A plan before it is in force: its moves, their cost, and the reason of each.

It is derived from two plans and the known places; the grouper is not asked. If a job has its own grouper
(`task.name.grouper.factory`) the reason names it, because only its code knows why it chose a processor.

```json
{"job": "flights-1", "fromGeneration": 3, "jobModel": {...},
 "tasks": [{"task": "…", "change": "moves", "from": "0", "to": "1", "location": "host-b",
            "why": "processor 0 is gone; same host as its state (host-b)",
            "restoreRecordsMax": 0, "restoreBytesAbout": 0, "copyBytesAbout": 0}],
 "gone": [],
 "topics": [{"topic": "__samzapy-intermediate-flights-1-by_carrier", "from": 0, "to": 4}],
 "stores": [{"store": "sums", "change": "stays", "why": ""}],
 "waiting": [],
 "spreadKeys": [{"stream": "kafka.orders", "keyCount": 2, "examples": [{"key": "N14228", "partitions": [0, 3]}, …]}],
 "partitioners": [{"stream": "kafka.orders", "partitioner": "murmur2", "keyCount": 9, "fits": {"murmur2": 9, …}}, …],
 "refusal": "", "warnings": [],
 "totals": {"stays": 3, "moves": 1, "splits": 0, "merges": 0, "new": 0, "gone": 0,
            "restoreRecordsMax": 0, "restoreBytesAbout": 0, "copyBytesAbout": 0, "expectedPauseMs": 1200}}
```

`change` is `stays`, `moves`, `splits`, `merges` or `new`; `splits` and `merges` name the `parents` whose key buckets
the task gets. State to restore comes from the changelog; state to copy comes from the parents' stores on the same host.
Both, and the expected pause of a key of a running job (`plan.expected_pause`), are null if they are not known. `topics`
are those of intermediate streams that a submission creates (`from` 0 partitions), or grows. The `change` of a store is
`new`, `stays`, `changes`, `dropped` or `refused` (`plan.store_changes`). `waiting` are new
partitions of inputs that the job reads already: they come into the plan when the old ones have passed their ends (ADR
0011). `spreadKeys` are keys of several tasks, as far as they were sampled (`plan.key_spread`). `partitioners` are those
of inputs that share tasks (null: not known), `refusal` is why a job that keeps state by key is not started on them, and
`warnings` are further remarks (`plan.input_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from samzapy.model.container import Locality
from samzapy.model.job import ContainerModel, JobModel, ProcessorId, TaskModel, TaskName
from samzapy.model.ssp import SystemStreamPartition
from samzapy.plan.expected_pause import expected_pause_ms
from samzapy.plan.input_keys import NOTHING_SEEN, InputKeys, StreamKeys, refusal_of, warnings_of
from samzapy.plan.job_model_json import Json, job_model_json
from samzapy.plan.key_spread import SpreadKeys
from samzapy.plan.store_changes import StoreChange
from samzapy.plan.task_names import TaskNameParts

_Item = TypeVar("_Item")


class Change(StrEnum):
    """The change of a task."""

    STAYS = "stays"
    MOVES = "moves"
    SPLITS = "splits"
    MERGES = "merges"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class StateSize:
    """The most that a restore of a changelog partition reads: records and bytes."""

    records_max: int
    bytes_about: int


NOTHING_TO_RESTORE = StateSize(0, 0)
SizeOf = Callable[[TaskModel], StateSize | None]
"""How much state a task has; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """One task of the new plan.

    `restore` and `copy_bytes` are None if they are not known. `copy_bytes` are copied from the stores of its parents on
    the host.

    `processor_before` is of the task, or of its parents if they all were on one processor. `parents` are the tasks of
    the plan before whose key buckets it gets, if it is another task.
    """

    task_name: TaskName
    change: Change
    parents: tuple[TaskName, ...] = ()
    processor_before: ProcessorId | None
    processor_id: ProcessorId
    location_id: str | None
    why: str
    restore: StateSize | None
    copy_bytes: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToBe:
    """The topic of an intermediate stream, with its wanted and its actual partitions.

    0: there is no such topic.
    """

    topic: str
    partition_count: int
    partition_count_before: int

    @property
    def is_change(self) -> bool:
        """Whether a submission does anything to it."""
        return self.partition_count != self.partition_count_before


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """A plan and how it differs from the one in force.

    Attributes:
        generation_from: of the plan it was made from; 0: there was none.
        gone: tasks of the plan in force that are no more.
        waiting: partitions that come when the old ones of their streams have passed their ends; until then the plan is
            one without them.
        topics: those that a submission makes, or gives more partitions.
        keys: whether keys are in one task, of one input and of several, as far as a sample tells.
        stores: what becomes of the stores.
    """

    generation_from: int
    plan: JobModel
    tasks: tuple[TaskChange, ...]
    gone: tuple[TaskName, ...]
    waiting: tuple[SystemStreamPartition, ...] = ()
    topics: tuple[TopicToBe, ...] = ()
    keys: InputKeys = NOTHING_SEEN
    stores: tuple[StoreChange, ...] = ()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many tasks stay, move, are made of others, are new and are gone."""
        counts = {kind.value: sum(task.change is kind for task in self.tasks) for kind in Change}
        return counts | {"gone": len(self.gone)}

    @property
    def restore(self) -> StateSize | None:
        """The sum over all tasks; None if one of them is not known.

        A sum that leaves a task out would mislead.
        """
        known = [task.restore for task in self.tasks if task.restore is not None]
        if len(known) < len(self.tasks):
            return None
        return StateSize(sum(size.records_max for size in known), sum(size.bytes_about for size in known))

    @property
    def copy_bytes(self) -> int | None:
        """Over all tasks, as with `restore`."""
        known = [task.copy_bytes for task in self.tasks if task.copy_bytes is not None]
        return sum(known) if len(known) == len(self.tasks) else None

    @property
    def expected_pause_ms(self) -> int | None:
        """How long some key of the running job is expected to wait.

        0 if nothing changes, None if it is not known.
        """
        if not self.generation_from or (not self.gone and all(task.change is Change.STAYS for task in self.tasks)):
            return 0
        if self.restore is None or self.copy_bytes is None:
            return None
        of_processor: dict[ProcessorId, tuple[int, int]] = {}
        for task in self.tasks:
            copied, restored = of_processor.get(task.processor_id, (0, 0))
            assert task.copy_bytes is not None and task.restore is not None, "the sums are known"
            of_processor[task.processor_id] = (copied + task.copy_bytes, restored + task.restore.bytes_about)
        return max(
            (
                expected_pause_ms(copy_bytes=copied, restore_bytes=restored)
                for copied, restored in of_processor.values()
            ),
            default=expected_pause_ms(copy_bytes=0, restore_bytes=0),
        )


def plan_change(before: JobModel | None, after: JobModel, locality: Locality, size_of: SizeOf) -> PlanChange:
    """The changes when plan `after` replaces plan `before`.

    Args:
        locality: the one that the planner was given.
        size_of: called only for tasks without local state, or with only the state of their parents.
    """
    owners = {} if before is None else {task.name: c.processor_id for c in before.containers for task in c.tasks}
    living = {container.processor_id for container in after.containers}
    of_base: dict[TaskName, list[TaskName]] = {}
    for name in sorted(owners):
        of_base.setdefault(TaskNameParts.parse(name).base_name, []).append(name)
    grouper = after.config.get("task.name.grouper.factory", "")

    def task_change(task: TaskModel, container: ContainerModel) -> TaskChange:
        parents = () if task.name in owners else _parents(task.name, of_base)
        owner = _the_only({owners[name] for name in parents or (task.name,) if name in owners})
        # Parents on several hosts: each host has only a part of the state.
        host = _the_only({locality.tasks.get(name) for name in parents or (task.name,)})
        at_home = host is not None and host == container.location_id
        change = _change(task.name, owner, container.processor_id, parents)
        return TaskChange(
            task_name=task.name,
            change=change,
            parents=parents,
            processor_before=owner,
            processor_id=container.processor_id,
            location_id=container.location_id,
            why=_why_by_grouper(grouper, change, owner, living, parents)
            if grouper
            else _why(change, owner, container.processor_id, living, host, parents, at_home=at_home),
            restore=_restore(task, change, host, size_of, at_home=at_home),
            copy_bytes=_copy_bytes(task, size_of) if parents and at_home else 0,
        )

    changes = [task_change(task, container) for container in after.containers for task in container.tasks]
    number = {task.name: task.partition_id for task in after.tasks}
    return PlanChange(
        generation_from=0 if before is None else before.generation,
        plan=after,
        tasks=tuple(sorted(changes, key=lambda change: (number[change.task_name], change.task_name))),
        gone=() if before is None else tuple(task.name for task in before.tasks if task.name not in number),
    )


def _the_only(items: Set[_Item]) -> _Item | None:
    """The item of a set with one item, else None."""
    return next(iter(items)) if len(items) == 1 else None


def new_partitions(before: JobModel | None, after: JobModel) -> tuple[SystemStreamPartition, ...]:
    """The partitions of `after` that `before` has not.

    They belong to inputs that are divided among the tasks of both.
    """
    known = frozenset() if before is None else _own_ssps(before)
    streams = {ssp.system_stream for ssp in known}
    return tuple(sorted(ssp for ssp in _own_ssps(after) - known if ssp.system_stream in streams))


def _own_ssps(plan: JobModel) -> frozenset[SystemStreamPartition]:
    return frozenset(ssp_kb.ssp for task in plan.tasks for ssp_kb in task.ssp_kbs)


def plan_change_json(job: str, change: PlanChange) -> Json:
    """The shape that the module's text shows."""
    return {
        "job": job,
        "fromGeneration": change.generation_from,
        "jobModel": job_model_json(change.plan),
        "tasks": [_task_json(task) for task in change.tasks],
        "gone": list(change.gone),
        "topics": [
            {"topic": topic.topic, "from": topic.partition_count_before, "to": topic.partition_count}
            for topic in change.topics
        ],
        "stores": [{"store": store.store, "change": store.fate.value, "why": store.text} for store in change.stores],
        "waiting": [str(ssp) for ssp in change.waiting],
        "spreadKeys": [_spread_json(item) for item in change.keys.spread],
        "partitioners": [_partitioner_json(item) for group in change.keys.streams for item in group],
        "refusal": refusal_of(change.keys),
        "warnings": list(warnings_of(change.keys)),
        "totals": {
            **change.counts,
            **_restore_json(change.restore),
            "copyBytesAbout": change.copy_bytes,
            "expectedPauseMs": change.expected_pause_ms,
        },
    }


def _parents(task_name: TaskName, of_base: Mapping[TaskName, Sequence[TaskName]]) -> tuple[TaskName, ...]:
    wanted = TaskNameParts.parse(task_name)
    kin = of_base.get(wanted.base_name, ())
    return tuple(name for name in kin if wanted.overlaps(TaskNameParts.parse(name)))


def _change(
    task_name: TaskName, owner: ProcessorId | None, processor_id: ProcessorId, parents: Sequence[TaskName]
) -> Change:
    if parents:
        finer = TaskNameParts.parse(task_name).factor > TaskNameParts.parse(parents[0]).factor
        return Change.SPLITS if finer else Change.MERGES
    if owner is None:
        return Change.NEW
    return Change.STAYS if owner == processor_id else Change.MOVES


def _why(
    change: Change,
    owner: ProcessorId | None,
    processor_id: ProcessorId,
    living: set[ProcessorId],
    host: str | None,
    parents: Sequence[TaskName],
    *,
    at_home: bool,
) -> str:
    if change is Change.STAYS:
        return "previous processor"
    place = f"same host as its state ({host})" if at_home else "least loaded"
    if parents:
        return f"{_made_of(change, parents)}; {'same processor' if owner == processor_id else place}"
    if change is Change.NEW:
        return f"new; {place}"
    return f"processor {owner} {'has its share' if owner in living else 'is gone'}; {place}"


def _why_by_grouper(
    grouper: str,
    change: Change,
    owner: ProcessorId | None,
    living: set[ProcessorId],
    parents: Sequence[TaskName],
) -> str:
    chosen = f"chosen by the job's grouper ({grouper})"
    if parents:
        return f"{_made_of(change, parents)}; {chosen}"
    if change is Change.NEW:
        return f"new; {chosen}"
    if change is Change.MOVES and owner not in living:
        return f"processor {owner} is gone; {chosen}"
    return chosen


def _made_of(change: Change, parents: Sequence[TaskName]) -> str:
    return f"{'part of' if change is Change.SPLITS else 'made of'} {', '.join(parents)}"


def _restore(
    task: TaskModel, change: Change, host: str | None, size_of: SizeOf, *, at_home: bool
) -> StateSize | None:
    # A task that stays has its state, unless that is known to be on another host.
    if at_home or (change is Change.STAYS and host is None):
        return NOTHING_TO_RESTORE
    return size_of(task)


def _copy_bytes(task: TaskModel, size_of: SizeOf) -> int | None:
    """The bytes of a task's own keys in the stores of its parents.

    The changelog partition is shared by all parts, so this is one part of it.
    """
    size = size_of(task)
    return None if size is None else size.bytes_about // TaskNameParts.parse(task.name).factor


def _restore_json(size: StateSize | None) -> Mapping[str, int | None]:
    return {
        "restoreRecordsMax": None if size is None else size.records_max,
        "restoreBytesAbout": None if size is None else size.bytes_about,
    }


def _spread_json(spread: SpreadKeys) -> Json:
    return {
        "stream": str(spread.system_stream),
        "keyCount": spread.key_count,
        "examples": [{"key": key, "partitions": list(partitions)} for key, partitions in spread.examples],
    }


def _partitioner_json(stream: StreamKeys) -> Json:
    return {
        "stream": str(stream.system_stream),
        "partitioner": None if stream.partitioner is None else stream.partitioner.value,
        "keyCount": stream.key_count,
        "fits": {partitioner.value: count for partitioner, count in stream.fits.items()},
    }


def _task_json(task: TaskChange) -> Json:
    return {
        "task": task.task_name,
        "change": task.change.value,
        **({"parents": list(task.parents)} if task.parents else {}),
        "from": task.processor_before,
        "to": task.processor_id,
        "location": task.location_id,
        "why": task.why,
        **_restore_json(task.restore),
        "copyBytesAbout": task.copy_bytes,
    }
