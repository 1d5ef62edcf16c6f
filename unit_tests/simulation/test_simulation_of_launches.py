"""Histories of a job whose coordinator starts containers.

See `simulation.launched_world`.

`SAMZAPY_SIMULATIONS` counts here as in `test_simulation`: for each forty of those there is one of these, and ten at
least.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from samzapy.coordinator.state import committed, evolve
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.stream.records import ContainerPut, GenerationPut, GrantPut, PlacedPut, PlannedTaskPut
from samzapy.testing.builders import a_container, a_grant
from simulation.checks import BrokenLawError
from simulation.configurations import Kind
from simulation.containers import SimulatedContainer
from simulation.launched_world import LaunchedWorld
from simulation.simulate import simulate
from simulation.standstills import OF_LAUNCHES
from unit_tests.simulation.test_simulation import COUNT

pytestmark = pytest.mark.slow

EVENT_COUNT = 600
HISTORY_COUNT = max(10, COUNT // 40)
PARTS = 2
FULL = 24
"""Histories that are looked at together."""


@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_breaks_a_law_and_each_comes_to_rest(part: int) -> None:
    for seed in range(part, HISTORY_COUNT, PARTS):
        simulate(seed, EVENT_COUNT, kind=Kind.LAUNCHED)


@pytest.mark.parametrize("seed", [453])
def test_a_history_whose_clock_is_set_back_between_two_failures_comes_to_rest(seed: int) -> None:
    """The failures of a standby went on in a retry window that began in the future."""
    simulate(seed, EVENT_COUNT, kind=Kind.LAUNCHED)


def test_the_histories_have_many_starts_moves_and_failures_of_both() -> None:
    histories = [simulate(seed, EVENT_COUNT, kind=Kind.LAUNCHED) for seed in range(1000, 1000 + FULL)]

    faults = sum((history.faults for history in histories), Counter[str]())
    of_cluster = {fault for fault in faults if "start" in fault or "kill" in fault or "container" in fault}
    assert {"started twice", "start is lost", "start without an answer", "container hangs"} <= of_cluster
    assert len(of_cluster) >= 12, sorted(of_cluster)
    assert sum(history.launches for history in histories) / FULL >= 8
    assert sum(history.placements for history in histories) / FULL >= 1
    assert sum(history.terms for history in histories) / FULL >= 3
    assert any(history.runs > 1 for history in histories)
    causes = Counter(cause for history in histories for cause in history.causes)
    assert OF_LAUNCHES <= causes.keys(), causes


def test_the_same_seed_gives_the_same_history_in_every_process() -> None:
    options = ["--seed", "7", "--count", "2", "--kind", "launched", "--events", "300"]
    command = [sys.executable, "-m", "simulation.command", *options]

    outputs = [
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]

    assert outputs[0].stdout == outputs[1].stdout
    assert 2 == outputs[0].stdout.count("digest")


# --- laws that others hide: a break of them is seen at a grant already ---


def a_world(*phases: ContainerPhase) -> LaunchedWorld:
    """Executions `e0` and `e1` of processor 0 in these phases; both have their ids."""
    world = LaunchedWorld(1, None, Kind.LAUNCHED)
    for number, phase in enumerate(phases):
        record = ContainerPut(container=a_container(f"e{number}", phase=phase))
        world.checks.state = evolve(world.checks.state, committed([record], number))
    return world


def a_committer(world: LaunchedWorld, name: str, *grants: Grant) -> SimulatedContainer:
    container = world._run_container(name, "0", "host-a", is_launched=True)
    container._slot.take_over()
    container._driver.take_over()
    container.serving = grants
    return container


LIVING, LOST = ContainerPhase.RUNNING, ContainerPhase.LOST


def test_two_executions_that_can_commit_for_one_bucket_are_reported_at_once() -> None:
    world = a_world(LIVING, LOST)
    a_committer(world, "e0", a_grant(epoch=1, ssp_kb="kafka.orders.0:0/2"))
    second = a_committer(world, "e1", a_grant(epoch=2, ssp_kb="kafka.orders.0:1/2"))

    world._judge()
    second.serving = (a_grant(epoch=2, ssp_kb="kafka.orders.0:2/4"),)

    with pytest.raises(BrokenLawError, match=r"e0 .* and e1 .* can commit for bucket 2 of kafka.orders.0"):
        world._judge()


def test_two_processes_of_one_execution_cannot_both_commit() -> None:
    world = a_world(LIVING)
    grant = a_grant(epoch=1)
    first = a_committer(world, "e0", grant)
    second = a_committer(world, "e0", grant)

    world._judge()

    assert () == first.can_commit()
    assert (grant,) == second.can_commit()


@pytest.mark.parametrize("phase", [LIVING, LOST])
def test_two_executions_that_can_commit_for_one_processor_are_reported_unless_one_is_given_up(
    phase: ContainerPhase,
) -> None:
    world = a_world(LIVING, phase)
    first = a_grant("a", epoch=1)
    a_committer(world, "e0", first)
    a_committer(world, "e1", a_grant("b", epoch=2, ssp_kb="kafka.orders.1:0/1"))

    if phase is LOST:
        world._judge()
    else:
        with pytest.raises(BrokenLawError, match=r"e0 .* and e1 .* can commit for processor 0"):
            world._judge()


def test_a_container_with_revoked_grants_may_commit_beside_its_successor() -> None:
    world = a_world(LIVING, LIVING)
    old = a_grant("a", execution_id="e0", epoch=1)
    new = a_grant("b", execution_id="e1", epoch=2, ssp_kb="kafka.orders.1:0/1")
    a_committer(world, "e0", old)
    a_committer(world, "e1", new)
    plan = [
        PlannedTaskPut(
            generation=1,
            task_name=grant.task_name,
            partition_id=number,
            mode="active",
            processor_id=ProcessorId("0"),
            changelog_partition=number,
            ssp_kbs=tuple(start.ssp_kb for start in grant.starts),
        )
        for number, grant in enumerate((old, new))
    ]
    in_force = GenerationPut(generation=1, factor=1, task_count=2, scheme="max")
    moved = PlacedPut(processor_id=ProcessorId("0"), execution_id=ExecutionId("e1"), uuid="u")
    records = [*plan, in_force, moved, GrantPut(grant=old), GrantPut(grant=new)]
    world.checks.state = evolve(world.checks.state, committed(records, 10))

    world._judge()
