"""The JSON of a heartbeat, parsed strictly.

It comes from outside, and its content ends up in records.

Documented shape (fields that are not named here are ignored, so that a newer container may
say more than this release understands):

```json
{"job": "flights-1", "executionId": "0-8f3a…", "processorId": "0", "host": "host-a", "faultDomain": "rack-1",
 "bootId": "…", "pid": 4711,
 "processStartedMs": 123456, "slotCount": 2, "formatLevel": 1, "state": "RUNNING", "streamOffset": 42,
 "held": [{"task": "SystemStreamPartition_kafka.orders.3", "epoch": 7}], "reason": "",
 "restart": 2, "warm": {"tasks": 4, "level": 3, "lag": 120, "restored": 900, "total": 1020, "atHand": 0,
  "rehearsed": false},
 "failing": {"attempts": 4, "forMs": 30000, "leftMs": 570000, "reason": "…"}, "step": "bringing local state level",
 "figures": {"atMs": 1234, "recordsIn": 1, "recordsOut": 1, "deadLetters": 0, "commits": 1, "batches": 1,
             "recoveries": 0, "batchNs": 1, "inputNs": 1, "keyhashNs": 0, "offsetsRead": 1, "skipped": 0,
             "restored": 300, "restoreTotal": 1000, "restoreLeftMs": 7000,
             "positions": {"kafka.orders.3:0/1": {"offsetNext": 100, "offsetEnd": 120, "recordsIn": 1}},
             "tasks": {"SystemStreamPartition_kafka.orders.3": {"recordsIn": 1, "busyNs": 1}},
             "otherTasks": {"count": 0}}}
```

`state` is STARTED, RUNNING or STOPPED. These may be left out, and so may everything in the last three: `faultDomain`,
`reason`, `step` (of the start procedure, while it is under way), `restart` (the newest order to restart that the query
which runs knows), `warm` (of standbys and reserves: `model.standby_progress`), `failing` (a query that fails without a
commit: `model.failing`) and `figures` (those of a task are in `model.task_stats`;
`bootstrapEnd` of a position is up to where a bootstrap input is read while others of its task
wait). So may `acceptedLosses`, texts as in task.lost.range.accept: what the operator gave up when this execution was
started; `finished` (default false); `comesBack` (default true: the processor's id is configured, or kept);
`exitCode`, of the last heartbeat of a process that ends because of an error, which `reason` tells; `unansweredMs`, the
time since it sent the first heartbeat of those that had no answer; and `kafkaSilentMs`, the time since no broker
answers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from samzapy.config import AcceptedLoss, accepted_loss
from samzapy.coordinator.commands import Figures, Heartbeat, HeldGrant, Position
from samzapy.errors import ConfigError
from samzapy.model.container import ContainerPhase
from samzapy.model.failing import Failing
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.strict_json import parse_json
from samzapy.model.task_stats import TaskStats

# Part of transactional ids and keys, so no slash and nothing that needs escaping.
_ID = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
_NAME = re.compile(r"[\x21-\x7e]{1,400}")
_SAID = {phase.value: phase for phase in (ContainerPhase.STARTED, ContainerPhase.RUNNING, ContainerPhase.STOPPED)}
_LONG_MAX: Final = 2**63 - 1
SLOT_COUNT_MAX: Final = 512
"""Each slot is a transactional id that is initialised when the execution is given up."""
REASON_LENGTH_MAX: Final = 2000
_EXIT_CODE_MAX: Final = 255
STEP_LENGTH_MAX: Final = 100


def parse_heartbeat(body: bytes, *, received_ms: int) -> Heartbeat:
    """Read the body of `POST /containerHeartbeat`.

    Raises:
        ValueError: anything is missing, of another type or out of range; says which field.
    """
    found = _object(_json(body), "the body")
    return Heartbeat(
        job=_text(found, "job", _NAME),
        execution_id=ExecutionId(_text(found, "executionId", _ID)),
        processor_id=ProcessorId(_text(found, "processorId", _ID)),
        host=_text(found, "host", _NAME),
        fault_domain=_text(found, "faultDomain", _NAME) if found.get("faultDomain") else "",
        boot_id=_text(found, "bootId", _ID),
        pid=_number(found, "pid", least=1, most=2**31 - 1),
        process_started_ms=_number(found, "processStartedMs"),
        slot_count=_number(found, "slotCount", least=1, most=SLOT_COUNT_MAX),
        format_level=_number(found, "formatLevel", least=1),
        state=_state(found),
        stream_offset=_number(found, "streamOffset"),
        held=frozenset(_held(item) for item in _list(found, "held")),
        reason=_reason(found),
        figures=_figures(_object(found.get("figures", {}), "figures")),
        finished=found.get("finished") is True,
        accepted_losses=_accepted_losses(found),
        comes_back=found.get("comesBack") is not False,
        restart=_count(found, "restart"),
        warm=None if found.get("warm") is None else StandbyProgress.from_json(_object(found["warm"], "warm")),
        failing=None if found.get("failing") is None else Failing.from_json(_object(found["failing"], "failing")),
        exit_code=_number(found, "exitCode", most=_EXIT_CODE_MAX) if "exitCode" in found else 0,
        step=_step(found),
        unanswered_ms=_count(found, "unansweredMs"),
        kafka_silent_ms=_count(found, "kafkaSilentMs"),
        received_ms=received_ms,
    )


def _json(body: bytes) -> object:
    try:
        return parse_json(body)
    except ValueError as error:
        raise ValueError(f"wanted a heartbeat as JSON, found {str(error) or 'something else'}") from None


def _object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _wrong(what, "an object", value)
    return value


def _list(found: Mapping[str, object], name: str) -> list[object]:
    value = found.get(name)
    if not isinstance(value, list):
        raise _wrong(name, "a list", value)
    return value


def _text(found: Mapping[str, object], name: str, pattern: re.Pattern[str]) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _wrong(name, f"a text like {pattern.pattern}", value)
    return value


def _number(found: Mapping[str, object], name: str, *, least: int = 0, most: int = _LONG_MAX) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _wrong(name, f"a whole number from {least} to {most}", value)
    return value


def _count(found: Mapping[str, object], name: str) -> int:
    return _number(found, name) if name in found else 0


def _state(found: Mapping[str, object]) -> ContainerPhase:
    value = found.get("state")
    if not isinstance(value, str) or value not in _SAID:
        raise _wrong("state", f"one of {', '.join(_SAID)}", value)
    return _SAID[value]


def _reason(found: Mapping[str, object]) -> str:
    value = found.get("reason", "")
    if not isinstance(value, str):
        raise _wrong("reason", "a text", value)
    # Lone surrogates are legal in JSON and cannot be written to a record.
    return value[:REASON_LENGTH_MAX].encode(errors="replace").decode()


def _step(found: Mapping[str, object]) -> str:
    value = found.get("step", "")
    if not isinstance(value, str):
        raise _wrong("step", "a text", value)
    return value[:STEP_LENGTH_MAX].encode(errors="replace").decode()


def _accepted_losses(found: Mapping[str, object]) -> tuple[AcceptedLoss, ...]:
    items = _list(found, "acceptedLosses") if "acceptedLosses" in found else []
    texts = [_text({"each of acceptedLosses": item}, "each of acceptedLosses", _NAME) for item in items]
    try:
        losses = tuple(accepted_loss(text) for text in texts)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    for loss in losses:
        _ssp_kb(loss.ssp_kb)
    return losses


def _held(item: object) -> HeldGrant:
    found = _object(item, "each of held")
    return HeldGrant(TaskName(_text(found, "task", _NAME)), _number(found, "epoch"))


def _figures(found: Mapping[str, object]) -> Figures:
    positions = _object(found.get("positions", {}), "figures.positions")
    tasks = _object(found.get("tasks", {}), "figures.tasks")
    others = _object(found.get("otherTasks", {}), "figures.otherTasks")
    return Figures(
        at_ms=_count(found, "atMs"),
        records_in=_count(found, "recordsIn"),
        records_out=_count(found, "recordsOut"),
        dead_letters=_count(found, "deadLetters"),
        commits=_count(found, "commits"),
        batches=_count(found, "batches"),
        recoveries=_count(found, "recoveries"),
        batch_ns=_count(found, "batchNs"),
        input_ns=_count(found, "inputNs"),
        keyhash_ns=_count(found, "keyhashNs"),
        offsets_read=_count(found, "offsetsRead"),
        skipped=_count(found, "skipped"),
        restored=_count(found, "restored"),
        restore_total=_count(found, "restoreTotal"),
        restore_left_ms=_count(found, "restoreLeftMs"),
        positions={_ssp_kb(name): _position(value) for name, value in positions.items()},
        tasks={
            TaskName(_text({"each of figures.tasks": name}, "each of figures.tasks", _NAME)): TaskStats.from_json(
                _object(value, "each of figures.tasks")
            )
            for name, value in tasks.items()
        },
        other_tasks=TaskStats.from_json(others),
        other_task_count=_count(others, "count"),
    )


def _ssp_kb(text: str) -> SspKeyBucket:
    try:
        return SspKeyBucket.parse(text)
    except ValueError:
        # Its message has the whole text, and that may be as long as a body.
        raise _wrong("an SSP", "the text of one (kafka.orders.3:0/1)", text) from None


def _position(value: object) -> Position:
    found = _object(value, "each of figures.positions")
    return Position(
        _number(found, "offsetNext"),
        _number(found, "offsetEnd"),
        _count(found, "recordsIn"),
        _count(found, "bootstrapEnd"),
    )


def _wrong(what: str, wanted: str, value: object) -> ValueError:
    return ValueError(f"{what}: wanted {wanted}, found {'nothing' if value is None else repr(value)[:100]}")
