"""The loop: take commands, decide, append, evolve, act. The only file here that touches a port.

Order is all there is to it:

- Office is taken by fencing the predecessor, then reading to the end, then writing the term, and only then
  deciding (law L4). Reading first would miss what the predecessor committed in between.
- State changes only by records that are committed. A batch of commands is decided on a copy that is thrown
  away; what was appended is folded into the real one.
- Actions are read off the state after that, and their results come back as commands.
- An append that fails for any reason ends the term (law L5): its outcome is unknown, so what is in memory is
  worth nothing. The log is read again and the same commands are decided on what it says; records are never
  sent a second time.

One thread calls `take_office`, `submit`, `run_once` and `leave_office`; `coordinator.candidate` says when. Any
thread may read `status()`: a snapshot is one immutable value, replaced whole.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from samzapy.config import AcceptedLoss, JobConfig, differences
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
from samzapy.coordinator.assignment.cut_off import cut_off_findings
from samzapy.coordinator.assignment.grants import changelogs_begun, counts_after, input_end
from samzapy.coordinator.assignment.initial_offsets import begun_anew, epoch_before, offset_defaults
from samzapy.coordinator.assignment.liveness import LIVING, Sightings
from samzapy.coordinator.assignment.starts import (
    GrantIndex,
    PositionsRead,
    copies_awaited,
    kin_of,
    refuse_newer_positions,
    starts_of,
)
from samzapy.coordinator.commands import (
    CollectRequests,
    Command,
    ContainerGone,
    EndsRead,
    ExecutionFenced,
    LaunchesLooked,
    MessagesRemoved,
    OffsetBoundsRead,
    RequestsRead,
    ResponsesWritten,
    ReviewInputs,
    ReviewLaunches,
    ReviewMembers,
    ReviewRequests,
    StartsResolved,
    StartTerm,
    SubmitJob,
    TaskStarts,
    Tick,
    TopicsLooked,
)
from samzapy.coordinator.decide import Decision, decide, observe
from samzapy.coordinator.inputs.topic_checks import topic_findings
from samzapy.coordinator.launching.suspension import suspension_findings
from samzapy.coordinator.ports import Clock, CommandSource, Fencing, PlacementWriter, Positions, Processes
from samzapy.coordinator.repair import TailWatch, lost_numbers, new_term, restored
from samzapy.coordinator.replay import NOTHING, check_whole, replay, with_foreign
from samzapy.coordinator.requests.request_queue import removal_of, response_of
from samzapy.coordinator.state import Committed, CoordinatorState, evolve, latest, uncommitted
from samzapy.errors import (
    ConfigError,
    DataError,
    DeadlineError,
    FencedError,
    MissingTopicError,
    ProducerError,
    RejectedError,
    SamzapyError,
    TemporaryError,
)
from samzapy.model.finding import Finding, unreadable_request
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.startpoint import StartpointIndex
from samzapy.model.text import some
from samzapy.model.topics import coordinator_topic, placement_topic
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.stream.audit import event_name
from samzapy.stream.codec import encode, headers, schema_records
from samzapy.stream.examination import REMEDIES
from samzapy.stream.log import CompactedLog, Write
from samzapy.stream.numbering import BEGINNING, Foreign, Numbering
from samzapy.stream.records import CoordinatorRecord, GenerationPut, PlannedTaskPut, TermPut

_LOG = logging.getLogger(__name__)

LOOK_ROUND_MS = 1000
"""Longest time between two looks at the log's tail and at this host's processes (a quarter of a lease where that
is shorter, so that answers do not stop), and the time before a failed action is repeated."""

FENCE_ROUND_MS = 1000
"""So long after the first one no other execution is begun to be fenced in a round. One that cannot be takes seconds,
and containers that are not answered for that long give up their tasks."""

ABSENT_ROUND_MS = 5000
"""Time before it is asked again whether a partition is there that a task waits for."""

ANSWERS_MAX = 500
"""Requests answered, or removed, in one transaction on the placement topic."""

STOP_GRACE_MS = 20_000
"""A container that was told to stop has this long beyond the drain: to read that, and to end Spark."""

ROOM_KNOWN_MS = 5_000
"""So long what a cluster manager said of free places counts; it is asked several times as often."""

UNREADABLE_SHOWN_MAX = 20
UNREADABLE_SHOWN_MS = 60 * 60 * 1000
"""So many messages that could not be read are shown, for so long; all are still to be found on the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorIdentity:
    """This coordinator, as its term records name it; `version` is samzapy's."""

    coordinator_id: str
    host: str
    boot_id: str
    pid: int
    process_started_ms: int
    url: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """What the last work of a kind took; None: there was none in this process."""

    job_model_generation_ns: int | None = None
    checkpoint_compute_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a coordinator can be asked about, as of one moment.

    Attributes:
        state: of the log; what was read last when it does not lead.
        verified_ms: monotonic time at which the last read of the log to its end began that showed no newer
            term; None: does not lead. The lease of an answer counts from it, because a coordinator that was
            stopped for a minute does not know what it missed.
        trouble: what the last attempt at an action failed with, empty when all is well.
        findings: about the job's topics, as they were looked at last in this term.
        timings: for metrics.
    """

    job: str
    state: CoordinatorState
    seen: Sightings
    verified_ms: int | None
    trouble: str
    findings: tuple[Finding, ...] = ()
    timings: Timings = Timings()

    def may_answer(self, now_ms: int, limit_ms: int) -> bool:
        """Whether this is the leader's answer, and fresh enough to be given."""
        return self.verified_ms is not None and now_ms - self.verified_ms <= limit_ms


@dataclass(frozen=True, slots=True)
class _Postponed:
    """What a task waits for that is to be granted, and when that is looked at again."""

    what: str
    again_ms: int


def run_id(began_ms: int, coordinator_id: str) -> str:
    """`<ms>-<8 hex>`, as Samza's app.run.id. Ids of coordinators are random, so two of one moment differ."""
    return f"{began_ms}-{hashlib.sha256(coordinator_id.encode()).hexdigest()[:8]}"


def _seed(coordinator_id: str, number: int) -> str:
    """Like no other: ids of coordinators are random."""
    return hashlib.sha256(f"{coordinator_id}/{number}".encode()).hexdigest()[:16]


class CoordinatorService:
    """One candidate's coordinator: leads after `take_office`, until an error says that it does not.

    Args:
        log: the coordinator stream.
        config: of the job; replaced by that of each `SubmitJob`.
    """

    def __init__(
        self,
        *,
        log: CompactedLog,
        config: JobConfig,
        identity: CoordinatorIdentity,
        clock: Clock,
        commands: CommandSource,
        fencing: Fencing,
        positions: Positions,
        processes: Processes,
        placement: PlacementWriter,
    ) -> None:
        self._log = log
        self._config = config
        self._identity = identity
        self._clock = clock
        self._commands = commands
        self._fencing = fencing
        self._positions = positions
        self._processes = processes
        self._placement = placement
        self._topic = coordinator_topic(config.job)
        self._known = NOTHING
        self._watch = TailWatch(BEGINNING, 0)
        self._seen = Sightings()
        self._term: int | None = None
        self._term_last: int | None = None
        self._verified_ms: int | None = None
        self._look_next_ms = 0
        self._act_next_ms = 0
        self._collect_next_ms = 0
        self._review_inputs_next_ms = 0
        self._answer_next_ms = 0
        self._must_look_before_answering = False
        self._trouble = ""
        self._answer_trouble = ""
        # Tasks whose topics are not there, and when to look for them again.
        self._postponed: Mapping[TaskName, _Postponed] = {}
        # How often in a row those could not be fenced that are still to be.
        self._fence_failures: dict[ExecutionId, int] = {}
        self._findings: tuple[Finding, ...] = ()
        self._unreadable: tuple[tuple[int, Finding], ...] = ()
        self._groupers = NO_GROUPERS
        self._run_over = ""
        self._launch_rounds = 0
        # Those that the launcher named last, and when that was.
        self._hosts: Mapping[str, int | None] = {}
        self._hosts_at_ms = 0
        # What it said in this term of hosts by name; None: nothing yet.
        self._names_hosts: bool | None = None
        self._waiting: tuple[SubmitJob, ...] = ()
        self._timings = Timings()
        self._snapshot = self._publish()

    @property
    def leads(self) -> bool:
        """Whether it holds office, as far as it knows."""
        return self._term is not None

    def status(self) -> Snapshot:
        """The latest snapshot; may be called from any thread."""
        return self._snapshot

    def take_office(self) -> None:
        """Fence, replay, begin a term. Everything that was in memory before is dropped.

        Raises:
            FencedError: another candidate took over meanwhile, or has begun a term since ours and lives.
            ProducerError, TemporaryError, DeadlineError: not now; the caller waits a little and calls again.
            DataError: the stream cannot be read, or is another job's. It does not lead.
        """
        self._leave_office()
        self._log.take_over()
        self._known = replay(self._log.read(), topic=self._topic)
        self._refuse_if_another_leads()
        check_whole(self._known.state, self._topic)
        self._watch = TailWatch(self._known.numbering, self._known.read_to)
        self._note_foreign(list(self._known.foreign.values()), self._known.foreign_count)
        # The numbering knows the term also where a foreign record has replaced the term's own.
        term_before = self._known.numbering.term
        began_ms = self._clock.monotonic_ms()
        self._begin_term(term_before)
        self._term = self._term_last = term_before + 1
        # Its own term record is committed, so nobody had taken over when that began.
        self._verified_ms = began_ms
        # Silence counts from here: before its own term record it could not have heard anybody.
        self._seen = Sightings(listening_since_ms=self._clock.monotonic_ms())
        self._look_next_ms = self._act_next_ms = self._collect_next_ms = self._answer_next_ms = 0
        self._review_inputs_next_ms = 0
        self._hosts, self._names_hosts = {}, None
        self._postponed = {}
        self._fence_failures = {}
        self._snapshot = self._publish()

    def submit(self, command: SubmitJob) -> None:
        """Hand in a job, and do what follows from it.

        A changed configuration may have to wait until it is known whether containers of the old one still run. Then
        this returns and `run_once` goes on with it, at most until they would be given up.

        Raises:
            ConfigError, DataError, RejectedError: the job is refused; nothing was written.
            FencedError, ProducerError, TemporaryError: as `run_once`.
        """
        command = replace(command, now_ms=self._clock.wall_ms())
        before, self._config = self._config, command.config
        self._groupers, self._run_over = command.groupers, command.run_over
        try:
            self._settle((*self._gone(), command, self._time_went_by()[1]))
        except (ConfigError, DataError, RejectedError):
            self._config = before
            raise
        self._waiting = self._waiting_still(command)

    def leave_office(self) -> None:
        """Lead no more, and forget that it ever did: whoever is elected next, this one included, takes over."""
        self._leave_office()
        self._term_last = None
        # What was said to this term is of no use to a later one; whoever said it says it again.
        self._commands.take(0)

    def run_once(self, timeout_ms: int) -> None:
        """One round of the loop; waits at most `timeout_ms` for commands.

        Raises:
            FencedError: another coordinator leads; become a candidate again.
            ProducerError, TemporaryError: the term ended and a new one could not be begun; `take_office` again.
            DataError: something is not as it must be, and going on would hide it.
            RejectedError: containers run under another configuration than the one that was handed in.
        """
        # Looked at before commands are taken: a process that is seen to be gone has sent all it had to say.
        gone = self._look_round()
        taken = self._commands.take(timeout_ms)
        for command in taken:
            if isinstance(command, LaunchesLooked):
                self._hosts, self._hosts_at_ms = command.hosts, self._clock.monotonic_ms()
                # Workers that are all away for a moment had names, and have them when they come back.
                self._names_hosts = bool(command.hosts) or bool(self._names_hosts)
        tick, review = self._time_went_by()
        # While our own lease has lapsed we do not answer heartbeats, so we must not expire containers either.
        ticks = () if self._is_deaf() else (tick,)
        # Who has just been given up no longer stands in the way of what was handed in.
        launching = self._launches_go_on()
        requests = self._requests_go_on(launching)
        # While a changed configuration waits, nothing is started that it would be wrong for.
        launches = () if launching is None or self._waiting else (launching,)
        self._settle((*taken, *gone, *ticks, *self._waiting, review, *self._inputs_go_on(), *requests, *launches))
        self._waiting = tuple(found for command in self._waiting for found in self._waiting_still(command))

    def _time_went_by(self) -> tuple[Tick, ReviewMembers]:
        now_ms, config = self._clock.monotonic_ms(), self._config
        return (
            Tick(
                now_ms=now_ms,
                lost_ms=config.lost_ms,
                lease_ms=config.lease_ms,
                release_ms=config.release_timeout_ms,
            ),
            ReviewMembers(
                groupers=self._groupers,
                now_ms=now_ms,
                debounce_ms=config.debounce_ms,
                grace_ms=config.processor_grace_ms,
                run_id_next=run_id(self._clock.wall_ms(), self._identity.coordinator_id),
                run_over=self._run_over,
            ),
        )

    def _inputs_go_on(self) -> tuple[ReviewInputs, ...]:
        now_ms, config = self._clock.monotonic_ms(), self._config
        if now_ms < self._review_inputs_next_ms or self._waiting:
            return ()
        self._review_inputs_next_ms = now_ms + LOOK_ROUND_MS
        return (ReviewInputs(now_ms=now_ms, settle_ms=config.expansion_settle_ms, groupers=self._groupers),)

    def _requests_go_on(self, launching: ReviewLaunches | None) -> tuple[Command, ...]:
        now_ms, config = self._clock.monotonic_ms(), self._config
        review = ReviewRequests(
            now_ms=self._clock.wall_ms(),
            expiry_ms=config.placement_expiry_ms,
            groupers=self._groupers,
            launching=launching,
            tries_max=config.placement_tries_max,
            release_ms=config.release_timeout_ms,
        )
        if now_ms < self._collect_next_ms:
            return (review,)
        self._collect_next_ms = now_ms + LOOK_ROUND_MS
        collect = CollectRequests(
            now_ms=self._clock.wall_ms(),
            retention_ms=config.placement_retention_ms,
            memory_max=config.placement_uuids_max,
        )
        return review, collect

    def _launches_go_on(self) -> ReviewLaunches | None:
        state, config = self._known.state, self._config
        if state.container_count is None and not state.launches:
            return None
        self._launch_rounds += 1
        now_ms = self._clock.wall_ms()
        listened_ms = 0 if self._is_deaf() else self._clock.monotonic_ms() - self._seen.listening_since_ms
        hosts = self._hosts_now()
        return ReviewLaunches(
            now_ms=now_ms,
            seed=_seed(self._identity.coordinator_id, self._launch_rounds),
            request_timeout_ms=config.container_request_timeout_ms,
            stop_timeout_ms=config.drain_ms + STOP_GRACE_MS,
            retry_count=config.container_retry_count,
            retry_window_ms=config.container_retry_window_ms,
            fails_job=config.fails_job_after_retries,
            has_affinity=config.has_host_affinity,
            hosts=hosts,
            names_hosts=bool(hosts) or self._names_hosts is not False,
            listening_since_ms=now_ms - listened_ms,
        )

    def _hosts_now(self) -> Mapping[str, int | None]:
        """As of `ReviewLaunches`: what was free on them long ago says nothing."""
        # Logical hosts are known before anything was looked at.
        config = self._config
        configured = [found.host for found in config.process_hosts] if config.cluster_manager == "process" else []
        is_old = self._clock.monotonic_ms() - self._hosts_at_ms > ROOM_KNOWN_MS
        return dict.fromkeys(configured) | (dict.fromkeys(self._hosts) if is_old else dict(self._hosts))

    def _waiting_still(self, command: SubmitJob) -> tuple[SubmitJob, ...]:
        return (command,) if differences(command.config, self._known.state.config) else ()

    def _settle(self, commands: Sequence[Command]) -> None:
        try:
            self._append_decisions(commands)
            self._act()
        except (FencedError, ProducerError) as error:
            self._rejoin(error)
            self._append_decisions(commands)
            self._act()

    def _append_decisions(self, commands: Sequence[Command]) -> None:
        assert self._term is not None, "decides without office: take_office comes first"
        state, seen = self._known.state, self._seen
        records: list[CoordinatorRecord] = []
        writes: list[Write] = []
        for command in commands:
            begun_ns = self._clock.monotonic_ns()
            decision = decide(command, state, seen)
            if isinstance(command, RequestsRead):
                self._note_unreadable(command, state)
            if decision.records:
                if any(isinstance(record, GenerationPut) for record in decision.records):
                    took_ns = self._clock.monotonic_ns() - begun_ns
                    self._timings = replace(self._timings, job_model_generation_ns=took_ns)
                records.extend(decision.records)
                writes.extend(self._writes(decision, state, self._term, self._known.seq_next + len(writes)))
                # Later commands of the batch are decided on what the earlier ones will have changed.
                state = evolve(state, uncommitted(decision.records))
            seen = observe(command, state, seen)
            if isinstance(command, TopicsLooked):
                self._note(topic_findings(state, command))
        self._append(records, writes)
        self._seen = seen
        self._snapshot = self._publish()

    def _writes(self, decision: Decision, before: CoordinatorState, term: int, seq_first: int) -> Sequence[Write]:
        found = []
        for seq, record in enumerate(decision.records, start=seq_first):
            key, value = encode(record)
            event = event_name(record, latest(before, record))
            said = headers(term=term, seq=seq, event=event, cause=decision.cause, actor=decision.actor)
            found.append(Write(key=key, value=value, headers=said))
        return found

    def _append(self, records: Sequence[CoordinatorRecord], writes: Sequence[Write]) -> None:
        if not records:
            return
        offset_after = self._log.append_atomically(writes)
        self._fold_own(records, writes, offset_after)

    def _fold_own(
        self,
        records: Sequence[CoordinatorRecord | None],
        writes: Sequence[Write],
        offset_after: int,
        term: int | None = None,
    ) -> None:
        """Fold what was appended; `term` is the one that it was written in, if not the one in office."""
        known, count = self._known, len(writes)
        number = known.numbering
        in_term = term or self._term or number.term + 1
        self._watch.wrote(in_term, number.seq_next, writes)
        keys = {write.key for write in writes}
        self._known = replace(
            known,
            state=evolve(
                known.state,
                [
                    Committed(offset, record)
                    for offset, record in enumerate(records, start=offset_after - count)
                    if record is not None
                ],
            ),
            numbering=Numbering(
                term=in_term,
                seq=number.seq + count,
                seq_highest=max(number.seq_highest, number.seq + count),
                offset=offset_after - 1,
                is_tombstone=writes[-1].value is None,
            ),
            read_to=offset_after,
            foreign={key: found for key, found in known.foreign.items() if key not in keys} if known.foreign else {},
        )

    def _begin_term(self, term_before: int) -> None:
        identity = self._identity
        command = StartTerm(
            term_before=term_before,
            job_name=self._config.job_name,
            job_id=self._config.job_id,
            coordinator_id=identity.coordinator_id,
            host=identity.host,
            boot_id=identity.boot_id,
            pid=identity.pid,
            process_started_ms=identity.process_started_ms,
            url=identity.url,
            started_at_ms=self._clock.wall_ms(),
            version=identity.version,
            schemas=schema_records(),
        )
        state = self._known.state
        decision = decide(command, state, self._seen)
        lost = lost_numbers(state)
        if lost:
            _LOG.warning("%s: numbers that were given out are lost; going on behind the highest in use", self._topic)
        begun = replace(decision, records=(*decision.records, *lost))
        self._append(begun.records, self._writes(begun, state, term_before + 1, self._known.seq_next))

    def _rejoin(self, error: Exception) -> None:
        """Begin a new term, unless somebody else has: `_FENCED` may be one's own time-out."""
        self._leave_office()
        if isinstance(error, FencedError):
            # A look before taking over, which would fence the newer leader in its turn.
            self._known = replay(self._log.read(), topic=self._topic)
            self._snapshot = self._publish()
            self._refuse_if_another_leads()
        self.take_office()

    def _leave_office(self) -> None:
        self._term = None
        self._verified_ms = None
        self._seen = Sightings()
        self._findings = ()
        self._unreadable = ()
        self._snapshot = self._publish()

    def _refuse_if_another_leads(self) -> None:
        """After our own term: a later one means that somebody took over. Before it: taking over is the wish."""
        newest = self._known.state.term
        if self._term_last is None or newest is None or newest.term <= self._term_last:
            return
        term_last, self._term_last = self._term_last, None
        if self._is_running(newest):
            raise FencedError(
                f"wanted to lead {self._config.job} after term {term_last}, found term {newest.term} of "
                f"{newest.coordinator_id} on {newest.host} ({newest.url}), which lives; become a candidate again"
            )

    def _is_running(self, term: TermPut) -> bool:
        if term.coordinator_id == self._identity.coordinator_id:
            return False
        return self._processes.is_alive(term.boot_id, term.pid, term.process_started_ms) is not False

    def _look_round(self) -> tuple[ContainerGone, ...]:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._look_next_ms:
            return ()
        self._look_next_ms = now_ms + min(LOOK_ROUND_MS, self._config.lease_ms // 4)
        try:
            self._look_at_tail()
            self._restore()
        except (TemporaryError, DeadlineError) as error:
            # The lease runs on; if this lasts, nobody is answered any more.
            self._trouble = str(error)
        except (FencedError, ProducerError) as error:
            self._rejoin(error)
        return self._gone()

    def _gone(self) -> tuple[ContainerGone, ...]:
        """Executions of this host whose process has ended without a word."""
        return tuple(
            ContainerGone(container.execution_id, f"process {container.pid} on {container.host} has ended")
            for container in self._known.state.containers_sorted
            if container.phase in LIVING
            and self._processes.is_alive(container.boot_id, container.pid, container.process_started_ms) is False
        )

    def _look_at_tail(self) -> None:
        """Read on, and tell what others wrote; normally nothing. Renews the lease.

        Raises:
            FencedError: a successor has begun a term: it shows when this one tries to write.
        """
        began_ms = self._clock.monotonic_ms()
        offset_end = self._log.end_offset()
        if offset_end > self._known.offset_next:
            looked = self._watch.look(self._log.read(self._watch.offset), offset_end)
            # Markers of transactions take offsets too; do not read them again.
            self._known = replace(self._known, read_to=self._watch.offset)
            if looked.count:
                self._known = with_foreign(self._known, looked.foreign.values(), looked.count)
                self._note_foreign(list(looked.foreign.values()), looked.count)
            if looked.misled:
                self._begin_term_above(looked.misled)
        if self._is_deaf():
            now_ms = self._clock.monotonic_ms()
            self._seen = replace(self._seen, listening_since_ms=now_ms, taken_away={})
        self._verified_ms = began_ms
        self._snapshot = self._publish()

    def _begin_term_above(self, misled: Sequence[bytes]) -> None:
        """Go on in a new term, which readers of a misled stream take, and tell them again what they missed."""
        _LOG.warning("%s: records with forged headers stand there; this leader begins another term", self._topic)
        numbering = self._watch.numbering
        begun, found = new_term(self._known.state, misled, numbering, started_at_ms=self._clock.wall_ms())
        self._known = replace(self._known, numbering=numbering)
        offset_after = self._log.append_atomically(found.writes)
        self._fold_own(found.records, found.writes, offset_after, begun.term)
        self._term = self._term_last = begun.term

    def _restore(self) -> None:
        """Write again what foreign records have replaced: so many keys at each look."""
        known = self._known
        if not known.foreign:
            return
        assert self._term is not None, "a leader looks"
        found = restored(known.state, known.foreign.values(), term=self._term, seq_first=known.seq_next)
        if not found.writes:
            # Records without a key, which a compacted topic does not take.
            self._known = replace(known, foreign={})
            return
        self._fold_own(found.records, found.writes, self._log.append_atomically(found.writes))
        _LOG.warning("%s: the values of %d keys are written again", self._topic, len(found.writes))
        self._snapshot = self._publish()

    def _is_deaf(self) -> bool:
        """True if the log was last verified too long ago to answer heartbeats.

        The broker was unreachable, or this process was paused.
        """
        if self._verified_ms is None:
            return False
        return self._clock.monotonic_ms() - self._verified_ms > self._config.answers_ms

    def _act(self) -> None:
        """Perform what the state asks for until it asks for nothing new; what fails is asked for again later."""
        self._fence_and_resolve()
        self._answer()

    def _answer(self) -> None:
        """Write responses and tombstones; nobody's tasks wait for them."""
        if self._clock.monotonic_ms() < self._answer_next_ms:
            return
        self._answer_trouble = ""
        asked: set[Answer] = set()
        while wanted := [found for found in answers(self._known.state) if found not in asked]:
            batch = wanted[:ANSWERS_MAX]
            asked.update(batch)
            try:
                written = self._written(batch)
            except (TemporaryError, DeadlineError, ConfigError) as error:
                self._answer_trouble = f"requests are not answered: {error}"
                self._answer_next_ms = self._clock.monotonic_ms() + LOOK_ROUND_MS
                self._snapshot = self._publish()
                return
            self._append_decisions(written)

    def _written(self, wanted: Sequence[Answer]) -> Sequence[Command]:
        state = self._known.state
        if self._placement.own():
            self._must_look_before_answering = True
        if self._must_look_before_answering:
            # Who took the right from a newer leader must not use it.
            self._look_at_tail()
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
            # Not the coordinator stream's: the term goes on, and it is written once more.
            raise TemporaryError(str(error)) from error
        return ResponsesWritten(tuple(answered)), MessagesRemoved(tuple(removed), offset_next)

    def _fence_and_resolve(self) -> None:
        if self._clock.monotonic_ms() < self._act_next_ms:
            return
        self._trouble = ""
        if self._postponed:
            wanting = {
                action.task_name for action in hand_overs(self._known.state) if isinstance(action, ResolveStarts)
            }
            self._postponed = {name: found for name, found in self._postponed.items() if name in wanting}
        asked: set[HandOver] = set()
        while wanted := [found for found in hand_overs(self._known.state) if found not in asked]:
            # Fences alone: the tasks of the fenced are not free before the log says so.
            fences = [action for action in wanted if isinstance(action, FenceExecution)]
            # While a changed configuration waits, nothing is begun that it would be wrong for.
            resolves = [] if self._waiting else self._resolvable(wanted)
            reads = [action for action in wanted if isinstance(action, ReadEnds | ReadOffsetBounds)]
            if not fences and not resolves and not reads:
                return
            asked.update(fences or resolves or reads)
            begun_ns = self._clock.monotonic_ns()
            learned = (
                self._fenced(fences) if fences else self._resolved(resolves) if resolves else self._places_read(reads)
            )
            if resolves and not fences:
                took_ns = self._clock.monotonic_ns() - begun_ns
                self._timings = replace(self._timings, checkpoint_compute_ns=took_ns)
            self._append_decisions(learned)

    def _resolvable(self, wanted: Sequence[HandOver]) -> Sequence[ResolveStarts]:
        """What is to be resolved, without tasks of which something was missing a moment ago."""
        now_ms = self._clock.monotonic_ms()
        self._postponed = {name: found for name, found in self._postponed.items() if found.again_ms > now_ms}
        return [
            action
            for action in wanted
            if isinstance(action, ResolveStarts) and action.task_name not in self._postponed
        ]

    def _fenced(self, wanted: Sequence[FenceExecution]) -> Sequence[Command]:
        found = []
        begun_ms = self._clock.monotonic_ms()
        # Who could not be fenced last time comes last: the others' tasks do not wait for it.
        in_turn = sorted(wanted, key=lambda action: self._fence_failures.get(action.execution_id, 0))
        for number, action in enumerate(in_turn):
            # All others are to be answered meanwhile; the rest is for the next round.
            if self._clock.monotonic_ms() - begun_ms >= FENCE_ROUND_MS:
                self._trouble = self._trouble or f"fencing takes long: {len(wanted) - number} executions wait for it"
                break
            try:
                self._fencing.fence(action.transactional_ids)
            except (TemporaryError, DeadlineError, ProducerError, FencedError, ConfigError) as error:
                # Only its own tasks wait for it. Fenced is the id of that execution, not the coordinator stream's:
                # the term goes on.
                self._fence_failures[action.execution_id] = self._fence_failures.get(action.execution_id, 0) + 1
                self._put_off(error)
                continue
            self._fence_failures.pop(action.execution_id, None)
            found.append(ExecutionFenced(action.execution_id, action.attempt))
        return found

    def _places_read(self, wanted: Sequence[ReadEnds | ReadOffsetBounds]) -> Sequence[Command]:
        found: list[Command] = []
        for action in wanted:
            try:
                found.append(
                    self._ends_read(action) if isinstance(action, ReadEnds) else self._offset_bounds_read(action)
                )
            except (TemporaryError, DeadlineError, MissingTopicError, ConfigError) as error:
                # A topic that is missing holds up what is asked of itself, and nothing else.
                self._put_off(error)
        return found

    def _ends_read(self, wanted: ReadEnds) -> EndsRead:
        ends = self._positions.high_watermarks(wanted.ssps)
        return EndsRead(
            system_stream=wanted.system_stream,
            partition_count=wanted.partition_count,
            ends=tuple(ends[ssp] for ssp in wanted.ssps),
        )

    def _offset_bounds_read(self, wanted: ReadOffsetBounds) -> OffsetBoundsRead:
        found = self._positions.offset_bounds(wanted.ssps, wanted.timestamp_ms)
        return OffsetBoundsRead(uuid=wanted.uuid, offset_bounds=found, now_ms=self._clock.wall_ms())

    def _resolved(self, wanted: Sequence[ResolveStarts]) -> Sequence[Command]:
        state = self._known.state
        planned_of = {planned.task_name: planned for planned in state.plan}
        tasks = [planned_of[action.task_name] for action in wanted]
        ssps = {ssp_kb.ssp for planned in tasks for ssp_kb in planned.positions}
        changelogs = self._changelogs_to_begin(tasks)
        try:
            read = self._positions.read(
                sorted(ssps),
                [(store, partition) for partition in sorted(changelogs) for store in changelogs[partition]],
            )
        except (TemporaryError, DeadlineError, ConfigError) as error:
            # A right may have been withdrawn: whoever leads next would fare no better, and it can be given back.
            self._put_off(error)
            return ()
        refuse_newer_positions(read, state.epoch, topic=self._topic)
        found = []
        grants, startpoints = GrantIndex(state.grants.values()), StartpointIndex(state.startpoints.values())
        kin = kin_of(state.plan)
        for action, planned in zip(wanted, tasks, strict=True):
            missing = [ssp_kb.ssp for ssp_kb in planned.positions if ssp_kb.ssp not in read.bounds]
            if missing:
                self._wait_for_topic(planned, missing[0])
                continue
            epoch_before_of = begun_anew(planned, state, self._config)
            if awaited := copies_awaited(
                planned, kin, grants, read, epoch_before_of=epoch_before_of, startpoints=startpoints
            ):
                self._wait_for_copies(planned, awaited)
                continue
            starts = starts_of(
                planned,
                grants,
                read,
                offset_default_of=offset_defaults(planned, state, self._config),
                accepted_losses=self._accepted_losses(),
                epoch_before_of=epoch_before_of,
                startpoints=startpoints,
            )
            found.append(
                TaskStarts(
                    task_name=action.task_name,
                    execution_id=action.execution_id,
                    starts=starts.of_buckets,
                    losses=starts.losses,
                    broadcast_parent=starts.broadcast_parent,
                    epoch_rewound=max(starts.epoch_rewound, self._epoch_not_comparable(planned)),
                    ends=self._ends_to_fix(planned, read),
                    changelog_ends=tuple(
                        (store, read.changelog_ends[store, planned.changelog_partition])
                        for store in changelogs.get(planned.changelog_partition, ())
                    ),
                )
            )
        generation = wanted[0].generation
        return (StartsResolved(generation=generation, epoch_before=state.epoch, tasks=tuple(found)),)

    def _wait_for_topic(self, planned: PlannedTaskPut, ssp: SystemStreamPartition) -> None:
        """A task whose topic is not there waits, and only that one: it comes back, goes, or somebody sees to it."""
        again_ms = self._clock.monotonic_ms() + ABSENT_ROUND_MS
        what = f"{ssp}, which is not there, or has no leader"
        self._postponed = {**self._postponed, planned.task_name: _Postponed(what, again_ms)}

    def _wait_for_copies(self, planned: PlannedTaskPut, awaited: Sequence[TaskName]) -> None:
        """Their containers need a moment for it; they are granted before."""
        again_ms = self._clock.monotonic_ms() + LOOK_ROUND_MS
        text = f"the copies of broadcast stores that {some(awaited)} take"
        self._postponed = {**self._postponed, planned.task_name: _Postponed(text, again_ms)}

    def _waits(self) -> str:
        if not self._postponed:
            return ""
        what = sorted({found.what for found in self._postponed.values()})
        return f"{len(self._postponed)} tasks wait for {some(what)}"

    def _accepted_losses(self) -> tuple[AcceptedLoss, ...]:
        """What operators gave up: who leads may have been started before anything was lost."""
        said = [self._seen.last[execution_id].accepted_losses for execution_id in sorted(self._seen.last)]
        return (*self._config.accepted_losses, *(loss for losses in said for loss in losses))

    def _put_off(self, error: SamzapyError) -> None:
        self._trouble = str(error)
        self._act_next_ms = self._clock.monotonic_ms() + LOOK_ROUND_MS

    def _ends_to_fix(
        self, planned: PlannedTaskPut, read: PositionsRead
    ) -> tuple[tuple[SystemStreamPartition, int], ...]:
        """Where the bounded inputs of a task end now, as far as this run does not know yet how far it reads them."""
        ssps = {ssp_kb.ssp for ssp_kb in planned.positions if self._config.is_bounded(str(ssp_kb.ssp.system_stream))}
        return tuple(
            (ssp, read.bounds[ssp].offset_end) for ssp in sorted(ssps) if input_end(self._known.state, ssp) is None
        )

    def _changelogs_to_begin(self, tasks: Sequence[PlannedTaskPut]) -> Mapping[int, Sequence[str]]:
        """By partition, the stores of these tasks of which it is to be fixed from where on their changelogs count."""
        state = self._known.state
        if not counts_after(state):
            return {}
        begun = changelogs_begun(state)
        names = sorted(store.name for store in self._config.stores)
        return {
            planned.changelog_partition: [
                name for name in names if name not in begun.get(planned.changelog_partition, ())
            ]
            for planned in tasks
        }

    def _epoch_not_comparable(self, planned: PlannedTaskPut) -> int:
        """Local state of an epoch before this one may have come further in an earlier topic of a name."""
        epochs = [epoch_before(found.ssp, self._known.state) for found in planned.positions]
        return max((epoch + 1 for epoch in epochs if epoch), default=0)

    def _note(self, findings: tuple[Finding, ...]) -> None:
        """Keep what was found, and say it once when it comes and once when it goes."""
        before, self._findings = self._findings, findings
        for finding in findings:
            if finding not in before:
                _LOG.warning("%s", finding)
        for finding in before:
            if finding not in findings:
                _LOG.info("no more: %s: %s", finding.code, finding.found)

    def _note_unreadable(self, command: RequestsRead, state: CoordinatorState) -> None:
        """List what could not be read, with its offset: the latest here and in the process's log, all in the topic."""
        topic, offset_next = placement_topic(self._config.job), state.inbox.offset_next
        bad = sorted(
            [(found.offset, found.reason) for found in command.requests if found.message is None]
            + [(found.offset, found.reason) for found in command.unreadable]
        )
        now_ms = self._clock.monotonic_ms()
        found = [
            (now_ms, unreadable_request(topic, offset, reason)) for offset, reason in bad if offset >= offset_next
        ]
        known = {finding for _, finding in self._unreadable}
        new = [(at_ms, finding) for at_ms, finding in found if finding not in known]
        if new:
            _LOG.warning("%s%s", new[0][1], f" (the first of {len(new)})" if len(new) > 1 else "")
        self._unreadable = (*self._unreadable, *new)[-UNREADABLE_SHOWN_MAX:]

    def _note_foreign(self, foreign: Sequence[Foreign], count: int) -> None:
        """List foreign records in the status: the latest, for a while."""
        if not foreign:
            return
        now_ms = self._clock.monotonic_ms()
        latest = foreign[-UNREADABLE_SHOWN_MAX:]
        found = [
            Finding(
                code=item.code,
                subject=f"topic {self._topic}",
                found=f"{item.text(self._topic)}. It changes nothing",
                remedy=REMEDIES[item.code],
            )
            for item in latest
        ]
        _LOG.warning("%s%s", found[-1], f" (the last of {count})" if count > 1 else "")
        self._unreadable = (*self._unreadable, *((now_ms, item) for item in found))[-UNREADABLE_SHOWN_MAX:]

    def _of_containers(self) -> tuple[Finding, ...]:
        state = self._known.state
        silent_ms = {found: sighting.kafka_silent_ms for found, sighting in self._seen.last.items()}
        return (*suspension_findings(state), *cut_off_findings(silent_ms, state))

    def _publish(self) -> Snapshot:
        now_ms = self._clock.monotonic_ms()
        unreadable = [found for at_ms, found in self._unreadable if now_ms - at_ms < UNREADABLE_SHOWN_MS]
        return Snapshot(
            job=self._config.job,
            state=self._known.state,
            seen=self._seen,
            verified_ms=self._verified_ms if self.leads else None,
            trouble="; ".join(found for found in (self._trouble, self._answer_trouble, self._waits()) if found),
            findings=(*self._findings, *self._of_containers(), *unreadable),
            timings=self._timings,
        )
