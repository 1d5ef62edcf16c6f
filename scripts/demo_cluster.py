"""The demo's act on a cluster of three hosts, while flights come in.

One container is moved and another one is killed.

The hosts are workers of a real Spark standalone cluster on this machine (`integration_tests.support.spark_cluster`).
Each takes two containers and has one at first, so that a move finds a place for the second one, which it needs.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from demo_flow import Flow, Message
from demo_screen import Runner, Status

from integration_tests.support.spark_cluster import SparkCluster
from samzapy.adapters.host.processes import processes_with
from samzapy.errors import SamzapyError
from samzapy.model.launch import EXECUTION_VARIABLE

CONTAINERS = 3
SLOTS = 2
FLIGHTS_PER_S = 1_500
FLIGHTS_DURING_MOVE = 108_000
"""The others come in after it, so that there are some for the kill however long Spark takes to start."""
STARTS_WITHIN_S = 300.0
"""Several Sparks start side by side, on a machine that may be small."""


class AwaitStatus(Protocol):
    """Look until a status is as wanted; gives that one."""

    def __call__(self, is_so: Callable[[Status], bool], awaited: str, within_s: float) -> Status: ...


def settings_of(cluster: SparkCluster, cores: int) -> dict[str, str]:
    """The settings of a job whose containers run on `cluster`.

    Each worker says where its containers keep state.
    """
    return {
        "cluster.standalone.rest.url": cluster.rest_url,
        "cluster.standalone.page.url": cluster.page_url,
        "cluster-manager.container.cpu.cores": str(cores),
        "cluster-manager.container.request.timeout.ms": str(int(STARTS_WITHIN_S * 1000)),
    }


class ClusterAct:
    """The changes of the containers while the job runs.

    Args:
        samzapy: runs a command about the job, as an operator would, and shows it.
        await_status: waits for a status of the job.
    """

    def __init__(self, samzapy: Callable[..., None], await_status: AwaitStatus) -> None:
        self._samzapy = samzapy
        self._await_status = await_status

    def play(self, flow: Flow, flights: Iterator[Message]) -> None:
        """Move a container and kill another, while flights come in; then send the rest."""
        moved, neighbour, killed = self._await_runners()
        self._samzapy("container", "list")
        print(f"From here on {FLIGHTS_PER_S:,} more flights come in each second")
        with flow.flowing(islice(flights, FLIGHTS_DURING_MOVE), FLIGHTS_PER_S):
            self._move(moved, self._await_runners()[neighbour].host, flow)
        with flow.flowing(flights, FLIGHTS_PER_S):
            self._kill(killed, flow)
        self._samzapy("container", "list")

    def _move(self, processor_id: str, host: str, flow: Flow) -> None:
        started_s, count = time.monotonic(), flow.count
        within = f"{STARTS_WITHIN_S:.0f}"
        place = ("container", "place", "--processor", processor_id, "--host", host)
        self._samzapy(*place, "--expiry", within, "--timeout", within)
        runner = self._await_runners()[processor_id]
        if runner.host != host:
            raise SamzapyError(f"wanted processor {processor_id} on {host}, found it on {runner.host}")
        print(f"  {time.monotonic() - started_s:.1f} s in all; {flow.count - count:,} flights came in meanwhile")

    def _kill(self, processor_id: str, flow: Flow) -> None:
        lost = self._await_runners()[processor_id]
        # All that belongs to it has inherited its id; the oldest is the driver that Spark's worker has started.
        bearing = processes_with(EXECUTION_VARIABLE, lost.execution_id)
        driver = min(bearing, key=lambda process: (process.started_ticks, process.pid))
        print(f"+ kill -9 {driver.pid}  # the container of processor {processor_id}, on {lost.host}")
        started_s, count = time.monotonic(), flow.count
        driver.send(signal.SIGKILL)
        runner = self._await_runners(without=lost.execution_id)[processor_id]
        print(
            f"  Processor {processor_id} is at work again, in {runner.execution_id} on {runner.host}"
            f" ({time.monotonic() - started_s:.1f} s; {flow.count - count:,} flights came in meanwhile)"
        )

    def _await_runners(self, without: str = "") -> Mapping[str, Runner]:
        """The container of each processor, when all are at work and none is `without`."""

        def are_there(status: Status) -> bool:
            executions = {runner.execution_id for runner in status.runners.values()}
            return len(executions) == CONTAINERS and without not in executions

        return self._await_status(are_there, f"{CONTAINERS} containers to be at work", STARTS_WITHIN_S).runners
