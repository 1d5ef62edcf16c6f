"""A coordinator on a real broker, containers that only speak HTTP, and `samzapy job status` beside them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from integration_tests.small_job import heartbeat_from_elsewhere
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.positions import KafkaFence, KafkaPositions
from samzapy.adapters.web.client import HeartbeatAnswer
from samzapy.adapters.web.inbox import CommandInbox
from samzapy.adapters.web.server import CoordinatorServer
from samzapy.cli.job import job as job_command
from samzapy.config import JobConfig
from samzapy.coordinator.service import CoordinatorIdentity, CoordinatorService
from samzapy.errors import RejectedError
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import coordinator_transactional_id, slot_transactional_id
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import checkpoint_spec, checkpoint_topic, coordinator_spec, coordinator_topic
from samzapy.stream.codec import encode
from samzapy.stream.records import CheckpointPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_config, a_submission
from samzapy.testing.waiting import wait_until


class SystemClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Elsewhere:
    """No process of this job is on this host."""

    def is_alive(self, boot_id: str, pid: int, process_started_ms: int) -> None:
        return None


class Leader:
    """A coordinator with its server, its loop in a thread."""

    def __init__(self, connection: KafkaConnection, config: JobConfig) -> None:
        inbox = CommandInbox()
        services: list[CoordinatorService] = []
        self._server = CoordinatorServer(
            host="127.0.0.1",
            port=0,
            snapshot=lambda: services[0].status() if services else None,
            put=inbox.put,
            clock=SystemClock(),
            lease_ms=config.lease_ms,
        )
        self.url = self._server.start()
        self._log = KafkaLog(connection, coordinator_topic(config.job), coordinator_transactional_id(config.job))
        self.service = CoordinatorService(
            log=self._log,
            config=config,
            identity=CoordinatorIdentity(
                coordinator_id=uuid.uuid4().hex,
                host="host-a",
                boot_id="boot-a",
                pid=1,
                process_started_ms=1,
                url=self.url,
            ),
            clock=SystemClock(),
            commands=inbox,
            fencing=KafkaFence(connection),
            positions=KafkaPositions(connection, config.job),
            processes=Elsewhere(),
        )
        services.append(self.service)
        self.service.take_office()
        self.service.submit(a_submission(config=config, partition_counts={config.inputs[0]: 2}))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def _loop(self) -> None:
        while not self._ended.is_set():
            self.service.run_once(50)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._server.stop()
        self._log.close()


@pytest.fixture
def connection(broker: DevBroker) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def config(connection: KafkaConnection) -> JobConfig:
    """A job with an input of two partitions that hold ten records each, and its own topics."""
    name = f"status{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": connection.bootstrap_servers})
    admin.create_topics([NewTopic(f"in-{name}", 2, 1)])[f"in-{name}"].result(timeout=30)
    producer = Producer({"bootstrap.servers": connection.bootstrap_servers})
    for number in range(20):
        producer.produce(f"in-{name}", str(number), partition=number % 2)
    assert 0 == producer.flush(30)
    for spec in (coordinator_spec(f"{name}-1"), checkpoint_spec(f"{name}-1")):
        KafkaAdmin(connection).ensure_topic(spec)
    return a_config(
        job_name=name,
        task_inputs=f"kafka.in-{name}",
        job_container_heartbeat_ms="200",
        job_container_lease_ms="3000",
        job_container_lost_ms="4000",
    )


@pytest.fixture
def leader(connection: KafkaConnection, config: JobConfig) -> Iterator[Leader]:
    found = Leader(connection, config)
    yield found
    found.stop()


def heartbeat(
    leader: Leader, config: JobConfig, execution_id: str, held: Sequence[Mapping[str, object]] = ()
) -> HeartbeatAnswer | None:
    return heartbeat_from_elsewhere(leader.url, config.job, execution_id, held)


def told(connection: KafkaConnection, job: str, output: str = "json") -> Result:
    return CliRunner().invoke(
        job_command, ["status", "--job", job, "--bootstrap-servers", connection.bootstrap_servers, "-o", output]
    )


def owners(leader: Leader) -> set[str]:
    return {grant.execution_id for grant in leader.service.status().state.grants.values()}


def commit(connection: KafkaConnection, config: JobConfig, ssp_kb: SspKeyBucket, offset_next: int) -> Producer:
    """What a worker of e1 does, in slot 0; its producer is left alive."""
    producer = Producer(
        {
            "bootstrap.servers": connection.bootstrap_servers,
            "transactional.id": slot_transactional_id(config.job, ExecutionId("e1"), 0),
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    checkpoint = Checkpoint(
        ssp_kb=ssp_kb,
        offset_next=offset_next,
        epoch=1,
        task_name=TaskName("t"),
        execution_id=ExecutionId("e1"),
    )
    key, value = encode(CheckpointPut(checkpoint=checkpoint))
    producer.produce(checkpoint_topic(config.job), key=key, value=value)
    producer.commit_transaction(30)
    return producer


def test_a_job_that_nobody_knows_is_rejected(connection: KafkaConnection) -> None:
    found = told(connection, "nobody-1")

    assert isinstance(found.exception, RejectedError)
    assert "nobody-1" in str(found.exception)


def test_the_leader_tells_who_owns_what(connection: KafkaConnection, config: JobConfig, leader: Leader) -> None:
    ownerless = told(connection, config.job)
    assert 6 == ownerless.exit_code
    assert ["nothing is planned"] == [reason.partition(":")[0] for reason in json.loads(ownerless.stdout)["degraded"]]

    assert (True, 1) == _alive(heartbeat(leader, config, "e1"))
    wait_until(lambda: 2 == len(leader.service.status().state.grants), deadline_s=10, what="two grants")
    found = told(connection, config.job)

    status = json.loads(found.stdout)
    assert 0 == found.exit_code, status["degraded"]
    assert ["e1", "e1"] == [task["owner"] for task in status["tasks"]]
    assert [0, 0] == [task["positions"][0]["offsetNext"] for task in status["tasks"]]
    assert leader.url == status["leader"]
    assert "RUNNING" in told(connection, config.job, "table").stdout


def test_a_lost_container_is_fenced_and_its_successor_begins_at_its_checkpoint(
    connection: KafkaConnection, config: JobConfig, leader: Leader
) -> None:
    heartbeat(leader, config, "e1")
    wait_until(lambda: {"e1"} == owners(leader), deadline_s=10, what="grants")
    ssp_kb = SspKeyBucket.parse(f"{config.inputs[0]}.0:0/1")
    worker = commit(connection, config, ssp_kb, offset_next=4)
    worker.begin_transaction()

    def successor_runs() -> bool:
        heartbeat(leader, config, "e2")
        return {"e2"} == owners(leader)

    wait_until(successor_runs, deadline_s=20, what="the successor's grants")

    # A zombie lists what it was granted; one that lists nothing would be a new execution.
    assert (False, 1) == _alive(
        heartbeat(leader, config, "e1", held=[{"task": f"SystemStreamPartition_{ssp_kb.ssp}", "epoch": 1}])
    )
    starts = {
        start.ssp_kb: start.offset_next
        for grant in leader.service.status().state.grants.values()
        for start in grant.starts
    }
    assert 4 == starts[ssp_kb]
    worker.produce(checkpoint_topic(config.job), key=b"late", value=b"late")
    with pytest.raises(Exception, match="(?i)fenced|epoch"):
        worker.commit_transaction(30)


def test_without_a_leader_the_topics_tell_and_the_job_is_degraded(
    connection: KafkaConnection, config: JobConfig
) -> None:
    leader = Leader(connection, config)
    try:
        heartbeat(leader, config, "e1")
        wait_until(lambda: {"e1"} == owners(leader), deadline_s=10, what="grants")
        commit(connection, config, SspKeyBucket.parse(f"{config.inputs[0]}.0:0/1"), offset_next=4)
    finally:
        leader.stop()

    found = told(connection, config.job)

    status: Mapping[str, list[Mapping[str, object]]] = json.loads(found.stdout)
    assert 6 == found.exit_code
    assert "no leader answers" in str(status["degraded"])
    assert [6, 10] == [task["lag"] for task in status["tasks"]]


def _alive(answer: HeartbeatAnswer | None) -> tuple[bool, int]:
    assert answer is not None
    return answer.alive, answer.term
