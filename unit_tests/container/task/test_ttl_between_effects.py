"""A process dies between any two effects over the real LMDB: entries still expire.

Each message sends the state of its key, and so does a timer. The messages come out of order, but not late.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samzapy.adapters.lmdb.store import LmdbEnvironment, LmdbStateDirectory, LmdbTransaction
from samzapy.config import StoreConfig
from samzapy.container.task import entry_time
from samzapy.container.task.clocks import FAR_MS
from samzapy.errors import SamzapyError
from samzapy.testing.memory.local_state import MemoryStateDirectory
from samzapy.testing.memory.process import CrashAt
from unit_tests.container.task.test_crash_between_effects import Life, Message, a_workload, lives, workloads
from unit_tests.fixtures.clocked_world import ClockedWorld, Job, a_job_of

_TTL_MS, _STEP_MS, _DISORDER_MS, _TIMER_MS = 1000, 20, 300, 700
_QUIET_MS = 10**8
_WORKLOAD = a_workload("a1", "b2", "a3", "b4", "c5", "a6", "c7", "b8", "a9", gap=1)

_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Json(), disorder_ms=300,
                   event_time=lambda message: 10_000 + 400 * message.offset - 700 * (message.offset % 2))
shown = sz.Stream("kafka.shown", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[shown])
class Seen(sz.Task[str, int]):
    total = sz.counter(ttl=1000)
    last = sz.map(sz.Long, sz.Long, ttl=1000)
    over = sz.timer("event")

    def process(self, message, out):
        self.show(message.time_ms, message.key, out)
        self.total.add(message.value)
        self.last.put(message.value % 3, message.value)
        self.over.set(message.time_ms + 700)

    @over.fires
    def fired(self, timer, out):
        self.show(timer.time_ms, timer.key, out)

    def show(self, time_ms, key, out):
        out.send(shown, [time_ms, self.total.get(), list(self.last.items())], key=key)
"""


def time_of(offset: int) -> int:
    return 10_000 + 400 * offset - 700 * (offset % 2)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return a_job_of(tmp_path_factory.mktemp("job") / "seen.py", _JOB)


class LmdbDisk(LmdbStateDirectory):
    """The local state of the task on one host."""

    def __init__(self, path: Path, stores: list[StoreConfig]) -> None:
        super().__init__(path, stores)
        self.crash_points = CrashAt()
        self.current: LmdbEnvironment | None = None

    def open(self) -> LmdbEnvironment:
        return self._kept(super().open())

    def fresh(self) -> LmdbEnvironment:
        return self._kept(super().fresh())

    def existing(self) -> LmdbEnvironment | None:
        environment = super().existing()
        return None if environment is None else self._kept(environment)

    def end_process(self) -> None:
        """Close the open files of the process."""
        if self.current is not None:
            self.current.close()

    def _kept(self, environment: LmdbEnvironment) -> LmdbEnvironment:
        close = environment.close

        def close_once() -> None:
            if self.current is environment:
                self.current = None
                close()

        self.current = environment
        environment.close = close_once  # type: ignore[method-assign]
        return environment


class Model:
    """The outputs of each key, if nothing dies and nothing is removed."""

    def __init__(self, messages: list[Message]) -> None:
        self.outputs: dict[str, list[Any]] = {}
        # By key and sub-key, None for the total: the value, and its expiry.
        self._entries: dict[tuple[str, int | None], tuple[int, int]] = {}
        self._timers: dict[str, int] = {}
        newest_ms = 0
        for message in messages:
            newest_ms = max(newest_ms, time_of(message.offset))
            self._fire(newest_ms - _DISORDER_MS)
            self._handle(message)
            self._fire(newest_ms - _DISORDER_MS)
        self._fire(_QUIET_MS)

    def _handle(self, message: Message) -> None:
        key, time_ms = message.key, time_of(message.offset)
        self._show(key, time_ms)
        self._write(key, None, self._read(key, None, time_ms) + message.amount, time_ms)
        self._write(key, message.amount % 3, message.amount, time_ms)
        self._timers[key] = time_ms + _TIMER_MS

    def _fire(self, until_ms: int) -> None:
        for moment_ms, key in sorted((moment_ms, key) for key, moment_ms in self._timers.items()):
            if moment_ms <= until_ms:
                del self._timers[key]
                self._show(key, moment_ms)

    def _show(self, key: str, time_ms: int) -> None:
        last = [[number, value] for number in range(3) if (value := self._read(key, number, time_ms))]
        self.outputs.setdefault(key, []).append([time_ms, self._read(key, None, time_ms), last])

    def _read(self, key: str, sub_key: int | None, time_ms: int) -> int:
        value, expiry_ms = self._entries.get((key, sub_key), (0, 0))
        return value if time_ms < expiry_ms else 0

    def _write(self, key: str, sub_key: int | None, value: int, time_ms: int) -> None:
        expiry_ms = -(-(time_ms + _TTL_MS) // _STEP_MS) * _STEP_MS
        before_ms = self._entries.get((key, sub_key), (0, 0))[1]
        self._entries[key, sub_key] = value, max(expiry_ms, before_ms)


class TtlWorld(ClockedWorld):
    """The state is in LMDB; at the end the input is quiet until all has expired."""

    output = "shown"

    def __init__(self, messages: list[Message], job: Job, directory: str) -> None:
        self._directory = Path(directory)
        self._disks_made = 0
        self._stores = list(job[0].stores)
        super().__init__(messages, job)

    def new_disk(self, host: int) -> MemoryStateDirectory:
        self._disks_made += 1
        return cast(MemoryStateDirectory, LmdbDisk(self._directory / str(self._disks_made), self._stores))

    def live(self, life: Life) -> None:
        for disk in self.disks:
            cast(LmdbDisk, disk).end_process()
        super().live(life)

    def consume(self, life, starts, environment, slot, crash_points):  # type: ignore[no-untyped-def]
        super().consume(life, starts, environment, slot, crash_points)
        runner = self.runner(life, environment, crash_points)
        self.wall_ms += _QUIET_MS
        runner.covered(dict.fromkeys(runner.routes, self.wall_ms))
        self.tick(runner, slot)

    def outputs(self) -> dict[str, list[Any]]:
        """The outputs of each key in this run."""
        outputs: dict[str, list[Any]] = {}
        for record in self.sent():
            outputs.setdefault((record.key or b"").decode(), []).append(json.loads(record.value or b""))
        return outputs

    def run_and_check(self) -> None:
        self.run([])
        self.check()

    def check(self) -> None:
        assert Model(list(self.messages)).outputs == self.outputs()
        environment = cast(LmdbDisk, self.disks[0]).current
        assert environment is not None
        for store in ("total", "last", "_timers"):
            assert {} == self.in_changelog(store)
            assert environment.is_empty(store)


@pytest.fixture(autouse=True)
def directory() -> Iterator[str]:
    with TemporaryDirectory() as path:
        yield path


@settings(max_examples=100, deadline=None)
@given(workloads(), st.lists(lives, max_size=5))
def test_no_sequence_of_crashes_changes_the_expired_entries(
    job: Job, messages: list[Message], lives: list[Life]
) -> None:
    with TemporaryDirectory() as directory:
        world = TtlWorld(messages, job, directory)

        world.run(lives)

        world.check()


@pytest.mark.parametrize("bytes_max", [0, 1000])
def test_timers_that_are_due_together_with_expiries_find_their_entries(
    job: Job, directory: str, bytes_max: int
) -> None:
    """At the end all entries are due at once; small transactions make it several."""
    world = TtlWorld(_WORKLOAD, job, directory)

    world.run([Life(bytes_max=bytes_max)])

    world.check()


def test_no_entry_is_removed_while_a_timer_is_left_that_is_due(
    tmp_path_factory: pytest.TempPathFactory, directory: str
) -> None:
    """Each firing has a transaction of its own.

    Only the last key has an entry, which expires after its timer.
    """
    only_nine = "if message.value == 9: self.total.add(9)"
    text = _JOB.replace("self.total.add(message.value)", only_nine).replace("self.last.put(", "print(")
    job = a_job_of(tmp_path_factory.mktemp("job") / "nine.py", text)
    world = TtlWorld(a_workload("a1", "b1", "c9"), job, directory)

    world.run([Life(bytes_max=0)])

    assert [9] == [total for _, total, _ in world.outputs()["c"]][1:]


class EndedWorld(TtlWorld):
    """The inputs end after the last message."""

    ends = True

    def consume(self, life, starts, environment, slot, crash_points):  # type: ignore[no-untyped-def]
        if not self.ends:
            super().consume(life, starts, environment, slot, crash_points)  # type: ignore[no-untyped-call]
            return
        super(TtlWorld, self).consume(life, starts, environment, slot, crash_points)
        # Twice, and the second time in another worker.
        for _ in range(2):
            runner = self.runner(life, environment, crash_points)
            runner.covered(dict.fromkeys(runner.routes, FAR_MS))
            self.tick(runner, slot)


def test_an_end_of_the_inputs_lets_all_timers_fire_and_no_entry_expire(job: Job, directory: str) -> None:
    world = EndedWorld(_WORKLOAD, job, directory)

    world.run([])

    assert Model(_WORKLOAD).outputs == world.outputs()
    assert {"a", "b", "c"} == {key[1:].decode() for key in world.in_changelog("total")}


def test_a_run_without_an_end_continues_after_one_with_an_end(job: Job, directory: str) -> None:
    world = EndedWorld(list(_WORKLOAD), job, directory)
    world.run([])
    before = len(world.outputs()["a"])
    message = Message(_WORKLOAD[-1].offset + 1, "a", 5)

    world.messages = [*_WORKLOAD, message]
    world.ends = False
    world.run([Life(moved=True)])

    # Its timer fires, too, although all timers up to the end of time have fired before.
    time_ms = time_of(message.offset)
    shown = world.outputs()["a"][before:]
    assert [time_ms, time_ms + _TIMER_MS] == [time for time, _, _ in shown]
    assert _WORKLOAD[-1].amount == shown[0][1]


# --- a ttl that the stores had not ---


@pytest.fixture(scope="module")
def job_before(tmp_path_factory: pytest.TempPathFactory) -> Job:
    text = _JOB.replace("sz.counter(ttl=1000)", "sz.counter()").replace(", ttl=1000)", ")")
    return a_job_of(tmp_path_factory.mktemp("before") / "seen.py", text)


def _in_this_run(life: Life) -> Life:
    """Another run would begin without state."""
    return replace(life, new_run=False)


@settings(max_examples=50, deadline=None)
@given(workloads().filter(len), st.lists(lives, max_size=3), st.lists(lives.map(_in_this_run), max_size=3), st.data())
def test_entries_of_before_a_ttl_are_seen_once_more_and_expire_after_their_first_use(
    job_before: Job, job: Job, messages: list[Message], before: list[Life], after: list[Life], data: st.DataObject
) -> None:
    with TemporaryDirectory() as directory:
        world = TtlWorld(messages, job_before, directory)
        world.run(before)
        totals, shown_before = (
            world.in_changelog("total"),
            {key: len(shown) for key, shown in world.outputs().items()},
        )
        used = data.draw(st.sets(st.sampled_from(sorted({message.key for message in messages}))))
        offset = max(message.offset for message in messages)

        uses = [Message(offset + number, key, 1) for number, key in enumerate(sorted(used), start=1)]
        world.messages = [*messages, *uses]
        (world.config, world.new_task), world.declared = job, job[1].declared
        world.run([Life(moved=True), *after])

        first_seen = {key: shown[shown_before[key]][1] for key, shown in world.outputs().items() if key in used}
        assert {key: sum(message.amount for message in messages if message.key == key) for key in used} == first_seen
        left = {key: value for key, value in totals.items() if key[1:].decode() not in used}
        assert left == world.in_changelog("total") and {} == world.in_changelog("_timers")


# --- without one of the safeguards it goes wrong ---


def test_a_sweep_that_reads_committed_state_goes_wrong(
    job: Job, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees again what this transaction has removed, and not what it has refreshed."""
    due, calls = LmdbTransaction.due, itertools.count()

    def due_as_committed(
        self: LmdbTransaction, store: str, domain: int, until_ms: int | None, count_max: int
    ) -> object:
        assert next(calls) < 1000
        own = self._transaction
        with self._environment._environment.begin() as read:
            self._transaction = read
            try:
                return due(self, store, domain, until_ms, count_max)
            finally:
                self._transaction = own

    monkeypatch.setattr(LmdbTransaction, "due", due_as_committed)
    world = TtlWorld(_WORKLOAD, job, directory)

    with pytest.raises((AssertionError, SamzapyError)):
        world.run_and_check()


def test_calls_that_act_at_the_watermark_see_expired_entries(
    job: Job, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_time.EntryTime, "act_at", lambda self, moment_ms: None)
    world = TtlWorld(_WORKLOAD, job, directory)
    world.run([])

    with pytest.raises(AssertionError):
        world.check()
