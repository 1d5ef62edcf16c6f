"""How often an execution's grants changed: the bound on its restarts.

A container starts its query anew when its own grants change. It reads the stream one transaction after the other, and
perhaps several at once, so it has no more reasons than there are transactions that change its grants. One of a hundred
grants is one reason, and so is a plan that takes a hundred tasks away; a record about other executions is no reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from samzapy.container.orders import Orders, follow
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.stream.records import ContainerPut, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantChanges:
    """Of a whole stream.

    Attributes:
        reasons: how often the grants changed of an execution that had some, by the processor that it was of.
        kept_by_others: how many transactions changed grants of one execution and left those of another.
    """

    reasons: Mapping[ProcessorId, int]
    kept_by_others: int


def transactions(records: Iterable[tuple[int, Record]]) -> list[list[Record]]:
    """The records of a stream by transaction: each ends with a marker with an offset."""
    groups: list[list[Record]] = []
    offset_next = -1
    for offset, record in records:
        if offset != offset_next:
            groups.append([])
        groups[-1].append(record)
        offset_next = offset + 1
    return groups


def grant_changes(stream: Iterable[Sequence[Record]]) -> GrantChanges:
    """Count over the transactions of a stream that nothing was compacted away from."""
    reasons: Counter[ProcessorId] = Counter()
    kept_by_others = 0
    everything = Orders(execution_id=ExecutionId(""))
    orders: dict[ExecutionId, Orders] = {}
    own: dict[ExecutionId, tuple[Grant, ...]] = {}
    for number, records in enumerate(stream):
        for record in records:
            if isinstance(record, ContainerPut) and record.container.execution_id not in orders:
                known = record.container.execution_id
                # The records before its registration are the same for all.
                orders[known], own[known] = replace(everything, execution_id=known), ()
        everything = follow(everything, records, number)
        changed = False
        kept = False
        for known in orders:
            orders[known] = follow(orders[known], records, number)
            before, own[known] = own[known], orders[known].own_grants()
            if own[known] == before:
                kept = kept or (bool(before) and orders[known].phase is ContainerPhase.RUNNING)
                continue
            changed = True
            processor_id = orders[known].processor_id
            if before and processor_id is not None:
                reasons[processor_id] += 1
        kept_by_others += changed and kept
    return GrantChanges(reasons=reasons, kept_by_others=kept_by_others)
