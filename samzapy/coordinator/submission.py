"""A term begins; a job is handed in.

Theory. Both compare what should stand on the log with what does and write the difference, so a repetition
writes nothing and a predecessor's torn half is completed. Within one transaction the order is such that
every beginning of it is harmless (librdkafka can tear a transaction, reliability.md M1): the tasks of a plan
come before the `generation` record that makes them effective, tombstones of other plans come after it.

No generation number is used twice, so an unfinished plan's records stay until a later generation is
effective; they hold its number.
"""

from __future__ import annotations

from collections.abc import Iterable

from samzapy.config import recorded_properties
from samzapy.coordinator.commands import InputFound, OwnTopicFound, StartTerm, SubmitJob
from samzapy.coordinator.state import CoordinatorState, job_model, locality_of, tombstone
from samzapy.errors import TopicPolicyError, UnknownSchemaError
from samzapy.model.job import JobModel
from samzapy.model.topic_checks import made_again, refuse
from samzapy.model.topics import changelog_topic, checkpoint_topic, coordinator_topic, placement_topic
from samzapy.plan.job_plan import plan_job
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.keys import key_of
from samzapy.stream.records import (
    FORMAT_LEVEL,
    ChangelogPartitionPut,
    ConfigPut,
    CoordinatorRecord,
    FormatLevelPut,
    GenerationPut,
    InputPut,
    JobIdentityPut,
    OwnTopicPut,
    PlannedTaskPut,
    Removed,
    TermPut,
)


def start_term(command: StartTerm, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The first records of a term; on a new stream also whose it is and how it is written.

    Raises:
        TopicPolicyError: the stream belongs to another job.
        UnknownSchemaError: it is written at a level that this release does not know.
    """
    if state.term is not None and state.term.term != command.term_before:
        return ()  # Begun already.
    check_readable(state, command.job_name, command.job_id)
    term = TermPut(
        term=command.term_before + 1,
        coordinator_id=command.coordinator_id,
        host=command.host,
        boot_id=command.boot_id,
        pid=command.pid,
        process_started_ms=command.process_started_ms,
        url=command.url,
        started_at_ms=command.started_at_ms,
    )
    found: list[CoordinatorRecord] = [term]
    if state.job is None:
        found.append(JobIdentityPut(job_name=command.job_name, job_id=command.job_id))
    if state.format_level is None:
        found.append(FormatLevelPut(level=FORMAT_LEVEL))
    found.extend(schema for schema in command.schemas if state.schemas.get(schema.fingerprint) != schema)
    in_force = state.generation.generation if state.generation is not None else 0
    found.extend(_tombstones(state, [number for number in _generations(state) if number < in_force]))
    return tuple(found)


def check_readable(state: CoordinatorState, job_name: str, job_id: str) -> None:
    """Raise unless `state` is of this job and at a level that this release reads."""
    if state.job is not None and (state.job.job_name, state.job.job_id) != (job_name, job_id):
        raise TopicPolicyError(
            f"wanted the coordinator stream of job.name={job_name}, job.id={job_id}, found that of "
            f"job.name={state.job.job_name}, job.id={state.job.job_id}; give this job another job.id"
        )
    if state.format_level is not None and state.format_level > FORMAT_LEVEL:
        raise UnknownSchemaError(
            f"wanted a coordinator stream of format level {FORMAT_LEVEL} or below, found {state.format_level}: a "
            "newer release writes it; upgrade this process"
        )


def submit_job(command: SubmitJob, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Everything in which the job as handed in differs from the job on the log.

    Raises:
        TopicPolicyError: the log is another job's, or a topic of ours has the wrong number of partitions.
        TopicIdentityError: a topic was deleted and made again since it was recorded.
        PartitionSchemeError: the inputs changed so that keyed state would be left behind.
        ConfigError: a grouper of the job's own, or a broadcast input, is not as it must be.
    """
    config = command.config
    check_readable(state, config.job_name, config.job_id)
    before = job_model(state)
    after = plan_job(
        config,
        {found.system_stream: found.partition_count for found in command.inputs},
        before,
        command.processor_ids,
        generation=1 + max((0, *_generations(state))),
        changelog_partitions=state.changelog_partitions,
        locality=locality_of(state),
        groupers=command.groupers,
        keeps_state=keeps_state(state),
    )
    return (
        *_config_records(command, state),
        *_input_records(command.inputs, state),
        *_own_topic_records(command.own_topics, config.job, state),
        *_plan_records(before, after, config.grouping, state),
    )


def keeps_state(state: CoordinatorState) -> bool:
    """Whether there was ever a store. One that was taken out of the configuration has its changelog still, and
    might come back: its entries must not be in another task by then."""
    of_changelog = changelog_topic(f"{state.job.job_name}-{state.job.job_id}", "") if state.job is not None else None
    return any(key.startswith("stores.") for key in state.config) or any(
        of_changelog is not None and name.startswith(of_changelog) for name in state.own_topics
    )


def _config_records(command: SubmitJob, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    wanted = recorded_properties(command.config.properties)
    for key, value in wanted.items():
        if state.config.get(key) != value:
            yield ConfigPut(config_key=key, value=value)
    for key in sorted(state.config.keys() - wanted.keys()):
        yield tombstone(ConfigPut(config_key=key, value=""))


def _input_records(inputs: tuple[InputFound, ...], state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """An input that is read no more stays: should it come back, its positions must still be those of its topic."""
    for found in sorted(inputs, key=lambda item: item.system_stream):
        known = state.inputs.get(found.system_stream)
        if known is not None and known.topic_id != found.topic_id:
            refuse([made_again(f"input {found.system_stream}", known.topic_id, found.topic_id)])
        wanted = InputPut(
            system_stream=found.system_stream,
            partition_count=found.partition_count,
            partition_count_first=found.partition_count if known is None else known.partition_count_first,
            topic_id=found.topic_id,
        )
        if known != wanted:
            yield wanted


def _own_topic_records(
    own_topics: tuple[OwnTopicFound, ...], job: str, state: CoordinatorState
) -> Iterable[CoordinatorRecord]:
    single = (coordinator_topic(job), checkpoint_topic(job), placement_topic(job))
    for found in sorted(own_topics, key=lambda item: item.name):
        known = state.own_topics.get(found.name)
        if known is not None and known.topic_id != found.topic_id:
            refuse([made_again(f"topic {found.name}", known.topic_id, found.topic_id)])
        if found.name in single and found.partition_count != 1:
            raise TopicPolicyError(
                f"{found.name}: wanted 1 partition, found {found.partition_count}; records that belong together "
                "would be read out of order. Kafka takes no partition away: give the job a new job.id"
            )
        wanted = OwnTopicPut(name=found.name, topic_id=found.topic_id, partition_count=found.partition_count)
        if known != wanted:
            yield wanted


def _plan_records(
    before: JobModel | None, after: JobModel, scheme: str, state: CoordinatorState
) -> Iterable[CoordinatorRecord]:
    wanted = _planned(after)
    in_force = state.generation
    if (
        before is not None
        and in_force is not None
        and in_force.scheme == scheme
        and wanted == _planned(before, generation=after.generation)
    ):
        return
    for task in after.tasks:
        base = TaskNameParts.parse(task.name).base_name
        if base not in state.changelog_partitions:
            yield ChangelogPartitionPut(task_name=base, partition=task.changelog_partition)
    yield from wanted
    yield GenerationPut(generation=after.generation, factor=1, task_count=len(after.tasks), scheme=scheme)
    yield from _tombstones(state, _generations(state))


def _planned(plan: JobModel, generation: int | None = None) -> tuple[PlannedTaskPut, ...]:
    """The tasks of `plan` as records, under its own number or another."""
    found = [
        PlannedTaskPut(
            generation=plan.generation if generation is None else generation,
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
    return tuple(sorted(found, key=lambda planned: (planned.partition_id, planned.task_name)))


def _generations(state: CoordinatorState) -> tuple[int, ...]:
    """Every generation number that the log knows, finished or not."""
    found = {generation for generation, _ in state.planned_tasks}
    if state.generation is not None:
        found.add(state.generation.generation)
    return tuple(sorted(found))


def _tombstones(state: CoordinatorState, generations: Iterable[int]) -> tuple[Removed, ...]:
    wanted = frozenset(generations)
    found = [tombstone(planned) for (number, _), planned in state.planned_tasks.items() if number in wanted]
    return tuple(sorted(found, key=key_of))
