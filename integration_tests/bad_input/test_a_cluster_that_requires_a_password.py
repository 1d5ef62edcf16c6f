"""One configuration gives librdkafka and the Java client access with a password."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.bad_input.kit import Cluster, Job, WarmSpark, unique
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.spark.java_properties import jaas
from samzapy.errors import ExitCode
from samzapy.model.topics import coordinator_topic
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import wants_containers

PASSWORD = "a\"b\\c;'{}= #,"  # All characters that need quoting.


def keytool(*arguments: str) -> None:
    subprocess.run([find_java().with_name("keytool"), *arguments], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the broker's key, and its certificate as a PEM file."""
    path = tmp_path_factory.mktemp("secured")
    store = ("-alias", "broker", "-keystore", str(path / "broker.p12"), "-storepass", "changeit")
    names = ("-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1")
    keytool("-genkeypair", "-keyalg", "EC", "-validity", "2", "-storetype", "PKCS12", *names, *store)
    keytool("-exportcert", "-rfc", "-file", str(path / "ca.pem"), *store)
    return path


@pytest.fixture(scope="module")
def secured(directory: Path) -> Iterator[DevBroker]:
    if wants_containers():
        pytest.skip("needs a listener of its own: the local broker")
    users = jaas("org.apache.kafka.common.security.plain.PlainLoginModule", user_ada=PASSWORD)
    overrides = {
        "sasl.enabled.mechanisms": "PLAIN",
        # A backslash escapes in a properties file too.
        "listener.name.secured.plain.sasl.jaas.config": users.replace("\\", "\\\\"),
        "listener.name.secured.ssl.keystore.type": "PKCS12",
        "listener.name.secured.ssl.keystore.location": str(directory / "broker.p12"),
        "listener.name.secured.ssl.keystore.password": "changeit",
    }
    with DevBroker(secured="SASL_SSL", overrides=overrides) as broker:
        yield broker


@pytest.fixture(scope="module")
def job(secured: DevBroker, directory: Path) -> Iterator[Job]:
    """Its password is in the environment alone."""
    cluster = Cluster(secured.bootstrap_servers)
    topic = cluster.topic("input")
    cluster.publish(topic, b"good", b"raise")
    secured_job = Job(
        cluster=cluster,
        directory=directory,
        name=unique("secured"),
        inputs=(topic,),
        settings={
            "systems.kafka.bootstrap.servers": secured.secured_servers,
            "systems.kafka.client.security.protocol": "sasl_ssl",
            "systems.kafka.client.ssl.ca.location": str(directory / "ca.pem"),
            "systems.kafka.client.sasl.mechanisms": "PLAIN",
            "systems.kafka.client.sasl.username": "ada",
            "systems.kafka.client.sasl.password": "${env:PASSWORD_OF_ADA}",
        },
    )
    cluster.make(secured_job.output("answers"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PASSWORD_OF_ADA", PASSWORD)
        yield secured_job


def test_a_job_reads_and_writes_with_a_password_and_never_shows_it(job: Job, spark: WarmSpark) -> None:
    outcome = job.run(spark)

    # The Java client read this message, and librdkafka recorded the error in the coordinator stream.
    outcome.assert_prints(f"failed at kafka.{job.inputs[0]}.0 offset 1", "ValueError: the message asked for it")
    assert ExitCode.TASK_FAILED == outcome.code
    assert PASSWORD not in outcome.output
    decided = job.cluster.read(coordinator_topic(job.full_name))
    assert any(record.key.endswith(b"sasl.password") for record in decided if record.key)
    assert not [record for record in decided if PASSWORD.encode() in (record.value or b"")]


def test_a_wrong_password_is_reported_before_spark_is_started(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD_OF_ADA", "wrong")
    outcome = job.run()

    outcome.assert_prints("authentication", "sasl.mechanism, user, password and ssl.ca.location")
    assert "wrong" not in outcome.output
    assert outcome.code in (ExitCode.USAGE, ExitCode.TIMED_OUT)
