"""`samzapy.run()` and `samzapy run`: from a job file and a properties file to a running container.

`samzapy run job.py ...` only builds the spark-submit command, prints it and becomes it. What spark-submit starts is
the job file, whose last line calls `samzapy.run()`, and that is `run_job_file` here.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from samzapy.adapters.host.spark_host import SparkHost, refuse_replaced_letters
from samzapy.adapters.installed_spark import pyspark_home, refuse_other_pyspark
from samzapy.adapters.maven.fetch import cache_root, jars_there
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.maven.locks import SPARK_KAFKA
from samzapy.adapters.spark.class_archive import archive_path, with_archive, with_class_path
from samzapy.adapters.spark.java_properties import java_properties
from samzapy.cli.main import machine_error
from samzapy.config import (
    JobConfig,
    Setting,
    argument_without_secret,
    in_force,
    merge,
    parse_config,
    properties_text,
    read_properties,
    sounds_secret,
)
from samzapy.errors import ConfigError, EnvironmentMissingError, ExitCode, SamzapyError, TaskModuleError
from samzapy.runtime.declared_names import load_checked_task
from samzapy.runtime.driver_stderr import real_stderr
from samzapy.runtime.signals import end_with_parent
from samzapy.task import is_loading_job_file

_LOG = logging.getLogger(__name__)
_INTERRUPTED = 128 + signal.SIGINT
QUIET_SPARK = ("--conf", "spark.log.level=ERROR", "--conf", "spark.ui.showConsoleProgress=false")


expected_generation_option = click.option(
    "--expected-generation",
    type=click.IntRange(min=0),
    metavar="N",
    help="Refuse if another plan than N is in force by now; `samzapy job plan` shows from which one it was made.",
)

job_file_option = click.option(
    "--job-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The job file, beside which the job's own groupers are [default: beside the properties file].",
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job_file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="Properties file [default: beside JOB_FILE]."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one config key; may be repeated.")
@expected_generation_option
@click.argument("spark_options", nargs=-1, type=click.UNPROCESSED)
def run(
    job_file: Path,
    config_file: Path | None,
    overrides: Sequence[str],
    expected_generation: int | None,
    spark_options: Sequence[str],
) -> None:
    """Run JOB_FILE through spark-submit. Other options are spark-submit's own (--master, --conf, --jars).

    \b
    Example:
      samzapy run examples/flight_delays.py --set systems.kafka.bootstrap.servers=localhost:9092 --master local[4]
    """
    # Told before ten seconds of JVM go by, and without a stack trace.
    config = read_config(job_file, config_file, overrides, os.environ)
    load_checked_task(job_file.absolute(), config)
    find_java()
    config.bootstrap_servers(config.default_system)
    command = submit_command(job_file, config_file, overrides, spark_options)
    check_host(command)
    shown = submit_command(
        job_file,
        config_file,
        [*map(argument_without_secret, overrides)],
        [*map(argument_without_secret, spark_options)],
    )
    if expected_generation is not None:
        for arguments in (command, shown):
            arguments += ["--expected-generation", str(expected_generation)]
    log_files_read(job_file, config_file)
    click.echo(shlex.join(shown), err=True)
    environment = with_modules_beside(job_file, environment_of_spark())
    os.execve(command[0], command, environment)  # noqa: S606  # becomes spark-submit, on purpose without a shell


def submit_command(
    job_file: Path, config_file: Path | None, overrides: Sequence[str], spark_options: Sequence[str]
) -> list[str]:
    """The spark-submit command for a job.

    Raises:
        EnvironmentMissingError: spark-submit does not stand beside this Python.
    """
    program = Path(sys.executable).with_name("spark-submit")
    if not program.exists():
        raise EnvironmentMissingError(f"wanted spark-submit at {program}, found nothing; pip install pyspark there")
    config = [] if config_file is None else ["--config", str(config_file)]
    settings = [part for override in overrides for part in ("--set", override)]
    return [str(program), *QUIET_SPARK, *spark_options, str(job_file), *config, *settings]


def check_host(command: Sequence[str]) -> None:
    """Refuse a host on which spark-submit's JVM would end with a stack trace, for the command that is to run there.

    Raises:
        EnvironmentMissingError: names what is missing and the way out.
    """
    SparkHost.here().check([*command, os.getcwd(), sys.prefix])


def environment_of_spark() -> dict[str, str]:
    """spark-submit starts the first `python3` of PATH, so ours must be that one; its JVM has the class archive.

    Its Spark is the one that pip installed, whatever SPARK_HOME says of another; the settings of that one stay.
    """
    own = str(Path(sys.executable).parent)
    given = dict(os.environ)
    given.pop("PYSPARK_DRIVER_PYTHON_OPTS", None)
    settings = Path(given.get("SPARK_HOME", ""), "conf")
    if "SPARK_HOME" in given and "SPARK_CONF_DIR" not in given and settings.is_dir():
        given["SPARK_CONF_DIR"] = str(settings)
    given |= {
        "PATH": f"{own}{os.pathsep}{given.get('PATH', '')}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Named, because Spark's own search for it breaks at blanks in paths.
        "SPARK_HOME": str(pyspark_home()),
    }
    # Where they are yet to be fetched the job does that, and adds them to its session.
    jars = jars_there(SPARK_KAFKA)
    environment = with_archive(with_class_path(given, jars), archive_path(cache_root(), jars))
    return SparkHost.here().environment(environment)


def with_modules_beside(job_file: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the job file imports what stands beside the path that it was named by.

    Python itself looks beside the file that a link leads to, and nowhere beside the link.
    """
    if not job_file.is_symlink():
        return dict(environment)
    path = (str(job_file.absolute().parent), environment.get("PYTHONPATH", ""))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def run_job_file() -> None:
    """Run the script that is `__main__` as a job and end the process with its exit code."""
    if is_loading_job_file():
        raise TaskModuleError(
            "samzapy.run() was called while the job file was being loaded; put it under\n"
            '    if __name__ == "__main__":\n        samzapy.run()'
        )
    end_with_parent()
    sys.stderr = real_stderr(os.environ)
    _log_to_stderr()
    try:
        _prepare_jvm()
        job_file = _main_file()
        options = _parse_arguments(sys.argv[1:])
        config = read_config(job_file, options.config_file, options.overrides, os.environ)
        load_checked_task(job_file, config)
        log_files_read(job_file, options.config_file)
        from samzapy.runtime.container_process import run_container

        run_container(config, job_file, options.expected_generation)
    except SamzapyError as error:
        print(f"samzapy: {error}", file=sys.stderr, flush=True)
        _end(error.exit_code)
    except OSError as error:
        found = machine_error(error)
        if found is None:
            raise
        print(f"samzapy: {found}", file=sys.stderr, flush=True)
        _end(found.exit_code)
    except KeyboardInterrupt:
        # Once the job has begun, Ctrl-C drains it.
        print("samzapy: interrupted before the job had begun", file=sys.stderr, flush=True)
        _end(_INTERRUPTED)
    _end(ExitCode.OK)


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
        found = parse.main(list(arguments), standalone_mode=False)
    except click.ClickException as error:
        said = error.format_message()
        if sounds_secret(said):
            # It repeats the argument, which may be a setting whose --set was forgotten.
            said = "Wanted options, found an argument that is none and that sounds like a secret."
        raise ConfigError(
            f"{said} After the job file stand --config FILE, --set key=value and --expected-generation N; "
            "spark-submit's own options stand before it"
        ) from None
    assert isinstance(found, _Arguments)
    return found


def config_path(job_file: Path, config_file: Path | None) -> Path:
    """The properties file: the one that was named, else the one beside the path by which the job file was named."""
    return config_file or job_file.with_suffix(".properties")


def log_files_read(job_file: Path | None, config_file: Path | None) -> None:
    """Log which files a job is read from: with links and working directories, a name alone does not tell."""
    names = [] if job_file is None else [f"job file {job_file.absolute()}"]
    if job_file is not None or config_file is not None:
        names.append(f"properties {config_path(job_file or Path(), config_file).absolute()}")
    _LOG.info("reads %s", ", ".join(names))


def read_config(
    job_file: Path, config_file: Path | None, overrides: Sequence[str], environment: Mapping[str, str]
) -> JobConfig:
    """The job's configuration: the properties file beside `job_file` unless another is named, and what is on top.

    Raises:
        ConfigError: the file cannot be read, or says something that cannot be.
    """
    settings = read_settings(config_path(job_file, config_file), overrides, environment)
    config = parse_config(in_force(settings))
    # What the other client cannot be told is refused here, before there is one.
    java_properties(config.client_properties(config.default_system))
    return config


def read_settings(path: Path, overrides: Sequence[str], environment: Mapping[str, str]) -> tuple[Setting, ...]:
    """Everything that is set in the properties file, the environment and with `--set`, the weaker before the stronger.

    Raises:
        ConfigError: the file cannot be read, or one of them says something that is no setting.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"wanted the job's properties in {path}, found {error.strerror}; name another file with --config"
            f"{_home_hint(path)}"
        ) from error
    file = read_properties(properties_text(raw, str(path)), str(path))
    return merge(file=file, environment=environment, overrides=overrides)


def _home_hint(path: Path) -> str:
    """A shell leaves `~` alone in `--config=~/job.properties`."""
    return "; ~ is no home directory here, write $HOME" if str(path).startswith("~") else ""


def _prepare_jvm() -> None:
    """Refuse a JVM that is none of this job's; where there is none yet, have the one that pyspark starts work here.

    Raises:
        EnvironmentMissingError: names what is missing and the way out.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        check_host([])
        refuse_replaced_letters(sys.argv[1:])
        refuse_other_pyspark()
        return
    # Without spark-submit pyspark starts a JVM itself, and of none or an old one it tells nothing readable.
    find_java()
    check_host(sys.argv)
    os.environ.update(environment_of_spark())
    refuse_other_pyspark()


def _main_file() -> Path:
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise TaskModuleError("wanted samzapy.run() called from a job file given to spark-submit, found no file")
    # Not where a link leads to: properties and groupers stand beside the path that was given.
    return Path(path).absolute()


def _log_to_stderr() -> None:
    """Our own lines go to stderr, unless the job has set logging up already."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("samzapy").setLevel(logging.INFO)
    # py4j logs each callback that Spark cancels as an error with a stack trace; what failed reaches us otherwise.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
