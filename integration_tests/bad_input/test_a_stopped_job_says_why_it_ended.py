"""A job shows why it ended, and why it stands still.

After its end its stream still has the reason: a task's error, a killed process, an unreported end.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from integration_tests.bad_input.kit import Cluster, Job, Message, WarmSpark, ended, unique
from integration_tests.candidates import CandidateProcess
from samzapy.adapters.host.end_files import EndFiles
from samzapy.cli.job.group import job as job_command
from samzapy.errors import ExitCode
from samzapy.model.container_end import ContainerEnd
from samzapy.model.slow_message import SLOW_MS
from samzapy.model.topics import (
    checkpoint_spec,
    checkpoint_topic,
    coordinator_spec,
    coordinator_topic,
    placement_spec,
)
from samzapy.stream.codec import decode
from samzapy.stream.records import ContainerEndPut, ContainerPut
from samzapy.stream.unheard_end import unheard_end_of
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


class StatelessJob(Job):
    """A job without a local directory, led by a process of its own."""

    SLOW_ELECTION: ClassVar = {
        "job.coordinator.election.session.ms": "30000",
        "job.container.lease.ms": "60000",
        "job.container.lost.ms": "90000",
    }

    def overrides(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        named = super().overrides({**self.SLOW_ELECTION, **(settings or {})})
        del named["local.store.dir"]
        return named

    @contextmanager
    def led(self, settings: Mapping[str, str] | None = None) -> Iterator[CandidateProcess]:
        named = {"job.default.system": "kafka", **self.overrides(settings)}
        underscored = {name.replace("_", "__").replace(".", "_"): value for name, value in named.items()}
        del underscored["job_name"], underscored["task_inputs"]
        leader = CandidateProcess(self.cluster.bootstrap_servers, self.name, self.inputs[0], underscored)
        try:
            wait_until(leader.leads, 60.0, "the candidate to lead")
            yield leader
        finally:
            leader.forget()


def reports_left(job: Job) -> list[ContainerEnd | None]:
    """The reports on the checkpoint topic, in order; None for a removed one."""
    topic = checkpoint_topic(job.full_name)
    of_containers = [record for record in job.cluster.read(topic) if (record.key or b"").startswith(b"container/")]
    return [unheard_end_of(decode(record, topic=topic)) for record in of_containers]


def test_a_stateless_container_that_ends_without_a_leader_is_explained_by_the_next_one(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = StatelessJob(cluster=cluster, directory=tmp_path, name=unique("ends"), inputs=(cluster.topic("in"),))
    cluster.make(job.output("answers"))
    for spec in (coordinator_spec, checkpoint_spec, placement_spec):
        cluster.make_own(spec(job.full_name))
    (topic,) = job.inputs
    cluster.publish(topic, b"good")
    with job.led() as leader, job.running(spark) as process:
        wait_until(lambda: cluster.values(job.output("answers")) == [b"good"], 180.0, "the first message")
        leader.kill()
        cluster.publish(topic, Message(value=b"raise", key=KEY))
        outcome = ended(process)
    assert outcome.code == ExitCode.TASK_FAILED, outcome.output
    assert ends(job) == []
    (left,) = reports_left(job)
    assert left is not None and (left.error, left.ssp, left.offset) == ("ValueError", f"kafka.{topic}.0", 1)

    skips = {"task.error.policy": "dead-letter", "task.dead.letter.output": f"kafka.{cluster.topic('dead')}"}
    with job.led(skips), job.running(spark, skips) as process:
        wait_until(lambda: reports_left(job) == [left, None], 180.0, "the report to be removed")
        shown = status(job, "table")
        process.send_signal(signal.SIGTERM)
        assert ended(process).code == ExitCode.OK
    # The next leader on the same host first finds the process gone.
    assert ends(job)[-1] == left
    assert f"container {left.execution_id} on {left.host} ended with exit code 7: " in shown
    assert "the message asked for it" in shown and KEY.decode() not in shown


def await_cause(job: Job, cause: str) -> str:
    """Wait until a task stands still for this cause; returns the shown detail."""

    def detail() -> str | None:
        rows = [row["standstill"] for row in json.loads(status(job, "json"))["tasks"] if row["standstill"]]
        return next((row["detail"] for row in rows if row["cause"] == cause), None)

    return wait_until(detail, 120.0, f"the cause {cause}")


def busy_ns(job: Job) -> int:
    """The busy time of the job's tasks, as its status has it."""
    return sum((row["figures"] or {}).get("busyNs", 0) for row in json.loads(status(job, "json"))["tasks"])


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
        wait_until(lambda: busy_ns(job) > SLOW_MS * 1_000_000, 60.0, "the cost of the message in hand")
        process.send_signal(signal.SIGKILL)
