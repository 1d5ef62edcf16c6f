"""How tests start Java: most of a short start is loading and compiling classes.

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

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


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
    return {**variables, **{name: with_it[name] for name in (VARIABLE, CLASS_PATH_VARIABLE) if name in with_it}}


if __name__ == "__main__":
    environment()
