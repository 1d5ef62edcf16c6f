"""A tail that leaves records does not let the clock of their task pass them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from samzapy.container.task.joint_transaction import JointTransaction
from samzapy.container.task.ports import Place
from samzapy.container.task.tail import Tail, TailPorts, TaskRows
from samzapy.container.task.work_plan import InputRecord, Report, TailPlan
from samzapy.testing.memory.process import CrashAt
from unit_tests.container.task.test_many_timers import OneTask
from unit_tests.fixtures.container_worlds import SSP_KB, a_plan
from unit_tests.fixtures.tail_worlds import MemoryTailBoard, MemoryTailReader

_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Task(sz.Task[str, bytes]):
    over = sz.timer("event")

    def process(self, message, out):
        self.over.set(message.time_ms + 1000)

    @over.fires
    def is_over(self, timer, out):
        out.send(fired, timer.time_ms, key=timer.key)
"""


class CoveredNow:
    """Every input is read to its end, with the records in hand."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def look(self) -> bool:
        return True

    def covered_ms(self, place: Place, offset_next: int) -> int | None:
        return self._now_ms()


class TailedTask(OneTask):
    """A task whose worker tails."""

    def tail(self, record: InputRecord, board: MemoryTailBoard) -> None:
        """Read a record, and let time pass after it."""
        reader = MemoryTailReader([record])
        reader.when_empty = self._pass_time
        plan = replace(a_plan(self.config), tail=TailPlan(starts=(0,), duration_ms=60_000, lag_max=10_000))
        ports = TailPorts(
            reader=reader,
            board=board,
            slot=self.slot,
            crash_points=CrashAt(),
            now_s=self._look,
            wall_ms=lambda: self.wall_ms,
            due_ms=self._due_ms,
            ends=CoveredNow(lambda: self.wall_ms),
        )
        Tail(plan, plan.tasks, [record.offset], ports, self._run_tasks).run()

    def _pass_time(self) -> None:
        self.wall_ms += 5000

    def _due_ms(self, routes: Sequence[int], covered_ms: Mapping[int, int]) -> int:
        self.runner.covered(covered_ms)
        return self.runner.due_ms()

    def _run_tasks(self, tasks: Sequence[TaskRows], must_end: object) -> Sequence[Report]:
        joint = JointTransaction(self.slot, CrashAt(), self._look, must_end)  # type: ignore[arg-type]
        return joint.run(self.runner.work(chunks, joint) for _, chunks in tasks)


def a_record(offset: int, time_ms: int) -> InputRecord:
    return InputRecord(SSP_KB.ssp.stream, SSP_KB.ssp.partition, offset, b"a", b"", time_ms, ())


def test_records_that_a_tail_leaves_hold_the_clock_of_their_task(tmp_path: Path) -> None:
    task = TailedTask(tmp_path, _JOB, "task.event.time.idle.ms=1000")
    task.handle([("a", 10_000)])
    task.wall_ms = 60_000
    # Ends between the look before the records are read and the one before they are handled.
    board = MemoryTailBoard(looks=1)

    task.tail(a_record(1, 10_500), board)

    assert {0: 1} == board.read_to, "the record is left for the next micro-batch"
    assert [] == task.fired(), "its time is before that of the timer"


def test_the_clock_goes_on_once_the_records_of_a_tail_are_handled(tmp_path: Path) -> None:
    task = TailedTask(tmp_path, _JOB, "task.event.time.idle.ms=1000")
    task.handle([("a", 10_000)])
    task.wall_ms = 60_000
    board = MemoryTailBoard(looks=20)

    task.tail(a_record(1, 10_500), board)

    assert {0: 2} == board.read_to
    assert [("a", 11_500)] == task.fired()
