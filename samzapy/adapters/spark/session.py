"""The Spark session of a container: its settings, and the refusal of settings that would break a promise.

Containers run as `local[n]` inside their driver. Spark must not retry, speculate or re-arrange: a batch that fails
in any way ends the query, and recovery is the start procedure.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from samzapy.adapters.installed_spark import spark_release
from samzapy.adapters.spark.arrow_bound import BYTES_MAX, BYTES_SETTING, ROWS_MAX, ROWS_SETTING
from samzapy.errors import ConfigError

# Setting -> (wanted, why). Found otherwise on spark-submit's command line, the start is refused.
_WANTED = {
    "spark.speculation": ("false", "a second copy of a task would handle the same messages twice"),
    "spark.task.maxFailures": ("1", "a failed batch is recovered by samzapy, never retried by Spark"),
    "spark.stage.maxConsecutiveAttempts": ("1", "a stage that runs again would handle its messages again"),
    "spark.sql.adaptive.enabled": ("false", "it may join or split partitions, and order per key is lost"),
    "spark.task.cpus": ("1", "worker slots are counted by cores"),
    "spark.dynamicAllocation.enabled": ("false", "a container has its cores for life"),
}
_REFUSED = {
    "spark.sql.streaming.checkpointLocation": "positions are samzapy's own; Spark's checkpoint is scratch",
    "spark.sql.streaming.minBatchesToRetain": "Spark's checkpoint is scratch",
    "spark.streaming.stopGracefullyOnShutdown": "samzapy drains the job itself",
}
# The largest that glibc takes.
_MALLOC_BLOCK = 32 * 1024 * 1024
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Kept for the pages of that UI, also without it: a thousand micro-batches' plans, each with its routing tables.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    # Spark refuses every sort of a stream, also one within a partition of a micro-batch, which means what it says.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # How long a query that found nothing waits before it asks the broker again. With Spark's 10 ms a job without
    # traffic takes 45 % of a core, half of that in the broker, and 25 % like this (measured).
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "true",
    # A batch sent to Python is bounded by bytes too, so that large records do not add up to gigabytes.
    ROWS_SETTING: str(ROWS_MAX),
    BYTES_SETTING: str(BYTES_MAX),
    "spark.python.worker.reuse": "true",
    # What a worker frees of an Arrow batch it keeps for the next one. Else glibc may give it back to the system, and a
    # sixth of a worker's time goes into pages that are cleared for it again. So it does by itself once it has freed a
    # block as large as this, which some workers do early and some never.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(_MALLOC_BLOCK),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(2 * _MALLOC_BLOCK),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_SETTINGS_OF_4_0 = {_FILE_MANAGER: f"{_STREAMING}.FileSystemBasedCheckpointFileManager"}
_SETTINGS_SINCE_4_1 = {
    _FILE_MANAGER: f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # What a batch's shuffle wrote goes with the batch, not with the JVM's next collection: it lies in memory here.
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
}


_TOLD_BY_US = (
    "org.apache.spark.api.python",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.DAGScheduler",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.execution.datasources.v2",
)


def settings_of(release: str) -> dict[str, str]:
    """The settings of a session that a user may change, for a minor release of Spark.

    4.0 has no checksums of checkpoint files to switch off, and removes what a shuffle wrote when the JVM collects.
    """
    return {**SETTINGS, **(_SETTINGS_OF_4_0 if release == "4.0" else _SETTINGS_SINCE_4_1)}


def open_session(job: str, scratch_dir: Path, jars: Sequence[Path]) -> tuple[SparkSession, int]:
    """Make the session; returns it and its number of cores.

    Settings given to spark-submit are kept unless they break a promise.

    Raises:
        ConfigError: a setting of the user's is contrary to what exactly-once rests on; names it and the reason.
    """
    given = _given_settings()
    cores = _cores(given.get("spark.master", "local[*]"))
    _check(given)
    builder = SparkSession.builder.appName(given.get("spark.app.name", f"samzapy {job}"))
    settings = {
        **settings_of(spark_release()),
        "spark.local.dir": str(scratch_dir / "spark"),
        "spark.pyspark.python": sys.executable,
    }
    for name, value in sorted(settings.items()):
        builder = builder.config(name, given.get(name, value))
    for name, (wanted, _) in sorted(_WANTED.items()):
        builder = builder.config(name, wanted)
    _ignore_pandas_warning()
    _name_the_user()
    # PYSPARK_PYTHON wins over the setting, and the first python3 on PATH over nothing.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = builder.master(f"local[{cores},1]").getOrCreate()
    _quieten(session)
    for jar in _not_on_class_path(session, jars):
        # Under spark-submit, spark.jars of the builder comes too late.
        session.sql(f"ADD JAR '{readable_jar(jar, scratch_dir / 'jars')}'")
    return session, cores


def _ignore_pandas_warning() -> None:
    """Spark 4.2 warns of pandas 3 whenever it is found. `mapInArrow` uses Arrow batches alone."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)


def _name_the_user() -> None:
    """Tell Hadoop, which Spark asks, who the user is where the user database has no entry for it.

    Hadoop asks Java's UnixLoginModule, which fails without a name, also where HADOOP_USER_NAME is set.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        jvm: Any = SparkContext._jvm
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(os.environ.get("HADOOP_USER_NAME") or str(os.getuid())))


def readable_jar(jar: Path, copies: Path) -> Path:
    """`jar`, or a copy of it in `copies` where Spark adds it but its class loader would find nothing in it.

    Links are resolved and the path stands in a URL as it is: a blank in it hides all classes (Spark 4.2).
    """
    if quote(path := str(jar.resolve())) == path:
        return jar
    copies.mkdir(exist_ok=True)
    return Path(shutil.copy(jar, copies))


def _not_on_class_path(session: SparkSession, jars: Sequence[Path]) -> list[Path]:
    jvm: Any = session.sparkContext._jvm
    class_path = jvm.java.lang.System.getProperty("java.class.path").split(os.pathsep)
    return [jar for jar in jars if str(jar) not in class_path]


def _quieten(session: SparkSession) -> None:
    """A failed batch is told once, by us: not by five of Spark's loggers with a stack trace each."""
    session.sparkContext.setLogLevel("ERROR")
    jvm = session.sparkContext._jvm
    assert jvm is not None, "a running SparkContext has a JVM"
    for name in _TOLD_BY_US:
        jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, jvm.org.apache.logging.log4j.Level.OFF)


def _given_settings() -> dict[str, str]:
    """What spark-submit was told, read from its JVM before there is a session."""
    SparkContext._ensure_initialized()  # There is no public way to ask before a session exists.
    return dict(SparkConf().getAll())


def _cores(master: str) -> int:
    matched = re.fullmatch(r"local(?:\[([1-9]\d*|\*)(?:,\s*(\d+))?\])?", master)
    if matched is None:
        raise ConfigError(
            f"--master: wanted local[n] (a container is one process with n cores on its host), found {master}; "
            "start one container per host instead"
        )
    if matched.group(2) not in (None, "1"):
        raise ConfigError(
            f"--master {master}: wanted one attempt per task (local[n] or local[n,1]), found {matched.group(2)}; "
            "a failed batch is recovered by samzapy, never retried by Spark"
        )
    cores = matched.group(1)
    return (os.cpu_count() or 1) if cores == "*" else int(cores or 1)


def _check(given: dict[str, str]) -> None:
    for name, (wanted, reason) in sorted(_WANTED.items()):
        if name in given and given[name].lower() != wanted:
            raise ConfigError(f"--conf {name}: wanted {wanted}, found {given[name]}; {reason}. Remove the setting")
    for name, reason in sorted(_REFUSED.items()):
        if name in given:
            raise ConfigError(f"--conf {name}: wanted it unset, found {given[name]}; {reason}. Remove the setting")
