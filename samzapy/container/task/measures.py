"""Measures the cost of a task in its worker without slowing it.

Whole chunks are timed, and samples.

The worker's loop handles half a million messages in a second, so reading a clock for each would cost several percent.
Timed are chunks of rows (thousands at high rates), commits, and the first call of each kind of a store in each chunk.
One key in `KEYS_EVERY` is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, ParamSpec, TypeVar

from samzapy.container.task.work_plan import Report, Rows
from samzapy.model.store_size import StoreSize
from samzapy.model.task_stats import NO_KEYS, NOTHING_MEASURED, TaskStats
from samzapy.model.task_stats import KeySketch as Sketch
from samzapy.model.time_figures import TimeFigures

KEYS_EVERY: Final = 61
"""A prime: otherwise keys that come in turn would look like a few that come often."""

_Item = TypeVar("_Item")
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class Stopwatch:
    """Adds up time. `now_s` is any clock that only goes forward."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.total_s = 0.0
        self.count = 0

    def add_since(self, begun_s: float) -> None:
        self.add(self.now_s() - begun_s)

    def add(self, took_s: float) -> None:
        self.total_s += took_s
        self.count += 1

    def timed(self, call: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        """The result of `call`, whose time is added."""
        begun_s = self.now_s()
        try:
            return call(*args, **kwargs)
        finally:
            self.add_since(begun_s)

    def waiting(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """`items`; the time that each one is waited for is added."""
        coming = iter(items)
        while True:
            begun_s = self.now_s()
            try:
                item = next(coming)
            except StopIteration:
                return
            finally:
                self.add_since(begun_s)
            yield item

    @property
    def total_ns(self) -> int:
        return int(self.total_s * 1e9)

    def reset(self) -> None:
        self.total_s, self.count = 0.0, 0


class StoreCosts:
    """The time of the timed calls of a task's stores."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.gets, self.puts, self.deletes = Stopwatch(now_s), Stopwatch(now_s), Stopwatch(now_s)

    def reset(self) -> None:
        for watch in (self.gets, self.puts, self.deletes):
            watch.reset()


@dataclass(slots=True)
class Fired:
    """The timers that fired in a transaction.

    Attributes:
        timers: timers whose handlers were called.
        timed, lag_ms: those in processing time, and how late they fired, together.
        expired: entries that were removed at the end of their ttl.
    """

    timers: int = 0
    timed: int = 0
    lag_ms: int = 0
    expired: int = 0


class Meter:
    """Measures one task from `begin` to `attach`, which is one micro-batch."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.input = Stopwatch(now_s)
        self.process = Stopwatch(now_s)
        self.commit = Stopwatch(now_s)
        self.stores = StoreCosts(now_s)
        self.skipped = 0
        self._fired = Fired()
        self._late = self._ahead = 0
        self._begun_s = 0.0
        # The time of a micro-batch that is measured to its end; None while it is measured.
        self._busy_s: float | None = 0.0
        self._keys = NO_KEYS
        # Rows until the next key is sampled: a chunk may be shorter than that.
        self._pass_by = 0

    def begin(self, chunks: Iterable[Rows]) -> Iterator[Rows]:
        """Start measuring.

        Returns `chunks`, with the wait for them timed and their keys sampled.
        """
        self._begun_s, self._keys, self.skipped = self._now_s(), NO_KEYS, 0
        self._busy_s = None
        self._fired, self._late, self._ahead = Fired(), 0, 0
        for watch in (self.input, self.process, self.commit, self.stores):
            watch.reset()
        return self._watched(chunks)

    def _watched(self, chunks: Iterable[Rows]) -> Iterator[Rows]:
        for rows in self.input.waiting(chunks):
            sampled = rows.keys[self._pass_by :: KEYS_EVERY]
            self._pass_by += KEYS_EVERY * len(sampled) - len(rows.keys)
            if sampled:
                self._keys = self._keys.merged(Sketch.of(sampled))
            yield rows

    def committed(self, begun_s: float, produced_s: float, share_s: float) -> None:
        """Count a commit that began at `begun_s` and ends now.

        Args:
            produced_s: when the task's own records were produced.
            share_s: the task's share in Kafka's commit. The rest of the time the task waited for other tasks.
        """
        took_s = self._now_s() - begun_s
        own_s = min(took_s, produced_s - begun_s + share_s)
        self.commit.add(own_s)
        self.input.total_s += took_s - own_s

    def acted(self, fired: Fired, late: int, ahead: int) -> None:
        """Count the timers, and the messages off their time, of a committed transaction."""
        sums, self._late, self._ahead = self._fired, self._late + late, self._ahead + ahead
        sums.timers += fired.timers
        sums.timed += fired.timed
        sums.lag_ms += fired.lag_ms
        sums.expired += fired.expired

    def forget(self) -> None:
        """Forget the last micro-batch, which is reported."""
        self._busy_s, self._keys = 0.0, NO_KEYS

    def so_far(self, *, only_open: bool) -> TaskStats:
        """The busy time and the keys so far; any thread may ask.

        The task handles a message now, or it is done with its micro-batch.

        Args:
            only_open: nothing of a micro-batch that is measured to its end.
        """
        busy_s = self._busy_s
        if busy_s is None:
            busy_s = max(0.0, self._busy_until_now_s())
        elif only_open:
            return NOTHING_MEASURED
        return TaskStats(busy_ns=int(busy_s * 1e9), keys=self._keys)

    def _busy_until_now_s(self) -> float:
        return self._now_s() - self._begun_s - self.input.total_s

    def attach(
        self,
        reports: Sequence[Report],
        disk_bytes: int,
        stores: Mapping[str, StoreSize],
        time: TimeFigures | None = None,
    ) -> Sequence[Report]:
        """`reports`, with the measurements in the first one."""
        busy_s = self._busy_s = self._busy_until_now_s()
        calls, fired = self.stores, self._fired
        return _with(
            reports,
            TaskStats(
                skipped=self.skipped,
                transactions=self.commit.count,
                busy_ns=int(busy_s * 1e9),
                process_ns=self.process.total_ns,
                commit_ns=self.commit.total_ns,
                input_ns=self.input.total_ns,
                gets_timed=calls.gets.count,
                get_ns=calls.gets.total_ns,
                puts_timed=calls.puts.count,
                put_ns=calls.puts.total_ns,
                deletes_timed=calls.deletes.count,
                delete_ns=calls.deletes.total_ns,
                disk_bytes=disk_bytes,
                timers_fired=fired.timers,
                timers_timed=fired.timed,
                timer_lag_ns=fired.lag_ms * 1_000_000,
                late=self._late,
                ahead=self._ahead,
                expired=fired.expired,
                keys=self._keys,
                time=time,
                stores=stores,
            ),
        )


def with_input(reports: Sequence[Report], input_ns: int) -> Sequence[Report]:
    """`reports`, with the time of waiting for rows before their tasks were known."""
    return _with(reports, TaskStats(input_ns=input_ns))


def _with(reports: Sequence[Report], measured: TaskStats) -> Sequence[Report]:
    if not reports:
        return reports
    first, *others = reports
    whole = measured if first.measured is None else first.measured.followed_by(measured)
    return [replace(first, measured=whole), *others]
