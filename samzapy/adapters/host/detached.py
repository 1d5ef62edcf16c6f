"""Continue in a process that the end of the terminal does not end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_READY = b"ready"


class Detached:
    """The process that continues, in a session of its own.

    Until it is ready, its output is that of the process that started it.
    """

    def __init__(self, ready: int) -> None:
        self._ready = ready

    @classmethod
    def begin(cls) -> Detached:
        """Continue in a new process, the only one in which this returns.

        Call it before there are threads or clients. The calling process waits until the new one is ready and ends with
        0, or ends with its exit code. Ctrl-C in the calling process ends both.

        Raises:
            SystemExit: in the calling process.
        """
        ended, ready = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            # Both processes would write it.
            stream.flush()
        # An interrupt before the first process waits for the new one would end the first one alone.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        pid = os.fork()
        if pid:
            os.close(ready)
            raise SystemExit(_code_of(pid, ended, mask))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(ended)
        # A signal to the terminal's sessions or groups, such as SIGHUP when it closes, is not for this one.
        os.setsid()
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        return cls(ready)

    def is_ready(self, log: Path) -> None:
        """Let the first process end with 0, and write to the end of `log` from now on.

        Raises:
            OSError: the file cannot be written; the first process still waits.
        """
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # The terminal may be gone.
                stream.flush()
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        with suppress(OSError):  # The first process may have been killed.
            os.write(self._ready, _READY)
        os.close(self._ready)


def _code_of(pid: int, ended: int, mask: Iterable[int]) -> int:
    """Wait until the process is ready or has ended; returns the code to end with.

    Args:
        mask: the signals that are blocked while it waits.
    """
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        is_ready = os.read(ended, len(_READY)) == _READY
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        is_ready = False
    if is_ready:
        return 0
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
