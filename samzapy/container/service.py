"""One container: follow the grants, start, run the query, recover, drain, stop.

Theory. A start and a recovery are the same procedure (`startup`). A batch that fails in any way ends the query, and the
next start follows. Nothing is repaired while a query runs. A standby or a reserve waits for its grants like any other
container, and meanwhile keeps the state of its tasks up to date (`warm_up`).

One thread runs the loop. Another thread sends heartbeats with the last published content. A stop request is a flag. The
loop checks the lease and the flag between two events.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from samzapy.config import JobConfig
from samzapy.container.driver_writes import DriverWrites
from samzapy.container.end_reports import EndReports
from samzapy.container.idle_progress import IdleProgress
from samzapy.container.input_ends import InputEnds
from samzapy.container.missing_inputs import MissingInputs
from samzapy.container.ownership import YIELD_MS, Ownership
from samzapy.container.ports import (
    BatchDone,
    ContainerIdentity,
    ContainerPorts,
    HeartbeatContent,
    QueryFailed,
    TailProgress,
)
from samzapy.container.progress_log import ProgressLine
from samzapy.container.query_failures import QueryFailures
from samzapy.container.running_query import RunningQuery
from samzapy.container.startup import Startup
from samzapy.container.state_cleanup import StateCleanup
from samzapy.container.state_restore import StateRestore
from samzapy.container.stats import ContainerFigures
from samzapy.container.warm_up import QueryWarmUp, Standby
from samzapy.container.work_planner import WorkPlanner
from samzapy.errors import DeadlineError, LostContainerError, MissingTopicError, SamzapyError, TemporaryError
from samzapy.model.container_end import with_key_digests
from samzapy.model.grant import Grant
from samzapy.model.slow_message import SlowMessage
from samzapy.model.topics import OUTPUTS_NAMED_MAX

QUERY_PAUSED: Final = "no coordinator answers heartbeats; the query is stopped until one does"
_LOG = logging.getLogger(__name__)
_POLL_MS = 200
_PAUSE_MS = 50
# How long user code may take to close its instances, if the drain leaves so much time.
_CLOSE_MAX_MS = 3000
_CLOSE_MIN_MS = 1000
# Grants of one plan mostly arrive together; a query restart for each would waste time.
_GRANTS_SETTLE_MS = 300
_REASON_LENGTH_MAX = 2000


class ContainerService:
    """Runs one execution from its first heartbeat to its end."""

    def __init__(self, config: JobConfig, identity: ContainerIdentity, ports: ContainerPorts) -> None:
        self._config = config
        self._ports = ports
        clock, execution_id = ports.clock, identity.execution_id
        self._figures = ContainerFigures()
        self._ownership = ownership = Ownership(config, execution_id, ports, self._figures, self._publish)
        writes = DriverWrites(ports.progress, ownership)
        planner = WorkPlanner(config, identity, ownership)
        self._idle = IdleProgress(config, execution_id, clock, writes)
        self._missing = MissingInputs(config, ports, ownership)
        self._failures = QueryFailures(config, clock, ports.slots, ownership, self._figures)
        self._query = RunningQuery(config, ports.query, clock, self._figures, self._failures, self._idle, planner)
        restore = StateRestore(config, execution_id, ports, planner, writes, self._figures, ownership)
        self._ends = EndReports(config, ownership, writes, clock, ports.former_ends)
        self._startup = Startup(config, ports, ownership, self._query, self._idle, self._missing, restore, self._ends)
        self._cleanup = StateCleanup(ports, ownership)
        self._warm_up = QueryWarmUp(config, ports, ownership, planner, self._query)
        self._standby = Standby(config, execution_id, ports, ownership, self._warm_up, self._cleanup)
        self._state = "STARTED"
        self._input_ends = InputEnds(ports, self._missing, self._figures, self._query)

    def run(self) -> None:
        """Work until asked to stop; returns after a clean stop.

        Raises:
            LostContainerError: the coordinator declared this execution lost, or none answered for too long.
            ConfigError: the job runs under another configuration than this container's.
            TaskError: user code failed under policy `fail`, or a message was too slow in three starts.
            LostRangeError, CorruptRecordError and other DataErrors: data is lost or cannot be read.
            SamzapyError: no start led to a commit within task.query.retry.ms, or a micro-batch hangs.
        """
        self._ports.slots.take_all(YIELD_MS)
        try:
            while not self._ownership.is_over:
                grants = self._await_grants()
                if grants and self._startup.run(grants):
                    self._state, self._warm_up.is_done = "RUNNING", True
                    self._publish()
                    self._watch(grants)
            # It may fail as well: the last micro-batch reports its failures only now.
            self._stop_cleanly()
        except BaseException as error:
            self._ports.query.stop()
            self._kill_workers()
            if isinstance(error, SamzapyError) and not isinstance(error, LostContainerError):
                if self._ownership.shut_workers_out():
                    self._ports.slots.close_tasks(_CLOSE_MIN_MS)
                self._report_end(error)
            raise

    # --- while no query runs ---

    def _await_grants(self) -> tuple[Grant, ...]:
        """Wait until the grants have settled and the lease holds.

        Returns:
            The grants of this execution; empty if it was asked to stop first.
        """
        settled_at_ms: int | None = None
        seen: tuple[Grant, ...] = ()
        while not self._ownership.is_over:
            self._ownership.look_around()
            grants, now_ms = self._ownership.own, self._ports.clock.monotonic_ms()
            if self._ownership.revoked():
                self._release()
            is_busy = self._standby.run()
            if grants != seen or settled_at_ms is None:
                seen, settled_at_ms = grants, now_ms + _GRANTS_SETTLE_MS
            # A container that has all its planned tasks waits no longer.
            has_settled = now_ms >= settled_at_ms or self._ownership.orders.is_all(seen)
            if seen and has_settled and self._ports.heartbeats.lease_ran_out_at_ms() is None:
                return seen
            if not is_busy:
                self._ports.pause(_PAUSE_MS)
        return ()

    def _release(self) -> None:
        """Fence the workers of the query that ended, then release the revoked grants.

        If the fence fails, the heartbeats still list the grants, and the caller tries again.
        """
        open_slots = self._ports.slots.take_all(YIELD_MS)
        self._ownership.block_earlier_queries()
        # Before anything can fail, because the fence may change the grants that are held.
        self._idle.clear()
        try:
            self._ownership.fence(open_slots)
        except (TemporaryError, DeadlineError) as error:
            _LOG.warning("cannot release tasks yet, will retry: %s", error)
        except MissingTopicError as error:
            self._missing.tolerate(error)
        else:
            self._ownership.release()

    def _rest(self, pause_ms: int) -> None:
        """Wait before the next start, until the goal of the container changes."""
        goal, clock = self._ownership.goal, self._ports.clock
        until_ms = clock.monotonic_ms() + pause_ms
        while (left_ms := until_ms - clock.monotonic_ms()) > 0:
            self._ownership.look_around()
            if self._ownership.is_over or self._ownership.goal != goal:
                return
            self._publish()
            self._ports.pause(min(_POLL_MS, left_ms))

    # --- while the query runs ---

    def _watch(self, grants: Sequence[Grant]) -> None:
        """Watch the query until it ends, the grants change, or a stop is requested."""
        progress_line = ProgressLine(self._config.progress_log_ms, self._ports.clock, self._figures)
        while not self._ownership.is_over:
            match self._ports.query.next_event(_POLL_MS):
                case BatchDone() | TailProgress() as progress:
                    self._query.progressed(progress)
                case QueryFailed() as failed:
                    pause_ms = self._failures.failed(failed, self._query.times.begun_ms, self._query.routes)
                    self._query.stop()
                    self._rest(pause_ms)
                    return
                case None:
                    pass
            self._ownership.look_around()
            if self._input_ends.look_if_due():
                self._publish()
            self._idle.write(grants)
            self._cleanup.run()
            self._ends.remove_recorded()
            progress_line.write_if_due(grants)
            self._query.tick_if_due()
            self._query.check_hang()
            if self._ports.heartbeats.lease_ran_out_at_ms() is not None:
                _LOG.warning(QUERY_PAUSED)
                self._query.drain()
                return
            reason = self._why_again(grants)
            if reason:
                _LOG.info("%s; the query is started anew", reason)
                self._query.drain()
                return

    def _why_again(self, grants: Sequence[Grant]) -> str:
        """The reason to drain and restart the query; empty to keep it running."""
        if self._ownership.orders.restart > self._query.restart:
            return "an operator requested it"
        if self._missing.has_changed:
            return "an input was deleted, or is there again"
        if self._ownership.own != tuple(grants):
            return "the grants changed"
        if self._query.bootstrap.is_over:
            return "the bootstrap inputs have caught up"
        if self._failures.trial_passed(self._figures.positions):
            return "no worker died when the suspect messages were processed alone"
        return self._query.why_again()

    # --- heartbeats ---

    def _publish(self) -> None:
        ownership = self._ownership
        orders = ownership.orders
        self._query.note_so_far(self._ports.slots.so_far(ownership.query_number))
        term, error = orders.term, self._ends.error
        self._ports.heartbeats.publish(
            HeartbeatContent(
                coordinator_url=None if term is None else term.url,
                term=0 if term is None else term.term,
                state=self._state,
                stream_offset=orders.offset_next,
                held=tuple((grant.task_name, grant.epoch) for grant in ownership.held),
                figures=self._figures.as_json(self._ports.clock.monotonic_ms(), self._ports.clock.wall_ms()),
                reason=self._reason(),
                finished=ownership.running == ownership.own and self._query.has_finished(ownership.running),
                restart=self._query.restart,
                warm=self._standby.report(),
                failing=self._failures.failing(),
                exit_code=0 if error is None else error.exit_code,
                end=self._ends.own(),
                former_ends=self._ends.former(),
                step=self._startup.step,
                slow_messages=self._slow_messages(),
                kafka_silent_ms=ownership.kafka_silent_ms,
                outputs=tuple(self._ports.outputs()[-OUTPUTS_NAMED_MAX:]),
            )
        )

    def _reason(self) -> str:
        if self._ends.error is not None:
            return with_key_digests(str(self._ends.error))[:_REASON_LENGTH_MAX]
        return "" if self._state != "STOPPED" else "finished" if self._ownership.orders.is_finished else "drained"

    def _slow_messages(self) -> tuple[SlowMessage, ...]:
        noted = self._ports.slots.slow_messages(self._ownership.query_number)
        return self._query.slow_messages(noted, self._ports.clock.boot_ms())

    # --- the end ---

    def _stop_cleanly(self) -> None:
        """Drain the query, then release and report all grants once no worker can commit."""
        ports, begun_ms, orders = self._ports, self._ports.clock.monotonic_ms(), self._ownership.orders
        if orders.launch is not None and orders.is_stopping:
            _LOG.info("the coordinator stops this container: %s", orders.launch.reason)
        self._standby.end()
        if not self._query.drain():
            _LOG.warning("the micro-batch did not finish within %d ms; cancelling it", self._config.drain_ms)
            ports.slots.kill_holders()
        self._idle.write(self._ownership.running, at_once=True)
        if not self._ownership.shut_workers_out():
            # The coordinator fences this execution once it has noticed the end of the process.
            return
        # Before the release: then the instances of the next owner come after these.
        left_ms = self._config.drain_ms - (ports.clock.monotonic_ms() - begun_ms)
        ports.slots.close_tasks(max(_CLOSE_MIN_MS, min(left_ms, _CLOSE_MAX_MS)))
        self._ownership.release_all()
        self._state = "STOPPED"
        self._publish()
        ports.heartbeats.send_now(YIELD_MS)

    def _kill_workers(self) -> None:
        """Kill the workers; a failure does not replace the error that ends this process."""
        try:
            self._ports.slots.kill_holders()
        except (SamzapyError, OSError) as error:
            _LOG.warning("not all workers could be killed, this process ends all the same: %s", error)

    def _report_end(self, error: SamzapyError) -> None:
        """Report the error that ends this process, with its exit code."""
        self._ends.error = error
        self._publish()
        if not self._ports.heartbeats.send_now(YIELD_MS):
            self._ends.leave()
