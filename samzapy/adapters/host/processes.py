"""Identify processes for ever, and send them signals.

The kernel reuses pids. The pid, the start time in ticks since boot, and the boot together mean one process for ever, so
a pid file that a crash leaves behind never gets another process killed. Containers of one machine (Docker, pods) share
the boot, but each has pids of its own, so the identity has the namespace of pids too. Signals go through a pidfd, so
the pid cannot be reused between the check and the signal. Linux only (`/proc`, pidfd).
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from samzapy.adapters.boot import boot_id

_VISIBLE_WITHIN_S = 1.0
_LOOK_AGAIN_S = 0.001
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """One process for ever.

    Its identity is the pid, the start time in clock ticks since boot, and the boot with the namespace of pids.
    """

    pid: int
    started_ticks: int
    boot_id: str

    @property
    def started_ms(self) -> int:
        """The start time in milliseconds since boot."""
        return self.started_ticks * 1000 // _TICKS_PER_S

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The process that has `pid` now. Raises ProcessLookupError when none has."""
        stat = _read_stat(pid)
        if stat is None:
            raise ProcessLookupError(f"no process has pid {pid}")
        return cls(pid=pid, started_ticks=stat.started_ticks, boot_id=_boot_and_namespace())

    def is_alive(self) -> bool:
        """Whether a thread of it still runs or is stopped; a zombie does not count."""
        stat = self._stat()
        return stat is not None and not stat.is_over

    def is_stopped(self) -> bool:
        """Whether SIGSTOP has taken effect."""
        stat = self._stat()
        return stat is not None and stat.state == "T"

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False if the process is gone. No other process ever gets it."""
        with self._pidfd() as fd:
            if fd is None:
                return False
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
                return True
            return False

    def wait_gone(self, deadline_s: float) -> bool:
        """Wait for the process to end, and reap it if it is a child; whether it is gone."""
        with self._pidfd() as fd:
            if fd is not None:
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                poll.poll(deadline_s * 1000)
        if not self.is_alive():
            with suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            return True
        return False

    def _stat(self) -> _Stat | None:
        stat = _read_stat(self.pid)
        if stat is None or stat.started_ticks != self.started_ticks or _boot_and_namespace() != self.boot_id:
            return None
        return stat

    @contextmanager
    def _pidfd(self) -> Iterator[int | None]:
        fd = self._opened() if self.is_alive() else None
        if fd is None:
            yield None
            return
        try:
            # The check comes after the opening: if the process is alive now, the descriptor is of this very process.
            yield fd if self.is_alive() else None
        finally:
            os.close(fd)

    def _opened(self) -> int | None:
        try:
            return os.pidfd_open(self.pid)
        except OSError as error:
            # A thread of another process may have taken over the pid; its error depends on the kernel.
            if error.errno not in (errno.ESRCH, errno.ENOENT, errno.EINVAL):
                raise
            return None


def start_in_own_session(command: Sequence[str], log_path: Path, environment: Mapping[str, str]) -> ProcessIdentity:
    """Start a process that may outlive this one, in a session of its own.

    Its stdin is empty, and its output goes to the end of `log_path`. It inherits no descriptor: otherwise it would hold
    a file lock that this process got from its shell.

    On return `processes_bearing` lists the process, unless it has ended.

    Raises:
        OSError: the program cannot be started, or the file cannot be written.
    """
    # No Popen, because it warns when it is dropped before its process ends.
    pid = os.posix_spawn(
        command[0],
        list(command),
        environment,
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inherited_descriptors()),
        ],
    )
    process = ProcessIdentity.of(pid)
    # The call returns a moment before the kernel shows the new program's environment. A look in between would miss the
    # process, and count its slot as free.
    give_up_s = time.monotonic() + _VISIBLE_WITHIN_S
    while environment and not _environ(pid) and process.is_alive() and time.monotonic() < give_up_s:
        time.sleep(_LOOK_AGAIN_S)
    return process


def _inherited_descriptors() -> list[int]:
    """The descriptors that a new program would inherit.

    Without stdin, stdout and stderr.
    """
    descriptors = []
    for fd in (int(name) for name in os.listdir("/proc/self/fd")):
        with suppress(OSError):  # The descriptor of the listing itself is closed by now.
            if fd > 2 and os.get_inheritable(fd):
                descriptors.append(fd)
    return descriptors


def _environ(pid: int | str) -> bytes:
    """The environment of a process; empty if it is gone or belongs to another user."""
    return _proc_file(pid, "environ")


def _proc_file(pid: int | str, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _environ_of_program(pid: str) -> bytes:
    """Like `_environ`, also while the process becomes another program (exec)."""
    environment, tries_left = _environ(pid), 3
    give_up_s = time.monotonic() + _VISIBLE_WITHIN_S
    while not environment and tries_left and _runs_program(pid) and time.monotonic() < give_up_s:
        # Until the kernel shows the new program's environment, it shows no command line either.
        if _proc_file(pid, "cmdline"):
            tries_left -= 1
        else:
            time.sleep(_LOOK_AGAIN_S)
        environment = _environ(pid)
    return environment


def _runs_program(pid: str) -> bool:
    """Whether it is a process of this user, and no zombie or kernel thread."""
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def processes_with(variable: str, value: str) -> tuple[ProcessIdentity, ...]:
    """The living processes of this user with `variable` set to `value`.

    They are in the order of their pids. Children inherit the variable, so the result also has children without a
    parent.
    """
    bearing = processes_bearing(variable)
    return tuple(process for process, environment in bearing if environment[variable] == value)


def processes_bearing(variable: str) -> tuple[tuple[ProcessIdentity, Mapping[str, str]], ...]:
    """The living processes of this user with `variable`, and their environments.

    The variable must have been set at their start.
    """
    mark, bearing = f"{variable}=".encode(), []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):
            entries = _environ_of_program(name).split(b"\0")
            if not any(entry.startswith(mark) for entry in entries):
                continue
            texts = (os.fsdecode(entry).partition("=") for entry in entries if entry)
            bearing.append((ProcessIdentity.of(int(name)), {key: value for key, _, value in texts}))
    return tuple(sorted((one for one in bearing if one[0].is_alive()), key=lambda one: one[0].pid))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stat:
    state: str
    threads: int
    started_ticks: int

    @property
    def is_over(self) -> bool:
        # A killed JVM's first thread is a zombie while the others still hold its ports, for 30 ms or so.
        return self.state in "Xx" or (self.state == "Z" and self.threads <= 1)


def _read_stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the name in parentheses, and may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], threads=int(fields[17]), started_ticks=int(fields[19]))


@cache
def _boot_and_namespace() -> str:
    # The kernel reuses the number of a namespace only when no process is left in it.
    return f"{boot_id()}.{Path('/proc/self/ns/pid').stat().st_ino}"
