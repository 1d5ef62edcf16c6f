"""A real Kafka broker on a loopback port, without Docker.

One KRaft node (broker and controller in one JVM) out of the jars that `adapters/maven` pins. Tests own theirs
and may kill, pause and restart it; `samzapy dev up` starts one that outlives the command. Nothing of the
broker's behaviour is imitated: it is formatted by Kafka's own tool, so the features (transaction version 2
among them) are those of a new cluster of that release.

A broker directory has these files: `server.properties` and `log4j2.properties` (written again at each start), `data/`,
`broker.log` (and the one before), `broker.json` (the process that runs here, see `processes.py`), `last-start.json`
(the port and settings of the latest start).

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
import fcntl
import glob
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.errors import ConfigError, DeadlineError, EnvironmentMissingError, RejectedError
from samzapy.testing.broker_files import (
    BrokerFiles,
    BrokerRecord,
    LastStart,
    Membership,
    one_at_a_time,
    reason_in_log,
    taken_port,
)
from samzapy.testing.broker_jvm import archive_path, class_path, spawn
from samzapy.testing.ports import LOOPBACK, free_port, port_is_free, port_taken_error
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

_START_ATTEMPTS = 3
_ARCHIVED_WITHIN_S = 60.0
_log = logging.getLogger(__name__)


class DevBroker:
    """A broker in a directory, at most one process at a time.

    The process is known by pid and start time.

    As a context manager it starts on entry and is killed on exit. Its data and its port last from one start
    to the next, so `kill()` and then `start()` is a crash and a recovery.

    Args:
        directory: where everything of this broker lives. Without one a temporary directory is made, and
            removed when the context ends.
        port_number: the port clients connect to; 0 picks a free one at the first start.
        advertised_port: the port it sends clients to, where that is another one: a proxy's in front of it.
        overrides: Kafka's own settings, over `BROKER_DEFAULTS`. Addresses, roles and directories are ours.
        secured: protocol of a second listener, for instance SASL_SSL; its settings come in `overrides` under
            `listener.name.secured.`. The plain one stays.
        detached: lives on when this Python process ends. Otherwise it is killed at exit.
        jvm_options: more options of the broker's JVM, for instance `-Xmx1g`; its heap has 512 MiB by default.
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
        jvm_options: Sequence[str] = (),
        membership: Membership | None = None,
    ) -> None:
        self._is_temporary = directory is None
        self.directory = (directory or temporary_directory()).absolute()
        self.overrides = dict(overrides or {})
        self._files = BrokerFiles(
            self.directory,
            self.overrides,
            membership or Membership(),
            advertised_port=advertised_port,
            secured=secured,
        )
        self._port_wanted = port_number
        self._port_number = port_number
        self._detached = detached
        self._jvm_options = jvm_options

    @property
    def port_number(self) -> int:
        """The port clients connect to; 0 as long as none has been picked."""
        record = self._files.record()
        return record.port_number if record else self._port_number

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of a client."""
        if not self.port_number:
            raise RejectedError(f"The broker in {self.directory} has no port before its first start: start() it.")
        return f"{LOOPBACK}:{self.port_number}"

    @property
    def secured_servers(self) -> str:
        """The `bootstrap.servers` of a client that uses the second listener."""
        assert self._files.secured_port, "made with `secured`, and started"
        return f"{LOOPBACK}:{self._files.secured_port}"

    @property
    def log_path(self) -> Path:
        """The broker's output since the latest start."""
        return self._files.log_path

    @property
    def pid_path(self) -> Path:
        """The pid file: the broker's process, and the process that started it."""
        return self._files.pid_path

    def process(self) -> ProcessIdentity | None:
        """The broker's process while it lives, paused included.

        None for a stale pid file or none.
        """
        record = self._files.record()
        return record.process if record and record.process.is_alive() else None

    def stale_pid(self) -> int | None:
        """The pid in a pid file whose process is gone, else None.

        The process crashed or was killed.
        """
        record = self._files.record()
        return record.process.pid if record and not record.process.is_alive() else None

    def last_start(self) -> LastStart | None:
        """The port and settings of the latest start, after a shutdown too.

        None where no broker has ever served.
        """
        return self._files.last_start()

    def start(self, deadline_s: float = 180.0) -> None:
        """Start the broker and wait until it serves.

        It does nothing when the broker runs already as asked.

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
        """End the broker in order (SIGTERM), and kill it if that takes too long.

        It does nothing when no broker runs.
        """
        process = self.process()
        if process:
            process.send(signal.SIGCONT)  # A paused process would sit on its SIGTERM.
            process.send(signal.SIGTERM)
            if not process.wait_gone(deadline_s):
                _log.warning("the broker in %s ignored SIGTERM for %g s: killing it", self.directory, deadline_s)
                self.kill()
        self._forget_process()

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL).

        It returns when the process is proven gone.
        """
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

    def restart(self, deadline_s: float = 180.0) -> None:
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
        record = self._files.record()
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
        for attempt in range(1, _START_ATTEMPTS + 1):
            port_number = self._port_number or free_port()
            if self._serves_on(port_number, deadline_s):
                self._port_number = port_number
                self._files.keep_start(port_number)
                return
            taken = taken_port(self._files.log_text())
            if taken is not None and taken == self._port_number:
                raise port_taken_error(taken, "the broker")
            if taken is None or attempt == _START_ATTEMPTS:
                raise ConfigError(
                    f"The broker in {self.directory} ended while starting: {reason_in_log(self._files.log_text())}."
                    f" The whole story is in {self.log_path}."
                )
            # Else another process has taken the port that we picked: pick again.

    def _serves_on(self, port_number: int, deadline_s: float) -> bool:
        """Start a process and wait until it serves; false: it has ended."""
        membership = self._files.membership
        controller_port = membership.controller_ports.get(membership.node_id) or free_port()
        self._files.write_settings(port_number, controller_port)
        process = spawn(self._files, self._jvm_options)
        owner = None if self._detached else ProcessIdentity.of(os.getpid())
        record = BrokerRecord(process=process, owner=owner, port_number=port_number, overrides=self.overrides)
        record.write(self.pid_path)
        try:
            wait_until(
                lambda: _serves(process, port_number, membership.node_id),
                deadline_s,
                f"the broker in {self.directory} to serve on port {port_number} (see {self.log_path})",
            )
        except BaseException:  # Ctrl-C too: no later call would end a broker that never served.
            self.kill()
            raise
        if process.is_alive():
            return True
        self._forget_process()
        process.wait_gone(0)
        return False

    def _living(self) -> ProcessIdentity:
        process = self.process()
        if process is None:
            raise RejectedError(f"No broker runs in {self.directory}: start() it first.")
        return process

    def _forget_process(self) -> None:
        self._port_number = self._port_wanted or self.port_number
        self.pid_path.unlink(missing_ok=True)

    def _kill_at_exit(self, owner_pid: int) -> None:
        if os.getpid() == owner_pid:  # A forked child inherits the hook, not the broker.
            self.kill()
            self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def make_class_archive() -> None:
    """Make an archive of the broker's classes on this machine, unless it exists.

    Brokers start in half the time with it.

    This pays for tests that start dozens of brokers; the archive is of one Java and one set of jars, takes 50 MB, and
    is in `cache_root`.

    Raises:
        EnvironmentMissingError: the JVM makes no archives.
    """
    path = archive_path(class_path())
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
        # The JVM checks only the head of an archive, so its body must be on the disk before it has its name.
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path)


def _serves(process: ProcessIdentity, port_number: int, node_id: int) -> bool:
    """Whether the broker answers and is not fenced, or is dead.

    A fenced broker leaves itself out of its answer.
    """
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


def temporary_directory() -> Path:
    """A directory for a broker or a cluster of this process.

    Directories of dead test runs are removed first.
    """
    root = Path(tempfile.gettempdir()) / f"samzapy-brokers-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    _remove_orphans(root)
    return Path(tempfile.mkdtemp(prefix="broker-", dir=root))


def _remove_orphans(root: Path) -> None:
    """Kill and delete the brokers under `root` whose owner ended without doing so."""
    # Unlike `Path.glob` it passes over the directory of a broker that another process removes just now.
    names = [name for pattern in ("*/broker.json", "*/*/broker.json") for name in glob.glob(pattern, root_dir=root)]
    orphans = [
        (pid_path, record.process)
        for pid_path in sorted(root / name for name in names)
        if (record := BrokerRecord.read(pid_path)) is not None
        and record.owner is not None
        and not record.owner.is_alive()
    ]
    for pid_path, process in orphans:
        _log.info("removing the broker that a dead test run left in %s", pid_path.parent)
        if process.send(signal.SIGKILL):
            process.wait_gone(deadline_s=30.0)
    for pid_path, _ in orphans:
        # The whole cluster's directory, where the broker is one of several.
        shutil.rmtree(root / pid_path.relative_to(root).parts[0], ignore_errors=True)
