"""The cluster and the name of a job, and the records of its coordinator stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import beginning_offsets, read_to_end
from samzapy.adapters.web.access import Access
from samzapy.config import JobConfig
from samzapy.errors import ConfigError, MissingTopicError, RejectedError
from samzapy.model.topics import coordinator_topic
from samzapy.runtime.coordinator_access import command_access, signing_credential
from samzapy.runtime.job_config import config_of_options
from samzapy.stream.log import LogRecord

READ_WAIT_S = 15.0
"""Longer than a coordinator's transaction may stay open after it died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAddress:
    """A job and its cluster.

    Attributes:
        job: `<job.name>-<job.id>`.
        access: for the leader's HTTP port.
        signing: the credential that requests are signed with; None: they are not signed.
        properties: the file that it was read from, if there is one.
    """

    job: str
    connection: KafkaConnection
    access: Access = field(default_factory=Access, repr=False)
    signing: Callable[[], str | None] = field(default=lambda: None, repr=False)
    properties: Path | None = None


def address_of(
    config_file: Path | None, overrides: Sequence[str], job: str | None, bootstrap_servers: str | None
) -> JobAddress:
    """The job that the options name.

    Raises:
        ConfigError: neither a properties file nor both name and address are given, or a value is wrong.
    """
    config = _config_of(config_file, overrides, bootstrap_servers)
    if config is None or (job is None and config_file is None):
        raise ConfigError(
            "wanted --config FILE, or --job NAME-ID with --bootstrap-servers HOST:PORT; found neither in full. A "
            "profile names them once for all commands (samzapy profile set)"
        )
    if job is not None:
        # Credentials are derived for a name.
        job_name, _, job_id = job.rpartition("-")
        config = replace(config, job_name=job_name, job_id=job_id)
    return JobAddress(
        job=job or config.job,
        connection=KafkaConnection.of(config, bootstrap_servers),
        access=command_access(config, os.environ),
        signing=partial(signing_credential, config, os.environ),
        properties=config_file,
    )


def connection_of(
    config_file: Path | None, overrides: Sequence[str], bootstrap_servers: str | None
) -> KafkaConnection:
    """The cluster that the options name.

    Raises:
        ConfigError: neither a properties file nor an address is given, or a value is wrong.
    """
    config = _config_of(config_file, overrides, bootstrap_servers)
    if config is None:
        raise ConfigError("wanted --bootstrap-servers HOST:PORT, or --config FILE; found neither")
    return KafkaConnection.of(config, bootstrap_servers)


def _config_of(config_file: Path | None, overrides: Sequence[str], bootstrap_servers: str | None) -> JobConfig | None:
    """The configuration with the cluster's address and settings; None without address."""
    config = config_of_options(config_file, overrides, os.environ)
    servers = config.properties.get(f"systems.{config.default_system}.bootstrap.servers")
    return config if config_file is not None or bootstrap_servers or servers else None


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
