"""Progress of key buckets without messages: their read positions, recorded every few seconds.

A progress record is never a checkpoint: it spares the next start the read of a part that has no messages for the
bucket. The same place removes positions of another factor, because it delays no message.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from samzapy.container.job_topics import JobTopics
from samzapy.container.ports import Clock
from samzapy.errors import LostContainerError, SamzapyError, TemporaryError
from samzapy.model.checkpoint import Progress
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.codec import encode
from samzapy.stream.records import ProgressPut

_LOG = logging.getLogger(__name__)
_EVERY_MS = 3000


class IdleProgress:
    """Read positions that were reached by finished batches and not committed since."""

    def __init__(self, topic: str, execution_id: ExecutionId, clock: Clock, topics: JobTopics) -> None:
        self._topic = topic
        self._execution_id = execution_id
        self._clock = clock
        self._topics = topics
        self._positions: dict[SspKeyBucket, int] = {}
        self._superseded: Sequence[bytes] = ()
        self._written_at_ms = 0

    def clear(self) -> None:
        """Forget the positions of a query that has ended.

        They were reached under grants that may belong to another container by now. So this happens before anything
        can fail: the next write would otherwise record them under new grants.
        """
        self._positions.clear()

    def supersede(self, keys: Sequence[bytes]) -> None:
        """Remove the positions of another factor under these keys at the next write; no grant in use needs them."""
        self._superseded = keys

    def read_to(self, ssp_kb: SspKeyBucket, offset: int, *, is_committed: bool) -> None:
        """A finished batch has read the bucket to this offset, and committed it or not."""
        if is_committed:
            self._positions.pop(ssp_kb, None)
        else:
            # Also behind its own last message: the rest belongs to other buckets, or is no message.
            self._positions[ssp_kb] = offset

    def write(self, grants: Sequence[Grant], *, at_once: bool = False) -> None:
        """Record the positions under `grants`, if that is due.

        Raises:
            LostContainerError: this execution was declared lost.
        """
        now_ms = self._clock.monotonic_ms()
        is_due = at_once or now_ms - self._written_at_ms >= _EVERY_MS
        if not (self._positions or self._superseded) or not is_due:
            return
        self._written_at_ms = now_ms
        if self._superseded:
            self._remove_superseded()
        if not self._positions:
            return
        epochs = {start.ssp_kb: grant.epoch for grant in grants for start in grant.starts}
        records = [
            ProgressPut(
                progress=Progress(
                    ssp_kb=ssp_kb, offset_next=offset, epoch=epochs[ssp_kb], execution_id=self._execution_id
                )
            )
            for ssp_kb, offset in sorted(self._positions.items())
        ]
        try:
            self._topics.append([encode(record) for record in records])
        except LostContainerError:
            raise
        except SamzapyError as error:
            # Without progress the next start reads a little again.
            _LOG.warning("progress of idle buckets was not recorded: %s", error)
            return
        self._positions.clear()

    def _remove_superseded(self) -> None:
        try:
            self._topics.remove(self._topic, 0, self._superseded)
        except TemporaryError as error:
            _LOG.warning("positions of another factor are removed later: %s", error)
            return
        self._superseded = ()
