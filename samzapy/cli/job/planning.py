"""Make the plan that a submission would make: the work of `samzapy job plan`.

Read-only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.key_sample import SAMPLE_WAIT_S
from samzapy.cli.job.plan_table import print_change
from samzapy.cli.output.option import is_json, print_json
from samzapy.cli.target.address import Target, connection_to_read
from samzapy.cli.target.requests import recorded_state
from samzapy.config import FACTOR_KEY, JobConfig, is_id
from samzapy.coordinator.assignment.replanning import recorded_facts
from samzapy.coordinator.lifecycle.submission import (
    check_readable,
    factor_to_be,
    inputs_to_read,
    partition_count_now,
    stores_after,
)
from samzapy.coordinator.state import CoordinatorState, job_model, locality_of
from samzapy.errors import ConfigError, PartitionerError
from samzapy.model.container import Locality
from samzapy.model.job import JobModel, ProcessorId
from samzapy.model.location import LocationId
from samzapy.model.ssp import SystemStream
from samzapy.model.strict_json import parse_json
from samzapy.model.topics import changelog_topic, coordinator_topic
from samzapy.plan.input_keys import InputKeys, look_at_keys, refusal_of
from samzapy.plan.input_patterns import refuse_unmatched, resolve_inputs
from samzapy.plan.intermediates import partition_count_to_be, refuse_fewer_partitions
from samzapy.plan.job_model_json import job_model_of_json
from samzapy.plan.job_plan import NOTHING_RECORDED, PARTITIONS_MAX, Recorded, plan_job
from samzapy.plan.plan_change import (
    PlanChange,
    TopicToBe,
    new_partitions,
    plan_change_json,
)
from samzapy.plan.store_changes import StoreChange, refusals
from samzapy.runtime.input_keys import divided_ssps, keeps_keys, look_at_inputs, warn_of_bootstrap
from samzapy.runtime.job_address import JobAddress
from samzapy.runtime.job_config import load_config, log_files_read
from samzapy.runtime.job_groupers import load_groupers
from samzapy.runtime.planned_changes import change_with_sizes

_COUNT = re.compile(r"0*[1-9][0-9]{0,5}")

_PLAN_BYTES_MAX: Final = 64 * 1024 * 1024
_REASON_SHOWN_MAX: Final = 300


def show_plan(
    target: Target,
    job_file: Path | None,
    *,
    partitions: str | None,
    processors: str | None,
    previous_file: Path | None,
    sample_count: int,
    timeout_s: float,
    output: str,
) -> None:
    """Make the plan that a submission would make now, and print it.

    Args:
        partitions: `STREAM=N,...`; None asks the cluster.
        processors: `ID@HOST,...`; None plans for the current ones.
        previous_file: has the plan in force; None takes the recorded one.
        sample_count: how many records of each partition are read for their keys.
        timeout_s: how long the command waits for a broker.

    Raises:
        PartitionerError: keys of the sample reach several tasks, and the job refuses that.
        ConfigError: the configuration, an option or a file is wrong, or a store would be refused.
    """
    config_file, overrides = target.file(), target.overrides
    config = load_config(config_file, job_file, overrides, os.environ)
    log_files_read(job_file, config_file)
    config, known = _offline(config, partitions) if partitions is not None else _by_cluster(config, timeout_s)
    warn_of_bootstrap(config)
    if previous_file is not None:
        known = with_previous(known, _read_plan(previous_file), config)
    planned, locality = _planned(config, known, processors, (job_file or config_file).absolute().parent)
    change = _change(config, known, planned, locality, sample_count)
    _show(config.job, change, output)
    refusal = refusal_of(change.keys)
    if refusal and config.partitioner_check == "fail":
        raise PartitionerError(refusal)
    refused = refusals(change.stores)
    if refused:
        raise ConfigError("\n".join(refused))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The inputs of a plan.

    Without a cluster, `connection` is None and nothing is recorded.
    """

    partition_counts: Mapping[SystemStream, int]
    previous: JobModel | None
    locality: Locality
    connection: KafkaConnection | None
    recorded: Recorded = NOTHING_RECORDED
    factor: int | None = None
    topics: tuple[TopicToBe, ...] = ()
    stores: tuple[StoreChange, ...] = ()


def _planned(
    config: JobConfig, known: Known, processors: str | None, groupers_directory: Path
) -> tuple[JobModel, Locality]:
    """The plan that a submission would make, and the hosts that it was made with."""
    processor_ids, hosts = _processors(processors, known, config)
    locality = Locality(processors={**known.locality.processors, **hosts}, tasks=known.locality.tasks)
    planned = plan_job(
        config,
        known.partition_counts,
        known.previous,
        processor_ids,
        recorded=known.recorded,
        locality=locality,
        groupers=load_groupers(config, groupers_directory),
        factor=known.factor if known.factor is not None else config.elasticity_factor,
    )
    return planned, locality


def _change(config: JobConfig, known: Known, planned: JobModel, locality: Locality, sample_count: int) -> PlanChange:
    """The difference to the plan in force.

    It has sizes, topics, new partitions and a sample of the keys.
    """
    change = change_with_sizes(known.previous, planned, locality, config, known.connection)
    topics = tuple(topic for topic in known.topics if topic.is_change)
    change = replace(change, topics=topics, stores=known.stores)
    if not config.is_bounded_job:  # The next run of a bounded job starts again, with all partitions that there are.
        change = replace(change, waiting=new_partitions(known.previous, planned))
    if not keeps_keys(config):
        return change
    if known.connection is None or not sample_count:
        return replace(change, keys=look_at_keys({}, planned))
    return replace(change, keys=_input_keys(config, known, known.connection, planned, sample_count))


def _show(job: str, change: PlanChange, output: str) -> None:
    if is_json(output):
        print_json(plan_change_json(job, change), output)
        return
    print_change(job, change)
    click.echo(
        f"to apply it only while it is this one: --expected-generation {change.generation_from} "
        "(samzapy job submit, samzapy run)"
    )


def _offline(config: JobConfig, partitions: str) -> tuple[JobConfig, Known]:
    config, counts = _partition_counts(config, partitions)
    return config, Known(partition_counts=counts, previous=None, locality=Locality(), connection=None)


def _by_cluster(config: JobConfig, timeout_s: float) -> tuple[JobConfig, Known]:
    connection = connection_to_read(KafkaConnection.of(config), timeout_s)
    admin = KafkaAdmin(connection)
    admin.check_reachable()
    if config.input_patterns:
        config = resolve_inputs(config, admin.topic_names())
    # Without the intermediate streams, which samzapy creates itself and which may not exist yet.
    inputs = [SystemStream.parse(name) for name in config.streams_read if config.intermediate_of(name) is None]
    described = admin.describe(stream.stream for stream in inputs)
    topics = {stream: described[stream.stream] for stream in inputs}
    changes = _intermediate_topics(config, admin)
    state = _recorded(config, connection, admin)
    refuse_fewer_partitions(config.intermediates, state.config)
    config = inputs_to_read(config, {stream: topic.topic_id for stream, topic in topics.items()}, state)
    counts = {
        stream: partition_count_now(topic.partition_count, topic.topic_id, state.inputs.get(stream))
        for stream, topic in topics.items()
    }
    recorded = {stream: state.inputs[stream].partition_count for stream in state.inputs}
    to_be = {SystemStream.parse(text): change.partition_count for text, change in changes.items()}
    return config, Known(
        partition_counts={**recorded, **counts, **to_be},
        topics=tuple(changes[text] for text in sorted(changes)),
        previous=job_model(state),
        locality=locality_of(state),
        connection=connection,
        recorded=recorded_facts(state),
        factor=factor_to_be(config, state),
        stores=tuple(stores_after(config, state, _gone(config, state, admin))),
    )


def _intermediate_topics(config: JobConfig, admin: KafkaAdmin) -> Mapping[str, TopicToBe]:
    """The wanted topics of the intermediate streams, by `system.stream`."""
    topics = admin.find(stream.topic for stream in config.intermediates)
    there = {name: topic.partition_count for name, topic in topics.items()}
    return {
        stream.system_stream: TopicToBe(
            topic=stream.topic,
            partition_count=partition_count_to_be(stream, there.get(stream.topic)),
            partition_count_before=there.get(stream.topic, 0),
        )
        for stream in config.intermediates
    }


def _gone(config: JobConfig, state: CoordinatorState, admin: KafkaAdmin) -> Collection[str]:
    """The recorded changelogs of the job's stores that were deleted."""
    names = {changelog_topic(config.job, store.name) for store in config.stores} & state.own_topics.keys()
    there = admin.find(names)
    return {name for name in names if name not in there or there[name].topic_id != state.own_topics[name].topic_id}


def _recorded(config: JobConfig, connection: KafkaConnection, admin: KafkaAdmin) -> CoordinatorState:
    """The state on the coordinator stream; an empty state for a job that never ran."""
    if not admin.find([coordinator_topic(config.job)]):
        return CoordinatorState()
    state = recorded_state(JobAddress(job=config.job, connection=connection))
    check_readable(state, config.job_name, config.job_id)
    return state


def with_previous(known: Known, previous: JobModel, config: JobConfig) -> Known:
    """Replace the recorded plan by one from a file, with the hosts that it has.

    All other records still count, so reasons to refuse a submission are refused here too. Without a recorded plan, the
    factor is that of the file, as a scaled job keeps its factor, unless the configuration sets another one.
    """
    located = [container for container in previous.containers if container.location_id is not None]
    return replace(
        known,
        previous=previous,
        locality=Locality(
            processors={container.processor_id: str(container.location_id) for container in located},
            tasks={task.name: str(container.location_id) for container in located for task in container.tasks},
        ),
        # A plan from a file may keep state, also if no store is recorded.
        recorded=replace(known.recorded, keeps_state=known.recorded.keeps_state or None),
        factor=known.factor if known.previous is not None else _factor_after(previous, config),
    )


def _factor_after(previous: JobModel, config: JobConfig) -> int:
    if config.properties.get(FACTOR_KEY) not in (None, previous.config.get(FACTOR_KEY)):
        return config.elasticity_factor
    return max((ssp_kb.factor for task in previous.tasks for ssp_kb in task.ssp_kbs), default=1)


def _partition_counts(config: JobConfig, text: str) -> tuple[JobConfig, Mapping[SystemStream, int]]:
    """The given partition counts, checked; patterns match against the given streams."""
    counts: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, count = item.rpartition("=")
        if not equals or not (_COUNT.fullmatch(count) and int(count) <= PARTITIONS_MAX):
            raise ConfigError(
                f"--partitions: wanted STREAM=N with N from 1 to {PARTITIONS_MAX} (kafka.orders=4), found {item!r}"
            )
        stream = config.qualified(name)
        if stream in counts:
            raise ConfigError(f"--partitions: wanted {stream} once, found it twice")
        counts[stream] = int(count)
    config = resolve_inputs(config, [stream.partition(".")[2] for stream in counts])
    refuse_unmatched(config)
    for stream in counts:
        if stream not in config.streams_read:
            raise ConfigError(
                f"--partitions: wanted inputs of the job ({', '.join(config.streams_read)}), found {stream}; "
                "correct the name, or add it to task.inputs"
            )
    # The intermediate streams, which samzapy creates itself, have the counts of the configuration.
    counts = {stream.system_stream: stream.partition_count for stream in config.intermediates} | counts
    missing = [name for name in config.streams_read if name not in counts]
    if missing:
        raise ConfigError(
            f"--partitions: wanted a count for each input, found none for {', '.join(missing)}; "
            f"add {missing[0]}=N, or leave --partitions out to ask the cluster"
        )
    return config, {SystemStream.parse(name): count for name, count in counts.items()}


def _processors(
    text: str | None, known: Known, config: JobConfig
) -> tuple[Sequence[ProcessorId], Mapping[ProcessorId, str]]:
    """The processors to plan for, and the hosts that were given with them."""
    if text is None:
        before = () if known.previous is None else known.previous.containers
        return [one.processor_id for one in before] or [ProcessorId(config.processor_id or "0")], {}
    hosts: dict[ProcessorId, str | None] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        processor_id, host = _processor_named(item, hosts)
        hosts[processor_id] = host or None
    if not hosts:
        raise ConfigError("--processors: wanted at least one (0@host-a,1@host-b), found none")
    return list(hosts), {one: host for one, host in hosts.items() if host is not None}


def _processor_named(item: str, before: Collection[ProcessorId]) -> tuple[ProcessorId, str]:
    """The processor and the host of `ID@HOST`; the host is empty for `ID`."""
    name, at, host = item.partition("@")
    if not name or (at and not host) or name in before:
        raise ConfigError(
            f"--processors: wanted each processor once, as ID or ID@HOST (0@host-a,1@host-b), found {item!r}"
        )
    if not is_id(name):
        raise ConfigError(
            f"--processors: wanted an id as processor.id has it, of letters, digits and underscores, found {name!r}"
        )
    if host and not _is_host(host):
        raise ConfigError(
            f"--processors: wanted a host's name of ASCII letters, digits and signs without blanks or @ behind the "
            f"@, found {host!r}"
        )
    return ProcessorId(name), host


def _is_host(text: str) -> bool:
    try:
        LocationId(text)
    except ValueError:
        return False
    # Two at signs are a mistake, not a host.
    return "@" not in text


def _input_keys(
    config: JobConfig, known: Known, connection: KafkaConnection, planned: JobModel, sample_count: int
) -> InputKeys:
    there = {topic.topic: topic.partition_count_before for topic in known.topics}
    ssps = {ssp for ssp in divided_ssps(planned) if ssp.partition < there.get(ssp.stream, ssp.partition + 1)}
    keys, is_whole = look_at_inputs(config, planned, connection, ssps, count_max=sample_count, wait_s=SAMPLE_WAIT_S)
    if not is_whole:
        click.echo("samzapy: not all of the sample could be read in time; --sample N takes fewer records", err=True)
    return keys


def _read_plan(path: Path) -> JobModel:
    try:
        with path.open("rb") as file:
            raw = file.read(_PLAN_BYTES_MAX + 1)
        if len(raw) > _PLAN_BYTES_MAX:
            raise ValueError(f"more than {_PLAN_BYTES_MAX} bytes")
        fields: object = parse_json(raw)
        if isinstance(fields, dict):
            fields = fields.get("jobModel", fields)
        return job_model_of_json(fields)
    except OSError as error:
        raise ConfigError(f"--previous: wanted a plan in {path}, found {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(
            f"--previous: wanted the JSON of `samzapy job plan -o json` or of GET /jobModel in {path}, found: "
            f"{str(error)[:_REASON_SHOWN_MAX]}"
        ) from error
