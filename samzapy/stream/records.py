"""The facts on the coordinator stream and the checkpoint topic.

Each is the whole latest value of its key (L1).

A record class names one kind of fact. Its key, its schema and its event names stand in its row in `stream.kinds`.
Records that live on the coordinator stream form the union `CoordinatorRecord`; `CheckpointRecord` is the union of the
checkpoint topic. `Removed` is a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import Container, ProcessorLocality, TaskLocality
from samzapy.model.container_end import ContainerEnd
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.launch import Launch
from samzapy.model.placement import StatusCode
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.startpoint import Startpoint

FORMAT_LEVEL = 1
"""The format level that this release writes and reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPut:
    """`schema/<fingerprint>`: a schema in use.

    So an export can be read years later by any Avro reader.
    """

    fingerprint: str
    schema_json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatLevelPut:
    """`format/level`: the format of the stream."""

    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentityPut:
    """`job`: the owner of this stream. A topic of another job is refused."""

    job_name: str
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TermPut:
    """`term`: the coordinator in office. Written first in each term (law L4).

    `url` is where containers and people reach it; `process_started_ms` and `boot_id` as in `Container`; `version` is
    samzapy's, empty in the records of 0.1.0.
    """

    term: int
    coordinator_id: str
    host: str
    boot_id: str
    pid: int
    process_started_ms: int
    url: str
    started_at_ms: int
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPut:
    """`config/<key>`: one setting as it is in force; never a secret's value."""

    config_key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """More partitions of an input, seen and not read yet.

    See `coordinator.inputs.growth`.

    Attributes:
        partition_count: of the topic, with them.
        seen_at_ms: wall clock, for people.
        settled: every producer has had the time to notice them.
        ends: high watermarks of the partitions that were there before, by their number, asked for after that;
            empty until then, and where there were none.
        refused: why the plan cannot have them; empty if it can.
    """

    partition_count: int
    seen_at_ms: int
    settled: bool = False
    ends: tuple[int, ...] = ()
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPut:
    """`input/<system.stream>`: an input's partitions.

    `partition_count` are the partitions that the job reads; the topic may have more, see `expansions`, in the order in
    which they were seen. `partition_count_first` is the count when the job was created, 0 for a topic that came later;
    partitions that were added since are read from their beginning. `topic_id` is the cluster's id of the topic: another
    one means deleted and made again. `gone_at_ms` (wall clock) says that the topic was deleted, and since when that is
    known; 0: it is there. `gone_refused`: why the plan needs it all the same; empty if it does not
    (`coordinator.inputs.removal`). `period`: the number of partitions after which its tasks repeated when it was
    removed from a job with state, so that its keys find their state again; 0: it was not removed. Positions under
    `epoch_before`, or an earlier epoch, belong to another topic of that name and are ignored.
    """

    system_stream: SystemStream
    partition_count: int
    partition_count_first: int
    topic_id: str
    expansions: tuple[Expansion, ...] = ()
    gone_at_ms: int = 0
    gone_refused: str = ""
    period: int = 0
    epoch_before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopicPut:
    """`topic/<name>`: a topic of samzapy's own.

    It must keep its identity and partition count.
    """

    name: str
    topic_id: str
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogPartitionPut:
    """`changelog/<base task>`: the changelog partition that a base task keeps.

    The factor does not change it.
    """

    task_name: TaskName
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTaskPut:
    """`plan/<generation>/task/<name>`: one task of a plan.

    It is in force only under the generation in force.

    `ssp_kbs` and `broadcast_ssps` as in `TaskModel`: the task's own SSPKbs, and the SSPs that others read too.
    """

    generation: int
    task_name: TaskName
    partition_id: int
    mode: str
    processor_id: ProcessorId
    changelog_partition: int
    ssp_kbs: tuple[SspKeyBucket, ...]
    broadcast_ssps: tuple[SystemStreamPartition, ...] = ()

    @property
    def positions(self) -> tuple[SspKeyBucket, ...]:
        """All positions of the task, as a grant starts them.

        Its own SSPKbs come first.
        """
        if not self.broadcast_ssps:
            return self.ssp_kbs
        return (*self.ssp_kbs, *(SspKeyBucket(ssp, reader=self.task_name) for ssp in self.broadcast_ssps))


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPut:
    """`generation`: makes the plan of that number effective.

    No number is ever used twice.

    `processor_ids` are the members that the plan was made for, in order, also those without a task.
    """

    generation: int
    factor: int
    task_count: int
    scheme: str
    processor_ids: tuple[ProcessorId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPut:
    """`run`: the run of the job, from its first processor until the last one leaves.

    `run_id` is as Samza's.

    Grants up to `epoch_before` are of earlier runs. `finished`: all inputs have an end and were read to it, so
    containers stop by themselves. `counts_after`: positions and state of grants up to this epoch are ignored. A run
    whose inputs all have an end begins without the state of earlier ones, and later runs keep to that.
    """

    run_id: str
    ended: bool
    epoch_before: int = 0
    finished: bool = False
    counts_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEndPut:
    """`end/<ssp>`: where the run `run_id` ends a partition of a bounded input.

    The offset is not included.
    """

    ssp: SystemStreamPartition
    run_id: str
    offset_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPut:
    """`container/<execution id>`: the life of one execution."""

    container: Container


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalityPut:
    """`locality/<processor id>`: where a processor last ran."""

    locality: ProcessorLocality


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLocalityPut:
    """`task-locality/<task>`: where a task's state is."""

    locality: TaskLocality


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPut:
    """`epoch`: the last number given to a grant or to startpoints.

    So none is ever repeated.
    """

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPut:
    """`grant/<task>/<epoch>`: one task given to one execution, with its starts."""

    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class StartpointPut:
    """`startpoint/<ssp_kb>`: where a part of an input is to be read from.

    It stays until later grants have taken it up.
    """

    startpoint: Startpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class LossAcceptedPut:
    """`accepted-loss/<ssp_kb>`: the operator gives up a range of an input.

    The range is `[offset_from, offset_to)`.
    """

    ssp_kb: SspKeyBucket
    offset_from: int
    offset_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPut:
    """`request/<uuid>`: a request from the placement topic.

    It stays from its reading to its last answer.

    Attributes:
        offset: where it stood on the placement topic when it was read.
        place: how its messages are written (`stream.placement.Place`), so that the response is written alike.
        deployment_id, processor_id, destination_host, action: as asked; empty where they could not be read.
        arguments: as asked, as a JSON object; empty where there are none.
        request_expiry_ms: 0 where none was given.
        timestamp_ms: as asked; 0 where it is none.
        run_id: the run in which it was read.
        accepted_at_ms, decided_at_ms: wall clock, when it was read and when `status_code` was decided.
        restart: the number of the restart that it became; 0: none.
        execution_id: that a move goes to; empty before it is known, and for other actions.
        phase: how far one is that is under way, or was when it failed; empty for actions that have no phases.
        source_id: the execution that is to stop before another one starts in its place; of a move to a standby, the
            execution that had the tasks when the move began; empty where none is.
        paused_at_ms: wall clock, when the tasks were taken from where they ran; 0 before.
        answered: a response with `status_code` stands on the placement topic.
    """

    uuid: str
    offset: int
    place: str
    action: str
    deployment_id: str
    processor_id: str
    destination_host: str
    arguments: str = ""
    request_expiry_ms: int
    timestamp_ms: int
    run_id: str
    status_code: StatusCode
    response_message: str
    accepted_at_ms: int
    decided_at_ms: int
    restart: int = 0
    execution_id: str = ""
    phase: str = ""
    source_id: str = ""
    paused_at_ms: int = 0
    answered: bool = False


class MemoryPhase(StrEnum):
    """Whether the messages of a finished request are still on the placement topic.

    ANSWERED: they do, for people to read. COLLECTING: they are to be removed. COLLECTED: they were.
    """

    ANSWERED = "ANSWERED"
    COLLECTING = "COLLECTING"
    COLLECTED = "COLLECTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMemoryPut:
    """`request-memory/<uuid>`: a request with a final answer.

    Its uuid is never taken again.

    `offset` is that of the latest message with the uuid; in phase COLLECTED the offset after the tombstones. `run_id`
    is the run in which it was answered. Others as in `RequestPut`.
    """

    uuid: str
    timestamp_ms: int
    place: str
    run_id: str
    status_code: StatusCode
    decided_at_ms: int
    phase: MemoryPhase
    offset: int
    action: str = ""
    processor_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPut:
    """`inbox`: how far the placement topic was read.

    It also has the newest request that was forgotten (-1: none was).
    """

    offset_next: int
    forgotten_timestamp_ms: int = -1
    forgotten_uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPut:
    """`restart/<processor id>`: an order to restart the processor's query.

    A query is new enough if it was started after this was read.

    `number` counts the restarts of the processor; `uuid` is that of the request.
    """

    processor_id: ProcessorId
    number: int
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPut:
    """`placed/<processor id>`: the execution that runs the processor's tasks.

    It may be of another processor.

    Without it that is the processor's own. `uuid` is that of the request; `left_host` the host that it was to leave for
    a standby, which is not where the next one is to stand; empty otherwise.
    """

    processor_id: ProcessorId
    execution_id: ExecutionId
    uuid: str
    left_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPut:
    """`launch/<execution id>`: an execution that the coordinator starts."""

    launch: Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCountPut:
    """`container-count`: how many containers the coordinator keeps running.

    They are the processors 0, 1, ...

    `uuid` is that of the request that asked for it; empty where the configuration did. Without it containers are
    started by people.
    """

    count: int
    uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyPut:
    """`standby/<processor id>`: how many standbys the processor is to have.

    It overrides the configuration.

    `uuid` is that of the request; empty once that has failed and the number is as before.
    """

    processor_id: ProcessorId
    count: int
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedPut:
    """`suspended/<processor id>`: no container of the processor is started.

    The next one would end as `execution_id` did (`coordinator.launching.suspension`).

    `exit_code` is one of `errors.ExitCode`; `reason` is the container's report of its end.
    """

    processor_id: ProcessorId
    execution_id: ExecutionId
    exit_code: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEndPut:
    """`container-end/<processor id>`: the last end of its container by an error.

    A container that stops in good order leaves none, and the record stays (`coordinator.assignment.container_ends`).
    """

    end: ContainerEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorPut:
    """`factor`: key buckets per input partition that the job is to have (SEP-32).

    `uuid` is that of the request that asked for it; empty where the configuration did.
    """

    factor: int
    uuid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A tombstone for `key` (text form as made by `stream.keys`)."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPut:
    """`checkpoint/<ssp_kb>` on the checkpoint topic."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressPut:
    """`progress/<ssp_kb>` on the checkpoint topic."""

    progress: Progress


CoordinatorRecord = (
    SchemaPut
    | FormatLevelPut
    | JobIdentityPut
    | TermPut
    | ConfigPut
    | InputPut
    | OwnTopicPut
    | ChangelogPartitionPut
    | PlannedTaskPut
    | GenerationPut
    | RunPut
    | InputEndPut
    | ContainerPut
    | LocalityPut
    | TaskLocalityPut
    | EpochPut
    | GrantPut
    | StartpointPut
    | LossAcceptedPut
    | RequestPut
    | RequestMemoryPut
    | InboxPut
    | RestartPut
    | PlacedPut
    | LaunchPut
    | ContainerCountPut
    | StandbyPut
    | SuspendedPut
    | ContainerEndPut
    | FactorPut
    | Removed
)
CheckpointRecord = CheckpointPut | ProgressPut
Record = CoordinatorRecord | CheckpointRecord
