"""Checks whether equal keys of a job's inputs meet in one task.

A job that keeps state by key needs that. `samzapy job plan` and `samzapy doctor` take the time they need. A start looks
at fewer records, which takes a fraction of a second. It goes on where no record comes for START_QUIET_S, or after
START_WAIT_S, and logs that it has not seen all.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.key_sample import SAMPLE_WAIT_S, sample_keys
from samzapy.config import JobConfig
from samzapy.coordinator.assignment.replanning import plan_of
from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.state import CoordinatorState, job_model
from samzapy.errors import DeadlineError, MissingTopicError, PartitionerError, TemporaryError
from samzapy.model.container import Container
from samzapy.model.job import JobModel, ProcessorId
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.plan.input_keys import NOTHING_SEEN, InputKeys, look_at_keys, refusal_of, warnings_of

_LOG = logging.getLogger(__name__)
START_QUIET_S: Final = 5.0
"""On a machine with much other work the first record takes more than two seconds."""

START_WAIT_S: Final = 20.0
_START_RECORDS_MAX: Final = 20_000
_START_PARTITIONS_MAX: Final = 200
_START_RECORDS_EACH: Final = 500


def keeps_keys(config: JobConfig) -> bool:
    """Whether the job has a store whose entries belong to keys."""
    return any(store.scope == "key" for store in config.stores)


def divided_ssps(plan: JobModel) -> frozenset[SystemStreamPartition]:
    """The partitions that are divided among the tasks."""
    return frozenset(ssp_kb.ssp for task in plan.tasks for ssp_kb in task.ssp_kbs)


def warn_of_bootstrap(config: JobConfig) -> None:
    """Log the bootstrap inputs that a new job would begin at their ends."""
    for stream in config.streams_read:
        if config.is_bootstrap(stream) and config.offset_default(stream) == "upcoming":
            system, _, name = stream.partition(".")
            _LOG.warning(
                "%s: it is a bootstrap input, and samza.offset.default=upcoming: what is in it when the job is new is "
                "never read. Set systems.%s.streams.%s.samza.offset.default=oldest to read it from its beginning",
                stream,
                system,
                name,
            )


def look_at_inputs(
    config: JobConfig,
    plan: JobModel,
    connection: KafkaConnection,
    ssps: Collection[SystemStreamPartition],
    *,
    count_max: int,
    wait_s: float,
    quiet_s: float = SAMPLE_WAIT_S,
) -> tuple[InputKeys, bool]:
    """Examine sampled keys of `ssps`.

    Also returns whether the whole sample was read in time.

    Args:
        ssps: existing partitions of `plan`.
        count_max: the number of last records of each partition.
        wait_s, quiet_s: as of `sample_keys`.

    Raises:
        As `sample_keys`.
    """
    keys_of, is_whole = sample_keys(connection, ssps, count_max, wait_s, quiet_s)
    own = {SystemStream.parse(stream.system_stream) for stream in config.intermediates}
    return look_at_keys(keys_of, plan, own), is_whole


def check_inputs(
    wanted: SubmitJob, after: CoordinatorState, connection: KafkaConnection, running: Sequence[Container]
) -> None:
    """Check the inputs of a job that keeps state by key, before it starts.

    A process that joins a running job is not refused: that would only reduce the number of working processes.

    Args:
        after: the state of the coordinator stream after the submission.

    Raises:
        PartitionerError: under task.partitioner.check=fail the inputs of one task differ in their partitioners.
    """
    config = wanted.config
    warn_of_bootstrap(config)
    if config.partitioner_check == "off" or not keeps_keys(config):
        return
    refuse_or_warn(config, _look_at_start(wanted, after, connection), is_refusable=not running)


def refuse_or_warn(config: JobConfig, keys: InputKeys, *, is_refusable: bool = True) -> None:
    """Raise PartitionerError as `check_inputs` does, otherwise log warnings."""
    refusal = refusal_of(keys)
    if refusal and is_refusable and config.partitioner_check == "fail":
        raise PartitionerError(refusal)
    for text in (*((refusal,) if refusal else ()), *warnings_of(keys)):
        _LOG.warning("%s", text)


def _look_at_start(wanted: SubmitJob, after: CoordinatorState, connection: KafkaConnection) -> InputKeys:
    plan = job_model(after) or plan_of(after, (ProcessorId(wanted.config.processor_id or "0"),), wanted.groupers)
    there = {item.system_stream: item.partition_count for item in wanted.inputs}
    ssps = _spread_over({ssp for ssp in divided_ssps(plan) if ssp.partition < there.get(ssp.system_stream, 0)})
    if not ssps:
        return look_at_keys({}, plan)
    each = min(_START_RECORDS_EACH, _START_RECORDS_MAX // len(ssps))
    try:
        keys, is_whole = look_at_inputs(
            wanted.config,
            plan,
            connection,
            ssps,
            count_max=each,
            wait_s=START_WAIT_S,
            quiet_s=START_QUIET_S,
        )
    except (TemporaryError, DeadlineError, MissingTopicError) as error:
        _LOG.warning("the keys of the inputs were not looked at: %s", error)
        return NOTHING_SEEN
    if not is_whole:
        _LOG.warning(
            "the keys of the inputs were looked at in part only: no record came for %g s, or all took more than %g s; "
            "samzapy job plan takes its time for it",
            START_QUIET_S,
            START_WAIT_S,
        )
    return keys


def _spread_over(ssps: Collection[SystemStreamPartition]) -> Collection[SystemStreamPartition]:
    """A limited number of partitions, equally many of each stream.

    The first partitions of each are taken, so that equal keys of two streams can be compared.
    """
    of_stream: dict[SystemStream, list[SystemStreamPartition]] = {}
    for ssp in sorted(ssps):
        of_stream.setdefault(ssp.system_stream, []).append(ssp)
    each = max(1, _START_PARTITIONS_MAX // max(1, len(of_stream)))
    return [ssp for stream in list(of_stream.values())[:_START_PARTITIONS_MAX] for ssp in stream[:each]]
