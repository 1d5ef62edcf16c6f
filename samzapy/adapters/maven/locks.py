"""The lock lists: the jars that samzapy runs with, by name, version and SHA-256.

A list is a file beside this module with one jar per line: `group:artifact:version[:classifier] sha256`; `#` opens a
comment. It has the whole set with all dependencies, so nothing is resolved at run time: every machine runs the same
bytes, or nothing. `scripts/lock_jars.py` writes the lists.

Spark's Kafka connector uses internals of Spark, so there is a list for each minor release of Spark. It names the newest
connector of that release, which every PySpark of the release runs with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

from samzapy.adapters.installed_spark import spark_release
from samzapy.errors import ConfigError

KAFKA_BROKER = "kafka-broker"
KAFKA_TOOLS = "kafka-tools"

_LINE = re.compile(
    r"(?P<group>[^\s:]+):(?P<artifact>[^\s:]+):(?P<version>[^\s:]+)(?::(?P<classifier>[^\s:]+))?"
    r"\s+(?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedJar:
    """One jar that may be used.

    It has its name in a Maven repository, and the hash of its only valid content.
    """

    group: str
    artifact: str
    version: str
    classifier: str | None
    sha256: str

    @property
    def coordinates(self) -> str:
        """The text form of a lock line, without the hash."""
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def file_name(self) -> str:
        """The jar's name in a Maven repository."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def connector_lock() -> str:
    """The list with Spark's Kafka connector for the installed PySpark.

    Raises:
        EnvironmentMissingError: there is no list for that PySpark.
    """
    return f"spark-kafka-{spark_release()}"


def read_lock(lock: str) -> tuple[LockedJar, ...]:
    """The jars of a checked-in list, in its order.

    Args:
        lock: the list's name without `.lock`: that of `connector_lock`, `KAFKA_BROKER` or `KAFKA_TOOLS`.
    """
    package = resources.files("samzapy.adapters.maven")
    source = package / f"{lock}.lock"
    if not source.is_file():
        known = sorted(
            entry.name.removesuffix(".lock") for entry in package.iterdir() if entry.name.endswith(".lock")
        )
        raise ConfigError(f"No lock list is called {lock!r}; there are: {', '.join(known)}.")
    return parse_lock(source.read_text(encoding="utf-8"), origin=str(source))


def parse_lock(text: str, origin: str) -> tuple[LockedJar, ...]:
    """The jars of the list `text`; `origin` is its name in errors."""
    jars: list[LockedJar] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise ConfigError(
                f"{origin}, line {number}: wanted `group:artifact:version[:classifier] sha256` with 64"
                f" lower-case hex digits, found {line!r}. Write the list again with scripts/lock_jars.py."
            )
        jars.append(LockedJar(**matched.groupdict()))
    return tuple(jars)
