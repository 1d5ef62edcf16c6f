"""The readers of bytes from outside, each with good bytes to begin from.

A new reader goes into `CODECS`.

Those of values are in `value_codecs`, those of files and of answers over HTTP in `file_codecs`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from samzapy.container.orders import Orders, follow, read_on
from samzapy.container.start_rules import positions_of, read_positions
from samzapy.coordinator.assignment.heartbeat_json import parse_heartbeat
from samzapy.coordinator.commands import RequestsRead
from samzapy.coordinator.replay import replay
from samzapy.coordinator.requests.read import read_requests
from samzapy.coordinator.requests.request_queue import response_of
from samzapy.coordinator.state import INITIAL, Committed, evolve
from samzapy.errors import CorruptRecordError
from samzapy.inspection.invariants import Invariants
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.placement import (
    Action,
    ContainerPlacementMessage,
    ContainerPlacementRequestMessage,
    ContainerPlacementResponseMessage,
    StatusCode,
)
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.topic_checks import Cluster
from samzapy.model.topics import coordinator_spec
from samzapy.stream.audit import ForeignEntry, History, HistoryEntry, UnreadableEntry, as_json, change_text, history
from samzapy.stream.changelog import changelog_key, split_changelog_key
from samzapy.stream.codec import decode, encode, headers
from samzapy.stream.examination import (
    examine_changelog,
    examine_checkpoints,
    examine_placement,
    faults_of_coordinator_stream,
)
from samzapy.stream.export import ExportHeader, read_export, write_export
from samzapy.stream.horizon import Extent
from samzapy.stream.keys import KeyForm, parse_placement_key
from samzapy.stream.log import LogRecord
from samzapy.stream.placement import (
    Encoding,
    Place,
    Requested,
    Unreadable,
    decode_message,
    encode_message,
    read_message,
)
from samzapy.stream.records import CheckpointPut, EpochPut, ProgressPut, RequestPut
from samzapy.testing.builders import a_topic_found, an_ssp_kb
from unit_tests.fixtures.record_examples import EXAMPLES
from unit_tests.hostile.codec import Codec
from unit_tests.hostile.file_codecs import FILES
from unit_tests.hostile.mutations import mutated_avro, mutated_json, mutated_key
from unit_tests.hostile.value_codecs import VALUES

TOPIC = "t"
_KEY, _VALUE = encode(EpochPut(epoch=7))
_PHASES = headers(term=1, seq=0, event="EpochAdvanced", cause="c", actor="a")
A_LEADERS = LogRecord(offset=0, timestamp_ms=0, key=_KEY, value=_VALUE, headers=tuple(_PHASES.items()))
A_CHECKPOINT = Checkpoint(
    ssp_kb=an_ssp_kb("kafka.never-written.0:0/1"),
    offset_next=1,
    epoch=1,
    task_name=TaskName("t"),
    execution_id=ExecutionId("e"),
)
A_POSITION = LogRecord(0, 0, *encode(CheckpointPut(checkpoint=A_CHECKPOINT)))


def _read_coordinator_record(record: LogRecord) -> None:
    _changes_nothing_without_headers(record._replace(headers=()))
    decoded = decode(record, topic=TOPIC)
    assert encode(decoded)[0] == record.key, "a record has its own key"
    follow(Orders(execution_id=ExecutionId("e1")), [decoded], record.offset + 1)
    if not isinstance(decoded, CheckpointPut | ProgressPut):
        evolve(INITIAL, [Committed(record.offset, decoded)])


def _changes_nothing_without_headers(record: LogRecord) -> None:
    """Neither a leader's state, nor a container's orders: and both continue."""
    before = replay([A_LEADERS], topic=TOPIC)
    foreign = record._replace(offset=A_LEADERS.offset + 1)
    replayed = replay([foreign], topic=TOPIC, before=before)
    assert (replayed.state, replayed.seq_next) == (before.state, before.seq_next)
    assert replayed.foreign[record.key].size == len(record.key or b"") + len(record.value or b"")
    orders = read_on(Orders(execution_id=ExecutionId("e1")), [A_LEADERS], 1, topic=TOPIC)
    assert replace(read_on(orders, [foreign], 1, topic=TOPIC), numbering=orders.numbering) == orders


def _read_position(record: LogRecord) -> None:
    whole = read_positions([A_POSITION, record], topic=TOPIC)
    if record.key != A_POSITION.key:
        assert A_CHECKPOINT.ssp_kb in whole.checkpoints, "another position is lost"
    positions_of([decode(record, topic=TOPIC)])


def _listed_by_replay(records: Sequence[LogRecord]) -> Collection[int]:
    """Every record is an entry, whatever it is, and every entry can be shown."""
    entries = list(history(records, topic=TOPIC))
    assert [entry.offset for entry in entries] == [record.offset for record in records]
    for entry in entries:
        json.dumps(as_json(entry)).encode()
        if isinstance(entry, HistoryEntry):
            change_text(entry).encode(errors="backslashreplace")
    faults = list(faults_of_coordinator_stream(records, topic=TOPIC, whole_from=0, check=Invariants().check))
    examine_checkpoints(records, topic=TOPIC)
    unreadable = [
        entry
        for entry in entries
        if isinstance(entry, UnreadableEntry) or (isinstance(entry, ForeignEntry) and not entry.is_readable)
    ]
    verified = {fault.offset for fault in faults if fault.code == "record-unreadable"}
    listed = {entry.offset for entry in unreadable}
    assert verified <= listed <= {fault.offset for fault in faults}, "verify and replay list the same"
    assert all(f"{TOPIC}-0 at offset {entry.offset}" in entry.reason for entry in unreadable)
    return {entry.offset for entry in unreadable}


def _listed_by_doctor(records: Sequence[LogRecord]) -> Collection[int]:
    """One record at a time: of many the doctor names the first and counts the others."""
    return {
        record.offset
        for record in records
        for finding in examine_changelog([record], topic=TOPIC, partition=0)
        if f"{TOPIC}-0 at offset {record.offset}:" in finding.found
    }


def _read_changelog_entry(record: LogRecord) -> None:
    assert record.key is not None
    assert changelog_key(*split_changelog_key(record.key)) == record.key


class UnreadableMessageError(Exception):
    """The coordinator's list of the placement topic."""


def _read_request(record: LogRecord) -> None:
    """The coordinator can write its decision on any request, and answer where it can."""
    request = read_message(record)
    if isinstance(request, Requested):
        command = RequestsRead(
            offset_from=0, offset_next=record.offset + 1, requests=(request,), unreadable=(), now_ms=0
        )
        for put in read_requests(command, INITIAL):
            encode(put)
            if isinstance(put, RequestPut):
                assert str(decode_message(response_of(put).value or b"").uuid) == request.uuid
    if request is not None and (isinstance(request, Unreadable) or request.message is None):
        raise UnreadableMessageError(request.reason)


def _read_answer(record: LogRecord) -> None:
    """As the operator reads it."""
    parse_placement_key(record.key)
    decode_message(record.value or b"")


def _listed_requests(records: Sequence[LogRecord]) -> Collection[int]:
    """One at a time: the doctor shows the last ones."""
    return {
        record.offset
        for record in records
        for finding in examine_placement([record], topic=TOPIC)
        if f"{TOPIC}-0 at offset {record.offset}:" in finding.found
    }


def _written(messages: Sequence[ContainerPlacementMessage]) -> Sequence[tuple[bytes, bytes | None]]:
    """In both encodings, under both forms of a key."""
    writes = [
        encode_message(message, Place(namespace=message.action.namespace, key_form=form, encoding=encoding))
        for message in messages
        for form in KeyForm
        for encoding in Encoding
    ]
    return [(write.key, write.value) for write in writes]


def _mutated_message(value: bytes, chance: Random) -> bytes:
    return mutated_json(value, chance) if value.startswith(b"{") else mutated_avro(value, chance)


def _an_export() -> bytes:
    out = io.BytesIO()
    written = [encode(record) for record in EXAMPLES]
    records = [
        LogRecord(offset=offset, timestamp_ms=0, key=key, value=value, headers=(("term", b"1"),))
        for offset, (key, value) in enumerate(written)
    ]
    header = ExportHeader(
        topic=TOPIC,
        extent=Extent(whole_from=0, offset_end=len(records), known_until_ms=0),
        looked=a_topic_found(coordinator_spec("flights-1")),
        cluster=Cluster(bootstrap_servers="localhost:9092", broker_count=1),
    )
    write_export(out, header, records)
    return out.getvalue()


def _read_export(record: LogRecord) -> None:
    assert record.value is not None
    export = read_export(io.BytesIO(record.value), "f")
    for _ in History(export.header.topic).read(export.records):
        pass


def _read_heartbeat(record: LogRecord) -> object:
    assert record.value is not None
    return parse_heartbeat(record.value, received_ms=0)


HEARTBEAT: dict[str, Any] = {
    "job": "flights-1",
    "executionId": "e1",
    "processorId": "0",
    "host": "host-a",
    "faultDomain": "rack-1",
    "bootId": "boot-a",
    "pid": 100,
    "processStartedMs": 5000,
    "slotCount": 2,
    "formatLevel": 1,
    "state": "RUNNING",
    "streamOffset": 42,
    "held": [{"task": "SystemStreamPartition_kafka.orders.3", "epoch": 7}],
    "reason": "",
    "finished": False,
    "acceptedLosses": ["kafka.orders.3:0/1@1-5"],
    "figures": {
        "recordsIn": 3,
        "positions": {"kafka.orders.3:0/1": {"offsetNext": 100, "offsetEnd": 120}},
        "stores": {"sums": {"bytes": 8192, "entries": 90}},
    },
}
_STANDBY = {**HEARTBEAT, "held": [], "warm": StandbyProgress(tasks=2, level=1, lag=3).as_json(), "step": "restoring"}
_FAILING = {**HEARTBEAT, "failing": {"attempts": 1, "forMs": 5, "leftMs": 7, "reason": "why"}, "restart": 2}
_LAST = {**HEARTBEAT, "state": "STOPPED", "finished": True, "exitCode": 3, "comesBack": False, "kafkaSilentMs": 4}
_NAMING = {**HEARTBEAT, "outputs": ["sums", "alerts"]}
_COORDINATOR = [record for record in EXAMPLES if not isinstance(record, CheckpointPut | ProgressPut)]
_POSITIONS = [record for record in EXAMPLES if isinstance(record, CheckpointPut | ProgressPut)]
_REQUEST: dict[str, Any] = {
    "uuid": UUID("88b0d30c-d518-4307-9e8e-c8529eb30f04"),
    "deployment_id": "1767225600000-8f3a1b2c",
    "processor_id": "0",
    "request_expiry": timedelta(seconds=9),
    "timestamp_ms": 5,
}
_REQUESTS = [
    ContainerPlacementRequestMessage(**_REQUEST, destination_host="ANY_HOST"),
    ContainerPlacementRequestMessage(**_REQUEST, action=Action.RESTART_QUERY),
    ContainerPlacementRequestMessage(**_REQUEST, action=Action.CONTAINER_STATUS),
]
_ANSWER = ContainerPlacementResponseMessage(
    **_REQUEST, action=Action.CONTAINER_STATUS, status_code=StatusCode.SUCCEEDED, response_message='{"tasks":["a"]}'
)

CODECS = (
    Codec(
        name="coordinator",
        originals=[encode(record) for record in _COORDINATOR],
        mutate_key=mutated_key,
        mutate_value=mutated_avro,
        read=_read_coordinator_record,
        refusal=CorruptRecordError,
        listed=_listed_by_replay,
    ),
    Codec(
        name="checkpoint",
        originals=[encode(record) for record in _POSITIONS],
        mutate_key=mutated_key,
        mutate_value=mutated_avro,
        read=_read_position,
        refusal=CorruptRecordError,
        listed=_listed_by_replay,
    ),
    Codec(
        name="placement",
        originals=_written(_REQUESTS),
        mutate_key=mutated_key,
        mutate_value=_mutated_message,
        read=_read_request,
        refusal=UnreadableMessageError,
        listed=_listed_requests,
    ),
    Codec(
        name="placement-answer",
        originals=_written([_ANSWER]),
        mutate_key=mutated_key,
        mutate_value=_mutated_message,
        read=_read_answer,
        refusal=ValueError,
        listed=None,
    ),
    Codec(
        name="changelog-key",
        originals=[(changelog_key(b"k" * length, b"name"), b"1") for length in (0, 1, 127, 128, 20_000)],
        mutate_key=mutated_avro,
        mutate_value=None,
        read=_read_changelog_entry,
        refusal=ValueError,
        listed=_listed_by_doctor,
    ),
    Codec(
        name="export",
        originals=[(b"", _an_export())],
        mutate_key=None,
        mutate_value=mutated_avro,
        read=_read_export,
        refusal=CorruptRecordError,
        listed=None,
    ),
    Codec(
        name="heartbeat",
        originals=[
            (b"", json.dumps(heartbeat).encode()) for heartbeat in (HEARTBEAT, _STANDBY, _FAILING, _LAST, _NAMING)
        ],
        mutate_key=None,
        mutate_value=mutated_json,
        read=_read_heartbeat,
        refusal=ValueError,
        listed=None,
    ),
    *VALUES,
    *FILES,
)
