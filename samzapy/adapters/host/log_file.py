"""The log file of a container that the process launcher started."""

from __future__ import annotations

import os
from pathlib import Path

from samzapy.errors import RejectedError
from samzapy.model.job import ExecutionId


def log_path(directory: Path, host: str, execution_id: ExecutionId) -> Path:
    """The log of an execution on a logical host of `cluster.process.dir`."""
    return directory / host / f"{execution_id}.log"


class LogFile:
    """A log on this machine (`cli.container.log_text.Log`)."""

    def __init__(self, path: Path, host: str) -> None:
        self._path = path
        self._host = host

    def length(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError as error:
            raise self._unreadable(error) from error

    def read(self, start: int, end: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                return os.pread(file.fileno(), end - start, start)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> RejectedError:
        return RejectedError(
            f"wanted the log of the container, {self._path} of host {self._host}, found: {error.strerror}; run this "
            "command on the machine of `samzapy job submit`, as a user who may read the file"
        )
