"""This process and the processes of its host.

Commands of an operator need them without all that a leader imports.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from samzapy.adapters.host.end_files import EndFiles
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ExecutionId


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This process and its host, as records name them."""

    host: str
    boot_id: str
    pid: int
    process_started_ms: int

    @classmethod
    def now(cls) -> Here:
        own = ProcessIdentity.of(os.getpid())
        return cls(
            host=socket.gethostname(),
            boot_id=own.boot_id,
            pid=own.pid,
            process_started_ms=own.started_ms,
        )


class HostProcesses:
    """Looks at processes of this host (`coordinator.ports.Processes`)."""

    def __init__(self, boot_id: str, end_files: EndFiles | None = None) -> None:
        self._boot_id = boot_id
        self._end_files = end_files

    def is_alive(self, boot_id: str, pid: int, process_started_ms: int) -> bool | None:
        if boot_id != self._boot_id:
            return None
        try:
            process = ProcessIdentity.of(pid)
            return process.started_ms == process_started_ms and process.is_alive()
        except PermissionError:
            return None
        except ProcessLookupError:
            return None if _is_hidden(pid) else False

    def end_of(self, execution_id: ExecutionId) -> ContainerEnd | None:
        ends = () if self._end_files is None else self._end_files.read()
        return next((end for end in ends if end.execution_id == execution_id), None)


def _is_hidden(pid: int) -> bool:
    """Whether another user's process has the pid.

    With the option `hidepid` of `/proc` such a process looks there like one that has ended.
    """
    try:
        with suppress(ProcessLookupError, OverflowError):
            os.kill(pid, 0)
    except PermissionError:
        return True
    return False
