"""The grants that this execution holds: hold, revoke, fence, release.

Theory. Each heartbeat lists every grant that was read and is not released. So before the task gets a new owner, the
last heartbeat of this container has reported that the grant is free. A release has a fixed order. First the workers are
blocked, so that no worker begins anything for the grant. Then open transactions are aborted. Only then the heartbeat
no longer lists the grant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence

from samzapy.config import JobConfig
from samzapy.container.local_state.restore import close_cleanly
from samzapy.container.orders import Orders, read_on
from samzapy.container.ports import ContainerPorts
from samzapy.container.stats import ContainerFigures
from samzapy.errors import LostContainerError, SamzapyError
from samzapy.model.container import slot_transactional_id
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId
from samzapy.model.text import some
from samzapy.model.topics import coordinator_topic
from samzapy.stream.log import LogRecord

_LOG = logging.getLogger(__name__)
YIELD_MS = 1000
_SILENCE_STEP_MS = 1000


class Ownership:
    """Follows the coordinator stream, and tracks the grants of this execution.

    Attributes:
        publish: publishes the next heartbeat; called after each change.
        orders: the coordinator stream, read so far.
        own: the grants of this execution on the stream that are not revoked.
        running: the grants that a worker may still commit for.
        held: the grants that heartbeats list: `own`, and those of `running` that are revoked.
        query_number: the number of the newest query; slots admit no worker of an earlier one.
        kafka_silent_ms: the time without an answer of a broker, at the last check.
    """

    def __init__(
        self,
        config: JobConfig,
        execution_id: ExecutionId,
        ports: ContainerPorts,
        figures: ContainerFigures,
        publish: Callable[[], None],
    ) -> None:
        self._config = config
        self._execution_id = execution_id
        self._ports = ports
        self._figures = figures
        self.publish = publish
        self.orders = Orders(execution_id=execution_id)
        self.own: tuple[Grant, ...] = ()
        self.running: tuple[Grant, ...] = ()
        self.held: tuple[Grant, ...] = ()
        self.query_number = 0
        self.kafka_silent_ms = 0

    @property
    def goal(self) -> Hashable:
        """The goal of the query; earlier failures do not count once it changes."""
        grants = tuple((grant.task_name, grant.epoch) for grant in self.own)
        return grants, self.orders.generation, self.orders.restart

    @property
    def is_over(self) -> bool:
        """True after a stop signal, a stop by the coordinator, or the end of the run."""
        return self._ports.stop.is_set() or self.orders.is_stopping or self.orders.is_finished

    # --- the coordinator stream ---

    def look_around(self) -> None:
        """Read new records of the stream; raise if this execution was declared lost.

        Raises:
            LostContainerError: the coordinator declared it lost, or no coordinator answered within the grace period.
        """
        self._ports.progress.serve()
        self._follow(self._ports.stream.poll())
        self._notice_silence()
        reason = self._ports.heartbeats.given_up()
        if self.orders.is_given_up or reason is not None:
            raise LostContainerError(
                f"execution {self._execution_id} was given up by the coordinator "
                f"({self.orders.reason or reason}); its tasks belong to another one, so this one stops"
            )
        self._check_lease_grace()

    def read_to_end(self) -> None:
        """Read the coordinator stream up to its present end."""
        self._follow(self._ports.stream.to_the_end())

    def _follow(self, records: Sequence[LogRecord]) -> None:
        offset_next = self._ports.stream.offset_next()
        if not records and offset_next == self.orders.offset_next:
            return  # Mostly nothing is new, and with thousands of tasks the rest is expensive.
        topic = coordinator_topic(self._config.job)
        before, self.orders = self.orders, read_on(self.orders, records, offset_next, topic=topic)
        if (before.run, before.generation) != (self.orders.run, self.orders.generation):
            run = self.orders.run
            self._ports.in_force("" if run is None else run.run_id, self.orders.generation or 0)
        self.own = self.orders.own_grants()
        self.hold(self.running)

    def _notice_silence(self) -> None:
        """Publish how long no broker has answered, because nothing else does meanwhile."""
        silent_ms = self._ports.stream.silent_ms()
        if silent_ms // _SILENCE_STEP_MS != self.kafka_silent_ms // _SILENCE_STEP_MS:
            self.kafka_silent_ms = silent_ms
            self.publish()

    def _check_lease_grace(self) -> None:
        """Raise an error if no coordinator has answered within the grace period."""
        ran_out_at_ms = self._ports.heartbeats.lease_ran_out_at_ms()
        now_ms = self._ports.clock.monotonic_ms()
        if ran_out_at_ms is not None and now_ms - ran_out_at_ms > self._config.grace_ms:
            raise LostContainerError(
                f"wanted a coordinator to answer heartbeats within job.container.grace.ms ({self._config.grace_ms}) "
                f"after the lease ran out, found none for {now_ms - ran_out_at_ms} ms; this container stops"
            )

    # --- hold and release ---

    def hold(self, running: tuple[Grant, ...]) -> None:
        """Hold the own grants and `running` from now on, and publish them.

        Args:
            running: the grants that a worker may still commit for.
        """
        has_changed = running != self.running
        self.running = running
        self.held = (*self.own, *self.revoked())
        if has_changed:
            self._figures.keep({start.ssp_kb for grant in self.held for start in grant.starts})
        self.publish()

    def revoked(self) -> tuple[Grant, ...]:
        """The grants of the current or last query that are no longer own grants."""
        own = {(grant.task_name, grant.epoch) for grant in self.own}
        return tuple(grant for grant in self.running if (grant.task_name, grant.epoch) not in own)

    def release(self) -> None:
        """Publish that the revoked grants are free, after the workers were fenced."""
        released = self.revoked()
        for grant in released:
            close_cleanly(self._ports.state_of(grant.task_name))
        self.hold(())
        _LOG.info("released %d tasks: %s", len(released), some([grant.task_name for grant in released]))

    def release_all(self) -> None:
        """Hold no grant from now on, after the last query; the caller publishes it."""
        for grant in self.held:
            close_cleanly(self._ports.state_of(grant.task_name))
        self.held = self.running = ()

    # --- fence ---

    def block_earlier_queries(self) -> None:
        """Give the next query its number, and block workers of earlier queries."""
        self.query_number += 1
        self._ports.slots.block(self.query_number)

    def abort_open_transactions(self, open_slots: Sequence[int]) -> None:
        """Initialise the transactional ids of these slots.

        Kafka then aborts their open transactions and fences their producers.
        """
        if open_slots:
            job, execution_id = self._config.job, self._execution_id
            self._ports.fence.fence([slot_transactional_id(job, execution_id, slot) for slot in open_slots])
            self._ports.slots.renew(open_slots)

    def fence(self, open_slots: Sequence[int]) -> None:
        """Abort open transactions, then read the coordinator stream to its end.

        Kafka lets the latest initialiser of an id win. So each initialiser reads afterwards whether it may still work.
        """
        self.abort_open_transactions(open_slots)
        self.read_to_end()

    def shut_workers_out(self) -> bool:
        """Block all workers, and abort their open transactions.

        An open transaction hides all later records from the readers of the outputs, until the next start or the
        broker's time-out. If the broker does not answer, the transaction stays open. `runtime.container_process` limits
        the time that this takes.

        Returns:
            True if no transaction is open, and this execution was not declared lost.
        """
        slots = self._ports.slots
        try:
            # Fails if a killed worker stays, for instance because it waits for a disk that hangs.
            open_slots = slots.take_all(YIELD_MS)
            slots.block(self.query_number + 1)
            if not open_slots:
                return True
            self.fence(open_slots)
        except SamzapyError as error:
            _LOG.warning("a transaction may be open until the next start or its time-out: %s", error)
            return False
        return not self.orders.is_given_up
