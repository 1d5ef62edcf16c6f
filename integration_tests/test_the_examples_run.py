"""The examples of task classes on real Kafka and Spark: the same outputs and state as in the test kit."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from integration_tests.bad_input.kit import Cluster, Message, WarmSpark, run_python, run_samzapy
from integration_tests.support.job_process import JobProcess
from samzapy.testing.broker import DevBroker
from samzapy.testing.job import MemoryJob
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

EXAMPLES = Path(__file__).parents[1] / "examples"
PARTITIONS = 2
KEYS = "abcde"
PAYMENTS = [(key, {"amount": 700.0 * number}) for number in range(12) for key in KEYS]
ORDERS = [(key, {"amount": 1.5 * number}) for number in range(12) for key in KEYS]


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[WarmSpark]:
    warm = WarmSpark(tmp_path)
    yield warm
    warm.close()


def in_the_kit(
    name: str, stream: str, messages: list[tuple[str, dict[str, float]]], output: str
) -> dict[str, list[object]]:
    with MemoryJob(EXAMPLES / f"{name}.py", partitions=PARTITIONS) as job:
        for key, value in messages:
            job.send(stream, value, key=key)
        by_key = defaultdict(list)
        for sent in job.read(output):
            by_key[sent.key].append(sent.value)
        return dict(by_key)


def settings_of(broker: DevBroker, tmp_path: Path) -> Mapping[str, str]:
    return {"systems.kafka.bootstrap.servers": broker.bootstrap_servers, "local.store.dir": str(tmp_path / "state")}


def as_options(settings: Mapping[str, str]) -> list[str]:
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


@pytest.mark.timeout(400)
def test_examples_that_end_give_the_outputs_of_the_kit(
    own_broker: DevBroker, spark: WarmSpark, tmp_path: Path
) -> None:
    cluster = Cluster(own_broker.bootstrap_servers)
    make_topics(own_broker.bootstrap_servers, dict.fromkeys(("payments", "alerts", "orders", "totals"), PARTITIONS))
    settings = {**settings_of(own_broker, tmp_path), "systems.kafka.samza.offset.end": "head"}

    for name, stream, messages, output in (
        ("fraud_timer", "payments", PAYMENTS, "alerts"),
        ("totals_with_ttl", "orders", ORDERS, "totals"),
    ):
        cluster.publish(stream, *(Message(key=k.encode(), value=json.dumps(v).encode()) for k, v in messages))

        ended = run_python(EXAMPLES / f"{name}.py", *as_options(settings), environment=spark.environment)

        assert 0 == ended.code, ended.told
        by_key = defaultdict(list)
        for record in cluster.read(output):
            by_key[(record.key or b"").decode()].append(record.value)
        wanted = in_the_kit(name, stream, messages, output)
        assert {key: len(values) for key, values in wanted.items()} == {k: len(v) for k, v in by_key.items()}
        if name == "totals_with_ttl":
            last = {key: json.loads(values[-1] or b"") for key, values in by_key.items()}
            assert {key: {"orders": 12, "amount": 99.0} for key in KEYS} == last
            # Each total has its expiry.
            address = ("--job", "totals-1", "--bootstrap-servers", own_broker.bootstrap_servers)
            counted = json.loads(run_samzapy("state", "count", *address, "-o", "json").told)
            entries = defaultdict(int)
            for row in counted:
                entries[row["store"]] += row["entries"]
            assert {"total": len(KEYS), "_timers": len(KEYS)} == dict(entries)


@pytest.mark.timeout(400)
def test_counts_per_minute_come_without_another_message(own_broker: DevBroker, tmp_path: Path) -> None:
    cluster = Cluster(own_broker.bootstrap_servers)
    make_topics(own_broker.bootstrap_servers, dict.fromkeys(("views", "counts"), PARTITIONS))
    cluster.publish("views", *(Message(key=key.encode(), value=b"1") for key in KEYS * 3))

    with JobProcess(
        EXAMPLES / "per_minute.py", log_dir=tmp_path / "log", overrides=settings_of(own_broker, tmp_path)
    ) as job:
        job.start()
        counts = wait_until(lambda: all_counted(cluster), 240.0, "the counts of the minute")
        assert 0 == job.terminate(60)

    # The views may have come to both sides of a full minute.
    assert dict.fromkeys(KEYS, 3) == counts


def all_counted(cluster: Cluster) -> dict[str, int] | None:
    counts: dict[str, int] = defaultdict(int)
    for record in cluster.read("counts"):
        counts[(record.key or b"").decode()] += json.loads(record.value or b"")["count"]
    return dict(counts) if sum(counts.values()) >= 3 * len(KEYS) else None
