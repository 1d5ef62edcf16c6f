"""The mark of an environment's user, by which the next user learns its end.

A data file that is damaged may end each process that opens it. The changelog has everything, so the way out is to
discard that environment. The end of the last process decides:

| the last user                                             | then                                                  |
|-----------------------------------------------------------|-------------------------------------------------------|
| closed it, or ended its transaction                       | the environment is used                               |
| found an entry or a page that has changed                 | discarded                                             |
| died of a fault (SIGBUS, SIGSEGV, ...) in LMDB's code     | discarded                                             |
| died of a fault elsewhere: in the user's own code         | used: it is not to blame                              |
| died otherwise (`kill -9`, out of memory) in a transaction| used; the third in a row in its first transaction: not|
| died otherwise while it opened it, which takes a moment   | used; the second in a row: discarded                  |

So a container that is killed keeps its state, however large, and one that dies of it loses it once.

The mark stands in the lock file, which its user has locked meanwhile: a mark that another process finds when it has the
lock is one whose author is gone. A process that reads a whole environment for another task does not keep the lock; its
mark counts once it has left a fault.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from samzapy.adapters.faults import fault_of, this_process

_AT: Final = 64
_BYTES: Final = 128
_OPENING, _USING, _READING, _COUNTED, _DAMAGED = "opening", "using", "reading", "counted", "damaged"
_CALLS_LMDB: Final = str(Path(__file__).parent)
_DEATHS_MAX: Final = {_OPENING: 2, _USING: 3}


class UseMark:
    """The mark of one environment, in a lock file that is open and locked by its user.

    Args:
        faults: where processes note their faults (`adapters.faults`).
    """

    def __init__(self, descriptor: int, faults: Path) -> None:
        self._descriptor = descriptor
        self._faults = faults
        self._is_damaged = False
        # How many users in a row have died in their first transaction, or before it.
        self._deaths = 0
        self._process = this_process()

    def doubt(self) -> str:
        """Why the environment must not be opened, by its last user; empty if it may be."""
        phase, process, deaths = (*self._read().split(maxsplit=2), "", "", "")[:3]
        if phase == _DAMAGED:
            return f"process {process} found it damaged"
        if not deaths.isdecimal():
            return ""
        if phase == _COUNTED:
            self._deaths = int(deaths)
        if phase not in (_OPENING, _USING, _READING):
            return ""
        fault = fault_of(self._faults, process)
        act = "opened" if phase == _OPENING else "used"
        if fault is not None:
            is_of_it = fault.is_in(_CALLS_LMDB)
            return f"process {process} died of a fault while it {act} it: {fault.name}" if is_of_it else ""
        if phase == _READING:
            return ""  # It may live: it does not keep the lock for that.
        self._deaths = int(deaths) + 1
        if self._deaths < _DEATHS_MAX[phase]:
            return ""
        return f"{self._deaths} processes in a row died while they {act} it, the last one was {process}"

    def opening(self) -> None:
        self._write(f"{_OPENING} {self._process} {self._deaths}")

    def opened(self) -> None:
        """Note that it was opened, and not used yet."""
        self._write(f"{_COUNTED} - {self._deaths}" if self._deaths else "")

    def using(self) -> None:
        self._write(f"{_USING} {self._process} {self._deaths}")

    def used(self) -> None:
        """Note that a transaction has ended, and its user lives."""
        self._deaths = 0
        if not self._is_damaged:
            self._write("")

    def reading(self) -> None:
        """Note a process that reads all entries; several may do so at once."""
        self._write(f"{_READING} {self._process} 0")

    def read(self) -> None:
        if self._read().startswith(f"{_READING} {self._process} "):
            self._write("")

    def damaged(self) -> None:
        """Note that the next process must discard the environment."""
        self._is_damaged = True
        self._write(f"{_DAMAGED} {self._process}")

    def _read(self) -> str:
        return os.pread(self._descriptor, _BYTES, _AT).decode(errors="replace").strip("\0 ")

    def _write(self, text: str) -> None:
        # Without a mark a damaged environment is found out later, which is no reason to stop now.
        with suppress(OSError):
            os.pwrite(self._descriptor, text.ljust(_BYTES).encode(), _AT)
