"""Spark's classes in a file that a JVM maps at its start (class data sharing): else it loads thousands one by one.

That is about half of what a start costs in processor time. The archive is of one JVM and one Spark: another JVM goes on
without it, and says nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from samzapy.errors import EnvironmentMissingError

_LOG = logging.getLogger(__name__)

VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Read by spark-submit alone, for the JVM of Spark itself."""
_MADE_WITHIN_S = 180.0
_TRAINING = """
import pathlib, sys
from pyspark.sql import SparkSession

pathlib.Path(sys.argv[1], "lines.txt").write_text("a\\nb\\n")
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.text(sys.argv[1]).mapInArrow(lambda batches: batches, "value string")
rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(60)
spark.stop()
"""


def archive_path(cache_dir: Path) -> Path:
    """Where the archive of this environment's Spark is, made or not."""
    of_environment = hashlib.blake2b(sys.prefix.encode(), digest_size=4).hexdigest()
    # Not by importing it, which takes a second.
    return cache_dir / f"spark-{version('pyspark')}-{of_environment}.jsa"


def with_archive(environment: Mapping[str, str], path: Path) -> dict[str, str]:
    """The environment for spark-submit with the archive, where it has been made and no other one is named."""
    own = environment.get(VARIABLE, "")
    if not path.exists() or "-XX:SharedArchiveFile" in own:
        return dict(environment)
    # An archive of another JVM is none, and not worth a word to whoever starts a job.
    return {**environment, VARIABLE: f"-XX:SharedArchiveFile={path} -Xlog:cds*=off {own}".strip()}


def make_archive(path: Path, environment: Mapping[str, str]) -> None:
    """Make it by a short run of Spark, unless it is there; who comes meanwhile waits.

    Args:
        environment: of spark-submit, with this Python first in its PATH; its JVM is the one that the archive is for.

    Raises:
        EnvironmentMissingError: Spark did not start, or its JVM makes no archives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as directory:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        made, program = Path(directory, "made.jsa"), Path(directory, "training.py")
        program.write_text(_TRAINING)
        lines = Path(directory, "lines")
        lines.mkdir()
        submit = Path(sys.executable).with_name("spark-submit")
        try:
            run = subprocess.run(
                [submit, "--master", "local[1]", program, lines],
                env={**environment, VARIABLE: f"{environment.get(VARIABLE, '')} -XX:ArchiveClassesAtExit={made}"},
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
