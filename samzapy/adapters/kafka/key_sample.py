"""The keys of the last records of some partitions: a look at how a topic is written, within a bounded time."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, TopicPartition

from samzapy.adapters.kafka.clients import Admin, ErrorEvents, KafkaConnection, make_consumer
from samzapy.adapters.kafka.errors import translate
from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets
from samzapy.errors import TemporaryError
from samzapy.model.ssp import SystemStreamPartition

SAMPLE_WAIT_S = 10.0
_POLL_S = 0.1
_FETCH_WAIT_MS = 10
_RECORDS_PER_POLL = 2_000


def sample_keys(
    connection: KafkaConnection,
    ssps: Collection[SystemStreamPartition],
    count_max: int,
    wait_s: float = SAMPLE_WAIT_S,
) -> tuple[Mapping[SystemStreamPartition, frozenset[bytes]], bool]:
    """The keys of at most the last `count_max` committed records of each partition; records without one are left out.

    Counted by offsets, so markers of transactions count too.

    Returns:
        The keys, and whether all of that was read before `wait_s` was over.

    Raises:
        BrokerUnavailableError, DeadlineError: nobody says where the partitions begin and end.
        MissingTopicError: a topic is gone.
    """
    give_up_at = time.monotonic() + wait_s
    ssp_of = {(ssp.stream, ssp.partition): ssp for ssp in ssps}
    admin = Admin(connection)
    firsts = beginning_offsets(admin, ssp_of, wait_s)
    ends = end_offsets(admin, ssp_of, IsolationLevel.READ_COMMITTED, max(_POLL_S, give_up_at - time.monotonic()))
    starts = {place: max(firsts[place], ends[place] - count_max) for place in ssp_of}
    unread = {place for place in ssp_of if starts[place] < ends[place]}
    found: dict[tuple[str, int], set[bytes]] = {place: set() for place in ssp_of}
    consumer = make_consumer(
        connection,
        {
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # What ends with a marker is known to be read when a fetch comes back with nothing.
            "fetch.wait.max.ms": _FETCH_WAIT_MS,
            # What retention takes away meanwhile is not missed.
            "auto.offset.reset": "earliest",
        },
        ErrorEvents(),
    )
    try:
        consumer.assign([TopicPartition(*place, starts[place]) for place in sorted(unread)])
        while unread and time.monotonic() < give_up_at:
            messages: list[Any] = consumer.consume(_RECORDS_PER_POLL, _POLL_S)
            for message in messages:
                error, place = message.error(), (message.topic(), message.partition())
                if error is None:
                    key = message.key()
                    if key is not None and message.offset() < ends[place]:
                        found[place].add(key)
                    if message.offset() + 1 >= ends[place]:
                        unread.discard(place)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(place)
                elif not isinstance(failure := translate(error, "sampling keys"), TemporaryError):
                    raise failure
    finally:
        consumer.close()
    return {ssp_of[place]: frozenset(keys) for place, keys in found.items()}, not unread
