"""The loop: take commands, decide, append, evolve, act.

It is safe because of the order of its steps:

- A new leader fences its predecessor, then reads to the end, then writes its term, and only then decides (law L4).
  Reading first would miss records that the predecessor committed in between.
- State changes only by committed records. A batch of commands is decided on a copy of the state, which is thrown away;
  the appended records are folded into the real one.
- Actions are read off the state after that, and their results come back as commands.
- An append that fails for any reason ends the term (law L5): its outcome is unknown, so the state in memory cannot be
  trusted. The log is read again and the same commands are decided on the new state. Records are never sent twice.

The parts: `coordinator.leader_log` reads and appends, `coordinator.review_schedule` turns time into commands,
`coordinator.action_performer` performs actions, and `coordinator.snapshot` holds the values that other threads read.

One thread calls `become_leader`, `submit`, `run_once` and `step_down`; `coordinator.candidate` decides when. Any
thread may read `status()`: a snapshot is one immutable value, replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from samzapy.config import JobConfig, differences, exposes_coordinator
from samzapy.coordinator.action_performer import ActionPerformer, LeaderView
from samzapy.coordinator.assignment.container_ends import gone
from samzapy.coordinator.assignment.liveness import LIVING, Liveness
from samzapy.coordinator.commands import Command, RequestsRead, StartTerm, SubmitJob, TopicsLooked
from samzapy.coordinator.decide import decide, observe
from samzapy.coordinator.decision_traces import DecisionTraces
from samzapy.coordinator.grant_values import ContainerGone
from samzapy.coordinator.inputs.topic_checks import topic_findings
from samzapy.coordinator.leader_log import LeaderLog
from samzapy.coordinator.ports import Clock, CommandSource, Processes
from samzapy.coordinator.review_schedule import ReviewSchedule
from samzapy.coordinator.snapshot import CurrentFindings, Snapshot, Timings
from samzapy.coordinator.state import evolve, uncommitted
from samzapy.errors import (
    ConfigError,
    DataError,
    DeadlineError,
    FencedError,
    ProducerError,
    RejectedError,
    TemporaryError,
    TruncatedTopicError,
)
from samzapy.model.finding import insecure_coordinator
from samzapy.model.topics import coordinator_topic
from samzapy.model.tracing import NO_TRACER, Tracer
from samzapy.stream.codec import schema_records
from samzapy.stream.log import CompactedLog, Write
from samzapy.stream.records import CoordinatorRecord, GenerationPut, TermPut

LOOK_ROUND_MS = 1000
"""Longest time between two looks at the log's tail and at this host's processes.

A quarter of a lease where that is shorter, so that heartbeats are answered without a break."""


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


class CoordinatorService:
    """The coordinator of one candidate: leads from `become_leader` until a term ends.

    Args:
        log: the coordinator stream.
        config: of the job; replaced by that of each `SubmitJob`.
        performer: performs the actions of this coordinator.
        tracer: takes the spans of decisions.
    """

    def __init__(
        self,
        *,
        log: CompactedLog,
        config: JobConfig,
        identity: CoordinatorIdentity,
        clock: Clock,
        commands: CommandSource,
        processes: Processes,
        performer: ActionPerformer,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._config = config
        self._identity = identity
        self._clock = clock
        self._commands = commands
        self._processes = processes
        self._performer = performer
        topic = coordinator_topic(config.job)
        self._stream = LeaderLog(log, topic, clock, DecisionTraces(tracer, config.job, topic))
        self._schedule = ReviewSchedule(identity.coordinator_id, clock)
        insecure = exposes_coordinator(config) and config.is_coordinator_insecure
        self._findings = CurrentFindings(
            config.job, clock, [insecure_coordinator(config.coordinator_host)] if insecure else []
        )
        self._liveness = Liveness()
        self._verified_ms: int | None = None
        self._look_next_ms = 0
        self._pending_submissions: tuple[SubmitJob, ...] = ()
        self._model_generation_ns: int | None = None
        self._snapshot = self._publish()

    @property
    def is_leader(self) -> bool:
        """Whether this process leads, as far as it knows."""
        return self._stream.term is not None

    def status(self) -> Snapshot:
        """The latest snapshot; may be called from any thread."""
        return self._snapshot

    def become_leader(self) -> None:
        """Fence, replay, begin a term; the state in memory is dropped first.

        Raises:
            FencedError: another candidate took over meanwhile, or has begun a term since ours and still runs.
            ProducerError, TemporaryError, DeadlineError: not now; the caller waits a little and calls again.
            DataError: the stream cannot be read, or is another job's. This process does not lead.
        """
        self._end_term()
        self._stream.log.take_over()
        self._stream.replay()
        self._refuse_if_another_leads()
        self._stream.watch()
        self._findings.note_foreign(list(self._stream.foreign.values()), self._stream.foreign_count)
        began_ms = self._clock.monotonic_ms()
        self._begin_term()
        # The term record is committed, so no other candidate had taken over when that began.
        self._verified_ms = began_ms
        # Silence counts from here: before its term record this process could not have received a heartbeat.
        self._liveness = replace(self._liveness, listening_since_ms=self._clock.monotonic_ms())
        self._look_next_ms = 0
        self._schedule.restart()
        self._performer.restart()
        self._snapshot = self._publish()

    def submit(self, command: SubmitJob) -> None:
        """Submit a job, and perform the actions that follow.

        A changed configuration may have to wait until it is known whether containers of the old one still run. Then
        this returns and `run_once` tries again, at most until those containers would be declared lost.

        Raises:
            ConfigError, DataError, RejectedError: the job is refused; nothing was written.
            FencedError, ProducerError, TemporaryError: as `run_once`.
        """
        command = replace(command, now_ms=self._clock.wall_ms())
        before, self._config = self._config, command.config
        self._schedule.note_submission(command)
        try:
            self._settle((*self._gone(), command, self._schedule.member_review(self._config)))
        except (ConfigError, DataError, RejectedError):
            self._config = before
            raise
        self._pending_submissions = self._still_pending((command,))

    def step_down(self) -> None:
        """Stop leading, and forget all terms.

        The next elected candidate takes over, even if it is this one.
        """
        self._end_term()
        self._stream.forget_terms()
        # Commands to this term are of no use to a later one; their senders send them again.
        self._commands.take(0)

    def run_once(self, timeout_ms: int) -> None:
        """Do one round of the loop; waits at most `timeout_ms` for commands.

        Raises:
            FencedError: another coordinator leads; become a candidate again.
            ProducerError, TemporaryError: the term ended and a new one could not be begun; call `become_leader` again.
            DataError: the stream or a position is wrong, and going on would hide it.
            RejectedError: containers run under another configuration than the submitted one.
        """
        # Before commands are taken: all heartbeats of a process that is gone by now are in the queue.
        gone = self._look_round()
        taken = self._commands.take(timeout_ms)
        self._schedule.note_hosts(taken)
        # While our own lease has lapsed we do not answer heartbeats, so we must not expire containers either.
        lease_expired = self._lease_expired()
        ticks = () if lease_expired else (self._schedule.tick(self._config),)
        due = self._schedule.due_reviews(
            self._config,
            self._stream.state,
            listened_ms=0 if lease_expired else self._clock.monotonic_ms() - self._liveness.listening_since_ms,
            is_submission_pending=bool(self._pending_submissions),
        )
        # Ticks come first: a container that has just been declared lost no longer delays a submission.
        self._settle((*taken, *gone, *ticks, *self._pending_submissions, *due))
        self._pending_submissions = self._still_pending(self._pending_submissions)

    def _still_pending(self, submissions: Iterable[SubmitJob]) -> tuple[SubmitJob, ...]:
        recorded = self._stream.state.config
        return tuple(command for command in submissions if differences(command.config, recorded))

    def _settle(self, commands: Sequence[Command]) -> None:
        try:
            self._append_decisions(commands)
            self._act()
        except (FencedError, ProducerError) as error:
            self._rejoin(error)
            self._append_decisions(commands)
            self._act()

    def _append_decisions(self, commands: Sequence[Command]) -> None:
        state, liveness = self._stream.state, self._liveness
        self._stream.traces.forget()
        records: list[CoordinatorRecord] = []
        writes: list[Write] = []
        for command in commands:
            begun_ns = self._clock.monotonic_ns()
            decision = decide(command, state, liveness)
            if isinstance(command, RequestsRead):
                self._findings.note_unserved(command, state)
            if decision.records:
                took_ns = self._clock.monotonic_ns() - begun_ns
                if any(isinstance(record, GenerationPut) for record in decision.records):
                    self._model_generation_ns = took_ns
                self._stream.note(command, decision, state, took_ns)
                records.extend(decision.records)
                writes.extend(
                    self._stream.writes(
                        decision.records, state, ahead=len(writes), cause=decision.cause, actor=decision.actor
                    )
                )
                # Later commands of the batch are decided on the state that the earlier ones lead to.
                state = evolve(state, uncommitted(decision.records))
            liveness = observe(command, state, liveness)
            if isinstance(command, TopicsLooked):
                self._findings.note_topics(topic_findings(state, command))
        self._stream.append(records, writes)
        self._liveness = liveness
        self._snapshot = self._publish()

    def _act(self) -> None:
        """Perform actions until the state asks for no new ones.

        Raises:
            FencedError: a successor has begun a term.
            TruncatedTopicError: the coordinator stream lacks a grant under which a container has committed.
        """
        try:
            for results in self._performer.hand_overs(self._view):
                self._append_decisions(results)
        except TruncatedTopicError:
            # After a pause these may be positions under a successor's grants, which this process has not read.
            self._look_at_tail()
            raise
        for results in self._performer.answers(self._view, self._look_at_tail):
            self._append_decisions(results)

    def _view(self) -> LeaderView:
        return LeaderView(
            state=self._stream.state,
            config=self._config,
            liveness=self._liveness,
            is_submission_pending=bool(self._pending_submissions),
        )

    def _begin_term(self) -> None:
        identity = self._identity
        command = StartTerm(
            term_before=self._stream.term_before,
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
        begun_ns = self._clock.monotonic_ns()
        decision = decide(command, self._stream.state, self._liveness)
        self._stream.note(command, decision, self._stream.state, self._clock.monotonic_ns() - begun_ns)
        self._stream.begin_term(decision.records, cause=decision.cause, actor=decision.actor)

    def _rejoin(self, error: Exception) -> None:
        """Begin a new term, unless another leader has begun one.

        The error `_FENCED` may come from our own time-out.
        """
        self._end_term()
        if isinstance(error, FencedError):
            # Read before taking over: to take over would fence the newer leader.
            self._stream.replay()
            self._snapshot = self._publish()
            self._refuse_if_another_leads()
        self.become_leader()

    def _end_term(self) -> None:
        self._stream.end_term()
        self._verified_ms = None
        # The outputs are the job's. A broker's restart may end a term, and leave a transaction open in one of them.
        self._liveness = Liveness(outputs=self._liveness.outputs)
        self._findings.clear()
        self._snapshot = self._publish()

    def _refuse_if_another_leads(self) -> None:
        """Raise FencedError if a later term than our own has begun, and its leader runs.

        Before our first term a later one is no reason: this candidate was elected to replace it.
        """
        later = self._stream.later_term()
        if later is None:
            return
        self._stream.forget_terms()
        term_last, newest = later
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
            if self._stream.restore():
                self._snapshot = self._publish()
        except (TemporaryError, DeadlineError) as error:
            # The lease runs on; if this lasts, heartbeats are no longer answered.
            self._performer.note_trouble(error)
        except (FencedError, ProducerError) as error:
            self._rejoin(error)
        return self._gone()

    def _gone(self) -> tuple[ContainerGone, ...]:
        """Executions of this host whose process has ended without a last heartbeat."""
        return tuple(
            ContainerGone(
                container.execution_id,
                f"process {container.pid} on {container.host} has ended",
                self._processes.end_of(container.execution_id) or gone(container, self._clock.wall_ms()),
            )
            for container in self._stream.state.containers_sorted
            if container.phase in LIVING
            and self._processes.is_alive(container.boot_id, container.pid, container.process_started_ms) is False
        )

    def _look_at_tail(self) -> None:
        """Read the log to its end, which renews the lease; normally there is nothing new.

        Raises:
            FencedError: a successor has begun a term, which shows when this leader tries to write.
        """
        began_ms = self._clock.monotonic_ms()
        looked = self._stream.look()
        if looked is not None:
            self._findings.note_foreign(list(looked.foreign.values()), looked.count)
            if looked.misled:
                self._stream.begin_term_above(looked.misled)
        if self._lease_expired():
            now_ms = self._clock.monotonic_ms()
            self._liveness = replace(self._liveness, listening_since_ms=now_ms, revoked_since={})
        self._verified_ms = began_ms
        self._snapshot = self._publish()

    def _lease_expired(self) -> bool:
        """True if the log was last verified too long ago to answer heartbeats.

        The broker was unreachable, or this process was paused.
        """
        if self._verified_ms is None:
            return False
        return self._clock.monotonic_ms() - self._verified_ms > self._config.answers_ms

    def _publish(self) -> Snapshot:
        return Snapshot(
            job=self._config.job,
            state=self._stream.state,
            liveness=self._liveness,
            verified_ms=self._verified_ms if self.is_leader else None,
            trouble=self._performer.trouble,
            reasons=self._performer.reasons,
            findings=self._findings.shown(self._stream.state, self._liveness),
            timings=Timings(
                job_model_generation_ns=self._model_generation_ns,
                checkpoint_compute_ns=self._performer.checkpoint_compute_ns,
            ),
        )
