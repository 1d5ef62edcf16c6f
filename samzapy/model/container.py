"""The life of one container execution, and where a processor last ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from samzapy.model.job import ExecutionId, ProcessorId, TaskName

SLOT_COUNT_MAX: Final = 512
"""Worker slots of a container, one for each core.

Each slot is a transactional id that is initialised when the execution is given up.
"""


class ContainerPhase(StrEnum):
    """STARTED -> RUNNING -> STOPPED, or -> LOST -> FENCED.

    A STOPPED execution reported its end and held nothing; a LOST one was declared lost.

    LOST means: no more grants, heartbeats answer `alive: false`. FENCED means: the coordinator has initialised
    all its transactional ids, so nothing it still does can be committed, and its tasks may go to others.
    """

    STARTED = "STARTED"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    LOST = "LOST"
    FENCED = "FENCED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One execution of a processor.

    Attributes:
        slot_count: worker slots; with the execution id it names all transactional ids.
        process_started_ms: start time of `pid` since boot, in milliseconds; tells a reused pid apart.
        boot_id: of the host and its namespace of pids. A pid of before a reboot is known to be gone, and one of
            another container of the same machine is not looked for.
        reason: why it stopped or was given up; empty while it runs.
        comes_back: its processor has an id that is configured, or kept on its host; else no other execution has it.
    """

    execution_id: ExecutionId
    processor_id: ProcessorId
    host: str
    boot_id: str
    pid: int
    process_started_ms: int
    slot_count: int
    phase: ContainerPhase
    format_level: int
    reason: str = ""
    comes_back: bool = True

    def shares_host_with(self, other: Container) -> bool:
        """Whether both belong to one boot of one host.

        They find the same directories there; pids may differ.
        """
        return (self.host, self.boot_id.partition(".")[0]) == (other.host, other.boot_id.partition(".")[0])

    @property
    def is_gone(self) -> bool:
        """Nothing of it can be committed any more."""
        return self.phase in (ContainerPhase.STOPPED, ContainerPhase.FENCED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorLocality:
    """The host of a processor's state, and an opaque fault domain.

    The host is the one on which the processor last ran.
    """

    processor_id: ProcessorId
    host: str
    fault_domain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLocality:
    """The host of a task's state: the last host and processor that ran the task.

    Kept beside the processor's, because a processor may come back on another host and leave the state behind.
    """

    task_name: TaskName
    processor_id: ProcessorId
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """Known hosts of processors and of task state. A missing entry has no known host.

    Attributes:
        processors: the host each processor runs on now, or ran on last.
        tasks: the host that holds each task's state.
    """

    processors: Mapping[ProcessorId, str] = field(default_factory=dict)
    tasks: Mapping[TaskName, str] = field(default_factory=dict)


NO_LOCALITY: Final = Locality()


def transactional_ids(job: str, execution_id: ExecutionId, slot_count: int) -> tuple[str, ...]:
    """All transactional ids of an execution: one per worker slot, and the driver's.

    Args:
        job: `<job.name>-<job.id>`.
    """
    return (
        *(slot_transactional_id(job, execution_id, slot) for slot in range(slot_count)),
        driver_transactional_id(job, execution_id),
    )


def slot_transactional_id(job: str, execution_id: ExecutionId, slot: int) -> str:
    """The transactional id of one worker slot of an execution."""
    return f"{execution_transactional_id_prefix(job)}{execution_id}/{slot}"


def driver_transactional_id(job: str, execution_id: ExecutionId) -> str:
    """The transactional id under which an execution's driver writes progress records."""
    return f"{execution_transactional_id_prefix(job)}{execution_id}/driver"


def execution_transactional_id_prefix(job: str) -> str:
    """The beginning of the transactional ids of all executions of a job.

    No id of another job begins so.
    """
    return f"samzapy/{job}/"


def placement_transactional_id(job: str) -> str:
    """The id under which the leader writes answers to the placement topic."""
    return f"samzapy-placement/{job}"


def coordinator_transactional_id(job: str) -> str:
    """The id that acts as lock: its last initialiser may write to the stream."""
    return f"samzapy-coordinator/{job}"


def election_group(job: str) -> str:
    """The consumer group of the candidates of a job. `job` is `<job.name>-<job.id>`."""
    return f"samzapy-election/{job}"
