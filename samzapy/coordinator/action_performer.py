"""Performs actions: fences, resolves starts, reads offsets, answers requests.

The only module that uses the ports `Fencing`, `Positions` and `PlacementWriter`. It changes no state: the results of an
action are yielded as commands, and the next action is read off the state after them. An action that fails is asked for
again later, because the state still asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from samzapy.config import AcceptedLoss, JobConfig
from samzapy.coordinator.actions import (
    Answer,
    FenceExecution,
    HandOver,
    ReadEnds,
    ReadOffsetBounds,
    ResolveStarts,
    WriteResponse,
    answers,
    hand_overs,
)
from samzapy.coordinator.assignment.grants import changelogs_begun, counts_after, input_end
from samzapy.coordinator.assignment.initial_offsets import begun_anew, epoch_before, offset_defaults
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.assignment.starts import (
    GrantIndex,
    PositionsRead,
    copies_awaited,
    kin_of,
    refuse_newer_positions,
    starts_of,
)
from samzapy.coordinator.commands import (
    Command,
    EndsRead,
    ExecutionFenced,
    MessagesRemoved,
    OffsetBoundsRead,
    ResponsesWritten,
    StartsResolved,
    TaskStarts,
)
from samzapy.coordinator.ports import Clock, Fencing, PlacementWriter, Positions
from samzapy.coordinator.requests.request_queue import response_of
from samzapy.coordinator.requests.retention import removal_of
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import (
    ConfigError,
    DeadlineError,
    FencedError,
    MissingTopicError,
    ProducerError,
    SamzapyError,
    TemporaryError,
)
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.startpoint import StartpointIndex
from samzapy.model.text import some
from samzapy.model.topics import coordinator_topic
from samzapy.stream.log import Write
from samzapy.stream.records import PlannedTaskPut

RETRY_MS = 1000
"""Time before a failed action is repeated."""

FENCE_ROUND_MS = 1000
"""Time in a round after which no other fence is begun. A fence that fails takes seconds, and containers that get no
answer for that long give up their tasks."""

MISSING_TOPIC_RETRY_MS = 5000
"""Time before a task's missing partition is looked for again."""

ANSWERS_MAX = 500
"""Requests answered, or removed, in one transaction on the placement topic."""

REASONS_KEPT_MAX = 200
"""As many finished requests as the page lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """The leader's knowledge when an action is performed.

    `is_submission_pending`: a changed configuration waits; nothing is granted that may be wrong for it.
    """

    state: CoordinatorState
    config: JobConfig
    liveness: Liveness
    is_submission_pending: bool


@dataclass(frozen=True, slots=True)
class _Postponed:
    """The reason why a task is not granted yet, and when to look again."""

    awaited: str
    again_ms: int


class ActionPerformer:
    """Performs the actions of one leader.

    Attributes:
        checkpoint_compute_ns: how long it took to resolve the last starts; None: none were resolved yet.
        reasons: by uuid, the texts of the latest answers, the oldest first. It is replaced, never changed.
    """

    def __init__(self, *, clock: Clock, fencing: Fencing, positions: Positions, placement: PlacementWriter) -> None:
        self.checkpoint_compute_ns: int | None = None
        self.reasons: Mapping[str, str] = {}
        self._clock = clock
        self._fencing = fencing
        self._positions = positions
        self._placement = placement
        self._hand_over_next_ms = 0
        self._answer_next_ms = 0
        self._must_look_before_answering = False
        self._hand_over_trouble = ""
        self._answer_trouble = ""
        self._postponed: dict[TaskName, _Postponed] = {}
        # How often in a row the fence of each execution has failed.
        self._fence_failures: dict[ExecutionId, int] = {}

    def restart(self) -> None:
        """Begin a term: nothing is postponed."""
        self._hand_over_next_ms = self._answer_next_ms = 0
        self._postponed = {}
        self._fence_failures = {}

    @property
    def trouble(self) -> str:
        """The errors of the last attempts, and the topics that tasks wait for.

        Empty when all is well.
        """
        return "; ".join(text for text in (self._hand_over_trouble, self._answer_trouble, self._waits()) if text)

    def note_trouble(self, error: SamzapyError) -> None:
        """Show an error until the next actions are performed."""
        self._hand_over_trouble = str(error)

    def hand_overs(self, view: Callable[[], LeaderView]) -> Iterator[Sequence[Command]]:
        """Perform the actions that tasks wait for; yields the results of each.

        Ends when the state asks for nothing new.

        Args:
            view: called before each action; the results of the one before have been appended by then.

        Raises:
            CorruptRecordError: a position of record cannot be read.
        """
        if self._clock.monotonic_ms() < self._hand_over_next_ms:
            return
        self._hand_over_trouble = ""
        self._release_postponed(view().state)
        asked: set[HandOver] = set()
        while (results := self._next_results(view(), asked)) is not None:
            yield results

    def answers(
        self, view: Callable[[], LeaderView], look_at_tail: Callable[[], None]
    ) -> Iterator[Sequence[Command]]:
        """Write responses and tombstones, for which no task waits; yields the results.

        Args:
            view: as in `hand_overs`.
            look_at_tail: reads the coordinator stream to its end, and raises if another leader has begun a term.
        """
        if self._clock.monotonic_ms() < self._answer_next_ms:
            return
        self._answer_trouble = ""
        asked: set[Answer] = set()
        while wanted := [action for action in answers(view().state) if action not in asked]:
            batch = wanted[:ANSWERS_MAX]
            asked.update(batch)
            try:
                results = self._write(batch, view().state, look_at_tail)
            except (TemporaryError, DeadlineError, ConfigError) as error:
                self._answer_trouble = f"requests are not answered: {error}"
                self._answer_next_ms = self._clock.monotonic_ms() + RETRY_MS
                # No result, but the caller shows the trouble.
                yield ()
                return
            yield results

    def _next_results(self, view: LeaderView, asked: set[HandOver]) -> Sequence[Command] | None:
        """Perform the actions of one kind that are not in `asked`, and add them.

        Returns None if there are none.
        """
        wanted = [action for action in hand_overs(view.state) if action not in asked]
        # Fences alone: a task of a fenced execution is free only when the log says so.
        if fences := [action for action in wanted if isinstance(action, FenceExecution)]:
            asked.update(fences)
            return self._fence(fences, view.liveness.outputs)
        if resolves := self._resolvable(wanted, view):
            asked.update(resolves)
            begun_ns = self._clock.monotonic_ns()
            resolved = self._resolve(resolves, view)
            self.checkpoint_compute_ns = self._clock.monotonic_ns() - begun_ns
            return resolved
        if reads := [action for action in wanted if isinstance(action, ReadEnds | ReadOffsetBounds)]:
            asked.update(reads)
            return self._read_offsets(reads)
        return None

    def _fence(self, wanted: Sequence[FenceExecution], outputs: Collection[str]) -> Sequence[Command]:
        fenced = []
        begun_ms = self._clock.monotonic_ms()
        # Executions whose fence failed last time come last: the others' tasks do not wait for them.
        in_turn = sorted(wanted, key=lambda action: self._fence_failures.get(action.execution_id, 0))
        for number, action in enumerate(in_turn):
            # Heartbeats must be answered meanwhile; the rest is for the next round.
            if self._clock.monotonic_ms() - begun_ms >= FENCE_ROUND_MS:
                self._hand_over_trouble = (
                    self._hand_over_trouble or f"fencing takes long: {len(wanted) - number} executions wait for it"
                )
                break
            try:
                self._fencing.fence(action.transactional_ids, outputs)
            except (TemporaryError, DeadlineError, ProducerError, FencedError, ConfigError) as error:
                # Only this execution's tasks wait for it. The error is about that execution's id, not about the
                # coordinator stream's, so the term goes on.
                self._fence_failures[action.execution_id] = self._fence_failures.get(action.execution_id, 0) + 1
                self._defer(error)
                continue
            self._fence_failures.pop(action.execution_id, None)
            fenced.append(ExecutionFenced(action.execution_id, action.attempt))
        return fenced

    def _read_offsets(self, wanted: Sequence[ReadEnds | ReadOffsetBounds]) -> Sequence[Command]:
        results: list[Command] = []
        for action in wanted:
            try:
                results.append(
                    self._read_ends(action) if isinstance(action, ReadEnds) else self._read_offset_bounds(action)
                )
            except (TemporaryError, DeadlineError, MissingTopicError, ConfigError) as error:
                # A missing topic delays only the actions about it.
                self._defer(error)
        return results

    def _read_ends(self, wanted: ReadEnds) -> EndsRead:
        ends = self._positions.high_watermarks(wanted.ssps)
        return EndsRead(
            system_stream=wanted.system_stream,
            partition_count=wanted.partition_count,
            ends=tuple(ends[ssp] for ssp in wanted.ssps),
        )

    def _read_offset_bounds(self, wanted: ReadOffsetBounds) -> OffsetBoundsRead:
        offset_bounds = self._positions.offset_bounds(wanted.ssps, wanted.timestamp_ms)
        return OffsetBoundsRead(uuid=wanted.uuid, offset_bounds=offset_bounds, now_ms=self._clock.wall_ms())

    def _resolve(self, wanted: Sequence[ResolveStarts], view: LeaderView) -> Sequence[Command]:
        state, config = view.state, view.config
        planned_of = {planned.task_name: planned for planned in state.plan}
        tasks = [planned_of[action.task_name] for action in wanted]
        ssps = {ssp_kb.ssp for planned in tasks for ssp_kb in planned.positions}
        changelogs = _changelogs_to_begin(tasks, view)
        try:
            read = self._positions.read(
                sorted(ssps),
                [(store, partition) for partition in sorted(changelogs) for store in changelogs[partition]],
            )
        except (TemporaryError, DeadlineError, ConfigError) as error:
            # A missing permission too: another leader would have no more rights, and the permission can be restored.
            self._defer(error)
            return ()
        refuse_newer_positions(read, state.epoch, topic=coordinator_topic(config.job))
        resolved = []
        grants, startpoints = GrantIndex(state.grants.values()), StartpointIndex(state.startpoints.values())
        kin, accepted = kin_of(state.plan), _accepted_losses(view)
        for action, planned in zip(wanted, tasks, strict=True):
            if missing := [ssp_kb.ssp for ssp_kb in planned.positions if ssp_kb.ssp not in read.bounds]:
                self._wait_for_topic(planned, missing[0])
                continue
            epoch_before_of = begun_anew(planned, state, config)
            if awaited := copies_awaited(
                planned, kin, grants, read, epoch_before_of=epoch_before_of, startpoints=startpoints
            ):
                self._wait_for_copies(planned, awaited)
                continue
            starts = starts_of(
                planned,
                grants,
                read,
                offset_default_of=offset_defaults(planned, state, config),
                accepted_losses=accepted,
                epoch_before_of=epoch_before_of,
                startpoints=startpoints,
            )
            resolved.append(
                TaskStarts(
                    task_name=action.task_name,
                    execution_id=action.execution_id,
                    starts=starts.of_buckets,
                    losses=starts.losses,
                    broadcast_parent=starts.broadcast_parent,
                    epoch_rewound=max(starts.epoch_rewound, _epoch_not_comparable(planned, state)),
                    ends=_ends_to_fix(planned, read, view),
                    changelog_ends=tuple(
                        (store, read.changelog_ends[store, planned.changelog_partition])
                        for store in changelogs.get(planned.changelog_partition, ())
                    ),
                )
            )
        return (StartsResolved(generation=wanted[0].generation, epoch_before=state.epoch, tasks=tuple(resolved)),)

    def _resolvable(self, wanted: Sequence[HandOver], view: LeaderView) -> Sequence[ResolveStarts]:
        """The starts to resolve now.

        None while a submission is pending; postponed tasks are left out.
        """
        if view.is_submission_pending:
            return []
        return [
            action
            for action in wanted
            if isinstance(action, ResolveStarts) and action.task_name not in self._postponed
        ]

    def _release_postponed(self, state: CoordinatorState) -> None:
        """Try postponed tasks again when their time has come; forget settled ones.

        Once a round: a task that is postponed in this round is trouble of this round, however long the round takes.
        """
        if not self._postponed:
            return
        wanting = {action.task_name for action in hand_overs(state) if isinstance(action, ResolveStarts)}
        now_ms = self._clock.monotonic_ms()
        self._postponed = {
            name: task for name, task in self._postponed.items() if name in wanting and task.again_ms > now_ms
        }

    def _wait_for_topic(self, planned: PlannedTaskPut, ssp: SystemStreamPartition) -> None:
        """Postpone a task until its topic is back, or an operator has removed it.

        Other tasks go on.
        """
        self._postpone(planned, f"{ssp}, which is not there, or has no leader", MISSING_TOPIC_RETRY_MS)

    def _wait_for_copies(self, planned: PlannedTaskPut, awaited: Sequence[TaskName]) -> None:
        """Postpone a task until the tasks `awaited` have copied its broadcast stores.

        They are granted first.
        """
        self._postpone(planned, f"the copies of broadcast stores that {some(awaited)} take", RETRY_MS)

    def _postpone(self, planned: PlannedTaskPut, awaited: str, retry_ms: int) -> None:
        self._postponed[planned.task_name] = _Postponed(awaited, self._clock.monotonic_ms() + retry_ms)

    def _waits(self) -> str:
        if not self._postponed:
            return ""
        awaited = sorted({task.awaited for task in self._postponed.values()})
        return f"{len(self._postponed)} tasks wait for {some(awaited)}"

    def _defer(self, error: SamzapyError) -> None:
        self._hand_over_trouble = str(error)
        self._hand_over_next_ms = self._clock.monotonic_ms() + RETRY_MS

    def _write(
        self, wanted: Sequence[Answer], state: CoordinatorState, look_at_tail: Callable[[], None]
    ) -> Sequence[Command]:
        if self._placement.acquire():
            self._must_look_before_answering = True
        if self._must_look_before_answering:
            # The right may have been taken from a newer leader; then it must not be used.
            look_at_tail()
            self._must_look_before_answering = False
        answered, removed = [], []
        writes: list[Write] = []
        for action in wanted:
            if isinstance(action, WriteResponse):
                writes.append(response_of(state.requests[action.uuid]))
                answered.append((action.uuid, action.status_code))
            else:
                writes.extend(removal_of(state.request_memory[action.uuid]))
                removed.append(action.uuid)
        try:
            offset_next = self._placement.write(writes)
        except (FencedError, ProducerError) as error:
            # The placement topic's producer failed, not the coordinator stream's: the term goes on, and the write is
            # repeated.
            raise TemporaryError(str(error)) from error
        texts = {uuid: state.requests[uuid].response_message for uuid, _ in answered}
        self.reasons = dict([*self.reasons.items(), *texts.items()][-REASONS_KEPT_MAX:])
        return ResponsesWritten(tuple(answered)), MessagesRemoved(tuple(removed), offset_next)


def _accepted_losses(view: LeaderView) -> tuple[AcceptedLoss, ...]:
    """The losses that operators accepted.

    They come from this process's configuration and from containers: the leader may have been started before anything
    was lost.
    """
    reported = [view.liveness.last[execution_id].accepted_losses for execution_id in sorted(view.liveness.last)]
    return (*view.config.accepted_losses, *(loss for losses in reported for loss in losses))


def _ends_to_fix(
    planned: PlannedTaskPut, read: PositionsRead, view: LeaderView
) -> tuple[tuple[SystemStreamPartition, int], ...]:
    """The ends of a task's bounded inputs that this run has not recorded yet."""
    ssps = {ssp_kb.ssp for ssp_kb in planned.positions if view.config.is_bounded(str(ssp_kb.ssp.system_stream))}
    return tuple((ssp, read.bounds[ssp].offset_end) for ssp in sorted(ssps) if input_end(view.state, ssp) is None)


def _changelogs_to_begin(tasks: Sequence[PlannedTaskPut], view: LeaderView) -> Mapping[int, Sequence[str]]:
    """By partition, the stores whose changelogs have no recorded start in this run."""
    if not counts_after(view.state):
        return {}
    begun = changelogs_begun(view.state)
    names = sorted(store.name for store in view.config.stores)
    return {
        planned.changelog_partition: [
            name for name in names if name not in begun.get(planned.changelog_partition, ())
        ]
        for planned in tasks
    }


def _epoch_not_comparable(planned: PlannedTaskPut, state: CoordinatorState) -> int:
    """The epoch before which local state is not comparable.

    An earlier topic of the same name may have been longer.
    """
    epochs = [epoch_before(ssp_kb.ssp, state) for ssp_kb in planned.positions]
    return max((epoch + 1 for epoch in epochs if epoch), default=0)
