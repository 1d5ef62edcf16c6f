"""What a container reads off the coordinator stream: who leads, what it is granted, whether it was given up.

What it may do it reads off grants and never off plans. A plan only takes away: a task that it gives
to another processor, or cuts otherwise, is to be let go, and its new owner gets a grant once that was seen. So does a
placement, which gives a processor's tasks to another execution, and so does a startpoint: a task that is to go on from
elsewhere is let go first, and comes back with another grant. So this is a small fold beside the coordinator's own
(`coordinator.assignment.grants` has the other side of the rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from samzapy.model.container import Container, ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.startpoint import Startpoint, StartpointIndex
from samzapy.stream.keys import Namespace, container_key, key_of, launch_key, parse_key
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, Numbering, Reading
from samzapy.stream.records import (
    ConfigPut,
    ContainerPut,
    GenerationPut,
    GrantPut,
    InputEndPut,
    InputPut,
    LaunchPut,
    PlacedPut,
    PlannedTaskPut,
    Record,
    Removed,
    RestartPut,
    RunPut,
    StartpointPut,
    TermPut,
)

_LIVING: Final = (ContainerPhase.STARTED, ContainerPhase.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmTasks:
    """The tasks whose state a standby or a reserve is to have at hand.

    Attributes:
        grants: the newest of each task that anybody was granted as the plan in force has it, by task name.
        task_count: of the processor in that plan.
        with_runner: those that are run by a container on this host.
        living: the executions that live on this host, without this one.
    """

    grants: tuple[Grant, ...]
    task_count: int
    with_runner: frozenset[TaskName]
    living: frozenset[ExecutionId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The stream up to `offset_next`, as far as it concerns `execution_id`.

    Attributes:
        processor_id: whose execution this is, once it is registered.
        containers: the executions that are not gone, by their ids.
        grants: by their key on the stream.
        planned: the tasks of every plan on the stream, by their key.
        generation: the plan in force; None before the first.
        startpoints: what operators had set to another place, until everybody has taken that up.
        input_ends: up to where the run reads bounded inputs; of others what an earlier run read.
        restarts: the number of the newest order to restart, of each processor.
        launch: what the coordinator started this execution for; None where a person did, or before that is read.
        placed: the execution that runs a processor's tasks, where that is not the processor's own.
        input_topic_ids: the cluster's id of each input as recorded; another one means deleted and made again.
        config: the configuration that the job runs under, as recorded.
        numbering: after the last record: what comes next is held against it.
    """

    execution_id: ExecutionId
    offset_next: int = 0
    numbering: Numbering = BEGINNING
    term: TermPut | None = None
    phase: ContainerPhase | None = None
    reason: str = ""
    processor_id: ProcessorId | None = None
    containers: Mapping[ExecutionId, Container] = field(default_factory=dict)
    grants: Mapping[str, Grant] = field(default_factory=dict)
    planned: Mapping[str, PlannedTaskPut] = field(default_factory=dict)
    generation: int | None = None
    startpoints: Mapping[SspKeyBucket, Startpoint] = field(default_factory=dict)
    input_topic_ids: Mapping[SystemStream, str] = field(default_factory=dict)
    input_ends: Mapping[SystemStreamPartition, int] = field(default_factory=dict)
    restarts: Mapping[ProcessorId, int] = field(default_factory=dict)
    placed: Mapping[ProcessorId, ExecutionId] = field(default_factory=dict)
    launch: Launch | None = None
    run: RunPut | None = None
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        """The run that is on has read everything it was to read, and this execution is one that can say so.

        A run ends with the word of the last that leaves it. Who is not registered is not heard: when all the others
        were killed, each one that came would leave again for nothing, and the run would never end.
        """
        is_over = self.run is not None and self.run.finished and not self.run.ended
        return is_over and self.processor_id is not None

    @property
    def is_given_up(self) -> bool:
        """The coordinator has written this execution off: its tasks are, or will be, somebody else's."""
        return self.phase in (ContainerPhase.LOST, ContainerPhase.FENCED)

    @property
    def is_stopping(self) -> bool:
        """The coordinator wants this execution to drain and end."""
        return self.launch is not None and self.launch.phase in (LaunchPhase.STOPPING, LaunchPhase.ENDED)

    @property
    def restart(self) -> int:
        """The newest order to restart the query of this execution's processor; 0: there was none."""
        return 0 if self.processor_id is None else self.restarts.get(self.processor_id, 0)

    def own_grants(self) -> tuple[Grant, ...]:
        """This execution's grants that are left to it, the newest per task, in the order of task names.

        One that was recorded as released stays so: a plan that gives the task back brings a new grant.
        """
        newest = self._newest()
        own = (
            newest[name]
            for name in sorted(newest)
            if newest[name].execution_id == self.execution_id and not newest[name].released
        )
        plan = self._plan()
        startpoints = StartpointIndex(self.startpoints.values())
        return tuple(
            grant
            for grant in own
            if not self._is_taken_away(grant, plan.get(grant.task_name)) and not startpoints.newer_than(grant)
        )

    def is_all(self, own: Sequence[Grant]) -> bool:
        """Whether these are grants for every task that the plan in force has for this execution."""
        planned = {found.task_name for found in self._plan().values() if self._works_for(found.processor_id)}
        return bool(planned) and planned == {grant.task_name for grant in own}

    def to_keep_warm(self) -> WarmTasks | None:
        """What is to be kept at hand; None where this is no standby and no reserve."""
        own = self.containers.get(self.execution_id)
        if self.launch is None or self.launch.role is LaunchRole.ACTIVE or own is None:
            return None
        here = {
            execution_id
            for execution_id, found in self.containers.items()
            if found.shares_host_with(own) and execution_id != self.execution_id and found.phase in _LIVING
        }
        newest = self._newest()
        planned = [found for found in self._plan().values() if found.processor_id == own.processor_id]
        # Letting go changes nothing of what they say about the state, and comes when there is no time to look again.
        grants = tuple(
            replace(newest[found.task_name], released=False)
            for found in sorted(planned, key=lambda found: found.task_name)
            if found.task_name in newest
            and {start.ssp_kb for start in newest[found.task_name].starts} == set(found.positions)
        )
        return WarmTasks(
            grants=grants,
            task_count=len(planned),
            with_runner=frozenset(grant.task_name for grant in grants if grant.execution_id in here),
            living=frozenset(here),
        )

    def run_by_others(self) -> tuple[Grant, ...]:
        """Everything that is planned, where others run all of it and this execution, which a person started, waits to
        be planned for; else nothing. One that the coordinator started is planned for as soon as it has come."""
        plan, newest = self._plan(), self._newest()
        is_waiting = self.processor_id is not None and self.launch is None
        if not is_waiting or any(self._works_for(found.processor_id) for found in plan.values()):
            return ()
        others = {name for name, found in self.containers.items() if found.phase in _LIVING} - {self.execution_id}
        grants = [newest[name] for name in sorted(plan) if name in newest]
        are_run = all(not grant.released and grant.execution_id in others for grant in grants)
        return tuple(grants) if are_run and len(grants) == len(plan) else ()

    def tasks_in_use(self) -> frozenset[TaskName] | None:
        """The tasks of the plan in force, and those that somebody may still work for; None before the first plan."""
        if self.generation is None:
            return None
        granted = {
            grant.task_name
            for grant in self.grants.values()
            if not grant.released and grant.execution_id in self.containers
        }
        return frozenset(granted | {planned.task_name for planned in self._plan().values()})

    def _newest(self) -> Mapping[str, Grant]:
        return {grant.task_name: grant for grant in sorted(self.grants.values(), key=lambda grant: grant.epoch)}

    def _plan(self) -> Mapping[str, PlannedTaskPut]:
        return {found.task_name: found for found in self.planned.values() if found.generation == self.generation}

    def _is_taken_away(self, grant: Grant, planned: PlannedTaskPut | None) -> bool:
        """Whether the plan in force gives the task, with these buckets, to another processor, or to none; or the
        processor was placed elsewhere."""
        if self.generation is None or self.processor_id is None:
            return False
        return (
            planned is None
            or not self._works_for(planned.processor_id)
            or {start.ssp_kb for start in grant.starts} != set(planned.positions)
        )

    def _works_for(self, processor_id: ProcessorId) -> bool:
        placed = self.placed.get(processor_id)
        if placed is not None:
            return self.execution_id == placed
        return self.processor_id == processor_id and (self.launch is None or self.launch.role is LaunchRole.ACTIVE)


def read_on(orders: Orders, records: Iterable[LogRecord], offset_next: int, *, topic: str) -> Orders:
    """`orders` after what stands on the stream; foreign records change nothing (`stream.numbering`).

    Raises:
        UnknownSchemaError, CorruptRecordError: a record that a leader wrote cannot be read.
    """
    reading = Reading(orders.numbering, topic=topic)
    facts = [fact for _, fact, _ in reading.read(records) if fact is not None]
    return replace(follow(orders, facts, offset_next), numbering=reading.numbering)


def follow(orders: Orders, records: Iterable[Record], offset_next: int) -> Orders:
    """`orders` after `records`, which end before `offset_next`."""
    grants, planned, topic_ids = dict(orders.grants), dict(orders.planned), dict(orders.input_topic_ids)
    input_ends, config = dict(orders.input_ends), dict(orders.config)
    restarts, startpoints, placed = dict(orders.restarts), dict(orders.startpoints), dict(orders.placed)
    containers = dict(orders.containers)
    # What each record says of this execution; they are told at once, as a stream has many of them.
    said: dict[str, Any] = {}
    launch = orders.launch
    for record in records:
        match record:
            case GrantPut():
                grants[key_of(record)] = record.grant
            case ConfigPut():
                config[record.config_key] = record.value
            case Removed():
                grants.pop(record.key, None)
                planned.pop(record.key, None)
                parsed = parse_key(record.key)
                if parsed.namespace is Namespace.CONTAINER:
                    containers.pop(ExecutionId(parsed.parts[0]), None)
                if parsed.namespace is Namespace.CONFIG:
                    config.pop(parsed.parts[0], None)
                if parsed.namespace is Namespace.STARTPOINT:
                    startpoints.pop(SspKeyBucket.parse(parsed.parts[0]), None)
                if parsed.namespace is Namespace.PLACED:
                    placed.pop(ProcessorId(parsed.parts[0]), None)
                if record.key == launch_key(orders.execution_id) and launch is not None:
                    # Forgotten is what has ended, and it keeps the role that it had.
                    launch = replace(launch, phase=LaunchPhase.ENDED)
                if record.key == container_key(orders.execution_id):
                    # Compaction may have taken what stood before it: that it was lost, or stopped, and is fenced.
                    said |= {"phase": ContainerPhase.FENCED, "reason": "it is forgotten"}
            case StartpointPut(startpoint=startpoint):
                startpoints[startpoint.ssp_kb] = startpoint
            case PlannedTaskPut():
                planned[key_of(record)] = record
            case GenerationPut():
                said["generation"] = record.generation
            case InputPut():
                topic_ids[record.system_stream] = record.topic_id
            case InputEndPut():
                input_ends[record.ssp] = record.offset_end
            case RestartPut():
                restarts[record.processor_id] = record.number
            case PlacedPut():
                placed[record.processor_id] = record.execution_id
            case RunPut():
                said["run"] = record
            case TermPut():
                said["term"] = record
            case LaunchPut() if record.launch.execution_id == orders.execution_id:
                launch = record.launch
            case ContainerPut(container=container):
                if container.is_gone:
                    containers.pop(container.execution_id, None)
                else:
                    containers[container.execution_id] = container
                if container.execution_id == orders.execution_id:
                    said |= {"phase": container.phase, "reason": container.reason}
                    said["processor_id"] = container.processor_id
            case _:
                pass
    return replace(
        orders,
        **said,
        launch=launch,
        grants=grants,
        planned=planned,
        startpoints=startpoints,
        input_topic_ids=topic_ids,
        input_ends=input_ends,
        config=config,
        restarts=restarts,
        placed=placed,
        containers=containers,
        offset_next=offset_next,
    )
