from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from samzapy.adapters.spark.class_archive import (
    CLASS_PATH_VARIABLE,
    JVM_VARIABLE,
    VARIABLE,
    archive_path,
    make_archive,
    of_worker,
    remove_older,
    with_archive,
    with_class_path,
)
from samzapy.errors import EnvironmentMissingError


def test_spark_gets_the_archive_that_was_made_and_keeps_its_own_options(tmp_path: Path) -> None:
    path = archive_path(tmp_path, ())
    assert {"A": "1"} == with_archive({"A": "1"}, path), "nobody has made it"

    path.touch()

    assert f"-XX:SharedArchiveFile={path} -Xlog:cds*=off" == with_archive({}, path)[VARIABLE]
    assert with_archive({VARIABLE: "-Xss8m"}, path)[VARIABLE].endswith(" -Xss8m")
    other = {VARIABLE: "-XX:SharedArchiveFile=/own.jsa"}
    assert other == with_archive(other, path)


def test_a_path_with_a_blank_stays_one_argument(tmp_path: Path) -> None:
    path = archive_path(tmp_path / "of Jane", ())
    path.parent.mkdir(parents=True)
    path.touch()

    assert with_archive({}, path)[VARIABLE].startswith(f'"-XX:SharedArchiveFile={path}" -Xlog')


def test_jars_are_appended_once_to_an_existing_class_path() -> None:
    jars = (Path("/a.jar"), Path("/b.jar"))
    assert {"A": "1"} == with_class_path({"A": "1"}, ())

    once = with_class_path({CLASS_PATH_VARIABLE: "/own:/b.jar"}, jars)

    assert {CLASS_PATH_VARIABLE: "/own:/b.jar:/a.jar"} == once == with_class_path(once, jars)


def test_a_workers_drivers_inherit_jars_and_archive(tmp_path: Path) -> None:
    path = archive_path(tmp_path, ())
    path.touch()

    given = of_worker({JVM_VARIABLE: "-Xss8m"}, (Path("/a.jar"),), path)

    assert f"-XX:SharedArchiveFile={path} -Xlog:cds*=off -Xss8m" == given[JVM_VARIABLE]
    assert ("/a.jar", None) == (given[CLASS_PATH_VARIABLE], given.get(VARIABLE))


def test_an_archive_belongs_to_one_environment_and_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = archive_path(tmp_path, ())
    assert before != archive_path(tmp_path, (Path("/a.jar"),))
    monkeypatch.setattr(sys, "prefix", "/elsewhere")

    assert before != archive_path(tmp_path, ())
    assert ".jsa" == before.suffix


def test_an_archive_belongs_to_the_very_jars_and_older_ones_are_removed(tmp_path: Path) -> None:
    """As after an installation of the same Spark: the JVM would refuse the archive, and say nothing."""
    jar = tmp_path / "a.jar"
    jar.touch()
    before = archive_path(tmp_path, (jar,))
    assert before == archive_path(tmp_path, (jar,))

    os.utime(jar, (1, 1))
    after = archive_path(tmp_path, (jar,))
    assert before != after

    another = tmp_path / "spark-4.2.0-00000000-00000000.jsa"
    for path in (before, after, another):
        path.touch()
    remove_older(after)
    assert [False, True, True] == [path.exists() for path in (before, after, another)]


def test_an_existing_archive_is_not_made_again_and_a_failure_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    made, missing = tmp_path / "made.jsa", tmp_path / "sub" / "missing.jsa"
    made.touch()

    make_archive(made, {}, ())
    with pytest.raises(
        EnvironmentMissingError, match=r"wanted a run of /no/such/spark-submit to make .*missing\.jsa"
    ):
        make_archive(missing, {}, ())

    assert [] == [found.name for found in missing.parent.glob("*.jsa")]
