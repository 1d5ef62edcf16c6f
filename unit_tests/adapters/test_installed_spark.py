from __future__ import annotations

import configparser
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from samzapy.adapters.installed_spark import (
    RELEASES,
    prefer_unpacked_modules,
    pyspark_home,
    pyspark_jar,
    refuse_other_pyspark,
    spark_release,
    spark_version,
)
from samzapy.adapters.maven.locks import read_lock
from samzapy.errors import EnvironmentMissingError

PROJECT = Path(__file__).resolve().parents[2]


def test_pip_installs_any_release_that_has_a_lock_and_no_other() -> None:
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    locks = (PROJECT / "samzapy/adapters/maven").glob("spark-kafka-*.lock")
    major, minor = map(int, RELEASES[-1].split("."))

    assert f"pyspark>={RELEASES[0]},<{major}.{minor + 1}" in setup["options"]["install_requires"].splitlines()
    assert set(RELEASES) == {lock.stem.removeprefix("spark-kafka-") for lock in locks}


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_found_by_its_version(release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch release has the lock of its minor release."""
    home = a_pyspark(tmp_path, f"{release}.7")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert (home, f"{release}.7", release) == (pyspark_home(), spark_version(), spark_release())
    assert read_lock(f"spark-kafka-{spark_release()}")


def test_a_release_newer_than_any_lock_is_named_with_those_that_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_pyspark(tmp_path, "4.3.0")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    with pytest.raises(EnvironmentMissingError) as refused:
        pyspark_home()

    assert (
        f"wanted PySpark 4.0, 4.1 or 4.2 beside samzapy, found 4.3.0 in {home}; "
        "run `pip install 'pyspark~=4.2.0'` in the environment of samzapy"
    ) == str(refused.value)


def test_pyspark_brings_the_ivy_that_fetches() -> None:
    assert pyspark_jar("ivy").is_file()


@pytest.fixture
def another_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PySpark of another release, in front of the installed one as PYTHONPATH puts it."""
    home = a_pyspark(tmp_path, "3.5.1")
    monkeypatch.syspath_prepend(str(tmp_path))
    return home


def a_pyspark(directory: Path, version: str) -> Path:
    home = directory / "pyspark"
    home.mkdir()
    (home / "__init__.py").touch()
    (home / "version.py").write_text(f"__version__: str = '{version}'\n")
    return home


def test_another_release_in_front_is_passed_over(another_release: Path) -> None:
    assert another_release != pyspark_home()
    assert pyspark_jar("ivy").is_file()


def test_only_another_release_is_refused(another_release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(another_release.parent)])

    with pytest.raises(
        EnvironmentMissingError, match=f"wanted PySpark 4.0, 4.1 or 4.2 .*, found 3.5.1 in {another_release}"
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
    """spark-submit puts a zip with pyspark's modules in front of the path.

    A first run could then fetch nothing.
    """
    home = pyspark_home()
    zipped = tmp_path / "pyspark.zip"
    with ZipFile(zipped, "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
        archive.writestr("pyspark/version.py", f'__version__: str = "{spark_version()}"\n')
    monkeypatch.syspath_prepend(str(zipped))
    monkeypatch.setenv("SPARK_HOME", str(home))

    refuse_other_pyspark()
    assert pyspark_home() == home
    assert pyspark_jar("ivy").is_file()


def test_the_zip_files_of_an_installation_by_pip_are_not_read(tmp_path: Path) -> None:
    home = a_pyspark(tmp_path, "4.2.0")
    (tmp_path / "py4j").mkdir()
    (tmp_path / "py4j" / "__init__.py").touch()
    zips = [str(home / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    path = ["/job", *zips, "/other.zip", str(tmp_path)]

    prefer_unpacked_modules(path)

    assert ["/job", "/other.zip", str(tmp_path)] == path


def test_the_zip_files_stay_where_another_pyspark_would_be_found(tmp_path: Path) -> None:
    """PYTHONPATH=/opt/spark-3.5/python precedes the packages that pip installed."""
    for name in ("ours", "other"):
        (tmp_path / name).mkdir()
    home = a_pyspark(tmp_path / "ours", "4.2.0")
    a_pyspark(tmp_path / "other", "3.5.1")
    zips = [str(home / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    for path in (
        [*zips, str(tmp_path / "other"), str(tmp_path / "ours")],
        ["/opt/spark/python/lib/pyspark.zip", str(tmp_path / "ours")],
    ):
        before = list(path)
        prefer_unpacked_modules(path)
        assert before == path
