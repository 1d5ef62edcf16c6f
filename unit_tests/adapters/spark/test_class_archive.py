from __future__ import annotations

import fcntl
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
    note_use,
    of_worker,
    remove_older,
    with_archive,
    with_class_path,
)
from samzapy.errors import EnvironmentMissingError


def test_spark_gets_the_archive_that_was_made_and_keeps_its_own_options(tmp_path: Path) -> None:
    path = archive_path(tmp_path, ())
    assert {"A": "1"} == with_archive({"A": "1"}, path), "no process has made it"

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


def test_an_archive_belongs_to_the_very_jars_and_to_one_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another installation of the same Spark: the JVM refuses the archive in silence."""
    jar, java = tmp_path / "a.jar", tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    for path in (jar, java):
        path.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    before = archive_path(tmp_path, (jar,))
    assert before == archive_path(tmp_path, (jar,))

    os.utime(jar, (1, 1))
    other_jar = archive_path(tmp_path, (jar,))
    os.utime(java, (1, 1))
    other_java = archive_path(tmp_path, (jar,))

    assert len({before, other_jar, other_java}) == 3


def test_only_the_few_archives_that_were_used_last_are_kept(tmp_path: Path) -> None:
    paths = [tmp_path / f"spark-4.2.0-{number}.jsa" for number in range(6)]
    for age_s, path in enumerate(paths):
        path.touch()
        path.with_suffix(".lock").touch()
        os.utime(path, (1000 - age_s, 1000 - age_s))
    note_use(paths[4])

    remove_older(paths[5])

    assert [paths[0], paths[1], paths[4], paths[5]] == [path for path in paths if path.exists()]
    assert [path.exists() for path in paths] == [path.with_suffix(".lock").exists() for path in paths]


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

    assert [] == [path.name for path in missing.parent.glob("*.jsa")]


def test_a_background_run_does_not_wait_for_one_that_makes_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "made.jsa"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_archive(path, {}, (), waits=False)
    assert not path.exists()
