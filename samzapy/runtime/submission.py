"""Makes the submission of a job, and checks it against the stream.

Both happen before Spark or a coordinator is started.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.config import IntermediateStream, JobConfig
from samzapy.coordinator.assignment.liveness import LIVING, Liveness
from samzapy.coordinator.commands import InputFound, OwnTopicFound, SubmitJob
from samzapy.coordinator.lifecycle.submission import check_joinable, check_readable, refuse_unexpected, submit_job
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import CoordinatorState, evolve, uncommitted
from samzapy.errors import RejectedError
from samzapy.model.container import Container, coordinator_transactional_id
from samzapy.model.credential import CREDENTIAL_VARIABLE
from samzapy.model.job import ProcessorId
from samzapy.model.ssp import SystemStream
from samzapy.model.topic_checks import TopicFound
from samzapy.model.topics import (
    TopicSpec,
    changelog_spec,
    checkpoint_spec,
    coordinator_spec,
    coordinator_topic,
    intermediate_spec,
    placement_spec,
)
from samzapy.plan.groupers import Groupers
from samzapy.plan.input_patterns import refuse_unmatched, resolve_inputs
from samzapy.plan.intermediates import partition_count_to_be
from samzapy.runtime.coordinator_access import command_access
from samzapy.runtime.leader_status import reported_containers
from samzapy.runtime.this_host import Here, HostProcesses


def submission_of(
    config: JobConfig, admin: KafkaAdmin, actor: str, groupers: Groupers, state: CoordinatorState | None = None
) -> SubmitJob:
    """Check inputs, create or check internal topics, and describe the job.

    A process that starts fails with a named error if a topic is wrong, and makes no change that cannot be undone. A new
    leader may take over a running job, which continues despite problems that a leader only reports: topics recorded on
    the stream are taken as they are, and a topic that no broker knows is left out.

    Args:
        actor: the submitter, for the audit.
        state: the state on the coordinator stream, for a new leader; None at the start of a process. Only a leader adds
            the partitions that the configuration wants for intermediate streams.

    Raises:
        ConfigError, DataError: the job cannot run.
    """
    if config.input_patterns:
        config = resolve_inputs(config, admin.topic_names())
        if state is None and not admin.find([coordinator_topic(config.job)]):
            refuse_unmatched(config)  # Before topics are created for a job that cannot run.
    streams = [SystemStream.parse(name) for name in config.streams_read]
    outputs = [] if config.dead_letter_output is None else [SystemStream.parse(config.dead_letter_output)]
    own = {stream.topic: stream for stream in config.intermediates}
    named = [stream for stream in (*streams, *outputs) if stream.stream not in own]
    described = _described(named, admin, state)
    replicas = config.replication_factor
    topics = {name: _intermediate_topic(own[name], admin, replicas, state) for name in sorted(own)}
    intermediate = {name: topic for name, topic in topics.items() if topic is not None}
    described |= intermediate
    inputs = _inputs(streams, described)
    specs = _own_specs(config, inputs, state)
    made = [topic for spec in specs if (topic := _own_topic(spec, admin, state)) is not None]
    return SubmitJob(
        config=config,
        inputs=inputs,
        own_topics=tuple(
            OwnTopicFound(name=topic.name, topic_id=topic.topic_id, partition_count=topic.partition_count)
            for topic in (*made, *intermediate.values())
        ),
        cause=f"submit-{uuid.uuid4().hex}",
        actor=actor,
        groupers=groupers,
    )


def _inputs(streams: Sequence[SystemStream], described: Mapping[str, TopicFound]) -> tuple[InputFound, ...]:
    """The inputs whose topics exist."""
    topics = ((stream, described[stream.stream]) for stream in streams if stream.stream in described)
    return tuple(
        InputFound(system_stream=stream, partition_count=topic.partition_count, topic_id=topic.topic_id)
        for stream, topic in topics
    )


def _own_specs(
    config: JobConfig, inputs: Sequence[InputFound], state: CoordinatorState | None
) -> Sequence[TopicSpec]:
    """The internal topics: coordinator, checkpoint, placement and changelogs."""
    replicas = config.replication_factor
    known = {} if state is None else {stream: record.partition_count for stream, record in state.inputs.items()}
    counts = known | {item.system_stream: item.partition_count for item in inputs}
    # Broadcast inputs make no tasks.
    changelog_partitions = max(1, sum(counts[SystemStream.parse(name)] for name in config.streams_divided))
    return (
        coordinator_spec(config.job, replicas),
        checkpoint_spec(config.job, replicas),
        placement_spec(config.job, replicas),
        *(
            changelog_spec(config.job, store.name, changelog_partitions, store.replication_factor or replicas)
            for store in config.stores
        ),
    )


def _described(
    streams: Sequence[SystemStream], admin: KafkaAdmin, state: CoordinatorState | None
) -> dict[str, TopicFound]:
    """The topics of `streams`.

    A leader leaves out topics that the job has read before and that are missing.
    """
    if state is None:
        return admin.describe(stream.stream for stream in streams)
    known = admin.find(stream.stream for stream in streams if stream in state.inputs)
    return known | admin.describe(stream.stream for stream in streams if stream not in state.inputs)


def _own_topic(spec: TopicSpec, admin: KafkaAdmin, state: CoordinatorState | None) -> TopicFound | None:
    """Create or check an internal topic; None if a recorded topic is missing."""
    if state is None or spec.name not in state.own_topics:
        return admin.ensure_topic(spec)
    return admin.grown_topic(spec)


def _intermediate_topic(
    stream: IntermediateStream, admin: KafkaAdmin, replicas: int | None, state: CoordinatorState | None
) -> TopicFound | None:
    there = admin.find([stream.topic]).get(stream.topic)
    count = partition_count_to_be(stream, None if there is None else there.partition_count)
    if there is not None and state is None:
        count = there.partition_count
    return _own_topic(replace(intermediate_spec(stream, replicas), partition_count=count), admin, state)


def read_state(config: JobConfig, connection: KafkaConnection) -> CoordinatorState:
    """Read the current state of the job from the coordinator stream.

    Raises:
        ConfigError, DataError: the stream cannot be read, or is another job's.
    """
    log = KafkaLog(connection, coordinator_topic(config.job), coordinator_transactional_id(config.job))
    try:
        state = replay(log.read(), topic=coordinator_topic(config.job)).state
    finally:
        log.close()
    check_readable(state, config.job_name, config.job_id)
    return state


def check_submission_allowed(
    state: CoordinatorState, submission: SubmitJob, running: Sequence[Container]
) -> CoordinatorState:
    """Raise the errors of the coordinator before Spark is started.

    A hint only: the coordinator decides on its own reading.

    Returns:
        The state after the submission; for a new job it has no plan.

    Raises:
        RejectedError: the job runs under another configuration, or under another plan than the expected one.
        ConfigError, DataError: the stream does not allow the submission.
    """
    check_joinable(state, submission.config, running=[container.execution_id for container in running])
    refuse_unexpected(submission, state)
    return evolve(state, uncommitted(submit_job(submission, state, Liveness())))


def refuse_second(config: JobConfig, running: Sequence[Container], here: Here, processor_id: ProcessorId) -> None:
    """Raise RejectedError while another process runs as this processor.

    Two processes that start at the same moment may both pass. That is safe: the coordinator gives the tasks to one of
    them, and the other one waits without any until that one is gone.
    """
    for container in running:
        if container.processor_id == processor_id:
            raise RejectedError(
                f"processor {processor_id} of job {config.job} runs already on "
                f"{'this host' if container.boot_id == here.boot_id else container.host}, as process {container.pid}; "
                "stop that one first, or give this one a processor.id of its own"
            )


def running_containers(config: JobConfig, state: CoordinatorState, here: Here) -> Sequence[Container]:
    """The containers that are known to run.

    They run on this host, or the leader had their heartbeat within a lease.
    """
    processes = HostProcesses(here.boot_id)
    living = [container for container in state.containers_sorted if container.phase in LIVING]
    alive = {
        container.execution_id: processes.is_alive(container.boot_id, container.pid, container.process_started_ms)
        for container in living
    }
    elsewhere = {execution_id for execution_id, is_alive in alive.items() if is_alive is None}
    reported = _reported_to_leader(config, state) if elsewhere else frozenset()
    return [
        container
        for container in living
        if alive[container.execution_id] or container.execution_id in elsewhere & reported
    ]


def _reported_to_leader(config: JobConfig, state: CoordinatorState) -> frozenset[object]:
    """The executions whose heartbeat the leader had within a lease.

    Empty if there is no leader. A container that a coordinator started may not ask for the status, and is expected.
    """
    if CREDENTIAL_VARIABLE in os.environ:
        return frozenset()
    rows = reported_containers(config.job, state, command_access(config, os.environ))
    ages = {name: row.get("heartbeatAgeMs") for name, row in rows.items()}
    return frozenset(name for name, age in ages.items() if isinstance(age, int) and age <= config.lease_ms)
