"""Odd messages arrive unchanged or as dead letters; after a stop a job continues.

One job under a spark-submit of its own, started four times: stopped when idle, within a batch, by Ctrl-C, and killed.
A fixture records the end of each start once, and several tests check it.
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
    BY_ORDER,
    STARTS_WITHIN_S,
    Cluster,
    Ended,
    Job,
    Message,
    WarmSpark,
    ended,
    run_samzapy,
    unique,
)
from integration_tests.support.job_process import LONG_DRAIN, JobProcess
from samzapy.cli.target.status import read_status
from samzapy.container.start_rules import positions_of
from samzapy.errors import DeadlineError, ExitCode, RejectedError
from samzapy.model.topics import checkpoint_topic
from samzapy.runtime.job_address import JobAddress
from samzapy.stream.codec import decode
from samzapy.stream.log import LogRecord
from samzapy.testing.waiting import wait_until

STOPS_WITHIN_S = 60.0
"""Less than ten where nothing else runs."""
DRAIN_MS = "SAMZAPY_SET_JOB_SHUTDOWN_DRAIN_MS"
LONG = {DRAIN_MS: LONG_DRAIN["job.shutdown.drain.ms"]}
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
    """The end of a start of the job: its log, its open transaction, its outputs."""

    code: int
    took_s: float
    left_behind: int
    log: str
    left_open: bool
    answers: list[LogRecord]
    letters: list[LogRecord]

    def assert_ended_in_order(self) -> None:
        assert (ExitCode.OK, 0) == (self.code, self.left_behind), self.log[-4000:]
        assert "Traceback" not in self.log, self.log[-4000:]
        assert self.took_s < STOPS_WITHIN_S
        assert not self.left_open

    def answered(self, topic: str, partition: int = 0) -> list[LogRecord]:
        """Answers to messages of a partition."""
        return [
            answer
            for answer in self.answers
            if header(answer, "src").rpartition("@")[0] == f"kafka.{topic}.{partition}"
        ]


class Running:
    """The job, its topics, and its current process."""

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
                # The stops here meet micro-batches; a tail ends after the message in hand.
                "task.tail.ms": "0",
                # Much longer than a batch may drain: a cancelled batch has committed nothing.
                "task.transaction.max.ms": "30000",
                "task.transaction.timeout.ms": "60000",
            },
        )
        for stream, partition_count in {"answers": 1, "counts": 1, "elsewhere": 3}.items():
            cluster.make(self.job.output(stream), partition_count)
        self.answers = self.job.output("answers")
        # Each start names its drain in its environment, which `--set` would replace.
        overrides = {name: value for name, value in self.job.overrides().items() if name not in LONG_DRAIN}
        self.process = JobProcess(BY_ORDER, log_dir=directory / "log", overrides=overrides)

    def wait(self, condition: Any, what: str) -> Any:
        """Wait for a true answer of `condition`. If the job has ended, its log is shown."""
        answer = wait_until(lambda: condition() or not self.process.is_running(), STARTS_WITHIN_S, what)
        assert self.process.is_running(), self.process.log_text()[-4000:]
        return answer

    def stop_by(self, stop: Any) -> Stopped:
        """Call `stop`, and return the end that it causes."""
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
            letters=[letter for records in letters for letter in records],
        )

    def send(self, number: signal.Signals) -> None:
        """A signal to the process that was started, which is the JVM."""
        jvm = self.process.jvm()
        assert jvm is not None and jvm.send(number)

    def catch_a_batch(self, values: list[bytes]) -> None:
        """Publish `values` to an idle job until their batch is seen open."""
        for _ in range(5):
            begin = self.cluster.end(self.answers)
            self.cluster.publish(self.words, *values)

            def is_caught(over: int = begin + len(values)) -> str | None:
                if self.is_in_a_batch():
                    return "in a batch"
                return "too late" if self.cluster.committed_end(self.answers) >= over else None

            if self.wait(is_caught, "a batch to be under way") == "in a batch":
                return
        raise AssertionError("5 batches were over before one was seen open")

    def is_in_a_batch(self) -> bool:
        """Whether a transaction is open that has sent answers."""
        return self.cluster.has_open_transaction(self.answers)


def lag_of(job: Job) -> int | None:
    """The lag of a running job in `samzapy job status`; None if it is unknown."""
    try:
        status: Any = read_status(JobAddress(job=job.full_name, connection=job.cluster.connection))
    except RejectedError:
        return None
    is_running = any(container["heartbeatAgeMs"] is not None for container in status["containers"])
    return status["totals"]["lag"] if is_running and not status["degraded"] else None


def header(record: LogRecord, name: str) -> str:
    return next((value or b"" for key, value in record.headers if key == name), b"").decode(errors="replace")


def slow(count: int, seconds: float) -> list[bytes]:
    return [f"slow {seconds} {number}".encode() for number in range(count)]


LONG_BATCH = slow(24, 0.5)


@pytest.fixture(scope="module")
def running(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    job_run = Running(cluster, tmp_path_factory.mktemp("odd"))
    with job_run.process:
        yield job_run


@pytest.fixture(scope="module")
def idle(running: Running) -> Stopped:
    """The first start: all odd messages are published; SIGTERM comes at lag 0."""
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
    running.process.start(LONG, by_hand=True)
    running.wait(lambda: lag_of(running.job) == 0, "everything to be read")
    # It has no message to answer, so only a progress record can show that it was read.
    cluster.publish_in_transactions(running.transactional, ("abort", [b"never"]))
    end = cluster.end(running.transactional)
    running.wait(lambda: progress_of(running) == end, "the progress of the idle partition")
    return running.stop_by(lambda: running.send(signal.SIGTERM))


def progress_of(running: Running) -> int | None:
    """The next offset of the transactional input, if it is recorded as read and idle."""
    topic = checkpoint_topic(running.job.full_name)
    read_positions = positions_of(decode(record, topic=topic) for record in running.cluster.read(topic)).progress
    offsets = {ssp_kb.ssp.stream: progress.offset_next for ssp_kb, progress in read_positions.items()}
    return offsets.get(running.transactional)


# --- messages that are answered ---


@pytest.mark.parametrize("name", GOOD)
def test_an_odd_message_is_answered_unchanged(running: Running, idle: Stopped, name: str) -> None:
    offset, message = [*GOOD].index(name), GOOD[name]

    (answer,) = [answer for answer in idle.answers if header(answer, "src") == f"kafka.{running.words}.0@{offset}"]

    assert (message.key, message.value) == (answer.key, answer.value)
    assert repr(tuple(message.headers)) == header(answer, "headers")
    if message.timestamp_ms:
        assert message.timestamp_ms == answer.timestamp_ms


def test_values_are_decoded_by_their_streams_serde(running: Running, idle: Stopped) -> None:
    types = [header(answer, "type") for answer in idle.answered(running.json)]

    assert ["dict", "NoneType", "int"] == types


def test_an_output_has_the_partition_and_timestamp_that_the_task_sets(running: Running, idle: Stopped) -> None:
    (answer,) = running.cluster.read(running.job.output("elsewhere"), 2)

    assert (b"its own key", b"at a place and a time of its own") == (answer.key, answer.value)
    assert ((("first", b"1"), ("empty", b"")), 1_234_567_890_123) == (answer.headers, answer.timestamp_ms)


def test_each_message_is_counted_once(running: Running, idle: Stopped) -> None:
    assert [b"1", b"2"] == running.cluster.values(running.job.output("counts"))


def test_after_the_bad_messages_the_good_ones_are_answered_in_order(running: Running, idle: Stopped) -> None:
    assert [*(message.value for message in GOOD.values()), b"the last"] == [
        answer.value for answer in idle.answered(running.words)
    ]


# --- messages that become dead letters ---


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("raises", "ValueError: the message asked for it"),
        ("raises without a key", "TaskError: store counts: wanted a message with a key, found one without"),
        ("exits", "SystemExit: the message asked for it"),
        ("sends too much", "TaskError: an output to answers-"),
        ("1 MB that raises", "ValueError: the message asked for it"),
        ("no json", "SerdeError: serde json: Expecting property name"),
        ("empty json", "SerdeError: serde json: Expecting value"),
        ("no utf-8", "SerdeError: serde json: 'utf-8' codec can't decode byte 0xff"),
    ],
    ids=[*BAD, *NOT_JSON],
)
def test_a_message_that_fails_becomes_a_dead_letter_with_its_offset_and_error(
    running: Running, idle: Stopped, name: str, error: str
) -> None:
    is_json = name in NOT_JSON
    topic = running.json if is_json else running.words
    offset = len(OF_JSON) + [*NOT_JSON].index(name) if is_json else len(GOOD) + [*BAD].index(name)
    message = NOT_JSON[name] if is_json else BAD[name]

    (letter,) = [
        letter
        for letter in idle.letters
        if (header(letter, "ssp"), header(letter, "offset")) == (f"kafka.{topic}.0", str(offset))
    ]

    assert (message.key, message.value) == (letter.key, letter.value)
    assert f"SystemStreamPartition_kafka.{topic}.0" == header(letter, "task")
    assert header(letter, "error").startswith(error)
    assert error in header(letter, "traceback")
    assert is_json or str(BY_ORDER) in header(letter, "traceback")
    assert tuple(message.headers) == letter.headers[5:]
    if message.timestamp_ms:
        assert message.timestamp_ms == letter.timestamp_ms


def test_each_failed_message_and_no_other_has_a_dead_letter(idle: Stopped) -> None:
    assert len(BAD) + len(NOT_JSON) == len(idle.letters)


# --- transactional input ---


def test_only_committed_messages_of_a_transactional_input_are_read(running: Running, idle: Stopped) -> None:
    assert [b"a", b"b", b"c"] == [answer.value for answer in idle.answered(running.transactional)]


def test_a_partition_that_ends_in_markers_is_recorded_as_read_to_its_end(running: Running, idle: Stopped) -> None:
    assert running.cluster.end(running.transactional) == progress_of(running)


# --- stops ---


def test_sigterm_to_an_idle_job_ends_it_with_exit_code_0(idle: Stopped) -> None:
    idle.assert_ended_in_order()


_STOPS_AT_THE_LATEST = 3


@pytest.fixture(scope="module")
def second(running: Running, idle: Stopped) -> tuple[Stopped, Ended]:
    """The next start: SIGTERM comes within a batch ten seconds longer than a drain."""
    environment = {DRAIN_MS: "2000"}
    running.process.start(environment)
    running.wait(lambda: lag_of(running.job) == 0, "the job to run")
    other = running.job.run()
    running.cluster.publish(running.words, b"raise", *LONG_BATCH, partition=1)
    for _ in range(_STOPS_AT_THE_LATEST):
        running.wait(running.is_in_a_batch, "a batch to be under way")
        stopped = running.stop_by(lambda: running.send(signal.SIGTERM))
        if stopped.code != ExitCode.TIMED_OUT:
            return stopped, other
        # On a busy machine the process may end before Spark has cancelled the batch. The next one has it again.
        running.process.start(environment)
    raise AssertionError(stopped.log[-4000:])


def test_a_second_start_of_a_running_processor_is_refused(running: Running, second: tuple[Stopped, Ended]) -> None:
    _, other = second

    other.assert_ended(
        ExitCode.REJECTED, f"processor first of job {running.job.full_name} runs already on this host", "stop that"
    )


def test_a_start_reports_its_steps(running: Running, idle: Stopped) -> None:
    expected_lines = [
        *("starts Spark; that takes some seconds", "Spark is up after ", "granted: SystemStreamPartition_"),
        *("query 1 starts after ", "the first micro-batch of query 1 ended after "),
    ]
    places = [idle.log.find(line) for line in expected_lines]

    assert -1 not in places and sorted(places) == places, idle.log[-4000:]
    assert f"this process leads {running.job.full_name}" in idle.log


def test_sigterm_within_a_long_batch_cancels_it_and_ends_the_job(second: tuple[Stopped, Ended]) -> None:
    stopped, _ = second

    stopped.assert_ended_in_order()
    assert "did not finish within 2000 ms; cancelling it" in stopped.log


def test_a_cancelled_batch_leaves_neither_answers_nor_dead_letters(
    idle: Stopped, second: tuple[Stopped, Ended]
) -> None:
    stopped, _ = second

    assert (idle.answers, idle.letters) == (stopped.answers, stopped.letters)


@pytest.fixture(scope="module")
def third(running: Running, idle: Stopped, second: tuple[Stopped, Ended]) -> Stopped:
    """The next start continues; then Ctrl-C comes within a batch that can finish."""
    running.process.start(LONG)
    running.wait(
        lambda: len(running.cluster.values(running.answers)) >= len(idle.answers) + len(LONG_BATCH),
        "the cancelled batch again",
    )
    running.catch_a_batch(slow(10, 0.25))
    jvm = running.process.jvm()
    assert jvm is not None
    return running.stop_by(lambda: os.killpg(jvm.pid, signal.SIGINT))


def test_the_next_start_continues_at_the_offset_of_the_cancelled_batch(
    running: Running, idle: Stopped, third: Stopped
) -> None:
    letters = [(header(letter, "ssp"), header(letter, "offset")) for letter in third.letters]

    assert LONG_BATCH == [answer.value for answer in third.answered(running.words, 1)]
    assert (len(idle.letters) + 1, 1) == (len(letters), letters.count((f"kafka.{running.words}.1", "0")))


def test_ctrl_c_lets_the_batch_finish_and_ends_the_job(running: Running, third: Stopped) -> None:
    third.assert_ended_in_order()
    assert slow(10, 0.25) == [answer.value for answer in third.answered(running.words)][-10:]


@pytest.fixture(scope="module")
def killed(running: Running, third: Stopped) -> tuple[bytes | None, int]:
    """The first answer of a batch in which the JVM was killed, and the processes left."""
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


def test_after_ctrl_c_the_next_start_continues_with_the_next_message(killed: tuple[bytes | None, int]) -> None:
    first, _ = killed

    assert slow(100, 0.1)[0] == first


def test_kill_9_of_the_jvm_leaves_no_process(killed: tuple[bytes | None, int]) -> None:
    _, left_behind = killed

    assert 0 == left_behind


# --- a job without messages ---


def test_a_job_waits_at_an_empty_input_and_sigterm_to_the_python_driver_ends_it(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = Job(cluster=cluster, directory=tmp_path, name=unique("empty"), inputs=(cluster.topic("empty"),))
    cluster.make(job.output("answers"))
    with job.running(spark) as process:
        wait_until(lambda: process.poll() is not None or lag_of(job) == 0, STARTS_WITHIN_S, "the job to be idle")

        process.terminate()

        begun_s = time.monotonic()
        outcome = ended(process)
    assert time.monotonic() - begun_s < STOPS_WITHIN_S
    outcome.assert_ended(ExitCode.OK)
    assert [] == cluster.values(job.output("answers"))


def test_an_option_that_the_driver_refuses_ends_spark_submit_too(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster=cluster, directory=tmp_path, name=unique("refused"), inputs=(cluster.topic("input"),))

    outcome = run_samzapy(
        "run", str(BY_ORDER), *job.arguments(), "--master", "local[2]", "--conf", "spark.speculation=true"
    )

    outcome.assert_ended(ExitCode.USAGE, "--conf spark.speculation: wanted false, found true", "Remove the setting")
