"""Each verb finds properties, groupers and modules beside the job file's path."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from samzapy.cli import run
from samzapy.cli.config import check
from samzapy.cli.job import scale, submission
from samzapy.cli.job.plan import plan
from samzapy.cli.job.submit import submit
from samzapy.config import JobConfig
from samzapy.runtime import container_start
from samzapy.runtime import job_file as job_file_module
from samzapy.runtime.job_config import config_path
from samzapy.runtime.job_groupers import load_groupers
from samzapy.testing.builders import a_config
from unit_tests.fixtures.running_job import Job

JOB = """
import samzapy
import beside

@samzapy.task
def handle(envelope, collector, context):
    pass
"""
GROUPERS = """
class Own:
    def __init__(self, config):
        pass

    def group(self, previous, ssps):
        return {"all": list(ssps)}
"""
PROPERTIES = """
job.name=flights
task.inputs=kafka.orders
systems.kafka.bootstrap.servers=127.0.0.1:1
job.systemstreampartition.grouper.factory=groupers_beside:Own
"""
NAMINGS = ("absolute", "relative", "from another directory", "link", "properties elsewhere")


class Named:
    """A job as an operator names it: job file and properties, and the files to read."""

    def __init__(self, root: Path, naming: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = root / "jobs"
        self.directory.mkdir()
        self.job_file = self.directory / "job.py"
        code = self.job_file
        if naming == "link":
            code = root / "releases" / "7" / "flights.py"
            code.parent.mkdir(parents=True)
            self.job_file.symlink_to(code)
            (code.with_suffix(".properties")).write_text("job.name=another\ntask.inputs=kafka.another\n")
        code.write_text(JOB)
        (self.directory / "beside.py").touch()
        (self.directory / "groupers_beside.py").write_text(GROUPERS)
        self.properties = self.job_file.with_suffix(".properties")
        self.options: list[str] = []
        if naming == "properties elsewhere":
            self.properties = root / "etc" / "flights.conf"
            self.properties.parent.mkdir()
            self.options = ["--config", str(self.properties)]
        self.properties.write_text(PROPERTIES)
        monkeypatch.chdir(self.directory if naming == "relative" else root)
        relative = {"relative": "job.py", "from another directory": "jobs/../jobs/job.py"}
        self.argument = relative.get(naming, str(self.job_file))

    @property
    def config_options(self) -> list[str]:
        """For verbs that get the properties, and the job file where it is not beside them."""
        beside = self.properties.parent == self.directory
        return ["--config", str(self.properties), *([] if beside else ["--job-file", self.argument])]


@pytest.fixture(params=NAMINGS)
def named(
    request: pytest.FixtureRequest,
    job_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Named:
    caplog.set_level("INFO")
    return Named(job_directory, request.param, monkeypatch)


def has_read(named: Named, caplog: pytest.LogCaptureFixture) -> None:
    """Fails unless the output names the files that were read."""
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("reads ")]
    assert os.path.normpath(line.rpartition(" ")[2]) == str(named.properties)


def ran(result: Result) -> None:
    assert result.exception is None, result.exception


def test_samzapy_run_reads_the_files_beside_the_job(
    named: Named, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    became: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda program, command, environment: became.append((command, environment)))

    ran(CliRunner().invoke(run.run, [named.argument, *named.options]))

    ((command, environment),) = became
    assert named.argument in command and (named.options == [] or str(named.properties) in command)
    is_link = named.job_file.is_symlink()
    assert is_link is (str(named.directory) in environment.get("PYTHONPATH", "").split(os.pathsep))
    has_read(named, caplog)


def test_a_driver_below_spark_submit_reads_the_files_beside_the_job(
    named: Named, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_with: list[tuple[JobConfig, Path]] = []
    main = ModuleType("__main__")
    main.__file__ = named.argument
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", [named.argument, *named.options])
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(named.directory)])
    monkeypatch.setattr(job_file_module, "_prepare_jvm", lambda: None)
    monkeypatch.setattr(job_file_module, "end_with_parent", lambda: None)
    monkeypatch.setattr(job_file_module, "_log_to_stderr", lambda: None)
    monkeypatch.setattr(
        container_start,
        "run_container",
        lambda config, job_file, *_: run_with.append((config, job_file)),
    )

    with pytest.raises(SystemExit) as end:
        job_file_module.run_job_file()

    assert 0 == end.value.code
    ((config, job_file),) = run_with
    assert "flights" == config.job_name
    assert load_groupers(config, job_file.parent).ssps is not None
    has_read(named, caplog)


def test_samzapy_job_submit_reads_the_files_beside_the_job(
    named: Named, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    led: list[tuple[JobConfig, Path]] = []
    launched: list[tuple[Path, Path | None]] = []
    monkeypatch.setattr(
        submission, "launcher_of", lambda config, job_file, properties, *_: launched.append((job_file, properties))
    )
    monkeypatch.setattr(submission, "run_coordinator", lambda config, job_file, *_: led.append((config, job_file)))

    ran(CliRunner().invoke(submit, [named.argument, *named.options]))

    ((config, job_file),) = led
    assert load_groupers(config, job_file.parent).ssps is not None
    ((of_containers, properties),) = launched
    assert of_containers == job_file and job_file.is_absolute()
    assert os.path.normpath(config_path(job_file, properties)) == str(named.properties)
    has_read(named, caplog)


def test_samzapy_job_plan_reads_the_files_beside_the_job(named: Named, caplog: pytest.LogCaptureFixture) -> None:
    result = CliRunner().invoke(
        plan, [*named.config_options, "--partitions", "kafka.orders=2", "--processors", "0@h", "-o", "json"]
    )

    ran(result)
    assert '"all"' in result.stdout
    has_read(named, caplog)


def test_samzapy_job_scale_reads_the_files_beside_the_job(
    named: Named, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    factory = {"job_name": "flights", "job_systemstreampartition_grouper_factory": "groupers_beside:Own"}
    job = Job(groupers=load_groupers(a_config(**factory), named.directory), **factory)
    # Making the job imported it, which the command is to do again.
    monkeypatch.delitem(sys.modules, "groupers_beside")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(named.directory)])
    monkeypatch.setattr(scale, "recorded_state", lambda address: job.state)
    options = [
        "--config",
        str(named.properties),
        "--job-file",
        named.argument,
        "--factor",
        "2",
        "--plan",
        "-o",
        "json",
    ]

    result = CliRunner().invoke(scale.scale, options)

    ran(result)
    assert ["all-0-2", "all-1-2"] == [task["task"] for task in json.loads(result.stdout)["tasks"]]
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("reads ")]
    properties, groupers = line.removeprefix("reads properties ").split(", groupers beside the job file ")
    assert [str(named.properties), str(named.job_file)] == [properties, os.path.normpath(groupers)]


def test_samzapy_config_check_reads_the_files_beside_the_job(named: Named) -> None:
    ran(CliRunner().invoke(check, named.config_options))
