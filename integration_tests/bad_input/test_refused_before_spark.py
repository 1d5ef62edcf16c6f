"""What can be told before Spark is started is told in a second or two, by name, and without a stack trace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.bad_input.kit import (
    BY_WORD,
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
        found = inputs or (cluster.topic("input"),)
        return Job(cluster=cluster, directory=tmp_path, name=unique("refused"), inputs=found)

    return make


@pytest.fixture(scope="module", autouse=True)
def asking_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A job that asks addresses where nobody answers; it takes its 15 s while the other tests run."""
    addresses = f"127.0.0.1:{free_port()},nobody.invalid:9092"
    settings = (f"systems.kafka.bootstrap.servers={addresses}", f"local.store.dir={tmp_path_factory.mktemp('state')}")
    command = [sys.executable, BY_WORD, *A_JOB, *(part for setting in settings for part in ("--set", setting))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        yield addresses, process
        process.kill()


# --- the command line and the properties file ---


def test_the_error_of_an_unknown_key_names_the_nearest_known_one() -> None:
    told = run_samzapy("run", str(BY_WORD), *A_JOB, "--set", "task.eror.policy=fail")

    told.refused(ExitCode.USAGE, "unknown config key task.eror.policy", "did you mean task.error.policy?")


def test_under_spark_submit_messages_go_to_stderr_only() -> None:
    spark_submit = str(Path(sys.executable).with_name("spark-submit"))
    command = [spark_submit, BY_WORD, *A_JOB, "--set", "task.eror.policy=fail"]
    # spark-submit is a script that looks for python3 in PATH.
    environment = {**os.environ, "PATH": f"{Path(spark_submit).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    assert ExitCode.USAGE == ran.returncode
    assert "samzapy: unknown config key task.eror.policy" in ran.stderr
    assert "samzapy" not in ran.stdout


def test_sigterm_before_spark_is_up_ends_everything_with_143(tmp_path: Path) -> None:
    nobody = {"job.name": "a", "task.inputs": "kafka.b", "systems.kafka.bootstrap.servers": "127.0.0.1:1"}
    with JobProcess(
        BY_WORD, log_dir=tmp_path, overrides={**nobody, "local.store.dir": str(tmp_path)}, spark_options=()
    ) as process:
        process.start()
        wait_until(lambda: process.driver() is not None, 120.0, "the Python driver")

        assert 143 == process.terminate(60.0)
        process.wait_gone(60.0)


def test_a_properties_file_that_is_not_there_is_named() -> None:
    told = run_samzapy("run", str(JOBS / "no_task.py"))

    told.refused(ExitCode.USAGE, f"properties in {JOBS}/no_task.properties", "No such file", "--config")


def test_a_job_file_that_is_not_there_is_named() -> None:
    told = run_samzapy("run", str(JOBS / "nobody_wrote.py"), *A_JOB)

    told.refused(ExitCode.USAGE, f"found nothing at {JOBS}/nobody_wrote.py")


def test_the_error_of_a_spark_option_behind_the_job_file_names_its_place() -> None:
    told = run_python(BY_WORD, *A_JOB, "--master", "local[2]")

    told.refused(ExitCode.USAGE, "--master", "put spark-submit's own options before it")


def test_a_client_property_on_which_exactly_once_rests_is_refused() -> None:
    told = run_samzapy("run", str(BY_WORD), *A_JOB, "--set", "systems.kafka.client.enable.auto.commit=true")

    told.refused(ExitCode.USAGE, "samzapy sets enable.auto.commit itself", "remove the line")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("no.such.property=1", 'No such configuration property: "no.such.property"'),
        ("security.protocol=nonsense", 'Invalid value "nonsense" for configuration property "security.protocol"'),
    ],
)
def test_a_client_property_that_the_client_refuses_is_named(setting: str, words: str) -> None:
    told = run_python(BY_WORD, *A_JOB, *AN_ADDRESS, "--set", f"systems.kafka.client.{setting}")

    told.refused(ExitCode.USAGE, "systems.<system>.client.*", words, "correct the line, or remove it")


def test_dead_letters_without_a_place_for_them_are_refused() -> None:
    told = run_samzapy("run", str(BY_WORD), *A_JOB, *AN_ADDRESS, "--set", "task.error.policy=dead-letter")

    told.refused(ExitCode.USAGE, "task.error.policy=dead-letter", "wanted task.dead.letter.output")


# --- the job file ---


@pytest.mark.parametrize("start", [lambda *a: run_samzapy("run", *a), lambda file, *a: run_python(Path(file), *a)])
@pytest.mark.parametrize(
    ("job_file", "words"),
    [
        ("no_guard.py", 'if __name__ == "__main__":'),
        ("no_task.py", "wanted one function or class marked with @samzapy.task, found none"),
    ],
)
def test_the_error_of_a_file_without_a_task_names_what_is_missing(start, job_file: str, words: str) -> None:  # type: ignore[no-untyped-def]
    told = start(str(JOBS / job_file), *A_JOB)

    told.refused(ExitCode.USAGE, words)


def test_the_error_of_a_job_file_that_does_not_import_has_its_line() -> None:
    told = run_samzapy("run", str(JOBS / "does_not_import.py"), *A_JOB)

    told.refused(ExitCode.USAGE, "does_not_import.py does not import: line 3: ModuleNotFoundError", "nobody_has")


def test_a_job_file_that_does_not_import_under_spark_submit_fails_as_python_tells_it() -> None:
    """It ends before samzapy is asked anything: the trace is Python's own, of the user's file alone."""
    told = run_python(JOBS / "does_not_import.py", *A_JOB)

    assert ExitCode.FAILED == told.code
    told.says("does_not_import.py", "line 3", "No module named 'a_module_that_nobody_has'")


# --- the machine ---


def test_a_missing_java_is_reported_before_spark_looks_for_one(tmp_path: Path) -> None:
    path = str(Path(sys.executable).parent)

    told = run_samzapy("run", str(BY_WORD), *A_JOB, environment={"PATH": path, "JAVA_HOME": ""})

    told.refused(ExitCode.USAGE, "Java is needed, but JAVA_HOME is not set and no java is on PATH")


def test_an_old_java_is_reported_with_its_version(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    told = run_samzapy("run", str(BY_WORD), *A_JOB, environment={"PATH": path, "JAVA_HOME": ""})

    told.refused(ExitCode.USAGE, "Java 17 or newer is needed, found Java 11", str(java))


def test_a_jar_that_is_not_the_pinned_one_is_named(a_job: JobMaker, tmp_path: Path) -> None:
    for real in jar_paths(connector_lock()):
        home = tmp_path / "cache" / "jars" / real.parent.name
        home.mkdir(parents=True)
        (home / real.name).symlink_to(real)
    exchanged = next((tmp_path / "cache" / "jars").glob("*/commons-pool2-*.jar"))
    exchanged.unlink()
    exchanged.write_bytes(b"not what was pinned")

    told = run_python(BY_WORD, *a_job().arguments(), environment={"SAMZAPY_CACHE_DIR": str(tmp_path / "cache")})

    told.refused(ExitCode.USAGE, "commons-pool2", "is not the jar that samzapy was locked to", str(exchanged))


def test_a_directory_for_state_that_cannot_be_written_is_named(a_job: JobMaker, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")

    told = a_job().run(settings={"local.store.dir": str(tmp_path / "a file" / "state")})

    told.refused(ExitCode.USAGE, "local.store.dir: wanted a writable directory at", "a file/state", "Not a directory")


# --- the cluster ---


def test_the_error_of_a_silent_cluster_has_the_attempt_and_its_duration(
    asking_nobody: tuple[str, subprocess.Popen[str]],
) -> None:
    addresses, process = asking_nobody

    told = ended(process)

    told.refused(
        ExitCode.TIMED_OUT, f" s at {addresses}; ", "Connection refused", "Failed to resolve 'nobody.invalid"
    )
    assert re.search(r"looking for the cluster: no broker answered within [1-9][0-9] s", told.told), told.told


def test_an_input_that_is_not_there_is_named(cluster: Cluster, a_job: JobMaker) -> None:
    absent, present = unique("absent"), cluster.topic("present")

    told = a_job(present, absent).run()

    told.refused(
        ExitCode.BAD_DATA,
        f"wanted the topic {absent} at {cluster.bootstrap_servers}, found no such topic",
        "create it",
    )


def test_a_dead_letter_topic_that_is_not_there_is_named(cluster: Cluster, a_job: JobMaker) -> None:
    absent = unique("dead")

    told = a_job().run(settings={"task.error.policy": "dead-letter", "task.dead.letter.output": absent})

    told.refused(ExitCode.BAD_DATA, f"wanted the topic {absent}", "found no such topic")


@pytest.mark.parametrize(
    "topic_of", [coordinator_spec, checkpoint_spec, lambda job: changelog_spec(job, "counts", 1)]
)
def test_a_topic_of_ours_with_another_policy_is_refused_with_the_way_to_mend_it(  # type: ignore[no-untyped-def]
    cluster: Cluster, a_job: JobMaker, topic_of
) -> None:
    job = a_job()
    topic = topic_of(job.full_name).name
    cluster.make(topic, 1, {"cleanup.policy": "delete"})

    told = job.run(settings={"stores.counts.msg.serde": "bytes"})

    told.refused(
        ExitCode.BAD_DATA,
        f"wanted the topic {topic} with cleanup.policy=compact, found delete",
        "Mend it with: kafka-configs.sh",
    )


# --- records on the coordinator stream ---


LEADERS_HEADERS = tuple(headers(term=1, seq=0, event="TermBegun", cause="start", actor="leader").items())
"""Without them a record is foreign, and stops no reader (docs/internals/adr/0019)."""


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (b"generation", b"no record", ("key 'generation'", "cannot be read")),
        (b"generation", b"\xc3\x01" + bytes(range(8)) + b"\x02", ("key 'generation'", "a newer release")),
    ],
)
def test_a_leaders_record_that_cannot_be_read_is_named_by_place_and_key(
    cluster: Cluster, a_job: JobMaker, key: bytes, value: bytes, words: tuple[str, ...]
) -> None:
    job = a_job()
    topic = cluster.make_own(coordinator_spec(job.full_name))
    cluster.publish(topic, Message(value=value, key=key, headers=LEADERS_HEADERS))

    told = job.run()

    told.refused(
        ExitCode.BAD_DATA,
        f"{topic}-0 at offset 0",
        *words,
        "Its headers are the leader's (term 1, number 0)",
        "upgrade this process",
        "start the job under another job.id",
    )


def test_the_coordinator_stream_of_another_job_is_refused(cluster: Cluster, a_job: JobMaker) -> None:
    job = a_job()
    topic = cluster.make_own(coordinator_spec(job.full_name))
    key, value = encode(JobIdentityPut(job_name="another", job_id="7"))
    cluster.publish(topic, Message(key=key, value=value, headers=LEADERS_HEADERS))

    told = job.run()

    told.refused(ExitCode.BAD_DATA, f"job.name={job.name}", "found that of job.name=another, job.id=7")


# --- who asks a job that is not there ---


def test_a_request_to_a_job_that_is_not_there_is_refused_and_makes_no_topic(tmp_path: Path) -> None:
    """Also by brokers that make the topics that producers name."""
    command = ["--deployment-id", "1-a", "--app-name", "mistyped", "--processor-id", "0", "--destination-host", "h"]
    with DevBroker(tmp_path, overrides={"auto.create.topics.enable": "true"}) as broker:
        servers = broker.bootstrap_servers
        told = run_python(PLACE_CONTAINER, *command, "--bootstrap-servers", servers)

        told.refused(ExitCode.BAD_DATA, "wanted the job that has the topic __samzapy-placement-mistyped-1", "correct")
        assert {} == AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics
