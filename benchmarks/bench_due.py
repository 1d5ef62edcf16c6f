"""Measure timers that are all due at once, and their cost in a split of a task.

As `bench_api`: the CPU time of the thread that fires them, with a real local store and librdkafka's producer in front
of its mock broker. The second half is fired after a stop in the middle.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bench_hot_path import OneTask, a_slot, limits_of
from bench_report import bullets, table

from samzapy.adapters.lmdb.store import LmdbEnvironment
from samzapy.config import JobConfig, StoreConfig, in_force, merge, parse_config, read_properties
from samzapy.container.task.joint_transaction import JointTransaction
from samzapy.container.task.work_plan import Rows
from samzapy.stream.changelog import changelog_key
from samzapy.task import TaskFactory, load_task_factory
from samzapy.testing.memory.process import CrashAt

FIRED_MIN = 80_000
_PROPERTIES = """
job.name=bench
task.inputs=kafka.orders
systems.kafka.bootstrap.servers=127.0.0.1:1
local.store.dir=/data
stores._timers.size.max.bytes=4294967296
"""
_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.Bytes, value=sz.Bytes)
out = sz.Stream("kafka.out", key=sz.Bytes, value=sz.Bytes)

@sz.task(inputs=[orders], outputs=[out])
class Job(sz.Task[bytes, bytes]):
    over = sz.timer("processing")

    def process(self, message, to):
        self.over.set(message.timestamp_ms)

    @over.fires
    def is_over(self, timer, to):
        {body}
"""
BODIES = {"nothing": "pass", "one output": 'to.send(out, b"over", key=timer.key)'}
_BATCH = 50_000
_MOMENTS_MS = 10_000_000
_VALUE_BYTES = 1000
_KEY_BYTES = 26
"""Of a value in local state: its key, and its checksum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The firing of all timers of a task.

    Attributes:
        longest_ms: the longest time from the begin of a transaction to its commit.
        stop_ms: from the order to stop, in the middle, to the end of the work.
    """

    count: int
    cpu_s: float
    transactions: int
    longest_ms: float
    stop_ms: float

    @property
    def per_s(self) -> float:
        """Timers for each second of CPU time."""
        return self.count / self.cpu_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """CPU time of handing local state over to two tasks, and of opening theirs.

    Attributes:
        entries_s: of values with the number and the bytes of the timers.
        values_s: of large values that have as many bytes together.
    """

    timers_s: float
    entries_s: float
    values_s: float
    megabytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DueFigures:
    """The firing by handler, and the split."""

    fired: dict[str, Due]
    split: Split
    transaction_max_ms: int
    drain_ms: int


def measure(count: int) -> DueFigures:
    """Set timers, let all be due, and fire them; and split a task that has them."""
    fired, slot = {}, a_slot()
    with tempfile.TemporaryDirectory() as scratch:
        for name, body in BODIES.items():
            subject = _Subject(Path(scratch, name.replace(" ", "-")), body, slot)
            subject.set_timers(count)
            if name == "nothing":
                split = _split(subject, Path(scratch))
            fired[name] = subject.fired(count)
        config = subject.config
    return DueFigures(
        fired=fired, split=split, transaction_max_ms=config.transaction_max_ms, drain_ms=config.drain_ms
    )


class _Joint(JointTransaction):
    """Notes how long each transaction was open, and when the work is ordered to end."""

    def __init__(self, slot: Any, must_end: Callable[[], bool]) -> None:
        super().__init__(slot, CrashAt(), time.monotonic, must_end)
        self.open_s: list[float] = []
        self._begun_s: float | None = None

    def begin(self) -> Any:
        self._begun_s = self._begun_s or time.monotonic()
        return super().begin()

    def _commit(self, unfinished: Any = None) -> float:
        assert self._begun_s is not None
        share_s = super()._commit(unfinished)
        self.open_s.append(time.monotonic() - self._begun_s)
        self._begun_s = None
        return share_s


class _Subject:
    """A task whose messages set a timer each."""

    def __init__(self, directory: Path, body: str, slot: Any) -> None:
        directory.mkdir()
        path = directory / "job.py"
        path.write_text(_JOB.format(body=body))
        factory: TaskFactory = load_task_factory(path)
        settings = merge(
            file=read_properties(_PROPERTIES, "bench.properties"),
            environment={},
            overrides=(),
            declared=factory.declared.settings(),
        )
        self.config: JobConfig = parse_config(in_force(settings))
        self._now_ms = 0
        limits = limits_of(
            self.config.transaction_max_ms / 1000, self.config.transaction_max_bytes, lambda: self._now_ms
        )
        self.task = OneTask(self.config, factory, directory, slot, limits)
        self._slot = slot

    def set_timers(self, count: int) -> None:
        drawn = Random(1)
        for first in range(0, count, _BATCH):
            size = min(_BATCH, count - first)
            keys = [b"%016x" % drawn.getrandbits(64) for _ in range(size)]
            moments = [drawn.randrange(1, _MOMENTS_MS) for _ in range(size)]
            rows = Rows(0, range(first, first + size), keys, [b""] * size, moments, None)
            (report,) = self.task.runner.run([rows], self._slot)
            assert not report.error, report

    def fired(self, count: int) -> Due:
        """Fire all of them, with a stop in the middle."""
        self._now_ms = _MOMENTS_MS
        gc.collect()
        gc.freeze()
        begun_s, open_s, done = time.thread_time(), [], 0
        stop_s: float | None = None
        stop_ms = 0.0
        while done < count:
            asked_at_s = time.monotonic() + (0.5 if stop_s is None else 3600.0)
            joint = _Joint(self._slot, lambda: time.monotonic() >= asked_at_s)  # noqa: B023
            (report,) = joint.run([self.task.runner.work((), joint)])
            assert not report.error and report.measured is not None, report
            if stop_s is None:
                stop_s = asked_at_s
                stop_ms = (time.monotonic() - asked_at_s) * 1000
            done += report.measured.timers_fired
            open_s += joint.open_s
        return Due(
            count=count,
            cpu_s=time.thread_time() - begun_s,
            transactions=len(open_s),
            longest_ms=max(open_s) * 1000,
            stop_ms=max(0.0, stop_ms),
        )


def _split(subject: _Subject, scratch: Path) -> Split:
    """Hand the timers over to two tasks, and values of as many bytes as they have."""
    stores = subject.config.stores
    timers_s = _handed_over(subject.task.environment, scratch / "timers", stores)
    with subject.task.environment._environment.begin() as read:
        raw = sum(len(key) + len(value) for key, value in read.cursor(db=subject.task.environment.stores["_timers"]))
        count = read.stat(db=subject.task.environment.stores["_timers"])["entries"]
    return Split(
        timers_s=timers_s,
        entries_s=_values_handed_over(scratch / "entries", count, raw // count - _KEY_BYTES),
        values_s=_values_handed_over(scratch / "values", raw // _VALUE_BYTES, _VALUE_BYTES),
        megabytes=raw / 1e6,
    )


def _values_handed_over(directory: Path, count: int, size: int) -> float:
    values = [
        StoreConfig(
            name="values", msg_serde="bytes", key_serde="string", replication_factor=None, size_max_bytes=1 << 32
        )
    ]
    directory.mkdir()
    source = LmdbEnvironment(directory / "1", values)
    local = source.begin()
    local.write("values", {changelog_key(b"%016x" % n, b""): bytes(size) for n in range(count)})
    local.commit()
    return _handed_over(source, directory / "targets", values)


def _handed_over(source: LmdbEnvironment, directory: Path, stores: Sequence[StoreConfig]) -> float:
    begun_s = time.thread_time()
    paths = [directory / str(number) / "1" for number in range(2)]
    for path in paths:
        path.parent.mkdir(parents=True)
    targets = [LmdbEnvironment(path, stores) for path in paths]
    source.hand_over([store.name for store in stores], targets, [0, 1])
    for target in targets:
        target.close()
    for path in paths:
        # A worker opens it, and makes the index of timers.
        LmdbEnvironment(path, stores).close()
    return time.thread_time() - begun_s


def section(figures: DueFigures, conditions: Sequence[str]) -> str:
    """The section of the page."""
    rows = [
        (
            f"{due.count:,}, {name}",
            f"{due.per_s:,.0f}" if due.per_s >= FIRED_MIN else f"**{due.per_s:,.0f}**",
            f"{due.cpu_s / due.count * 1e9:.0f}",
            str(due.transactions),
            f"{due.longest_ms:.0f}",
            f"{due.stop_ms:.0f}",
        )
        for name, due in figures.fired.items()
    ]
    header = (
        *("timers, and the work of a handler", "fired per second and core", "ns of a timer"),
        *("transactions", "the longest, ms", "a stop in the middle, ms"),
    )
    split = figures.split
    method = (
        f"All timers of one task are due at once, at random moments, set by as many keys. To be reached: {FIRED_MIN:,} "
        f"per second of CPU time of the thread that fires them; transactions within task.transaction.max.ms "
        f"({figures.transaction_max_ms}) and their commit; a stop within job.shutdown.drain.ms ({figures.drain_ms})."
    )
    halves = (
        f"To split the task in two took {split.timers_s:.2f} s of CPU time for its timers, with the indexes that the "
        f"new tasks make at the same time, {split.entries_s:.2f} s for as many values of their size, and "
        f"{split.values_s:.2f} s for the same {split.megabytes:.0f} MB in values of {_VALUE_BYTES:,} bytes."
    )
    return "\n\n".join(["## Many timers at once", table(header, rows), bullets([method, halves, *conditions])])
