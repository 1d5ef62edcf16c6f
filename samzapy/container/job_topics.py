"""Writes to the job's own topics from the driver: tombstones, copies of broadcast stores, progress records.

They are written under the driver's transactional id, which the container acquires when it first needs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from samzapy.container.ports import ProgressLog
from samzapy.errors import FencedError, ProducerError, TemporaryError

_LOG = logging.getLogger(__name__)


class JobTopics:
    """The writer with the driver's id.

    Args:
        check_owner: reads the coordinator stream to the end, and raises if this execution was declared lost.
    """

    def __init__(self, log: ProgressLog, check_owner: Callable[[], None]) -> None:
        self._log = log
        self._check_owner = check_owner

    def acquire(self) -> None:
        """Take the driver's id, unless it is taken, and continue only if this execution is not declared lost."""
        if self._log.is_owned():
            return
        self._log.own()
        try:
            self._check_owner()
        except BaseException:
            # Unchecked, the id must not be used: the next caller acquires it again.
            self._log.close()
            raise

    def write(self, topic: str, partition: int, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records, and tombstones of records that no longer count, in one transaction.

        Raises:
            TemporaryError: it failed, and the next start does it again.
        """
        if not writes:
            return
        try:
            self.acquire()
            self._log.write(topic, partition, writes)
        except (ProducerError, FencedError) as error:
            raise TemporaryError(f"wanted to put {len(writes)} records on {topic}, found {error}") from error
        removed = sum(value is None for _, value in writes)
        _LOG.info("%s-%d: removed %d records, wrote %d", topic, partition, removed, len(writes) - removed)

    def remove(self, topic: str, partition: int, keys: Sequence[bytes]) -> None:
        """Write tombstones of these keys. Raises as `write`."""
        self.write(topic, partition, [(key, None) for key in keys])

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append progress records to the checkpoint topic."""
        self.acquire()
        self._log.append(records)
