"""A job of one container that its coordinator starts, on two logical hosts.

It is moved with `samzapy container place`, as by an operator, and killed as by a machine. The coordinator names the
owners of its tasks (`GET /status`), and /proc the processes that live.
"""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from bench_scale_job import BEGINS_WITHIN_S, Ground, ScaledJob
from bench_scale_pause import PARTITIONS, PROBES, RATE_PER_S, VALUE_BYTES, fill, probing_of
from bench_scale_probe import Probing

from samzapy.adapters.host.process_launcher import DIRECTORY
from samzapy.adapters.host.processes import ProcessIdentity, processes_bearing
from samzapy.coordinator.launching.standbys import LAG_MAX
from samzapy.errors import SamzapyError
from samzapy.model.launch import EXECUTION_VARIABLE
from samzapy.testing.waiting import wait_until

PROCESSOR = "0"
HOSTS = ("h1", "h2")
_WITHIN_S = "300"
_ASKED_WITHIN_S = 5.0
_ENDS_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.2
_SETTINGS = {
    "stores.last.msg.serde": "bytes",
    "job.container.count": "1",
    "cluster.manager": "process",
    "cluster.process.hosts": ",".join(f"{host}:1" for host in HOSTS),
    # Between the default and the value of the parts that scale a job.
    "job.container.heartbeat.ms": "1000",
    # Each kill counts as a failure, and a busy machine takes its time to start Spark.
    "cluster-manager.container.retry.count": "1000",
    "cluster-manager.container.request.timeout.ms": "300000",
}
WHAT_RUNS = (
    f"One container (`samzapy job submit --cluster process`, `local[2]`, {PARTITIONS} partitions and tasks) that keeps "
    f"the last value of each key, {VALUE_BYTES:,} bytes each; two logical hosts of this machine with a place for one "
    "container each; a class archive is there (`samzapy class-archive`). "
    f"{PROBES} keys get {RATE_PER_S / PROBES:g} records per second each meanwhile."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """The execution that runs the tasks, and its host."""

    execution_id: str
    host: str


class LaunchedJob(ScaledJob):
    """A job that is stopped at the end of its context; late containers are killed."""

    def __init__(self, ground: Ground, name: str) -> None:
        own = {**_SETTINGS, "cluster.process.dir": str(ground.directory / name)}
        super().__init__(ground, name, "keep_last.py", partitions=PARTITIONS, settings=own, verb=("job", "submit"))

    def stop(self) -> None:
        """Stop the job, and kill the processes that have not ended then."""
        try:
            if self._containers:
                self.ask("job", "stop", "--wait", "--timeout", f"{_ENDS_WITHIN_S:g}")
        except SamzapyError as error:
            click.echo(str(error), err=True)
        finally:
            super().stop()
            for process, _ in self._processes():
                process.send(signal.SIGKILL)

    def place(self, host: str) -> str:
        """Move the tasks; returns the answer. Raises SamzapyError if it was not done."""
        return self.ask(
            *("container", "place", "--processor", PROCESSOR, "--host", host),
            *("--expiry", _WITHIN_S, "--timeout", _WITHIN_S),
        )

    def have_standby(self) -> None:
        """Start a standby, and wait until it is ready."""
        self.ask(
            *("container", "standby", "--processor", PROCESSOR, "--start"),
            *("--expiry", _WITHIN_S, "--timeout", _WITHIN_S),
        )

    def kill(self, execution_id: str) -> None:
        """SIGKILL to the process that was started for an execution."""
        own = [process for process, of in self._processes() if of == execution_id]
        min(own, key=lambda process: (process.started_ticks, process.pid)).send(signal.SIGKILL)

    def forget_state_of(self, host: str) -> None:
        """As if the host had never run the tasks."""
        state = self.directory / host / "state"

        def is_removed() -> bool:
            # Children of a killed JVM may still write for a moment.
            shutil.rmtree(state, ignore_errors=True)
            return not state.exists()

        wait_until(is_removed, _ENDS_WITHIN_S, f"{state} to be removed")

    def wait_runner(self, but: str = "") -> Runner:
        """Until one execution, another than `but`, runs all tasks."""

        def runner_or_none() -> Runner | None:
            runner = runner_of(self._status())
            return None if runner is None or runner.execution_id == but else runner

        return wait_until(runner_or_none, BEGINS_WITHIN_S, f"{self.name} to be run", poll_interval_s=_LOOK_EVERY_S)

    def wait_alone(self, runner: Runner) -> None:
        """Until no process of any other execution lives."""

        def is_alone() -> bool:
            return {of for _, of in self._processes()} == {runner.execution_id}

        wait_until(is_alone, _ENDS_WITHIN_S, "the container before to end", poll_interval_s=_LOOK_EVERY_S)

    def wait_standby(self, runner: Runner) -> None:
        """Until another execution than the one that runs the tasks is ready to."""

        def is_ready() -> bool:
            return has_warm_standby(self._status(), runner)

        wait_until(is_ready, BEGINS_WITHIN_S, "a standby to be ready", poll_interval_s=_LOOK_EVERY_S)

    def _status(self) -> Mapping[str, Any]:
        """The coordinator's status; empty while it does not answer."""
        self.metrics()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/status", timeout=_ASKED_WITHIN_S) as answer:
                status: Mapping[str, Any] = json.load(answer)
        except OSError:
            return {}
        return status

    def _processes(self) -> Sequence[tuple[ProcessIdentity, str]]:
        """The living processes of its containers, and the execution of each."""
        directory = str(self.directory.resolve())
        return [
            (process, of[EXECUTION_VARIABLE])
            for process, of in processes_bearing(EXECUTION_VARIABLE)
            if of.get(DIRECTORY) == directory
        ]


@contextmanager
def at_work(ground: Ground, name: str, state_mb: int) -> Iterator[tuple[LaunchedJob, Probing]]:
    """A job that has its state and is probed."""
    with LaunchedJob(ground, name) as job:
        job.start()
        job.wait_at_work()
        job.wait_handled(fill(job, state_mb))
        with probing_of(job) as probing:
            probing.settle()
            yield job, probing


def runner_of(status: Mapping[str, Any]) -> Runner | None:
    """The execution that runs all tasks by `/status`; None while there is none."""
    owners = {task["owner"] for task in status.get("tasks", ())}
    return next(
        (
            Runner(execution_id=container["executionId"], host=container["host"])
            for container in status.get("containers", ())
            if {container["executionId"]} == owners and container["phase"] == "RUNNING"
        ),
        None,
    )


def has_warm_standby(status: Mapping[str, Any], runner: Runner) -> bool:
    """Whether another execution has the state of all tasks, by `/status`."""
    warm = [
        container["warm"]
        for container in status.get("containers", ())
        if container["executionId"] != runner.execution_id and container["standby"] and container["warm"]
    ]
    count = len(status.get("tasks", ()))
    return any(
        standby["tasks"] == standby["level"] == count and standby["lag"] <= LAG_MAX and standby["rehearsed"]
        for standby in warm
    )
