"""A Spark standalone cluster on loopback addresses; its workers act as hosts.

For development and for tests of the launcher (`adapters/spark/standalone_launcher.py`); `scripts/spark-cluster` starts
one that outlives the command, a test one whose parts it may kill. Worker `w2` listens on 127.0.0.2, has the resource
`host_w2` for as many containers as it takes, its own work directory, and an environment that names the host:
`SAMZAPY_HOST=w2`, and a `local.store.dir` of its own (`SAMZAPY_SET_LOCAL_STORE_DIR`).

A cluster's directory holds `cluster.json` (which processes run, by pid and start time, and on which ports), and
for the master and each worker a directory with its settings, its log, and its files. The master keeps its
list of drivers on disk (`recovery/`), so a master that is killed and started again continues with them.

Traps this avoids, each met once:

- Spark takes the next port when the one that it was given is in use: here it must not, and a taken port is named.
- Its web pages listen everywhere unless SPARK_LOCAL_IP has an address.
- A worker that is killed leaves no driver behind only because the driver watches the connection to its worker; what
  does not end so bears the cluster's mark in its environment, and is ended with the cluster.

Linux only: there all of 127.0.0.0/8 is the loopback device's.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import shutil
import signal
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

from samzapy.adapters.host.processes import ProcessIdentity, processes_with, start_in_own_session
from samzapy.adapters.installed_spark import pyspark_home
from samzapy.adapters.maven.fetch import cache_root, jars_there
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.maven.locks import connector_lock
from samzapy.adapters.spark.class_archive import CLASS_PATH_VARIABLE, JVM_VARIABLE, archive_path, of_worker
from samzapy.errors import ConfigError, DeadlineError, RejectedError
from samzapy.model.launch import HOST_VARIABLE
from samzapy.testing.broker_files import one_at_a_time, reason_in_log
from samzapy.testing.ports import LOOPBACK, free_port, port_is_free, port_taken_error
from samzapy.testing.waiting import wait_until

MASTER = "master"
_MARK = "SAMZAPY_SPARK_CLUSTER"
_STARTS_WITHIN_S = 180.0
_LOOK_EVERY_S = 0.3
_DRAINS_WITHIN_S = 30
_STOPS_WITHIN_S = _DRAINS_WITHIN_S + 15.0
_ENDS_WITHIN_S = 60.0
_DAEMON_MEMORY = "384m"
_ANSWER_WAIT_S = 5.0
_PORTS = ("master_port", "rest_port", "page_port")
_MASTER_HAS_CHANGED = "Master has changed, new master is at"
_GIVEN_UP = re.compile(r"Driver (\S+) was not found after master recovery")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The master's ports: for workers, REST and its page; 0 means any free one."""

    master_port: int = 0
    rest_port: int = 0
    page_port: int = 0


class SparkCluster:
    """A master and workers in a directory. A context manager starts and ends them.

    Args:
        directory: where everything of the cluster lives; without one a temporary directory, removed at the end.
        workers: how many; `w1` on 127.0.0.1, `w2` on 127.0.0.2, ...
        slots: how many containers each takes.
        cores, memory_mib: of each worker. Only numbers that the master counts down: nothing is reserved.
        detached: lives on when this Python process ends. Otherwise it is ended at exit.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        workers: int = 3,
        slots: int = 2,
        cores: int = 16,
        memory_mib: int = 16 * 1024,
        ports: Ports | None = None,
        detached: bool = False,
    ) -> None:
        self._is_temporary = directory is None
        self.directory = (directory or Path(tempfile.mkdtemp(prefix="samzapy-spark-"))).absolute()
        self._shape = {"workers": workers, "slots": slots, "cores": cores, "memory_mib": memory_mib}
        self._ports = ports or Ports()
        self._detached = detached

    @property
    def master_url(self) -> str:
        """The master's address for workers and for spark-submit's --master."""
        return f"spark://{LOOPBACK}:{self._known().ports.master_port}"

    @property
    def rest_url(self) -> str:
        """Where drivers are submitted."""
        return f"http://{LOOPBACK}:{self._known().ports.rest_port}"

    @property
    def page_url(self) -> str:
        """The master's page; below it `/json/`."""
        return f"http://{LOOPBACK}:{self._known().ports.page_port}"

    @property
    def record_path(self) -> Path:
        """Which processes run here."""
        return self.directory / "cluster.json"

    @property
    def recovery_directory(self) -> Path:
        """The master's list of drivers and workers, with the drivers' environments."""
        return self.directory / MASTER / "recovery"

    def hosts(self) -> Sequence[str]:
        """The names of the workers, which are those of the hosts that they pose as."""
        return [name for name in self._names() if name != MASTER]

    def processes(self) -> Mapping[str, ProcessIdentity | None]:
        """The master and each worker; None for one that does not run."""
        record = self._record()
        processes = {} if record is None else record.processes
        return {
            name: processes[name] if name in processes and processes[name].is_alive() else None
            for name in self._names()
        }

    def drivers(self) -> tuple[ProcessIdentity, ...]:
        """Every living process that a worker started, and those that they started."""
        record = self._record()
        if record is None:
            return ()
        own = set(record.processes.values())
        return tuple(process for process in processes_with(_MARK, record.mark) if process not in own)

    def log_path(self, name: str) -> Path:
        """The file with the output of the latest start of `name`."""
        return self.directory / name / "log"

    def start(self) -> None:
        """Start the missing processes, and wait until the master knows all workers.

        Raises:
            EnvironmentMissingError: no Java.
            ConfigError: a port is taken, or a process ended while it started; the message says which.
            RejectedError: it runs in another shape than asked for.
            DeadlineError: it did not come up; it has been ended.
        """
        find_java()
        self.directory.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(self.directory):
            begun = not any(self.processes().values())
            if begun:
                self._begin()
            elif not self._runs_as_asked():
                raise self._runs_otherwise()
            if not self._detached:
                atexit.unregister(self._end_at_exit)
                atexit.register(self._end_at_exit, os.getpid())
            try:
                missing = [name for name, process in self.processes().items() if process is None]
                self._start([name for name in missing if name == MASTER])
                self._start([name for name in missing if name != MASTER])
            except BaseException:  # Ctrl-C too: half a cluster is of no use.
                if begun:
                    self._end()
                raise

    def start_one(self, name: str) -> None:
        """Start a killed process again, and wait until the master knows it."""
        if self.processes()[name] is not None:
            raise RejectedError(f"{name} of the cluster in {self.directory} runs already")
        with one_at_a_time(self.directory):
            self._start([name])

    def kill_one(self, name: str) -> None:
        """Send SIGKILL, and prove that the process has ended."""
        process = self.living(name)
        process.send(signal.SIGKILL)
        if not process.wait_gone(_ENDS_WITHIN_S):
            raise DeadlineError(
                f"Waited {_ENDS_WITHIN_S:g} s for the killed {name}, pid {process.pid}, to end; it still runs."
            )

    def living(self, name: str) -> ProcessIdentity:
        """The process of the master or a worker. Raises RejectedError if it does not run."""
        process = self.processes()[name]
        if process is None:
            raise RejectedError(f"{name} of the cluster in {self.directory} does not run: start it first")
        return process

    def stop(self) -> int:
        """End workers with their drivers, then the master; returns the count of kills.

        A process that does not run is no error. The files in the drivers' work directories are kept.
        """
        if not self.record_path.exists():
            return 0
        with one_at_a_time(self.directory):
            return self._end()

    def kill(self) -> None:
        """End it and all that runs on it at once; nothing drains. Not running is fine."""
        record = self._record()
        if record is not None:
            _kill_all(record.mark)
            self.record_path.unlink(missing_ok=True)

    def page(self) -> Mapping[str, Any] | None:
        """The master's `/json/` page; None if it does not answer."""
        try:
            with urlopen(f"{self.page_url}/json/", timeout=_ANSWER_WAIT_S) as answer:  # ours
                page = json.load(answer)
        except (URLError, OSError, ValueError):
            return None
        return page if isinstance(page, dict) else None

    def masters_met(self, name: str) -> int:
        """How many restarted masters the worker has answered with its drivers."""
        return self._log_text(name).count(_MASTER_HAS_CHANGED)

    def drivers_ended_by_recovery(self) -> frozenset[str]:
        """The drivers that the present master gave up when it recovered.

        It has them killed. Spark does so if a worker registers before it has answered with its drivers, and the
        recovery completes in between: since SPARK-46346 a registered worker counts as one that has answered.
        """
        return frozenset(_GIVEN_UP.findall(self._log_text(MASTER)))

    def _log_text(self, name: str) -> str:
        return self.log_path(name).read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        atexit.unregister(self._end_at_exit)
        self._remove_temporary()

    def _names(self) -> Sequence[str]:
        record = self._record()
        count = (self._shape if record is None else record.shape)["workers"]
        return [MASTER, *(f"w{number}" for number in range(1, count + 1))]

    def _runs_as_asked(self) -> bool:
        record = self._known()
        asked, runs = asdict(self._ports), asdict(record.ports)
        return record.shape == self._shape and all(asked[name] in (0, runs[name]) for name in _PORTS)

    def _runs_otherwise(self) -> RejectedError:
        record = self._known()
        return RejectedError(
            f"The cluster in {self.directory} runs already, with {_as_text(record.shape)} and"
            f" {_as_text(asdict(record.ports))}; asked for was {_as_text(self._shape)} and"
            f" {_as_text(asdict(self._ports))}."
            " Stop it first (`scripts/spark-cluster down`)."
        )

    def _begin(self) -> None:
        """A cluster that shares nothing with an earlier one in the same directory."""
        before = self._record()
        if before is not None:
            _kill_all(before.mark)
        shutil.rmtree(self.recovery_directory, ignore_errors=True)
        wanted = asdict(self._ports)
        for name, port_number in wanted.items():
            if port_number and not port_is_free(port_number):
                raise port_taken_error(port_number, _WHOSE_PORT[name])
        picked = {name: port_number or free_port() for name, port_number in wanted.items()}
        _Record(mark=uuid.uuid4().hex, shape=self._shape, ports=Ports(**picked)).write(self.record_path)

    def _start(self, names: Sequence[str]) -> None:
        """All of them at the same time: most of a start is a JVM's."""
        started = {name: self._spawn(name) for name in names}
        for name, process in started.items():
            log = self.log_path(name)
            wait_until(
                lambda name=name, process=process: not process.is_alive() or self._is_up(name),  # type: ignore[misc]
                _STARTS_WITHIN_S,
                f"{name} of the cluster in {self.directory} to be up (see {log})",
                poll_interval_s=_LOOK_EVERY_S,
            )
            if process.wait_gone(0):
                text = self._log_text(name)
                raise ConfigError(f"{name} ended while starting: {reason_in_log(text)}. The whole story is in {log}.")

    def _spawn(self, name: str) -> ProcessIdentity:
        record = self._known()
        directory, log = self.directory / name, self.log_path(name)
        directory.mkdir(exist_ok=True)
        if log.exists():
            log.replace(directory / "log.previous")
        command, environment = self._of_master(record) if name == MASTER else self._of_worker(record, name)
        process = start_in_own_session(command, log, {**os.environ, **environment, _MARK: record.mark})
        record.with_process(name, process).write(self.record_path)
        return process

    def _is_up(self, name: str) -> bool:
        page = self.page()
        if page is None:
            return False
        if name == MASTER:
            return bool(page.get("status") == "ALIVE")
        alive = {worker["host"] for worker in page.get("workers", ()) if worker["state"] == "ALIVE"}
        return _address(name) in alive

    def _of_master(self, record: _Record) -> tuple[list[str], Mapping[str, str]]:
        ports, directory, recovery = record.ports, self.directory / MASTER, self.recovery_directory
        # As the guide asks for: the master writes the environment of each driver there, in files that all may read.
        recovery.mkdir(mode=0o700, exist_ok=True)
        settings = {
            "spark.deploy.recoveryDirectory": str(recovery),
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.master.rest.enabled": "true",
            "spark.master.rest.port": str(ports.rest_port),
        }
        options = ["--host", LOOPBACK, "--port", str(ports.master_port), "--webui-port", str(ports.page_port)]
        command = self._spark_class("org.apache.spark.deploy.master.Master", directory, settings)
        return [*command, *options], _environment(directory, LOOPBACK)

    def _of_worker(self, record: _Record, name: str) -> tuple[list[str], Mapping[str, str]]:
        directory, shape, address = self.directory / name, record.shape, _address(name)
        resource = f"spark.worker.resource.host_{name}"
        discovery = directory / "discovery.sh"
        slots = json.dumps({"name": f"host_{name}", "addresses": [str(slot) for slot in range(shape["slots"])]})
        discovery.write_text(f"#!/bin/sh\necho '{slots}'\n", encoding="ascii")
        discovery.chmod(0o755)
        settings = {f"{resource}.amount": str(shape["slots"]), f"{resource}.discoveryScript": str(discovery)}
        options = ["--host", address, "--port", "0", "--webui-port", "0", "--work-dir", str(directory / "work")]
        offer = ["--cores", str(shape["cores"]), "--memory", f"{shape['memory_mib']}m"]
        command = self._spark_class("org.apache.spark.deploy.worker.Worker", directory, settings)
        environment = {
            **_environment(directory, address),
            HOST_VARIABLE: name,
            "SAMZAPY_SET_LOCAL_STORE_DIR": str(directory / "state"),
        }
        return [*command, *options, *offer, self.master_url], environment

    def _spark_class(self, main_class: str, directory: Path, settings: Mapping[str, str]) -> list[str]:
        properties = directory / "spark.properties"
        everything = {
            # The master gives up a worker that is silent for so many seconds; workers report four times as often.
            "spark.worker.timeout": "15",
            # Between SIGTERM and SIGKILL for a driver.
            "spark.worker.driverTerminateTimeout": f"{_DRAINS_WITHIN_S}s",
            "spark.port.maxRetries": "0",
            "spark.ui.reverseProxy": "false",
            **settings,
        }
        properties.write_text("".join(f"{key} {value}\n" for key, value in sorted(everything.items())))
        return [str(pyspark_home() / "bin" / "spark-class"), main_class, "--properties-file", str(properties)]

    def _end(self) -> int:
        record = self._known()
        names = [*self.hosts(), MASTER]
        for group in (names[:-1], names[-1:]):
            ending = [process for name in group if (process := self.processes()[name]) is not None]
            for process in ending:
                process.send(signal.SIGCONT)  # A stopped process would sit on its SIGTERM.
                process.send(signal.SIGTERM)
            for process in ending:
                process.wait_gone(_STOPS_WITHIN_S)
        killed = _kill_all(record.mark)
        self.record_path.unlink(missing_ok=True)
        return killed

    def _end_at_exit(self, owner_pid: int) -> None:
        if os.getpid() == owner_pid and self.record_path.exists():
            # A forked child inherits the hook, not the cluster.
            self.kill()
            self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _known(self) -> _Record:
        record = self._record()
        if record is None:
            raise RejectedError(f"No Spark cluster runs in {self.directory}: start it first.")
        return record

    def _record(self) -> _Record | None:
        return _Record.read(self.record_path)


_WHOSE_PORT = {
    "master_port": "Spark's master",
    "rest_port": "the REST server of Spark's master",
    "page_port": "the page of Spark's master",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The content of `cluster.json`."""

    mark: str
    shape: Mapping[str, int]
    ports: Ports
    processes: Mapping[str, ProcessIdentity] = field(default_factory=dict)

    def with_process(self, name: str, process: ProcessIdentity) -> _Record:
        return _Record(
            mark=self.mark, shape=self.shape, ports=self.ports, processes={**self.processes, name: process}
        )

    def write(self, path: Path) -> None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> _Record | None:
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                mark=fields["mark"],
                shape=fields["shape"],
                ports=Ports(**fields["ports"]),
                processes={name: ProcessIdentity(**process) for name, process in fields["processes"].items()},
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} does not say which processes a cluster has ({error!r}). Make sure that no Spark runs on this"
                " directory, then delete the file."
            ) from error


def await_no_driver(cluster: SparkCluster, within_s: float) -> None:
    """Wait until no process that a worker started lives, and the master knows that.

    Raises DeadlineError.
    """

    def is_on_the_page() -> bool:
        page = cluster.page()
        return page is None or bool(page["activedrivers"])

    wait_until(lambda: not cluster.drivers(), within_s, "the last process of every driver to be gone")
    wait_until(lambda: not is_on_the_page(), within_s, "the master to know of no driver", poll_interval_s=0.3)


def _kill_all(mark: str) -> int:
    """End every process that bears `mark`, with its children; returns their number."""
    count = 0
    while processes := processes_with(_MARK, mark):
        count += len(processes)
        for process in processes:
            process.send(signal.SIGKILL)
        for process in processes:
            if not process.wait_gone(_ENDS_WITHIN_S):
                raise DeadlineError(
                    f"Waited {_ENDS_WITHIN_S:g} s for the killed process {process.pid} to end; it still runs."
                )
    return count


def _environment(directory: Path, address: str) -> Mapping[str, str]:
    """A daemon's variables beside its parent's; the drivers of a worker inherit them."""
    jars = jars_there(connector_lock())
    inherited = {name: os.environ[name] for name in (JVM_VARIABLE, CLASS_PATH_VARIABLE) if name in os.environ}
    return {
        **of_worker(inherited, jars, archive_path(cache_root(), jars)),
        # Without a user's spark-defaults.conf and log4j2.properties; and no JVM takes a class archive whose class
        # path has a directory with anything in it.
        "SPARK_CONF_DIR": str(directory / "conf"),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError",
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "SPARK_HOME": str(pyspark_home()),
        "SPARK_LOCAL_IP": address,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_PUBLIC_DNS": address,
    }


def _address(name: str) -> str:
    return f"127.0.0.{name.removeprefix('w')}"


def _as_text(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
