"""A job shows why it ended, and why it stands still.

After its end its stream still has the reason: a task's error, a killed process, an unreported end.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from integration_tests.bad_input.kit import Cluster, Job, Message, WarmSpark, ended, unique
from samzapy.adapters.host.end_files import EndFiles
from samzapy.cli.job.group import job as job_command
from samzapy.errors import ExitCode
from samzapy.model.container_end import ContainerEnd
from samzapy.model.topics import coordinator_topic
from samzapy.stream.codec import decode
from samzapy.stream.records import ContainerEndPut, ContainerPut
from samzapy.testing.waiting import wait_until

KEY = b"alice@example.com"


@pytest.fixture
def own_spark(tmp_path: Path) -> Iterator[Callable[[], WarmSpark]]:
    """Starts a JVM for each killed driver, whose session would block the next driver."""
    with ExitStack() as opened:

        def start() -> WarmSpark:
            directory = tmp_path / unique("spark")
            directory.mkdir()
            return opened.enter_context(closing(WarmSpark(directory)))

        yield start


def a_job(cluster: Cluster, directory: Path) -> Job:
    job = Job(cluster=cluster, directory=directory, name=unique("ends"), inputs=(cluster.topic("in"),))
    cluster.make(job.output("answers"))
    return job


def recorded(job: Job) -> Iterator[Any]:
    topic = coordinator_topic(job.full_name)
    return (decode(record, topic=topic) for record in job.cluster.read(topic))


def ends(job: Job) -> list[ContainerEnd]:
    """The ends in the order of the stream."""
    return [record.end for record in recorded(job) if isinstance(record, ContainerEndPut)]


def status(job: Job, output: str) -> str:
    where = ["--job", job.full_name, "--bootstrap-servers", job.cluster.bootstrap_servers]
    return CliRunner().invoke(job_command, ["status", *where, "-o", output]).stdout


def newest_end(job: Job) -> Any:
    return json.loads(status(job, "json"))["containerEnds"][0]


def is_running(job: Job) -> bool:
    if job.cluster.lacks(coordinator_topic(job.full_name)):
        return False
    return any(isinstance(record, ContainerPut) and record.container.phase == "RUNNING" for record in recorded(job))


def test_the_status_of_an_ended_job_names_the_failed_message_but_not_its_key(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = a_job(cluster, tmp_path)
    (topic,) = job.inputs
    cluster.publish(topic, b"good", Message(value=b"raise", key=KEY))

    assert job.run(spark).code == ExitCode.TASK_FAILED
    end = newest_end(job)

    assert (end["exitCode"], end["error"], end["ssp"], end["offset"]) == (7, "ValueError", f"kafka.{topic}.0", 1)
    assert end["taskName"] == f"SystemStreamPartition_kafka.{topic}.0"
    assert hashlib.sha256(KEY).hexdigest().startswith(end["keyDigest"])
    table = status(job, "table")
    assert "ended with exit code 7: task SystemStreamPartition_" in table and KEY.decode() not in table
    on_the_stream = [record.value or b"" for record in cluster.read(coordinator_topic(job.full_name))]
    assert not any(KEY in value for value in on_the_stream)


def test_the_next_start_records_an_unreported_error_and_the_end_of_a_killed_process(
    cluster: Cluster, own_spark: Callable[[], WarmSpark], tmp_path: Path
) -> None:
    """A damaged report is put aside, and the job starts all the same."""
    job = a_job(cluster, tmp_path)
    cluster.publish(job.inputs[0], b"good")
    with job.running(own_spark()) as process:
        wait_until(lambda: is_running(job), 180.0, "the container to run")
        process.send_signal(signal.SIGKILL)
        process.wait()
    unheard = ContainerEnd(
        processor_id="another", execution_id="e-unheard", host="host-a", exit_code=5, error="DeadlineError",
        message="no broker answered", ended_at_ms=1,
    )  # fmt: skip
    files = EndFiles(tmp_path / "state" / job.full_name / ".ends")
    files.write(unheard)
    damaged = tmp_path / "state" / job.full_name / ".ends" / "e-damaged.json"
    damaged.write_text("{")

    with job.running(own_spark()) as process:
        wait_until(lambda: len(ends(job)) == 2, 180.0, "both ends to be recorded")
        wait_until(lambda: not list(damaged.parent.glob("*.json")), 60.0, "the reports to be removed")
        process.send_signal(signal.SIGTERM)
        outcome = ended(process)

    killed = next(end for end in ends(job) if end != unheard)
    assert unheard in ends(job)
    assert (killed.exit_code, killed.error, killed.message) == (-1, "", "process gone, no reason given")
    assert damaged.with_suffix(".damaged").exists()
    assert "is put aside" in outcome.output
    assert "host-a ended with exit code 5: no broker answered" in status(job, "table")


def await_cause(job: Job, cause: str) -> str:
    """Wait until a task stands still for this cause; returns the shown detail."""

    def detail() -> str | None:
        rows = [row["standstill"] for row in json.loads(status(job, "json"))["tasks"] if row["standstill"]]
        return next((row["detail"] for row in rows if row["cause"] == cause), None)

    return wait_until(detail, 120.0, f"the cause {cause}")


def test_another_producers_transaction_and_a_slow_message_are_named_as_causes(
    cluster: Cluster, own_spark: Callable[[], WarmSpark], tmp_path: Path
) -> None:
    job = a_job(cluster, tmp_path)
    (topic,) = job.inputs
    cluster.publish(topic, b"good")
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique("another")}
    another = Producer({**settings, "transaction.timeout.ms": 300_000})
    another.init_transactions(30)
    with job.running(
        own_spark(), {"task.transaction.timeout.ms": "300000", "task.hang.timeout.ms": "600000"}
    ) as process:
        wait_until(lambda: cluster.values(job.output("answers")) == [b"good"], 180.0, "the first message")
        another.begin_transaction()
        another.produce(topic, b"slow 120", b"k", 0)
        assert another.flush(30) == 0

        detail = await_cause(job, "transaction-open")
        assert detail == f"a transaction of another producer is open on kafka.{topic}.0 at offset 1"

        another.commit_transaction(30)
        detail = await_cause(job, "slow-message")
        assert re.fullmatch(rf"one slow message since \d+ s at kafka\.{topic}\.0 offset 1", detail)
        process.send_signal(signal.SIGKILL)
