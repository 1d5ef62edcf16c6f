"""The composition root of a container's driver: connects its ports to adapters.

A self-managed process is one processor of the job, and a candidate to lead it (`runtime.leadership`). A process that
the job's coordinator has started (`cli.job.submit`) is a container only. A start goes in this order, so that a mistake
is reported before the JVM's ten seconds: configuration, directories, processor id, cluster, topics, whether that
processor runs already; then Spark, then the coordinator in its thread, then the container in this one.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from samzapy.adapters.faults import note_faults
from samzapy.adapters.host.crash_points import crash_points
from samzapy.adapters.host.processor_ids import kept_processor_id
from samzapy.adapters.host.scratch import scratch_directory
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaFollower, KafkaLeaderSearch
from samzapy.adapters.kafka.positions import KafkaFence, KafkaProgressLog
from samzapy.adapters.kafka.tail import KafkaTail
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.adapters.lmdb.store import LmdbStateDirectory, faults_directory, task_directory, tasks_with_state
from samzapy.adapters.maven.fetch import jar_paths
from samzapy.adapters.maven.locks import connector_lock
from samzapy.adapters.spark.java_properties import java_properties
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.adapters.web.heartbeat_sender import HeartbeatThread, Leader
from samzapy.config import JobConfig
from samzapy.container.ports import ContainerIdentity, ContainerPorts
from samzapy.container.service import ContainerService
from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import (
    EnvironmentMissingError,
    ExitCode,
    SamzapyError,
)
from samzapy.model.container import driver_transactional_id
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import EXECUTION_VARIABLE
from samzapy.model.location import LocationId
from samzapy.model.topics import coordinator_topic
from samzapy.plan.groupers import Groupers
from samzapy.runtime.input_keys import check_inputs
from samzapy.runtime.job_groupers import load_groupers
from samzapy.runtime.job_location import location_of_this_processor
from samzapy.runtime.leadership import Coordination, Here, SystemClock
from samzapy.runtime.signals import DrainRequest, install_handlers
from samzapy.runtime.submission import (
    check_submission_allowed,
    read_state,
    refuse_second,
    running_containers,
    submission_of,
)
from samzapy.stream.records import FORMAT_LEVEL
from samzapy.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from samzapy.adapters.spark.slots import DriverSlots, LeaseFile

_LOG = logging.getLogger(__name__)
_WORKER_ENTRY = "samzapy.runtime.worker_process:run"
_CLOSE_WAIT_S = 3.0
_LEADER_WAIT_MS = 2000
_END_GRACE_S = 3.0
_LOST_GRACE_S = 20.0
_END_LOOK_S = 1.0
_MOUNTS = Path("/proc/mounts")
_PACKAGE = Path(__file__).resolve().parents[1]
_NOT_PERSISTENT = {"tmpfs", "ramfs", "devtmpfs"}


def run_container(config: JobConfig, job_file: Path, expected_generation: int | None = None) -> None:
    """Run this process as a processor of the job until it is asked to stop.

    The process also takes part in the election, and leads while it is elected.

    Args:
        expected_generation: see `SubmitJob`.

    Raises:
        SamzapyError: with the exit code that the process ends with.
    """
    here = Here.now()
    connection = KafkaConnection.of(config)
    _check_store_directory(config)
    admin = KafkaAdmin(connection)
    groupers = load_groupers(config, job_file.parent)
    location = location_of_this_processor(config, job_file.parent)
    with _processor_id(config) as processor_id:
        admission = _Admission(
            config=config,
            here=here,
            connection=connection,
            admin=admin,
            groupers=groupers,
            processor_id=processor_id,
            execution_id=ExecutionId(
                os.environ.get(EXECUTION_VARIABLE) or f"container-{processor_id}-{uuid.uuid4().hex}"
            ),
            expected_generation=expected_generation,
        )
        with ThreadPoolExecutor(1) as beside:
            is_launched: Callable[[], bool]
            if EXECUTION_VARIABLE in os.environ:
                # The job waits for this container, and a refusal is unlikely: Spark starts meanwhile.
                is_launched = beside.submit(admission.is_launched).result
            else:
                is_launched = partial(bool, admission.is_launched())
            jars = jar_paths(connector_lock())
            with scratch_directory(admission.execution_id) as scratch_dir:
                _Run(
                    config=config,
                    job_file=job_file,
                    here=here,
                    location=location,
                    connection=connection,
                    submission=admission.submission,
                    processor_id=processor_id,
                    execution_id=admission.execution_id,
                    scratch_dir=scratch_dir,
                    is_launched=is_launched,
                ).run(jars)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admission:
    """Checks whether this process may run, before Spark starts.

    It asks the cluster and the coordinator stream.
    """

    config: JobConfig
    here: Here
    connection: KafkaConnection
    admin: KafkaAdmin
    groupers: Groupers
    processor_id: ProcessorId
    execution_id: ExecutionId
    expected_generation: int | None

    def submission(self, state: CoordinatorState | None = None) -> SubmitJob:
        """The job as this process submits it.

        `state`: the state on the coordinator stream, for a new leader.
        """
        request = submission_of(self.config, self.admin, f"processor {self.processor_id}", self.groupers, state)
        return replace(request, expected_generation=self.expected_generation)

    def is_launched(self) -> bool:
        """Return whether the coordinator started this process.

        Raises:
            SamzapyError: this process must not run.
        """
        config, connection = self.config, self.connection
        self.admin.check_reachable()
        # Check before any change: a refused process must leave no trace.
        wanted = self.submission()
        state = read_state(config, connection)
        running = running_containers(config, state, self.here)
        launched = self.execution_id in state.launches
        if launched:
            wanted = replace(wanted, container_count=config.container_count)
        else:
            refuse_second(config, running, self.here, self.processor_id)
        after = check_submission_allowed(state, wanted, running)
        if not launched:
            check_inputs(wanted, after, connection, running)
        return launched


@contextmanager
def _processor_id(config: JobConfig) -> Iterator[ProcessorId]:
    """The configured processor id, else the one kept with local state, else a new one.

    A job without a local directory has no state on this host to come back to.
    """
    if config.processor_id is not None:
        yield ProcessorId(config.processor_id)
    elif config.local_store_dir is not None:
        # Beside the tasks' directories, under a name that no task can have.
        with kept_processor_id(Path(config.local_store_dir) / config.job / ".processors") as kept:
            yield ProcessorId(kept)
    else:
        yield ProcessorId(f"p_{uuid.uuid4().hex[:12]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The parts of one execution.

    `is_launched`: returns whether the job's coordinator started this process, and leads elsewhere; raises if this
    process must not run.
    """

    config: JobConfig
    job_file: Path
    here: Here
    location: LocationId
    connection: KafkaConnection
    submission: Callable[[CoordinatorState], SubmitJob]
    processor_id: ProcessorId
    execution_id: ExecutionId
    scratch_dir: Path
    is_launched: Callable[[], bool]

    def run(self, jars: Sequence[Path]) -> None:
        # Imported here: a refusal before this line needs no Spark, and takes a second.
        from samzapy.adapters.spark.session import open_session
        from samzapy.adapters.spark.slots import DriverSlots, LeaseFile

        begun_s = time.monotonic()
        _LOG.info(
            "samzapy %s: processor %s of %s starts Spark; that takes some seconds",
            __version__,
            self.processor_id,
            self.config.job,
        )
        session, cores = open_session(self.config.job, self.scratch_dir, jars)
        _LOG.info("Spark is up after %.1f s with %d cores", time.monotonic() - begun_s, cores)
        try:
            is_launched = self.is_launched()
        except BaseException:
            session.stop()
            raise
        drain = DrainRequest()
        install_handlers(session.sparkContext, drain)
        slots = DriverSlots(self.scratch_dir, cores)
        search = KafkaLeaderSearch(self.connection, coordinator_topic(self.config.job))
        heartbeats = self._heartbeats(cores, LeaseFile(self.scratch_dir), search)
        _force_exit_after_deadline(drain, self.config.drain_ms, heartbeats.given_up, slots.kill_holders)
        coordination = None if is_launched else self._coordination(drain, heartbeats)
        try:
            if coordination is not None:
                coordination.start()
            self._run_container(session, slots, cores, heartbeats, drain)
        except SamzapyError as error:
            # The container may only have seen the consequence.
            raise (None if coordination is None else coordination.fatal) or error from error
        finally:
            heartbeats.close()
            search.close()
            if coordination is not None:
                coordination.close(_CLOSE_WAIT_S)
            session.stop()
        if coordination is not None and coordination.fatal is not None:
            raise coordination.fatal

    def _coordination(self, drain: DrainRequest, heartbeats: HeartbeatThread) -> Coordination:
        return Coordination(
            self.config,
            self.here,
            self.connection,
            submission=self.submission,
            on_end=drain.ask,
            leader=heartbeats.leader_url,
        )

    def _heartbeats(self, cores: int, lease: LeaseFile, search: KafkaLeaderSearch) -> HeartbeatThread:
        config = self.config

        def find_leader(offset_from: int) -> Leader | None:
            term = search.newest_term(offset_from)
            return None if term is None else Leader(term.term, term.url)

        return HeartbeatThread(
            HttpCoordinatorClient(),
            identity=self._heartbeat_identity(cores),
            interval_ms=config.heartbeat_ms,
            lease_ms=config.lease_ms,
            on_alive=lambda sent_at_ns: lease.extend_to(sent_at_ns + config.lease_ms * 1_000_000),
            find_leader=find_leader,
        )

    def _run_container(
        self,
        session: SparkSession,
        slots: DriverSlots,
        cores: int,
        heartbeats: HeartbeatThread,
        drain: DrainRequest,
    ) -> None:
        from samzapy.adapters.spark.query import SparkQuery

        config = self.config
        progress = KafkaProgressLog(
            self.connection,
            config.job,
            driver_transactional_id(config.job, self.execution_id),
            config.transaction_timeout_ms,
        )
        follower = KafkaFollower(self.connection, coordinator_topic(config.job))
        tail = KafkaTail(self.connection, config.job)
        store_dir = Path(config.local_store_dir) if config.local_store_dir else self.scratch_dir / "state"
        note_faults(faults_directory(store_dir / config.job))
        ports = ContainerPorts(
            clock=SystemClock(),
            stream=follower,
            topics=KafkaTopics(self.connection, config.job),
            tail=tail,
            slots=slots,
            fence=KafkaFence(self.connection, config.transaction_timeout_ms),
            progress=progress,
            query=SparkQuery(
                session,
                worker_entry=_WORKER_ENTRY,
                bootstrap_servers=self.connection.bootstrap_servers,
                kafka_options=java_properties(self.connection.properties),
                scratch_dir=self.scratch_dir,
            ),
            heartbeats=heartbeats,
            stop=drain,
            crash_points=crash_points(os.environ),
            state_of=lambda task: LmdbStateDirectory(task_directory(store_dir, config.job, task), config.stores),
            tasks_here=lambda: tasks_with_state(store_dir, config.job),
            pause=lambda ms: time.sleep(ms / 1000),
        )
        identity = ContainerIdentity(
            execution_id=self.execution_id,
            slot_count=cores,
            job_file=str(self.job_file),
            scratch_dir=str(self.scratch_dir),
        )
        heartbeats.start()
        try:
            ContainerService(config, identity, ports).run()
        finally:
            progress.close()
            follower.close()
            tail.close()

    def _heartbeat_identity(self, cores: int) -> Mapping[str, object]:
        return {
            "job": self.config.job,
            "executionId": self.execution_id,
            "processorId": self.processor_id,
            "host": self.location.host,
            "faultDomain": self.location.fault_domain,
            "bootId": self.here.boot_id,
            "pid": self.here.pid,
            "processStartedMs": self.here.process_started_ms,
            "slotCount": cores,
            "formatLevel": FORMAT_LEVEL,
            "acceptedLosses": [str(loss) for loss in self.config.accepted_losses],
            "comesBack": self.config.processor_id is not None or self.config.local_store_dir is not None,
        }


def _force_exit_after_deadline(
    drain: DrainRequest,
    drain_ms: int,
    given_up: Callable[[], str | None],
    kill_workers: Callable[[], None],
    end: Callable[[int], None] = os._exit,
) -> None:
    """End this process if it has not ended by its deadline.

    It may wait for a broker that is down, or for a query that does not stop. It should end when it is drained or
    declared lost: then its tasks belong to another execution, and while it lives its processor gets none. Nothing is
    lost by a forced exit: the next start finds the process gone and recovers.
    """

    def watch() -> None:
        while not drain.wait(_END_LOOK_S):
            reason = given_up()
            if reason is not None:
                # The thread of the container checks this too, and ends sooner unless it hangs.
                time.sleep(_LOST_GRACE_S)
                _LOG.error("given up by the coordinator (%s), and did not end: this process ends now", reason)
                kill_workers()
                end(ExitCode.LOST)
                return
        time.sleep(drain_ms / 1000 + _END_GRACE_S)
        place = _place_of_main_thread()
        _LOG.error(
            "the drain did not end in time, it is at %s; this process ends now, and the next start recovers", place
        )
        kill_workers()
        end(ExitCode.TIMED_OUT)

    threading.Thread(target=watch, name="samzapy-end", daemon=True).start()


def _place_of_main_thread() -> str:
    """The line of samzapy that the main thread is at, and the call that it waits for."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    stack = traceback.extract_stack(frame)
    own = [entry for entry in stack if _PACKAGE in Path(entry.filename).parents]
    if not own:
        return "an unknown place"
    last, innermost = own[-1], stack[-1]
    place = f"{Path(last.filename).relative_to(_PACKAGE.parent)}:{last.lineno} ({last.name})"
    return place if innermost is last else f"{place}, in {Path(innermost.filename).name} ({innermost.name})"


def _check_store_directory(config: JobConfig, mounts: Path = _MOUNTS) -> None:
    """Refuse a local.store.dir that cannot be used.

    Log a warning for one that a reboot clears.
    """
    if config.local_store_dir is None:
        return
    path = Path(config.local_store_dir)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise EnvironmentMissingError(
            f"local.store.dir: wanted a writable directory at {path}, found {error.strerror}; "
            "every processor of the job on this host must be able to read and write it"
        ) from error
    if _file_system(path, mounts) in _NOT_PERSISTENT or path.resolve().is_relative_to(tempfile.gettempdir()):
        _LOG.warning(
            "local.store.dir %s is not kept over reboots: state will be rebuilt from the changelog then", path
        )


def _file_system(path: Path, mounts: Path) -> str:
    """The type of the file system of `path`, from the kernel's mount table.

    The longest mount point that contains it counts.
    """
    best, kind = "", ""
    for line in mounts.read_text().splitlines():
        _, mounted_at, file_system, *_ = line.split()
        # Blanks separate the fields of the table, so blanks in names are written in octal.
        mounted_at = mounted_at.replace(r"\040", " ")
        if path.resolve().is_relative_to(mounted_at) and len(mounted_at) >= len(best):
            best, kind = mounted_at, file_system
    return kind
