"""The fixtures of `pip install samzapy[test]`, in a user's own pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from samzapy.testing.container_broker import docker_trouble

_JOB = """
import samzapy as sz

words = sz.Stream("kafka.words", key=sz.String, value=sz.String)
loud = sz.Stream("kafka.loud", key=sz.String, value=sz.String)

@sz.task(inputs=[words], outputs=[loud])
class Shout(sz.Task[str, str]):
    def process(self, message, out):
        out.send(loud, message.value.upper() + self.context.config.get("shout.mark", ""), key=message.key)
"""
_TESTS = """
def test_words_are_loud(run_task):
    run = run_task("shout.py", [("fruit", "apple")])
    assert ["APPLE"] == [output.value for output in run.outputs]

def test_another_properties_file(run_task):
    assert "other" == run_task("shout.py", [], config_file="other.properties")._config.job_name

def test_in_docker(kafka_container):
    assert kafka_container.bootstrap_servers
"""
_PROPERTIES = "job.name={name}\nsystems.kafka.bootstrap.servers=localhost:1\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "shout.py").write_text(_JOB)
    (directory / "shout.properties").write_text(_PROPERTIES.format(name="shout"))
    (directory / "other.properties").write_text(_PROPERTIES.format(name="other"))
    (directory / "test_shout.py").write_text(_TESTS)
    return directory


def run_pytest(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.skipif(docker_trouble() is None, reason="a Docker answers here")
def test_a_task_runs_from_the_directory_of_its_test_and_docker_is_skipped_by_name(
    project: Path, tmp_path: Path
) -> None:
    printed = run_pytest(tmp_path, "project")

    assert "2 passed, 1 skipped" in printed, printed
    assert "wanted a Docker that answers" in printed or "wanted testcontainers" in printed


def test_the_fixtures_are_listed_with_their_purpose(project: Path) -> None:
    printed = run_pytest(project, "--fixtures")

    for line in (
        "Run a job's task on messages in memory, without Spark and Kafka.",
        "samzapy_job",
        "dev_broker [session scope]",
        "kafka_container [session scope]",
    ):
        assert line in printed
