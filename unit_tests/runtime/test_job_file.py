"""A foreign spark-submit: the host is examined before a session is opened."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from samzapy.adapters.host import spark_host
from samzapy.errors import ConfigError, ExitCode
from samzapy.runtime import container_start, job_file

JOB = """
import samzapy

@samzapy.task
def handle(envelope, collector, context):
    pass
"""
Fault = Callable[[pytest.MonkeyPatch, Path], None]


def few_files(patch: pytest.MonkeyPatch, directory: Path) -> None:
    # Of open files alone: `run_job_file` also sets a limit of this process, that of core files, by the one it finds.
    limits, files = resource.getrlimit, resource.RLIMIT_NOFILE
    patch.setattr(spark_host.resource, "getrlimit", lambda kind: (256, 256) if kind == files else limits(kind))


def replaced_letters(patch: pytest.MonkeyPatch, directory: Path) -> None:
    patch.setattr(spark_host, "is_ascii_locale", lambda: True)
    patch.setattr(sys, "argv", [*sys.argv, "--set", "local.store.dir=/data/b?ro"])


def another_pyspark(patch: pytest.MonkeyPatch, directory: Path) -> None:
    (directory / "pyspark").mkdir()
    (directory / "pyspark" / "__init__.py").touch()
    (directory / "pyspark" / "version.py").write_text('__version__ = "3.5.1"\n')
    patch.setattr(sys, "path", [str(directory), *sys.path])


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (few_files, "found a hard limit of 256; raise it with `ulimit -Hn 4096`"),
        (replaced_letters, "in which Java may have replaced letters by `?`"),
        (another_pyspark, "wanted PySpark 4.0, 4.1 or 4.2, found 3.5.1 in"),
    ],
)
def test_below_spark_submit_a_host_with_a_fault_is_refused_before_a_session_is_opened(
    fault: Fault, text: str, job_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job_directory / "job.py"
    path.write_text(JOB)
    path.with_suffix(".properties").write_text("job.name=flights\ntask.inputs=kafka.orders\n")
    main = ModuleType("__main__")
    main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(job_file, "end_with_parent", lambda: None)
    monkeypatch.setattr(job_file, "_log_to_stderr", lambda: None)
    monkeypatch.setattr(job_file, "real_stderr", lambda environment: sys.stderr)
    sessions: list[object] = []
    monkeypatch.setattr(container_start, "run_container", lambda *arguments: sessions.append(arguments))
    fault(monkeypatch, job_directory)

    with pytest.raises(SystemExit) as end:
        job_file.run_job_file()

    assert (ExitCode.USAGE, []) == (end.value.code, sessions)
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("is_below_spark_submit", [True, False])
def test_variables_of_spark_connect_are_gone_before_pyspark_is_imported(
    is_below_spark_submit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one of them the session would be of Spark Connect, and has no JVM."""
    names = ("SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")
    for name in names:
        monkeypatch.setenv(name, "1")
    # `_prepare_jvm` changes the environment of its process.
    monkeypatch.setattr(os, "environ", dict(os.environ))
    if is_below_spark_submit:
        os.environ["PYSPARK_GATEWAY_PORT"] = "1"
    else:
        os.environ.pop("PYSPARK_GATEWAY_PORT", None)

    job_file._prepare_jvm()

    assert not set(names) & set(os.environ)


def test_a_spark_submit_for_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--remote` and `spark.api.mode=connect` it starts no gateway."""
    monkeypatch.setenv("PYSPARK_REMOTE_INIT_CONF_LEN", "1")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)

    with pytest.raises(ConfigError, match="--remote"):
        job_file._prepare_jvm()
