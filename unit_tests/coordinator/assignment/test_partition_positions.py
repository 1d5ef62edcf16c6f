"""The position of a job in a partition: never ahead of one of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samzapy.coordinator.assignment.partition_positions import partition_positions
from samzapy.coordinator.commands import Figures
from samzapy.coordinator.grant_values import Position
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, an_ssp_kb
from unit_tests.fixtures.coordinator_world import World


def reported(**positions: int) -> Figures:
    return Figures(
        positions={an_ssp_kb(f"kafka.orders.{name}"): Position(offset, 100) for name, offset in positions.items()}
    )


def shown(*heartbeats: Any, **properties: str) -> Mapping[str, int]:
    """The positions of a job of two partitions after these heartbeats."""
    world = World()
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=a_config(**properties), partition_counts={"kafka.orders": 2}))
    for heartbeat in heartbeats:
        world.queue.append(heartbeat)
        service.run_once(0)
    snapshot = service.status()
    return {str(ssp): offset for ssp, offset in partition_positions(snapshot.state, snapshot.liveness).items()}


def held(**properties: str) -> list[tuple[str, int]]:
    """The grants of a job of two partitions."""
    world = World()
    service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=a_config(**properties), partition_counts={"kafka.orders": 2}))
    world.queue.append(a_heartbeat())
    service.run_once(0)
    return [(grant.task_name, grant.epoch) for grant in service.status().state.grants.values()]


def test_the_position_of_a_partition_is_that_of_its_task() -> None:
    figures = reported(**{"0:0/1": 90, "1:0/1": 7})

    assert {"kafka.orders.0": 90, "kafka.orders.1": 7} == shown(
        a_heartbeat(), a_heartbeat(held=held(), figures=figures)
    )


def test_the_least_position_of_its_key_buckets_counts() -> None:
    figures = reported(**{"0:0/2": 90, "0:1/2": 40, "1:0/2": 5, "1:1/2": 6})
    factor = {"job_elasticity_factor": "2"}

    assert {"kafka.orders.0": 40, "kafka.orders.1": 5} == shown(
        a_heartbeat(), a_heartbeat(held=held(**factor), figures=figures), **factor
    )


def test_a_partition_is_left_out_while_one_of_its_key_buckets_is_not_known() -> None:
    """In whatever order its tasks are in the plan."""
    factor = {"job_elasticity_factor": "2"}
    figures = reported(**{"0:0/2": 90, "1:1/2": 6})

    assert {} == shown(a_heartbeat(), a_heartbeat(held=held(**factor), figures=figures), **factor)


def test_the_least_position_of_all_tasks_counts_in_a_broadcast_input() -> None:
    world = World()
    service = world.coordinator()
    service.become_leader()
    config = a_config(task_broadcast_inputs="kafka.rules")
    service.submit(a_submission(config=config, partition_counts={"kafka.orders": 2, "kafka.rules": 1}))
    world.queue.append(a_heartbeat())
    service.run_once(0)
    grants = list(service.status().state.grants.values())
    broadcast = [start.ssp_kb for grant in grants for start in grant.starts if start.ssp_kb.reader]
    assert 2 == len(broadcast)
    positions = {ssp_kb: Position(50 + number, 100) for number, ssp_kb in enumerate(broadcast)}
    world.queue.append(
        a_heartbeat(held=[(grant.task_name, grant.epoch) for grant in grants], figures=Figures(positions=positions))
    )
    service.run_once(0)
    snapshot = service.status()

    positions_shown = partition_positions(snapshot.state, snapshot.liveness)

    assert {broadcast[0].ssp: 50} == positions_shown


def test_positions_of_an_execution_that_has_not_read_its_grants_do_not_count() -> None:
    """They are those under an older grant, which a rewind may have taken away."""
    figures = reported(**{"0:0/1": 90, "1:0/1": 7})
    first, second = held()
    older = (second[0], second[1] - 1)

    assert {} == shown(a_heartbeat(), a_heartbeat(held=[], figures=figures))
    assert {"kafka.orders.0": 90} == shown(a_heartbeat(), a_heartbeat(held=[first, older], figures=figures))


def test_a_job_without_containers_has_no_positions() -> None:
    assert {} == shown()
