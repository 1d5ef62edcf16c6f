"""The work plan for the workers of a query, and its routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from samzapy.config import JobConfig
from samzapy.container.batch_limit import BatchBound
from samzapy.container.input_order import batch_order
from samzapy.container.ownership import Ownership
from samzapy.container.ports import ContainerIdentity, TopicBounds
from samzapy.container.task.work_plan import Route, TailPlan, WorkPlan
from samzapy.container.worker_deaths import WorkerDeaths
from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition


class WorkPlanner:
    """Turns grants into routes, and routes into a work plan."""

    def __init__(self, config: JobConfig, identity: ContainerIdentity, ownership: Ownership) -> None:
        self._config = config
        self._identity = identity
        self._ownership = ownership
        self._batch_order = batch_order(config)

    def work_plan(
        self,
        routes: Sequence[Route],
        starts: Mapping[SspKeyBucket, int] | None,
        bound: BatchBound,
        deaths: WorkerDeaths,
    ) -> WorkPlan:
        """The plan of a query that starts now."""
        orders = self._ownership.orders
        return WorkPlan(
            config=self._config,
            execution_id=self._identity.execution_id,
            query_number=self._ownership.query_number,
            routes=tuple(routes),
            job_file=self._identity.job_file,
            scratch_dir=self._identity.scratch_dir,
            slot_count=self._identity.slot_count,
            stream_offset=orders.offset_next,
            stream_numbering=orders.numbering,
            batch_offsets_max=bound.offsets,
            tail=self._tail(routes, starts),
            refusals=deaths.refusals,
            notes_until_s=deaths.notes_until_ms / 1000,
            processor_id=orders.processor_id or "",
            generation=orders.generation or 0,
        )

    def _tail(self, routes: Sequence[Route], starts: Mapping[SspKeyBucket, int] | None) -> TailPlan | None:
        """None without tails.

        A tail is for inputs that go on, so none may have an end. A minimum interval of micro-batches asks for few
        transactions, and a tail would make many.
        """
        config = self._config
        if starts is None or not config.tail_ms or config.batch_interval_ms:
            return None
        if any(route.offset_end is not None for route in routes):
            return None
        return TailPlan(
            starts=tuple(starts[route.ssp_kb] for route in routes),
            duration_ms=config.tail_ms,
            lag_max=config.tail_lag_max,
        )

    def routes_of(self, grant: Grant, starts: Mapping[SspKeyBucket, int], directory: str) -> Sequence[Route]:
        """One route per bucket of a task, in the order in which the task handles rows."""
        return [
            Route(
                ssp_kb=start.ssp_kb,
                task_name=grant.task_name,
                partition_id=grant.partition_id,
                epoch=grant.epoch,
                changelog_partition=grant.changelog_partition,
                environment_dir=directory,
                offset_end=self._end_of(start.ssp_kb.ssp),
                floors=tuple(floor for floor in start.floors if floor.offset_next > starts[start.ssp_kb]),
            )
            for start in sorted(grant.starts, key=self._batch_order)
        ]

    def readable(self, ssp: SystemStreamPartition, bounds: TopicBounds) -> TopicBounds:
        """The bounds that this run reads; records past a bounded end are no lag."""
        end = self._end_of(ssp)
        return bounds if end is None else replace(bounds, offset_end=min(end, bounds.offset_end))

    def _end_of(self, ssp: SystemStreamPartition) -> int | None:
        """The offset before which this run stops reading; None for an unbounded input."""
        is_bounded = self._config.is_bounded(str(ssp.system_stream))
        return self._ownership.orders.input_ends.get(ssp) if is_bounded else None
