"""How busy a job is, from two looks at its status, and advice to make it faster.

It works on the JSON of `inspection.status`, so that an HTTP client (`samzapy job top`, a controller of the job's size)
needs nothing else. A missing value is None: of an older coordinator, of a task among very many, or because both looks
saw the same heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from samzapy.model.launch import LaunchRole
from samzapy.model.ssp import FACTOR_MAX, SspKeyBucket
from samzapy.model.task_stats import KeySketch

Json = Mapping[str, object]

_RUN_NOTHING: Final = (LaunchRole.STANDBY, LaunchRole.RESERVE)

KEEPS_UP_S: Final = 5.0
"""A lag that takes at most so many seconds is left by a micro-batch, and does not grow."""
SHARE_HIGH: Final = 0.7
"""A task that is busy for so much of its container's batches decides how long they last."""
CORES_HIGH: Final = 0.85
KEY_HIGH: Final = 0.5
"""From here on a bucket that is split in two keeps its busiest key, and so the larger half of its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketLoad:
    """One SSPKb.

    `lag` is its own part of its partition's, as `records_per_s` is; so that they can be compared.
    """

    ssp: str
    records_per_s: float | None
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLoad:
    """One task.

    Attributes:
        owner: the execution that runs it, which may be another processor's for a while; empty without one.
        batch_share: for how much of its container's micro-batches it was busy, at most 1. A long bunch of messages
            counts whole when it ends, although it began before the first look.
        tailing: whether a worker reads its inputs in a tail.
        watermark_lag_ms: how far its watermark is behind the host's clock; None for a task without one.
        key, key_share: its most frequent key, and at least which share of its records has it; None when none stands
            out.
    """

    task: str
    processor_id: str
    records_per_s: float | None
    lag: int | None
    batch_share: float | None
    owner: str = ""
    tailing: bool = False
    watermark_lag_ms: int | None = None
    key: str | None = None
    key_share: float | None = None
    buckets: tuple[BucketLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorLoad:
    """One container, which runs the tasks of a processor.

    Attributes:
        cores_busy: how many of its `cores` its tasks kept busy, while batches ran.
    """

    execution_id: str
    processor_id: str
    cores: int
    tasks: int
    cores_busy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLoad:
    """A whole job.

    Attributes:
        factor: its elasticity factor; `factor_fixed_by` is the setting because of which another one would be refused.
        lag: counts each partition once (`inspection.status`).
    """

    job: str
    factor: int
    lag: int | None
    tasks: tuple[TaskLoad, ...]
    processors: tuple[ProcessorLoad, ...]
    factor_fixed_by: str = ""

    @property
    def records_per_s(self) -> float | None:
        rates = [task.records_per_s for task in self.tasks if task.records_per_s is not None]
        return sum(rates) if rates else None


class Advice(StrEnum):
    """The kinds of advice to make a job faster."""

    UNKNOWN = "unknown"
    KEEPS_UP = "keeps-up"
    LARGER_FACTOR = "larger-factor"
    ONE_KEY = "one-key"
    MORE_CORES = "more-cores"
    INPUT = "input"


@dataclass(frozen=True, slots=True)
class Hint:
    """The advice, and why, in a sentence or two."""

    advice: Advice
    text: str


def load_of(before: Json, now: Json) -> JobLoad:
    """The change between two statuses of one job."""
    containers_before, containers = _by_name(before, "containers", "executionId"), json_rows(now, "containers")
    tasks_before = _by_name(before, "tasks", "task")
    elapsed: dict[str, _Elapsed] = {}
    for row in containers:
        execution_id = _text(row, "executionId")
        elapsed[execution_id] = _Elapsed.of(containers_before.get(execution_id), row)
    tasks = []
    busy: dict[str, float] = {}
    for row in json_rows(now, "tasks"):
        owner = _text(row, "owner")
        earlier = tasks_before.get(_text(row, "task"))
        if earlier is None or _text(earlier, "owner") != owner:
            earlier = {}
        load = _task_load(earlier, row, elapsed.get(owner, _UNKNOWN))
        tasks.append(load)
        if load.batch_share is not None:
            busy[owner] = busy.get(owner, 0.0) + load.batch_share
    owned = [_text(row, "owner") for row in json_rows(now, "tasks")]
    return JobLoad(
        job=_text(now, "job"),
        factor=int(_number(now, "factor") or 1),
        factor_fixed_by=_text(now, "factorFixedBy"),
        lag=_whole(_object(now, "totals"), "lag"),
        tasks=tuple(tasks),
        processors=tuple(
            ProcessorLoad(
                execution_id=_text(row, "executionId"),
                processor_id=_text(row, "processorId"),
                cores=int(_number(row, "slotCount") or 0),
                tasks=owned.count(_text(row, "executionId")),
                cores_busy=busy.get(_text(row, "executionId")),
            )
            for row in containers
            # Standbys and reserves say of which processor they are, and run none of its tasks yet.
            if _text(row, "role") not in _RUN_NOTHING or _text(row, "executionId") in owned
        ),
    )


def load_json(load: JobLoad) -> Json:
    """As programs read it: `load` and the hint."""
    hint = hint_of(load)
    return {
        "job": load.job,
        "factor": load.factor,
        "recordsPerS": load.records_per_s,
        "lag": load.lag,
        "advice": hint.advice.value,
        "hint": hint.text,
        "processors": [
            {
                "processorId": processor.processor_id,
                "cores": processor.cores,
                "coresBusy": processor.cores_busy,
                "tasks": processor.tasks,
            }
            for processor in load.processors
        ],
        "tasks": [
            {
                "task": task.task,
                "processorId": task.processor_id,
                "recordsPerS": task.records_per_s,
                "lag": task.lag,
                "batchShare": task.batch_share,
                "tailing": task.tailing,
                "watermarkLagMs": task.watermark_lag_ms,
                "busiestKey": task.key,
                "busiestKeyShare": task.key_share,
                "buckets": [
                    {"ssp": bucket.ssp, "recordsPerS": bucket.records_per_s, "lag": bucket.lag}
                    for bucket in task.buckets
                ],
            }
            for task in load.tasks
        ],
    }


def hint_of(load: JobLoad) -> Hint:
    """The advice for a faster job.

    The share of the busiest key, the spread over tasks and the cores decide.
    """
    if not load.tasks or any(task.lag is None for task in load.tasks) or load.records_per_s is None:
        return Hint(Advice.UNKNOWN, "The lag of some tasks is not known yet.")
    behind = [task for task in load.tasks if _is_behind(task)]
    if not behind:
        return Hint(Advice.KEEPS_UP, "The job keeps up with its inputs.")
    slowest = max(
        (task for task in behind if task.batch_share is not None),
        key=lambda task: (task.batch_share, task.lag, task.task),
        default=None,
    )
    if slowest is None or slowest.batch_share is None:
        return Hint(Advice.UNKNOWN, f"{len(behind)} tasks are behind, and their load is not known yet.")
    processor = next((item for item in load.processors if item.execution_id == slowest.owner), None)
    return _hint_of_the_slowest(slowest, slowest.batch_share, processor, load)


def _hint_of_the_slowest(task: TaskLoad, share: float, processor: ProcessorLoad | None, load: JobLoad) -> Hint:
    cores = 0 if processor is None else processor.cores
    cores_busy = 0.0 if processor is None or processor.cores_busy is None else processor.cores_busy
    text = f"{task.task} is busy for {share:.0%} of the time of its batches{_of_all(task, load)}"
    if share < SHARE_HIGH and cores_busy < CORES_HIGH * cores:
        return Hint(
            Advice.INPUT,
            f"The tasks wait for their rows: the busiest one, {text}. Reading takes the time; a larger factor does not "
            "help, more processors or larger batches may.",
        )
    if task.key_share is not None and task.key_share >= KEY_HIGH and share >= SHARE_HIGH:
        return Hint(
            Advice.ONE_KEY,
            f"One key is the problem: {text}, and at least {task.key_share:.0%} of its records have the key "
            f"{task.key}. All records of a key go to one task, so no factor makes this one more than "
            f"{1 / task.key_share:.1f} times as fast: make its records cheaper, or spread the key.",
        )
    largest = f"the factor is {FACTOR_MAX} already" if load.factor >= FACTOR_MAX else ""
    if load.factor_fixed_by:
        largest = f"{load.factor_fixed_by} lets the factor be no other than {load.factor}"
    if cores_busy >= CORES_HIGH * cores:
        further = f", but {largest}" if largest else ", together with a larger factor"
        return Hint(
            Advice.MORE_CORES,
            f"The cores are the limit: the tasks of processor {task.processor_id} keep {cores_busy:.1f} of its {cores} "
            f"busy. More processors help; with more than one core for each task{further}.",
        )
    if largest:
        return Hint(Advice.MORE_CORES, f"{text}, and {largest}: it needs faster code or cores.")
    return Hint(
        Advice.LARGER_FACTOR,
        f"A larger factor would help: {text}, while {max(0.0, cores - cores_busy):.1f} of the {cores} cores of "
        f"processor {task.processor_id} are idle. Try {2 * load.factor}{_limit(task)}.",
    )


def _of_all(task: TaskLoad, load: JobLoad) -> str:
    total, own = load.records_per_s, task.records_per_s
    return f" and gets {own / total:.0%} of all records" if total and own is not None and len(load.tasks) > 1 else ""


def _limit(task: TaskLoad) -> str:
    if task.key_share is None or task.key_share < KEY_HIGH / 4:
        return ""
    return f"; its busiest key, {task.key}, bounds the gain to {1 / task.key_share:.1f} times"


def _is_behind(task: TaskLoad) -> bool:
    return task.lag is not None and task.lag > KEEPS_UP_S * (task.records_per_s or 0.0)


# --- reading ---


@dataclass(frozen=True, slots=True)
class _Elapsed:
    """Between two heartbeats of one execution: seconds, and time of micro-batches.

    None: not known.
    """

    seconds: float | None
    batch_ns: float | None

    @classmethod
    def of(cls, before: Json | None, now: Json) -> _Elapsed:
        earlier, later = _object(before or {}, "figures"), _object(now, "figures")
        ms, batch_ns = _difference(earlier, later, "atMs"), _difference(earlier, later, "batchNs")
        return cls(ms / 1000 if ms else None, batch_ns or None)


_UNKNOWN: Final = _Elapsed(None, None)


def _task_load(before: Json, now: Json, elapsed: _Elapsed) -> TaskLoad:
    earlier, later = _object(before, "figures"), _object(now, "figures")
    positions_before = _by_name(before, "positions", "ssp")
    buckets = tuple(
        BucketLoad(
            ssp=_text(row, "ssp"),
            records_per_s=_rate(positions_before.get(_text(row, "ssp"), {}), row, elapsed),
            lag=_own_lag(row),
        )
        for row in json_rows(now, "positions")
    )
    rates = [bucket.records_per_s for bucket in buckets if bucket.records_per_s is not None]
    # A figure of zero is left out of a task's figures; without figures the task was not reported.
    share = None
    if isinstance(before.get("figures"), dict) and isinstance(now.get("figures"), dict) and elapsed.batch_ns:
        busy_ns = (_number(later, "busyNs") or 0.0) - (_number(earlier, "busyNs") or 0.0)
        share = min(1.0, max(0.0, busy_ns / elapsed.batch_ns))
    busiest = _sketch(later).busiest()
    return TaskLoad(
        task=_text(now, "task"),
        processor_id=_text(now, "processorId"),
        owner=_text(now, "owner"),
        records_per_s=sum(rates) if rates and len(rates) == len(buckets) else None,
        lag=_whole(now, "lag"),
        batch_share=share,
        tailing=any(row.get("tailing") is True for row in json_rows(now, "positions")),
        watermark_lag_ms=_whole(_object(later, "time"), "lagMs"),
        key=None if busiest is None else busiest[0],
        key_share=None if busiest is None else busiest[1],
        buckets=buckets,
    )


def _sketch(figures: Json) -> KeySketch:
    keys = _object(figures, "keys")
    counts = {str(key): int(_number(keys, key) or 0) for key in sorted(keys)}
    return KeySketch(int(_number(figures, "keysSampled") or 0) or 1, counts)


def _rate(before: Json, now: Json, elapsed: _Elapsed) -> float | None:
    records = _difference(before, now, "recordsIn")
    return None if records is None or elapsed.seconds is None else max(0.0, records) / elapsed.seconds


def _own_lag(position: Json) -> int | None:
    lag = _whole(position, "lag")
    try:
        return None if lag is None else SspKeyBucket.parse(_text(position, "ssp")).part_of(lag)
    except ValueError:
        return None


def _difference(before: Json, now: Json, name: str) -> float | None:
    earlier, later = _number(before, name), _number(now, name)
    return None if earlier is None or later is None else later - earlier


def json_rows(document: Json, name: str) -> Sequence[Json]:
    """The objects of a list in a status; none where it has no such list."""
    rows = document.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _by_name(document: Json, name: str, key: str) -> Mapping[str, Json]:
    return {_text(row, key): row for row in json_rows(document, name)}


def _object(document: Json, name: str) -> Json:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _text(document: Json, name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _number(document: Json, name: str) -> float | None:
    value = document.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(document: Json, name: str) -> int | None:
    value = _number(document, name)
    return None if value is None else int(value)
