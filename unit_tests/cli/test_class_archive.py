from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from samzapy.adapters.maven.fetch import jar_paths
from samzapy.adapters.maven.locks import connector_lock, read_lock
from samzapy.cli import class_archive as command


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that has been made, beside jars that are there."""
    for jar in jar_paths(connector_lock()):
        home = tmp_path / "jars" / jar.parent.name / jar.name
        home.parent.mkdir(parents=True)
        home.symlink_to(jar)
    monkeypatch.setenv("SAMZAPY_CACHE_DIR", str(tmp_path))
    made = tmp_path / "made.jsa"
    made.touch()
    monkeypatch.setattr(command, "made_archive", lambda more: made)
    return made


def test_the_command_prints_the_path_of_the_archive(archive: Path) -> None:
    assert f"{archive}\n" == CliRunner().invoke(command.class_archive).output


def test_a_shell_can_read_the_environment_for_a_worker(archive: Path) -> None:
    output = CliRunner().invoke(command.class_archive, ["--of-worker"]).output

    variables = dict(assignment.split("=", 1) for assignment in shlex.split(output))
    assert ["JDK_JAVA_OPTIONS", "SPARK_DIST_CLASSPATH"] == [*variables]
    assert f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off" == variables["JDK_JAVA_OPTIONS"]
    assert [jar.file_name for jar in read_lock(connector_lock())] == [
        Path(path).name for path in variables["SPARK_DIST_CLASSPATH"].split(":")
    ]
