"""A worker's report of event time and timers: each figure has a known value."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from samzapy.adapters.host.threads import HostThreads
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.transaction import TransactionLimits
from samzapy.container.task.work_plan import Rows
from samzapy.model.task_stats import TaskStats
from samzapy.model.time_figures import SeenClock, TimeFigures
from samzapy.runtime.job_config import load_job
from samzapy.testing.task_kit import _NoCrashPoints, _plan, _Producer, _State

_HEAD = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Long{declared})
rates = sz.Stream("kafka.rates", key=sz.String, value=sz.Long)

@sz.task(inputs=[{inputs}], outputs=[orders])
class Task(sz.Task[str, int]):
"""
_EVENT = """
    over = sz.timer("event")

    def process(self, message, out):
        if message.value == 13:
            raise ValueError("13")
        if message.value:
            self.over.set(message.value)

    @over.fires
    def is_over(self, timer, out): ...
"""
_PROCESSING = """
    soon = sz.timer("processing")
    kept = sz.value(sz.Long, default=0, ttl=1000)

    def process(self, message, out):
        if message.value < 0:
            self.kept.set(1)
        else:
            self.soon.set(message.value)

    @soon.fires
    def is_soon(self, timer, out):
        {fails}
"""
_PLAIN = """
    def process(self, message, out): ...
"""
_PROPERTIES = """
job.name=job
systems.kafka.bootstrap.servers=localhost:9092
local.store.dir=state
"""
ORDERS, RATES = "kafka.orders.0:0/1", "kafka.rates.0:0/1"


class AWorker:
    """One task in one worker; its clocks are moved by the test."""

    def __init__(
        self, directory: Path, body: str, *, inputs: str = "orders", declared: str = "", settings: Iterable[str] = ()
    ) -> None:
        path = directory / "job.py"
        path.write_text(_HEAD.format(inputs=inputs, declared=declared) + body.format(fails="pass"))
        path.with_suffix(".properties").write_text(_PROPERTIES)
        config, new_task = load_job(path, None, [*settings], {})
        plan = _plan(config, path)
        self.clock = SimpleNamespace(wall_ms=1000, boot_ms=10)
        self.wall_ms = lambda: self.clock.wall_ms
        self.slot, self.state, self.offsets = _Producer(config), _State(plan), [0, 0]
        self.runner = TaskRunner(
            plan=plan,
            routes=range(len(plan.routes)),
            new_task=new_task,
            environment=self.state,
            limits=TransactionLimits(
                duration_max_s=3600.0,
                bytes_max=1 << 30,
                now_s=lambda: 0.0,
                wall_ms=lambda: self.wall_ms(),
                boot_ms=lambda: self.clock.boot_ms,
            ),
            crash_points=_NoCrashPoints(),
            is_interrupted=lambda: False,
            threads=HostThreads(),
        )

    def handle(self, *messages: tuple[int, int], route: int = 0, keys: str = "") -> TaskStats:
        """Handle messages of one input by time and value; return the worker's figures."""
        begin = self.offsets[route]
        self.offsets[route] += len(messages)
        rows = Rows(
            route,
            range(begin, self.offsets[route]),
            [key.encode() for key in keys or "a" * len(messages)],
            [value.to_bytes(8, signed=True) for _, value in messages],
            [time_ms for time_ms, _ in messages],
            None,
        )
        return self._measured([rows] if messages else [])

    def tick(self) -> TaskStats:
        return self._measured([])

    def _measured(self, rows: list[Rows]) -> TaskStats:
        first, *others = self.runner.run(rows, self.slot)
        assert not first.error and first.measured is not None
        assert all(report.measured is None for report in others)
        return first.measured


def time_of(stats: TaskStats) -> TimeFigures:
    assert stats.time is not None
    return stats.time


def test_the_watermark_and_the_clocks_of_the_inputs_are_reported(tmp_path: Path) -> None:
    worker = AWorker(tmp_path, _EVENT, inputs="orders, rates")

    first = time_of(worker.handle((500, 0)))
    worker.clock.boot_ms = 20
    both = time_of(worker.handle((300, 0), route=1))

    assert (10, None) == (first.at_ms, first.watermark_ms)
    assert (SeenClock(500, 10, is_known=True), False) == (first.inputs[ORDERS], first.inputs[RATES].is_known)
    assert (20, 300) == (both.at_ms, both.watermark_ms)
    assert {ORDERS: SeenClock(500, 10, is_known=True), RATES: SeenClock(300, 20, is_known=True)} == both.inputs


def test_messages_older_than_the_watermark_are_counted_as_late(tmp_path: Path) -> None:
    worker = AWorker(tmp_path, _EVENT, declared=", disorder_ms=10")

    assert 0 == worker.handle((100, 0), (95, 0), (90, 0)).late, "the watermark is 90"
    assert 2 == worker.handle((89, 0), (1, 0), (90, 0), (200, 0)).late
    assert 1 == worker.handle((189, 0)).late
    assert 0 == worker.tick().late


def test_messages_that_are_too_far_ahead_of_the_host_s_clock_are_counted(tmp_path: Path) -> None:
    worker = AWorker(tmp_path, _EVENT, declared=", disorder_ms=10")
    no_later_ms = worker.clock.wall_ms + 300_000

    assert 0 == worker.handle((no_later_ms, 0)).ahead
    assert 2 == worker.handle((no_later_ms + 1, 0), (100, 0), (2 * no_later_ms, 0)).ahead
    assert 0 == worker.tick().ahead


def test_late_messages_of_a_transaction_that_failed_are_not_counted(tmp_path: Path) -> None:
    worker = AWorker(tmp_path, _EVENT)
    worker.handle((100, 0))

    (failed,) = worker.runner.run(
        [Rows(0, [1, 2], [b"a"] * 2, [bytes(8), (13).to_bytes(8)], [1, 1], None)], worker.slot
    )

    assert failed.error and failed.measured is not None
    assert 0 == failed.measured.late
    worker.offsets = [1, 0]
    assert 1 == worker.handle((2, 0)).late


def test_timers_that_fire_and_those_that_are_left_are_counted(tmp_path: Path) -> None:
    worker = AWorker(tmp_path, _EVENT)

    stats = worker.handle((100, 150), (110, 120), (120, 900), (200, 0), keys="abcd")

    assert (2, 0) == (stats.timers_fired, stats.timers_timed)
    assert (200, 1) == (time_of(stats).watermark_ms, time_of(stats).timers_pending)


def test_the_lag_of_timers_in_processing_time_is_counted(tmp_path: Path) -> None:
    worker = AWorker(tmp_path, _PROCESSING)

    pending = worker.handle((0, 1010), (0, 1025), (0, 5000), keys="abc")
    worker.clock.wall_ms = 1030
    fired = worker.tick()

    assert (0, 3) == (pending.timers_fired, time_of(pending).timers_pending)
    assert (2, 2, (20 + 5) * 1_000_000) == (fired.timers_fired, fired.timers_timed, fired.timer_lag_ns)
    assert 1 == time_of(fired).timers_pending
    assert (None, {}) == (time_of(fired).watermark_ms, time_of(fired).inputs)


def test_a_clock_that_is_set_back_while_timers_fire_makes_no_lag_of_less_than_nothing(tmp_path: Path) -> None:
    """Figures below zero are refused."""
    worker = AWorker(tmp_path, _PROCESSING)
    worker.handle((0, 1010))
    walls_ms = iter([1020, 1020, 900])
    worker.wall_ms = lambda: next(walls_ms, 900)

    fired = worker.tick()

    assert (1, 0) == (fired.timers_timed, fired.timer_lag_ns)


def test_entries_that_expire_are_counted_and_are_no_timers(tmp_path: Path) -> None:
    worker = AWorker(tmp_path, _PROCESSING)

    kept = worker.handle((0, -1), (0, -1), keys="ab")
    worker.clock.wall_ms = 9000
    expired = worker.tick()

    assert (0, 2) == (kept.expired, time_of(kept).timers_pending)
    assert (2, 0, 0) == (expired.expired, expired.timers_fired, expired.timer_lag_ns)
    assert 0 == time_of(expired).timers_pending


def test_a_task_without_timers_and_event_time_reports_neither(tmp_path: Path) -> None:
    assert AWorker(tmp_path, _PLAIN).handle((100, 0)).time is None


def test_a_worker_that_has_not_looked_in_this_micro_batch_reports_no_watermark(tmp_path: Path) -> None:
    """Another worker may have moved it."""
    worker = AWorker(tmp_path, _PLAIN, declared=", disorder_ms=10")
    assert 90 == time_of(worker.handle((100, 0))).watermark_ms

    worker.runner.begin_batch()

    assert worker.tick().time is None
    assert 190 == time_of(worker.handle((200, 0))).watermark_ms


def test_a_task_whose_inputs_have_ended_has_no_watermark(tmp_path: Path) -> None:
    worker = AWorker(tmp_path, _EVENT, settings=["systems.kafka.samza.offset.end=head"])
    worker.handle((100, 900))

    worker.runner.covered({0: 2**62})
    ended = worker.tick()

    assert (1, None, {}) == (ended.timers_fired, time_of(ended).watermark_ms, time_of(ended).inputs)


@pytest.mark.parametrize("late", [(1, 0), (99, 0)])
def test_a_late_message_of_a_new_task_is_counted_by_the_watermark_it_inherits(
    tmp_path: Path, late: tuple[int, int]
) -> None:
    worker = AWorker(tmp_path, _EVENT)
    worker.handle((100, 0))
    worker.runner._time.event_time.forget()  # type: ignore[union-attr]

    assert 1 == worker.handle(late).late
