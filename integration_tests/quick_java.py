"""How tests start Java: its processes live for seconds, and loading and compiling is most of what a start costs.

Run as a module it makes what the tests would make at their start, so that something else can be done meanwhile.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark

from samzapy.adapters.maven.fetch import cache_root

VARIABLE = "JDK_JAVA_OPTIONS"
"""Read by every `java`, whoever starts it: brokers, Spark, their tools."""
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Read by spark-submit alone, for the JVM of Spark itself."""
_TRAINED_WITHIN_S = 180.0
_TRAINING = """
import pathlib, sys
from pyspark.sql import SparkSession

pathlib.Path(sys.argv[1], "lines.txt").write_text("a\\nb\\n")
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.text(sys.argv[1]).mapInArrow(lambda batches: batches, "value string")
rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(60)
spark.stop()
"""


def environment() -> Mapping[str, str]:
    """What to add to the environment of whatever starts Java."""
    found = {VARIABLE: f"{os.environ.get(VARIABLE, '')} {OPTIONS}"}
    archive = _spark_archive()
    if archive is not None:
        # A JVM that cannot use the archive says so, and goes on without it.
        used = f"-XX:SharedArchiveFile={archive} -Xlog:disable"
        found[SPARK_VARIABLE] = f"{os.environ.get(SPARK_VARIABLE, '')} {used}"
    return found


def _spark_archive() -> Path | None:
    """The classes that Spark loads at its start, ready made: half of the processor time of a short job.

    Made once for each environment, by a run of Spark; None where that failed.
    """
    of_environment = hashlib.blake2b(sys.prefix.encode(), digest_size=4).hexdigest()
    path = cache_root() / f"spark-{pyspark.__version__}-{of_environment}.jsa"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as directory:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            made, program = Path(directory, "made.jsa"), Path(directory, "training.py")
            program.write_text(_TRAINING)
            lines = Path(directory, "lines")
            lines.mkdir()
            submit = Path(sys.executable).with_name("spark-submit")
            subprocess.run(
                [submit, "--master", "local[1]", program, lines],
                env={
                    **os.environ,
                    "PATH": f"{submit.parent}{os.pathsep}{os.environ['PATH']}",
                    VARIABLE: OPTIONS,
                    SPARK_VARIABLE: f"-XX:ArchiveClassesAtExit={made}",
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TRAINED_WITHIN_S,
                check=False,
            )
            if made.exists():
                shutil.move(made, path.with_suffix(".new"))
                path.with_suffix(".new").replace(path)
    return path if path.exists() else None


if __name__ == "__main__":
    environment()
