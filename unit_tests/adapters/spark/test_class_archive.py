from __future__ import annotations

import errno
import fcntl
import os
import re
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


def a_submit(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A stand-in for spark-submit; `$ARCHIVE` is the file that its JVM would write."""
    submit = directory / "spark-submit"
    submit.write_text(
        f"#!/bin/bash\nARCHIVE=$(sed 's/.*ArchiveClassesAtExit=//; s/\"$//' <<< ${VARIABLE})\n{script}\n"
    )
    submit.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(directory / "python"))


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


def test_archives_may_be_removed_by_another_environment_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other, stat = tmp_path / "spark-1.jsa", tmp_path / "spark-2.jsa", Path.stat
    path.touch()
    other.touch()

    def stat_after_removal(file: Path, **options: bool) -> os.stat_result:
        if file == other:
            other.unlink(missing_ok=True)
        return stat(file, **options)

    monkeypatch.setattr(Path, "stat", stat_after_removal)

    remove_older(path)

    assert path.exists()


def test_remains_of_a_maker_are_removed_after_a_day_unless_one_is_at_work(tmp_path: Path) -> None:
    """An archive has 180 MB, also one that a maker which was killed did not finish."""
    files = [
        tmp_path / name for name in ("spark-1.new", "spark-1.failed", "spark-2.new", "spark-3.new", "spark-3.failed")
    ]
    for path in files:
        path.touch()
        if "3" not in path.name:
            os.utime(path, (1000, 1000))

    with (tmp_path / "spark-2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_older(tmp_path / "spark-4.jsa")

    assert files[2:] == [path for path in files if path.exists()]


def test_an_archive_that_cannot_be_written_whole_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_submit(tmp_path, monkeypatch, 'touch "$ARCHIVE"')
    cache = tmp_path / "cache"

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no room"):
        make_archive(cache / "spark-1.jsa", dict(os.environ), ())

    assert ["spark-1.lock"] == os.listdir(cache)


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


def test_the_run_that_makes_an_archive_has_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_submit(tmp_path, monkeypatch, 'echo "$@" > "$ARCHIVE"')

    make_archive(tmp_path / "made.jsa", dict(os.environ), ())

    words = (tmp_path / "made.jsa").read_text().split()
    assert {f"spark.pyspark.{name}={sys.executable}" for name in ("python", "driver.python")} <= set(words)


@pytest.mark.parametrize(
    ("script", "fault"),
    [('touch "$ARCHIVE"; exit 1', "its run failed (exit code 1)"), ("exit 0", "its JVM wrote none (exit code 0)")],
)
def test_the_archive_of_a_run_that_failed_is_not_kept(
    script: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM writes an archive at any exit code.

    The archive of a run that failed has few classes, and would stay.
    """
    a_submit(tmp_path, monkeypatch, script)

    with pytest.raises(EnvironmentMissingError, match=re.escape(fault)):
        make_archive(tmp_path / "made.jsa", dict(os.environ), ())

    assert not (tmp_path / "made.jsa").exists()


def test_a_background_run_does_not_wait_for_one_that_makes_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "made.jsa"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_archive(path, {}, (), waits=False)
    assert not path.exists()
