"""The effect of a change before it is requested: scales and rewinds.

The commands and the page show the same. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.positions import KafkaPositions
from samzapy.adapters.kafka.state_size import changelog_sizes
from samzapy.config import JobConfig
from samzapy.coordinator.assignment.replanning import config_of, plan_of
from samzapy.coordinator.launching.launches import wanted_processors
from samzapy.coordinator.requests.rewind import Move, meant, moves
from samzapy.coordinator.state import CoordinatorState, evolve, job_model, locality_of, uncommitted
from samzapy.errors import RejectedError
from samzapy.model.container import Locality
from samzapy.model.job import JobModel
from samzapy.model.placement import Mark, Rewind, Scale
from samzapy.model.topics import changelog_topic
from samzapy.plan.groupers import Groupers
from samzapy.plan.plan_change import NOTHING_TO_RESTORE, PlanChange, plan_change
from samzapy.stream.records import ContainerCountPut, FactorPut


def change_with_sizes(
    before: JobModel | None,
    planned: JobModel,
    locality: Locality,
    config: JobConfig,
    connection: KafkaConnection | None,
) -> PlanChange:
    """The change from the plan `before` to `planned`.

    It has the sizes of the state to restore. The sizes are read for all tasks at once; without a `connection` they are
    unknown. A job without a plan has no state.
    """
    has_state = before is not None and config.stores
    change = plan_change(before, planned, locality, lambda _: None if has_state else NOTHING_TO_RESTORE)
    asked = {task.task_name for task in change.tasks if task.restore is None or task.copy_bytes is None}
    if connection is None or not asked:
        return change
    wanted = {task.changelog_partition for task in planned.tasks if task.name in asked}
    topics = [changelog_topic(config.job, store.name) for store in config.stores]
    sizes = changelog_sizes(connection, topics, wanted)
    return plan_change(before, planned, locality, lambda task: sizes[task.changelog_partition])


def scale_change(
    wanted: Scale, state: CoordinatorState, groupers: Groupers, connection: KafkaConnection | None
) -> PlanChange:
    """The plan with another factor or number of containers.

    Without a `connection` the sizes of state are unknown.

    Raises:
        RejectedError: there is no plan yet.
        ConfigError, DataError: the factor cannot be planned.
    """
    if state.generation is None:
        raise RejectedError("wanted a plan of the job, found none: no processor has joined yet")
    records = (
        [FactorPut(factor=wanted.factor)]
        if wanted.factor is not None
        else [ContainerCountPut(count=wanted.containers or 1)]
    )
    after = evolve(state, uncommitted(records))
    processor_ids = state.generation.processor_ids
    if wanted.containers is not None:
        processor_ids = wanted_processors(after) or processor_ids
    plan = plan_of(after, processor_ids, groupers)
    return change_with_sizes(job_model(state), plan, locality_of(state), config_of(state), connection)


def rewind_moves(wanted: Rewind, state: CoordinatorState, connection: KafkaConnection, job: str) -> Sequence[Move]:
    """The moves that a rewind would make now.

    Raises:
        RejectedError: a partition does not hold the offset.
        BrokerUnavailableError, DeadlineError: the positions are not known now.
    """
    positions = KafkaPositions(connection, job)
    concerned = meant(wanted, state.plan)
    ssps = sorted({ssp_kb.ssp for _, ssp_kb in concerned})
    offset_bounds = positions.offset_bounds(ssps, wanted.to.number if wanted.to.mark is Mark.TIME else None)
    # All positions of these tasks, because the start of a task is computed for all its positions at once.
    tasks = {task_name for task_name, _ in concerned}
    read = positions.read(
        sorted({ssp_kb.ssp for planned in state.plan if planned.task_name in tasks for ssp_kb in planned.positions})
    )
    try:
        return moves(wanted, state, read, offset_bounds)
    except ValueError as error:
        raise RejectedError(f"{error}; nothing was written") from error
