"""Positions that the driver writes and removes; workers commit checkpoints.

A bucket without messages commits nothing. The driver records its progress, so that the next start does not read the
messages of other buckets again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from samzapy.config import JobConfig
from samzapy.container.driver_writes import DriverWrites
from samzapy.container.ports import Clock
from samzapy.errors import LostContainerError, SamzapyError, TemporaryError
from samzapy.model.checkpoint import Progress
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import checkpoint_topic
from samzapy.stream.codec import encode
from samzapy.stream.records import ProgressPut

_LOG = logging.getLogger(__name__)
_WRITE_EVERY_MS = 3000


class IdleProgress:
    """Collects positions that batches passed without a commit, and writes them."""

    def __init__(self, config: JobConfig, execution_id: ExecutionId, clock: Clock, writes: DriverWrites) -> None:
        self._config = config
        self._execution_id = execution_id
        self._clock = clock
        self._writes = writes
        self._written_at_ms = 0
        self._offsets: dict[SspKeyBucket, int] = {}
        # Keys of positions of another factor. No start needs them while this execution holds the grants of the query.
        self._superseded: Sequence[bytes] = ()

    def advance(self, ssp_kb: SspKeyBucket, offset_next: int, *, is_committed: bool) -> None:
        """Note that a batch read a bucket up to `offset_next`, and committed it or less."""
        if is_committed:
            self._offsets.pop(ssp_kb, None)
        else:
            # Also past the bucket's own last message: the messages after it belong to other buckets, or to none.
            self._offsets[ssp_kb] = offset_next

    def remove_now(self, stale: Sequence[bytes]) -> None:
        """Remove the positions under these keys. Raises as `DriverWrites.write`."""
        self._writes.remove(checkpoint_topic(self._config.job), 0, stale)

    def remove_later(self, superseded: Sequence[bytes]) -> None:
        """Remove the positions under these keys once the query runs."""
        self._superseded = superseded

    def clear(self) -> None:
        """Forget the progress that was not written, when a query is over.

        It was read under the grants of that query. The grants may change during a fence, and a later record would
        then name the epoch of the new grants.
        """
        self._offsets.clear()

    def write(self, grants: Sequence[Grant], *, at_once: bool = False) -> None:
        """Record the read positions of idle buckets; never their checkpoints.

        Positions of another factor are removed here too, because this delays no messages.
        """
        now_ms = self._clock.monotonic_ms()
        is_due = at_once or now_ms - self._written_at_ms >= _WRITE_EVERY_MS
        if not (self._offsets or self._superseded) or not is_due:
            return
        self._written_at_ms = now_ms
        if self._superseded:
            self._remove_superseded()
        if self._offsets:
            self._append(grants)

    def _append(self, grants: Sequence[Grant]) -> None:
        epochs = {start.ssp_kb: grant.epoch for grant in grants for start in grant.starts}
        records = [
            ProgressPut(
                progress=Progress(
                    ssp_kb=ssp_kb,
                    offset_next=offset,
                    epoch=epochs[ssp_kb],
                    execution_id=self._execution_id,
                )
            )
            for ssp_kb, offset in sorted(self._offsets.items())
        ]
        try:
            self._writes.append([encode(record) for record in records])
        except LostContainerError:
            raise
        except SamzapyError as error:
            # Progress only saves time: without this record the next start reads some messages again.
            _LOG.warning("cannot record progress of idle buckets, will retry: %s", error)
            return
        self._offsets.clear()

    def _remove_superseded(self) -> None:
        try:
            self.remove_now(self._superseded)
        except TemporaryError as error:
            _LOG.warning("cannot remove positions of another factor yet, will retry: %s", error)
            return
        self._superseded = ()
