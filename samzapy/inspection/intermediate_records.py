"""Records of intermediate streams that no step of the job has written.

A message of a step has a key, in the partition that Java's murmur2 gives it, and no header of samzapy's. So a message
of another program that has both looks like one of the job's own; only ACLs keep it away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from samzapy.coordinator.state import CoordinatorState
from samzapy.model.finding import Finding
from samzapy.model.ssp import SystemStream
from samzapy.model.task_stats import key_text
from samzapy.plan.partitioners import murmur2
from samzapy.stream.log import LogRecord

_REMEDY: Final = (
    "The second step handles it like a message of the job, and it may be part of results. Find out which program "
    "writes there and stop it: with ACLs only the job's user may (`samzapy acl check` names the others). Then correct "
    "the results that it is part of"
)


def partition_count_kept(state: CoordinatorState, system_stream: str, partition_count: int) -> int | None:
    """The number of partitions that an input has always had.

    None if it may have had another number.

    Args:
        partition_count: of the topic now. It may have grown before the leader recorded that.
    """
    known = state.inputs.get(SystemStream.parse(system_stream))
    if known is None or known.expansions:
        return None
    return partition_count if partition_count == known.partition_count == known.partition_count_first else None


def examine_intermediate(
    records: Iterable[LogRecord], *, topic: str, partition: int, partition_count: int | None
) -> tuple[Finding, ...]:
    """The finding about one partition of an intermediate stream.

    It has the first record that no step has written, and their number.

    Args:
        partition_count: of the topic at the time of each record; None: unknown, and any partition may be right.
    """
    first, count = "", 0
    for record in records:
        fault = _fault(record, partition, partition_count)
        if fault:
            first = first or f"{topic}-{partition} at offset {record.offset}: {fault}"
            count += 1
    if not count:
        return ()
    text = first if count == 1 else f"{first} (the first of {count})"
    return (Finding(code="record-foreign", subject=f"topic {topic}", found=text, remedy=_REMEDY),)


def _fault(record: LogRecord, partition: int, partition_count: int | None) -> str:
    """Why no step has written a record; empty if one may have."""
    if record.key is None:
        return "wanted a key, found none"
    if partition_count is None:
        return ""
    wanted = murmur2(record.key) % partition_count
    if wanted == partition:
        return ""
    return f"wanted the key {key_text(record.key)} in partition {wanted}, found it in {partition}"
