from __future__ import annotations

import errno
import fcntl
import os
import platform
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from samzapy.adapters.host.processes import ProcessIdentity, processes_bearing, processes_with, start_in_own_session
from samzapy.testing.waiting import wait_until


@pytest.fixture
def sleeper() -> Iterator[ProcessIdentity]:
    """A process that does nothing for longer than any test."""
    with subprocess.Popen(["sleep", "600"]) as child:
        yield ProcessIdentity.of(child.pid)
        child.kill()


def test_a_running_process_is_alive(sleeper: ProcessIdentity) -> None:
    assert sleeper.is_alive()
    assert not sleeper.wait_gone(deadline_s=0)


def test_a_killed_process_is_gone_and_reaped(sleeper: ProcessIdentity) -> None:
    assert sleeper.send(signal.SIGKILL)

    assert sleeper.wait_gone(deadline_s=10)
    assert not sleeper.is_alive()
    assert not os.path.exists(f"/proc/{sleeper.pid}")


def test_a_process_that_took_over_a_pid_is_another_one(sleeper: ProcessIdentity) -> None:
    earlier = replace(sleeper, started_ticks=sleeper.started_ticks - 1)

    assert not earlier.is_alive()
    assert not earlier.send(signal.SIGKILL)
    assert earlier.wait_gone(deadline_s=0)
    assert sleeper.is_alive()


def test_a_thread_that_took_over_a_pid_is_another_process() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, daemon=True)
    thread.start()
    assert thread.native_id is not None
    earlier = replace(ProcessIdentity.of(os.getpid()), pid=thread.native_id, started_ticks=1)

    assert not earlier.send(signal.SIGKILL)
    assert earlier.wait_gone(deadline_s=0)
    is_over.set()


@pytest.mark.parametrize("number", [errno.ESRCH, errno.ENOENT, errno.EINVAL])
def test_a_pid_that_a_thread_takes_over_between_check_and_signal_gets_none(
    sleeper: ProcessIdentity, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)

    assert not sleeper.send(signal.SIGKILL)


def test_the_same_pid_and_time_of_another_boot_is_another_process(sleeper: ProcessIdentity) -> None:
    assert not replace(sleeper, boot_id="the boot before").is_alive()


def test_a_stopped_process_is_alive_and_known_as_stopped(sleeper: ProcessIdentity) -> None:
    sleeper.send(signal.SIGSTOP)

    wait_until(sleeper.is_stopped, 10.0, "the process to stop")
    assert sleeper.is_alive()


def test_a_zombie_is_gone(sleeper: ProcessIdentity) -> None:
    os.kill(sleeper.pid, signal.SIGKILL)
    wait_until(lambda: not sleeper.is_alive(), 10.0, "the process to become a zombie")

    assert os.path.exists(f"/proc/{sleeper.pid}")
    assert not sleeper.send(signal.SIGTERM)


def test_a_process_whose_first_thread_ended_is_alive_as_long_as_another_runs() -> None:
    exit_thread = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
        f"ctypes.CDLL(None).syscall({exit_thread}, 0)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        process = ProcessIdentity.of(child.pid)
        stat = Path(f"/proc/{child.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", 10.0, "the first thread to end")

        seen = process.is_alive(), process.wait_gone(deadline_s=0)
        child.kill()

    assert (True, False) == seen
    assert process.wait_gone(deadline_s=0)


def test_an_unused_pid_is_refused() -> None:
    with pytest.raises(ProcessLookupError):
        ProcessIdentity.of(2**22 + 1)


def test_a_process_in_its_own_session_appends_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "said.log"
    log.write_text("before\n")

    process = start_in_own_session(["/bin/sh", "-c", "echo out; echo error >&2; ps -o sid= $$"], log, os.environ)

    assert process.wait_gone(deadline_s=10)
    assert ["before", "out", "error", str(process.pid)] == log.read_text().split()


def test_a_started_process_inherits_no_file_lock_of_a_shell(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
        process = start_in_own_session(["/bin/sleep", "600"], tmp_path / "log", os.environ)
    try:
        with (tmp_path / "lock").open("w") as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        process.send(signal.SIGKILL)
        assert process.wait_gone(deadline_s=10)


def test_processes_are_found_by_a_variable_that_their_parents_were_started_with(tmp_path: Path) -> None:
    script = "sleep 600 & exec sleep 600"
    environment = {**os.environ, "SAMZAPY_TEST_MARK": "m-1"}
    parent = start_in_own_session(["/bin/sh", "-c", script], tmp_path / "log", environment)
    try:
        processes = wait_until(lambda: processes_with("SAMZAPY_TEST_MARK", "m-1")[1:], 10.0, "parent and child")
        assert parent.send(signal.SIGKILL)
        assert parent.wait_gone(deadline_s=10)

        assert processes == processes_with("SAMZAPY_TEST_MARK", "m-1")
        assert () == processes_with("SAMZAPY_TEST_MARK", "m-")
    finally:
        for process in processes_with("SAMZAPY_TEST_MARK", "m-1"):
            process.send(signal.SIGKILL)


def test_a_variable_with_a_name_of_a_file_that_is_no_utf8_is_read_as_python_reads_the_name() -> None:
    name = os.fsdecode(b"/tmp/caf\xe9")
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, "SAMZAPY_TEST_MARK": "m-2", "PLACE": name})
    try:
        (environment,) = [
            environment for process, environment in processes_bearing("SAMZAPY_TEST_MARK") if process.pid == child.pid
        ]
        assert name == environment["PLACE"]
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def before_its_children() -> Iterator[None]:
    """A started process gets no time before its parent waits: one core, FIFO.

    Without the right to that schedule, it may get time now and then.
    """
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, processors)


@pytest.mark.usefixtures("before_its_children")
def test_a_started_process_is_found_at_once(tmp_path: Path) -> None:
    value = uuid.uuid4().hex
    for _ in range(20):
        process = start_in_own_session(["/bin/sleep", "60"], tmp_path / "log", {"SAMZAPY_FOUND_AT_ONCE": value})
        processes = processes_with("SAMZAPY_FOUND_AT_ONCE", value)
        process.send(signal.SIGKILL)
        os.waitpid(process.pid, 0)
        assert (process,) == processes


def test_a_process_is_found_while_it_executes_another_program(tmp_path: Path) -> None:
    again, value = 'exec /bin/sh -c "$0" "$0"', uuid.uuid4().hex
    process = start_in_own_session(["/bin/sh", "-c", again, again], tmp_path / "log", {"SAMZAPY_BECOMES": value})
    try:
        assert [(process,)] * 200 == [processes_with("SAMZAPY_BECOMES", value) for _ in range(200)]
    finally:
        process.send(signal.SIGKILL)
        os.waitpid(process.pid, 0)
