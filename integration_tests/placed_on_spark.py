"""A job with real decisions, whose containers are drivers on a real Spark master.

The master reports which worker has room, and on which one a driver runs. Heartbeats are made up, on a clock that is
stopped while a driver starts: nothing here depends on how long Spark takes.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from integration_tests.support.spark_cluster import SparkCluster
from samzapy.adapters.spark.standalone_launcher import StandaloneLauncher, StandaloneMaster
from samzapy.adapters.spark.submission import ContainerProgram
from samzapy.adapters.web.client import ask
from samzapy.coordinator.commands import Heartbeat
from samzapy.errors import LaunchError
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, LaunchedState
from samzapy.testing.builders import a_launch
from samzapy.testing.waiting import wait_until
from unit_tests.fixtures.launched_job import Process
from unit_tests.scenarios.test_placement import Story

_PROGRAM = Path(__file__).parent / "jobs" / "stays.py"
_WITHIN_S = 240.0


class SparkStory(Story):  # type: ignore[misc]
    """Processors in drivers of `cluster`.

    Args:
        domains: the fault domain of each worker, as its containers report it.
    """

    def __init__(
        self,
        cluster: SparkCluster,
        *,
        count: int,
        settings: Mapping[str, str],
        domains: Mapping[str, str] | None = None,
    ) -> None:
        program = ContainerProgram(
            job="placed-1", job_file=str(_PROGRAM), overrides=[], python=sys.executable, memory_mib=512
        )
        master = StandaloneMaster(rest_url=cluster.rest_url, page_url=cluster.page_url)
        self.launcher = StandaloneLauncher(
            master, program, partial(ask, timeout_ms=10_000, bytes_max=4 * 1024 * 1024)
        )
        self.domains = domains or {}
        self.strangers: list[Launch] = []
        super().__init__(count=count, slots={}, named=None, settings=settings)

    def leader(self, name: str = "") -> Any:
        # Ids of executions are made of it, and the master remembers those of all tests.
        return super().leader(name or uuid.uuid4().hex)

    def hosts(self) -> Mapping[str, int]:
        return self.launcher.hosts()

    def starts(self, launch: Launch) -> None:
        if launch.execution_id in self.processes:
            return
        try:
            self.launcher.launch(launch)
        except LaunchError:
            return  # It is asked for again.
        self.pids += 1
        self.world.alive[self.pids] = True
        self.processes[launch.execution_id] = Process(launch, self._waits(launch, LaunchedState.RUNNING), self.pids)
        self.started.append(launch.execution_id)

    def ends(self, name: ExecutionId, exit_code: int) -> None:
        super().ends(name, exit_code)
        self._ends(self.processes[name].launch)

    def lives(self, name: ExecutionId) -> None:
        before = len(self.world.queue)
        super().lives(name)
        if len(self.world.queue) > before and isinstance(self.world.queue[-1], Heartbeat):
            domain = self.domains.get(self.processes[name].host, "")
            self.world.queue[-1] = replace(self.world.queue[-1], fault_domain=domain)

    def fills(self, host: str, count: int) -> None:
        """Start so many drivers of another job on the worker."""
        for _ in range(count):
            launch = a_launch(f"stranger-{uuid.uuid4().hex}", processor_id="9", host=host)
            self.launcher.launch(launch)
            self.strangers.append(launch)
            self._waits(launch, LaunchedState.RUNNING)

    def drivers(self) -> list[str]:
        """The workers that the job's drivers run on, each as often as it has one."""
        return sorted(process.host for process in self.processes.values() if not process.is_over)

    def host_of(self, name: str) -> str:
        """The host of a processor (`0`) or of a standby (`0-0`); empty without one."""
        hosts = [line.rpartition(" on ")[2] for line in self.places() if line.split()[0] == name]
        return hosts[0] if hosts and "wanted" not in hosts[0] else ""

    def close(self) -> None:
        for process in self.processes.values():
            if not process.is_over:
                self._ends(process.launch)
        for launch in self.strangers:
            self._ends(launch)

    def _ends(self, launch: Launch) -> None:
        self.launcher.kill(launch)
        self._waits(launch, LaunchedState.ENDED)

    def _waits(self, launch: Launch, state: LaunchedState) -> str:
        """The worker of a driver, once the master reports that state."""

        def reached() -> str | None:
            launched = self.launcher.look([launch]).get(launch.execution_id)
            assert launched is None or launched.state in (state, LaunchedState.STARTING, LaunchedState.RUNNING), (
                launched
            )
            return launched.host or "-" if launched is not None and launched.state is state else None

        return wait_until(reached, _WITHIN_S, f"{launch.execution_id} to be {state}", poll_interval_s=0.2)
