"""How SSPs become tasks and tasks become a processor's: two interfaces, for the built-in ways and for users' own.

A job names its own in its configuration (`job.systemstreampartition.grouper.factory`, `task.name.grouper.factory`)
as `module:Class`. The class is made with the job's properties as its one argument, as Samza's factories are:

```python
class ByCustomer:
    def __init__(self, config: Mapping[str, str]) -> None: ...

    def group(self, previous, ssps):
        return {"customers": ssps}
```

The planner holds on to nothing that a grouper does: it calls it when the job is planned, twice, and refuses by name
an answer that differs, that leaves an SSP or a task out, gives one away twice, or would tear keyed state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from samzapy.model.job import ContainerModel, ProcessorId, TaskModel, TaskName
from samzapy.model.ssp import SystemStreamPartition


class SystemStreamPartitionGrouper(Protocol):
    """SSPs -> tasks (seed 000). Implemented by the built-in schemes and by users' own."""

    def group(
        self, previous: Mapping[SystemStreamPartition, TaskName], ssps: Sequence[SystemStreamPartition]
    ) -> Mapping[TaskName, Collection[SystemStreamPartition]]:
        """The SSPs of each task.

        Args:
            previous: the task that each SSP belongs to now, if the job keeps keyed state: a key's state is found
                by its task, so messages of one key must stay in one. Empty for a new job, and for one without
                state, which may be grouped anew.
            ssps: every partition of every input, in the order of `task.inputs` and of partition numbers.
                Broadcast inputs are not among them: every task gets those.

        Returns:
            Each of `ssps` in exactly one task, no task without any. The order says nothing: tasks are numbered by
            their first SSP in `ssps`. Equal arguments must give equal answers, on any host.
        """
        ...


class TaskNameGrouper(Protocol):
    """Tasks -> processors (seed 001). Implemented by the built-in way and by users' own."""

    def group(
        self,
        tasks: Sequence[TaskModel],
        processor_ids: Sequence[ProcessorId],
        previous_containers: Sequence[ContainerModel],
    ) -> Collection[ContainerModel]:
        """The tasks of each processor.

        Args:
            tasks: of the new plan, in the order of their numbers.
            processor_ids: that may be given tasks; at least one, in a fixed order.
            previous_containers: of the plan in force, also of processors that are no more, with the location each
                had; empty for a new job.

        Returns:
            Each of `tasks`, unchanged, in exactly one container of a processor of `processor_ids`; at most one
            container for each. Which location they name does not matter. Equal arguments must give equal answers.
        """
        ...


@dataclass(frozen=True, slots=True)
class Groupers:
    """What a job brings along to be planned with; None stands for the built-in way."""

    ssps: SystemStreamPartitionGrouper | None = None
    tasks: TaskNameGrouper | None = None
