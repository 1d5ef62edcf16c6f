"""Which job on which cluster a command is about: named by its properties file, or by name and address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from samzapy.runtime.job_address import address_of


def of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a job, and hand it the `address` they stand for."""

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
    """Give a command the options that name a job, as they are typed: the arguments of `address_of`."""
    for option in (
        click.option(
            "--bootstrap-servers", metavar="HOST:PORT", help="The cluster, where there is no properties file."
        ),
        click.option("--job", "job", metavar="NAME-ID", help="The job, where there is no properties file."),
        click.option(
            "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one config key; may be repeated."
        ),
        click.option("--config", "config_file", type=click.Path(path_type=Path), help="The job's properties file."),
    ):
        command = option(command)
    return command


job_file_option = click.option(
    "--job-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The job file, beside which the job's own groupers are [default: beside the properties file].",
)
