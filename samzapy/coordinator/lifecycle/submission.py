"""A term begins; a job is handed in.

Theory. Both compare what should stand on the log with what does and write the difference, so a repetition
writes nothing and a predecessor's torn half is completed. Within one transaction the order is such that
every beginning of it is harmless (librdkafka can tear a transaction).

Every processor of a job hands in the same: each brings its own copy of the configuration, and whoever comes to
lead submits it. So one that differs is refused while others run; what a changed file says comes into force when
all processors were stopped.
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
)
from samzapy.coordinator.assignment.liveness import LIVING, Sightings, is_alive
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
    """The first records of a term; on a new stream also whose it is and how it is written.

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
        RejectedError: the configuration differs from that of containers that run; or another plan is in force than the
            one that was looked at, and no containers run that would go on under it.
        TopicPolicyError: the log is another job's, or a topic of ours has the wrong number of partitions.
        TopicIdentityError: a topic was deleted and made again since it was recorded.
        MissingTopicError: a pattern of a job that is new, or all patterns, match no topic.
        PartitionSchemeError: the inputs changed so that keyed state would be left behind.
        ConfigError: a grouper of the job's own, a broadcast input, the scope of a store, or the number of partitions
            of an intermediate stream is not as it must be.
    """
    check_readable(state, command.config.job_name, command.config.job_id)
    command = _with_inputs_to_read(command, state)
    config = command.config
    _refuse_changed_scopes(config, state)
    _refuse_forgotten_scopes(config, state)
    _refuse_other_mode(command, state, seen)
    refuse_fewer_partitions(config.intermediates, state.config)
    others = [found.execution_id for found in state.containers_sorted if _may_run_elsewhere(found, state)]
    differing = differences(config, state.config) if others else ()
    if differing:
        _refuse_beside([found for found in others if found in seen.last], differing, state, config)
        return ()
    if not others:
        refuse_unexpected(command, state)
    facts = (
        *_scales_overruled(command, state),
        *_factor_records(config, state),
        *_count_records(command, state),
        *resumed_by_losses(config, state),
        *_config_records(command, state),
        *_input_records(command, state),
        *_own_topic_records(command.own_topics, config.job, state),
    )
    with_facts = evolve(state, uncommitted(facts))
    if state.generation is None:
        # Planned when the first processor joins; what cannot be planned is refused now.
        plan_of(with_facts, (ProcessorId(config.processor_id or "0"),), command.groupers, before=state)
        return facts
    # Release 0.1.0 did not record who the members are; each had tasks.
    members = state.generation.processor_ids or sorted_processors({planned.processor_id for planned in state.plan})
    return (*facts, *replan(with_facts, members, command.groupers, before=state))


def inputs_to_read(config: JobConfig, topic_ids: Mapping[SystemStream, str], state: CoordinatorState) -> JobConfig:
    """`config` with the inputs that a plan is to be made from now, in place of all that its patterns match.

    What a pattern stands for comes and goes while the job runs, each time by a decision of its own, behind several
    looks at the topics (`coordinator.inputs.removal`, `coordinator.inputs.growth`). A submission is one look, by
    somebody who may only have come to lead: so what is planned stays, though it is not found, and what went is not
    taken back here.

    Args:
        config: with the names of streams in place of its patterns.
        topic_ids: of the topics that they have now.

    Raises:
        MissingTopicError: there is nothing that the job could read; or the job is new, and a pattern matches none.
    """
    if state.generation is None or not config.input_patterns:
        refuse_unmatched(config)
        return config
    planned = streams_planned(state)
    is_anybody_there = any(found.phase in LIVING for found in state.containers.values())

    def stays(stream: SystemStream) -> bool:
        """Of those that are not found. One with an end stays while there may be somebody who reads it."""
        return stream in planned and (may_depart(config, stream) or (is_anybody_there and is_match(config, stream)))

    def waits(stream: SystemStream) -> bool:
        """Of those that are found: one that went, or is another topic than the one that was read."""
        known = state.inputs.get(stream)
        return (
            known is not None
            and stream not in planned
            and is_match(config, stream)
            and (known.gone_at_ms > 0 or known.topic_id != topic_ids.get(stream, known.topic_id))
        )

    found = [text for text in config.inputs if not waits(SystemStream.parse(text))]
    recorded = config_of(state).inputs
    kept = [text for text in recorded if text not in found and stays(SystemStream.parse(text))]
    if not (found or kept):
        refuse_unmatched(config)
    return with_inputs(config, [*found, *kept])


def _with_inputs_to_read(command: SubmitJob, state: CoordinatorState) -> SubmitJob:
    config = inputs_to_read(command.config, {found.system_stream: found.topic_id for found in command.inputs}, state)
    read = frozenset(config.streams_read)
    return replace(
        command, config=config, inputs=tuple(found for found in command.inputs if str(found.system_stream) in read)
    )


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
    if running:
        _refuse_beside(running, differences(config, state.config), state, config)


def refuse_unexpected(command: SubmitJob, state: CoordinatorState) -> None:
    """Raise RejectedError when another plan is in force than the one that whoever submits has looked at."""
    wanted = command.expected_generation
    found = 0 if state.generation is None else state.generation.generation
    if wanted not in (None, found):
        raise RejectedError(
            f"--expected-generation: wanted to apply what was planned from generation {wanted} of "
            f"{command.config.job}, found generation {found} in force: the plan would be another one now. Look at "
            "`samzapy job plan` again"
        )


def _refuse_beside(
    running: Collection[ExecutionId], differing: Sequence[Difference], state: CoordinatorState, config: JobConfig
) -> None:
    if not running or not differing:
        return
    hosts = sorted({f"{found.processor_id} on {found.host}" for found in map(state.containers.get, running) if found})
    raise RejectedError(
        f"wanted the configuration under which {config.job} runs (processor {', '.join(hosts)}), found "
        f"{'; '.join(map(str, differing))}. Start with the same settings, or stop all processors of the job first: "
        "the next one that starts brings the new ones"
    )


def _refuse_changed_scopes(config: JobConfig, state: CoordinatorState) -> None:
    """Entries on a changelog are found by key or by task, as the store's scope said when they were written."""
    for store in config.stores:
        recorded = state.config.get(f"stores.{store.name}.scope") or "key"
        if state.grants and changelog_topic(config.job, store.name) in state.own_topics and recorded != store.scope:
            raise ConfigError(
                f"stores.{store.name}.scope: wanted {recorded}, under which the job has kept what is in it, found "
                f"{store.scope}. Its entries would not be found again: give the store a new name, or the job a new "
                "job.id"
            )


def _refuse_forgotten_scopes(config: JobConfig, state: CoordinatorState) -> None:
    """Once nobody remembers it, entries of a task would stay with tasks that a factor has divided, or be looked for by
    key. What is kept by key needs no memory."""
    kept = {store.name for store in config.stores}
    for key, scope in sorted(state.config.items()):
        name = key.removeprefix("stores.").removesuffix(".scope")
        if key != f"stores.{name}.scope" or scope == "key" or name in kept:
            continue
        if state.grants and changelog_topic(config.job, name) in state.own_topics:
            raise ConfigError(
                f"{key}: wanted {scope}, as the job has kept what is in the store, found the store left out. A job "
                f"that has no such store forgets whose its entries are: leave its lines where they are, though "
                "the task uses it no more, or give the job a new job.id"
            )


def _factor_records(config: JobConfig, state: CoordinatorState) -> Iterable[FactorPut]:
    """The configuration's factor, where it sets one, and another than the configuration handed in last did.

    Otherwise it stays as it was recorded: a restart does not undo what the job was scaled to while it ran. It comes
    before the configuration: torn behind it, the difference is still there to be seen.
    """
    wanted = factor_to_be(config, state)
    if wanted != factor_of(state):
        yield FactorPut(factor=wanted)


def _scales_overruled(command: SubmitJob, state: CoordinatorState) -> Iterable[RequestPut]:
    """The scales that are not over and want something else than the configuration sets anew: its word is the newer
    one, and each review of theirs would undo it. They come first: torn behind them, the difference is still there."""
    for request in (state.requests[uuid] for uuid in sorted(state.requests)):
        if request.action != Action.SCALE or request.status_code not in UNFINISHED:
            continue
        wanted = scale_wanted(request)
        for key, asked, found in (
            (FACTOR_KEY, wanted.factor, command.config.elasticity_factor),
            (COUNT_KEY, wanted.containers, command.container_count),
        ):
            if asked not in (None, found) and _is_set_anew(key, command.config, state):
                reason = f"wanted {asked}, found that a changed configuration was handed in since, with {key}={found}"
                yield ended(request, StatusCode.FAILED, reason, command.now_ms)


def _is_set_anew(key: str, config: JobConfig, state: CoordinatorState) -> bool:
    """Whether `config` has a value for `key`, and another one than the configuration that was handed in last."""
    return config.properties.get(key) not in (None, state.config.get(key))


def _count_records(command: SubmitJob, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """How many containers are to be started, as with the factor; none where people start them."""
    known = state.container_count
    if command.container_count is None:
        if known is not None:
            yield tombstone(known)
        return
    if known is None or (_is_set_anew(COUNT_KEY, command.config, state) and known.count != command.container_count):
        yield ContainerCountPut(count=command.container_count)


def _refuse_other_mode(command: SubmitJob, state: CoordinatorState, seen: Sightings) -> None:
    """Who starts the containers stays as it is while a run is on: those of the one kind would disturb the others.

    Containers that people started and that nobody has heard of are none; they are given up
    (`coordinator.launching.launches`).

    Raises:
        RejectedError: says what to do first.
    """
    job = command.config.job
    if command.container_count is None and state.container_count is not None and not is_over(state):
        raise RejectedError(
            f"wanted to run {job} in processes that are started by hand, found that its coordinator starts its "
            f"containers; stop it first (samzapy job stop --job {job}), or let it go on (samzapy job submit)"
        )
    if command.container_count is not None:
        refuse_started_by_people(state, [found for found in seen.last if is_alive(state, found)], job)


def refuse_started_by_people(state: CoordinatorState, running: Collection[ExecutionId], job: str) -> None:
    """Raise RejectedError for a coordinator that would start containers, while those of people run."""
    others = sorted(found for found in running if found not in state.launches)
    if others:
        raise RejectedError(
            f"wanted to start the containers of {job}, found {some(others)} that people started; stop them first "
            "(SIGTERM to their spark-submit, or samzapy job stop)"
        )


def factor_to_be(config: JobConfig, state: CoordinatorState) -> int:
    """The factor that is planned by once `config` is handed in."""
    return config.elasticity_factor if _is_set_anew(FACTOR_KEY, config, state) else factor_of(state)


def _config_records(command: SubmitJob, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    wanted = recorded_properties(command.config)
    for key, value in wanted.items():
        if state.config.get(key) != value:
            yield ConfigPut(config_key=key, value=value)
    for key in sorted(state.config.keys() - wanted.keys()):
        yield tombstone(ConfigPut(config_key=key, value=""))


def _input_records(command: SubmitJob, state: CoordinatorState) -> Iterable[CoordinatorRecord]:
    """An input that is read no more stays: should it come back, its positions must still be those of its topic."""
    read = _streams_read(state)
    for found in sorted(command.inputs, key=lambda item: item.system_stream):
        known = state.inputs.get(found.system_stream)
        if known is None:
            yield _input_begun(found, command, state)
            continue
        if known.topic_id != found.topic_id:
            if not may_depart(command.config, found.system_stream):
                refuse([made_again(f"input {found.system_stream}", known.topic_id, found.topic_id)])
            if state.generation is None:
                yield replace(_input_begun(found, command, state), epoch_before=state.epoch)
            continue  # It goes, and comes anew, as looks at the topics find it.
        wanted = replace(without_refusals(known), gone_at_ms=0, gone_refused="")
        # What was added to one that is read comes with the next look at the topics, and in its turn.
        if found.system_stream not in read or found.partition_count < known.partition_count:
            wanted = replace(known, partition_count=found.partition_count, expansions=())
        if known != wanted:
            yield wanted


def _streams_read(state: CoordinatorState) -> frozenset[SystemStream]:
    """The streams of which something was read that counts still: their partitions have an order to keep."""
    if state.run is not None and state.run.ended and config_of(state).is_bounded_job:
        return frozenset()  # The next run begins with nothing that earlier ones left.
    return frozenset(start.ssp_kb.ssp.system_stream for grant in state.grants.values() for start in grant.starts)


def _input_begun(found: InputFound, command: SubmitJob, state: CoordinatorState) -> InputPut:
    """One that is new. If its topic came after the job, and a pattern stands for it, it is read from its beginning."""
    before = () if state.generation is None else config_of(state).input_patterns
    is_late = before == command.config.input_patterns and is_match(command.config, found.system_stream)
    return InputPut(
        system_stream=found.system_stream,
        partition_count=found.partition_count,
        partition_count_first=0 if is_late else found.partition_count,
        topic_id=found.topic_id,
    )


def _own_topic_records(
    own_topics: tuple[OwnTopicFound, ...], job: str, state: CoordinatorState
) -> Iterable[CoordinatorRecord]:
    single = (coordinator_topic(job), checkpoint_topic(job), placement_topic(job))
    for found in sorted(own_topics, key=lambda item: item.name):
        known = state.own_topics.get(found.name)
        if known is not None and known.topic_id != found.topic_id:
            refuse([made_again(f"topic {found.name}", known.topic_id, found.topic_id)])
        if found.name in single and found.partition_count != 1:
            if known is not None:
                continue  # Added while the job runs: shown, and what is recorded stays (`topic_checks`).
            raise TopicPolicyError(
                f"{found.name}: wanted 1 partition, found {found.partition_count}; records that belong together "
                "would be read out of order. Kafka takes no partition away: give the job a new job.id"
            )
        wanted = OwnTopicPut(name=found.name, topic_id=found.topic_id, partition_count=found.partition_count)
        if known != wanted:
            yield wanted
