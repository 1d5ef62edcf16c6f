"""Options that name a job: its properties file, or its name and cluster address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from samzapy.runtime.job_address import address_of


def of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a job to a command, which receives them as `address`."""

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

    return with_address(addressed)


def with_address(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a job to a command: the arguments of `address_of`."""
    for option in (
        click.option(
            "--bootstrap-servers",
            metavar="HOST:PORT",
            help="Connect to this cluster, if there is no properties file.",
        ),
        click.option("--job", "job", metavar="NAME-ID", help="Name the job, if there is no properties file."),
        click.option(
            "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one config key; may be repeated."
        ),
        click.option(
            "--config", "config_file", type=click.Path(path_type=Path), help="Read this properties file of the job."
        ),
    ):
        command = option(command)
    return command


job_file_option = click.option(
    "--job-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Load the job's own groupers from beside this file [default: beside the properties file].",
)
