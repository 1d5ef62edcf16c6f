"""The file by which the driver gives its workers the ends of the inputs.

It is in the execution's scratch directory. Only a job that keeps event time has it. The driver replaces it each second.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from samzapy.adapters.spark.scratch_json import read_json
from samzapy.container.ports import EndsSeen
from samzapy.container.task.coverage import Coverage
from samzapy.container.task.ports import Place
from samzapy.container.task.work_plan import WorkPlan

_LOG = logging.getLogger(__name__)
_NAME: Final = "ends"


class EndsContent(msgspec.Struct, frozen=True):
    """The content of the file. `ends`: topic, partition and end offset of each input."""

    query: int
    atMs: int
    ends: list[tuple[str, int, int]]
    coveredMs: dict[str, int]


def write_ends(scratch_dir: Path, query_number: int, seen: EndsSeen) -> None:
    """Replace the file.

    Args:
        query_number: of the query whose positions `seen.covered_ms` is about. Workers of another one ignore the file.
    """
    content = EndsContent(
        query=query_number,
        atMs=seen.at_ms,
        ends=[(ssp.stream, ssp.partition, end) for ssp, end in seen.ends.items()],
        coveredMs={str(ssp_kb): moment_ms for ssp_kb, moment_ms in seen.covered_ms.items()},
    )
    path = scratch_dir / f"{_NAME}-new"
    path.write_bytes(msgspec.json.encode(content))
    path.replace(scratch_dir / _NAME)


class EndsWriter:
    """Writes the file each second, from the driver."""

    def __init__(self, scratch_dir: Path) -> None:
        self._scratch_dir = scratch_dir
        self._has_failed = False

    def write(self, query_number: int, seen: EndsSeen) -> None:
        """Replace the file (`write_ends`).

        A full disk leaves the file as it is until the next look: older ends are right too, and only delay timers.
        """
        try:
            write_ends(self._scratch_dir, query_number, seen)
        except OSError as error:
            if not self._has_failed:
                _LOG.warning(
                    "cannot write the ends of the inputs for the workers, so timers in event time may be late; tried "
                    "again each second: %s",
                    error,
                )
            self._has_failed = True
        else:
            self._has_failed = False


class EndsFile:
    """The file, as one worker process reads it."""

    def __init__(self, scratch_dir: Path) -> None:
        self._path = scratch_dir / _NAME
        self._version: tuple[int, int] | None = None
        self._query_number = -1
        self._covered_ms: Mapping[str, int] = {}
        self._coverage: Coverage[Place] = Coverage()

    def look(self, query_number: int) -> bool:
        """Read the file if it has changed; returns whether it had news for this query."""
        if query_number != self._query_number:
            self._query_number, self._version = query_number, None
            self._covered_ms, self._coverage = {}, Coverage()
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ino)
            if version == self._version:
                return False
            content = read_json(self._path.read_bytes(), EndsContent, self._path)
        except FileNotFoundError:
            return False
        self._version = version
        if content.query != query_number:
            return False
        self._covered_ms = content.coveredMs
        self._coverage.note_ends(content.atMs, {(topic, partition): end for topic, partition, end in content.ends})
        return True

    def covered_ms(self, plan: WorkPlan) -> Mapping[int, int]:
        """By route, up to which moment everything is handled, as the driver knows it."""
        self.look(plan.query_number)
        moments = {index: self._covered_ms.get(str(route.ssp_kb)) for index, route in enumerate(plan.routes)}
        return {index: moment_ms for index, moment_ms in moments.items() if moment_ms is not None}

    def covered_at(self, place: Place, offset_next: int) -> int | None:
        """The same for a partition that this worker has read by itself up to an offset."""
        return self._coverage.covered_ms(place, offset_next)
