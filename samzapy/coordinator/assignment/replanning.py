"""The records that put a new plan in force.

Theory. Everything that a plan depends on is on the log: the configuration as recorded, the inputs' partitions,
the previous plan. So every leader plans alike, and a change of the members needs nothing but their ids. Records are
the difference to the plan in force. Within them the tasks come before the `generation` record that makes them
effective, and the tombstones of other plans after it (every beginning of a transaction is harmless).

No generation number is used twice, so an unfinished plan's records stay until a later generation is effective; they
hold its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from samzapy.config import JobConfig, parse_recorded
from samzapy.coordinator.state import CoordinatorState, job_model, locality_of, remembered, tombstone
from samzapy.errors import ConfigError, TopicPolicyError
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.model.topics import changelog_topic
from samzapy.plan.groupers import NO_GROUPERS, Groupers
from samzapy.plan.job_plan import Recorded, plan_job
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.keys import key_of
from samzapy.stream.records import (
    ChangelogPartitionPut,
    CoordinatorRecord,
    GenerationPut,
    InputPut,
    PlannedTaskPut,
    Removed,
)

if TYPE_CHECKING:
    from samzapy.model.job import JobModel, ProcessorId, TaskName


def plan_of(
    state: CoordinatorState,
    processor_ids: Sequence[ProcessorId],
    groupers: Groupers,
    *,
    before: CoordinatorState | None = None,
) -> JobModel:
    """The plan of the recorded configuration and inputs, under the next number.

    Args:
        processor_ids: the processors to plan for.
        groupers: the job's own, if it has any; code is not recorded, so they come in with a command.
        before: the state before a submission of which `state` has the configuration and the inputs.

    Raises:
        PartitionSchemeError: the inputs changed so that keyed state would be left behind.
        ConfigError: a grouper of the job's own, or a broadcast input, is wrong.
        TopicPolicyError: a changelog has no partition for a task.
    """
    config = config_of(state)
    plan = plan_job(
        config,
        {stream: _partition_count(recorded, state) for stream, recorded in state.inputs.items()},
        job_model(before or state),
        processor_ids,
        recorded=replace(recorded_facts(state, before), generation=1 + max((0, *generations(state)))),
        locality=locality_of(state),
        groupers=groupers,
        factor=factor_of(state),
    )
    _refuse_small_changelogs(plan, config, state)
    return plan


def recorded_facts(state: CoordinatorState, before: CoordinatorState | None = None) -> Recorded:
    """The facts of earlier plans, for the plan after the one in force.

    `before`: as in `plan_of`.
    """
    return Recorded(
        changelog_partitions=state.changelog_partitions,
        keeps_state=keeps_state(before or state),
        tasks_before=tasks_of_before(state),
        gone=inputs_gone(state),
    )


def replan(
    state: CoordinatorState,
    processor_ids: Sequence[ProcessorId],
    groupers: Groupers = NO_GROUPERS,
    *,
    before: CoordinatorState | None = None,
) -> tuple[CoordinatorRecord, ...]:
    """Put the plan for `processor_ids` in force, unless it is in force already.

    As `plan_of`.
    """
    plan = plan_of(state, processor_ids, groupers, before=before)
    return tuple(_records(plan, tuple(processor_ids), state))


def _partition_count(recorded: InputPut, state: CoordinatorState) -> int:
    """How many partitions of an input are planned.

    It is the recorded number, or more: after an expansion, or another topic in the place of one that is gone, whose
    plan is in force and whose record, which comes behind the plan, was torn off.
    """
    if not (recorded.expansions or recorded.gone_at_ms):
        return recorded.partition_count
    planned = {
        ssp_kb.ssp.partition
        for task in state.plan
        for ssp_kb in task.positions
        if ssp_kb.ssp.system_stream == recorded.system_stream
    }
    if recorded.gone_at_ms:
        return max(recorded.partition_count, len(planned))
    is_taken_in = any(step.partition_count == len(planned) for step in recorded.expansions)
    return len(planned) if is_taken_in else recorded.partition_count


def _refuse_small_changelogs(plan: JobModel, config: JobConfig, state: CoordinatorState) -> None:
    """Refuse a changelog with too few partitions.

    A changelog has as many partitions as the inputs have. That is enough, unless tasks came and went before there
    was a store: their numbers, which are changelog partitions, are not given again.
    """
    needed = 1 + max((task.changelog_partition for task in plan.tasks), default=-1)
    for store in config.stores:
        topic = changelog_topic(config.job, store.name)
        topic_found = state.own_topics.get(topic)
        if topic_found is not None and topic_found.partition_count < needed:
            raise TopicPolicyError(
                f"wanted the topic {topic} with {needed} partitions, because the job had as many tasks since it was "
                f"created, found {topic_found.partition_count}. Mend it with: kafka-topics.sh --bootstrap-server "
                f"HOST:PORT --alter --topic {topic} --partitions {needed}"
            )


@remembered
def streams_planned(state: CoordinatorState) -> frozenset[SystemStream]:
    """The inputs that the plan in force reads, broadcast ones too."""
    planned = {ssp_kb.ssp.system_stream for task in state.plan for ssp_kb in task.positions}
    return frozenset(planned & state.inputs.keys())


def inputs_gone(state: CoordinatorState) -> frozenset[SystemStream]:
    """Deleted inputs without which the job continues (`coordinator.inputs.removal`)."""
    config = recorded_config(state)
    read = {SystemStream.parse(text) for text in (() if config is None else config.streams_read)}
    return frozenset(stream for stream in state.inputs if state.inputs[stream].gone_at_ms) - read


def tasks_of_before(state: CoordinatorState) -> Mapping[SystemStreamPartition, TaskName]:
    """The tasks with the state of keys of inputs that are gone, by partition.

    A grant stays until newer ones give all that it gave, so the grants show it for inputs that no task reads any more.
    """
    periods = {stream: state.inputs[stream].period for stream in state.inputs}
    after = 0 if state.run is None else state.run.counts_after
    return {
        start.ssp_kb.ssp: TaskNameParts.parse(grant.task_name).base_name
        for grant in state.grants_sorted
        if grant.epoch > after
        for start in grant.starts
        if not start.ssp_kb.reader and start.ssp_kb.ssp.partition < periods.get(start.ssp_kb.ssp.system_stream, 0)
    }


@remembered
def config_of(state: CoordinatorState) -> JobConfig:
    """The recorded configuration.

    Raises ConfigError if it is incomplete, as after a torn transaction.
    """
    return parse_recorded(state.config)


def readable_config(state: CoordinatorState) -> JobConfig | None:
    """As `config_of`; None where it cannot be read.

    A record of another release, or a torn one, prevents that. It is reported where the job is decided on.
    """
    try:
        return config_of(state)
    except ConfigError:
        return None


def recorded_config(state: CoordinatorState) -> JobConfig | None:
    """The configuration that the job runs under; None before its first plan.

    Before that, a torn transaction may have left a part of it.
    """
    return None if state.generation is None else config_of(state)


def factor_of(state: CoordinatorState) -> int:
    """The requested number of key buckets per input partition.

    An earlier plan may still be in force.
    """
    return 1 if state.factor is None else state.factor.factor


def keeps_state(state: CoordinatorState) -> bool:
    """Whether there was ever a store.

    A store that left the configuration still has its changelog, and might come back: its entries must not be in another
    task by then.
    """
    of_changelog = changelog_topic(f"{state.job.job_name}-{state.job.job_id}", "") if state.job is not None else None
    return any(key.startswith("stores.") for key in state.config) or any(
        of_changelog is not None and name.startswith(of_changelog) for name in state.own_topics
    )


def _records(
    plan: JobModel, processor_ids: tuple[ProcessorId, ...], state: CoordinatorState
) -> Iterable[CoordinatorRecord]:
    in_force, scheme = state.generation, config_of(state).grouping
    wanted, factor = planned_tasks(plan), factor_of(state)
    if (
        in_force is not None
        and (in_force.scheme, in_force.factor, in_force.processor_ids) == (scheme, factor, processor_ids)
        and wanted == tuple(replace(planned, generation=plan.generation) for planned in state.plan)
    ):
        return
    for task in plan.tasks:
        base = TaskNameParts.parse(task.name).base_name
        if base not in state.changelog_partitions:
            yield ChangelogPartitionPut(task_name=base, partition=task.changelog_partition)
    yield from wanted
    yield GenerationPut(
        generation=plan.generation,
        factor=factor,
        task_count=len(plan.tasks),
        scheme=scheme,
        processor_ids=processor_ids,
    )
    yield from plan_tombstones(state, generations(state))


def planned_tasks(plan: JobModel) -> tuple[PlannedTaskPut, ...]:
    """The tasks of `plan` as records."""
    tasks = [
        PlannedTaskPut(
            generation=plan.generation,
            task_name=task.name,
            partition_id=task.partition_id,
            mode=task.mode.value,
            processor_id=container.processor_id,
            changelog_partition=task.changelog_partition,
            ssp_kbs=task.ssp_kbs,
            broadcast_ssps=task.broadcast_ssps,
        )
        for container in plan.containers
        for task in container.tasks
    ]
    return tuple(sorted(tasks, key=lambda planned: (planned.partition_id, planned.task_name)))


def generations(state: CoordinatorState) -> tuple[int, ...]:
    """Every generation number that the log knows, finished or not."""
    numbers = {generation for generation, _ in state.planned_tasks}
    if state.generation is not None:
        numbers.add(state.generation.generation)
    return tuple(sorted(numbers))


def plan_tombstones(state: CoordinatorState, numbers: Iterable[int]) -> tuple[Removed, ...]:
    """Tombstones of the tasks of the plans with these `numbers`."""
    wanted = frozenset(numbers)
    tombstones = [tombstone(planned) for (number, _), planned in state.planned_tasks.items() if number in wanted]
    return tuple(sorted(tombstones, key=key_of))
