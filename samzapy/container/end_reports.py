"""The reports on ends: of this container, and of earlier ones.

A container reports its end in its last heartbeat. If no leader answers that, it leaves the report on the checkpoint
topic, which it reads and writes anyway. Each later container that starts reads the report there, repeats it in its
heartbeats until the stream has it, and then removes it. Reports in files on this host come the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from samzapy.config import JobConfig
from samzapy.container.driver_writes import DriverWrites
from samzapy.container.ownership import Ownership
from samzapy.container.ports import Clock, FormerEnds
from samzapy.errors import CorruptRecordError, SamzapyError, TemporaryError
from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.topics import checkpoint_topic
from samzapy.stream.codec import decode
from samzapy.stream.keys import container_key
from samzapy.stream.log import LogRecord
from samzapy.stream.unheard_end import encode_unheard_end, unheard_end_of

_LOG = logging.getLogger(__name__)
# The others follow once these are recorded. A heartbeat has a size that the leader accepts.
_HANDED_OVER_MAX = 20


class EndReports:
    """Collects the reports of a container.

    Attributes:
        error: the error that ends this process, once there is one.
    """

    def __init__(
        self, config: JobConfig, ownership: Ownership, writes: DriverWrites, clock: Clock, on_host: FormerEnds | None
    ) -> None:
        self.error: SamzapyError | None = None
        self._topic = checkpoint_topic(config.job)
        self._ownership = ownership
        self._writes = writes
        self._clock = clock
        self._on_host = on_host
        # Those on the checkpoint topic when it was read last, by the keys of their records.
        self._unheard: dict[bytes, ContainerEnd] = {}

    def own(self) -> ContainerEnd | None:
        """The report on the end of this container; None while none follows."""
        if self.error is None:
            return None
        # The processor and the host are in each heartbeat.
        return ContainerEnd.of_error(
            self.error,
            processor_id=ProcessorId(""),
            execution_id=self._ownership.orders.execution_id,
            host="",
            at_ms=self._clock.wall_ms(),
        )

    def former(self) -> tuple[ContainerEnd, ...]:
        """The newest reports of earlier containers that the stream does not have."""
        recorded = self._ownership.orders.container_ends
        on_host = () if self._on_host is None else self._on_host.unrecorded(recorded)
        unheard = [end for end in self._unheard.values() if not end.is_recorded(recorded)]
        return (*on_host, *unheard[-_HANDED_OVER_MAX:])

    def leave(self) -> None:
        """Write the report on this container's end to the checkpoint topic.

        To be called if no leader has answered the last heartbeat. Without a broker that answers, and before the
        container was registered, nothing is written.
        """
        own = self._ownership.orders.containers.get(self._ownership.orders.execution_id)
        end = self.own()
        if end is None or own is None or self._ownership.kafka_silent_ms:
            return
        try:
            self._writes.append([encode_unheard_end(own, end)])
        except SamzapyError as error:
            _LOG.warning("no leader has heard why this container ends, and the report cannot be kept: %s", error)

    def note(self, records: Iterable[LogRecord]) -> None:
        """Take the reports from all records of the checkpoint topic."""
        self._unheard.clear()
        for record in records:
            key = record.key or b""
            if not key.startswith(_KEYS):
                continue
            self._unheard.pop(key, None)
            try:
                end = unheard_end_of(decode(record, topic=self._topic))
            except CorruptRecordError:
                # As `read_positions`: nothing shows that samzapy wrote it, and `samzapy doctor` names it.
                continue
            if end is not None:
                self._unheard[key] = end

    def remove_recorded(self) -> None:
        """Remove the reports that the coordinator stream has from the checkpoint topic."""
        recorded = self._ownership.orders.container_ends
        done = [key for key, end in self._unheard.items() if end.is_recorded(recorded)]
        try:
            self._writes.remove(self._topic, 0, done)
        except TemporaryError as error:
            _LOG.warning("cannot remove reports on ends yet, will retry: %s", error)
            return
        for key in done:
            del self._unheard[key]


_KEYS = container_key(ExecutionId("")).encode()
