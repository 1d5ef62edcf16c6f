"""The start of a query, which is also the recovery, in eight steps.

docs/internals/architecture.md lists the steps in the same order. Nothing is repaired while a query runs: each failure
leads to a start with all eight steps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from samzapy.config import JobConfig
from samzapy.container.end_reports import EndReports
from samzapy.container.idle_progress import IdleProgress
from samzapy.container.missing_inputs import MissingInputs
from samzapy.container.ownership import YIELD_MS, Ownership
from samzapy.container.ports import ContainerPorts, TopicBounds
from samzapy.container.running_query import RunningQuery
from samzapy.container.start_rules import (
    Positions,
    check_bounds,
    check_config,
    committed_of,
    read_positions,
    stale_keys,
    starts_of,
    superseded_keys,
)
from samzapy.container.state_restore import RestoreEndedError, StateRestore
from samzapy.container.task.work_plan import Route
from samzapy.errors import DeadlineError, MissingTopicError, TemporaryError
from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.start_step import RESTORING_STEP
from samzapy.model.text import some
from samzapy.model.topics import checkpoint_topic

_LOG = logging.getLogger(__name__)
_BOUNDS_WAIT_MS = 30_000
_PAUSE_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """The inputs of a query that starts.

    Attributes:
        starts: the start offset of each granted bucket, also in inputs that are left out.
        to_read: the part of `starts` in inputs that exist.
    """

    starts: Mapping[SspKeyBucket, int]
    to_read: Mapping[SspKeyBucket, int]
    bounds: Mapping[SystemStreamPartition, TopicBounds]


class Startup:
    """Starts queries, one after the other.

    Attributes:
        step: the current step; empty between two starts.
    """

    def __init__(
        self,
        config: JobConfig,
        ports: ContainerPorts,
        ownership: Ownership,
        query: RunningQuery,
        idle: IdleProgress,
        missing: MissingInputs,
        restore: StateRestore,
        ends: EndReports,
    ) -> None:
        self._config = config
        self._ports = ports
        self._ownership = ownership
        self._query = query
        self._idle = idle
        self._missing = missing
        self._restore = restore
        self._ends = ends
        # The reason why the last start was deferred; it is logged once, although it may last long.
        self._deferred = ""
        self.step = ""

    def run(self, grants: Sequence[Grant]) -> bool:
        """Start a query for these grants.

        Returns:
            False if that is not possible yet; the caller tries again.
        """
        try:
            return self._start(grants)
        except RestoreEndedError as ended:
            _LOG.info("the start ends during the restore: %s", ended)
            self._begin_step("")
            return False
        except (TemporaryError, DeadlineError) as error:
            # A deadline means an open transaction of another producer here, and the broker ends it after a time.
            if str(error) != self._deferred:
                _LOG.warning("cannot start yet, will retry: %s", error)
            self._deferred = str(error)
        except MissingTopicError as error:
            self._missing.tolerate(error)
        # The step is not the cause if this process is killed while it waits.
        self._begin_step("")
        self._ports.pause(_PAUSE_MS)
        return False

    def _start(self, grants: Sequence[Grant]) -> bool:
        """Take the eight steps. False if the grants changed meanwhile."""
        check_config(self._config, self._ownership.orders.config)
        begun_ms = self._ports.clock.monotonic_ms()
        _LOG.info("granted: %s; starting", some([grant.task_name for grant in grants]))
        self._begin_step("shutting earlier workers out")
        open_slots = self._take_slots()  # 1
        self._block_earlier_workers()  # 2
        self._ownership.abort_open_transactions(open_slots)  # 3
        if not self._confirm(grants):  # 4
            self._begin_step("")
            return False
        # From here on they are held until they are released, whatever the stream contains.
        self._ownership.hold(tuple(grants))
        restart = self._ownership.orders.restart
        self._ports.crash_points.hit("after-fence")
        self._begin_step("reading positions")
        positions = self._read_positions()  # 5
        inputs = self._check_inputs(grants, positions)  # 6
        self._remove_old_positions(grants, positions)
        self._begin_step(RESTORING_STEP)
        committed = committed_of(grants, positions)
        routes, restored = self._restore.run(grants, inputs.starts, committed, self._begin_step)  # 7
        if self._ownership.own != tuple(grants):
            # It may have taken long. What it has done stays.
            self._begin_step("")
            return False
        routes = self._query.choose_routes(grants, routes, inputs.to_read, inputs.bounds)
        self._query.prepare(routes, inputs.to_read, restored)
        self._ports.crash_points.hit("after-restore")
        self._begin_step("starting the query")
        self._start_query(routes, inputs)  # 8
        self._query.started(self._ownership.query_number, restart)
        self._missing.all_answered()
        self.step = self._deferred = ""
        took_s = (self._query.times.begun_ms - begun_ms) / 1000
        _LOG.info("query %d starts after %.1f s", self._ownership.query_number, took_s)
        return True

    def _begin_step(self, step: str) -> None:
        """Publish a step, so that the coordinator knows in which step a process ended."""
        self.step = step
        self._ownership.publish()

    def _take_slots(self) -> Sequence[int]:
        """Step 1: take all slots. Returns those that may have a transaction open."""
        open_slots = self._ports.slots.take_all(YIELD_MS)
        self._query.failures.look_into_death(open_slots, self._query.routes)
        return open_slots

    def _block_earlier_workers(self) -> None:
        """Step 2: block the workers of earlier queries."""
        self._ownership.block_earlier_queries()
        self._idle.clear()

    def _confirm(self, grants: Sequence[Grant]) -> bool:
        """Step 4: read the stream to its end, after the ids are initialised.

        Returns:
            True if the grants did not change.
        """
        self._ownership.read_to_end()
        self._ownership.look_around()
        return self._ownership.own == tuple(grants)

    def _read_positions(self) -> Positions:
        """Step 5: read the checkpoint topic; `start.starts_of` applies the start rule."""
        records = self._ports.topics.checkpoint_records()
        self._ends.note(records)
        return read_positions(records, topic=checkpoint_topic(self._config.job))

    def _check_inputs(self, grants: Sequence[Grant], positions: Positions) -> _Inputs:
        """Step 6: leave out missing inputs, and refuse starts outside an input's bounds."""
        starts = starts_of(grants, positions)
        if self._missing.leave_out():
            # The query failed because of the missing input, or would have.
            self._query.failures.reset()
        self._query.failures.check_commits(starts)
        to_read = self._missing.without_left_out(starts)
        if not to_read:
            raise TemporaryError(f"no input is left to read: {self._missing.text()}")
        floors = [
            floor for grant in grants for start in grant.starts if start.ssp_kb in to_read for floor in start.floors
        ]
        bounds = self._missing.bounds(sorted({ssp_kb.ssp for ssp_kb in to_read}), _BOUNDS_WAIT_MS)
        check_bounds(to_read, bounds, floors)
        return _Inputs(starts=starts, to_read=to_read, bounds=bounds)

    def _remove_old_positions(self, grants: Sequence[Grant], positions: Positions) -> None:
        """Remove stale positions now, and superseded ones once the query runs."""
        epochs = {grant.epoch for grant in self._ownership.orders.grants.values()}
        self._idle.remove_now(stale_keys(grants, positions))
        self._idle.remove_later(superseded_keys(grants, positions, epochs))

    def _start_query(self, routes: Sequence[Route], inputs: _Inputs) -> None:
        """Step 8: admit the workers of this query, and start it."""
        plan = self._query.work_plan(routes, inputs.to_read)
        starts = {route.ssp_kb: inputs.to_read[route.ssp_kb] for route in routes}
        self._ports.slots.admit(self._ownership.query_number)
        self._ports.query.start(plan, starts)
