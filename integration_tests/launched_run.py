"""A ledger run whose coordinator starts the containers, on logical hosts.

`chaos_cluster_run.py` is one on a Spark standalone cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from confluent_kafka import KafkaError, KafkaException

from integration_tests.ledger_run import INPUT, TAILS, LedgerRun
from integration_tests.support.job_process import JobProcess, kill
from integration_tests.support.ledger import Violation
from samzapy.adapters.host.processes import ProcessIdentity, processes_with
from samzapy.coordinator.assignment.grants import owners
from samzapy.coordinator.launching.launches import runner_of
from samzapy.coordinator.state import INITIAL, CoordinatorState, committed, evolve
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.job import ExecutionId
from samzapy.model.launch import EXECUTION_VARIABLE
from samzapy.stream.records import ContainerPut, CoordinatorRecord
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

SAMZAPY = Path(sys.executable).with_name("samzapy")
_APPEARS_WITHIN_S = 300.0
_STOPS_WITHIN_S = 90.0
_BUSY = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TIMED_OUT)
_SOON = {
    "job.debounce.time.ms": "1000",
    "task.transaction.max.ms": "200",
    **TAILS,
    # Spark alone may take a minute on a machine that does other things too.
    "cluster-manager.container.request.timeout.ms": "300000",
}


class LaunchedRun(LedgerRun):
    """A run whose job is the coordinator; its children bear its mark.

    Args:
        hosts: slots by logical host.
        broker: as of `LedgerRun`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        containers: int,
        hosts: Mapping[str, int],
        broker: DevBroker | None = None,
    ) -> None:
        self.cluster_dir = directory / "cluster"
        super().__init__(
            directory,
            seed=seed,
            inputs={INPUT: 4},
            task_count=4,
            overrides={
                **_SOON,
                "job.container.count": str(containers),
                **self._cluster_settings(hosts),
            },
            broker=broker,
        )
        self.job = self.coordinator_process("coordinator")
        self._coordinators = [self.job]

    def _cluster_settings(self, hosts: Mapping[str, int]) -> Mapping[str, str]:
        """The launcher of the containers, and their hosts."""
        return {
            "cluster.manager": "process",
            "cluster.process.dir": str(self.cluster_dir),
            "cluster.process.hosts": ",".join(f"{host}:{count}" for host, count in hosts.items()),
        }

    def _where_state_is(self) -> Mapping[str, str]:
        """Each container has its settings from its launcher."""
        return {}

    def coordinator_process(self, log_dir: str) -> JobProcess:
        """A coordinator, not started yet."""
        return self.another_job(log_dir, spark_options=("--master", "local[1]"), command=("job", "submit"))

    def __exit__(self, *error: object) -> None:
        for coordinator in self._coordinators:
            coordinator.kill_everything()
        super().__exit__(*error)  # type: ignore[arg-type]

    def keep_running(self) -> None:
        """Start no process; complain of a coordinator that ended by itself."""
        code = self.job.exit_code()
        assert code is None or self._killed, f"the coordinator ended with {code}:\n{self._log_end()}"

    def _log_end(self) -> str:
        logs = sorted(self.cluster_dir.glob("*/*.log"), key=lambda path: path.stat().st_mtime)
        containers = "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in logs[-4:])
        return f"{self.job.log_text()[-4000:]}\n{containers}"

    def log_of(self, execution_id: str) -> str:
        """The log of a container."""
        return "".join(path.read_text(errors="replace") for path in self.cluster_dir.glob(f"*/{execution_id}.log"))

    # --- acts of an operator ---

    def samzapy(self, *arguments: str, timeout_s: float = _APPEARS_WITHIN_S) -> subprocess.CompletedProcess[str]:
        """A command about the job, or about all jobs of the cluster."""
        address = ["--bootstrap-servers", self.broker.bootstrap_servers]
        if arguments[:2] != ("job", "list"):
            address += ["--job", self.subject.name]
        return subprocess.run(
            [SAMZAPY, *arguments, *address],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=os.environ | self._commands_environment(),
        )

    def _commands_environment(self) -> Mapping[str, str]:
        """Variables of commands, besides those of this process."""
        return {}

    def fail_over(self) -> None:
        """Kill the coordinator, and start another one."""
        jvm = self.job.jvm()
        assert jvm is not None, "the coordinator runs"
        self.was_killed()
        kill(jvm)
        terms = self.term()
        self.job = self.coordinator_process(f"coordinator-{len(self._coordinators)}")
        self._coordinators.append(self.job)
        self._killed = False
        self.job.start()
        wait_until(lambda: self.term() > terms, _APPEARS_WITHIN_S, "another coordinator to lead", poll_interval_s=0.5)

    def kill_container(self, execution_id: str) -> None:
        """SIGKILL to the process that was started for it, the JVM."""
        leader = min(self.processes(execution_id), key=lambda process: (process.started_ticks, process.pid))
        kill(leader)
        self.fault("container killed")

    # --- observations ---

    def state(self) -> CoordinatorState:
        """The state on the stream; the initial one while the broker is busy."""
        try:
            records = self.stream()
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in _BUSY:
                raise
            return INITIAL
        return evolve(INITIAL, committed(cast(list[CoordinatorRecord], records), 0))

    def term(self) -> int:
        state = self.state()
        return 0 if state.term is None else state.term.term

    def runners(self) -> Mapping[str, Container]:
        """By processor, the container that runs its tasks."""
        state = self.state()
        at_work = {grant.execution_id for grant in owners(state).values()}
        runners = {}
        for processor_id in sorted({planned.processor_id for planned in state.plan}):
            launch = runner_of(state, processor_id)
            container = None if launch is None else state.containers.get(launch.execution_id)
            is_running = container is not None and container.phase is ContainerPhase.RUNNING
            if container is not None and is_running and container.execution_id in at_work:
                runners[str(processor_id)] = container
        return runners

    def wait_runners(self, count: int, without: Sequence[str] = ()) -> Mapping[str, Container]:
        """Until so many processors run, in other executions than those."""

        def runners_or_none() -> Mapping[str, Container] | None:
            self.keep_running()
            runners = self.runners()
            executions = {container.execution_id for container in runners.values()}
            return runners if len(runners) == count and not executions & set(without) else None

        try:
            # Each check reads the whole stream.
            return wait_until(runners_or_none, _APPEARS_WITHIN_S, f"{count} processors to run", poll_interval_s=1.0)
        except Exception as error:
            error.add_note(self._log_end())
            raise

    def processes(self, execution_id: str) -> Sequence[ProcessIdentity]:
        return processes_with(EXECUTION_VARIABLE, execution_id)

    def host_of(self, task_name: str) -> str:
        """The host of a task's newest owner."""
        state = self.state()
        newest = max(
            (grant for grant in state.grants.values() if grant.task_name == task_name), key=lambda grant: grant.epoch
        )
        return state.containers[ExecutionId(newest.execution_id)].host

    def local_entries(self, task_name: str, store: str) -> Mapping[bytes, bytes]:
        shared, self.directory = self.directory, self.cluster_dir / self.host_of(task_name)
        try:
            return super().local_entries(task_name, store)
        finally:
            self.directory = shared

    # --- the end ---

    def _stop(self) -> None:
        self.was_killed()
        stopped = self.samzapy("job", "stop", "--wait", "--timeout", str(_STOPS_WITHIN_S))
        assert (0, "") == (stopped.returncode, stopped.stderr.partition("Traceback")[1]), stopped
        code = self.job.wait_ended(_STOPS_WITHIN_S)
        assert 0 == code, f"the coordinator ended with {code}:\n{self._log_end()}"

    def _orphans(self) -> Iterator[Violation]:
        yield from super()._orphans()
        for coordinator in self._coordinators:
            try:
                coordinator.wait_gone(60)
            except Exception as error:
                yield Violation("K", str(error))

    def lost(self) -> set[str]:
        """The executions that were given up, ever."""
        return {
            str(record.container.execution_id)
            for record in self.stream()
            if isinstance(record, ContainerPut) and record.container.phase is ContainerPhase.LOST
        }
