"""Notes that a process leaves when a fault of its own ends it: SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL.

Python's `faulthandler` writes the stack of the thread that met the fault, from inside the signal's handler. A process
that somebody kills (SIGKILL) leaves an empty note. So the next process can tell the two apart, and sees in which code
the fault was, although it is no parent of the first one.
"""

from __future__ import annotations

import faulthandler
import os
import re
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_FRAME = re.compile(r'^\s+File "(.*)", line \d+ in ', re.MULTILINE)
_KEPT_S = 86_400


@cache
def note_faults(directory: Path) -> None:
    """Let a fault of this process be noted in `directory`; the last directory that was given counts.

    Where no note can be written faults go unnoticed, as they would without this.
    """
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        _sweep(directory)
        descriptor = os.open(directory / this_process(), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o664)
        # The descriptor stays open for as long as the process lives: the handler cannot open one.
        faulthandler.enable(file=descriptor, all_threads=False)


def fault_of(directory: Path, process: str) -> Fault | None:
    """The fault that ended a process (`this_process` of it); None where none was noted."""
    try:
        text = (directory / process).read_text(errors="replace")
    except OSError:
        return None
    return Fault(text) if text.strip() else None


class Fault:
    """What a process noted of its fault."""

    def __init__(self, text: str) -> None:
        self.name = text.strip().partition("\n")[0].removeprefix("Fatal Python error: ")
        frames = _FRAME.findall(text)
        self._innermost = frames[0] if frames else ""

    def is_in(self, directory: str) -> bool:
        """Whether the fault came from what a file of this directory called."""
        return os.path.dirname(self._innermost) == directory


def this_process() -> str:
    """A name of this process that no other one has: pid, start, and the namespace of pids."""
    return _name_of(os.getpid()) or str(os.getpid())


def _name_of(pid: int) -> str | None:
    """None where no process has the pid."""
    try:
        # The second field is the name in parentheses, and may itself hold blanks and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return f"{pid}-{fields[19]}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return None


def _sweep(directory: Path) -> None:
    """Remove notes of processes that ended without a fault, and those that are old."""
    own = this_process().rpartition("-")[2]
    for note in directory.iterdir():
        with suppress(OSError, ValueError):
            pid, _, namespace = note.name.split("-")
            is_over = namespace == own and _name_of(int(pid)) != note.name
            found = note.stat()
            if (is_over and not found.st_size) or found.st_mtime < time.time() - _KEPT_S:
                note.unlink()
