from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from samzapy.cli import run
from samzapy.cli.job.submit import submit
from samzapy.config import Secret
from samzapy.errors import ConfigError, EnvironmentMissingError
from samzapy.runtime.job_config import read_config
from samzapy.runtime.job_file import _parse_arguments
from samzapy.runtime.spark_submit import environment_of_spark

TASK = "import samzapy\n\n@samzapy.task\ndef process(envelope, collector, context):\n    pass\n"
PROPERTIES = "job.name=flights\ntask.inputs=kafka.orders\nsystems.kafka.bootstrap.servers=127.0.0.1:1\n"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(TASK)
    path.with_suffix(".properties").write_text(PROPERTIES)
    return path


def test_the_printed_command_shows_no_password(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda program, command, environment: became.extend(command))
    settings = ["--set", "systems.kafka.client.sasl.password=hunter2", "--set", "job.id=7"]

    ran = CliRunner().invoke(run.run, [str(job_file), *settings, "--master", "local[4]"])

    assert "systems.kafka.client.sasl.password=hunter2" in became
    assert "hunter2" not in ran.output
    assert "--master 'local[4]'" in ran.output and "systems.kafka.client.sasl.password=***" in ran.output
    assert "--set job.id=7" in ran.output


def test_a_tilde_that_no_shell_has_replaced_is_refused(job_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"~/job.properties, found No such file .*; ~ is not expanded"):
        read_config(job_file, Path("~/job.properties"), (), {})
    with pytest.raises(ConfigError) as refused:
        read_config(job_file, job_file.with_name("other.properties"), (), {})
    assert "home directory" not in str(refused.value)


def test_the_plan_that_was_looked_at_is_passed_on_to_the_job(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[str] = []
    monkeypatch.setattr(os, "execve", lambda program, command, environment: became.extend(command))

    ran = CliRunner().invoke(run.run, [str(job_file), "--expected-generation", "7", "--set", "job.id=7"])

    own = became[became.index(str(job_file)) + 1 :]
    assert 7 == _parse_arguments(own).expected_generation
    assert "--expected-generation 7" in ran.output
    assert _parse_arguments([]).expected_generation is None


def test_a_cluster_that_is_not_named_is_asked_for_before_anything_starts(job_file: Path) -> None:
    job_file.with_suffix(".properties").write_text("job.name=flights\ntask.inputs=kafka.orders\n")

    told = CliRunner().invoke(run.run, [str(job_file)])

    assert isinstance(told.exception, ConfigError)
    assert "wanted systems.kafka.bootstrap.servers" in str(told.exception)


def test_a_client_property_that_only_one_of_the_two_clients_knows_is_refused_before_anything_starts(
    job_file: Path,
) -> None:
    with pytest.raises(ConfigError, match="client.ssl.cipher.suites: wanted a property that librdkafka and Java's"):
        read_config(job_file, None, ["systems.kafka.client.ssl.cipher.suites=X"], {})


def test_a_configuration_shows_no_password_in_its_repr(job_file: Path) -> None:
    config = read_config(job_file, None, ["systems.kafka.client.sasl.password=hunter2"], {})

    assert "hunter2" not in repr(config)
    assert Secret("hunter2") == config.client_properties("kafka")["sasl.password"]


@pytest.mark.parametrize("command", [run.run, submit], ids=["run", "submit"])
def test_a_directory_is_no_job(command: click.Command) -> None:
    told = CliRunner().invoke(command, ["."])

    assert (2, True) == (told.exit_code, "is a directory" in told.output)


def test_the_spark_of_the_environment_is_started_whatever_others_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON_OPTS", "notebook")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)

    found = environment_of_spark()

    assert (Path(found["SPARK_HOME"]) / "bin" / "spark-class").exists()
    assert (sys.executable, sys.executable) == (found["PYSPARK_PYTHON"], found["PYSPARK_DRIVER_PYTHON"])
    assert "PYSPARK_DRIVER_PYTHON_OPTS" not in found
    assert str(tmp_path / "conf") == found["SPARK_CONF_DIR"]


@pytest.mark.parametrize(
    "command",
    [
        (run.run, ()),
        (
            submit,
            ("--cluster", "process", "--set", "cluster.process.dir=/no/dir", "--set", "cluster.process.hosts=h:1"),
        ),
    ],
    ids=["run", "submit"],
)
def test_a_host_on_which_spark_cannot_start_is_refused_before_the_start(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[click.Command, Sequence[str]]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    monkeypatch.setattr(os, "execve", lambda *started: pytest.fail(f"started {started}"))

    told = CliRunner().invoke(command[0], [str(job_file), *command[1]])

    assert isinstance(told.exception, EnvironmentMissingError)
    assert "wanted at least 512 files that may be open, found a hard limit of 256" in str(told.exception)


def test_spark_resolves_no_name_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)

    assert "127.0.0.1" == environment_of_spark()["SPARK_LOCAL_IP"]


def test_a_given_spark_conf_dir_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")

    assert "/etc/spark" == environment_of_spark()["SPARK_CONF_DIR"]
