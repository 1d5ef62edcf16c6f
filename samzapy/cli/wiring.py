"""The composition root of a container: the only place where ports meet adapters.

Standalone: this process is one processor, and it leads. Order of a start, so that a mistake is told before the JVM's
ten seconds go by: configuration, directories, cluster, topics, whether the job runs already; then Spark, then the
coordinator in its thread, then the container in this one.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaFollower
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.positions import KafkaFence, KafkaPositions, KafkaProgressLog
from samzapy.adapters.kafka.topic_watch import TopicWatch
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.adapters.lmdb.store import LmdbStateDirectory, task_directory
from samzapy.adapters.maven.fetch import jar_paths
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.adapters.web.heartbeats import HeartbeatThread
from samzapy.adapters.web.inbox import CommandInbox
from samzapy.adapters.web.server import CoordinatorServer
from samzapy.cli.signals import DrainRequest, end_with_parent, install_handlers
from samzapy.config import JobConfig
from samzapy.container.service import ContainerIdentity, ContainerPorts, ContainerService
from samzapy.coordinator.commands import InputFound, OwnTopicFound, SubmitJob
from samzapy.coordinator.liveness import LIVING
from samzapy.coordinator.replay import replay
from samzapy.coordinator.service import CoordinatorIdentity, CoordinatorService
from samzapy.coordinator.state import CoordinatorState
from samzapy.coordinator.submission import check_readable, submit_job
from samzapy.coordinator.topic_watch import topics_of
from samzapy.errors import (
    DeadlineError,
    EnvironmentMissingError,
    ExitCode,
    ProducerError,
    RejectedError,
    SamzapyError,
    TemporaryError,
)
from samzapy.model.container import coordinator_transactional_id, driver_transactional_id
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.ssp import SystemStream
from samzapy.model.topics import changelog_spec, checkpoint_spec, coordinator_spec, coordinator_topic
from samzapy.plan.input_patterns import resolve_inputs
from samzapy.stream.records import FORMAT_LEVEL
from samzapy.testing.crash_points import crash_points

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_WORKER_ENTRY = "samzapy.cli.worker_wiring:run"
_ROUND_MS = 200
_CLOSE_WAIT_S = 3.0
_LEADER_WAIT_MS = 2000
_END_GRACE_S = 3.0
_OFFICE_PAUSE_S = 1.0
_WITHOUT_OWNER_S = 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NOT_PERSISTENT = {"tmpfs", "ramfs", "devtmpfs"}


class SystemClock:
    """The clocks of this host."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This process and its host, as records name them."""

    host: str
    boot_id: str
    pid: int
    process_started_ms: int

    @classmethod
    def now(cls) -> Here:
        own = ProcessIdentity.of(os.getpid())
        return cls(
            host=socket.gethostname(),
            boot_id=own.boot_id,
            pid=own.pid,
            process_started_ms=own.started_ticks * 1000 // _TICKS_PER_S,
        )


class HostProcesses:
    """Looks at processes of this host (`coordinator.ports.Processes`)."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id

    def is_alive(self, boot_id: str, pid: int, process_started_ms: int) -> bool | None:
        if boot_id != self._boot_id:
            return None
        try:
            found = ProcessIdentity.of(pid)
        except ProcessLookupError:
            return False
        return found.started_ticks * 1000 // _TICKS_PER_S == process_started_ms and found.is_alive()


class CoordinatorThread:
    """Keeps the coordinator in office until it is closed; an error that nobody here can mend ends the process.

    One of those is a newer leader that lives: standing again would fence it in its turn, and so on for ever.
    """

    def __init__(self, service: CoordinatorService, submission: SubmitJob) -> None:
        self._service = service
        self._submission = submission
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-coordinator", daemon=True)
        self._drain = DrainRequest()
        self.fatal: SamzapyError | None = None

    def start(self, drain: DrainRequest) -> None:
        self._drain = drain
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Handle what has arrived, then end."""
        self._ended.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._hold_office()
        except SamzapyError as error:
            self.fatal = error
        except BaseException as error:
            # A coordinator that looks alive and is not would be worse than none (H80).
            _LOG.exception("the coordinator failed")
            self.fatal = SamzapyError(f"the coordinator failed: {type(error).__name__}: {error}")
            raise
        finally:
            if self.fatal is not None:
                self._drain.ask("the coordinator ended")

    def _hold_office(self) -> None:
        try:
            self._service.take_office()
            self._service.submit(self._submission)
            while not self._ended.is_set():
                self._service.run_once(_ROUND_MS)
            # What arrived before the end was asked for: the container's last heartbeat.
            self._service.run_once(0)
        except (TemporaryError, DeadlineError, ProducerError) as error:
            _LOG.warning("the coordinator left office and stands again: %s", error)
            self._ended.wait(_OFFICE_PAUSE_S)


def run_container(config: JobConfig, job_file: Path) -> None:
    """Run this process as one processor of the job, leading it, until it is asked to stop.

    Raises:
        SamzapyError: with the exit code that the process ends with.
    """
    end_with_parent()
    here = Here.now()
    connection = KafkaConnection(
        bootstrap_servers=config.bootstrap_servers(config.default_system),
        properties=config.client_properties(config.default_system),
    )
    _check_store_directory(config)
    submission = _submission(config, KafkaAdmin(connection))
    _refuse_what_the_stream_does_not_allow(config, connection, submission, HostProcesses(here.boot_id))
    jars = jar_paths("spark-kafka")
    execution_id = ExecutionId(
        os.environ.get("EXECUTION_ENV_CONTAINER_ID") or f"container-{config.processor_id}-{uuid.uuid4().hex}"
    )
    with _scratch_directory(here, execution_id) as scratch_dir:
        _Run(
            config=config,
            job_file=job_file,
            here=here,
            connection=connection,
            submission=submission,
            execution_id=execution_id,
            scratch_dir=scratch_dir,
        ).run(jars)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One execution: what its parts are made of."""

    config: JobConfig
    job_file: Path
    here: Here
    connection: KafkaConnection
    submission: SubmitJob
    execution_id: ExecutionId
    scratch_dir: Path

    def run(self, jars: Sequence[Path]) -> None:
        # Imported here: what is refused before needs no Spark, and is told in a second.
        from samzapy.adapters.spark.session import open_session

        session, cores = open_session(self.config.job, self.scratch_dir, jars)
        drain = DrainRequest()
        install_handlers(session.sparkContext, drain)
        commands = CommandInbox()
        snapshots: list[CoordinatorService] = []
        server = CoordinatorServer(
            host=self.config.coordinator_host,
            port=self.config.coordinator_port,
            snapshot=lambda: snapshots[0].status() if snapshots else None,
            put=commands.put,
            clock=SystemClock(),
            lease_ms=self.config.lease_ms,
        )
        url = server.start()
        service = self._coordinator(url, commands)
        snapshots.append(service)
        coordinator = CoordinatorThread(service, self.submission)
        coordinator.start(drain)
        topics = TopicWatch(
            KafkaAdmin(self.connection),
            names=lambda: topics_of(service.status().state) if service.leads else (),
            put=commands.put,
            interval_ms=self.config.topic_check_ms,
        )
        topics.start()
        try:
            self._run_container(session, cores, drain)
        except SamzapyError as error:
            # The container may only have seen the consequence.
            raise coordinator.fatal or error from error
        finally:
            topics.close()
            coordinator.close(_CLOSE_WAIT_S)
            server.stop()
            session.stop()
        if coordinator.fatal is not None:
            raise coordinator.fatal

    def _coordinator(self, url: str, commands: CommandInbox) -> CoordinatorService:
        config, here = self.config, self.here
        return CoordinatorService(
            log=KafkaLog(
                self.connection,
                coordinator_topic(config.job),
                coordinator_transactional_id(config.job),
                transaction_timeout_ms=config.coordinator_transaction_timeout_ms,
            ),
            config=config,
            identity=CoordinatorIdentity(
                coordinator_id=f"coordinator-{uuid.uuid4().hex}",
                host=here.host,
                boot_id=here.boot_id,
                pid=here.pid,
                process_started_ms=here.process_started_ms,
                url=url,
            ),
            clock=SystemClock(),
            commands=commands,
            fencing=KafkaFence(self.connection),
            positions=KafkaPositions(self.connection, config.job),
            processes=HostProcesses(here.boot_id),
        )

    def _run_container(self, session: SparkSession, cores: int, drain: DrainRequest) -> None:
        from samzapy.adapters.spark.query import SparkQuery
        from samzapy.adapters.spark.slots import DriverSlots, LeaseFile

        config = self.config
        slots = DriverSlots(self.scratch_dir, cores)
        _bound_the_end(drain, config.drain_ms, slots.kill_holders)
        lease = LeaseFile(self.scratch_dir)
        heartbeats = HeartbeatThread(
            HttpCoordinatorClient(),
            identity=self._heartbeat_identity(cores),
            interval_ms=config.heartbeat_ms,
            lease_ms=config.lease_ms,
            on_alive=lambda sent_at_ns: lease.extend_to(sent_at_ns + config.lease_ms * 1_000_000),
        )
        progress = KafkaProgressLog(
            self.connection,
            config.job,
            driver_transactional_id(config.job, self.execution_id),
            config.transaction_timeout_ms,
        )
        follower = KafkaFollower(self.connection, coordinator_topic(config.job))
        store_dir = Path(config.local_store_dir) if config.local_store_dir else self.scratch_dir / "state"
        ports = ContainerPorts(
            clock=SystemClock(),
            stream=follower,
            topics=KafkaTopics(self.connection, config.job),
            slots=slots,
            fence=KafkaFence(self.connection),
            progress=progress,
            query=SparkQuery(
                session,
                worker_entry=_WORKER_ENTRY,
                bootstrap_servers=self.connection.bootstrap_servers,
                kafka_options=self.connection.properties,
                scratch_dir=self.scratch_dir,
            ),
            heartbeats=heartbeats,
            stop=drain,
            crash_points=crash_points(os.environ),
            state_of=lambda task: LmdbStateDirectory(task_directory(store_dir, config.job, task), config.stores),
            pause=lambda ms: time.sleep(ms / 1000),
        )
        identity = ContainerIdentity(
            execution_id=self.execution_id,
            boot_id=self.here.boot_id,
            slot_count=cores,
            job_file=str(self.job_file),
            scratch_dir=str(self.scratch_dir),
        )
        heartbeats.start()
        try:
            ContainerService(config, identity, ports).run()
        finally:
            heartbeats.close()
            progress.close()
            follower.close()

    def _heartbeat_identity(self, cores: int) -> Mapping[str, str | int]:
        return {
            "job": self.config.job,
            "executionId": self.execution_id,
            "processorId": self.config.processor_id,
            "host": self.here.host,
            "bootId": self.here.boot_id,
            "pid": self.here.pid,
            "processStartedMs": self.here.process_started_ms,
            "slotCount": cores,
            "formatLevel": FORMAT_LEVEL,
        }


def _bound_the_end(drain: DrainRequest, drain_ms: int, kill_workers: Callable[[], None]) -> None:
    """End this process some seconds after a drain should have ended, whatever it waits for (a broker that is down).

    Nothing is lost by that: the next start finds the process gone and recovers.
    """

    def watch() -> None:
        drain.wait(None)
        time.sleep(drain_ms / 1000 + _END_GRACE_S)
        _LOG.error("the drain did not end in time; this process ends now, and the next start recovers")
        kill_workers()
        os._exit(ExitCode.TIMED_OUT)

    threading.Thread(target=watch, name="samzapy-end", daemon=True).start()


def _submission(config: JobConfig, admin: KafkaAdmin) -> SubmitJob:
    """Check the inputs, make or check samzapy's own topics, and put the job into words for the coordinator."""
    admin.check_reachable()
    if config.input_patterns:
        config = resolve_inputs(config, admin.topic_names())
    streams = [SystemStream.parse(name) for name in config.inputs]
    outputs = [] if config.dead_letter_output is None else [SystemStream.parse(config.dead_letter_output)]
    described = admin.describe(stream.stream for stream in (*streams, *outputs))
    inputs = tuple(
        InputFound(
            system_stream=stream,
            partition_count=described[stream.stream].partition_count,
            topic_id=described[stream.stream].topic_id,
        )
        for stream in streams
    )
    replicas = config.replication_factor
    changelog_partitions = sum(found.partition_count for found in inputs)
    specs = [
        coordinator_spec(config.job, replicas),
        checkpoint_spec(config.job, replicas),
        *(
            changelog_spec(config.job, store.name, changelog_partitions, store.replication_factor or replicas)
            for store in config.stores
        ),
    ]
    made = [admin.ensure_topic(spec) for spec in specs]
    return SubmitJob(
        config=config,
        inputs=inputs,
        own_topics=tuple(
            OwnTopicFound(name=found.name, topic_id=found.topic_id, partition_count=found.partition_count)
            for found in made
        ),
        processor_ids=(ProcessorId(config.processor_id),),
        cause=f"submit-{uuid.uuid4().hex}",
        actor=f"processor {config.processor_id}",
    )


def _refuse_what_the_stream_does_not_allow(
    config: JobConfig, connection: KafkaConnection, submission: SubmitJob, processes: HostProcesses
) -> None:
    """Tell before Spark is started what the coordinator would refuse, and do not fence a leader that lives.

    A hint only: the lock is the transactional id, and the coordinator decides on its own reading.

    Raises:
        RejectedError: the job runs already; says where.
        ConfigError, DataError: the stream cannot be read, is another job's, or does not allow what is submitted.
    """
    log = KafkaLog(connection, coordinator_topic(config.job), coordinator_transactional_id(config.job))
    try:
        state = replay(log.read(), topic=coordinator_topic(config.job)).state
    finally:
        log.close()
    check_readable(state, config.job_name, config.job_id)
    _refuse_second(config, state, processes)
    submit_job(submission, state)


def _refuse_second(config: JobConfig, state: CoordinatorState, processes: HostProcesses) -> None:
    for container in state.containers_sorted:
        if container.phase in LIVING and processes.is_alive(
            container.boot_id, container.pid, container.process_started_ms
        ):
            raise RejectedError(
                f"job {config.job} runs already on this host, as process {container.pid} (processor "
                f"{container.processor_id}); stop that one first, or give this job another job.id"
            )
    if (
        state.term is None
        or processes.is_alive(state.term.boot_id, state.term.pid, state.term.process_started_ms) is False
    ):
        return
    if HttpCoordinatorClient().status(state.term.url, config.job, _LEADER_WAIT_MS) is not None:
        raise RejectedError(
            f"job {config.job} runs already: its coordinator on {state.term.host} answers at {state.term.url}; "
            "a job has one processor in this version, so stop that one first"
        )


def _check_store_directory(config: JobConfig) -> None:
    """Refuse a local.store.dir that cannot be used, and warn of one that is not kept over reboots."""
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
    if _file_system(path) in _NOT_PERSISTENT or path.resolve().is_relative_to(tempfile.gettempdir()):
        _LOG.warning(
            "local.store.dir %s is not kept over reboots: state will be rebuilt from the changelog then", path
        )


def _file_system(path: Path) -> str:
    """The kind of the file system that holds `path`, from /proc/mounts; the longest mount point wins."""
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted_at, found, *_ = line.split()
        if path.resolve().is_relative_to(mounted_at) and len(mounted_at) >= len(best):
            best, kind = mounted_at, found
    return kind


@contextmanager
def _scratch_directory(here: Here, execution_id: ExecutionId) -> Iterator[Path]:
    """This execution's scratch, in memory where that is possible; those of executions that are gone are removed."""
    memory = Path("/dev/shm")  # noqa: S108  # tmpfs on purpose: nothing in it outlives the execution
    root = (memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())) / f"samzapy-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    processes = HostProcesses(here.boot_id)
    for old in root.iterdir():
        if _is_left_behind(old, processes):
            shutil.rmtree(old, ignore_errors=True)
    path = root / execution_id
    path.mkdir(mode=0o700)
    (path / "owner").write_text(f"{here.boot_id} {here.pid} {here.process_started_ms}")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _is_left_behind(scratch_dir: Path, processes: HostProcesses) -> bool:
    """Whether nobody uses a scratch directory any more.

    One without an owner is being made this moment, or a JVM that outlived its driver made parts of it anew.
    """
    try:
        boot_id, pid, started_ms = (scratch_dir / "owner").read_text().split()
    except (OSError, ValueError):
        try:
            return time.time() - scratch_dir.stat().st_mtime > _WITHOUT_OWNER_S
        except OSError:
            return False
    return processes.is_alive(boot_id, int(pid), int(started_ms)) is not True
