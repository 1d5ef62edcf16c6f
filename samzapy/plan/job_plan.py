"""The one function that makes a JobModel: (config, partition counts, previous plan, locality, processors) -> plan.

Pure, and deterministic to the byte: a coordinator that takes over plans what its predecessor would have.

The previous plan decides. A task keeps its number and its changelog partition for ever; new tasks get the
next free ones, so a reordered `task.inputs` renumbers nothing. For a job with stores, a change that would
leave a key's state behind is refused by name: state is found by task, so a key must stay in its task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samzapy.config import JobConfig, recorded_properties
from samzapy.errors import PartitionSchemeError
from samzapy.model.container import NO_LOCALITY, Locality
from samzapy.model.job import JobModel, ProcessorId, TaskModel, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream
from samzapy.plan.container_grouping import ByCountAndLocality
from samzapy.plan.partition_schemes import SCHEMES, SspGroup
from samzapy.plan.task_names import TaskNameParts


def plan_job(
    config: JobConfig,
    partition_counts: Mapping[SystemStream, int],
    previous: JobModel | None,
    processor_ids: Sequence[ProcessorId],
    *,
    generation: int | None = None,
    changelog_partitions: Mapping[TaskName, int] | None = None,
    locality: Locality = NO_LOCALITY,
) -> JobModel:
    """Which task reads what, and which processor runs it.

    Args:
        partition_counts: of every input of `config`; others are ignored.
        previous: the plan in force, None for a new job.
        generation: number of the new plan; by default the one after `previous`.
        changelog_partitions: of every base task that ever was; by default those of `previous`.
        locality: on which hosts the processors are, and the tasks' state is.

    Raises:
        PartitionSchemeError: the change would move or drop keyed state, or a stream has fewer partitions than
            it had. The message says which stream or task, and the way out.
    """
    inputs = tuple(SystemStream.parse(text) for text in config.inputs)
    groups = SCHEMES[config.partition_scheme](inputs, partition_counts)
    if previous is not None:
        _refuse_shrink(previous, partition_counts)
        if config.stores:
            _refuse_moved_state(previous, groups)
    known = {task.name: task for task in previous.tasks} if previous is not None else {}
    sticky = dict(changelog_partitions or {})
    for name, task in known.items():
        sticky.setdefault(TaskNameParts.parse(name).base_name, task.changelog_partition)
    tasks = _numbered(groups, known, sticky)
    grouper = ByCountAndLocality(locality)
    return JobModel(
        generation=generation if generation is not None else _next_generation(previous),
        config=recorded_properties(config.properties),
        containers=grouper.group(tasks, processor_ids, () if previous is None else previous.containers),
    )


def _numbered(
    groups: Sequence[SspGroup], known: Mapping[TaskName, TaskModel], sticky: Mapping[TaskName, int]
) -> tuple[TaskModel, ...]:
    """Tasks in the order of their numbers."""
    # A number is the task's for ever, so those of tasks that are no more (sticky) are not free either.
    next_free = 1 + max((-1, *(task.partition_id for task in known.values()), *sticky.values()))
    found: list[TaskModel] = []
    for group in groups:
        before = known.get(group.task_name)
        changelog_partition = sticky.get(TaskNameParts.parse(group.task_name).base_name)
        if before is not None:
            partition_id = before.partition_id
        elif changelog_partition is not None:
            partition_id = changelog_partition
        else:
            partition_id, next_free = next_free, next_free + 1
        found.append(
            TaskModel(
                name=group.task_name,
                partition_id=partition_id,
                ssp_kbs=tuple(SspKeyBucket(ssp) for ssp in group.ssps),
                changelog_partition=partition_id if changelog_partition is None else changelog_partition,
            )
        )
    return tuple(sorted(found, key=lambda task: (task.partition_id, task.name)))


def _refuse_shrink(previous: JobModel, partition_counts: Mapping[SystemStream, int]) -> None:
    for stream, count in _partition_counts_of(previous).items():
        found = partition_counts.get(stream, count)
        if found < count:
            raise PartitionSchemeError(
                f"{stream}: wanted at least the {count} partitions of generation {previous.generation}, "
                f"found {found}. Kafka takes no partition away, so the topic was made again and its offsets "
                "mean something else: give the job a new job.id"
            )


def _refuse_moved_state(previous: JobModel, groups: Sequence[SspGroup]) -> None:
    now = {ssp: group.task_name for group in groups for ssp in group.ssps}
    counts_now: dict[SystemStream, int] = {}
    for ssp in now:
        counts_now[ssp.system_stream] = counts_now.get(ssp.system_stream, 0) + 1
    for stream, count in _partition_counts_of(previous).items():
        if stream not in counts_now:
            raise PartitionSchemeError(
                f"task.inputs: wanted {stream} among the inputs, because the job has stores and generation "
                f"{previous.generation} keeps state for it; found it left out. Put it back, or give the job "
                "a new job.id, which begins without state"
            )
        if counts_now[stream] > count:
            raise PartitionSchemeError(
                f"{stream}: wanted the {count} partitions of generation {previous.generation}, found "
                f"{counts_now[stream]}. Its keys now fall into other partitions than their state, and the "
                "job has stores. Copy the input to a topic with the wanted partitions and read that under a "
                "new job.id, which builds the state anew"
            )
    for task in previous.tasks:
        for ssp_kb in task.ssp_kbs:
            if now[ssp_kb.ssp] != task.name:
                raise PartitionSchemeError(
                    f"{ssp_kb.ssp}: wanted it in task {task.name}, which holds its state (generation "
                    f"{previous.generation}), found it planned for {now[ssp_kb.ssp]}. Set "
                    "task.partition.scheme back, or give the job a new job.id, which begins without state"
                )


def _partition_counts_of(plan: JobModel) -> Mapping[SystemStream, int]:
    ssps = sorted({ssp_kb.ssp for task in plan.tasks for ssp_kb in task.ssp_kbs})
    # In order, so the last one of a stream stays: its highest partition.
    return {ssp.system_stream: ssp.partition + 1 for ssp in ssps}


def _next_generation(previous: JobModel | None) -> int:
    return 1 if previous is None else previous.generation + 1
