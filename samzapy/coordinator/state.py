"""The state of the coordinator: the fold of the coordinator stream.

Immutable. Only `evolve` makes a newer state, only from committed records, and it never fails on a record of ours:
`decide` does the refusing. Each record is the whole latest value of its key, so it does not matter which older ones
compaction has removed (law L1); a tombstone removes the key's value. A batch is folded into private copies of the
tables it touches: one copy for a batch, not for a record.

Nothing may depend on the order of these mappings. It differs between a coordinator that has lived through the history
and one that has replayed the compacted log (law L7); a loop over one sorts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeVar, final

from samzapy.model.container import Container, ContainerPhase, Locality, ProcessorLocality, TaskLocality
from samzapy.model.container_end import ContainerEnd
from samzapy.model.grant import Grant
from samzapy.model.job import (
    ContainerModel,
    ExecutionId,
    JobModel,
    ProcessorId,
    TaskMode,
    TaskModel,
    TaskName,
)
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.startpoint import Startpoint
from samzapy.stream.keys import ParsedKey, key_of, parse_key
from samzapy.stream.kinds import KIND_OF_NAMESPACE, KIND_OF_TYPE, KINDS, RecordKind
from samzapy.stream.records import (
    ContainerCountPut,
    CoordinatorRecord,
    FactorPut,
    GenerationPut,
    InboxPut,
    InputEndPut,
    InputPut,
    JobIdentityPut,
    LossAcceptedPut,
    OwnTopicPut,
    PlacedPut,
    PlannedTaskPut,
    Removed,
    RequestMemoryPut,
    RequestPut,
    RestartPut,
    RunPut,
    SchemaPut,
    StandbyPut,
    SuspendedPut,
    TermPut,
)

View = TypeVar("View")

OFFSET_UNKNOWN: Final = 2**63 - 1
"""The offset of a record that is not appended yet: no reader has passed it."""


NOTHING_READ: Final = InboxPut(offset_next=0)
"""The inbox before the first read."""


class Committed(NamedTuple):
    """A record with the offset at which it stands on the coordinator stream."""

    offset: int
    record: CoordinatorRecord


@final
@dataclass(frozen=True, kw_only=True)
class CoordinatorState:
    """The fold of the log.

    It has no slots, so that `with_parts` can make the next state at once.

    Attributes:
        offset_next: the offset after the last folded record. It says where the state comes from, so it takes no part
            in equality.
        planned_tasks: of every generation that has records, by (generation, task).
        generation_offset: the offset of the current `generation` record; a reader past it knows the plan.
        grants: by (task, epoch).
        startpoint_offsets: the offsets of the records of `startpoints`; a reader past one knows it.
        placed: the processors whose tasks run on an execution of another processor, and that execution.
        placed_offsets: the offsets of the records of `placed`.
        launches: the executions that the coordinator starts, until they are gone and counted.
        container_count: how many containers the coordinator keeps running; None: they are self-managed.
        standbys: the number of standbys of a processor, where it differs from the configuration.
        suspended: the processors for which no container is started until their reason is resolved.
        container_ends: the last end of a container by an error, by processor.
        requests, request_memory: by uuid; open requests, and closed ones (`coordinator.requests.request_queue`).
        views: computed views of this state (`remembered`), which are no part of its value.
    """

    offset_next: int = field(default=0, compare=False)
    schemas: Mapping[str, SchemaPut] = field(default_factory=dict)
    format_level: int | None = None
    job: JobIdentityPut | None = None
    term: TermPut | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[SystemStream, InputPut] = field(default_factory=dict)
    own_topics: Mapping[str, OwnTopicPut] = field(default_factory=dict)
    changelog_partitions: Mapping[TaskName, int] = field(default_factory=dict)
    planned_tasks: Mapping[tuple[int, TaskName], PlannedTaskPut] = field(default_factory=dict)
    generation: GenerationPut | None = None
    generation_offset: int = 0
    run: RunPut | None = None
    input_ends: Mapping[SystemStreamPartition, InputEndPut] = field(default_factory=dict)
    containers: Mapping[ExecutionId, Container] = field(default_factory=dict)
    localities: Mapping[ProcessorId, ProcessorLocality] = field(default_factory=dict)
    task_localities: Mapping[TaskName, TaskLocality] = field(default_factory=dict)
    epoch: int = 0
    grants: Mapping[tuple[TaskName, int], Grant] = field(default_factory=dict)
    startpoints: Mapping[SspKeyBucket, Startpoint] = field(default_factory=dict)
    startpoint_offsets: Mapping[SspKeyBucket, int] = field(default_factory=dict)
    accepted_losses: Mapping[SspKeyBucket, LossAcceptedPut] = field(default_factory=dict)
    requests: Mapping[str, RequestPut] = field(default_factory=dict)
    request_memory: Mapping[str, RequestMemoryPut] = field(default_factory=dict)
    inbox: InboxPut = NOTHING_READ
    restarts: Mapping[ProcessorId, RestartPut] = field(default_factory=dict)
    placed: Mapping[ProcessorId, PlacedPut] = field(default_factory=dict)
    placed_offsets: Mapping[ProcessorId, int] = field(default_factory=dict)
    launches: Mapping[ExecutionId, Launch] = field(default_factory=dict)
    container_count: ContainerCountPut | None = None
    standbys: Mapping[ProcessorId, StandbyPut] = field(default_factory=dict)
    suspended: Mapping[ProcessorId, SuspendedPut] = field(default_factory=dict)
    container_ends: Mapping[ProcessorId, ContainerEnd] = field(default_factory=dict)
    factor: FactorPut | None = None
    views: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def plan(self) -> tuple[PlannedTaskPut, ...]:
        """The tasks of the current generation, in the order of their numbers.

        Empty before the first generation.
        """
        return _plan(self)

    @property
    def generation_number(self) -> int:
        """The number of the current generation; 0 before the first one."""
        return 0 if self.generation is None else self.generation.generation

    @property
    def containers_sorted(self) -> tuple[Container, ...]:
        return _containers_sorted(self)

    @property
    def grants_sorted(self) -> tuple[Grant, ...]:
        """By epoch, the oldest first."""
        return _grants_sorted(self)


def remembered(view: Callable[[CoordinatorState], View]) -> Callable[[CoordinatorState], View]:
    """Compute `view` once for each state.

    A state never changes, and each step of a round asks for the same views again: with 10,000 tasks that would be most
    of the coordinator's work. Callers must not change the result.
    """

    @wraps(view)
    def remembering(state: CoordinatorState) -> View:
        if view not in state.views:
            state.views[view] = view(state)
        known: View = state.views[view]
        return known

    return remembering


@remembered
def _plan(state: CoordinatorState) -> tuple[PlannedTaskPut, ...]:
    if state.generation is None:
        return ()
    in_force = [
        planned
        for (generation, _), planned in state.planned_tasks.items()
        if generation == state.generation.generation
    ]
    return tuple(sorted(in_force, key=lambda planned: (planned.partition_id, planned.task_name)))


@remembered
def _containers_sorted(state: CoordinatorState) -> tuple[Container, ...]:
    return tuple(state.containers[execution_id] for execution_id in sorted(state.containers))


@remembered
def _grants_sorted(state: CoordinatorState) -> tuple[Grant, ...]:
    return tuple(sorted(state.grants.values(), key=lambda grant: (grant.epoch, grant.task_name)))


INITIAL: Final = CoordinatorState()


Standing = tuple[int, CoordinatorRecord]
"""An offset and its record: a `Committed` without names, for the hot path."""


def committed(records: Sequence[CoordinatorRecord], offset_first: int) -> tuple[Committed, ...]:
    """`records` at consecutive offsets from `offset_first` on."""
    return tuple(Committed(offset_first + index, record) for index, record in enumerate(records))


def uncommitted(records: Sequence[CoordinatorRecord]) -> tuple[Standing, ...]:
    """`records` before they are appended, at an offset that no reader has passed."""
    return tuple(zip(repeat(OFFSET_UNKNOWN - 1), records, strict=False))


def evolve(state: CoordinatorState, batch: Iterable[Standing]) -> CoordinatorState:
    """The state after `batch`."""
    changed = parts_changed(state, batch)
    return with_parts(state, changed) if changed else state


def parts_changed(state: CoordinatorState, batch: Iterable[Standing]) -> Mapping[str, Any]:
    """The parts of `state` that `batch` changes, by name."""
    changed: dict[str, Any] = {}
    for offset, record in batch:
        changed["offset_next"] = offset + 1
        _fold(state, changed, offset, record)
    return changed


def with_parts(state: CoordinatorState, changed: Mapping[str, Any]) -> CoordinatorState:
    """`dataclasses.replace`, 30 times as fast.

    Making states is most of the work that is done with them.
    """
    made = object.__new__(CoordinatorState)
    vars(made).update(vars(state))
    vars(made).update(changed, views={})
    return made


class Round:
    """Decisions of one round, each made on the state that the earlier ones lead to.

    All decisions about several processors, requests or launches use one: two decisions on the same state would choose
    the same host. The state is folded only when it is asked for after further records.

    Attributes:
        records: all that was decided, in order.
    """

    def __init__(self, state: CoordinatorState) -> None:
        self.records: list[CoordinatorRecord] = []
        self._state = state
        self._folded = 0

    @property
    def state(self) -> CoordinatorState:
        """The state for the next decision."""
        if self._folded < len(self.records):
            self._state = evolve(self._state, uncommitted(self.records[self._folded :]))
            self._folded = len(self.records)
        return self._state

    def add(self, records: Iterable[CoordinatorRecord]) -> bool:
        """Add records; returns whether there were any."""
        further = tuple(records)
        self.records.extend(further)
        return bool(further)


_PARTS: Final = tuple(part.name for part in fields(CoordinatorState) if part.init)
TABLES: Final = tuple(name for name in _PARTS if isinstance(getattr(INITIAL, name), Mapping))
"""The parts of a state that are looked up by some key."""


class Folding:
    """A fold of one record after the other, which copies no table.

    For checks of each step. `state` is a view that the next record changes, and it has no `offset_next`.
    """

    def __init__(self) -> None:
        self._tables: dict[str, Any] = {name: {} for name in TABLES}
        self.state = replace(INITIAL, **self._tables)

    def add(self, offset: int, record: CoordinatorRecord) -> None:
        changed = dict(self._tables)
        self.state.views.clear()
        _fold(self.state, changed, offset, record)
        if len(changed) > len(self._tables):
            self.state = with_parts(self.state, changed)


def _fold(state: CoordinatorState, changed: dict[str, Any], offset: int, record: CoordinatorRecord) -> None:
    kind = KIND_OF_TYPE.get(type(record))
    if kind is None:
        assert isinstance(record, Removed), record
        _remove(state, changed, record.key)
    elif kind.is_table:
        identity = kind.identity(record)
        _table(state, changed, kind.part)[identity] = kind.value(record)
        if kind.offsets:
            _table(state, changed, kind.offsets)[identity] = offset
    else:
        changed[kind.part] = kind.value(record)
        if kind.offsets:
            changed[kind.offsets] = offset


def _table(state: CoordinatorState, changed: dict[str, Any], name: str) -> dict[Any, Any]:
    """The batch's private copy of a table."""
    table: dict[Any, Any] | None = changed.get(name)
    if table is None:
        table = changed[name] = dict(getattr(state, name))
    return table


def _remove(state: CoordinatorState, changed: dict[str, Any], key: str) -> None:
    parsed = parse_key(key)
    kind = KIND_OF_NAMESPACE[parsed.namespace]
    identity = kind.identity_of_parts(parsed.parts)
    # Nothing under a key of the checkpoint topic is ever folded here: such a kind has no part.
    for part in (kind.part, kind.offsets):
        if part and kind.is_table:
            _table(state, changed, part).pop(identity, None)
        elif part:
            changed[part] = getattr(INITIAL, part)


def latest(state: CoordinatorState, record: CoordinatorRecord) -> CoordinatorRecord | None:
    """The current record of the key of `record`.

    None if there is none, and for a tombstone.
    """
    if isinstance(record, Removed):
        return None
    kind = KIND_OF_TYPE[type(record)]
    return _standing(state, kind, kind.identity(record))


def standing_under(state: CoordinatorState, key: ParsedKey) -> CoordinatorRecord | None:
    """The current record of `key`; None if there is none."""
    kind = KIND_OF_NAMESPACE[key.namespace]
    return _standing(state, kind, kind.identity_of_parts(key.parts)) if kind.part else None


def _standing(state: CoordinatorState, kind: RecordKind, identity: Any) -> CoordinatorRecord | None:
    held = getattr(state, kind.part)
    if kind.is_table:
        held = held.get(identity)
        is_there = held is not None
    else:
        is_there = held != getattr(INITIAL, kind.part)
    record: CoordinatorRecord | None = kind.record_of(identity, held) if is_there else None
    return record


def records_of(state: CoordinatorState) -> Iterator[CoordinatorRecord]:
    """The records whose fold is `state`, one for each value in it."""
    for kind in KINDS:
        if not kind.part:
            continue
        if kind.is_table:
            yield from (kind.record_of(identity, held) for identity, held in getattr(state, kind.part).items())
        elif (record := _standing(state, kind, None)) is not None:
            yield record


def job_model(state: CoordinatorState) -> JobModel | None:
    """The plan in force as a value; None before the first."""
    if state.generation is None:
        return None
    tasks_of: dict[ProcessorId, list[TaskModel]] = {}
    for planned in state.plan:
        tasks_of.setdefault(planned.processor_id, []).append(
            TaskModel(
                name=planned.task_name,
                partition_id=planned.partition_id,
                ssp_kbs=planned.ssp_kbs,
                changelog_partition=planned.changelog_partition,
                mode=TaskMode(planned.mode),
                broadcast_ssps=planned.broadcast_ssps,
            )
        )
    return JobModel(
        generation=state.generation.generation,
        config={key: state.config[key] for key in sorted(state.config)},
        containers=tuple(
            ContainerModel(
                processor_id=processor_id,
                location_id=state.localities[processor_id].host if processor_id in state.localities else None,
                tasks=tuple(tasks_of.get(processor_id, ())),
            )
            for processor_id in sorted_processors({*tasks_of, *state.generation.processor_ids})
        ),
    )


def works_for(container: Container, processor_id: ProcessorId, state: CoordinatorState) -> bool:
    """Whether the execution is to run the processor's tasks.

    They run where they were placed, otherwise on an execution of the processor itself.
    """
    placed = state.placed.get(processor_id)
    if placed is None:
        return container.processor_id == processor_id and runs_its_own(container, state)
    return container.execution_id == placed.execution_id


def runs_its_own(container: Container, state: CoordinatorState) -> bool:
    """Whether the execution runs its processor's tasks without being placed there.

    Standbys and reserves do not.
    """
    launch = state.launches.get(container.execution_id)
    return launch is None or launch.role is LaunchRole.ACTIVE


def is_leaving(execution_id: ExecutionId, state: CoordinatorState) -> bool:
    """Whether the execution was told to stop.

    It keeps its grants until it has stopped, and gets no new ones.
    """
    launch = state.launches.get(execution_id)
    return launch is not None and launch.phase in (LaunchPhase.STOPPING, LaunchPhase.ENDED)


def locality_of(state: CoordinatorState) -> Locality:
    """The hosts of processors and tasks, for planning.

    A processor's host is that of its living execution, else that of its last one.
    """
    processors = {processor_id: state.localities[processor_id].host for processor_id in state.localities}
    # In the order of their ids, so that it is the same one wherever a processor has two.
    for container in state.containers_sorted:
        if container.phase in (ContainerPhase.STARTED, ContainerPhase.RUNNING) and runs_its_own(container, state):
            processors[container.processor_id] = container.host
    for placed in state.placed.values():
        if placed.execution_id in state.containers:
            processors[placed.processor_id] = state.containers[placed.execution_id].host
    return Locality(
        processors=processors,
        tasks={task_name: state.task_localities[task_name].host for task_name in state.task_localities},
    )


def sorted_processors(processor_ids: Iterable[ProcessorId]) -> tuple[ProcessorId, ...]:
    """`2` before `10`, and total for any text."""
    return tuple(sorted(processor_ids, key=lambda processor_id: (len(processor_id), processor_id)))


def tombstone(record: CoordinatorRecord) -> Removed:
    """The tombstone of `record`'s key."""
    return Removed(key=key_of(record))
