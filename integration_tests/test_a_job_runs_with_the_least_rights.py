"""A job needs all rights that `samzapy acl` prints, and no others.

The cluster has an authorizer: it refuses all requests without an ACL. All clients, also the JVM's, connect by TLS with
SCRAM-SHA-512.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from integration_tests import console_tools
from integration_tests.ledger_run import JOBS
from integration_tests.support.guarded_broker import GuardedBroker, Row, guarded_broker, password_of
from integration_tests.support.job_process import JobProcess
from integration_tests.support.tails import records_in_tails
from samzapy.adapters.host.scratch import scratch_directories
from samzapy.adapters.kafka.acls import KafkaAcls
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.election import KafkaElection
from samzapy.adapters.kafka.hanging import WrittenTopics
from samzapy.adapters.kafka.key_sample import sample_keys
from samzapy.adapters.kafka.lag_group import KafkaLagGroup
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.placement import KafkaPlacementWriter, PlacementTopic
from samzapy.adapters.kafka.positions import KafkaFence, KafkaPositions
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.adapters.kafka.transactions import TransactionalProducer
from samzapy.config import JobConfig
from samzapy.errors import ExitCode, SamzapyError
from samzapy.model.container import (
    coordinator_transactional_id,
    election_group,
    placement_transactional_id,
    slot_transactional_id,
    transactional_ids,
)
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.topics import (
    TopicSpec,
    changelog_spec,
    checkpoint_spec,
    checkpoint_topic,
    coordinator_spec,
    coordinator_topic,
    intermediate_spec,
    placement_spec,
    placement_topic,
)
from samzapy.plan.kafka_rights import Role
from samzapy.runtime.job_config import read_config
from samzapy.runtime.submission import read_state
from samzapy.stream.log import Write
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

SAMZAPY = Path(sys.executable).with_name("samzapy")
ROOT = "root"
USERS = (*Role, "flights", ROOT)
INPUT, DEAD, OUTPUTS = "fed", "dead", ("sums", "without-key", "regrouped")
"""The topics of the job that runs; others are for single deeds, whose records no job could read."""

DEEDS_INPUT, DEEDS_BROADCAST, DEEDS_DEAD, DEEDS_OUTPUTS = "deeds", "deeds-rules", "deeds-dead", ("deeds-out",)
PARTITIONS = 2
_REFUSED_WITHIN_S = 60.0
_SPARK_WITHIN_S = 300.0
Deed = Callable[[KafkaConnection], object]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with guarded_broker(tmp_path_factory.mktemp("guarded"), USERS, super_user=ROOT) as guarded:
        of_deeds = (DEEDS_INPUT, DEEDS_BROADCAST, DEEDS_DEAD, *DEEDS_OUTPUTS)
        make_topics(guarded.plain_servers, dict.fromkeys((INPUT, DEAD, *OUTPUTS, *of_deeds), PARTITIONS))
        yield guarded


class GuardedJob:
    """A job of this cluster, as a properties file describes it.

    Args:
        user: the user whose name and password are in the file.
        settings: further lines.
    """

    def __init__(self, broker: GuardedBroker, directory: Path, user: str, settings: Mapping[str, str]) -> None:
        self.broker = broker
        self.directory = directory
        self.file = directory / "repartition.properties"
        lines = {
            "job.name": f"guarded{uuid.uuid4().hex[:8]}",
            "systems.kafka.bootstrap.servers": broker.secured_servers,
            **{f"systems.kafka.client.{name}": value for name, value in broker.client_properties(user).items()},
            "local.store.dir": str(directory / "state"),
            "task.error.policy": "dead-letter",
            "task.dead.letter.output": f"kafka.{DEAD}",
            **settings,
        }
        base = (JOBS / "repartition.properties").read_text().splitlines()
        kept = [line for line in base if line.partition("=")[0] not in lines]
        self.file.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in lines.items())]) + "\n")
        self.config: JobConfig = read_config(self.file, self.file, (), {})
        self.job = self.config.job

    def specs(self) -> Mapping[str, TopicSpec]:
        """The job's own topics, by name."""
        job = self.job
        specs = [
            coordinator_spec(job),
            placement_spec(job),
            checkpoint_spec(job),
            *(changelog_spec(job, store.name, self._changelog_partitions) for store in self.config.stores),
            *(intermediate_spec(stream) for stream in self.config.intermediates),
        ]
        return {spec.name: spec for spec in specs}

    @property
    def _changelog_partitions(self) -> int:
        return PARTITIONS + sum(stream.partition_count for stream in self.config.intermediates)

    def samzapy(self, *arguments: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """A command about the job, as the user of the properties file, or as another one."""
        login = {"username": user, "password": "${env:OTHER_PASSWORD}"} if user else {}
        own = [
            part for name, value in login.items() for part in ("--set", f"systems.kafka.client.sasl.{name}={value}")
        ]
        command = [SAMZAPY, *arguments, "--config", self.file, *own]
        environment = os.environ | ({"OTHER_PASSWORD": password_of(user)} if user else {})
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_SPARK_WITHIN_S, check=False, env=environment
        )

    def done(self, *arguments: str, user: str | None = None) -> str:
        """As `samzapy`, for a command that succeeds; returns its stdout."""
        ran = self.samzapy(*arguments, user=user)
        assert ExitCode.OK == ran.returncode, f"{arguments}: exit {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def make_topics(self) -> None:
        """Create the job's topics with the rights of the role admin."""
        admin = KafkaAdmin(self.broker.connection(Role.ADMIN))
        for spec in self.specs().values():
            admin.ensure_topic(spec)


def principals(*roles: Role) -> list[str]:
    """Options: each of these roles is a user of its own."""
    return [part for role in roles for part in ("--principal", f"{role}=User:{role}")]


def outputs(topics: Sequence[str] = OUTPUTS) -> list[str]:
    """Options: the outputs that the configuration does not declare."""
    return [part for topic in topics for part in ("--output-topic", topic)]


# --- Each right is needed ---


@contextmanager
def warnings_of_this_thread() -> Iterator[list[str]]:
    """The warnings that samzapy logs in this thread."""
    texts: list[str] = []
    ident = threading.get_ident()

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == ident:
                texts.append(record.getMessage())

    handler = Collector(logging.WARNING)
    logger = logging.getLogger("samzapy")
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)


def refusal(deed: Deed, connection: KafkaConnection) -> str:
    """The error of a deed, or its warnings; empty if it is done."""
    with warnings_of_this_thread() as warnings:
        try:
            deed(connection)
        except SamzapyError as error:
            return str(error)
    return "\n".join(warnings)


A_RECORD = Write(key=b"k", value=b"v")


class Deeds:
    """The requests of a job's roles to the cluster, each by its adapter."""

    def __init__(self, job: GuardedJob) -> None:
        self._broker = job.broker
        self._config = job.config
        self._job = job.job
        self._specs = job.specs()

    def of(self, role: Role, row: Row) -> Deed:
        """The deed of a role that needs the right."""
        name, operation = row["resourceName"], row["operation"]
        match row["resourceType"], operation:
            case "CLUSTER", _:
                return lambda connection: KafkaAcls(connection).acls()
            case "GROUP", "READ":
                return self._elected if name == election_group(self._job) else self._positions_committed(DEEDS_INPUT)
            case "GROUP", "DESCRIBE":
                return lambda connection: KafkaAdmin(connection).member_count(name)
            case "TRANSACTIONAL_ID", _:
                return self._with_id(role, name)
            case _, "DESCRIBE" | "DESCRIBE_CONFIGS":
                return self._asked(role, name, operation)
            case _, "CREATE" | "ALTER" | "ALTER_CONFIGS":
                return self._administered(name, operation)
            case _, "READ":
                if role is Role.COORDINATOR and name == DEEDS_BROADCAST:
                    return self._positions_committed(name)
                is_sampled = role is Role.COORDINATOR and name not in self._recorded
                return self._sampled(name) if is_sampled else lambda connection: list(read_to_end(connection, name))
            case _, "WRITE":
                return self._written(role, name)
        raise AssertionError(f"no deed for {row}")

    @property
    def _recorded(self) -> Sequence[str]:
        """The topics that a coordinator reads as a whole."""
        return [spec.name for spec in self._specs.values() if spec.is_compacted]

    def _asked(self, role: Role, topic: str, operation: str) -> Deed:
        def offsets(connection: KafkaConnection) -> None:
            KafkaPositions(connection, self._job).offset_bounds([SystemStreamPartition("kafka", topic, 0)], None)

        def limits(connection: KafkaConnection) -> None:
            with closing(TransactionalProducer(connection, self._slot_id())) as producer:
                producer.topic_limits(topic)

        if operation == "DESCRIBE":
            return offsets
        if topic not in self._specs:
            return limits
        return lambda connection: KafkaAdmin(connection).look([topic])

    def _administered(self, topic: str, operation: str) -> Deed:
        spec = self._specs[topic]

        def change(connection: KafkaConnection) -> None:
            admin = KafkaAdmin(connection)
            match operation:
                case "CREATE":
                    admin._create(spec)
                case "ALTER":
                    admin._grow(spec)
                case _:
                    admin.alter_settings(topic, {"flush.ms": None})

        return change

    def _with_id(self, role: Role, transactional_id: str) -> Deed:
        writers = {
            coordinator_transactional_id(self._job): self._decided,
            placement_transactional_id(self._job): self._answered,
        }
        by_container = self._committed(checkpoint_topic(self._job))
        return writers.get(transactional_id) or (self._fenced if role is Role.COORDINATOR else by_container)

    def _written(self, role: Role, topic: str) -> Deed:
        writers = {coordinator_topic(self._job): self._decided, placement_topic(self._job): self._answered}
        match role:
            case Role.OPERATOR:
                return self._requested
            case Role.COORDINATOR:
                return writers.get(topic) or self._fenced_where_a_transaction_hangs(topic)
            case _:
                return self._committed(topic)

    def _slot_id(self) -> str:
        return slot_transactional_id(self._job, "e1", 0)

    def _elected(self, connection: KafkaConnection) -> None:
        election = KafkaElection(connection, self._job, session_ms=6000, heartbeat_ms=1000)
        with closing(election):
            election.start()
            wait_until(lambda: election.wait(200), _REFUSED_WITHIN_S, "the only candidate to be elected")

    def _decided(self, connection: KafkaConnection) -> None:
        log = KafkaLog(connection, coordinator_topic(self._job), coordinator_transactional_id(self._job))
        with closing(log):
            log.take_over()
            log.append_atomically([A_RECORD])

    def _answered(self, connection: KafkaConnection) -> None:
        topic, transactional_id = placement_topic(self._job), placement_transactional_id(self._job)
        with closing(KafkaPlacementWriter(connection, topic, transactional_id)) as writer:
            writer.acquire()
            writer.write([A_RECORD])

    def _requested(self, connection: KafkaConnection) -> None:
        with closing(PlacementTopic(connection, placement_topic(self._job))) as topic:
            topic.write([A_RECORD])

    def _committed(self, topic: str) -> Deed:
        def commit(connection: KafkaConnection) -> None:
            # It takes over without a check for hanging transactions: another thread of this test makes some.
            producer = TransactionalProducer(connection, self._slot_id(), written=WrittenTopics(own=()))
            with closing(producer):
                producer.take_over()
                producer._written = WrittenTopics(own=[topic])
                producer.begin()
                if topic not in self._specs:
                    producer.partition_count(topic)
                producer.produce(topic, b"k", b"v", 0)
                producer.commit()

        return commit

    def _fenced(self, connection: KafkaConnection) -> None:
        KafkaFence(connection, 60_000).fence(transactional_ids(self._job, "e2", 1))

    def _fenced_where_a_transaction_hangs(self, topic: str) -> Deed:
        def fence(connection: KafkaConnection) -> None:
            with self._hanging(topic):
                written = WrittenTopics(own=[topic])
                KafkaFence(connection, 60_000, written=written).fence(transactional_ids(self._job, "e2", 1))

        return fence

    @contextmanager
    def _hanging(self, topic: str) -> Iterator[None]:
        """A transaction of the super user that stays open in the topic."""
        settings = {"bootstrap.servers": self._broker.plain_servers, "transactional.id": f"hangs-in-{topic}"}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"v", b"k", partition=0)
        producer.flush(30)
        try:
            yield
        finally:
            producer.abort_transaction(30)

    def _positions_committed(self, topic: str) -> Deed:
        group = self._config.lag_group
        assert group is not None
        return lambda connection: KafkaLagGroup(connection, group).commit(
            {SystemStreamPartition("kafka", topic, 0): 0}
        )

    def _sampled(self, topic: str) -> Deed:
        return lambda connection: sample_keys(connection, [SystemStreamPartition("kafka", topic, 0)], 10, 5.0)


def assert_needed(broker: GuardedBroker, role: Role, rows: Sequence[Row], deeds: Deeds) -> None:
    """Fails unless the role needs each of its rights, and no other, for its requests."""
    connection = broker.connection(role)
    for row in rows:
        done = partial(lambda deed: not refusal(deed, connection), deeds.of(role, row))
        wait_until(done, _REFUSED_WITHIN_S, f"{role} to do its deed: {row}")
    for row in rows:
        broker.withdraw(row)
        is_named = partial(names_right, row, deeds.of(role, row), connection)
        wait_until(is_named, _REFUSED_WITHIN_S, f"an error that names the right that {role} lacks: {row}")
        broker.allow([row])


def names_right(row: Row, deed: Deed, connection: KafkaConnection) -> bool:
    """Whether a deed is refused with the resource of the right, and a way out."""
    text = refusal(deed, connection)
    name = "the cluster" if row["resourceType"] == "CLUSTER" else row["resourceName"]
    return name in text and "samzapy acl" in text


@pytest.mark.timeout(900)
def test_without_any_one_right_an_error_names_the_resource(
    broker: GuardedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "task.inputs": f"kafka.{DEEDS_INPUT}",
        "task.broadcast.inputs": f"kafka.{DEEDS_BROADCAST}",
        "task.dead.letter.output": f"kafka.{DEEDS_DEAD}",
    }
    job = GuardedJob(broker, tmp_path, Role.CONTAINER, settings)
    rows: list[dict[str, Any]] = json.loads(
        job.done("acl", "-o", "json", *principals(*Role), *outputs(DEEDS_OUTPUTS))
    )
    broker.allow(rows)
    job.make_topics()
    broker.publish({topic: [(b"k", b"v")] for topic in (*job.specs(), DEEDS_INPUT, DEEDS_BROADCAST)}, partition=0)
    by_role = {role: [row for row in rows if row["principal"] == f"User:{role}"] for role in Role}
    deeds = Deeds(job)

    # Each role is a user of its own, so the roles do not wait for each other.
    with ThreadPoolExecutor(len(Role)) as pool:
        checked = [pool.submit(assert_needed, broker, role, of_role, deeds) for role, of_role in by_role.items()]
        for one in checked:
            one.result()

    with capsys.disabled():
        print(f"least rights: {len(rows)} rights, each of them needed", file=sys.stderr, flush=True)


# --- The rights are enough ---


class RunningJob:
    """`jobs/repartition.py`, led and started by `samzapy job submit`."""

    def __init__(self, job: GuardedJob, process: JobProcess) -> None:
        self.job = job
        self.process = process
        self._broker = job.broker
        self._plain = KafkaConnection(bootstrap_servers=job.broker.plain_servers)
        self.fed: Counter[str] = Counter()

    def feed(self, count: int, key: str) -> None:
        """Publish messages of one key."""
        value = json.dumps({"k": key, "n": self.fed[key], "x": 1}).encode()
        self._broker.publish({INPUT: [(key.encode(), value)] * count})
        self.fed[key] += count

    def has_answered(self) -> bool:
        """Whether each message passed both steps once, and the state counts all messages."""
        if (code := self.process.exit_code()) is not None:
            raise AssertionError(f"the coordinator ended with {code}:\n{self.process.log_text()[-4000:]}")
        sums = [json.loads(value) for value in self.values("sums")]
        assert len(sums) <= self.fed.total(), "a message was answered twice"
        counted = {key: max((one["sum"] for one in sums if one["k"] == key), default=0) for key in self.fed}
        return counted == dict(self.fed) and len(self.values("regrouped")) == self.fed.total()

    def values(self, topic: str) -> Sequence[bytes]:
        """All committed values of a topic."""
        records = chain.from_iterable(read_to_end(self._plain, topic, number) for number in range(PARTITIONS))
        return [record.value or b"" for record in records]

    def wait_answered(self) -> None:
        wait_until(self.has_answered, _SPARK_WITHIN_S, "all messages to be answered", poll_interval_s=0.5)

    def wait_tail(self) -> None:
        """Feed single messages until a tail has handled one."""

        def has_tailed() -> bool:
            self.feed(1, "tail")
            executions = read_state(self.job.config, self._plain).containers
            return any(records_in_tails(path) for path in scratch_directories() if path.name in executions)

        wait_until(has_tailed, _SPARK_WITHIN_S, "a tail to handle a message", poll_interval_s=0.5)


@contextmanager
def running(job: GuardedJob) -> Iterator[RunningJob]:
    process = JobProcess(
        JOBS / "repartition.py",
        log_dir=job.directory / "log",
        overrides={},
        spark_options=("--config", str(job.file), "--master", "local[2]"),
        command=("job", "submit"),
    )
    with process:
        process.start()
        try:
            yield RunningJob(job, process)
        except BaseException as error:
            logs = sorted(job.directory.glob("cluster/*/*.log"))
            error.add_note("\n".join([process.log_text()[-3000:], *(path.read_text()[-3000:] for path in logs)]))
            raise


@pytest.mark.timeout(1800)
def test_a_job_is_scaled_with_exactly_the_printed_rights(broker: GuardedBroker, tmp_path: Path) -> None:
    settings = {
        "task.inputs": f"kafka.{INPUT}",
        "job.container.count": "1",
        "job.debounce.time.ms": "500",
        "task.batch.interval.ms": "0",
        "cluster.manager": "process",
        "cluster.process.dir": str(tmp_path / "cluster"),
        "cluster.process.hosts": "h1:1",
        "cluster-manager.container.request.timeout.ms": "300000",
    }
    job = GuardedJob(broker, tmp_path, "flights", settings)
    client = tmp_path / "client.properties"
    client.write_text(broker.java_properties(ROOT))
    # Coordinator and containers have one configuration, and so one user: the one in the file.
    users = [
        part for role in (Role.OPERATOR, Role.AUDITOR, Role.ADMIN) for part in ("--principal", f"{role}=User:{role}")
    ]
    printed = job.done("acl", "--command-config", str(client), *users, *outputs())
    console_tools.set_acls(line for line in printed.splitlines() if not line.startswith("#"))
    job.make_topics()

    with running(job) as run:
        run.feed(50, "a")
        broker.publish({INPUT: [(b"bad", b"no JSON")]})
        run.wait_answered()
        run.wait_tail()
        job.done("job", "scale", "--factor", "2", user=Role.OPERATOR)
        run.feed(50, "a")
        run.feed(50, "b")
        run.wait_answered()

        assert [b"no JSON"] == run.values(DEAD)
        assert "nothing is wrong" in job.done("doctor", user=Role.AUDITOR)
        job.done("stream", "verify", user=Role.AUDITOR)
        assert "nothing is wrong" in job.done("acl", "check", *users, *outputs(), user=Role.ADMIN)
        job.done("job", "stop", user=Role.OPERATOR)
        assert ExitCode.OK == run.process.wait_ended(_SPARK_WITHIN_S), run.process.log_text()
        log = run.process.log_text() + "".join(path.read_text() for path in tmp_path.glob("cluster/*/*.log"))
        assert "AUTHORIZATION" not in log and "Not authorized" not in log, log


def test_a_check_names_missing_rights_and_other_writers(broker: GuardedBroker, tmp_path: Path) -> None:
    job = GuardedJob(broker, tmp_path, "flights", {"task.inputs": f"kafka.{INPUT}"})
    rows = json.loads(job.done("acl", "-o", "json"))
    broker.allow(rows)
    coordinator = coordinator_topic(job.job)
    mallory = {**rows[0], "resourceType": "TOPIC", "resourceName": "__samzapy-", "patternType": "PREFIXED"}

    def codes(code: int) -> set[tuple[str, str]]:
        ran = job.samzapy("acl", "check", "-o", "json", user=ROOT)
        assert code == ran.returncode, ran.stdout + ran.stderr
        return {(finding["code"], finding["subject"]) for finding in json.loads(ran.stdout)["findings"]}

    assert set() == codes(ExitCode.OK)
    needed = next(row for row in rows if row["resourceName"] == coordinator and row["operation"] == "WRITE")
    broker.withdraw(needed)
    assert {("acl-missing", "User:flights")} == codes(ExitCode.DEGRADED)
    broker.allow([{**mallory, "principal": "User:mallory", "operation": "WRITE"}])
    assert {("acl-missing", "User:flights"), ("acl-excess", "User:mallory")} == codes(ExitCode.BAD_DATA)
    broker.withdraw({**mallory, "principal": "User:mallory", "operation": "WRITE"})
