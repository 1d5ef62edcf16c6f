"""Decisions that begin a term and submit a job.

Both compare the wanted records with those on the log and write the difference, so a repetition writes nothing and the
torn half of a predecessor is completed. The order within a transaction makes any prefix safe, because librdkafka can
tear a transaction.

Each processor of a job submits the same: it has its own copy of the configuration, and submits it when it becomes
leader. So a configuration that differs is rejected while other containers run. A changed file comes into force when all
processors have stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from samzapy.config import (
    COUNT_KEY,
    FACTOR_KEY,
    Difference,
    JobConfig,
    differences,
    recorded_properties,
    stores_of,
)
from samzapy.coordinator.assignment.grants import changelogs_begun
from samzapy.coordinator.assignment.liveness import LIVING, Liveness, is_alive
from samzapy.coordinator.assignment.replanning import (
    config_of,
    factor_of,
    generations,
    plan_of,
    plan_tombstones,
    replan,
    streams_planned,
)
from samzapy.coordinator.commands import InputFound, OwnTopicFound, StartTerm, SubmitJob
from samzapy.coordinator.inputs.growth import without_refusals
from samzapy.coordinator.launching.launches import is_over
from samzapy.coordinator.launching.suspension import resumed_by_losses
from samzapy.coordinator.requests.handler import ended
from samzapy.coordinator.requests.scale_factor import scale_wanted
from samzapy.coordinator.state import CoordinatorState, evolve, sorted_processors, tombstone, uncommitted
from samzapy.errors import ConfigError, RejectedError, TopicPolicyError, UnknownSchemaError
from samzapy.model.container import Container
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.placement import UNFINISHED, Action, StatusCode
from samzapy.model.ssp import SystemStream
from samzapy.model.text import some
from samzapy.model.topic_checks import made_again, refuse
from samzapy.model.topics import changelog_topic, checkpoint_topic, coordinator_topic, placement_topic
from samzapy.plan.input_patterns import is_match, may_depart, refuse_unmatched, with_inputs
from samzapy.plan.intermediates import refuse_fewer_partitions
from samzapy.plan.store_changes import StoreChange, StoreFate, refusals, store_changes
from samzapy.stream.records import (
    FORMAT_LEVEL,
    ConfigPut,
    ContainerCountPut,
    CoordinatorRecord,
    FactorPut,
    FormatLevelPut,
    InputPut,
    JobIdentityPut,
    OwnTopicPut,
    RequestPut,
    TermPut,
)


def start_term(command: StartTerm, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The first records of a term; on a new stream also its job and format.

    Raises:
        TopicPolicyError: the stream belongs to another job.
        UnknownSchemaError: it is written at a level that this release does not know.
    """
    if state.term is not None and state.term.term > command.term_before:
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
        version=command.version,
    )
    records: list[CoordinatorRecord] = [term]
    if state.job is None:
        records.append(JobIdentityPut(job_name=command.job_name, job_id=command.job_id))
    if state.format_level is None:
        records.append(FormatLevelPut(level=FORMAT_LEVEL))
    records.extend(schema for schema in command.schemas if state.schemas.get(schema.fingerprint) != schema)
    in_force = state.generation_number
    records.extend(plan_tombstones(state, [number for number in generations(state) if number < in_force]))
    return tuple(records)


def check_readable(state: CoordinatorState, job_name: str, job_id: str) -> None:
    """Raise unless `state` is this job's, at a level that this release reads."""
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


def submit_job(command: SubmitJob, state: CoordinatorState, liveness: Liveness) -> tuple[CoordinatorRecord, ...]:
    """The records in which the submitted job differs from the log, plan included.

    The members of the plan stay: `membership` decides on joins and leaves. A configuration that differs waits (no
    records are returned) while the log has containers that sent no heartbeat in this term: they may be running.

    Raises:
        RejectedError: the configuration differs from that of running containers; or there is something to change, the
            plan is not the one that the submitter has seen, and no containers run that would go on under it.
        TopicPolicyError: the log is another job's, or an internal topic has the wrong number of partitions.
        TopicIdentityError: a topic was deleted and created again since it was recorded.
        MissingTopicError: a pattern of a new job, or all patterns, match no topic.
        PartitionSchemeError: the inputs changed so that keyed state would be left behind.
        ConfigError: a grouper of the job, a broadcast input, the scope of a store, or the number of partitions of an
            intermediate stream is wrong.
    """
    check_readable(state, command.config.job_name, command.config.job_id)
    command = _with_inputs_to_read(command, state)
    config = command.config
    refused = refusals(stores_after(config, state, _gone(command, state)))
    if refused:
        raise ConfigError("\n".join(refused))
    _refuse_other_mode(command, state, liveness)
    refuse_fewer_partitions(config.intermediates, state.config)
    others = [container.execution_id for container in state.containers_sorted if _may_run_elsewhere(container, state)]
    differing = differences(config, state.config) if others else ()
    if differing:
        _refuse_beside(
            [execution_id for execution_id in others if execution_id in liveness.last], differing, state, config
        )
        return ()
    records = _submission_records(command, state)
    if records and not others:
        refuse_unexpected(command, state)
    return records


def _submission_records(command: SubmitJob, state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """The records in which the job differs from the log.

    There are none if the submission is decided a second time. Then the generation in force may be its own (law L2).
    """
    config = command.config
    facts = (
        *_scales_overruled(command, state),
        *_factor_records(config, state),
        *_count_records(command, state),
        *resumed_by_losses(config, state),
        *_config_records(command, state),
        *_input_records(command, state),
        *_own_topic_records(command.own_topics, config, state),
    )
    with_facts = evolve(state, uncommitted(facts))
    if state.generation is None:
        # The plan is made when the first processor joins; a job that cannot be planned is refused now.
        plan_of(with_facts, (ProcessorId(config.processor_id or "0"),), command.groupers, before=state)
        return facts
    # Release 0.1.0 did not record the members; each of them had tasks.
    members = state.generation.processor_ids or sorted_processors({planned.processor_id for planned in state.plan})
    return (*facts, *replan(with_facts, members, command.groupers, before=state))


def inputs_to_read(config: JobConfig, topic_ids: Mapping[SystemStream, str], state: CoordinatorState) -> JobConfig:
    """`config` with the inputs of the next plan, instead of all pattern matches.

    The topics of a pattern come and go while the job runs, each time by a decision of its own, after several looks at
    the topics (`coordinator.inputs.removal`, `coordinator.inputs.growth`). A submission is one look, perhaps by a
    process that has only become leader. So planned topics stay, even if they are not found, and topics that went are
    not taken back here.

    Args:
        config: with the names of streams in place of its patterns.
        topic_ids: the current topic ids of these streams.

    Raises:
        MissingTopicError: the job has no input to read; or the job is new, and a pattern matches no topic.
    """
    if state.generation is None or not config.input_patterns:
        refuse_unmatched(config)
        return config
    planned = streams_planned(state)
    any_container_lives = any(container.phase in LIVING for container in state.containers.values())

    def stays(stream: SystemStream) -> bool:
        """Whether a missing stream stays.

        A bounded one stays while a living container may read it.
        """
        return stream in planned and (
            may_depart(config, stream) or (any_container_lives and is_match(config, stream))
        )

    def waits(stream: SystemStream) -> bool:
        """Whether an existing stream waits.

        It was removed, or its topic is not the one that was read.
        """
        known = state.inputs.get(stream)
        return (
            known is not None
            and stream not in planned
            and is_match(config, stream)
            and (known.gone_at_ms > 0 or known.topic_id != topic_ids.get(stream, known.topic_id))
        )

    existing = [text for text in config.inputs if not waits(SystemStream.parse(text))]
    recorded = config_of(state).inputs
    kept = [text for text in recorded if text not in existing and stays(SystemStream.parse(text))]
    if not (existing or kept):
        refuse_unmatched(config)
    return with_inputs(config, [*existing, *kept])


def _with_inputs_to_read(command: SubmitJob, state: CoordinatorState) -> SubmitJob:
    config = inputs_to_read(command.config, {item.system_stream: item.topic_id for item in command.inputs}, state)
    read = frozenset(config.streams_read)
    inputs = tuple(item for item in command.inputs if str(item.system_stream) in read)
    return replace(command, config=config, inputs=inputs)


def _may_run_elsewhere(container: Container, state: CoordinatorState) -> bool:
    """Whether the container lives and is not the process that leads.

    The leader's process submits, so its own container has the submitted configuration.
    """
    term = state.term
    return container.phase in LIVING and (
        term is None
        or (container.boot_id, container.pid, container.process_started_ms)
        != (term.boot_id, term.pid, term.process_started_ms)
    )


def check_joinable(state: CoordinatorState, config: JobConfig, *, running: Collection[ExecutionId]) -> None:
    """Reject a process whose configuration differs from that of the running job.

    Settings of one process may differ (`ConfigKey.of_process`). Secrets are not compared, because none is recorded.

    Args:
        running: the executions that are known to run. The configuration may change while there is none.

    Raises:
        RejectedError: names the keys that differ.
    """
    if running:
        _refuse_beside(running, differences(config, state.config), state, config)


def refuse_unexpected(command: SubmitJob, state: CoordinatorState) -> None:
    """Raise RejectedError if the plan is not the one that the submitter has seen."""
    wanted = command.expected_generation
    generation = state.generation_number
    if wanted not in (None, generation):
        raise RejectedError(
            f"--expected-generation: wanted to apply what was planned from generation {wanted} of "
            f"{command.config.job}, found generation {generation} in force: the plan would be another one now. Look at "
            "`samzapy job plan` again"
        )


def _refuse_beside(
    running: Collection[ExecutionId], differing: Sequence[Difference], state: CoordinatorState, config: JobConfig
) -> None:
    if not running or not differing:
        return
    containers = [container for container in map(state.containers.get, running) if container]
    hosts = sorted({f"{container.processor_id} on {container.host}" for container in containers})
    raise RejectedError(
        f"wanted the configuration under which {config.job} runs (processor {', '.join(hosts)}), found "
        f"{'; '.join(map(str, differing))}. Start with the same settings, or stop all processors of the job first: "
        "the next one that starts brings the new ones"
    )


def _gone(command: SubmitJob, state: CoordinatorState) -> Collection[str]:
    """The recorded topics of the job that others have the names of."""
    recorded = state.own_topics
    known = (topic for topic in command.own_topics if topic.name in recorded)
    return {topic.name for topic in known if topic.topic_id != recorded[topic.name].topic_id}


def stores_after(config: JobConfig, state: CoordinatorState, gone: Collection[str]) -> Sequence[StoreChange]:
    """The changes of the job's stores under this configuration.

    Args:
        gone: the recorded topics of the job that were deleted.
    """
    changes = store_changes(config, state.config, state.own_topics, has_run=bool(state.grants), gone=gone)
    if config.is_bounded_job:
        return changes
    # An offset at which a run of a bounded job begins is one of the topic that was deleted.
    begun = {store for offsets in changelogs_begun(state).values() for store in offsets}
    returning = {store for topic, store in _returning(config, state).items() if topic in gone} & begun
    return [_begun(change) if change.store in returning else change for change in changes]


def _begun(change: StoreChange) -> StoreChange:
    text = (
        f"stores.{change.store}: wanted a store under a new name, found one that was dropped and that this run of the "
        "job counts from an offset of its deleted changelog topic: give the store a new name, or the job a new job.id"
    )
    return replace(change, fate=StoreFate.REFUSED, text=text)


def _returning(config: JobConfig, state: CoordinatorState) -> Mapping[str, str]:
    """By changelog topic, the stores that were dropped and come back."""
    before = {store.name for store in stores_of(state.config)}
    names = {
        changelog_topic(config.job, store.name): store.name for store in config.stores if store.name not in before
    }
    return {topic: name for topic, name in names.items() if topic in state.own_topics}


def _factor_records(config: JobConfig, state: CoordinatorState) -> Iterable[FactorPut]:
    """The configured factor, if this configuration has changed it.

    Otherwise the recorded factor stays: a restart does not undo a scaling of the running job. It comes before the
    configuration: if the transaction is torn after it, the difference can still be seen.
    """
    wanted = factor_to_be(config, state)
    if wanted != factor_of(state):
        yield FactorPut(factor=wanted)


def _scales_overruled(command: SubmitJob, state: CoordinatorState) -> Iterable[RequestPut]:
    """Fail the open scale requests that the changed configuration contradicts.

    The newer configuration wins; otherwise each pending scale request would revert it. They come first: if the
    transaction is torn after them, the difference can still be seen.
    """
    for request in (state.requests[uuid] for uuid in sorted(state.requests)):
        if request.action != Action.SCALE or request.status_code not in UNFINISHED:
            continue
        wanted = scale_wanted(request)
        for key, asked, configured in (
            (FACTOR_KEY, wanted.factor, command.config.elasticity_factor),
            (COUNT_KEY, wanted.containers, command.container_count),
        ):
            if asked not in (None, configured) and _is_changed(key, command.config, state):
                reason = (
                    f"wanted {asked}, found that a changed configuration was submitted since, with {key}={configured}"
                )
                yield ended(request, StatusCode.FAILED, reason, command.now_ms)


def _is_changed(key: str, config: JobConfig, state: CoordinatorState) -> bool:
    """Whether `config` sets `key` to another value than the last submission."""
    return config.properties.get(key) not in (None, state.config.get(key))


def _count_records(command: SubmitJob, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """The number of coordinator-managed containers, as for the factor.

    None where containers are self-managed.
    """
    known = state.container_count
    if command.container_count is None:
        if known is not None:
            yield tombstone(known)
        return
    if known is None or (_is_changed(COUNT_KEY, command.config, state) and known.count != command.container_count):
        yield ContainerCountPut(count=command.container_count)


def _refuse_other_mode(command: SubmitJob, state: CoordinatorState, liveness: Liveness) -> None:
    """Refuse to change during a run who manages the containers.

    The containers of the two modes would disturb each other. Self-managed containers without a heartbeat in this term
    do not count; they are declared lost (`coordinator.launching.launches`).

    Raises:
        RejectedError: the text says which containers to stop first.
    """
    job = command.config.job
    if command.container_count is None and state.container_count is not None and not is_over(state):
        raise RejectedError(
            f"wanted to run {job} in self-managed containers, found that its coordinator starts its "
            f"containers; stop it first (samzapy job stop --job {job}), or let it go on (samzapy job submit)"
        )
    if command.container_count is not None:
        refuse_self_managed(state, [name for name in liveness.last if is_alive(state, name)], job)


def refuse_self_managed(state: CoordinatorState, running: Collection[ExecutionId], job: str) -> None:
    """Raise RejectedError if self-managed containers run."""
    others = sorted(execution_id for execution_id in running if execution_id not in state.launches)
    if others:
        raise RejectedError(
            f"wanted to start the containers of {job}, found self-managed ones: {some(others)}; stop them first "
            "(SIGTERM to their spark-submit, or samzapy job stop)"
        )


def factor_to_be(config: JobConfig, state: CoordinatorState) -> int:
    """The factor after `config` is submitted."""
    return config.elasticity_factor if _is_changed(FACTOR_KEY, config, state) else factor_of(state)


def _config_records(command: SubmitJob, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    wanted = recorded_properties(command.config)
    for key, value in wanted.items():
        if state.config.get(key) != value:
            yield ConfigPut(config_key=key, value=value)
    for key in sorted(state.config.keys() - wanted.keys()):
        yield tombstone(ConfigPut(config_key=key, value=""))


def _input_records(command: SubmitJob, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """The records of the inputs.

    An input that is no longer read keeps its record: should it come back, its positions must still be those of its
    topic.
    """
    read = _streams_read(state)
    for current in sorted(command.inputs, key=lambda item: item.system_stream):
        known = state.inputs.get(current.system_stream)
        if known is None:
            yield _new_input(current, command, state)
            continue
        if known.topic_id != current.topic_id:
            if not may_depart(command.config, current.system_stream):
                refuse([made_again(f"input {current.system_stream}", known.topic_id, current.topic_id)])
            if state.generation is None:
                yield replace(_new_input(current, command, state), epoch_before=state.epoch)
            continue  # Looks at the topics remove it, and add it again.
        wanted = replace(without_refusals(known), gone_at_ms=0, gone_refused="")
        # Partitions that were added to an input that is read come with a later look at the topics.
        if current.system_stream not in read:
            count = partition_count_now(current.partition_count, current.topic_id, known)
            wanted = replace(wanted, partition_count=count, expansions=())
        if known != wanted:
            yield wanted


def partition_count_now(seen: int, topic_id: str, known: InputPut | None) -> int:
    """How many partitions the topic has of which a broker told `seen`.

    Kafka takes no partition away, so a smaller count of the recorded topic is from a broker that has not heard of the
    others yet.
    """
    return max(seen, known.partition_count) if known is not None and known.topic_id == topic_id else seen


def _streams_read(state: CoordinatorState) -> frozenset[SystemStream]:
    """The streams that are read under a grant that still counts.

    The order of their partitions must be kept.
    """
    if state.run is not None and state.run.ended and config_of(state).is_bounded_job:
        return frozenset()  # The next run begins with nothing of earlier ones.
    return frozenset(start.ssp_kb.ssp.system_stream for grant in state.grants.values() for start in grant.starts)


def _new_input(current: InputFound, command: SubmitJob, state: CoordinatorState) -> InputPut:
    """The record of a new input.

    A topic that was created after the job, and that matches a pattern, is read from its beginning.
    """
    before = () if state.generation is None else config_of(state).input_patterns
    is_late = before == command.config.input_patterns and is_match(command.config, current.system_stream)
    return InputPut(
        system_stream=current.system_stream,
        partition_count=current.partition_count,
        partition_count_first=0 if is_late else current.partition_count,
        topic_id=current.topic_id,
    )


def _own_topic_records(
    own_topics: tuple[OwnTopicFound, ...], config: JobConfig, state: CoordinatorState
) -> Iterable[CoordinatorRecord]:
    job, returning = config.job, _returning(config, state)
    single = (coordinator_topic(job), checkpoint_topic(job), placement_topic(job))
    for topic in sorted(own_topics, key=lambda item: item.name):
        known = state.own_topics.get(topic.name)
        # A dropped store has no entries under the new id, and local state of the old id is rebuilt.
        if known is not None and known.topic_id != topic.topic_id and topic.name not in returning:
            refuse([made_again(f"topic {topic.name}", known.topic_id, topic.topic_id)])
        if topic.name in single and topic.partition_count != 1:
            if known is not None:
                continue  # Partitions were added while the job runs: the record stays (`topic_checks` reports it).
            raise TopicPolicyError(
                f"{topic.name}: wanted 1 partition, found {topic.partition_count}; records that belong together "
                "would be read out of order. Kafka takes no partition away: give the job a new job.id"
            )
        wanted = OwnTopicPut(name=topic.name, topic_id=topic.topic_id, partition_count=topic.partition_count)
        if known != wanted:
            yield wanted
