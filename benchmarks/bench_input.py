"""Topics of the benchmark and their records."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from samzapy.errors import DeadlineError, SamzapyError

KEY_COUNT = 100_000
_VALUES_KEPT = 20_000


def remove_topics(servers: str, but: Sequence[str]) -> None:
    """Remove every topic of a run but those named and Kafka's own."""
    admin = AdminClient({"bootstrap.servers": servers})
    names = [
        name
        for name in admin.list_topics(timeout=30).topics
        if name not in but and (name.startswith("__samzapy") or not name.startswith("__"))
    ]
    if not names:
        return
    for future in admin.delete_topics(names).values():
        future.result(30)
    deadline_s = time.monotonic() + 30
    while set(names) & set(admin.list_topics(timeout=30).topics):
        if time.monotonic() > deadline_s:
            raise DeadlineError(f"topics are still there 30 s after their removal: {', '.join(names)}")
        time.sleep(0.1)


def value_of(number: int, size: int) -> bytes:
    """A JSON text of `size` bytes, about half of it equal in every record."""
    filling = random.Random(number).randbytes(size)  # the same input at each run, on purpose
    text = json.dumps({"id": number, "kind": "reading", "unit": "ms", "body": filling.hex()}, separators=(",", ":"))
    return text.encode()[: size - 2] + b'"}'


def publish(servers: str, topic: str, records: int, record_bytes: int) -> None:
    """`records` records of `record_bytes`, with `KEY_COUNT` keys in random order."""
    send(bulk_producer(servers), topic, random_records(records, record_bytes))


def bulk_producer(servers: str, **settings: object) -> Producer:
    """One that writes much at once; `settings` with underscores for dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "batch.num.messages": 50_000,
            **given,
        }
    )


def random_records(records: int, record_bytes: int, seed: int = 1) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of `record_bytes`, with `KEY_COUNT` keys in random order."""
    keys = [b"%08d" % number for number in range(KEY_COUNT)]
    values = [value_of(number, record_bytes - 8) for number in range(_VALUES_KEPT)]
    pick = random.Random(seed).random  # the same input at each run, on purpose
    for number in range(records):
        yield keys[int(pick() * KEY_COUNT)], values[number % _VALUES_KEPT]


def send(producer: Producer, topic: str, records: Iterable[tuple[bytes, bytes]], partition: int = -1) -> int:
    """Write `records`, acknowledged; returns the count. `partition`: -1 for by key."""
    sent = 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
        sent += 1
        if not sent % 1000:
            producer.poll(0)
    if left := producer.flush(120):
        raise SamzapyError(f"wanted {sent} records published to {topic}, found {left} unwritten")
    return sent


def records_on(servers: str, topic: str, partitions: int) -> int:
    """The sum of the high watermarks; transaction markers count."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench-look"})
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in range(partitions)
        )
    finally:
        consumer.close()
