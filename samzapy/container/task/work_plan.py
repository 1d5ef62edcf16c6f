"""The values between a container's driver and its workers.

Plan and rows go one way, reports the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby, repeat
from typing import Any, Final, NamedTuple

from samzapy.config import JobConfig
from samzapy.model.grant import BucketStart, Floor
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.task_stats import TaskStats
from samzapy.stream.numbering import BEGINNING, Numbering
from samzapy.streams import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The destination of one SSPKb's rows: the task, its grant, and its local state.

    `offset_end`: rows from there on are not this query's to handle; None: the input has no end. `is_trial`: that end is
    one of a suspect message (`container.worker_deaths`), and the input may go on. `floors`: rows of these buckets below
    their offsets are done already, although they come after the start (`model.grant`).
    """

    ssp_kb: SspKeyBucket
    task_name: TaskName
    partition_id: int
    epoch: int
    changelog_partition: int
    environment_dir: str
    offset_end: int | None = None
    is_trial: bool = False
    floors: tuple[Floor, ...] = ()

    def is_at_end(self, position: int) -> bool:
        """Whether a position is at the end of the input, which the end of a trial is not."""
        return self.offset_end is not None and position >= self.offset_end and not self.is_trial

    def start_at(self, offset_next: int) -> BucketStart:
        """The route's start, with its floors, for the lookup table."""
        return BucketStart(ssp_kb=self.ssp_kb, offset_next=offset_next, floors=self.floors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A message that fails without being handled.

    It ended each worker process that handled it (`worker_deaths`).
    """

    ssp_kb: SspKeyBucket
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPlan:
    """How the workers read on after a small micro-batch (`container.task.tail`).

    Attributes:
        starts: the first offset of each route, in the order of `WorkPlan.routes`.
        duration_ms: the time until the common end of the tails, once they have handled a message.
        lag_max: with more unread offsets no tail begins, and one that runs ends.
    """

    starts: tuple[int, ...]
    duration_ms: int
    lag_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """The work of one query, for its workers.

    Rows name their route by its index in `routes`.

    Attributes:
        query_number: counts the queries of an execution; a worker of an older one begins nothing.
        routes: task by task, and of each task in the order in which it takes their rows within a micro-batch.
        batch_offsets_max: at most so many offsets are read in one micro-batch, over all partitions.
        scratch_dir: of this execution: slots, lease.
        stream_offset: how far the driver had read the coordinator stream when the query started; `stream_numbering` is
            the numbering of its records there.
        tail: None if workers never read by themselves.
        refusals: messages that fail without being handled.
        notes_until_s: until when workers note the message in hand; the host's monotonic clock.
        processor_id, generation: of the execution when the query started, for traces only.
    """

    config: JobConfig
    execution_id: ExecutionId
    query_number: int
    routes: tuple[Route, ...]
    job_file: str
    scratch_dir: str
    slot_count: int
    stream_offset: int
    stream_numbering: Numbering = BEGINNING
    batch_offsets_max: int
    tail: TailPlan | None = None
    refusals: tuple[Refusal, ...] = ()
    notes_until_s: float = 0.0
    processor_id: str = ""
    generation: int = 0

    @property
    def tasks(self) -> tuple[tuple[int, ...], ...]:
        """The routes of each task, by their index."""
        groups = groupby(range(len(self.routes)), key=lambda index: self.routes[index].task_name)
        return tuple(tuple(group) for _, group in groups)


class InputRecord(NamedTuple):
    """A record that a worker has read by itself."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


Message = tuple[int, int, bytes | None, bytes | None, int, Headers]
"""A row: index, offset, key, value, timestamp, headers."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A run of rows of one route in offset order, column by column.

    `headers` is None when no row has any.
    """

    route: int
    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps_ms: Sequence[int]
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | None
    # After so long the worker asks whether it must end (`JointTransaction`); None: it need not ask.
    budget_s: float | None = None

    @classmethod
    def of(cls, route: int, records: Sequence[InputRecord], budget_s: float | None) -> Rows:
        """Records of one route as rows."""
        has_headers = any(record.headers for record in records)
        return cls(
            route=route,
            offsets=[record.offset for record in records],
            keys=[record.key for record in records],
            values=[record.value for record in records],
            timestamps_ms=[record.timestamp_ms for record in records],
            headers=[record.headers for record in records] if has_headers else None,
            budget_s=budget_s,
        )

    def messages(self, start: int) -> Iterator[Message]:
        """The rows one by one, from index `start` on."""
        headers: Iterable[Headers] = repeat(())
        if self.headers is not None:
            headers = (tuple(of_row or ()) for of_row in self.headers[start:])
        return zip(
            range(start, len(self.offsets)),
            self.offsets[start:],
            self.keys[start:],
            self.values[start:],
            self.timestamps_ms[start:],
            headers,
            strict=False,
        )


NO_TIMER: Final = -1
"""In a report: no timer of the task is set."""


class ReportKind(IntEnum):
    COMMITTED = 0
    TASK_FAILED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of a route's rows in one batch.

    Counts cover committed rows; `error` is for the operator.

    `commits` are the transactions in which the route's position moved; one may be of several routes of a task.
    `measured` has the cost of the whole task; only the first of a task's reports has it. `due_ms` is the next moment at
    which a timer of the task is due, or `NO_TIMER`. `due_when_quiet_ms` is the same for timers in event time: the
    moment up to which all inputs must be covered and quiet, on the host's clock since its boot. `has_ended`: the inputs
    of a bounded run have ended, and the task has acted on it.
    """

    kind: ReportKind
    route: int
    offset_next: int
    records_in: int
    records_out: int
    dead_letters: int
    commits: int
    error: str = ""
    measured: TaskStats | None = None
    due_ms: int = NO_TIMER
    due_when_quiet_ms: int = NO_TIMER
    has_ended: bool = False

    def as_json(self) -> dict[str, Any]:
        measured = None if self.measured is None else self.measured.as_json()
        return {**{name: getattr(self, name) for name in self.__slots__}, "measured": measured}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Report:
        """The inverse of `as_json`."""
        measured = fields["measured"]
        stats = None if measured is None else TaskStats.from_json(measured)
        kind, has_ended = ReportKind(fields["kind"]), bool(fields["has_ended"])
        return cls(**{**fields, "kind": kind, "measured": stats, "has_ended": has_ended})


def any_failed(reports: Iterable[Report]) -> bool:
    """Whether a task failed."""
    return any(report.kind is ReportKind.TASK_FAILED for report in reports)
