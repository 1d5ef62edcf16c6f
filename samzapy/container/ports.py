"""Ports of the container's driver: minimal interfaces that adapters implement.

The ports of the Python workers are in `container.task.ports`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from samzapy.container.task.ports import CrashPoints, TaskEnvironment
from samzapy.errors import SamzapyError, TemporaryError, UndeliveredError

if TYPE_CHECKING:
    from samzapy.container.task.so_far import SoFar
    from samzapy.container.task.work_plan import Report, WorkPlan
    from samzapy.model.container_end import ContainerEnd
    from samzapy.model.failing import Failing
    from samzapy.model.job import ExecutionId, ProcessorId, TaskName
    from samzapy.model.slow_message import SlowMessage
    from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
    from samzapy.model.standby_progress import StandbyProgress
    from samzapy.stream.log import LogRecord

_WORKER_DIED = "Python worker exited unexpectedly"


class Clock(Protocol):
    def monotonic_ms(self) -> int: ...
    def monotonic_ns(self) -> int: ...
    def wall_ms(self) -> int: ...

    def boot_ms(self) -> int:
        """The host's clock since its boot, which all its processes share."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBounds:
    """The first offset that a partition still has, and the end of its committed data.

    Attributes:
        offset_open: of a changelog, the first record of an open transaction; None: there is none, or it is not known.
    """

    offset_first: int
    offset_end: int
    offset_open: int | None = None


ChangelogPlace = tuple[str, int, int]
"""The first record to read of a changelog: store, partition, offset."""


class Topics(Protocol):
    """Reads topics of Kafka, as a container needs for its start and its lag."""

    def checkpoint_records(self) -> Sequence[LogRecord]:
        """Every committed record of the checkpoint topic, read to the end."""
        ...

    def changelog_records(self, store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        """Committed changelog records from `offset_from`, read to the end."""
        ...

    def read_ahead(self, places: Sequence[ChangelogPlace]) -> None:
        """Fetch the records that `changelog_records` will ask for, and no others.

        This only saves time: `changelog_records` also returns records that are committed afterwards.
        """
        ...

    def changelog_bounds(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], TopicBounds]:
        """The bounds of changelog partitions.

        `offset_end` includes open transactions, and `offset_open` is set.
        """
        ...

    def input_bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        """Bounds of input partitions.

        Raises:
            BrokerUnavailableError: no broker answers within `wait_ms`.
        """
        ...

    def input_high_watermarks(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, int]:
        """The ends of input partitions, with open transactions and what is behind them.

        Raises:
            BrokerUnavailableError: no broker answers within `wait_ms`.
        """
        ...

    def changelog_topic_ids(self, stores: Sequence[str]) -> Mapping[str, str]:
        """The cluster's ids of the changelogs. Raises MissingTopicError if one is missing."""
        ...

    def input_topic_ids(self, streams: Sequence[SystemStream]) -> Mapping[SystemStream, str]:
        """The cluster's ids of the inputs that exist."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRead:
    """The records of a partition since the last poll.

    Attributes:
        offset_next: the offset to read next.
        offset_end: the end of the partition, with uncommitted records.
        is_at_end: no further record was committed, as far as is known.
    """

    records: Sequence[LogRecord]
    offset_next: int
    offset_end: int
    is_at_end: bool


class ChangelogFollower(Protocol):
    """Follows committed records of changelogs; never waits for a transaction."""

    def assign(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Follow exactly these partitions; an empty mapping closes the connection."""
        ...

    def poll(self, count_max: int) -> Mapping[tuple[str, int], ChangelogRead]:
        """At most `count_max` records, by partition. Never waits for long.

        While a broker is unreachable, the result is the same as without new records. For a while this is also true of
        a deleted topic.

        Raises:
            LostRangeError: a changelog no longer has the offset to read next.
            DataError: a changelog does not exist, or may not be read.
        """
        ...


class CoordinatorStream(Protocol):
    """The coordinator stream, followed from its beginning."""

    def poll(self) -> Sequence[LogRecord]:
        """Newly committed records; may be empty. Never waits for long."""
        ...

    def to_the_end(self) -> Sequence[LogRecord]:
        """All committed records that were not polled yet, up to the end."""
        ...

    def offset_next(self) -> int:
        """The offset after the last record that was returned."""
        ...

    def silent_ms(self) -> int:
        """How long no broker has answered `poll`; 0 while one answers."""
        ...


class Slots(Protocol):
    """All worker slots of this execution, as the driver uses them."""

    def take_all(self, wait_ms: int) -> Sequence[int]:
        """Take every slot; kill a worker that keeps one for longer than `wait_ms`.

        Returns:
            The open slots.
        """
        ...

    def block(self, query_number: int) -> None:
        """Write the next query's number into every slot, which blocks older workers."""
        ...

    def in_hand(self, slots: Sequence[int], query_number: int) -> Sequence[tuple[int, int]]:
        """Route and offset of the last message that each worker noted (`SlotGuard.note`)."""
        ...

    def slow_messages(self, query_number: int) -> Sequence[tuple[int, int, int]]:
        """Messages that workers of the query have had in hand for long.

        Each is a route, an offset, and since when by the host's clock since its boot.
        """
        ...

    def so_far(self, query_number: int) -> Sequence[SoFar]:
        """The costs of tasks that workers of the query have not reported yet."""
        ...

    def renew(self, slots: Sequence[int]) -> None:
        """Mark slots after their ids were initialised: nothing is open in them."""
        ...

    def admit(self, query_number: int) -> None:
        """Admit only the workers of this query."""
        ...

    def close_tasks(self, wait_ms: int) -> None:
        """Have the workers close their instances of user code, for `wait_ms` at most.

        Every slot is taken, so none of them is in use.
        """
        ...

    def kill_holders(self) -> None:
        """Kill every worker that is in a slot.

        Raises:
            SamzapyError: one could not be killed; each other one was.
        """
        ...


class Fence(Protocol):
    """Initialises transactional ids.

    Kafka then aborts their open transactions and fences their producers.
    """

    def fence(self, transactional_ids: Sequence[str]) -> None: ...


class ProgressLog(Protocol):
    """Writes progress, and corrections of a start, under the driver's own id."""

    def is_acquired(self) -> bool:
        """True if the id is acquired and usable."""
        ...

    def serve(self) -> None:
        """Run the callbacks of its Kafka client. Never raises.

        The loop calls it many times a minute, also while nothing is written.
        """
        ...

    def acquire(self) -> None:
        """Initialise the id. The caller then reads the coordinator stream to the end."""
        ...

    def append(self, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write to the checkpoint topic, in one transaction."""
        ...

    def write(self, topic: str, partition: int, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write to a topic of the job, in one transaction."""
        ...

    def close(self) -> None:
        """Release the id."""
        ...


class StateEnvironment(TaskEnvironment, Protocol):
    """A task's environment while the driver has it open."""

    def sync(self) -> None:
        """Force all commits to disk.

        Until the next commit, the environment then stays usable after a reboot.
        """
        ...

    def hand_over(self, stores: Sequence[str], targets: Sequence[Self], target_of_bucket: Sequence[int]) -> None:
        """Copy entries of `stores` into the environments of children, by key bucket.

        Args:
            targets: the environments of the children.
            target_of_bucket: by bucket, the index of its child in `targets`, or -1; as long as the children's factor.

        Raises:
            LocalStateError: this one cannot be read, or one of `targets` cannot be written. Children may be incomplete.
        """
        ...

    def close(self) -> None: ...

    @property
    def directory(self) -> str: ...


class StateDirectory(Protocol):
    """The local state of one task on this host."""

    def open(self) -> StateEnvironment:
        """The environment in use, or a fresh one if none is usable.

        An environment is unusable if it is damaged, or another process holds its lock. It is also unusable if the host
        was rebooted since the last write and it had not been synced. It may then be torn, so it is not even opened.

        Raises:
            LocalStateError: no fresh one can be created, because the disk is full.
        """
        ...

    def fresh(self) -> StateEnvironment:
        """A new, empty environment in place of the one in use.

        Raises:
            LocalStateError: the disk is full.
        """
        ...

    def existing(self) -> StateEnvironment | None:
        """The environment in use if it is usable, as in `open`; else None.

        Raises:
            DeadlineError: another process keeps its lock.
        """
        ...

    def remove(self) -> None:
        """Remove all local state of the task."""
        ...

    def unused_since_ms(self) -> int | None:
        """Wall clock of the last write; None if unknown, or another process has it open.

        The caller must not have the environment open in this process.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """A micro-batch ran to its end.

    Attributes:
        offsets_end: the offset at which it ended, by partition that it read.
        duration_ns: the time from the start of its first task to the end of its last one.
        keyhash_ns: the time to compute the key bucket of one record; 0 with a single bucket, or if unknown.
        is_tick: whether it had no rows, and only fired timers.
    """

    reports: Sequence[Report]
    offsets_end: Mapping[SystemStreamPartition, int]
    duration_ns: int = 0
    keyhash_ns: float = 0.0
    is_tick: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TailProgress:
    """The work of tails after the rows of a micro-batch (`container.task.tail`).

    Attributes:
        read_to: by route, the offset up to which everything is handled; routes without news may be missing.
        duration_ns: the time since the event before.
        stalled_ms: how long the slowest tail has not looked up from its work.
        tailing: the routes that have a tail.
    """

    reports: Sequence[Report]
    read_to: Mapping[int, int]
    duration_ns: int = 0
    stalled_ms: int = 0
    tailing: Collection[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFailed:
    """The query ended with an error.

    Attributes:
        reason: a message for the operator.
        kind: the class of the error if it is a SamzapyError; it separates errors of the job, its data and the cluster.
    """

    reason: str
    kind: type[SamzapyError] = SamzapyError

    @property
    def is_outage(self) -> bool:
        """True if brokers did not answer in time; no record causes that."""
        return issubclass(self.kind, TemporaryError | UndeliveredError)

    @property
    def is_of_a_killed_worker(self) -> bool:
        """True if a worker process ended without a Python error, as by a signal."""
        return self.kind is SamzapyError and _WORKER_DIED in self.reason


QueryEvent = BatchDone | TailProgress | QueryFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsSeen:
    """The ends of the inputs at a moment, for workers that keep event time.

    Attributes:
        at_ms: before they were asked for; the host's clock since its boot.
        ends: high watermarks (`container.task.coverage`).
        covered_ms: by key bucket, the newest moment of which everything is handled; missing where none is known.
    """

    at_ms: int
    ends: Mapping[SystemStreamPartition, int]
    covered_ms: Mapping[SspKeyBucket, int]


class Query(Protocol):
    """The streaming query; at most one runs."""

    def start(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> None: ...

    def start_warm_up(self, plan: WorkPlan, ssp: SystemStreamPartition, offset: int) -> None:
        """Warm up the query: Spark, source and workers run once without a record.

        The first query of a container takes several times as long to begin as the next ones. `start`, `drain` and
        `stop` end the warm-up. A failure is only logged.

        Args:
            plan: its routes are those of grants that may follow; nothing is processed for them.
            ssp: a partition with records from `offset` on that is not an input; its records are read and dropped.
        """
        ...

    def is_warming_up(self) -> bool:
        """True while a warm-up runs."""
        ...

    def next_event(self, timeout_ms: int) -> QueryEvent | None: ...

    def tick(self, tasks: Collection[TaskName]) -> bool:
        """Begin a micro-batch without rows, which fires the timers of `tasks`.

        Those of other tasks may fire, too.

        Its tails, if there are any, fire the next ones. Returns False while a micro-batch or its tails run, and once
        the query is to end.
        """
        ...

    def note_ends(self, seen: EndsSeen) -> None:
        """Give the workers the ends of the inputs; only for a job that keeps event time."""
        ...

    def must_restart(self) -> bool:
        """Whether another query is to begin where the tails of this one ended.

        It begins no other micro-batch then.
        """
        ...

    def batch_runs_ms(self) -> int:
        """The duration so far of the current micro-batch, without its tails.

        0 between two, and during a tick.
        """
        ...

    def drain(self, timeout_ms: int) -> bool:
        """Let the current batch finish, then stop. False if it did not finish in time."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatContent:
    """The content of the next heartbeat; offset and list are of one moment.

    Attributes:
        reason: why the container stopped, or is about to end because of an error.
        restart: the number of the newest order to restart that the query was started after.
        warm: the progress of a standby or a reserve; None for other executions.
        failing: the failures of the query since its last commit; None without any.
        exit_code: the exit code that follows because of an error; 0 without one.
        end: the report on that end; None without one.
        former_ends: the reports of earlier containers that the stream does not have (`container.end_reports`).
        step: the current step of a start; empty at other times.
        slow_messages: the messages that user code has had in hand for long.
        kafka_silent_ms: how long no broker has answered reads of the coordinator stream; 0 while one answers.
        outputs: the undeclared topics to which containers on this host have sent.
    """

    coordinator_url: str | None
    term: int
    state: str
    stream_offset: int
    held: tuple[tuple[str, int], ...]
    figures: Mapping[str, Any]
    reason: str = ""
    finished: bool = False
    restart: int = 0
    warm: StandbyProgress | None = None
    failing: Failing | None = None
    exit_code: int = 0
    end: ContainerEnd | None = None
    former_ends: tuple[ContainerEnd, ...] = ()
    step: str = ""
    slow_messages: tuple[SlowMessage, ...] = ()
    kafka_silent_ms: int = 0
    outputs: tuple[str, ...] = ()


class Heartbeats(Protocol):
    """Sends heartbeats with the last published content, and tracks the lease."""

    def publish(self, content: HeartbeatContent) -> None: ...

    def given_up(self) -> str | None:
        """The reason why the coordinator declared this execution lost; None if it did not."""
        ...

    def lease_ran_out_at_ms(self) -> int | None:
        """Monotonic time at which the lease expired; None while it is valid."""
        ...

    def send_now(self, timeout_ms: int) -> bool:
        """Send the content now. True if the coordinator answered."""
        ...


class StopRequest(Protocol):
    """The request to drain this process (SIGTERM, Ctrl-C)."""

    def is_set(self) -> bool: ...


class FormerEnds(Protocol):
    """The reports on their ends that earlier containers left on this host."""

    def unrecorded(self, recorded: Mapping[ProcessorId, ContainerEnd]) -> tuple[ContainerEnd, ...]:
        """The reports that are not among those on the stream; the others are forgotten."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPorts:
    """All ports of a container.

    Attributes:
        tasks_here: lists the tasks with local state on this host.
        former_ends: None where nothing is kept on this host.
        outputs: the undeclared topics to which containers on this host have sent, the newest last.
        in_force: is told the run and the generation in force when they change, for the log; "" and 0 before the first.
    """

    clock: Clock
    stream: CoordinatorStream
    topics: Topics
    changelog_follower: ChangelogFollower
    slots: Slots
    fence: Fence
    progress: ProgressLog
    query: Query
    heartbeats: Heartbeats
    stop: StopRequest
    crash_points: CrashPoints
    state_of: Callable[[str], StateDirectory]
    tasks_here: Callable[[], Sequence[TaskName]]
    pause: Callable[[int], None]
    former_ends: FormerEnds | None = None
    outputs: Callable[[], Sequence[str]] = tuple
    in_force: Callable[[str, int], None] = lambda run_id, generation: None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerIdentity:
    """This execution; `slot_count` was recorded before its first grant."""

    execution_id: ExecutionId
    slot_count: int
    job_file: str
    scratch_dir: str
