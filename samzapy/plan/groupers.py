"""Groupers: SSPs become tasks, and tasks are given to processors.

Two interfaces, for the built-in ways and for users' own.

A job names its own in its configuration (`job.systemstreampartition.grouper.factory`, `task.name.grouper.factory`)
as `module:Class`. The class is made with the job's properties as its one argument, as Samza's factories are:

```python
class ByCustomer:
    def __init__(self, config: Mapping[str, str]) -> None: ...

    def group(self, previous, ssps):
        return {"customers": ssps}
```

The planner holds on to nothing that a grouper does: it calls it when the job is planned, twice, and refuses by name
an answer that differs, that leaves an SSP or a task out, gives one away twice, or would tear keyed state.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from samzapy.errors import GrouperError, SamzapyError
from samzapy.model.job import ContainerModel, ProcessorId, TaskModel, TaskName
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.text import error_text
from samzapy.plan.task_names import TaskNameParts

Answer = TypeVar("Answer")


class SystemStreamPartitionGrouper(Protocol):
    """SSPs -> tasks. Implemented by the built-in schemes and by users' own."""

    def group(
        self, previous: Mapping[SystemStreamPartition, TaskName], ssps: Sequence[SystemStreamPartition]
    ) -> Mapping[TaskName, Collection[SystemStreamPartition]]:
        """The SSPs of each task.

        Args:
            previous: the task that each SSP belongs to now, if the job keeps keyed state: a key's state is found
                by its task, so messages of one key must stay in one. Of a topic that was deleted, the task that it
                belonged to. Empty for a new job, and for one without state, which may be grouped anew.
            ssps: every partition of every input, in the order of `task.inputs` and of partition numbers, and then
                of every intermediate stream.
                Broadcast inputs are not among them: every task gets those.

        Returns:
            Each of `ssps` in exactly one task, no task without any. The order says nothing: tasks are numbered by
            their first SSP in `ssps`. Equal arguments must give equal answers, on any host.
        """
        ...


class TaskNameGrouper(Protocol):
    """Tasks -> processors. Implemented by the built-in way and by users' own."""

    def group(
        self,
        tasks: Sequence[TaskModel],
        processor_ids: Sequence[ProcessorId],
        previous_containers: Sequence[ContainerModel],
    ) -> Collection[ContainerModel]:
        """The tasks of each processor.

        Args:
            tasks: of the new plan, in the order of their numbers.
            processor_ids: that may be given tasks; at least one, in a fixed order.
            previous_containers: of the plan in force, also of processors that are no more, with the location each
                had; empty for a new job.

        Returns:
            Each of `tasks`, unchanged, in exactly one container of a processor of `processor_ids`; at most one
            container for each. Which location they name does not matter. Equal arguments must give equal answers.
        """
        ...


@dataclass(frozen=True, slots=True)
class Groupers:
    """A job's own groupers; None stands for the built-in way."""

    ssps: SystemStreamPartitionGrouper | None = None
    tasks: TaskNameGrouper | None = None


NO_GROUPERS: Final = Groupers()


@dataclass(frozen=True, slots=True)
class SspGroup:
    """The SSPs of one task, in their order."""

    task_name: TaskName
    ssps: tuple[SystemStreamPartition, ...]


def group_ssps(
    grouper: SystemStreamPartitionGrouper,
    setting: str,
    previous: Mapping[SystemStreamPartition, TaskName],
    ssps: Sequence[SystemStreamPartition],
) -> tuple[SspGroup, ...]:
    """The grouper's answer, checked, in the order in which new tasks are numbered.

    The order is that of their first SSP in `ssps`.

    Args:
        setting: the line of the configuration that chose the grouper; messages begin with it.

    Raises:
        GrouperError: it raised an error of its own, or its answer breaks the interface.
        SamzapyError: the grouper raised it.
    """
    answer = _asked_twice(setting, lambda: _plain_groups(grouper.group(dict(previous), tuple(ssps))))
    task_of: dict[SystemStreamPartition, TaskName] = {}
    for task, members in answer.items():
        _check_task_name(setting, task)
        if not members:
            raise _unusable(setting, "an SSP in each task", f"task {task} without one")
        for ssp in members:
            if ssp in task_of:
                raise _unusable(setting, f"{ssp} in one task", f"it in {task_of[ssp]} and in {task}")
            task_of[ssp] = task
    missing = [ssp for ssp in ssps if ssp not in task_of]
    if missing:
        raise _unusable(setting, f"{missing[0]} in a task", "it in none")
    if len(task_of) > len(ssps):
        raise _unusable(setting, "the SSPs that it was given", f"{min(task_of.keys() - set(ssps))} too")
    return tuple(SspGroup(task, answer[task]) for task in dict.fromkeys(task_of[ssp] for ssp in ssps))


def group_task_names(
    grouper: TaskNameGrouper,
    setting: str,
    tasks: Sequence[TaskModel],
    processor_ids: Sequence[ProcessorId],
    previous_containers: Sequence[ContainerModel],
) -> Mapping[TaskName, ProcessorId]:
    """The grouper's answer, checked: the processor of each task.

    Arguments and errors as of `group_ssps`.
    """
    answer = _asked_twice(
        setting,
        lambda: _plain_containers(grouper.group(tuple(tasks), tuple(processor_ids), tuple(previous_containers))),
    )
    given = {task.name: task for task in tasks}
    processor_of: dict[TaskName, ProcessorId] = {}
    for index, (processor, members) in enumerate(answer):
        if processor not in processor_ids:
            raise _unusable(setting, f"processors {', '.join(processor_ids)}", f"a container of {processor}")
        if index and answer[index - 1][0] == processor:
            raise _unusable(setting, "one container for each processor", f"several of processor {processor}")
        for task in members:
            if given.get(task.name) != task:
                raise _unusable(setting, "the tasks that it was given", f"a task {task.name} that is none of them")
            if task.name in processor_of:
                raise _unusable(
                    setting, f"task {task.name} on one processor", f"it on {processor_of[task.name]} and {processor}"
                )
            processor_of[task.name] = processor
    missing = [task.name for task in tasks if task.name not in processor_of]
    if missing:
        raise _unusable(setting, f"task {missing[0]} on a processor", "it on none")
    return processor_of


def ssp_grouper_from(made: object, setting: str) -> SystemStreamPartitionGrouper:
    """`made` if it has `group(previous, ssps)`.

    The older form, `group(ssps)`, is wrapped, with a DeprecationWarning.

    Raises:
        GrouperError: it has no `group` that could be called in either way.
    """
    group = _group_of(made, setting, "group(previous, ssps)", parameters=2, older="group(ssps)")
    return _SspGrouper(group)


def task_name_grouper_from(made: object, setting: str) -> TaskNameGrouper:
    """As `ssp_grouper_from`; the older form is `group(tasks, processor_ids)`."""
    wanted = "group(tasks, processor_ids, previous_containers)"
    group = _group_of(made, setting, wanted, parameters=3, older="group(tasks, processor_ids)")
    return _TaskNameGrouper(group)


@dataclass(frozen=True, slots=True)
class _SspGrouper:
    call: Callable[..., Any]

    def group(
        self, previous: Mapping[SystemStreamPartition, TaskName], ssps: Sequence[SystemStreamPartition]
    ) -> Mapping[TaskName, Collection[SystemStreamPartition]]:
        groups: Mapping[TaskName, Collection[SystemStreamPartition]] = self.call(previous, ssps)
        return groups


@dataclass(frozen=True, slots=True)
class _TaskNameGrouper:
    call: Callable[..., Any]

    def group(
        self,
        tasks: Sequence[TaskModel],
        processor_ids: Sequence[ProcessorId],
        previous_containers: Sequence[ContainerModel],
    ) -> Collection[ContainerModel]:
        containers: Collection[ContainerModel] = self.call(tasks, processor_ids, previous_containers)
        return containers


def _group_of(made: object, setting: str, wanted: str, *, parameters: int, older: str) -> Callable[..., Any]:
    group: Callable[..., Any] | None = getattr(made, "group", None)
    if group is None:
        raise _unusable(setting, f"a class with {wanted}", f"{type(made).__name__} without `group`")
    if _takes(group, parameters):
        return group
    if not _takes(group, parameters - 1):
        raise _unusable(setting, wanted, f"group{inspect.signature(group)}")
    code = getattr(group, "__code__", None)
    # As if it came from the job file itself: of others Python shows no DeprecationWarning.
    warnings.warn_explicit(
        f"{setting}: {older} is deprecated, because it cannot keep tasks where they are; write {wanted}",
        DeprecationWarning,
        filename=setting if code is None else code.co_filename,
        lineno=0 if code is None else code.co_firstlineno,
        module="__main__",
    )
    return _without_previous(group, parameters)


def _without_previous(group: Callable[..., Any], parameters: int) -> Callable[..., Any]:
    """`group` called without the argument that it does not know.

    That is the first of two arguments, or the last of three.
    """
    if parameters == 2:
        return lambda previous, ssps: group(ssps)
    return lambda tasks, processor_ids, previous_containers: group(tasks, processor_ids)


def _takes(group: Callable[..., Any], parameters: int) -> bool:
    try:
        inspect.signature(group).bind(*[None] * parameters)
    except TypeError:
        return False
    return True


def _asked_twice(setting: str, ask: Callable[[], Answer]) -> Answer:
    """A grouper's answer.

    Call user code twice. Any error or wrong answer becomes an error that names it.
    """
    try:
        first, second = ask(), ask()
    except (SamzapyError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit included: else the reason for the end of the process would be lost.
        raise GrouperError(f"{setting}: it failed with {error_text(error)}") from error
    if first != second:
        raise _unusable(
            setting,
            "equal answers to equal arguments, because a coordinator that takes over plans anew",
            f"{_short(first)} and then {_short(second)}",
        )
    return first


def _plain_groups(
    groups: Mapping[TaskName, Collection[SystemStreamPartition]],
) -> Mapping[TaskName, tuple[SystemStreamPartition, ...]]:
    """The groups in a sorted order.

    So the order in which a mapping or a set was walked has no effect.
    """
    for members in groups.values():
        for ssp in members:
            if not isinstance(ssp, SystemStreamPartition):
                raise TypeError(f"wanted SystemStreamPartitions in each task, found {ssp!r}")
    return {task: tuple(sorted(groups[task])) for task in sorted(groups)}


def _plain_containers(
    containers: Collection[ContainerModel],
) -> tuple[tuple[ProcessorId, tuple[TaskModel, ...]], ...]:
    plain = [(one.processor_id, tuple(sorted(one.tasks, key=lambda task: task.name))) for one in containers]
    return tuple(sorted(plain, key=lambda one: one[0]))


def _check_task_name(setting: str, task: TaskName) -> None:
    try:
        parts = TaskNameParts.parse(task)
    except (ValueError, TypeError) as error:
        raise GrouperError(f"{setting}: {error}") from error
    if parts.name != parts.base_name:
        raise _unusable(setting, "task names without a key bucket, which elasticity adds", task)


def _unusable(setting: str, wanted: str, actual: str) -> GrouperError:
    return GrouperError(f"{setting}: wanted {wanted}, found {actual}")


def _short(answer: object, length_max: int = 200) -> str:
    text = str(answer)
    return text if len(text) <= length_max else f"{text[:length_max]}..."
