"""Conversions of records with more than text and numbers to Avro's dict, and back.

`<kind>_to` makes the dict, `<kind>_from` the record; the rows of `stream.kinds` name them. A record whose fields are
all text and numbers needs neither: `flat_to` and `flat_from`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any

from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import Container, ContainerPhase, ProcessorLocality, TaskLocality
from samzapy.model.container_end import ContainerEnd
from samzapy.model.grant import BucketStart, ChangelogStart, Floor, Grant
from samzapy.model.launch import Launch, LaunchPhase, LaunchRole
from samzapy.model.placement import UNFINISHED, Action, StatusCode, check_arguments, recorded_arguments
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.startpoint import Startpoint
from samzapy.stream.records import (
    CheckpointPut,
    ContainerEndPut,
    ContainerPut,
    Expansion,
    GenerationPut,
    GrantPut,
    InputEndPut,
    InputPut,
    LaunchPut,
    LocalityPut,
    LossAcceptedPut,
    MemoryPhase,
    PlannedTaskPut,
    ProgressPut,
    RequestMemoryPut,
    RequestPut,
    StartpointPut,
    TaskLocalityPut,
)


def flat_to(record_type: type[Any]) -> Callable[[Any], dict[str, Any]]:
    """The conversion to Avro's dict of a record whose fields are text and numbers."""
    names = tuple(field.name for field in fields(record_type))
    return lambda record: {name: getattr(record, name) for name in names}


def flat_from(record_type: type[Any]) -> Callable[[dict[str, Any]], Any]:
    """The inverse of `flat_to`."""
    return lambda datum: record_type(**datum)


@lru_cache(maxsize=32_768)
def _ssp_kb(text: str) -> SspKeyBucket:
    """An SSPKb, parsed and held once.

    A long stream names the same SSPKbs again and again.
    """
    return SspKeyBucket.parse(text)


def input_from(datum: dict[str, Any]) -> InputPut:
    parsed = {
        "system_stream": SystemStream.parse(datum["system_stream"]),
        "expansions": tuple(Expansion(**(item | {"ends": tuple(item["ends"])})) for item in datum["expansions"]),
    }
    return InputPut(**(datum | parsed))


def input_to(record: InputPut) -> dict[str, Any]:
    return {
        "system_stream": str(record.system_stream),
        "partition_count": record.partition_count,
        "partition_count_first": record.partition_count_first,
        "topic_id": record.topic_id,
        "expansions": [
            {
                "partition_count": item.partition_count,
                "seen_at_ms": item.seen_at_ms,
                "settled": item.settled,
                "ends": list(item.ends),
                "refused": item.refused,
            }
            for item in record.expansions
        ],
        "gone_at_ms": record.gone_at_ms,
        "gone_refused": record.gone_refused,
        "period": record.period,
        "epoch_before": record.epoch_before,
    }


def generation_from(datum: dict[str, Any]) -> GenerationPut:
    return GenerationPut(**(datum | {"processor_ids": tuple(datum["processor_ids"])}))


def generation_to(record: GenerationPut) -> dict[str, Any]:
    return {
        "generation": record.generation,
        "factor": record.factor,
        "task_count": record.task_count,
        "scheme": record.scheme,
        "processor_ids": list(record.processor_ids),
    }


def planned_task_from(datum: dict[str, Any]) -> PlannedTaskPut:
    parsed = {
        "ssp_kbs": tuple(_ssp_kb(text) for text in datum["ssp_kbs"]),
        "broadcast_ssps": tuple(SystemStreamPartition.parse(text) for text in datum["broadcast_ssps"]),
    }
    return PlannedTaskPut(**(datum | parsed))


def planned_task_to(record: PlannedTaskPut) -> dict[str, Any]:
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


def container_from(datum: dict[str, Any]) -> ContainerPut:
    return ContainerPut(container=Container(**(datum | {"phase": ContainerPhase(datum["phase"])})))


def container_to(record: ContainerPut) -> dict[str, Any]:
    return {name: getattr(record.container, name) for name in _CONTAINER_FIELDS}


def locality_from(datum: dict[str, Any]) -> LocalityPut:
    return LocalityPut(locality=ProcessorLocality(**datum))


def locality_to(record: LocalityPut) -> dict[str, Any]:
    locality = record.locality
    return {
        "processor_id": locality.processor_id,
        "host": locality.host,
        "fault_domain": locality.fault_domain,
    }


def task_locality_from(datum: dict[str, Any]) -> TaskLocalityPut:
    return TaskLocalityPut(locality=TaskLocality(**datum))


def task_locality_to(record: TaskLocalityPut) -> dict[str, Any]:
    locality = record.locality
    return {"task_name": locality.task_name, "processor_id": locality.processor_id, "host": locality.host}


def input_end_from(datum: dict[str, Any]) -> InputEndPut:
    return InputEndPut(**(datum | {"ssp": SystemStreamPartition.parse(datum["ssp"])}))


def input_end_to(record: InputEndPut) -> dict[str, Any]:
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


def grant_from(datum: dict[str, Any]) -> GrantPut:
    parsed = {
        "starts": tuple(_start_from(start) for start in datum["starts"]),
        "changelog_starts": tuple(ChangelogStart(**start) for start in datum["changelog_starts"]),
    }
    return GrantPut(grant=Grant(**(datum | parsed)))


def grant_to(record: GrantPut) -> dict[str, Any]:
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


def startpoint_from(datum: dict[str, Any]) -> StartpointPut:
    return StartpointPut(startpoint=Startpoint(**(datum | {"ssp_kb": _ssp_kb(datum["ssp_kb"])})))


def startpoint_to(record: StartpointPut) -> dict[str, Any]:
    startpoint = record.startpoint
    return {
        "ssp_kb": str(startpoint.ssp_kb),
        "offset_next": startpoint.offset_next,
        "epoch": startpoint.epoch,
        "uuid": startpoint.uuid,
    }


def loss_accepted_from(datum: dict[str, Any]) -> LossAcceptedPut:
    return LossAcceptedPut(**(datum | {"ssp_kb": _ssp_kb(datum["ssp_kb"])}))


def loss_accepted_to(record: LossAcceptedPut) -> dict[str, Any]:
    return {
        "ssp_kb": str(record.ssp_kb),
        "offset_from": record.offset_from,
        "offset_to": record.offset_to,
    }


_REQUEST_FIELDS = tuple(field.name for field in fields(RequestPut))
_ACTIONS_WITH_ARGUMENTS = frozenset({Action.SCALE, Action.REWIND, Action.CONTROL_STANDBY})
_MEMORY_FIELDS = tuple(field.name for field in fields(RequestMemoryPut))


def request_from(datum: dict[str, Any]) -> RequestPut:
    request = RequestPut(**(datum | {"status_code": StatusCode(datum["status_code"])}))
    arguments = recorded_arguments(request.arguments)
    if request.status_code in UNFINISHED and request.action in _ACTIONS_WITH_ARGUMENTS:
        # A coordinator acts on them.
        check_arguments(Action(request.action), arguments)
    return request


def request_to(record: RequestPut) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _REQUEST_FIELDS}


def memory_from(datum: dict[str, Any]) -> RequestMemoryPut:
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


def memory_to(record: RequestMemoryPut) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _MEMORY_FIELDS}


_LAUNCH_FIELDS = tuple(field.name for field in fields(Launch))


def launch_from(datum: dict[str, Any]) -> LaunchPut:
    parsed = {"role": LaunchRole(datum["role"]), "phase": LaunchPhase(datum["phase"])}
    return LaunchPut(launch=Launch(**(datum | parsed)))


def launch_to(record: LaunchPut) -> dict[str, Any]:
    return {name: getattr(record.launch, name) for name in _LAUNCH_FIELDS}


_END_FIELDS = tuple(field.name for field in fields(ContainerEnd))


def container_end_from(datum: dict[str, Any]) -> ContainerEndPut:
    return ContainerEndPut(end=ContainerEnd(**datum))


def container_end_to(record: ContainerEndPut) -> dict[str, Any]:
    return {name: getattr(record.end, name) for name in _END_FIELDS}


def checkpoint_from(datum: dict[str, Any]) -> CheckpointPut:
    return CheckpointPut(checkpoint=Checkpoint(**(datum | {"ssp_kb": _ssp_kb(datum["ssp_kb"])})))


def checkpoint_to(record: CheckpointPut) -> dict[str, Any]:
    checkpoint = record.checkpoint
    return {
        "ssp_kb": str(checkpoint.ssp_kb),
        "offset_next": checkpoint.offset_next,
        "epoch": checkpoint.epoch,
        "task_name": checkpoint.task_name,
        "execution_id": checkpoint.execution_id,
    }


def progress_from(datum: dict[str, Any]) -> ProgressPut:
    return ProgressPut(progress=Progress(**(datum | {"ssp_kb": _ssp_kb(datum["ssp_kb"])})))


def progress_to(record: ProgressPut) -> dict[str, Any]:
    progress = record.progress
    return {
        "ssp_kb": str(progress.ssp_kb),
        "offset_next": progress.offset_next,
        "epoch": progress.epoch,
        "execution_id": progress.execution_id,
    }
