"""`samzapy job submit`: start and supervise containers in a coordinator.

Its options. `submission` has its work, and is imported when the command runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from samzapy.cli.target.requests import wait_option, wait_timeout_option
from samzapy.config import CLUSTER_MANAGERS, COUNT_KEY
from samzapy.runtime.expected_generation import expected_generation_option
from samzapy.runtime.logs import log_format_option


def _with_settings_as_overrides(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that each stand for a config key to the overrides."""

    @wraps(command)
    def submitted(*, containers: int | None, manager: str | None, overrides: Sequence[str], **others: Any) -> None:
        settings = {COUNT_KEY: containers, "cluster.manager": manager}
        given = [f"{key}={value}" for key, value in settings.items() if value is not None]
        command(overrides=[*overrides, *given], **others)

    return submitted


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job_file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--containers",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Set the number of containers [default: {COUNT_KEY}].",
)
@click.option(
    "--cluster",
    "manager",
    type=click.Choice(CLUSTER_MANAGERS),
    help="Choose the cluster manager that starts containers [default: cluster.manager].",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Read this properties file [default: beside JOB_FILE].",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one config key; may be repeated.")
@expected_generation_option
@wait_option("Wait until the run is over, or only until a coordinator leads; it then works in the background.")
@wait_timeout_option("a coordinator that leads")
@log_format_option
@click.argument("spark_options", nargs=-1, type=click.UNPROCESSED)
@_with_settings_as_overrides
def submit(
    job_file: Path,
    config_file: Path | None,
    overrides: Sequence[str],
    expected_generation: int | None,
    wait: bool,
    timeout: float,
    log_format: str | None,
    spark_options: Sequence[str],
) -> None:
    """Submit the job in JOB_FILE: lead it and keep its containers running.

    All other options are passed to spark-submit for each container. Exits with 0 once the job has finished or was
    stopped (`samzapy job stop`), and with 1 if containers fail too often.

    SIGTERM or Ctrl-C ends only this process: the containers keep running, and the same command adopts them again. If
    the command runs twice, one process leads and the other one waits.

    With --no-wait and --cluster process, the coordinator goes on in a session of its own, and survives the terminal.
    Its log is coordinator-JOB.log in cluster.process.dir. `samzapy job stop` ends the job and the coordinator.

    \b
    Example:
      samzapy job submit examples/flight_delays.py --containers 4 --cluster process --set cluster.process.dir=/data/jobs
          --set cluster.process.hosts=h1:2,h2:2 --master local[2]
    """
    from samzapy.cli.job.submission import submit_job

    submit_job(
        job_file,
        config_file,
        overrides,
        spark_options,
        expected_generation=expected_generation,
        waits=wait,
        timeout_s=timeout,
        log_format=log_format,
    )
