"""The JVM of a development broker.

Its command line, its class archive, and the format of its data directory.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from samzapy.adapters.host.processes import ProcessIdentity, start_in_own_session
from samzapy.adapters.installed_spark import pyspark_jar
from samzapy.adapters.maven.fetch import cache_root, jar_paths
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.maven.locks import KAFKA_BROKER
from samzapy.errors import ConfigError
from samzapy.testing.broker_files import BrokerFiles, new_cluster_id, reason_in_log

# Kafka brings slf4j 1.7 without a binding; without these four, first on the class path, it fails in silence.
_LOGGING_JARS = ("slf4j-api", "log4j-slf4j2-impl", "log4j-core", "log4j-api")
_COMPILING = ("-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=0.3")
"""A broker of minutes pays more for the second compiler than it gains.

It runs the same few paths from its beginning, so they are compiled soon. A start and 1,000 small transactions took 27
to 34 s of CPU without these options, and 15 to 20 with them, on a slow host.
"""


def spawn(files: BrokerFiles, jvm_options: Sequence[str]) -> ProcessIdentity:
    """Start the broker, with a formatted data directory.

    Raises:
        EnvironmentMissingError: Java or the jars are missing.
        ConfigError: Kafka cannot format the data directory.
    """
    java = _java(files)
    if not files.is_formatted:
        _format(files, java)
    files.keep_log()
    command = [*java, *jvm_options, "kafka.Kafka", str(files.settings_path)]
    return start_in_own_session(command, files.log_path, os.environ)


def class_path() -> str:
    """Kafka's jars, each one verified, behind a logging binding."""
    return ":".join(map(str, (*map(pyspark_jar, _LOGGING_JARS), *jar_paths(KAFKA_BROKER))))


def archive_path(jars: str) -> Path:
    """The class archive for exactly the files of the class path `jars`.

    A JVM silently ignores an archive whose jars have another time.
    """
    files = "\n".join(f"{jar} {Path(jar).stat().st_mtime_ns}" for jar in jars.split(":"))
    return cache_root() / f"kafka-{hashlib.blake2b(files.encode(), digest_size=4).hexdigest()}.jsa"


def _java(files: BrokerFiles) -> list[str]:
    jars = class_path()
    archive = archive_path(jars)
    return [
        str(find_java()),
        # An archive of another JVM is ignored; that needs no message.
        *((f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off") if archive.exists() else ()),
        "-Xmx512m",
        "-XX:+UseSerialGC",  # Starts a third of a second sooner than G1, and two cores are few.
        *_COMPILING,
        "-XX:+ExitOnOutOfMemoryError",
        f"-XX:ErrorFile={files.directory}/jvm-crash.log",
        f"-Dlog4j2.configurationFile={files.logging_path}",
        "-cp",
        jars,
    ]


def _format(files: BrokerFiles, java: Sequence[str]) -> None:
    """Make `data/` a Kafka log directory with features and identity; takes 0.7 s."""
    cluster_id = files.membership.cluster_id or new_cluster_id()
    tool = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--ignore-formatted"]
    ran = subprocess.run(
        [*java, *tool, "--config", str(files.settings_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    if ran.returncode != 0:
        raise ConfigError(f"Kafka refuses to format {files.directory}/data: {reason_in_log(ran.stdout)}.")
