from __future__ import annotations

import configparser
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from samzapy.adapters.installed_spark import SPARK_VERSION, pyspark_home, pyspark_jar, refuse_other_pyspark
from samzapy.adapters.maven.locks import SPARK_KAFKA, read_lock
from samzapy.errors import EnvironmentMissingError

PROJECT = Path(__file__).resolve().parents[2]


def test_the_release_is_the_one_that_is_installed_and_that_the_connector_belongs_to() -> None:
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    connector = next(jar for jar in read_lock(SPARK_KAFKA) if jar.artifact.startswith("spark-sql-kafka"))

    assert f"pyspark=={SPARK_VERSION}" in setup["options"]["install_requires"].splitlines()
    assert SPARK_VERSION == connector.version


def test_pyspark_brings_the_ivy_that_fetches() -> None:
    assert pyspark_jar("ivy").is_file()


@pytest.fixture
def another_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PySpark of another release, in front of the installed one as PYTHONPATH puts it."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "version.py").write_text("__version__: str = '3.5.1'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "pyspark"


def test_another_release_in_front_is_passed_over(another_release: Path) -> None:
    assert another_release != pyspark_home()
    assert pyspark_jar("ivy").is_file()


def test_only_another_release_is_refused(another_release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(another_release.parent)])

    with pytest.raises(
        EnvironmentMissingError, match=f"wanted PySpark {SPARK_VERSION}.*, found 3.5.1 in {another_release}"
    ):
        pyspark_home()


def test_a_process_that_would_import_another_release_is_refused(another_release: Path) -> None:
    with pytest.raises(
        EnvironmentMissingError, match=f"found 3.5.1 in {another_release}; unset SPARK_HOME and PYTHONPATH"
    ):
        refuse_other_pyspark()


def test_a_process_that_would_import_the_right_release_is_not_refused() -> None:
    refuse_other_pyspark()


def test_below_spark_submit_the_ivy_is_that_of_the_spark_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark-submit puts a zip with pyspark's modules in front, so that a first run could fetch nothing."""
    home = pyspark_home()
    zipped = tmp_path / "pyspark.zip"
    with ZipFile(zipped, "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
        archive.writestr("pyspark/version.py", f'__version__: str = "{SPARK_VERSION}"\n')
    monkeypatch.syspath_prepend(str(zipped))
    monkeypatch.setenv("SPARK_HOME", str(home))

    refuse_other_pyspark()
    assert pyspark_home() == home
    assert pyspark_jar("ivy").is_file()
