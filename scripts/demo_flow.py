"""The flights on their way into the topic, all at once or at a pace.

With a pace, the job is changed meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from demo_flights import INPUT

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.errors import DeadlineError
from samzapy.testing.topics import grow_topic

NOTICED_WITHIN_S = 2.0
"""How long a producer may go on without knowing of new partitions; Kafka's own default is five minutes."""

Message = tuple[str | None, str]


class Flow:
    """Publishes flights, in order for each aircraft, and counts them."""

    def __init__(self, connection: KafkaConnection) -> None:
        self.count = 0
        self.without_key = 0
        self._connection = connection
        self._producer = Producer(
            connection.settings(
                {
                    "enable.idempotence": True,
                    "linger.ms": 20,
                    "compression.type": "lz4",
                    "partitioner": "murmur2_random",
                    "topic.metadata.refresh.interval.ms": int(NOTICED_WITHIN_S * 1000),
                }
            )
        )

    def publish(self, flights: Iterable[Message], show: Callable[[int], None]) -> None:
        """All of `flights`, as fast as may be; acknowledged when this returns."""
        for flight in flights:
            self._send(*flight)
            if self.count % 5_000 == 0:
                self._producer.poll(0)
                show(self.count)
        self.flush()
        show(self.count)

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        if self._producer.flush(60):
            raise DeadlineError(
                f"wanted {self.count:,} flights acknowledged, found {len(self._producer):,} that were not"
            )

    @contextmanager
    def flowing(self, flights: Iterable[Message], per_s: int) -> Iterator[None]:
        """Publish `flights` at a pace in a thread; at the end, the rest at once."""
        hurry, failed = threading.Event(), list[BaseException]()

        def flow() -> None:
            begun_s, first = time.monotonic(), self.count
            try:
                for flight in flights:
                    self._send(*flight)
                    ahead_s = (self.count - first) / per_s - (time.monotonic() - begun_s)
                    if ahead_s > 0.05:
                        self._producer.poll(0)
                        hurry.wait(0 if hurry.is_set() else ahead_s)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=flow, name="flights", daemon=True)
        thread.start()
        try:
            yield
        finally:
            hurry.set()
            thread.join()
        if failed:
            raise failed[0]
        self.flush()

    def grow(self, partitions: int) -> None:
        """Give the topic more partitions, as an operator would while everything runs."""
        grow_topic(self._connection.bootstrap_servers, INPUT, partitions)

    def _send(self, key: str | None, value: str) -> None:
        while True:
            try:
                self._producer.produce(INPUT, value, key)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.count += 1
        self.without_key += key is None
