"""A topic that a pattern matches is deleted under a job with state, and made again: the job runs on with the others,
and nothing of those is lost or doubled; the new topic is read from its first offset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.job_address import JobAddress
from samzapy.cli.requests import recorded_state
from samzapy.coordinator.state import CoordinatorState
from samzapy.testing.broker import DevBroker
from samzapy.testing.job_process import JobProcess
from samzapy.testing.topics import delete_topic, make_topics
from samzapy.testing.waiting import wait_until

JOB_FILE = Path(__file__).parent / "jobs" / "running_sums.py"
JOB, STAYS, GOES, OUTPUT = "running-sums-1", "fed-a", "fed-b", "sums"
PARTITIONS, EACH, KEYS = 2, 60, 5
_WITHIN_S = 240.0


class Out(NamedTuple):
    """An output: where its message stood, and the sum of its key behind it."""

    place: tuple[str, int, int]
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
@pytest.mark.parametrize("scheme", ["max", "group-by-partition"])
def test_a_topic_of_a_pattern_is_deleted_and_made_again_under_a_job_that_runs(
    own_broker: DevBroker, tmp_path: Path, scheme: str
) -> None:
    servers = own_broker.bootstrap_servers
    make_topics(servers, {STAYS: PARTITIONS, GOES: PARTITIONS, OUTPUT: 1, "without-key": 1})
    admin = KafkaAdmin(KafkaConnection(bootstrap_servers=servers))
    fed = _feed(servers, STAYS) + _feed(servers, GOES)
    settings = {
        "systems.kafka.bootstrap.servers": servers,
        "local.store.dir": str(tmp_path / "state"),
        "task.inputs": "kafka.~fed-.*",
        # A task for each partition of a topic, or one for both topics.
        "task.partition.scheme": scheme,
        "job.coordinator.topic.check.ms": "1000",
        "job.coordinator.monitor-partition-change.frequency.ms": "1000",
    }
    job, reader = JobProcess(JOB_FILE, log_dir=tmp_path / "job", overrides=settings), Reader(servers)

    def await_all(what: str) -> None:
        _wait(job, lambda: Counter(out.place for out in reader.read()).total() >= fed, what)

    with job:
        job.start()
        await_all("every message to come out")
        driver = job.driver()

        first_id = admin.topic_id(GOES)
        delete_topic(servers, GOES)
        fed += _feed(servers, STAYS)
        await_all("what came into the other topic to come out")
        _wait(job, lambda: _streams(_state(servers)) == {STAYS}, "the job to be planned without the topic")
        fed += _feed(servers, STAYS)
        await_all("what came after that to come out")
        assert admin.find([GOES]) == {}, "nobody made the topic again by asking for it"

        make_topics(servers, {GOES: PARTITIONS})
        fed += _feed(servers, GOES) + _feed(servers, STAYS)
        await_all("what is in the new topic to come out")

        after = _state(servers)
        assert driver == job.driver(), "it is the process that was started"
        assert job.terminate() == 0, job.log_text()[-4000:]
        found = list(reader.read())
    reader.close()

    assert {STAYS, GOES} == _streams(after)
    assert first_id != next(put.topic_id for stream, put in after.inputs.items() if stream.stream == GOES)
    places = Counter(out.place for out in found)
    assert {(STAYS, partition, offset): 1 for partition in range(PARTITIONS) for offset in range(4 * EACH)} | {
        # Once in the topic that was deleted, and once in the new one.
        (GOES, partition, offset): 2
        for partition in range(PARTITIONS)
        for offset in range(EACH)
    } == places
    # State of keys is kept, of those of the topic that went too.
    sums: dict[str, int] = {}
    for out in found:
        sums[out.key] = sums.get(out.key, 0) + 1
        assert sums[out.key] == out.sum, out


def _feed(servers: str, topic: str) -> int:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(EACH):
        for partition in range(PARTITIONS):
            producer.produce(topic, json.dumps({"x": 1}), f"{topic}-{partition}-{number % KEYS}", partition)
    assert 0 == producer.flush(30)
    return EACH * PARTITIONS


def _out(message: Any) -> Out:
    stream, partition, offset = dict(message.headers())["src"].decode().rsplit("-", 2)
    place = (stream, int(partition), int(offset))
    return Out(place, message.key().decode(), json.loads(message.value())["sum"])


def _state(servers: str) -> CoordinatorState:
    return recorded_state(JobAddress(job=JOB, connection=KafkaConnection(bootstrap_servers=servers)))


def _streams(state: CoordinatorState) -> set[str]:
    return {ssp_kb.ssp.stream for planned in state.plan for ssp_kb in planned.positions}


def _wait(job: JobProcess, condition: Callable[[], bool], what: str) -> None:
    try:
        wait_until(condition, _WITHIN_S, what)
    except Exception as error:
        error.add_note(f"the job's last words:\n{job.log_text()[-6000:]}")
        raise
