"""A process dies between any two effects of windows: a tick counts messages once.

`window` sends the number of messages of each key since the last tick, and forgets them. An output that is lost,
doubled or of an earlier tick shows in the sums.
"""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.container.local_state import restore
from samzapy.container.task.runner import TaskRunner
from samzapy.model.window_entry import STORE
from samzapy.testing.memory.slot import MemorySlot
from unit_tests.container.task.test_crash_between_effects import (
    ENDS,
    WORKLOAD,
    Life,
    Message,
    lives,
    workloads,
)
from unit_tests.fixtures.clocked_world import ClockedWorld, Job, a_job_of, die_at_each_commit, die_twice

WINDOW_MS = 50


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return a_job_of(
        tmp_path_factory.mktemp("job") / "windowed.py",
        f"""
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Json())
counts = sz.Stream("kafka.counts", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[counts], window_ms={WINDOW_MS})
class Windowed(sz.Task[str, int]):
    count = sz.value(sz.Long, default=0)

    def process(self, message, out):
        self.count.set(self.count.get() + 1)

    def window(self, tick, out):
        for key in self.context.keys(self.count):
            out.send(counts, [tick.number, self.count.get()], key=key)
            self.count.clear()
""",
    )


class WindowedWorld(ClockedWorld):
    """The clock advances by 10 ms per message; at the end a tick comes without any."""

    output = "counts"

    def consume(self, life, starts, environment, slot, crash_points):  # type: ignore[no-untyped-def]
        super().consume(life, starts, environment, slot, crash_points)
        self.wall_ms += 2 * WINDOW_MS
        # Twice, and the second time in another worker: a tick that was done is not done again.
        for _ in range(2):
            self.tick(self.runner(life, environment, crash_points), slot)

    def check(self) -> None:
        sums: Counter[bytes | None] = Counter()
        ticks = set()
        for record in self.sent():
            number, count = json.loads(record.value or b"")
            sums[record.key] += count
            assert (record.key, number) not in ticks
            ticks.add((record.key, number))
        assert Counter(message.key.encode() for message in self.messages) == +sums
        latest, on_disk = self.entries(STORE)
        assert latest == on_disk


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("at_hit", [1, 2, 4])
@pytest.mark.parametrize("moved", [False, True], ids=["restarted", "moved"])
@pytest.mark.parametrize("disk", ["kept", "lost", "another"])
def test_a_crash_at_any_place_lets_each_tick_count_once(
    job: Job, end: str, at_hit: int, moved: bool, disk: str
) -> None:
    die_twice(WindowedWorld(WORKLOAD, job), end, at_hit, moved=moved, disk=disk)


@settings(max_examples=200, deadline=None)
@given(workloads(), st.lists(lives, max_size=6))
def test_no_workload_and_no_sequence_of_crashes_lose_or_double_a_tick(
    job: Job, messages: list[Message], lives: list[Life]
) -> None:
    world = WindowedWorld(messages, job)

    world.run(lives)

    world.check()


# --- without one of the safeguards it goes wrong ---


def test_local_state_that_trusts_the_checkpoints_does_a_tick_twice(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction of a window alone moves no checkpoint."""
    monkeypatch.setattr(restore, "window_entry", SimpleNamespace(STORE="none"))

    with pytest.raises(AssertionError):
        die_at_each_commit(WindowedWorld, job, 8)


class ReportingWorld(WindowedWorld):
    def tick(self, runner: TaskRunner, slot: MemorySlot) -> None:
        (report,) = runner.run((), slot)
        # Else the driver would order another tick at once.
        assert self.wall_ms < report.due_ms <= self.wall_ms + WINDOW_MS


def test_a_worker_reports_the_tick_behind_the_one_that_it_has_done(job: Job) -> None:
    world = ReportingWorld(WORKLOAD, job)

    world.run([Life(batch=1)])

    world.check()


class LateWorld(WindowedWorld):
    """Twenty intervals pass between two batches."""

    def handled(self, runner: TaskRunner, slot: MemorySlot) -> None:
        self.wall_ms += 20 * WINDOW_MS
        before = self.kafka.offset_end("counts")
        self.tick(runner, slot)
        new = self.kafka.committed("counts", 0, before)
        assert len({json.loads(record.value or b"")[0] for record in new}) <= 1


def test_ticks_that_were_missed_are_done_as_one(job: Job) -> None:
    world = LateWorld(WORKLOAD, job)

    world.run([Life(batch=1)])

    world.check()
