"""Measure timers on topics without messages: their delay and their cost.

One message sets a timer that is due every second from then on. The job itself notes how late each one fires, by the
clock that timers go by.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench_measure import cpu_of, percentile, tree_of
from bench_report import bullets, table
from bench_subjects import Place, Running, environment_of, running, samzapy_job
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from samzapy.errors import DeadlineError

_START_WITHIN_S = 240.0
_SETTLE_S = 15.0
LATE_S_MAX = 1.5
"""Resolution and half a second."""
CORES_MAX = 0.1
WAYS: Mapping[str, Mapping[str, str]] = {"in a tail": {}, "in ticks": {"task.tail.ms": "0"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A job with one timer due each second, and the same job before any is set.

    Attributes:
        late_s: of each firing.
        cores: of all processes in the window.
        idle_cores: the same without a timer.
    """

    late_s: Sequence[float]
    cores: float
    idle_cores: float


def measure_timers(way: str, place: Place, seconds: float) -> Timed:
    """Start the job, let it be idle, set the timer, and read its reports for so long."""
    job = samzapy_job(way, "ring_timers.py", WAYS[way], declares=True)
    with running(job, place, environment_of(place)) as process, _reader(place) as consumer:
        _await_start(process)
        idle_cores = _cores(process, seconds, lambda _: None)
        producer = Producer({"bootstrap.servers": place.servers})
        producer.produce(place.topic, b"", b"key")
        assert producer.flush(30) == 0
        late_s: list[float] = []
        _cores(process, _SETTLE_S, lambda end_s: _read(consumer, end_s, []))
        cores = _cores(process, seconds, lambda end_s: _read(consumer, end_s, late_s))
        return Timed(late_s=late_s, cores=cores, idle_cores=idle_cores)


def _await_start(process: Running) -> None:
    deadline_s = time.monotonic() + _START_WITHIN_S
    while "query" not in process.log_path.read_text(errors="replace"):
        process.check_alive()
        if time.monotonic() > deadline_s:
            raise DeadlineError(f"{process.log_path.name}: no query within {_START_WITHIN_S:g} s")
        time.sleep(0.5)
    time.sleep(_SETTLE_S)


def _cores(process: Running, seconds: float, meanwhile: Callable[[float], None]) -> float:
    begun_s, before_s = time.monotonic(), sum(cpu_of(tree_of(process.pid)).values())
    meanwhile(begun_s + seconds)
    time.sleep(max(0.0, begun_s + seconds - time.monotonic()))
    process.check_alive()
    return (sum(cpu_of(tree_of(process.pid)).values()) - before_s) / (time.monotonic() - begun_s)


@contextmanager
def _reader(place: Place) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": place.servers, "group.id": "bench-timers", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(place.output, number, OFFSET_BEGINNING) for number in range(place.partitions)])
    try:
        yield consumer
    finally:
        consumer.close()


def _read(consumer: Consumer, end_s: float, late_s: list[float]) -> None:
    while time.monotonic() < end_s:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            late_s.append(struct.unpack(">d", value)[0])


def timers_section(timed_by_way: Mapping[str, Timed], seconds: float, conditions: Sequence[str]) -> str:
    """The section of the page."""
    rows = []
    for way, timed in timed_by_way.items():
        p95_s = percentile(timed.late_s, 95)
        extra = timed.cores - timed.idle_cores
        rows.append(
            (
                way,
                str(len(timed.late_s)),
                f"{percentile(timed.late_s, 50) * 1000:.0f}",
                f"**{p95_s * 1000:.0f}**" if p95_s > LATE_S_MAX else f"{p95_s * 1000:.0f}",
                f"{max(timed.late_s) * 1000:.0f}",
                f"{timed.cores:.3f}",
                f"{timed.idle_cores:.3f}",
                f"{extra:.3f}" if extra <= CORES_MAX else f"**{extra:.3f}**",
            )
        )
    header = ("timers fire", "count", "late ms: p50", "p95", "max", "cores", "idle", "of the timer")
    method = (
        f"One timer is due each second, on topics without messages, for {seconds:g} s. *Idle*: the same job before the "
        f"timer is set. To be reached: p95 within {LATE_S_MAX * 1000:g} ms, {CORES_MAX:g} cores for the timer."
    )
    return "\n\n".join(["## Timers without messages", table(header, rows), bullets([method, *conditions])])
