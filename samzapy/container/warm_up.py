"""Standby state and the warm-up of the query, while no query runs here.

The first query of a process takes several seconds longer on a small machine. A container that waits for its grants runs
a query without records first, so that no key has to wait for this.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from samzapy.config import JobConfig
from samzapy.container.local_state.standby import StandbyState, WarmPorts
from samzapy.container.orders import Orders, WarmTasks
from samzapy.container.ownership import Ownership
from samzapy.container.ports import ContainerPorts
from samzapy.container.running_query import RunningQuery
from samzapy.container.state_cleanup import StateCleanup
from samzapy.container.work_planner import WorkPlanner
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.topics import coordinator_topic

_LOG = logging.getLogger(__name__)
_WARM_UP_MAX_MS = 60_000
# The least debounce for a warm-up while a container joins; with less, the warm-up would delay the start.
_WARM_UP_DEBOUNCE_MS = 10_000


class QueryWarmUp:
    """Runs one query that processes no message.

    Attributes:
        is_done: no warm-up is needed any more.
    """

    def __init__(
        self,
        config: JobConfig,
        ports: ContainerPorts,
        ownership: Ownership,
        planner: WorkPlanner,
        query: RunningQuery,
    ) -> None:
        self._config = config
        self._ports = ports
        self._ownership = ownership
        self._planner = planner
        self._query = query
        self._begun_at_ms: int | None = None
        self.is_done = False

    def run(self, grants: Sequence[Grant]) -> None:
        """Begin the warm-up, or stop it when it is over or takes too long."""
        ports, now_ms = self._ports, self._ports.clock.monotonic_ms()
        if self._begun_at_ms is None:
            self._begun_at_ms = now_ms
            topic = coordinator_topic(self._config.job)
            ssp = SystemStreamPartition(self._config.default_system, topic, 0)
            starts = {start.ssp_kb: start.offset_next for grant in grants for start in grant.starts}
            routes = [route for grant in grants for route in self._planner.routes_of(grant, starts, "")]
            plan = self._query.work_plan(routes)
            ports.query.start_warm_up(plan, ssp, max(0, self._ownership.orders.offset_next - 1))
        elif not ports.query.is_warming_up() or now_ms - self._begun_at_ms >= _WARM_UP_MAX_MS:
            ports.query.stop()
            self.is_done = True
            _LOG.info("query warm-up took %.1f s", (now_ms - self._begun_at_ms) / 1000)


class Standby:
    """Keeps a processor's state up to date while another execution runs its tasks."""

    def __init__(
        self,
        config: JobConfig,
        execution_id: ExecutionId,
        ports: ContainerPorts,
        ownership: Ownership,
        query: QueryWarmUp,
        cleanup: StateCleanup,
    ) -> None:
        self._ownership = ownership
        self._query = query
        self._cleanup = cleanup
        self._has_time_to_join = config.debounce_ms >= _WARM_UP_DEBOUNCE_MS
        self._state = StandbyState(
            config,
            execution_id,
            WarmPorts(
                clock=ports.clock,
                topics=ports.topics,
                changelog_follower=ports.changelog_follower,
                state_of=ports.state_of,
                tasks_here=ports.tasks_here,
            ),
        )
        self._reported: StandbyProgress | None = None
        # The next fields are computed from these orders: they change rarely, and a job may have thousands of tasks.
        self._orders: Orders | None = None
        self._tasks: WarmTasks | None = None
        self._run_by_others: tuple[Grant, ...] = ()

    def run(self) -> bool:
        """Do a part of the work while no query runs here.

        A container with grants is about to start, and a start needs the state directories for itself.

        Returns:
            True if there may be more work to do now.
        """
        self._follow_orders()
        is_idle = not (self._ownership.own or self._ownership.running)
        if self._tasks is None or not is_idle:
            self._state.close()
            if is_idle:
                self._warm_up_to_join()
            return False
        is_busy = self._state.look(self._tasks)
        progress = self._state.progress(self._tasks)
        is_caught_up = progress.level >= progress.tasks
        if is_caught_up and not self._query.is_done and self._tasks.grants:
            # Only now, because the warm-up would slow the restore down.
            self._query.run(self._tasks.grants)
        elif is_caught_up:
            # This container has read its own registration, so it has read all plans before that.
            self._cleanup.run()
        if self._with_query(progress) != self._reported:
            self._ownership.publish()
        return is_busy

    def report(self) -> StandbyProgress | None:
        """The standby progress for the next heartbeat.

        Returns:
            None if this container is neither a standby nor a reserve, or if it has grants.
        """
        self._follow_orders()
        tasks = self._tasks
        if tasks is None or self._ownership.own:
            self._reported = None
        else:
            self._reported = self._with_query(self._state.progress(tasks))
        return self._reported

    def end(self) -> None:
        """Close the standby state, because this container stops."""
        self._follow_orders()
        self._state.end()
        self._tasks = None

    def _follow_orders(self) -> None:
        orders = self._ownership.orders
        if orders is self._orders:
            return
        self._orders = orders
        self._tasks = orders.to_keep_warm()
        self._run_by_others = () if self._query.is_done else orders.run_by_others()

    def _warm_up_to_join(self) -> None:
        """Warm up the query while a container that joined waits for its plan."""
        if self._run_by_others and self._has_time_to_join and not self._query.is_done:
            self._query.run(self._run_by_others)

    def _with_query(self, progress: StandbyProgress) -> StandbyProgress:
        return replace(progress, is_query_warm=self._query.is_done)
