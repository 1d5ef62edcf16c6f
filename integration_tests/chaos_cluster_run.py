"""A ledger run on a Spark standalone cluster whose network can be cut.

A real master and three workers on this machine, a real broker, two candidates for coordinator. Between containers and
the other processes there are proxies: one that the broker names to every client, and one before each candidate, on
the address that it publishes. They pass everything on but for the one container that is cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from integration_tests.chaos_plan import Whole, Written, whole_of, zombie_writes
from integration_tests.launched_run import LaunchedRun
from integration_tests.support import coordinator_audit as audit
from integration_tests.support.cutting_proxy import Address, CuttingProxy
from integration_tests.support.job_process import JobProcess, kill
from integration_tests.support.ledger import Violation
from integration_tests.support.spark_cluster import SparkCluster
from samzapy.adapters.host.processes import ProcessIdentity, processes_bearing
from samzapy.adapters.host.scratch import scratch_directories
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.errors import DeadlineError
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.launch import EXECUTION_VARIABLE
from samzapy.stream.records import ContainerPut, LaunchPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.ports import LOOPBACK, free_port
from samzapy.testing.waiting import wait_until

T = TypeVar("T")

CONTAINERS = 3
WORKERS = 3
SLOTS = 3
"""Of each worker, so that there is room for a reserve wherever the others are."""
STANDBY_OF = "0"
"""The processor that has one."""
WHOLE_WITHIN_S = 420.0
ASKED_WITHIN_S = 300.0
_CANDIDATES = ("coordinator", "coordinator-1")
_FRONT = "127.0.1.1"
"""The address by which containers know the candidates; these themselves listen on the loopback address."""
_LAG_MAX_S = 10.0
_LOOK_EVERY_S = 0.5
_ANSWERS_WITHIN_MS = 3000
_GIVEN_UP_WITHIN_S = 120.0
_ENDS_WITHIN_S = 90.0
_LEADS_WITHIN_S = 90.0
_SETTINGS = {
    "cluster.manager": "standalone",
    "cluster-manager.container.cpu.cores": "1",
    # Each kill counts as a failure.
    "cluster-manager.container.retry.count": "1000",
}


class ClusterRun(LaunchedRun):
    """As a context manager it leaves nothing behind.

    Attributes:
        cluster: the workers are the hosts.
        kafka: the way to the broker.
        fronts: the ways to the candidates.
    """

    def __init__(self, directory: Path, *, seed: int, records_per_s: float) -> None:
        self._lag_max = int(records_per_s * _LAG_MAX_S)
        self.cluster = SparkCluster(directory / "cluster", workers=WORKERS, slots=SLOTS)
        self.cluster.start()
        port_number = free_port()
        self.kafka = CuttingProxy(Address(LOOPBACK, port_number))
        self.kafka.start()
        self._fronts = {}
        for name in _CANDIDATES:
            port = free_port()
            self._fronts[name] = CuttingProxy(Address(LOOPBACK, port), Address(_FRONT, port))
            self._fronts[name].start()
        self._shut_out: dict[str, int] = {}
        self._down: JobProcess | None = None
        super().__init__(
            directory,
            seed=seed,
            containers=CONTAINERS,
            hosts=dict.fromkeys(self.cluster.hosts(), SLOTS),
            broker=DevBroker(
                directory / "broker", port_number=port_number, advertised_port=self.kafka.address.port_number
            ),
        )
        self._coordinators.append(self.coordinator_process(_CANDIDATES[1]))
        self._asking = HttpCoordinatorClient()

    @property
    def fronts(self) -> Sequence[CuttingProxy]:
        return tuple(self._fronts.values())

    def _cluster_settings(self, hosts: Mapping[str, int]) -> Mapping[str, str]:
        return {
            **_SETTINGS,
            "cluster.standalone.rest.url": self.cluster.rest_url,
            "cluster.standalone.page.url": self.cluster.page_url,
            "systems.kafka.bootstrap.servers": f"{LOOPBACK}:{self.kafka.address.port_number}",
        }

    def coordinator_process(self, log_dir: str) -> JobProcess:
        """A candidate, not started yet."""
        address = self._fronts[log_dir].address
        own = {
            "job.coordinator.port": str(address.port_number),
            "job.coordinator.advertised.host": address.host,
        }
        return self.another_job(log_dir, overrides=own, spark_options=(), command=("job", "submit"))

    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        finally:
            self.cluster.kill()
            for way in (self.kafka, *self.fronts):
                way.close()

    def keep_running(self) -> None:
        """Start no process; complain of a candidate that ended by itself."""
        for candidate in self._coordinators:
            code = candidate.exit_code()
            assert code is None or candidate is self._down or self._killed, (
                f"a coordinator ended with {code}:\n{candidate.log_text()[-4000:]}"
            )

    def _log_end(self) -> str:
        logs = sorted(self.cluster_dir.glob("*/work/driver-*/stderr"), key=lambda path: path.stat().st_mtime)
        containers = "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-2000:]}" for path in logs[-5:])
        candidates = "\n".join(
            f"--- {candidate.log_path}\n{candidate.log_text()[-3000:]}" for candidate in self._coordinators
        )
        return f"{candidates}\n{containers}"

    def wait(
        self, condition: Callable[[], T | None], deadline_s: float, what: str, *, poll_interval_s: float = 0.05
    ) -> T:
        """As the run does, but seldom: each check reads the whole stream."""

        def asked() -> T | None:
            self.keep_running()
            return condition()

        try:
            return wait_until(asked, deadline_s, what, poll_interval_s=max(poll_interval_s, _LOOK_EVERY_S))
        except Exception as error:
            error.add_note(f"seed {self.seed}\n{self._log_end()}")
            raise

    # --- how it begins, and how it is ---

    def start(self) -> Whole:
        """Start the candidates, then a standby. Returns when the job is whole."""
        self.job.start()
        self.await_whole(standbys=0)
        self._coordinators[1].start()
        asked = self.samzapy(
            *("container", "standby", "--processor", STANDBY_OF, "--start"),
            *("--expiry", f"{ASKED_WITHIN_S:g}", "--timeout", f"{ASKED_WITHIN_S:g}"),
            timeout_s=ASKED_WITHIN_S + 60,
        )
        assert asked.returncode == 0, (asked.stderr, self._log_end())
        return self.await_whole()

    def await_whole(self, *, but: Collection[str] = (), term: int = 0, standbys: int = 1) -> Whole:
        """Wait until the job is whole without the executions in `but`, in `term` or later."""
        lacks = ""

        def whole_or_none() -> Whole | None:
            nonlocal lacks
            whole = whole_of(self.status(), containers=CONTAINERS, standbys=standbys, lag_max=self._lag_max)
            if isinstance(whole, str):
                lacks = whole
                return None
            left = sorted({seat.execution_id for seat in whole.seats()} & set(but))
            lacks = f"{left[0]} is still there" if left else f"term {whole.term} leads"
            return whole if not left and whole.term >= term else None

        try:
            return self.wait(whole_or_none, WHOLE_WITHIN_S, "the job to be whole")
        except Exception as error:
            error.add_note(f"it lacked: {lacks}")
            raise
        finally:
            self._note_shut_out()

    def status(self) -> Mapping[str, Any] | None:
        """The leader's report of the job; None while there is no leader."""
        return next((status for _, status in self._leading()), None)

    def leader(self) -> JobProcess | None:
        """The candidate that leads, if one does."""
        return next((candidate for candidate, _ in self._leading()), None)

    def _leading(self) -> Iterator[tuple[JobProcess, Mapping[str, Any]]]:
        for candidate in self._coordinators:
            status = self._ask(candidate) if candidate.is_running() else None
            if status is not None:
                yield candidate, status

    def _ask(self, candidate: JobProcess) -> Mapping[str, Any] | None:
        front = self._fronts[_CANDIDATES[self._coordinators.index(candidate)]]
        url = f"http://{front.upstream.host}:{front.upstream.port_number}"
        return self._asking.status(url, self.subject.name, _ANSWERS_WITHIN_MS)

    def kill_leader(self) -> None:
        """Kill the leader; returns when the other one leads and it was started again."""
        victim = self.wait(self.leader, _LEADS_WITHIN_S, "a leader")
        process = victim.jvm()
        assert process is not None, "it answered"
        self._down = victim
        kill(process)
        self.wait(lambda: self.leader() not in (None, victim), _LEADS_WITHIN_S, "the other candidate to lead")
        victim.start()
        self._down = None

    def be_quiet(self, for_s: float) -> None:
        """Let so many seconds go by."""
        until_s = time.monotonic() + for_s
        self.wait(lambda: time.monotonic() >= until_s, for_s + 60, "some seconds to go by")

    # --- executions that are given up ---

    def await_fenced(self, execution_id: str) -> Container:
        """Wait until it is FENCED: each later commit of it is a violation."""
        container = self.wait(
            lambda: next(
                (
                    container
                    for container in self._containers_of(execution_id)
                    if container.phase is ContainerPhase.FENCED
                ),
                None,
            ),
            _GIVEN_UP_WITHIN_S,
            f"{execution_id} to be given up and fenced",
        )
        self._note_shut_out()
        return container

    def _containers_of(self, execution_id: str) -> Sequence[Container]:
        return [container for container in self._containers() if container.execution_id == execution_id]

    def _containers(self) -> Sequence[Container]:
        """All records of containers on the stream, the oldest first."""
        return [record.container for record in self.stream() if isinstance(record, ContainerPut)]

    def _note_shut_out(self) -> None:
        fenced = {
            container.execution_id for container in self._containers() if container.phase is ContainerPhase.FENCED
        }
        new = fenced - self._shut_out.keys()
        if new:
            # The offset is read afterwards, so an earlier record may be of a moment at which it was still allowed.
            end = self._end(self.checkpoint, 0)
            self._shut_out |= dict.fromkeys(new, end)

    def await_ended(self, execution_ids: Collection[str]) -> None:
        """Until none of their processes lives."""
        self.wait(
            lambda: not self._living(execution_ids), _ENDS_WITHIN_S, f"{', '.join(sorted(execution_ids))} to end"
        )

    def _living(self, execution_ids: Collection[str]) -> Sequence[tuple[ProcessIdentity, str]]:
        bearing = [(process, of[EXECUTION_VARIABLE]) for process, of in processes_bearing(EXECUTION_VARIABLE)]
        return [(process, execution_id) for process, execution_id in bearing if execution_id in execution_ids]

    # --- committed positions ---

    def positions_end(self) -> int:
        """Where the checkpoint topic ends now."""
        return self._end(self.checkpoint, 0)

    def written(self, start: int = 0, isolation: str = "read_committed") -> Sequence[Written]:
        """Positions from an offset on, with the executions that wrote them."""
        schemas, positions = audit.schemas(), []
        for record in self.read(self.checkpoint, 0, start=start, isolation=isolation):
            if record.value is not None and record.key is not None:
                value = audit.decode(record.value, schemas)
                positions.append(
                    Written(at=record.offset, execution_id=value["execution_id"], position=record.key.decode())
                )
        return positions

    # --- the end ---

    def _stop(self) -> None:
        super()._stop()
        for candidate in self._coordinators:
            code = candidate.wait_ended(_ENDS_WITHIN_S)
            assert code == 0, f"a coordinator ended with {code}:\n{candidate.log_text()[-4000:]}"

    def _orphans(self) -> Iterator[Violation]:
        """Rule K. The next start on a machine removes the scratch of killed executions."""
        records = self.stream()
        executions = {str(record.launch.execution_id) for record in records if isinstance(record, LaunchPut)}
        executions |= {str(container.execution_id) for container in self._containers()}
        try:
            self.await_ended(executions)
            wait_until(lambda: not self.cluster.drivers(), _ENDS_WITHIN_S, "every driver to end")
            for candidate in self._coordinators:
                candidate.wait_gone(60)
        except DeadlineError as error:
            yield Violation("K", f"{error} Left: {self._living(executions)}, {self.cluster.drivers()}")
        left = {path.name for path in scratch_directories()}
        for container in self._containers():
            if container.phase is ContainerPhase.STOPPED and container.execution_id in left:
                yield Violation(
                    "K", f"the scratch directory of {container.execution_id}, which drained, was left behind"
                )

    def _check_positions(self) -> Iterator[Violation]:
        yield from super()._check_positions()
        yield from zombie_writes(self.written(), self._shut_out)

    def shut_out_count(self) -> int:
        """How many executions were given up, and checked for later writes."""
        return len(self._shut_out)
