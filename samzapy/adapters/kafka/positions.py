"""Read and write positions.

This is checkpoints and offsets for the coordinator, and fencing and progress records for drivers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets, offsets_at
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.adapters.kafka.transactions import TransactionalProducer, fence_transactional_ids, new_owner
from samzapy.container.start_rules import read_positions
from samzapy.coordinator.assignment.starts import Bounds, ChangelogPlace, PositionsRead
from samzapy.errors import MissingTopicError, SamzapyError, TemporaryError
from samzapy.model.topics import changelog_topic, checkpoint_topic

if TYPE_CHECKING:
    from samzapy.adapters.kafka.clients import KafkaConnection
    from samzapy.adapters.kafka.hanging import WrittenTopics
    from samzapy.coordinator.commands import OffsetBounds
    from samzapy.model.ssp import SystemStreamPartition

_ASK_S = 4.0
"""Short, because the question is repeated each second, and the coordinator must answer containers meanwhile."""


class KafkaPositions:
    """Reads checkpoints and offsets before grants (`coordinator.ports.Positions`).

    `job` is `<name>-<id>`.
    """

    def __init__(self, connection: KafkaConnection, job: str) -> None:
        self._connection = connection
        self._job = job
        self._topics = KafkaTopics(connection, job)
        self._admin = KafkaAdmin(connection)
        self._topic = checkpoint_topic(job)

    def read(self, ssps: Sequence[SystemStreamPartition], changelogs: Sequence[ChangelogPlace] = ()) -> PositionsRead:
        recorded = read_positions(self._topics.checkpoint_records(), topic=self._topic)
        recorded.check_readable(ssp_kb for ssp_kb in recorded.unreadable if ssp_kb.ssp in ssps)
        ssps = self._present(ssps)
        places = [(ssp.stream, ssp.partition) for ssp in ssps]
        try:
            firsts = beginning_offsets(self._connection, places, _ASK_S)
            ends = end_offsets(self._connection, places, IsolationLevel.READ_COMMITTED, _ASK_S)
        except MissingTopicError as error:
            if self._present(ssps) == ssps:
                raise
            # A topic was deleted between two questions; the next read leaves it out.
            raise TemporaryError(str(error)) from error
        topics = {
            (store, partition): (changelog_topic(self._job, store), partition) for store, partition in changelogs
        }
        # Uncommitted records count too, because the markers of ended transactions may not be written yet.
        watermarks = end_offsets(self._connection, list(topics.values()), IsolationLevel.READ_UNCOMMITTED, _ASK_S)
        return PositionsRead(
            checkpoints=recorded.checkpoints,
            progress=recorded.progress,
            bounds={ssp: Bounds(firsts[place], ends[place]) for ssp, place in zip(ssps, places, strict=True)},
            changelog_ends={changelog: watermarks[place] for changelog, place in topics.items()},
        )

    def _present(self, ssps: Sequence[SystemStreamPartition]) -> Sequence[SystemStreamPartition]:
        """Those of `ssps` that exist and have a leader.

        A partition without a leader would fail a common question.
        """
        led = self._admin.led({ssp.stream for ssp in ssps})
        return [ssp for ssp in ssps if ssp.partition in led.get(ssp.stream, ())]

    def offset_bounds(
        self, ssps: Sequence[SystemStreamPartition], timestamp_ms: int | None
    ) -> Mapping[SystemStreamPartition, OffsetBounds]:
        # Only a leader comes here: `job status` loads no commands of a leader.
        from samzapy.coordinator.commands import OffsetBounds

        places = [(ssp.stream, ssp.partition) for ssp in ssps]
        firsts = beginning_offsets(self._connection, places, _ASK_S)
        # As for a task that starts at the end: records of open transactions are still to come.
        ends = end_offsets(self._connection, places, IsolationLevel.READ_COMMITTED, _ASK_S)
        at = {} if timestamp_ms is None else offsets_at(self._connection, places, timestamp_ms, _ASK_S)
        return {
            ssp: OffsetBounds(firsts[place], ends[place], at.get(place))
            for ssp, place in zip(ssps, places, strict=True)
        }

    def high_watermarks(self, ssps: Sequence[SystemStreamPartition]) -> Mapping[SystemStreamPartition, int]:
        places = [(ssp.stream, ssp.partition) for ssp in ssps]
        ends = end_offsets(self._connection, places, IsolationLevel.READ_UNCOMMITTED, _ASK_S)
        return {ssp: ends[place] for ssp, place in zip(ssps, places, strict=True)}


class KafkaFence:
    """Initialises transactional ids.

    The coordinator uses it, and a driver that recovers.

    Args:
        timeout_ms: the transaction time-out to ask for: that of the calling process. A cluster that refuses it refuses
            the process's own transactions too.
        deadline_s: how long to wait for all ids of an execution together.
        written: the topics in which transactions of the ids may hang.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        timeout_ms: int,
        deadline_s: float = 30.0,
        written: WrittenTopics | None = None,
    ) -> None:
        self._written = written
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._deadline_s = deadline_s

    def fence(self, transactional_ids: Sequence[str], outputs: Collection[str] = ()) -> None:
        """Initialise each id, and end what hangs of it.

        Args:
            outputs: more topics in which it may hang.

        Raises:
            BrokerUnavailableError: at least one may not be fenced; fence them again.
        """
        fence_transactional_ids(
            self._connection,
            transactional_ids,
            self._deadline_s,
            transaction_timeout_ms=self._timeout_ms,
            written=self._written,
            named=outputs,
        )


class KafkaProgressLog:
    """Writes in transactions of the driver's own id (`container.ports.ProgressLog`)."""

    def __init__(
        self,
        connection: KafkaConnection,
        job: str,
        transactional_id: str,
        timeout_ms: int,
        written: WrittenTopics | None = None,
    ) -> None:
        self._written = written
        self._connection = connection
        self._topic = checkpoint_topic(job)
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer: TransactionalProducer | None = None

    def is_acquired(self) -> bool:
        """Whether the id is taken and usable.

        If not, call `own`, then read the coordinator stream.
        """
        return self._producer is not None and not self._producer.must_be_renewed

    def serve(self) -> None:
        if self._producer is not None:
            self._producer.serve()

    def acquire(self) -> None:
        """Initialise the id."""
        self.close()
        make = partial(
            TransactionalProducer,
            self._connection,
            self._transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            written=self._written,
        )
        self._producer = new_owner(make)

    def append(self, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        self.write(self._topic, 0, writes)

    def write(self, topic: str, partition: int, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        assert self._producer is not None, "acquire comes first"
        try:
            self._producer.begin()
            for key, value in writes:
                self._producer.produce(topic, key, value, partition)
            self._producer.commit()
        except SamzapyError:
            self.close()
            raise

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
