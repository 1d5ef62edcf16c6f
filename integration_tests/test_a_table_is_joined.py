"""A table of 5,000 rows is joined with 5,000 orders by key."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from integration_tests.support.job_process import LONG_DRAIN, JobProcess, kill
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.key_sample import sample_keys
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.cli.doctor.command import doctor
from samzapy.cli.job.group import job as job_command
from samzapy.cli.job.status import bootstrap_lines
from samzapy.cli.job.submit import submit
from samzapy.cli.target.status import read_status
from samzapy.errors import ExitCode, PartitionerError
from samzapy.model.ssp import SystemStreamPartition
from samzapy.plan.input_keys import look_at_keys, refusal_of
from samzapy.plan.job_plan import plan_job
from samzapy.plan.partitioners import HASHES, Partitioner
from samzapy.runtime.job_address import JobAddress
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_config
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.topics import make_topics

JOB_FILE = Path(__file__).parent / "jobs" / "table_join.py"
KEYS = [f"customer-{number}" for number in range(5_000)]
_WITHIN_S = 300.0


@dataclass(frozen=True, kw_only=True)
class World:
    """The topics of one test: orders, a table that sorts after them, and the answers."""

    servers: str
    name: str
    directory: Path
    bootstrap: bool = True

    @property
    def settings(self) -> dict[str, str]:
        settings = {
            "job.name": f"join-{self.name}",
            "systems.kafka.bootstrap.servers": self.servers,
            "task.inputs": f"kafka.orders-{self.name},kafka.ztable-{self.name}",
            "local.store.dir": str(self.directory / "state"),
            **LONG_DRAIN,
        }
        if self.bootstrap:
            settings[f"systems.kafka.streams.ztable-{self.name}.samza.bootstrap"] = "true"
        return settings

    @property
    def address(self) -> JobAddress:
        return JobAddress(job=f"join-{self.name}-1", connection=KafkaConnection(bootstrap_servers=self.servers))

    def job(self, *, work_s: float = 0.0, **more: str) -> JobProcess:
        return JobProcess(
            JOB_FILE,
            log_dir=self.directory / f"job-{uuid.uuid4().hex[:6]}",
            overrides={**self.settings, **{key.replace("_", "."): value for key, value in more.items()}},
            environment={"TABLE_JOIN_OUTPUT": f"joined-{self.name}", "TABLE_JOIN_WORK_S": str(work_s)},
        )

    def options(self, *more: str) -> list[str]:
        settings = {**self.settings, **dict(item.split("=") for item in more)}
        return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]

    def feed(self, topic: str, values: Mapping[str, Any], partitioner: str = "murmur2_random") -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "partitioner": partitioner,
                # A topic that was just made may lose the first of several requests that are under way.
                "max.in.flight.requests.per.connection": 1,
            }
        )
        keys = list(values)
        random.Random(topic).shuffle(keys)
        for key in keys:
            producer.produce(f"{topic}-{self.name}", json.dumps(values[key]), key)
        assert producer.flush(60) == 0

    def answers(self) -> list[Any]:
        """All that the job has answered so far, as a reader of committed records sees it."""
        topic = f"joined-{self.name}"
        ssp = SystemStreamPartition("kafka", topic, 0)
        end = KafkaTopics(self.address.connection, self.address.job).input_bounds([ssp], 10_000)[ssp].offset_end
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        answers: list[Any] = []
        try:
            while True:
                for message in consumer.consume(5_000, 1.0):
                    if message.error() is not None:
                        return answers
                    if message.offset() < end:
                        answers.append(json.loads(message.value()))
        finally:
            consumer.close()


@pytest.fixture
def world(broker: DevBroker | ContainerBroker, tmp_path: Path) -> World:
    new_world = World(servers=broker.bootstrap_servers, name=uuid.uuid4().hex[:8], directory=tmp_path)
    make_topics(
        broker.bootstrap_servers,
        {f"orders-{new_world.name}": 8, f"ztable-{new_world.name}": 4, f"joined-{new_world.name}": 1},
    )
    return new_world


def ledger(answers: Sequence[Any]) -> Mapping[str, Any]:
    """The row in the answer to each order; each order has one answer from one place."""
    orders = [answer["order"] for answer in answers]
    places = [answer["source"] for answer in answers]
    assert len(orders) == len(set(orders)) == len(set(places)), "an order was answered twice"
    return {answer["order"]: answer["row"] for answer in answers}


@pytest.mark.timeout(1800)
def test_a_bootstrap_input_is_there_before_the_first_order_also_after_a_kill_and_a_change_of_the_factor(
    world: World,
) -> None:
    world.feed("orders", {key: f"{key}/1" for key in KEYS})
    world.feed("ztable", {key: f"row of {key}" for key in KEYS})

    def bootstraps(job: JobProcess) -> list[str]:
        """The status while part of the table is read."""
        try:
            status = read_status(world.address)
        except Exception:  # Nothing leads yet, or the stream is just being made.
            return []
        positions = [one for task in status["tasks"] for one in task["positions"]]  # type: ignore[attr-defined]
        read = [one["offsetNext"] for one in positions if one["bootstrapEnd"] is not None]
        return bootstrap_lines(status) if sum(read) else []

    with world.job(work_s=0.004) as job:
        job.start()
        lines = job.wait_until(lambda: bootstraps(job), _WITHIN_S, "a part of the table to be read")
        assert all(f"kafka.ztable-{world.name}" in line and "orders" not in line for line in lines)
        driver = job.driver()
        assert driver is not None
        kill(driver)
        job.wait_gone()
        assert [] == world.answers(), "the job had begun with the orders: no table was half read"
        job.start()
        job.wait_until(lambda: len(world.answers()) >= len(KEYS), _WITHIN_S, "the orders")
        assert job.terminate() == 0, job.log_text()[-4000:]
    assert {f"{key}/1": f"row of {key}" for key in KEYS} == ledger(world.answers())

    # While it is stopped both inputs grow, and each task is divided.
    world.feed("orders", {key: f"{key}/2" for key in KEYS})
    world.feed("ztable", {key: f"new row of {key}" for key in KEYS})
    with world.job(job_elasticity_factor="2") as job:
        job.start()
        job.wait_until(lambda: len(world.answers()) >= 2 * len(KEYS), _WITHIN_S, "the later orders")
        assert job.terminate() == 0, job.log_text()[-4000:]
    expected = {f"{key}/1": f"row of {key}" for key in KEYS} | {f"{key}/2": f"new row of {key}" for key in KEYS}
    assert expected == ledger(world.answers())


@pytest.mark.timeout(1500)
def test_inputs_by_two_partitioners_are_refused_and_doctor_reports_a_job_that_ignored_that(world: World) -> None:
    world.feed("orders", {key: f"{key}/1" for key in KEYS})
    world.feed("ztable", {key: f"row of {key}" for key in KEYS}, "consistent_random")
    properties = str(JOB_FILE.with_suffix(".properties"))
    words = f"CRC32 in kafka.ztable-{world.name} ("

    with world.job() as job:
        job.start()
        assert ExitCode.USAGE == job.wait_until(job.exit_code, _WITHIN_S, "the start to be refused")
        for text in (words, f"murmur2 in kafka.orders-{world.name} ("):
            assert text in job.log_text(), job.log_text()
        # Spark's session is opened beside the checks, but nothing is planned and no query starts.
        assert "this process leads" not in job.log_text()
    plan = CliRunner().invoke(job_command, ["plan", "--config", properties, *world.options()])
    assert isinstance(plan.exception, PartitionerError)
    assert f"warning: kafka.ztable-{world.name}, kafka.orders-{world.name}: wanted one partitioner" in plan.stdout
    by_cluster = ("cluster.manager=process", f"cluster.process.dir={world.directory}")
    submitted = CliRunner().invoke(submit, [str(JOB_FILE), *world.options(*by_cluster)])
    assert isinstance(submitted.exception, PartitionerError)

    with world.job(task_partitioner_check="warn") as job:
        job.start()
        job.wait_until(lambda: len(world.answers()) >= len(KEYS), _WITHIN_S, "the orders")
        assert words in job.log_text()
        assert job.terminate() == 0, job.log_text()[-4000:]
    # The reason of the refusal: a key of the table is mostly in another task than its order.
    rows = ledger(world.answers())
    met = sum(row is not None for row in rows.values())
    assert (len(KEYS), True) == (len(rows), 0 < met < len(KEYS) / 2)
    examined = CliRunner().invoke(
        doctor, ["--job", world.address.job, "--bootstrap-servers", world.servers, "-o", "json"]
    )
    assert ["input-keys"] == [finding["code"] for finding in json.loads(examined.stdout)["findings"]]
    assert (ExitCode.DEGRADED, True) == (examined.exit_code, words in examined.stdout)


VARIANTS = {
    "consistent": Partitioner.CRC32,
    "consistent_random": Partitioner.CRC32,
    "murmur2": Partitioner.MURMUR2,
    "murmur2_random": Partitioner.MURMUR2,
    "fnv1a": Partitioner.FNV1A,
    "fnv1a_random": Partitioner.FNV1A,
}


@pytest.fixture
def topics(broker: DevBroker | ContainerBroker) -> tuple[KafkaConnection, dict[str, str]]:
    """A topic for each partitioner of librdkafka, with keys of all lengths."""
    name = uuid.uuid4().hex[:8]
    topics_by_variant = {variant: f"{variant}-{name}" for variant in VARIANTS}
    make_topics(broker.bootstrap_servers, dict.fromkeys(topics_by_variant.values(), 5))
    for variant, topic in topics_by_variant.items():
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": variant})
        for number in range(300):
            producer.produce(topic, b"v", random.Random(number).randbytes(1 + number % 23))
            producer.produce(topic, b"v", None if number % 2 else b"")
        assert producer.flush(30) == 0
    return KafkaConnection(bootstrap_servers=broker.bootstrap_servers), topics_by_variant


def test_keys_written_by_librdkafka_reveal_its_partitioner(
    topics: tuple[KafkaConnection, dict[str, str]],
) -> None:
    connection, names = topics
    inputs = ",".join(f"kafka.{topic}" for topic in names.values())
    config = a_config(task_inputs=inputs, task_partition_scheme="cogroup")
    streams = {SystemStreamPartition("kafka", topic, 0).system_stream: variant for variant, topic in names.items()}
    plan = plan_job(config, dict.fromkeys(streams, 5), None, ["0"])
    ssps = {ssp_kb.ssp for task in plan.tasks for ssp_kb in task.ssp_kbs}

    keys_of, is_whole = sample_keys(connection, ssps, 500)

    assert is_whole
    for ssp, keys in keys_of.items():
        hash_of = HASHES[VARIANTS[streams[ssp.system_stream]]]
        assert {ssp.partition} == {hash_of(key) % 5 for key in keys if key}
    seen = look_at_keys(keys_of, plan)
    assert {
        streams[stream.system_stream]: stream.partitioner for [*group] in seen.streams for stream in group
    } == VARIANTS
    assert refusal_of(seen)
