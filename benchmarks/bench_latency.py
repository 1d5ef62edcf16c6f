"""End-to-end latency: a steady trickle of records in, the same records read back from the output, read_committed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from bench_measure import Others
from bench_subjects import Place, Subject, running
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from samzapy.errors import DeadlineError

RATE_PER_S = 50
SETTLE_S = 10.0
MEASURE_S = 20.0
_START_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """`startup_s`: from the start of the process to the first output that a reader could see.

    `others_cores`: what others took meanwhile.
    """

    startup_s: float
    latencies_ms: tuple[float, ...]
    others_cores: float


def measure_latency(subject: Subject, place: Place, measure_s: float = MEASURE_S) -> Latency:
    """Of the records sent within `measure_s`, after the first output and `SETTLE_S`."""
    ended = threading.Event()
    trickle = threading.Thread(target=_trickle, args=(place, ended), daemon=True)
    consumer = Consumer(
        {
            "bootstrap.servers": place.servers,
            "group.id": "bench-latency",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(place.output, number, OFFSET_BEGINNING) for number in range(place.partitions)])
    try:
        others = Others()
        with running(subject, place) as process:
            trickle.start()
            startup_s = _first(consumer, process.started_s, process.log_path.name)
            begin_s = time.monotonic() + SETTLE_S
            latencies_ms = _latencies(consumer, begin_s, begin_s + measure_s)
            return Latency(startup_s=startup_s, latencies_ms=latencies_ms, others_cores=others.cores())
    finally:
        ended.set()
        trickle.join()
        consumer.close()


def _trickle(place: Place, ended: threading.Event) -> None:
    """Values begin with the time of sending, in ns of the monotonic clock."""
    producer = Producer({"bootstrap.servers": place.servers, "linger.ms": 0})
    number, begun_s = 0, time.monotonic()
    while not ended.is_set():
        producer.produce(place.topic, b"%020d" % time.monotonic_ns() + b"x" * 72, b"%08d" % (number * 7919 % 10_000))
        producer.poll(0)
        number += 1
        time.sleep(max(0.0, begun_s + number / RATE_PER_S - time.monotonic()))
    producer.flush(10)


def _first(consumer: Consumer, started_s: float, name: str) -> float:
    while time.monotonic() < started_s + _START_WITHIN_S:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            return time.monotonic() - started_s
    raise DeadlineError(f"{name}: no output within {_START_WITHIN_S:g} s")


def _latencies(consumer: Consumer, begin_s: float, end_s: float) -> tuple[float, ...]:
    """Of the records sent between the two moments."""
    found = []
    while time.monotonic() < end_s + 3.0:
        message = consumer.poll(0.05)
        if message is None or message.error() is not None:
            continue
        now_ns, value = time.monotonic_ns(), message.value()
        assert value is not None
        sent_ns = int(value[:20])
        if begin_s * 1e9 <= sent_ns < end_s * 1e9:
            found.append((now_ns - sent_ns) / 1e6)
    return tuple(found)
