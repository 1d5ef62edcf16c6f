"""Event time on real Kafka and Spark with quiet inputs, and with one held open."""

from __future__ import annotations

import json
import struct
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from integration_tests.bad_input.kit import Cluster, Message, WarmSpark, driver, run_samzapy, unique, write_job
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.waiting import wait_until

_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.{orders}", key=sz.String, value=sz.Long)
rates = sz.Stream("kafka.{rates}", key=sz.String, value=sz.Long)
results = sz.Stream("kafka.{results}", key=sz.String, value=sz.Json())


@sz.task(inputs=[orders, rates], outputs=[results])
class Soon(sz.Task[str, int]):
    over = sz.timer("event")

    def process(self, message, out):
        if message.ssp.stream == orders.name.partition(".")[2]:
            self.over.set(message.time_ms + 500, tag=str(message.value))

    @over.fires
    def is_over(self, timer, out):
        out.send(results, timer.tag, key=timer.key)


if __name__ == "__main__":
    sz.run()
"""
IDLE_MS = 1000
WAYS = {"ticks": {"task.tail.ms": "0"}, "tails": {}}
_TIMERS = 10
_WITHIN_S = 180.0
_QUIET_S = 15.0
Topics = Mapping[str, str]


class AJob:
    """The job, while it runs."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.topics = {name: cluster.topic(name) for name in ("orders", "rates", "results")}
        self.name = unique("soon")
        self.file = directory / "job.py"
        text = _JOB.format(**self.topics)
        write_job(self.file, text, self.name, cluster, task_event_time_idle_ms=str(IDLE_MS))

    @contextmanager
    def running(self, spark: WarmSpark, settings: Mapping[str, str]) -> Iterator[None]:
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        with driver(self.file, spark, *sets):
            yield

    def order(self, number: int) -> None:
        self.cluster.publish(self.topics["orders"], Message(key=b"a", value=struct.pack(">q", number)))

    def rate(self) -> None:
        self.cluster.publish(self.topics["rates"], Message(key=b"a", value=struct.pack(">q", 0)))

    def results(self) -> list[str]:
        return [json.loads(value or b"") for value in self.cluster.values(self.topics["results"])]

    def await_result(self, number: int) -> None:
        wait_until(lambda: str(number) in self.results(), _WITHIN_S, f"the timer of order {number}")

    def explained(self) -> Mapping[str, object]:
        return self._asked("task", "explain", "--time", "Partition_0")

    def leader(self) -> str:
        return str(self._asked("job", "status")["leader"])

    def _asked(self, *command: str) -> Mapping[str, object]:
        address = ("--job", f"{self.name}-1", "--bootstrap-servers", self.cluster.bootstrap_servers)
        shown = run_samzapy(*command, *address, "-o", "json")
        assert 0 == shown.code, shown.output
        answer: Mapping[str, object] = json.loads(shown.stdout)
        return answer


def metric(leader: str, name: str) -> tuple[float, str]:
    """A metric of the job's only task, and its label `ssp`; -1 while there is none."""
    with urllib.request.urlopen(f"{leader}/metrics", timeout=10) as answer:  # the leader's own address
        families = text_string_to_metric_families(answer.read().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == f"samzapy_task_{name}"]
    return (samples[0].value, samples[0].labels.get("ssp", "")) if samples else (-1.0, "")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_timers_in_event_time_fire_on_topics_that_are_quiet(
    broker: DevBroker | ContainerBroker,
    spark: WarmSpark,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    way: Mapping[str, str],
) -> None:
    job = AJob(Cluster(broker.bootstrap_servers), tmp_path)
    took_ms = []
    with job.running(spark, way):
        # Where it is handled at once, its clock is behind by nothing afterwards.
        job.order(-1)
        job.await_result(-1)
        job.rate()
        for number in range(_TIMERS + 1):
            job.order(number)
            job.await_result(number)
            order = job.cluster.read(job.topics["orders"])[-1]
            result = job.cluster.read(job.topics["results"])[-1]
            took_ms.append(result.timestamp_ms - order.timestamp_ms)
        leader, quiet_s = job.leader(), time.monotonic()
        fired = _TIMERS + 2
        wait_until(
            lambda: fired == metric(leader, "timers_fired_total")[0],
            _WITHIN_S,
            f"{fired} timers that fired in the metrics",
            poll_interval_s=0.5,
        )
        wait_until(lambda: time.monotonic() > quiet_s + _QUIET_S, 2 * _QUIET_S, "time to pass")
        # The clocks of quiet inputs run; if they stopped, the lag would exceed the time since the last order.
        lag_s, _ = metric(leader, "watermark_lag_seconds")
        assert IDLE_MS / 1000 <= lag_s < _QUIET_S
        assert (0, "") == metric(leader, "timers_pending")

    assert [str(number) for number in range(-1, _TIMERS + 1)] == job.results(), "each once"
    # A timer of event time never fires before its moment, and the inputs must have been idle.
    assert min(took_ms) >= 500 + IDLE_MS - 1000
    late_ms = sorted(took - 500 - IDLE_MS for took in took_ms[1:])
    with capsys.disabled():
        figures = f"late by {late_ms[len(late_ms) // 2]} ms (p50), {late_ms[-1]} ms at most"
        print(f"timers in event time without traffic: {figures}", file=sys.stderr, flush=True)


@pytest.mark.timeout(1800)
def test_a_transaction_that_is_open_in_an_input_holds_event_time_and_is_named(
    broker: DevBroker | ContainerBroker, spark: WarmSpark, tmp_path: Path
) -> None:
    job = AJob(Cluster(broker.bootstrap_servers), tmp_path)
    job.rate()
    with job.running(spark, {}):
        job.order(0)
        job.await_result(0)
        # Asked before the transaction opens: a task that it holds for 15 s makes the status degraded.
        leader = job.leader()
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": unique("holds"),
                "transaction.timeout.ms": 1000 * int(_WITHIN_S) * 4,  # open until the test commits it
            }
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(job.topics["rates"], struct.pack(">q", 0), b"a", 0)
        assert 0 == producer.flush(30)

        begun_s = time.time()
        job.order(1)

        def is_handled() -> bool:
            inputs = job.explained()["inputs"]
            assert isinstance(inputs, list)
            return inputs[0]["unread"] == 0 and inputs[0]["lastMessageAtMs"] > 1000 * begun_s

        wait_until(is_handled, _WITHIN_S, "order 1 to be handled", poll_interval_s=0.5)
        # Longer than the timer would take without the transaction.
        handled_s = time.monotonic()
        wait_until(lambda: time.monotonic() > handled_s + 5 * IDLE_MS / 1000, 30.0, "time to pass")
        assert ["0"] == job.results()
        inputs = job.explained()["inputs"]
        assert isinstance(inputs, list)
        held = {item["ssp"]: item["why"] for item in inputs if item["holds"]}
        assert [f"kafka.{job.topics['rates']}.0"] == list(held)
        assert "a transaction is open from offset 1 on" in next(iter(held.values()))
        wait_until(
            lambda: (
                metric(leader, "watermark_lag_seconds") > (5 * IDLE_MS / 1000, "")
                and f"kafka.{job.topics['rates']}.0:0/1" == metric(leader, "watermark_lag_seconds")[1]
            ),
            _WITHIN_S,
            "a lag that the transaction's input causes",
            poll_interval_s=0.5,
        )
        assert 1 == metric(leader, "timers_pending")[0]

        producer.commit_transaction(30)
        job.await_result(1)
