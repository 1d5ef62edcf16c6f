"""Sample the keys of the last records of some partitions, within a bounded time."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from confluent_kafka import IsolationLevel

from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets
from samzapy.adapters.kafka.scan import Place, Scan
from samzapy.model.ssp import SystemStreamPartition

SAMPLE_WAIT_S = 10.0
_ASK_LEAST_S = 0.1


def sample_keys(
    connection: KafkaConnection,
    ssps: Collection[SystemStreamPartition],
    count_max: int,
    wait_s: float = SAMPLE_WAIT_S,
    quiet_s: float = SAMPLE_WAIT_S,
) -> tuple[Mapping[SystemStreamPartition, frozenset[bytes]], bool]:
    """The keys of the last `count_max` committed records of each partition.

    Records without a key are left out. Records are counted by offsets, so markers of transactions count too.

    Args:
        wait_s: the longest time for all of it.
        quiet_s: the longest time without an answer or a record. A busy machine that still reads has `wait_s`.

    Returns:
        The keys, and whether all records were read in time.

    Raises:
        BrokerUnavailableError, DeadlineError: no broker says where the partitions begin and end.
        MissingTopicError: a topic is gone.
    """
    give_up_at = time.monotonic() + wait_s
    ssp_of = {(ssp.stream, ssp.partition): ssp for ssp in ssps}
    admin = Admin(connection)
    firsts = beginning_offsets(admin, ssp_of, min(wait_s, quiet_s))
    left_s = max(_ASK_LEAST_S, give_up_at - time.monotonic())
    ends = end_offsets(admin, ssp_of, IsolationLevel.READ_COMMITTED, min(left_s, quiet_s))
    starts = {place: max(firsts[place], ends[place] - count_max) for place in ssp_of}
    keys_of: dict[Place, set[bytes]] = {place: set() for place in ssp_of}
    unread = {place: start for place, start in starts.items() if start < ends[place]}
    with Scan(connection, unread, ends, "sampling keys") as scan:
        quiet_until = time.monotonic() + quiet_s
        while scan.unread and time.monotonic() < min(give_up_at, quiet_until):
            for place, message in scan.poll():
                quiet_until = time.monotonic() + quiet_s
                key = message.key()
                if key is not None and message.offset() < ends[place]:
                    keys_of[place].add(key)
    return {ssp_of[place]: frozenset(keys) for place, keys in keys_of.items()}, not scan.unread
