"""A tail that leaves records does not let the clock of their task pass them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from samzapy.container.task.joint_transaction import JointTransaction
from samzapy.container.task.ports import Place
from samzapy.container.task.tail import Tail, TailPorts, TaskRows
from samzapy.container.task.work_plan import InputRecord, Report, Rows, TailPlan
from samzapy.testing.memory.process import CrashAt
from unit_tests.container.task.test_many_timers import OneTask
from unit_tests.fixtures.container_worlds import SSP_KB, a_plan
from unit_tests.fixtures.tail_worlds import MemoryTailBoard, MemoryTailReader

_HEAD = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Task(sz.Task[str, bytes]):
    over = sz.timer("event")
"""
_JOB = (
    _HEAD
    + """
    def process(self, message, out):
        if message.time_ms < self.over.now_ms():
            out.send(fired, f"late at {message.time_ms}", key=message.key)
        if (self.over.get() or self.over.now_ms()) < self.over.now_ms():
            out.send(fired, "before a timer that is due", key=message.key)
        self.over.set(message.time_ms + 1000)

    @over.fires
    def is_over(self, timer, out):
        out.send(fired, timer.time_ms, key=timer.key)
"""
)
_ALL_ACTIONS = (
    _HEAD
    + """
    def process(self, message, out):
        action, moment_ms = message.value.decode(), message.time_ms
        out.send(fired, ["message", moment_ms, self.over.now_ms(), self.over.get()], key=message.key)
        if action == "set":
            self.over.set(moment_ms + 1000)
        elif action == "clear":
            self.over.clear()
        elif action == "chain":
            self.over.set(moment_ms + 500, tag="chain")
        elif action == "past":
            self.over.set(moment_ms - 1000, tag="past")

    @over.fires
    def is_over(self, timer, out):
        out.send(fired, [timer.tag, timer.time_ms, self.over.now_ms()], key=timer.key)
        if timer.tag == "chain":
            self.over.set(timer.time_ms + 700)
"""
)
_IDLE_MS = 1000
_LOOKS_MAX = 12


class ReadToItsEnd:
    """The end of the input, as seen now."""

    def __init__(self, offset_end: int, now_ms: Callable[[], int]) -> None:
        self._offset_end, self._now_ms = offset_end, now_ms

    def look(self) -> bool:
        return True

    def covered_ms(self, place: Place, offset_next: int) -> int | None:
        return self._now_ms() if offset_next >= self._offset_end else None


class TailedTask(OneTask):
    """A task whose worker tails."""

    def __init__(self, directory: Path, *settings: str, text: str = _JOB) -> None:
        super().__init__(directory, text, f"task.event.time.idle.ms={_IDLE_MS}", *settings)
        self.handle([("a", 10_000)])
        self.wall_ms = 60_000
        self.passes_ms = 5 * _IDLE_MS

    def tail(self, bunches: Sequence[Sequence[InputRecord]], board: MemoryTailBoard) -> None:
        """Read bunches of records, and let time pass after them."""
        reader = MemoryTailReader(*bunches)
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
            ends=ReadToItsEnd(bunches[-1][-1].offset + 1, lambda: self.wall_ms),
        )
        Tail(plan, plan.tasks, [bunches[0][0].offset], ports, self._run_tasks).run()

    def tail_until(self, looks: Sequence[int], records: Sequence[InputRecord], bunch: int) -> Sequence[InputRecord]:
        """Tail once for each count of looks after which a tail ends.

        Returns:
            The records that are left.
        """
        for count in looks:
            if not records:
                break
            board = MemoryTailBoard(looks=count)
            self.tail([records[first : first + bunch] for first in range(0, len(records), bunch)], board)
            records = [record for record in records if record.offset >= board.read_to[0]]
            self._pass_time()
        return records

    def run_all(self, records: Sequence[InputRecord]) -> None:
        """Handle records in a micro-batch, and what is due behind them."""
        self._run([Rows.of(0, records, 0.02)] if records else (), lambda: False)

    def _pass_time(self) -> None:
        self.wall_ms += self.passes_ms

    def _due_ms(self, routes: Sequence[int], covered_ms: Mapping[int, int]) -> int:
        self.runner.covered(covered_ms)
        return self.runner.due_ms()

    def _run_tasks(self, tasks: Sequence[TaskRows], must_end: object) -> Sequence[Report]:
        joint = JointTransaction(self.slot, CrashAt(), self._look, must_end)  # type: ignore[arg-type]
        return joint.run(self.runner.work(chunks, joint) for _, chunks in tasks)


def a_record(offset: int, time_ms: int, key: str = "a", value: bytes = b"") -> InputRecord:
    return InputRecord(SSP_KB.ssp.stream, SSP_KB.ssp.partition, offset, key.encode(), value, time_ms, ())


def test_records_that_a_tail_leaves_hold_the_clock_of_their_task(tmp_path: Path) -> None:
    task = TailedTask(tmp_path)
    # Ends between the look before the records are read and the one before they are handled.
    board = MemoryTailBoard(looks=1)

    task.tail([[a_record(1, 10_500)]], board)

    assert {0: 1} == board.read_to, "the record is left for the next micro-batch"
    assert [] == task.fired(), "its time is before that of the timer"


def test_the_clock_goes_on_once_the_records_of_a_tail_are_handled(tmp_path: Path) -> None:
    task, board = TailedTask(tmp_path), MemoryTailBoard(looks=20)

    task.tail([[a_record(1, 10_500)]], board)

    assert {0: 2} == board.read_to
    assert [("a", 11_500)] == task.fired()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2 * _IDLE_MS)), min_size=1, max_size=12),
    st.lists(st.integers(0, 6), max_size=6),
    st.integers(1, 3),
)
def test_no_record_is_late_wherever_tails_end(feed: list[tuple[str, int]], looks: list[int], bunch: int) -> None:
    keys, passes_ms = zip(*feed, strict=True)
    times_ms = itertools.accumulate(passes_ms, initial=10_000)
    next(times_ms)
    records = [
        a_record(offset, time_ms, key) for offset, (key, time_ms) in enumerate(zip(keys, times_ms, strict=True), 1)
    ]
    with TemporaryDirectory() as directory:
        task = TailedTask(Path(directory))
        left = task.tail_until([*looks, 20 * len(records)], records, bunch)

        assert [] == left
        assert [] == [value for _, value in task.fired() if str(value).startswith("late")]
        task.environment.close()


@pytest.mark.parametrize("transaction_max_ms", [1, 10_000])
def test_no_late_message_is_handled_before_a_timer_that_is_due_wherever_a_tail_ends(
    tmp_path: Path, transaction_max_ms: int
) -> None:
    left = 0
    for looks in range(_LOOKS_MAX):
        (directory := tmp_path / str(looks)).mkdir()
        task = TailedTask(directory, f"task.transaction.max.ms={transaction_max_ms}")
        task.handle([("b", 10_000), ("c", 10_000), ("d", 10_000)], 1)
        task.tick_s = 0.1  # Each timer takes so long that the tail looks behind it whether it must end.
        task.runner.covered({0: task.wall_ms + 10 * _IDLE_MS})
        task.act(lambda: True)
        assert 1 == len(task.fired()), "a tail ended while its timers fired"

        board = MemoryTailBoard(looks)
        task.tail([[a_record(4, 10_100, "c"), a_record(5, 10_200, "d")]], board)

        assert "before a timer that is due" not in [value for _, value in task.fired()], looks
        left += board.read_to[0] < 6
        task.environment.close()
    assert 0 < left < _LOOKS_MAX


_AHEAD_MS = 10**7
"""Further ahead of the host's clock than a message may be that moves a clock."""
_RECORDS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["set", "clear", "chain", "past", "none"]),
        st.integers(-2000, 3000) | st.just(_AHEAD_MS),
    ),
    min_size=1,
    max_size=15,
)
_A_TRANSACTION_EACH = {"looks": [0], "bunch": 1, "tick_s": 0.001, "transaction_max_ms": 1}


@settings(max_examples=50, deadline=None)
# A late message behind a timer that was set to the past.
@example(feed=[("a", "past", 1701), ("a", "set", 0)], **_A_TRANSACTION_EACH)
# The second message replaces the timer that would be due before the third one.
@example(feed=[("a", "set", 0), ("a", "set", 0), ("a", "set", 0)], **_A_TRANSACTION_EACH)
@example(feed=[("a", "past", 1701), ("a", "set", _AHEAD_MS)], **_A_TRANSACTION_EACH)
# A timer sets one that is due.
@example(feed=[("a", "chain", -500), ("a", "set", 0)], **_A_TRANSACTION_EACH)
@given(
    feed=_RECORDS,
    looks=st.lists(st.integers(0, 8), max_size=6),
    bunch=st.integers(1, 6),
    tick_s=st.sampled_from([0.0, 0.001, 0.1]),
    transaction_max_ms=st.sampled_from([1, 50, 10_000]),
)
def test_messages_and_timers_have_one_order_wherever_tails_end(
    feed: list[tuple[str, str, int]], looks: list[int], bunch: int, tick_s: float, transaction_max_ms: int
) -> None:
    records = [
        a_record(offset, 10_000 + 700 * offset + moved_ms, key, action.encode())
        for offset, (key, action, moved_ms) in enumerate(feed, 1)
    ]
    with TemporaryDirectory() as directory:
        outputs = []
        for way, ends in (("at-once", ()), ("tails", looks)):
            (Path(directory) / way).mkdir()
            task = TailedTask(
                Path(directory) / way, f"task.transaction.max.ms={transaction_max_ms}", text=_ALL_ACTIONS
            )
            task.tick_s = tick_s if ends else 0.0
            task.passes_ms = 0
            task.run_all(task.tail_until(ends, records, bunch))
            outputs.append(task.fired())
            task.environment.close()
    assert outputs[0] == outputs[1]
