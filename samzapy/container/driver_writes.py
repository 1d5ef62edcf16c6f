"""Writes of the driver to topics of the job, under its transactional id."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from samzapy.container.ownership import Ownership
from samzapy.container.ports import ProgressLog
from samzapy.errors import FencedError, ProducerError, TemporaryError

_LOG = logging.getLogger(__name__)


class DriverWrites:
    """Writes records, unless the coordinator declared this execution lost."""

    def __init__(self, log: ProgressLog, ownership: Ownership) -> None:
        self._log = log
        self._ownership = ownership

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append records to the checkpoint topic. Raises as `ProgressLog.append`."""
        self._acquire_id()
        self._log.append(records)

    def remove(self, topic: str, partition: int, keys: Sequence[bytes]) -> None:
        """Write tombstones for records that are no longer valid. Raises as `write`."""
        self.write(topic, partition, [(key, None) for key in keys])

    def write(self, topic: str, partition: int, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records and tombstones to a partition, and log their numbers.

        Raises:
            TemporaryError: the write failed; the next start repeats it.
        """
        if not writes:
            return
        try:
            self._acquire_id()
            self._log.write(topic, partition, writes)
        except (ProducerError, FencedError) as error:
            raise TemporaryError(f"wanted to put {len(writes)} records on {topic}, found {error}") from error
        removed = sum(value is None for _, value in writes)
        _LOG.info("%s-%d: removed %d records, wrote %d", topic, partition, removed, len(writes) - removed)

    def _acquire_id(self) -> None:
        """Acquire the driver's id; raise if this execution was declared lost."""
        if self._log.is_acquired():
            return
        self._log.acquire()
        try:
            self._ownership.read_to_end()
            self._ownership.look_around()
        except BaseException:
            # An id is acquired only once the stream was read afterwards, so the next write acquires it again.
            self._log.close()
            raise
