"""Which transactions are open now, as far as a client can see: where committed data ends before the partition does.

The client library lists no transactions and no producers. But the last stable offset is where the first record of the
oldest open transaction stands, and that record's time says since when; who it is, a tool of Kafka's tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import IsolationLevel

from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.reading import DEADLINE_S, end_offsets, first_uncommitted
from samzapy.coordinator.diagnosis import OpenTransaction


def open_transactions(
    connection: KafkaConnection, places: Sequence[tuple[str, int]], deadline_s: float = DEADLINE_S
) -> Iterator[OpenTransaction]:
    """The oldest open transaction of each `(topic, partition)` that has one.

    Raises:
        BrokerUnavailableError, MissingTopicError.
    """
    admin = Admin(connection)
    # In this order: an end that grows in between only belongs to what is open.
    stable = end_offsets(admin, places, IsolationLevel.READ_COMMITTED, deadline_s)
    ends = end_offsets(admin, places, IsolationLevel.READ_UNCOMMITTED, deadline_s)
    for (topic, partition), first in sorted(stable.items()):
        if first >= ends[topic, partition]:
            continue
        record = first_uncommitted(connection, topic, partition, first, deadline_s)
        again = end_offsets(admin, [(topic, partition)], IsolationLevel.READ_COMMITTED, deadline_s)
        if again[topic, partition] == first:
            yield OpenTransaction(
                topic=topic,
                partition=partition,
                offset_first=first,
                offset_end=ends[topic, partition],
                since_ms=None if record is None else record.timestamp_ms,
            )
