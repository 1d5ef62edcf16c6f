"""Commands: imperatives are requests, past tenses are external events.

Everything that a decision depends on and that is not on the log comes in here: time, ids, what a cluster
looks like. So two coordinators with equal state that are told the same decide the same (law L7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from samzapy.config import AcceptedLoss, JobConfig
from samzapy.model.container import ContainerPhase
from samzapy.model.failing import Failing
from samzapy.model.figures import NOTHING_MEASURED, TaskFigures
from samzapy.model.grant import BucketStart
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import Launched
from samzapy.model.placement import StatusCode
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.topic_checks import Cluster, TopicFound
from samzapy.model.warmth import Warmth
from samzapy.plan.groupers import NO_GROUPERS, Groupers
from samzapy.stream.placement import Requested, Unreadable
from samzapy.stream.records import SchemaPut


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTerm:
    """Begin the term after `term_before`, having fenced the predecessor and read to the end (law L4).

    Attributes:
        term_before: the last term on the log, 0 on a new stream; makes a repetition recognisable.
        version: of samzapy.
        schemas: what this release writes with.
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
    """Run the job with this configuration, on whatever processors join.

    Attributes:
        inputs: one for each stream that `config` reads, broadcast ones too.
        own_topics: coordinator, checkpoint and changelog topics.
        cause, actor: id of the submission and who made it, for the audit.
        groupers: the job's own, made from the code beside the job file of whoever submits (law L10).
        container_count: how many containers the coordinator is to keep running; None: people start them.
        run_over: the run that was over when whoever submits was started, so that the next one is to begin; empty where
            none was. Of use where no processor comes by itself.
        expected_generation: of the plan that whoever submits has looked at, 0 for none; None: whichever there is.
        now_ms: when it came, by the wall clock.
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


@dataclass(frozen=True, slots=True, order=True)
class HeldGrant:
    """One entry of a container's list of what it holds."""

    task_name: TaskName
    epoch: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far a container has read an SSPKb, and where the topic ended when it looked.

    `records_in`: how many of its records it has handled; None where that is not known. `bootstrap_end`: up to where it
    is read before the other inputs of its task; 0: nothing waits for it.
    """

    offset_next: int
    offset_end: int
    records_in: int | None = 0
    bootstrap_end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Counters of one execution since it began, for people; no decision looks at them but `coordinator.inputs.growth`
    at the positions.

    Attributes:
        at_ms: the container's monotonic time at which they were so; rates are differences over it.
        recoveries: queries that failed and were started anew.
        batch_ns: the time of its micro-batches.
        input_ns: what its workers waited for rows, and took to unpack them.
        keyhash_ns: what the key buckets of the records it read took to compute, as far as that was measured.
        offsets_read: how far it went on in the partitions that it reads.
        skipped: what it read there and did not handle: mostly the records of other containers' key buckets.
        restored, restore_total: how many offsets of the changelogs a start has read, of how many; like
        restore_left_ms, its estimate of the time left, 0 but while a start takes long.
        tasks: of the tasks that are told one by one; `other_tasks` is the sum of the `other_task_count` others.
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
    tasks: Mapping[TaskName, TaskFigures] = field(default_factory=dict)
    other_tasks: TaskFigures = NOTHING_MEASURED
    other_task_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """All that a container says: level-triggered, so losing one loses nothing.

    Attributes:
        job: `<job.name>-<job.id>` that the container works for.
        state: STARTED, RUNNING or STOPPED; what the container says of itself.
        stream_offset: the next offset of the coordinator stream that it will read. Of one moment with `held`.
        held: every grant it has read and not let go.
        finished: everything it holds has an end and was read to it, and is committed.
        accepted_losses: ranges of inputs that an operator gave up when this execution was started.
        comes_back: as of `model.container.Container`.
        restart: the number of the newest order to restart that it had read when it started the query that runs.
        warm: how ready it is, where it is a standby or a reserve that runs nothing.
        failing: that its query fails without a commit; None where it does not.
        exit_code: what its process is about to end with because of an error, of which `reason` tells; 0 while it works.
        step: of the start procedure that is under way; empty while none is.
        unanswered_ms: for how long its heartbeats have had no answer, by its clock; 0 where the last one had.
        kafka_silent_ms: for how long no broker has answered it; 0 while one does.
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
    warm: Warmth | None = None
    failing: Failing | None = None
    exit_code: int = 0
    step: str = ""
    unanswered_ms: int = 0
    kafka_silent_ms: int = 0
    received_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time went by.

    Attributes:
        lost_ms: a container is given up so long after its last heartbeat of this term.
        release_ms: and so long after a plan took a grant away that it still holds, at least 1.
        lease_ms: and when its heartbeats come and have had no answer for longer than that; None: that is not looked at.
    """

    now_ms: int
    lost_ms: int
    lease_ms: int | None = None
    release_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsLooked:
    """The job's topics as the cluster has them now.

    Attributes:
        found: by name, with their settings; None for one that is not there. One that is left out was not looked for.
        topics: the names of all topics of the cluster.
        looked_at_ms: wall clock.
        is_monitoring: whether partitions and topics that have come are to be taken in.
    """

    found: Mapping[str, TopicFound | None]
    cluster: Cluster
    topics: frozenset[str] = frozenset()
    looked_at_ms: int = 0
    is_monitoring: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewInputs:
    """Look which expansions have settled, and which partitions may be read now.

    Attributes:
        settle_ms: so long after an expansion was seen nobody who keeps order writes by the count before it.
        groupers: those of the last submission.
    """

    now_ms: int
    settle_ms: int
    groupers: Groupers = NO_GROUPERS


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsRead:
    """Where the partitions ended that an input had before it grew to `partition_count`, by their number."""

    system_stream: SystemStream
    partition_count: int
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """Where a partition can be rewound to.

    Attributes:
        offset_first, offset_end: what it holds, up to the end of what is committed.
        offset_at: its first record of the asked time or later, or what comes next; None where no time was asked for.
    """

    offset_first: int
    offset_end: int
    offset_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBoundsRead:
    """What the inputs hold that a request is to rewind.

    Attributes:
        now_ms: wall clock.
    """

    uuid: str
    offset_bounds: Mapping[SystemStreamPartition, OffsetBounds]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewMembers:
    """Look whether the plan still fits those who are there.

    Attributes:
        debounce_ms: processors that join while others run are planned for so long after the first of them.
        grace_ms: a processor without a living container keeps its tasks so long.
        run_id_next: the id of the run that begins now, should one begin.
        run_over: as of `SubmitJob`; where the coordinator starts the containers, the next run begins behind that one.
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
    """What was read of the placement topic from `offset_from` up to, not including, `offset_next`.

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
    """Look which containers are to be started, which are to stop, and of which nothing need be known any more.

    Attributes:
        now_ms: wall clock; what it bounds must outlive a coordinator.
        seed: unique per review; new execution ids are derived from it.
        request_timeout_ms: within it a container must have sent a heartbeat after it was wanted.
        stop_timeout_ms: within it one that was told to stop must have ended.
        retry_count, retry_window_ms: so many failures of a processor's containers within that time are made good by
            another one.
        fails_job: whether one more ends the job; else that processor gets no other container within the window.
        has_affinity: whether a processor comes back to the host where it was.
        hosts: all that there are, where the cluster manager knows them; else those are found out as containers come.
            With each how many containers it still has room for; None where nobody has said so lately.
        names_hosts: False where the cluster manager has said that it has no hosts by name: none can be asked for.
        listening_since_ms: wall clock, since when this coordinator hears who calls.
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
    """What the launcher sees of the executions that were started; of one that is left out nothing is known.

    `now_ms`: wall clock, by which failures are counted; `retry_window_ms`, `hosts` as of `ReviewLaunches`.
    """

    found: Mapping[ExecutionId, Launched]
    now_ms: int
    retry_window_ms: int
    hosts: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchTroubles:
    """What is in the way of executions that are to be started or killed, as their launcher says; all there is now."""

    troubles: Mapping[ExecutionId, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequests:
    """Look which requests are over, and which are next.

    Attributes:
        expiry_ms: for requests that brought none; counted from when they were read.
        groupers: those of the last submission.
        launching: how containers are started and stopped, where the coordinator does that.
        tries_max: so many containers are started for a move, one after the other, before it fails.
        release_ms: who is to let go has so long before it is given up, as of `Tick`.
    """

    now_ms: int
    expiry_ms: int
    groupers: Groupers = NO_GROUPERS
    launching: ReviewLaunches | None = None
    tries_max: int = 3
    release_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequests:
    """Look which messages are to be removed from the placement topic, and which uuids may be forgotten.

    Attributes:
        retention_ms: the messages of a request that is over stay so long.
        memory_max: so many uuids are remembered, and those whose messages still stand.
    """

    now_ms: int
    retention_ms: int
    memory_max: int


@dataclass(frozen=True, slots=True)
class ResponsesWritten:
    """Responses that stand on the placement topic now, by uuid, with the status that they tell."""

    answered: tuple[tuple[str, StatusCode], ...]


@dataclass(frozen=True, slots=True)
class MessagesRemoved:
    """Requests and responses that were removed from the placement topic, up to `offset_next`."""

    uuids: tuple[str, ...]
    offset_next: int


@dataclass(frozen=True, slots=True)
class ContainerGone:
    """The process of an execution is known to have ended without saying so."""

    execution_id: ExecutionId
    reason: str


@dataclass(frozen=True, slots=True)
class ExecutionFenced:
    """All transactional ids of a lost execution have been initialised by the coordinator."""

    execution_id: ExecutionId
    attempt: int


@dataclass(frozen=True, slots=True)
class LossUsed:
    """A start that lay below the log's beginning and was moved there on the operator's word."""

    ssp_kb: SspKeyBucket
    offset_from: int
    offset_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarts:
    """Where a task is to begin in its next grant, computed after its earlier owners were done.

    Attributes:
        ends: where bounded inputs ended when they were read, for those whose end the run has not fixed yet.
        changelog_ends: by store, where the task's changelogs ended then; of those of which it is to be fixed from
            where on they count.
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
    """Where tasks of a plan are to begin, all of them computed from one reading of the positions.

    Attributes:
        epoch_before: the last epoch given out when the positions were read. A grant of a task or of its buckets
            since then makes the answer for it stale.
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
