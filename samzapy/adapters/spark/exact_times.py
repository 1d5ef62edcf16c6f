"""Read records whose times Spark's own source for Kafka cannot read.

A record's time is milliseconds in 64 bits, and a producer may write any value. Spark converts it to microseconds by an
exact multiplication, which fails beyond the year 294246, for instance for a time in nanoseconds. Every batch with such
a record then fails before its first row (SPARK-56243). Times before 1900 are silently moved to another calendar. The
error shows the first case, and `time_column` the second. The query then restarts with a source of ours
(ExactTimes.java), which differs from Spark's only in the time, and keeps it as long as the process lives.

That source is compiled when it is needed, by the compiler that Spark has for its own generated code. So a job without
such records pays nothing, and has no class of ours on its class path.
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from samzapy.adapters.spark.jar_copies import readable_directory

_LOG = logging.getLogger(__name__)
SPARKS_OWN: Final = "kafka"
EXACT: Final = "samzapy.spark.ExactTimes"
FIRST_UNCHANGED_MS: Final = -2_208_988_800_000
"""1900-01-01T00:00Z. Spark changes no later time, in any time zone of the JVM."""

_TOO_OLD: Final = "SAMZAPY_TIME_BEFORE_1900"
_UNTOLD: Final = ": UnknownReason"
_OVERFLOW: Final = "ArithmeticException: long overflow"


def time_column(source: str) -> Column:
    """A record's time in milliseconds since 1970.

    The row comes from `source` (`SPARKS_OWN` or `EXACT`).
    """
    if source == EXACT:
        # Our source writes milliseconds as if they were microseconds.
        return F.unix_micros(F.col("timestamp"))
    time_ms = F.unix_millis(F.col("timestamp"))
    return F.when(time_ms < F.lit(FIRST_UNCHANGED_MS), F.raise_error(F.lit(_TOO_OLD))).otherwise(time_ms)


def is_of_a_time(failure: str) -> bool:
    """Whether a batch failed because Spark's own source cannot read a time.

    `failure` is the whole text of Spark.
    """
    return _OVERFLOW in failure or _TOO_OLD in failure


def may_be_of_a_time(failure: str) -> bool:
    """Like `is_of_a_time`, or Spark gave no reason.

    Spark gives no reason if the connector was added to the session and is not on the class path. The exact source does
    no harm then.
    """
    return is_of_a_time(failure) or _UNTOLD in failure


def add_exact_source(session: SparkSession, directory: Path) -> None:
    """Compile the source, and let driver and executor load it, as the format `EXACT`.

    Args:
        directory: for the jar, which must stay as long as the session does.
    """
    jvm: Any = session.sparkContext._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    # The class loader of added jars, because the connector may not be on the class path.
    compiler.setParentClassLoader(session._jsparkSession.sharedState().jarClassLoader())
    compiler.cook(Path(__file__).with_name("ExactTimes.java").read_text(encoding="utf-8"))
    codes = compiler.getBytecodes()
    jar = readable_directory(directory) / "exact-times.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name in codes:
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(codes[name]))
    session.sql(f"ADD JAR '{jar}'")
