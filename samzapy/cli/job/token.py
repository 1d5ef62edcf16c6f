"""`samzapy job token`: make a credential for the coordinator's HTTP port."""

from __future__ import annotations

import os
from functools import partial

import click

from samzapy.cli.output.option import output_option, print_result
from samzapy.cli.target.address import Target, with_target
from samzapy.model.credential import Scope
from samzapy.runtime.coordinator_access import made_token
from samzapy.runtime.job_config import read_config


@click.command()
@partial(with_target, has_job=False, has_servers=False)
@click.option(
    "--scope",
    type=click.Choice([Scope.READ.text, Scope.OPERATE.text]),
    default=Scope.READ.text,
    show_default=True,
    help="Choose the rights: read status, metrics and page, or also operate the job.",
)
@click.option("--name", required=True, metavar="NAME", help="Name the person or program that gets it.")
@output_option()
def token(target: Target, scope: str, name: str, output: str) -> None:
    """Print a credential of the job for a person or a program.

    It is derived from job.coordinator.secret and stored nowhere. It is valid until that secret is replaced. Send it as
    `Authorization: Bearer ...`, or give it to commands in SAMZAPY_COORDINATOR_TOKEN.

    \b
    Example:
      samzapy job token --config flights.properties --scope read --name prometheus
    """
    config = read_config(target.file(), target.file(), target.overrides, os.environ)
    made = made_token(config, os.environ, Scope[scope.upper()], name)
    print_result({"job": config.job, "name": name, "scope": scope, "token": made}, made, output)
