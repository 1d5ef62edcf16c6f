"""A process dies between effects of event time: timers and ends come once.

Each message is counted in a span of 100 ms of event time. The count is sent when the span is over, and the total of
each key at the end. An output that is lost or doubled, or a message that is taken for late, shows in the sums.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.container.local_state import restore
from samzapy.container.task.clocks import FAR_MS
from samzapy.container.task.joint_transaction import JointTransaction
from samzapy.container.task.work_plan import NO_TIMER, Report
from samzapy.model.clock_entry import STORE
from unit_tests.container.task.test_crash_between_effects import (
    ENDS,
    WORKLOAD,
    Life,
    Message,
    a_workload,
    lives,
    workloads,
)
from unit_tests.fixtures.clocked_world import ClockedWorld, Job, a_job_of, die_at_each_commit, die_twice


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return a_job_of(
        tmp_path_factory.mktemp("job") / "spans.py",
        """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Json(), event_time=lambda message: 30 * message.offset)
spans = sz.Stream("kafka.spans", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[spans])
class Spans(sz.Task[str, int]):
    counts = sz.map(sz.Timestamp, sz.Long)
    total = sz.value(sz.Long, default=0)
    over = sz.timer("event")

    def process(self, message, out):
        self.total.set(self.total.get() + 1)
        start = message.time_ms // 100 * 100
        if start + 100 <= self.over.now_ms():
            out.send(spans, "late", key=message.key)
            return
        self.counts.put(start, (self.counts.get(start) or 0) + 1)
        self.over.set(start + 100, tag=str(start))

    @over.fires
    def send(self, timer, out):
        start = int(timer.tag)
        out.send(spans, [start, self.counts.get(start)], key=timer.key)
        self.counts.delete(start)

    def end_of_stream(self, out):
        for key in self.context.keys(self.total):
            out.send(spans, {"total": self.total.get()}, key=key)
""",
        # Without it the inputs have no end, and a task that moves forgets one.
        "systems.kafka.samza.offset.end=head",
    )


class EndedWorld(ClockedWorld):
    """After the last message the inputs end."""

    output = "spans"

    def consume(self, life, starts, environment, slot, crash_points):  # type: ignore[no-untyped-def]
        super().consume(life, starts, environment, slot, crash_points)
        # Twice, and the second time in another worker: a stream that has ended does not end again.
        for _ in range(2):
            runner = self.runner(life, environment, crash_points)
            runner.covered(dict.fromkeys(runner.routes, FAR_MS))
            self.tick(runner, slot)

    def check(self) -> None:
        counts: Counter[bytes | None] = Counter()
        totals: dict[bytes | None, int] = {}
        spans = set()
        for record in self.sent():
            value = json.loads(record.value or b"")
            if isinstance(value, dict):
                assert record.key not in totals
                totals[record.key] = value["total"]
            else:
                assert value != "late", "all messages are in order"
                assert (record.key, value[0]) not in spans
                spans.add((record.key, value[0]))
                counts[record.key] += value[1]
        expected = Counter(message.key.encode() for message in self.messages)
        assert (expected, dict(expected)) == (counts, totals)
        latest, on_disk = self.entries(STORE)
        assert latest == on_disk


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("at_hit", [1, 2, 4])
@pytest.mark.parametrize("moved", [False, True], ids=["restarted", "moved"])
@pytest.mark.parametrize("disk", ["kept", "lost", "another"])
def test_a_crash_at_any_place_lets_each_span_count_once_and_the_inputs_end_once(
    job: Job, end: str, at_hit: int, moved: bool, disk: str
) -> None:
    die_twice(EndedWorld(WORKLOAD, job), end, at_hit, moved=moved, disk=disk)


@settings(max_examples=200, deadline=None)
@given(workloads(), st.lists(lives, max_size=6))
def test_no_workload_and_no_sequence_of_crashes_lose_or_double_a_span_or_an_end(
    job: Job, messages: list[Message], lives: list[Life]
) -> None:
    world = EndedWorld(messages, job)

    world.run(lives)

    world.check()


# --- without one of the safeguards it goes wrong ---


def test_local_state_that_trusts_the_checkpoints_ends_twice(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction of an end moves no checkpoint."""
    for entry in ("timer_entry", "clock_entry"):
        monkeypatch.setattr(restore, entry, SimpleNamespace(STORE="none"))

    with pytest.raises(AssertionError):
        die_at_each_commit(EndedWorld, job, 13)


class EndingTailWorld(EndedWorld):
    """The tail that fires the timers has to end after each transaction.

    Each transaction has room for one timer.
    """

    def consume(self, life, starts, environment, slot, crash_points):  # type: ignore[no-untyped-def]
        ClockedWorld.consume(self, life, starts, environment, slot, crash_points)
        runner = self.runner(replace(life, bytes_max=0), environment, crash_points)
        runner.covered(dict.fromkeys(runner.routes, FAR_MS - 1))
        self.ticks: list[tuple[Report, int]] = []
        for _ in self.messages:
            joint = JointTransaction(slot, crash_points, lambda: 0.0, lambda: True)
            sent_before = len(self.sent())
            (report,) = joint.run([runner.work((), joint)])
            self.ticks.append((report, len(self.sent()) - sent_before))


def test_timers_in_event_time_that_an_ending_tail_leaves_are_reported_as_due(job: Job) -> None:
    world = EndingTailWorld(a_workload("a1", "b2", "c3"), job)

    world.run([])

    left = [3 - fired for fired in accumulate(fired for _, fired in world.ticks)]
    assert left[0] > 0 and left[-1] == 0, "timers were left, and have fired later"
    assert [0 if count else NO_TIMER for count in left] == [report.due_ms for report, _ in world.ticks]
