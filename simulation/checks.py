"""The checks of the invariants (docs/internals/invariants.md) after each step.

There are two kinds. `LogChecks` reads the coordinator stream as it grows and holds each record against those before it
by the rules of `samzapy stream verify` (`inspection.invariants`). It folds the stream by itself, and compares it with
the true state of the world: whether an execution that a grant passes over could still commit, whether a start is where
the work ends. `Probe` watches the coordinator's own decisions: each one is taken again on the same facts in another
order, and once more on its result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Final, Never, Protocol, TypeVar
from unittest.mock import patch

from samzapy.config import JobConfig, Text, parse_recorded, recording
from samzapy.container import orders as orders_module
from samzapy.container import start_rules as start_module
from samzapy.container.local_state import restore as restore_module
from samzapy.coordinator import leader_log as leader_log_module
from samzapy.coordinator import service as service_module
from samzapy.coordinator import state as state_module
from samzapy.coordinator.actions import actions
from samzapy.coordinator.assignment import replanning as planning_module
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.commands import Command
from samzapy.coordinator.decide import Decision, decide, observe
from samzapy.coordinator.launching.launches import wanted_processors
from samzapy.coordinator.launching.standbys import named
from samzapy.coordinator.replay import NOTHING, Replayed
from samzapy.coordinator.requests.restart_query import processors_with_query
from samzapy.coordinator.requests.scale_factor import scale_wanted
from samzapy.coordinator.state import (
    INITIAL,
    TABLES,
    Committed,
    CoordinatorState,
    Standing,
    evolve,
    parts_changed,
    uncommitted,
    with_parts,
)
from samzapy.inspection import invariants as laws_module
from samzapy.inspection.invariants import Invariants
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.launch import Launch, LaunchPhase
from samzapy.model.placement import Action, StatusCode
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.startpoint import Startpoint
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream import codec as codec_module
from samzapy.stream import numbering as numbering_module
from samzapy.stream.changelog import changelog_key, task_entry_key
from samzapy.stream.codec import RecordHeaders, decode, encode, parse_headers
from samzapy.stream.keys import Namespace, key_of, parse_key
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import VALUE_RESTORED, is_key
from samzapy.stream.placement import read_message
from samzapy.stream.records import (
    CheckpointPut,
    CoordinatorRecord,
    FactorPut,
    GenerationPut,
    GrantPut,
    InputPut,
    LaunchPut,
    PlacedPut,
    PlannedTaskPut,
    ProgressPut,
    Record,
    Removed,
    RequestPut,
    RestartPut,
    RunPut,
    StartpointPut,
    TermPut,
)
from samzapy.testing import memory_placement as memory_placement_module
from samzapy.testing.memory_log import MemoryTopic
from simulation.inputs import BUCKET_OF, FINEST, Inputs
from simulation.state import BROADCAST, entry_of, one_more

T = TypeVar("T", CoordinatorState, Liveness)

COMPARED: Final = frozenset(item.name for item in fields(CoordinatorState) if item.compare)
"""The parts of a state that make it equal to another, or not."""

_TABLES: Mapping[type, Sequence[str]] = {
    CoordinatorState: TABLES,
    Liveness: tuple(item.name for item in fields(Liveness) if item.name != "listening_since_ms"),
}

Decide = Callable[[Command, CoordinatorState, Liveness], Decision]
Replay = Callable[..., Replayed]
WorksOn = Callable[[Grant], list[str]]
"""The executions, by name and epoch, that could still commit: under a grant that is recorded as released, or under
another one for a bucket or the task of a new grant."""


class BrokenLawError(AssertionError):
    """A history in which a law does not hold. The simulated code never catches it."""


Place = tuple[SystemStreamPartition, str]
"""A partition with positions: for a broadcast input, a partition as one task reads it."""


class Ledger:
    """The work that was really done: the progress of each key bucket, and its output.

    Buckets are of the finest factor.

    Every message is done once, in order, none left out. A position of record may be behind the messages of others that
    were read past, and never in front of the work. The state of a task is the result of the messages that were done: a
    rewind sets a bucket back, or forward, and undoes nothing, so repeated work counts again.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.commits = 0
        self._inputs = inputs
        self._done: dict[Place, list[int]] = {}
        # How far each was ever: behind that only after a rewind.
        self._reached: dict[Place, list[int]] = {}
        # Running values, by changelog partition and message key; and each task's copy of the broadcast stores.
        self._values: dict[int, dict[bytes, bytes]] = {}
        self._copies: dict[TaskName, dict[bytes, bytes]] = {}
        # Grants up to this epoch are of earlier runs of a bounded job; their work is ignored.
        self._counts_after = 0

    def done(self, place: Place) -> Sequence[int]:
        """By key bucket, up to where it is recorded as done."""
        return self._of(place)

    def position(self, place: Place) -> int:
        """Of a broadcast input, which has no buckets."""
        return self._of(place)[0]

    def _of(self, place: Place) -> list[int]:
        done = self._done.get(place)
        if done is None:
            done = self._done[place] = [0] * FINEST
            self._reached.setdefault(place, [0] * FINEST)
        return done

    def commit(
        self, grant: Grant, ssp_kb: SspKeyBucket, begins: Mapping[int, int], offset_to: int, owner: str
    ) -> None:
        """Note that messages from `begins`, by key bucket, to `offset_to` were handled.

        The transaction is recorded.
        """
        if grant.epoch <= self._counts_after:
            return
        ssp, place = ssp_kb.ssp, (ssp_kb.ssp, ssp_kb.reader)
        done = self._of(place)
        for bucket, offset_from in begins.items():
            if offset_from < done[bucket] or self._inputs.has(ssp, bucket, done[bucket], offset_from):
                kind = "twice" if offset_from < done[bucket] else "not at all"
                raise BrokenLawError(
                    f"{owner} committed bucket {bucket} of {ssp_kb} from {offset_from} to {offset_to}, the work before "
                    f"ended at {done[bucket]}: the messages in between are done {kind}"
                )
        values = self._values_of(grant, ssp_kb)
        for key in self._inputs.messages(ssp, begins, min(begins.values(), default=offset_to), offset_to):
            entry = entry_of(ssp_kb, key)
            if entry is not None:
                _set(values, entry, one_more(values.get(entry)))
        for bucket, offset_from in begins.items():
            self._move(place, bucket, max(offset_from, offset_to))
        self.commits += 1

    def _values_of(self, grant: Grant, ssp_kb: SspKeyBucket) -> dict[bytes, bytes]:
        if ssp_kb.reader:
            return self._copies.setdefault(grant.task_name, {})
        return self._values.setdefault(grant.changelog_partition, {})

    def _move(self, place: Place, bucket: int, offset: int) -> None:
        self._of(place)[bucket] = offset
        reached = self._reached[place]
        reached[bucket] = max(reached[bucket], offset)

    def has_undone(self, ssp: SystemStreamPartition, offset_to: int) -> bool:
        """Whether a message below `offset_to` was never done."""
        self._of((ssp, ""))
        reached = self._reached[ssp, ""]
        return any(self._inputs.has(ssp, bucket, reached[bucket], offset_to) for bucket in range(FINEST))

    def check_written(self, grant: Grant, store: str, written: Mapping[bytes, bytes | None], owner: str) -> None:
        """Check the entries that a task wrote, by their changelog keys, after its commit."""
        if grant.epoch <= self._counts_after:
            return
        wanted = self.kept(grant, store)
        for key, value in written.items():
            if wanted.get(key) != value:
                raise BrokenLawError(
                    f"{owner} committed {value!r} as running value of {key!r} in task {grant.task_name}, wanted "
                    f"{wanted.get(key)!r}"
                )

    def check_restored(self, grant: Grant, store: str, restored: Mapping[bytes, bytes], owner: str) -> None:
        """Check the state that a task begins with.

        It is the work of all earlier owners of its keys.
        """
        wanted = self.kept(grant, store)
        if grant.epoch > self._counts_after and restored != wanted:
            differing = sorted(key for key in {*restored, *wanted} if restored.get(key) != wanted.get(key))
            raise BrokenLawError(
                f"{owner} begins task {grant.task_name} under epoch {grant.epoch} with "
                f"{ {key: restored.get(key) for key in differing} } in store {store}, wanted "
                f"{ {key: wanted.get(key) for key in differing} }"
            )

    def kept(self, grant: Grant, store: str) -> dict[bytes, bytes]:
        """The entries of a store that a task must have, by changelog keys."""
        if store == BROADCAST:
            copy = self._copies.get(grant.task_name, {})
            return {task_entry_key(grant.task_name, key): value for key, value in copy.items()}
        bucket, factor = grant.key_bucket
        values = self._values.get(grant.changelog_partition, {})
        return {changelog_key(key, b""): value for key, value in values.items() if BUCKET_OF[key] % factor == bucket}

    def copy_of(self, task_name: TaskName) -> Mapping[bytes, bytes]:
        """A task's state of broadcast messages."""
        return self._copies.get(task_name, {})

    # --- decisions ---

    def go_on_from(self, place: Place, bucket: int, offset: int) -> None:
        """Continue a bucket at the offset of an operator's startpoint."""
        self._move(place, bucket, offset)

    def take_over(
        self, task_name: TaskName, positions: Mapping[SystemStreamPartition, int], source: TaskName
    ) -> None:
        """Continue a task in the broadcast inputs where another one was.

        It has the positions and the copy of that task.
        """
        for ssp, offset in positions.items():
            for bucket in range(FINEST):
                self._move((ssp, task_name), bucket, offset)
        self._copies[task_name] = dict(self._copies.get(source, {}))

    def begin_anew(self, counts_after: int) -> None:
        """A run begins with nothing that earlier ones left."""
        self._counts_after = counts_after
        for table in (self._done, self._reached, self._values, self._copies):
            table.clear()


def _set(values: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


class LaunchTruth(Protocol):
    """The true state of the executions that a coordinator starts."""

    def was_level(self, execution_id: ExecutionId) -> bool:
        """Whether it ever reported the state of all tasks of its processor as complete."""
        ...

    def was_reported_ended(self, execution_id: ExecutionId) -> bool:
        """Whether the cluster manager ever reported its end."""
        ...

    def check_place(self, launch: Launch, state: CoordinatorState) -> None:
        """Judge where an execution is wanted; `state` has it already.

        Raises:
            BrokenLawError: another host should have been chosen.
        """
        ...

    def check_end_of_run(self, state: CoordinatorState) -> None:
        """Judge that the run is finished, as `state` says.

        Raises:
            BrokenLawError: there is no reason for it.
        """
        ...


class NobodyLaunched:
    """`LaunchTruth` of a job whose containers are self-managed.

    Tasks are placed on the containers that run, and restore then.
    """

    def was_level(self, execution_id: ExecutionId) -> bool:
        return True

    def was_reported_ended(self, execution_id: ExecutionId) -> bool:
        return False

    def check_place(self, launch: Launch, state: CoordinatorState) -> None:
        pass

    def check_end_of_run(self, state: CoordinatorState) -> None:
        pass


class LogChecks:
    """The coordinator stream so far, folded apart from the coordinators.

    Args:
        works_on: the true state of the world, see `WorksOn`.
        unread_before: messages that must be done before a partition may be granted, in words; empty: none.
        has_read: whether an execution really knows that it has the grant of an epoch.
        launch_truth: about executions that the coordinator starts.
        now_ms: true time.
        restarted_to: the newest order to restart that a query of a processor was really started after.
    """

    def __init__(
        self,
        topic: MemoryTopic,
        ledger: Ledger,
        works_on: WorksOn,
        now_ms: Callable[[], int],
        restarted_to: Callable[[str], int],
        unread_before: Callable[[SystemStreamPartition], str],
        has_read: Callable[[str, int], bool],
        launch_truth: LaunchTruth,
    ) -> None:
        self.state = INITIAL
        self.launch_truth = launch_truth
        # The executions that were ever to be started.
        self.launches_recorded: set[ExecutionId] = set()
        self.placements = 0
        self._invariants = Invariants()
        self.term_began_ms = 0
        self.transactions = 0
        self.is_compacted = False
        # Grants of key buckets, and those of them with floors: how much a history scales.
        self.elastic_grants = self.floored_grants = 0
        # Buckets that continued at an operator's startpoint; tasks that began with another one's broadcast copy.
        self.rewound_grants = self.inherited_copies = 0
        self.runs = 0
        self.factor_changes = self.expansions = 0
        # Where foreign records are, by the report of their writer; those that no leader has undone.
        self.foreign: set[int] = set()
        self.foreign_left: dict[bytes | None, int] = {}
        self.restored = 0
        self._topic = topic
        self._ledger = ledger
        self._works_on = works_on
        self._now_ms = now_ms
        self._restarted_to = restarted_to
        self._unread_before = unread_before
        self._has_read = has_read
        self.ended: dict[str, StatusCode] = {}
        self._ordered: set[str] = set()
        # The newest startpoint of each bucket of the finest factor that no grant has taken up, by its place; and of
        # each task, as its broadcast state is taken over by others too.
        self._startpoints: dict[tuple[SystemStreamPartition, int], Startpoint] = {}
        self._startpoints_of_task: dict[Place, Startpoint] = {}
        # The last owner of each bucket of a base task, and its epoch.
        self._holders: dict[tuple[int, int], TaskName] = {}
        self._epoch_of: dict[TaskName, int] = {}
        self.counts_after = 0
        self._offset_next = 0
        self._offset_last = -2
        self._seq_last = -1
        self._transaction_of: dict[int, int] = {}
        # By namespace and key: the result of the hardest compaction, one record for each key and no tombstones.
        self._live: dict[str, dict[str, Committed]] = {}
        # The namespaces that were written to since the last look.
        self._written: set[str] = set()
        # The fold of these, by part of the state; and the parts that a namespace has.
        self._folded: dict[str, object] = {}
        self._parts: dict[str, set[str]] = {}

    def look(self) -> None:
        """Read the records that were committed since the last look, and check them."""
        if self._offset_next >= self._topic.end_offset:
            return
        records, self._offset_next = self._topic.read_stable(self._offset_next)
        records = [record for record in records if record.offset not in self.foreign]
        if not records:
            return
        self._written.clear()
        read = [self._read(record) for record in records if not self._is_tombstone_of_none(record)]
        changed = parts_changed(self.state, read)
        self.state = with_parts(self.state, changed)
        self._l1(changed.keys())

    def _read(self, raw: LogRecord) -> Committed:
        record = decoded(raw, topic=self._topic.name)
        assert not isinstance(record, CheckpointPut | ProgressPut), "a position on the coordinator stream"
        if self.foreign_left.get(raw.key, raw.offset) < raw.offset:
            del self.foreign_left[raw.key]
        if raw.offset != self._offset_last + 1:
            # A marker is between two transactions.
            self.transactions += 1
        self._offset_last = raw.offset
        self._numbers(raw, record)
        key = key_of(record)
        namespace = _namespace(key)
        self._written.add(namespace)
        live = self._live.setdefault(namespace, {})
        item = live.pop(key, None)
        before = None if item is None else item.record
        if self._is_restored(raw, record, before):
            item = Committed(raw.offset, record)
            if not isinstance(record, Removed):
                live[key] = item
            return item
        if broken := self._invariants.check(raw.offset, record, is_whole=True):
            raise BrokenLawError(f"{_at(raw)}: {broken}")
        if isinstance(record, RequestPut):
            self._request(
                raw, record, is_known=item is not None or self._latest(f"request-memory/{record.uuid}") is not None
            )
        self._check_kind(raw, record, before)
        item = Committed(raw.offset, record)
        if not isinstance(record, Removed):
            live[key] = item
        return item

    def _check_kind(self, raw: LogRecord, record: CoordinatorRecord, before: CoordinatorRecord | None) -> None:
        """Check a record by the laws of its kind, and count reported events."""
        match record:
            case PlannedTaskPut() | GenerationPut():
                first = self._transaction_of.setdefault(record.generation, self.transactions)
                if first != self.transactions:
                    raise BrokenLawError(f"{_at(raw)}: generation {record.generation} was begun before")
            case GrantPut():
                self._l6(raw, record.grant)
            case StartpointPut():
                self._startpoint(record.startpoint)
            case Removed():
                self._startpoint_removed(record.key)
            case RunPut():
                self._run(record, before)
            case RestartPut() | PlacedPut():
                self._order(raw, record)
            case LaunchPut():
                self._launch(raw, record.launch)
            case FactorPut():
                self.factor_changes += isinstance(before, FactorPut) and before.factor != record.factor
            case InputPut():
                self.expansions += isinstance(before, InputPut) and before.partition_count < record.partition_count
            case _:
                pass

    def _run(self, run: RunPut, before: CoordinatorRecord | None) -> None:
        if run.finished and not (isinstance(before, RunPut) and before.finished):
            self.launch_truth.check_end_of_run(self._invariants.state)
        self.runs += not isinstance(before, RunPut) or before.run_id != run.run_id
        if run.counts_after != self.counts_after:
            self._begin_anew(run.counts_after)

    def _is_tombstone_of_none(self, raw: LogRecord) -> bool:
        """Whether it only lets compaction take a foreign record, under a key that is none."""
        headers = _parsed_headers(raw.headers)
        if raw.value is not None or is_key(raw.key) or headers is None:
            return False
        self.foreign_left.pop(raw.key, None)
        self._seq_last, self._offset_last = headers.seq, raw.offset
        return True

    def _is_restored(self, raw: LogRecord, record: CoordinatorRecord, before: CoordinatorRecord | None) -> bool:
        """Whether a leader wrote the value of the key again.

        It must be exactly the value before.
        """
        headers = _parsed_headers(raw.headers)
        if headers is None or headers.event != VALUE_RESTORED:
            return False
        if (None if isinstance(record, Removed) else record) != before:
            raise BrokenLawError(f"{_at(raw)}: recorded as written again, and it was {before}")
        self.restored += 1
        return True

    def _order(self, raw: LogRecord, record: RestartPut | PlacedPut) -> None:
        """A request is executed once.

        A standby that takes over after a loss has no request.
        """
        if record.uuid and record.uuid in self._ordered:
            raise BrokenLawError(f"{_at(raw)}: the request {record.uuid} is done again")
        self._ordered.add(record.uuid)
        self.placements += isinstance(record, PlacedPut)
        if isinstance(record, PlacedPut) and not self.launch_truth.was_level(record.execution_id):
            raise BrokenLawError(f"{_at(raw)}: {record.execution_id} is to run tasks whose state it does not have")

    def _launch(self, raw: LogRecord, launch: Launch) -> None:
        """An execution recorded as ended was seen to have ended.

        A new one is at a right place.
        """
        self.launches_recorded.add(launch.execution_id)
        self.launch_truth.check_place(launch, self._invariants.state)
        if launch.phase is LaunchPhase.ENDED and not self.launch_truth.was_reported_ended(launch.execution_id):
            raise BrokenLawError(f"{_at(raw)}: no report says that {launch.execution_id} has ended")

    def _latest(self, key: str) -> CoordinatorRecord | None:
        item = self._live.get(_namespace(key), {}).get(key)
        return None if item is None else item.record

    def _numbers(self, raw: LogRecord, record: CoordinatorRecord) -> None:
        """L4, L5: terms follow each other, each begins with its own record.

        No other process writes meanwhile.
        """
        headers = _parsed_headers(raw.headers)
        if headers is None:
            raise BrokenLawError(f"{_at(raw)}: no headers")
        # The numbers continue from the last record that is there; the cleaner may have taken a tombstone at the end.
        may_repeat = self.is_compacted and isinstance(record, TermPut)
        if headers.seq > self._seq_last + 1 or (headers.seq <= self._seq_last and not may_repeat):
            raise BrokenLawError(f"{_at(raw)}: L5, seq {headers.seq} follows {self._seq_last}")
        self._seq_last = headers.seq
        latest = self._latest("term")
        term = latest.term if isinstance(latest, TermPut) else 0
        if isinstance(record, TermPut) and headers.event != VALUE_RESTORED:
            if record.term != term + 1 or headers.term != record.term:
                raise BrokenLawError(f"{_at(raw)}: L4, term {record.term} follows term {term}")
            self.term_began_ms = self._now_ms()
        elif headers.term != term:
            raise BrokenLawError(f"{_at(raw)}: L4, a record of term {headers.term} in term {term}")

    def _request(self, raw: LogRecord, request: RequestPut, *, is_known: bool) -> None:
        """One terminal status for each uuid.

        SUCCEEDED is only for a request that was really executed.
        """
        ended = self.ended.get(request.uuid)
        if ended is not None and request.status_code is not ended:
            # Where nothing was done and that is forgotten, it may be asked for anew.
            may_change = not is_known and StatusCode.BAD_REQUEST in (ended, request.status_code)
            if not may_change:
                raise BrokenLawError(f"{_at(raw)}: {request.status_code} after {ended}")
            del self.ended[request.uuid]
        if request.status_code.is_terminal:
            self.ended[request.uuid] = request.status_code
        if request.status_code is StatusCode.SUCCEEDED and request.action == Action.RESTART_QUERY:
            really = self._restarted_to(request.processor_id)
            if not 0 < request.restart <= really:
                raise BrokenLawError(f"{_at(raw)}: restart {request.restart} succeeded, the query knows {really}")
        if request.status_code is StatusCode.SUCCEEDED and request.action == Action.SCALE:
            wanted = scale_wanted(request)
            if wanted.factor is not None:
                self._scaled(raw, wanted.factor)
            if wanted.containers is not None:
                self._resized(raw, wanted.containers)
        if request.status_code is StatusCode.SUCCEEDED and request.action == Action.REWIND:
            self._rewound(raw, request.uuid)

    def _scaled(self, raw: LogRecord, factor: int | None) -> None:
        """Every task of the plan has the factor, and an owner that knows of it.

        The factor may be left out of a request.
        """
        generation = self._latest("generation")
        assert isinstance(generation, GenerationPut), "a scale of no plan"
        if factor is not None and generation.factor != factor:
            raise BrokenLawError(f"{_at(raw)}: a scale to {factor} succeeded, the plan has {generation.factor}")
        self._at_work(raw, generation, lambda planned: True)

    def _resized(self, raw: LogRecord, count: int) -> None:
        """The plan is for so many processors.

        Every task has an owner that knows of it.
        """
        generation = self._latest("generation")
        assert isinstance(generation, GenerationPut), "a scale of no plan"
        if len(generation.processor_ids) != count:
            raise BrokenLawError(
                f"{_at(raw)}: a scale to {count} containers succeeded, the plan is for {generation.processor_ids}"
            )
        self._at_work(raw, generation, lambda planned: True)

    def _rewound(self, raw: LogRecord, uuid: str) -> None:
        """Every task of the plan that is meant has taken it up, and its owner knows of it."""
        generation = self._latest("generation")
        assert isinstance(generation, GenerationPut), "a rewind of no plan"
        startpoints = [
            item.record.startpoint
            for item in self._live.get("startpoint", {}).values()
            if isinstance(item.record, StartpointPut) and item.record.startpoint.uuid == uuid
        ]

        def is_meant(planned: PlannedTaskPut) -> bool:
            return any(
                startpoint.ssp_kb.overlaps(ssp_kb) for startpoint in startpoints for ssp_kb in planned.positions
            )

        waiting = [
            startpoint
            for startpoint in (*self._startpoints.values(), *self._startpoints_of_task.values())
            if startpoint.uuid == uuid
        ]
        self._at_work(raw, generation, is_meant)
        in_force = [item.record for item in self._live["plan"].values()]
        for startpoint in waiting:
            for task in in_force:
                assert isinstance(task, PlannedTaskPut)
                if task.generation == generation.generation and startpoint.ssp_kb in task.positions:
                    raise BrokenLawError(f"{_at(raw)}: a rewind succeeded, {task.task_name} has not taken it up")

    def _at_work(self, raw: LogRecord, generation: GenerationPut, is_meant: Callable[[PlannedTaskPut], bool]) -> None:
        planned = [item.record for item in self._live["plan"].values()]
        newest: dict[str, Grant] = {}
        for item in self._live.get("grant", {}).values():
            assert isinstance(item.record, GrantPut)
            known, grant = newest.get(item.record.grant.task_name), item.record.grant
            newest[grant.task_name] = grant if known is None or known.epoch < grant.epoch else known
        for task in planned:
            assert isinstance(task, PlannedTaskPut)
            if task.generation != generation.generation or not is_meant(task):
                continue
            owner = newest.get(task.task_name)
            if owner is None or owner.released or not self._has_read(owner.execution_id, owner.epoch):
                raise BrokenLawError(f"{_at(raw)}: a request succeeded, no container is at {task.task_name}")

    def _l6(self, raw: LogRecord, grant: Grant) -> None:
        if grant.released:
            if others := self._works_on(grant):
                raise BrokenLawError(
                    f"{_at(raw)}: L6, recorded as released while {', '.join(others)} can still commit"
                )
            return
        others = self._works_on(grant)
        if others:
            raise BrokenLawError(f"{_at(raw)}: L6, granted while {', '.join(others)} can still commit")
        self.elastic_grants += grant.key_bucket[1] > 1
        self.floored_grants += any(start.floors for start in grant.starts)
        own = [start for start in grant.starts if not start.ssp_kb.reader]
        for start in own:
            if unread := self._unread_before(start.ssp_kb.ssp):
                raise BrokenLawError(f"{_at(raw)}: out of order, {start.ssp_kb} is granted before {unread} is done")
            self._check_continued(raw, start)
        if len(own) < len(grant.starts):
            self._broadcast(raw, grant, [start for start in grant.starts if start.ssp_kb.reader])
        bucket, factor = grant.key_bucket
        for piece in range(bucket, FINEST, factor):
            self._holders[grant.changelog_partition, piece] = grant.task_name
        self._epoch_of[grant.task_name] = grant.epoch

    def _check_continued(self, raw: LogRecord, start: BucketStart) -> None:
        """A start is where the work ended, or at a later startpoint of an operator."""
        ssp = start.ssp_kb.ssp
        done = self._ledger.done((ssp, ""))
        for bucket, offset in start.positions(FINEST).items():
            startpoint = self._startpoints.pop((ssp, bucket), None)
            wanted, why = (
                (done[bucket], "the work on that ended")
                if startpoint is None
                else (startpoint.offset_next, "rewound")
            )
            if offset != wanted:
                raise BrokenLawError(
                    f"{_at(raw)}: {start.ssp_kb} granted from {offset} in bucket {bucket} of {FINEST}, {why} "
                    f"at {wanted}"
                )
            if startpoint is not None:
                self.rewound_grants += 1
                self._ledger.go_on_from((ssp, ""), bucket, offset)

    def _broadcast(self, raw: LogRecord, grant: Grant, starts: Sequence[BucketStart]) -> None:
        """A task has the broadcast positions and the copy of one earlier owner.

        That one had its keys.
        """
        name = grant.task_name
        bucket, factor = grant.key_bucket
        holders = [self._holders.get((grant.changelog_partition, piece)) for piece in range(bucket, FINEST, factor)]
        parents = {holder for holder in holders if holder is not None} or {name}
        positions = {start.ssp_kb.ssp: start.offset_next for start in starts}
        copy = self._ledger.copy_of(TaskName(grant.broadcast_parent or name))
        fitting = [
            parent
            for parent in sorted(parents)
            if all(self._read_by(ssp, parent, name) == offset for ssp, offset in positions.items())
        ]
        if not fitting:
            stood = {parent: {str(ssp): self._read_by(ssp, parent, name) for ssp in positions} for parent in parents}
            raise BrokenLawError(
                f"{_at(raw)}: granted with { {str(ssp): offset for ssp, offset in positions.items()} } of broadcast "
                f"inputs, those before it had {stood}"
            )
        fitting = [parent for parent in fitting if self._ledger.copy_of(parent) == copy]
        if not fitting:
            raise BrokenLawError(
                f"{_at(raw)}: granted with the copy of {grant.broadcast_parent or name}, which is none that belongs "
                "to its positions"
            )
        self.inherited_copies += fitting[0] != name
        self._ledger.take_over(name, positions, fitting[0])
        for ssp in positions:
            self._startpoints_of_task.pop((ssp, name), None)

    def _read_by(self, ssp: SystemStreamPartition, parent: TaskName, name: TaskName) -> int:
        """How far `name` would be in a broadcast input that it takes over from `parent`."""
        for reader in (name, parent):
            startpoint = self._startpoints_of_task.get((ssp, reader))
            if startpoint is not None and startpoint.epoch > self._epoch_of.get(parent, 0):
                return startpoint.offset_next
        return self._ledger.position((ssp, parent))

    def _startpoint(self, startpoint: Startpoint) -> None:
        ssp_kb = startpoint.ssp_kb
        if ssp_kb.reader:
            self._startpoints_of_task[ssp_kb.ssp, ssp_kb.reader] = startpoint
            return
        for bucket in range(ssp_kb.bucket, FINEST, ssp_kb.factor):
            self._startpoints[ssp_kb.ssp, bucket] = startpoint

    def _startpoint_removed(self, key: str) -> None:
        parsed = _parsed_key(key)
        if parsed.namespace is not Namespace.STARTPOINT:
            return
        ssp_kb = SspKeyBucket.parse(parsed.parts[0])
        if not ssp_kb.reader and any(
            (startpoint := self._startpoints.get((ssp_kb.ssp, bucket))) is not None and startpoint.ssp_kb == ssp_kb
            for bucket in range(ssp_kb.bucket, FINEST, ssp_kb.factor)
        ):
            raise BrokenLawError(f"{key} was removed, and no grant has taken it up")
        self._startpoints_of_task.pop((ssp_kb.ssp, ssp_kb.reader), None)

    def _begin_anew(self, counts_after: int) -> None:
        """A run of a bounded job counts nothing of earlier ones."""
        self.counts_after = counts_after
        self._ledger.begin_anew(counts_after)
        for table in (self._startpoints, self._startpoints_of_task, self._holders, self._epoch_of):
            table.clear()

    def _l1(self, changed: Iterable[str]) -> None:
        """The hardest compaction folds to the same state as the stream.

        Only records since the last look matter: a namespace of keys has its own parts of the state, so the others were
        equal and are so still, unless they changed.
        """
        compared = set(changed)
        for namespace in self._written:
            folded = parts_changed(INITIAL, self._live[namespace].values())
            parts = self._parts.setdefault(namespace, set())
            parts.update(folded)
            self._folded |= {name: folded.get(name, getattr(INITIAL, name)) for name in parts}
            compared |= parts
        for name in compared & COMPARED:
            if getattr(self.state, name) != self._folded.get(name, getattr(INITIAL, name)):
                _break_l1(self._offset_next, name)

    def whole_l1(self) -> None:
        """The same of all that there is, at once."""
        if evolve(INITIAL, [item for live in self._live.values() for item in live.values()]) != self.state:
            _break_l1(self._offset_next, "all of it")


def _break_l1(offset_next: int, part: str) -> Never:
    raise BrokenLawError(f"before offset {offset_next}: L1, the compacted records fold to another state ({part})")


class Probe:
    """Laws L2 and L7 at each decision of any coordinator, and L3 after its rounds."""

    def __init__(self) -> None:
        self.decisions = 0
        self._asked: tuple[CoordinatorState | None, tuple[object, ...]] = (None, ())
        # A state, its decision, and its next state.
        self._after: tuple[CoordinatorState, Sequence[CoordinatorRecord], CoordinatorState] = (INITIAL, (), INITIAL)
        self._turned: dict[str, tuple[Mapping[Any, Any], Mapping[Any, Any]]] = {}
        # The last stream that was read from its beginning, and its fold.
        self._replayed: tuple[list[LogRecord], Replayed] = ([], NOTHING)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stand between the coordinators and their decisions.

        It also keeps them from reading the same bytes, configuration or name twice, which is safe for pure functions.
        Their log is not written: the trace has it.
        """
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with self._in_between():
                yield
        finally:
            logging.disable(level)

    @contextmanager
    def _in_between(self) -> Iterator[None]:
        with (
            patch.object(service_module, "decide", self._checked(decide)),
            patch.object(service_module, "evolve", self._foreseen),
            patch.object(leader_log_module, "evolve", self._foreseen),
            patch.object(leader_log_module, "encode", _encoded),
            patch.object(leader_log_module, "replay", self._remembering(vars(leader_log_module)["replay"])),
            patch.object(numbering_module, "decode", decoded),
            patch.object(memory_placement_module, "read_message", _read_message),
            patch.object(numbering_module, "parse_headers", _parsed_headers),
            patch.object(planning_module, "parse_recorded", _parsed),
            patch.object(recording, "parse_recorded", _parsed),
            patch.object(TaskNameParts, "parse", _task_name_parts),
            patch.object(codec_module, "parse_key", _parsed_key),
            patch.object(state_module, "parse_key", _parsed_key),
            patch.object(orders_module, "parse_key", _parsed_key),
            patch.object(laws_module, "parse_key", _parsed_key),
            patch.object(start_module, "parse_key", _parsed_key),
            # A copy takes several transactions, so that a start can die in the middle of one.
            patch.object(restore_module, "_WRITES_PER_TRANSACTION", 2),
        ):
            yield

    def _checked(self, decide: Decide) -> Decide:
        def decide_and_check(command: Command, state: CoordinatorState, liveness: Liveness) -> Decision:
            decision = decide(command, state, liveness)
            if not decision.records:
                return decision
            self.decisions += 1
            if decide(command, self._in_another_order(state), self._in_another_order(liveness)) != decision:
                raise BrokenLawError(f"L7, an equal state decides otherwise on {command}")
            after = evolve(state, uncommitted(decision.records))
            self._after = state, decision.records, after
            again = decide(command, after, observe(command, after, liveness))
            if again.records:
                raise BrokenLawError(f"L2, {command} a second time writes {again.records}")
            return decision

        return decide_and_check

    def _foreseen(self, state: CoordinatorState, batch: Sequence[Standing]) -> CoordinatorState:
        """`evolve`; a decision that was just made has its result already."""
        known, records, after = self._after
        if state is known and batch == uncommitted(records):
            return after
        return evolve(state, batch)

    def _remembering(self, replay: Replay) -> Replay:
        """`replay`, which is pure, with a memory: only new records are folded in.

        Where it was compacted meanwhile it is read anew; and so it is from the bytes by `World._check_replay`.
        """

        def replay_on(records: Iterable[LogRecord], *, topic: str, before: Replayed = NOTHING) -> Replayed:
            if before is not NOTHING:
                return replay(records, topic=topic, before=before)
            read = list(records)
            known, replayed = self._replayed
            if read[: len(known)] == known:
                replayed = replay(read[len(known) :], topic=topic, before=replayed)
            else:
                replayed = replay(read, topic=topic)
            self._replayed = read, replayed
            return replayed

        return replay_on

    def after_round(self, state: CoordinatorState, trouble: str) -> None:
        """A round that had no trouble has done everything that its state asks for."""
        known, wanted = self._asked
        if known is not state:
            wanted = actions(state)
            if actions(self._in_another_order(state)) != wanted:
                raise BrokenLawError("L7, an equal state asks for other actions")
            self._asked = state, wanted
            _check_requests(state)
        if not trouble and wanted:
            raise BrokenLawError(f"L3, a round without trouble left undone: {wanted}")

    def _in_another_order(self, value: T) -> T:
        """An equal value of a coordinator that read its tables in the opposite order.

        Tables are never changed, only replaced; so what was turned once is turned.
        """
        changed: dict[str, Any] = {}
        for name in _TABLES[type(value)]:
            table = getattr(value, name)
            if len(table) < 2:
                continue
            known, turned = self._turned.get(name, (None, {}))
            if known is not table:
                turned = dict(reversed(table.items()))
                self._turned[name] = table, turned
            changed[name] = turned
        if not changed:
            return value
        return with_parts(value, changed) if isinstance(value, CoordinatorState) else replace(value, **changed)


def _check_requests(state: CoordinatorState) -> None:
    """No request waits for a query that will never start.

    The limit is the time after which it expires.
    """
    is_over = state.run is not None and state.run.ended
    planned = {task.processor_id for task in state.plan}
    # Also of one without tasks of its own, to which another one's were moved.
    with_query = planned | processors_with_query(state)
    for request in state.requests.values():
        known = with_query if request.action == Action.RESTART_QUERY else planned
        is_lost = is_over or (request.processor_id and named(request.processor_id, state)[0] not in known)
        if request.action == Action.RESTART_CONTAINER:
            # It waits for a container, which may have no tasks.
            is_lost = is_over or request.processor_id not in (wanted_processors(state) or ())
        if not request.status_code.is_terminal and is_lost:
            raise BrokenLawError(f"{request.uuid} waits for a query of {request.processor_id}, which has no tasks")


def decoded(raw: LogRecord, *, topic: str, partition: int = 0) -> Record:
    """`stream.codec.decode`, which is pure, with a memory."""
    return _decoded(raw.key, raw.value)


@lru_cache(maxsize=20_000)
def _decoded(key: bytes | None, value: bytes | None) -> Record:
    return decode(LogRecord(offset=0, timestamp_ms=0, key=key, value=value), topic="")


_encoded = lru_cache(maxsize=1_000)(encode)


@lru_cache(maxsize=20_000)
def _parsed_headers(headers: tuple[tuple[str, bytes | None], ...]) -> RecordHeaders | None:
    return parse_headers(headers)


def _parsed(properties: Mapping[str, Text]) -> JobConfig:
    return _parsed_items(frozenset(properties.items()))


@lru_cache(maxsize=1_000)
def _parsed_items(items: frozenset[tuple[str, Text]]) -> JobConfig:
    return parse_recorded(dict(items))


_read_message = lru_cache(maxsize=5_000)(read_message)
_parsed_key = lru_cache(maxsize=20_000)(parse_key)
_task_name_parts = lru_cache(maxsize=10_000)(TaskNameParts.parse)


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _at(raw: LogRecord) -> str:
    return f"offset {raw.offset}, {(raw.key or b'').decode()}"
