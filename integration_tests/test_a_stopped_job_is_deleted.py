"""`samzapy job describe`, `delete` and `reset` on a real broker, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.lag_group import KafkaLagGroup
from samzapy.cli.main import samzapy
from samzapy.errors import RejectedError
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.topics import checkpoint_topic, coordinator_topic, placement_topic
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker


@pytest.fixture
def connection(broker: DevBroker | ContainerBroker) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=broker.bootstrap_servers)


def run(job: SmallJob, directory: Path, *arguments: str) -> Result:
    file = directory / "small.properties"
    settings = {**job.config.properties, "local.store.dir": str(directory / "state")}
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return CliRunner().invoke(samzapy, [*arguments, "--config", str(file)])


def topics(job: SmallJob) -> Sequence[str]:
    own = (coordinator_topic(job.job), checkpoint_topic(job.job), placement_topic(job.job), job.input)
    return [*job.admin.find(own)]


def groups(job: SmallJob) -> Sequence[str]:
    listed = job.client.list_consumer_groups(request_timeout=20).result()
    return [group.group_id for group in listed.valid if job.job in group.group_id]


def test_a_job_is_described_refused_while_it_runs_reset_and_deleted(
    connection: KafkaConnection, tmp_path: Path
) -> None:
    with SmallJob(connection) as job:
        described = run(job, tmp_path, "job", "describe", "-o", "json")
        running = run(job, tmp_path, "job", "delete", "--yes")
    state = tmp_path / "state" / job.job
    state.mkdir(parents=True)
    KafkaLagGroup(connection, f"samzapy-{job.job}").commit({SystemStreamPartition("kafka", job.input, 0): 0})

    shown = json.loads(described.stdout)
    assert (job.job, 1) == (shown["job"], shown["term"])
    assert isinstance(running.exception, RejectedError) and "found its coordinator" in str(running.exception)
    assert 4 == len(topics(job)) and [f"samzapy-{job.job}"] == groups(job)

    unasked = run(job, tmp_path, "job", "reset")
    assert isinstance(unasked.exception, RejectedError) and "--yes" in str(unasked.exception)
    assert coordinator_topic(job.job) in unasked.stdout and str(state) in unasked.stdout
    assert 4 == len(topics(job)) and state.is_dir()

    reset = run(job, tmp_path, "job", "reset", "--yes", "-o", "json")
    assert 0 == reset.exit_code, reset.exception
    assert {placement_topic(job.job), job.input} == set(topics(job))
    assert [] == groups(job) and not state.exists()

    with SmallJob(connection, before=job) as again:
        assert 1 == json.loads(run(again, tmp_path, "job", "describe", "-o", "json").stdout)["term"]
    deleted = run(again, tmp_path, "job", "delete", "--yes")
    assert 0 == deleted.exit_code, deleted.exception
    assert [job.input] == topics(job)
