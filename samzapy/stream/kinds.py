"""The kinds of records, one row each, with all differences between kinds.

A new kind is its class (`stream.records`), its row here, its schema (`schemas/<schema_name>.avsc`), and the part of
`coordinator.state.CoordinatorState` that holds it. The key, the event names, the codec, the fold and the records of a
state are derived from the row. A kind is looked up by its class or by the first word of its key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from samzapy.model.container import ContainerPhase
from samzapy.model.launch import LaunchPhase
from samzapy.model.placement import StatusCode
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition, is_decimal
from samzapy.stream import forms
from samzapy.stream.records import (
    ChangelogPartitionPut,
    CheckpointPut,
    ConfigPut,
    ContainerCountPut,
    ContainerEndPut,
    ContainerPut,
    EpochPut,
    FactorPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InboxPut,
    InputEndPut,
    InputPut,
    JobIdentityPut,
    LaunchPut,
    LocalityPut,
    LossAcceptedPut,
    MemoryPhase,
    OwnTopicPut,
    PlacedPut,
    PlannedTaskPut,
    ProgressPut,
    Record,
    RequestMemoryPut,
    RequestPut,
    RestartPut,
    RunPut,
    SchemaPut,
    StandbyPut,
    StartpointPut,
    SuspendedPut,
    TaskLocalityPut,
    TermPut,
)


class Namespace(StrEnum):
    """The first word of a key: the kind of fact."""

    SCHEMA = "schema"
    FORMAT = "format"
    JOB = "job"
    TERM = "term"
    CONFIG = "config"
    INPUT = "input"
    TOPIC = "topic"
    CHANGELOG = "changelog"
    PLAN = "plan"
    GENERATION = "generation"
    RUN = "run"
    END = "end"
    CONTAINER = "container"
    LOCALITY = "locality"
    TASK_LOCALITY = "task-locality"
    EPOCH = "epoch"
    GRANT = "grant"
    STARTPOINT = "startpoint"
    ACCEPTED_LOSS = "accepted-loss"
    REQUEST = "request"
    REQUEST_MEMORY = "request-memory"
    INBOX = "inbox"
    RESTART = "restart"
    PLACED = "placed"
    LAUNCH = "launch"
    CONTAINER_COUNT = "container-count"
    STANDBY = "standby"
    SUSPENDED = "suspended"
    CONTAINER_END = "container-end"
    FACTOR = "factor"
    CHECKPOINT = "checkpoint"
    PROGRESS = "progress"


EventOf = Callable[[Any, Record | None], str]
"""The event name of a record, and of the record before it under the same key."""


_DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind:
    """One row of the table.

    The functions in it are made once, of the words that the row is written in (`_kind`).

    Attributes:
        key_pattern: of its keys, with the fields that stand in them: `grant/{grant.task_name}/{grant.epoch}`.
        key_of: the key of a record.
        parts_of: the parts of a key, whose text and whose rest after the first word are given; raises ValueError.
        event: the name of the event, in the past tense.
        removal: the name of the event when the key was removed.
        is_removed: a coordinator removes such keys. Without the others numbers would be given out twice, or positions
            would count for another topic.
        part: the field of the coordinator's state that holds it; empty for positions, which stand on another topic.
        offsets: the field that holds the offset of the record as well; empty where none does.
        is_table: whether there may be many; then the field is a table by `identity`.
        identity: the fields of a record in its key, which tell it from others of its kind.
        identity_of_parts: the same, of the parts of its key.
        value: the part of a record that the state holds.
        record_of: the record, of its identity and its value.
        schema_name: `schemas/<schema_name>.avsc`.
        to_avro, from_avro: the record as Avro's dict, and back.
    """

    record_type: type[Any]
    namespace: Namespace
    key_pattern: str
    key_of: Callable[[Any], str]
    parts_of: Callable[[str, str], tuple[str, ...]]
    event: EventOf
    removal: str
    is_removed: bool
    part: str
    offsets: str
    is_table: bool
    identity: Callable[[Any], Any]
    identity_of_parts: Callable[[Sequence[str]], Any]
    value: Callable[[Any], Any]
    record_of: Callable[[Any, Any], Any]
    schema_name: str
    to_avro: Callable[[Any], dict[str, Any]]
    from_avro: Callable[[dict[str, Any]], Any]


def is_number(text: str) -> bool:
    """Whether `text` is a decimal of as many digits as 64 bits may have."""
    # Python refuses to read thousands of digits, and any client may write such a key.
    return len(text) <= _DIGITS_MAX and is_decimal(text)


def _malformed(text: str, wanted: str) -> ValueError:
    return ValueError(f"wanted a key of the form {wanted}, found {text!r}")


def _itself(record: Any) -> Any:
    return record


# --- how a key is taken apart: of its text and the rest after its first word ---


def _fixed(pattern: str) -> Callable[[str, str], tuple[str, ...]]:
    parts = tuple(pattern.split("/")[1:])

    def parts_of(text: str, rest: str) -> tuple[str, ...]:
        if text != pattern:
            raise _malformed(text, pattern)
        return parts

    return parts_of


def _name(text: str, rest: str) -> tuple[str, ...]:
    if not rest:
        raise _malformed(text, f"{text.partition('/')[0]}/<name>")
    return (rest,)


def _grant_parts(text: str, rest: str) -> tuple[str, ...]:
    task_name, _, epoch = rest.rpartition("/")
    if not task_name or not is_number(epoch):
        raise _malformed(text, "grant/<task>/<epoch>")
    return task_name, epoch


def _planned_task_parts(text: str, rest: str) -> tuple[str, ...]:
    generation, _, tail = rest.partition("/")
    fixed, _, task_name = tail.partition("/")
    if not is_number(generation) or fixed != "task" or not task_name:
        raise _malformed(text, "plan/<generation>/task/<task>")
    return generation, task_name


def _system_stream(text: str, rest: str) -> tuple[str, ...]:
    SystemStream.parse(rest)
    return (rest,)


def _ssp(text: str, rest: str) -> tuple[str, ...]:
    SystemStreamPartition.parse(rest)
    return (rest,)


def _ssp_kb(text: str, rest: str) -> tuple[str, ...]:
    # The three-part form parses too, but as a key it would be a second spelling.
    if str(SspKeyBucket.parse(rest)) != rest:
        namespace = text.partition("/")[0]
        raise _malformed(text, f"{namespace}/<ssp>:<bucket>/<factor> or {namespace}/<ssp>@<task>")
    return (rest,)


# --- event names that depend on more than whether the key is new ---


def _input_event(record: InputPut, before: Record | None) -> str:
    if not isinstance(before, InputPut):
        return "InputRecorded"
    if record.topic_id != before.topic_id:
        return "InputMadeAgain"
    if bool(record.gone_at_ms) != bool(before.gone_at_ms):
        return "InputGone" if record.gone_at_ms else "InputBack"
    if record.gone_refused and not before.gone_refused:
        return "InputNeeded"
    if record.partition_count > before.partition_count:
        return "PartitionsAdded" if before.expansions else "InputExpanded"
    return _expansion_event(record, before)


def _expansion_event(record: InputPut, before: InputPut) -> str:
    """The event of a record that differs from `before` at most in its expansions."""
    if len(record.expansions) > len(before.expansions):
        return "InputExpanded"
    for now, then in zip(record.expansions, before.expansions, strict=False):
        if now.refused and not then.refused:
            return "ExpansionRefused"
        if now.settled and not then.settled:
            return "ExpansionSettled"
        if now.ends != then.ends:
            return "ExpansionEndsRead"
    return "InputChanged"


_CONTAINER_EVENTS: Final[Mapping[ContainerPhase, str]] = {
    ContainerPhase.STARTED: "ContainerStarted",
    ContainerPhase.RUNNING: "ContainerBeganRunning",
    ContainerPhase.STOPPED: "ContainerStopped",
    ContainerPhase.LOST: "ContainerLost",
    ContainerPhase.FENCED: "ContainerFenced",
}
_REQUEST_EVENTS: Final[Mapping[StatusCode, str]] = {
    StatusCode.CREATED: "RequestCreated",
    StatusCode.BAD_REQUEST: "RequestRefused",
    StatusCode.ACCEPTED: "RequestAccepted",
    StatusCode.IN_PROGRESS: "RequestBegun",
    StatusCode.SUCCEEDED: "RequestSucceeded",
    StatusCode.FAILED: "RequestFailed",
}
_LAUNCH_EVENTS: Final[Mapping[LaunchPhase, str]] = {
    LaunchPhase.WANTED: "LaunchWanted",
    LaunchPhase.LAUNCHED: "ContainerLaunched",
    LaunchPhase.STOPPING: "ContainerStopOrdered",
    LaunchPhase.ENDED: "LaunchEnded",
}
_MEMORY_EVENTS: Final[Mapping[MemoryPhase, str]] = {
    MemoryPhase.ANSWERED: "RequestRemembered",
    MemoryPhase.COLLECTING: "RequestOutdated",
    MemoryPhase.COLLECTED: "RequestCollected",
}


def _container_event(record: ContainerPut, before: Record | None) -> str:
    if isinstance(before, ContainerPut) and before.container.phase is record.container.phase:
        return "ContainerUpdated"
    return _CONTAINER_EVENTS[record.container.phase]


def _run_event(record: RunPut, before: Record | None) -> str:
    return "RunEnded" if record.ended else "RunFinished" if record.finished else "RunStarted"


def _grant_event(record: GrantPut, before: Record | None) -> str:
    return "GrantReleased" if record.grant.released else "TaskGranted"


def _request_event(record: RequestPut, before: Record | None) -> str:
    return "RequestAnswered" if record.answered else _REQUEST_EVENTS[record.status_code]


def _memory_event(record: RequestMemoryPut, before: Record | None) -> str:
    return _MEMORY_EVENTS[record.phase]


def _launch_event(record: LaunchPut, before: Record | None) -> str:
    return _LAUNCH_EVENTS[record.launch.phase]


# --- the rows ---


def _kind(
    record_type: type[Any],
    key: str,
    *,
    schema: str,
    part: str = "",
    event: str | tuple[str, str] | EventOf,
    removal: str,
    is_removed: bool = False,
    value: str = "",
    offsets: str = "",
    parts_of: Callable[[str, str], tuple[str, ...]] | None = None,
    reads: Sequence[Callable[[str], Any]] = (str,),
    to_avro: Callable[[Any], dict[str, Any]] | None = None,
    from_avro: Callable[[dict[str, Any]], Any] | None = None,
) -> RecordKind:
    """A row.

    Args:
        event: one name; one for a new key and one for a changed one; or a function.
        value: the field of the record that the state holds; empty: the whole record.
        reads: how each part of a key becomes the field again.
    """
    return RecordKind(
        record_type=record_type,
        namespace=Namespace(key.partition("/")[0]),
        key_pattern=key,
        key_of=_key_writer(key),
        parts_of=parts_of or (_name if _names(key) else _fixed(key)),
        event=_event_of(event),
        removal=removal,
        is_removed=is_removed,
        part=part,
        offsets=offsets,
        is_table=bool(_names(key)),
        identity=_identity(key),
        identity_of_parts=_identity_reader(key, reads),
        value=attrgetter(value) if value else _itself,
        record_of=_record_maker(record_type, key, value),
        schema_name=schema,
        to_avro=to_avro or forms.flat_to(record_type),
        from_avro=from_avro or forms.flat_from(record_type),
    )


def _event_of(event: str | tuple[str, str] | EventOf) -> EventOf:
    if isinstance(event, str):
        return lambda record, before: event
    if isinstance(event, tuple):
        first, changed = event
        return lambda record, before: first if before is None else changed
    return event


def _names(pattern: str) -> Sequence[str]:
    """The fields of the record in its key, for instance `grant.epoch`."""
    return re.findall(r"{([\w.]+)}", pattern)


def _identity(pattern: str) -> Callable[[Any], Any]:
    names = _names(pattern)
    return attrgetter(*names) if names else lambda record: None


def _key_writer(pattern: str) -> Callable[[Any], str]:
    names = _names(pattern)
    if not names:
        return lambda record: pattern
    get: Callable[[Any], Any] = attrgetter(*names)
    if len(names) > 1:
        template = re.sub(r"{[\w.]+}", "%s", pattern)
        return lambda record: template % get(record)
    prefix = pattern.partition("{")[0]
    return lambda record: f"{prefix}{get(record)}"


def _identity_reader(pattern: str, reads: Sequence[Callable[[str], Any]]) -> Callable[[Sequence[str]], Any]:
    if not _names(pattern):
        return lambda parts: None
    if len(reads) == 1:
        read = reads[0]
        return lambda parts: read(parts[0])
    return lambda parts: tuple(read(part) for read, part in zip(reads, parts, strict=True))


def _record_maker(record_type: type[Any], pattern: str, value: str) -> Callable[[Any, Any], Any]:
    names = _names(pattern)
    if not value:
        return lambda identity, held: held
    if all(name.startswith(f"{value}.") for name in names):
        return lambda identity, held: record_type(**{value: held})
    (name,) = names
    return lambda identity, held: record_type(**{name: identity, value: held})


KINDS: Final[tuple[RecordKind, ...]] = (
    _kind(JobIdentityPut, "job", schema="job_identity", part="job", event="JobCreated", removal="JobRemoved"),
    _kind(TermPut, "term", schema="term", part="term", event="TermStarted", removal="TermRemoved"),
    _kind(
        GenerationPut,
        "generation",
        schema="generation",
        part="generation",
        offsets="generation_offset",
        event="GenerationStarted",
        removal="GenerationRemoved",
        to_avro=forms.generation_to,
        from_avro=forms.generation_from,
    ),
    _kind(RunPut, "run", schema="run", part="run", event=_run_event, removal="RunRemoved"),
    _kind(
        FactorPut,
        "factor",
        schema="factor",
        part="factor",
        event=("ElasticityFactorSet", "ElasticityFactorChanged"),
        removal="ElasticityFactorRemoved",
    ),
    _kind(
        FormatLevelPut,
        "format/level",
        schema="format_level",
        part="format_level",
        value="level",
        event=("FormatLevelSet", "FormatLevelRaised"),
        removal="FormatLevelRemoved",
    ),
    _kind(
        EpochPut, "epoch", schema="epoch", part="epoch", value="epoch", event="EpochAdvanced", removal="EpochRemoved"
    ),
    _kind(
        SchemaPut,
        "schema/{fingerprint}",
        schema="schema",
        part="schemas",
        event="SchemaRecorded",
        removal="SchemaRemoved",
    ),
    _kind(
        ConfigPut,
        "config/{config_key}",
        schema="config",
        part="config",
        value="value",
        event=("ConfigSet", "ConfigChanged"),
        removal="ConfigRemoved",
        is_removed=True,
    ),
    _kind(
        InputPut,
        "input/{system_stream}",
        schema="input",
        part="inputs",
        event=_input_event,
        removal="InputRemoved",
        parts_of=_system_stream,
        reads=(SystemStream.parse,),
        to_avro=forms.input_to,
        from_avro=forms.input_from,
    ),
    _kind(
        OwnTopicPut,
        "topic/{name}",
        schema="own_topic",
        part="own_topics",
        event=("TopicRecorded", "TopicChanged"),
        removal="TopicRemoved",
    ),
    _kind(
        ChangelogPartitionPut,
        "changelog/{task_name}",
        schema="changelog_partition",
        part="changelog_partitions",
        value="partition",
        event="ChangelogPartitionAssigned",
        removal="ChangelogPartitionRemoved",
    ),
    _kind(
        PlannedTaskPut,
        "plan/{generation}/task/{task_name}",
        schema="planned_task",
        part="planned_tasks",
        event="TaskPlanned",
        removal="PlannedTaskRemoved",
        is_removed=True,
        parts_of=_planned_task_parts,
        reads=(int, str),
        to_avro=forms.planned_task_to,
        from_avro=forms.planned_task_from,
    ),
    _kind(
        InputEndPut,
        "end/{ssp}",
        schema="input_end",
        part="input_ends",
        event="InputEndFixed",
        removal="InputEndRemoved",
        parts_of=_ssp,
        reads=(SystemStreamPartition.parse,),
        to_avro=forms.input_end_to,
        from_avro=forms.input_end_from,
    ),
    _kind(
        ContainerPut,
        "container/{container.execution_id}",
        schema="container",
        part="containers",
        value="container",
        event=_container_event,
        removal="ContainerForgotten",
        is_removed=True,
        to_avro=forms.container_to,
        from_avro=forms.container_from,
    ),
    _kind(
        LocalityPut,
        "locality/{locality.processor_id}",
        schema="locality",
        part="localities",
        value="locality",
        event=("ProcessorLocated", "ProcessorMoved"),
        removal="LocalityRemoved",
        is_removed=True,
        to_avro=forms.locality_to,
        from_avro=forms.locality_from,
    ),
    _kind(
        TaskLocalityPut,
        "task-locality/{locality.task_name}",
        schema="task_locality",
        part="task_localities",
        value="locality",
        event=("TaskStateLocated", "TaskStateMoved"),
        removal="TaskLocalityRemoved",
        is_removed=True,
        to_avro=forms.task_locality_to,
        from_avro=forms.task_locality_from,
    ),
    _kind(
        GrantPut,
        "grant/{grant.task_name}/{grant.epoch}",
        schema="grant",
        part="grants",
        value="grant",
        event=_grant_event,
        removal="GrantEnded",
        is_removed=True,
        parts_of=_grant_parts,
        reads=(str, int),
        to_avro=forms.grant_to,
        from_avro=forms.grant_from,
    ),
    _kind(
        StartpointPut,
        "startpoint/{startpoint.ssp_kb}",
        schema="startpoint",
        part="startpoints",
        value="startpoint",
        offsets="startpoint_offsets",
        event="StartpointSet",
        removal="StartpointRemoved",
        is_removed=True,
        parts_of=_ssp_kb,
        reads=(SspKeyBucket.parse,),
        to_avro=forms.startpoint_to,
        from_avro=forms.startpoint_from,
    ),
    _kind(
        LossAcceptedPut,
        "accepted-loss/{ssp_kb}",
        schema="loss_accepted",
        part="accepted_losses",
        event="LossAccepted",
        removal="AcceptedLossRemoved",
        parts_of=_ssp_kb,
        reads=(SspKeyBucket.parse,),
        to_avro=forms.loss_accepted_to,
        from_avro=forms.loss_accepted_from,
    ),
    _kind(
        RequestPut,
        "request/{uuid}",
        schema="request",
        part="requests",
        event=_request_event,
        removal="RequestClosed",
        is_removed=True,
        to_avro=forms.request_to,
        from_avro=forms.request_from,
    ),
    _kind(
        RequestMemoryPut,
        "request-memory/{uuid}",
        schema="request_memory",
        part="request_memory",
        event=_memory_event,
        removal="RequestForgotten",
        is_removed=True,
        to_avro=forms.memory_to,
        from_avro=forms.memory_from,
    ),
    _kind(InboxPut, "inbox", schema="inbox", part="inbox", event="InboxRead", removal="InboxRemoved"),
    _kind(
        RestartPut,
        "restart/{processor_id}",
        schema="restart",
        part="restarts",
        event="QueryRestartOrdered",
        removal="QueryRestartRemoved",
    ),
    _kind(
        PlacedPut,
        "placed/{processor_id}",
        schema="placed",
        part="placed",
        offsets="placed_offsets",
        event="ProcessorPlaced",
        removal="PlacementEnded",
        is_removed=True,
    ),
    _kind(
        LaunchPut,
        "launch/{launch.execution_id}",
        schema="launch",
        part="launches",
        value="launch",
        event=_launch_event,
        removal="LaunchForgotten",
        is_removed=True,
        to_avro=forms.launch_to,
        from_avro=forms.launch_from,
    ),
    _kind(
        ContainerCountPut,
        "container-count",
        schema="container_count",
        part="container_count",
        event=("ContainerCountSet", "ContainerCountChanged"),
        removal="ContainerCountRemoved",
        is_removed=True,
    ),
    _kind(
        StandbyPut,
        "standby/{processor_id}",
        schema="standby",
        part="standbys",
        event=("StandbyCountSet", "StandbyCountChanged"),
        removal="StandbyCountRemoved",
        is_removed=True,
    ),
    _kind(
        SuspendedPut,
        "suspended/{processor_id}",
        schema="suspended",
        part="suspended",
        event="ProcessorSuspended",
        removal="ProcessorResumed",
        is_removed=True,
    ),
    _kind(
        ContainerEndPut,
        "container-end/{end.processor_id}",
        schema="container_end",
        part="container_ends",
        value="end",
        event="ContainerEndRecorded",
        removal="ContainerEndForgotten",
        is_removed=True,
        to_avro=forms.container_end_to,
        from_avro=forms.container_end_from,
    ),
    _kind(
        CheckpointPut,
        "checkpoint/{checkpoint.ssp_kb}",
        schema="checkpoint",
        event="CheckpointCommitted",
        removal="CheckpointRemoved",
        parts_of=_ssp_kb,
        reads=(SspKeyBucket.parse,),
        to_avro=forms.checkpoint_to,
        from_avro=forms.checkpoint_from,
    ),
    _kind(
        ProgressPut,
        "progress/{progress.ssp_kb}",
        schema="progress",
        event="ProgressRecorded",
        removal="ProgressRemoved",
        parts_of=_ssp_kb,
        reads=(SspKeyBucket.parse,),
        to_avro=forms.progress_to,
        from_avro=forms.progress_from,
    ),
)
"""In the order in which a downgrade writes them (`coordinator.state.records_of`)."""
KIND_OF_TYPE: Final[Mapping[type[Any], RecordKind]] = {kind.record_type: kind for kind in KINDS}
KIND_OF_NAMESPACE: Final[Mapping[str, RecordKind]] = {kind.namespace.value: kind for kind in KINDS}
