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

from samzapy.adapters.maven.locks import connector_lock, read_lock
from samzapy.cli import run
from samzapy.cli.job.submit import submit
from samzapy.config import Secret
from samzapy.errors import ConfigError, EnvironmentMissingError
from samzapy.runtime.job_config import load_job, read_config
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


def test_the_printed_command_has_the_name_of_a_variable_and_not_its_text(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda program, command, environment: became.extend(command))
    monkeypatch.setenv("PASSWORD_OF_ADA", "hunter2")
    settings = ["--set", "systems.kafka.client.sasl.password=${env:PASSWORD_OF_ADA}", "--set", "job.id=7"]

    ran = CliRunner().invoke(run.run, [str(job_file), *settings, "--master", "local[4]"])

    assert "systems.kafka.client.sasl.password=${env:PASSWORD_OF_ADA}" in became
    assert "hunter2" not in ran.output + str(became)
    assert "--master 'local[4]'" in ran.output and "--set job.id=7" in ran.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "systems.kafka.client.sasl.password=hunter2"],
        ["--conf", "spark.ssl.keyPassword=hunter2"],
        ["--conf=spark.ssl.keyPassword=hunter2"],
        ["--driver-java-options", "-Djavax.net.ssl.keyStorePassword=hunter2"],
    ],
    ids=lambda arguments: arguments[-1].partition("=")[0],
)
def test_a_secret_on_a_command_line_is_refused_before_spark_submit_shows_it(
    arguments: list[str], job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("spark-submit was started"))

    ran = CliRunner().invoke(run.run, [str(job_file), *arguments])

    assert isinstance(ran.exception, ConfigError)
    assert "wanted nothing secret on a command line" in str(ran.exception)
    assert "hunter2" not in str(ran.exception) + ran.output


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

    result = CliRunner().invoke(run.run, [str(job_file)])

    assert isinstance(result.exception, ConfigError)
    assert "wanted systems.kafka.bootstrap.servers" in str(result.exception)


def test_a_client_property_that_only_one_of_the_two_clients_knows_is_refused_before_anything_starts(
    job_file: Path,
) -> None:
    with pytest.raises(ConfigError, match="client.ssl.cipher.suites: wanted a property that librdkafka and Java's"):
        read_config(job_file, None, ["systems.kafka.client.ssl.cipher.suites=X"], {})


def test_a_configuration_shows_no_password_in_its_repr(job_file: Path) -> None:
    config = read_config(job_file, None, ["systems.kafka.client.sasl.password=${env:PW}"], {"PW": "hunter2"})

    assert "hunter2" not in repr(config)
    assert Secret("hunter2") == config.client_properties("kafka")["sasl.password"]


@pytest.mark.parametrize("command", [run.run, submit], ids=["run", "submit"])
def test_a_directory_is_no_job(command: click.Command) -> None:
    result = CliRunner().invoke(command, ["."])

    assert (2, True) == (result.exit_code, "is a directory" in result.output)


def test_the_spark_of_the_environment_is_started_whatever_others_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON_OPTS", "notebook")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)

    home = environment_of_spark()

    assert (Path(home["SPARK_HOME"]) / "bin" / "spark-class").exists()
    assert (sys.executable, sys.executable) == (home["PYSPARK_PYTHON"], home["PYSPARK_DRIVER_PYTHON"])
    assert "PYSPARK_DRIVER_PYTHON_OPTS" not in home
    assert str(tmp_path / "conf") == home["SPARK_CONF_DIR"]


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

    result = CliRunner().invoke(command[0], [str(job_file), *command[1]])

    assert isinstance(result.exception, EnvironmentMissingError)
    assert "wanted at least 512 files that may be open, found a hard limit of 256" in str(result.exception)


def test_an_altered_jar_is_refused_before_a_jvm_gets_it_on_its_class_path(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for jar in read_lock(connector_lock()):
        altered = tmp_path / "jars" / jar.sha256[:12] / jar.file_name
        altered.parent.mkdir(parents=True)
        altered.write_bytes(b"altered")
    monkeypatch.setenv("SAMZAPY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "execve", lambda *started: pytest.fail(f"started {started}"))

    ended = CliRunner().invoke(run.run, [str(job_file)])

    assert isinstance(ended.exception, EnvironmentMissingError)
    assert "is not the jar that samzapy was locked to" in str(ended.exception)


def test_spark_resolves_no_name_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)

    assert "127.0.0.1" == environment_of_spark()["SPARK_LOCAL_IP"]


@pytest.mark.parametrize(
    "name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"]
)
def test_spark_gets_no_variable_of_spark_connect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")

    assert name not in environment_of_spark()


def test_a_given_spark_conf_dir_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")

    assert "/etc/spark" == environment_of_spark()["SPARK_CONF_DIR"]


def test_a_properties_file_that_is_too_large_is_refused_and_not_read_whole(job_file: Path) -> None:
    job_file.with_suffix(".properties").write_text("# \n" * 400_000)

    with pytest.raises(ConfigError, match="wanted a properties file of at most 1048576 bytes"):
        read_config(job_file, None, (), {})


@pytest.mark.parametrize(
    ("value", "mode", "is_named"),
    [("hunter2", 0o644, True), ("hunter2", 0o640, True), ("hunter2", 0o600, False), ("${env:PW}", 0o644, False)],
)
def test_a_file_with_a_secret_that_others_may_read_is_named(
    value: str, mode: int, is_named: bool, job_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = job_file.with_suffix(".properties")
    properties.write_text(f"{properties.read_text()}\nsystems.kafka.client.sasl.password={value}\n")
    properties.chmod(mode)

    load_job(job_file, None, (), {"PW": "hunter2"})

    warnings = [record.getMessage() for record in caplog.records if "other users of this host" in record.getMessage()]
    assert is_named == bool(warnings)
    assert "hunter2" not in caplog.text
    if is_named:
        assert f"{properties} has secrets (systems.kafka.client.sasl.password) and mode {mode:o}" in warnings[0]
