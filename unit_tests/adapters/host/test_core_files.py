"""A process with secrets writes no core files, whatever its inherited limit is."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

HARD = resource.getrlimit(resource.RLIMIT_CORE)[1]
SHOW = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])"


def ran(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A program that is started with the largest limit that this process may give."""
    raised = f"import resource; resource.setrlimit(resource.RLIMIT_CORE, ({HARD}, {HARD}))"
    return subprocess.run(
        [sys.executable, "-c", f"{raised}\n{program}"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.skipif(HARD == 0, reason="the hard limit of core files is 0 here, so no process can write one")
def test_a_process_and_its_children_write_no_core_file(tmp_path: Path) -> None:
    own = "from samzapy.adapters.host.core_files import write_no_core_files\nwrite_no_core_files()\n"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SHOW!r}])"

    assert "0\n0\n" == ran(f"{own}{SHOW}; sys_out = __import__('sys').stdout.flush(); {child}", tmp_path).stdout
    assert f"{HARD}\n" == ran(SHOW, tmp_path).stdout, "without it the child has the given limit"


@pytest.mark.skipif(HARD == 0, reason="the hard limit of core files is 0 here, so no process can write one")
def test_each_command_and_the_daemon_of_workers_write_no_core_files(tmp_path: Path) -> None:
    command = f"""
import click, samzapy.cli.output.failures as failures
@click.command()
def shows():
    {SHOW}
failures.run_command(shows, "shows", [])
"""
    daemon = f"""
import runpy, pyspark.daemon as daemon, samzapy.runtime.worker_daemon as ours
ours.PRELOADED = ()
def manager():
    {SHOW}
daemon.manager = manager
ours.serve()
"""

    for program in (command, daemon):
        shown = ran(program, tmp_path)
        assert "0\n" == shown.stdout, shown.stderr


@pytest.mark.skipif(HARD == 0, reason="the hard limit of core files is 0 here, so no process can write one")
def test_a_driver_that_is_started_by_hand_writes_no_core_file(tmp_path: Path) -> None:
    driver = f"""
import samzapy.runtime.job_file as job_file
def run(leaving):
    {SHOW}
    return 0
job_file._run = run
job_file.end_with_parent = lambda: None
job_file.run_job_file()
"""

    shown = ran(driver, tmp_path)

    assert "0\n" == shown.stdout, shown.stderr
