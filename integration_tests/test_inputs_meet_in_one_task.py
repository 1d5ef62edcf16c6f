"""A job of inputs with 8 and 12 partitions and a broadcast one: keys meet.

Then one of the inputs is doubled while the job runs: keys that lie in other partitions now find their state, in order,
also those of a producer that has not noticed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from integration_tests.ledger_run import stopped_in_a_transaction
from integration_tests.support.job_process import LONG_DRAIN, JobProcess, kill
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.topics import grow_topic, make_topics
from samzapy.testing.waiting import wait_until

JOB_FILE = Path(__file__).parent / "jobs" / "joined.py"
PARTITIONS = {"orders": 8, "refunds": 12, "rules": 2, "joined": 4, "seen": 1}
TASKS = [f"Partition_{number}" for number in range(4)]  # The GCD of 8 and 12.
KEYS = [f"key-{number}" for number in range(400)]
RULES_EACH = 150
_WITHIN_S = 300.0


@pytest.mark.timeout(1800)
def test_every_key_of_both_inputs_meets_in_one_task_and_every_task_reads_every_rule(
    broker: DevBroker | ContainerBroker, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    make_topics(servers, PARTITIONS)
    rules, places = _feed(servers)
    slow_while = tmp_path / "slow"
    slow_while.touch()
    job = JobProcess(
        JOB_FILE,
        log_dir=tmp_path / "job",
        overrides={
            "systems.kafka.bootstrap.servers": servers,
            "local.store.dir": str(tmp_path / "state"),
            "job.coordinator.monitor-partition-change.frequency.ms": "1000",
            "job.expansion.settle.ms": "5000",
            **LONG_DRAIN,
        },
        # There must be work left for the worker that is to be killed.
        environment={"JOINED_SLOW_WHILE": str(slow_while)},
    )
    with job, Reader(servers) as reader:
        job.start()
        job.wait_until(
            lambda: reader.read() and len(reader.values("seen")) > RULES_EACH, _WITHIN_S, "the first rules"
        )
        kill(wait_until(lambda: stopped_in_a_transaction(job), 60.0, "a worker with an open transaction"))
        slow_while.unlink()
        rules_received = len(TASKS) * 2 * RULES_EACH
        job.wait_until(
            lambda: (
                reader.read()
                and len(reader.values("seen")) >= rules_received
                and len(reader.values("joined")) >= len(KEYS)
            ),
            _WITHIN_S,
            "every rule and every pair to come out",
        )
        joined, seen = reader.values("joined"), reader.values("seen")
        grow_topic(servers, "orders", 2 * PARTITIONS["orders"])
        # A producer without the new metadata still writes to the old partitions.
        _order(servers, "again", places)
        _order(servers, "once more")
        job.wait_until(
            lambda: reader.read() and len(reader.values("joined")) >= 3 * len(KEYS), _WITHIN_S, "the later orders"
        )
        assert job.terminate() == 0, job.log_text()[-4000:]
        reader.read_to_the_end()
        later = [pair for pair in reader.values("joined") if pair not in joined]
        assert rules_received == len(reader.values("seen"))

    # Each key has one order and one refund, so exactly one of the two finds the other one there.
    pairs = {pair["order"]["value"]: pair for pair in joined}
    assert sorted(KEYS) == sorted(pair["order"]["value"] for pair in joined)
    assert all(key == pair["refund"]["value"] for key, pair in pairs.items())
    for pair in joined:
        numbers = {_partition(pair[side]["source"]) % len(TASKS) for side in ("order", "refund")}
        assert {f"Partition_{number}" for number in numbers} == {pair["task"]}
    assert len({pair["order"]["source"] for pair in joined}) == PARTITIONS["orders"]
    assert len({pair["refund"]["source"] for pair in joined}) == PARTITIONS["refunds"]

    for task in TASKS:
        for ssp, fed in rules.items():
            received = [(rule["offset"], rule["rule"]) for rule in seen if (rule["task"], rule["ssp"]) == (task, ssp)]
            assert fed == received, f"{task} of {ssp}"
    assert rules_received == len(seen)

    for key in KEYS:
        of_key = [pair["order"]["value"] for pair in later if pair["refund"]["value"] == key]
        assert [f"{key} again", f"{key} once more"] == of_key, "out of order"
    for pair in later:
        # The refund was read before the input grew, so it comes from the key's state.
        assert f"Partition_{_partition(pair['order']['source']) % len(TASKS)}" == pair["task"]
    for suffix, count in (("again", PARTITIONS["orders"]), ("once more", 2 * PARTITIONS["orders"])):
        sources = {pair["order"]["source"] for pair in later if pair["order"]["value"].endswith(suffix)}
        assert len(sources) == count, suffix


def _producer(servers: str) -> Producer:
    return Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", "enable.idempotence": True})


def _feed(servers: str) -> tuple[Mapping[str, list[tuple[int, str]]], Mapping[str, int]]:
    """An order and a refund of each key, in two orders.

    Returns:
        The rules by SSP, with their offsets; and the partition of each key's order.
    """
    producer = _producer(servers)
    places: dict[str, int] = {}

    def noted(error: object, message: Any) -> None:
        assert error is None, error
        if message.topic() == "orders":
            places[message.key().decode()] = message.partition()

    rules: dict[str, list[tuple[int, str]]] = {f"kafka.rules.{number}": [] for number in range(2)}
    for topic in ("orders", "refunds"):
        for key in random.Random(topic).sample(KEYS, len(KEYS)):  # any two different orders
            producer.produce(topic, json.dumps(key), key, on_delivery=noted)
    for number in range(2):
        for offset in range(RULES_EACH):
            rules[f"kafka.rules.{number}"].append((offset, f"rule {offset} of {number}"))
            producer.produce("rules", json.dumps(f"rule {offset} of {number}"), partition=number)
    assert producer.flush(30) == 0
    return rules, places


def _order(servers: str, suffix: str, places: Mapping[str, int] | None = None) -> None:
    """Send an order of each key, to these partitions or by the partitioner."""
    producer = _producer(servers)
    for key in KEYS:
        value = json.dumps(f"{key} {suffix}")
        if places is None:
            producer.produce("orders", value, key)
        else:
            producer.produce("orders", value, key, places[key])
    assert producer.flush(30) == 0


def _partition(ssp: str) -> int:
    return int(ssp.rpartition(".")[2])


class Reader:
    """Reads both outputs, read_committed, from their beginning."""

    def __init__(self, servers: str) -> None:
        self._values: dict[tuple[str, int, int], Any] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        places = [(topic, number) for topic in ("joined", "seen") for number in range(PARTITIONS[topic])]
        self._consumer.assign([TopicPartition(topic, number, 0) for topic, number in places])

    def read(self) -> bool:
        """Take the present messages, and those of the next half second."""
        self._take()
        return True

    def read_to_the_end(self) -> None:
        """Take all that is there, of a job that sends nothing more."""
        while self._take():
            pass

    def _take(self) -> int:
        messages = self._consumer.consume(1000, 0.5)
        for message in messages:
            error = message.error()
            assert error is None or error.code() == KafkaError._PARTITION_EOF, error
            place = (message.topic(), message.partition(), message.offset())
            self._values[place] = json.loads(message.value())
        return len(messages)

    def values(self, topic: str) -> list[Any]:
        """All values of a topic, of each partition in order."""
        return [value for place, value in sorted(self._values.items()) if place[0] == topic]

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
