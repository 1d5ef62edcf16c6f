from __future__ import annotations

import sys
from pathlib import Path

import pytest

from samzapy.adapters.spark.class_archive import JVM_VARIABLE, VARIABLE
from samzapy.runtime.spark_submit import submit_command, with_late_compiler


def test_the_second_compiler_waits_longer_and_options_of_the_user_stay() -> None:
    words = with_late_compiler({VARIABLE: "-Xss8m"})[VARIABLE].split()
    assert "-XX:Tier4InvocationThreshold=50000" in words
    assert words[-1] == "-Xss8m"


@pytest.mark.parametrize("variable", [VARIABLE, JVM_VARIABLE])
@pytest.mark.parametrize("option", ["-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation", "-Xint"])
def test_options_of_the_user_about_compilation_count_alone(variable: str, option: str) -> None:
    assert {variable: option} == with_late_compiler({variable: option})


def test_this_python_runs_the_job_unless_a_later_option_of_the_user_names_another() -> None:
    """Spark prefers a spark-defaults.conf to the environment.

    It takes the last one of several options.
    """
    command = submit_command(Path("job.py"), None, (), ("--conf", "spark.pyspark.python=/own"))

    pythons = [option for option in command if option.startswith("spark.pyspark.")]
    assert [
        f"spark.pyspark.driver.python={sys.executable}",
        f"spark.pyspark.python={sys.executable}",
        "spark.pyspark.python=/own",
    ] == pythons
