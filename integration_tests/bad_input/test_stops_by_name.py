"""A job stops at a fault that it must not skip: it names place, cause and remedy.

A second start stops again. Each job here ends by itself. A fixture records the outcome of each start once, and
several tests check it.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.bad_input.kit import (
    BY_ORDER,
    JOBS,
    STARTS_WITHIN_S,
    Cluster,
    Ended,
    Job,
    Message,
    WarmSpark,
    ended,
    run_python,
    run_samzapy,
    unique,
)
from samzapy.errors import ExitCode
from samzapy.model.topics import changelog_spec, checkpoint_spec, coordinator_spec, coordinator_topic
from samzapy.stream.log import LogRecord
from samzapy.testing.waiting import wait_until

WITH_A_STORE = {"stores.counts.msg.serde": "bytes"}


def a_job(cluster: Cluster, directory: Path, *inputs: str, **settings: str) -> Job:
    """A job with its outputs made; names of `settings` have underscores for dots."""
    job = Job(
        cluster=cluster,
        directory=directory,
        name=unique("stops"),
        inputs=inputs or (cluster.topic("input"),),
        settings={name.replace("_", "."): value for name, value in settings.items()},
    )
    for stream in ("answers", "counts"):
        cluster.make(job.output(stream))
    cluster.make(job.output("small"), settings={"max.message.bytes": "1000100"})
    return job


# --- a message that fails, under policy `fail` ---

FAILING = {
    "raises": b"raise",
    "exits": b"exit",
    "sends-too-much": b"too-large",
    "its-topic-takes-less": b"too-large-there",
    "goes-nowhere": b"elsewhere",
    "has-no-key": b"count",
    "is-no-json": b'{"a": NaN}',
}
GOOD = {"has-no-key": b"count", "is-no-json": b'{"a":1}'}


@dataclass(frozen=True)
class Failed:
    """Two starts of a job whose inputs each have three good messages and a bad one."""

    job: Job
    inputs: dict[str, str]
    first: Ended
    second: Ended
    visible: dict[str, list[bytes | None]]
    visible_after_second: dict[str, list[bytes | None]]

    def place_of(self, name: str) -> str:
        topic = self.inputs[name]
        return f"task SystemStreamPartition_kafka.{topic}.0 failed at kafka.{topic}.0 offset 2, "


@pytest.fixture(scope="module")
def failed(cluster: Cluster, spark: WarmSpark, tmp_path_factory: pytest.TempPathFactory) -> Failed:
    inputs = {name: cluster.topic(name) for name in FAILING}
    for name, failing in FAILING.items():
        good = GOOD.get(name, b"good")
        bad = Message(value=failing, key=None if name == "has-no-key" else b"\x00k")
        cluster.publish(inputs[name], good, good, bad, good)
    job = a_job(
        cluster,
        tmp_path_factory.mktemp("failed"),
        *inputs.values(),
        **{f"systems.kafka.streams.{inputs['is-no-json']}.samza.msg.serde": "json"},
        # Two of each input make a batch: the first is committed, in the second each input fails.
        task_batch_offsets_max=str(2 * len(inputs)),
        stores_counts_msg_serde="bytes",
    )
    seen = []
    for _ in range(2):
        outcome = job.run(spark)
        seen.append((outcome, {stream: cluster.values(job.output(stream)) for stream in ("answers", "counts")}))
    (first, visible), (second, visible_after_second) = seen
    return Failed(job, inputs, first, second, visible, visible_after_second)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "raises",
            "key b'\\x00k': ValueError: the message asked for it\nTraceback (most recent call last):\n  File ",
        ),
        ("exits", "key b'\\x00k': SystemExit: the message asked for it\nTraceback"),
        ("sends-too-much", "wanted at most 1047564 bytes of key, value and headers, found 3000002; make it smaller"),
        ("its-topic-takes-less", "an output to small-"),
        ("its-topic-takes-less", "wanted at most 999076 bytes of key, value and headers, found 1000002"),
        ("goes-nowhere", "wanted the topic elsewhere-"),
        ("has-no-key", "key None: TaskError: store counts: wanted a message with a key, found one without"),
        ("is-no-json", "key b'\\x00k': SerdeError: serde json: NaN is not JSON"),
    ],
    ids=lambda name: name if name in FAILING else "",
)
def test_a_message_that_fails_stops_the_job_with_its_place_and_key(failed: Failed, name: str, expected: str) -> None:
    assert ExitCode.TASK_FAILED == failed.first.code
    failed.first.assert_prints(failed.place_of(name), expected)


def test_the_traceback_is_that_of_the_users_code(failed: Failed) -> None:
    failed.first.assert_prints(f'Traceback (most recent call last):\n  File "{BY_ORDER}", line ', "in by_order")


def test_nothing_after_the_last_commit_is_visible(failed: Failed) -> None:
    good = [GOOD.get(name, b"good") for name in FAILING for _ in range(2)]

    assert sorted(good) == sorted(value or b"" for value in failed.visible["answers"])
    assert [b"1", b"2"] == failed.visible["counts"]


def test_a_second_start_stops_at_the_same_messages(failed: Failed) -> None:
    assert ExitCode.TASK_FAILED == failed.second.code
    failed.second.assert_prints(*(failed.place_of(name) for name in FAILING))
    assert failed.visible == failed.visible_after_second


def test_a_worker_that_dies_before_its_first_message_ends_the_job_after_the_retry_time(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = a_job(cluster, tmp_path, task_query_retry_ms="1000")
    cluster.publish(job.inputs[0], b"good")

    outcome = run_python(JOBS / "dies_in_init.py", *job.arguments(), environment=spark.environment)

    outcome.assert_ended(
        ExitCode.FAILED,
        "the query failed and is started anew (3 without a commit): SparkException: Python worker exited unexpectedly",
        "wanted a commit within task.query.retry.ms (1000) of the query's first failure, found none in ",
        f"Unread are kafka.{job.inputs[0]}.0:0/1 from offset 0",
    )


def test_a_message_that_ends_its_worker_stops_the_job_with_its_place_and_key(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = a_job(cluster, tmp_path)
    cluster.publish(job.inputs[0], b"good", b"die", b"good")

    outcome = job.run(spark)

    outcome.assert_ended(
        ExitCode.TASK_FAILED,
        f"task SystemStreamPartition_kafka.{job.inputs[0]}.0 failed at kafka.{job.inputs[0]}.0 offset 1, key b'k': "
        "WorkerDiedError: its worker process ended 3 times when it handled this message alone",
        "Python worker exited unexpectedly",
    )
    assert [b"good"] == cluster.values(job.output("answers"))


@pytest.mark.parametrize("order", [b"segfault", b"kill"])
def test_a_message_that_ends_its_worker_becomes_a_dead_letter_and_all_others_are_handled_once(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path, order: bytes
) -> None:
    dead = cluster.topic("dead")
    policy = {"task_error_policy": "dead-letter", "task_dead_letter_output": dead}
    store = {"stores_counts_msg_serde": "bytes", "systems_kafka_samza_offset_end": "head"}
    job = a_job(cluster, tmp_path, **policy, **store)
    cluster.publish(job.inputs[0], b"count 1", order, b"count 2", b"good")

    outcome = job.run(spark)

    # A query may also fail because the JVM, which other drivers had before, forgets a callback of theirs by its name.
    deaths = re.findall("the query failed and is started anew .*Python worker exited", outcome.output)
    assert (ExitCode.OK, 5) == (outcome.code, len(deaths)), outcome.output
    assert [b"count 1", b"count 2", b"good"] == cluster.values(job.output("answers"))
    assert [b"1", b"2"] == cluster.values(job.output("counts"))
    assert [order] == cluster.values(dead)


def test_a_message_slower_than_a_transaction_is_tried_three_times_and_then_reported(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    times = {"task_transaction_timeout_ms": "2000", "task_transaction_max_ms": "1000"}
    job = a_job(cluster, tmp_path, **times)
    # The first one opens the transaction, which the broker ends while the second one is handled.
    cluster.publish(job.inputs[0], b"good", b"slow 4", b"good")

    outcome = job.run(spark)

    outcome.assert_ended(
        ExitCode.TASK_FAILED,
        "the query failed and is started anew (3 without a commit): samzapy.errors.SlowMessageError: ",
        f"task SystemStreamPartition_kafka.{job.inputs[0]}.0 failed at kafka.{job.inputs[0]}.0 offset 1, key b'k': ",
        "wanted it handled and committed within task.transaction.timeout.ms (2000), found it to take ",
        "raise task.transaction.timeout.ms",
    )
    assert 4000 <= min(map(int, re.findall(r"found it to take (\d+) ms", outcome.output)))
    assert [] == cluster.values(job.output("answers"))


# --- input that is deleted before it was read ---


@dataclass(frozen=True)
class Losing:
    """A job that lost the records at offsets 2 to 4, and then those at 7 and 8."""

    job: Job
    input: str
    with_another_range: Ended
    with_the_range: Ended
    visible: list[bytes | None]

    @property
    def lost_range(self) -> str:
        return f"kafka.{self.input}.0:0/1@2-5"


@pytest.fixture(scope="module")
def losing(cluster: Cluster, spark: WarmSpark, tmp_path_factory: pytest.TempPathFactory) -> Losing:
    job = a_job(cluster, tmp_path_factory.mktemp("losing"), task_batch_offsets_max="2")
    (topic,) = job.inputs
    cluster.publish(topic, b"0", b"1", b"raise", b"3", b"4", b"5", b"slow 10")
    assert ExitCode.TASK_FAILED == job.run(spark).code
    cluster.delete_before(topic, 5)
    other = job.run(spark, {"task.lost.range.accept": f"kafka.{topic}.0:0/1@2-4"})
    with job.running(spark, {"task.lost.range.accept": f"kafka.{topic}.0:0/1@2-5"}) as process:
        # Offsets 5 and 6 are one batch. It must be open while the next records are published and deleted.
        wait_until(lambda: job_is_in_a_batch(job), STARTS_WITHIN_S, "the job to continue at offset 5")
        cluster.publish(topic, b"7", b"8", b"9")
        cluster.delete_before(topic, 9)
        with_the_range = ended(process)
    return Losing(job, topic, other, with_the_range, cluster.values(job.output("answers")))


def job_is_in_a_batch(job: Job) -> bool:
    """Whether the job has an open transaction: outputs beyond the committed end."""
    return job.cluster.has_open_transaction(job.output("answers"))


def test_the_error_of_a_lost_range_names_its_offsets_and_the_setting_that_accepts_it(losing: Losing) -> None:
    losing.with_another_range.assert_ended(
        ExitCode.BAD_DATA,
        f"kafka.{losing.input}.0:0/1: wanted to read on from offset 2, but the topic now begins at 5: "
        "3 offsets, 2 to 4, are gone unread",
        f"--set task.lost.range.accept={losing.lost_range}",
    )


def test_with_that_setting_the_job_continues_and_skips_no_other_offset(losing: Losing) -> None:
    assert [b"0", b"1", b"5", b"slow 10"] == losing.visible


def test_the_accepted_range_is_recorded_in_the_coordinator_stream(cluster: Cluster, losing: Losing) -> None:
    keys = [record.key for record in cluster.read(coordinator_topic(losing.job.full_name))]

    assert 1 == keys.count(f"accepted-loss/kafka.{losing.input}.0:0/1".encode())


def test_a_range_lost_while_the_job_runs_stops_it_despite_an_older_accepted_range(losing: Losing) -> None:
    losing.with_the_range.assert_ended(
        ExitCode.BAD_DATA,
        "wanted to read on from offset 7, but the topic now begins at 9: 2 offsets, 7 to 8, are gone unread",
        f"--set task.lost.range.accept=kafka.{losing.input}.0:0/1@7-9",
    )


def test_an_input_that_was_made_again_is_refused(cluster: Cluster, losing: Losing) -> None:
    cluster.make_again(losing.input)

    outcome = losing.job.run()

    outcome.assert_ended(
        ExitCode.BAD_DATA, f"input kafka.{losing.input}: wanted the topic with id", "deleted and made again"
    )


def test_an_input_that_is_made_again_while_the_job_runs_stops_it(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = a_job(cluster, tmp_path)
    with job.running(spark) as process:
        wait_until_it_runs(job, process)

        cluster.make_again(job.inputs[0])

        outcome = ended(process)
    outcome.assert_ended(
        ExitCode.BAD_DATA, f"kafka.{job.inputs[0]}: wanted the topic with id", "deleted and made again"
    )


def wait_until_it_runs(job: Job, process: subprocess.Popen[str]) -> None:
    """Wait until a message is answered."""
    job.cluster.publish(job.inputs[0], b"are you there")
    answers = job.output("answers")
    wait_until(
        lambda: process.poll() is not None or job.cluster.values(answers), STARTS_WITHIN_S, "the job to answer"
    )


# --- foreign records on samzapy's own topics ---


def test_foreign_records_do_not_stop_a_job_and_are_named_by_status_and_doctor(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = a_job(cluster, tmp_path, stores_counts_msg_serde="bytes")
    specs = (
        coordinator_spec(job.full_name),
        checkpoint_spec(job.full_name),
        changelog_spec(job.full_name, "counts", 1),
    )
    stream, checkpoints, changelog = (cluster.make_own(spec) for spec in specs)
    for topic, key in ((stream, b"flights"), (checkpoints, b"flights"), (changelog, b"\x7f")):
        cluster.publish(topic, Message(value=b"of another program", key=key))
    address = ("--job", job.full_name, "--bootstrap-servers", cluster.bootstrap_servers)

    with job.running(spark) as process:
        wait_until_it_runs(job, process)
        foreign_at = publish_foreign_generation(cluster, stream)
        cluster.publish(job.inputs[0], b"count")
        counts = job.output("counts")
        wait_until(lambda: process.poll() is not None or cluster.values(counts), 120.0, "the job to count")
        status, doctor = run_samzapy("job", "status", *address), run_samzapy("doctor", "--changelogs", *address)
        process.terminate()
        outcome = ended(process)

    outcome.assert_ended(ExitCode.OK, f"{changelog}/0: 1 records are no entries of a store, the first at offset 0")
    assert [b"1"] == cluster.values(counts)
    on_stream = (
        f"{stream}-0 at offset 0, key 'flights': wanted a record with the leader's headers, found none of them; it "
        "cannot be read either",
        f"{stream}-0 at offset {foreign_at}, key 'generation': wanted a record with the leader's headers",
    )
    status.assert_ended(ExitCode.DEGRADED, *on_stream)
    doctor.assert_ended(
        ExitCode.BAD_DATA,
        *on_stream,
        f"{checkpoints}-0 at offset 0, key 'flights': cannot be read",
        f"{changelog}-0 at offset 0: ",
    )


def publish_foreign_generation(cluster: Cluster, stream: str) -> int:
    """Write a tombstone of the plan until the leader undoes it; returns its offset."""
    cluster.publish(stream, Message(value=None, key=b"generation"))

    def of_generation() -> list[LogRecord]:
        return [record for record in cluster.read(stream) if record.key == b"generation"]

    wait_until(lambda: of_generation()[-1].value is not None, 60.0, "the leader to restore the plan in force")
    (foreign,) = [record.offset for record in of_generation() if not record.headers]
    return foreign


def test_an_unreadable_record_that_may_have_replaced_a_checkpoint_stops_the_job(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path
) -> None:
    job = a_job(cluster, tmp_path)
    topic = cluster.make_own(checkpoint_spec(job.full_name))
    position = f"kafka.{job.inputs[0]}.0:0/1"
    cluster.publish(topic, Message(value=b"of another program", key=f"checkpoint/{position}".encode()))

    outcome = job.run(spark)

    outcome.assert_ended(
        ExitCode.BAD_DATA,
        f"{topic}-0 at offset 0, key 'checkpoint/{position}': cannot be read",
        f"It may have replaced the position of {position}",
        "write a null value under its key",
    )


# --- settings of Spark's under which order or exactly-once would be lost ---


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("spark.speculation", "true", ("--conf spark.speculation: wanted false, found true", "twice")),
        ("spark.sql.streaming.checkpointLocation", "/tmp/a", ("wanted it unset", "Spark's checkpoint is scratch")),
        ("spark.master", "spark://host:7077", ("--master: wanted local[n]", "found spark://host:7077")),
        ("spark.master", "local[0]", ("--master: wanted local[n]", "found local[0]")),
        ("spark.master", "local[2,4]", ("--master local[2,4]: wanted one attempt per task", "never retried")),
    ],
)
def test_a_spark_setting_that_breaks_a_guarantee_is_refused(
    cluster: Cluster, spark: WarmSpark, tmp_path: Path, name: str, value: str, expected: tuple[str, ...]
) -> None:
    job = a_job(cluster, tmp_path)

    with spark.with_setting(name, value):
        outcome = job.run(spark)

    outcome.assert_ended(ExitCode.USAGE, *expected)


def test_a_setting_that_spark_itself_refuses_is_named(cluster: Cluster, spark: WarmSpark, tmp_path: Path) -> None:
    job = a_job(cluster, tmp_path)

    with spark.with_setting("spark.ui.enabled", "maybe"):
        outcome = job.run(spark)

    outcome.assert_ended(
        ExitCode.USAGE, "wanted a Spark session with the settings given", "spark.ui.enabled", "maybe"
    )
