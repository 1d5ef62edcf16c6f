from __future__ import annotations

import sys
from pathlib import Path

import pytest

from samzapy.adapters.spark.class_archive import VARIABLE, archive_path, make_archive, with_archive
from samzapy.errors import EnvironmentMissingError


def test_spark_gets_the_archive_that_was_made_and_keeps_its_own_options(tmp_path: Path) -> None:
    path = archive_path(tmp_path)
    assert {"A": "1"} == with_archive({"A": "1"}, path), "nobody has made it"

    path.touch()

    assert f"-XX:SharedArchiveFile={path} -Xlog:cds*=off" == with_archive({}, path)[VARIABLE]
    assert with_archive({VARIABLE: "-Xss8m"}, path)[VARIABLE].endswith(" -Xss8m")
    other = {VARIABLE: "-XX:SharedArchiveFile=/own.jsa"}
    assert other == with_archive(other, path)


def test_it_is_of_one_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_path(tmp_path)
    monkeypatch.setattr(sys, "prefix", "/elsewhere")

    assert before != archive_path(tmp_path)
    assert ".jsa" == before.suffix


def test_what_is_there_is_not_made_again_and_what_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    made, missing = tmp_path / "made.jsa", tmp_path / "sub" / "missing.jsa"
    made.touch()

    make_archive(made, {})
    with pytest.raises(
        EnvironmentMissingError, match=r"wanted a run of /no/such/spark-submit to make .*missing\.jsa"
    ):
        make_archive(missing, {})

    assert [] == [found.name for found in missing.parent.glob("*.jsa")]
