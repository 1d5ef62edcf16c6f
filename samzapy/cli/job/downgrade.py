"""`samzapy job downgrade`: make a stopped job readable for an earlier release.

Its options. `downgrading` has its work, and is imported when the command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.option import output_option
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.requests import wait_timeout_option
from samzapy.version import FIRST_RELEASE

if TYPE_CHECKING:
    from samzapy.runtime.job_address import JobAddress


@click.command()
@of_a_job
@click.option(
    "--to", required=True, type=click.Choice([FIRST_RELEASE]), help="Choose the release that will run the job."
)
@click.option(
    "--archive",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Export the history to FILE, like `samzapy stream export`; the topic is compacted.",
)
@wait_timeout_option("the log cleaner")
@output_option()
def downgrade(address: JobAddress, to: str, archive: Path, timeout: float, output: str) -> None:
    """Downgrade a stopped job to an earlier release, with its positions and its state.

    The command is refused while the job runs, at a factor other than 1, or if the earlier release lacks a feature that
    the job uses. Each reason is named with its remedy, and nothing is written.

    Otherwise the history is exported to FILE, and the coordinator stream is rewritten for the earlier release. The
    topic is then compacted at once, so that the log cleaner removes records that the release cannot read. Topic
    settings are changed for that time and restored afterwards.

    If it is interrupted, run the same command with the same FILE again. This release can always run the job, before and
    after. Exits with 3 if refused, 5 if the log cleaner takes too long, 4 if the job is started meanwhile.

    \b
    Example:
      samzapy job downgrade --config flights.properties --to 0.1.0 --archive flights-before-0.1.0.avro
    """
    from samzapy.cli.job.downgrading import downgrade_job

    downgrade_job(address, archive, timeout, output)
