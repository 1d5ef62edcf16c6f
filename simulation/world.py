"""One history of a whole job, made from one seed.

It has the coordinators, the containers, their cluster and their operator.

Everything that can happen is an event, chosen by one `random.Random(seed)`; time moves only by events. The same seed
gives the same history to the byte, in any process. While it lasts, faults of every kind come; then they stop, and the
job must come to rest: everything granted, everything running, all input worked on exactly once.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Any, TypeVar

from samzapy.config import JobConfig, differences
from samzapy.coordinator.assignment.grants import input_end, owners
from samzapy.coordinator.assignment.liveness import is_expected, may_register
from samzapy.coordinator.commands import Figures, Heartbeat, SubmitJob, TopicsLooked
from samzapy.coordinator.grant_values import HeldGrant, Position
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import BrokerUnavailableError
from samzapy.inspection.standstill import Cause
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.topic_checks import Cluster, TopicFound
from samzapy.model.topics import checkpoint_topic, coordinator_topic, placement_topic
from samzapy.stream.records import FORMAT_LEVEL
from samzapy.testing.builders import a_submission
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from samzapy.testing.memory_placement import read_inbox
from samzapy.testing.virtual_clock import VirtualClock
from simulation.checks import (
    COMPARED,
    BrokenLawError,
    LaunchTruth,
    Ledger,
    LogChecks,
    NobodyLaunched,
    Probe,
)
from simulation.configurations import CONFIGS, KINDS, PROCESSORS, RULES, Kind
from simulation.containers import SLOT_COUNT, STOPS_NOW, WORKS_MUCH, SimulatedContainer
from simulation.coordinators import CoordinatorProcess, ProcessEnded, is_drivable
from simulation.events import containers, coordinators, environment, inputs, operator
from simulation.inputs import FACTORS, FINEST, Inputs, ssps_of
from simulation.operator import Operator
from simulation.standstills import StandstillChecks
from simulation.state import HOSTS, Changelogs, Disk

T = TypeVar("T")
Event = Callable[[Any], None]
"""Something that happens in a world."""

EVENT_COUNT = 400
"""Events of one history before its quiet phase."""
TRANSACTION_TIMEOUT_MS = 10_000
QUIET_ROUNDS_MAX = 40
QUIET_ROUND_MS = 4_000
"""A third of a lease: a process that waits for a time-out need not be driven many times for nothing."""
QUIET_STEPS_MAX = 40
"""The most steps of a container in such a round."""
CANDIDATES = ("ann", "bob", "cid")
NESTED_MAX = 12
"""Longest standstill of a coordinator between two effects, in events."""

GOES_ON_MS = 1_000
POSITIONS_MAX = 16
POSITIONS_MAX_OF_A_WALK = 72
"""More than that are not asked for: they would cost much and show nothing new."""


@dataclass(slots=True)
class _Message:
    """A heartbeat under way: its content, its time and its addressee."""

    sent_ms: int
    to: str
    container: SimulatedContainer
    state: ContainerPhase
    stream_offset: int
    held: frozenset[HeldGrant]
    restart: int
    figures: Figures
    finished: bool
    warm: StandbyProgress | None
    unanswered_ms: int
    step: str


@dataclass(frozen=True, slots=True)
class History:
    """The result of one seed.

    Attributes:
        faults: how many of each kind happened.
        elastic_grants: those of a part of a partition. `floored_grants` are of parts that were not at one place.
        rewound_grants: key buckets that went on from an operator's offset.
        inherited_copies: tasks that began with the broadcast copy of another one.
        launches: executions that the coordinator was to start. `placements`: of tasks on a reserve, or a standby.
        runs: of the job; more than one if all left, or a bounded one had read everything, and a container came.
        factor_changes: as recorded. `expansions`: how often more partitions of an input were taken in.
        restored: values that a leader wrote again, behind records of another program.
        causes: of tasks that stood still, as leaders named them.
        virtual_ms: how long it lasted for those inside.
        topics: as they were left.
    """

    seed: int
    events: int
    faults: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    decisions: int = 0
    terms: int = 0
    grants: int = 0
    elastic_grants: int = 0
    floored_grants: int = 0
    rewound_grants: int = 0
    inherited_copies: int = 0
    launches: int = 0
    placements: int = 0
    runs: int = 0
    factor_changes: int = 0
    expansions: int = 0
    restored: int = 0
    causes: frozenset[Cause] = frozenset()
    kind: Kind = Kind.STATELESS
    virtual_ms: int = 0
    trace: tuple[str, ...] = ()
    topics: tuple[MemoryTopic, ...] = ()

    @property
    def deaths(self) -> int:
        """Of containers and coordinators, killed at any moment or between any two effects."""
        return self.faults["container killed"] + self.faults["coordinator killed"]

    @property
    def digest(self) -> str:
        """Of the trace and of every byte on all topics."""
        digest = hashlib.sha256("\n".join(self.trace).encode())
        for topic in self.topics:
            digest.update(topic.dump())
        return digest.hexdigest()


class World:
    """Everything there is; `run` lets it live."""

    hosts: Sequence[str] = HOSTS
    quiet_rounds_max = QUIET_ROUNDS_MAX
    rounds_to_life = 3

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None, kind: Kind | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.kind = kind or KINDS[self.random.randrange(len(KINDS))]
        families = CONFIGS[self.kind]
        self.configs = families[self.random.randrange(len(families))]
        self.clock = VirtualClock()
        self.faults: Counter[str] = Counter()
        self.trace: list[str] = []
        self._tell = tell
        self._began_ms = self.clock.monotonic_ms()
        self._quiet = False
        # Of its own: whether links break changes nothing in the histories in which none does.
        self._of_links = Random(f"links of {seed}")
        self._loses_answers = self._of_links.random() < _HISTORIES_THAT_LOSE_ANSWERS
        self._events = 0
        self._depth = 0
        self.broker_away = 0
        self._must_submit = False
        self._runs_before = 0
        self._members = PROCESSORS[: 1 + self.random.randrange(len(PROCESSORS))]
        self._pid = 100
        self._executions = 0
        self._submissions = 0
        self._pids: dict[int, SimulatedContainer | CoordinatorProcess] = {}
        self.counts = {"kafka.orders": 1 + self.random.randrange(3), "kafka.refunds": 1 + self.random.randrange(2)}
        self.positions_max = POSITIONS_MAX
        if self.kind is Kind.WALK:
            self.counts = dict.fromkeys(self.counts, 1)
            self.positions_max = POSITIONS_MAX_OF_A_WALK
        if self.configs[0].broadcast_inputs:
            self.counts[RULES] = 2
        self.submission = self.a_submission(self.configs[self.random.randrange(2)])
        job = self.submission.config.job
        self.stream = MemoryTopic(coordinator_topic(job))
        self.checkpoints = MemoryTopic(checkpoint_topic(job))
        self.placement = MemoryTopic(placement_topic(job))
        self.operator = self._an_operator()
        self.inputs = Inputs(self.random)
        stores = [store.name for store in self.configs[0].stores]
        self.changelogs = Changelogs(stores, self.checkpoints, self.inputs)
        self.disks = {host: Disk() for host in self.hosts}
        for stream in self.counts:
            self.inputs.create(ssps_of(stream, range(inputs.PARTITIONS_MAX)))
        # By the SSP of an added partition: the offsets in older ones that must be done before it is read.
        self.older_ends: dict[SystemStreamPartition, dict[SystemStreamPartition, int]] = {}
        self.noticed_ms: dict[SystemStreamPartition, int] = {}
        self.ledger = Ledger(self.inputs)
        self.probe = Probe()
        # By name of a candidate: parts of its state, by their names, with those of the true one that they are equal to.
        self._equals: dict[str, dict[str, tuple[object, object]]] = {}
        self.checks = LogChecks(
            self.stream,
            self.ledger,
            self._who_works_on,
            self.clock.monotonic_ms,
            self._restarted_to,
            self._unread_before,
            self._has_read,
            self._launch_truth(),
        )
        self.containers: list[SimulatedContainer] = []
        self.standstills = StandstillChecks(self.clock, lambda: self.containers)
        self.network: list[_Message] = []
        self._set_up()
        self.candidates = [self.a_candidate(name) for name in CANDIDATES[: 2 + self.random.randrange(2)]]
        self.elected = {self.candidates[0].name}
        # Each history has its own mix of faults: rare combinations occur in some of the mixes.
        weighted = self._weighted()
        self._kinds = tuple(event for event, _ in weighted)
        self._weights = tuple(accumulate(self._weight(*event) for event in weighted))

    def _set_up(self) -> None:
        """Make the further parts of a kind of world, before there are candidates."""

    # --- a life ---

    def run(self, event_count: int) -> History:
        """Live through `event_count` events and come to rest.

        Raises:
            BrokenLawError: a law did not hold, or the world does not come to rest.
        """
        with self.probe.installed():
            self._come_to_life()
            while self._events < event_count:
                self._event()
            self._come_to_rest()
            self._check_compactions()
        return History(
            seed=self.seed,
            events=self._events,
            faults=self.faults,
            commits=self.ledger.commits,
            decisions=self.probe.decisions,
            terms=self.checks.state.term.term if self.checks.state.term else 0,
            grants=self.checks.state.epoch,
            elastic_grants=self.checks.elastic_grants,
            floored_grants=self.checks.floored_grants,
            rewound_grants=self.checks.rewound_grants,
            inherited_copies=self.checks.inherited_copies,
            launches=len(self.checks.launches_recorded),
            placements=self.checks.placements,
            runs=self.checks.runs,
            factor_changes=self.checks.factor_changes,
            expansions=self.checks.expansions,
            restored=self.checks.restored,
            causes=frozenset(self.standstills.seen),
            kind=self.kind,
            virtual_ms=self.clock.monotonic_ms() - self._began_ms,
            trace=tuple(self.trace),
            topics=(self.stream, self.checkpoints, self.placement, *self.changelogs.topics.values()),
        )

    def _event(self) -> None:
        self._events += 1
        place = bisect(self._weights, self.random.random() * self._weights[-1])
        self._kinds[place](self)
        self._judge()

    def _judge(self) -> None:
        """Check the world after each event, beside the checks of the event itself."""

    def note(self, text: str) -> None:
        self.trace.append(text)
        if self._tell is not None:
            time_ms = self.clock.monotonic_ms() - self._began_ms
            self._tell(f"{self._events:5} {time_ms:>8} ms {'  ' * self._depth}{text}")

    def fault(self, kind: str, text: str = "") -> None:
        self.faults[kind] += 1
        self.note(f"! {kind} {text}")

    # --- the world as coordinators meet it (coordinators.Surroundings) ---

    def between(self, process: CoordinatorProcess, step: str) -> None:
        if self._quiet:
            return
        luck = self.random.random()
        if luck < 0.0025:
            self.fault("coordinator killed", f"{process.name} {step}")
            raise ProcessEnded
        if luck < _STANDSTILL.get(step, 0.01) and self._depth == 0:
            self.fault("coordinator paused", f"{process.name} {step}")
            self._depth += 1
            for _ in range(1 + self.random.randrange(NESTED_MAX)):
                self._event()
            self._depth -= 1
            self.note(f"{process.name} continues")
        if self.broker_away:
            self.broker_away -= 1
            raise BrokerUnavailableError("no broker answers")
        if step in _FRAGILE and self.random.random() < 0.1:
            self.fault("request without an answer", f"{process.name} {step}")
            raise BrokerUnavailableError("no broker answers")

    def trouble_append(self, process: CoordinatorProcess, log: MemoryLog, count: int) -> None:
        if self._quiet:
            return
        luck = self.random.random()
        if luck < 0.02:
            self.fault("append unknown, committed", process.name)
            log.break_next_append(committed=True)
        elif luck < 0.04:
            self.fault("append unknown, aborted", process.name)
            log.break_next_append(committed=False)
        elif luck < 0.05:
            self.fault("append left open", process.name)
            log.hang_next_append()
        elif luck < 0.1:
            survivors = 1 + self.random.randrange(count)
            self.fault("append torn", f"{process.name} after {survivors} of {count}")
            log.tear_next_append(survivors)

    def look(self) -> None:
        runs = self.checks.runs
        self.checks.look()
        if self.kind is Kind.BOUNDED and self.checks.runs != runs:
            # Positions in older partitions are ignored now, so no order is to be kept.
            self.older_ends.clear()

    def process_lives(self, host: str, boot_id: str, pid: int) -> bool | None:
        if boot_id != f"boot-{host}":
            return None
        container = self._pids.get(pid)
        return container is not None and container.alive

    # --- events ---

    def is_elected(self, name: str) -> bool:
        return name in self.elected

    def rejoin_election(self, name: str) -> None:
        """Give the seat to the next candidate in order."""
        names = [candidate.name for candidate in self.candidates]
        others = [candidate.name for candidate in self.candidates if candidate.name != name and candidate.alive]
        if name in self.elected and others and not self._quiet:
            self.elected = {min(others, key=lambda other: (names.index(other) - names.index(name)) % len(names))}

    def send(self, container: SimulatedContainer) -> None:
        if container.orders.term is None:
            return
        now_ms = self.clock.monotonic_ms()
        if container.unanswered_since_ms is None:
            container.unanswered_since_ms = now_ms
        self.network.append(
            _Message(
                sent_ms=now_ms,
                unanswered_ms=now_ms - container.unanswered_since_ms,
                to=container.orders.term.url,
                container=container,
                state=container.state,
                stream_offset=container.orders.offset_next,
                held=container.held(),
                restart=container.restart,
                figures=Figures(
                    positions={
                        ssp_kb: Position(at, self.inputs.end(ssp_kb.ssp))
                        for ssp_kb, at in container.reported().items()
                    }
                ),
                finished=container.has_finished(),
                warm=container.warmth(),
                step=container.step_of_start(),
            )
        )

    def _message_arrives(self) -> None:
        if not self.network:
            return
        index = self.random.randrange(len(self.network))
        if index > 2:
            self.faults["message overtaken"] += 1
        message = self.network.pop(index)
        luck = self.random.random()
        if luck < 0.05:
            self.fault("message lost", message.container.execution_id)
            return
        if luck < 0.15:
            self.fault("message doubled", message.container.execution_id)
            self.network.append(message)
        self._deliver(message)

    def _deliver(self, message: _Message) -> None:
        process = next(candidate for candidate in self.candidates if candidate.name == message.to)
        # A paused process reads it when it continues.
        if not process.alive or process.paused or process.busy:
            return
        container = message.container
        heartbeat = Heartbeat(
            job=self.submission.config.job,
            execution_id=container.execution_id,
            processor_id=container.processor_id,
            host=container.host,
            boot_id=f"boot-{container.host}",
            pid=container.pid,
            process_started_ms=1,
            slot_count=SLOT_COUNT,
            format_level=FORMAT_LEVEL,
            state=message.state,
            stream_offset=message.stream_offset,
            held=message.held,
            restart=message.restart,
            reason="",
            figures=message.figures,
            finished=message.finished,
            warm=message.warm,
            unanswered_ms=message.unanswered_ms,
            step=message.step,
            received_ms=process.monotonic_ms(),
        )
        if not process.answers():
            return
        self._check_answer(process)
        state = process.service.status().state
        if may_register(state, heartbeat):
            process.queue.append(heartbeat)
            self.standstills.hear(process, heartbeat.execution_id, message)
            return
        expected = is_expected(state, heartbeat)
        if expected:
            process.queue.append(heartbeat)
            self.standstills.hear(process, heartbeat.execution_id, message)
        if container.answers_until_ms is not None and self.clock.monotonic_ms() >= container.answers_until_ms:
            self.fault("answer lost", f"{process.name} to {container.execution_id}")
            return
        container.unanswered_since_ms = None
        if expected:
            container.lease_until_ms = max(container.lease_until_ms, message.sent_ms + process.lease_ms)
        elif container.alive:
            container.is_reported_lost = True
        self.note(f"{process.name} hears {container.execution_id}{'' if expected else ', which is not expected'}")

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        now_ms = self.clock.monotonic_ms()
        for topic in (self.stream, self.checkpoints, self.placement):
            topic.now_ms = now_ms
            for transactional_id, since_ms in tuple(topic.open_since().items()):
                if now_ms - since_ms >= TRANSACTION_TIMEOUT_MS:
                    topic.time_out(transactional_id)
                    self.note(f"the broker ends the open transaction of {transactional_id}")

    def start_container(self, processor_id: str) -> None:
        self._executions += 1
        host = self.hosts[self.random.randrange(len(self.hosts))]
        self._run_container(f"e{self._executions}", processor_id, host)

    def _run_container(
        self, execution_id: str, processor_id: str, host: str, *, is_launched: bool = False
    ) -> SimulatedContainer:
        container = SimulatedContainer(
            stream=self.stream,
            changelogs=self.changelogs,
            disk=self.disks[host],
            ledger=self.ledger,
            inputs=self.inputs,
            config=self.configs[0],
            random=self.random,
            clock=self.clock,
            execution_id=execution_id,
            processor_id=processor_id,
            host=host,
            pid=self._next_pid(),
            is_launched=is_launched,
        )
        if self._loses_answers and not self._quiet and self._of_links.random() < _LOSES_ANSWERS:
            container.answers_until_ms = self.clock.monotonic_ms() + self._of_links.randrange(60_000)
        self._pids[container.pid] = container
        self.containers.append(container)
        self.note(f"{container.execution_id} starts as processor {processor_id} on {container.host}")
        return container

    def keep_until(self, keep_until: int | None) -> int | None:
        """The cleaner leaves young records alone until a leader has undone foreign ones.

        That takes less time than the lag.
        """
        young = min(self.checks.foreign_left.values(), default=None)
        if young is None:
            return keep_until
        return young if keep_until is None else min(keep_until, young)

    def _unread_before(self, ssp: SystemStreamPartition) -> str:
        """Messages of older partitions that must be done before `ssp` is granted.

        Once there are none, there never are.
        """
        unread = [
            f"{older} up to {end}"
            for older, end in self.older_ends.get(ssp, {}).items()
            if self.ledger.has_undone(older, min(end, self._end_of_run(older)))
        ]
        if not unread:
            self.older_ends.pop(ssp, None)
        return ", ".join(unread)

    def _end_of_run(self, ssp: SystemStreamPartition) -> int:
        """The end of a bounded input: messages behind it are not part of the run.

        So nothing waits for them.
        """
        end = input_end(self.checks.state, ssp)
        return self.inputs.end(ssp) if end is None else end

    def look_at_topics(self) -> TopicsLooked:
        return TopicsLooked(
            described={
                stream.partition(".")[2]: TopicFound(
                    name=stream.partition(".")[2],
                    topic_id=f"id-of-{stream}",
                    partition_count=count,
                    replication_factor=1,
                    settings={},
                )
                for stream, count in self.counts.items()
            },
            cluster=Cluster(bootstrap_servers="b:9092", broker_count=1),
            looked_at_ms=self.clock.wall_ms(),
        )

    def hand_in(self) -> None:
        leaders = [
            candidate for candidate in self.candidates if is_drivable(candidate) and candidate.service.is_leader
        ]
        if leaders:
            leaders[0].submit(self.submission)
            self.check_leader(leaders[0])

    def processors_asked_for(self) -> Sequence[str]:
        return PROCESSORS

    def container_counts(self) -> Sequence[int]:
        """The numbers of containers that may be asked for; none where people start them."""
        return ()

    def read_inbox(self, process: CoordinatorProcess, count_max: int | None = None) -> None:
        position = process.service.status().state.inbox.offset_next
        command = read_inbox(self.placement, position, self.clock.wall_ms(), count_max)
        if command.offset_next > position:
            process.queue.append(command)

    def _all_continue(self) -> None:
        """A second in which every process does its steps.

        A start comes further so, and is killed no less.
        """
        self.advance(GOES_ON_MS)
        process = self.pick(
            [candidate for candidate in self.candidates if is_drivable(candidate) and candidate.service.is_leader]
        )
        if process is not None:
            self.read_inbox(process)
        for message in self.network:
            self._deliver(message)
        self.network.clear()
        for process in [candidate for candidate in self.candidates if is_drivable(candidate)]:
            process.round(self.probe)
            self.check_leader(process)
        for container in [container for container in self.containers if container.alive and not container.paused]:
            container.follow()
            for _ in range(containers.STEPS_MAX):
                if container.alive:
                    self.note(
                        f"{container.execution_id} {container.step(self.clock.monotonic_ms(), self.random.random())}"
                    )
            if container.alive:
                self.send(container)

    # --- judging ---

    def _who_works_on(self, grant: Grant) -> list[str]:
        return [
            f"{container.execution_id} (epoch {epoch})"
            for container in self.containers
            for epoch in container.may_commit(grant)
        ]

    def _restarted_to(self, processor_id: str) -> int:
        """The newest restart order that a query of the processor was started after."""
        return max(
            (container.restart for container in self.containers if container.processor_id == processor_id), default=0
        )

    def _has_read(self, execution_id: str, epoch: int) -> bool:
        """Whether an execution knows that it was granted a task."""
        return any(
            grant.epoch == epoch
            for container in self.containers
            if container.execution_id == execution_id
            for grant in container.orders.grants.values()
        )

    def check_leader(self, process: CoordinatorProcess) -> None:
        """The leader, by the log, holds in memory the state of the log."""
        if not process.alive or not process.service.is_leader:
            return
        held = process.service.status().state
        truth = self.checks.state
        if held.term == truth.term and not self._are_equal(process, held, truth):
            raise BrokenLawError(f"L5, {process.name} holds another state than the log")
        if held.term == truth.term:
            self.standstills.observe(process)

    def _are_equal(self, process: CoordinatorProcess, held: CoordinatorState, truth: CoordinatorState) -> bool:
        """`held == truth`, faster.

        Tables that were equal once are so still, as no table is ever changed.
        """
        equals = self._equals.setdefault(process.name, {})
        for name in COMPARED:
            mine, theirs = getattr(held, name), getattr(truth, name)
            if mine is theirs:
                continue
            known = equals.get(name)
            if known is not None and known[0] is mine and known[1] is theirs:
                continue
            if mine != theirs:
                return False
            equals[name] = mine, theirs
        return True

    def _check_answer(self, process: CoordinatorProcess) -> None:
        """An answer may be given for one lease after another leader took over, not later."""
        mine, newest = process.service.status().state.term, self.checks.state.term
        late_ms = self.clock.monotonic_ms() - self.checks.term_began_ms
        if mine is not None and newest is not None and mine.term != newest.term and late_ms > process.lease_ms:
            raise BrokenLawError(f"L4, {process.name} answers {late_ms} ms after term {newest.term} began")

    def check_replay(self) -> None:
        self.checks.whole_l1()
        records, offset_next = self.stream.read_stable(0)
        if offset_next and replay(records, topic=self.stream.name).state != self.checks.state:
            raise BrokenLawError("L1, the compacted stream folds to another state")

    def _check_compactions(self) -> None:
        for _ in range(3):
            end = self.stream.end_offset
            self.stream.compact(
                keep_until=self.keep_until(self.random.randrange(end + 1)),
                tombstones_until=self.random.randrange(end + 1),
            )
            self.check_replay()

    # --- without faults: the beginning of most histories, and the end of all ---

    def _come_to_life(self) -> None:
        """Most histories begin with a running job.

        The others begin with an empty stream and without processes.
        """
        if self.kind is Kind.BOUNDED:
            # One that runs without a fault is over at once.
            for _ in range(2 * sum(self.counts.values())):
                inputs.input_arrives(self, operator.FLOOD_MAX)
            return
        if self.random.random() < 0.2:
            return
        self._quiet = True
        for _ in range(self.rounds_to_life):
            self._quiet_round()
        for _ in range(4):
            inputs.input_arrives(self)
        self._quiet = False
        self.note("faults begin")

    def _come_to_rest(self) -> None:
        self._quiet = True
        self.broker_away = 0
        self.note("faults stop")
        for container in self.containers:
            container.paused = container.is_hung
        for process in self.candidates:
            process.paused = False
        self._everybody_comes_back()
        self.elected = {self.candidates[self.random.randrange(len(self.candidates))].name}
        self._must_submit = True
        self._runs_before = self.checks.runs
        self._members = PROCESSORS[: 1 + self.random.randrange(len(PROCESSORS))]
        for _ in range(self.quiet_rounds_max):
            self._quiet_round()
            if not self._must_submit and not self._unrest():
                self.note("at rest")
                return
        raise BrokenLawError(f"no rest after {self.quiet_rounds_max} quiet rounds: {'; '.join(self._unrest())}")

    def _everybody_comes_back(self) -> None:
        """Start all processes again, with the job's current configuration in their files.

        Another configuration may have been refused.
        """
        recorded = self.checks.state.config
        for config in self.configs:
            if recorded and not differences(config, self.checks.state.config):
                self.submission = self.a_submission(config)
        while any(not process.alive for process in self.candidates):
            coordinators.coordinator_comes_back(self)

    def _quiet_round(self) -> None:
        self.advance(QUIET_ROUND_MS)
        if any(not process.alive for process in self.candidates):
            self._everybody_comes_back()
        for message in self.network:
            self._deliver(message)
        self.network.clear()
        for process in self.candidates:
            if process.service.is_leader:
                self.read_inbox(process)
                process.queue.append(self.look_at_topics())
            process.round(self.probe)
            self.check_leader(process)
            if process.service.is_leader and self._must_submit:
                process.submit(self.submission)
                self._must_submit = False
        run = self.checks.state.run
        if run is None or not run.finished or (run.ended and not self._is_over()):
            self._replace_ended_containers()
        self._quiet_cluster()
        for container in [container for container in self.containers if container.alive and not container.paused]:
            self._quiet_container(container)

    def _quiet_container(self, container: SimulatedContainer) -> None:
        container.follow()
        now_ms = self.clock.monotonic_ms()
        # A process that has stopped ends by itself, also where no answer tells it that its last heartbeat was heard.
        ends_unanswered = container.state is ContainerPhase.STOPPED and container.answers_until_ms is not None
        luck = STOPS_NOW if container.stopping or ends_unanswered else WORKS_MUCH
        for _ in range(QUIET_STEPS_MAX):
            did = container.step(now_ms, luck)
            self.note(f"{container.execution_id} {did}")
            if not container.alive or did in _IDLE:
                break
        # The result is reported at once, also as the last heartbeat.
        if container.alive or container.state is ContainerPhase.STOPPED:
            self.send(container)

    def _replace_ended_containers(self) -> None:
        living = {
            container.processor_id for container in self.containers if container.alive and not container.stopping
        }
        for processor_id in self._members:
            if processor_id not in living:
                self.start_container(processor_id)

    def _quiet_cluster(self) -> None:
        """The cluster manager's part of such a round."""

    def _is_over(self) -> bool:
        """A bounded job has read everything and ended by itself.

        Its run began without faults.
        """
        run = self.checks.state.run
        return run is not None and run.finished and run.ended and self.checks.runs > self._runs_before

    def _unrest(self) -> list[str]:
        """The differences from the state that the end of a history must have."""
        state = self.checks.state
        if trouble := self._unrest_of_coordinators():
            return trouble
        if self.checks.foreign_left:
            return [f"foreign records of {sorted(map(repr, self.checks.foreign_left))} are not undone"]
        living = {container.processor_id for container in self.containers if container.alive}
        if self.kind is Kind.BOUNDED:
            return self._unrest_of_bounded(living)
        alive = {container.execution_id for container in self.containers if container.alive}
        living |= {placed.processor_id for placed in state.placed.values() if placed.execution_id in alive}
        if state.generation is None or {*state.generation.processor_ids} != living:
            return [f"the plan is not for {sorted(living)}"]
        return self._unrest_of_tasks()

    def _unrest_of_coordinators(self) -> list[str]:
        """One leads, without trouble; there is a plan, and every request is answered."""
        state = self.checks.state
        leaders = [candidate for candidate in self.candidates if candidate.service.is_leader]
        if [candidate.name for candidate in leaders] != sorted(self.elected):
            return [f"leading are {[candidate.name for candidate in leaders]}"]
        if leaders[0].service.status().trouble:
            return [leaders[0].service.status().trouble]
        if not state.plan:
            return ["there is no plan"]
        return self.operator.unanswered(state, self.checks.ended)

    def _unrest_of_tasks(self) -> list[str]:
        """Every partition is read, and every task run, to the end of its input."""
        state = self.checks.state
        ssps = {str(ssp_kb.ssp) for task in state.plan for ssp_kb in task.positions}
        if len(ssps) != sum(self.counts[stream] for stream in {ssp.rpartition(".")[0] for ssp in ssps}):
            return [f"of {self.counts} partitions only {sorted(ssps)} are planned"]
        # Of two processes of one execution, the one that lives and is recorded.
        container_of = {
            container.execution_id: container
            for container in sorted(
                self.containers, key=lambda container: (container.alive, self._is_recorded(container))
            )
        }
        owned = owners(state)
        unrest = []
        for planned in state.plan:
            grant = owned.get(planned.task_name)
            owner = None if grant is None else container_of[grant.execution_id]
            if grant is None or owner is None or not owner.alive:
                unrest.append(f"{planned.task_name} has no owner")
            elif (
                grant not in owner.serving or state.containers[owner.execution_id].phase is not ContainerPhase.RUNNING
            ):
                unrest.append(f"{planned.task_name} is not run by {owner.execution_id}")
            elif any(
                self.ledger.done((kb.ssp, kb.reader))[bucket] != self.inputs.end(kb.ssp)
                for kb in planned.positions
                for bucket in range(kb.bucket, FINEST, kb.factor)
            ):
                unrest.append(f"{planned.task_name} has input left")
        return unrest

    def _is_recorded(self, container: SimulatedContainer) -> bool:
        known = self.checks.state.containers.get(container.execution_id)
        return known is not None and known.pid == container.pid

    def _unrest_of_bounded(self, living: Collection[str]) -> list[str]:
        if not self._is_over() or living:
            return [f"the run is not over, there are {sorted(living)}"]
        return [
            f"{kb} was read to {done}, its end is {end}"
            for planned in self.checks.state.plan
            for kb in planned.positions
            for bucket in range(kb.bucket, FINEST, kb.factor)
            for done, end in [
                (self.ledger.done((kb.ssp, ""))[bucket], self.checks.state.input_ends[kb.ssp].offset_end)
            ]
            # Positions that were only read past at the end need not be recorded.
            if done > end or self.inputs.has(kb.ssp, bucket, done, end)
        ]

    # --- making things ---

    def _an_operator(self) -> Operator:
        return Operator(self.placement, self.random)

    def _launch_truth(self) -> LaunchTruth:
        return NobodyLaunched()

    def _weighted(self) -> Sequence[tuple[Event, float]]:
        """The events, and their frequencies."""
        if self.kind is Kind.FOREIGN:
            return *_WEIGHTED, (environment.another_program_writes, 6)
        return _WEIGHTED

    def a_candidate(self, name: str) -> CoordinatorProcess:
        process = CoordinatorProcess(
            world=self,
            name=name,
            host=HOSTS[self.random.randrange(len(HOSTS))],
            pid=self._next_pid(),
            skew_ms=self.random.randrange(1_000_000),
            config=self.submission.config,
        )
        self._pids[process.pid] = process
        return process

    def a_submission(self, config: JobConfig) -> SubmitJob:
        self._submissions += 1
        return a_submission(
            config=config,
            partition_counts=dict(self.counts),
            cause=f"submit-{self._submissions}",
        )

    def _weight(self, event: Event, weight: float) -> float:
        if self.kind is Kind.WALK:
            weight = _OF_A_WALK.get(event, weight)
        return weight if weight > 2 else weight * self.random.choice((0.2, 1, 1, 3))

    def _next_pid(self) -> int:
        self._pid += 1
        return self._pid

    def factor(self) -> int:
        return 1 if self.checks.state.factor is None else self.checks.state.factor.factor

    def factors(self) -> list[int]:
        """The factors that may be asked for, seldom the one in force."""
        partition_count, now = self.partition_count(), self.factor()
        affordable = [factor for factor in FACTORS if factor * partition_count <= self.positions_max] or [1]
        others = [factor for factor in affordable if factor != now]
        return others if others and self.random.random() < 0.9 else affordable

    def partition_count(self) -> int:
        """Of the inputs that are divided among the tasks."""
        return sum(count for stream, count in self.counts.items() if stream != RULES)

    def a_running_container(self) -> SimulatedContainer | None:
        return self.pick([container for container in self.containers if container.alive and not container.paused])

    def pick(self, items: list[T]) -> T | None:
        return items[self.random.randrange(len(items))] if items else None


_HISTORIES_THAT_LOSE_ANSWERS = 0.15
_LOSES_ANSWERS = 0.3
"""Of the containers of such a history, those whose link breaks in one direction for ever."""
_STANDSTILL = {
    "before take-over": 0.08,
    "after take-over": 0.08,
    "read": 0.08,
    "fence": 0.05,
    "after fence": 0.05,
    "before positions": 0.05,
    "after positions": 0.05,
    "before append": 0.03,
    "after append": 0.03,
}
"""How often a coordinator is paused there; more often at risky steps."""
_FRAGILE = ("fence", "before positions")
_IDLE = ("has nothing to do", "has no lease", "waits for a lease", "waits for positions")
"""The steps of a container that cannot come further."""

_WEIGHTED: tuple[tuple[Event, float], ...] = (
    (coordinators.coordinator_round, 22),
    (containers.container_follows, 12),
    (containers.container_works, 30),
    (containers.container_says, 16),
    (World._message_arrives, 22),
    (environment.time_passes, 9),
    (inputs.input_arrives, 8),
    (containers.container_starts, 4),
    (environment.time_leaps, 0.6),
    (environment.wall_clock_jumps, 0.6),
    (containers.container_dies, 0.8),
    (containers.commit_of_the_dead_arrives, 1.5),
    (containers.container_pauses, 0.8),
    (containers.container_continues, 1.6),
    (containers.container_is_asked_to_stop, 0.9),
    (coordinators.coordinator_dies, 0.3),
    (coordinators.coordinator_comes_back, 1.5),
    (coordinators.coordinator_pauses, 0.6),
    (coordinators.coordinator_continues, 1.5),
    (coordinators.election, 1.2),
    (environment.broker_goes_away, 0.6),
    (environment.stream_is_compacted, 0.8),
    (environment.checkpoints_are_compacted, 0.5),
    (inputs.input_grows, 0.5),
    (coordinators.topics_are_looked_at, 1.5),
    (operator.operator_changes_the_configuration, 0.2),
    (containers.all_stop, 0.15),
    (operator.operator_asks, 1.5),
    (operator.operator_scales, 2),
    (operator.operator_rewinds, 0.7),
    (coordinators.inbox_is_read, 4),
    (World._all_continue, 0),
)

_OF_A_WALK: Mapping[Event, float] = {
    World._all_continue: 30,
    operator.operator_scales: 6,
    inputs.input_grows: 2,
    containers.container_starts: 6,
    containers.container_dies: 2,
    containers.container_is_asked_to_stop: 2,
    coordinators.coordinator_dies: 1,
    coordinators.coordinator_comes_back: 3,
    operator.operator_asks: 0.5,
}
"""How often that comes in a walk."""
