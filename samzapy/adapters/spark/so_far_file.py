"""The costs that a worker has not reported yet, in a file of its slot.

It is replaced as a whole, so that the driver reads no half of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from samzapy.adapters.spark.scratch_json import read_json
from samzapy.container.task.so_far import SoFar
from samzapy.errors import SamzapyError
from samzapy.model.task_stats import TaskStats

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    route: int
    elapsed_ns: int
    stats: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    query: int
    noted: list[_Cost]


class SoFarFile:
    """The file of one slot; the process that holds the slot writes it.

    Args:
        slot_path: the path of the slot.
    """

    def __init__(self, slot_path: Path) -> None:
        self._path = slot_path.with_name(f"so-far-{slot_path.name}")

    def write(self, query_number: int, noted: Sequence[SoFar]) -> None:
        """Replace the costs.

        A full disk leaves them out, because no decision needs them.
        """
        costs = [_Cost(route=one.route, elapsed_ns=one.elapsed_ns, stats=one.stats.as_json()) for one in noted]
        written = self._path.with_name(f"{self._path.name}-new")
        try:
            written.write_bytes(msgspec.json.encode(_Content(query=query_number, noted=costs)))
            os.replace(written, self._path)
        except OSError as error:
            _LOG.debug("costs that are not reported yet are left out: %s", error)

    def remove(self) -> None:
        """Remove the costs, before they are reported."""
        self._path.unlink(missing_ok=True)

    def read(self, query_number: int) -> Sequence[SoFar]:
        """The costs of a worker of this query.

        A file that cannot be read has none, because no decision needs them.
        """
        try:
            return self.decoded(self._path.read_bytes(), query_number)
        except FileNotFoundError:
            return ()
        except (OSError, SamzapyError) as error:
            _LOG.warning("costs that are not reported yet are left out: %s", error)
            return ()

    def decoded(self, raw: bytes, query_number: int) -> Sequence[SoFar]:
        """The costs in these bytes.

        Raises:
            SamzapyError: other bytes than `write` writes.
        """
        content = read_json(raw, _Content, self._path)
        if content.query != query_number:
            return ()
        try:
            return [
                SoFar(route=one.route, elapsed_ns=one.elapsed_ns, stats=TaskStats.from_json(one.stats))
                for one in content.noted
                if one.route >= 0
            ]
        except ValueError as error:
            raise SamzapyError(
                f"{self._path}: wanted the costs of a worker of this container, found {error}; they are left out. "
                "If that repeats, check the memory of this host"
            ) from error
