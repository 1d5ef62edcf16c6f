"""Commands: imperatives are requests, past tenses are external events.

A command carries everything that a decision depends on and that is not on the log: time, ids, the state of the cluster.
So two coordinators with equal state that get the same command decide the same (law L7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from samzapy.config import AcceptedLoss, JobConfig
from samzapy.coordinator.grant_values import ContainerGone, HeldGrant, LossUsed, Position
from samzapy.model.container import ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.model.failing import Failing
from samzapy.model.grant import BucketStart
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import Launched
from samzapy.model.placement import StatusCode
from samzapy.model.slow_message import SlowMessage
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.store_size import StoreSize
from samzapy.model.task_stats import NOTHING_MEASURED, TaskStats
from samzapy.model.topic_checks import Cluster, TopicFound
from samzapy.plan.groupers import NO_GROUPERS, Groupers
from samzapy.stream.placement import Requested, Unreadable
from samzapy.stream.records import SchemaPut


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTerm:
    """Begin the term after `term_before`.

    The leader has fenced its predecessor and read to the end (law L4).

    Attributes:
        term_before: the last term on the log, 0 on a new stream; by it a repetition is recognised.
        version: of samzapy.
        schemas: the schemas that this release writes with.
    """

    term_before: int
    job_name: str
    job_id: str
    coordinator_id: str
    host: str
    boot_id: str
    pid: int
    process_started_ms: int
    url: str
    started_at_ms: int
    version: str = ""
    schemas: tuple[SchemaPut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFound:
    """An input as the cluster has it now."""

    system_stream: SystemStream
    partition_count: int
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopicFound:
    """A topic of samzapy's own as the cluster has it now."""

    name: str
    topic_id: str
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitJob:
    """Run the job with this configuration, on all processors that join.

    Attributes:
        inputs: one for each stream that `config` reads, broadcast ones too.
        own_topics: coordinator, checkpoint and changelog topics.
        cause, actor: id of the submission and who made it, for the audit.
        groupers: the job's own, from the code beside the submitter's job file (law L10).
        container_count: how many containers the coordinator keeps running; None: they are self-managed.
        run_over: the run that was over when the submitter started, so that the next one is to begin; empty: none.
            Needed where no processor joins by itself.
        expected_generation: of the plan that the submitter has looked at, 0 for none; None: any.
        now_ms: wall clock at which it arrived.
    """

    config: JobConfig
    inputs: tuple[InputFound, ...]
    own_topics: tuple[OwnTopicFound, ...]
    cause: str
    actor: str
    groupers: Groupers = NO_GROUPERS
    container_count: int | None = None
    run_over: str = ""
    expected_generation: int | None = None
    now_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Counters of one execution since its start, for people.

    Only `coordinator.inputs.growth` decides on them, on the positions.

    Attributes:
        at_ms: the container's monotonic time of the counters; rates are differences over it.
        recoveries: queries that failed and were started again.
        batch_ns: the time of its micro-batches.
        input_ns: the time that its workers waited for rows and unpacked them.
        keyhash_ns: the measured time to compute the key buckets of the records it read.
        offsets_read: the offsets it has passed in the partitions that it reads.
        skipped: records that it read and did not handle, mostly of other containers' key buckets.
        restored, restore_total: how many offsets of the changelogs a start has read, of how many.
        restore_left_ms: its estimate of the time left; all three are 0 unless a start takes long.
        tasks: of the tasks that are reported one by one; `other_tasks` is the sum of the `other_task_count` others.
        stores: the sizes of the stores of all its tasks together; empty where a release does not report them.
    """

    at_ms: int = 0
    records_in: int = 0
    records_out: int = 0
    dead_letters: int = 0
    commits: int = 0
    batches: int = 0
    recoveries: int = 0
    batch_ns: int = 0
    input_ns: int = 0
    keyhash_ns: int = 0
    offsets_read: int = 0
    skipped: int = 0
    restored: int = 0
    restore_total: int = 0
    restore_left_ms: int = 0
    positions: Mapping[SspKeyBucket, Position] = field(default_factory=dict)
    tasks: Mapping[TaskName, TaskStats] = field(default_factory=dict)
    other_tasks: TaskStats = NOTHING_MEASURED
    other_task_count: int = 0
    stores: Mapping[str, StoreSize] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The state of a container; complete, so losing one heartbeat loses nothing.

    Attributes:
        job: `<job.name>-<job.id>` that the container works for.
        state: STARTED, RUNNING or STOPPED, as the container reports it.
        stream_offset: the next offset of the coordinator stream that it will read, at the same moment as `held`.
        held: all grants that it has read and not released.
        finished: all its grants have an end, were read to it, and are committed.
        accepted_losses: ranges of inputs that an operator gave up when this execution was started.
        comes_back: see `model.container.Container`.
        restart: the number of the newest restart order that it had read when it started its query.
        warm: the progress of a standby, or of a reserve that runs nothing.
        failing: its query fails without a commit; None: it does not.
        exit_code: the code with which its process is about to end because of the error in `reason`; 0: it works.
        end: its report on that end; None: it works, or is of an earlier release.
        former_ends: reports of earlier containers that the stream does not have.
        step: the current step of the start procedure; empty: none.
        slow_messages: the messages that user code has had in hand for long.
        unanswered_ms: how long its heartbeats have had no answer, by its clock; 0: the last one had an answer.
        kafka_silent_ms: how long no broker has answered it; 0: one does.
        outputs: the undeclared topics to which containers on its host have sent.
        received_ms: monotonic time at which the coordinator received it.
    """

    job: str
    execution_id: ExecutionId
    processor_id: ProcessorId
    host: str
    fault_domain: str = ""
    boot_id: str
    pid: int
    process_started_ms: int
    slot_count: int
    format_level: int
    state: ContainerPhase
    stream_offset: int
    held: frozenset[HeldGrant]
    reason: str
    figures: Figures
    finished: bool = False
    accepted_losses: tuple[AcceptedLoss, ...] = ()
    comes_back: bool = True
    restart: int = 0
    warm: StandbyProgress | None = None
    failing: Failing | None = None
    exit_code: int = 0
    end: ContainerEnd | None = None
    former_ends: tuple[ContainerEnd, ...] = ()
    step: str = ""
    slow_messages: tuple[SlowMessage, ...] = ()
    unanswered_ms: int = 0
    kafka_silent_ms: int = 0
    outputs: frozenset[str] = frozenset()
    received_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed.

    Attributes:
        lost_ms: a container is declared lost this long after its last heartbeat of this term.
        release_ms: also this long after a plan revoked a grant that it still holds; at least 1.
        lease_ms: also when its heartbeats have had no answer for longer than this; None: this is not checked.
    """

    now_ms: int
    lost_ms: int
    lease_ms: int | None = None
    release_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsLooked:
    """The job's topics as the cluster has them now.

    Attributes:
        described: by name, with settings; None: the topic is missing. Topics that were not asked for are left out.
        topics: the names of all topics of the cluster.
        looked_at_ms: wall clock.
        is_monitoring: whether to read new partitions and topics.
    """

    described: Mapping[str, TopicFound | None]
    cluster: Cluster
    topics: frozenset[str] = frozenset()
    looked_at_ms: int = 0
    is_monitoring: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewInputs:
    """Review which expansions have settled, and which partitions may be read now.

    Attributes:
        settle_ms: this long after an expansion was seen, no producer that keeps order writes by the old count.
        groupers: those of the last submission.
    """

    now_ms: int
    settle_ms: int
    groupers: Groupers = NO_GROUPERS


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsRead:
    """The ends of the partitions that an input had before it grew.

    By partition number; `partition_count` is the count after it.
    """

    system_stream: SystemStream
    partition_count: int
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """The offsets to which a partition can be rewound.

    Attributes:
        offset_first, offset_end: its first offset, and the end of its committed records.
        offset_at: its first record of the given time or later, else its end; None: no time was given.
    """

    offset_first: int
    offset_end: int
    offset_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBoundsRead:
    """The bounds of the inputs that a request is to rewind.

    Attributes:
        now_ms: wall clock.
    """

    uuid: str
    offset_bounds: Mapping[SystemStreamPartition, OffsetBounds]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewMembers:
    """Review whether the plan still fits the living processors.

    Attributes:
        debounce_ms: processors that join while others run are planned this long after the first of them.
        grace_ms: a processor without a living container keeps its tasks this long.
        run_id_next: the id of the run, if one begins now.
        run_over: see `SubmitJob`; with coordinator-managed containers, the next run begins after that one.
        groupers: those of the last submission.
    """

    now_ms: int
    debounce_ms: int
    grace_ms: int
    run_id_next: str
    run_over: str = ""
    groupers: Groupers = NO_GROUPERS


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsRead:
    """The messages of the placement topic from `offset_from` to before `offset_next`.

    Attributes:
        now_ms: wall clock; expiry and age are counted by it, because they must outlive a coordinator.
    """

    offset_from: int
    offset_next: int
    requests: tuple[Requested, ...]
    unreadable: tuple[Unreadable, ...]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewLaunches:
    """Review which containers are to start, to stop, or to be forgotten.

    Attributes:
        now_ms: wall clock, because its limits must outlive a coordinator.
        seed: unique per review; new execution ids are derived from it.
        request_timeout_ms: a container must send a heartbeat within this time after it was requested.
        stop_timeout_ms: a stopping container must end within this time.
        retry_count, retry_window_ms: a processor gets another container after this many failures within this time.
        fails_job: whether one more failure ends the job; else the processor gets no other container within the window.
        has_affinity: whether a processor returns to its last host.
        hosts: all hosts, if the cluster manager knows them; otherwise hosts are known when containers come. By host the
            free places for containers; None: no recent count.
        names_hosts: False: the cluster manager has no hosts by name, so none can be asked for.
        listening_since_ms: wall clock since when this coordinator receives heartbeats.
    """

    now_ms: int
    seed: str
    request_timeout_ms: int
    stop_timeout_ms: int
    retry_count: int
    retry_window_ms: int
    fails_job: bool = True
    has_affinity: bool = True
    hosts: Mapping[str, int | None] = field(default_factory=dict)
    names_hosts: bool = True
    listening_since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesLooked:
    """The launcher's view of started executions; unknown ones are left out.

    `now_ms`: wall clock, by which failures are counted; `retry_window_ms`, `hosts`: see `ReviewLaunches`.
    """

    launched: Mapping[ExecutionId, Launched]
    now_ms: int
    retry_window_ms: int
    hosts: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchTroubles:
    """The current problems of executions that are to be started or killed."""

    troubles: Mapping[ExecutionId, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequests:
    """Review which requests are over, and which are next.

    Attributes:
        expiry_ms: for requests without an expiry of their own; counted from when they were read.
        groupers: those of the last submission.
        launching: how containers are started and stopped; None: they are self-managed.
        tries_max: how many containers are started for a move, one after the other, before it fails.
        release_ms: the time to release a grant before a container is declared lost, as in `Tick`.
        reports_by_ms: wall clock by which each living container has sent a heartbeat to this coordinator.
    """

    now_ms: int
    expiry_ms: int
    groupers: Groupers = NO_GROUPERS
    launching: ReviewLaunches | None = None
    tries_max: int = 3
    release_ms: int = 60_000
    reports_by_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequests:
    """Review which messages to remove, and which uuids to forget.

    Attributes:
        retention_ms: how long the messages of a closed request stay.
        memory_max: how many uuids are remembered, besides those whose messages are still on the topic.
    """

    now_ms: int
    retention_ms: int
    memory_max: int


@dataclass(frozen=True, slots=True)
class ResponsesWritten:
    """Responses that were written to the placement topic.

    `answered`: uuid and the status in the response.
    """

    answered: tuple[tuple[str, StatusCode], ...]


@dataclass(frozen=True, slots=True)
class MessagesRemoved:
    """Requests and responses that were removed from the placement topic.

    All before `offset_next`.
    """

    uuids: tuple[str, ...]
    offset_next: int


@dataclass(frozen=True, slots=True)
class ExecutionFenced:
    """The coordinator has initialised all transactional ids of a lost execution."""

    execution_id: ExecutionId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarts:
    """The starts of a task in its next grant.

    They are computed after its earlier owners were done.

    Attributes:
        ends: the ends of bounded inputs at that time, where the run has not recorded an end yet.
        changelog_ends: by store, the ends of the task's changelogs at that time, where the run has not recorded their
            starts yet.
    """

    task_name: TaskName
    execution_id: ExecutionId
    starts: tuple[BucketStart, ...]
    losses: tuple[LossUsed, ...]
    epoch_rewound: int = 0
    ends: tuple[tuple[SystemStreamPartition, int], ...] = ()
    changelog_ends: tuple[tuple[str, int], ...] = ()
    broadcast_parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsResolved:
    """The starts of tasks of a plan, all from one reading of the positions.

    Attributes:
        epoch_before: the last epoch when the positions were read. A later grant of a task or of its buckets makes the
            starts of that task stale.
    """

    generation: int
    epoch_before: int
    tasks: tuple[TaskStarts, ...]


Command = (
    StartTerm
    | SubmitJob
    | Heartbeat
    | Tick
    | ReviewMembers
    | TopicsLooked
    | ReviewInputs
    | EndsRead
    | OffsetBoundsRead
    | RequestsRead
    | ReviewRequests
    | CollectRequests
    | ResponsesWritten
    | MessagesRemoved
    | ReviewLaunches
    | LaunchesLooked
    | LaunchTroubles
    | ContainerGone
    | ExecutionFenced
    | StartsResolved
)
