"""The kit of the tests of bad input: topics with odd records, and jobs that end.

Spark's start is most of a job's start. So a job that is refused before it runs as `python job.py`, and any other job
runs as a driver of one JVM that stays: the driver is a process of its own, as under spark-submit, with its own exit
code and stderr. Jobs that take signals run under a spark-submit of their own (`integration_tests.support.job_process`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from py4j.java_gateway import GatewayParameters, JavaGateway

from integration_tests.support.job_process import LONG_DRAIN
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.reading import PartitionReader, beginning_offsets, end_offsets
from samzapy.model.topics import TopicSpec
from samzapy.runtime.spark_submit import environment_of_spark
from samzapy.stream.log import LogRecord
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

JOBS = Path(__file__).parent.parent / "bad_jobs"
BY_ORDER = JOBS / "by_order.py"
PROPERTIES = BY_ORDER.with_suffix(".properties")
SAMZAPY = Path(sys.executable).with_name("samzapy")
STARTS_WITHIN_S = 300.0
"""From a job's start to its first answers: beside other work Spark alone takes a minute."""
_ENDS_WITHIN_S = 300.0
_FRAME_OF_SAMZAPY = re.compile(r'File ".*/samzapy/[\w/]+\.py", line')


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a job or a command.

    Attributes:
        output: stdout and stderr.
        stdout: without stderr, on which a command may say that it waits for a broker.
    """

    code: int
    output: str
    stdout: str = ""

    def assert_prints(self, *texts: str) -> None:
        """Fails unless stderr has all of `texts`, and no stack trace of samzapy's."""
        missing = [text for text in texts if text not in self.output]
        assert not missing, f"wanted {missing} on stderr (exit {self.code}):\n{self.output[-6000:]}"
        assert not _FRAME_OF_SAMZAPY.search(self.output), (
            f"a stack trace of samzapy's was shown:\n{self.output[-6000:]}"
        )

    def assert_ended(self, code: int, *texts: str) -> None:
        """Fails unless it ended with `code` and all of `texts`, without any stack trace."""
        self.assert_prints(*texts)
        assert (code, False) == (self.code, "Traceback" in self.output), f"exit {self.code}:\n{self.output[-6000:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record to publish. `timestamp_ms` 0 means now."""

    value: bytes | None
    key: bytes | None = b"k"
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = 0


class Cluster:
    """Topics on the tests' broker; a random suffix makes each name unique."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.connection = KafkaConnection(bootstrap_servers=bootstrap_servers)
        # Kept, because many tests ask for offsets until they are right.
        self._admin = Admin(self.connection)

    def topic(self, name: str, partition_count: int = 1) -> str:
        """Make a topic and give its full name."""
        full = unique(name)
        self.make(full, partition_count)
        return full

    def make(self, full: str, partition_count: int = 1, settings: Mapping[str, str] | None = None) -> None:
        # Kept without regard to their timestamps: some are years old.
        kept = {"retention.ms": "-1", **(settings or {})}
        make_topics(self.bootstrap_servers, {full: partition_count}, kept)

    def lacks(self, full: str) -> bool:
        """Whether there is no such topic yet."""
        return full not in self._admin.client.list_topics(timeout=10).topics

    def make_again(self, full: str) -> None:
        """Delete a topic and make another of the same name."""
        self._admin.client.delete_topics([full])[full].result(30)
        wait_until(
            lambda: full not in self._admin.client.list_topics(timeout=10).topics, 20.0, f"{full} to be deleted"
        )
        self.make(full)

    def make_own(self, spec: TopicSpec) -> str:
        """Make one of samzapy's own topics before samzapy does; gives its name."""
        return KafkaAdmin(self.connection).ensure_topic(spec).name

    def delete_before(self, full: str, offset: int, partition: int = 0) -> None:
        """Delete the records below `offset`, as retention does."""
        at = TopicPartition(full, partition, offset)
        (done,) = self._admin.client.delete_records([at]).values()
        done.result(30)
        where = [(full, partition)]
        wait_until(
            lambda: beginning_offsets(self._admin, where)[full, partition] == offset,
            10.0,
            "records to be deleted",
        )

    def publish(self, full: str, *messages: Message | bytes, partition: int = 0) -> None:
        """Publish plain records, acknowledged; bytes mean a message with that value.

        Small ones arrive in one batch: no reader gets the first of them without the others.
        """
        settings = {"bootstrap.servers": self.bootstrap_servers, "message.max.bytes": 2_000_000}
        # `flush` does not wait for it.
        producer = Producer({**settings, "linger.ms": 30_000})
        refused: list[str] = []
        _produce(producer, full, messages, partition, lambda error, _: refused.extend([str(error)] if error else []))
        assert (0, []) == (producer.flush(30), refused)

    def publish_in_transactions(self, full: str, *transactions: tuple[str, Sequence[Message | bytes]]) -> None:
        """Publish transactions that end with `commit` or `abort`, each with its marker."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "transactional.id": unique("feeder")})
        producer.init_transactions(30)
        for end, messages in transactions:
            producer.begin_transaction()
            _produce(producer, full, messages, 0)
            # A record that is purged before it was sent would leave nothing to abort.
            assert 0 == producer.flush(30)
            producer.commit_transaction(30) if end == "commit" else producer.abort_transaction(30)
        self.wait_for_markers(full)

    def wait_for_markers(self, full: str, partition: int = 0) -> None:
        """Wait until each transaction in the partition has its marker.

        The broker acknowledges the end of a transaction before it writes the marker. An end offset that is read
        between the two is one too low.
        """
        wait_until(lambda: not self.has_open_transaction(full, partition), 30.0, f"the markers in {full}")

    def read(self, full: str, partition: int = 0) -> list[LogRecord]:
        """Everything committed."""
        first = beginning_offsets(self._admin, [(full, partition)])[full, partition]
        with PartitionReader(self.connection, full, partition, admin=self._admin) as reader:
            return list(reader.read_to_end(first))

    def values(self, full: str, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.read(full, partition)]

    def first_uncommitted(self, full: str, partition: int = 0) -> bytes | None:
        """The value of the first record of the first open transaction."""
        settings = {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": "peeping",
            "isolation.level": "read_uncommitted",
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(full, partition, self.committed_end(full, partition))])
            (message,) = consumer.consume(1, 30)
            assert message.error() is None, message.error()
            return message.value()
        finally:
            consumer.close()

    def end(self, full: str, partition: int = 0) -> int:
        """The end offset of the partition, with uncommitted records."""
        where = (full, partition)
        return end_offsets(self._admin, [where], IsolationLevel.READ_UNCOMMITTED)[where]

    def committed_end(self, full: str, partition: int = 0) -> int:
        """Where the first open transaction begins, or the end."""
        where = (full, partition)
        return end_offsets(self._admin, [where], IsolationLevel.READ_COMMITTED)[where]

    def has_open_transaction(self, full: str, partition: int = 0) -> bool:
        """Whether a transaction with records in the partition lacks its marker."""
        return self.end(full, partition) > self.committed_end(full, partition)


def unique(name: str) -> str:
    """`name` with a random suffix, which no other name has."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def _produce(
    producer: Producer, full: str, messages: Sequence[Message | bytes], partition: int, on_delivery: Any = None
) -> None:
    for given in messages:
        message = given if isinstance(given, Message) else Message(value=given)
        producer.produce(
            full,
            message.value,
            message.key,
            partition,
            headers=list(message.headers),
            timestamp=message.timestamp_ms,
            on_delivery=on_delivery,
        )


class WarmSpark:
    """A JVM with Spark in it that outlives its drivers; one driver at a time.

    The Kafka connector is on its class path from the start: if each driver added it, as a job does, its
    classes would be loaded twice.
    """

    def __init__(self, directory: Path) -> None:
        info = directory / "connection"
        quiet = ["--conf", "spark.ui.showConsoleProgress=false", "--conf", "spark.log.level=ERROR"]
        with (directory / "jvm.log").open("wb") as log:
            self._child = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("spark-submit")),
                    *("--master", "local[2]", *quiet, "pyspark-shell"),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**environment_of_spark(), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)},
            )
        self._process = ProcessIdentity.of(self._child.pid)
        wait_until(lambda: info.exists() or self._child.poll() is not None, 120.0, "the JVM to be there")
        content = info.read_bytes()
        self._port, length = struct.unpack_from("!ii", content)
        self._secret = content[8 : 8 + length].decode()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that spark-submit gives its Python driver."""
        return {"PYSPARK_GATEWAY_PORT": str(self._port), "PYSPARK_GATEWAY_SECRET": self._secret}

    def publish(self, cluster: Cluster, full: str, value: bytes, timestamp_ms: int) -> None:
        """Publish a record by Java's client, which sends a timestamp of 0 unchanged."""
        gateway = self._gateway()
        try:
            clients: Any = gateway.jvm.org.apache.kafka.clients.producer
            bytes_of: Any = gateway.jvm.org.apache.kafka.common.serialization.ByteArraySerializer
            producer = clients.KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}, bytes_of(), bytes_of())
            producer.send(clients.ProducerRecord(full, 0, timestamp_ms, None, value)).get()
            producer.close()
        finally:
            gateway.close()

    def _gateway(self) -> JavaGateway:
        return JavaGateway(
            gateway_parameters=GatewayParameters(port=self._port, auth_token=self._secret, auto_convert=True)
        )

    @contextlib.contextmanager
    def with_setting(self, name: str, value: str) -> Iterator[None]:
        """With one more setting, as `--conf` of spark-submit gives it to its JVM."""
        gateway = self._gateway()
        try:
            system: Any = gateway.jvm.java.lang.System
            before = system.getProperty(name)
            system.setProperty(name, value)
            yield
            system.clearProperty(name) if before is None else system.setProperty(name, before)
        finally:
            gateway.close()

    def close(self) -> None:
        """Kill it. The handlers of other signals call drivers that have ended."""
        self._child.kill()
        self._child.communicate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that can be started repeatedly: its name, inputs, settings and state."""

    cluster: Cluster
    directory: Path
    name: str
    inputs: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """`<job.name>-<job.id>`, as topics carry it."""
        return f"{self.name}-1"

    def output(self, stream: str) -> str:
        """The topic of one of the outputs of `by_order.py`."""
        return f"{stream}-{self.name}"

    def overrides(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """The settings of its `--set` options, with more on top."""
        return {
            "job.name": self.name,
            "task.inputs": ", ".join(f"kafka.{name}" for name in self.inputs),
            "systems.kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "local.store.dir": str(self.directory / "state"),
            **LONG_DRAIN,
            **self.settings,
            **(settings or {}),
        }

    def arguments(self, settings: Mapping[str, str] | None = None) -> list[str]:
        """The arguments after the job file on its command line."""
        sets = [("--set", f"{name}={value}") for name, value in self.overrides(settings).items()]
        return ["--config", str(PROPERTIES), *(part for pair in sets for part in pair)]

    def run(self, spark: WarmSpark | None = None, settings: Mapping[str, str] | None = None) -> Ended:
        """Run it to its end, as a driver of `spark`; without one it must be refused."""
        environment = {} if spark is None else spark.environment
        return run_python(BY_ORDER, *self.arguments(settings), environment=environment)

    @contextlib.contextmanager
    def running(self, spark: WarmSpark, settings: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """The same while it runs; ended in any case."""
        with driver(BY_ORDER, spark, *self.arguments(settings), stderr=subprocess.PIPE) as process:
            yield process


def write_job(job_file: Path, text: str, job: str, cluster: Cluster, **settings: str) -> None:
    """Write a job that reads all of its inputs, with its state beside it.

    Args:
        settings: more of them, with underscores for dots.
    """
    job_file.write_text(text)
    properties = {
        "job.name": job,
        "systems.kafka.bootstrap.servers": cluster.bootstrap_servers,
        "systems.kafka.samza.offset.default": "oldest",
        "local.store.dir": str(job_file.parent / "state"),
        **LONG_DRAIN,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    lines = [f"{name}={value}\n" for name, value in properties.items()]
    job_file.with_suffix(".properties").write_text("".join(lines))


@contextlib.contextmanager
def driver(
    job_file: Path, spark: WarmSpark, *arguments: str, stderr: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`python job.py ...` as a driver of `spark`, while it runs; ended in any case."""
    command, environment = [sys.executable, str(job_file), *arguments], _environment(spark.environment)
    with subprocess.Popen(command, stderr=stderr, text=True, env=environment) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def entry_counts(bootstrap_servers: str, job: str) -> Counter[str]:
    """By store, the entries of job `job`-1 that `samzapy state count` finds."""
    address = ("--job", f"{job}-1", "--bootstrap-servers", bootstrap_servers)
    counted: Counter[str] = Counter()
    for row in json.loads(run_samzapy("state", "count", *address, "-o", "json").stdout):
        counted[row["store"]] += row["entries"]
    return counted


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for the end of `process`."""
    _, output = process.communicate(timeout=_ENDS_WITHIN_S)
    return Ended(code=process.returncode, output=output)


def run_python(job_file: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    """`python job.py ...`, to its end."""
    return _run([sys.executable, str(job_file), *arguments], _environment(environment or {}))


def run_samzapy(*arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    """`samzapy ...`, to its end."""
    return _run([str(SAMZAPY), *arguments], _environment(environment or {}))


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, **more}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> Ended:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_ENDS_WITHIN_S, env=dict(environment))
    return Ended(code=ran.returncode, output=ran.stdout + ran.stderr, stdout=ran.stdout)
