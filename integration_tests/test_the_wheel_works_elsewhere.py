"""The wheel in an empty environment runs the tutorial's first job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.tutorial import blocks, first_job, run_blocks
from samzapy.testing.broker import DevBroker
from samzapy.version import __version__
from unit_tests.fixtures.wheel import make_wheel


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    DevBroker(tmp_path / "broker", detached=True).kill()


@pytest.mark.timeout(1800)
def test_the_installed_wheel_runs_the_first_job_of_the_tutorial(directory: Path) -> None:
    """With the versions of this environment, which are in pip's cache."""
    wheel = make_wheel(directory)
    programs = directory / "environment" / "bin"
    run(sys.executable, "-m", "venv", directory / "environment")
    versions = run(sys.executable, "-m", "pip", "freeze", "--exclude-editable", "--exclude", "samzapy")
    (directory / "versions.txt").write_text(versions, encoding="utf-8")
    # Compiled modules of PySpark alone would take longer than the job.
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")
    run(*pip, "--constraint", directory / "versions.txt", wheel)

    assert f"samzapy {__version__}" in run(programs / "samzapy", "--version", cwd=directory)
    where = run(programs / "python", "-c", "import samzapy; print(samzapy.__file__)", cwd=directory)
    assert where.startswith(str(directory / "environment"))
    assert 1 == run_blocks(first_job(blocks()), directory, programs, within_s=1000)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900)
    assert 0 == ended.returncode, ended.stdout + ended.stderr
    return ended.stdout
