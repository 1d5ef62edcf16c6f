"""Many timers due at once: bounded transactions, a stop in between, their order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from samzapy.adapters.host.threads import HostThreads
from samzapy.adapters.lmdb.store import LmdbEnvironment
from samzapy.container.task.firing import FIRE_S
from samzapy.container.task.joint_transaction import JointTransaction
from samzapy.container.task.ports import Producer
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.transaction import TransactionLimits
from samzapy.container.task.work_plan import NO_TIMER, Report, Rows, WorkPlan
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.timer_entry import STORE
from samzapy.model.topics import changelog_topic
from samzapy.runtime.job_config import load_job
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.process import CrashAt
from samzapy.testing.memory.slot import MemorySlot
from unit_tests.fixtures.container_worlds import SSP_KB, a_plan, a_position

MANY = 40_000
SET_FOR_MS = 10_000_000
TICK_S = 10e-6
"""Each look at the clock takes so long, so a timer does, too."""
_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Task(sz.Task[str, bytes]):
    over = sz.timer("{domain}")

    def process(self, message, out):
        self.over.set(message.timestamp_ms + 1_000_000)

    @over.fires
    def is_over(self, timer, out):
        out.send(fired, timer.time_ms, key=timer.key)
"""


class OneTask:
    """A task with a real local store, by a clock that advances with each look at it."""

    def __init__(
        self, directory: Path, text: str, *settings: str, ssp_kbs: Sequence[SspKeyBucket] = (SSP_KB,)
    ) -> None:
        job = directory / "job.py"
        job.write_text(text)
        job.with_suffix(".properties").write_text(
            "job.name=job\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"
        )
        config, new_task = load_job(job, None, settings, {})
        self.config = config
        self.kafka, self.now_s, self.wall_ms, self.tick_s = MemoryKafka(), 0.0, 0, TICK_S
        self.slot = MemorySlot(self.kafka)
        self.spans_s: list[float] = []
        (directory / "task").mkdir()
        self.environment = LmdbEnvironment(directory / "task" / "1", config.stores)
        local = self.environment.begin()
        stores = {store.name: 0 for store in config.stores}
        local.set_position(
            a_position(
                offsets_next=dict.fromkeys(map(str, ssp_kbs), 0),
                changelog_next=stores,
                changelog_topic_ids=dict.fromkeys(stores, ""),
            )
        )
        local.commit()
        self._new_task = new_task
        self.runner = self._runner(a_plan(config, ssp_kbs=ssp_kbs))

    def take_over(self, environment: LmdbEnvironment, plan: WorkPlan) -> None:
        """Continue with another environment, as the container that is granted the task."""
        self.environment.close()
        self.environment = environment
        self.runner = self._runner(plan)

    def _runner(self, plan: WorkPlan) -> TaskRunner:
        config = self.config
        return TaskRunner(
            plan=plan,
            routes=range(len(plan.routes)),
            new_task=self._new_task,
            environment=self.environment,
            limits=TransactionLimits(
                duration_max_s=config.transaction_max_ms / 1000,
                bytes_max=config.transaction_max_bytes,
                now_s=self._look,
                wall_ms=lambda: self.wall_ms,
                boot_ms=lambda: self.wall_ms,
            ),
            crash_points=CrashAt(),
            is_interrupted=lambda: False,
            threads=HostThreads(),
        )

    def _look(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def handle(self, messages: list[tuple[str, int]], offset: int = 0) -> Report:
        """Handle messages: their keys and times."""
        rows = Rows(
            0,
            range(offset, offset + len(messages)),
            [key.encode() for key, _ in messages],
            [b""] * len(messages),
            [timestamp_ms for _, timestamp_ms in messages],
            None,
        )
        return self._run([rows], lambda: False)

    def act(self, must_end: Callable[[], bool] = lambda: False) -> Report:
        """Act without messages, as in a tick."""
        return self._run((), must_end)

    def _run(self, chunks: object, must_end: Callable[[], bool]) -> Report:
        joint = _Joint(self, must_end)
        reports = joint.run([self.runner.work(chunks, joint)])  # type: ignore[arg-type]
        for report in reports:
            assert not report.error, report.error
        return reports[0]

    def fired(self) -> list[tuple[str, int]]:
        records = self.kafka.committed("fired")
        return [((record.key or b"").decode(), json.loads(record.value or b"")) for record in records]

    def left(self) -> int:
        local = self.environment.begin()
        try:
            return local.size(STORE).entries
        finally:
            local.abort()


class _Joint(JointTransaction):
    """Notes for how long each transaction has been open when it is to be committed."""

    def __init__(self, task: OneTask, must_end: Callable[[], bool]) -> None:
        super().__init__(task.slot, CrashAt(), lambda: task.now_s, must_end)
        self._task = task
        self._begun_s: float | None = None

    def begin(self) -> Producer:
        if self._begun_s is None:
            self._begun_s = self._task.now_s
        return super().begin()

    def _commit(self, unfinished: object = None) -> float:
        assert self._begun_s is not None
        self._task.spans_s.append(self._task.now_s - self._begun_s)
        self._begun_s = None
        return super()._commit(unfinished)  # type: ignore[arg-type]


@pytest.fixture
def many(tmp_path: Path) -> OneTask:
    task = OneTask(tmp_path, _JOB.format(domain="processing"), "task.transaction.max.ms=100")
    drawn = Random(1)
    moments = [drawn.randrange(SET_FOR_MS) for _ in range(MANY)]
    for first in range(0, MANY, 10_000):
        task.handle([(f"k{n}", moments[n]) for n in range(first, first + 10_000)], first)
    task.spans_s.clear()
    task.wall_ms = 10 * SET_FOR_MS
    return task


def test_many_timers_fire_once_in_bounded_transactions_across_a_stop(many: OneTask) -> None:
    stopped_at_s = many.now_s + 0.25

    report = many.act(lambda: many.now_s >= stopped_at_s)
    before = len(many.fired())

    assert many.now_s < stopped_at_s + 0.03
    assert 0 < before < MANY and before + many.left() == MANY
    assert report.due_ms <= many.wall_ms, "the rest is due"
    while many.act().due_ms != NO_TIMER:
        pass
    fired = many.fired()
    assert MANY == len(fired) == len({*fired}) and 0 == many.left()
    moments = [moment_ms for _, moment_ms in fired]
    assert sorted(moments) == moments
    assert max(many.spans_s) < 0.1 + 0.03
    removed = many.kafka.committed(changelog_topic(many.config.job, STORE))[MANY:]
    assert MANY == len({record.key for record in removed if record.value is None}) == len(removed)


@pytest.mark.parametrize("domain", ["processing", "event"])
def test_timers_that_take_long_are_left_to_the_next_tick(tmp_path: Path, domain: str) -> None:
    """Else a stop would wait for all of them."""
    task = OneTask(tmp_path, _JOB.format(domain=domain))
    task.handle([(f"k{n}", 0) for n in range(1000)])
    task.wall_ms = 10 * SET_FOR_MS
    task.runner.covered({0: task.wall_ms})
    task.tick_s, begun_s = 0.01, task.now_s

    report = task.act()

    assert task.now_s - begun_s < FIRE_S + 1
    assert 0 < len(task.fired()) < 1000 and report.due_ms <= task.wall_ms
    while (report := task.act()).due_ms != NO_TIMER:
        pass
    assert 1000 == len({*task.fired()}) == len(task.fired())


def test_a_message_without_a_time_waits_for_the_timers_that_a_tick_has_left(tmp_path: Path) -> None:
    text = _JOB.format(domain="event").replace(
        "        self.over.set",
        "        if message.timestamp_ms < 0:\n            out.send(fired, 0, key='m')\n        self.over.set",
    )
    task = OneTask(tmp_path, text)
    task.handle([(f"k{n}", 0) for n in range(1000)])
    task.tick_s, task.wall_ms = 0.01, SET_FOR_MS
    task.runner.covered({0: task.wall_ms})
    task.act()
    task.runner.covered({})

    task.handle([("last", -1)], 1000)

    assert 1000 == [key for key, _ in task.fired()].index("m")


_CHAIN = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Task(sz.Task[str, bytes]):
    first = sz.timer("{domain}")
    second = sz.timer("{domain}")
    third = sz.timer("{domain}")

    def process(self, message, out):
        self.first.set(message.timestamp_ms + 10)
        self.third.set(message.timestamp_ms + 20)

    @first.fires
    def is_first(self, timer, out):
        out.send(fired, timer.time_ms, key=timer.key)
        self.second.set(timer.time_ms + 5)

    @second.fires
    def is_second(self, timer, out):
        out.send(fired, timer.time_ms, key=timer.key)

    @third.fires
    def is_third(self, timer, out):
        out.send(fired, timer.time_ms, key=timer.key)
"""


@pytest.mark.parametrize("domain", ["processing", "event"])
def test_a_timer_that_a_handler_sets_fires_in_its_order_among_those_that_are_due(tmp_path: Path, domain: str) -> None:
    """Else the order would change with the places at which transactions end."""
    task = OneTask(tmp_path, _CHAIN.format(domain=domain))
    task.handle([("a", 100), ("b", 107)])
    task.wall_ms = SET_FOR_MS
    task.runner.covered({0: task.wall_ms})

    task.act()

    assert [("a", 110), ("a", 115), ("b", 117), ("a", 120), ("b", 122), ("b", 127)] == task.fired()


_BEATS = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired], window_ms=sz.hours(1))
class Task(sz.Task[str, bytes]):
    beat = sz.timer("{domain}")
    count = sz.counter()

    def process(self, message, out):
        self.beat.set(message.timestamp_ms + 60_000)

    @beat.fires
    def beats(self, timer, out):
        out.send(fired, self.count.add(), key=timer.key)
        if {goes_on}:
            self.beat.set(timer.time_ms + {step_ms})

    def window(self, tick, out):
        for key in self.context.keys(self.count):
            out.send(fired, self.count.get(), key="window")
"""


@pytest.mark.parametrize("domain", ["processing", "event"])
def test_a_timer_that_sets_itself_again_and_again_catches_up_in_one_transaction_before_the_window(
    tmp_path: Path, domain: str
) -> None:
    text = _BEATS.format(domain=domain, goes_on="self.count.get() < 30", step_ms=60_000)
    task = OneTask(tmp_path, text, "task.transaction.max.ms=10000")
    task.handle([("a", 0)])
    task.spans_s.clear()
    task.wall_ms = SET_FOR_MS
    task.runner.covered({0: task.wall_ms})

    task.act()

    assert [*(("a", number) for number in range(1, 31)), ("window", 30)] == task.fired()
    assert 1 == len(task.spans_s)


@pytest.mark.parametrize("domain", ["processing", "event"])
def test_a_timer_that_is_due_again_for_ever_leaves_its_transaction_and_the_tick(tmp_path: Path, domain: str) -> None:
    text = _BEATS.format(domain=domain, goes_on="True", step_ms=0)
    task = OneTask(tmp_path, text, "task.transaction.max.ms=100")
    task.handle([("a", 0)])
    task.spans_s.clear()
    task.wall_ms = SET_FOR_MS
    task.runner.covered({0: task.wall_ms})
    task.tick_s, begun_s = 0.001, task.now_s

    report = task.act()

    assert task.now_s - begun_s < FIRE_S + 1 and max(task.spans_s) < 0.1 + 0.03
    assert report.due_ms <= task.wall_ms


_OF_BOTH_CLOCKS = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Bytes)
fired = sz.Stream("kafka.fired", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[fired])
class Task(sz.Task[str, bytes]):
    count = sz.counter(ttl=1000)
    of_host = sz.timer("processing")
    of_messages = sz.timer("event")

    def process(self, message, out):
        if message.key == "a":
            self.of_host.set(10)
        else:
            self.count.add()
            self.of_messages.set(message.timestamp_ms + 500)

    @of_host.fires
    def acts_by_the_host(self, timer, out):
        self.of_messages.set(0)

    @of_messages.fires
    def acts_by_the_messages(self, timer, out):
        out.send(fired, self.count.get(), key=timer.key)
"""


def test_a_timer_of_the_host_that_sets_one_to_the_past_lets_no_entry_of_another_key_expire(tmp_path: Path) -> None:
    task = OneTask(tmp_path, _OF_BOTH_CLOCKS)
    task.handle([("a", 100), ("b", 100)])
    task.wall_ms = SET_FOR_MS
    task.runner.covered({0: task.wall_ms})

    task.act()

    assert [("a", 0), ("b", 1)] == sorted(task.fired())


def test_a_handler_that_keeps_its_output_cannot_send_by_it_in_the_next_one(tmp_path: Path) -> None:
    text = _JOB.format(domain="processing").replace(
        "        out.send(fired, timer",
        "        self.kept = getattr(self, 'kept', out)\n        self.kept.send(fired, timer",
    )
    task = OneTask(tmp_path, text)
    task.handle([("a", 0), ("b", 1)])
    task.wall_ms = SET_FOR_MS

    with pytest.raises(AssertionError, match="failed at timer over of key b"):
        task.act()
