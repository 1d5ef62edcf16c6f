"""Restores the local state of all granted tasks at one start, task by task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from samzapy.config import JobConfig
from samzapy.container.driver_writes import DriverWrites
from samzapy.container.local_state.prefetch import ReadAhead
from samzapy.container.local_state.restore import (
    RestoreJob,
    catch_up_or_rebuild,
    local_position,
    plan_restore,
    sizes_in,
    unread,
)
from samzapy.container.local_state.restore_progress import RestoreProgress, Restoring
from samzapy.container.local_state.split_and_merge import Host, clear_out, inherit
from samzapy.container.ownership import Ownership
from samzapy.container.ports import ChangelogPlace, ContainerPorts
from samzapy.container.start_rules import copies_taken
from samzapy.container.stats import ContainerFigures
from samzapy.container.task.work_plan import Route
from samzapy.container.work_planner import WorkPlanner
from samzapy.errors import SamzapyError
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.start_step import transaction_step
from samzapy.model.task_stats import TaskStats
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic, checkpoint_topic
from samzapy.stream.codec import encode

_LOG = logging.getLogger(__name__)


class RestoreEndedError(SamzapyError):
    """This container is to stop, so the rest of the restore is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tasks:
    """The tasks of one start, with the start offsets and checkpoints of their buckets."""

    grants: Sequence[Grant]
    starts: Mapping[SspKeyBucket, int]
    committed: Mapping[SspKeyBucket, int]
    host: Host

    def starts_of(self, grant: Grant) -> Mapping[SspKeyBucket, int]:
        return {start.ssp_kb: self.starts[start.ssp_kb] for start in grant.starts}

    def committed_of(self, grant: Grant) -> Mapping[SspKeyBucket, int]:
        return {
            start.ssp_kb: self.committed[start.ssp_kb] for start in grant.starts if start.ssp_kb in self.committed
        }


class StateRestore:
    """Restores granted tasks: splits and merges local state, then reads changelogs."""

    def __init__(
        self,
        config: JobConfig,
        execution_id: ExecutionId,
        ports: ContainerPorts,
        planner: WorkPlanner,
        writes: DriverWrites,
        figures: ContainerFigures,
        ownership: Ownership,
    ) -> None:
        self._config = config
        self._execution_id = execution_id
        self._ports = ports
        self._planner = planner
        self._writes = writes
        self._figures = figures
        self._ownership = ownership

    def run(
        self,
        grants: Sequence[Grant],
        starts: Mapping[SspKeyBucket, int],
        committed: Mapping[SspKeyBucket, int],
        begin_step: Callable[[str], None],
    ) -> tuple[tuple[Route, ...], Mapping[TaskName, TaskStats]]:
        """Restore all tasks, and report the progress of a long restore.

        Args:
            begin_step: publishes that the restore waits for a transaction of another producer, if it does.

        Returns:
            The routes, and by task its restore time and its sizes. The time to split and merge is divided equally
            among the tasks.

        Raises:
            RestoreEndedError: this container is to stop.
            LostContainerError: it was declared lost meanwhile.
        """
        host = self._look_at_host(grants)
        step = _transaction_step(self._config.job, host)
        if step:
            _LOG.warning("%s", step)
            begin_step(step)
        begun_ns = self._ports.clock.monotonic_ns()
        inherit(grants, starts, host)
        inherited_ns = (self._ports.clock.monotonic_ns() - begun_ns) // max(1, len(grants))
        self._ports.crash_points.hit("after-inheritance")
        tasks = _Tasks(grants=grants, starts=starts, committed=committed, host=host)
        routes, restored = self._restore_tasks(tasks, inherited_ns)
        taken = copies_taken(grants, starts, committed, self._execution_id)
        self._writes.write(checkpoint_topic(self._config.job), 0, [encode(record) for record in taken])
        clear_out(grants, host)
        return routes, restored

    def _look_at_host(self, grants: Sequence[Grant]) -> Host:
        """Look up the changelogs, once for all tasks.

        Earlier owners of these tasks are fenced, so the changelogs do not grow.
        """
        topics, stores = self._ports.topics, [store.name for store in self._config.stores]
        topic_ids = topics.changelog_topic_ids(stores)
        partitions = sorted({grant.changelog_partition for grant in grants})
        bounds = topics.changelog_bounds([(store, partition) for store in stores for partition in partitions])
        return Host(
            config=self._config,
            tasks_here=self._ports.tasks_here(),
            state_of=self._ports.state_of,
            bounds=bounds,
            topic_ids=topic_ids,
            now_ms=self._ports.clock.wall_ms(),
        )

    def _restore_tasks(
        self, tasks: _Tasks, inherited_ns: int
    ) -> tuple[tuple[Route, ...], Mapping[TaskName, TaskStats]]:
        routes: list[Route] = []
        restored: dict[TaskName, TaskStats] = {}
        grants, clock = tasks.grants, self._ports.clock

        @cache
        def to_read(grant: Grant) -> Mapping[str, range]:
            return self._to_read(grant, tasks)

        def places(grant: Grant) -> Sequence[ChangelogPlace]:
            return [(store, grant.changelog_partition, offsets.start) for store, offsets in to_read(grant).items()]

        def on_read(read: int, of: int) -> None:
            if read < of:
                self._look_around()
                ahead.task_reads(len(restored))
            progress.task_reads(read, of)

        progress = RestoreProgress(
            len(grants),
            ahead_of=lambda first: [sum(map(len, to_read(grant).values())) for grant in grants[first:]],
            now_ms=clock.monotonic_ms,
            report=self._report,
        )
        ahead = ReadAhead(grants, places, self._ports.topics)
        try:
            for grant in grants:
                begun_ns = clock.monotonic_ns()
                directory, sizes = self._restore_task(grant, tasks, on_read)
                routes.extend(self._planner.routes_of(grant, tasks.starts, directory))
                took_ns = inherited_ns + clock.monotonic_ns() - begun_ns
                restored[grant.task_name] = replace(sizes, store_identify_ns=took_ns)
                progress.task_is_level()
            self._look_around()
        finally:
            ahead.end()
            self._figures.restoring = None
        return tuple(routes), restored

    def _look_around(self) -> None:
        """Raise if the rest of the restore would be in vain.

        What was applied so far stays with its older position, as if this process had died. A revoked grant is no
        reason: the restore of the others would begin anew, again and again while grants move.
        """
        self._ownership.look_around()
        if self._ownership.is_over:
            raise RestoreEndedError("wanted the state of all tasks, found that this container is to stop")

    def _restore_task(
        self, grant: Grant, tasks: _Tasks, on_read: Callable[[int, int], None]
    ) -> tuple[str, TaskStats]:
        """Restore one task. Returns its directory and its sizes."""
        environment = catch_up_or_rebuild(
            self._ports.state_of(grant.task_name),
            RestoreJob(
                topics=self._ports.topics,
                bounds=tasks.host.own_bounds(grant),
                topic_ids=tasks.host.topic_ids,
                grant=grant,
                starts=tasks.starts_of(grant),
                committed=tasks.committed_of(grant),
                config=self._config,
                now_ms=self._ports.clock.wall_ms(),
                write=lambda store, writes: self._writes.write(
                    changelog_topic(self._config.job, store), grant.changelog_partition, writes
                ),
                on_read=on_read,
            ),
        )
        stores = sizes_in(environment, [store.name for store in self._config.stores])
        sizes = TaskStats(disk_bytes=environment.bytes_on_disk(), stores=stores)
        environment.close()
        return environment.directory, sizes

    def _to_read(self, grant: Grant, tasks: _Tasks) -> Mapping[str, range]:
        """The changelog offsets to read, by store; complete stores are left out."""
        bounds = tasks.host.own_bounds(grant)
        plan = plan_restore(
            local_position(self._ports.state_of(grant.task_name)),
            grant=grant,
            starts=tasks.starts_of(grant),
            committed=tasks.committed_of(grant),
            changelogs=bounds,
            topic_ids=tasks.host.topic_ids,
            now_ms=tasks.host.now_ms,
            retention_ms=CHANGELOG_DELETE_RETENTION_MS,
        )
        return unread(plan, bounds)

    def _report(self, restoring: Restoring) -> None:
        _LOG.info("restoring local state: %s", restoring)
        self._figures.restoring = restoring
        self._ownership.publish()


def _transaction_step(job: str, host: Host) -> str:
    """The step of a restore that waits for an open transaction; empty without one.

    The slots of earlier owners are taken by now, so such a transaction is of another program.
    """
    opened = [(place, bounds.offset_open) for place, bounds in sorted(host.bounds.items(), key=lambda item: item[0])]
    known = [(place, offset) for place, offset in opened if offset is not None]
    if not known:
        return ""
    (store, partition), offset = known[0]
    return transaction_step(f"{changelog_topic(job, store)}-{partition}", offset, len(known) - 1)
