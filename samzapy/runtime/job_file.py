"""`samzapy.run()`: from a job file in Spark's driver to a running container."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from samzapy.adapters.host.core_files import write_no_core_files
from samzapy.adapters.host.spark_host import refuse_replaced_letters
from samzapy.adapters.installed_spark import prefer_unpacked_modules, refuse_other_pyspark
from samzapy.adapters.maven.java import find_java
from samzapy.config import sounds_secret
from samzapy.errors import ConfigError, ExitCode, SamzapyError, TaskModuleError
from samzapy.runtime import container_start
from samzapy.runtime.declared_names import check_names
from samzapy.runtime.driver_stderr import real_stderr
from samzapy.runtime.expected_generation import expected_generation_option
from samzapy.runtime.failures import machine_error
from samzapy.runtime.job_config import load_job, log_files_read
from samzapy.runtime.logs import log_to_stderr
from samzapy.runtime.signals import end_with_parent
from samzapy.runtime.spark_submit import check_host, drop_connect, environment_of_spark
from samzapy.task import is_loading_job_file

# spark-submit sets it for `--remote` with `spark.api.mode=connect`, and then starts no gateway.
_OF_REMOTE_SUBMIT = "PYSPARK_REMOTE_INIT_CONF_LEN"
_INTERRUPTED = 128 + signal.SIGINT


def run_job_file() -> None:
    """Run the script that is `__main__` as a job.

    Ends the process with the job's exit code.
    """
    if is_loading_job_file():
        raise TaskModuleError(
            "samzapy.run() was called while the job file was being loaded; put it under\n"
            '    if __name__ == "__main__":\n        samzapy.run()'
        )
    end_with_parent()
    write_no_core_files()
    sys.stderr = real_stderr(os.environ)
    with ExitStack() as leaving:
        code = _run(leaving)
    _end(code)


def _run(leaving: ExitStack) -> int:
    """Run the job, and return the exit code.

    An error is reported at once; what takes longer is left to `leaving`.
    """
    try:
        _log_to_stderr()
        _prepare_jvm()
        job_file = _main_file()
        options = _parse_arguments(sys.argv[1:])
        config, _ = load_job(job_file, options.config_file, options.overrides, os.environ)
        check_names(job_file, config)
        log_files_read(job_file, options.config_file)
        container_start.run_container(config, job_file, leaving, options.expected_generation)
    except SamzapyError as error:
        print(f"samzapy: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except OSError as error:
        failure = machine_error(error)
        if failure is None:
            raise
        print(f"samzapy: {failure}", file=sys.stderr, flush=True)
        return failure.exit_code
    except KeyboardInterrupt:
        # Once the job has begun, Ctrl-C drains it.
        print("samzapy: interrupted before the job had begun", file=sys.stderr, flush=True)
        return _INTERRUPTED
    return ExitCode.OK


def _end(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


class _Arguments:
    def __init__(self, config_file: Path | None, overrides: Sequence[str], expected_generation: int | None) -> None:
        self.config_file = config_file
        self.overrides = overrides
        self.expected_generation = expected_generation


def _parse_arguments(arguments: Sequence[str]) -> _Arguments:
    @click.command(add_help_option=False)
    @click.option("--config", "config_file", type=click.Path(path_type=Path))
    @click.option("--set", "overrides", multiple=True)
    @expected_generation_option
    def parse(config_file: Path | None, overrides: Sequence[str], expected_generation: int | None) -> _Arguments:
        return _Arguments(config_file, overrides, expected_generation)

    try:
        parsed = parse.main(list(arguments), standalone_mode=False)
    except click.ClickException as error:
        message = error.format_message()
        if sounds_secret(message):
            # It repeats the argument, which may be a setting whose --set was forgotten.
            message = "Unexpected argument (hidden: it looks like a secret). Did you forget `--set`?"
        raise ConfigError(
            f"{message} Put --config FILE, --set key=value and --expected-generation N after the job file; "
            "put spark-submit's own options before it"
        ) from None
    assert isinstance(parsed, _Arguments)
    return parsed


def _prepare_jvm() -> None:
    """Refuse a JVM that is not this job's.

    If there is none yet, prepare the environment in which pyspark starts one.

    Raises:
        EnvironmentMissingError: a program or a setting is missing; the text names the way out.
        ConfigError: spark-submit started this process for Spark Connect.
    """
    if _OF_REMOTE_SUBMIT in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        raise ConfigError(
            "wanted spark-submit with a JVM of its own, found --remote: a container has a session of its own, and no "
            "server of Spark Connect"
        )
    # PySpark reads these variables when it is imported, and when it opens a session.
    drop_connect(os.environ)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        prefer_unpacked_modules(sys.path)
        check_host([])
        refuse_replaced_letters(sys.argv[1:])
        refuse_other_pyspark()
        return
    # Without spark-submit pyspark starts a JVM itself, and its message about a missing or old Java is unreadable.
    find_java()
    check_host(sys.argv)
    os.environ.update(environment_of_spark())
    refuse_other_pyspark()


def _main_file() -> Path:
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise TaskModuleError("wanted samzapy.run() called from a job file given to spark-submit, found no file")
    # Not the target of a link: properties and groupers are beside the given path.
    return Path(path).absolute()


def _log_to_stderr() -> None:
    log_to_stderr(os.environ)
    logging.getLogger("samzapy").setLevel(logging.INFO)
    # py4j logs each callback that Spark cancels as an error with a stack trace; real failures reach us in another way.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
