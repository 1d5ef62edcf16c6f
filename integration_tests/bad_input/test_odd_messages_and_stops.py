"""Odd messages come through as they are, or as dead letters; and however a job is stopped, the next start goes on.

One job under a spark-submit of its own, started four times: stopped when idle, within a batch, by Ctrl-C, and killed.
What each start led to is recorded once, by a fixture, and looked at by several tests.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration_tests.bad_input.kit import (
    BY_WORD,
    Cluster,
    Ended,
    Job,
    Message,
    WarmSpark,
    ended,
    run_samzapy,
    unique,
)
from integration_tests.support.job_process import JobProcess
from samzapy.cli.target.status import read_status
from samzapy.container.start_rules import positions_of
from samzapy.errors import DeadlineError, ExitCode, RejectedError
from samzapy.model.topics import checkpoint_topic
from samzapy.runtime.job_address import JobAddress
from samzapy.stream.codec import decode
from samzapy.stream.log import LogRecord
from samzapy.testing.waiting import wait_until

STARTS_WITHIN_S = 300.0
STOPS_WITHIN_S = 30.0
"""Less than ten where nothing else runs."""
MEGABYTE = random.Random(7).randbytes(1_000_000 - 6)  # Nothing that compression could make small.
BINARY = b"\x00\xff\xfe"

GOOD = {
    "plain": Message(value=b"good", key=b"k1"),
    "tombstone": Message(value=None, key=b"k2"),
    "empty value": Message(value=b"", key=b"k3"),
    "no key": Message(value=b"good", key=None),
    "empty key": Message(value=b"good", key=b""),
    "binary": Message(value=b"good " + BINARY, key=BINARY),
    "headers": Message(
        value=b"good",
        headers=[
            ("twice", b"1"),
            ("twice", BINARY),
            ("null", None),
            ("empty", b""),
            ("\u00fc \n", "\u00fc".encode()),
        ],
    ),
    "an old timestamp": Message(value=b"good", timestamp_ms=1_000_000_000_000),
    "1 MB": Message(value=b"good: " + MEGABYTE),
    "placed": Message(value=b"elsewhere"),
    "counted": Message(value=b"count", key=b"c"),
    "counted again": Message(value=b"count", key=b"c"),
}
BAD = {
    "raises": Message(value=b"raise", key=b"k4", headers=[("own", BINARY)], timestamp_ms=1_000_000_000_001),
    "raises without a key": Message(value=b"count", key=None),
    "exits": Message(value=b"exit"),
    "sends too much": Message(value=b"too-large"),
    "1 MB that raises": Message(value=b"raise " + MEGABYTE),
}
OF_JSON = {"json": Message(value=b'{"n":1}'), "json tombstone": Message(value=None)}
NOT_JSON = {
    "no json": Message(value=b"{"),
    "empty json": Message(value=b""),
    "no utf-8": Message(value=b'"\xff"'),
}


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """How a start of the job ended, whether it left a transaction open, and what it had committed by then."""

    code: int
    took_s: float
    left_behind: int
    log: str
    left_open: bool
    answers: list[LogRecord]
    letters: list[LogRecord]

    def in_good_order(self) -> None:
        assert (ExitCode.OK, 0) == (self.code, self.left_behind), self.log[-4000:]
        assert "Traceback" not in self.log, self.log[-4000:]
        assert self.took_s < STOPS_WITHIN_S
        assert not self.left_open

    def answered(self, topic: str, partition: int = 0) -> list[LogRecord]:
        """Answers to messages of a partition."""
        return [
            found for found in self.answers if header(found, "src").rpartition("@")[0] == f"kafka.{topic}.{partition}"
        ]


class Running:
    """The job, its topics, and the process that it is at the moment."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.words, self.json, self.transactional = (
            cluster.topic("words", 2),
            cluster.topic("json"),
            cluster.topic("txn"),
        )
        self.dead = cluster.topic("dead", 2)
        self.job = Job(
            cluster=cluster,
            directory=directory,
            name=unique("odd"),
            inputs=(self.words, self.json, self.transactional),
            settings={
                "processor.id": "first",
                f"systems.kafka.streams.{self.json}.samza.msg.serde": "json",
                "stores.counts.msg.serde": "bytes",
                "task.error.policy": "dead-letter",
                "task.dead.letter.output": self.dead,
                # A batch may go on for so long.
                "job.shutdown.drain.ms": "6000",
                # Much longer than a batch may drain: what is cancelled then has committed nothing.
                # The stops here meet micro-batches; a tail ends after the message in hand.
                "task.tail.ms": "0",
                "task.transaction.max.ms": "30000",
                "task.transaction.timeout.ms": "60000",
            },
        )
        for stream, partition_count in {"answers": 1, "counts": 1, "elsewhere": 3}.items():
            cluster.make(self.job.output(stream), partition_count)
        self.answers = self.job.output("answers")
        self.process = JobProcess(BY_WORD, log_dir=directory / "log", overrides=self.job.overrides())

    def wait(self, condition: Any, what: str) -> Any:
        """What `condition` answers once that is something true. If the job has ended, its last words are told."""
        answer = wait_until(lambda: condition() or not self.process.is_running(), STARTS_WITHIN_S, what)
        assert self.process.is_running(), self.process.log_text()[-4000:]
        return answer

    def stop_by(self, stop: Any) -> Stopped:
        """What `stop` leads to."""
        begun_s = time.monotonic()
        stop()
        code = self.process.wait_ended(60.0)
        took_s = time.monotonic() - begun_s
        with contextlib.suppress(DeadlineError):
            self.process.wait_gone(STOPS_WITHIN_S)
        outputs = [(self.answers, 0), (self.dead, 0), (self.dead, 1)]
        # Seen before anything is read: a transaction left open would be aborted while a reader waits for that.
        is_open = self.is_in_a_batch()
        answers, *letters = (self.cluster.read(*place) for place in outputs)
        return Stopped(
            code=code,
            took_s=took_s,
            left_behind=len(self.process.left_behind()),
            log=self.process.log_text(),
            left_open=is_open,
            answers=answers,
            letters=[found for records in letters for found in records],
        )

    def send(self, number: signal.Signals) -> None:
        """A signal to the process that was started, which is the JVM."""
        jvm = self.process.jvm()
        assert jvm is not None and jvm.send(number)

    def catch_a_batch(self, words: list[bytes]) -> None:
        """Publish `words` to an idle job, and again if their batch was over before anybody saw it open."""
        for _ in range(5):
            begin = self.cluster.end(self.answers)
            self.cluster.publish(self.words, *words)

            def is_caught(over: int = begin + len(words)) -> str | None:
                if self.is_in_a_batch():
                    return "in a batch"
                return "too late" if self.cluster.committed_end(self.answers) >= over else None

            if self.wait(is_caught, "a batch to be under way") == "in a batch":
                return
        raise AssertionError("5 batches were over before anybody saw them open")

    def is_in_a_batch(self) -> bool:
        """Whether a transaction is open that has sent answers."""
        return self.cluster.end(self.answers) > self.cluster.committed_end(self.answers)


def lag_of(job: Job) -> int | None:
    """All that was not read yet, as `samzapy job status` tells it of a job that runs; None while nobody knows."""
    try:
        found: Any = read_status(JobAddress(job=job.full_name, connection=job.cluster.connection))
    except RejectedError:
        return None
    is_running = any(container["heartbeatAgeMs"] is not None for container in found["containers"])
    return found["totals"]["lag"] if is_running and not found["degraded"] else None


def header(record: LogRecord, name: str) -> str:
    return next((value or b"" for found, value in record.headers if found == name), b"").decode(errors="replace")


def slow(count: int, seconds: float) -> list[bytes]:
    return [f"slow {seconds} {number}".encode() for number in range(count)]


LONG_BATCH = slow(32, 0.5)


@pytest.fixture(scope="module")
def running(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(cluster, tmp_path_factory.mktemp("odd"))
    with found.process:
        yield found


@pytest.fixture(scope="module")
def idle(running: Running) -> Stopped:
    """The first start: everything odd is there already; SIGTERM comes when nothing is left to do."""
    cluster = running.cluster
    cluster.publish(running.words, *GOOD.values(), *BAD.values(), b"the last")
    cluster.publish(running.json, *OF_JSON.values(), *NOT_JSON.values(), b"2")
    cluster.publish_in_transactions(
        running.transactional,
        ("commit", [b"a", b"b"]),
        ("abort", [b"never", b"never"]),
        ("commit", [b"c"]),
        ("abort", [b"never"]),
    )
    # Without the jars on its class path: the job adds them to its session.
    running.process.start(by_hand=True)
    running.wait(lambda: lag_of(running.job) == 0, "everything to be read")
    # Nothing that could be answered, so only a progress record can say that it was read.
    cluster.publish_in_transactions(running.transactional, ("abort", [b"never"]))
    end = cluster.end(running.transactional)
    running.wait(lambda: progress_of(running) == end, "the idle partition's progress")
    return running.stop_by(lambda: running.send(signal.SIGTERM))


def progress_of(running: Running) -> int | None:
    """The next offset of the transactional input, if it is recorded as read and idle."""
    topic = checkpoint_topic(running.job.full_name)
    found = positions_of(decode(record, topic=topic) for record in running.cluster.read(topic)).progress
    offsets = {ssp_kb.ssp.stream: progress.offset_next for ssp_kb, progress in found.items()}
    return offsets.get(running.transactional)


# --- messages that are answered ---


@pytest.mark.parametrize("what", GOOD)
def test_an_odd_message_comes_through_as_it_is(running: Running, idle: Stopped, what: str) -> None:
    offset, message = [*GOOD].index(what), GOOD[what]

    (answer,) = [found for found in idle.answers if header(found, "src") == f"kafka.{running.words}.0@{offset}"]

    assert (message.key, message.value) == (answer.key, answer.value)
    assert repr(tuple(message.headers)) == header(answer, "headers")
    if message.timestamp_ms:
        assert message.timestamp_ms == answer.timestamp_ms


def test_values_are_decoded_by_their_streams_serde(running: Running, idle: Stopped) -> None:
    types = [header(found, "type") for found in idle.answered(running.json)]

    assert ["dict", "NoneType", "int"] == types


def test_an_output_goes_to_the_place_and_time_that_it_is_given(running: Running, idle: Stopped) -> None:
    (found,) = running.cluster.read(running.job.output("elsewhere"), 2)

    assert (b"its own key", b"at a place and a time of its own") == (found.key, found.value)
    assert ((("first", b"1"), ("empty", b"")), 1_234_567_890_123) == (found.headers, found.timestamp_ms)


def test_what_is_counted_is_counted_once(running: Running, idle: Stopped) -> None:
    assert [b"1", b"2"] == running.cluster.values(running.job.output("counts"))


def test_after_the_bad_messages_the_good_ones_go_on_in_their_order(running: Running, idle: Stopped) -> None:
    assert [*(found.value for found in GOOD.values()), b"the last"] == [
        found.value for found in idle.answered(running.words)
    ]


# --- messages that become dead letters ---


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("raises", "ValueError: the message said so"),
        ("raises without a key", "TaskError: store counts: wanted a message with a key, found one without"),
        ("exits", "SystemExit: the message said so"),
        ("sends too much", "TaskError: an output to answers-"),
        ("1 MB that raises", "ValueError: the message said so"),
        ("no json", "SerdeError: serde json: Expecting property name"),
        ("empty json", "SerdeError: serde json: Expecting value"),
        ("no utf-8", "SerdeError: serde json: 'utf-8' codec can't decode byte 0xff"),
    ],
    ids=[*BAD, *NOT_JSON],
)
def test_a_message_that_fails_becomes_a_dead_letter_that_says_where_and_why(
    running: Running, idle: Stopped, what: str, error: str
) -> None:
    is_json = what in NOT_JSON
    topic = running.json if is_json else running.words
    offset = len(OF_JSON) + [*NOT_JSON].index(what) if is_json else len(GOOD) + [*BAD].index(what)
    message = NOT_JSON[what] if is_json else BAD[what]

    (letter,) = [
        found
        for found in idle.letters
        if (header(found, "ssp"), header(found, "offset")) == (f"kafka.{topic}.0", str(offset))
    ]

    assert (message.key, message.value) == (letter.key, letter.value)
    assert f"SystemStreamPartition_kafka.{topic}.0" == header(letter, "task")
    assert header(letter, "error").startswith(error)
    assert error in header(letter, "traceback")
    assert is_json or str(BY_WORD) in header(letter, "traceback")
    assert tuple(message.headers) == letter.headers[5:]
    if message.timestamp_ms:
        assert message.timestamp_ms == letter.timestamp_ms


def test_there_is_a_dead_letter_for_each_failed_message_and_no_other(idle: Stopped) -> None:
    assert len(BAD) + len(NOT_JSON) == len(idle.letters)


# --- transactional input ---


def test_of_a_transactional_input_what_was_committed_is_read(running: Running, idle: Stopped) -> None:
    assert [b"a", b"b", b"c"] == [found.value for found in idle.answered(running.transactional)]


def test_a_partition_that_ends_in_markers_is_recorded_as_read_to_its_end(running: Running, idle: Stopped) -> None:
    assert running.cluster.end(running.transactional) == progress_of(running)


# --- stops ---


def test_sigterm_to_an_idle_job_ends_it_in_good_order(idle: Stopped) -> None:
    idle.in_good_order()


@pytest.fixture(scope="module")
def second(running: Running, idle: Stopped) -> tuple[Stopped, Ended]:
    """The next start: SIGTERM comes within a batch that takes longer than a drain may, by ten seconds."""
    running.process.start()
    running.wait(lambda: lag_of(running.job) == 0, "the job to run")
    other = running.job.run()
    running.cluster.publish(running.words, b"raise", *LONG_BATCH, partition=1)
    running.wait(running.is_in_a_batch, "a batch to be under way")
    return running.stop_by(lambda: running.send(signal.SIGTERM)), other


def test_a_second_start_of_a_running_processor_is_refused(running: Running, second: tuple[Stopped, Ended]) -> None:
    _, other = second

    other.refused(
        ExitCode.REJECTED, f"processor first of job {running.job.full_name} runs already on this host", "stop that"
    )


def test_a_start_tells_how_far_it_is(running: Running, idle: Stopped) -> None:
    told = [
        *("starts Spark; that takes some seconds", "Spark is up after ", "granted: SystemStreamPartition_"),
        *("query 1 starts after ", "the first micro-batch of query 1 ended after "),
    ]
    places = [idle.log.find(words) for words in told]

    assert -1 not in places and sorted(places) == places, idle.log[-4000:]
    assert f"this process leads {running.job.full_name}" in idle.log


def test_sigterm_within_a_long_batch_cancels_it_and_ends_the_job(second: tuple[Stopped, Ended]) -> None:
    stopped, _ = second

    stopped.in_good_order()
    assert "did not finish within 6000 ms; cancelling it" in stopped.log


def test_a_cancelled_batch_leaves_neither_answers_nor_dead_letters(
    idle: Stopped, second: tuple[Stopped, Ended]
) -> None:
    stopped, _ = second

    assert (idle.answers, idle.letters) == (stopped.answers, stopped.letters)


@pytest.fixture(scope="module")
def third(running: Running, idle: Stopped, second: tuple[Stopped, Ended]) -> Stopped:
    """The next start: goes on; then Ctrl-C comes within a batch that can still finish."""
    running.process.start()
    running.wait(
        lambda: len(running.cluster.values(running.answers)) >= len(idle.answers) + len(LONG_BATCH),
        "the cancelled batch again",
    )
    running.catch_a_batch(slow(10, 0.25))
    jvm = running.process.jvm()
    assert jvm is not None
    return running.stop_by(lambda: os.killpg(jvm.pid, signal.SIGINT))


def test_the_next_start_goes_on_exactly_where_the_cancelled_one_stood(
    running: Running, idle: Stopped, third: Stopped
) -> None:
    letters = [(header(found, "ssp"), header(found, "offset")) for found in third.letters]

    assert LONG_BATCH == [found.value for found in third.answered(running.words, 1)]
    assert (len(idle.letters) + 1, 1) == (len(letters), letters.count((f"kafka.{running.words}.1", "0")))


def test_ctrl_c_lets_the_batch_finish_and_ends_the_job(running: Running, third: Stopped) -> None:
    third.in_good_order()
    assert slow(10, 0.25) == [found.value for found in third.answered(running.words)][-10:]


@pytest.fixture(scope="module")
def killed(running: Running, third: Stopped) -> tuple[bytes | None, int]:
    """The last start: kill -9 of the JVM within a batch. The first answer of that batch, and how many were left."""
    running.process.start()
    running.cluster.publish(running.words, *slow(100, 0.1))
    running.wait(running.is_in_a_batch, "a batch to be under way")
    first = running.cluster.first_uncommitted(running.answers)
    assert running.process.driver() is not None and running.process.workers()
    running.send(signal.SIGKILL)
    assert 137 == running.process.wait_ended(60.0)
    with contextlib.suppress(DeadlineError):
        running.process.wait_gone(STOPS_WITHIN_S)
    return first, len(running.process.left_behind())


def test_after_ctrl_c_the_next_start_goes_on_with_the_next_message(killed: tuple[bytes | None, int]) -> None:
    first, _ = killed

    assert slow(100, 0.1)[0] == first


def test_kill_9_of_the_jvm_leaves_no_process(killed: tuple[bytes | None, int]) -> None:
    _, left_behind = killed

    assert 0 == left_behind


# --- a job without messages ---


def test_an_empty_input_is_waited_for_and_sigterm_to_the_python_driver_ends_the_job_too(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = Job(cluster=cluster, directory=tmp_path, name=unique("empty"), inputs=(cluster.topic("empty"),))
    cluster.make(job.output("answers"))
    with job.running(spark) as process:
        wait_until(lambda: process.poll() is not None or lag_of(job) == 0, STARTS_WITHIN_S, "the job to be idle")

        process.terminate()

        begun_s = time.monotonic()
        told = ended(process)
    assert time.monotonic() - begun_s < STOPS_WITHIN_S
    told.refused(ExitCode.OK)
    assert [] == cluster.values(job.output("answers"))


def test_what_the_driver_is_refused_for_ends_spark_submit_too(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster=cluster, directory=tmp_path, name=unique("refused"), inputs=(cluster.topic("input"),))

    told = run_samzapy(
        "run", str(BY_WORD), *job.arguments(), "--master", "local[2]", "--conf", "spark.speculation=true"
    )

    told.refused(ExitCode.USAGE, "--conf spark.speculation: wanted false, found true", "Remove the setting")
