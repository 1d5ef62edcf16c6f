from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from samzapy.adapters.maven.locks import connector_lock, read_lock
from samzapy.cli import class_archive as command


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that has been made, beside jars that are there."""
    monkeypatch.setenv("SAMZAPY_CACHE_DIR", str(tmp_path))
    for jar in read_lock(connector_lock()):
        home = tmp_path / "jars" / jar.sha256[:12] / jar.file_name
        home.parent.mkdir(parents=True)
        home.touch()
    made = tmp_path / "made.jsa"
    made.touch()
    monkeypatch.setattr(command, "made_archive", lambda more: made)
    return made


def test_the_command_prints_the_path_of_the_archive(archive: Path) -> None:
    assert f"{archive}\n" == CliRunner().invoke(command.class_archive).output


def test_a_shell_can_read_the_environment_for_a_worker(archive: Path) -> None:
    told = CliRunner().invoke(command.class_archive, ["--of-worker"]).output

    found = dict(word.split("=", 1) for word in shlex.split(told))
    assert ["JDK_JAVA_OPTIONS", "SPARK_DIST_CLASSPATH"] == [*found]
    assert f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off" == found["JDK_JAVA_OPTIONS"]
    assert [jar.file_name for jar in read_lock(connector_lock())] == [
        Path(path).name for path in found["SPARK_DIST_CLASSPATH"].split(":")
    ]
