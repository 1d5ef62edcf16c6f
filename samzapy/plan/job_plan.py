"""Make a JobModel of configuration, partitions, previous plan and processors.

It is pure, and deterministic to the byte: a coordinator that takes over makes the same plan as its predecessor.

The previous plan decides. A task keeps its number and its changelog partition for ever; new tasks get the next free
ones, so a reordered `task.inputs` renumbers nothing. For a job that keeps state, a change that would leave a key's
state behind is refused by a named error: state is found by task, so a key must stay in its task. An input may grow
there, by a whole factor: then the keys of an added partition come from one old partition, and the added one joins its
task (`plan.partition_schemes.periods`). A job without state gets a task for each new partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from samzapy.config import ALL_SSPS_TO_SINGLE_TASK, JobConfig, intermediate_topic, recorded_properties
from samzapy.errors import ConfigError, GrouperError, PartitionSchemeError
from samzapy.model.container import NO_LOCALITY, Locality
from samzapy.model.job import ContainerModel, JobModel, ProcessorId, TaskMode, TaskModel, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition, check_factor
from samzapy.plan.container_grouping import ByCountAndLocality, processor_order
from samzapy.plan.groupers import NO_GROUPERS, Groupers, SspGroup, group_ssps, group_task_names
from samzapy.plan.partition_schemes import (
    GROUPERS,
    AllSspsToSingleTask,
    Previous,
    partition_counts_of,
    periods,
    task_of_processor,
)
from samzapy.plan.task_names import TaskNameParts

OwnGrouper = TypeVar("OwnGrouper")

PARTITIONS_MAX: Final = 100_000
"""Of one stream, and key buckets of all that are divided. So many take half a minute to plan; a whole cluster of Kafka
with ZooKeeper was said to hold twice as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Facts of earlier plans that the plan in force does not show.

    Attributes:
        generation: number of the new plan; by default the one after the previous plan.
        changelog_partitions: of every base task that ever existed; by default those of the previous plan.
        keeps_state: whether there is keyed state of the previous plan or an earlier one; by default whether the
            previous plan declares stores.
        tasks_before: the tasks with the state of inputs that the previous plan no longer has.
        gone: inputs whose topics were deleted; a plan may omit them although there is state for them.
    """

    generation: int | None = None
    changelog_partitions: Mapping[TaskName, int] = field(default_factory=dict)
    keeps_state: bool | None = None
    tasks_before: Previous = field(default_factory=dict)
    gone: Collection[SystemStream] = ()


NOTHING_RECORDED: Final = Recorded()


def plan_job(
    config: JobConfig,
    partition_counts: Mapping[SystemStream, int],
    previous: JobModel | None,
    processor_ids: Sequence[ProcessorId],
    *,
    recorded: Recorded = NOTHING_RECORDED,
    locality: Locality = NO_LOCALITY,
    groupers: Groupers = NO_GROUPERS,
    factor: int = 1,
) -> JobModel:
    """Plan the tasks of a job, their inputs and their processors.

    Args:
        partition_counts: of every stream that `config` reads, including broadcast inputs; others are ignored.
        previous: the plan in force, None for a new job.
        processor_ids: at least one; their order does not matter.
        recorded: facts of earlier plans.
        locality: the hosts of the processors, and of the local state of tasks.
        groupers: the custom groupers of the job.
        factor: key buckets per SSP. Broadcast SSPs have none, and `all-ssps-to-single-task` has only such.

    Raises:
        PartitionSchemeError: the change would move or drop keyed state, or leave the positions in a stream behind, or
            a stream has fewer partitions than it had, or more than can be planned. The message names the stream or
            task, and the remedy.
        GrouperError: a custom grouper gives an answer that cannot be used.
        ConfigError: a broadcast input names a partition that does not exist.
    """
    processors = tuple(sorted(set(processor_ids), key=processor_order))
    _refuse_too_many(config, partition_counts, factor)
    ssps = tuple(
        ssp for text in config.streams_divided for ssp in _ssps_of(SystemStream.parse(text), partition_counts)
    )
    known: Previous = {}
    if previous is not None:
        _refuse_shrink(previous, partition_counts)
        known = _tasks_with_state(config, previous, recorded, ssps, factor)
    numbers = _numbers(previous, recorded.changelog_partitions)
    if _reads_everything_everywhere(config):
        _refuse_factor_of_whole_inputs(factor)
        everywhere = AllSspsToSingleTask(processors).group(known, ssps)
        tasks = numbered_tasks([SspGroup(task, ()) for task in everywhere], tuple(sorted(ssps)), numbers)
    else:
        groups = _groups(config, groupers, known, ssps)
        _refuse_moved_state(known, groups, previous)
        tasks = numbered_tasks(groups, _broadcast_ssps(config, partition_counts), numbers, factor)
    if previous is not None:
        _refuse_positions_of_other_readers(previous, tasks)
    return JobModel(
        generation=recorded.generation if recorded.generation is not None else _next_generation(previous),
        config=recorded_properties(config),
        containers=_containers(config, groupers, tasks, processors, previous, locality),
    )


def _tasks_with_state(
    config: JobConfig, previous: JobModel, recorded: Recorded, ssps: Sequence[SystemStreamPartition], factor: int
) -> Previous:
    """The task with the state of each SSP's keys; empty if the job keeps no state.

    Raises:
        PartitionSchemeError: the new inputs would leave state behind.
    """
    keeps_state = _declares_stores(previous) if recorded.keeps_state is None else recorded.keeps_state
    if not keeps_state:
        return {}
    _refuse_torn_stores(config, previous, factor)
    planned = tasks_of_ssps(previous)
    known = _with_streams_of_before(planned, recorded.tasks_before)
    wanted = {ssp.system_stream for ssp in planned} - set(recorded.gone)
    _refuse_streams_that_do_not_fit(config, known, ssps, wanted, previous.generation)
    return known


def _refuse_factor_of_whole_inputs(factor: int) -> None:
    if factor > 1:
        raise PartitionSchemeError(
            f"task.partition.scheme={ALL_SSPS_TO_SINGLE_TASK}: wanted factor 1, because each task reads every "
            f"input as a whole and there is nothing that key buckets could divide; found {factor}"
        )


def _refuse_too_many(config: JobConfig, partition_counts: Mapping[SystemStream, int], factor: int) -> None:
    """Refuse a plan that would take too long."""
    counts = {text: partition_counts[SystemStream.parse(text)] for text in config.streams_read}
    for text, count in counts.items():
        if count > PARTITIONS_MAX:
            raise PartitionSchemeError(
                f"{text}: wanted at most {PARTITIONS_MAX} partitions, found {count}; correct the number, or copy the "
                "stream to a topic with fewer"
            )
    total = sum(counts[text] for text in config.streams_divided)
    if total * factor > PARTITIONS_MAX:
        raise PartitionSchemeError(
            f"task.inputs: wanted at most {PARTITIONS_MAX} partitions of all inputs together, times the factor, found "
            f"{total} times {factor}; set a smaller factor, or divide the inputs among several jobs"
        )


def _ssps_of(stream: SystemStream, partition_counts: Mapping[SystemStream, int]) -> Sequence[SystemStreamPartition]:
    return [SystemStreamPartition(stream.system, stream.stream, p) for p in range(partition_counts[stream])]


def _broadcast_ssps(
    config: JobConfig, partition_counts: Mapping[SystemStream, int]
) -> tuple[SystemStreamPartition, ...]:
    ssps: list[SystemStreamPartition] = []
    for item in config.broadcast_inputs:
        there = _ssps_of(SystemStream.parse(item.system_stream), partition_counts)
        for partition in range(len(there)) if item.partitions is None else item.partitions:
            if partition >= len(there):
                raise ConfigError(
                    f"task.broadcast.inputs: wanted partition {partition} of {item.system_stream}, found a topic with "
                    f"{len(there)}; name partitions below that, or the whole stream without #"
                )
            ssps.append(there[partition])
    return tuple(ssps)


def _reads_everything_everywhere(config: JobConfig) -> bool:
    return config.ssp_grouper_factory is None and config.partition_scheme == ALL_SSPS_TO_SINGLE_TASK


def factor_fixed_by(config: JobConfig) -> str:
    """The setting that fixes the factor of a running job, `key=value`.

    Empty if the factor may change.
    """
    if _reads_everything_everywhere(config):
        return f"task.partition.scheme={ALL_SSPS_TO_SINGLE_TASK}"
    names = _whole_stores(config)
    return f"stores.{names[0]}.scope=task" if names else ""


def _whole_stores(config: JobConfig) -> Sequence[str]:
    """The stores that belong to a task as a whole.

    The moment of its last window does not count: a task that a factor has made begins with the present one.
    """
    return [store.name for store in config.stores if store.scope == "task" and not store.is_own]


def _groups(
    config: JobConfig, groupers: Groupers, known: Previous, ssps: Sequence[SystemStreamPartition]
) -> tuple[SspGroup, ...]:
    if config.ssp_grouper_factory is None:
        scheme = config.partition_scheme
        return group_ssps(GROUPERS[scheme](), f"task.partition.scheme={scheme}", known, ssps)
    setting = f"job.systemstreampartition.grouper.factory={config.ssp_grouper_factory}"
    return group_ssps(_loaded(groupers.ssps, setting), setting, known, ssps)


def _loaded(grouper: OwnGrouper | None, setting: str) -> OwnGrouper:
    if grouper is None:
        raise GrouperError(
            f"{setting}: wanted the grouper that the job is planned with, found that this process has not loaded one; "
            "it plans for a configuration that is not its own: start it with the job's own properties file"
        )
    return grouper


def _containers(
    config: JobConfig,
    groupers: Groupers,
    tasks: Sequence[TaskModel],
    processors: Sequence[ProcessorId],
    previous: JobModel | None,
    locality: Locality,
) -> tuple[ContainerModel, ...]:
    before = () if previous is None else previous.containers
    if _reads_everything_everywhere(config):
        owner = {task_of_processor(processor): processor for processor in processors}
    elif config.task_name_grouper_factory is None:
        grouped = ByCountAndLocality(locality, colocates_buckets=config.colocates_buckets).group(
            tasks, processors, before
        )
        owner = {task.name: container.processor_id for container in grouped for task in container.tasks}
    else:
        setting = f"task.name.grouper.factory={config.task_name_grouper_factory}"
        owner = dict(group_task_names(_loaded(groupers.tasks, setting), setting, tasks, processors, before))
    tasks_of: dict[ProcessorId, list[TaskModel]] = {processor: [] for processor in processors}
    for task in tasks:
        tasks_of[owner[task.name]].append(task)
    return tuple(
        ContainerModel(
            processor_id=processor,
            location_id=locality.processors.get(processor),
            tasks=tuple(tasks_of[processor]),
        )
        for processor in processors
    )


def _numbers(previous: JobModel | None, changelog_partitions: Mapping[TaskName, int]) -> Mapping[TaskName, int]:
    """The number of every base task that ever was.

    It is Samza's StreamTask number, and the changelog partition.
    """
    numbers = dict(changelog_partitions)
    for task in () if previous is None else previous.tasks:
        numbers.setdefault(TaskNameParts.parse(task.name).base_name, task.changelog_partition)
    return numbers


def numbered_tasks(
    groups: Sequence[SspGroup],
    broadcast: tuple[SystemStreamPartition, ...],
    numbers: Mapping[TaskName, int],
    factor: int = 1,
) -> tuple[TaskModel, ...]:
    """The tasks in the order of their numbers; one for each group and key bucket.

    Args:
        groups: new ones get their numbers in this order.
        broadcast: read by every task as a whole, under any factor. (Samza gives a broadcast message a bucket
            and so loses it: the reason why elasticity was taken out there.)
        numbers: of every base task that ever was. A number is its task's for ever, so those of tasks that are no
            more are not free. The parts of a base task share it, and its changelog partition.

    Raises:
        ValueError: `factor` is no power of two from 1 to 256.
    """
    check_factor(factor)
    next_free = 1 + max((-1, *numbers.values()))
    tasks: list[TaskModel] = []
    for group in groups:
        number = numbers.get(group.task_name, next_free)
        next_free += number == next_free
        base = TaskNameParts.parse(group.task_name).base
        tasks.extend(
            TaskModel(
                name=TaskNameParts(base=base, bucket=bucket, factor=factor).name,
                partition_id=number,
                ssp_kbs=tuple(SspKeyBucket(ssp, bucket, factor) for ssp in group.ssps),
                changelog_partition=number,
                mode=TaskMode.ACTIVE if factor == 1 else TaskMode.VIRTUAL,
                broadcast_ssps=broadcast,
            )
            for bucket in range(factor)
        )
    return tuple(sorted(tasks, key=lambda task: (task.partition_id, task.name)))


def _declares_stores(plan: JobModel) -> bool:
    return any(key.startswith("stores.") for key in plan.config)


def tasks_of_ssps(plan: JobModel) -> Previous:
    """The base task of each SSP that is divided among tasks."""
    return {ssp_kb.ssp: TaskNameParts.parse(task.name).base_name for task in plan.tasks for ssp_kb in task.ssp_kbs}


def _with_streams_of_before(planned: Previous, before: Previous) -> Previous:
    """`planned`, and the tasks of `before` for streams that it does not have."""
    streams = {ssp.system_stream for ssp in planned}
    return {**{ssp: before[ssp] for ssp in sorted(before) if ssp.system_stream not in streams}, **planned}


def _refuse_shrink(previous: JobModel, partition_counts: Mapping[SystemStream, int]) -> None:
    ssps = sorted(
        {ssp for task in previous.tasks for ssp in (*task.broadcast_ssps, *(kb.ssp for kb in task.ssp_kbs))}
    )
    # In order, so the last one of a stream stays: its highest partition.
    before = {ssp.system_stream: ssp.partition + 1 for ssp in ssps}
    for stream, count in before.items():
        count_now = partition_counts.get(stream, count)
        if count_now < count:
            raise PartitionSchemeError(
                f"{stream}: wanted at least the {count} partitions of generation {previous.generation}, "
                f"found {count_now}. Kafka takes no partition away, so the topic was made again and its offsets "
                "mean something else: give the job a new job.id"
            )


def _refuse_positions_of_other_readers(previous: JobModel, tasks: Iterable[TaskModel]) -> None:
    """Refuse a change between a divided stream and one that each task reads whole.

    This is law L9.

    A position is one of all tasks together in the one case and each task's own in the other, and neither tells the
    other: messages would be skipped or repeated, as samza.offset.default says.
    """
    were_divided, were_whole = _streams_by_reader(previous.tasks)
    divided, whole = _streams_by_reader(tasks)
    for stream in sorted((were_divided & whole) | (were_whole & divided)):
        shared, own = "divided among the tasks", "read as a whole by each task"
        wanted, actual = (shared, own) if stream in were_divided else (own, shared)
        raise PartitionSchemeError(
            f"{stream}: wanted it {wanted}, as in generation {previous.generation}, found it {actual}. Its positions "
            "would not be found again. Set task.partition.scheme, task.inputs and task.broadcast.inputs back, or give "
            "the job a new job.id, which begins where samza.offset.default says, or where `samzapy job rewind` then "
            "takes it"
        )


def _streams_by_reader(tasks: Iterable[TaskModel]) -> tuple[frozenset[SystemStream], frozenset[SystemStream]]:
    """The divided streams, and the streams that each task reads as a whole."""
    divided, whole = set[SystemStream](), set[SystemStream]()
    for task in tasks:
        divided.update(ssp_kb.ssp.system_stream for ssp_kb in task.ssp_kbs)
        whole.update(ssp.system_stream for ssp in task.broadcast_ssps)
    return frozenset(divided), frozenset(whole)


def _refuse_torn_stores(config: JobConfig, previous: JobModel, factor: int) -> None:
    """Refuse to divide or join tasks with a store that belongs to the whole task.

    Its entries have no key that would tell their new owner.
    """
    before = {ssp_kb.factor for task in previous.tasks for ssp_kb in task.ssp_kbs}
    names = _whole_stores(config)
    if names and before - {factor}:
        raise PartitionSchemeError(
            f"wanted factor {max(before)}, because the store {', '.join(names)} belongs to its task as a whole and "
            f"cannot be divided by key; found {factor}. Set stores.{names[0]}.scope=key for what is kept by key, or "
            "give the job a new job.id, which begins without state"
        )


def _refuse_streams_that_do_not_fit(
    config: JobConfig,
    known: Previous,
    ssps: Sequence[SystemStreamPartition],
    wanted: Collection[SystemStream],
    generation: int,
) -> None:
    """Refuse an input that was left out, or that grew by no whole factor.

    A key's messages would not be in the task with its state.
    """
    before, now = partition_counts_of(known), partition_counts_of(ssps)
    for stream, period in periods(known).items():
        if stream not in now:
            if stream not in wanted:
                continue
            of_intermediates = intermediate_topic(config.job, "")
            is_own = stream.stream.startswith(of_intermediates)
            key = f"task.intermediate.{stream.stream.removeprefix(of_intermediates)}" if is_own else "task.inputs"
            raise PartitionSchemeError(
                f"{key}: wanted {stream} among the inputs, because the job keeps state and generation "
                f"{generation} has state for it; found it left out. Put it back, or give the job "
                "a new job.id, which begins without state"
            )
        if now[stream] % period:
            raise PartitionSchemeError(
                f"{stream}: wanted a multiple of {period} partitions, found {now[stream]} (generation {generation} "
                f"has {before[stream]}). Its keys now fall into partitions of other tasks than those that hold their "
                "state. Add partitions up to a multiple, or copy the input to a topic with such a number of them and "
                "read that under a new job.id, which builds the state anew"
            )


def _refuse_moved_state(known: Previous, groups: Sequence[SspGroup], previous: JobModel | None) -> None:
    if previous is None or not known:
        return
    bound = periods(known)
    now = {ssp: group.task_name for group in groups for ssp in group.ssps}
    for ssp in sorted(now):
        period = bound.get(ssp.system_stream)
        if period is None:
            continue  # An input that came later: its keys have no state yet.
        origin = SystemStreamPartition(ssp.system, ssp.stream, ssp.partition % period)
        if now[ssp] != known.get(ssp, known[origin]):
            state = (
                "its state" if ssp in known else f"the state of {origin}, where its keys were before the topic grew"
            )
            raise PartitionSchemeError(
                f"{ssp}: wanted it in task {known[origin]}, which holds {state} (generation "
                f"{previous.generation}), found it planned for {now[ssp]}. Set task.partition.scheme or the job's "
                "own grouper back, or give the job a new job.id, which begins without state"
            )


def _next_generation(previous: JobModel | None) -> int:
    return 1 if previous is None else previous.generation + 1
