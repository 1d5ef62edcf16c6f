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
             "otherTasks": {"count": 0}, "stores": {"totals": {"bytes": 8192, "entries": 90}}}}
```

`state` is STARTED, RUNNING or STOPPED. These may be left out, and so may everything in the last three: `faultDomain`,
`reason`, `step` (of the start procedure, while it is under way), `restart` (the newest order to restart that the query
which runs knows), `warm` (of standbys and reserves: `model.standby_progress`), `failing` (a query that fails without a
commit: `model.failing`) and `figures` (those of a task are in `model.task_stats`; `stores` has the sizes of the stores
of all its tasks, as `model.store_size` has them; `bootstrapEnd` of a position is up to where a bootstrap input is read
while others of its task wait; `tailing` of a position is true while a worker reads it in a tail). So may
`acceptedLosses`, texts as in task.lost.range.accept: what the operator gave up when this execution was started;
`finished` (default false); `comesBack` (default true: the processor's id is configured, or kept); `exitCode`, of the
last heartbeat of a process that ends because of an error, which `reason` tells; `end`, the same for programs, and
`formerEnds`, the ends of earlier containers that the stream does not have (`model.container_end`);
`slowMessages`, the messages that user code has had in hand for long (`model.slow_message`); `openForMs` of a position,
for how long a transaction of another producer is open at its end; `unansweredMs`, the time since it sent the first
heartbeat of those that had no answer; `kafkaSilentMs`, the time since no broker answers it; and `outputs`, the
undeclared topics to which containers on its host have sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from samzapy.config import AcceptedLoss, accepted_loss, is_topic_name
from samzapy.coordinator.commands import Figures, Heartbeat
from samzapy.coordinator.grant_values import HeldGrant, Position
from samzapy.errors import ConfigError
from samzapy.model.container import SLOT_COUNT_MAX, ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.model.failing import Failing
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.slow_message import SlowMessage
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.store_size import sizes_from_json
from samzapy.model.strict_json import parse_json
from samzapy.model.task_stats import TaskStats
from samzapy.model.topics import OUTPUTS_NAMED_MAX

# Part of transactional ids and keys, so no slash and nothing that needs escaping.
_ID = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
_NAME = re.compile(r"[\x21-\x7e]{1,400}")
_PHASES = {phase.value: phase for phase in (ContainerPhase.STARTED, ContainerPhase.RUNNING, ContainerPhase.STOPPED)}
_LONG_MAX: Final = 2**63 - 1
REASON_LENGTH_MAX: Final = 2000
_EXIT_CODE_MAX: Final = 255
STEP_LENGTH_MAX: Final = 500
FORMER_ENDS_MAX: Final = 20


def parse_heartbeat(body: bytes, *, received_ms: int) -> Heartbeat:
    """Read the body of `POST /containerHeartbeat`.

    Raises:
        ValueError: anything is missing, of another type or out of range; says which field.
    """
    fields = _object(_json(body), "the body")
    return Heartbeat(
        job=_text(fields, "job", _NAME),
        execution_id=ExecutionId(_text(fields, "executionId", _ID)),
        processor_id=ProcessorId(_text(fields, "processorId", _ID)),
        host=_text(fields, "host", _NAME),
        fault_domain=_text(fields, "faultDomain", _NAME) if fields.get("faultDomain") else "",
        boot_id=_text(fields, "bootId", _ID),
        pid=_number(fields, "pid", least=1, most=2**31 - 1),
        process_started_ms=_number(fields, "processStartedMs"),
        slot_count=_number(fields, "slotCount", least=1, most=SLOT_COUNT_MAX),
        format_level=_number(fields, "formatLevel", least=1),
        state=_state(fields),
        stream_offset=_number(fields, "streamOffset"),
        held=frozenset(_held(item) for item in _list(fields, "held")),
        reason=_reason(fields),
        figures=_figures(_object(fields.get("figures", {}), "figures")),
        finished=fields.get("finished") is True,
        accepted_losses=_accepted_losses(fields),
        comes_back=fields.get("comesBack") is not False,
        restart=_count(fields, "restart"),
        warm=None if fields.get("warm") is None else StandbyProgress.from_json(_object(fields["warm"], "warm")),
        failing=None if fields.get("failing") is None else Failing.from_json(_object(fields["failing"], "failing")),
        exit_code=_number(fields, "exitCode", most=_EXIT_CODE_MAX) if "exitCode" in fields else 0,
        end=_own_end(fields),
        former_ends=tuple(
            ContainerEnd.from_json(_object(item, "each of formerEnds"))
            for item in (_list(fields, "formerEnds") if "formerEnds" in fields else [])[:FORMER_ENDS_MAX]
        ),
        step=_step(fields),
        slow_messages=tuple(
            SlowMessage.from_json(_object(item, "each of slowMessages"))
            for item in (_list(fields, "slowMessages") if "slowMessages" in fields else [])[:SLOT_COUNT_MAX]
        ),
        unanswered_ms=_count(fields, "unansweredMs"),
        kafka_silent_ms=_count(fields, "kafkaSilentMs"),
        outputs=_outputs(fields),
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


def _list(fields: Mapping[str, object], name: str) -> list[object]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise _wrong(name, "a list", value)
    return value


def _text(fields: Mapping[str, object], name: str, pattern: re.Pattern[str]) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _wrong(name, f"a text like {pattern.pattern}", value)
    return value


def _number(fields: Mapping[str, object], name: str, *, least: int = 0, most: int = _LONG_MAX) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _wrong(name, f"a whole number from {least} to {most}", value)
    return value


def _count(fields: Mapping[str, object], name: str) -> int:
    return _number(fields, name) if name in fields else 0


def _state(fields: Mapping[str, object]) -> ContainerPhase:
    value = fields.get("state")
    if not isinstance(value, str) or value not in _PHASES:
        raise _wrong("state", f"one of {', '.join(_PHASES)}", value)
    return _PHASES[value]


def _reason(fields: Mapping[str, object]) -> str:
    value = fields.get("reason", "")
    if not isinstance(value, str):
        raise _wrong("reason", "a text", value)
    # Lone surrogates are legal in JSON and cannot be written to a record.
    return value[:REASON_LENGTH_MAX].encode(errors="replace").decode()


def _own_end(fields: Mapping[str, object]) -> ContainerEnd | None:
    """The end of the container itself, under the ids of the heartbeat."""
    if fields.get("end") is None:
        return None
    ids = {name: fields.get(name) for name in ("executionId", "processorId", "host")}
    return ContainerEnd.from_json({**_object(fields["end"], "end"), **ids})


def _step(fields: Mapping[str, object]) -> str:
    value = fields.get("step", "")
    if not isinstance(value, str):
        raise _wrong("step", "a text", value)
    return value[:STEP_LENGTH_MAX].encode(errors="replace").decode()


def _accepted_losses(fields: Mapping[str, object]) -> tuple[AcceptedLoss, ...]:
    items = _list(fields, "acceptedLosses") if "acceptedLosses" in fields else []
    texts = [_text({"each of acceptedLosses": item}, "each of acceptedLosses", _NAME) for item in items]
    try:
        losses = tuple(accepted_loss(text) for text in texts)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    for loss in losses:
        _ssp_kb(loss.ssp_kb)
    return losses


def _outputs(fields: Mapping[str, object]) -> frozenset[str]:
    items = (_list(fields, "outputs") if "outputs" in fields else [])[:OUTPUTS_NAMED_MAX]
    topics = [item for item in items if isinstance(item, str) and is_topic_name(item)]
    if len(topics) < len(items):
        raise _wrong("each of outputs", "the name of a topic", next(item for item in items if item not in topics))
    return frozenset(topics)


def _held(item: object) -> HeldGrant:
    fields = _object(item, "each of held")
    return HeldGrant(TaskName(_text(fields, "task", _NAME)), _number(fields, "epoch"))


def _figures(fields: Mapping[str, object]) -> Figures:
    positions = _object(fields.get("positions", {}), "figures.positions")
    tasks = _object(fields.get("tasks", {}), "figures.tasks")
    others = _object(fields.get("otherTasks", {}), "figures.otherTasks")
    return Figures(
        at_ms=_count(fields, "atMs"),
        records_in=_count(fields, "recordsIn"),
        records_out=_count(fields, "recordsOut"),
        dead_letters=_count(fields, "deadLetters"),
        commits=_count(fields, "commits"),
        batches=_count(fields, "batches"),
        recoveries=_count(fields, "recoveries"),
        batch_ns=_count(fields, "batchNs"),
        input_ns=_count(fields, "inputNs"),
        keyhash_ns=_count(fields, "keyhashNs"),
        offsets_read=_count(fields, "offsetsRead"),
        skipped=_count(fields, "skipped"),
        restored=_count(fields, "restored"),
        restore_total=_count(fields, "restoreTotal"),
        restore_left_ms=_count(fields, "restoreLeftMs"),
        positions={_ssp_kb(name): _position(value) for name, value in positions.items()},
        tasks={
            TaskName(_text({"each of figures.tasks": name}, "each of figures.tasks", _NAME)): TaskStats.from_json(
                _object(value, "each of figures.tasks")
            )
            for name, value in tasks.items()
        },
        other_tasks=TaskStats.from_json(others),
        other_task_count=_count(others, "count"),
        stores=sizes_from_json(fields.get("stores", {})),
    )


def _ssp_kb(text: str) -> SspKeyBucket:
    try:
        return SspKeyBucket.parse(text)
    except ValueError:
        # Its message has the whole text, and that may be as long as a body.
        raise _wrong("an SSP", "the text of one (kafka.orders.3:0/1)", text) from None


def _position(value: object) -> Position:
    fields = _object(value, "each of figures.positions")
    return Position(
        _number(fields, "offsetNext"),
        _number(fields, "offsetEnd"),
        _count(fields, "recordsIn"),
        _count(fields, "bootstrapEnd"),
        fields.get("tailing") is True,
        _count(fields, "openForMs"),
    )


def _wrong(what: str, wanted: str, value: object) -> ValueError:
    return ValueError(f"{what}: wanted {wanted}, found {'nothing' if value is None else repr(value)[:100]}")
