"""Find open transactions.

They are in partitions whose committed data ends before the partition does. The client library lists no transactions and
no producers. But the last stable offset is the offset of the first record of the oldest open transaction, and the time
of that record says how long it is open. A tool of Kafka's shows the producer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import IsolationLevel

from samzapy.adapters.kafka.clients import Admin
from samzapy.adapters.kafka.reading import DEADLINE_S, end_offsets, stamps_at
from samzapy.inspection.diagnosis import OpenTransaction

_LOOK_EVERY_S = 0.5


def open_transactions(
    admin: Admin, places: Sequence[tuple[str, int]], deadline_s: float = DEADLINE_S
) -> Sequence[OpenTransaction]:
    """The oldest open transaction of each `(topic, partition)` that has one.

    Args:
        deadline_s: for each of the questions, which are asked for all places at once.

    Raises:
        BrokerUnavailableError, MissingTopicError.
    """
    # In this order: an end that grows in between belongs to an open transaction.
    stable = end_offsets(admin, places, IsolationLevel.READ_COMMITTED, deadline_s)
    ends = end_offsets(admin, places, IsolationLevel.READ_UNCOMMITTED, deadline_s)
    firsts = {place: first for place, first in sorted(stable.items()) if first < ends[place]}
    stamps = stamps_at(admin.connection, firsts, deadline_s)
    opened = []
    for (topic, partition), first in firsts.items():
        stamp = stamps.get((topic, partition))
        opened.append(
            OpenTransaction(
                topic=topic,
                partition=partition,
                offset_first=first,
                offset_end=ends[topic, partition],
                since_ms=None if stamp is None else stamp.timestamp_ms,
                is_append_time=stamp is not None and stamp.is_append_time,
            )
        )
    return still_open(admin, opened, 0, deadline_s)


def still_open(
    admin: Admin, opened: Sequence[OpenTransaction], watched_s: float, deadline_s: float = DEADLINE_S
) -> Sequence[OpenTransaction]:
    """Those of `opened` that stay open for `watched_s`.

    Returns as soon as there is none.

    Raises: as `open_transactions`.
    """
    until_s = time.monotonic() + watched_s
    while opened:
        places = [(one.topic, one.partition) for one in opened]
        stable = end_offsets(admin, places, IsolationLevel.READ_COMMITTED, deadline_s)
        opened = [one for one in opened if stable[one.topic, one.partition] == one.offset_first]
        if time.monotonic() >= until_s:
            break
        time.sleep(_LOOK_EVERY_S)
    return opened
