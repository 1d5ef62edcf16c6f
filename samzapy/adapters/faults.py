"""Note the faults that end a process.

They are SIGSEGV, SIGBUS, SIGABRT, SIGFPE and SIGILL. Python's `faulthandler` writes the stack of the faulty thread from
inside the signal's handler. A process that is killed (SIGKILL) leaves an empty note. So the next process can
distinguish the two, and sees the code with the fault, although it is not the parent of the first one.
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
    """Note a fault of this process in `directory`; the last call counts.

    If no note can be written, faults leave no trace, as without this call.
    """
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        _sweep(directory)
        descriptor = os.open(directory / this_process(), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o664)
        # The descriptor stays open for as long as the process lives: the handler cannot open one.
        faulthandler.enable(file=descriptor, all_threads=False)


def fault_of(directory: Path, process: str) -> Fault | None:
    """The fault that ended a process, by its name of `this_process`.

    Returns None if there is no note of one.
    """
    try:
        text = (directory / process).read_text(errors="replace")
    except OSError:
        return None
    return Fault(text) if text.strip() else None


class Fault:
    """The note of a process about its fault."""

    def __init__(self, text: str) -> None:
        self.name = text.strip().partition("\n")[0].removeprefix("Fatal Python error: ")
        frames = _FRAME.findall(text)
        self._innermost = frames[0] if frames else ""

    def is_in(self, directory: str) -> bool:
        """Whether the innermost frame is of a file in this directory."""
        return os.path.dirname(self._innermost) == directory


def this_process() -> str:
    """A unique name of this process: pid, start time, and the namespace of pids."""
    return _name_of(os.getpid()) or str(os.getpid())


def _name_of(pid: int) -> str | None:
    """The unique name of the process with this pid; None if there is none."""
    try:
        # The second field is the name in parentheses, and may itself hold blanks and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return f"{pid}-{fields[19]}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return None


def _sweep(directory: Path) -> None:
    """Remove notes of processes that ended without a fault, and old notes.

    A note has the time of its process's start, so a process that lives keeps an old one. Whether a process of another
    namespace lives is not seen from here.
    """
    own = this_process().rpartition("-")[2]
    for note in directory.iterdir():
        with suppress(OSError, ValueError):
            pid, _, namespace = note.name.split("-")
            if namespace == own and _name_of(int(pid)) == note.name:
                continue
            stat = note.stat()
            if (namespace == own and not stat.st_size) or stat.st_mtime < time.time() - _KEPT_S:
                note.unlink()
