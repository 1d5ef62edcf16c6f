"""What the coordinator knows: the fold of the coordinator stream, and nothing else.

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
from typing import Any, Final, NamedTuple, TypeVar, assert_never, final

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
from samzapy.stream.keys import Namespace, key_of, parse_key
from samzapy.stream.records import (
    ChangelogPartitionPut,
    ConfigPut,
    ContainerCountPut,
    ContainerPut,
    CoordinatorRecord,
    EpochPut,
    FactorPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InboxPut,
    InputEndPut,
    InputPut,
    JobIdentityPut,
    LaunchPut,
    LocalityPut,
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
    StartpointPut,
    SuspendedPut,
    TaskLocalityPut,
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
        requests, request_memory: by uuid; those that are served, and those that were (`coordinator.requests`).
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
    # They are tried one after the other, so those of which there are most come first; below too.
    match record:
        case GrantPut():
            _table(state, changed, "grants")[record.grant.task_name, record.grant.epoch] = record.grant
        case Removed():
            _remove(state, changed, record.key)
        case EpochPut():
            changed["epoch"] = record.epoch
        case TaskLocalityPut():
            _table(state, changed, "task_localities")[record.locality.task_name] = record.locality
        case PlannedTaskPut():
            _table(state, changed, "planned_tasks")[record.generation, record.task_name] = record
        case ContainerPut():
            _table(state, changed, "containers")[record.container.execution_id] = record.container
        case SchemaPut():
            _table(state, changed, "schemas")[record.fingerprint] = record
        case ConfigPut():
            _table(state, changed, "config")[record.config_key] = record.value
        case TermPut():
            changed["term"] = record
        case JobIdentityPut():
            changed["job"] = record
        case FormatLevelPut():
            changed["format_level"] = record.level
        case GenerationPut():
            changed["generation"], changed["generation_offset"] = record, offset
        case RunPut():
            changed["run"] = record
        case InputEndPut():
            _table(state, changed, "input_ends")[record.ssp] = record
        case InputPut():
            _table(state, changed, "inputs")[record.system_stream] = record
        case OwnTopicPut():
            _table(state, changed, "own_topics")[record.name] = record
        case ChangelogPartitionPut():
            _table(state, changed, "changelog_partitions")[record.task_name] = record.partition
        case LocalityPut():
            _table(state, changed, "localities")[record.locality.processor_id] = record.locality
        case StartpointPut(startpoint=startpoint):
            _table(state, changed, "startpoints")[startpoint.ssp_kb] = startpoint
            _table(state, changed, "startpoint_offsets")[startpoint.ssp_kb] = offset
        case LossAcceptedPut():
            _table(state, changed, "accepted_losses")[record.ssp_kb] = record
        case RequestPut():
            _table(state, changed, "requests")[record.uuid] = record
        case RequestMemoryPut():
            _table(state, changed, "request_memory")[record.uuid] = record
        case InboxPut():
            changed["inbox"] = record
        case RestartPut():
            _table(state, changed, "restarts")[record.processor_id] = record
        case PlacedPut():
            _table(state, changed, "placed")[record.processor_id] = record
            _table(state, changed, "placed_offsets")[record.processor_id] = offset
        case LaunchPut():
            _table(state, changed, "launches")[record.launch.execution_id] = record.launch
        case ContainerCountPut():
            changed["container_count"] = record
        case StandbyPut():
            _table(state, changed, "standbys")[record.processor_id] = record
        case SuspendedPut():
            _table(state, changed, "suspended")[record.processor_id] = record
        case FactorPut():
            changed["factor"] = record
        case _:
            assert_never(record)


def _table(state: CoordinatorState, changed: dict[str, Any], name: str) -> dict[Any, Any]:
    """This batch's private copy of a table."""
    if name not in changed:
        changed[name] = dict(getattr(state, name))
    found: dict[Any, Any] = changed[name]
    return found


def _remove(state: CoordinatorState, changed: dict[str, Any], key: str) -> None:
    parsed = parse_key(key)
    match parsed.namespace:
        case Namespace.GRANT:
            _table(state, changed, "grants").pop((parsed.parts[0], int(parsed.parts[1])), None)
        case Namespace.PLAN:
            _table(state, changed, "planned_tasks").pop((int(parsed.parts[0]), parsed.parts[1]), None)
        case Namespace.TERM:
            changed["term"] = None
        case Namespace.JOB:
            changed["job"] = None
        case Namespace.FORMAT:
            changed["format_level"] = None
        case Namespace.GENERATION:
            changed["generation"], changed["generation_offset"] = None, 0
        case Namespace.RUN:
            changed["run"] = None
        case Namespace.END:
            _table(state, changed, "input_ends").pop(SystemStreamPartition.parse(parsed.parts[0]), None)
        case Namespace.EPOCH:
            changed["epoch"] = 0
        case Namespace.SCHEMA:
            _table(state, changed, "schemas").pop(parsed.parts[0], None)
        case Namespace.CONFIG:
            _table(state, changed, "config").pop(parsed.parts[0], None)
        case Namespace.INPUT:
            _table(state, changed, "inputs").pop(SystemStream.parse(parsed.parts[0]), None)
        case Namespace.TOPIC:
            _table(state, changed, "own_topics").pop(parsed.parts[0], None)
        case Namespace.CHANGELOG:
            _table(state, changed, "changelog_partitions").pop(parsed.parts[0], None)
        case Namespace.CONTAINER:
            _table(state, changed, "containers").pop(parsed.parts[0], None)
        case Namespace.LOCALITY:
            _table(state, changed, "localities").pop(parsed.parts[0], None)
        case Namespace.TASK_LOCALITY:
            _table(state, changed, "task_localities").pop(parsed.parts[0], None)
        case Namespace.STARTPOINT:
            ssp_kb = SspKeyBucket.parse(parsed.parts[0])
            _table(state, changed, "startpoints").pop(ssp_kb, None)
            _table(state, changed, "startpoint_offsets").pop(ssp_kb, None)
        case Namespace.ACCEPTED_LOSS:
            _table(state, changed, "accepted_losses").pop(SspKeyBucket.parse(parsed.parts[0]), None)
        case Namespace.REQUEST:
            _table(state, changed, "requests").pop(parsed.parts[0], None)
        case Namespace.REQUEST_MEMORY:
            _table(state, changed, "request_memory").pop(parsed.parts[0], None)
        case Namespace.INBOX:
            changed["inbox"] = NOTHING_READ
        case Namespace.RESTART:
            _table(state, changed, "restarts").pop(parsed.parts[0], None)
        case Namespace.PLACED:
            _table(state, changed, "placed").pop(parsed.parts[0], None)
            _table(state, changed, "placed_offsets").pop(parsed.parts[0], None)
        case Namespace.LAUNCH:
            _table(state, changed, "launches").pop(parsed.parts[0], None)
        case Namespace.CONTAINER_COUNT:
            changed["container_count"] = None
        case Namespace.STANDBY:
            _table(state, changed, "standbys").pop(parsed.parts[0], None)
        case Namespace.SUSPENDED:
            _table(state, changed, "suspended").pop(parsed.parts[0], None)
        case Namespace.FACTOR:
            changed["factor"] = None
        case Namespace.CHECKPOINT | Namespace.PROGRESS:
            # Keys of the checkpoint topic: nothing under them is ever folded here.
            pass
        case _:
            assert_never(parsed.namespace)


def latest(state: CoordinatorState, record: CoordinatorRecord) -> CoordinatorRecord | None:
    """What stands under `record`'s key, for the kinds of which it is told what became of what; else None."""
    match record:
        case FormatLevelPut():
            return None if state.format_level is None else FormatLevelPut(level=state.format_level)
        case ConfigPut(config_key=key):
            return ConfigPut(config_key=key, value=state.config[key]) if key in state.config else None
        case InputPut():
            return state.inputs.get(record.system_stream)
        case FactorPut():
            return state.factor
        case ContainerCountPut():
            return state.container_count
        case StandbyPut():
            return state.standbys.get(record.processor_id)
        case OwnTopicPut():
            return state.own_topics.get(record.name)
        case ContainerPut():
            container = state.containers.get(record.container.execution_id)
            return None if container is None else ContainerPut(container=container)
        case LocalityPut():
            locality = state.localities.get(record.locality.processor_id)
            return None if locality is None else LocalityPut(locality=locality)
        case TaskLocalityPut():
            of_task = state.task_localities.get(record.locality.task_name)
            return None if of_task is None else TaskLocalityPut(locality=of_task)
        case _:
            return None


def records_of(state: CoordinatorState) -> Iterator[CoordinatorRecord]:
    """The records that `state` is the fold of: one for each fact in it, none for what was removed."""
    single = (state.job, state.term, state.generation, state.run, state.factor)
    yield from (record for record in single if record is not None)
    if state.format_level is not None:
        yield FormatLevelPut(level=state.format_level)
    if state.epoch:
        yield EpochPut(epoch=state.epoch)
    yield from state.schemas.values()
    yield from (ConfigPut(config_key=key, value=value) for key, value in state.config.items())
    yield from state.inputs.values()
    yield from state.own_topics.values()
    for task_name, partition in state.changelog_partitions.items():
        yield ChangelogPartitionPut(task_name=task_name, partition=partition)
    yield from state.planned_tasks.values()
    yield from state.input_ends.values()
    yield from (ContainerPut(container=container) for container in state.containers.values())
    yield from (LocalityPut(locality=locality) for locality in state.localities.values())
    yield from (TaskLocalityPut(locality=locality) for locality in state.task_localities.values())
    yield from (GrantPut(grant=grant) for grant in state.grants.values())
    yield from (StartpointPut(startpoint=startpoint) for startpoint in state.startpoints.values())
    yield from state.accepted_losses.values()
    yield from state.requests.values()
    yield from state.request_memory.values()
    if state.inbox != NOTHING_READ:
        yield state.inbox
    yield from state.restarts.values()
    yield from state.placed.values()
    yield from (LaunchPut(launch=launch) for launch in state.launches.values())
    if state.container_count is not None:
        yield state.container_count
    yield from state.standbys.values()
    yield from state.suspended.values()


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
