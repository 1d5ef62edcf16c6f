"""`samzapy stream replay` lists all records, unreadable ones too, and writes none."""

from __future__ import annotations

import json
import uuid

import pytest
from click.testing import CliRunner, Result

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.cli.stream.group import stream
from samzapy.errors import CorruptRecordError
from samzapy.model.ssp import SystemStream
from samzapy.model.topics import coordinator_spec, coordinator_topic
from samzapy.stream.codec import encode, headers
from samzapy.stream.log import Write
from samzapy.stream.records import ConfigPut, InputPut, Record, Removed
from samzapy.testing.broker import DevBroker


@pytest.fixture
def connection(broker: DevBroker) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def job(connection: KafkaConnection) -> str:
    job = f"replayed{uuid.uuid4().hex[:8]}-1"
    KafkaAdmin(connection).ensure_topic(coordinator_spec(job))
    return job


def input_of(partition_count: int) -> InputPut:
    return InputPut(
        system_stream=SystemStream.parse("kafka.page.views"),
        partition_count=partition_count,
        partition_count_first=4,
        topic_id="id",
    )


def wrote(record: Record, seq: int, event: str) -> Write:
    key, value = encode(record)
    return Write(key=key, value=value, headers=headers(term=3, seq=seq, event=event, cause="cmd-9", actor="ann"))


def write(connection: KafkaConnection, job: str, *writes: Write) -> None:
    log = KafkaLog(connection, coordinator_topic(job), f"samzapy-coordinator/{job}")
    log.take_over()
    log.append_atomically(writes)
    log.close()


def replay(connection: KafkaConnection, job: str, output: str) -> Result:
    arguments = ["replay", "--job", job, "--bootstrap-servers", connection.bootstrap_servers, "-o", output]
    return CliRunner().invoke(stream, arguments)


def test_each_record_is_shown_with_its_change_and_its_cause(connection: KafkaConnection, job: str) -> None:
    write(
        connection,
        job,
        wrote(input_of(4), 0, "InputRecorded"),
        wrote(input_of(8), 1, "InputExpanded"),
        wrote(Removed(key="input/kafka.page.views"), 2, "InputRemoved"),
    )

    result = replay(connection, job, "jsonl")

    assert result.exit_code == 0
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert [entry["event"] for entry in shown] == ["InputRecorded", "InputExpanded", "InputRemoved"]
    assert [entry["offset"] for entry in shown] == [0, 1, 2]
    assert shown[1]["before"]["partition_count"] == 4
    assert shown[1]["after"]["partition_count"] == 8
    assert (shown[1]["term"], shown[1]["seq"], shown[1]["cause"], shown[1]["actor"]) == (3, 1, "cmd-9", "ann")
    assert shown[2]["after"] is None
    assert json.loads(replay(connection, job, "json").stdout) == shown
    table = replay(connection, job, "table").stdout
    assert "partition_count 4 -> 8" in table
    assert len(table.splitlines()) == 4


def test_an_empty_stream_is_no_error(connection: KafkaConnection, job: str) -> None:
    assert (replay(connection, job, "json").exit_code, replay(connection, job, "json").stdout) == (0, "[]\n")


def test_unreadable_records_are_listed_with_the_others_and_the_command_ends_with_8(
    connection: KafkaConnection, job: str
) -> None:
    write(
        connection,
        job,
        wrote(input_of(4), 0, "InputRecorded"),
        Write(key=b"input/kafka.x", value=b"\xc3\x01junk"),
        Write(key=b"\xff", value=b"{}"),
        Write(key=b"epoch", value=b"\xc3\x01" + bytes(9)),
        wrote(input_of(8), 1, "InputExpanded"),
    )

    result = replay(connection, job, "jsonl")

    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert [entry.get("event") for entry in shown] == ["InputRecorded", None, None, None, "InputExpanded"]
    assert "offset 1" in shown[1]["error"]
    assert "newer release" in shown[3]["error"]
    assert isinstance(result.exception, CorruptRecordError)
    assert result.exception.exit_code == 8
    assert "3 record(s)" in str(result.exception)
    assert "CANNOT BE READ" in replay(connection, job, "table").stdout


def test_a_terminal_is_not_commanded_from_a_topic(connection: KafkaConnection, job: str) -> None:
    hostile = "\x1b[2J[red]hello[/red]"
    write(connection, job, wrote(ConfigPut(config_key="a", value=hostile), 0, "ConfigSet"))

    shown = replay(connection, job, "table").stdout

    assert "\x1b" not in shown
    assert "\\x1b[2J[red]hello[/red]" in shown


def test_a_job_that_is_not_there_is_named(connection: KafkaConnection) -> None:
    result = replay(connection, "no-such-job-1", "table")

    assert "__samzapy-coordinator-no-such-job-1" in str(result.exception)
