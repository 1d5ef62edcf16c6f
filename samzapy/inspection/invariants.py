"""Invariants: the records a coordinator stream allows next. Pure.

Each record is checked after those before it.

`evolve` folds every committed record and refuses nothing. This is the other half, for `samzapy stream verify` and for
the simulation: each record is checked on the state before it. A correct coordinator never breaks one of these rules. So
a record that does was written by another program, or by a coordinator with a defect.

A record that breaks a rule is not folded in: the next ones are checked on the state before it, so that one fault is one
finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from samzapy.coordinator.assignment.grants import counts_after, is_free
from samzapy.coordinator.assignment.liveness import LIVING, TRANSITIONS
from samzapy.coordinator.assignment.starts import GrantIndex
from samzapy.coordinator.launching.hosts import hosts_taken
from samzapy.coordinator.repair import standing
from samzapy.coordinator.requests.rewind import is_taken_up
from samzapy.coordinator.state import CoordinatorState, Folding, works_for
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.placement import Action, StatusCode
from samzapy.model.ssp import SspKeyBucket, is_covered
from samzapy.model.startpoint import Startpoint, StartpointIndex
from samzapy.stream.keys import Namespace, ParsedKey, key_of, parse_key
from samzapy.stream.kinds import KIND_OF_NAMESPACE
from samzapy.stream.records import (
    ChangelogPartitionPut,
    ContainerPut,
    CoordinatorRecord,
    EpochPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InboxPut,
    InputEndPut,
    InputPut,
    LaunchPut,
    MemoryPhase,
    PlacedPut,
    PlannedTaskPut,
    Removed,
    RequestMemoryPut,
    RequestPut,
    RestartPut,
    RunPut,
    StartpointPut,
)

if TYPE_CHECKING:
    from samzapy.model.container import Container

S = StatusCode
_NEXT_STATUS: Final[Mapping[StatusCode | None, frozenset[StatusCode]]] = {
    # A request that can be answered at once is answered when it is read (`_request`).
    None: frozenset({S.ACCEPTED, S.BAD_REQUEST}),
    S.ACCEPTED: frozenset({S.IN_PROGRESS, S.FAILED}),
    S.IN_PROGRESS: frozenset({S.SUCCEEDED, S.FAILED}),
}
_AT_ONCE: Final = frozenset({Action.CONTAINER_STATUS, Action.STOP})


class Invariants:
    """The stream so far, and the records that may come next.

    Costs the same for each record, however many there are.
    """

    def __init__(self) -> None:
        self._folding = Folding()
        self._index = GrantIndex()
        self._startpoints = StartpointIndex()
        self._epoch_granted = 0
        self._epoch_rewound = 0
        self._of_task: dict[TaskName, dict[int, Grant]] = {}
        self._grant_count: Counter[ExecutionId] = Counter()
        self._task_count: Counter[int] = Counter()

    @property
    def state(self) -> CoordinatorState:
        """The fold of the records that were not refused; the next record changes it."""
        return self._folding.state

    def check(self, offset: int, record: CoordinatorRecord, is_whole: bool, is_restored: bool = False) -> str:
        """The rule that `record` breaks, as wanted and actual state; empty if none.

        Args:
            is_whole: all facts in force were read. Without those that compaction removed nothing is checked.
            is_restored: the leader wrote the value of the key again (`coordinator.repair`), so it changes nothing.
        """
        if is_restored:
            key = key_of(record)
            current = standing(self.state, key.encode())
            if current is None if isinstance(record, Removed) else current == record:
                return ""
            if is_whole:
                return f"wanted the value that {key} had, found another: it is said to be written again"
        violation = self._violation(record) if is_whole else ""
        if not violation:
            self._note(record)
            self._folding.add(offset, record)
        return violation

    def _violation(self, record: CoordinatorRecord) -> str:
        check = _CHECKS.get(type(record))
        return "" if check is None else check(self, record)

    # --- plans ---

    def _epoch(self, record: EpochPut) -> str:
        if record.epoch <= self.state.epoch:
            return f"wanted an epoch above {self.state.epoch}, found {record.epoch}: it was given out before"
        return ""

    def _planned(self, record: PlannedTaskPut) -> str:
        in_force = self.state.generation_number
        if record.generation <= in_force:
            return f"wanted a plan behind generation {in_force}, found a task of generation {record.generation}"
        if (record.generation, record.task_name) in self.state.planned_tasks:
            return f"wanted each task of generation {record.generation} once, found {record.task_name} again"
        return ""

    def _generation(self, record: GenerationPut) -> str:
        in_force = self.state.generation_number
        if record.generation <= in_force:
            return f"wanted a generation above {in_force}, found {record.generation}"
        task_count = self._task_count[record.generation]
        if task_count != record.task_count:
            return f"wanted {record.task_count} tasks of generation {record.generation}, found {task_count}"
        return ""

    # --- grants ---

    def _grant(self, grant: Grant) -> str:
        before = self.state.grants.get((grant.task_name, grant.epoch))
        if before is not None:
            if before.released or grant != replace(before, released=True):
                return (
                    f"wanted the grant of epoch {grant.epoch} to be released once, and nothing else, found a change"
                )
            return ""
        return self._given(grant) or self._two_owners(grant) or self._goes_back(grant)

    def _given(self, grant: Grant) -> str:
        """Whether a new grant is as a coordinator writes it.

        It follows the plan, and has the newest epoch.
        """
        state = self.state
        if grant.epoch != state.epoch or grant.epoch <= self._epoch_rewound or grant.released:
            return (
                f"wanted a grant under the epoch given out last, {state.epoch}, and no startpoint's, found "
                f"{grant.epoch}"
            )
        container = state.containers.get(grant.execution_id)
        if container is None or container.phase not in LIVING:
            phase = "unknown" if container is None else container.phase.value
            return f"wanted a grant to an execution that lives, found {grant.execution_id} ({phase})"
        in_force = state.generation_number
        planned = state.planned_tasks.get((in_force, grant.task_name))
        if planned is None or grant.generation != in_force:
            return f"wanted a task of the plan in force, generation {in_force}, found one of {grant.generation}"
        # Of an execution that has no tasks of this processor its own is told.
        runs = planned.processor_id if works_for(container, planned.processor_id, state) else container.processor_id
        given = (runs, grant.changelog_partition, [start.ssp_kb for start in grant.starts])
        wanted = (planned.processor_id, planned.changelog_partition, list(planned.positions))
        if given != wanted:
            return f"wanted {_task_text(*wanted)} as planned, found {_task_text(*given)}"
        if grant.counts_after != counts_after(state):
            return f"wanted what counts to begin behind epoch {counts_after(state)}, found {grant.counts_after}"
        return ""

    def _two_owners(self, grant: Grant) -> str:
        """Law L6."""
        for other in self._in_the_way(grant):
            if not is_free(other, self.state):
                container = self.state.containers.get(other.execution_id)
                phase = "unknown" if container is None else container.phase.value
                return (
                    f"wanted {grant.task_name} to be free for {grant.execution_id}, found that {other.execution_id} "
                    f"({phase}) has {other.task_name} under epoch {other.epoch}: two owners"
                )
        return ""

    def _goes_back(self, grant: Grant) -> str:
        """Whether a grant begins in front of an earlier one of the same run.

        It may if the position was rewound since: then it begins there. In a broadcast input it may if it takes over the
        positions of another task.
        """
        after = max(0 if self.state.run is None else self.state.run.epoch_before, grant.counts_after)
        for start in grant.starts:
            known = self.state.inputs.get(start.ssp_kb.ssp.system_stream)
            after_topic = max(after, 0 if known is None else known.epoch_before)
            if not start.ssp_kb.reader and (violation := self._start_goes_back(start, after_topic)):
                return violation
        return ""

    def _start_goes_back(self, start: BucketStart, after: int) -> str:
        startpoints = [
            (startpoint.epoch, BucketStart(ssp_kb=startpoint.ssp_kb, offset_next=startpoint.offset_next))
            for startpoint in self._startpoints.overlapping(start.ssp_kb)
        ]
        given = [(grant.epoch, began) for began, grant in self._index.overlapping(start.ssp_kb)]
        before = sorted((item for item in (*given, *startpoints) if item[0] > after), key=lambda item: item[0])
        finest = max((start.finest_factor, *(began.finest_factor for _, began in before)))
        # Of each part the newest stays.
        newest = {
            bucket: (offset, epoch) for epoch, began in before for bucket, offset in began.positions(finest).items()
        }
        rewound = {epoch for epoch, _ in startpoints}
        for bucket, begins in start.positions(finest).items():
            offset, epoch = newest.get(bucket, (0, 0))
            if begins < offset:
                did = "was rewound to" if epoch in rewound else "began"
                return (
                    f"wanted {start.ssp_kb} from {offset} on, where epoch {epoch} {did}, found {begins}: it goes back"
                )
            if begins > offset and epoch in rewound and not self._is_given_up(start, begins):
                return f"wanted {start.ssp_kb} from {offset} on, where epoch {epoch} was rewound to, found {begins}"
        return ""

    def _is_given_up(self, start: BucketStart, begins: int) -> bool:
        """Whether a part begins at the topic's beginning because of an accepted loss.

        The operator gave up the messages in front of that.
        """
        loss = self.state.accepted_losses.get(start.ssp_kb)
        return loss is not None and loss.offset_to == begins

    def _startpoint(self, startpoint: Startpoint) -> str:
        if startpoint.epoch != self.state.epoch or startpoint.epoch <= self._epoch_granted:
            return (
                f"wanted a startpoint under the epoch given out last, {self.state.epoch}, and no grant's, found "
                f"{startpoint.epoch}"
            )
        request = self.state.requests.get(startpoint.uuid)
        if request is None or (request.status_code, request.action) != (S.ACCEPTED, Action.REWIND):
            return (
                f"wanted a startpoint that was asked for, found one of {startpoint.uuid}, which is no request for it"
            )
        return ""

    def _in_the_way(self, grant: Grant) -> Iterable[Grant]:
        grants = dict(self._of_task.get(grant.task_name, {}))
        grants |= {other.epoch: other for start in grant.starts for _, other in self._index.overlapping(start.ssp_kb)}
        return [grants[epoch] for epoch in sorted(grants)]

    def _is_covered(self, grant: Grant) -> bool:
        """Whether later grants have all of its buckets.

        Its broadcast positions go with them, if it has any.
        """
        given = [start.ssp_kb for start in grant.starts]
        return all(
            is_covered(
                (ssp_kb.bucket, ssp_kb.factor),
                (
                    (start.ssp_kb.bucket, start.ssp_kb.factor)
                    for start, other in self._index.overlapping(ssp_kb)
                    if other.epoch > grant.epoch
                ),
            )
            for ssp_kb in [item for item in given if not item.reader] or given
        )

    # --- removals ---

    def _removed(self, key: str) -> str:
        parsed = parse_key(key)
        if not KIND_OF_NAMESPACE[parsed.namespace].is_removed:
            return f"wanted {key} to stay, found it removed: no coordinator does that"
        kept = self._kept_while(parsed)
        return f"wanted {key} {kept}, found it removed" if kept else ""

    def _kept_while(self, parsed: ParsedKey) -> str:
        """The condition under which the key must stay, if it holds; else empty."""
        state = self.state
        match parsed.namespace:
            case Namespace.PLAN:
                generation = state.generation
                if generation is not None and int(parsed.parts[0]) == generation.generation:
                    return f"to stay while generation {generation.generation} is in force"
            case Namespace.CONTAINER | Namespace.LAUNCH:
                return self._execution_kept_while(parsed)
            case Namespace.GRANT:
                grant = self._standing_grant(parsed.parts)
                if grant is not None and not self._is_covered(grant):
                    return "to stay until later grants give all of it"
            case Namespace.STARTPOINT:
                return self._startpoint_kept_while(parsed)
            case Namespace.REQUEST:
                if parsed.parts[0] in state.requests and parsed.parts[0] not in state.request_memory:
                    return "to be remembered"
            case Namespace.REQUEST_MEMORY:
                return _kept_in_memory_while(state.request_memory.get(parsed.parts[0]), state.inbox)
            case _:
                pass
        return ""

    def _execution_kept_while(self, parsed: ParsedKey) -> str:
        execution_id = ExecutionId(parsed.parts[0])
        container = self.state.containers.get(execution_id)
        if container is not None and not container.is_gone:
            return f"to stay while its execution is {container.phase.value}"
        if parsed.namespace == Namespace.CONTAINER and self._grant_count[execution_id]:
            return "to stay while a grant names it"
        return ""

    def _startpoint_kept_while(self, parsed: ParsedKey) -> str:
        startpoint = self.state.startpoints.get(SspKeyBucket.parse(parsed.parts[0]))
        if startpoint is None or is_taken_up(startpoint, self._index, self.state):
            return ""
        return "to stay until later grants give all that it is for"

    # --- lookups ---

    def _note(self, record: CoordinatorRecord) -> None:
        match record:
            case GrantPut(grant=grant):
                self._drop(self.state.grants.get((grant.task_name, grant.epoch)))
                self._index.add(grant)
                self._of_task.setdefault(grant.task_name, {})[grant.epoch] = grant
                self._grant_count[grant.execution_id] += 1
                self._epoch_granted = max(self._epoch_granted, grant.epoch)
            case StartpointPut(startpoint=startpoint):
                self._startpoints.add(startpoint)
                self._epoch_rewound = max(self._epoch_rewound, startpoint.epoch)
            case PlannedTaskPut():
                self._task_count[record.generation] += (
                    record.generation,
                    record.task_name,
                ) not in self.state.planned_tasks
            case Removed():
                parsed = parse_key(record.key)
                if parsed.namespace is Namespace.GRANT:
                    self._drop(self._standing_grant(parsed.parts))
                if parsed.namespace is Namespace.STARTPOINT:
                    self._startpoints.discard(SspKeyBucket.parse(parsed.parts[0]))
                if parsed.namespace is Namespace.PLAN:
                    place = int(parsed.parts[0]), TaskName(parsed.parts[1])
                    self._task_count[place[0]] -= place in self.state.planned_tasks
            case _:
                pass

    def _drop(self, grant: Grant | None) -> None:
        if grant is not None:
            self._index.discard(grant)
            del self._of_task[grant.task_name][grant.epoch]
            self._grant_count[grant.execution_id] -= 1

    def _standing_grant(self, parts: tuple[str, ...]) -> Grant | None:
        return self.state.grants.get((TaskName(parts[0]), int(parts[1])))


def _task_text(processor_id: str, changelog_partition: int, ssp_kbs: Iterable[SspKeyBucket]) -> str:
    return (
        f"{', '.join(map(str, ssp_kbs))} with changelog partition {changelog_partition} for processor {processor_id}"
    )


def _life(container: Container, before: Container | None) -> str:
    if before is None:
        if container.phase in LIVING:
            return ""
        return f"wanted a new execution to be STARTED or RUNNING, found {container.phase}"
    if container.phase not in TRANSITIONS[before.phase].values():
        return f"wanted what may follow {before.phase}, found {container.phase}"
    if replace(container, phase=before.phase, reason=before.reason) != before:
        return f"wanted the execution as it was recorded (process {before.pid} on {before.host}), found another one"
    return ""


def _request(request: RequestPut, state: CoordinatorState) -> str:
    remembered = state.request_memory.get(request.uuid)
    if remembered is not None:
        return f"wanted nothing more about a request that was {remembered.status_code}, found {request.status_code}"
    before = state.requests.get(request.uuid)
    if before is not None and before.status_code is request.status_code:
        return _same_status(request, before)
    known = None if before is None else before.status_code
    if known is None and request.status_code is S.SUCCEEDED and request.action in _AT_ONCE:
        return ""
    if request.status_code not in _NEXT_STATUS.get(known, frozenset()):
        return f"wanted what may follow {known or 'nothing'}, found {request.status_code}"
    is_restarted = request.status_code is S.SUCCEEDED and request.action == Action.RESTART_QUERY
    if is_restarted and not _is_ordered(request, state):
        return f"wanted restart {request.restart} of processor {request.processor_id} to be ordered, found SUCCEEDED"
    return ""


def _same_status(request: RequestPut, before: RequestPut) -> str:
    """A record with an unchanged status reports progress, or that it was answered."""
    if before.phase and request.phase and request.status_code is S.IN_PROGRESS:
        return _moved_on(request, before)
    if request != replace(before, answered=True):
        return f"wanted a request that is {before.status_code} to be answered, and nothing else, found a change"
    return ""


def _moved_on(request: RequestPut, before: RequestPut) -> str:
    """A request in progress reports its phase; its arguments and choices stay."""
    expected = replace(
        before,
        phase=request.phase,
        response_message=request.response_message,
        decided_at_ms=request.decided_at_ms,
        answered=request.answered,
        execution_id=before.execution_id or request.execution_id,
        source_id=before.source_id or request.source_id,
        paused_at_ms=before.paused_at_ms or request.paused_at_ms,
    )
    if request != expected:
        return f"wanted a request that is {before.status_code} to say how far it is, and nothing else, found a change"
    return ""


def _is_ordered(request: RequestPut, state: CoordinatorState) -> bool:
    ordered = state.restarts.get(ProcessorId(request.processor_id))
    return ordered is not None and 0 < request.restart <= ordered.number


def _memory(memory: RequestMemoryPut, state: CoordinatorState) -> str:
    known = state.request_memory.get(memory.uuid) or state.requests.get(memory.uuid)
    if known is None:
        return f"wanted a request that was read, found the memory of one that was not ({memory.status_code})"
    if not memory.status_code.is_terminal or known.status_code is not memory.status_code:
        return f"wanted the memory of what became of the request, {known.status_code}, found {memory.status_code}"
    return ""


def _kept_in_memory_while(memory: RequestMemoryPut | None, inbox: InboxPut) -> str:
    if memory is None:
        return ""
    horizon = inbox.forgotten_timestamp_ms, inbox.forgotten_uuid
    if memory.phase is not MemoryPhase.COLLECTED or (memory.timestamp_ms, memory.uuid) > horizon:
        return f"to stay until its uuid is too old, while it is {memory.phase}"
    return ""


def _restart(restart: RestartPut, state: CoordinatorState) -> str:
    before = state.restarts.get(restart.processor_id)
    number = 1 if before is None else before.number + 1
    request = state.requests.get(restart.uuid)
    if restart.number != number:
        return f"wanted restart {number} of processor {restart.processor_id}, found {restart.number}"
    if request is None or (request.status_code, request.restart) != (S.IN_PROGRESS, number):
        return f"wanted a restart that was asked for, found one of {restart.uuid}, which is no request for it"
    return ""


def _placed(placed: PlacedPut, state: CoordinatorState) -> str:
    container, request = state.containers.get(placed.execution_id), state.requests.get(placed.uuid)
    if container is None or container.phase not in LIVING:
        phase = "unknown" if container is None else container.phase.value
        return f"wanted a processor to be placed on an execution that lives, found {placed.execution_id} ({phase})"
    if not placed.uuid:
        return _promoted(placed, state)
    asked = (S.IN_PROGRESS, placed.processor_id, placed.execution_id)
    if request is None or (request.status_code, request.processor_id, request.execution_id) != asked:
        return f"wanted a placement that was asked for, found one of {placed.uuid}, which is no request for it"
    return ""


def _launch(launch: Launch, state: CoordinatorState) -> str:
    before = state.launches.get(launch.execution_id)
    if before is None and launch.phase is not LaunchPhase.WANTED:
        return f"wanted a new launch to be WANTED, found {launch.phase}"
    if before is None:
        return _apart(launch, state)
    phases = list(LaunchPhase)
    if phases.index(launch.phase) < phases.index(before.phase):
        return f"wanted what may follow {before.phase}, found {launch.phase}"
    if _launch_identity(launch) != _launch_identity(before):
        return f"wanted {launch.execution_id} to stay what it was started for, found it changed"
    return ""


def _apart(launch: Launch, state: CoordinatorState) -> str:
    """A standby is wanted on no host of another execution of its processor.

    Placement rules apply to a launch of a request when it is to move. Its actual host is checked when it has come, and
    put right then.
    """
    if launch.role is not LaunchRole.STANDBY or launch.uuid or not launch.host:
        return ""
    other = hosts_taken(launch.processor_id, state).get(launch.host)
    if other is None:
        return ""
    return f"wanted a standby of processor {launch.processor_id} apart from {other}, found both on {launch.host}"


def _launch_identity(launch: Launch) -> tuple[object, ...]:
    return launch.processor_id, launch.role, launch.standby, launch.host, launch.wanted_at_ms, launch.uuid


def _promoted(placed: PlacedPut, state: CoordinatorState) -> str:
    launch = state.launches.get(placed.execution_id)
    if launch is None or (launch.processor_id, launch.role) != (placed.processor_id, LaunchRole.STANDBY):
        return (
            f"wanted one of the standbys of processor {placed.processor_id} to take over, found {placed.execution_id}"
        )
    before = state.placed.get(placed.processor_id)
    runner = None if before is None else state.containers.get(before.execution_id)
    if runner is not None and runner.phase in LIVING:
        return f"wanted {runner.execution_id}, which lives, to have no successor, found {placed.execution_id}"
    return ""


def _inbox(inbox: InboxPut, before: InboxPut) -> str:
    if inbox.offset_next < before.offset_next:
        return f"wanted the position of the inbox at {before.offset_next} or behind, found {inbox.offset_next}"
    forgotten = before.forgotten_timestamp_ms, before.forgotten_uuid
    if (inbox.forgotten_timestamp_ms, inbox.forgotten_uuid) < forgotten:
        return f"wanted what was forgotten to stay so, up to {forgotten[0]}, found {inbox.forgotten_timestamp_ms}"
    return ""


def _run(run: RunPut, state: CoordinatorState) -> str:
    before = state.run
    if before is not None and run == replace(
        before, ended=before.ended or run.ended, finished=before.finished or run.finished
    ):
        return ""
    counts_from = 0 if before is None else before.counts_after
    if run.ended or run.finished or run.epoch_before != state.epoch or run.counts_after < counts_from:
        return f"wanted the run to end, or one that begins behind epoch {state.epoch}, found run {run.run_id} changed"
    return ""


def _input_end(record: InputEndPut, state: CoordinatorState) -> str:
    end = state.input_ends.get(record.ssp)
    if end is not None and end.run_id == record.run_id and end != record:
        return f"wanted {record.ssp} to end at {end.offset_end} in this run, found {record.offset_end}"
    return ""


def _changelog_partition(record: ChangelogPartitionPut, state: CoordinatorState) -> str:
    partition = state.changelog_partitions.get(record.task_name)
    if partition not in (None, record.partition):
        return f"wanted {record.task_name} to keep changelog partition {partition}, found {record.partition}"
    return ""


def _format_level(record: FormatLevelPut, state: CoordinatorState) -> str:
    if record.level < (state.format_level or 0):
        return f"wanted format level {state.format_level} or above, found {record.level}"
    return ""


def _input(record: InputPut, state: CoordinatorState) -> str:
    known = state.inputs.get(record.system_stream)
    if known is None:
        return ""
    if known.topic_id != record.topic_id:
        if record.epoch_before == state.epoch:
            return ""
        return (
            f"wanted nothing to count of the topic that {record.system_stream} was before, up to epoch {state.epoch}, "
            f"found {record.epoch_before}"
        )
    if known.partition_count_first != record.partition_count_first:
        return (
            f"wanted {record.system_stream} to have had {known.partition_count_first} partitions at first, "
            f"found {record.partition_count_first}"
        )
    if record.epoch_before != known.epoch_before:
        return f"wanted what counts of {record.system_stream} to stay, found another epoch before it"
    return ""


_CHECKS: Final[Mapping[type[CoordinatorRecord], Callable[[Invariants, Any], str]]] = {
    EpochPut: Invariants._epoch,
    PlannedTaskPut: Invariants._planned,
    GenerationPut: Invariants._generation,
    ContainerPut: lambda invariants, put: _life(
        put.container, invariants.state.containers.get(put.container.execution_id)
    ),
    GrantPut: lambda invariants, put: invariants._grant(put.grant),
    StartpointPut: lambda invariants, put: invariants._startpoint(put.startpoint),
    RequestPut: lambda invariants, put: _request(put, invariants.state),
    RequestMemoryPut: lambda invariants, put: _memory(put, invariants.state),
    RestartPut: lambda invariants, put: _restart(put, invariants.state),
    PlacedPut: lambda invariants, put: _placed(put, invariants.state),
    LaunchPut: lambda invariants, put: _launch(put.launch, invariants.state),
    InboxPut: lambda invariants, put: _inbox(put, invariants.state.inbox),
    RunPut: lambda invariants, put: _run(put, invariants.state),
    InputPut: lambda invariants, put: _input(put, invariants.state),
    InputEndPut: lambda invariants, put: _input_end(put, invariants.state),
    ChangelogPartitionPut: lambda invariants, put: _changelog_partition(put, invariants.state),
    FormatLevelPut: lambda invariants, put: _format_level(put, invariants.state),
    Removed: lambda invariants, put: invariants._removed(put.key),
}
"""The check of each kind of record that has invariants. The others may change to any value."""
