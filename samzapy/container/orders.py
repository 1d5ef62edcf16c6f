"""The coordinator stream as a container reads it: the leader, grants, requests.

A container starts tasks because of grants, never because of a plan. A plan only revokes: the container releases a task
that the plan gives to another processor, or with other buckets. The new owner gets a grant once the coordinator has
seen the release. A placement, which gives a processor's tasks to another execution, revokes in the same way. So do a
startpoint, and a topic that is created again and replaces an input of the plan: the task is released first, and comes
back with another grant. A container needs only these records, so its fold is smaller than the coordinator's
(`coordinator.assignment.grants` has the other side of the rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from samzapy.model.container import Container, ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.model.grant import Grant, is_of_earlier_topic
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.startpoint import Startpoint, StartpointIndex
from samzapy.stream.keys import Namespace, container_key, key_of, launch_key, parse_key
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, Numbering, Reading
from samzapy.stream.records import (
    ConfigPut,
    ContainerEndPut,
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
    """The tasks with state that a standby or a reserve keeps.

    Attributes:
        grants: the newest grant of each task that was granted with the buckets of the current plan, by task name.
        task_count: the number of tasks that the plan gives the processor.
        with_runner: the tasks that a container on this host runs.
        living: the other executions that live on this host.
    """

    grants: tuple[Grant, ...]
    task_count: int
    with_runner: frozenset[TaskName]
    living: frozenset[ExecutionId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The state of the stream up to `offset_next`, for one execution.

    Attributes:
        processor_id: the processor of this execution, once it is registered.
        containers: the executions that are not gone, by their ids.
        grants: the grants, by their key on the stream.
        planned: the tasks of every plan on the stream, by their key.
        generation: the plan in force; None before the first.
        startpoints: the offsets that operators set, until the tasks have applied them.
        input_ends: the offsets before which the run stops reading; for unbounded inputs, those of an earlier run.
        restarts: the number of the newest order to restart, by processor.
        launch: the launch of this execution; None if it is self-managed, or before its record is read.
        placed: the execution that runs a processor's tasks, where that is not the processor's own.
        input_topic_ids: the recorded topic id of each input; another id means deleted and created again.
        epochs_before: the last epoch of the earlier topic, of each input that was created again.
        config: the recorded configuration of the job.
        container_ends: the last end of a container by an error, by processor.
        numbering: the number of the last record; the next record is checked against it.
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
    epochs_before: Mapping[SystemStream, int] = field(default_factory=dict)
    input_ends: Mapping[SystemStreamPartition, int] = field(default_factory=dict)
    restarts: Mapping[ProcessorId, int] = field(default_factory=dict)
    placed: Mapping[ProcessorId, ExecutionId] = field(default_factory=dict)
    launch: Launch | None = None
    run: RunPut | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    container_ends: Mapping[ProcessorId, ContainerEnd] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        """True if the run has read all its inputs, and this execution is registered.

        A run ends with the report of the last execution that leaves it, and only reports of registered executions
        count. Without the registration, the run would never end if all others were killed: each new execution would
        leave without effect.
        """
        is_over = self.run is not None and self.run.finished and not self.run.ended
        return is_over and self.processor_id is not None

    @property
    def is_given_up(self) -> bool:
        """True if the coordinator declared this execution lost; others get its tasks."""
        return self.phase in (ContainerPhase.LOST, ContainerPhase.FENCED)

    @property
    def is_stopping(self) -> bool:
        """True if the coordinator wants this execution to drain and end."""
        return self.launch is not None and self.launch.phase in (LaunchPhase.STOPPING, LaunchPhase.ENDED)

    @property
    def restart(self) -> int:
        """The number of the newest order to restart this processor's query; 0 without any."""
        return 0 if self.processor_id is None else self.restarts.get(self.processor_id, 0)

    def own_grants(self) -> tuple[Grant, ...]:
        """This execution's grants that are not revoked, the newest per task, by name.

        A grant that was recorded as released stays released. A plan that gives the task back leads to a new grant.
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
            if not self._is_revoked(grant, plan.get(grant.task_name))
            and not startpoints.newer_than(grant)
            and not is_of_earlier_topic(grant, self.epochs_before)
        )

    def is_all(self, own: Sequence[Grant]) -> bool:
        """True if these grants cover all tasks that the plan has for this execution."""
        planned = {task.task_name for task in self._plan().values() if self._works_for(task.processor_id)}
        return bool(planned) and planned == {grant.task_name for grant in own}

    def to_keep_warm(self) -> WarmTasks | None:
        """The tasks with state that is kept here; None unless a standby or a reserve."""
        own = self.containers.get(self.execution_id)
        if self.launch is None or self.launch.role is LaunchRole.ACTIVE or own is None:
            return None
        living = self._living_on_host_of(own)
        planned = [task for task in self._plan().values() if task.processor_id == own.processor_id]
        grants = self._granted_as_planned(planned)
        return WarmTasks(
            grants=grants,
            task_count=len(planned),
            with_runner=frozenset(grant.task_name for grant in grants if grant.execution_id in living),
            living=living,
        )

    def _living_on_host_of(self, own: Container) -> frozenset[ExecutionId]:
        """The other executions that live on the host of this one."""
        return frozenset(
            container.execution_id
            for container in self.containers.values()
            if container.shares_host_with(own)
            and container.execution_id != self.execution_id
            and container.phase in _LIVING
        )

    def _granted_as_planned(self, planned: Iterable[PlannedTaskPut]) -> tuple[Grant, ...]:
        """The newest grants with the buckets of the plan, by task name.

        They are returned as not released. A release changes nothing about the state. It is recorded just before this
        execution takes over, when there is no time for another pass.
        """
        newest = self._newest()
        return tuple(
            replace(newest[task.task_name], released=False)
            for task in sorted(planned, key=lambda task: task.task_name)
            if task.task_name in newest
            and {start.ssp_kb for start in newest[task.task_name].starts} == set(task.positions)
        )

    def run_by_others(self) -> tuple[Grant, ...]:
        """All planned tasks, if others run them and this execution waits for a plan.

        Empty otherwise. A coordinator-managed execution does not wait: the plan contains it as soon as it registers.
        """
        plan, newest = self._plan(), self._newest()
        is_waiting = self.processor_id is not None and self.launch is None
        if not is_waiting or any(self._works_for(task.processor_id) for task in plan.values()):
            return ()
        others = {name for name, container in self.containers.items() if container.phase in _LIVING}
        others -= {self.execution_id}
        grants = [newest[name] for name in sorted(plan) if name in newest]
        are_run = all(not grant.released and grant.execution_id in others for grant in grants)
        return tuple(grants) if are_run and len(grants) == len(plan) else ()

    def tasks_in_use(self) -> frozenset[TaskName] | None:
        """Planned tasks, and tasks that an execution may still run; None without a plan."""
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
        return {task.task_name: task for task in self.planned.values() if task.generation == self.generation}

    def _is_revoked(self, grant: Grant, planned: PlannedTaskPut | None) -> bool:
        """True if the plan or a placement revokes this grant.

        The plan revokes it if it gives the task to another processor, or with other buckets, or does not have it. A
        placement revokes it if the processor's tasks run elsewhere.
        """
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
    """`orders` after `records`; foreign records change nothing (`stream.numbering`).

    Raises:
        UnknownSchemaError, CorruptRecordError: a record that a leader wrote cannot be read.
    """
    reading = Reading(orders.numbering, topic=topic)
    facts = [fact for _, fact, _ in reading.read(records) if fact is not None]
    return replace(follow(orders, facts, offset_next), numbering=reading.numbering)


def follow(orders: Orders, records: Iterable[Record], offset_next: int) -> Orders:
    """`orders` after `records`, which end before `offset_next`."""
    fold = _Fold(orders)
    for record in records:
        fold.apply(record)
    return fold.result(offset_next)


class _Fold:
    """Applies many records to orders, and copies the tables only once."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._containers = dict(orders.containers)
        self._grants = dict(orders.grants)
        self._planned = dict(orders.planned)
        self._startpoints = dict(orders.startpoints)
        self._input_topic_ids = dict(orders.input_topic_ids)
        self._epochs_before = dict(orders.epochs_before)
        self._input_ends = dict(orders.input_ends)
        self._restarts = dict(orders.restarts)
        self._placed = dict(orders.placed)
        self._config = dict(orders.config)
        self._container_ends = dict(orders.container_ends)
        self._launch = orders.launch
        # The other fields that changed, by name.
        self._changed: dict[str, Any] = {}

    def apply(self, record: Record) -> None:
        """Apply one record; a record that does not concern containers changes nothing."""
        match record:
            case Removed():
                self._remove(record.key)
            case ContainerPut(container=container):
                self._put_container(container)
            case LaunchPut(launch=launch):
                if launch.execution_id == self._orders.execution_id:
                    self._launch = launch
            case GenerationPut():
                self._changed["generation"] = record.generation
            case RunPut():
                self._changed["run"] = record
            case TermPut():
                self._changed["term"] = record
            case _:
                self._put_in_table(record)

    def result(self, offset_next: int) -> Orders:
        return replace(
            self._orders,
            **self._changed,
            launch=self._launch,
            grants=self._grants,
            planned=self._planned,
            startpoints=self._startpoints,
            input_topic_ids=self._input_topic_ids,
            epochs_before=self._epochs_before,
            input_ends=self._input_ends,
            config=self._config,
            container_ends=self._container_ends,
            restarts=self._restarts,
            placed=self._placed,
            containers=self._containers,
            offset_next=offset_next,
        )

    def _put_in_table(self, record: Record) -> None:
        match record:
            case GrantPut():
                self._grants[key_of(record)] = record.grant
            case ConfigPut():
                self._config[record.config_key] = record.value
            case StartpointPut(startpoint=startpoint):
                self._startpoints[startpoint.ssp_kb] = startpoint
            case PlannedTaskPut():
                self._planned[key_of(record)] = record
            case InputPut():
                self._input_topic_ids[record.system_stream] = record.topic_id
                if record.epoch_before:
                    self._epochs_before[record.system_stream] = record.epoch_before
            case InputEndPut():
                self._input_ends[record.ssp] = record.offset_end
            case RestartPut():
                self._restarts[record.processor_id] = record.number
            case PlacedPut():
                self._placed[record.processor_id] = record.execution_id
            case ContainerEndPut(end=end):
                self._container_ends[end.processor_id] = end
            case _:
                pass

    def _put_container(self, container: Container) -> None:
        if container.is_gone:
            self._containers.pop(container.execution_id, None)
        else:
            self._containers[container.execution_id] = container
        if container.execution_id == self._orders.execution_id:
            self._changed |= {"phase": container.phase, "reason": container.reason}
            self._changed["processor_id"] = container.processor_id

    def _remove(self, key: str) -> None:
        self._grants.pop(key, None)
        self._planned.pop(key, None)
        parsed = parse_key(key)
        match parsed.namespace:
            case Namespace.CONTAINER:
                self._containers.pop(ExecutionId(parsed.parts[0]), None)
            case Namespace.CONFIG:
                self._config.pop(parsed.parts[0], None)
            case Namespace.STARTPOINT:
                self._startpoints.pop(SspKeyBucket.parse(parsed.parts[0]), None)
            case Namespace.PLACED:
                self._placed.pop(ProcessorId(parsed.parts[0]), None)
            case Namespace.CONTAINER_END:
                self._container_ends.pop(ProcessorId(parsed.parts[0]), None)
            case _:
                pass
        if key == launch_key(self._orders.execution_id) and self._launch is not None:
            # A removed launch has ended, and it keeps the role that it had.
            self._launch = replace(self._launch, phase=LaunchPhase.ENDED)
        if key == container_key(self._orders.execution_id):
            # Compaction may have removed the earlier record, which said that it was lost, or stopped and fenced.
            self._changed |= {"phase": ContainerPhase.FENCED, "reason": "it is forgotten"}
