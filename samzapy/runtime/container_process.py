"""The composition root of a container's driver: connects its ports to adapters.

A self-managed process is one processor of the job, and a candidate to lead it (`runtime.leadership`). A process that
the job's coordinator has started (`cli.job.submission`) is a container only. `runtime.container_start` comes before.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from samzapy.adapters.faults import note_faults
from samzapy.adapters.host.crash_points import crash_points
from samzapy.adapters.host.end_files import EndFiles
from samzapy.adapters.host.outputs_file import OutputsFile
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.broker_watch import BrokerWatch
from samzapy.adapters.kafka.changelog_follower import KafkaChangelogFollower
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaFollower, KafkaLeaderSearch
from samzapy.adapters.kafka.hanging import written_by_workers
from samzapy.adapters.kafka.positions import KafkaFence, KafkaProgressLog
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.adapters.lmdb.store import LmdbStateDirectory, faults_directory, task_directory, tasks_with_state
from samzapy.adapters.spark.java_properties import java_properties
from samzapy.adapters.spark.slots import DriverSlots, LeaseFile
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.adapters.web.heartbeat_sender import HeartbeatThread, Leader
from samzapy.config import JobConfig
from samzapy.container.ports import ContainerIdentity, ContainerPorts
from samzapy.container.service import ContainerService
from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import DeadlineError, ExitCode, LostContainerError, SamzapyError
from samzapy.model.container import driver_transactional_id
from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.location import LocationId
from samzapy.model.topics import coordinator_topic
from samzapy.plan.groupers import Groupers
from samzapy.runtime import tracing
from samzapy.runtime.background_archive import BackgroundArchive
from samzapy.runtime.coordinator_access import container_access
from samzapy.runtime.input_keys import check_inputs
from samzapy.runtime.job_groupers import load_groupers
from samzapy.runtime.job_location import location_of_this_processor
from samzapy.runtime.leadership import Coordination, SystemClock
from samzapy.runtime.logs import identify
from samzapy.runtime.signals import DrainRequest, install_handlers
from samzapy.runtime.spark_start import SparkStart
from samzapy.runtime.submission import (
    check_submission_allowed,
    read_state,
    refuse_second,
    running_containers,
    submission_of,
)
from samzapy.runtime.this_host import Here
from samzapy.stream.records import FORMAT_LEVEL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_WORKER_ENTRY = "samzapy.runtime.worker_process:run"
_CLOSE_WAIT_S = 3.0
_LEADER_WAIT_MS = 2000
_END_GRACE_S = 3.0
# A program that stops a job kills it after some time, Docker after ten seconds. So much of that is used, also with a
# short drain: on a busy host Spark takes seconds to cancel a batch.
_END_MIN_S = 9.0
_LOST_GRACE_S = 20.0
_END_LOOK_S = 1.0
# More than the wait for killed workers (`adapters.spark.slots`).
_FORCED_WITHIN_S = 15.0
_LOGGED_WITHIN_S = 1.0
_PACKAGE = Path(__file__).resolve().parents[1]


def run_execution(
    config: JobConfig,
    job_file: Path,
    *,
    processor_id: ProcessorId,
    execution_id: ExecutionId,
    scratch_dir: Path,
    spark: SparkStart,
    expected_generation: int | None,
) -> None:
    """Run this process as a processor of the job until it is asked to stop.

    The process also takes part in the election, and leads while it is elected.

    Args:
        spark: begins after the checks, unless it has begun.
        expected_generation: see `SubmitJob`.

    Raises:
        SamzapyError: with the exit code that the process ends with.
    """
    here = Here.now()
    connection = KafkaConnection.of(config)
    admission = _Admission(
        config=config,
        here=here,
        connection=connection,
        admin=KafkaAdmin(connection),
        groupers=load_groupers(config, job_file.parent),
        processor_id=processor_id,
        execution_id=execution_id,
        expected_generation=expected_generation,
    )
    run = _Run(
        config=config,
        job_file=job_file,
        here=here,
        location=location_of_this_processor(config, job_file.parent),
        connection=connection,
        submission=admission.submission,
        processor_id=processor_id,
        execution_id=execution_id,
        scratch_dir=scratch_dir,
    )
    is_launched = admission.is_launched()
    spark.begin()
    run.run(spark, is_launched=is_launched)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The parts of one execution."""

    config: JobConfig
    job_file: Path
    here: Here
    location: LocationId
    connection: KafkaConnection
    submission: Callable[[CoordinatorState], SubmitJob]
    processor_id: ProcessorId
    execution_id: ExecutionId
    scratch_dir: Path

    def run(self, spark: SparkStart, *, is_launched: bool) -> None:
        """Lead, if elected, and run the container.

        The election and the first plan do not wait for Spark. `is_launched`: the job's coordinator started this
        process, and leads elsewhere.
        """
        # Also where another process leads: the log of each container says whether its commits are traced.
        tracing.tracer_of(self.config, os.environ, execution_id=self.execution_id)
        with BrokerWatch(self.connection, coordinator_topic(self.config.job), asks_each=not is_launched):
            self._run(spark, is_launched=is_launched)

    def _run(self, spark: SparkStart, *, is_launched: bool) -> None:
        cores = spark.cores()
        drain = DrainRequest()
        slots, lease = DriverSlots(self.scratch_dir, cores), LeaseFile(self.scratch_dir)
        search = KafkaLeaderSearch(self.connection, coordinator_topic(self.config.job))
        heartbeats = self._heartbeats(cores, lease, search)
        is_drained = threading.Event()
        _force_exit_after_deadline(
            drain, self.config.drain_ms, heartbeats.given_up, slots.kill_holders, is_drained.is_set, self._keep_end
        )
        coordination = None if is_launched else self._coordination(drain, heartbeats)
        archive = BackgroundArchive(os.environ)
        try:
            if coordination is not None:
                coordination.start()
            session = spark.session()
            install_handlers(session.sparkContext, drain)
            archive.begin_soon()
            self._run_container(session, slots, cores, heartbeats, drain)
            if coordination is None or coordination.fatal is None:
                is_drained.set()
        except SamzapyError as error:
            # The container may only have seen the consequence.
            cause = (None if coordination is None else coordination.fatal) or error
            self._keep_end(cause)
            raise cause from error
        except Exception as error:
            self._keep_end(error)
            raise
        finally:
            heartbeats.close()
            lease.end()  # Workers that end from now on close no tasks: another execution may have them.
            search.close()
            if coordination is not None:
                coordination.close(_CLOSE_WAIT_S)
            archive.close()
            tracing.close()
        if coordination is not None and coordination.fatal is not None:
            self._keep_end(coordination.fatal)
            raise coordination.fatal

    def _keep_end(self, error: Exception) -> None:
        """Keep the reason of this end on the host: no leader may be left to hear it."""
        files = EndFiles.of(self.config.local_store_dir, self.config.job)
        if files is not None:
            files.write(
                ContainerEnd.of_error(
                    error,
                    processor_id=self.processor_id,
                    execution_id=self.execution_id,
                    host=self.location.host,
                    at_ms=SystemClock().wall_ms(),
                )
            )

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
            HttpCoordinatorClient(container_access(config, os.environ)),
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
        identity = ContainerIdentity(
            execution_id=self.execution_id,
            slot_count=cores,
            job_file=str(self.job_file),
            scratch_dir=str(self.scratch_dir),
        )
        with ExitStack() as clients:
            ports = self._ports(session, slots, heartbeats, drain, clients)
            heartbeats.start()
            ContainerService(self.config, identity, ports).run()

    def _ports(
        self,
        session: SparkSession,
        slots: DriverSlots,
        heartbeats: HeartbeatThread,
        drain: DrainRequest,
        clients: ExitStack,
    ) -> ContainerPorts:
        """The adapters of the container; `clients` closes those with a client of Kafka."""
        from samzapy.adapters.spark.query import SparkQuery

        config = self.config
        outputs, known = OutputsFile.of(config, self.scratch_dir), written_by_workers(config)
        progress = KafkaProgressLog(
            self.connection,
            config.job,
            driver_transactional_id(config.job, self.execution_id),
            config.transaction_timeout_ms,
            known,
        )
        store_dir = Path(config.local_store_dir) if config.local_store_dir else self.scratch_dir / "state"
        note_faults(faults_directory(store_dir / config.job))
        return ContainerPorts(
            clock=SystemClock(),
            stream=clients.enter_context(closing(KafkaFollower(self.connection, coordinator_topic(config.job)))),
            topics=KafkaTopics(self.connection, config.job),
            changelog_follower=clients.enter_context(closing(KafkaChangelogFollower(self.connection, config.job))),
            slots=slots,
            fence=KafkaFence(
                self.connection,
                config.transaction_timeout_ms,
                written=written_by_workers(config, outputs.topics),
            ),
            progress=clients.enter_context(closing(progress)),
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
            former_ends=EndFiles.of(config.local_store_dir, config.job),
            outputs=lambda: known.unknown_of(outputs.topics()),
            in_force=lambda run_id, generation: identify(run=run_id, generation=generation),
        )

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
    is_drained: Callable[[], bool],
    keep_end: Callable[[Exception], None],
    end: Callable[[int], None] = os._exit,
) -> None:
    """End this process if it has not ended by its deadline.

    It may wait for a broker that is down, or for a query that does not stop. It should end when it is drained or
    declared lost: then its tasks belong to another execution, and while it lives its processor gets none. Nothing is
    lost by a forced exit: the next start finds the process gone and recovers.

    Once it is drained, all its tasks are released. Only its part in the coordination and Spark have still to stop, so a
    late end is no failure.
    """

    def watch() -> None:
        while not drain.wait(_END_LOOK_S):
            if (reason := given_up()) is not None:
                # The thread of the container checks this too, and ends sooner unless it hangs.
                time.sleep(_LOST_GRACE_S)
                _end_within(_FORCED_WITHIN_S, ExitCode.LOST, end)
                text = f"given up by the coordinator ({reason}), and did not end: this process ends now"
                _end_by_force(LostContainerError(text), keep_end, kill_workers, end)
                return
        time.sleep(_ends_after_s(drain_ms))
        if is_drained():
            _end_within(_LOGGED_WITHIN_S, ExitCode.OK, end)
            _LOG.warning("this process did not stop in time after the drain: it ends now")
            end(ExitCode.OK)
            return
        _end_within(_FORCED_WITHIN_S, ExitCode.TIMED_OUT, end)
        place = _place_of_main_thread()
        text = f"the drain did not end in time, it is at {place}; this process ends now, and the next start recovers"
        _end_by_force(DeadlineError(text), keep_end, kill_workers, end)

    threading.Thread(target=watch, name="samzapy-end", daemon=True).start()


def _end_within(bound_s: float, code: int, end: Callable[[int], None]) -> None:
    """End this process after `bound_s`, whatever its other threads wait for.

    A log line waits while stderr is blocked, and the report of the end while its disk hangs.
    """
    timer = threading.Timer(bound_s, end, (code,))
    timer.daemon = True
    with suppress(RuntimeError):  # No thread can be started; the end without a bound still comes.
        timer.start()


def _end_by_force(
    error: SamzapyError,
    keep_end: Callable[[Exception], None],
    kill_workers: Callable[[], None],
    end: Callable[[int], None],
) -> None:
    """Keep the error, kill the workers and end this process, whatever fails."""
    _LOG.error("%s", error)
    try:
        keep_end(error)
    except Exception as failure:  # No failure may keep the process alive: nothing else ends it.
        _LOG.error("the reason of this end cannot be kept: %s", failure)
    try:
        kill_workers()
    except Exception as failure:  # As above: a worker may wait for a disk that hangs.
        _LOG.error("not all workers could be killed, this process ends all the same: %s", failure)
    finally:
        end(error.exit_code)


def _ends_after_s(drain_ms: int) -> float:
    """How long after it is asked to stop the process ends at the latest."""
    return max(drain_ms / 1000 + _END_GRACE_S, _END_MIN_S)


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
