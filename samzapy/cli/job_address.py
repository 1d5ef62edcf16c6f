"""Which job on which cluster a command is about: named by its properties file, or by name and address."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.run_job import read_config
from samzapy.errors import ConfigError


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
        connection = KafkaConnection(
            bootstrap_servers=bootstrap_servers or config.bootstrap_servers(config.default_system),
            properties=config.client_properties(config.default_system),
        )
        return JobAddress(job=job or config.job, connection=connection)
    if job is None or bootstrap_servers is None:
        raise ConfigError(
            "wanted --config FILE, or --job NAME-ID with --bootstrap-servers HOST:PORT; found neither in full"
        )
    return JobAddress(job=job, connection=KafkaConnection(bootstrap_servers=bootstrap_servers))


def of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a job, and hand it the `address` they stand for."""

    @click.option("--config", "config_file", type=click.Path(path_type=Path), help="The job's properties file.")
    @click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one config key; may be repeated."
    )
    @click.option("--job", "job", metavar="NAME-ID", help="The job, where there is no properties file.")
    @click.option("--bootstrap-servers", metavar="HOST:PORT", help="The cluster, where there is no properties file.")
    @wraps(command)
    def addressed(
        *args: Any,
        config_file: Path | None,
        overrides: Sequence[str],
        job: str | None,
        bootstrap_servers: str | None,
        **options: Any,
    ) -> None:
        command(*args, address=address_of(config_file, overrides, job, bootstrap_servers), **options)

    return addressed
