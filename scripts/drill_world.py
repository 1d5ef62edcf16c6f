"""The small job of the drill: a broker, a coordinator, containers on hosts.

Everything is in one directory, belongs to one process, and is ended by `close`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Producer

from samzapy.adapters.host.process_launcher import DIRECTORY
from samzapy.adapters.host.processes import ProcessIdentity, processes_bearing
from samzapy.errors import DeadlineError, EnvironmentMissingError
from samzapy.model.launch import HOST_VARIABLE
from samzapy.testing.broker import DevBroker
from samzapy.testing.ports import LOOPBACK, free_port
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

SAMZAPY: Final = Path(sys.executable).with_name("samzapy")
JOB_FILE: Final = Path(__file__).with_name("drill_job.py")
JOB: Final = "orders-1"
INPUT: Final = "orders"
PARTITIONS: Final = 2
CUSTOMERS: Final = 40
_EVERY_S: Final = 0.2
_HEALTHY_WITHIN_S: Final = 240.0
_ENDS_WITHIN_S: Final = 30.0
_ANSWERS_WITHIN_S: Final = 5.0
_SETTINGS: Final = {"job.debounce.time.ms": "1000"}


class World:
    """A broker and a job, which reads five orders a second.

    Args:
        directory: where everything is; it is empty or absent.
        hosts: the logical hosts; each runs one container.
        disk_mb: the size of the file system with the local state; 0: it is not limited.
    """

    def __init__(
        self,
        directory: Path,
        *,
        hosts: Sequence[str] = ("host-a",),
        disk_mb: int = 0,
    ) -> None:
        self.directory = directory
        self.cluster = directory / "cluster"
        self.broker = DevBroker(directory / "broker")
        self.url = f"http://{LOOPBACK}:{free_port()}"
        self._hosts = hosts
        self._disk_mb = disk_mb
        self._settings = dict(_SETTINGS)
        self._random = random.Random(0)
        self._coordinator: subprocess.Popen[bytes] | None = None
        self._producer: Producer | None = None
        self._ended = threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def target(self) -> tuple[str, ...]:
        """The options that name the job to a command."""
        return ("--job", JOB, "--bootstrap-servers", self.broker.bootstrap_servers)

    def page(self, view: str) -> str:
        """The HTML of a view, whatever its status is; empty if nothing answers."""
        try:
            with urllib.request.urlopen(f"{self.url}{view}", timeout=_ANSWERS_WITHIN_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode(errors="replace")
        except OSError:
            return ""

    def status(self) -> Mapping[str, Any]:
        """The leader's `GET /status`; empty while there is no leader."""
        try:
            status = json.loads(self.page("/status"))
        except ValueError:
            return {}
        return status if isinstance(status, dict) and "totals" in status else {}

    def samzapy(self, *arguments: str) -> str:
        """The output of a command about the job: stdout, or stderr if that is empty."""
        command = [str(SAMZAPY), *arguments, *self.target, "-o", "json"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        return ran.stdout or ran.stderr

    def send(self, orders: Sequence[tuple[str, Mapping[str, object]]]) -> None:
        """Write orders, each with its customer, and wait until the broker has them."""
        producer = self._own_producer()
        for customer, order in orders:
            producer.produce(INPUT, json.dumps(order).encode(), customer.encode())
            producer.poll(0)
        if producer.flush(_ENDS_WITHIN_S):
            raise DeadlineError(f"wanted {len(orders)} orders on the broker within {_ENDS_WITHIN_S:.0f} s")

    def container_processes(self, host: str) -> tuple[ProcessIdentity, ...]:
        """The processes of the containers on a logical host."""
        bearing = processes_bearing(HOST_VARIABLE)
        here = str(self.cluster.resolve())
        return tuple(
            process
            for process, environment in bearing
            if environment.get(DIRECTORY) == here and environment[HOST_VARIABLE] == host
        )

    def kill_containers(self, host: str) -> None:
        """End all containers on a logical host, as a crash of the host would."""
        for process in self.container_processes(host):
            process.send(signal.SIGKILL)

    def close(self) -> None:
        """End everything that was started; logs and data stay in the directory."""
        self._ended.set()
        if self._feeder.ident is not None:
            self._feeder.join()
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.kill()
            coordinator.wait(_ENDS_WITHIN_S)
        for host in self._hosts:
            while processes := self.container_processes(host):
                for process in processes:
                    process.send(signal.SIGKILL)
                for process in processes:
                    process.wait_gone(_ENDS_WITHIN_S)
        self._producer = None
        self.broker.kill()

    def _start(self) -> None:
        self.cluster.mkdir(parents=True)
        self.broker.start()
        make_topics(self.broker.bootstrap_servers, {INPUT: PARTITIONS, "totals": 1})
        self._submit()
        self._feeder.start()
        wait_until(self._is_healthy, _HEALTHY_WITHIN_S, f"the job to be healthy; its logs are in {self.directory}")

    def _submit(self) -> None:
        port = self.url.rpartition(":")[2]
        settings = {
            **self._settings,
            "systems.kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "cluster.process.dir": str(self.cluster),
            "cluster.process.hosts": ",".join(f"{host}:1" for host in self._hosts),
            "job.coordinator.port": port,
            "local.store.dir": str(self.cluster / "state"),
        }
        options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        submit = [str(SAMZAPY), "job", "submit", str(JOB_FILE), "--containers", str(len(self._hosts))]
        command = [*self._on_small_disk(), *submit, "--cluster", "process", *options, "--master", "local[1]"]
        with (self.directory / "coordinator.log").open("wb") as log:
            self._coordinator = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _on_small_disk(self) -> Sequence[str]:
        """The beginning of a command whose local state is on a small file system."""
        if not self._disk_mb:
            return ()
        if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
            raise EnvironmentMissingError(
                "full-disk: wanted a mount namespace (`unshare -rm`) for a small disk, found that this machine gives "
                "none; run the other incidents"
            )
        mounts = []
        for host in self._hosts:
            state = self.cluster / host / "state"
            state.mkdir(parents=True)
            mounts.append(f"mount -t tmpfs -o size={self._disk_mb}m tmpfs '{state}'")
        return ("unshare", "-rm", "sh", "-c", f'{" && ".join(mounts)} && exec "$@"', "sh")

    def _is_healthy(self) -> bool:
        if self._coordinator is not None and self._coordinator.poll() is not None:
            raise DeadlineError(f"the coordinator ended with {self._coordinator.returncode}; see {self.directory}")
        status = self.status()
        tasks = status.get("tasks", [])
        running = [row for row in status.get("containers", []) if row.get("phase") == "RUNNING"]
        are_level = all(task["owner"] and task["lag"] is not None and task["lag"] < CUSTOMERS for task in tasks)
        has_read = bool(status) and status["totals"]["recordsIn"] >= CUSTOMERS // 2
        return bool(len(tasks) == PARTITIONS and are_level and has_read and len(running) == len(self._hosts))

    def _own_producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        return self._producer

    def _feed(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        while not self._ended.wait(_EVERY_S):
            customer = f"customer-{self._random.randrange(CUSTOMERS)}"
            producer.produce(INPUT, json.dumps({"amount": self._random.randrange(100)}).encode(), customer.encode())
            producer.poll(0)
        producer.purge()


def load_average() -> float:
    """The load of the machine over the last minute."""
    return os.getloadavg()[0]
