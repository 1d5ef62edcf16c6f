"""A real Kafka broker on a loopback port, without Docker.

One KRaft node (broker and controller in one JVM) out of the jars that `adapters/maven` pins. Tests own theirs
and may kill, pause and restart it; `samzapy dev up` starts one that outlives the command. Nothing of the
broker's behaviour is imitated: it is formatted by Kafka's own tool, so the features (transaction version 2
among them) are those of a new cluster of that release.

What a broker directory holds: `server.properties` and `log4j2.properties` (written anew at each start),
`data/`, `broker.log` (and the one before), `broker.json` (which process runs here, see `processes.py`).

Traps this avoids, each met once:

- With the default session of 9 s the controller refuses a broker's new incarnation for that long: a restart
  after SIGKILL took 14 s. Hence `broker.session.timeout.ms=3000`.
- Inherited stdio keeps a CI step's pipes open for ever: the broker gets /dev/null and its own log file.
- A broker in its own session survives a crashed test run: it is killed at exit, and brokers whose owner died
  without an exit are removed when the next one is made.
- A port from the ephemeral range can be taken by any outgoing connection while the broker is down, even by a
  client that reconnects to that very port and meets itself: ports are picked from below the range.
"""

from __future__ import annotations

import atexit
import base64
import fcntl
import glob
import hashlib
import importlib
import json
import logging
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from samzapy.adapters.host.processes import ProcessIdentity, start_in_own_session
from samzapy.adapters.installed_spark import pyspark_jar
from samzapy.adapters.maven.fetch import cache_root, jar_paths
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.maven.locks import KAFKA_BROKER
from samzapy.errors import ConfigError, DeadlineError, EnvironmentMissingError, RejectedError, SamzapyError
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

LOOPBACK = "127.0.0.1"

BROKER_DEFAULTS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    # Compaction, retention and the end of abandoned transactions in a test's time, not in 15 s to 5 min.
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # A quarter of the small heap would go to the cleaner's default of 128 MiB; this does 600,000 keys a pass.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
}

_LOGGING = """status=warn
shutdownHook=disable
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p [%t] %c{1}: %m%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""

# Kafka brings slf4j 1.7 without a binding; without these four, first on the class path, it fails in silence.
_LOGGING_JARS = ("slf4j-api", "log4j-slf4j2-impl", "log4j-core", "log4j-api")

_START_ATTEMPTS = 3
_ARCHIVED_WITHIN_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The place of a node in its cluster.

    `controller_ports` has the controller port of each node by node id. The ports outlive a restart, because the other
    nodes know them; an empty mapping is a cluster of one node, which picks a port at each start.
    """

    node_id: int = 1
    cluster_id: str = ""
    controller_ports: Mapping[int, int] = field(default_factory=dict)


class DevBroker:
    """A broker in a directory: at most one process at a time, known by pid and start time.

    As a context manager it starts on entry and is killed on exit. Its data and its port last from one start
    to the next, so `kill()` and then `start()` is a crash and a recovery.

    Args:
        directory: where everything of this broker lives. Without one a temporary directory is made, and
            removed when the context ends.
        port_number: the port clients connect to; 0 picks a free one at the first start.
        advertised_port: the port it sends clients to, where that is another one: a proxy's in front of it.
        overrides: Kafka's own settings, over `BROKER_DEFAULTS`. Addresses, roles and directories are ours.
        secured: protocol of a second listener, for instance SASL_SSL; what it needs comes in `overrides` under
            `listener.name.secured.`. The plain one stays.
        detached: lives on when this Python process ends. Otherwise it is killed at exit.
        heap_mib: the JVM's largest heap.
        jvm_options: more of what the broker's JVM is started with.
        membership: its place in a cluster of several nodes (`testing.broker_cluster`); by default it is the only one.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port_number: int = 0,
        advertised_port: int = 0,
        overrides: Mapping[str, str] | None = None,
        secured: str = "",
        detached: bool = False,
        heap_mib: int = 512,
        jvm_options: Sequence[str] = (),
        membership: Membership | None = None,
    ) -> None:
        self._membership = membership or Membership()
        self._is_temporary = directory is None
        self.directory = (directory or temporary_directory()).absolute()
        self.overrides = dict(overrides or {})
        self._port_wanted = port_number
        self._port_number = port_number
        self._advertised_port = advertised_port
        self._secured = secured
        self._secured_port = 0
        self._detached = detached
        self._heap_mib = heap_mib
        self._jvm_options = jvm_options
        _refuse_overrides_of_ours(self.overrides)

    @property
    def port_number(self) -> int:
        """The port clients connect to; 0 as long as none has been picked."""
        record = self._record()
        return record.port_number if record else self._port_number

    @property
    def bootstrap_servers(self) -> str:
        """What a client's `bootstrap.servers` must be."""
        if not self.port_number:
            raise RejectedError(f"The broker in {self.directory} has no port before its first start: start() it.")
        return f"{LOOPBACK}:{self.port_number}"

    @property
    def secured_servers(self) -> str:
        """What `bootstrap.servers` must be of a client that uses the second listener."""
        assert self._secured and self._secured_port, "made with `secured`, and started"
        return f"{LOOPBACK}:{self._secured_port}"

    @property
    def log_path(self) -> Path:
        """What the broker of the latest start printed."""
        return self.directory / "broker.log"

    @property
    def pid_path(self) -> Path:
        """The pid file: which process runs here, and who started it."""
        return self.directory / "broker.json"

    def process(self) -> ProcessIdentity | None:
        """The broker's process while it lives, paused included; None for a stale pid file or none."""
        record = self._record()
        return record.process if record and record.process.is_alive() else None

    def stale_pid(self) -> int | None:
        """The pid in a pid file whose process is gone (it crashed or was killed), else None."""
        record = self._record()
        return record.process.pid if record and not record.process.is_alive() else None

    def overrides_of_last_start(self) -> Mapping[str, str]:
        """The settings of a broker that runs, or that ended without a shutdown; empty after a shutdown."""
        record = self._record()
        return record.overrides if record else {}

    def start(self, deadline_s: float = 60.0) -> None:
        """Starts the broker and waits until it serves; does nothing when it runs already as asked.

        Raises:
            EnvironmentMissingError: Java or the jars are missing.
            ConfigError: the port is taken, or a setting is not one Kafka takes; the message says which.
            RejectedError: it runs already, on another port or with other settings.
            DeadlineError: it did not serve within `deadline_s`; it has been killed.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(self.directory):
            if self._runs_as_asked():
                return
            if not self._detached:
                atexit.unregister(self._kill_at_exit)
                atexit.register(self._kill_at_exit, os.getpid())
            self._start_new(deadline_s)

    def stop(self, deadline_s: float = 20.0) -> None:
        """Ends the broker in order (SIGTERM), by force when that takes too long; nothing when none runs."""
        process = self.process()
        if process:
            process.send(signal.SIGCONT)  # A paused process would sit on its SIGTERM.
            process.send(signal.SIGTERM)
            if not process.wait_gone(deadline_s):
                _log.warning("the broker in %s ignored SIGTERM for %g s: killing it", self.directory, deadline_s)
                self.kill()
        self._forget_process()

    def kill(self) -> None:
        """Ends the broker as a crash would (SIGKILL); returns when the process is proven gone."""
        process = self.process()
        if process:
            process.send(signal.SIGKILL)
            if not process.wait_gone(deadline_s=30.0):
                raise DeadlineError(f"Waited 30 s for the killed broker, pid {process.pid}, to be gone; it is not.")
        self._forget_process()

    def pause(self) -> None:
        """Freezes the broker (SIGSTOP): connections stay open and nothing answers."""
        self._living().send(signal.SIGSTOP)
        wait_until(self._living().is_stopped, 10.0, f"the broker in {self.directory} to be paused")

    def resume(self) -> None:
        """Lets a paused broker go on (SIGCONT)."""
        process = self._living()
        process.send(signal.SIGCONT)
        wait_until(lambda: not process.is_stopped(), 10.0, f"the broker in {self.directory} to go on")

    def restart(self, deadline_s: float = 60.0) -> None:
        """Stops the broker if it runs and starts it on the same data and port."""
        self.stop()
        self.start(deadline_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        atexit.unregister(self._kill_at_exit)
        self._remove_temporary()

    def _runs_as_asked(self) -> bool:
        record = self._record()
        if record is None or not record.process.is_alive():
            return False
        port_fits = self._port_wanted in (0, record.port_number)
        if port_fits and self.overrides == record.overrides:
            return True
        raise RejectedError(
            f"The broker in {self.directory} runs already (pid {record.process.pid}), on port"
            f" {record.port_number} with settings {record.overrides or 'as by default'}; asked for was port"
            f" {self._port_wanted or 'any'} with {self.overrides or 'the defaults'}."
            " Stop it first (`samzapy dev down`)."
        )

    def _start_new(self, deadline_s: float) -> None:
        if self._port_number and not port_is_free(self._port_number):
            raise port_taken_error(self._port_number, "the broker")
        class_path = _class_path()
        for attempt in range(1, _START_ATTEMPTS + 1):
            port_number = self._port_number or free_port()
            controller_port = self._membership.controller_ports.get(self._membership.node_id) or free_port()
            self._write_settings(port_number, controller_port)
            self._format_once(class_path)
            process = self._spawn(class_path, port_number)
            try:
                wait_until(
                    lambda p=process, n=port_number: _serves(p, n, self._membership.node_id),  # type: ignore[misc]
                    deadline_s,
                    f"the broker in {self.directory} to serve on port {port_number} (see {self.log_path})",
                )
            except BaseException:  # Ctrl-C too: nobody would end a broker that never became one.
                self.kill()
                raise
            if process.is_alive():
                self._port_number = port_number
                return
            self._forget_process()
            process.wait_gone(0)
            taken = taken_port(self._log_text())
            if taken is not None and taken == self._port_number:
                raise port_taken_error(taken, "the broker")
            if taken is None or attempt == _START_ATTEMPTS:
                raise ConfigError(
                    f"The broker in {self.directory} ended while starting: {reason_in_log(self._log_text())}."
                    f" The whole story is in {self.log_path}."
                )
            # Else a port that we picked went to somebody else in between: pick again.

    def _write_settings(self, port_number: int, controller_port: int) -> None:
        addresses = _addresses(
            self.directory, port_number, controller_port, self._advertised_port, membership=self._membership
        )
        if self._secured:
            self._secured_port = self._secured_port or free_port()
            addresses["listener.security.protocol.map"] += f",SECURED:{self._secured}"
            for name in ("listeners", "advertised.listeners"):
                addresses[name] += f",SECURED://{LOOPBACK}:{self._secured_port}"
        settings = {**BROKER_DEFAULTS, **self.overrides, **addresses}
        lines = [f"{key}={value}\n" for key, value in sorted(settings.items())]
        (self.directory / "server.properties").write_text(_for_java("".join(lines)), encoding="ascii")
        (self.directory / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")

    def _java(self, class_path: str) -> list[str]:
        archive = _archive_path(class_path)
        return [
            str(find_java()),
            # Of another JVM it is none, and that is not worth a word.
            *((f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off") if archive.exists() else ()),
            f"-Xmx{self._heap_mib}m",
            "-XX:+UseSerialGC",  # Starts a third of a second sooner than G1, and two cores are few.
            "-XX:+ExitOnOutOfMemoryError",
            f"-XX:ErrorFile={self.directory}/jvm-crash.log",
            f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties",
            "-cp",
            class_path,
        ]

    def _format_once(self, class_path: str) -> None:
        """Makes `data/` a Kafka log directory: features and identity, 0.7 s, at the first start only."""
        if (self.directory / "data" / "meta.properties").exists():
            return
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", self._cluster_id(), "--ignore-formatted"]
        ran = subprocess.run(
            [*self._java(class_path), *tool, "--config", str(self.directory / "server.properties")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        if ran.returncode != 0:
            raise ConfigError(f"Kafka refuses to format {self.directory}/data: {reason_in_log(ran.stdout)}.")

    def _cluster_id(self) -> str:
        return self._membership.cluster_id or new_cluster_id()

    def _spawn(self, class_path: str, port_number: int) -> ProcessIdentity:
        if self.log_path.exists():
            self.log_path.replace(self.directory / "broker.previous.log")
        command = [
            *self._java(class_path),
            *self._jvm_options,
            "kafka.Kafka",
            str(self.directory / "server.properties"),
        ]
        process = start_in_own_session(command, self.log_path, os.environ)
        owner = None if self._detached else ProcessIdentity.of(os.getpid())
        record = _Record(process=process, owner=owner, port_number=port_number, overrides=self.overrides)
        record.write(self.pid_path)
        return process

    def _record(self) -> _Record | None:
        return _Record.read(self.pid_path)

    def _living(self) -> ProcessIdentity:
        process = self.process()
        if process is None:
            raise RejectedError(f"No broker runs in {self.directory}: start() it first.")
        return process

    def _forget_process(self) -> None:
        self._port_number = self._port_wanted or self.port_number
        self.pid_path.unlink(missing_ok=True)

    def _log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def _kill_at_exit(self, owner_pid: int) -> None:
        if os.getpid() == owner_pid:  # A forked child inherits the hook, not the broker.
            self.kill()
            self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


class ContainerBroker:
    """The same in Docker, by testcontainers (the extra `docker`): not to be killed or paused.

    Raises:
        EnvironmentMissingError: testcontainers is not installed, or Docker does not answer.
    """

    def __init__(self) -> None:
        if (trouble := docker_trouble()) is not None:
            raise EnvironmentMissingError(trouble)
        kafka: Any = importlib.import_module("testcontainers.community.kafka")
        self._container = kafka.KafkaContainer().with_kraft()
        for key, value in BROKER_DEFAULTS.items():
            self._container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)

    @property
    def bootstrap_servers(self) -> str:
        """What a client's `bootstrap.servers` must be."""
        return str(self._container.get_bootstrap_server())

    def __enter__(self) -> Self:
        self._container.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._container.stop()


def make_class_archive() -> None:
    """Make an archive of the broker's classes on this machine, unless it is there: brokers start in half the time.

    For who starts dozens of them; the archive is of one Java and one set of jars, takes 50 MB, and is in `cache_root`.

    Raises:
        EnvironmentMissingError: the JVM makes no archives.
    """
    path = _archive_path(_class_path())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=path.parent) as directory:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        made = Path(directory, "made.jsa")
        with DevBroker(jvm_options=[f"-XX:ArchiveClassesAtExit={made}"]) as broker:
            make_topics(broker.bootstrap_servers, {"a-topic": 1})
            broker.stop(_ARCHIVED_WITHIN_S)
        if not made.exists():
            raise EnvironmentMissingError(
                f"wanted the development broker's JVM to make {path}, found that it wrote none; brokers start without "
                "it, only slower"
            )
        made.replace(path)


def _class_path() -> str:
    return ":".join(map(str, (*map(pyspark_jar, _LOGGING_JARS), *jar_paths(KAFKA_BROKER))))


def _archive_path(class_path: str) -> Path:
    """Of the very files: a JVM takes no archive whose jars have another time, and says nothing of it."""
    files = "\n".join(f"{jar} {Path(jar).stat().st_mtime_ns}" for jar in class_path.split(":"))
    return cache_root() / f"kafka-{hashlib.blake2b(files.encode(), digest_size=4).hexdigest()}.jsa"


def docker_trouble() -> str | None:
    """Why no `ContainerBroker` can start here, with the way out; None where one can."""
    try:
        client: Any = importlib.import_module("testcontainers.core.docker_client")
    except ImportError as error:
        return f"wanted testcontainers, found: {error}; install the extra with pip: samzapy[docker]"
    try:
        client.DockerClient().client.ping()
    except Exception as error:  # A Docker client raises its own errors, those of requests, and those of sockets.
        return f"wanted a Docker that answers, found: {error}; start it, or set SAMZAPY_TEST_BROKER=local"
    return None


def wants_containers() -> bool:
    """Whether the environment asks tests to use Docker: SAMZAPY_TEST_BROKER=testcontainers."""
    wish = os.environ.get("SAMZAPY_TEST_BROKER", "")
    if wish not in ("", "local", "testcontainers"):
        raise ConfigError(f"SAMZAPY_TEST_BROKER is {wish!r}; it may be `local` (the default) or `testcontainers`.")
    return wish == "testcontainers"


def port_is_free(port_number: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As Java does: TIME_WAIT is no obstacle.
        try:
            probe.bind((LOOPBACK, port_number))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free loopback port that the kernel will not give to an outgoing connection either."""
    ephemeral_first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    candidates = range(15_000, max(ephemeral_first, 16_000))
    for port_number in random.SystemRandom().sample(candidates, 100):
        if port_is_free(port_number):
            return port_number
    raise SamzapyError(f"No free port on {LOOPBACK} among 100 tried in {candidates}; free some and try again.")


def taken_port(log: str) -> int | None:
    """The port that a broker's log says was in use, or None."""
    found = re.search(r"failed to bind to \S+?:(\d+): Address already in use", log)
    return int(found.group(1)) if found else None


def reason_in_log(log: str) -> str:
    """Why a broker ended, in its own words: the innermost cause of its last error, else its last lines."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if re.search(r"\b(ERROR|FATAL)\b|^Exception in", line)]
    if not errors:
        return " | ".join(lines[-5:]) or "it printed nothing"
    told = lines[errors[-1] :]
    causes = [line.removeprefix("Caused by: ") for line in told if line.startswith("Caused by: ")]
    if causes:
        return causes[-1]
    thrown = next((line for line in told[1:2] if not line.startswith("at ")), told[0])
    return thrown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What the pid file says."""

    process: ProcessIdentity
    owner: ProcessIdentity | None
    port_number: int
    overrides: Mapping[str, str]

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> _Record | None:
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                process=ProcessIdentity(**fields["process"]),
                owner=ProcessIdentity(**fields["owner"]) if fields["owner"] else None,
                port_number=fields["port_number"],
                overrides=fields["overrides"],
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is not a pid file of ours ({error!r}). Make sure that no broker runs on this"
                " directory, then delete the file."
            ) from error


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Replace the file as a whole, so that no reader finds half of it."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def _serves(process: ProcessIdentity, port_number: int, node_id: int) -> bool:
    """Whether the broker answers and counts itself in (a fenced one leaves itself out), or is dead."""
    if not process.is_alive():
        return True
    with socket.socket() as probe:
        if probe.connect_ex((LOOPBACK, port_number)) != 0:
            return False
    client = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port_number}", "log_level": 0})
    try:
        return node_id in client.list_topics(timeout=1).brokers
    except KafkaException:
        return False


def _addresses(
    directory: Path,
    port_number: int,
    controller_port: int,
    advertised_port: int = 0,
    *,
    membership: Membership | None = None,
) -> dict[str, str]:
    membership = membership or Membership()
    controller_ports = membership.controller_ports or {membership.node_id: controller_port}
    voters = ",".join(f"{node_id}@{LOOPBACK}:{port}" for node_id, port in sorted(controller_ports.items()))
    return {
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{advertised_port or port_number}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port_number},CONTROLLER://{LOOPBACK}:{controller_port}",
        "log.dirs": str(directory / "data"),
        "node.id": str(membership.node_id),
        "process.roles": "broker,controller",
    }


def _for_java(text: str) -> str:
    """Java reads a properties file as Latin-1, whatever is written there."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)


def _refuse_overrides_of_ours(overrides: Mapping[str, str]) -> None:
    ours = sorted(overrides.keys() & _addresses(Path(), 0, 0).keys())
    if ours:
        raise ConfigError(
            f"{', '.join(ours)} cannot be set: the broker's addresses, roles and directory follow from its"
            " port and directory. Choose those instead."
        )


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """One start or stop at a time per directory; the kernel frees the lock of a process that died."""
    with (directory / "start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def port_taken_error(port_number: int, whose: str) -> ConfigError:
    """What to say when another process listens on a port that is wanted for `whose`."""
    return ConfigError(
        f"Port {port_number} on {LOOPBACK} is wanted for {whose}, but another process listens there. Stop"
        f" that one (`ss -ltnp 'sport = :{port_number}'` names it) or choose another port."
    )


def new_cluster_id() -> str:
    """A cluster id in Kafka's form of a random uuid: base64 without padding, and without a dash at its start."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")
        if not text.startswith("-"):
            return text


def temporary_directory() -> Path:
    """A directory for a broker or a cluster of this process; those of dead test runs are removed first."""
    root = Path(tempfile.gettempdir()) / f"samzapy-brokers-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    _remove_orphans(root)
    return Path(tempfile.mkdtemp(prefix="broker-", dir=root))


def _remove_orphans(root: Path) -> None:
    """Kills and deletes the brokers under `root` whose owner ended without doing so itself."""
    # Unlike `Path.glob` it passes over the directory of a broker that another process removes just now.
    names = [name for pattern in ("*/broker.json", "*/*/broker.json") for name in glob.glob(pattern, root_dir=root)]
    orphans = [
        (pid_path, record.process)
        for pid_path in sorted(root / name for name in names)
        if (record := _Record.read(pid_path)) is not None and record.owner is not None and not record.owner.is_alive()
    ]
    for pid_path, process in orphans:
        _log.info("removing the broker that a dead test run left in %s", pid_path.parent)
        if process.send(signal.SIGKILL):
            process.wait_gone(deadline_s=30.0)
    for pid_path, _ in orphans:
        # The whole cluster's directory, where the broker is one of several.
        shutil.rmtree(root / pid_path.relative_to(root).parts[0], ignore_errors=True)
