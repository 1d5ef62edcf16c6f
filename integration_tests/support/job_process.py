"""A real job in processes of its own, which are identified in /proc and killed.

`samzapy run` becomes spark-submit, so the process started here is the JVM. Below it are the Python driver, pyspark's
daemon, and the daemon's workers. Their parents distinguish them; that they belong to this test, and not to another one,
a mark in their environment shows, which all of them inherit. So processes that outlive their parents count too.
Linux only.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from samzapy.adapters.host.processes import ProcessIdentity, processes_with
from samzapy.adapters.host.scratch import scratch_directories
from samzapy.adapters.spark.class_archive import CLASS_PATH_VARIABLE, VARIABLE
from samzapy.adapters.spark.slots import CONTENT_BYTES
from samzapy.errors import DeadlineError, RejectedError
from samzapy.runtime.spark_start import WORKER_DAEMON
from samzapy.testing.waiting import wait_until

T = TypeVar("T")

_MARK = "SAMZAPY_JOB_PROCESS"
_ENDS_WITHIN_S = 120.0
_LOG_END = 4000
_OF_SPARK_SUBMIT = (VARIABLE, CLASS_PATH_VARIABLE)
LONG_DRAIN: Mapping[str, str] = {"job.shutdown.drain.ms": "20000"}
"""For jobs whose exit code is looked at.

On a busy machine a micro-batch and the stop of its query take longer than the default drain, and the process then ends
with TIMED_OUT.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSeen:
    """The content of a worker slot's file, and the process in the slot."""

    slot: int
    is_open: bool
    holder: int | None


class JobProcess:
    """One job file, run by at most one process tree at a time.

    `samzapy run` runs it, or another command; it can be started again after its end.

    As a context manager it leaves nothing behind: on exit everything that bears its mark is killed.

    Args:
        overrides: config keys, each becomes a `--set`.
        spark_options: spark-submit's own, for instance `--master local[2]`.
        log_dir: takes the output of each start, `job-1.log`, `job-2.log`, ...
        environment: on top of this process's own.
        command: the command of `samzapy` that gets the file.
    """

    def __init__(
        self,
        job_file: Path,
        *,
        log_dir: Path,
        overrides: Mapping[str, str],
        spark_options: Iterable[str] = ("--master", "local[2]"),
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = ("run",),
    ) -> None:
        self.job_file = job_file
        self._command = tuple(command)
        self.starts = 0
        self._log_dir = log_dir
        self._overrides = dict(overrides)
        self._spark_options = tuple(spark_options)
        self._environment = dict(environment or {})
        self._mark = uuid.uuid4().hex
        self._child: subprocess.Popen[bytes] | None = None
        self._jvm: ProcessIdentity | None = None
        self._driver: ProcessIdentity | None = None

    def start(self, environment: Mapping[str, str] | None = None, *, by_hand: bool = False) -> None:
        """Start the job, with more environment for this start only; returns at once.

        Args:
            by_hand: with the plain spark-submit of the documentation, and nothing that `samzapy run` adds to it.

        Raises RejectedError when it runs already.
        """
        if self.exit_code() is None and self._child is not None:
            raise RejectedError(f"{self.job_file.name} runs already, pid {self._child.pid}: stop or kill it first")
        self.starts += 1
        self._log_dir.mkdir(parents=True, exist_ok=True)
        settings = [part for key, value in self._overrides.items() for part in ("--set", f"{key}={value}")]
        programs = Path(sys.executable).parent
        command = [str(programs / "samzapy"), *self._command, str(self.job_file), *settings, *self._spark_options]
        inherited = dict(os.environ)
        if by_hand:
            command = [str(programs / "spark-submit"), *self._spark_options, str(self.job_file), *settings]
            inherited = {name: value for name, value in inherited.items() if name not in _OF_SPARK_SUBMIT}
            inherited["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        with self.log_path.open("wb") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**inherited, **self._environment, **(environment or {}), _MARK: self._mark},
                start_new_session=True,
            )
        self._jvm, self._driver = ProcessIdentity.of(self._child.pid), None

    @property
    def log_path(self) -> Path:
        """The file with the output of the latest start, stdout and stderr."""
        return self._log_dir / f"job-{self.starts}.log"

    def log_text(self) -> str:
        """The output of the latest start so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.starts else ""

    def all_log_text(self) -> str:
        """The output of all starts, oldest first."""
        paths = [self._log_dir / f"job-{number}.log" for number in range(1, self.starts + 1)]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in paths)

    def exit_code(self) -> int | None:
        """The exit code of the latest start (137 for kill -9); None while it runs."""
        if self._child is None:
            return None
        code = self._child.poll()
        return code if code is None or code >= 0 else 128 - code

    def is_running(self) -> bool:
        return self._child is not None and self.exit_code() is None

    def jvm(self) -> ProcessIdentity | None:
        """The process that was started: spark-submit's JVM."""
        return self._jvm if self.is_running() else None

    def driver(self) -> ProcessIdentity | None:
        """The Python driver, once there is one."""
        jvm = self.jvm()
        if jvm is None or (self._driver is not None and self._driver.is_alive()):
            return self._driver if jvm is not None else None
        self._driver = next(
            (
                process.identity
                for process in self._marked()
                if process.parent == jvm.pid and str(self.job_file) in process.command[1:3]
            ),
            None,
        )
        return self._driver

    def daemons(self) -> tuple[ProcessIdentity, ...]:
        """pyspark's daemons, which fork the workers, of this start and of earlier ones."""
        return tuple(process.identity for process in self._marked() if process.is_daemon)

    def workers(self) -> tuple[ProcessIdentity, ...]:
        """The Python workers of this start and of earlier ones, the oldest first."""
        workers = [process.identity for process in self._marked() if process.is_worker]
        return tuple(sorted(workers, key=lambda worker: (worker.started_ticks, worker.pid)))

    def left_behind(self) -> tuple[ProcessIdentity, ...]:
        """Every living process of any start."""
        return tuple(process.identity for process in self._marked())

    def scratch_dir(self) -> Path | None:
        """The directory of the running execution's slots and lease."""
        driver = self.driver()
        return None if driver is None else scratch_dir_of(driver.pid)

    def slots(self) -> tuple[SlotSeen, ...]:
        """The worker slots as they are right now; none before the driver has made them."""
        directory = self.scratch_dir()
        return () if directory is None else slots_in(directory)

    def wait_until(self, condition: Callable[[], T | None], deadline_s: float, what: str) -> T:
        """`waiting.wait_until`; its error shows the end of the job's log."""
        try:
            return wait_until(condition, deadline_s, what)
        except Exception as error:
            error.add_note(f"the end of the job's log:\n{self.log_text()[-_LOG_END:]}")
            raise

    def terminate(self, deadline_s: float = 120.0) -> int:
        """Send SIGTERM to the process that was started; returns the exit code.

        Raises:
            DeadlineError: it did not end in time.
        """
        jvm = self.jvm()
        if jvm is not None:
            jvm.send(signal.SIGTERM)
        return self.wait_ended(deadline_s)

    def wait_ended(self, deadline_s: float) -> int:
        """Waits until the latest start has ended; returns its exit code."""
        assert self._child is not None, "started before it is waited for"
        try:
            self._child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise DeadlineError(
                f"Waited {deadline_s:g} s for {self.job_file.name}, pid {self._child.pid}, to end; see {self.log_path}."
            ) from None
        code = self.exit_code()
        assert code is not None
        return code

    def wait_gone(self, deadline_s: float = _ENDS_WITHIN_S) -> None:
        """Waits until no process of any start is left. Raises DeadlineError: names it."""
        # A process that ends has lost its environment, and our mark with it, a moment before it has ended.
        wait_until(
            lambda: not self.left_behind() and not self.is_running(),
            deadline_s,
            f"every process of {self.job_file.name} to end",
        )

    def kill_everything(self) -> None:
        """Ends all processes of any start (SIGKILL), and waits for their end."""
        while processes := self.left_behind():
            for process in processes:
                process.send(signal.SIGKILL)
            for process in processes:
                process.wait_gone(_ENDS_WITHIN_S)
        if self._child is not None:
            self._child.wait(_ENDS_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_everything()

    def _marked(self) -> list[_Marked]:
        """Living processes that bear our mark."""
        marked = []
        for identity in processes_with(_MARK, self._mark):
            directory = Path("/proc", str(identity.pid))
            try:
                command = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
                # After the name, which may hold blanks: state, parent, process group.
                fields = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if identity.is_alive():
                marked.append(
                    _Marked(identity=identity, parent=int(fields[1]), group=int(fields[2]), command=tuple(command))
                )
        return marked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marked:
    identity: ProcessIdentity
    parent: int
    group: int
    command: tuple[str, ...]

    @property
    def is_daemon(self) -> bool:
        """Daemon and workers have one command; the daemon leads the process group."""
        return _is_daemon(self.command) and self.group == self.identity.pid

    @property
    def is_worker(self) -> bool:
        return _is_daemon(self.command) and self.group != self.identity.pid


def _is_daemon(command: Sequence[str]) -> bool:
    """Ours, or PySpark's own, as a session without samzapy has."""
    return WORKER_DAEMON in command or "pyspark.daemon" in command


def kill(process: ProcessIdentity) -> None:
    """Send SIGKILL, and prove that the process has ended.

    Raises:
        ProcessLookupError: it had ended before: no fault was injected.
        DeadlineError: it is still there.
    """
    if not process.send(signal.SIGKILL):
        raise ProcessLookupError(f"process {process.pid} had ended before it was killed")
    if not process.wait_gone(_ENDS_WITHIN_S):
        raise DeadlineError(
            f"Waited {_ENDS_WITHIN_S:g} s for the killed process {process.pid} to end; it still runs."
        )


def scratch_dir_of(driver_pid: int) -> Path | None:
    """The scratch directory of the execution whose driver has, or had, this pid."""
    for path in scratch_directories():
        try:
            _, pid, _ = (path / "owner").read_text().split()
        except (OSError, ValueError):
            continue
        if int(pid) == driver_pid:
            return path
    return None


def slots_in(scratch_dir: Path) -> tuple[SlotSeen, ...]:
    """The worker slots under an execution's scratch directory."""
    slots = []
    # Unlike `Path.glob` it passes over a directory that is removed while it is read.
    for path in (scratch_dir / name for name in sorted(glob.glob("slot-*", root_dir=scratch_dir))):
        try:
            # The message in hand follows it.
            content = json.loads(path.read_bytes()[:CONTENT_BYTES] or b"{}")
            holder = _holder(path)
        except (OSError, ValueError):  # Being written, or removed, right now.
            continue
        slots.append(
            SlotSeen(slot=int(path.name.partition("-")[2]), is_open=content.get("state") == "open", holder=holder)
        )
    return tuple(slots)


def _holder(path: Path) -> int | None:
    """The pid that holds the record lock of a slot file, as the kernel lists it.

    Read from /proc/locks: no descriptor of ours gets near a lock that ends when one of them is closed.
    """
    stat = path.stat()
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "->" not in fields and fields[1] == "POSIX" and fields[5] == place:
            return int(fields[4])
    return None
