"""The outputs to which a job has written on this host, as a file.

It is beside the local state of the job. A task may send to a topic that nothing declares. The next owner of a
transactional id must know it, to end a transaction that hangs there (`adapters.kafka.hanging`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from samzapy.config import JobConfig, is_topic_name

_LOG = logging.getLogger(__name__)
_NAME: Final = ".outputs"
"""No task has this name."""


class OutputsFile:
    """The file, as one process writes and reads it."""

    def __init__(self, path: Path | None) -> None:
        """Read and write a file; without one, nothing is known."""
        self._path = path
        self._noted: set[str] = set()
        # The topics as they were read last, and the file's inode, size and time of change before that.
        self._read: tuple[str, ...] = ()
        self._version: tuple[int, int, int] | None = None

    @classmethod
    def of(cls, config: JobConfig, scratch_dir: Path | None = None) -> Self:
        """The file of a job on this host.

        Args:
            scratch_dir: for a job that keeps nothing on the disk; its file goes with the execution.
        """
        if config.local_store_dir is not None:
            return cls(Path(config.local_store_dir) / config.job / _NAME)
        return cls(None if scratch_dir is None else scratch_dir / _NAME)

    def note(self, topic: str) -> None:
        """Note a topic, before the first record goes to it.

        The note outlives a power cut: the record may be on a broker that has none.
        """
        if topic in self._noted or self._path is None:
            return
        self._noted.add(topic)
        if topic in self.topics():
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A short line is appended whole, whatever other workers append. It begins with a new line, because a write
            # before it may have been cut short.
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"\n{topic}\n")
                file.flush()
                os.fsync(file.fileno())
            _sync_directory(self._path.parent)
        except OSError as error:
            _LOG.warning("cannot note the output %s, so a transaction that hangs there stays: %s", topic, error)

    def topics(self) -> Sequence[str]:
        """The topics that any worker has noted, the newest last.

        The file is read when it has changed: a container asks each second.
        """
        try:
            if self._path is None:
                return ()
            status = self._path.stat()
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            if version != self._version:
                # A line that was cut short, or that a power cut has filled with zeros, names no topic.
                lines = self._path.read_text(encoding="utf-8", errors="replace").split()
                self._read = tuple(dict.fromkeys(line for line in lines if is_topic_name(line)))
                self._version = version
            return self._read
        except OSError:
            # Mostly there is none: a coordinator without containers has no state, and its directory may be none.
            return ()


def _sync_directory(path: Path) -> None:
    """Make the names in a directory outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
