"""The spark-submit command of a job, and the environment and host that it needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Final

from samzapy.adapters.host.spark_host import SparkHost
from samzapy.adapters.installed_spark import pyspark_home
from samzapy.adapters.maven.fetch import cache_root, jars_there
from samzapy.adapters.maven.locks import connector_lock
from samzapy.adapters.spark.class_archive import (
    JVM_VARIABLE,
    OFF,
    USAGE_VARIABLE,
    VARIABLE,
    archive_path,
    note_use,
    own_python,
    usage_of_archives,
    with_archive,
    with_class_path,
)
from samzapy.config import refuse_secret_arguments
from samzapy.errors import EnvironmentMissingError

# Ten times the defaults.
_LATE_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_ABOUT_COMPILATION: Final = (
    *("-XX:Tier", "TieredCompilation", "-XX:CompileThreshold"),
    *("CompilationMode", "-Xint", "-Xcomp"),
)
_CONNECT_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")
QUIET_SPARK = ("--conf", "spark.log.level=ERROR", "--conf", "spark.ui.showConsoleProgress=false")


def submit_command(
    job_file: Path, config_file: Path | None, overrides: Sequence[str], spark_options: Sequence[str]
) -> list[str]:
    """The spark-submit command for a job.

    Raises:
        EnvironmentMissingError: there is no spark-submit beside this Python.
        ConfigError: an argument may be a secret.
    """
    refuse_secret_arguments((*overrides, *spark_options))
    program = Path(sys.executable).with_name("spark-submit")
    if not program.exists():
        raise EnvironmentMissingError(f"wanted spark-submit at {program}, found nothing; pip install pyspark there")
    config = [] if config_file is None else ["--config", str(config_file)]
    settings = [part for override in overrides for part in ("--set", override)]
    return [str(program), *QUIET_SPARK, *own_python(), *spark_options, str(job_file), *config, *settings]


def check_host(command: Sequence[str]) -> None:
    """Refuse a host on which spark-submit's JVM would fail with a stack trace.

    `command`: the command that is to run there.

    Raises:
        EnvironmentMissingError: a program or a setting is missing; the text names the way out.
    """
    SparkHost.here().check([*command, os.getcwd(), sys.prefix])


def environment_of_spark() -> dict[str, str]:
    """The environment of spark-submit.

    It starts the first `python3` of PATH, so ours must be that one; its JVM gets the class archive. Its Spark is the
    one that pip installed, even if SPARK_HOME names another, whose settings are kept.
    """
    own = str(Path(sys.executable).parent)
    given = dict(os.environ)
    given.pop("PYSPARK_DRIVER_PYTHON_OPTS", None)
    drop_connect(given)
    settings = Path(given.get("SPARK_HOME", ""), "conf")
    if "SPARK_HOME" in given and "SPARK_CONF_DIR" not in given and settings.is_dir():
        given["SPARK_CONF_DIR"] = str(settings)
    given |= {
        "PATH": f"{own}{os.pathsep}{given.get('PATH', '')}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Set, because Spark's own search for it breaks at blanks in paths.
        "SPARK_HOME": str(pyspark_home()),
    }
    # If they are missing, the job fetches them, and adds them to its session.
    jars = jars_there(connector_lock())
    usage = usage_of_archives(given)
    environment = {**with_class_path(given, jars), USAGE_VARIABLE: usage}
    if usage != OFF:
        path = archive_path(cache_root(), jars)
        note_use(path)
        environment = with_archive(environment, path)
    return SparkHost.here().environment(with_late_compiler(environment))


def drop_connect(environment: MutableMapping[str, str]) -> None:
    """Remove the variables for which PySpark would open a session of Spark Connect.

    People have them for their notebooks. A container has a session of its own.
    """
    for name in _CONNECT_VARIABLES:
        environment.pop(name, None)


def with_late_compiler(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the JVM's second compiler waits longer.

    It compiles methods that run ten times as often as by default. A start runs thousands of methods some thousand
    times; compiling them took nearly half of the processor time of a start, and the cores from it. What each record
    runs through is still compiled within a second of work. If the user has options about compilation, they alone count.
    """
    own = environment.get(VARIABLE, "")
    if any(option in f"{own} {environment.get(JVM_VARIABLE, '')}" for option in _ABOUT_COMPILATION):
        return dict(environment)
    return {**environment, VARIABLE: " ".join(filter(None, (*_LATE_COMPILER, own)))}


def with_modules_beside(job_file: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the job file imports the modules beside its path.

    Python itself looks beside the target of a link, and not beside the link.
    """
    if not job_file.is_symlink():
        return dict(environment)
    path = (str(job_file.absolute().parent), environment.get("PYTHONPATH", ""))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}
