"""Processes named so that they cannot be mistaken for others.

A pid alone is a name that the kernel gives away again. With the time the process started, in ticks since
boot, and the boot itself it means one process for ever, so a pid file left behind by a crash never gets
somebody else's process killed. Containers of one machine (Docker, pods) share the boot, but each has pids of its
own, so the namespace of pids belongs to it too. Signals go through a pidfd: between the check and the signal the pid
cannot change hands. Linux only (`/proc`, pidfd).
"""

from __future__ import annotations

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
    """One process, for ever: pid, start time in clock ticks since boot, and which boot and namespace of pids."""

    pid: int
    started_ticks: int
    boot_id: str

    @property
    def started_ms(self) -> int:
        """When it started, in milliseconds since boot."""
        return self.started_ticks * 1000 // _TICKS_PER_S

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The process that has `pid` now. Raises ProcessLookupError when none has."""
        stat = _read_stat(pid)
        if stat is None:
            raise ProcessLookupError(f"no process has pid {pid}")
        return cls(pid=pid, started_ticks=stat.started_ticks, boot_id=_boot_and_namespace())

    def is_alive(self) -> bool:
        """Whether anything of it still runs, or is stopped; a zombie does not."""
        stat = self._stat()
        return stat is not None and not stat.is_over

    def is_stopped(self) -> bool:
        """Whether SIGSTOP has taken effect."""
        stat = self._stat()
        return stat is not None and stat.state == "T"

    def send(self, number: signal.Signals) -> bool:
        """Sends a signal; False when the process is gone already. Nobody else ever gets it."""
        with self._pidfd() as fd:
            if fd is None:
                return False
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
                return True
            return False

    def wait_gone(self, deadline_s: float) -> bool:
        """Waits for the process to end, and reaps it when it is a child; whether it is gone."""
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
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            # Opened first, asked after: if the answer is yes, then the descriptor means this very process.
            yield fd if self.is_alive() else None
        finally:
            os.close(fd)


def start_in_own_session(command: Sequence[str], log_path: Path, environment: Mapping[str, str]) -> ProcessIdentity:
    """Start a process that may outlive this one: own session, nothing on stdin, all it prints behind `log_path`.

    It gets no descriptor of this one: a lock on a file that a shell gave to us would be held as long as it lives.

    When it returns `processes_bearing` finds the process, unless it has ended.

    Raises:
        OSError: the program cannot be started, or the file cannot be written.
    """
    # Not Popen: that object complains when dropped while its process lives, as a detached one shall.
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
    # The kernel lets us go on a moment before it has put the new program's environment in place. Who looks just then
    # would take what was started for ended, and its place for free.
    give_up_s = time.monotonic() + _VISIBLE_WITHIN_S
    while environment and not _environ(pid) and process.is_alive() and time.monotonic() < give_up_s:
        time.sleep(_LOOK_AGAIN_S)
    return process


def _inherited_descriptors() -> list[int]:
    """Those that a program started now would get, but for stdin, stdout and stderr."""
    found = []
    for fd in (int(name) for name in os.listdir("/proc/self/fd")):
        with suppress(OSError):  # The one of the listing itself is closed by now.
            if fd > 2 and os.get_inheritable(fd):
                found.append(fd)
    return found


def _environ(pid: int | str) -> bytes:
    """What a process was started with; nothing when it is gone or is somebody else's."""
    return _shown(pid, "environ")


def _shown(pid: int | str, what: str) -> bytes:
    try:
        return Path("/proc", str(pid), what).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _environ_of_program(pid: str) -> bytes:
    """As `_environ`, also of a process that is just becoming another program (exec)."""
    found, believed_after = _environ(pid), 3
    give_up_s = time.monotonic() + _VISIBLE_WITHIN_S
    while not found and believed_after and _runs_program(pid) and time.monotonic() < give_up_s:
        # Until the kernel has put the new program's environment in place, it shows no command line either.
        if _shown(pid, "cmdline"):
            believed_after -= 1
        else:
            time.sleep(_LOOK_AGAIN_S)
        found = _environ(pid)
    return found


def _runs_program(pid: str) -> bool:
    """Whether it is a process of this user, and neither a zombie nor a thread of the kernel."""
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def processes_with(variable: str, value: str) -> tuple[ProcessIdentity, ...]:
    """The living processes of this user that were started with `variable` set to `value`, in the order of their pids.

    Children inherit it, so those whose parents are gone are found too.
    """
    return tuple(process for process, found in processes_bearing(variable) if found[variable] == value)


def processes_bearing(variable: str) -> tuple[tuple[ProcessIdentity, Mapping[str, str]], ...]:
    """The living processes of this user that were started with `variable` set, and what they were started with."""
    mark, found = f"{variable}=".encode(), []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):
            entries = _environ_of_program(name).split(b"\0")
            if not any(entry.startswith(mark) for entry in entries):
                continue
            texts = (entry.decode(errors="replace").partition("=") for entry in entries if entry)
            found.append((ProcessIdentity.of(int(name)), {key: value for key, _, value in texts}))
    return tuple(sorted(((process, of) for process, of in found if process.is_alive()), key=lambda item: item[0].pid))


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
    # The kernel gives the number of a namespace away again, but only when no process is left in it.
    return f"{boot_id()}.{Path('/proc/self/ns/pid').stat().st_ino}"
