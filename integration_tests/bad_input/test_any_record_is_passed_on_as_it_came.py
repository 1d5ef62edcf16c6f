"""A task can pass on any record unchanged, or a dead letter has the reason.

Through real Kafka and real Spark, whose own source cannot give every time; what a worker does of it is a law of its own
(`unit_tests/container/task/test_pass_through.py`).
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from integration_tests.bad_input.kit import Cluster, Ended, Job, Message, WarmSpark, unique

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
NANOSECONDS = 1_767_225_600_000_000_000
ODD_TIMES = {
    "no time at all": -1,
    "the first millisecond": 1,
    "before 1970": -2,
    "in the last century but one": -2_208_988_800_001,
    "in Julius Caesar's calendar": -15_000_000_000_000,
    "microseconds": 1_767_225_600_000_000,
    "nanoseconds": NANOSECONDS,
    "the last one that Spark can give": (2**63 - 1) // 1000,
    "the first one that Spark cannot give": (2**63 - 1) // 1000 + 1,
    "the largest": 2**63 - 1,
    "the smallest": -(2**63),
}


def records(count: int) -> list[Message]:
    """Records of today with random bytes and headers; the same in each run."""
    chance, now_ms = random.Random(7), time.time_ns() // 1_000_000
    names = ("", "trace", "trace", "\u00e4 \n", "\U0001f600", '"quoted"', "x" * 300)

    def some_bytes() -> bytes | None:
        return chance.choice([None, b"", chance.randbytes(chance.randint(1, 40)), b"\x00\xff"])

    return [
        Message(
            value=b"pass " + chance.randbytes(chance.randint(0, 60)),
            key=some_bytes(),
            headers=[(chance.choice(names), some_bytes()) for _ in range(chance.randint(0, 4))],
            timestamp_ms=now_ms - number,
        )
        for number in range(count)
    ]


class Passed:
    """A job that passes records on, when it has ended."""

    def __init__(self, cluster: Cluster, spark: WarmSpark, directory: Path) -> None:
        topic, self.dead = unique("any"), unique("dead")
        job = Job(
            cluster=cluster,
            directory=directory,
            name=unique("passing"),
            inputs=(topic,),
            settings={
                "systems.kafka.samza.offset.end": "head",
                "task.error.policy": "dead-letter",
                "task.dead.letter.output": self.dead,
            },
        )
        self.output = job.output("passed")
        for name in (topic, self.dead, self.output):
            cluster.make(name, settings=ANY_TIME)
        cluster.publish(topic, *records(100))
        for number, timestamp_ms in enumerate(ODD_TIMES.values()):
            # Each in a batch of its own: within one, times are differences.
            cluster.publish(topic, Message(value=b"pass %d" % number, timestamp_ms=timestamp_ms))
        spark.publish(cluster, topic, b"pass at zero", 0)
        cluster.publish(topic, b"pass the last")
        self.given = cluster.read(topic)
        self.ended: Ended = job.run(spark)
        self.passed, self.letters = cluster.read(self.output), cluster.read(self.dead)


@pytest.fixture(scope="module")
def ran(cluster: Cluster, spark: WarmSpark, tmp_path_factory: pytest.TempPathFactory) -> Passed:
    return Passed(cluster, spark, tmp_path_factory.mktemp("any"))


def test_each_record_is_sent_on_with_its_bytes_headers_and_timestamp(ran: Passed) -> None:
    assert 0 == ran.ended.code, ran.ended.output[-6000:]
    assert 113 == len(ran.given)
    assert {*ODD_TIMES.values(), 0} <= {record.timestamp_ms for record in ran.given}
    assert [
        (record.key, record.value, record.headers, record.timestamp_ms)
        for record in ran.given
        if record.value != b"pass at zero"
    ] == [(record.key, record.value, record.headers, record.timestamp_ms) for record in ran.passed]


def test_a_record_whose_timestamp_the_client_cannot_send_becomes_a_dead_letter_that_names_it(ran: Passed) -> None:
    (letter,) = ran.letters

    assert b"pass at zero" == letter.value
    assert b"0" == dict(letter.headers)["timestamp"]
    assert b"wanted another timestamp_ms than 0" in (dict(letter.headers)["error"] or b"")


def test_the_job_reports_once_that_it_reads_timestamps_by_a_source_of_its_own(ran: Passed) -> None:
    assert 1 == ran.ended.output.count("reads records with a source of its own"), ran.ended.output[-6000:]
