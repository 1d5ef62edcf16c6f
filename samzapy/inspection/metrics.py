"""The metrics of a job, before they have a format (`GET /metrics`).

Names and units follow Prometheus' conventions; `METRICS` is the whole list, and `docs/reference/metrics.md` explains it
row by row. Rates, means and shares are left to the reader: each of them is a quotient of two sums.

There are never more than a few thousand series of a metric, however large a job is: one for each task of a job of up to
`TASKS_SHOWN_MAX` tasks, else one for each processor; one for each SSP of a job that reads up to `SSPS_SHOWN_MAX`, else
one for each stream. A container whose heartbeats do not list all its tasks has one for all of them, too. A sum has `*`
for a label. The plan alone decides between the two, so series do not come and go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from samzapy.coordinator.assignment.grants import newest_grants, owners
from samzapy.coordinator.assignment.liveness import LIVING, Liveness, Sighting
from samzapy.coordinator.commands import Figures
from samzapy.coordinator.launching.standbys import role_of, standby_called
from samzapy.coordinator.snapshot import Snapshot, Timings
from samzapy.coordinator.state import CoordinatorState
from samzapy.inspection.standstill import Cause, standstills
from samzapy.inspection.status import furthest_behind
from samzapy.model.container import Container
from samzapy.model.finding import Severity
from samzapy.model.job import ProcessorId
from samzapy.model.launch import UP, LaunchRole
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.task_stats import TaskStats
from samzapy.model.time_figures import TimeFigures

TASKS_SHOWN_MAX: Final = 1000
SSPS_SHOWN_MAX: Final = 2000
EVERY: Final = "*"
"""The label of a sum over several series."""


class Kind(StrEnum):
    """The kind of a metric.

    A summary has two numbers, a sum and a count, so its mean over any time is a quotient.
    """

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `sep32` is its name in SEP-32, where there is one."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    sep32: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number of a metric; `labels` in the order of its names.

    `count` is that of a summary.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float
    count: int = 0


_OfTask = Callable[[TaskStats], tuple[int, int]]
_OfContainer = Callable[[Figures], int]
JOB, PROCESSOR = ("job",), ("job", "processor")
STANDBY = ("job", "processor", "standby")
STORE = ("job", "processor", "store")
TASK, SSP = ("job", "processor", "task"), ("job", "task", "ssp")
HELD_TASK = (*TASK, "ssp")


def _metric(name: str, kind: Kind, labels: tuple[str, ...], meaning: str, sep32: str = "") -> Metric:
    return Metric(name=f"samzapy_{name}", kind=kind, labels=labels, meaning=meaning, sep32=sep32)


C, G, S = Kind.COUNTER, Kind.GAUGE, Kind.SUMMARY

LEADS = _metric("coordinator_leads", G, JOB, "1 if this process leads the job; only the leader has all other metrics")
TERM = _metric("coordinator_term", G, JOB, "The leader's term; it grows with each failover")
GENERATION = _metric("job_generation", G, JOB, "The number of the plan in force")
FACTOR = _metric("job_elasticity_factor", G, JOB, "Key buckets per SSP in the plan in force")
TASKS = _metric("job_tasks", G, JOB, "Tasks in the plan in force, virtual ones each", "task-count")
WITHOUT_OWNER = _metric("job_tasks_without_owner", G, JOB, "Tasks that no container runs")
FINDINGS = _metric("job_findings", G, JOB, "Findings about the job (`samzapy doctor`)")
STALLED = _metric("task_stalled", G, ("job", "cause"), "Tasks that do not move although they have messages, by cause")
INVALID = _metric(
    "coordinator_invalid_heartbeats_total",
    C,
    JOB,
    "Heartbeats of containers that this process, leading, did not know or had given up (answered alive: false)",
)
REFUSED = _metric(
    "coordinator_refused_requests_total",
    C,
    JOB,
    "HTTP requests that this process, leading, refused for want of a credential or of its scope",
)
MODEL_GENERATION = _metric(
    "job_model_generation_seconds", G, JOB, "Time to make the last new plan", "job-model-generation-ns"
)
CHECKPOINT_COMPUTE = _metric(
    "checkpoint_compute_seconds",
    G,
    JOB,
    "Time to read positions and compute the starts of the last grants",
    "checkpoint-compute-ns",
)

HEARTBEAT_AGE = _metric("container_heartbeat_age_seconds", G, PROCESSOR, "Time since its last heartbeat")
CORES = _metric("container_cores", G, PROCESSOR, "Worker slots: how many tasks it can run at once")
HELD = _metric("container_tasks", G, PROCESSOR, "Tasks it holds")
UNANSWERED = _metric(
    "container_unanswered_seconds", G, PROCESSOR, "For how long its heartbeats have had no answer; 0 while they have"
)
KAFKA_SILENT = _metric(
    "container_kafka_silent_seconds", G, PROCESSOR, "For how long no broker has answered it; 0 while one does"
)
STANDBY_LAG = _metric("standby_lag_records", G, STANDBY, "Offsets of the changelogs beyond the state of a standby")
STANDBY_BEHIND = _metric(
    "standby_tasks_behind", G, STANDBY, "Tasks of its processor of which a standby does not have the state yet"
)
STORE_BYTES = _metric("store_bytes", G, STORE, "Size of the entries of a store in the local state of its tasks")
STORE_ENTRIES = _metric("store_entries", G, STORE, "Entries of a store in the local state of its tasks")
OF_CONTAINER: Final[tuple[tuple[Metric, _OfContainer], ...]] = (
    (_metric("container_records_in_total", C, PROCESSOR, "Records handled"), lambda stats: stats.records_in),
    (_metric("container_records_out_total", C, PROCESSOR, "Records sent"), lambda stats: stats.records_out),
    (
        _metric("container_dead_letters_total", C, PROCESSOR, "Records that failed and were put aside"),
        lambda stats: stats.dead_letters,
    ),
    (
        _metric("container_commits_total", C, PROCESSOR, "Moved positions: one per SSP and transaction"),
        lambda stats: stats.commits,
    ),
    (_metric("container_batches_total", C, PROCESSOR, "Micro-batches"), lambda stats: stats.batches),
    (
        _metric("container_recoveries_total", C, PROCESSOR, "Queries that failed and were started anew"),
        lambda stats: stats.recoveries,
    ),
    (
        _metric("container_offsets_read_total", C, PROCESSOR, "Offsets gone by in the partitions it reads"),
        lambda stats: stats.offsets_read,
    ),
    (
        _metric(
            "container_skipped_envelopes_total",
            C,
            PROCESSOR,
            "Offsets gone by without a record to handle: other containers' key buckets, transaction markers",
            "skipped-envelopes",
        ),
        lambda stats: stats.skipped,
    ),
)
BATCH_SECONDS = _metric("container_batch_seconds_total", C, PROCESSOR, "Time of its micro-batches")
BOOTSTRAP_LAG = _metric(
    "container_bootstrap_lag_records",
    G,
    PROCESSOR,
    "Offsets of bootstrap inputs that are read before the other inputs of their tasks, which wait; else 0",
)
TAILING = _metric(
    "container_tailing_key_buckets",
    G,
    PROCESSOR,
    "Key buckets that its workers read in tails now; 0 while micro-batches read all of them",
)
KEYHASH_SECONDS = _metric(
    "container_keyhash_compute_seconds_total",
    C,
    PROCESSOR,
    "Time to compute the key buckets of the records it read",
    "keyhash-compute-ns",
)
INPUT_SECONDS = _metric(
    "container_input_consumption_seconds_total",
    C,
    PROCESSOR,
    "Time that its workers waited for rows and unpacked them",
    "total-input-consumption-ns",
)

_TASK_COUNTERS: Final[tuple[tuple[Metric, Callable[[TaskStats], int]], ...]] = (
    (_metric("task_records_in_total", C, TASK, "Records handled"), lambda stats: stats.records_in),
    (_metric("task_records_out_total", C, TASK, "Records sent"), lambda stats: stats.records_out),
    (
        _metric("task_dead_letters_total", C, TASK, "Records that failed and were put aside"),
        lambda stats: stats.dead_letters,
    ),
    (
        _metric("task_skipped_envelopes_total", C, TASK, "Records that reached it and were done already"),
        lambda stats: stats.skipped,
    ),
)
BUSY_SECONDS = _metric(
    "task_busy_seconds_total", C, TASK, "Time for which it held a worker: over the time of batches, its share of them"
)
_TASK_SUMMARIES: Final[tuple[tuple[Metric, _OfTask], ...]] = (
    (
        _metric(
            "task_process_seconds", S, TASK, "Handling a record: serdes, user code, handing outputs on", "process-ns"
        ),
        lambda stats: (stats.process_ns, stats.records_in),
    ),
    (
        _metric("task_commit_seconds", S, TASK, "Committing a transaction", "commit-ns"),
        lambda stats: (stats.commit_ns, stats.transactions),
    ),
    (
        _metric(
            "task_get_seconds",
            S,
            TASK,
            "Reading an entry of a store; timed is the first call in each run of rows",
            "get-ns",
        ),
        lambda stats: (stats.get_ns, stats.gets_timed),
    ),
    (
        _metric(
            "task_put_seconds",
            S,
            TASK,
            "Writing an entry of a store; timed is the first call in each run of rows",
            "put-ns",
        ),
        lambda stats: (stats.put_ns, stats.puts_timed),
    ),
    (
        _metric(
            "task_delete_seconds",
            S,
            TASK,
            "Removing an entry of a store; timed is the first call in each run of rows",
            "delete-ns",
        ),
        lambda stats: (stats.delete_ns, stats.deletes_timed),
    ),
)
DISK_BYTES = _metric("task_disk_usage_bytes", G, TASK, "Size of its local state on disk", "disk-usage")
STORE_IDENTIFY = _metric(
    "task_store_identify_seconds",
    G,
    TASK,
    "Time of its last start to bring its state level from local state and changelog",
    "store-identify-ns",
)
KEY_SHARE = _metric(
    "task_busiest_key_ratio", G, TASK, "At least which share of its sampled records has one key; absent when none has"
)
WATERMARK = _metric(
    "task_watermark_timestamp_seconds", G, TASK, "Its watermark, in seconds since 1970; absent while it has none"
)
WATERMARK_LAG = _metric(
    "task_watermark_lag_seconds",
    G,
    HELD_TASK,
    "How far its watermark is behind the host's clock; `ssp` is the input that holds it back, empty if none does",
)
TIMERS_PENDING = _metric(
    "task_timers_pending", G, TASK, "Timers that are set, and entries that wait for the end of their ttl"
)
TIMER_LAG = _metric("task_timer_lag_seconds", S, TASK, "How late timers in processing time fired")
_TIME_COUNTERS: Final[tuple[tuple[Metric, Callable[[TaskStats], int]], ...]] = (
    (
        _metric("task_timers_fired_total", C, TASK, "Timers that fired, of both kinds"),
        lambda stats: stats.timers_fired,
    ),
    (
        _metric("task_late_records_total", C, TASK, "Records handled whose event time was less than the watermark"),
        lambda stats: stats.late,
    ),
    (
        _metric(
            "task_ahead_records_total",
            C,
            TASK,
            "Records handled whose event time was too far ahead of the host's clock",
        ),
        lambda stats: stats.ahead,
    ),
    (
        _metric("task_expired_entries_total", C, TASK, "Entries of stores that were removed at the end of their ttl"),
        lambda stats: stats.expired,
    ),
)
LAG = _metric(
    "ssp_lag_records",
    G,
    SSP,
    "Offsets from its position to the end of the partition, other key buckets' among them",
)

METRICS: Final[tuple[Metric, ...]] = (
    *(
        LEADS,
        TERM,
        INVALID,
        REFUSED,
        STALLED,
        GENERATION,
        FACTOR,
        TASKS,
        WITHOUT_OWNER,
        FINDINGS,
        MODEL_GENERATION,
        CHECKPOINT_COMPUTE,
    ),
    *(HEARTBEAT_AGE, CORES, HELD, UNANSWERED, KAFKA_SILENT),
    *(STANDBY_LAG, STANDBY_BEHIND),
    *(STORE_BYTES, STORE_ENTRIES),
    *(metric for metric, _ in OF_CONTAINER),
    *(BATCH_SECONDS, INPUT_SECONDS, KEYHASH_SECONDS, BOOTSTRAP_LAG, TAILING),
    *(metric for metric, _ in _TASK_COUNTERS),
    BUSY_SECONDS,
    *(metric for metric, _ in _TASK_SUMMARIES),
    *(DISK_BYTES, STORE_IDENTIFY, KEY_SHARE),
    *(WATERMARK, WATERMARK_LAG, TIMERS_PENDING, TIMER_LAG),
    *(metric for metric, _ in _TIME_COUNTERS),
    LAG,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """How often the HTTP server refused a container or a request."""

    invalid_heartbeats: int = 0
    refused_requests: int = 0


def samples_of(snapshot: Snapshot, now_ms: int, *, leads: bool, refusals: Refusals = Refusals()) -> list[Sample]:
    """All samples; only the leadership of a coordinator that does not lead.

    `now_ms` is monotonic.
    """
    job = snapshot.job
    if not leads:
        return [Sample(metric=LEADS, labels=(job,), value=0)]
    state, liveness = snapshot.state, snapshot.liveness
    sighted = _sighted(state, liveness)
    return [
        *_of_job(job, state, snapshot.timings, _finding_count(snapshot), refusals),
        *(sample for container, sighting in sighted for sample in _of_container(job, container, sighting, now_ms)),
        *_of_standstills(job, snapshot, now_ms),
        *_of_standbys(job, state, liveness),
        *_of_stores(job, sighted),
        *_of_tasks(job, len(state.plan) <= TASKS_SHOWN_MAX, sighted),
        *_of_ssps(job, state, liveness),
    ]


def _finding_count(snapshot: Snapshot) -> int:
    """The number of findings, without what the operator chose."""
    return sum(finding.severity is not Severity.NOTICE for finding in snapshot.findings)


def _of_job(
    job: str, state: CoordinatorState, timings: Timings, findings: int, refusals: Refusals
) -> Iterable[Sample]:
    owned = owners(state)
    numbers: list[tuple[Metric, float | None]] = [
        (LEADS, 1),
        (TERM, None if state.term is None else state.term.term),
        (INVALID, refusals.invalid_heartbeats),
        (REFUSED, refusals.refused_requests),
        (GENERATION, None if state.generation is None else state.generation.generation),
        (FACTOR, None if state.generation is None else state.generation.factor),
        (TASKS, len(state.plan)),
        (WITHOUT_OWNER, sum(1 for planned in state.plan if owned.get(planned.task_name) is None)),
        (FINDINGS, findings),
        (MODEL_GENERATION, _seconds(timings.job_model_generation_ns)),
        (CHECKPOINT_COMPUTE, _seconds(timings.checkpoint_compute_ns)),
    ]
    return [Sample(metric=metric, labels=(job,), value=value) for metric, value in numbers if value is not None]


def _of_standstills(job: str, snapshot: Snapshot, now_ms: int) -> Iterable[Sample]:
    """A sample for each cause, so that an alert has a series from the start."""
    counts = Counter(item.cause for item in standstills(snapshot.state, snapshot.liveness, now_ms).values())
    return [Sample(metric=STALLED, labels=(job, cause.value), value=counts[cause]) for cause in Cause]


def _sighted(state: CoordinatorState, liveness: Liveness) -> list[tuple[Container, Sighting]]:
    """The living containers that sent heartbeats, one of each processor.

    A processor may have two for a while.
    """
    sighted: dict[ProcessorId, tuple[Container, Sighting]] = {}
    for container in state.containers_sorted:
        sighting = liveness.last.get(container.execution_id)
        if container.phase not in LIVING or sighting is None:
            continue
        before = sighted.get(container.processor_id)
        if before is None or _rank(*before, state) < _rank(container, sighting, state):
            sighted[container.processor_id] = container, sighting
    return [sighted[processor_id] for processor_id in sorted(sighted)]


def _rank(container: Container, sighting: Sighting, state: CoordinatorState) -> tuple[bool, int, int]:
    # While a plan changes, the active container holds no grant either. A standby in its place would reset counters.
    is_active = role_of(container.execution_id, state) is LaunchRole.ACTIVE
    return is_active, len(sighting.held), sighting.at_ms


def _of_container(job: str, container: Container, sighting: Sighting, now_ms: int) -> Iterable[Sample]:
    figures = sighting.figures
    numbers: list[tuple[Metric, float]] = [
        (HEARTBEAT_AGE, max(0, now_ms - sighting.at_ms) / 1000),
        (CORES, container.slot_count),
        (HELD, len(sighting.held)),
        (UNANSWERED, sighting.unanswered_ms / 1000),
        (KAFKA_SILENT, sighting.kafka_silent_ms / 1000),
        *((metric, figure(figures)) for metric, figure in OF_CONTAINER),
        (BATCH_SECONDS, figures.batch_ns / 1e9),
        (INPUT_SECONDS, figures.input_ns / 1e9),
        (KEYHASH_SECONDS, figures.keyhash_ns / 1e9),
        (
            BOOTSTRAP_LAG,
            sum(max(0, sighting.bootstrap_end - sighting.offset_next) for sighting in figures.positions.values()),
        ),
        (TAILING, sum(position.tailing for position in figures.positions.values())),
    ]
    return [Sample(metric=metric, labels=(job, container.processor_id), value=value) for metric, value in numbers]


def _of_standbys(job: str, state: CoordinatorState, liveness: Liveness) -> Iterable[Sample]:
    reported: set[tuple[str, ...]] = set()
    # A standby that stops and the one in its place have the same name, and each series exists once.
    known = sorted(liveness.last.keys() & state.launches.keys())
    for execution_id in sorted(known, key=lambda known_id: state.launches[known_id].phase not in UP):
        warm, name = liveness.last[execution_id].warm, standby_called(execution_id, state)
        labels = (job, state.launches[execution_id].processor_id, name or "")
        if warm is not None and name is not None and labels not in reported:
            reported.add(labels)
            yield Sample(metric=STANDBY_LAG, labels=labels, value=warm.lag)
            yield Sample(metric=STANDBY_BEHIND, labels=labels, value=warm.tasks - warm.level)


def _of_stores(job: str, sighted: Iterable[tuple[Container, Sighting]]) -> Iterable[Sample]:
    for container, sighting in sighted:
        for store, size in sighting.figures.stores.items():
            labels = (job, container.processor_id, store)
            yield Sample(metric=STORE_BYTES, labels=labels, value=size.bytes_used)
            yield Sample(metric=STORE_ENTRIES, labels=labels, value=size.entries)


def _of_tasks(job: str, one_by_one: bool, sighted: Iterable[tuple[Container, Sighting]]) -> Iterable[Sample]:
    for container, sighting in sighted:
        figures = sighting.figures
        tasks: dict[str, TaskStats] = {task: figures.tasks[task] for task in figures.tasks}
        # A heartbeat lists the busiest tasks. One that leaves the others would take its counts out of their sum.
        if not one_by_one or figures.other_task_count:
            tasks = {EVERY: TaskStats.total([*figures.tasks.values(), figures.other_tasks])}
        for task in sorted(tasks):
            yield from _of_task((job, container.processor_id, task), tasks[task])


def _of_task(labels: tuple[str, ...], stats: TaskStats) -> Iterable[Sample]:
    for metric, count in _TASK_COUNTERS:
        yield Sample(metric=metric, labels=labels, value=count(stats))
    yield Sample(metric=BUSY_SECONDS, labels=labels, value=stats.busy_ns / 1e9)
    for metric, figure in _TASK_SUMMARIES:
        sum_ns, count_of = figure(stats)
        yield Sample(metric=metric, labels=labels, value=sum_ns / 1e9, count=count_of)
    yield Sample(metric=DISK_BYTES, labels=labels, value=stats.disk_bytes)
    yield Sample(metric=STORE_IDENTIFY, labels=labels, value=stats.store_identify_ns / 1e9)
    busiest = stats.keys.busiest()
    if busiest is not None:
        yield Sample(metric=KEY_SHARE, labels=labels, value=busiest[1])
    if stats.time is not None:
        yield from _of_time(labels, stats, stats.time)


def _of_time(labels: tuple[str, ...], stats: TaskStats, time: TimeFigures) -> Iterable[Sample]:
    """The metrics of a task that has timers or keeps event time."""
    if time.watermark_ms is not None:
        yield Sample(metric=WATERMARK, labels=labels, value=time.watermark_ms / 1000)
    if time.lag_ms is not None:
        yield Sample(metric=WATERMARK_LAG, labels=(*labels, time.held_by), value=time.lag_ms / 1000)
    yield Sample(metric=TIMERS_PENDING, labels=labels, value=time.timers_pending)
    yield Sample(metric=TIMER_LAG, labels=labels, value=stats.timer_lag_ns / 1e9, count=stats.timers_timed)
    for metric, count in _TIME_COUNTERS:
        yield Sample(metric=metric, labels=labels, value=count(stats))


def _of_ssps(job: str, state: CoordinatorState, liveness: Liveness) -> Iterable[Sample]:
    lags: list[tuple[str, SspKeyBucket, int]] = []
    newest = newest_grants(state)
    for planned in state.plan:
        grant = newest.get(planned.task_name)
        sighting = None if grant is None else liveness.last.get(grant.execution_id)
        for ssp_kb in planned.positions:
            position = None if sighting is None else sighting.figures.positions.get(ssp_kb)
            if position is not None:
                lags.append((planned.task_name, ssp_kb, max(0, position.offset_end - position.offset_next)))
    if sum(len(planned.positions) for planned in state.plan) <= SSPS_SHOWN_MAX:
        return [Sample(metric=LAG, labels=(job, task, str(ssp_kb)), value=lag) for task, ssp_kb, lag in lags]
    streams: dict[str, int] = {}
    for ssp, lag in furthest_behind((ssp_kb, lag) for _, ssp_kb, lag in lags).items():
        stream = f"{ssp.system_stream}.{EVERY}"
        streams[stream] = streams.get(stream, 0) + lag
    return [Sample(metric=LAG, labels=(job, EVERY, stream), value=streams[stream]) for stream in sorted(streams)]


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
