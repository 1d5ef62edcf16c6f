"""`samzapy run`: start a container from a job file and a properties file.

`samzapy run job.py ...` builds the spark-submit command, prints it and becomes it. spark-submit starts the job file,
whose last line calls `samzapy.run()` (`runtime.job_file`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from samzapy.runtime.expected_generation import expected_generation_option
from samzapy.runtime.logs import choose_format, log_format_option


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job_file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Read this properties file [default: beside JOB_FILE].",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one config key; may be repeated.")
@expected_generation_option
@log_format_option
@click.argument("spark_options", nargs=-1, type=click.UNPROCESSED)
def run(
    job_file: Path,
    config_file: Path | None,
    overrides: Sequence[str],
    expected_generation: int | None,
    log_format: str | None,
    spark_options: Sequence[str],
) -> None:
    """Run JOB_FILE with spark-submit.

    All other options are passed to it (--master, --conf, --jars).

    \b
    Example:
      samzapy run examples/flight_delays.py --set systems.kafka.bootstrap.servers=localhost:9092 --master local[4]
    """
    from samzapy.adapters.maven.java import find_java
    from samzapy.runtime.declared_names import check_names
    from samzapy.runtime.job_config import load_job, log_files_read
    from samzapy.runtime.spark_submit import check_host, environment_of_spark, submit_command, with_modules_beside

    choose_format(log_format)
    # Fail here, before the JVM starts, and without a stack trace.
    config, _ = load_job(job_file, config_file, overrides, os.environ)
    check_names(job_file.absolute(), config)
    find_java()
    config.bootstrap_servers(config.default_system)
    command = submit_command(job_file, config_file, overrides, spark_options)
    check_host(command)
    if expected_generation is not None:
        command += ["--expected-generation", str(expected_generation)]
    log_files_read(job_file, config_file)
    click.echo(shlex.join(command), err=True)
    environment = with_modules_beside(job_file, environment_of_spark())
    os.execve(command[0], command, environment)  # noqa: S606  # becomes spark-submit, on purpose without a shell
