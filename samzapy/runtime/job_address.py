"""The cluster and the name of a job, and the records of its coordinator stream."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import beginning_offsets, read_to_end
from samzapy.errors import ConfigError, MissingTopicError, RejectedError
from samzapy.model.topics import coordinator_topic
from samzapy.runtime.job_config import read_config
from samzapy.stream.log import LogRecord

READ_WAIT_S = 15.0
"""Longer than a coordinator's transaction may stay open after it died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAddress:
    """`job` is `<job.name>-<job.id>`."""

    job: str
    connection: KafkaConnection


def address_of(
    config_file: Path | None, overrides: Sequence[str], job: str | None, bootstrap_servers: str | None
) -> JobAddress:
    """The job that the options name.

    Raises:
        ConfigError: neither a properties file nor both name and address are given, or the file is wrong.
    """
    if config_file is not None:
        config = read_config(config_file, config_file, overrides, os.environ)
        return JobAddress(job=job or config.job, connection=KafkaConnection.of(config, bootstrap_servers))
    if job is None or bootstrap_servers is None:
        raise ConfigError(
            "wanted --config FILE, or --job NAME-ID with --bootstrap-servers HOST:PORT; found neither in full"
        )
    return JobAddress(job=job, connection=KafkaConnection(bootstrap_servers=bootstrap_servers))


def coordinator_records(address: JobAddress) -> Iterator[LogRecord]:
    """The records of the coordinator stream.

    Raises:
        RejectedError: there is no such job.
        DeadlineError: a transaction hides its end.
    """
    topic = coordinator_topic(address.job)
    try:
        first = beginning_offsets(address.connection, [(topic, 0)])[topic, 0]
    except MissingTopicError as error:
        raise no_such_job(address.job) from error
    return iter(read_to_end(address.connection, topic, 0, first, deadline_s=READ_WAIT_S))


def no_such_job(job: str) -> RejectedError:
    """The error of a command about a job that has no coordinator stream."""
    return RejectedError(
        f"wanted the job {job}, found no topic {coordinator_topic(job)}; is it NAME-ID (job.name and job.id), and the "
        "right cluster?"
    )


def never_ran(job: str) -> RejectedError:
    """The error of a command about a job whose coordinator stream tells of no run."""
    return RejectedError(
        f"wanted a run of the job {job}, found none on {coordinator_topic(job)}: it never ran, or what stood there was "
        "deleted; `samzapy doctor` tells which"
    )
