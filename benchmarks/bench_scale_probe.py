"""Records sent at a pace through a running job, and its outputs' times by key.

The reader is `read_committed`, so it sees the records of any consumer, at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from samzapy.testing.waiting import wait_until

_BEGINS_WITHIN_S = 180.0
_SETTLES_MAX, _SOON_S = 10, 2.0
_STAMP = slice(8, 28)


@dataclass(frozen=True, slots=True)
class Probe:
    """A record that is sent repeatedly. `prefix`: eight bytes before its sending time."""

    key: bytes
    partition: int = -1
    prefix: bytes = b"00000000"


@dataclass(frozen=True, slots=True)
class Received:
    """A record of the output: times are `time.monotonic`'s."""

    key: bytes
    sent_s: float
    received_s: float


def silences_ms(received: Sequence[Received], keys: Sequence[bytes], from_s: float, to_s: float) -> list[float]:
    """The longest silence of each key within a time, with its ends."""
    times: dict[bytes, list[float]] = {key: [] for key in keys}
    for record in received:
        if from_s <= record.received_s <= to_s:
            times[record.key].append(record.received_s)
    return [1000 * max(after - before for before, after in pairwise([from_s, *own, to_s])) for own in times.values()]


def back_after_s(received: Sequence[Received], keys: Sequence[bytes], since_s: float) -> list[float]:
    """The seconds until the first record sent after a moment was received, by key.

    Raises:
        ValueError: a key has no such record.
    """
    first: dict[bytes, float] = {}
    for record in received:
        if record.sent_s > since_s:
            first.setdefault(record.key, record.received_s - since_s)
    if missing := sorted(set(keys) - first.keys()):
        raise ValueError(
            f"wanted every key to be received again, found no record of {len(missing)}, of {missing[0]!r} too"
        )
    return [first[key] for key in keys]


class Probing:
    """Sends probes in turn and receives them again, from entry to exit.

    Args:
        rate_per_s: of all probes together.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        output: str,
        output_partitions: int,
        probes: Sequence[Probe],
        rate_per_s: float,
    ) -> None:
        self.received: list[Received] = []
        self._probes = probes
        self._rate_per_s = rate_per_s
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 2})
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "bench-probe",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(output, number, OFFSET_END) for number in range(output_partitions)])
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._send, self._receive)]

    def wait_received(self, since_s: float) -> None:
        """Until each key has a record that was sent after `since_s`."""
        keys = {probe.key for probe in self._probes}

        def all_received() -> bool:
            return keys <= {record.key for record in self.received if record.sent_s > since_s}

        wait_until(all_received, _BEGINS_WITHIN_S, "every probe to have come through")

    def settle(self) -> None:
        """Wait until records return soon: the backlog of a start is not measured."""
        for _ in range(_SETTLES_MAX):
            began_s = time.monotonic()
            self.wait_received(began_s)
            if time.monotonic() - began_s < _SOON_S:
                return

    def silences(self, from_s: float, to_s: float) -> list[float]:
        """As `silences_ms`, of the records received so far."""
        return silences_ms(list(self.received), [probe.key for probe in self._probes], from_s, to_s)

    def back_s(self, since_s: float) -> list[float]:
        """As `back_after_s`, when all have come through again."""
        self.wait_received(since_s)
        return back_after_s(list(self.received), [probe.key for probe in self._probes], since_s)

    def latencies_ms(self, keys: Sequence[bytes], from_s: float, to_s: float) -> list[float]:
        """The latencies of received records of some keys, sent within a time."""
        wanted = set(keys)
        return [
            1000 * (record.received_s - record.sent_s)
            for record in list(self.received)
            if record.key in wanted and from_s <= record.sent_s < to_s
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._producer.flush(10)
        self._consumer.close()

    def _send(self) -> None:
        begun_s = time.monotonic()
        for number, probe in enumerate(cycle(self._probes)):
            if self._ended.wait(max(0.0, begun_s + number / self._rate_per_s - time.monotonic())):
                return
            self._producer.produce(
                self._topic, probe.prefix + b"%020d" % time.monotonic_ns(), probe.key, probe.partition
            )
            self._producer.poll(0)

    def _receive(self) -> None:
        wanted = {probe.key for probe in self._probes}
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.05):
                value, key = message.value(), message.key()
                if message.error() is None and key in wanted and value is not None and value[_STAMP].isdigit():
                    self.received.append(Received(key, int(value[_STAMP]) / 1e9, time.monotonic()))
