"""End-to-end latency: records sent steadily, and read_committed from the output.

Each value begins with the time of its produce call (20 digits, ns of CLOCK_MONOTONIC) and its number (12 digits).
Producer and reader share one process, so one clock serves both.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_measure import Others, cpu_of, tree_of
from bench_subjects import Place, Running, Subject, running
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from samzapy.errors import DeadlineError

RATE_PER_S = 50
SETTLE_S = 10.0
MEASURE_S = 20.0
_START_WITHIN_S = 240.0
_DRAIN_WITHIN_S = 30.0
_DOUBLES_WITHIN_S = 2.0
_KEYS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The pace of sending: `burst` records, every `every_s` seconds.

    `settle_s` after the first output counts for nothing; then the measured window lasts `measure_s`. `idle_s` seconds
    without records follow, for the CPU of an idle subject; 0: none.
    """

    every_s: float = 1 / RATE_PER_S
    burst: int = 1
    settle_s: float = SETTLE_S
    measure_s: float = MEASURE_S
    idle_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """`startup_s`: from the start of the process to the first visible output.

    `others_cores`: cores of other processes meanwhile. `cores_of`: by role (JVM, its compiler, driver, workers), in the
    measured window. `idle_cores`: of all, without records; None where this was not measured. `lost` and `doubled` are
    of all records that the broker took.
    """

    startup_s: float
    latencies_ms: tuple[float, ...]
    others_cores: float
    cores_of: Mapping[str, float] = field(default_factory=dict)
    idle_cores: float | None = None
    lost: int = 0
    doubled: int = 0

    @property
    def cores(self) -> float:
        """Of all processes of the subject."""
        return sum(self.cores_of.values())


def measure_latency(subject: Subject, place: Place, stream: Stream) -> Latency:
    """The latency of records sent within `stream.measure_s`, after settling."""
    sending = Sending(place, stream)
    reader = Reader(place)
    try:
        others = Others()
        with running(subject, place) as process:
            sending.start()
            startup_s = reader.first(process)
            begin_s = time.monotonic() + stream.settle_s
            cores_of = reader.read_window(process, begin_s, begin_s + stream.measure_s)
            others_cores = others.cores()
            sent = sending.stop()
            reader.drain(sent)
            return Latency(
                startup_s=startup_s,
                latencies_ms=reader.latencies_ms(begin_s, begin_s + stream.measure_s),
                others_cores=others_cores,
                cores_of=cores_of,
                idle_cores=_idle_cores(process, stream.idle_s) if stream.idle_s else None,
                lost=sent - len(reader.seen),
                doubled=sum(reader.seen.values()) - len(reader.seen),
            )
    finally:
        sending.stop()
        reader.close()


class Sending:
    """A thread that sends until it is stopped."""

    def __init__(self, place: Place, stream: Stream) -> None:
        self._place, self._stream = place, stream
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sent = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        """The number of records sent; each is on the broker."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        return self._sent

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._place.servers,
                "linger.ms": 0,
                "enable.idempotence": True,
                "socket.nagle.disable": True,
            }
        )
        number, bursts, begun_s = 0, 0, time.monotonic()
        while not self._ended.is_set():
            for _ in range(self._stream.burst):
                value = b"%020d%012d" % (time.monotonic_ns(), number) + b"x" * 60
                producer.produce(self._place.topic, value, b"%08d" % (number * 7919 % _KEYS))
                number += 1
            producer.poll(0)
            bursts += 1
            self._ended.wait(max(0.0, begun_s + bursts * self._stream.every_s - time.monotonic()))
        self._sent = number - producer.flush(10)


@dataclass(slots=True)
class Reader:
    """The outputs: how often each number was seen, and its sending and reading (ns)."""

    place: Place
    seen: Counter[int] = field(default_factory=Counter)
    _times: list[tuple[int, int]] = field(default_factory=list)
    _consumer: Consumer = field(init=False)

    def __post_init__(self) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.place.servers,
                "group.id": "bench-latency",
                "isolation.level": "read_committed",
                "socket.nagle.disable": True,
            }
        )
        partitions = range(self.place.partitions)
        self._consumer.assign([TopicPartition(self.place.output, number, OFFSET_BEGINNING) for number in partitions])

    def first(self, process: Running) -> float:
        """Seconds from the start of the process to its first output."""
        while time.monotonic() < process.started_s + _START_WITHIN_S:
            if self._read():
                return time.monotonic() - process.started_s
            process.check_alive()
        raise DeadlineError(f"{process.log_path.name}: no output within {_START_WITHIN_S:g} s")

    def read_window(self, process: Running, begin_s: float, end_s: float) -> Mapping[str, float]:
        """Read until the window ends; returns the subject's cores in it, by role."""
        self._read_until(begin_s)
        first_s, before_s = time.monotonic(), cpu_of(tree_of(process.pid))
        self._read_until(end_s)
        passed_s, after_s = time.monotonic() - first_s, cpu_of(tree_of(process.pid))
        process.check_alive()
        return {role: (used_s - before_s[role]) / passed_s for role, used_s in after_s.items()}

    def drain(self, sent: int) -> None:
        """Read until each record was seen or is late, and a little longer for duplicates."""
        deadline_s = time.monotonic() + _DRAIN_WITHIN_S
        while len(self.seen) < sent and time.monotonic() < deadline_s:
            self._read()
        self._read_until(time.monotonic() + _DOUBLES_WITHIN_S)

    def latencies_ms(self, begin_s: float, end_s: float) -> tuple[float, ...]:
        """Of the records sent between the two moments."""
        return tuple((read - sent) / 1e6 for sent, read in self._times if begin_s * 1e9 <= sent < end_s * 1e9)

    def close(self) -> None:
        self._consumer.close()

    def _read_until(self, end_s: float) -> None:
        while time.monotonic() < end_s:
            self._read()

    def _read(self) -> bool:
        message = self._consumer.poll(0.05)
        if message is None or message.error() is not None:
            return False
        now_ns, value = time.monotonic_ns(), message.value()
        assert value is not None
        self.seen[int(value[20:32])] += 1
        self._times.append((int(value[:20]), now_ns))
        return True


def _used_s(process: Running) -> dict[int, float]:
    """CPU seconds of each living process."""
    return {pid: sum(cpu_of({pid: role}).values()) for pid, role in tree_of(process.pid).items()}


def _idle_cores(process: Running, idle_s: float) -> float:
    time.sleep(SETTLE_S)
    begun_s, before_s = time.monotonic(), _used_s(process)
    time.sleep(idle_s)
    # A worker that ends meanwhile takes the CPU time of its whole life out of the sum.
    used_s = sum(used_s - before_s.get(pid, 0.0) for pid, used_s in _used_s(process).items())
    return used_s / (time.monotonic() - begun_s)


def stream_of(rate: str, *, seconds: float, settle_s: float, idle_s: float, sparse_every_s: float) -> Stream:
    """`rate`: records per second, or `sparse`: four records every `sparse_every_s`.

    Above 1,000 records per second several are sent at once each millisecond: no thread sleeps for less.
    """
    if rate == "sparse":
        return Stream(every_s=sparse_every_s, burst=4, settle_s=settle_s, measure_s=seconds, idle_s=idle_s)
    burst = max(1, int(rate) // 1000)
    return Stream(every_s=burst / int(rate), burst=burst, settle_s=settle_s, measure_s=seconds, idle_s=idle_s)


def percentiles(values: Sequence[float], percents: Sequence[float]) -> Sequence[float | None]:
    """Nearest-rank percentiles; None for one that needs more values than there are."""
    ordered = sorted(values)
    ranked: list[float | None] = []
    for percent in percents:
        rank = -(-len(ordered) * percent // 100)
        is_known = percent == 100 or len(ordered) * (100 - percent) >= 100
        ranked.append(ordered[max(0, int(rank) - 1)] if ordered and is_known else None)
    return ranked
