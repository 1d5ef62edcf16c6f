"""Faults that are known before Spark starts are reported early, without a trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.bad_input.kit import (
    BY_ORDER,
    JOBS,
    PROPERTIES,
    Cluster,
    Job,
    Message,
    ended,
    run_python,
    run_samzapy,
    unique,
)
from integration_tests.support.job_process import JobProcess
from samzapy.adapters.maven.fetch import jar_paths
from samzapy.adapters.maven.locks import connector_lock
from samzapy.errors import ExitCode
from samzapy.model.topics import changelog_spec, checkpoint_spec, coordinator_spec
from samzapy.stream.codec import encode, headers
from samzapy.stream.records import JobIdentityPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.ports import free_port
from samzapy.testing.waiting import wait_until

A_JOB = ("--config", str(PROPERTIES), "--set", "job.name=a", "--set", "task.inputs=kafka.b")
PLACE_CONTAINER = Path(sys.executable).with_name("place-container")
AN_ADDRESS = ("--set", "systems.kafka.bootstrap.servers=127.0.0.1:1")
JobMaker = Callable[..., Job]


@pytest.fixture
def a_job(cluster: Cluster, tmp_path: Path) -> JobMaker:
    """A job with an input that is there; the test names what is wrong with it."""

    def make(*inputs: str) -> Job:
        topics = inputs or (cluster.topic("input"),)
        return Job(cluster=cluster, directory=tmp_path, name=unique("refused"), inputs=topics)

    return make


@pytest.fixture(scope="module", autouse=True)
def unanswered_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A job whose brokers never answer; its 15 s pass while the other tests run."""
    addresses = f"127.0.0.1:{free_port()},broker.invalid:9092"
    settings = (f"systems.kafka.bootstrap.servers={addresses}", f"local.store.dir={tmp_path_factory.mktemp('state')}")
    command = [sys.executable, BY_ORDER, *A_JOB, *(part for setting in settings for part in ("--set", setting))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        yield addresses, process
        process.kill()


# --- the command line and the properties file ---


def test_the_error_of_an_unknown_key_names_the_nearest_known_one() -> None:
    outcome = run_samzapy("run", str(BY_ORDER), *A_JOB, "--set", "task.eror.policy=fail")

    outcome.assert_ended(ExitCode.USAGE, "unknown config key task.eror.policy", "did you mean task.error.policy?")


def test_under_spark_submit_messages_go_to_stderr_only() -> None:
    spark_submit = str(Path(sys.executable).with_name("spark-submit"))
    command = [spark_submit, BY_ORDER, *A_JOB, "--set", "task.eror.policy=fail"]
    # spark-submit is a script that looks for python3 in PATH.
    environment = {**os.environ, "PATH": f"{Path(spark_submit).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    assert ExitCode.USAGE == ran.returncode
    assert "samzapy: unknown config key task.eror.policy" in ran.stderr
    assert "samzapy" not in ran.stdout


def test_sigterm_before_spark_is_up_ends_everything_with_143(tmp_path: Path) -> None:
    properties = {"job.name": "a", "task.inputs": "kafka.b", "systems.kafka.bootstrap.servers": "127.0.0.1:1"}
    with JobProcess(
        BY_ORDER, log_dir=tmp_path, overrides={**properties, "local.store.dir": str(tmp_path)}, spark_options=()
    ) as process:
        process.start()
        wait_until(lambda: process.driver() is not None, 120.0, "the Python driver")

        assert 143 == process.terminate(60.0)
        process.wait_gone(60.0)


def test_a_properties_file_that_is_not_there_is_named() -> None:
    outcome = run_samzapy("run", str(JOBS / "no_task.py"))

    outcome.assert_ended(ExitCode.USAGE, f"properties in {JOBS}/no_task.properties", "No such file", "--config")


def test_a_job_file_that_is_not_there_is_named() -> None:
    outcome = run_samzapy("run", str(JOBS / "absent.py"), *A_JOB)

    outcome.assert_ended(ExitCode.USAGE, f"found nothing at {JOBS}/absent.py")


def test_the_error_of_a_spark_option_behind_the_job_file_names_its_place() -> None:
    outcome = run_python(BY_ORDER, *A_JOB, "--master", "local[2]")

    outcome.assert_ended(ExitCode.USAGE, "--master", "put spark-submit's own options before it")


def test_a_client_property_that_exactly_once_needs_is_refused() -> None:
    outcome = run_samzapy("run", str(BY_ORDER), *A_JOB, "--set", "systems.kafka.client.enable.auto.commit=true")

    outcome.assert_ended(ExitCode.USAGE, "samzapy sets enable.auto.commit itself", "remove the line")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("no.such.property=1", 'No such configuration property: "no.such.property"'),
        ("security.protocol=nonsense", 'Invalid value "nonsense" for configuration property "security.protocol"'),
    ],
)
def test_a_client_property_that_the_client_refuses_is_named(setting: str, expected: str) -> None:
    outcome = run_python(BY_ORDER, *A_JOB, *AN_ADDRESS, "--set", f"systems.kafka.client.{setting}")

    outcome.assert_ended(ExitCode.USAGE, "systems.<system>.client.*", expected, "correct the line, or remove it")


def test_dead_letters_without_an_output_for_them_are_refused() -> None:
    outcome = run_samzapy("run", str(BY_ORDER), *A_JOB, *AN_ADDRESS, "--set", "task.error.policy=dead-letter")

    outcome.assert_ended(ExitCode.USAGE, "task.error.policy=dead-letter", "wanted task.dead.letter.output")


# --- the job file ---


@pytest.mark.parametrize("start", [lambda *a: run_samzapy("run", *a), lambda file, *a: run_python(Path(file), *a)])
@pytest.mark.parametrize(
    ("job_file", "expected"),
    [
        ("no_guard.py", 'if __name__ == "__main__":'),
        ("no_task.py", "wanted one function or class marked with @samzapy.task, found none"),
    ],
)
def test_the_error_of_a_file_without_a_task_names_the_missing_part(start, job_file: str, expected: str) -> None:  # type: ignore[no-untyped-def]
    outcome = start(str(JOBS / job_file), *A_JOB)

    outcome.assert_ended(ExitCode.USAGE, expected)


def test_the_error_of_a_job_file_that_does_not_import_has_its_line() -> None:
    outcome = run_samzapy("run", str(JOBS / "does_not_import.py"), *A_JOB)

    outcome.assert_ended(
        ExitCode.USAGE, "does_not_import.py does not import: line 3: ModuleNotFoundError", "a_missing_module"
    )


def test_a_job_file_that_does_not_import_under_spark_submit_fails_with_pythons_traceback() -> None:
    """The import fails before samzapy runs: the traceback is Python's own."""
    outcome = run_python(JOBS / "does_not_import.py", *A_JOB)

    assert ExitCode.FAILED == outcome.code
    outcome.assert_prints("does_not_import.py", "line 3", "No module named 'a_missing_module'")


# --- the machine ---


def test_a_missing_java_is_reported_before_spark_looks_for_one(tmp_path: Path) -> None:
    path = str(Path(sys.executable).parent)

    outcome = run_samzapy("run", str(BY_ORDER), *A_JOB, environment={"PATH": path, "JAVA_HOME": ""})

    outcome.assert_ended(ExitCode.USAGE, "Java is needed, but JAVA_HOME is not set and no java is on PATH")


def test_an_old_java_is_reported_with_its_version(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    outcome = run_samzapy("run", str(BY_ORDER), *A_JOB, environment={"PATH": path, "JAVA_HOME": ""})

    outcome.assert_ended(ExitCode.USAGE, "Java 17 or newer is needed, found Java 11", str(java))


def test_a_jar_that_is_not_the_pinned_one_is_named(a_job: JobMaker, tmp_path: Path) -> None:
    for real in jar_paths(connector_lock()):
        home = tmp_path / "cache" / "jars" / real.parent.name
        home.mkdir(parents=True)
        (home / real.name).symlink_to(real)
    exchanged = next((tmp_path / "cache" / "jars").glob("*/commons-pool2-*.jar"))
    exchanged.unlink()
    exchanged.write_bytes(b"not what was pinned")

    outcome = run_python(BY_ORDER, *a_job().arguments(), environment={"SAMZAPY_CACHE_DIR": str(tmp_path / "cache")})

    outcome.assert_ended(ExitCode.USAGE, "commons-pool2", "is not the jar that samzapy was locked to", str(exchanged))


def test_another_jar_with_the_connector_s_classes_in_front_of_the_pinned_one_is_named(
    a_job: JobMaker, tmp_path: Path
) -> None:
    """As from `--packages`, or a Spark with an added jar. Only the JVM sees them."""
    (pinned,) = (path for path in jar_paths(connector_lock()) if path.name.startswith("kafka-clients"))
    other = tmp_path / "another one" / pinned.name
    other.parent.mkdir()
    shutil.copy(pinned, other)
    with ZipFile(other, "a") as jar:
        jar.writestr("more", b"")

    outcome = run_python(BY_ORDER, *a_job().arguments(), environment={"SPARK_DIST_CLASSPATH": str(other)})

    outcome.assert_ended(
        ExitCode.USAGE, "KafkaConsumer: wanted it from the verified jar", str(pinned), f"found it in {other}"
    )


def test_a_directory_for_state_that_cannot_be_written_is_named(a_job: JobMaker, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")

    outcome = a_job().run(settings={"local.store.dir": str(tmp_path / "a file" / "state")})

    outcome.assert_ended(
        ExitCode.USAGE, "local.store.dir: wanted a writable directory at", "a file/state", "Not a directory"
    )


# --- the cluster ---


def test_the_error_of_an_unreachable_cluster_names_the_attempt_and_its_duration(
    unanswered_job: tuple[str, subprocess.Popen[str]],
) -> None:
    addresses, process = unanswered_job

    outcome = ended(process)

    outcome.assert_ended(
        ExitCode.TIMED_OUT, f" s at {addresses}; ", "Connection refused", "Failed to resolve 'broker.invalid"
    )
    assert re.search(r"looking for the cluster: no broker answered within [1-9][0-9] s", outcome.output), (
        outcome.output
    )


def test_an_input_that_is_not_there_is_named(cluster: Cluster, a_job: JobMaker) -> None:
    absent, present = unique("absent"), cluster.topic("present")

    outcome = a_job(present, absent).run()

    outcome.assert_ended(
        ExitCode.BAD_DATA,
        f"wanted the topic {absent} at {cluster.bootstrap_servers}, found no such topic",
        "create it",
    )


def test_a_dead_letter_topic_that_is_not_there_is_named(cluster: Cluster, a_job: JobMaker) -> None:
    absent = unique("dead")

    outcome = a_job().run(settings={"task.error.policy": "dead-letter", "task.dead.letter.output": absent})

    outcome.assert_ended(ExitCode.BAD_DATA, f"wanted the topic {absent}", "found no such topic")


@pytest.mark.parametrize(
    "topic_of", [coordinator_spec, checkpoint_spec, lambda job: changelog_spec(job, "counts", 1)]
)
def test_an_own_topic_with_another_cleanup_policy_is_refused_with_the_command_that_corrects_it(  # type: ignore[no-untyped-def]
    cluster: Cluster, a_job: JobMaker, topic_of
) -> None:
    job = a_job()
    topic = topic_of(job.full_name).name
    cluster.make(topic, 1, {"cleanup.policy": "delete"})

    outcome = job.run(settings={"stores.counts.msg.serde": "bytes"})

    outcome.assert_ended(
        ExitCode.BAD_DATA,
        f"wanted the topic {topic} with cleanup.policy=compact, found delete",
        "Mend it with: kafka-configs.sh",
    )


# --- records on the coordinator stream ---


LEADERS_HEADERS = tuple(headers(term=1, seq=0, event="TermBegun", cause="start", actor="leader").items())
"""Without them a record is foreign, and stops no reader (docs/internals/adr/0019)."""


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"generation", b"no record", ("key 'generation'", "cannot be read")),
        (b"generation", b"\xc3\x01" + bytes(range(8)) + b"\x02", ("key 'generation'", "a newer release")),
    ],
)
def test_the_error_of_an_unreadable_record_of_a_leader_names_its_offset_and_key(
    cluster: Cluster, a_job: JobMaker, key: bytes, value: bytes, expected: tuple[str, ...]
) -> None:
    job = a_job()
    topic = cluster.make_own(coordinator_spec(job.full_name))
    cluster.publish(topic, Message(value=value, key=key, headers=LEADERS_HEADERS))

    outcome = job.run()

    outcome.assert_ended(
        ExitCode.BAD_DATA,
        f"{topic}-0 at offset 0",
        *expected,
        "Its headers are the leader's (term 1, number 0)",
        "upgrade this process",
        "start the job under another job.id",
    )


def test_the_coordinator_stream_of_another_job_is_refused(cluster: Cluster, a_job: JobMaker) -> None:
    job = a_job()
    topic = cluster.make_own(coordinator_spec(job.full_name))
    key, value = encode(JobIdentityPut(job_name="another", job_id="7"))
    cluster.publish(topic, Message(key=key, value=value, headers=LEADERS_HEADERS))

    outcome = job.run()

    outcome.assert_ended(ExitCode.BAD_DATA, f"job.name={job.name}", "found that of job.name=another, job.id=7")


# --- a request to a job that is not there ---


def test_a_request_to_a_job_that_is_not_there_is_refused_and_makes_no_topic(tmp_path: Path) -> None:
    """Also by brokers that make the topics that producers name."""
    command = ["--deployment-id", "1-a", "--app-name", "mistyped", "--processor-id", "0", "--destination-host", "h"]
    with DevBroker(tmp_path, overrides={"auto.create.topics.enable": "true"}) as broker:
        servers = broker.bootstrap_servers
        outcome = run_python(PLACE_CONTAINER, *command, "--bootstrap-servers", servers)

        outcome.assert_ended(
            ExitCode.BAD_DATA, "wanted the job that has the topic __samzapy-placement-mistyped-1", "correct"
        )
        assert {} == AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics
