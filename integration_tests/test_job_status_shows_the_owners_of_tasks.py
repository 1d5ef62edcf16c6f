"""`samzapy job status` with a coordinator on a broker, and containers by HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from integration_tests.small_job import SmallJob, heartbeat_from_elsewhere
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.web.client import HeartbeatAnswer
from samzapy.cli.job.group import job as job_command
from samzapy.coordinator.commands import Figures
from samzapy.errors import RejectedError
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import slot_transactional_id
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import checkpoint_topic
from samzapy.stream.codec import encode
from samzapy.stream.records import CheckpointPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until


@pytest.fixture
def connection(broker: DevBroker) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=broker.bootstrap_servers)


def a_job(connection: KafkaConnection, lease_ms: int, lost_ms: int) -> SmallJob:
    """One whose two input partitions hold ten records each."""
    small_job = SmallJob(
        connection,
        job_container_heartbeat_ms="200",
        job_container_lease_ms=str(lease_ms),
        job_container_lost_ms=str(lost_ms),
    )
    producer = Producer({"bootstrap.servers": connection.bootstrap_servers})
    for number in range(20):
        producer.produce(small_job.input, str(number), partition=number % 2)
    assert 0 == producer.flush(30)
    return small_job


@pytest.fixture
def job(connection: KafkaConnection) -> SmallJob:
    """Its container may be silent for a minute: in most tests it speaks once."""
    return a_job(connection, lease_ms=60_000, lost_ms=70_000)


@pytest.fixture
def led(job: SmallJob) -> Iterator[SmallJob]:
    with job:
        yield job


@pytest.fixture
def led_with_a_short_lease(connection: KafkaConnection) -> Iterator[SmallJob]:
    with a_job(connection, lease_ms=15_000, lost_ms=16_000) as small_job:
        yield small_job


def show_status(connection: KafkaConnection, job: str, output: str = "json") -> Result:
    return CliRunner().invoke(
        job_command, ["status", "--job", job, "--bootstrap-servers", connection.bootstrap_servers, "-o", output]
    )


def owners(job: SmallJob) -> list[str]:
    """Of each task that is granted."""
    return [grant.execution_id for grant in job.service.status().state.grants.values()]


def wait_for_grants(job: SmallJob) -> None:
    """Until e1 has both tasks."""
    # No leader answers while it is being registered.
    answer = wait_until(lambda: job.heartbeat("e1"), 60, "an answer to e1")
    assert (True, 1) == _alive(answer)
    wait_until(lambda: ["e1", "e1"] == owners(job), 60, "two grants")


def commit(connection: KafkaConnection, job: SmallJob, ssp_kb: SspKeyBucket, offset_next: int) -> Producer:
    """Commit as a worker of e1 does, in slot 0; its producer stays open."""
    producer = Producer(
        {
            "bootstrap.servers": connection.bootstrap_servers,
            "transactional.id": slot_transactional_id(job.job, ExecutionId("e1"), 0),
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
    producer.produce(checkpoint_topic(job.job), key=key, value=value)
    producer.commit_transaction(30)
    return producer


def test_an_unknown_job_is_rejected(connection: KafkaConnection) -> None:
    result = show_status(connection, "absent-1")

    assert isinstance(result.exception, RejectedError)
    assert "absent-1" in str(result.exception)


def test_the_leader_shows_the_owner_of_each_task(connection: KafkaConnection, led: SmallJob) -> None:
    ownerless = show_status(connection, led.job)
    assert 6 == ownerless.exit_code
    assert ["nothing is planned"] == [reason.partition(":")[0] for reason in json.loads(ownerless.stdout)["degraded"]]

    wait_for_grants(led)
    result = show_status(connection, led.job)

    status = json.loads(result.stdout)
    assert 0 == result.exit_code, status["degraded"]
    assert ["e1", "e1"] == [task["owner"] for task in status["tasks"]]
    assert [0, 0] == [task["positions"][0]["offsetNext"] for task in status["tasks"]]
    assert led.url == status["leader"]
    assert "RUNNING" in show_status(connection, led.job, "table").stdout


@contextmanager
def busy(job: SmallJob) -> Iterator[None]:
    """Meanwhile e1 reports 100 records/s in one task, busy for 0.9 of its batches."""
    ended = threading.Event()
    task, ssp = f"SystemStreamPartition_{job.config.inputs[0]}.0", f"{job.config.inputs[0]}.0:0/1"

    def go_on() -> None:
        for tenths in count(1):
            figures = {
                "atMs": 100 * tenths,
                "batchNs": 10**8 * tenths,
                "positions": {ssp: {"offsetNext": tenths, "offsetEnd": 10**6, "recordsIn": 10 * tenths}},
                "tasks": {task: {"busyNs": 9 * 10**7 * tenths, "keysSampled": 10, "keys": {"hot": 8}}},
            }
            heartbeat_from_elsewhere(job.url, job.job, "e1", figures=figures)
            if ended.wait(0.1):
                return

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_top_shows_current_rates_and_metrics_show_sums(connection: KafkaConnection, led: SmallJob) -> None:
    wait_for_grants(led)
    command = ["top", "--job", led.job, "--bootstrap-servers", connection.bootstrap_servers, "--interval", "5"]

    with busy(led):
        wait_until(lambda: _figures(led).tasks, deadline_s=60, what="figures")
        programs = CliRunner().invoke(job_command, [*command, "-o", "json"])
        people = CliRunner().invoke(job_command, command)
        with urlopen(f"{led.url}/metrics", timeout=10) as response:
            scraped = response.read().decode()

    top = json.loads(programs.stdout)
    (busy_task,) = [task for task in top["tasks"] if task["batchShare"] is not None]
    assert (0, 0) == (programs.exit_code, people.exit_code)
    assert pytest.approx(100) == busy_task["recordsPerS"]
    assert pytest.approx(0.9) == busy_task["batchShare"]
    assert ("hot", 0.8) == (busy_task["busiestKey"], busy_task["busiestKeyShare"])
    assert ["hot 80%", "90%"] == [cell for cell in ("hot 80%", "90%") if cell in people.stdout]
    assert f'samzapy_task_busy_seconds_total{{job="{led.job}",processor="0",task="{busy_task["task"]}"}}' in scraped


def test_a_lost_container_is_fenced_and_its_successor_begins_at_its_checkpoint(
    connection: KafkaConnection, led_with_a_short_lease: SmallJob
) -> None:
    led = led_with_a_short_lease
    wait_for_grants(led)
    ssp_kb = SspKeyBucket.parse(f"{led.config.inputs[0]}.0:0/1")
    worker = commit(connection, led, ssp_kb, offset_next=4)
    worker.begin_transaction()

    def successor_runs() -> bool:
        led.heartbeat("e2")
        return ["e2", "e2"] == owners(led)

    wait_until(successor_runs, deadline_s=60, what="the successor's grants")

    # A zombie lists its grants; without a list it would be a new execution.
    assert (False, 1) == _alive(
        led.heartbeat("e1", held=[{"task": f"SystemStreamPartition_{ssp_kb.ssp}", "epoch": 1}])
    )
    starts = {
        start.ssp_kb: start.offset_next
        for grant in led.service.status().state.grants.values()
        for start in grant.starts
    }
    assert 4 == starts[ssp_kb]
    worker.produce(checkpoint_topic(led.job), key=b"late", value=b"late")
    with pytest.raises(Exception, match="(?i)fenced|epoch"):
        worker.commit_transaction(30)


def test_without_a_leader_status_comes_from_the_topics_and_is_degraded(
    connection: KafkaConnection, job: SmallJob
) -> None:
    with job:
        wait_for_grants(job)
        commit(connection, job, SspKeyBucket.parse(f"{job.config.inputs[0]}.0:0/1"), offset_next=4)

    result = show_status(connection, job.job)

    status: Mapping[str, list[Mapping[str, object]]] = json.loads(result.stdout)
    assert 6 == result.exit_code
    assert "no leader answers" in str(status["degraded"])
    assert [6, 10] == [task["lag"] for task in status["tasks"]]


def _figures(job: SmallJob) -> Figures:
    """The last figures of e1."""
    sighting = job.service.status().liveness.last.get(ExecutionId("e1"))
    return Figures() if sighting is None else sighting.figures


def _alive(answer: HeartbeatAnswer | None) -> tuple[bool, int]:
    assert answer is not None
    return answer.alive, answer.term
