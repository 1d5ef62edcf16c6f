"""Run Spark briefly, so that its JVM loads a job's classes.

The JVM then archives them (class data sharing). This is a script for spark-submit. Its arguments are an empty
directory, and the jars on the class path whose classes are to be loaded. It reads nothing from Kafka, so it needs no
cluster.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from samzapy.adapters.spark.partitioning import repartition_by_id
from samzapy.adapters.spark.query import SOURCE_OPTIONS
from samzapy.adapters.spark.rows import as_text
from samzapy.adapters.spark.session import checked_settings, open_session

_LOG = logging.getLogger(__name__)
_DDL = "route int, offset long, key string, value string, timestamp_ms long"
_NO_BROKER = "127.0.0.1:1"
# Thousands of classes that no consumer of a job loads, or only with a login that few clusters have.
_NOT_NEEDED = (
    "META-INF/",
    "module-info",
    "org/apache/kafka/shaded/",
    "org/apache/kafka/common/security/oauthbearer/",
)
_TRIED_FOR_S = 20
_RUN_WITHIN_S = 60
_IMPATIENT = {
    "kafka.default.api.timeout.ms": "1500",
    "kafka.request.timeout.ms": "1000",
    "fetchOffset.numRetries": "1",
}


def train(directory: Path, jars: Sequence[Path]) -> None:
    """Run queries like a container's over two lines of text.

    Then try to reach a Kafka that does not exist.
    """
    lines = directory / "lines"
    lines.mkdir()
    (lines / "lines.txt").write_text("a\nb\n")
    session = open_session(checked_settings(), "class-archive", directory, jars)
    _load_classes(session, jars)
    rows = (
        session.readStream.text(str(lines))
        .select(
            F.length("value").alias("route"),
            F.length("value").cast("long").alias("offset"),
            F.col("value").alias("key"),
            F.col("value"),
            F.unix_millis(F.current_timestamp()).alias("timestamp_ms"),
        )
        .where(F.col("route") >= 0)
    )
    shuffled = repartition_by_id(rows, 2, F.col("route") % 2).sortWithinPartitions("route", "offset")
    for frame in (rows, shuffled):
        _run(frame, _RUN_WITHIN_S)
    source = session.readStream.format("kafka").options(**{**SOURCE_OPTIONS, **_IMPATIENT})
    records = (
        source.option("kafka.bootstrap.servers", _NO_BROKER)
        .option("assign", '{"none":[0]}')
        .option("startingOffsets", '{"none":{"0":0}}')
        .option("includeHeaders", "true")
        .load()
    )
    try:
        _run(
            records.select(F.lit(0), "offset", as_text("key"), as_text("value"), F.unix_millis("timestamp")),
            _TRIED_FOR_S,
        )
    except Exception as error:  # No broker answers there, and Spark may raise any error for that.
        _LOG.debug("as expected: %s", error)
    session.stop()


def _load_classes(session: SparkSession, jars: Sequence[Path]) -> None:
    jvm: Any = session.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    load = jvm.java.lang.Class.forName
    for jar in jars:
        for name in zipfile.ZipFile(jar).namelist():
            if not name.endswith(".class") or name.startswith(_NOT_NEEDED):
                continue
            # A class that refers to a missing library could not be loaded by a job either.
            with contextlib.suppress(Exception):
                load(name.removesuffix(".class").replace("/", "."), False, loader)


def _run(frame: DataFrame, within_s: int) -> None:
    work = frame.mapInArrow(lambda batches: batches, _DDL)
    query = work.writeStream.foreachBatch(_collected).trigger(availableNow=True).start()
    query.awaitTermination(within_s)
    query.stop()


def _collected(frame: DataFrame, _: int) -> None:
    frame.collect()


if __name__ == "__main__":
    train(Path(sys.argv[1]), [*map(Path, sys.argv[2:])])
