"""`samzapy doctor` on a broker: no finding in a healthy job, all in a sick one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.election import KafkaElection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.topic_watch import TopicWatch
from samzapy.cli.doctor.command import doctor
from samzapy.cli.job.group import job as job_command
from samzapy.coordinator.commands import InputFound, OwnTopicFound, SubmitJob
from samzapy.coordinator.inputs.topic_checks import topics_of
from samzapy.errors import RejectedError
from samzapy.model.ssp import SystemStream
from samzapy.model.topics import checkpoint_topic, coordinator_topic, intermediate_spec
from samzapy.plan.partitioners import murmur2
from samzapy.stream.codec import encode, headers
from samzapy.stream.log import Write
from samzapy.stream.records import EpochPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

SAMZAPY = Path(sys.executable).with_name("samzapy")


@pytest.fixture
def connection(broker: DevBroker) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=broker.bootstrap_servers)


def examine(connection: KafkaConnection, job: str, *options: str) -> Result:
    return CliRunner().invoke(
        doctor, ["--job", job, "--bootstrap-servers", connection.bootstrap_servers, "--changelogs", *options]
    )


def examining(connection: KafkaConnection, job: str, *options: str) -> subprocess.Popen[str]:
    """The same command in a process of its own, for events while it runs."""
    command = [str(SAMZAPY), "doctor", "--job", job, "--changelogs"]
    return subprocess.Popen(
        [*command, "--bootstrap-servers", connection.bootstrap_servers, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def findings(result: Result) -> list[Mapping[str, str]]:
    assert result.stdout, result.exception
    rows = json.loads(result.stdout)["findings"]
    assert isinstance(rows, list)
    return rows


def a_patient_job(connection: KafkaConnection) -> SmallJob:
    """A job whose container sends one heartbeat and is not lost during the test."""
    return SmallJob(connection, job_container_lease_ms="300000", job_container_lost_ms="600000")


def runs(job: SmallJob, task_count: int = 2) -> None:
    """Until the container e1 has all tasks."""
    # No leader answers while it is being registered.
    wait_until(lambda: job.heartbeat("e1"), 60.0, "an answer to e1")
    wait_until(lambda: len(job.service.status().state.grants) == task_count, 60.0, "all grants")


def set_topic(job: SmallJob, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in job.client.incremental_alter_configs([resource]).values():
        future.result()


def test_a_healthy_job_has_no_finding(connection: KafkaConnection) -> None:
    with a_patient_job(connection) as job:
        runs(job)

        result = examine(connection, job.job, "-o", "json")

        assert findings(result) == []
        assert result.exit_code == 0
        assert examine(connection, job.job).stdout == "nothing is wrong\n"


def test_parts_that_were_not_checked_are_named(connection: KafkaConnection) -> None:
    with a_patient_job(connection) as job:
        runs(job)
        options = ["--job", job.job, "--bootstrap-servers", connection.bootstrap_servers]

        result = CliRunner().invoke(doctor, options)

    assert result.stdout.splitlines() == [
        "nothing is wrong",
        "not looked at: the records of changelogs (ask with --changelogs)",
    ]
    assert result.exit_code == 0


def test_a_job_without_a_leader_is_degraded(connection: KafkaConnection) -> None:
    with SmallJob(connection) as job:
        runs(job)

    result = examine(connection, job.job, "-o", "json")

    rows = findings(result)
    assert [finding["code"] for finding in rows] == ["leader-missing", "container-ghost"]
    assert "no election candidates" in rows[0]["found"]
    assert result.exit_code == 6

    waiting = KafkaElection(connection, job.job, session_ms=6000, heartbeat_ms=500)
    waiting.start()
    wait_until(lambda: waiting.wait(100), 30.0, "the candidate to be elected")
    rows = findings(examine(connection, job.job, "-o", "json"))
    waiting.close()
    assert "1 election candidate" in rows[0]["found"]


def test_all_problems_are_reported_at_once(connection: KafkaConnection) -> None:
    with SmallJob(connection) as job:
        runs(job)
        seq = len(list(job.service._stream.log.read()))
    stream, checkpoints = coordinator_topic(job.job), checkpoint_topic(job.job)
    # A foreign producer writes to the job's own topics,
    foreign = Producer({"bootstrap.servers": connection.bootstrap_servers})
    foreign.produce(stream, key=b"epoch", value=encode(EpochPut(epoch=9))[1])
    foreign.produce(checkpoints, key=b"checkpoint/foreign", value=b"record")
    foreign.produce(checkpoints, key=b"checkpoint/foreign", value=b"record")
    assert foreign.flush(10) == 0
    # a second coordinator takes numbers as it likes,
    log = KafkaLog(connection, stream, "other-producer")
    log.take_over()
    key, value = encode(EpochPut(epoch=9))
    for number in (seq + 4, seq + 4):
        record_headers = headers(term=1, seq=number, event="EpochAdvanced", cause="c", actor="a")
        log.append_atomically([Write(key=key, value=value, headers=record_headers)])
    log.close()
    # a producer leaves a transaction open, which hides all later records,
    hanging = Producer({"bootstrap.servers": connection.bootstrap_servers, "transactional.id": f"{job.job}-foreign"})
    hanging.init_transactions(10)
    hanging.begin_transaction()
    hanging.produce(job.input, b"x", partition=1)
    hanging.produce(stream, b"x", b"epoch", partition=0)
    assert hanging.flush(10) == 0
    # and an operator tidies up.
    set_topic(job, checkpoints, "cleanup.policy", "delete")
    set_topic(job, stream, "max.message.bytes", "1000")
    job.client.delete_records([TopicPartition(checkpoints, 0, 1)])[TopicPartition(checkpoints, 0, 1)].result()

    result = examine(connection, job.job, "--patience", "0", "-o", "json")

    rows = findings(result)
    assert [(finding["severity"], finding["code"], finding["subject"]) for finding in rows] == [
        ("data", "topic-cleanup-policy", f"topic {checkpoints}"),
        ("data", "topic-message-size", f"topic {stream}"),
        ("data", "record-foreign", f"topic {stream}"),
        ("data", "stream-two-writers", f"topic {stream}"),
        ("data", "record-unreadable", f"topic {checkpoints}"),
        ("data", "topic-truncated", f"topic {checkpoints}"),
        ("degraded", "transaction-hanging", f"topic {stream}"),
        ("degraded", "transaction-hanging", f"topic {job.input}"),
        ("degraded", "leader-missing", "term 1"),
        ("degraded", "container-ghost", "container e1"),
    ]
    assert all(finding["remedy"] for finding in rows)
    assert result.exit_code == 8
    # A transaction may be open for a while.
    table = examine(connection, job.job).stdout.splitlines()
    assert [line.split()[1] for line in table[1:]] == [
        finding["code"] for finding in rows if finding["code"] != "transaction-hanging"
    ]
    hanging.abort_transaction(10)


class TwoSteps(SmallJob):
    """A job with the intermediate stream `by_key`."""

    def __init__(self, connection: KafkaConnection) -> None:
        super().__init__(
            connection,
            job_container_lease_ms="300000",
            job_container_lost_ms="600000",
            task_intermediate_by__key_partitions="2",
        )
        (self.stream,) = self.config.intermediates

    def submission(self) -> SubmitJob:
        handed_in = super().submission()
        created = self.admin.ensure_topic(intermediate_spec(self.stream, None))
        topic, count = self.stream.topic, self.stream.partition_count
        return replace(
            handed_in,
            inputs=(
                *handed_in.inputs,
                InputFound(
                    system_stream=SystemStream("kafka", topic), partition_count=count, topic_id=created.topic_id
                ),
            ),
            own_topics=(
                *handed_in.own_topics,
                OwnTopicFound(name=topic, topic_id=created.topic_id, partition_count=count),
            ),
        )


def test_a_message_of_another_program_on_an_intermediate_stream_is_listed(connection: KafkaConnection) -> None:
    with TwoSteps(connection) as job:
        runs(job, task_count=4)
        topic = job.stream.topic
        keys = [b"LHR", b"JFK", b"CDG", b"FRA"]
        # The producer of a step, and one of another program.
        step = Producer({"bootstrap.servers": connection.bootstrap_servers, "partitioner": "murmur2_random"})
        for key in keys:
            step.produce(topic, b"1", key)
        assert step.flush(10) == 0
        assert findings(examine(connection, job.job, "--intermediates", "-o", "json")) == []

        other = Producer({"bootstrap.servers": connection.bootstrap_servers})
        other.produce(topic, b"1", partition=0)
        other.produce(topic, b"1", b"LHR", partition=1 - murmur2(b"LHR") % 2)
        assert other.flush(10) == 0

        result = examine(connection, job.job, "--intermediates", "-o", "json")

        rows = [row for row in findings(result) if row["severity"] == "data"]
        assert {("record-foreign", f"topic {topic}")} == {(row["code"], row["subject"]) for row in rows}
        text = " ".join(row["found"] for row in rows)
        assert "wanted a key, found none" in text
        assert ("wanted the key LHR in partition" in text) or ("the first of 2" in text)
        assert result.exit_code == 8
        not_read = json.loads(examine(connection, job.job, "-o", "json").stdout)["notLookedAt"]
        assert not_read == ["the records of intermediate streams (ask with --intermediates)"]


def test_a_transaction_with_times_of_long_ago_hangs_only_if_it_stays_open(connection: KafkaConnection) -> None:
    with a_patient_job(connection) as job:
        # The broker would delete a record of that time within seconds, and its transaction with it.
        set_topic(job, job.input, "retention.ms", "-1")
        runs(job)
        producer = Producer(
            {"bootstrap.servers": connection.bootstrap_servers, "transactional.id": f"{job.job}-events"}
        )
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(job.input, b"x", partition=0, timestamp=1_700_000_000_000)
        assert producer.flush(10) == 0

        with examining(connection, job.job, "--patience", "60", "-o", "json") as waiting:
            assert waiting.stdout is not None
            assert waiting.stderr is not None
            # The transaction ends while the command waits for it, and then the command ends too.
            assert "1 transactions of unknown age are open" in waiting.stderr.readline()
            producer.commit_transaction(10)
            assert json.loads(waiting.stdout.read())["findings"] == []

        producer.begin_transaction()
        producer.produce(job.input, b"x", partition=0, timestamp=1_700_000_000_000)
        assert producer.flush(10) == 0
        (finding,) = findings(examine(connection, job.job, "--patience", "1", "-o", "json"))
        producer.abort_transaction(10)
    assert (finding["code"], finding["subject"]) == ("transaction-hanging", f"topic {job.input}")


@pytest.mark.parametrize("left", [0, 3])
def test_a_stream_whose_records_were_deleted_is_no_job_that_never_ran(connection: KafkaConnection, left: int) -> None:
    with SmallJob(connection) as job:
        runs(job)
    stream = coordinator_topic(job.job)
    end = len(list(job.service._stream.log.read()))
    place = TopicPartition(stream, 0, -1 if left == 0 else end - left)
    # A broker deletes no records of a topic that is compacted only: its policy was changed for a while.
    set_topic(job, stream, "cleanup.policy", "delete")
    job.client.delete_records([place])[place].result()
    set_topic(job, stream, "cleanup.policy", "compact")

    result = examine(connection, job.job, "-o", "json")

    # One finding covers the deleted records: nothing else is known to be complete.
    assert [finding["code"] for finding in findings(result) if finding["severity"] == "data"] == ["topic-truncated"]
    assert result.exit_code == 8
    options = ["status", "--job", job.job, "--bootstrap-servers", connection.bootstrap_servers]
    assert "samzapy doctor" in str(CliRunner().invoke(job_command, options).exception)


def test_a_job_that_only_has_its_topics_never_ran(connection: KafkaConnection) -> None:
    job = SmallJob(connection)
    job.submission()

    error = examine(connection, job.job).exception

    assert isinstance(error, RejectedError)
    assert "it never ran" in str(error)


def test_a_finding_of_the_leader_makes_the_job_s_status_degraded(connection: KafkaConnection) -> None:
    with a_patient_job(connection) as job:
        runs(job)
        checkpoints = checkpoint_topic(job.job)
        set_topic(job, checkpoints, "min.insync.replicas", "2")
        watch = TopicWatch(
            job.admin, names=lambda: topics_of(job.service.status().state), put=job.commands.put, interval_ms=1_000
        )
        watch.start()
        wait_until(lambda: job.service.status().findings, 60.0, "the leader to find it")
        options = ["status", "--job", job.job, "--bootstrap-servers", connection.bootstrap_servers, "-o", "json"]

        result = CliRunner().invoke(job_command, options)

        status = json.loads(result.stdout)
        assert [(finding["code"], finding["subject"]) for finding in status["findings"]] == [
            ("topic-min-isr", f"topic {checkpoints}")
        ]
        assert [reason.partition(":")[0] for reason in status["degraded"]] == ["topic-min-isr"]
        assert result.exit_code == 6
        set_topic(job, checkpoints, "min.insync.replicas", "1")
        wait_until(lambda: not job.service.status().findings, 60.0, "the finding to go")
        watch.close()


def test_a_recreated_input_and_a_missing_stream_are_reported(connection: KafkaConnection) -> None:
    with a_patient_job(connection) as job:
        runs(job)
        job.client.delete_topics([job.input])[job.input].result()
        wait_until(lambda: not job.admin.find([job.input]), 60.0, "the input to be deleted")

        assert [finding["code"] for finding in findings(examine(connection, job.job, "-o", "json"))] == [
            "topic-missing"
        ]

    stream = coordinator_topic(job.job)
    job.client.delete_topics([stream])[stream].result()
    wait_until(lambda: not job.admin.find([stream]), 60.0, "the stream to be deleted")
    assert [finding["subject"] for finding in findings(examine(connection, job.job, "-o", "json"))] == [
        f"topic {stream}"
    ]


def test_an_unknown_job_is_rejected(connection: KafkaConnection) -> None:
    assert isinstance(examine(connection, "absent-1").exception, RejectedError)


def test_a_cluster_that_is_not_there_is_a_finding() -> None:
    result = examine(KafkaConnection(bootstrap_servers="127.0.0.1:1"), "any-1", "-o", "json", "--timeout", "1")

    assert [finding["code"] for finding in findings(result)] == ["cluster-unreachable"]
    assert result.exit_code == 6
