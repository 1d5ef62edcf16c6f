"""The ends of containers, kept beside the local store until the stream has them.

A container that ends by an error writes its report to a file, because no leader may be left to hear it. The next
container on the host hands the reports over, and removes each file once the stream has its report.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ProcessorId
from samzapy.model.strict_json import parse_json

_LOG = logging.getLogger(__name__)
_SUFFIX: Final = ".json"
_DAMAGED: Final = ".damaged"
FILES_MAX: Final = 20
_BYTES_MAX: Final = 16_384


class EndFiles:
    """The reports of one job on this host (`container.ports.FormerEnds`).

    No error of the file system ends a process because of them.

    Args:
        directory: made when the first report is written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._left: tuple[ContainerEnd, ...] | None = None

    @classmethod
    def of(cls, local_store_dir: str | None, job: str) -> EndFiles | None:
        """The files beside the local store; None for a job without a configured directory."""
        # Beside the tasks' directories, under a name that no task can have.
        return None if local_store_dir is None else cls(Path(local_store_dir) / job / ".ends")

    def write(self, end: ContainerEnd) -> None:
        """Replace the report of the container; readable for this user only."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._prune()
            # `mkstemp` makes files with mode 0600.
            descriptor, name = tempfile.mkstemp(dir=self._directory, prefix=".")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(end.as_json(), file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path(end))
        except OSError as error:
            _LOG.warning("cannot keep the reason of this end in %s: %s", self._directory, error.strerror)

    def unrecorded(self, recorded: Mapping[ProcessorId, ContainerEnd]) -> tuple[ContainerEnd, ...]:
        """The reports that the stream does not have; files of the others are removed.

        The files are read at the first call.
        """
        if self._left is None:
            self._left = self.read()
        done = [end for end in self._left if end.is_recorded(recorded)]
        for end in done:
            with suppress(OSError):
                self._path(end).unlink()
        if done:
            self._left = tuple(end for end in self._left if end not in done)
        return self._left

    def read(self) -> tuple[ContainerEnd, ...]:
        """All reports; a damaged file is put aside with a warning."""
        ends = []
        for path in self._files():
            try:
                ends.append(_read(path))
            except (OSError, ValueError) as error:
                _LOG.warning("%s does not tell why a container ended, and is put aside: %s", path, error)
                with suppress(OSError):
                    path.replace(path.with_suffix(_DAMAGED))
        return tuple(ends)

    def _files(self) -> list[Path]:
        """The newest files, the oldest of them first."""
        with suppress(OSError):
            return [path for path in self._oldest_first() if path.suffix == _SUFFIX][-FILES_MAX:]
        return []

    def _prune(self) -> None:
        """Make room for one more report, because a job may never start again.

        A file that cannot be removed keeps no report from being written.
        """
        with suppress(OSError):
            for path in self._oldest_first()[: -(FILES_MAX - 1)]:
                path.unlink(missing_ok=True)

    def _oldest_first(self) -> list[Path]:
        """All files of the directory.

        Another container may rename or remove its own meanwhile, and they are left out.
        """
        times_ns = {}
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):
                times_ns[path] = path.stat().st_mtime_ns
        return sorted(times_ns, key=times_ns.__getitem__)

    def _path(self, end: ContainerEnd) -> Path:
        return self._directory / f"{end.execution_id}{_SUFFIX}"


def _read(path: Path) -> ContainerEnd:
    with path.open("rb") as file:
        body = file.read(_BYTES_MAX + 1)
    if len(body) > _BYTES_MAX:
        raise ValueError(f"wanted at most {_BYTES_MAX} bytes")
    values = parse_json(body)
    if not isinstance(values, dict):
        raise ValueError("wanted an object as JSON")
    end = ContainerEnd.from_json(values)
    if path.stem != end.execution_id:
        raise ValueError(f"wanted the report of {path.stem}, found that of {end.execution_id}")
    return end
