"""The audit commands on the stream of a real job with failovers and rebalances.

It runs the examples of docs/guides/audit.md.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.main import samzapy
from samzapy.model.topics import coordinator_topic
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until
from unit_tests.fixtures import independent_fold
from unit_tests.fixtures.audited_stream import check_states

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guides" / "audit.md"
AT_ONCE = {"job_debounce_time_ms": "0"}
TASK_OF_THE_PAGE = "SystemStreamPartition_kafka.flights.0"


@pytest.fixture
def job(broker: DevBroker) -> SmallJob:
    """A job after two coordinators, whose tasks moved from one processor to two."""
    with SmallJob(KafkaConnection(bootstrap_servers=broker.bootstrap_servers), **AT_ONCE) as first:
        first.heartbeat("e1")
        wait_until(lambda: len(first.service.status().state.grants) == 2, 60.0, "two grants")
    with led_again(first) as second:
        wait_until(lambda: _has_two_members(second), 60.0, "two processors in one plan")
    return second


def led_again(job: SmallJob) -> SmallJob:
    return SmallJob(job.connection, job, **AT_ONCE)


def _has_two_members(job: SmallJob) -> bool:
    job.heartbeat("e1")
    job.heartbeat("e2", processor_id="1")
    generation = job.service.status().state.generation
    return generation is not None and len(generation.processor_ids) == 2


def run(*arguments: str) -> str:
    result = CliRunner().invoke(samzapy, list(arguments))
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return result.stdout


def of(job: SmallJob) -> Sequence[str]:
    return ["--job", job.job, "--bootstrap-servers", job.connection.bootstrap_servers]


def test_the_state_at_any_moment_is_the_one_of_an_independent_fold(job: SmallJob, tmp_path: Path) -> None:
    file = tmp_path / "stream.avro"
    run("stream", "export", *of(job), str(file))

    check_states(file, 100, Random(1))

    records = independent_fold.records_in(file)
    last = independent_fold.moment(records, records[-1][0])
    assert 2 <= last["records"]["term"]["term"]["term"]
    assert 2 <= last["job_model"]["generation"]
    assert last == {
        name: value
        for name, value in json.loads(run("stream", "state", *of(job), "-o", "json")).items()
        if name in last
    }
    assert "[]\n" == run("stream", "verify", *of(job), "-o", "json")
    assert run("stream", "replay", *of(job)) == run("stream", "replay", "--from", str(file))


def test_the_examples_of_the_page_run(job: SmallJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flights.properties").write_text(
        f"job.name={job.config.job_name}\ntask.inputs=kafka.{job.input}\n"
        f"systems.kafka.bootstrap.servers={job.connection.bootstrap_servers}\n"
    )
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(bash|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = [line for language, block in blocks if language == "bash" for line in block.splitlines()]

    for command in commands:
        arguments = shlex.split(
            command.replace(TASK_OF_THE_PAGE, f"SystemStreamPartition_kafka.{job.input}.0"), comments=True
        )
        assert "samzapy" == arguments[0]
        if "--follow" not in arguments:
            run(*arguments[1:])

    assert len(commands) > 15
    (example,) = [block for language, block in blocks if language == "python" and "import samzapy" not in block]
    printed = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True).stdout
    assert len(run("stream", "replay", "--from", "flights.avro", "-o", "jsonl").splitlines()) == len(
        printed.splitlines()
    )
    assert "'task_name': " in printed


@pytest.mark.timeout(600)
def test_new_records_are_followed_until_ctrl_c(job: SmallJob) -> None:
    program = "import sys; from samzapy.cli.main import main; sys.exit(main())"
    command = [
        sys.executable,
        "-c",
        program,
        "stream",
        "replay",
        *of(job),
        "--follow",
        "--key",
        "term",
        "-o",
        "jsonl",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert [1, 2] == [json.loads(follower.stdout.readline())["term"] for _ in range(2)]

        with led_again(job):
            assert 3 == json.loads(follower.stdout.readline())["term"]

        follower.send_signal(signal.SIGINT)
        assert 0 == follower.wait(30)


def test_a_foreign_record_is_named_and_nothing_was_written_by_looking(job: SmallJob) -> None:
    topic = coordinator_topic(job.job)
    end = json.loads(run("stream", "state", *of(job), "-o", "json"))["offset"]
    foreign = Producer({"bootstrap.servers": job.connection.bootstrap_servers})
    foreign.produce(topic, key=b"epoch", value=b"mine")
    assert foreign.flush(10) == 0

    result = CliRunner().invoke(samzapy, ["stream", "verify", *of(job), "-o", "jsonl"])

    (row,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert 8 == result.exit_code
    assert "record-unreadable" == row["code"]
    # The marker of the last transaction is between the two.
    assert end + 2 == row["offset"]
    assert not [group for group in job.client.list_consumer_groups().result().valid if job.job in group.group_id]
