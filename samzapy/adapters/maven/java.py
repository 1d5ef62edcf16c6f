"""Find the Java to run, for Spark, Ivy and the development broker.

Each of them fails in its own obscure way with a wrong Java. One check with a readable error comes before them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from samzapy.errors import EnvironmentMissingError

# Spark 4 and Kafka 4 brokers both ask for 17.
JAVA_VERSION_MIN = 17

_HOW_TO_GET_ONE = f"Install a Java runtime {JAVA_VERSION_MIN} or newer and put it on PATH, or set JAVA_HOME to it."


def find_java() -> Path:
    """The `java` to run.

    It is `$JAVA_HOME/bin/java` if JAVA_HOME is set, otherwise the first on PATH.

    Raises:
        EnvironmentMissingError: there is none, it does not run, or it is older than 17. A wrong JAVA_HOME is refused,
            because Spark's own scripts would use it and fail.
    """
    java = _from_java_home() or _from_path()
    version = _major_version(java)
    if version < JAVA_VERSION_MIN:
        raise EnvironmentMissingError(
            f"Java {JAVA_VERSION_MIN} or newer is needed, found Java {version} at {java}. {_HOW_TO_GET_ONE}"
        )
    return java


def _from_java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None
    java = Path(home) / "bin" / "java"
    if not os.access(java, os.X_OK):
        raise EnvironmentMissingError(
            f"JAVA_HOME is {home}, but {java} is not an executable file. Correct JAVA_HOME or unset it."
        )
    return java


def _from_path() -> Path:
    java = shutil.which("java")
    if java is None:
        raise EnvironmentMissingError(
            f"Java is needed, but JAVA_HOME is not set and no java is on PATH. {_HOW_TO_GET_ONE}"
        )
    return Path(java)


@cache
def _major_version(java: Path) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentMissingError(f"{java} -version does not run: {error}. {_HOW_TO_GET_ONE}") from error
    return parse_major_version(answer.stderr + answer.stdout, java)


def parse_major_version(banner: str, java: Path) -> int:
    """Read the major version of Java.

    It is 17 for `openjdk version "17.0.15" 2025-04-15`, and 8 for Java 8's `"1.8.0_392"`.
    """
    matched = re.search(r'version "(?:1\.)?(\d+)', banner)
    if matched is None:
        raise EnvironmentMissingError(
            f"{java} -version prints no version that samzapy can read: {banner.strip()!r}. {_HOW_TO_GET_ONE}"
        )
    return int(matched.group(1))
