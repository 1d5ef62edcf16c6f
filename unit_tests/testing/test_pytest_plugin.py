"""The fixtures of `pip install samzapy[test]`, in a user's own pytest."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
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


def run_pytest(directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, env=environment).stdout


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
        "Three brokers for this test alone, which it may stop, kill, pause and start.",
        "kafka_container [session scope]",
    ):
        assert line in printed


_NO_CLIENTS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "confluent_kafka", "py4j"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Refuse())
"""
_TESTS_WITHOUT_CLIENTS = """
import shutil
import pytest
from hypothesis import strategies as st
from samzapy.testing import Message, crash_anywhere

def test_there_is_neither_java_nor_spark_nor_kafka():
    assert shutil.which("java") is None
    for name in ("pyspark", "confluent_kafka"):
        with pytest.raises(ImportError, match="not installed here"):
            __import__(name)

def test_one_task(run_task):
    assert ["APPLE"] == [output.value for output in run_task("shout.py", [("fruit", "apple")]).outputs]

def test_a_whole_job(samzapy_job):
    job = samzapy_job("shout.py", partitions=2, settings={"local.store.dir": "/data"})
    job.send("words", "apple", key="fruit")
    job.crash("after-kafka-commit")
    job.scale(4)
    assert ["APPLE"] == [output.value for output in job.read("loud")]

def test_any_history():
    words = st.builds(Message, key=st.sampled_from("ab"), value=st.sampled_from(["apple", "pear"]))
    crash_anywhere(__file__.replace("test_shout", "shout"), words, histories=3)
"""


def test_a_job_is_tested_without_java_and_without_the_clients_of_spark_and_kafka(
    project: Path, tmp_path: Path
) -> None:
    (project / "test_shout.py").write_text(_TESTS_WITHOUT_CLIENTS)
    hooks, empty = tmp_path / "hooks", tmp_path / "empty"
    hooks.mkdir(), empty.mkdir()
    (hooks / "sitecustomize.py").write_text(_NO_CLIENTS)
    paths = os.pathsep.join(filter(None, (str(hooks), os.environ.get("PYTHONPATH"))))
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    printed = run_pytest(project, "-q", environment={**kept, "PATH": str(empty), "PYTHONPATH": paths})

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.2f} s of CPU")
    assert "4 passed" in printed, printed
