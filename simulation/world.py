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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from random import Random
from typing import Any, TypeVar

from samzapy.config import JobConfig, differences
from samzapy.coordinator.assignment.grants import input_end, owners
from samzapy.coordinator.assignment.liveness import is_expected, may_register
from samzapy.coordinator.commands import Figures, Heartbeat, HeldGrant, Position, SubmitJob, TopicsLooked
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import BrokerUnavailableError
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.placement import Action, rewind_arguments
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.topic_checks import Cluster, TopicFound
from samzapy.model.topics import checkpoint_topic, coordinator_topic, placement_topic
from samzapy.stream.log import Write
from samzapy.stream.records import FORMAT_LEVEL
from samzapy.testing.builders import a_config, a_submission
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
from simulation.containers import SLOT_COUNT, STOPS_NOW, WORKS_MUCH, SimulatedContainer
from simulation.coordinators import CoordinatorProcess, ProcessEnded
from simulation.inputs import FACTORS, FINEST, Inputs
from simulation.operator import Operator
from simulation.state import BROADCAST, HOSTS, KEYED, Changelogs, Disk

T = TypeVar("T")

EVENT_COUNT = 400
"""Events of one history before its quiet phase."""
TRANSACTION_TIMEOUT_MS = 10_000
QUIET_ROUNDS_MAX = 40
QUIET_ROUND_MS = 4_000
"""A third of a lease: a process that waits for a time-out need not be driven many times for nothing."""
QUIET_STEPS_MAX = 40
"""The most steps of a container in such a round."""
CANDIDATES = ("ann", "bob", "cid")
CONTAINERS_MAX = 6
NESTED_MAX = 12
"""Longest standstill of a coordinator between two effects, in events."""

SETTLE_MS = 3_000
"""A producer may write by the old partition count for so long after a topic has grown."""
GOES_ON_MS = 1_000
STEPS_MAX = 4
"""The most steps of a container between two events."""
FLOOD_MAX = 16
PARTITIONS_MAX = 8
POSITIONS_MAX = 16
POSITIONS_MAX_OF_A_WALK = 72
"""More than that are not asked for: they would cost much and show nothing new."""

PROCESSORS = ("0", "1", "2")
_TIMES = {
    "job_debounce_time_ms": "1500",
    "job_processor_grace_ms": "5000",
    "job_release_timeout_ms": "20000",
    "job_expansion_settle_ms": str(SETTLE_MS),
    "job_placement_expiry_ms": "20000",
    "job_placement_retention_ms": "30000",
    "job_placement_uuids_max": "4",
}


class Kind(StrEnum):
    """A kind of job: the kinds differ in their state, and in their inputs."""

    STATELESS = "stateless"
    KEYED = "keyed"
    RULES = "rules"
    """Keeps keyed state, and reads two partitions of rules in every task, of which each keeps a copy."""
    BOUNDED = "bounded"
    """Keeps keyed state, reads its inputs to where they end, and ends by itself; its next run begins anew."""
    WALK = "walk"
    """As RULES, scaled up and down all the time while its inputs grow and its processes die."""
    FOREIGN = "foreign"
    """As KEYED, while another program writes to the coordinator stream."""
    LAUNCHED = "launched"
    """Keeps keyed state, in containers that its coordinator starts, moves and has standbys for (`launched_world`)."""


_WITHOUT_STATE: tuple[JobConfig, ...] = (
    a_config(**_TIMES),
    a_config(task_inputs="kafka.refunds,kafka.orders", **_TIMES),
    a_config(job_container_lost_ms="20000", job_elasticity_factor="2", **_TIMES),
)
Event = Callable[[Any], None]
"""Something that happens in a world."""
Changing = tuple[JobConfig, ...]
"""Configurations of one job: the operator brings one or the other."""


def _keeping(**more: str) -> tuple[Changing, ...]:
    """A job with state under each of the schemes; its inputs and scheme stay."""
    kinds = []
    for scheme in ("max", "cogroup", "group-by-partition"):
        of_inputs = {"task_inputs": "kafka.orders,kafka.refunds", "task_partition_scheme": scheme}
        of_inputs["local_store_dir"] = "/state"
        given = {f"stores_{KEYED}_scope": "key", **of_inputs, **_TIMES, **more}
        kinds.append((a_config(**given), a_config(job_container_lost_ms="20000", **given)))
    return tuple(kinds)


_LAUNCHED = {
    "cluster-manager_container_request_timeout_ms": "20000",
    "cluster-manager_container_retry_count": "3",
    "cluster-manager_container_retry_window_ms": "30000",
    "job_shutdown_drain_ms": "2000",
    "job_placement_expiry_ms": "60000",
}
_GOES_ON = {
    "cluster-manager_container_retry_count": "1",
    "cluster-manager_container_fail_job_after_retries": "false",
}
"""Without one of its processors, until that is tried again."""
_WITH_RULES = _keeping(**{"task_broadcast_inputs": "kafka.rules#[0-1]", f"stores_{BROADCAST}_scope": "broadcast"})
CONFIGS: Mapping[Kind, tuple[Changing, ...]] = {
    Kind.STATELESS: (_WITHOUT_STATE,),
    Kind.KEYED: _keeping(),
    Kind.RULES: _WITH_RULES,
    Kind.BOUNDED: _keeping(systems_kafka_samza_offset_end="head"),
    Kind.WALK: _WITH_RULES,
    Kind.FOREIGN: _keeping(),
    Kind.LAUNCHED: (
        *_keeping(**_LAUNCHED, job_standbytasks_replication_factor="2"),
        *_keeping(**_LAUNCHED | _GOES_ON),
    ),
}
_KINDS = (Kind.STATELESS, Kind.KEYED, Kind.RULES, Kind.RULES, Kind.BOUNDED)
"""The kinds of a history, if the caller names none."""
_RULES = "kafka.rules"


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
        self.kind = kind or _KINDS[self.random.randrange(len(_KINDS))]
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
        self._broker_away = 0
        self._must_submit = False
        self._runs_before = 0
        self._members = PROCESSORS[: 1 + self.random.randrange(len(PROCESSORS))]
        self._pid = 100
        self._executions = 0
        self._submissions = 0
        self._pids: dict[int, SimulatedContainer | CoordinatorProcess] = {}
        self.counts = {"kafka.orders": 1 + self.random.randrange(3), "kafka.refunds": 1 + self.random.randrange(2)}
        self._positions_max = POSITIONS_MAX
        if self.kind is Kind.WALK:
            self.counts = dict.fromkeys(self.counts, 1)
            self._positions_max = POSITIONS_MAX_OF_A_WALK
        if self.configs[0].broadcast_inputs:
            self.counts[_RULES] = 2
        self.submission = self._a_submission(self.configs[self.random.randrange(2)])
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
            self.inputs.create(_ssps(stream, range(PARTITIONS_MAX)))
        # By the SSP of an added partition: the offsets in older ones that must be done before it is read.
        self._before: dict[SystemStreamPartition, dict[SystemStreamPartition, int]] = {}
        self._noticed_ms: dict[SystemStreamPartition, int] = {}
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
        self.network: list[_Message] = []
        self._set_up()
        self.candidates = [self._a_candidate(name) for name in CANDIDATES[: 2 + self.random.randrange(2)]]
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

    def _fault(self, kind: str, text: str = "") -> None:
        self.faults[kind] += 1
        self.note(f"! {kind} {text}")

    # --- the world as coordinators meet it (coordinators.Surroundings) ---

    def between(self, process: CoordinatorProcess, what: str) -> None:
        if self._quiet:
            return
        luck = self.random.random()
        if luck < 0.0025:
            self._fault("coordinator killed", f"{process.name} {what}")
            raise ProcessEnded
        if luck < _STANDSTILL.get(what, 0.01) and self._depth == 0:
            self._fault("coordinator stands still", f"{process.name} {what}")
            self._depth += 1
            for _ in range(1 + self.random.randrange(NESTED_MAX)):
                self._event()
            self._depth -= 1
            self.note(f"{process.name} goes on")
        if self._broker_away:
            self._broker_away -= 1
            raise BrokerUnavailableError("no broker answers")
        if what in _FRAGILE and self.random.random() < 0.1:
            self._fault("request without an answer", f"{process.name} {what}")
            raise BrokerUnavailableError("no broker answers")

    def trouble_append(self, process: CoordinatorProcess, log: MemoryLog, count: int) -> None:
        if self._quiet:
            return
        luck = self.random.random()
        if luck < 0.02:
            self._fault("append unknown, committed", process.name)
            log.break_next_append(committed=True)
        elif luck < 0.04:
            self._fault("append unknown, aborted", process.name)
            log.break_next_append(committed=False)
        elif luck < 0.05:
            self._fault("append left open", process.name)
            log.hang_next_append()
        elif luck < 0.1:
            survivors = 1 + self.random.randrange(count)
            self._fault("append torn", f"{process.name} after {survivors} of {count}")
            log.tear_next_append(survivors)

    def look(self) -> None:
        runs = self.checks.runs
        self.checks.look()
        if self.kind is Kind.BOUNDED and self.checks.runs != runs:
            # Positions in older partitions are ignored now, so no order is to be kept.
            self._before.clear()

    def process_lives(self, host: str, boot_id: str, pid: int) -> bool | None:
        if boot_id != f"boot-{host}":
            return None
        container = self._pids.get(pid)
        return container is not None and container.alive

    # --- events ---

    def _coordinator_round(self) -> None:
        drivable = [candidate for candidate in self.candidates if is_drivable(candidate)]
        if self.random.random() < 0.7:
            drivable = [
                candidate for candidate in drivable if candidate.service.is_leader or candidate.name in self.elected
            ]
        process = self._pick(drivable)
        if process is not None:
            process.round(self.probe)
            self._check_leader(process)

    def is_elected(self, name: str) -> bool:
        return name in self.elected

    def rejoin_election(self, name: str) -> None:
        """The seat goes to the next, in the order of the candidates."""
        names = [candidate.name for candidate in self.candidates]
        others = [candidate.name for candidate in self.candidates if candidate.name != name and candidate.alive]
        if name in self.elected and others and not self._quiet:
            self.elected = {min(others, key=lambda other: (names.index(other) - names.index(name)) % len(names))}

    def _container_follows(self) -> None:
        container = self._a_running_container()
        if container is not None:
            count = container.follow(None if self.random.random() < 0.7 else 1 + self.random.randrange(4))
            if count:
                self.note(f"{container.execution_id} reads {count}")

    def _container_works(self) -> None:
        container = self._a_running_container()
        for _ in range(1 + self.random.randrange(STEPS_MAX)):
            if container is not None and container.alive:
                did = container.step(self.clock.monotonic_ms(), self.random.random())
                self.note(f"{container.execution_id} {did}")

    def _container_says(self) -> None:
        container = self._a_running_container()
        if container is not None:
            self._send(container)

    def _send(self, container: SimulatedContainer) -> None:
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
                        for ssp_kb, at in container.positions.items()
                    }
                ),
                finished=container.has_finished(),
                warm=container.warmth(),
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
            self._fault("message lost", message.container.execution_id)
            return
        if luck < 0.15:
            self._fault("message doubled", message.container.execution_id)
            self.network.append(message)
        self._deliver(message)

    def _deliver(self, message: _Message) -> None:
        process = next(candidate for candidate in self.candidates if candidate.name == message.to)
        # A paused process reads it when it goes on.
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
            received_ms=process.monotonic_ms(),
        )
        if not process.answers():
            return
        self._check_answer(process)
        state = process.service.status().state
        if may_register(state, heartbeat):
            process.queue.append(heartbeat)
            return
        expected = is_expected(state, heartbeat)
        if expected:
            process.queue.append(heartbeat)
        if container.answers_until_ms is not None and self.clock.monotonic_ms() >= container.answers_until_ms:
            self._fault("answer lost", f"{process.name} to {container.execution_id}")
            return
        container.unanswered_since_ms = None
        if expected:
            container.lease_until_ms = max(container.lease_until_ms, message.sent_ms + process.lease_ms)
        elif container.alive:
            container.said_to_be_lost = True
        self.note(f"{process.name} hears {container.execution_id}{'' if expected else ', which is not expected'}")

    def _time_passes(self) -> None:
        self._advance(self.random.randrange(1, 1500))

    def _time_leaps(self) -> None:
        ms = self.random.choice((6_000, 12_000, 40_000))
        self._fault("time leaps", f"{ms} ms")
        self._advance(ms)

    def _wall_clock_jumps(self) -> None:
        ms = self.random.choice((-3_600_000, -20_000, 20_000, 30 * 86_400_000))
        self._fault("wall clock jumps", f"{ms} ms")
        self.clock.jump_wall(ms)

    def _advance(self, ms: int) -> None:
        self.clock.advance(ms)
        now_ms = self.clock.monotonic_ms()
        for topic in (self.stream, self.checkpoints, self.placement):
            topic.now_ms = now_ms
            for transactional_id, since_ms in tuple(topic.open_since().items()):
                if now_ms - since_ms >= TRANSACTION_TIMEOUT_MS:
                    topic.time_out(transactional_id)
                    self.note(f"the broker ends what {transactional_id} left open")

    def _input_arrives(self, count_max: int = 6) -> None:
        streams = list(self.counts)
        stream = streams[self.random.randrange(len(streams))]
        ssp = SystemStreamPartition.parse(f"{stream}.{self.random.randrange(self.counts[stream])}")
        self.inputs.write(ssp, 1 + self.random.randrange(count_max))
        for added, older in self._before.items():
            if ssp in older and self.clock.monotonic_ms() < self._noticed_ms[added]:
                # By a producer that has not noticed: a key of the added partition may be among it.
                older[ssp] = self.inputs.end(ssp)

    def _container_starts(self) -> None:
        living = [container for container in self.containers if container.alive]
        if len(living) >= CONTAINERS_MAX:
            return
        processor_id = PROCESSORS[self.random.randrange(len(PROCESSORS))]
        if any(container.processor_id == processor_id for container in living) and self.random.random() < 0.5:
            return
        self._start_container(processor_id)

    def _start_container(self, processor_id: str) -> None:
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

    def _container_dies(self) -> None:
        container = self._pick([container for container in self.containers if container.alive])
        if container is not None:
            self._fault("container killed", container.execution_id)
            container.die(self.random.random())

    def _commit_of_the_dead_arrives(self) -> None:
        container = self._pick([container for container in self.containers if container.is_commit_in_flight])
        if container is not None:
            self._fault("commit arrives late", container.execution_id)
            self.note(f"{container.execution_id}, dead, {container.commit_arrives()}")

    def _container_pauses(self) -> None:
        container = self._a_running_container()
        if container is not None:
            self._fault("container stands still", container.execution_id)
            container.paused = True

    def _container_goes_on(self) -> None:
        container = self._pick(
            [
                container
                for container in self.containers
                if container.alive and container.paused and not container.is_hung
            ]
        )
        if container is not None:
            container.paused = False
            self.note(f"{container.execution_id} goes on")

    def _container_is_asked_to_stop(self) -> None:
        container = self._a_running_container()
        if container is not None:
            container.stopping = True
            self.note(f"{container.execution_id} is asked to stop")

    def _coordinator_dies(self) -> None:
        process = self._pick([candidate for candidate in self.candidates if candidate.alive and not candidate.busy])
        if process is not None:
            self._fault("coordinator killed", process.name)
            process.alive = False

    def _coordinator_comes_back(self) -> None:
        for index, process in enumerate(self.candidates):
            if not process.alive:
                self.candidates[index] = self._a_candidate(process.name)
                self.note(f"{process.name} is there again")
                return

    def _coordinator_pauses(self) -> None:
        process = self._pick([candidate for candidate in self.candidates if is_drivable(candidate)])
        if process is not None:
            self._fault("coordinator stands still", process.name)
            process.paused = True

    def _coordinator_goes_on(self) -> None:
        process = self._pick([candidate for candidate in self.candidates if candidate.alive and candidate.paused])
        if process is not None:
            process.paused = False
            self.note(f"{process.name} goes on")

    def _election(self) -> None:
        living = [candidate.name for candidate in self.candidates if candidate.alive]
        if not living:
            return
        self.elected = {living[self.random.randrange(len(living))]}
        if self.random.random() < 0.25:
            self._fault("two are elected")
            self.elected.add(living[self.random.randrange(len(living))])
        self.note(f"elected: {sorted(self.elected)}")

    def _broker_goes_away(self) -> None:
        self._broker_away = 1 + self.random.randrange(4)
        self._fault("broker away", f"for {self._broker_away} requests")

    def _another_program_writes(self) -> None:
        """Another program writes a record, on a key that exists or not.

        It may have any headers except the leader's next ones.
        """
        stranger = MemoryLog(self.stream, "another program")
        stranger.take_over()
        records, _ = self.stream.read_stable(0)
        own = [record for record in records if record.offset not in self.checks.foreign and record.key is not None]
        if not own:
            return
        copied = own[self.random.randrange(len(own))]
        key = copied.key if self.random.random() < 0.8 else self.random.choice((b"\xff", b"config/no.such", b"epoch"))
        value = self.random.choice((None, None, copied.value, b"junk", own[self.random.randrange(len(own))].value))
        headers: dict[str, bytes] = {}
        if self.random.random() < 0.3:
            headers = {name: header for name, header in copied.headers if header is not None}
            if value is not None:
                # Unreadable bytes under a leader's own headers stop readers by design, where a cleaner's pass ends
                # between them and the record that undoes them (docs/internals/adr/0019).
                key, value = copied.key, copied.value
            if self.random.random() < 0.3:
                headers |= {name: str(10**6 + self.random.randrange(9)).encode() for name in ("term", "seq")}
        offset = self.stream.end_offset
        stranger.append_atomically([Write(key=key or b"", value=value, headers=headers)])
        self.checks.foreign.add(offset)
        last = own[-1]
        if (key, value, headers) != (last.key, last.value, dict(last.headers)):
            # An exact copy of the last record of the stream replaces nothing. Once the cleaner has taken the original,
            # readers take the copy for it, and rightly so.
            self.checks.foreign_left.setdefault(key, offset)
        self._fault("another program writes", f"{key!r}: {value!r:.40} at {offset}")

    def _keep_until(self, keep_until: int | None) -> int | None:
        """The cleaner leaves young records alone until a leader has undone foreign ones.

        That takes less time than the lag.
        """
        young = min(self.checks.foreign_left.values(), default=None)
        if young is None:
            return keep_until
        return young if keep_until is None else min(keep_until, young)

    def _stream_is_compacted(self) -> None:
        """Compact the stream as far as the cleaner may go, or less.

        Tombstones live until every reader has seen them.
        """
        end = self.stream.end_offset
        keep_until = None if self.random.random() < 0.5 else self.random.randrange(end + 1)
        keep_until = self._keep_until(keep_until)
        readers = [container.orders.offset_next for container in self.containers if container.alive]
        self.stream.compact(keep_until=keep_until, tombstones_until=min([*readers, end]))
        self.checks.is_compacted = True
        self.note(f"compacted until {keep_until}")
        self._check_replay()

    def _checkpoints_are_compacted(self) -> None:
        self.checkpoints.compact(tombstones_until=self.checkpoints.end_offset)
        self.placement.compact(tombstones_until=self.placement.end_offset)
        self.changelogs.compact()

    def _input_grows(self) -> None:
        """Add partitions to an input.

        They are noticed at the next look, or at the next submission.
        """
        stream = "kafka.orders" if self.random.random() < 0.5 else "kafka.refunds"
        before = self.counts[stream]
        if (
            2 * before <= PARTITIONS_MAX
            and (self._partition_count() + before) * self._factor() <= self._positions_max
        ):
            self.counts[stream] = 2 * before
        self.submission = self._a_submission(self.submission.config)
        self.note(f"{stream} has {self.counts[stream]} partitions")
        ssps = _ssps(stream, range(self.counts[stream]))
        if self._was_read(stream):
            for added in ssps[before:]:
                self._before[added] = {ssp: self.inputs.end(ssp) for ssp in ssps[:before]}
                self._noticed_ms[added] = self.clock.monotonic_ms() + SETTLE_MS
        if self.random.random() < 0.5:
            self._hand_in()
        elif self.random.random() < 0.5:
            self._topics_are_looked_at()

    def _was_read(self, stream: str) -> bool:
        grants = self.checks.state.grants.values()
        return any(str(start.ssp_kb.ssp.system_stream) == stream for grant in grants for start in grant.starts)

    def _unread_before(self, ssp: SystemStreamPartition) -> str:
        """Messages of older partitions that must be done before `ssp` is granted.

        Once there are none, there never are.
        """
        unread = [
            f"{older} up to {end}"
            for older, end in self._before.get(ssp, {}).items()
            if self.ledger.has_undone(older, min(end, self._end_of_run(older)))
        ]
        if not unread:
            self._before.pop(ssp, None)
        return ", ".join(unread)

    def _end_of_run(self, ssp: SystemStreamPartition) -> int:
        """The end of a bounded input: messages behind it are not part of the run.

        So nothing waits for them.
        """
        end = input_end(self.checks.state, ssp)
        return self.inputs.end(ssp) if end is None else end

    def _topics_are_looked_at(self) -> None:
        """A leader, or a process that believes to lead, looks at the topics.

        The result may arrive late, and is lost if its term ends.
        """
        process = self._pick(
            [candidate for candidate in self.candidates if is_drivable(candidate) and candidate.service.is_leader]
        )
        if process is not None:
            process.queue.append(self._look_at_topics())

    def _look_at_topics(self) -> TopicsLooked:
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

    def _operator_changes_the_configuration(self) -> None:
        self.submission = self._a_submission(self.configs[self.random.randrange(len(self.configs))])
        self.note(f"configured: {self.submission.cause}")
        if self.random.random() < 0.5:
            self._hand_in()

    def _hand_in(self) -> None:
        leaders = [
            candidate for candidate in self.candidates if is_drivable(candidate) and candidate.service.is_leader
        ]
        if leaders:
            leaders[0].submit(self.submission)
            self._check_leader(leaders[0])

    def _operator_asks(self, action: Action | None = None) -> None:
        run, generation = self.checks.state.run, self.checks.state.generation
        asked = self.operator.ask(
            "" if run is None else run.run_id,
            self._processors_asked_for(),
            self.clock.wall_ms(),
            factors=self._factors(),
            rewind=self._rewind(),
            generation=0 if generation is None else generation.generation,
            action=action,
            containers=self._container_counts(),
        )
        self.note(f"asked: {asked}")

    def _processors_asked_for(self) -> Sequence[str]:
        return PROCESSORS

    def _container_counts(self) -> Sequence[int]:
        """The numbers of containers that may be asked for; none where people start them."""
        return ()

    def _rewind(self) -> Mapping[str, str]:
        """Some place in some input; of a task or a processor, sometimes."""
        streams = sorted(self.counts)
        stream = streams[self.random.randrange(len(streams))]
        partition = self.random.randrange(self.counts[stream]) if self.random.random() < 0.5 else None
        offset = self.random.randrange(1 + self.inputs.end(_ssps(stream, [partition or 0])[0]))
        to = ("oldest", "newest", f"{offset}ms", f"{offset}ms" if partition is None else f"{offset}")
        tasks = [planned.task_name for planned in self.checks.state.plan]
        luck = self.random.random()
        return rewind_arguments(
            stream,
            to[self.random.randrange(len(to))],
            partition=partition,
            task=self._pick(tasks) if luck < 0.3 else None,
            processor=self._pick([*PROCESSORS]) if luck > 0.8 else None,
        )

    def _operator_rewinds(self) -> None:
        self._operator_asks(Action.REWIND)

    def _operator_scales(self) -> None:
        """Ask for several changes of the factor in a row.

        The parts of a partition are then not at one place when the next change comes.
        """
        for _ in range(self._partition_count()):
            self._input_arrives(FLOOD_MAX)
        self._operator_asks(Action.SCALE)

    def _inbox_is_read(self) -> None:
        """A leader, or a process that believes to lead, reads the inbox.

        Its messages may be lost with its term.
        """
        process = self._pick(
            [candidate for candidate in self.candidates if is_drivable(candidate) and candidate.service.is_leader]
        )
        if process is not None:
            self._read_inbox(process, 1 + self.random.randrange(8))

    def _read_inbox(self, process: CoordinatorProcess, count_max: int | None = None) -> None:
        position = process.service.status().state.inbox.offset_next
        command = read_inbox(self.placement, position, self.clock.wall_ms(), count_max)
        if command.offset_next > position:
            process.queue.append(command)

    def _everybody_goes_on(self) -> None:
        """A second in which every process does its steps.

        A start comes further so, and is killed no less.
        """
        self._advance(GOES_ON_MS)
        process = self._pick(
            [candidate for candidate in self.candidates if is_drivable(candidate) and candidate.service.is_leader]
        )
        if process is not None:
            self._read_inbox(process)
        for message in self.network:
            self._deliver(message)
        self.network.clear()
        for process in [candidate for candidate in self.candidates if is_drivable(candidate)]:
            process.round(self.probe)
            self._check_leader(process)
        for container in [container for container in self.containers if container.alive and not container.paused]:
            container.follow()
            for _ in range(STEPS_MAX):
                if container.alive:
                    self.note(
                        f"{container.execution_id} {container.step(self.clock.monotonic_ms(), self.random.random())}"
                    )
            if container.alive:
                self._send(container)

    def _everybody_stops(self) -> None:
        for container in self.containers:
            container.stopping = True
        self.note("all are asked to stop")

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

    def _check_leader(self, process: CoordinatorProcess) -> None:
        """The leader, by the log, holds in memory the state of the log."""
        if not process.alive or not process.service.is_leader:
            return
        held = process.service.status().state
        truth = self.checks.state
        if held.term == truth.term and not self._are_equal(process, held, truth):
            raise BrokenLawError(f"L5, {process.name} holds another state than the log")

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

    def _check_replay(self) -> None:
        self.checks.whole_l1()
        records, offset_next = self.stream.read_stable(0)
        if offset_next and replay(records, topic=self.stream.name).state != self.checks.state:
            raise BrokenLawError("L1, the compacted stream folds to another state")

    def _check_compactions(self) -> None:
        for _ in range(3):
            end = self.stream.end_offset
            self.stream.compact(
                keep_until=self._keep_until(self.random.randrange(end + 1)),
                tombstones_until=self.random.randrange(end + 1),
            )
            self._check_replay()

    # --- without faults: the beginning of most histories, and the end of all ---

    def _come_to_life(self) -> None:
        """Most histories begin with a running job.

        The others begin with an empty stream and without processes.
        """
        if self.kind is Kind.BOUNDED:
            # One that runs without a fault is over at once.
            for _ in range(2 * sum(self.counts.values())):
                self._input_arrives(FLOOD_MAX)
            return
        if self.random.random() < 0.2:
            return
        self._quiet = True
        for _ in range(self.rounds_to_life):
            self._quiet_round()
        for _ in range(4):
            self._input_arrives()
        self._quiet = False
        self.note("faults begin")

    def _come_to_rest(self) -> None:
        self._quiet = True
        self._broker_away = 0
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
                self.submission = self._a_submission(config)
        while any(not process.alive for process in self.candidates):
            self._coordinator_comes_back()

    def _quiet_round(self) -> None:
        self._advance(QUIET_ROUND_MS)
        if any(not process.alive for process in self.candidates):
            self._everybody_comes_back()
        for message in self.network:
            self._deliver(message)
        self.network.clear()
        for process in self.candidates:
            if process.service.is_leader:
                self._read_inbox(process)
                process.queue.append(self._look_at_topics())
            process.round(self.probe)
            self._check_leader(process)
            if process.service.is_leader and self._must_submit:
                process.submit(self.submission)
                self._must_submit = False
        run = self.checks.state.run
        if run is None or not run.finished or (run.ended and not self._is_over()):
            self._replace_the_gone()
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
            self._send(container)

    def _replace_the_gone(self) -> None:
        living = {
            container.processor_id for container in self.containers if container.alive and not container.stopping
        }
        for processor_id in self._members:
            if processor_id not in living:
                self._start_container(processor_id)

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
        # Of two processes of one execution, the one that lives.
        container_of = {
            unrest.execution_id: unrest for unrest in sorted(self.containers, key=lambda unrest: unrest.alive)
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
            return *_WEIGHTED, (World._another_program_writes, 6)
        return _WEIGHTED

    def _a_candidate(self, name: str) -> CoordinatorProcess:
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

    def _a_submission(self, config: JobConfig) -> SubmitJob:
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

    def _factor(self) -> int:
        return 1 if self.checks.state.factor is None else self.checks.state.factor.factor

    def _factors(self) -> list[int]:
        """The factors that may be asked for, seldom the one in force."""
        partition_count, now = self._partition_count(), self._factor()
        affordable = [factor for factor in FACTORS if factor * partition_count <= self._positions_max] or [1]
        others = [factor for factor in affordable if factor != now]
        return others if others and self.random.random() < 0.9 else affordable

    def _partition_count(self) -> int:
        """Of the inputs that are divided among the tasks."""
        return sum(count for stream, count in self.counts.items() if stream != _RULES)

    def _a_running_container(self) -> SimulatedContainer | None:
        return self._pick([container for container in self.containers if container.alive and not container.paused])

    def _pick(self, items: list[T]) -> T | None:
        return items[self.random.randrange(len(items))] if items else None


def _ssps(stream: str, partitions: Iterable[int]) -> list[SystemStreamPartition]:
    return [SystemStreamPartition.parse(f"{stream}.{partition}") for partition in partitions]


def is_drivable(process: CoordinatorProcess) -> bool:
    return process.alive and not process.paused and not process.busy


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
"""How often a coordinator stands still there; more often where its successor must not be surprised."""
_FRAGILE = ("fence", "before positions")
_IDLE = ("has nothing to do", "has no lease", "waits for a lease", "waits for positions")
"""The steps of a container that cannot come further."""

_WEIGHTED: tuple[tuple[Event, float], ...] = (
    (World._coordinator_round, 22),
    (World._container_follows, 12),
    (World._container_works, 30),
    (World._container_says, 16),
    (World._message_arrives, 22),
    (World._time_passes, 9),
    (World._input_arrives, 8),
    (World._container_starts, 4),
    (World._time_leaps, 0.6),
    (World._wall_clock_jumps, 0.6),
    (World._container_dies, 0.8),
    (World._commit_of_the_dead_arrives, 1.5),
    (World._container_pauses, 0.8),
    (World._container_goes_on, 1.6),
    (World._container_is_asked_to_stop, 0.9),
    (World._coordinator_dies, 0.3),
    (World._coordinator_comes_back, 1.5),
    (World._coordinator_pauses, 0.6),
    (World._coordinator_goes_on, 1.5),
    (World._election, 1.2),
    (World._broker_goes_away, 0.6),
    (World._stream_is_compacted, 0.8),
    (World._checkpoints_are_compacted, 0.5),
    (World._input_grows, 0.5),
    (World._topics_are_looked_at, 1.5),
    (World._operator_changes_the_configuration, 0.2),
    (World._everybody_stops, 0.15),
    (World._operator_asks, 1.5),
    (World._operator_scales, 2),
    (World._operator_rewinds, 0.7),
    (World._inbox_is_read, 4),
    (World._everybody_goes_on, 0),
)

_OF_A_WALK: Mapping[Event, float] = {
    World._everybody_goes_on: 30,
    World._operator_scales: 6,
    World._input_grows: 2,
    World._container_starts: 6,
    World._container_dies: 2,
    World._container_is_asked_to_stop: 2,
    World._coordinator_dies: 1,
    World._coordinator_comes_back: 3,
    World._operator_asks: 0.5,
}
"""How often that comes in a walk."""
