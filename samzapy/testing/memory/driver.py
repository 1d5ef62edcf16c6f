"""The surroundings of a container's driver, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from samzapy.container.ports import (
    BatchDone,
    EndsSeen,
    HeartbeatContent,
    QueryEvent,
    TailProgress,
)
from samzapy.container.task.so_far import SoFar
from samzapy.container.task.work_plan import WorkPlan
from samzapy.model.checkpoint import Progress
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.stream.codec import decode, encode, headers
from samzapy.stream.log import LogRecord
from samzapy.stream.records import ProgressPut, Record, TermPut
from samzapy.stream.unheard_end import unheard_end_of
from samzapy.testing.memory.process import Trace
from samzapy.testing.virtual_clock import VirtualClock


def _leaders_headers(term: int, seq: int) -> tuple[tuple[str, bytes], ...]:
    return tuple(headers(term=term, seq=seq, event="e", cause="c", actor="a").items())


class MemoryStream:
    """The coordinator stream (`container.ports.CoordinatorStream`).

    Each record that is appended here is read once.
    """

    def __init__(self, trace: Trace) -> None:
        self.records: list[Record] = []
        self.silence_ms = 0
        self._handed_out = 0
        self._term = 1
        self._trace = trace

    def silent_ms(self) -> int:
        return self.silence_ms

    def poll(self) -> Sequence[LogRecord]:
        records = []
        for offset, record in enumerate(self.records[self._handed_out :], start=self._handed_out):
            key, value = encode(record)
            self._term = record.term if isinstance(record, TermPut) else self._term
            records.append(LogRecord(offset, 0, key, value, _leaders_headers(self._term, offset)))
        self._handed_out = len(self.records)
        return records

    def to_the_end(self) -> Sequence[LogRecord]:
        self._trace.append("to the end")
        return self.poll()

    def offset_next(self) -> int:
        return self._handed_out


class MemorySlots:
    """All slots, from the driver's side (`container.ports.Slots`).

    `stuck` is raised for a worker that does not leave its slot, also when it is killed.
    """

    def __init__(self, trace: Trace) -> None:
        self.open_slots: set[int] = set()
        # By query and slot: the route and the offset of the message in hand.
        self.noted: dict[tuple[int, int], tuple[int, int]] = {}
        self.slow: dict[int, list[tuple[int, int, int]]] = {}
        self.costs: dict[int, list[SoFar]] = {}
        self.stuck: Exception | None = None
        self._trace = trace

    def take_all(self, wait_ms: int) -> Sequence[int]:
        self._trace.append("take slots")
        if self.stuck is not None:
            raise self.stuck
        return sorted(self.open_slots)

    def block(self, query_number: int) -> None:
        self._trace.append(f"block {query_number}")

    def in_hand(self, slots: Sequence[int], query_number: int) -> Sequence[tuple[int, int]]:
        return [self.noted[query_number, slot] for slot in slots if (query_number, slot) in self.noted]

    def slow_messages(self, query_number: int) -> Sequence[tuple[int, int, int]]:
        return self.slow.get(query_number, [])

    def so_far(self, query_number: int) -> Sequence[SoFar]:
        return self.costs.get(query_number, [])

    def renew(self, slots: Sequence[int]) -> None:
        self._trace.append(f"renew {slots}")
        self.open_slots -= set(slots)

    def admit(self, query_number: int) -> None:
        self._trace.append(f"admit {query_number}")

    def close_tasks(self, wait_ms: int) -> None:
        self._trace.append(f"close tasks within {wait_ms} ms")

    def kill_holders(self) -> None:
        self._trace.append("kill holders")
        if self.stuck is not None:
            raise self.stuck


class MemoryFence:
    """Initialises ids (`container.ports.Fence`).

    `fails` are raised first, one per call.
    """

    def __init__(self, trace: Trace) -> None:
        self.fails: list[Exception] = []
        self._trace = trace

    def fence(self, transactional_ids: Sequence[str]) -> None:
        if self.fails:
            raise self.fails.pop(0)
        self._trace.append(f"fence {', '.join(transactional_ids)}")


class MemoryProgressLog:
    """Takes progress records (`container.ports.ProgressLog`).

    `fails` are raised first, one per append.
    """

    def __init__(self, trace: Trace) -> None:
        self.written: list[Progress] = []
        self.unheard_ends: list[LogRecord] = []
        self.removed: list[tuple[str, int, Sequence[bytes]]] = []
        self.fails: list[Exception] = []
        self.served = 0
        self._is_acquired = False
        self._trace = trace

    def is_acquired(self) -> bool:
        return self._is_acquired

    def serve(self) -> None:
        self.served += 1

    def acquire(self) -> None:
        self._trace.append("own progress")
        self._is_acquired = True

    def append(self, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._may_fail()
        for key, value in writes:
            written = LogRecord(offset=0, timestamp_ms=0, key=key, value=value)
            record = decode(written, topic="checkpoints")
            if isinstance(record, ProgressPut):
                self.written.append(record.progress)
            else:
                assert unheard_end_of(record), "only progress and reports on ends are expected here"
                self.unheard_ends.append(written)
        self._trace.append("progress")

    def write(self, topic: str, partition: int, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._may_fail()
        assert all(value is None for _, value in writes), "only tombstones are expected here"
        self.removed.append((topic, partition, [key for key, _ in writes]))
        self._trace.append(f"remove {topic}")

    def close(self) -> None:
        self._is_acquired = False

    def _may_fail(self) -> None:
        assert self._is_acquired, "acquire comes first"
        if self.fails:
            self._is_acquired = False
            raise self.fails.pop(0)


Step = QueryEvent | Callable[[], QueryEvent | None] | None


class ScriptedQuery:
    """A query whose events a test writes down (`container.ports.Query`).

    A step may also do something.

    Time goes by while nothing happens; when the script is over, `at_the_end` is called, which ends the test.
    """

    def __init__(self, trace: Trace, clock: VirtualClock, at_the_end: Callable[[], None]) -> None:
        self.steps: list[Step] = []
        self.started: list[tuple[WorkPlan, Mapping[SspKeyBucket, int]]] = []
        self.drains_in_time = True
        self.runs = False
        self.warmed_up: list[tuple[WorkPlan, SystemStreamPartition, int]] = []
        # How often a warm-up is seen to run.
        self.warm_up_looks = 0
        self.batch_has_run_ms = 0
        self.ticked_at_ms: list[int] = []
        self.ends_seen: list[EndsSeen] = []
        self.is_far_ahead = False
        self._trace = trace
        self._clock = clock
        self._at_the_end = at_the_end

    def start(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> None:
        assert not self.runs, "at most one runs"
        self.runs = True
        self.is_far_ahead = False
        self.started.append((plan, dict(starts)))
        self._trace.append(f"start query {plan.query_number}")

    def start_warm_up(self, plan: WorkPlan, ssp: SystemStreamPartition, offset: int) -> None:
        assert not self.runs, "only where nothing runs"
        self.warmed_up.append((plan, ssp, offset))

    def is_warming_up(self) -> bool:
        self.warm_up_looks -= 1
        return self.warm_up_looks >= 0

    def next_event(self, timeout_ms: int) -> QueryEvent | None:
        if not self.started:
            return None
        if timeout_ms == 0:
            # What ended while the query drained.
            is_progress = bool(self.steps) and isinstance(self.steps[0], BatchDone | TailProgress)
            event = self.steps.pop(0) if is_progress else None
            assert event is None or isinstance(event, BatchDone | TailProgress)
            return event
        if not self.steps:
            self._at_the_end()
            return None
        step = self.steps.pop(0)
        event = step() if callable(step) else step
        if event is None:
            self._clock.advance(timeout_ms)
        return event

    def tick(self, tasks: Collection[TaskName]) -> bool:
        self.ticked_at_ms.append(self._clock.monotonic_ms())
        return self.runs

    def note_ends(self, seen: EndsSeen) -> None:
        self.ends_seen.append(seen)

    def must_restart(self) -> bool:
        return self.is_far_ahead

    def batch_runs_ms(self) -> int:
        return self.batch_has_run_ms

    def drain(self, timeout_ms: int) -> bool:
        self._trace.append("drain")
        self.runs, self.batch_has_run_ms = False, 0
        if not self.drains_in_time:
            self._clock.advance(timeout_ms)
        return self.drains_in_time

    def stop(self) -> None:
        self._trace.append("stop query")
        self.runs = False


class MemoryHeartbeats:
    """Keeps the contents of heartbeats (`container.ports.Heartbeats`)."""

    def __init__(self, trace: Trace) -> None:
        self.is_answered = True
        self.contents: list[HeartbeatContent] = []
        self.sent: list[HeartbeatContent] = []
        self.reason: str | None = None
        self.ran_out_at_ms: int | None = None
        self._trace = trace

    def publish(self, content: HeartbeatContent) -> None:
        self.contents.append(content)

    def given_up(self) -> str | None:
        return self.reason

    def lease_ran_out_at_ms(self) -> int | None:
        return self.ran_out_at_ms

    def send_now(self, timeout_ms: int) -> bool:
        self._trace.append("send heartbeat")
        self.sent.append(self.contents[-1])
        return self.is_answered


class StopFlag:
    """A stop request (`container.ports.StopRequest`)."""

    def __init__(self) -> None:
        self.asked = False

    def is_set(self) -> bool:
        return self.asked
