"""A task class with declared streams and state, on real Kafka and Spark."""

from __future__ import annotations

import json
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from integration_tests.bad_input.kit import (
    STARTS_WITHIN_S,
    Cluster,
    Message,
    WarmSpark,
    driver,
    ended,
    entry_counts,
    run_python,
    run_samzapy,
    unique,
    write_job,
)
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.waiting import wait_until

_JOB = """
import samzapy as sz


class Order(sz.Struct):
    amount: float


orders = sz.Stream("kafka.{orders}", key=sz.String, value=sz.Json(Order))
refunds = sz.Stream("kafka.{refunds}", key=sz.String, value=sz.Long)
totals = sz.Stream("kafka.{totals}", key=sz.String, value=sz.Double)
finals = sz.Stream("kafka.{finals}", key=sz.String, value=sz.Double)


@sz.task(inputs=[orders, refunds], outputs=[totals, finals])
class Totals(sz.Task[str, Order]):
    total = sz.value(sz.Double, default=0.0)
    last = sz.value(sz.Msgpack(Order))
    seen = sz.counter()

    @refunds.each
    def refunded(self, message: sz.Message[str, int], out: sz.Output) -> None:
        self.total.set(self.total.get() - message.value)
        out.send(totals, self.total.get(), key=message.key)

    def process(self, message: sz.Message[str, Order], out: sz.Output) -> None:
        last = self.last.get()
        assert (last is None) == (self.seen.get() == 0)
        assert last is None or last.amount == self.seen.get() - 1
        assert message.value.amount == self.seen.get()
        self.last.set(message.value)
        self.seen.add()
        self.total.set(self.total.get() + message.value.amount)
        out.send(totals, self.total.get(), key=message.key)

    def end_of_stream(self, out: sz.Output) -> None:
        for key in self.context.keys(self.total):
            out.send(finals, self.total.get(), key=key)


if __name__ == "__main__":
    sz.run()
"""
_KEYS = ("a", "b", "c")
_EACH = 20


@pytest.mark.timeout(900)
def test_declared_streams_and_state_need_no_properties_and_are_shown_with_their_lines(
    broker: DevBroker | ContainerBroker, spark: WarmSpark, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    topics = {name: cluster.topic(name) for name in ("orders", "refunds", "totals", "finals")}
    job_file, job = tmp_path / "job.py", unique("classes")
    write_job(job_file, _JOB.format(**topics), job, cluster, systems_kafka_samza_offset_end="head")

    cluster.publish(topics["orders"], *orders())
    cluster.publish(topics["refunds"], Message(key=b"a", value=struct.pack(">q", 100)))

    ran = run_python(job_file, environment=spark.environment)

    assert 0 == ran.code, ran.output
    sums = [sum(range(count + 1)) for count in range(_EACH)]
    totals = {key: totals_of(cluster, topics["totals"], key) for key in _KEYS}
    # A refund comes before, between or behind the orders of its key.
    amounts = [after - before for before, after in pairwise([0.0, *totals.pop("a")])]
    assert sorted(amounts) == [-100, *range(_EACH)]
    assert {"b": sums, "c": sums} == totals
    finals = {key: totals_of(cluster, topics["finals"], key) for key in _KEYS}
    assert {"a": [sums[-1] - 100], "b": [sums[-1]], "c": [sums[-1]]} == finals, "each once, at the end"
    explained = run_samzapy(
        "config", "explain", f"systems.kafka.streams.{topics['totals']}.samza.msg.serde", "--config",
        str(job_file.with_suffix(".properties")), "--job", f"{job}-1",
    )  # fmt: skip
    assert "double" in explained.output and "job.py:11" in explained.output, explained.output
    address = ("--job", f"{job}-1", "--bootstrap-servers", broker.bootstrap_servers)
    got = run_samzapy("state", "get", *address, "--store", "total", "--key", "a", "-o", "json")
    assert [("a", sums[-1] - 100)] == [(row["key"], row["value"]) for row in json.loads(got.stdout)]
    scanned = run_samzapy("state", "scan", *address, "--store", "last", "-o", "json")
    assert [(key, {"amount": _EACH - 1}) for key in _KEYS] == [
        (row["key"], row["value"]) for row in json.loads(scanned.stdout)
    ]
    assert {"last": 3, "seen": 3, "total": 3, "_clocks": 1} == entry_counts(broker.bootstrap_servers, job)
    run_samzapy("state", "get", *address, "--store", "total", "--key", "z").assert_ended(
        3, "store total under key 'z'"
    )
    run_samzapy("state", "scan", *address, "--store", "sum").assert_ended(
        2, "(_clocks, last, seen, total), found 'sum'"
    )


_CLOSING_JOB = """
import os
import uuid

import samzapy as sz

words = sz.Stream("kafka.{words}", key=sz.String, value=sz.String)
lengths = sz.Stream("kafka.{lengths}", key=sz.String, value=sz.Long)


@sz.task(inputs=[words], outputs=[lengths])
class Closing(sz.Task[str, str]):
    def init(self, context: sz.TaskContext) -> None:
        self.instance = f"{{context.task_name}}, {{os.getpid()}}, {{uuid.uuid4()}}"
        self.note("{begun}")

    def process(self, message: sz.Message[str, str], out: sz.Output) -> None:
        out.send(lengths, len(message.value), key=message.key)

    def close(self) -> None:
        self.note("{closed}")

    def note(self, path: str) -> None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(self.instance + "\\n")


if __name__ == "__main__":
    sz.run()
"""


@pytest.mark.timeout(900)
def test_each_instance_of_a_task_is_closed_once_when_its_job_is_asked_to_stop(
    broker: DevBroker | ContainerBroker, spark: WarmSpark, tmp_path: Path
) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    words, lengths = cluster.topic("words", 2), cluster.topic("lengths")
    job_file, begun, closed = (tmp_path / name for name in ("job.py", "begun", "closed"))
    text = _CLOSING_JOB.format(words=words, lengths=lengths, begun=begun, closed=closed)
    write_job(job_file, text, unique("closing"), cluster)
    for partition in range(2):
        cluster.publish(words, b"word", partition=partition)

    with driver(job_file, spark, stderr=subprocess.PIPE) as process:
        wait_until(
            lambda: process.poll() is not None or len(cluster.read(lengths)) == 2, STARTS_WITHIN_S, "two outputs"
        )
        process.terminate()
        stopped = ended(process)

    assert 0 == stopped.code, stopped.output
    instances = sorted(closed.read_text().splitlines())
    assert sorted(begun.read_text().splitlines()) == instances, stopped.output
    tasks = {f"SystemStreamPartition_kafka.{words}.{partition}" for partition in range(2)}
    assert tasks == {instance.partition(",")[0] for instance in instances}


def orders() -> list[Message]:
    """For each key as many orders, whose amounts count up."""
    return [
        Message(key=key.encode(), value=json.dumps({"amount": amount, "more": "is ignored"}).encode())
        for amount in range(_EACH)
        for key in _KEYS
    ]


def totals_of(cluster: Cluster, topic: str, key: str) -> list[float]:
    return [
        struct.unpack(">d", record.value or b"")[0] for record in cluster.read(topic) if record.key == key.encode()
    ]
