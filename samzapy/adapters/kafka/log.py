"""A `CompactedLog` on one partition of a Kafka topic.

The transactional id is the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.hanging import WrittenTopics
from samzapy.adapters.kafka.reading import DEADLINE_S, PartitionReader, read_to_end
from samzapy.adapters.kafka.transactions import TRANSACTION_TIMEOUT_MS, TransactionalProducer, new_owner
from samzapy.errors import (
    DeadlineError,
    FencedError,
    ProducerError,
    SamzapyError,
    TemporaryError,
    TruncatedTopicError,
)
from samzapy.stream.log import LogRecord, Write


class KafkaLog:
    """One partition of a compacted topic, written as `transactional_id`.

    A writer whose producer must be renewed (`stream.end_txn_guard`) takes over its own id again before the next append.
    It continues only if nothing was written since its last append. Otherwise another process led meanwhile, and this
    writer's state is out of date: that is a `FencedError` (law L4).

    Args:
        take_over_deadline_s: how long to wait for the brokers when taking over.
        read_deadline_s: how long a read waits without progress, that is, for open transactions of other writers.
        on_record: called with each record that a read hands out.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        transactional_id: str,
        *,
        partition: int = 0,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        take_over_deadline_s: float = 30.0,
        read_deadline_s: float = DEADLINE_S,
        on_record: Callable[[], object] = lambda: None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.transactional_id = transactional_id
        self._connection = connection
        self._transaction_timeout_ms = transaction_timeout_ms
        self._take_over_deadline_s = take_over_deadline_s
        self._read_deadline_s = read_deadline_s
        self._on_record = on_record
        self._producer: TransactionalProducer | None = None
        self._reader = PartitionReader(connection, topic, partition, may_end_earlier=False)
        self._offset_after_last = 0

    def take_over(self) -> None:
        """See `CompactedLog.take_over`."""
        self._drop_producer()
        make = partial(
            TransactionalProducer,
            self._connection,
            self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            written=WrittenTopics(own=[self.topic]),
        )
        self._producer = new_owner(make, self._take_over_deadline_s)
        if not self._reader.end_seen:
            return
        try:
            # Its decisions rest on all that this process has read and written, also while it owned the id before.
            self._reader.end_offset(self._read_deadline_s)
        except SamzapyError:
            self._drop_producer()
            raise

    def append_atomically(self, writes: Sequence[Write]) -> int:
        """See `CompactedLog.append_atomically`."""
        assert writes, "an append of nothing"
        producer = self._usable_producer()
        offsets: list[int] = []
        try:
            producer.begin()
            last = len(writes) - 1
            for number, write in enumerate(writes):
                producer.produce(
                    self.topic,
                    write.key,
                    write.value,
                    self.partition,
                    write.headers or None,
                    None,
                    offsets.append if number == last else None,
                )
            producer.flush()
            # The commit reports a record that was not delivered.
            if offsets:
                self._refuse_lost_records(offsets[-1])
            producer.commit()
        except SamzapyError:
            self._drop_producer()
            raise
        assert offsets, "committed without a delivery report"
        self._offset_after_last = offsets[-1] + 1
        self._reader.expect_end(self._offset_after_last)
        return self._offset_after_last

    def _refuse_lost_records(self, offset: int) -> None:
        """Refuse to commit records that the cluster wrote in front of earlier ones."""
        if offset < self._offset_after_last:
            raise TruncatedTopicError(
                f"wanted to append to {self.topic} behind offset {self._offset_after_last - 1}, our last record, found "
                f"that the cluster wrote at {offset}: it lost records before (an unclean leader election, or a "
                'broker that lost its disk); see docs/guides/doctor.md, "Topics that became shorter"'
            )

    def read(self, offset_from: int = 0) -> Iterator[LogRecord]:
        """See `CompactedLog.read`."""
        # Outside of the generator: the end is the one at this call, not the one when the first record is taken.
        records = read_to_end(self._connection, self.topic, self.partition, offset_from, self._read_deadline_s)
        return self._reported(records)

    def end_offset(self) -> int:
        """See `CompactedLog.end_offset`."""
        return self._reader.end_offset(self._read_deadline_s)

    def serve(self) -> None:
        """Run the client's callbacks while nothing is appended.

        See `TransactionalProducer.serve`.
        """
        if self._producer is not None:
            self._producer.serve()

    def close(self) -> None:
        """Close all connections; the transactional id stays as it is."""
        self._drop_producer()
        self._reader.close()

    def _reported(self, records: Iterator[LogRecord]) -> Iterator[LogRecord]:
        offset_end = 0
        for record in records:
            self._on_record()
            offset_end = record.offset + 1
            yield record
        self._reader.expect_end(offset_end)

    def _usable_producer(self) -> TransactionalProducer:
        if self._producer is not None and self._producer.must_be_renewed:
            self._renew()
        if self._producer is None:
            raise ProducerError(
                f"wanted the owner of {self.transactional_id!r} on {self.topic}, found one that has not taken "
                "over since its last error: take over and read before the next append"
            )
        return self._producer

    def _renew(self) -> None:
        try:
            self.take_over()
            news = [record.offset for record in self.read(self._offset_after_last)]
        except (TemporaryError, DeadlineError) as error:
            self._drop_producer()
            raise ProducerError(f"{error}; nothing was appended: take over, read and decide again") from error
        if news:
            self._drop_producer()
            raise FencedError(
                f"wanted nothing on {self.topic} since our last append, found a record at offset {news[0]}: "
                "another process led meanwhile; take over, read and decide again"
            )

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
