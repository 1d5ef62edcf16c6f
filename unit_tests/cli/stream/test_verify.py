"""`samzapy stream verify` names each planted fault by its offset, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from samzapy.coordinator.replay import replay
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.placement import Action, StatusCode
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.startpoint import Startpoint
from samzapy.stream.codec import encode, headers, parse_headers
from samzapy.stream.keys import key_of
from samzapy.stream.log import LogRecord
from samzapy.stream.records import (
    FORMAT_LEVEL,
    ChangelogPartitionPut,
    CheckpointPut,
    ContainerPut,
    EpochPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    InboxPut,
    JobIdentityPut,
    MemoryPhase,
    PlacedPut,
    Record,
    Removed,
    RequestMemoryPut,
    RequestPut,
    RestartPut,
    RunPut,
    SchemaPut,
    StartpointPut,
    TermPut,
)
from samzapy.testing.builders import an_ssp_kb
from unit_tests.fixtures.audited_stream import TOPIC, a_file, a_life, rows_of, samzapy

STEP = 10
"""Offsets are multiples of it, so that there is room to plant something."""


HEALTHY = [record._replace(offset=STEP * number) for number, record in enumerate(a_life())]
LAST_TERM = max(number for number, record in enumerate(HEALTHY) if record.key == b"term")


def term_and_seq(record: LogRecord) -> tuple[int, int]:
    headers = parse_headers(record.headers)
    assert headers is not None
    return headers.term, headers.seq


def numbered(term: int, seq: int, *changed: tuple[str, bytes]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((headers(term=term, seq=seq, event="EpochAdvanced", cause="c", actor="a") | dict(changed)).items())


def a_record(
    *, record: Record | None = None, key: bytes | None = b"epoch", value: bytes | None = b"", is_leaders: bool = False
) -> Callable[[int, int], LogRecord]:
    """A record to plant after the one of a term and number; `is_leaders` adds headers."""
    if record is not None:
        key, value = encode(record)
    return lambda term, seq: LogRecord(
        offset=0, timestamp_ms=0, key=key, value=value, headers=numbered(term, seq + 1) if is_leaders else ()
    )


EPOCH = encode(EpochPut(epoch=9))[1] or b""
A_TERM = next(record for record in HEALTHY if record.key == b"term").value
A_POSITION = CheckpointPut(
    checkpoint=Checkpoint(
        ssp_kb=an_ssp_kb(), offset_next=1, epoch=1, task_name=TaskName("t"), execution_id=ExecutionId("e")
    )
)


def a_term(number: int) -> Record:
    return TermPut(
        term=number,
        coordinator_id="x",
        host="h",
        boot_id="b",
        pid=1,
        process_started_ms=1,
        url="u",
        started_at_ms=1,
    )


@dataclass(frozen=True)
class Plant:
    """A fault: records put after a healthy one, and the finding.

    `shifts`: it has a number of its own.
    """

    code: str
    make: Callable[[int, int], LogRecord]
    shifts: bool = False


def with_headers(make: Callable[[int, int], tuple[tuple[str, bytes | None], ...]]) -> Callable[[int, int], LogRecord]:
    return lambda term, seq: LogRecord(offset=0, timestamp_ms=0, key=b"epoch", value=EPOCH, headers=make(term, seq))


PLANTED = {
    "a removal that is no coordinator's": Plant(
        "stream-law", a_record(key=b"epoch", value=None, is_leaders=True), shifts=True
    ),
    "a foreign writer": Plant("record-foreign", a_record(value=EPOCH)),
    "a foreign writer's removal": Plant("record-foreign", a_record(value=None)),
    "headers without a cause": Plant("record-foreign", with_headers(lambda term, seq: numbered(term, seq + 1)[:3])),
    "a number that is none": Plant(
        "record-foreign", with_headers(lambda term, seq: numbered(term, seq, ("seq", b"x")))
    ),
    "a position": Plant("record-foreign", a_record(record=A_POSITION, is_leaders=True)),
    "another job": Plant(
        "record-foreign", a_record(record=JobIdentityPut(job_name="other", job_id="1"), is_leaders=True), shifts=True
    ),
    "a duplicate": Plant("stream-two-writers", with_headers(numbered)),
    "a number that goes back": Plant("stream-two-writers", with_headers(lambda term, seq: numbered(term, seq - 3))),
    "a coordinator of before": Plant(
        "stream-two-writers", with_headers(lambda term, seq: numbered(term - 1, seq + 1))
    ),
    "a term that was not begun": Plant(
        "stream-wrong-term", with_headers(lambda term, seq: numbered(term + 1, seq + 1))
    ),
    "a term that was left out": Plant(
        "stream-wrong-term",
        lambda term, seq: a_record(record=a_term(term + 2))(term, seq)._replace(headers=numbered(term + 2, seq + 1)),
    ),
    "a term of another number": Plant("stream-wrong-term", a_record(record=a_term(77), is_leaders=True)),
    "an unknown fingerprint": Plant("record-unreadable", a_record(value=b"\xc3\x01" + b"12345678" + EPOCH[10:])),
    "a truncated value": Plant("record-unreadable", a_record(key=b"term", value=(A_TERM or b"")[:-4])),
    "bytes behind the value": Plant("record-unreadable", a_record(value=EPOCH + b"x")),
    "no bytes at all": Plant("record-unreadable", a_record(value=b"")),
    "JSON": Plant("record-unreadable", a_record(value=b'{"epoch": 9}')),
    "a key that is no text": Plant("record-unreadable", a_record(key=b"\xff\xfe", value=EPOCH)),
    "no key": Plant("record-unreadable", a_record(key=None, value=EPOCH)),
    "a key of nobody": Plant("record-unreadable", a_record(key=b"weather/today", value=EPOCH)),
    "another's key": Plant("record-unreadable", a_record(key=b"grant/t/9", value=EPOCH)),
    "a key in a second spelling": Plant("record-unreadable", a_record(key=b"plan/01/task/t", value=None)),
    "a value that is too large": Plant("record-unreadable", a_record(value=EPOCH + bytes(1024 * 1024))),
    "a value of another kind, with a number": Plant(
        "record-unreadable", a_record(key=b"job", value=EPOCH, is_leaders=True), shifts=True
    ),
    "a schema under another's fingerprint": Plant(
        "stream-schema",
        a_record(record=SchemaPut(fingerprint="0011223344556677", schema_json='"int"'), is_leaders=True),
        shifts=True,
    ),
}


def planted(healthy: list[LogRecord], plants: dict[int, Plant]) -> list[LogRecord]:
    """`healthy` with each of `plants` after the record of that index.

    The numbers continue after a plant that has a number.
    """
    stream: list[LogRecord] = []
    shift = 0
    for index, record in enumerate(healthy):
        term, seq = term_and_seq(record)
        kept = dict(record.headers)
        stream.append(record._replace(headers=tuple((kept | {"seq": str(seq + shift).encode()}).items())))
        plant = plants.get(index)
        if plant is not None:
            stream.append(plant.make(term, seq + shift)._replace(offset=record.offset + 1))
            shift += plant.shifts
    return stream


def verified(tmp_path: Path, records: list[LogRecord], **options: object) -> list[tuple[object, object]]:
    file = a_file(tmp_path / "stream.avro", records, **options)  # type: ignore[arg-type]  # settings are text
    result = samzapy("stream", "verify", "--from", str(file), "-o", "jsonl")
    rows = rows_of(result)
    assert result.exit_code == (8 if rows else 0), result.exception
    assert all(row["remedy"] for row in rows)
    assert all(row["offset"] is None or f"offset {row['offset']}" in str(row["found"]) for row in rows)
    return [(row["code"], row["offset"]) for row in rows]


def test_a_stream_that_coordinators_wrote_has_no_fault(tmp_path: Path) -> None:
    assert [] == verified(tmp_path, HEALTHY)
    assert [] == verified(tmp_path, [])


@pytest.mark.parametrize("name", PLANTED)
def test_each_fault_is_named_with_its_offset(name: str, tmp_path: Path) -> None:
    plant = PLANTED[name]

    assert [(plant.code, STEP * (LAST_TERM + 2) + 1)] == verified(tmp_path, planted(HEALTHY, {LAST_TERM + 2: plant}))


def test_all_faults_in_one_stream_are_reported_with_their_offsets(tmp_path: Path) -> None:
    places = range(4, 4 + len(PLANTED))
    assert places[-1] < len(HEALTHY), "the stream is too short for its faults"

    findings = verified(tmp_path, planted(HEALTHY, dict(zip(places, PLANTED.values(), strict=True))))

    expected = [(plant.code, STEP * place + 1) for place, plant in zip(places, PLANTED.values(), strict=True)]
    assert sorted(expected) == sorted(findings)


# --- records that may be written, and may not be decided ---


STATE = replay(HEALTHY, topic=TOPIC).state
"""At the end: e2 of processor 1 has both tasks; e1 of processor 0 was fenced, and is forgotten."""
EPOCH_NEXT, GENERATION = STATE.epoch + 1, STATE.generation.generation if STATE.generation else 0
GIVEN = next(grant for grant in STATE.grants_sorted if grant.execution_id == "e2")
OTHER = next(grant for grant in STATE.grants_sorted if grant.execution_id == "e2" and grant != GIVEN)
E2 = STATE.containers[ExecutionId("e2")]
E3 = replace(E2, execution_id=ExecutionId("e3"), pid=9)
PLANNED = next(planned for planned in STATE.plan if planned.task_name == GIVEN.task_name)
REQUEST = RequestPut(
    uuid="88b0d30c-d518-4307-9e8e-c8529eb30f04",
    offset=3,
    place="samzapy-control-v1.text.json",
    action=Action.RESTART_QUERY,
    deployment_id="1-00000001",
    processor_id="1",
    destination_host="",
    request_expiry_ms=0,
    timestamp_ms=7,
    run_id="1-00000001",
    status_code=StatusCode.ACCEPTED,
    response_message="",
    accepted_at_ms=8,
    decided_at_ms=8,
)
MOVE = replace(REQUEST, action=Action.PLACE_CONTAINER, destination_host="host-b")
REFUSED = replace(REQUEST, status_code=StatusCode.BAD_REQUEST)
REMEMBERED = RequestMemoryPut(
    uuid=REQUEST.uuid,
    timestamp_ms=7,
    place=REQUEST.place,
    run_id=REQUEST.run_id,
    status_code=StatusCode.BAD_REQUEST,
    decided_at_ms=8,
    phase=MemoryPhase.ANSWERED,
    offset=3,
)
RUN = STATE.run or RunPut(run_id="", ended=False)


def granted(grant: Grant, *, offset_next: int | None = None, **changes: object) -> tuple[Record, ...]:
    """The next grant, like `grant`."""
    starts = tuple(
        start if offset_next is None else replace(start, offset_next=offset_next) for start in grant.starts
    )
    changed = replace(grant, **{"epoch": EPOCH_NEXT, "starts": starts} | changes)  # type: ignore[arg-type]
    return EpochPut(epoch=changed.epoch), GrantPut(grant=changed)


def released(grant: Grant) -> GrantPut:
    return GrantPut(grant=replace(grant, released=True))


def changed_request(request: RequestPut, **changes: object) -> RequestPut:
    return replace(request, **changes)  # type: ignore[arg-type]


def one_half(ssp_kb: SspKeyBucket) -> SspKeyBucket:
    return SspKeyBucket(ssp_kb.ssp, ssp_kb.bucket, 2)


HALF = replace(
    PLANNED,
    generation=GENERATION + 1,
    task_name=TaskName(f"{PLANNED.task_name}-0-2"),
    ssp_kbs=tuple(map(one_half, PLANNED.ssp_kbs)),
)


REWIND = replace(REQUEST, action=Action.REWIND, processor_id="", arguments='{"stream":"kafka.orders","to":"oldest"}')


def a_rewind_decision(offset_next: int, *, epoch: int = EPOCH_NEXT) -> tuple[EpochPut, StartpointPut]:
    """A startpoint for the input of `GIVEN`, under a number of its own."""
    startpoint = Startpoint(ssp_kb=GIVEN.starts[0].ssp_kb, offset_next=offset_next, epoch=epoch, uuid=REWIND.uuid)
    return EpochPut(epoch=epoch), StartpointPut(startpoint=startpoint)


BEGUN = replace(REWIND, status_code=StatusCode.IN_PROGRESS)
REWOUND = (
    released(GIVEN),
    *granted(GIVEN, offset_next=50),
    released(replace(GIVEN, epoch=EPOCH_NEXT, starts=tuple(replace(s, offset_next=50) for s in GIVEN.starts))),
    REWIND,
    *a_rewind_decision(30, epoch=EPOCH_NEXT + 1),
    BEGUN,
)
"""A task that began at 50 is free, and to begin at 30."""


BROKEN: dict[str, tuple[Record, ...]] = {
    "a task that is held is given to another": (ContainerPut(container=E3), *granted(GIVEN, execution_id="e3")),
    "a bucket that is held is given with another task": (
        replace(PLANNED, generation=GENERATION + 1, task_name=TaskName("other")),
        GenerationPut(
            generation=GENERATION + 1, factor=1, task_count=1, scheme="max", processor_ids=(E2.processor_id,)
        ),
        *granted(GIVEN, task_name="other", generation=GENERATION + 1),
    ),
    "a task is given to who is gone": granted(GIVEN, execution_id="e1"),
    "a task is given to who is not planned for": (
        released(GIVEN),
        ContainerPut(container=replace(E3, processor_id=ProcessorId("7"))),
        *granted(GIVEN, execution_id="e3"),
    ),
    "a task is given with buckets that are not planned": (released(GIVEN), *granted(GIVEN, starts=OTHER.starts)),
    "a task begins before it began": (
        released(GIVEN),
        *granted(GIVEN, offset_next=10),
        released(replace(GIVEN, epoch=EPOCH_NEXT, starts=tuple(replace(s, offset_next=10) for s in GIVEN.starts))),
        EpochPut(epoch=EPOCH_NEXT + 1),
        GrantPut(grant=replace(GIVEN, epoch=EPOCH_NEXT + 1)),
    ),
    "a task begins before it was rewound to": (*REWOUND, *granted(GIVEN, epoch=EPOCH_NEXT + 2, offset_next=29)),
    "a task begins behind where it was rewound to": (*REWOUND, *granted(GIVEN, epoch=EPOCH_NEXT + 2, offset_next=50)),
    "another task begins before it began, which was not rewound": (
        *REWOUND,
        released(OTHER),
        *granted(OTHER, epoch=EPOCH_NEXT + 2, offset_next=50),
        released(
            replace(OTHER, epoch=EPOCH_NEXT + 2, starts=tuple(replace(s, offset_next=50) for s in OTHER.starts))
        ),
        *granted(OTHER, epoch=EPOCH_NEXT + 3, offset_next=30),
    ),
    "a task is rewound once and goes back twice": (
        *REWOUND,
        *granted(GIVEN, epoch=EPOCH_NEXT + 2, offset_next=30),
        released(
            replace(GIVEN, epoch=EPOCH_NEXT + 2, starts=tuple(replace(s, offset_next=30) for s in GIVEN.starts))
        ),
        *granted(GIVEN, epoch=EPOCH_NEXT + 3, offset_next=29),
    ),
    "a startpoint that nobody asked for": a_rewind_decision(30),
    "a startpoint of a request that has begun": (REWIND, BEGUN, *a_rewind_decision(30)),
    "a startpoint of a request for something else": (REQUEST, *a_rewind_decision(30)),
    "a startpoint under the epoch of a grant": (released(GIVEN), *granted(GIVEN), REWIND, a_rewind_decision(30)[1]),
    "a startpoint under no new epoch": (REWIND, a_rewind_decision(30, epoch=STATE.epoch)[1]),
    "a grant under the epoch of a startpoint": (
        REWIND,
        *a_rewind_decision(30),
        BEGUN,
        released(GIVEN),
        granted(GIVEN, offset_next=30)[1],
    ),
    "a startpoint that is removed before it is taken up": (*REWOUND, Removed(key=key_of(a_rewind_decision(30)[1]))),
    "a grant under no new epoch": (
        released(GIVEN),
        EpochPut(epoch=EPOCH_NEXT),
        GrantPut(grant=replace(GIVEN, epoch=1)),
    ),
    "a grant that is taken back": (released(GIVEN), GrantPut(grant=GIVEN)),
    "a grant that is changed": (GrantPut(grant=replace(GIVEN, execution_id=ExecutionId("e1"))),),
    "a grant that is removed before there is another": (Removed(key=key_of(GrantPut(grant=GIVEN))),),
    "a grant that is removed before there are others for all of it": (
        released(GIVEN),
        HALF,
        GenerationPut(
            generation=GENERATION + 1, factor=2, task_count=1, scheme="max", processor_ids=(E2.processor_id,)
        ),
        *granted(
            GIVEN,
            task_name=HALF.task_name,
            generation=HALF.generation,
            starts=tuple(replace(start, ssp_kb=one_half(start.ssp_kb)) for start in GIVEN.starts),
        ),
        Removed(key=key_of(GrantPut(grant=GIVEN))),
    ),
    "an epoch that was given out": (EpochPut(epoch=STATE.epoch),),
    "a generation that goes back": (
        GenerationPut(generation=GENERATION, factor=1, task_count=2, scheme="max", processor_ids=()),
    ),
    "a generation without its tasks": (
        GenerationPut(generation=GENERATION + 1, factor=1, task_count=2, scheme="max", processor_ids=()),
    ),
    "a plan behind the one in force": (replace(PLANNED, task_name=TaskName("late")),),
    "a plan in force that loses a task": (Removed(key=key_of(PLANNED)),),
    "an execution that comes back": tuple(
        ContainerPut(container=replace(E3, phase=phase))
        for phase in (ContainerPhase.RUNNING, ContainerPhase.LOST, ContainerPhase.RUNNING)
    ),
    "an execution that becomes another process": (
        ContainerPut(container=replace(E2, phase=ContainerPhase.LOST, pid=1)),
    ),
    "an execution that is new and gone": (ContainerPut(container=replace(E3, phase=ContainerPhase.FENCED)),),
    "an execution that is forgotten while it lives": (Removed(key=key_of(ContainerPut(container=E2))),),
    "a success without a request": (changed_request(REQUEST, status_code=StatusCode.SUCCEEDED, restart=1),),
    "a success without an order": (
        REQUEST,
        changed_request(REQUEST, status_code=StatusCode.IN_PROGRESS, restart=1),
        changed_request(REQUEST, status_code=StatusCode.SUCCEEDED, restart=1),
    ),
    "a terminal status that changes": (REFUSED, REQUEST),
    "a request that goes back": (
        REQUEST,
        changed_request(REQUEST, status_code=StatusCode.IN_PROGRESS, restart=1),
        REQUEST,
    ),
    "a request that is changed": (REQUEST, changed_request(REQUEST, processor_id="0")),
    "a uuid that comes again": (REFUSED, REMEMBERED, Removed(key=key_of(REFUSED)), REQUEST),
    "a request that is removed and not remembered": (REFUSED, Removed(key=key_of(REFUSED))),
    "a memory of nothing": (REMEMBERED,),
    "a memory of something else": (REQUEST, replace(REMEMBERED, status_code=StatusCode.SUCCEEDED)),
    "a uuid that is forgotten too early": (REFUSED, REMEMBERED, Removed(key=key_of(REMEMBERED))),
    "a restart that nobody asked for": (RestartPut(processor_id=E2.processor_id, number=1, uuid=REQUEST.uuid),),
    "a restart that is left out": (
        changed_request(REQUEST),
        changed_request(REQUEST, status_code=StatusCode.IN_PROGRESS, restart=2),
        RestartPut(processor_id=E2.processor_id, number=2, uuid=REQUEST.uuid),
    ),
    "a placement that nobody asked for": (
        PlacedPut(processor_id=E2.processor_id, execution_id=E2.execution_id, uuid=REQUEST.uuid),
    ),
    "a placement on an execution that is gone": (
        changed_request(MOVE),
        changed_request(MOVE, status_code=StatusCode.IN_PROGRESS, execution_id=E3.execution_id),
        PlacedPut(processor_id=E2.processor_id, execution_id=E3.execution_id, uuid=MOVE.uuid),
    ),
    "an inbox that goes back": (InboxPut(offset_next=5), InboxPut(offset_next=4)),
    "a horizon of uuids that goes back": (
        InboxPut(offset_next=5, forgotten_timestamp_ms=9, forgotten_uuid="a"),
        InboxPut(offset_next=6),
    ),
    "a run that does not stay ended": (replace(RUN, ended=True), RUN),
    "a changelog partition that moves": (ChangelogPartitionPut(task_name=GIVEN.task_name, partition=7),),
    "an input that began otherwise": tuple(replace(put, partition_count_first=9) for put in STATE.inputs.values())[
        :1
    ],
    "a format that goes back": (FormatLevelPut(level=FORMAT_LEVEL + 1), FormatLevelPut(level=FORMAT_LEVEL)),
}


def following(records: Iterable[Record]) -> list[LogRecord]:
    """`records` as a leader would have written them after the healthy ones."""
    term, seq = term_and_seq(HEALTHY[-1])
    return [
        LogRecord(
            offset=HEALTHY[-1].offset + STEP * number,
            timestamp_ms=HEALTHY[-1].timestamp_ms,
            key=encode(record)[0],
            value=encode(record)[1],
            headers=numbered(term, seq + number),
        )
        for number, record in enumerate(records, start=1)
    ]


@pytest.mark.parametrize("name", BROKEN)
def test_each_decision_that_no_coordinator_takes_is_named_with_its_offset(name: str, tmp_path: Path) -> None:
    behind = following(BROKEN[name])

    assert [("stream-law", behind[-1].offset)] == verified(tmp_path, [*HEALTHY, *behind])


def test_a_task_that_starts_at_its_rewound_position_violates_no_invariant(tmp_path: Path) -> None:
    behind = following(
        [
            *REWOUND,
            *granted(GIVEN, epoch=EPOCH_NEXT + 2, offset_next=30),
            Removed(key=key_of(GrantPut(grant=replace(GIVEN, epoch=EPOCH_NEXT)))),
            Removed(key=key_of(a_rewind_decision(30)[1])),
        ]
    )

    assert [] == verified(tmp_path, [*HEALTHY, *behind])


def test_an_invariant_is_checked_against_the_last_valid_state(tmp_path: Path) -> None:
    """One fault is one finding, and later good records have none."""
    again, back = EpochPut(epoch=STATE.epoch), InboxPut(offset_next=3)
    behind = following(
        [again, InboxPut(offset_next=5), back, again, InboxPut(offset_next=6), EpochPut(epoch=EPOCH_NEXT)]
    )

    findings = verified(tmp_path, [*HEALTHY, *behind])

    assert [("stream-law", behind[index].offset) for index in (0, 2, 3)] == findings


def test_invariants_are_not_checked_on_incomplete_history(tmp_path: Path) -> None:
    """Before the horizon, and behind a record that is missing or cannot be read."""
    broken = following([EpochPut(epoch=STATE.epoch), EpochPut(epoch=1)])
    first, second = broken

    assert [("stream-law", second.offset)] == verified(tmp_path, [*HEALTHY, *broken], whole_from=second.offset)
    (tmp_path / "stream.avro").unlink()
    torn = first._replace(value=(first.value or b"")[:-1])
    assert [("record-unreadable", first.offset)] == verified(tmp_path, [*HEALTHY, torn, second])
    (tmp_path / "stream.avro").unlink()
    assert [("stream-gap", second.offset)] == verified(tmp_path, [*HEALTHY, second])


def test_a_gap_is_reported_at_the_offset_of_the_next_record(tmp_path: Path) -> None:
    missing = LAST_TERM + 3

    assert [("stream-gap", STEP * (missing + 1))] == verified(tmp_path, HEALTHY[:missing] + HEALTHY[missing + 1 :])


def test_records_that_compaction_may_have_removed_are_no_gap(tmp_path: Path) -> None:
    """The first record that another of its key follows; the horizon is behind both."""
    keys = [record.key for record in HEALTHY]
    missing = next(index for index, key in enumerate(keys) if key in keys[index + 1 :])
    again = keys.index(keys[missing], missing + 1)
    left = HEALTHY[:missing] + HEALTHY[missing + 1 :]

    assert [] == verified(tmp_path, left, whole_from=STEP * again + 1)


def test_an_unrecorded_schema_is_reported_at_its_first_use(tmp_path: Path) -> None:
    first = next(record for record in HEALTHY if record.key == b"term")
    of_term = f"schema/{(first.value or b'')[2:10].hex()}".encode()
    left = [record for record in HEALTHY if record.key != of_term]

    assert ("stream-schema", first.offset) in verified(tmp_path, left)


def test_a_policy_under_which_records_are_lost_is_named(tmp_path: Path) -> None:
    file = a_file(tmp_path / "stream.avro", HEALTHY, **{"cleanup.policy": "delete"})

    result = samzapy("stream", "verify", "--from", str(file), "-o", "jsonl")

    (row,) = rows_of(result)
    assert ("topic-cleanup-policy", None, f"topic {TOPIC}") == (row["code"], row["offset"], row["subject"])
    assert 8 == result.exit_code
    assert "topic-cleanup-policy" in samzapy("stream", "verify", "--from", str(file)).stdout
