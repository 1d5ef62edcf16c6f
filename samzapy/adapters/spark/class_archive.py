"""Spark's classes, and those of its source for Kafka, in a file that a JVM maps at its start (class data sharing).

Else it loads thousands one by one, which is about half of what a start costs in processor time. The archive is of one
JVM and one class path: another JVM goes on without it, and says nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from samzapy.adapters.installed_spark import pyspark_home, spark_version, submit_option
from samzapy.errors import EnvironmentMissingError

_LOG = logging.getLogger(__name__)

VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Read by spark-submit alone, for the JVM of Spark itself."""
JVM_VARIABLE: Final = "JDK_JAVA_OPTIONS"
"""Read by every `java`: what a worker starts has its environment, and nothing else that could be said to a JVM."""
CLASS_PATH_VARIABLE: Final = "SPARK_DIST_CLASSPATH"
"""What spark-submit, and a worker that starts a driver, put behind Spark's own jars."""
_MADE_WITHIN_S = 300.0


def archive_path(cache_dir: Path, jars: Sequence[Path]) -> Path:
    """Where the archive of this environment's Spark and these jars is, made or not.

    It is of the very files: a JVM takes none whose jars have another size or time, as after an installation of the
    same Spark, and says nothing of it.
    """
    files = "\n".join(map(_stamp, [*sorted((pyspark_home() / "jars").glob("*.jar")), *jars]))
    return cache_dir / f"spark-{spark_version()}-{_digest(sys.prefix)}-{_digest(files)}.jsa"


def _stamp(jar: Path) -> str:
    try:
        found = jar.stat()
    except OSError:
        return str(jar)
    return f"{jar} {found.st_size} {found.st_mtime_ns}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def with_class_path(environment: Mapping[str, str], jars: Sequence[Path]) -> dict[str, str]:
    """The environment for spark-submit with the jars on the JVM's class path.

    A session can add them later too, but then driver and executor load every class of theirs for themselves, and no
    archive has them.
    """
    own = [part for part in environment.get(CLASS_PATH_VARIABLE, "").split(os.pathsep) if part]
    class_path = dict.fromkeys([*own, *map(str, jars)])
    return {**environment, CLASS_PATH_VARIABLE: os.pathsep.join(class_path)} if class_path else dict(environment)


def with_archive(environment: Mapping[str, str], path: Path) -> dict[str, str]:
    """The environment for spark-submit with the archive, where it has been made and no other one is named."""
    return _with_archive(environment, VARIABLE, path)


def of_worker(environment: Mapping[str, str], jars: Sequence[Path], path: Path) -> dict[str, str]:
    """The environment for a worker of a Spark cluster: the drivers that it starts have jars and archive, as it has.

    Only where its configuration directory is empty or none: that stands on the class path, and was not there.
    """
    return _with_archive(with_class_path(environment, jars), JVM_VARIABLE, path)


def _with_archive(environment: Mapping[str, str], variable: str, path: Path) -> dict[str, str]:
    own = environment.get(variable, "")
    if not path.exists() or "-XX:SharedArchiveFile" in own:
        return dict(environment)
    # An archive of another JVM is none, and not worth a word to whoever starts a job.
    option = submit_option(f"-XX:SharedArchiveFile={path}")
    return {**environment, variable: f"{option} -Xlog:cds*=off {own}".strip()}


def make_archive(path: Path, environment: Mapping[str, str], jars: Sequence[Path]) -> None:
    """Make it by a short run of Spark, unless it is there; who comes meanwhile waits.

    Args:
        environment: of spark-submit, with this Python first in its PATH; its JVM and its class path are the ones that
            the archive is for.
        jars: of the class path; what a job may load of them will be in it.

    Raises:
        EnvironmentMissingError: Spark did not start, or its JVM makes no archives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as directory:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        made = Path(directory, "made.jsa")
        submit = Path(sys.executable).with_name("spark-submit")
        try:
            run = subprocess.run(
                [submit, "--master", "local[1]", Path(__file__).with_name("archive_training.py"), directory, *jars],
                env={
                    **environment,
                    VARIABLE: f"{environment.get(VARIABLE, '')} {submit_option(f'-XX:ArchiveClassesAtExit={made}')}",
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_MADE_WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentMissingError(f"wanted a run of {submit} to make {path}, found {error}") from error
        if not made.exists():
            _LOG.debug("%s", run.stderr.decode(errors="replace"))
            raise EnvironmentMissingError(
                f"wanted {submit} to make {path}, found that its JVM wrote none (exit code {run.returncode}); "
                "jobs start without it, only slower"
            )
        # Whole or not at all, also on another file system.
        shutil.move(made, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        remove_older(path)


def remove_older(path: Path) -> None:
    """Remove the archives of `path`'s environment as it was before: no JVM will ever take them again."""
    of_environment = path.stem.split("-")[-2]
    for old in path.parent.glob(f"spark-*-{of_environment}-*.jsa"):
        if old != path:
            old.unlink()
