"""Records as bytes: text keys (`stream.keys`) and Avro single-object values.

A value is the marker C3 01, the CRC-64-AVRO fingerprint of its schema (little endian), and the body. So
each record says what it was written with, and a reader that does not ship that schema knows it at once
(`UnknownSchemaError`) and does not guess. Schemas come from `schemas/` only, never from the topic; those of releases
that wrote otherwise stand there too, so their records are read for ever.

What is read may be hostile or broken (reliability.md 3.5), and one record that crashes its reader would
crash every coordinator and container in a loop. Hence: the size is checked before anything is decoded,
bytes left over are refused, the key must be the one that belongs to the value, and the only exceptions that
leave `decode` are `CorruptRecordError` and its child. fastavro crashes the interpreter on recursive schemas
and swells on arrays of zero-width items; a unit test keeps both out of `schemas/`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any, NamedTuple

from samzapy.errors import CorruptRecordError, UnknownSchemaError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import Container, ContainerPhase, ProcessorLocality, TaskLocality
from samzapy.model.grant import BucketStart, ChangelogStart, Floor, Grant
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.placement import StatusCode
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.startpoint import Startpoint
from samzapy.stream.keys import key_of, parse_key
from samzapy.stream.log import LogRecord
from samzapy.stream.placement import MESSAGE_FORMS
from samzapy.stream.records import (
    ChangelogPartitionPut,
    CheckpointPut,
    ConfigPut,
    ContainerCountPut,
    ContainerPut,
    EpochPut,
    Expansion,
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
    Removed,
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
from samzapy.stream.single_object import HEADER_BYTES, MARKER, Form, fingerprint_of_schema, form

VALUE_BYTES_MAX = 1024 * 1024
"""Nothing longer is decoded."""
RECORD_BYTES_MAX = VALUE_BYTES_MAX - 8 * 1024
"""Nothing longer is written, key and value together: with its headers, and what Kafka puts around it, a record must be
within what our producers send and our topics take (`config.MESSAGE_BYTES_MAX`), 12 bytes more than 1 MiB."""


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of `record` as they go on the topic; a `Removed` has no value.

    Raises:
        ValueError: the record is too large, a field holds what its schema does not allow, or a name in the
            key is empty.
    """
    if isinstance(record, Removed):
        return _key_to_write(record), None
    return _fitting(record, _FORM_OF_TYPE[type(record)].encode(record))


def encode_as_of(record: Record, release: str) -> tuple[bytes, bytes]:
    """The key and the value of `record`, no tombstone, as `release` wrote them; its kind is one that `release` had.

    What the schema of `release` lacks is left out: whoever calls knows that it says nothing.

    Raises: as `encode`.
    """
    return _fitting(record, _FORM_OF_TYPE[type(record)].encode_as_of(record, release))


def decode(record: LogRecord, *, topic: str, partition: int = 0) -> Record:
    """The fact that `record` holds, or `Removed` for a tombstone; `topic` and `partition` are for messages.

    Raises:
        UnknownSchemaError: written by a release that has a schema which this one does not ship.
        CorruptRecordError: anything else. No other exception leaves, whatever the bytes are.
    """
    try:
        return _decode(record.key, record.value)
    except _UnknownFingerprintError as error:
        raise UnknownSchemaError(_described(record, topic, partition, error)) from None
    except Exception as error:
        # On purpose this wide: fastavro raises whatever it meets (EOFError, UnicodeDecodeError, IndexError).
        raise CorruptRecordError(_described(record, topic, partition, error)) from error


def unreadable_reason(record: LogRecord) -> str:
    """Why `decode` refuses the record; empty where it does not."""
    try:
        _decode(record.key, record.value)
    except Exception as error:
        # As wide as in `decode`.
        return _reason(error)
    return ""


def plain_fields(record: Record) -> dict[str, Any]:
    """The fields of `record` by the names in its schema, as Avro and JSON hold them; SSPs in their text form."""
    return _FORM_OF_TYPE[type(record)].to_avro(record)


def schema_name_of(record: Record) -> str:
    """The name of the schema of `record`, as its file in `schemas/` is called: `planned_task`."""
    return _FORM_OF_TYPE[type(record)].schema_name


def schemas_by_name() -> Mapping[str, str]:
    """The schemas that this release writes, as JSON."""
    return {form.schema_name: form.schema_json for form in _FORMS}


def schema_as_of(record_type: type[Record], release: str) -> SchemaPut:
    """The schema in which `release`, which had that kind of record, wrote it; with today's words where it has not
    changed since."""
    found = _FORM_OF_TYPE[record_type].as_of(release)
    return SchemaPut(fingerprint=found.fingerprint, schema_json=found.schema_json)


def fingerprint_of(value: bytes) -> str:
    """What a value says it is written in, as `SchemaPut` spells it."""
    return value[len(MARKER) : HEADER_BYTES].hex()


def is_schema_of(schema_json: str, digits: str) -> bool:
    """Whether `schema_json` is the schema with that fingerprint. It may come from anywhere; only its text is used."""
    try:
        found = fingerprint_of_schema(json.loads(schema_json))
    except Exception:
        # As wide as in `decode`: of hostile text fastavro raises whatever it meets.
        return False
    return found == digits


@cache
def schema_records() -> tuple[SchemaPut, ...]:
    """The schemas that this release writes, messages of the placement topic too, to be recorded on the coordinator
    stream; in a fixed order."""
    forms = (*_FORMS, *MESSAGE_FORMS)
    found = [SchemaPut(fingerprint=known.fingerprint, schema_json=known.schema_json) for known in forms]
    return tuple(sorted(found, key=lambda schema: schema.fingerprint))


class RecordHeaders(NamedTuple):
    """What each coordinator record says about itself. Term and number tell a leader's record from any other one
    (`stream.numbering`); the rest is evidence for people.

    Attributes:
        seq: gapless within the stream as written.
        event: past tense, for instance `TaskGranted` (`stream.audit.event_name`).
        cause: id of the command or request that led to the record.
        actor: who asked for it.
    """

    term: int
    seq: int
    event: str
    cause: str
    actor: str


def headers(*, term: int, seq: int, event: str, cause: str, actor: str) -> Mapping[str, bytes]:
    """The headers of a coordinator record, UTF-8 text each."""
    return {
        "term": str(term).encode(),
        "seq": str(seq).encode(),
        "event": event.encode(),
        "cause": cause.encode(),
        "actor": actor.encode(),
    }


def parse_headers(found: Iterable[tuple[str, bytes | None]]) -> RecordHeaders | None:
    """Read `headers` back; None where they are missing or not as we write them (anybody can write them)."""
    texts = {name: value for name, value in found if value is not None}
    try:
        term, seq = texts["term"], texts["seq"]
        if not (term.isdigit() and seq.isdigit()):
            return None
        return RecordHeaders(
            int(term),
            int(seq),
            texts["event"].decode(errors="backslashreplace"),
            texts["cause"].decode(errors="backslashreplace"),
            texts["actor"].decode(errors="backslashreplace"),
        )
    except (KeyError, ValueError):
        return None


def _key_to_write(record: Record) -> bytes:
    text = key_of(record)
    # What `decode` would refuse is not written: such a record would stop every reader.
    parse_key(text)
    return text.encode()


def _fitting(record: Record, value: bytes) -> tuple[bytes, bytes]:
    key = _key_to_write(record)
    if len(key) + len(value) > RECORD_BYTES_MAX:
        raise ValueError(
            f"wanted a record of at most {RECORD_BYTES_MAX} bytes, found {len(key) + len(value)} for key "
            f"{key_of(record)!r}: no topic of ours would take it, so it is not written; make the task or the setting "
            "smaller"
        )
    return key, value


class _UnknownFingerprintError(Exception):
    """Not raised to callers: `decode` turns it into `UnknownSchemaError`."""


def _decode(key_bytes: bytes | None, value: bytes | None) -> Record:
    if key_bytes is None:
        raise ValueError("wanted a key, found none")
    key = key_bytes.decode()
    if value is None:
        parse_key(key)
        return Removed(key=key)
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"wanted a value of at most {VALUE_BYTES_MAX} bytes, found {len(value)}")
    header = value[:HEADER_BYTES]
    if len(header) < HEADER_BYTES or not header.startswith(MARKER):
        raise ValueError(
            f"wanted an Avro single-object value (C3 01 and a fingerprint), found {len(value)} bytes that "
            f"start with {header.hex(' ') or 'nothing'}"
        )
    found = _FORM_OF_HEADER.get(header)
    if found is None:
        raise _UnknownFingerprintError(
            f"wanted one of the {len(_FORMS)} schemas of this release, found the fingerprint "
            f"{header[2:].hex()}; a newer release wrote this: upgrade this process"
        )
    record: Record = found.from_avro(found.datum(value))
    if key_of(record) != key:
        raise ValueError(f"wanted the key of the value, {key_of(record)!r}, found another")
    # A key that does not parse back would be a fact that nobody can ever remove.
    parse_key(key)
    return record


def _described(record: LogRecord, topic: str, partition: int, error: Exception) -> str:
    key = "no key" if record.key is None else f"key {_shortened(record.key.decode(errors='backslashreplace'))!r}"
    return (
        f"{topic}-{partition} at offset {record.offset}, {key}: cannot be read ({_reason(error)}). Nothing was "
        "skipped; see it with `samzapy stream replay`"
    )


def _reason(error: Exception) -> str:
    reason = str(error) or "it ends too early or holds what its schema does not allow"
    return f"{type(error).__name__.strip('_')}: {_shortened(reason)}"


def _shortened(text: str, length_max: int = 400) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}..."


def _flat(record_type: type[Any], schema_name: str) -> Form:
    """A record whose fields are text and numbers."""
    names = tuple(field.name for field in fields(record_type))
    return form(
        record_type,
        schema_name,
        lambda record: {name: getattr(record, name) for name in names},
        lambda datum: record_type(**datum),
    )


@lru_cache(maxsize=32_768)
def _ssp_kb(text: str) -> SspKeyBucket:
    """A long stream names the same SSPKbs again and again: parsed once each, and held once."""
    return SspKeyBucket.parse(text)


def _input_from(datum: dict[str, Any]) -> InputPut:
    parsed = {
        "system_stream": SystemStream.parse(datum["system_stream"]),
        "expansions": tuple(Expansion(**(found | {"ends": tuple(found["ends"])})) for found in datum["expansions"]),
    }
    return InputPut(**(datum | parsed))


def _input_to(record: InputPut) -> dict[str, Any]:
    return {
        "system_stream": str(record.system_stream),
        "partition_count": record.partition_count,
        "partition_count_first": record.partition_count_first,
        "topic_id": record.topic_id,
        "expansions": [
            {
                "partition_count": found.partition_count,
                "seen_at_ms": found.seen_at_ms,
                "settled": found.settled,
                "ends": list(found.ends),
                "refused": found.refused,
            }
            for found in record.expansions
        ],
        "gone_at_ms": record.gone_at_ms,
        "gone_refused": record.gone_refused,
        "period": record.period,
        "epoch_before": record.epoch_before,
    }


def _generation_from(datum: dict[str, Any]) -> GenerationPut:
    return GenerationPut(**(datum | {"processor_ids": tuple(datum["processor_ids"])}))


def _generation_to(record: GenerationPut) -> dict[str, Any]:
    return {
        "generation": record.generation,
        "factor": record.factor,
        "task_count": record.task_count,
        "scheme": record.scheme,
        "processor_ids": list(record.processor_ids),
    }


def _planned_task_from(datum: dict[str, Any]) -> PlannedTaskPut:
    parsed = {
        "ssp_kbs": tuple(_ssp_kb(text) for text in datum["ssp_kbs"]),
        "broadcast_ssps": tuple(SystemStreamPartition.parse(text) for text in datum["broadcast_ssps"]),
    }
    return PlannedTaskPut(**(datum | parsed))


def _planned_task_to(record: PlannedTaskPut) -> dict[str, Any]:
    return {
        "generation": record.generation,
        "task_name": record.task_name,
        "partition_id": record.partition_id,
        "mode": record.mode,
        "processor_id": record.processor_id,
        "changelog_partition": record.changelog_partition,
        "ssp_kbs": [str(ssp_kb) for ssp_kb in record.ssp_kbs],
        "broadcast_ssps": [str(ssp) for ssp in record.broadcast_ssps],
    }


_CONTAINER_FIELDS = tuple(field.name for field in fields(Container))


def _container_from(datum: dict[str, Any]) -> ContainerPut:
    return ContainerPut(container=Container(**(datum | {"phase": ContainerPhase(datum["phase"])})))


def _container_to(record: ContainerPut) -> dict[str, Any]:
    return {name: getattr(record.container, name) for name in _CONTAINER_FIELDS}


def _locality_from(datum: dict[str, Any]) -> LocalityPut:
    return LocalityPut(locality=ProcessorLocality(**datum))


def _locality_to(record: LocalityPut) -> dict[str, Any]:
    found = record.locality
    return {
        "processor_id": found.processor_id,
        "host": found.host,
        "fault_domain": found.fault_domain,
    }


def _task_locality_from(datum: dict[str, Any]) -> TaskLocalityPut:
    return TaskLocalityPut(locality=TaskLocality(**datum))


def _task_locality_to(record: TaskLocalityPut) -> dict[str, Any]:
    found = record.locality
    return {"task_name": found.task_name, "processor_id": found.processor_id, "host": found.host}


def _input_end_from(datum: dict[str, Any]) -> InputEndPut:
    return InputEndPut(**(datum | {"ssp": SystemStreamPartition.parse(datum["ssp"])}))


def _input_end_to(record: InputEndPut) -> dict[str, Any]:
    return {"ssp": str(record.ssp), "run_id": record.run_id, "offset_end": record.offset_end}


def _start_from(datum: dict[str, Any]) -> BucketStart:
    return BucketStart(
        ssp_kb=_ssp_kb(datum["ssp_kb"]),
        offset_next=datum["offset_next"],
        floors=tuple(
            Floor(
                ssp_kb=_ssp_kb(floor["ssp_kb"]),
                offset_next=floor["offset_next"],
            )
            for floor in datum["floors"]
        ),
    )


def _start_to(start: BucketStart) -> dict[str, Any]:
    return {
        "ssp_kb": str(start.ssp_kb),
        "offset_next": start.offset_next,
        "floors": [{"ssp_kb": str(floor.ssp_kb), "offset_next": floor.offset_next} for floor in start.floors],
    }


def _grant_from(datum: dict[str, Any]) -> GrantPut:
    parsed = {
        "starts": tuple(_start_from(start) for start in datum["starts"]),
        "changelog_starts": tuple(ChangelogStart(**start) for start in datum["changelog_starts"]),
    }
    return GrantPut(grant=Grant(**(datum | parsed)))


def _grant_to(record: GrantPut) -> dict[str, Any]:
    grant = record.grant
    return {
        "task_name": grant.task_name,
        "epoch": grant.epoch,
        "execution_id": grant.execution_id,
        "generation": grant.generation,
        "partition_id": grant.partition_id,
        "changelog_partition": grant.changelog_partition,
        "starts": [_start_to(start) for start in grant.starts],
        "tick_last": grant.tick_last,
        "released": grant.released,
        "counts_after": grant.counts_after,
        "changelog_starts": [{"store": start.store, "offset": start.offset} for start in grant.changelog_starts],
        "broadcast_parent": grant.broadcast_parent,
        "epoch_rewound": grant.epoch_rewound,
    }


def _startpoint_from(datum: dict[str, Any]) -> StartpointPut:
    return StartpointPut(startpoint=Startpoint(**(datum | {"ssp_kb": _ssp_kb(datum["ssp_kb"])})))


def _startpoint_to(record: StartpointPut) -> dict[str, Any]:
    found = record.startpoint
    return {
        "ssp_kb": str(found.ssp_kb),
        "offset_next": found.offset_next,
        "epoch": found.epoch,
        "uuid": found.uuid,
    }


def _loss_accepted_from(datum: dict[str, Any]) -> LossAcceptedPut:
    return LossAcceptedPut(**(datum | {"ssp_kb": _ssp_kb(datum["ssp_kb"])}))


def _loss_accepted_to(record: LossAcceptedPut) -> dict[str, Any]:
    return {
        "ssp_kb": str(record.ssp_kb),
        "offset_from": record.offset_from,
        "offset_to": record.offset_to,
    }


_REQUEST_FIELDS = tuple(field.name for field in fields(RequestPut))
_MEMORY_FIELDS = tuple(field.name for field in fields(RequestMemoryPut))


def _request_from(datum: dict[str, Any]) -> RequestPut:
    return RequestPut(**(datum | {"status_code": StatusCode(datum["status_code"])}))


def _request_to(record: RequestPut) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _REQUEST_FIELDS}


def _memory_from(datum: dict[str, Any]) -> RequestMemoryPut:
    # Interned: there are as many of these as there are uuids to remember, and few texts in them.
    parsed = {
        "status_code": StatusCode(datum["status_code"]),
        "phase": MemoryPhase(datum["phase"]),
        "place": sys.intern(datum["place"]),
        "run_id": sys.intern(datum["run_id"]),
        "action": sys.intern(datum["action"]),
        "processor_id": sys.intern(datum["processor_id"]),
    }
    return RequestMemoryPut(**(datum | parsed))


def _memory_to(record: RequestMemoryPut) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _MEMORY_FIELDS}


_LAUNCH_FIELDS = tuple(field.name for field in fields(Launch))


def _launch_from(datum: dict[str, Any]) -> LaunchPut:
    parsed = {"role": LaunchRole(datum["role"]), "phase": LaunchPhase(datum["phase"])}
    return LaunchPut(launch=Launch(**(datum | parsed)))


def _launch_to(record: LaunchPut) -> dict[str, Any]:
    return {name: getattr(record.launch, name) for name in _LAUNCH_FIELDS}


def _checkpoint_from(datum: dict[str, Any]) -> CheckpointPut:
    return CheckpointPut(checkpoint=Checkpoint(**(datum | {"ssp_kb": _ssp_kb(datum["ssp_kb"])})))


def _checkpoint_to(record: CheckpointPut) -> dict[str, Any]:
    checkpoint = record.checkpoint
    return {
        "ssp_kb": str(checkpoint.ssp_kb),
        "offset_next": checkpoint.offset_next,
        "epoch": checkpoint.epoch,
        "task_name": checkpoint.task_name,
        "execution_id": checkpoint.execution_id,
    }


def _progress_from(datum: dict[str, Any]) -> ProgressPut:
    return ProgressPut(progress=Progress(**(datum | {"ssp_kb": _ssp_kb(datum["ssp_kb"])})))


def _progress_to(record: ProgressPut) -> dict[str, Any]:
    progress = record.progress
    return {
        "ssp_kb": str(progress.ssp_kb),
        "offset_next": progress.offset_next,
        "epoch": progress.epoch,
        "execution_id": progress.execution_id,
    }


_FORMS: tuple[Form, ...] = (
    _flat(SchemaPut, "schema"),
    _flat(FormatLevelPut, "format_level"),
    _flat(JobIdentityPut, "job_identity"),
    _flat(TermPut, "term"),
    _flat(ConfigPut, "config"),
    form(InputPut, "input", _input_to, _input_from),
    _flat(OwnTopicPut, "own_topic"),
    _flat(ChangelogPartitionPut, "changelog_partition"),
    form(PlannedTaskPut, "planned_task", _planned_task_to, _planned_task_from),
    form(GenerationPut, "generation", _generation_to, _generation_from),
    _flat(RunPut, "run"),
    form(InputEndPut, "input_end", _input_end_to, _input_end_from),
    form(ContainerPut, "container", _container_to, _container_from),
    form(LocalityPut, "locality", _locality_to, _locality_from),
    form(TaskLocalityPut, "task_locality", _task_locality_to, _task_locality_from),
    _flat(EpochPut, "epoch"),
    form(GrantPut, "grant", _grant_to, _grant_from),
    form(StartpointPut, "startpoint", _startpoint_to, _startpoint_from),
    form(LossAcceptedPut, "loss_accepted", _loss_accepted_to, _loss_accepted_from),
    form(RequestPut, "request", _request_to, _request_from),
    form(RequestMemoryPut, "request_memory", _memory_to, _memory_from),
    _flat(InboxPut, "inbox"),
    _flat(RestartPut, "restart"),
    _flat(PlacedPut, "placed"),
    form(LaunchPut, "launch", _launch_to, _launch_from),
    _flat(ContainerCountPut, "container_count"),
    _flat(StandbyPut, "standby"),
    _flat(SuspendedPut, "suspended"),
    _flat(FactorPut, "factor"),
    form(CheckpointPut, "checkpoint", _checkpoint_to, _checkpoint_from),
    form(ProgressPut, "progress", _progress_to, _progress_from),
)
_FORM_OF_TYPE: Mapping[type[Any], Form] = {found.record_type: found for found in _FORMS}
_FORM_OF_HEADER: Mapping[bytes, Form] = {header: found for found in _FORMS for header in (found.header, *found.older)}
