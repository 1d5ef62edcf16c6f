"""Estimate how much state a task would restore, without reading all of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import ceil

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.reading import beginning_offsets, end_offsets, read_to_end
from samzapy.plan.plan_change import StateSize

SAMPLE_RECORDS = 200
SAMPLE_WAIT_S = 10.0


def changelog_sizes(
    connection: KafkaConnection, topics: Sequence[str], partitions: Collection[int]
) -> Mapping[int, StateSize]:
    """The size of each of `partitions`, over all the changelog `topics` together.

    Records are counted by offsets. This is an upper bound, because compacted records and transaction markers count too.
    Bytes are that count times the mean size of the first records of the topic's largest partition. A missing topic or
    partition holds nothing.

    Raises:
        BrokerUnavailableError, DeadlineError: the sizes are not known now.
    """
    records, sizes = dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 0)
    for topic in KafkaAdmin(connection).find(topics).values():
        places = [(topic.name, partition) for partition in sorted(partitions) if partition < topic.partition_count]
        firsts, ends = beginning_offsets(connection, places), end_offsets(connection, places)
        counts = {place: ends[place] - firsts[place] for place in places}
        largest = max(places, key=lambda place: counts[place], default=None)
        if largest is None or not counts[largest]:
            continue
        mean = _mean_bytes(connection, largest, firsts[largest])
        for place in places:
            records[place[1]] += counts[place]
            sizes[place[1]] += ceil(counts[place] * mean)
    return {partition: StateSize(records[partition], sizes[partition]) for partition in partitions}


def _mean_bytes(connection: KafkaConnection, place: tuple[str, int], offset_from: int) -> float:
    read = read_to_end(connection, *place, offset_from, SAMPLE_WAIT_S)
    sample = [len(record.key or b"") + len(record.value or b"") for record in islice(read, SAMPLE_RECORDS)]
    return sum(sample) / len(sample) if sample else 0.0
