"""Records that are sent at a pace through a running job, and when a reader of its output heard of each key.

The reader is `read_committed`, so it sees what any consumer would see, and when.
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
    """One record that is sent again and again. `prefix`: the eight bytes in front of the time of sending."""

    key: bytes
    partition: int = -1
    prefix: bytes = b"00000000"


@dataclass(frozen=True, slots=True)
class Heard:
    """A record of the output: times are `time.monotonic`'s."""

    key: bytes
    sent_s: float
    heard_s: float


def silences_ms(heard: Sequence[Heard], keys: Sequence[bytes], from_s: float, to_s: float) -> list[float]:
    """Of each key the longest time, within a while, in which nothing of it was heard; both ends of the while count."""
    times: dict[bytes, list[float]] = {key: [] for key in keys}
    for found in heard:
        if from_s <= found.heard_s <= to_s:
            times[found.key].append(found.heard_s)
    return [1000 * max(after - before for before, after in pairwise([from_s, *own, to_s])) for own in times.values()]


def back_after_s(heard: Sequence[Heard], keys: Sequence[bytes], since_s: float) -> list[float]:
    """Of each key, when the first record was heard that was sent after a moment, in seconds after it.

    Raises:
        ValueError: of a key there is none.
    """
    first: dict[bytes, float] = {}
    for found in heard:
        if found.sent_s > since_s:
            first.setdefault(found.key, found.heard_s - since_s)
    if missing := sorted(set(keys) - first.keys()):
        raise ValueError(
            f"wanted every key to be heard again, found nothing of {len(missing)}, of {missing[0]!r} too"
        )
    return [first[key] for key in keys]


class Probing:
    """Sends probes in turn and hears them again, from entry to exit.

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
        self.heard: list[Heard] = []
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
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._send, self._hear)]

    def wait_heard(self, since_s: float) -> None:
        """Until something was heard of every key that was sent after `since_s`."""
        keys = {probe.key for probe in self._probes}

        def all_heard() -> bool:
            return keys <= {found.key for found in self.heard if found.sent_s > since_s}

        wait_until(all_heard, _BEGINS_WITHIN_S, "every probe to have come through")

    def settle(self) -> None:
        """Until what is sent is heard again soon: a start leaves a backlog, and catching up is not what is measured."""
        for _ in range(_SETTLES_MAX):
            began_s = time.monotonic()
            self.wait_heard(began_s)
            if time.monotonic() - began_s < _SOON_S:
                return

    def silences(self, from_s: float, to_s: float) -> list[float]:
        """As `silences_ms`, of what was heard so far."""
        return silences_ms(list(self.heard), [probe.key for probe in self._probes], from_s, to_s)

    def back_s(self, since_s: float) -> list[float]:
        """As `back_after_s`, when all have come through again."""
        self.wait_heard(since_s)
        return back_after_s(list(self.heard), [probe.key for probe in self._probes], since_s)

    def latencies_ms(self, keys: Sequence[bytes], from_s: float, to_s: float) -> list[float]:
        """Of what was sent within a while under some keys, and was heard."""
        wanted = set(keys)
        return [
            1000 * (found.heard_s - found.sent_s)
            for found in list(self.heard)
            if found.key in wanted and from_s <= found.sent_s < to_s
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

    def _hear(self) -> None:
        wanted = {probe.key for probe in self._probes}
        while not self._ended.is_set():
            for message in self._consumer.consume(500, 0.05):
                value, key = message.value(), message.key()
                if message.error() is None and key in wanted and value is not None and value[_STAMP].isdigit():
                    self.heard.append(Heard(key, int(value[_STAMP]) / 1e9, time.monotonic()))
