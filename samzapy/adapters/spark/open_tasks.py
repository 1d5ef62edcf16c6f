"""Which workers have instances of user code, and the request to close them.

A worker locks the byte of its pid in one file for as long as it has any. The kernel drops the lock of a process that
ends, and names the holder to the driver. So a request never reaches another process that has the pid of a worker.

The request is a signal, because a worker that waits for Spark's next task reads a socket of Spark's. It is not SIGHUP,
whose default action PySpark sets again before each of Spark's tasks.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import struct
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

CLOSE_SIGNAL: Final = signal.SIGRTMIN
"""Asks a worker to close its tasks."""
_LOG = logging.getLogger(__name__)
_FLOCK = "@hhqqi"
_LOOK_S = 0.005
_PIDS_END = 1 << 31


class OpenTasks:
    """Whether this worker has instances of user code."""

    def __init__(self, scratch_dir: Path) -> None:
        self._descriptor = _open(scratch_dir)
        self._has_any = False

    def note(self) -> None:
        """Note that there are some."""
        if not self._has_any:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, os.getpid())
            self._has_any = True

    def clear(self) -> None:
        """Note that all are closed."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, os.getpid())
        self._has_any = False


class WorkersWithTasks:
    """The driver's side of `OpenTasks`."""

    def __init__(self, scratch_dir: Path) -> None:
        self._descriptor = _open(scratch_dir)

    def pids(self) -> Collection[int]:
        """The workers that have instances of user code."""
        pids: list[int] = []
        # The kernel names any one of the locks in a range, so both sides of it are asked for, too.
        ranges = [(0, _PIDS_END)]
        while ranges:
            start, end = ranges.pop()
            wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
            kind, _, place, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._descriptor, fcntl.F_GETLK, wanted))
            if kind == fcntl.F_UNLCK:
                continue
            # `os.kill` takes other numbers for groups of processes.
            if pid > 0:
                pids.append(pid)
            ranges += [(low, high) for low, high in ((start, place), (place + 1, end)) if low < high]
        return pids

    def close(self, wait_ms: int) -> None:
        """Have the workers close their tasks, for `wait_ms` at most.

        Call this while no worker can be at work.
        """
        deadline_s = time.monotonic() + wait_ms / 1000
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, CLOSE_SIGNAL)
        while pids := self.pids():
            if time.monotonic() >= deadline_s:
                _LOG.warning(
                    "the tasks of Python workers %s were not closed within %d ms; the stop goes on",
                    ", ".join(map(str, pids)),
                    wait_ms,
                )
                return
            time.sleep(_LOOK_S)


def _open(scratch_dir: Path) -> int:
    """Open the file of the locks.

    Once in a process: to close any descriptor of it drops the locks.
    """
    return os.open(scratch_dir / "open-tasks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
