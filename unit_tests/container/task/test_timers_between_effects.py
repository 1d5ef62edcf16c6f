"""A process dies between any two effects of timers: each timer fires once.

Each message sets a timer of its own. A handler counts the timers of its key that have fired. An output that is lost,
doubled or out of order shows in its value.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.container.local_state import restore
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.work_plan import NO_TIMER
from samzapy.model.timer_entry import STORE
from samzapy.testing.memory.slot import MemorySlot
from unit_tests.container.task.test_crash_between_effects import (
    ENDS,
    WORKLOAD,
    Life,
    Message,
    World,
    lives,
    workloads,
)
from unit_tests.fixtures.clocked_world import ClockedWorld, Job, a_job_of, die_at_each_commit, die_twice

TIMED_ENDS = (*ENDS, "before-fire", "after-fire")
LATE_MS = 35
"""A timer is due so long after its message, which is 10 ms after the one before."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return a_job_of(
        tmp_path_factory.mktemp("job") / "timed.py",
        f"""
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Json())
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Timed(sz.Task[str, int]):
    count = sz.counter()
    late = sz.timer("processing")

    def process(self, message, out):
        self.late.set(10 * message.offset + {LATE_MS}, tag=str(message.offset))

    @late.fires
    def is_late(self, timer, out):
        out.send(fired, [int(timer.tag), timer.time_ms, self.count.add()], key=timer.key)

    """,
    )


class TimedWorld(ClockedWorld):
    """The clock advances by 10 ms per message; at the end timers fire without any."""

    output = "fired"
    late_ms = 0
    """How long after a timer's moment the next tick comes."""

    def consume(self, life, starts, environment, slot, crash_points):  # type: ignore[no-untyped-def]
        super().consume(life, starts, environment, slot, crash_points)
        runner = self.runner(life, environment, crash_points)
        while (due_ms := runner.due_ms()) != NO_TIMER:
            self.wall_ms = max(self.wall_ms, due_ms + self.late_ms)
            self.tick(runner, slot)

    def check(self) -> None:
        counts: dict[bytes | None, int] = {}
        fired = []
        for record in self.sent():
            offset, moment_ms, count = json.loads(record.value or b"")
            counts[record.key] = counts.get(record.key, 0) + 1
            assert counts[record.key] == count
            assert 10 * offset + LATE_MS == moment_ms
            fired.append(offset)
        assert [message.offset for message in self.messages] == sorted(fired)
        assert ({}, {}) == self.entries(STORE)


@pytest.mark.parametrize("end", TIMED_ENDS)
@pytest.mark.parametrize("at_hit", [1, 2, 4])
@pytest.mark.parametrize("moved", [False, True], ids=["restarted", "moved"])
@pytest.mark.parametrize("disk", ["kept", "lost", "another"])
def test_a_crash_at_any_place_lets_each_timer_fire_once(
    job: Job, end: str, at_hit: int, moved: bool, disk: str
) -> None:
    die_twice(TimedWorld(WORKLOAD, job), end, at_hit, moved=moved, disk=disk)


@pytest.mark.parametrize("at_hit", [1, 2])
def test_a_crash_between_two_timers_that_are_due_lets_each_fire_once(job: Job, at_hit: int) -> None:
    world = TimedWorld(WORKLOAD, job)
    world.late_ms = 1000

    die_twice(world, "in-the-middle-of-due", at_hit, moved=False, disk="kept")


@settings(max_examples=200, deadline=None)
@given(workloads(), st.lists(st.one_of(lives, st.builds(Life, end=st.sampled_from(TIMED_ENDS))), max_size=6))
def test_no_workload_and_no_sequence_of_crashes_lose_or_double_a_timer(
    job: Job, messages: list[Message], lives: list[Life]
) -> None:
    world = TimedWorld(messages, job)

    world.run(lives)

    world.check()


class WorldOfTwoWorkers(TimedWorld):
    """One worker handles the messages, and the other one fires the timers.

    Spark may share them out so.
    """

    def __init__(self, messages: list[Message], job: Job) -> None:
        super().__init__(messages, job)
        self.ticks: list[int] = []

    def consume(self, life, starts, environment, slot, crash_points):  # type: ignore[no-untyped-def]
        self.other = self.runner(life, environment, crash_points)
        self.due_ms = lambda: self.runner(life, environment, crash_points).due_ms()
        World.consume(self, life, starts, environment, slot, crash_points)

    def handled(self, runner: TaskRunner, slot: MemorySlot) -> None:
        while (due_ms := self.due_ms()) != NO_TIMER and self.ticks.count(due_ms) < 2:
            self.wall_ms = max(self.wall_ms, due_ms)
            self.ticks.append(due_ms)
            self.other.begin_batch()
            self.tick(self.other, slot)


def test_timers_fire_in_a_worker_that_had_none_the_last_time_it_served_the_task(job: Job) -> None:
    world = WorldOfTwoWorkers(WORKLOAD, job)

    world.run([Life(batch=2)])

    world.check()
    assert len(world.ticks) == len({*world.ticks}) > 2


# --- without one of the safeguards it goes wrong ---


def test_local_state_that_trusts_the_checkpoints_fires_a_timer_twice(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of timers alone moves no checkpoint.

    A crash after Kafka's commit leaves the timers there.
    """
    monkeypatch.setattr(restore, "timer_entry", SimpleNamespace(STORE="none"))

    with pytest.raises(AssertionError):
        die_at_each_commit(TimedWorld, job, 8)
