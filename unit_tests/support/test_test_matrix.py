from __future__ import annotations

from pathlib import Path

from samzapy.adapters.installed_spark import RELEASES
from scripts.test_matrix import FAST_INTEGRATION_TESTS, PYTHONS, ROOT, cells

INTERPRETERS = {python: Path(f"/usr/bin/python{python}") for python in PYTHONS}


def test_there_is_a_cell_for_each_python_and_each_release_of_spark() -> None:
    assert {(python, spark) for python in PYTHONS for spark in RELEASES} == {
        (cell.python, cell.spark) for cell in cells(INTERPRETERS, RELEASES)
    }


def test_each_release_of_spark_has_its_integration_tests_once_whatever_pythons_are_installed() -> None:
    for pythons in (PYTHONS, PYTHONS[:1], PYTHONS[1:3]):
        chosen = cells({python: INTERPRETERS[python] for python in pythons}, RELEASES)

        assert list(RELEASES) == [cell.spark for cell in chosen if cell.has_integration_tests]


def test_pandas_2_and_the_newest_pandas_meet_each_release_of_spark() -> None:
    for spark in RELEASES:
        assert {"<3", ">=2.2"} == {cell.pandas for cell in cells(INTERPRETERS, RELEASES) if cell.spark == spark}


def test_each_fast_integration_test_is_there() -> None:
    assert [] == [path for path in FAST_INTEGRATION_TESTS if not (ROOT / path).is_file()]
