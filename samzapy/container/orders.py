"""What a container reads off the coordinator stream: who leads, what it is granted, whether it was given up.

A container follows grants, never plans (design section 3), so this is a small fold beside the coordinator's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from samzapy.model.container import ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SystemStream
from samzapy.stream.keys import key_of
from samzapy.stream.records import ContainerPut, GrantPut, InputPut, Record, Removed, TermPut


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The stream up to `offset_next`, as far as it concerns `execution_id`.

    Attributes:
        grants: by their key on the stream.
        input_topic_ids: the cluster's id of each input as recorded; another one means deleted and made again.
    """

    execution_id: ExecutionId
    offset_next: int = 0
    term: TermPut | None = None
    phase: ContainerPhase | None = None
    reason: str = ""
    grants: Mapping[str, Grant] = field(default_factory=dict)
    input_topic_ids: Mapping[SystemStream, str] = field(default_factory=dict)

    @property
    def is_given_up(self) -> bool:
        """The coordinator has written this execution off: its tasks are, or will be, somebody else's."""
        return self.phase in (ContainerPhase.LOST, ContainerPhase.FENCED)

    def own_grants(self) -> tuple[Grant, ...]:
        """This execution's grants, the newest per task, in the order of task names."""
        newest: dict[str, Grant] = {}
        for grant in sorted(self.grants.values(), key=lambda grant: grant.epoch):
            newest[grant.task_name] = grant
        return tuple(newest[name] for name in sorted(newest) if newest[name].execution_id == self.execution_id)


def follow(orders: Orders, records: Iterable[Record], offset_next: int) -> Orders:
    """`orders` after `records`, which end before `offset_next`."""
    grants, topic_ids = dict(orders.grants), dict(orders.input_topic_ids)
    for record in records:
        match record:
            case GrantPut():
                grants[key_of(record)] = record.grant
            case Removed():
                grants.pop(record.key, None)
            case InputPut():
                topic_ids[record.system_stream] = record.topic_id
            case TermPut():
                orders = replace(orders, term=record)
            case ContainerPut() if record.container.execution_id == orders.execution_id:
                orders = replace(orders, phase=record.container.phase, reason=record.container.reason)
            case _:
                pass
    return replace(orders, grants=grants, input_topic_ids=topic_ids, offset_next=offset_next)
