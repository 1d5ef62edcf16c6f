"""Ports of the container's driver: each one is minimal, and adapters implement it.

The ports of the Python workers are in `container.task.ports`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from samzapy.container.task.ports import CrashPoints, TaskEnvironment
from samzapy.container.task.work_plan import Report, WorkPlan
from samzapy.errors import SamzapyError, TemporaryError, UndeliveredError
from samzapy.model.failing import Failing
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.log import LogRecord

_WORKER_DIED = "Python worker exited unexpectedly"


class Clock(Protocol):
    def monotonic_ms(self) -> int: ...
    def monotonic_ns(self) -> int: ...
    def wall_ms(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBounds:
    """First offset a partition still holds, and its end (of committed data)."""

    offset_first: int
    offset_end: int


ChangelogPlace = tuple[str, int, int]
"""From where a changelog is read: store, partition, offset."""


class Topics(Protocol):
    """Reads of Kafka that a container needs to start and to know its lag."""

    def checkpoint_records(self) -> Sequence[LogRecord]:
        """Every committed record of the checkpoint topic, read to the end."""
        ...

    def changelog_records(self, store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        """Committed changelog records from `offset_from`, read to the end."""
        ...

    def read_ahead(self, places: Sequence[ChangelogPlace]) -> None:
        """Fetch the records that `changelog_records` will ask for, and no others.

        This only saves time: records that are committed afterwards are read as well.
        """
        ...

    def changelog_bounds(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], TopicBounds]:
        """The bounds of changelog partitions; `offset_end` includes open transactions."""
        ...

    def input_bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        """Bounds of input partitions.

        Raises:
            BrokerUnavailableError: no broker answers within `wait_ms`.
        """
        ...

    def changelog_topic_ids(self, stores: Sequence[str]) -> Mapping[str, str]:
        """The cluster's ids of the changelogs. Raises MissingTopicError if one is missing."""
        ...

    def input_topic_ids(self, streams: Sequence[SystemStream]) -> Mapping[SystemStream, str]:
        """The cluster's ids of inputs, without those that are not there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRead:
    """The records of a partition since the last poll.

    Attributes:
        offset_next: where to read on.
        offset_end: where the partition ended, with what is not committed.
        is_at_end: nothing more was committed, as far as is known.
    """

    records: Sequence[LogRecord]
    offset_next: int
    offset_end: int
    is_at_end: bool


class Tail(Protocol):
    """Follows committed records of changelogs; never waits for a transaction."""

    def assign(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Follow exactly these partitions from these offsets; none: close the connection."""
        ...

    def poll(self, count_max: int) -> Mapping[tuple[str, int], TailRead]:
        """At most `count_max` records, by partition. Never waits for long.

        A broker that is away, and for a while a topic that was deleted, look like one to which nothing comes.

        Raises:
            LostRangeError: a changelog does not hold an offset any more that is to be read.
            DataError: there is no such changelog, or it may not be read.
        """
        ...


class CoordinatorStream(Protocol):
    """The coordinator stream, followed from its beginning."""

    def poll(self) -> Sequence[LogRecord]:
        """Newly committed records; may be empty. Never waits for long."""
        ...

    def to_the_end(self) -> Sequence[LogRecord]:
        """Everything committed that was not polled yet, up to the end."""
        ...

    def offset_next(self) -> int:
        """The offset up to which records were handed out."""
        ...

    def silent_ms(self) -> int:
        """For how long no broker has answered `poll`; 0 while one does."""
        ...


class Slots(Protocol):
    """All worker slots of this execution, from the driver's side."""

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
        """Route and offset of each message that workers noted last (`SlotGuard.note`)."""
        ...

    def renew(self, slots: Sequence[int]) -> None:
        """Mark slots whose ids were initialised: nothing is open, producers are fenced."""
        ...

    def admit(self, query_number: int) -> None:
        """Let in the workers of this query only."""
        ...

    def kill_holders(self) -> None:
        """End every worker that is in a slot."""
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
        """Let its client call back. Never raises.

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
        """Let go of the id."""
        ...


class StateEnvironment(TaskEnvironment, Protocol):
    """A task's environment while the driver has it open."""

    def sync(self) -> None:
        """Force all commits to disk.

        Until the next commit, the environment may then be used after a reboot too.
        """
        ...

    def hand_over(self, stores: Sequence[str], heirs: Sequence[Self], heir_of_bucket: Sequence[int]) -> None:
        """Copy entries of `stores` into other environments, by their key bucket.

        Args:
            heir_of_bucket: by bucket, the index of its heir, -1 for none; as many as the factor they are of.

        Raises:
            LocalStateError: this one cannot be read, or one of `heirs` not be written. They may hold a part then.
        """
        ...

    def close(self) -> None: ...

    @property
    def directory(self) -> str: ...


class StateDirectory(Protocol):
    """The local state of one task on this host."""

    def open(self) -> StateEnvironment:
        """The environment in use; a fresh one if there is none, or it is of no use.

        It is of no use when it is damaged, or locked by somebody else, or when the host was rebooted since and it had
        not been synced: it may be torn then, and is not looked into.

        Raises:
            LocalStateError: no fresh one can be made: the disk is full.
        """
        ...

    def fresh(self) -> StateEnvironment:
        """A new, empty environment in place of the one in use.

        Raises:
            LocalStateError: the disk is full.
        """
        ...

    def existing(self) -> StateEnvironment | None:
        """The environment in use, if there is one, and it is of use (`open`).

        Raises:
            DeadlineError: somebody else keeps its lock.
        """
        ...

    def remove(self) -> None:
        """Remove everything."""
        ...

    def unused_since_ms(self) -> int | None:
        """Wall clock of the last write; None if unknown, or another process has it open.

        Not to be called for an environment that this process has open.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """A micro-batch ran to its end.

    Attributes:
        offsets_end: where it ended, in each partition it read.
        duration_ns: how long its tasks ran, from the first one's start to the last one's end.
        keyhash_ns: what the key bucket of one record takes to compute; 0 while there is one bucket, or it is not known.
    """

    reports: Sequence[Report]
    offsets_end: Mapping[SystemStreamPartition, int]
    duration_ns: int = 0
    keyhash_ns: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFailed:
    """The query is dead; the reason is for the operator.

    kind: the error's class, if it was one of ours; it says who can do something about it.
    """

    reason: str
    kind: type[SamzapyError] = SamzapyError

    @property
    def is_outage(self) -> bool:
        """True if brokers did not answer in time, which no record causes."""
        return issubclass(self.kind, TemporaryError | UndeliveredError)

    @property
    def is_of_a_killed_worker(self) -> bool:
        """True if a worker process ended without an error of its own, as by a signal."""
        return self.kind is SamzapyError and _WORKER_DIED in self.reason


QueryEvent = BatchDone | QueryFailed


class Query(Protocol):
    """The streaming query; at most one runs."""

    def start(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> None: ...

    def rehearse(self, plan: WorkPlan, ssp: SystemStreamPartition, offset: int) -> None:
        """Warm up the query: Spark, source and workers run once without a record.

        The first query of a container takes several times as long to begin as the next ones. It is ended by `start`,
        `drain` and `stop`; should it fail, that is told in the log and nothing more.

        Args:
            plan: its routes are those that may be granted; nothing is done for them.
            ssp: no input of the job's, with records behind `offset`; they are read and dropped.
        """
        ...

    def rehearses(self) -> bool:
        """True while a warm-up runs."""
        ...

    def next_event(self, timeout_ms: int) -> QueryEvent | None: ...

    def batch_runs_ms(self) -> int:
        """For how long the micro-batch has been running that runs now; 0 between two."""
        ...

    def drain(self, timeout_ms: int) -> bool:
        """Let the running batch finish, then stop. False if it did not finish in time."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatContent:
    """The content of the next heartbeat; offset and list are of one moment.

    `reason`: why it stopped, or is about to end with `exit_code` because of an error (0: there is none). `restart`: the
    newest order to restart that the query which runs knows. `warm`: how ready an execution is that is to have its
    processor's state at hand; None where it is not. `failing`: that its query fails without a commit, or None. `step`:
    of the start procedure, while it is under way; else empty. `kafka_silent_ms`: for how long no broker has let it read
    the coordinator stream on; 0 while one does.
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
    step: str = ""
    kafka_silent_ms: int = 0


class Heartbeats(Protocol):
    """Sends heartbeats with the content published last, and keeps the lease."""

    def publish(self, content: HeartbeatContent) -> None: ...

    def given_up(self) -> str | None:
        """The coordinator's reason why this execution is to stop; None while it is alive."""
        ...

    def lease_ran_out_at_ms(self) -> int | None:
        """Monotonic time at which the lease ran out; None while it holds."""
        ...

    def send_now(self, timeout_ms: int) -> bool:
        """Send the content at once; whether it was answered."""
        ...


class StopRequest(Protocol):
    """The request to drain this process (SIGTERM, Ctrl-C)."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPorts:
    """All ports of a container. `tasks_here`: tasks with local state on this host."""

    clock: Clock
    stream: CoordinatorStream
    topics: Topics
    tail: Tail
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerIdentity:
    """This execution; `slot_count` as recorded before the first grant."""

    execution_id: ExecutionId
    slot_count: int
    job_file: str
    scratch_dir: str
