"""A detached process has a session of its own, and its starter waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from samzapy.testing.waiting import wait_until

PROGRAM = """
import os, signal, sys
from pathlib import Path
# The tests may run under nohup.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from samzapy.adapters.host.detached import Detached
directory = Path(sys.argv[1])
detached = Detached.begin()
print("before", flush=True)
(directory / "pid").write_text(f"{os.getpid()} {os.getsid(0)} {len(sys.stdin.read())}")
{before}
detached.is_ready(directory / "log")
print("after", flush=True)
(directory / "end").read_text()
print("end", flush=True)
(directory / "ended").touch()
"""
INTERRUPTED_FORK = """
fork = os.fork
def interrupted():
    pid = fork()
    if pid:
        os.kill(os.getpid(), signal.SIGINT)
    return pid
os.fork = interrupted
detached = Detached.begin()
"""


def started(directory: Path, before: str = "", begin: str = "") -> subprocess.Popen[str]:
    """The program in a session of its own; its stdin stays open.

    It waits where it reads one of two pipes.
    """
    for name in ("ready", "end"):
        os.mkfifo(directory / name)
    program = PROGRAM.replace("detached = Detached.begin()\n", begin) if begin else PROGRAM
    return subprocess.Popen(
        [sys.executable, "-c", program.replace("{before}", before), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        start_new_session=True,
    )


def the_end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and output; returns when no process holds its stdout any more."""
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def test_the_first_process_ends_with_0_once_the_other_one_is_ready_which_then_writes_to_its_log(
    tmp_path: Path,
) -> None:
    process = started(tmp_path)

    assert the_end_of(process) == (0, "before\n")

    pid, session, input_length = (int(number) for number in (tmp_path / "pid").read_text().split())
    assert (pid, input_length) == (session, 0)
    assert pid != process.pid
    (tmp_path / "end").write_text("")
    wait_until((tmp_path / "ended").exists, 30.0, "the process to end")
    assert (tmp_path / "log").read_text() == "after\nend\n"


def test_output_that_a_closed_terminal_did_not_take_does_not_end_the_other_process(tmp_path: Path) -> None:
    process = started(tmp_path, before="os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\nprint('submitted')")

    assert the_end_of(process)[0] == 0

    (tmp_path / "end").write_text("")
    wait_until((tmp_path / "ended").exists, 30.0, "the process to end")


def test_the_end_of_the_first_session_does_not_end_the_other_process(tmp_path: Path) -> None:
    """As when a terminal closes while the command still waits."""
    process = started(tmp_path, before="(directory / 'ready').read_text()")
    wait_until((tmp_path / "pid").exists, 60.0, "the process to begin")

    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(30) == -signal.SIGHUP

    (tmp_path / "ready").write_text("")
    (tmp_path / "end").write_text("")
    wait_until((tmp_path / "ended").exists, 30.0, "the process to end")
    process.communicate(timeout=30)


@pytest.mark.parametrize(
    ("before", "code"),
    [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137), ("print('why', flush=True); sys.exit(7)", 7)],
)
def test_a_process_that_ends_before_it_is_ready_ends_the_first_one_with_its_code_and_output(
    tmp_path: Path, before: str, code: int
) -> None:
    process = started(tmp_path, before=before)

    ended, output = the_end_of(process)

    assert ended == code
    assert output == ("before\nwhy\n" if "why" in before else "before\n")


def test_ctrl_c_in_the_first_process_ends_both(tmp_path: Path) -> None:
    process = started(tmp_path, before="(directory / 'ready').read_text()")
    wait_until((tmp_path / "pid").exists, 60.0, "the process to begin")

    process.send_signal(signal.SIGINT)

    assert the_end_of(process)[0] == 128 + signal.SIGTERM


def test_ctrl_c_before_the_first_process_waits_ends_both(tmp_path: Path) -> None:
    process = started(tmp_path, before="(directory / 'ready').read_text()", begin=INTERRUPTED_FORK)

    assert the_end_of(process)[0] == 128 + signal.SIGTERM
