"""The values of commands that plans of grants make.

They are apart from the commands: a command of an operator plans, and takes no command of a leader.
"""

from __future__ import annotations

from dataclasses import dataclass

from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket


@dataclass(frozen=True, slots=True)
class ContainerGone:
    """The process of an execution has ended without a last heartbeat.

    `end`: what its finder knows of the end; None: nothing is to be recorded.
    """

    execution_id: ExecutionId
    reason: str
    end: ContainerEnd | None = None


@dataclass(frozen=True, slots=True, order=True)
class HeldGrant:
    """One entry of a container's list of held grants."""

    task_name: TaskName
    epoch: int


@dataclass(frozen=True, slots=True)
class LossUsed:
    """A start below the log's beginning that an accepted loss has moved."""

    ssp_kb: SspKeyBucket
    offset_from: int
    offset_to: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far a container has read an SSPKb, and the end of the topic then.

    Attributes:
        records_in: how many of its records it has handled; None: not known.
        bootstrap_end: the offset up to which it is read before the other inputs of its task; 0: they do not wait.
        tailing: whether a worker reads it in a tail.
        open_for_ms: for how long a transaction of another producer is open at the end; 0: none is.
    """

    offset_next: int
    offset_end: int
    records_in: int | None = 0
    bootstrap_end: int = 0
    tailing: bool = False
    open_for_ms: int = 0
