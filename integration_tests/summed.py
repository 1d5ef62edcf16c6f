"""The job of running sums, fed by hand and without a ledger."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from integration_tests.support.job_process import LONG_DRAIN, JobProcess
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.target.requests import recorded_state
from samzapy.coordinator.state import CoordinatorState
from samzapy.runtime.job_address import JobAddress

JOB_FILE = Path(__file__).parent / "jobs" / "running_sums.py"
EACH, KEYS = 60, 5
"""Messages of each partition, and keys among them."""


class Out(NamedTuple):
    """An output: the place of its message, and the sum of its key after it."""

    stream: str
    partition: int
    offset: int
    key: str
    sum: int


class Summed:
    """One such job on a shared broker: its name and topics have their own suffix.

    Attributes:
        job: `job.name-job.id`.
        outputs: with partition counts, to be made before it starts.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._suffix = f"-{uuid.uuid4().hex[:8]}"
        self.job = f"{self.topic('running-sums')}-1"
        self.outputs: Mapping[str, int] = {self.topic("sums"): 1, self.topic("without-key"): 1}

    def topic(self, name: str) -> str:
        """A name with the job's suffix."""
        return f"{name}{self._suffix}"

    def process(self, directory: Path, inputs: str, settings: Mapping[str, str] | None = None) -> JobProcess:
        """Args: inputs: as `task.inputs` has them."""
        overrides = {
            "systems.kafka.bootstrap.servers": self._servers,
            "local.store.dir": str(directory / "state"),
            "job.name": self.topic("running-sums"),
            "task.inputs": inputs,
            **LONG_DRAIN,
            **(settings or {}),
        }
        environment = {"RUNNING_SUMS_SUFFIX": self._suffix}
        return JobProcess(JOB_FILE, log_dir=directory / "job", overrides=overrides, environment=environment)

    def reader(self) -> Reader:
        return Reader(self._servers, self.topic("sums"))

    def state(self) -> CoordinatorState:
        """The state on the coordinator stream."""
        return recorded_state(JobAddress(job=self.job, connection=KafkaConnection(bootstrap_servers=self._servers)))


class Reader:
    """Follows the output, read_committed."""

    def __init__(self, servers: str, output: str) -> None:
        self._outs: list[Out] = []
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(output, 0, 0)])

    def read(self) -> Sequence[Out]:
        for message in self._consumer.consume(1000, 0.2):
            error = message.error()
            assert error is None or error.code() == KafkaError._ALL_BROKERS_DOWN or error.retriable(), error
            if error is None:
                self._outs.append(_out(message))
        return self._outs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()


def feed(servers: str, topic: str, partitions: int) -> int:
    """As many messages for each partition, acknowledged; returns how many in all."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(EACH):
        for partition in range(partitions):
            producer.produce(topic, json.dumps({"x": 1}), f"{topic}-{partition}-{number % KEYS}", partition)
    assert 0 == producer.flush(30)
    return EACH * partitions


def check_sums(outs: Sequence[Out]) -> None:
    """Each sum continues the one before of its key."""
    sums: dict[str, int] = {}
    for out in outs:
        sums[out.key] = sums.get(out.key, 0) + 1
        assert sums[out.key] == out.sum, out


def _out(message: Any) -> Out:
    stream, partition, offset = dict(message.headers())["src"].decode().rsplit("-", 2)
    return Out(stream, int(partition), int(offset), message.key().decode(), json.loads(message.value())["sum"])
