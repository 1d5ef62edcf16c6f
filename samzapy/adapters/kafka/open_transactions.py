"""Which transactions are open now, as far as a client can see: where committed data ends before the partition does.

The client library lists no transactions and no producers. But the last stable offset is where the first record of the
oldest open transaction stands, and that record's time says since when; who it is, a tool of Kafka's tells.
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
    # In this order: an end that grows in between only belongs to what is open.
    stable = end_offsets(admin, places, IsolationLevel.READ_COMMITTED, deadline_s)
    ends = end_offsets(admin, places, IsolationLevel.READ_UNCOMMITTED, deadline_s)
    firsts = {place: first for place, first in sorted(stable.items()) if first < ends[place]}
    stamps = stamps_at(admin.connection, firsts, deadline_s)
    found = []
    for (topic, partition), first in firsts.items():
        stamp = stamps.get((topic, partition))
        found.append(
            OpenTransaction(
                topic=topic,
                partition=partition,
                offset_first=first,
                offset_end=ends[topic, partition],
                since_ms=None if stamp is None else stamp.timestamp_ms,
                is_append_time=stamp is not None and stamp.is_append_time,
            )
        )
    return still_open(admin, found, 0, deadline_s)


def still_open(
    admin: Admin, opened: Sequence[OpenTransaction], watched_s: float, deadline_s: float = DEADLINE_S
) -> Sequence[OpenTransaction]:
    """Those of `opened` that stay open for `watched_s`; comes back as soon as there is none.

    Raises: as `open_transactions`.
    """
    until_s = time.monotonic() + watched_s
    while opened:
        places = [(found.topic, found.partition) for found in opened]
        stable = end_offsets(admin, places, IsolationLevel.READ_COMMITTED, deadline_s)
        opened = [found for found in opened if stable[found.topic, found.partition] == found.offset_first]
        if time.monotonic() >= until_s:
            break
        time.sleep(_LOOK_EVERY_S)
    return opened
