"""The assignment: the SSPs of each task, and the tasks of each processor.

A JobModel is an immutable value and knows no store and no manager. It is made by
`plan.job_plan`, written to the coordinator stream under its generation, and read back from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition

TaskName = NewType("TaskName", str)
ProcessorId = NewType("ProcessorId", str)
ExecutionId = NewType("ExecutionId", str)


class TaskMode(StrEnum):
    """The role of a task.

    `virtual`: a task with one key bucket of its base task's input. A `standby` task is planned nowhere: a standby is an
    execution that has the state of its processor's tasks at hand (`coordinator.launching.standbys`), and is shown
    beside the plan.
    """

    ACTIVE = "active"
    VIRTUAL = "virtual"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskModel:
    """A unit of processing, of state and of checkpoints.

    Attributes:
        partition_id: Samza's StreamTask number; given once, never renumbered.
        ssp_kbs: the task's own input; no other task is granted any of it (law L6).
        changelog_partition: the partition of every changelog topic of the job that holds this task's state.
        broadcast_ssps: the SSPs that this task reads as a whole under any factor, as other tasks do; never also
            in `ssp_kbs`. Law L6 does not speak of them. A position in one belongs to the task that made it: it
            stands under `checkpoint/<SSP>@<task>`, for instance `checkpoint/kafka.rules.0@Partition_3`.
    """

    name: TaskName
    partition_id: int
    ssp_kbs: tuple[SspKeyBucket, ...]
    changelog_partition: int
    mode: TaskMode = TaskMode.ACTIVE
    broadcast_ssps: tuple[SystemStreamPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerModel:
    """The tasks of one processor (processor id and location id, no container id)."""

    processor_id: ProcessorId
    location_id: str | None
    tasks: tuple[TaskModel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """The assignment of tasks to processors in one generation."""

    generation: int
    config: Mapping[str, str]
    containers: tuple[ContainerModel, ...]

    @property
    def tasks(self) -> tuple[TaskModel, ...]:
        """All tasks, in the order of their partition ids."""
        tasks = [task for container in self.containers for task in container.tasks]
        return tuple(sorted(tasks, key=lambda task: (task.partition_id, task.name)))
