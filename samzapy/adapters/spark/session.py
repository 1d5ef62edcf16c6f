"""Open the Spark session of a container.

Settings that would break exactly-once or order are refused. Containers run as `local[n]` inside their driver. Spark
must not retry, speculate or re-arrange: any failure of a batch ends the query, and the next start recovers.
"""

from __future__ import annotations

import importlib
import logging
import os
import pwd
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from samzapy.adapters.installed_spark import spark_release
from samzapy.adapters.spark.arrow_bound import BYTES_MAX, BYTES_SETTING, ROWS_MAX, ROWS_SETTING
from samzapy.adapters.spark.jar_copies import readable_jar
from samzapy.adapters.spark.jar_origins import check_origins
from samzapy.errors import ConfigError
from samzapy.model.container import SLOT_COUNT_MAX

# Setting -> (wanted value, reason). With another value on spark-submit's command line, the start is refused.
_WANTED = {
    "spark.speculation": ("false", "a second copy of a task would handle the same messages twice"),
    "spark.task.maxFailures": ("1", "a failed batch is recovered by samzapy, never retried by Spark"),
    "spark.stage.maxConsecutiveAttempts": ("1", "a stage that runs again would handle its messages again"),
    "spark.sql.adaptive.enabled": ("false", "it may join or split partitions, and order per key is lost"),
    "spark.task.cpus": ("1", "worker slots are counted by cores"),
    "spark.dynamicAllocation.enabled": ("false", "a container has its cores for life"),
    "spark.api.mode": ("classic", "a container works with the JVM of its session, which Spark Connect does not give"),
}
_REFUSED = {
    "spark.remote": "a container has a session of its own, and no server of Spark Connect",
    "spark.sql.streaming.checkpointLocation": "positions are samzapy's own; Spark's checkpoint is scratch",
    "spark.sql.streaming.minBatchesToRetain": "Spark's checkpoint is scratch",
    "spark.streaming.stopGracefullyOnShutdown": "samzapy drains the job itself",
    "spark.executor.pyspark.memory": (
        "it limits the address space of a worker, of which LMDB reserves stores.<name>.size.max.bytes for each store; "
        "limit the memory of the process with a control group"
    ),
}
_LOG = logging.getLogger(__name__)
# Setting -> (value, consequence of another one). Another value counts, and is named in the log.
_PROTECTION = {
    # The driver's ports deserialize Java objects, so a stranger on them could run code. In local mode Spark makes a
    # secret for each application, and keeps it in memory.
    "spark.authenticate": ("true", "each user of this host can send requests to the ports of the driver"),
    "spark.ui.enabled": ("false", "Spark's UI has no password, and shows plans and settings"),
    "spark.driver.bindAddress": ("127.0.0.1", "other hosts can reach the ports of the driver"),
}
_UI_ADDRESS = "SPARK_LOCAL_IP"
# The largest value that glibc takes.
_MALLOC_BLOCK = 32 * 1024 * 1024
SETTINGS = {
    **{name: value for name, (value, _) in _PROTECTION.items()},
    "spark.ui.showConsoleProgress": "false",
    # Spark keeps plans for the UI, also without it: a thousand micro-batches, each with its routing tables.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    # Spark refuses every sort of a stream, also one within a partition of a micro-batch, which is well-defined.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # The wait before the next look for records after one without any. A job without traffic takes 45 % of a core with
    # Spark's 10 ms, half of that in the broker, and 25 % with this value (measured).
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "true",
    # Otherwise each call on a column asks the JVM three times, to name the caller's line in an error.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A batch sent to Python is bounded by bytes too, so that large records do not add up to gigabytes.
    ROWS_SETTING: str(ROWS_MAX),
    BYTES_SETTING: str(BYTES_MAX),
    "spark.python.worker.reuse": "true",
    # A worker keeps the memory of an Arrow batch for the next one. Otherwise glibc may return it to the system, and a
    # sixth of a worker's time goes into pages that are cleared again. glibc stops that by itself once it has freed a
    # block of this size, which happens early in some workers and never in others.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(_MALLOC_BLOCK),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(2 * _MALLOC_BLOCK),
    "spark.driver.host": "127.0.0.1",
}
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_SETTINGS_OF_4_0 = {_FILE_MANAGER: f"{_STREAMING}.FileSystemBasedCheckpointFileManager"}
_SETTINGS_SINCE_4_1 = {
    _FILE_MANAGER: f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Shuffle files are in memory here, so they are deleted with the batch, not with the JVM's next garbage collection.
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
}


_SILENCED = (
    "org.apache.spark.api.python",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.DAGScheduler",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.execution.datasources.v2",
)


def settings_of(release: str) -> dict[str, str]:
    """The settings of a session that a user may change, for a minor release of Spark.

    4.0 has no checksums of checkpoint files to switch off, and deletes shuffle files with the JVM's garbage collection.
    """
    return {**SETTINGS, **(_SETTINGS_OF_4_0 if release == "4.0" else _SETTINGS_SINCE_4_1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSettings:
    """The settings given to spark-submit; none of them is refused.

    `cores`: how many the master `local[n]` gives.
    """

    values: Mapping[str, str]
    cores: int


def checked_settings() -> GivenSettings:
    """Read and check the settings given to spark-submit.

    Raises:
        ConfigError: a setting of the user's would break exactly-once or order; the text has the setting and the reason.
    """
    values = _given_settings()
    cores = _cores(values.get("spark.master", "local[*]"), _available())
    _check(values)
    for text in weakened(values, os.environ):
        _LOG.warning("%s", text)
    return GivenSettings(values=values, cores=cores)


def weakened(given: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """The settings of the user's that protect a driver less than samzapy's.

    Each is described with its consequence.
    """
    texts = [
        f"{name}={given[name]}, and not {value}, as given to spark-submit: {consequence}"
        for name, (value, consequence) in _PROTECTION.items()
        if given.get(name, value).lower() != value
    ]
    # Spark takes the address of its UI from there alone.
    address = environment.get(_UI_ADDRESS, "")
    if given.get("spark.ui.enabled", "false").lower() == "true" and not address.startswith("127."):
        texts.append(f"Spark's UI listens on {address or 'every address of this host'}: set {_UI_ADDRESS}=127.0.0.1")
    return texts


def open_session(
    settings: GivenSettings,
    job: str,
    scratch_dir: Path,
    jars: Sequence[Path],
    *,
    worker_daemon: str = "pyspark.daemon",
) -> SparkSession:
    """Make the session.

    Args:
        settings: they are kept.
        worker_daemon: the module that Spark starts to fork Python workers.
    """
    given = settings.values
    builder = SparkSession.builder.appName(given.get("spark.app.name", f"samzapy {job}"))
    own = {
        **settings_of(spark_release()),
        "spark.local.dir": str(scratch_dir / "spark"),
        "spark.pyspark.python": sys.executable,
        "spark.python.daemon.module": worker_daemon,
    }
    for name, value in sorted(own.items()):
        builder = builder.config(name, given.get(name, value))
    for name, (wanted, _) in sorted(_WANTED.items()):
        builder = builder.config(name, wanted)
    _name_the_user()
    # PYSPARK_PYTHON wins over the setting; without either Spark takes the first python3 on PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = builder.master(f"local[{settings.cores},1]").getOrCreate()
    _quieten(session)
    for jar in _not_on_class_path(session, jars):
        # Under spark-submit, spark.jars of the builder comes too late.
        session.sql(f"ADD JAR '{readable_jar(jar, scratch_dir / 'jars')}'")
    check_origins(jars, partial(_url_of, session))
    return session


def class_loader_here(session: SparkSession) -> Any:
    """The JVM's class loader of this Python thread.

    It has the jars that this thread added to the session.
    """
    return _jvm_thread(session).getContextClassLoader()


def _url_of(session: SparkSession, resource: str) -> str | None:
    url = class_loader_here(session).getResource(resource)
    return None if url is None else str(url.toString())


def use_class_loader(session: SparkSession, loader: Any) -> None:
    """Let this Python thread use `loader`.

    Each Python thread has a thread of its own in the JVM.
    """
    _jvm_thread(session).setContextClassLoader(loader)


def _jvm_thread(session: SparkSession) -> Any:
    jvm: Any = session.sparkContext._jvm
    return jvm.java.lang.Thread.currentThread()


def start_workers(session: SparkSession, count: int, module: str) -> None:
    """Start Python workers by a small query, and let each import `module`.

    The first micro-batch then finds them ready, and the JVM has loaded and compiled what runs Python.
    """

    def load(batches: Iterable[Any]) -> Iterator[Any]:
        importlib.import_module(module)
        yield from batches

    rows = session.range(0, count, 1, count).mapInArrow(load, StructType([StructField("id", LongType())]))
    rows.write.format("noop").mode("overwrite").save()


def _name_the_user() -> None:
    """Give Hadoop a user name if the user database has no entry for this user.

    Spark asks Hadoop for the user, and Hadoop asks Java's UnixLoginModule, which fails without a name, also with
    HADOOP_USER_NAME.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        jvm: Any = SparkContext._jvm
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(os.environ.get("HADOOP_USER_NAME") or str(os.getuid())))


def _not_on_class_path(session: SparkSession, jars: Sequence[Path]) -> list[Path]:
    jvm: Any = session.sparkContext._jvm
    class_path = jvm.java.lang.System.getProperty("java.class.path").split(os.pathsep)
    return [jar for jar in jars if str(jar) not in class_path]


def _quieten(session: SparkSession) -> None:
    """Silence five of Spark's loggers.

    samzapy logs a failed batch once, and each of them would add a stack trace.
    """
    session.sparkContext.setLogLevel("ERROR")
    jvm = session.sparkContext._jvm
    assert jvm is not None, "a running SparkContext has a JVM"
    for name in _SILENCED:
        jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, jvm.org.apache.logging.log4j.Level.OFF)


def _given_settings() -> dict[str, str]:
    """The settings given to spark-submit, read from its JVM before there is a session."""
    SparkContext._ensure_initialized()  # There is no public way to ask before a session exists.
    return dict(SparkConf().getAll())


def _available() -> int:
    """The cores that the JVM may use.

    It heeds the affinity of this process and the quota of its control group, as Spark does for `local[*]`.
    """
    jvm: Any = SparkContext._jvm
    return int(jvm.java.lang.Runtime.getRuntime().availableProcessors())


def _cores(master: str, available: int) -> int:
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
    given = matched.group(1)
    cores = available if given == "*" else int(given or 1)
    if cores > SLOT_COUNT_MAX:
        raise ConfigError(
            f"--master {master}: wanted at most {SLOT_COUNT_MAX} cores for a container, found {cores}; give "
            f"local[{SLOT_COUNT_MAX}], and start another container"
        )
    return cores


def _check(given: dict[str, str]) -> None:
    for name, (wanted, reason) in sorted(_WANTED.items()):
        if name in given and given[name].lower() != wanted:
            raise ConfigError(f"--conf {name}: wanted {wanted}, found {given[name]}; {reason}. Remove the setting")
    for name, reason in sorted(_REFUSED.items()):
        if name in given:
            raise ConfigError(f"--conf {name}: wanted it unset, found {given[name]}; {reason}. Remove the setting")
