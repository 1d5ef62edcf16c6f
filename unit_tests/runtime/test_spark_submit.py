from __future__ import annotations

import pytest

from samzapy.adapters.spark.class_archive import JVM_VARIABLE, VARIABLE
from samzapy.runtime.spark_submit import with_late_compiler


def test_the_second_compiler_waits_longer_and_options_of_the_user_stay() -> None:
    words = with_late_compiler({VARIABLE: "-Xss8m"})[VARIABLE].split()
    assert "-XX:Tier4InvocationThreshold=50000" in words
    assert words[-1] == "-Xss8m"


@pytest.mark.parametrize("variable", [VARIABLE, JVM_VARIABLE])
@pytest.mark.parametrize("option", ["-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation", "-Xint"])
def test_options_of_the_user_about_compilation_count_alone(variable: str, option: str) -> None:
    assert {variable: option} == with_late_compiler({variable: option})
