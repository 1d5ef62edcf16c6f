"""One task of a job that runs is rewound: its messages come again, once and in order, on top of its state; the others
of the same query go on where they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.job import job as job_command
from samzapy.cli.job_address import JobAddress
from samzapy.cli.requests import recorded_state
from samzapy.coordinator.grants import newest_grants
from samzapy.coordinator.state import CoordinatorState
from samzapy.testing.broker import DevBroker
from samzapy.testing.job_process import JobProcess
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

JOB_FILE = Path(__file__).parent / "jobs" / "running_sums.py"
JOB, INPUT, OUTPUT = "running-sums-1", "fed", "sums"
PARTITIONS, EACH, KEYS = 4, 60, 5
REWOUND = 1
_WITHIN_S = 240.0


class Out(NamedTuple):
    """An output: where its message stood, and the sum of its key behind it."""

    partition: int
    offset: int
    key: str
    sum: int


class Reader:
    """Follows the output, read_committed."""

    def __init__(self, servers: str) -> None:
        self._found: list[Out] = []
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(OUTPUT, 0, 0)])

    def read(self) -> Sequence[Out]:
        for message in self._consumer.consume(1000, 0.2):
            error = message.error()
            assert error is None or error.code() == KafkaError._ALL_BROKERS_DOWN or error.retriable(), error
            if error is None:
                self._found.append(_out(message))
        return self._found

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.timeout(600)
def test_the_messages_of_a_task_that_is_rewound_come_again_once_in_order_and_nobody_else_s_do(
    own_broker: DevBroker, tmp_path: Path
) -> None:
    servers = own_broker.bootstrap_servers
    _feed(servers)
    settings = {"systems.kafka.bootstrap.servers": servers, "local.store.dir": str(tmp_path / "state")}
    job, reader = JobProcess(JOB_FILE, log_dir=tmp_path / "job", overrides=settings), Reader(servers)
    with job:
        job.start()
        _wait(job, lambda: len(reader.read()) >= PARTITIONS * EACH, "every message to come out")
        before = _state(servers)
        task = next(planned.task_name for planned in before.plan if planned.ssp_kbs[0].ssp.partition == REWOUND)

        (move,) = json.loads(_asked(servers, "--task", task, "--to", "oldest", "--plan", "-o", "json"))
        assert {
            "task": task,
            "position": f"kafka.{INPUT}.{REWOUND}:0/1",
            "from": EACH,
            "to": 0,
            "again": EACH,
            "skipped": 0,
        } == move
        assert "SUCCEEDED" in _asked(servers, "--task", task, "--to", "oldest")
        _wait(job, lambda: len(reader.read()) >= (PARTITIONS + 1) * EACH, "the messages to come again")
        # And on to a place in the middle.
        assert "SUCCEEDED" in _asked(servers, "--partition", str(REWOUND), "--to", str(EACH - KEYS))
        _wait(job, lambda: len(reader.read()) >= (PARTITIONS + 1) * EACH + KEYS, "the last ones to come once more")

        after = _state(servers)
        assert job.terminate() == 0, job.log_text()[-4000:]
        found = list(reader.read())
    reader.close()

    first, again = found[: PARTITIONS * EACH], found[PARTITIONS * EACH :]
    places = [(REWOUND, offset) for offset in (*range(EACH), *range(EACH - KEYS, EACH))]
    assert places == [(out.partition, out.offset) for out in again]
    assert sorted((partition, offset) for partition in range(PARTITIONS) for offset in range(EACH)) == sorted(
        (out.partition, out.offset) for out in first
    )
    # State was left as it was: each sum goes on from where it stood.
    sums: dict[str, int] = {}
    for out in found:
        sums[out.key] = sums.get(out.key, 0) + 1
        assert sums[out.key] == out.sum, out
    assert "local state is rebuilt" not in job.all_log_text()
    assert {name: grant for name, grant in newest_grants(before).items() if name != task} == {
        name: grant for name, grant in newest_grants(after).items() if name != task
    }


def _feed(servers: str) -> None:
    make_topics(servers, {INPUT: PARTITIONS, OUTPUT: 1, "without-key": 1})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(EACH):
        for partition in range(PARTITIONS):
            producer.produce(INPUT, json.dumps({"x": 1}), f"{partition}-{number % KEYS}", partition)
    assert 0 == producer.flush(30)


def _out(message: Any) -> Out:
    _, partition, offset = dict(message.headers())["src"].decode().split("-")
    return Out(int(partition), int(offset), message.key().decode(), json.loads(message.value())["sum"])


def _asked(servers: str, *arguments: str) -> str:
    address = ["--job", JOB, "--bootstrap-servers", servers, "--stream", f"kafka.{INPUT}"]
    result = CliRunner().invoke(job_command, ["rewind", *address, *arguments])
    assert result.exit_code == 0, result.exception
    return result.stdout


def _state(servers: str) -> CoordinatorState:
    return recorded_state(JobAddress(job=JOB, connection=KafkaConnection(bootstrap_servers=servers)))


def _wait(job: JobProcess, condition: Any, what: str) -> None:
    try:
        wait_until(condition, _WITHIN_S, what)
    except Exception as error:
        error.add_note(f"the job's last words:\n{job.log_text()[-4000:]}")
        raise
