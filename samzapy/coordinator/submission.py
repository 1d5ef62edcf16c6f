"""A term begins; a job is handed in.

Theory. Both compare what should stand on the log with what does and write the difference, so a repetition
writes nothing and a predecessor's torn half is completed. Within one transaction the order is such that
every beginning of it is harmless (librdkafka can tear a transaction, reliability.md M1).

Every processor of a job hands in the same: each brings its own copy of the configuration, and whoever comes to
lead submits it. So one that differs is refused while others run; what a changed file says comes into force when
all processors were stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from samzapy.config import JobConfig, parse_recorded, recorded_properties
from samzapy.coordinator.commands import InputFound, OwnTopicFound, StartTerm, SubmitJob
from samzapy.coordinator.liveness import LIVING, Sightings
from samzapy.coordinator.planning import generations, plan_of, plan_tombstones, replan
from samzapy.coordinator.state import CoordinatorState, evolve, tombstone, uncommitted
from samzapy.errors import RejectedError, TopicPolicyError, UnknownSchemaError
from samzapy.model.container import Container
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.topic_checks import made_again, refuse
from samzapy.model.topics import checkpoint_topic, coordinator_topic, placement_topic
from samzapy.stream.records import (
    FORMAT_LEVEL,
    ConfigPut,
    CoordinatorRecord,
    FormatLevelPut,
    InputPut,
    JobIdentityPut,
    OwnTopicPut,
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
    found.extend(plan_tombstones(state, [number for number in generations(state) if number < in_force]))
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


def submit_job(command: SubmitJob, state: CoordinatorState, seen: Sightings) -> tuple[CoordinatorRecord, ...]:
    """Everything in which the job as handed in differs from the job on the log; of a plan, if there is one already.

    The members of the plan stay: who joins and leaves is `membership`'s. A configuration that differs waits (nothing
    is returned) while containers stand on the log that nobody has heard of in this term: they may be running.

    Raises:
        RejectedError: the configuration differs from that of containers that run.
        TopicPolicyError: the log is another job's, or a topic of ours has the wrong number of partitions.
        TopicIdentityError: a topic was deleted and made again since it was recorded.
        PartitionSchemeError: the inputs changed so that keyed state would be left behind.
        ConfigError: a grouper of the job's own, or a broadcast input, is not as it must be.
    """
    config = command.config
    check_readable(state, config.job_name, config.job_id)
    others = [found.execution_id for found in state.containers_sorted if _may_run_elsewhere(found, state)]
    check_joinable(state, config, running=[found for found in others if found in seen.last])
    if others and differing_keys(state, config):
        return ()
    facts = (
        *_config_records(command, state),
        *_input_records(command.inputs, state),
        *_own_topic_records(command.own_topics, config.job, state),
    )
    with_facts = evolve(state, uncommitted(facts))
    if state.generation is None:
        # Planned when the first processor joins; what cannot be planned is refused now.
        plan_of(with_facts, (ProcessorId(config.processor_id or "0"),), command.groupers, before=state)
        return facts
    return (*facts, *replan(with_facts, state.generation.processor_ids, command.groupers, before=state))


def _may_run_elsewhere(container: Container, state: CoordinatorState) -> bool:
    """Whether the container lives, as far as the log tells, and is not of the process that leads and submits."""
    term = state.term
    return container.phase in LIVING and (
        term is None
        or (container.boot_id, container.pid, container.process_started_ms)
        != (term.boot_id, term.pid, term.process_started_ms)
    )


def check_joinable(state: CoordinatorState, config: JobConfig, *, running: Collection[ExecutionId]) -> None:
    """Refuse a process whose configuration is not that of the job as it runs.

    What belongs to one process may differ (`ConfigKey.of_process`); secrets are not compared, as none is recorded.

    Args:
        running: the executions that are known to run. The job's configuration may change while there is none.

    Raises:
        RejectedError: names the keys that differ.
    """
    differing = differing_keys(state, config) if running else ()
    if differing:
        hosts = sorted(
            {f"{found.processor_id} on {found.host}" for found in map(state.containers.get, running) if found}
        )
        raise RejectedError(
            f"wanted the configuration under which {config.job} runs (processor {', '.join(hosts)}), found "
            f"{'; '.join(_difference(key, state, config) for key in differing)}. Start with the same settings, or "
            "stop all processors of the job first: the next one that starts brings the new ones"
        )


def differing_keys(state: CoordinatorState, config: JobConfig) -> tuple[str, ...]:
    """The keys of the job in which `config` differs from what is recorded; none before a job was handed in.

    What a pattern among the inputs matches is no setting: it grows while the job runs.
    """
    if not state.config:
        return ()
    wanted, recorded = _compared(config), _compared(parse_recorded(state.config))
    return tuple(sorted(key for key in wanted.keys() | recorded.keys() if wanted.get(key) != recorded.get(key)))


def _compared(config: JobConfig) -> dict[str, str]:
    found = recorded_properties(config.properties)
    if config.input_patterns:
        found |= {"task.inputs": ",".join(config.input_patterns)}
        found.pop("task.inputs.patterns", None)
    return found


def _difference(key: str, state: CoordinatorState, config: JobConfig) -> str:
    found, recorded = _compared(config).get(key), _compared(parse_recorded(state.config)).get(key)
    return (
        f"{key}={'(not set)' if found is None else found} instead of {'(not set)' if recorded is None else recorded}"
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
