"""The execution that runs a processor's tasks.

A standby or a reserve runs them only when the tasks are placed there.
"""

from __future__ import annotations

import pytest

from samzapy.container.orders import Orders, follow
from samzapy.coordinator.assignment.grants import executions_to_grant, release, revoked_grants, wanted_grants
from samzapy.coordinator.assignment.liveness import may_register, may_work
from samzapy.coordinator.launching.standbys import role_of, standby_called
from samzapy.coordinator.lifecycle.absence import living_processors
from samzapy.coordinator.state import (
    INITIAL,
    CoordinatorState,
    committed,
    evolve,
    locality_of,
    records_of,
    tombstone,
    works_for,
)
from samzapy.model.container import ContainerPhase, ProcessorLocality
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import LaunchPhase, LaunchRole
from samzapy.stream.records import (
    ContainerCountPut,
    ContainerPut,
    CoordinatorRecord,
    GenerationPut,
    GrantPut,
    JobIdentityPut,
    LaunchPut,
    LocalityPut,
    PlacedPut,
    PlannedTaskPut,
    StandbyPut,
    SuspendedPut,
)
from samzapy.testing.builders import a_container, a_grant, a_heartbeat, a_launch, an_ssp_kb

ZERO = ProcessorId("0")
TASK = "SystemStreamPartition_kafka.orders.0"
PLAN = (
    PlannedTaskPut(
        generation=1,
        task_name=TASK,
        processor_id=ZERO,
        partition_id=0,
        changelog_partition=0,
        mode="Active",
        ssp_kbs=(an_ssp_kb(),),
    ),
    GenerationPut(generation=1, task_count=1, factor=1, scheme="max", processor_ids=(ZERO,)),
)


def a_state(*records: CoordinatorRecord) -> CoordinatorState:
    return evolve(INITIAL, committed(records, 0))


def two_executions(role: LaunchRole, phase: LaunchPhase = LaunchPhase.LAUNCHED) -> CoordinatorState:
    """`e1` of processor 0 is its active one on host-a, `e2` another one on host-b."""
    return a_state(
        *PLAN,
        LaunchPut(launch=a_launch("e1", phase=phase)),
        LaunchPut(launch=a_launch("e2", role=role)),
        ContainerPut(container=a_container("e1", host="host-a")),
        ContainerPut(container=a_container("e2", host="host-b")),
    )


def placed_on(execution_id: str) -> PlacedPut:
    return PlacedPut(processor_id=ZERO, execution_id=ExecutionId(execution_id), uuid="u")


@pytest.mark.parametrize("role", [LaunchRole.STANDBY, LaunchRole.RESERVE])
def test_tasks_are_granted_to_the_active_execution_and_not_to_a_standby_or_reserve(role: LaunchRole) -> None:
    state = two_executions(role)

    assert {ZERO: "e1"} == executions_to_grant(state)
    assert works_for(state.containers[ExecutionId("e1")], ZERO, state)
    assert not works_for(state.containers[ExecutionId("e2")], ZERO, state)
    assert locality_of(state).processors == {ZERO: "host-a"}


def test_a_standby_alone_has_no_tasks_and_makes_its_processor_no_member() -> None:
    state = a_state(
        *PLAN,
        LocalityPut(locality=ProcessorLocality(processor_id=ZERO, host="host-a")),
        LaunchPut(launch=a_launch("e2", role=LaunchRole.STANDBY)),
        ContainerPut(container=a_container("e2", host="host-b")),
    )

    assert {} == executions_to_grant(state)
    assert frozenset() == living_processors(state)
    assert () == wanted_grants(state)
    assert "host-a" == locality_of(state).processors[ZERO]


def test_a_standby_that_the_processor_is_placed_on_runs_its_tasks() -> None:
    grant = GrantPut(grant=a_grant(TASK, epoch=1, execution_id="e1"))
    before = evolve(two_executions(LaunchRole.STANDBY), committed([grant], 10))

    state = evolve(before, committed([placed_on("e2")], 11))

    assert () == revoked_grants(before)
    assert {ZERO: "e2"} == executions_to_grant(state)
    assert ["e1"] == [grant.execution_id for grant in revoked_grants(state)]
    assert {ZERO} == living_processors(state)
    heartbeat = a_heartbeat("e1", host="host-a", stream_offset=12)
    assert [True] == [put.grant.released for put in release(heartbeat, state) if isinstance(put, GrantPut)]
    assert () == release(a_heartbeat("e1", host="host-a", stream_offset=11), state)


def test_a_container_that_is_to_stop_keeps_its_tasks_and_gets_no_others() -> None:
    state = two_executions(LaunchRole.ACTIVE, LaunchPhase.STOPPING)
    with_grant = evolve(state, committed([GrantPut(grant=a_grant(TASK, epoch=1, execution_id="e1"))], 10))

    assert {ZERO: "e2"} == executions_to_grant(state)
    assert ["e2"] == [grant.execution_id for grant in wanted_grants(state)]
    assert () == revoked_grants(with_grant)
    assert () == wanted_grants(with_grant)


def test_an_execution_that_is_to_stop_gets_no_grant_although_its_processor_was_placed_there() -> None:
    state = evolve(two_executions(LaunchRole.ACTIVE, LaunchPhase.STOPPING), committed([placed_on("e1")], 10))

    assert () == wanted_grants(state)


def registered(*records: CoordinatorRecord, processor_id: str = "0") -> bool:
    state = a_state(JobIdentityPut(job_name="flights", job_id="1"), *records)
    return may_register(state, a_heartbeat("e1", processor_id=processor_id, stream_offset=0))


@pytest.mark.parametrize(
    ("phase", "may"),
    [
        (LaunchPhase.WANTED, True),
        (LaunchPhase.LAUNCHED, True),
        (LaunchPhase.STOPPING, False),
        (LaunchPhase.ENDED, False),
    ],
)
def test_where_the_coordinator_starts_containers_only_those_that_it_wants_may_register(
    phase: LaunchPhase, may: bool
) -> None:
    count = ContainerCountPut(count=1)

    assert may is registered(count, LaunchPut(launch=a_launch(phase=phase)))
    assert not registered(count, LaunchPut(launch=a_launch(phase=phase)), processor_id="1")
    assert not registered(count)
    assert registered()


@pytest.mark.parametrize(
    ("phase", "may"),
    [
        (LaunchPhase.WANTED, True),
        (LaunchPhase.LAUNCHED, True),
        (LaunchPhase.STOPPING, False),
        (LaunchPhase.ENDED, False),
    ],
)
def test_an_execution_may_work_from_its_launch_on_and_not_after_it_was_given_up(
    phase: LaunchPhase, may: bool
) -> None:
    launched, lost = LaunchPut(launch=a_launch("e1", phase=phase)), a_container("e1", phase=ContainerPhase.LOST)

    assert may is may_work(a_state(launched), ExecutionId("e1"))
    assert may_work(a_state(launched, ContainerPut(container=a_container("e1"))), ExecutionId("e1"))
    assert not may_work(a_state(launched, ContainerPut(container=lost)), ExecutionId("e1"))
    assert not may_work(a_state(), ExecutionId("e1"))


def test_a_standby_that_took_over_is_the_active_one_and_has_no_name_any_more() -> None:
    before = two_executions(LaunchRole.STANDBY)
    after = evolve(before, committed([placed_on("e2")], 10))

    assert [(LaunchRole.ACTIVE, None), (LaunchRole.STANDBY, "0-0")] == roles(before)
    assert [(LaunchRole.ACTIVE, None), (LaunchRole.ACTIVE, None)] == roles(after)


def roles(state: CoordinatorState) -> list[tuple[LaunchRole, str | None]]:
    executions = [ExecutionId("e1"), ExecutionId("e2")]
    return [(role_of(execution_id, state), standby_called(execution_id, state)) for execution_id in executions]


def orders(*records: CoordinatorRecord, execution_id: str = "e2") -> Orders:
    return follow(Orders(execution_id=ExecutionId(execution_id)), records, len(records))


def test_a_container_knows_its_role_as_the_coordinator_does() -> None:
    grant = GrantPut(grant=a_grant(TASK, epoch=1, execution_id="e2"))
    container = ContainerPut(container=a_container("e2"))
    standby = LaunchPut(launch=a_launch("e2", role=LaunchRole.STANDBY))

    def own(*records: CoordinatorRecord) -> list[str]:
        return [own_grant.task_name for own_grant in orders(*PLAN, container, grant, *records).own_grants()]

    assert [TASK] == own()
    assert [TASK] == own(LaunchPut(launch=a_launch("e2")))
    assert [] == own(standby)
    assert [TASK] == own(standby, placed_on("e2"))
    assert [] == own(LaunchPut(launch=a_launch("e2")), placed_on("e1"))
    assert [TASK] == own(LaunchPut(launch=a_launch("e1", role=LaunchRole.STANDBY)))


def test_the_stream_has_the_order_to_stop_a_container() -> None:
    stopping = LaunchPut(launch=a_launch("e2", phase=LaunchPhase.STOPPING))
    standby = LaunchPut(launch=a_launch("e2", role=LaunchRole.STANDBY))

    assert not orders(LaunchPut(launch=a_launch("e2"))).is_stopping
    assert orders(stopping).is_stopping
    assert orders(standby, tombstone(standby)).is_stopping
    assert not orders(tombstone(standby)).is_stopping
    assert not orders(LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING))).is_stopping


def test_launches_counts_and_standbys_are_among_the_records_of_a_state() -> None:
    records = (
        LaunchPut(launch=a_launch()),
        ContainerCountPut(count=3),
        StandbyPut(processor_id=ZERO, count=1, uuid="u"),
        SuspendedPut(processor_id=ZERO, execution_id=ExecutionId("e1"), exit_code=8, reason="lost"),
    )

    state = a_state(*records)

    assert set(records) == set(records_of(state))
    assert state == a_state(*records_of(state))
