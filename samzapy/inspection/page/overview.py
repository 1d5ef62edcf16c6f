"""The state of a job in one word and one sentence, its inputs and its stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from samzapy.coordinator.assignment.liveness import LIVING, Liveness
from samzapy.coordinator.state import CoordinatorState
from samzapy.inspection.load import Advice, Hint, hint_of
from samzapy.inspection.page.look import Look, lag_by_stream
from samzapy.inspection.page.requests import RequestRow, failed_lately
from samzapy.inspection.page.task_rows import TaskRow, TaskState
from samzapy.inspection.standstill import Cause
from samzapy.inspection.status import is_stopped
from samzapy.inspection.store_sizes import sizes_by_store, store_settings
from samzapy.model.finding import Finding, Severity
from samzapy.model.ssp import SystemStream


class JobState(StrEnum):
    """The state of a job in one word."""

    STOPPED = "STOPPED"
    EMPTY = "EMPTY"
    FAILING = "FAILING"
    STALLED = "STALLED"
    WAITING = "WAITING"
    STARTING = "STARTING"
    LAGGING = "LAGGING"
    RUNNING = "RUNNING"


_WORST_FIRST: Final = (
    *(TaskState.FAILING, TaskState.STALLED, TaskState.WAITING, TaskState.RESTORING),
    *(TaskState.STARTING, TaskState.LAGGING),
)
_VERBS: Final = {
    TaskState.FAILING: ("fails", "fail"),
    TaskState.STALLED: ("stands still", "stand still"),
    TaskState.WAITING: ("waits for an owner", "wait for an owner"),
    TaskState.STARTING: ("starts", "start"),
    TaskState.LAGGING: ("lags", "lag"),
}
"""Of one task, and of several."""
CAUSES_MAX: Final = 3
_PASSES: Final = frozenset(
    {Cause.STARTING, Cause.DEBOUNCE, Cause.RELEASE, Cause.GRANT, Cause.RESTORING, Cause.STEP, Cause.BOOTSTRAP},
)
"""Causes that end by themselves as a rule. The others need a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """A cause for which tasks do not process messages.

    Attributes:
        text: of one of these tasks.
    """

    state: TaskState
    task_count: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """A stream that the job reads.

    Attributes:
        partition_count: of the partitions that the job reads.
        note: the partitions that it does not read yet, or that the topic is gone; empty if all is well.
    """

    stream: str
    partition_count: int
    lag: int | None
    records_per_s: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRow:
    """A store, with its settings as the configuration has them.

    Attributes:
        scope: empty for a store that only a container has.
        bytes_used, entries: of `model.store_size`; None while no container reports the store.
    """

    store: str
    scope: str
    settings: str
    bytes_used: int | None
    entries: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The first view.

    Attributes:
        causes: why tasks do not process messages, the worst first, at most `CAUSES_MAX`.
        failed_requests: `requests.failed_lately`.
        disk_bytes: the local state of all tasks on disk, of all stores together; None if no task reports it.
    """

    state: JobState
    sentence: str
    causes: Sequence[CauseRow]
    failed_requests: Sequence[RequestRow]
    hint: Hint
    counts: Mapping[TaskState, int]
    inputs: Sequence[InputRow]
    outputs_per_s: float | None
    stores: Sequence[StoreRow]
    disk_bytes: int | None
    findings: Sequence[Finding]
    trouble: str

    @property
    def advice(self) -> str:
        """The hint; empty where it would contradict the state of the job."""
        keeps_up = self.hint.advice is Advice.KEEPS_UP
        return "" if keeps_up and self.state is not JobState.RUNNING else self.hint.text

    @property
    def serious_codes(self) -> Sequence[str]:
        """The codes of the findings that are more than a notice."""
        return sorted({finding.code for finding in self.findings if finding.severity is not Severity.NOTICE})


def overview(look: Look) -> Overview:
    """The overview of a look."""
    counts = Counter(row.state for row in look.tasks)
    state, sentence = job_state(look, counts)
    stats = [sighting.figures for sighting in look.snapshot.liveness.last.values()]
    disk_bytes = sum(task.disk_bytes for figures in stats for task in figures.tasks.values())
    disk_bytes += sum(figures.other_tasks.disk_bytes for figures in stats)
    return Overview(
        state=state,
        sentence=sentence,
        causes=_causes(look.tasks),
        failed_requests=failed_lately(look),
        hint=hint_of(look.load),
        counts={kind: counts[kind] for kind in TaskState if counts[kind]},
        inputs=_inputs(look),
        outputs_per_s=look.records_out_per_s,
        stores=_stores(look.snapshot.state, look.snapshot.liveness),
        disk_bytes=disk_bytes or None,
        findings=look.snapshot.findings,
        trouble=look.snapshot.trouble,
    )


def job_state(look: Look, counts: Mapping[TaskState, int]) -> tuple[JobState, str]:
    """The state of the job in one word, and in one sentence."""
    state, total = look.snapshot.state, len(look.tasks)
    if is_stopped(state):
        return JobState.STOPPED, "The last run is over, and no container runs."
    if not total:
        return JobState.EMPTY, "There is no plan yet: no container has joined the job."
    worst = next(kind for kind in (*_WORST_FIRST, TaskState.RUNNING) if counts.get(kind))
    number = counts[worst]
    if worst is TaskState.RESTORING:
        worst, number = TaskState.STARTING, number + counts.get(TaskState.STARTING, 0)
    living = [container for container in state.containers.values() if container.phase in LIVING]
    where = f"{_count(len(living), 'container')} on {_count(len({item.host for item in living}), 'host')}"
    lag = "" if look.lag is None else f"; lag {look.lag:,}"
    if worst is TaskState.RUNNING:
        return JobState.RUNNING, f"{_count(total, 'task')} in {where}{lag}."
    verb = _VERBS[worst][number > 1]
    return JobState(worst.value), f"{number:,} of {_count(total, 'task')} {verb}; {where}{lag}."


def _causes(rows: Iterable[TaskRow]) -> Sequence[CauseRow]:
    """The worst causes, one row for each.

    The state of the tasks counts first, then the need for a person, then the number of tasks.
    """
    counts: Counter[tuple[TaskState, Cause]] = Counter()
    texts: dict[tuple[TaskState, Cause], str] = {}
    for row in rows:
        if row.cause is not None:
            counts[row.state, row.cause] += 1
            texts.setdefault((row.state, row.cause), row.detail)

    def rank(kind: tuple[TaskState, Cause]) -> tuple[int, bool, int]:
        state, cause = kind
        return _WORST_FIRST.index(state), cause in _PASSES, -counts[kind]

    worst = sorted(counts, key=rank)[:CAUSES_MAX]
    return [CauseRow(state=kind[0], task_count=counts[kind], text=texts[kind]) for kind in worst]


def _inputs(look: Look) -> Sequence[InputRow]:
    state, lags = look.snapshot.state, lag_by_stream(look.lags)
    rates = _rates(look)
    rows = []
    for stream in sorted(state.inputs):
        known = state.inputs[stream]
        note = f"{known.expansions[-1].partition_count} partitions exist" if known.expansions else ""
        note = "the topic is gone" if known.gone_at_ms else note
        row = InputRow(
            stream=str(stream),
            partition_count=known.partition_count,
            lag=lags.get(stream),
            records_per_s=rates.get(stream),
            note=note,
        )
        rows.append(row)
    return rows


def _rates(look: Look) -> Mapping[SystemStream, float]:
    rates: dict[SystemStream, float] = {}
    for pace in look.paces().values():
        for ssp_kb in pace.now.positions:
            rate = pace.records_per_s(ssp_kb)
            if rate is not None:
                stream = ssp_kb.ssp.system_stream
                rates[stream] = rates.get(stream, 0.0) + rate
    return rates


def _stores(state: CoordinatorState, liveness: Liveness) -> Sequence[StoreRow]:
    settings = store_settings(state)
    rows = []
    for store, size in sizes_by_store(state, liveness).items():
        own = settings.get(store)
        shown = [f"{setting}={value}" for setting, value in (own or {}).items() if setting != "scope"]
        scope = "" if own is None else own.get("scope", "key")
        row = StoreRow(
            store=store,
            scope=scope,
            settings=", ".join(shown),
            bytes_used=None if size is None else size.bytes_used,
            entries=None if size is None else size.entries,
        )
        rows.append(row)
    return rows


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
