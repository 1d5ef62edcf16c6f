"""The knowledge of the broker without starting one."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.errors import ConfigError, RejectedError
from samzapy.testing import broker
from samzapy.testing.broker import DevBroker
from samzapy.testing.broker_files import _for_java, reason_in_log, taken_port
from samzapy.testing.container_broker import wants_containers
from samzapy.testing.ports import LOOPBACK, free_port, port_is_free

LOG_OF_A_TAKEN_PORT = """\
2026-01-01T07:05:34,171 WARN [quorum-controller-1] QuorumController: Performing controller activation.
2026-01-01T07:05:34,921 ERROR [main] DataPlaneAcceptor: Unable to start acceptor for PLAINTEXT
org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:29192: Address already in use.
\tat org.apache.kafka.network.SocketServer.openServerSocket(SocketServer.java:1)
Caused by: java.net.BindException: Address already in use
"""

LOG_OF_A_WRONG_SETTING = """\
2026-01-01T07:05:34,100 INFO [main] Kafka$: Starting
2026-01-01T07:05:35,069 ERROR [main] Kafka$: Exiting Kafka due to fatal exception
org.apache.kafka.common.config.ConfigException: Invalid value abc for configuration num.io.threads
\tat org.apache.kafka.common.config.ConfigDef.parseType(ConfigDef.java:1)
"""

LOG_OF_A_DAMAGED_DIRECTORY = """\
2026-01-01T07:05:35,069 ERROR [main] Kafka$: Exiting Kafka due to fatal exception during startup.
java.lang.RuntimeException: no good
Caused by: java.lang.RuntimeException: still no good
Caused by: java.io.IOException: meta.properties is damaged
\tat org.apache.kafka.Something(Something.java:1)
2026-01-01T07:05:35,139 WARN late words
"""


@pytest.fixture
def sleeper() -> Iterator[ProcessIdentity]:
    """A process in the place of a broker."""
    with subprocess.Popen(["sleep", "600"]) as child:
        yield ProcessIdentity.of(child.pid)
        child.kill()


def a_pid_file(directory: Path, *, process: ProcessIdentity, owner: ProcessIdentity | None = None) -> DevBroker:
    """A broker directory whose pid file has this text."""
    directory.mkdir(parents=True, exist_ok=True)
    broker = DevBroker(directory)
    record = {
        "process": asdict(process),
        "owner": asdict(owner) if owner else None,
        "port_number": 19555,
        "overrides": {},
    }
    broker.pid_path.write_text(json.dumps(record))
    return broker


def test_the_reason_of_a_wrong_setting_is_the_exception_below_the_error() -> None:
    assert reason_in_log(LOG_OF_A_WRONG_SETTING).endswith("Invalid value abc for configuration num.io.threads")


def test_the_reason_is_the_innermost_cause() -> None:
    assert "java.io.IOException: meta.properties is damaged" == reason_in_log(LOG_OF_A_DAMAGED_DIRECTORY)


def test_without_an_error_the_last_line_is_the_reason() -> None:
    assert "Unrecognized VM option 'Foo' | Could not create the VM." == reason_in_log(
        "Unrecognized VM option 'Foo'\n\nCould not create the VM.\n"
    )
    assert "it printed nothing" == reason_in_log("")


def test_a_taken_port_is_read_from_the_log() -> None:
    assert 29192 == taken_port(LOG_OF_A_TAKEN_PORT)
    assert taken_port(LOG_OF_A_WRONG_SETTING) is None


def test_a_free_port_lies_below_those_of_outgoing_connections() -> None:
    ephemeral_first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    assert all(free_port() < ephemeral_first for _ in range(20))


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port_number = server.getsockname()[1]
        assert not port_is_free(port_number)

    assert port_is_free(port_number)


def test_a_taken_port_is_named_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port_number = server.getsockname()[1]

        with pytest.raises(ConfigError, match=rf"Port {port_number} on 127\.0\.0\.1 .* another process listens"):
            DevBroker(tmp_path, port_number=port_number).start()


def test_text_beyond_ascii_is_spelled_as_java_reads_it() -> None:
    assert r"log.dirs=/home/j\u00fcrgen/\ud83d\ude00" == _for_java("log.dirs=/home/jürgen/😀")


@pytest.mark.parametrize("key", ["listeners", "log.dirs", "node.id", "controller.quorum.voters"])
def test_addresses_and_directories_cannot_be_overridden(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} cannot be set"):
        DevBroker(tmp_path, overrides={key: "x"})


def test_a_broker_that_was_never_started_has_no_address(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="has no port before its first start"):
        _ = DevBroker(tmp_path).bootstrap_servers


def test_a_broker_that_does_not_run_cannot_be_paused(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="No broker runs in"):
        DevBroker(tmp_path).pause()


def test_a_broker_is_found_by_its_pid_file(tmp_path: Path, sleeper: ProcessIdentity) -> None:
    broker = a_pid_file(tmp_path, process=sleeper)

    assert sleeper == broker.process()
    assert broker.stale_pid() is None
    assert "127.0.0.1:19555" == broker.bootstrap_servers


def test_a_reused_pid_is_stale_and_left_alone(tmp_path: Path, sleeper: ProcessIdentity) -> None:
    broker = a_pid_file(tmp_path, process=replace(sleeper, started_ticks=sleeper.started_ticks - 1))

    assert broker.process() is None
    assert sleeper.pid == broker.stale_pid()

    broker.stop()
    assert sleeper.is_alive()
    assert not broker.pid_path.exists()


def test_stop_ends_the_process_of_the_pid_file(tmp_path: Path, sleeper: ProcessIdentity) -> None:
    broker = a_pid_file(tmp_path, process=sleeper)

    broker.stop()

    assert not sleeper.is_alive()
    assert not broker.pid_path.exists()


@pytest.mark.parametrize("content", ["", "4711", '{"process": 4711}', "[]"])
def test_a_pid_file_that_is_not_ours_is_refused(tmp_path: Path, content: str) -> None:
    broker = DevBroker(tmp_path)
    broker.pid_path.write_text(content)

    with pytest.raises(ConfigError, match="broker.json is not a pid file of ours"):
        broker.process()


def test_a_running_broker_is_not_started_again_on_another_port(tmp_path: Path, sleeper: ProcessIdentity) -> None:
    a_pid_file(tmp_path, process=sleeper)

    with pytest.raises(RejectedError, match=r"on port 19555 with settings as by default; asked for was port 19556"):
        DevBroker(tmp_path, port_number=19556).start()
    with pytest.raises(RejectedError, match=r"asked for was port any with \{'num.io.threads': '9'\}"):
        DevBroker(tmp_path, overrides={"num.io.threads": "9"}).start()


def test_a_dead_runs_broker_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: ProcessIdentity
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = DevBroker().directory.parent
    dead_owner = replace(sleeper, started_ticks=sleeper.started_ticks - 1)
    a_pid_file(root / "orphan", process=sleeper, owner=dead_owner)

    DevBroker()

    assert not sleeper.is_alive()
    assert not (root / "orphan").exists()


def test_a_living_runs_broker_and_a_detached_one_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: ProcessIdentity
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = DevBroker().directory.parent
    a_pid_file(root / "owned", process=sleeper, owner=sleeper)
    a_pid_file(root / "detached", process=sleeper, owner=None)

    DevBroker()

    assert sleeper.is_alive()
    assert (root / "owned").exists()
    assert (root / "detached").exists()


def test_a_broker_directory_that_another_run_removes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    leaving = DevBroker().directory.parent / "leaving"
    leaving.mkdir()
    scandir = os.scandir

    def after_the_removal(path: str) -> object:
        if str(path) == str(leaving):
            leaving.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", after_the_removal)

    DevBroker()

    assert not leaving.exists()


def test_a_class_archive_gets_its_name_once_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broker:
        bootstrap_servers = "127.0.0.1:1"

        def __init__(self, jvm_options: list[str]) -> None:
            Path(jvm_options[0].partition("=")[2]).write_text("an archive")

        def __enter__(self) -> Broker:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def stop(self, timeout_s: float) -> None:
            pass

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "kafka-1.jsa"
    for name, replacement in (
        ("DevBroker", Broker),
        ("archive_path", lambda _: path),
        ("class_path", lambda: ""),
        ("make_topics", lambda *_: None),
    ):
        monkeypatch.setattr(broker, name, replacement)

    with monkeypatch.context() as failing_disk:
        failing_disk.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            broker.make_class_archive()
    assert not path.exists()

    broker.make_class_archive()
    assert "an archive" == path.read_text()


def test_the_environment_chooses_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAMZAPY_TEST_BROKER", raising=False)
    assert not wants_containers()

    monkeypatch.setenv("SAMZAPY_TEST_BROKER", "testcontainers")
    assert wants_containers()

    monkeypatch.setenv("SAMZAPY_TEST_BROKER", "docker")
    with pytest.raises(ConfigError, match="'docker'; it may be `local` .* or `testcontainers`"):
        wants_containers()


def test_a_paused_broker_can_be_stopped_in_order(
    tmp_path: Path, sleeper: ProcessIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    broker = a_pid_file(tmp_path, process=sleeper)
    broker.pause()

    broker.stop(deadline_s=5.0)

    assert not sleeper.is_alive()
    assert "ignored SIGTERM" not in caplog.text
