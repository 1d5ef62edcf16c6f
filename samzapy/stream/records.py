"""The facts on the coordinator stream and the checkpoint topic: each the whole latest value of its key (L1).

A record class names one kind of fact. Its key is made in `stream.keys` and nowhere else; its Avro schema is
`schemas/<snake_case_name>.avsc` (`stream.codec`). Records that live on the coordinator stream form the union
`CoordinatorRecord`; `CheckpointRecord` is the union of the checkpoint topic. `Removed` is a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass

from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import Container, ProcessorLocality, TaskLocality
from samzapy.model.grant import Grant
from samzapy.model.job import ProcessorId, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition

FORMAT_LEVEL = 1
"""What this release writes and reads (design section 3, upgrades)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPut:
    """`schema/<fingerprint>`: a schema in use, so that an export can be read years later by anybody."""

    fingerprint: str
    schema_json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatLevelPut:
    """`format/level`: what the stream is written in."""

    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentityPut:
    """`job`: whose stream this is. A topic of another job is refused."""

    job_name: str
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TermPut:
    """`term`: the coordinator in office. Written first in each term (law L4).

    `url` is where containers and people reach it; `process_started_ms` and `boot_id` as in `Container`.
    """

    term: int
    coordinator_id: str
    host: str
    boot_id: str
    pid: int
    process_started_ms: int
    url: str
    started_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPut:
    """`config/<key>`: one setting as it is in force; never a secret's value."""

    config_key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPut:
    """`input/<system.stream>`: an input's partitions.

    `partition_count_first` is the count when the job was created; it decides which task an added partition
    joins. `topic_id` is the cluster's id of the topic: another one means deleted and made again.
    """

    system_stream: SystemStream
    partition_count: int
    partition_count_first: int
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopicPut:
    """`topic/<name>`: a topic of samzapy's own, with the identity and partition count it must keep."""

    name: str
    topic_id: str
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogPartitionPut:
    """`changelog/<base task>`: the sticky changelog partition of a base task (factor apart)."""

    task_name: TaskName
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTaskPut:
    """`plan/<generation>/task/<name>`: one task of a plan; in force only under the generation in force.

    `ssp_kbs` and `broadcast_ssps` as in `TaskModel`: what this task alone reads, and what others read too.
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
        """Everything in which the task has a position, so what a grant of it starts: its own SSPKbs come first."""
        return (*self.ssp_kbs, *(SspKeyBucket(ssp, reader=self.task_name) for ssp in self.broadcast_ssps))


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPut:
    """`generation`: makes the plan of that number effective. No number is ever used twice.

    `processor_ids` are the members, in order: for whom the plan was made, also those that got no task.
    """

    generation: int
    factor: int
    task_count: int
    scheme: str
    processor_ids: tuple[ProcessorId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPut:
    """`run`: the run of the job (seed 001), from its first processor to the last that leaves; `run_id` as Samza's.

    Grants up to `epoch_before` are of earlier runs. `finished`: all inputs have an end and were read to it, so
    containers stop by themselves.
    """

    run_id: str
    ended: bool
    epoch_before: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEndPut:
    """`end/<ssp>`: up to which offset (not included) the run `run_id` reads a partition of a bounded input."""

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
    """`epoch`: the last grant epoch given out, so that none is ever repeated."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPut:
    """`grant/<task>/<epoch>`: one task given to one execution, with its starts."""

    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class LossAcceptedPut:
    """`accepted-loss/<ssp_kb>`: the operator gives `[offset_from, offset_to)` of an input up."""

    ssp_kb: SspKeyBucket
    offset_from: int
    offset_to: int


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
    | LossAcceptedPut
    | Removed
)
CheckpointRecord = CheckpointPut | ProgressPut
Record = CoordinatorRecord | CheckpointRecord
