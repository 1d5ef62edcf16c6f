"""Make an archive of the classes of Spark and its Kafka source.

A JVM maps it at its start. This is Java's class data sharing. Without it a JVM loads thousands of classes one by one,
which takes about half of the processor time of a start. The archive belongs to one JVM and one class path: another JVM
silently starts without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from samzapy.adapters.installed_spark import pyspark_home, spark_version, submit_option
from samzapy.errors import EnvironmentMissingError

_LOG = logging.getLogger(__name__)

VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Only spark-submit reads it, for the JVM of Spark itself."""
JVM_VARIABLE: Final = "JDK_JAVA_OPTIONS"
"""Every `java` reads it. A driver inherits a worker's environment, which is the only way to pass it options."""
CLASS_PATH_VARIABLE: Final = "SPARK_DIST_CLASSPATH"
"""spark-submit, and a worker that starts a driver, append it to Spark's own jars."""
USAGE_VARIABLE: Final = "SAMZAPY_CLASS_ARCHIVE"
AUTO: Final = "auto"
"""An archive is made in the background and used; the default."""
OFF: Final = "off"
"""None is used. With any other value, such as `manual`, one that exists is used, and none is made in the background."""
_KEPT_MAX = 4
"""Archives on one machine: of several environments, or of several versions of Java."""
_LEFT_FOR_S = 24 * 3600.0
_MADE_WITHIN_S = 900.0
"""It takes half a minute of two cores that are free, and took five minutes beside a load of ten."""


def usage_of_archives(environment: Mapping[str, str]) -> str:
    """How class archives are used here: `AUTO`, `OFF` or another value."""
    return environment.get(USAGE_VARIABLE, AUTO)


def archive_path(cache_dir: Path, jars: Sequence[Path]) -> Path:
    """The path of the archive for this environment's Java, Spark and these jars.

    The archive may not be made yet. Its name depends on the files: a JVM silently ignores an archive of another JVM, or
    if a jar has another size or time, as after a reinstallation of the same Spark.
    """
    of_spark = sorted((pyspark_home() / "jars").glob("*.jar"))
    files = "\n".join(map(_stamp, [*_java_files(), *of_spark, *jars]))
    return cache_dir / f"spark-{spark_version()}-{_digest(sys.prefix)}-{_digest(files)}.jsa"


def _java_files() -> Sequence[Path]:
    """Files whose size and time change with the Java that spark-submit starts."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return ()
    java = Path(program).resolve()
    return (java, java.parent.parent / "lib" / "modules")


def _stamp(jar: Path) -> str:
    try:
        stat = jar.stat()
    except OSError:
        return str(jar)
    return f"{jar} {stat.st_size} {stat.st_mtime_ns}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def with_class_path(environment: Mapping[str, str], jars: Sequence[Path]) -> dict[str, str]:
    """The environment for spark-submit with the jars on the JVM's class path.

    A session can also add them later, but then driver and executor load each of their classes separately, and no
    archive can have them.
    """
    own = [part for part in environment.get(CLASS_PATH_VARIABLE, "").split(os.pathsep) if part]
    class_path = dict.fromkeys([*own, *map(str, jars)])
    return {**environment, CLASS_PATH_VARIABLE: os.pathsep.join(class_path)} if class_path else dict(environment)


def with_archive(environment: Mapping[str, str], path: Path) -> dict[str, str]:
    """The environment for spark-submit with the archive.

    It is unchanged if there is no archive, or another one is set.
    """
    return _with_archive(environment, VARIABLE, path)


def of_worker(environment: Mapping[str, str], jars: Sequence[Path], path: Path) -> dict[str, str]:
    """The environment for a worker of a Spark cluster.

    Its drivers inherit the jars and the archive. It works only if the worker has no configuration directory, or an
    empty one: the directory is on the class path, and the archive was made without it.
    """
    return _with_archive(with_class_path(environment, jars), JVM_VARIABLE, path)


def _with_archive(environment: Mapping[str, str], variable: str, path: Path) -> dict[str, str]:
    own = environment.get(variable, "")
    if not path.exists() or "-XX:SharedArchiveFile" in own:
        return dict(environment)
    # The JVM would log a warning about an archive of another JVM, which no operator needs.
    option = submit_option(f"-XX:SharedArchiveFile={path}")
    return {**environment, variable: f"{option} -Xlog:cds*=off {own}".strip()}


def make_archive(path: Path, environment: Mapping[str, str], jars: Sequence[Path], *, waits: bool = True) -> None:
    """Make the archive by a short run of Spark, unless it is there.

    Args:
        environment: of spark-submit, with this Python first in its PATH; the archive is for its JVM and class path.
        jars: of the class path; the archive will have their classes that a job may load.
        waits: for a concurrent call that makes it; if False, this call returns at once instead.

    Raises:
        EnvironmentMissingError: Spark did not start, its run failed, or its JVM makes no archives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as directory:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            return
        if path.exists():
            return
        made = Path(directory, "made.jsa")
        _run_spark(made, Path(directory), path, environment, jars)
        # The rename is atomic, also if the temporary directory is on another file system. The JVM checks only the head
        # of an archive, so its body must be on the disk before it has its name.
        new = path.with_suffix(".new")
        try:
            shutil.move(made, new)
            with new.open("rb") as file:
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
        remove_older(path)


def own_python() -> list[str]:
    """The options of spark-submit for which this Python runs driver and workers.

    Spark prefers these settings to the environment, and a cluster's spark-defaults.conf may name another Python.
    """
    names = ("spark.pyspark.driver.python", "spark.pyspark.python")
    return [part for name in names for part in ("--conf", f"{name}={sys.executable}")]


def _run_spark(made: Path, directory: Path, path: Path, environment: Mapping[str, str], jars: Sequence[Path]) -> None:
    submit = Path(sys.executable).with_name("spark-submit")
    options = f"{environment.get(VARIABLE, '')} {submit_option(f'-XX:ArchiveClassesAtExit={made}')}"
    program = Path(__file__).with_name("archive_training.py")
    try:
        run = subprocess.run(
            [submit, "--master", "local[1]", *own_python(), program, directory, *jars],
            env={**environment, VARIABLE: options},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MADE_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentMissingError(f"wanted a run of {submit} to make {path}, found {error}") from error
    # A JVM also writes the archive of a run that failed, with the few classes which that run had loaded.
    if run.returncode != 0 or not made.exists():
        _LOG.debug("%s", run.stderr.decode(errors="replace"))
        fault = "its JVM wrote none" if run.returncode == 0 else "its run failed"
        raise EnvironmentMissingError(
            f"wanted {submit} to make {path}, found that {fault} (exit code {run.returncode}); "
            "jobs start without it, only slower"
        )


def remove_older(path: Path) -> None:
    """Remove all archives in the directory of `path` but the few that were used last.

    Unfinished archives and notes of failures go too, once they are a day old.
    """
    used_at: dict[Path, float] = {}
    for archive in path.parent.glob("spark-*.jsa"):
        with contextlib.suppress(FileNotFoundError):  # Another environment may remove it meanwhile.
            used_at[archive] = archive.stat().st_mtime
    by_age = sorted(used_at, key=used_at.__getitem__, reverse=True)
    for old in [archive for archive in by_age if archive != path][_KEPT_MAX - 1 :]:
        old.unlink(missing_ok=True)
        old.with_suffix(".lock").unlink(missing_ok=True)
    for left in [*path.parent.glob("spark-*.new"), *path.parent.glob("spark-*.failed")]:
        _remove_left(left)


def _remove_left(left: Path) -> None:
    """Remove a file that a maker which was killed, or which failed, left a day ago."""
    with contextlib.suppress(OSError), left.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - left.stat().st_mtime > _LEFT_FOR_S:
            left.unlink()
        if not left.with_suffix(".jsa").exists() and not left.exists():
            left.with_suffix(".lock").unlink()


def note_use(path: Path) -> None:
    """Let an archive that exists count as used now, for `remove_older`."""
    with contextlib.suppress(OSError):
        os.utime(path)
