"""What can happen to a coordinator: wishes in the imperative, news from outside in the past tense.

Everything that a decision depends on and that is not on the log comes in here: time, ids, what a cluster
looks like. So two coordinators with equal state that are told the same decide the same (law L7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from samzapy.config import JobConfig
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import BucketStart
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.topic_checks import Cluster, TopicFound
from samzapy.plan.groupers import NO_GROUPERS, Groupers
from samzapy.stream.records import SchemaPut


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTerm:
    """Begin the term after `term_before`, having fenced the predecessor and read to the end (law L4).

    Attributes:
        term_before: the last term on the log, 0 on a new stream; makes a repetition recognisable.
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
    """

    config: JobConfig
    inputs: tuple[InputFound, ...]
    own_topics: tuple[OwnTopicFound, ...]
    cause: str
    actor: str
    groupers: Groupers = NO_GROUPERS


@dataclass(frozen=True, slots=True, order=True)
class HeldGrant:
    """One entry of a container's list of what it holds."""

    task_name: TaskName
    epoch: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far a container has read an SSPKb, and where the topic ended when it looked."""

    offset_next: int
    offset_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Counters of one execution since it began, for people; no decision looks at them."""

    records_in: int = 0
    records_out: int = 0
    dead_letters: int = 0
    commits: int = 0
    batches: int = 0
    positions: Mapping[SspKeyBucket, Position] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """All that a container says (design section 5): level-triggered, so losing one loses nothing.

    Attributes:
        job: `<job.name>-<job.id>` that the container works for.
        state: STARTED, RUNNING or STOPPED; what the container says of itself.
        stream_offset: the next offset of the coordinator stream that it will read. Of one moment with `held`.
        held: every grant it has read and not let go.
        finished: everything it holds has an end and was read to it, and is committed.
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
    received_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time went by.

    Attributes:
        lost_ms: a container is given up so long after its last heartbeat of this term.
        release_ms: and so long after a plan took a grant away that it still holds, at least 1.
    """

    now_ms: int
    lost_ms: int
    release_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsLooked:
    """The job's topics as the cluster has them now.

    Attributes:
        found: by name, with their settings; None for one that is not there. One that is left out was not looked for.
        topics: the names of all topics of the cluster.
    """

    found: Mapping[str, TopicFound | None]
    cluster: Cluster
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewMembers:
    """Look whether the plan still fits those who are there.

    Attributes:
        debounce_ms: processors that join while others run are planned for so long after the first of them.
        grace_ms: a processor without a living container keeps its tasks so long.
        run_id_next: the id of the run that begins now, should one begin.
        groupers: those of the last submission.
    """

    now_ms: int
    debounce_ms: int
    grace_ms: int
    run_id_next: str
    groupers: Groupers = NO_GROUPERS


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
class StartsResolved:
    """Where a task is to begin in its next grant, computed after its earlier owners were done.

    Attributes:
        epoch_before: the last epoch given out when the positions were read. A grant of this task or of its
            buckets since then makes the answer stale.
        ends: where bounded inputs ended when they were read, for those whose end the run has not fixed yet.
    """

    task_name: TaskName
    generation: int
    execution_id: ExecutionId
    epoch_before: int
    starts: tuple[BucketStart, ...]
    losses: tuple[LossUsed, ...]
    ends: tuple[tuple[SystemStreamPartition, int], ...] = ()


Command = (
    StartTerm
    | SubmitJob
    | Heartbeat
    | Tick
    | ReviewMembers
    | TopicsLooked
    | ContainerGone
    | ExecutionFenced
    | StartsResolved
)
