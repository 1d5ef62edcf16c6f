"""How tests start Java: its processes live for seconds, and loading and compiling is most of what a start costs.

Run as a module it makes what the tests would make at their start, so that something else can be done meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from samzapy.adapters.maven.fetch import cache_root
from samzapy.adapters.spark.class_archive import VARIABLE as SPARK_VARIABLE
from samzapy.adapters.spark.class_archive import archive_path, make_archive, with_archive
from samzapy.cli.run_job import environment_of_spark
from samzapy.errors import EnvironmentMissingError

VARIABLE = "JDK_JAVA_OPTIONS"
"""Read by every `java`, whoever starts it: brokers, Spark, their tools."""
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment() -> Mapping[str, str]:
    """What to add to the environment of whatever starts Java."""
    found = {VARIABLE: f"{os.environ.get(VARIABLE, '')} {OPTIONS}"}
    path = archive_path(cache_root())
    try:
        make_archive(path, {**environment_of_spark(), **found})
    except EnvironmentMissingError as error:
        print(error, file=sys.stderr)
    # For those that start spark-submit by themselves.
    with_it = with_archive(os.environ, path).get(SPARK_VARIABLE)
    return found if with_it is None else {**found, SPARK_VARIABLE: with_it}


if __name__ == "__main__":
    environment()
