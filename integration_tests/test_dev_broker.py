"""The development broker of `samzapy dev`, and the faults of a machine."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.maven.fetch import cache_root, jar_paths
from samzapy.adapters.maven.locks import connector_lock, read_lock
from samzapy.testing.broker import DevBroker
from samzapy.testing.broker_cluster import DevCluster
from samzapy.testing.ports import free_port, port_is_free
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

SAMZAPY = Path(sys.executable).parent / "samzapy"


def samzapy(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with some variables of the environment changed."""
    return subprocess.run(
        [SAMZAPY, *arguments], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


def status(directory: Path) -> Mapping[str, object]:
    facts: Mapping[str, object] = json.loads(samzapy("dev", "status", "--dir", str(directory), "-o", "json").stdout)
    return facts


def write(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    """Makes a topic of one partition and puts records into it, acknowledged."""
    make_topics(bootstrap_servers, {topic: 1})
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert 0 == producer.flush(30)


def read(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    """The first `count` records of a topic's only partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(values), timeout=1):
            error = message.error()
            if error is None:
                values.append(message.value())
            else:
                assert error.code() == KafkaError._ALL_BROKERS_DOWN or error.retriable(), error
        return len(values) >= count

    try:
        wait_until(enough, 30.0, f"{count} records of {topic}")
    finally:
        consumer.close()
    return values


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for `samzapy dev`, whose broker is ended in any case."""
    yield tmp_path / "broker"
    if DevCluster.is_in(tmp_path / "broker"):
        DevCluster(tmp_path / "broker", detached=True).kill()
    else:
        DevBroker(tmp_path / "broker", detached=True).kill()


def test_a_broker_outlives_the_command_and_a_crash_and_keeps_its_data(directory: Path) -> None:
    port_number = str(free_port())
    where = ["--dir", str(directory)]

    started = samzapy("dev", "up", "--port", port_number, *where)
    assert 0 == started.returncode, started.stderr
    assert f"Kafka started: bootstrap.servers=127.0.0.1:{port_number}" in started.stdout
    write(f"127.0.0.1:{port_number}", "lasting", [b"a", b"b"])

    again = samzapy("dev", "up", "--port", port_number, *where)
    assert 0 == again.returncode
    assert "Kafka runs already" in again.stdout

    made = samzapy("dev", "topic", "lasting", "flights", "--partitions", "3", *where)
    assert "lasting: is there already\nflights: made with 3 partitions\n" == made.stdout, made.stderr

    first = status(directory)
    assert "running" == first["state"]
    pid = first["pid"]
    assert isinstance(pid, int)
    crashed = ProcessIdentity.of(pid)
    crashed.send(signal.SIGKILL)
    assert crashed.wait_gone(60)

    assert {"not running", pid} == {status(directory)["state"], status(directory)["stale_pid"]}
    assert 3 == samzapy("dev", "status", *where).returncode

    recovered = samzapy("dev", "up", "--port", port_number, *where)
    assert f"pid {pid}, ended without a shutdown; its data is kept" in recovered.stderr
    assert 0 == recovered.returncode, recovered.stderr
    assert [b"a", b"b"] == read(f"127.0.0.1:{port_number}", "lasting", 2)

    assert "Kafka stopped" in samzapy("dev", "down", *where).stdout
    assert "not running" == status(directory)["state"]
    assert "No broker runs in" in samzapy("dev", "down", *where).stdout
    assert "samzapy dev up starts it" in samzapy("dev", "topic", "flights", *where).stderr


def test_a_restart_after_a_shutdown_keeps_the_port_and_the_settings(directory: Path) -> None:
    where = ["--dir", str(directory)]
    wanted = ["--port", str(free_port()), "--set", "message.max.bytes=2000000", *where]
    assert 0 == samzapy("dev", "up", *wanted).returncode
    assert 0 == samzapy("dev", "down", *where).returncode

    restarted = samzapy("dev", "restart", *where)

    assert f"serves on 127.0.0.1:{wanted[1]}" in restarted.stdout, restarted.stderr
    assert "runs already" in samzapy("dev", "up", *wanted).stdout


def test_a_cluster_outlives_the_command_and_the_crash_of_a_node(directory: Path) -> None:
    where = ["--dir", str(directory)]

    wanted = ["--nodes", "3", "--port", str(_three_free_ports()), *where]

    started = samzapy("dev", "up", *wanted)
    assert 0 == started.returncode, started.stderr
    servers = started.stdout.partition("bootstrap.servers=")[2].partition(", directory")[0]
    assert 3 == len(servers.split(","))
    assert "runs already" in samzapy("dev", "up", *wanted).stdout
    assert "whose ports begin with" in samzapy("dev", "up", "--nodes", "3", "--port", "1024", *where).stderr
    assert "found one of 3" in samzapy("dev", "up", "--nodes", "2", *wanted[2:]).stderr
    assert "flights: made with 4 partitions\n" == samzapy("dev", "topic", "flights", *where).stdout
    [described] = AdminClient({"bootstrap.servers": servers}).list_topics("flights", timeout=10).topics.values()
    assert {3} == {len(partition.replicas) for partition in described.partitions.values()}

    assert "name it as NODE" in samzapy("dev", "kill", *where).stderr
    assert "found no node 4" in samzapy("dev", "kill", "4", *where).stderr
    assert "samzapy dev restart 2 starts it again" in samzapy("dev", "kill", "2", *where).stdout
    assert 3 == samzapy("dev", "status", *where).returncode
    killed = status(directory)
    assert "degraded" == killed["state"]
    assert isinstance(nodes := killed["nodes"], dict)
    assert ["running", "not running", "running"] == [node["state"] for node in nodes.values()]

    assert "node 2 serves" in samzapy("dev", "restart", "2", *where).stdout
    assert "running" == status(directory)["state"]
    assert "Kafka stopped" in samzapy("dev", "down", *where).stdout
    assert "not running" == status(directory)["state"]


def test_the_cluster_of_the_guide_is_a_fixture_of_another_project(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "testing-your-job.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n([^`]*dev_cluster[^`]*)^```$", guide, re.MULTILINE)
    (tmp_path / "test_cluster.py").write_text(example, encoding="utf-8")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_cluster.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def _three_free_ports() -> int:
    """The first of three ports in a row that are free."""
    while True:
        first = free_port()
        if all(port_is_free(port) for port in range(first, first + 3)):
            return first


def test_the_command_does_not_keep_the_pipes_of_its_caller_open(directory: Path) -> None:
    """`subprocess.run` would hang until its timeout: it reads both pipes to their end."""
    started = samzapy("dev", "up", "--port", str(free_port()), "--dir", str(directory))

    assert 0 == started.returncode
    process = DevBroker(directory, detached=True).process()
    assert process is not None
    open_files = {os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 1, 2)}
    assert {"/dev/null", str(directory / "broker.log")} == open_files
    assert process.pid == os.getsid(process.pid)


def test_a_taken_port_is_named(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port_number = server.getsockname()[1]

        refused = samzapy("dev", "up", "--port", str(port_number), "--dir", str(directory))

    assert 2 == refused.returncode
    assert refused.stderr.startswith(f"samzapy: Port {port_number} on 127.0.0.1 is wanted for the broker, but")
    assert "Traceback" not in refused.stderr


def test_a_setting_that_kafka_refuses_is_named(directory: Path) -> None:
    refused = samzapy("dev", "up", "--set", "num.io.threads=many", "--dir", str(directory))

    assert 2 == refused.returncode
    assert "Invalid value many for configuration num.io.threads" in refused.stderr


def test_the_error_of_a_broker_that_ends_while_it_starts_has_its_cause(tmp_path: Path) -> None:
    with DevBroker(tmp_path) as broker:
        broker.kill()
        meta = tmp_path / "data" / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))

        with pytest.raises(Exception, match=r"ended while starting: .*node.?id.*The whole story is in .*broker\.log"):
            broker.start()


def test_a_killed_broker_is_back_with_its_data_within_a_session_timeout(own_broker: DevBroker) -> None:
    write(own_broker.bootstrap_servers, "lasting", [b"a"])
    address = own_broker.bootstrap_servers

    ordinary_s, after_kill_s = list[float](), list[float]()
    # A machine that stalls does so once; a session that is too long is so each time.
    while len(after_kill_s) < 4 and min(after_kill_s, default=math.inf) >= min(ordinary_s, default=0.0) + 6:
        own_broker.stop()
        ordinary_s.append(_timed_start(own_broker))
        own_broker.kill()
        after_kill_s.append(_timed_start(own_broker))

    assert address == own_broker.bootstrap_servers
    assert [b"a"] == read(address, "lasting", 1)
    # The session of 3 s has to pass first. With Kafka's default it is 9 s, and this fails.
    assert min(after_kill_s) < min(ordinary_s) + 6


def test_a_paused_broker_answers_again_when_it_continues(own_broker: DevBroker) -> None:
    write(own_broker.bootstrap_servers, "lasting", [b"a"])

    own_broker.pause()
    producer = Producer({"bootstrap.servers": own_broker.bootstrap_servers, "message.timeout.ms": 1000})
    outcomes: list[KafkaError | None] = []
    producer.produce("lasting", b"lost", on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(10)
    own_broker.resume()

    assert [KafkaError._MSG_TIMED_OUT] == [error and error.code() for error in outcomes]
    assert [b"a"] == read(own_broker.bootstrap_servers, "lasting", 1)


def test_a_missing_java_is_named(directory: Path, tmp_path: Path) -> None:
    refused = samzapy("dev", "up", "--dir", str(directory), PATH=str(tmp_path), JAVA_HOME="")

    assert 2 == refused.returncode
    assert "samzapy: Java is needed, but JAVA_HOME is not set and no java is on PATH" in refused.stderr


def test_an_old_java_is_named_with_its_version(directory: Path, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'java version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)

    refused = samzapy("dev", "up", "--dir", str(directory), PATH=str(tmp_path), JAVA_HOME="")

    assert 2 == refused.returncode
    assert f"samzapy: Java 17 or newer is needed, found Java 8 at {java}." in refused.stderr


class Mirror:
    """A Maven repository in a directory, with the connector's jars and Ivy settings."""

    def __init__(self, directory: Path) -> None:
        self.jars = {
            jar.artifact: directory / jar.group / path.name
            for jar, path in zip(read_lock(connector_lock()), jar_paths(connector_lock(), cache_root()), strict=True)
        }
        for jar, path in zip(self.jars.values(), jar_paths(connector_lock(), cache_root()), strict=True):
            jar.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, jar)
        self.settings = directory / "settings.xml"
        pattern = f"{directory}/[organisation]/[artifact]-[revision].[ext]"
        self._settings(f'<filesystem name="mirror"><artifact pattern="{pattern}"/></filesystem>')

    def go_away(self) -> None:
        """Close the server: the address of the settings refuses connections."""
        nowhere = f"http://127.0.0.1:{free_port()}/"
        self._settings(f'<ibiblio name="mirror" m2compatible="true" usepoms="false" root="{nowhere}"/>')

    def _settings(self, resolver: str) -> None:
        self.settings.write_text(
            f'<ivysettings><settings defaultResolver="mirror"/><resolvers>{resolver}</resolvers></ivysettings>'
        )


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    made = Mirror(tmp_path / "mirror")
    monkeypatch.setenv("SAMZAPY_IVY_SETTINGS", str(made.settings))
    return made


def test_a_half_finished_download_is_repeated(mirror: Mirror, tmp_path: Path) -> None:
    half = tmp_path / "cache" / "jars" / "staging" / "cache" / "commons-pool2.jar.part"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"PK")

    paths = jar_paths(connector_lock(), tmp_path / "cache")

    assert [jar.file_name for jar in read_lock(connector_lock())] == [path.name for path in paths]
    assert not half.exists()


def test_a_jar_with_another_hash_is_refused_by_name(mirror: Mirror, directory: Path, tmp_path: Path) -> None:
    mirror.jars["commons-pool2"].write_bytes(b"not the locked jar")

    with pytest.raises(Exception, match=r"org\.apache\.commons:commons-pool2:2\.\d+\.\d+ is not the jar"):
        jar_paths(connector_lock(), tmp_path / "cache")

    assert not (tmp_path / "cache" / "jars" / "staging").exists()


def test_the_error_of_an_unreachable_repository_names_the_wanted_file(
    mirror: Mirror, directory: Path, tmp_path: Path
) -> None:
    mirror.go_away()

    refused = samzapy("dev", "up", "--dir", str(directory), SAMZAPY_CACHE_DIR=str(tmp_path / "cache"))

    assert 2 == refused.returncode
    assert "samzapy: No Maven repository could be reached to fetch: at.yawk.lz4:lz4-java:" in refused.stderr
    assert "Only access to a package registry is needed" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_another_repository_is_read_if_a_setting_names_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real Ivy, from a directory that is laid out as a Maven repository."""
    for jar, path in zip(read_lock(connector_lock()), jar_paths(connector_lock(), cache_root()), strict=True):
        place = tmp_path / "m 2" / jar.group.replace(".", "/") / jar.artifact / jar.version
        place.mkdir(parents=True)
        shutil.copyfile(path, place / jar.file_name)
    monkeypatch.setenv("SAMZAPY_MAVEN_REPOSITORY", (tmp_path / "m 2").as_uri())
    monkeypatch.delenv("SAMZAPY_IVY_SETTINGS", raising=False)

    paths = jar_paths(connector_lock(), tmp_path / "cache")

    assert [jar.file_name for jar in read_lock(connector_lock())] == [path.name for path in paths]


def _timed_start(broker: DevBroker) -> float:
    begun_s = time.monotonic()
    broker.start()
    return time.monotonic() - begun_s
