"""Leads a job, or waits to: election, HTTP server and coordinator of a process.

It needs no Spark, so leadership can be tested with processes that start in a second.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from samzapy.adapters.host.command_queue import CommandInbox
from samzapy.adapters.host.end_files import EndFiles
from samzapy.adapters.host.garbage import leave_out_the_present, search_seldom
from samzapy.adapters.host.outputs_file import OutputsFile
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.election import KafkaElection
from samzapy.adapters.kafka.hanging import written_by_workers
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.placement import KafkaPlacementWriter
from samzapy.adapters.kafka.positions import KafkaFence, KafkaPositions
from samzapy.adapters.kafka.reachable import connections_text
from samzapy.config import JobConfig
from samzapy.coordinator.action_performer import ActionPerformer
from samzapy.coordinator.assignment.partition_positions import partition_positions
from samzapy.coordinator.candidate import TERM_ENDS, Candidate
from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.ports import Launcher
from samzapy.coordinator.service import CoordinatorIdentity, CoordinatorService
from samzapy.coordinator.state import CoordinatorState
from samzapy.errors import SamzapyError
from samzapy.model.container import coordinator_transactional_id, placement_transactional_id
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.topics import coordinator_topic, placement_topic
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.runtime import tracing
from samzapy.runtime.command_sources import CommandSources
from samzapy.runtime.coordinator_access import signature_check, signing_credential
from samzapy.runtime.this_host import Here, HostProcesses
from samzapy.version import __version__

if TYPE_CHECKING:
    from samzapy.adapters.web.server import CoordinatorServer

_LOG = logging.getLogger(__name__)
_ROUND_MS = 200
_TERM_PAUSE_S = 1.0
_FENCE_S = 3.0
"""A fence that takes longer is tried again a second later; heartbeats must be answered meanwhile (`FENCE_ROUND_MS`)."""
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # compared with, not bound to


class SystemClock:
    """The clocks of this host."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class _Submission:
    """The submission of this process; its groupers plan the page's actions too."""

    def __init__(self, make: Callable[[CoordinatorState], SubmitJob]) -> None:
        self._make = make
        self.groupers = NO_GROUPERS

    def made(self, state: CoordinatorState) -> SubmitJob:
        command = self._make(state)
        self.groupers = command.groupers
        return command


class Coordination:
    """This process as an election candidate, from `start` to `close`.

    An error that cannot be handled here ends it and is kept in `fatal`.

    Args:
        submission: see `coordinator.candidate.Candidate`.
        on_end: called with a reason when it ended by an error.
        leader: the URL of the leader as far as this process knows it, for redirects.
        launcher: starts the containers of the job; None for self-managed containers.

    Raises:
        ConfigError: the secret of the job cannot be read.
    """

    def __init__(
        self,
        config: JobConfig,
        here: Here,
        connection: KafkaConnection,
        *,
        submission: Callable[[CoordinatorState], SubmitJob],
        on_end: Callable[[str], None],
        leader: Callable[[], str | None],
        launcher: Launcher | None = None,
    ) -> None:
        self._config = config
        self._here = here
        self._connection = connection
        self._submission = _Submission(submission)
        self._on_end = on_end
        self._commands = CommandInbox()
        self._service: CoordinatorService | None = None
        self._server = self._make_server(leader)
        self._election = KafkaElection(
            connection,
            config.job,
            session_ms=config.election_session_ms,
            heartbeat_ms=config.election_heartbeat_ms,
        )
        self._log = KafkaLog(
            connection,
            coordinator_topic(config.job),
            coordinator_transactional_id(config.job),
            transaction_timeout_ms=config.coordinator_transaction_timeout_ms,
            on_record=self._election.still_at_work,
        )
        self._sources = CommandSources(
            config,
            connection,
            state=self.state,
            positions=self.positions,
            put=self._commands.put,
            launcher=launcher,
            on_launch_failure=self._launches_failed,
            refusal=signature_check(config, os.environ),
        )
        self._answers = KafkaPlacementWriter(
            connection,
            placement_topic(config.job),
            placement_transactional_id(config.job),
            transaction_timeout_ms=config.coordinator_transaction_timeout_ms,
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samzapy-coordinator", daemon=True)
        self.fatal: SamzapyError | None = None

    def _make_server(self, leader: Callable[[], str | None]) -> CoordinatorServer:
        # Commands that look at this host import this module, and serve nothing.
        from samzapy.adapters.web.routes import Answering
        from samzapy.adapters.web.server import CoordinatorServer
        from samzapy.runtime.history import KafkaHistory
        from samzapy.runtime.operations import KafkaOperations
        from samzapy.runtime.server_access import server_access

        config, connection = self._config, self._connection
        operations = KafkaOperations(
            connection,
            config.job,
            lambda: self._submission.groupers,
            partial(signing_credential, config, os.environ),
        )
        return CoordinatorServer(
            config.coordinator_host,
            config.coordinator_port,
            Answering(
                snapshot=lambda: None if self._service is None else self._service.status(),
                put=self._commands.put,
                clock=SystemClock(),
                lease_ms=config.answers_ms,
                leader=leader,
                operations=operations,
                history=KafkaHistory(connection, config.job),
                brokers=partial(connections_text, connection.bootstrap_servers),
            ),
            server_access(config, os.environ, advertised_host(config, self._here)),
        )

    def start(self) -> str:
        """Start the HTTP server and join the election; return the URL.

        Raises:
            ConfigError, DeadlineError: the HTTP server cannot be started.
        """
        search_seldom()
        url = self._server.start()
        self._service = self._coordinator(url)
        self._election.start()
        self._thread.start()
        self._sources.start()
        return url

    def state(self) -> CoordinatorState | None:
        """The state of the log while this process leads. Thread-safe."""
        service = self._service
        return service.status().state if service is not None and service.is_leader else None

    def positions(self) -> Mapping[SystemStreamPartition, int]:
        """By input partition, the position of the job. Thread-safe.

        Empty while this process does not lead.
        """
        service = self._service
        if service is None or not service.is_leader:
            return {}
        snapshot = service.status()
        return partition_positions(snapshot.state, snapshot.liveness)

    def close(self, timeout_s: float) -> None:
        """Handle the commands that have arrived, then end.

        Gives up the seat, so that another candidate leads within a second.
        """
        self._sources.close(timeout_s)
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._answers.close()
        self._election.close()
        self._server.stop()
        tracing.close()

    def _coordinator(self, url: str) -> CoordinatorService:
        config, here, connection = self._config, self._here, self._connection
        return CoordinatorService(
            log=self._log,
            config=config,
            identity=CoordinatorIdentity(
                coordinator_id=f"coordinator-{uuid.uuid4().hex}",
                host=here.host,
                boot_id=here.boot_id,
                pid=here.pid,
                process_started_ms=here.process_started_ms,
                url=url,
                version=__version__,
            ),
            clock=SystemClock(),
            commands=self._commands,
            processes=HostProcesses(here.boot_id, EndFiles.of(config.local_store_dir, config.job)),
            tracer=tracing.tracer_of(config, os.environ),
            performer=ActionPerformer(
                clock=SystemClock(),
                fencing=KafkaFence(
                    connection,
                    config.coordinator_transaction_timeout_ms,
                    _FENCE_S,
                    written_by_workers(config, OutputsFile.of(config).topics),
                ),
                positions=KafkaPositions(connection, config.job),
                placement=self._answers,
            ),
        )

    def _launches_failed(self, error: Exception) -> None:
        self.fatal = SamzapyError(f"containers can no longer be watched: {type(error).__name__}: {error}")
        self._on_end("containers can no longer be watched")

    def _run(self) -> None:
        assert self._service is not None, "start comes first"
        candidate = Candidate(self._service, self._election, self._submission.made)
        try:
            while not self._ended.is_set():
                self._one_round(candidate, _ROUND_MS)
            # Commands that arrived before the end, such as the last heartbeat of this process's container.
            if self._service.is_leader:
                self._one_round(candidate, 0)
        except SamzapyError as error:
            self.fatal = error
        except BaseException as error:
            # A coordinator that looks alive and does nothing would be worse than none.
            _LOG.exception("the coordinator failed")
            self.fatal = SamzapyError(f"the coordinator failed: {type(error).__name__}: {error}")
            raise
        finally:
            if self.fatal is not None:
                self._on_end("the coordinator ended")

    def _one_round(self, candidate: Candidate, timeout_ms: int) -> None:
        led = self._leads()
        # A former leader has producers too, and an idle leader may write nothing for days.
        self._log.serve()
        self._answers.serve()
        try:
            self._try_one_round(candidate, timeout_ms)
        finally:
            if self._leads() != led:
                if not led:
                    # The state that was read from the stream is here, and containers have not begun to send.
                    leave_out_the_present()
                change = "leads" if not led else "no longer leads"
                _LOG.info("this process %s %s, samzapy %s", change, self._config.job, __version__)

    def _leads(self) -> bool:
        return self._service is not None and self._service.is_leader

    def _try_one_round(self, candidate: Candidate, timeout_ms: int) -> None:
        try:
            candidate.run_once(timeout_ms)
        except TERM_ENDS as error:
            _LOG.warning("stepped down; rejoined the election: %s", error)
            self._ended.wait(_TERM_PAUSE_S)


def advertised_host(config: JobConfig, here: Here) -> str:
    """The name by which containers on other hosts find this coordinator.

    The address that means "any" is no such name.
    """
    if config.coordinator_advertised_host is not None:
        return config.coordinator_advertised_host
    return here.host if config.coordinator_host == _ANY_ADDRESS else config.coordinator_host
