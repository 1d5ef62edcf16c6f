"""How tests start Java: most of a short start is loading and compiling classes.

Methods are compiled later than usual (`CompileThresholdScaling`), because most JVMs here live for a minute. A young
generation that is larger than Spark's default saves its JVM most collections. A walk over factors took 212 s of CPU
without these options and 159 with them, on two cores beside other work.

Run as a module it makes the archives that the tests would make at their start, in parallel with other work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from samzapy.adapters.spark.class_archive import CLASS_PATH_VARIABLE, JVM_VARIABLE, USAGE_VARIABLE, VARIABLE
from samzapy.cli.class_archive import made_archive
from samzapy.errors import EnvironmentMissingError
from samzapy.runtime.spark_submit import environment_of_spark
from samzapy.testing.broker import make_class_archive

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=3 -XX:+UseSerialGC"
_OF_SPARK = "-XX:NewSize=400m -XX:MetaspaceSize=200m"
"""For Spark's own JVM, whose heap is 1 GiB at most."""


def environment() -> Mapping[str, str]:
    """The variables to add to the environment of a process that starts Java."""
    # A job of an installed wheel, for example, has no archive, and makes none beside the other tests.
    variables = {JVM_VARIABLE: f"{os.environ.get(JVM_VARIABLE, '')} {OPTIONS}", USAGE_VARIABLE: "manual"}
    try:
        made_archive(variables)
        make_class_archive()
    except EnvironmentMissingError as error:
        print(error, file=sys.stderr)
    # For those that start spark-submit by themselves.
    with_it = environment_of_spark()
    with_it[VARIABLE] = f"{with_it.get(VARIABLE, '')} {_OF_SPARK}".lstrip()
    return {**variables, **{name: with_it[name] for name in (VARIABLE, CLASS_PATH_VARIABLE) if name in with_it}}


if __name__ == "__main__":
    environment()
