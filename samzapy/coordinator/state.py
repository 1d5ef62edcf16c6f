"""The state of the coordinator: the fold of the coordinator stream.

Immutable. `evolve` is the only thing that makes a newer one, only from committed records, and never fails on
a record of ours: refusing is `decide`'s. Each record is the whole latest value of its key, so it does not
matter which of the older ones compaction took (law L1); a tombstone takes the key's value away, whatever it
was. A batch is folded into private copies of the tables it touches: one copy per batch, not per record.

Nothing may depend on the order of these mappings. It differs between a coordinator that lived through the
history and one that replayed what compaction left of it (law L7); whoever walks one sorts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeVar, final

from samzapy.model.container import Container, ContainerPhase, Locality, ProcessorLocality, TaskLocality
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
from samzapy.stream.kinds import KIND_OF_TYPE, KIND_OF_WORD, KINDS, RecordKind
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
"""Stands for the offset of a record that is not appended yet: nobody can have read past it."""


NOTHING_READ: Final = InboxPut(offset_next=0)
"""The inbox before anything was read."""


class Committed(NamedTuple):
    """A record with the offset at which it stands on the coordinator stream."""

    offset: int
    record: CoordinatorRecord


@final
@dataclass(frozen=True, kw_only=True)
class CoordinatorState:
    """Everything the log says. Without slots: so the next one is made of it at once (`with_parts`).

    Attributes:
        offset_next: the offset after the last record folded in. Where the state comes from, not what it says,
            so it takes no part in equality.
        planned_tasks: of every generation that has records, by (generation, task).
        generation_offset: where the `generation` record in force stands; who has read past it knows the plan.
        grants: by (task, epoch).
        startpoint_offsets: where the records of `startpoints` stand; who has read past one knows it.
        placed: the processors whose tasks another execution runs than one of their own, and which.
        placed_offsets: where the records of `placed` stand.
        launches: the executions that the coordinator starts, until they are gone and counted.
        container_count: how many it keeps running; None where people start them.
        standbys: how many each processor is to have, where that is not what the configuration says.
        suspended: the processors of which no container is started until their reason is resolved.
        requests, request_memory: by uuid; those that are served, and those that were
            (`coordinator.requests.request_queue`).
        views: what was made of this state so far (`remembered`); no part of what it says.
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
    factor: FactorPut | None = None
    views: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def plan(self) -> tuple[PlannedTaskPut, ...]:
        """The tasks of the generation in force, in the order of their numbers; empty before the first."""
        return _plan(self)

    @property
    def containers_sorted(self) -> tuple[Container, ...]:
        return _containers_sorted(self)

    @property
    def grants_sorted(self) -> tuple[Grant, ...]:
        """By epoch, the oldest first."""
        return _grants_sorted(self)


def remembered(view: Callable[[CoordinatorState], View]) -> Callable[[CoordinatorState], View]:
    """`view`, made once of each state. A state never changes, and each step of a round asks for the same of it again:
    of 10,000 tasks that would be most of what a coordinator does. Nobody may change what it gives."""

    @wraps(view)
    def found(state: CoordinatorState) -> View:
        if view not in state.views:
            state.views[view] = view(state)
        known: View = state.views[view]
        return known

    return found


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
"""As `Committed`, which is one, for the many that nobody asks by name."""


def committed(records: Sequence[CoordinatorRecord], offset_first: int) -> tuple[Committed, ...]:
    """`records` as they stand one after the other from `offset_first` on."""
    return tuple(Committed(offset_first + index, record) for index, record in enumerate(records))


def uncommitted(records: Sequence[CoordinatorRecord]) -> tuple[Standing, ...]:
    """`records` as they may be looked at before they are appended: at no offset that anybody has read."""
    return tuple(zip(repeat(OFFSET_UNKNOWN - 1), records, strict=False))


def evolve(state: CoordinatorState, batch: Iterable[Standing]) -> CoordinatorState:
    """The state after `batch`."""
    changed = parts_changed(state, batch)
    return with_parts(state, changed) if changed else state


def parts_changed(state: CoordinatorState, batch: Iterable[Standing]) -> Mapping[str, Any]:
    """What `batch` makes of the parts of `state` that it changes, by their names."""
    changed: dict[str, Any] = {}
    for offset, record in batch:
        changed["offset_next"] = offset + 1
        _fold(state, changed, offset, record)
    return changed


def with_parts(state: CoordinatorState, changed: Mapping[str, Any]) -> CoordinatorState:
    """`dataclasses.replace`, which takes thirty times as long: of all that is done with a state most is to make it."""
    made = object.__new__(CoordinatorState)
    vars(made).update(vars(state))
    vars(made).update(changed, views={})
    return made


class Round:
    """Decisions of one round, each made on what those before it leave.

    Whatever decides for several processors, requests or launches goes through one: two decisions on one state choose
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
        """What the next decision is made on."""
        if self._folded < len(self.records):
            self._state = evolve(self._state, uncommitted(self.records[self._folded :]))
            self._folded = len(self.records)
        return self._state

    def add(self, records: Iterable[CoordinatorRecord]) -> bool:
        """Take further records; returns whether there were any."""
        further = tuple(records)
        self.records.extend(further)
        return bool(further)


_PARTS: Final = tuple(found.name for found in fields(CoordinatorState) if found.init)
TABLES: Final = tuple(name for name in _PARTS if isinstance(getattr(INITIAL, name), Mapping))
"""The parts of a state that are looked up by some key."""


class Folding:
    """A fold that goes on record by record and copies no table: for who judges each step.

    `state` is a view of it, which the next record changes, and it does not tell `offset_next`.
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
    """This batch's private copy of a table."""
    table: dict[Any, Any] | None = changed.get(name)
    if table is None:
        table = changed[name] = dict(getattr(state, name))
    return table


def _remove(state: CoordinatorState, changed: dict[str, Any], key: str) -> None:
    parsed = parse_key(key)
    kind = KIND_OF_WORD[parsed.namespace]
    identity = kind.identity_of_parts(parsed.parts)
    # Nothing under a key of the checkpoint topic is ever folded here: such a kind has no part.
    for part in (kind.part, kind.offsets):
        if part and kind.is_table:
            _table(state, changed, part).pop(identity, None)
        elif part:
            changed[part] = getattr(INITIAL, part)


def latest(state: CoordinatorState, record: CoordinatorRecord) -> CoordinatorRecord | None:
    """The record that stands under `record`'s key; None where there is none, and for a tombstone."""
    if isinstance(record, Removed):
        return None
    kind = KIND_OF_TYPE[type(record)]
    return _standing(state, kind, kind.identity(record))


def standing_under(state: CoordinatorState, key: ParsedKey) -> CoordinatorRecord | None:
    """The record that stands under `key`; None where there is none."""
    kind = KIND_OF_WORD[key.namespace]
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
    """The records that `state` is the fold of: one for each fact in it, none for what was removed."""
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
    """Whether the processor's tasks are the execution's to run: where they were placed, else on its own."""
    placed = state.placed.get(processor_id)
    if placed is None:
        return container.processor_id == processor_id and runs_its_own(container, state)
    return container.execution_id == placed.execution_id


def runs_its_own(container: Container, state: CoordinatorState) -> bool:
    """Whether the execution runs its processor's tasks without being placed there: standbys and reserves do not."""
    launch = state.launches.get(container.execution_id)
    return launch is None or launch.role is LaunchRole.ACTIVE


def is_leaving(execution_id: ExecutionId, state: CoordinatorState) -> bool:
    """Whether the execution was told to stop: it keeps what it has until it says so, and gets nothing new."""
    launch = state.launches.get(execution_id)
    return launch is not None and launch.phase in (LaunchPhase.STOPPING, LaunchPhase.ENDED)


def locality_of(state: CoordinatorState) -> Locality:
    """What planning knows of places: where living executions run, else where their processors ran last."""
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
    return tuple(sorted(processor_ids, key=lambda found: (len(found), found)))


def tombstone(record: CoordinatorRecord) -> Removed:
    """The tombstone of `record`'s key."""
    return Removed(key=key_of(record))
