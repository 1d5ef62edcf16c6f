"""Standby state, and the warm-up of a query."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samzapy.container.local_state.cleanup import UNUSED_MS
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import LaunchRole
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.topics import changelog_topic, coordinator_topic
from samzapy.stream.changelog import changelog_key
from samzapy.stream.records import (
    ContainerPut,
    GrantPut,
    LaunchPut,
    PlacedPut,
)
from samzapy.testing.builders import a_container, a_launch
from samzapy.testing.memory.local_state import MemoryStateDirectory
from unit_tests.fixtures.container_worlds import plan_in_force
from unit_tests.fixtures.running_container import (
    ORDERS_0,
    ORDERS_1,
    AContainer,
    a_task,
    at_pauses,
)


def a_standby(role: LaunchRole = LaunchRole.STANDBY) -> AContainer:
    """Execution e1 of processor 0, whose tasks r1 runs on another host.

    The changelog has one entry.
    """
    container = AContainer(grants=())
    container.stream.records += [
        LaunchPut(launch=a_launch("e1", role=role)),
        *plan_in_force(1, a="0", b="0"),
        ContainerPut(container=a_container("r1", host="host-b")),
        *(GrantPut(grant=a_task(name, execution_id="r1")) for name in "ab"),
        ContainerPut(container=a_container("e1", phase=ContainerPhase.STARTED)),
    ]
    container.kafka.write(changelog_topic(container.config.job, "sums"), 0, [(changelog_key(b"k", b""), b"1")])
    return container


def test_a_standby_keeps_the_state_at_hand_and_touches_nothing_else() -> None:
    container = a_standby()
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    assert [] == container.query.started
    assert StandbyProgress(tasks=2, level=2, restored=2, total=2) == container.heartbeats.contents[-2].warm
    assert not [effect for effect in container.trace if effect.startswith(("fence", "own", "remove", "progress"))]
    position = container.disks["a"].contents.position
    assert position is not None
    assert ("", True, {"sums": 1}) == (
        position.execution_id,
        container.disks["a"].contents.is_synced,
        position.changelog_next,
    )


def test_a_standby_removes_unused_state_once_it_is_ready() -> None:
    container = a_standby()
    container.query.warm_up_looks = 3
    old_ms = container.clock.wall_ms() - UNUSED_MS - 1
    for name in ("c", "b"):
        container.disks[name] = MemoryStateDirectory(name)
        container.disks[name].fresh().close()
        container.disks[name].written_at_ms = old_ms
    looks: list[tuple[bool, bool]] = []

    def look() -> None:
        warm = container.heartbeats.contents[-1].warm
        looks.append((warm is not None and warm.level == 2 and warm.is_query_warm, container.disks["c"].number == 0))
        container.stop.asked = len(looks) == 40

    container.while_pausing = look
    container.run()

    assert (False, False) == looks[0]
    assert (True, True) == looks[-1]
    assert (False, True) not in looks
    assert container.disks["b"].number > 0, "one of its own tasks"


def test_a_standby_warms_its_query_up_when_it_has_caught_up_and_reports_the_end_of_that() -> None:
    container = a_standby()
    container.query.warm_up_looks = 3
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    # No route of it can be taken: it reads no input.
    ((plan, ssp, offset),) = container.query.warmed_up
    assert ({"a", "b"}, {""}) == (
        {route.task_name for route in plan.routes},
        {route.environment_dir for route in plan.routes},
    )
    assert (coordinator_topic(container.config.job), 0) == (ssp.stream, ssp.partition)
    assert 0 <= offset < container.stream.offset_next()
    assert plan.tail is None
    reported = [content.warm for content in container.heartbeats.contents if content.warm is not None]
    states = [(warm.level, warm.is_query_warm) for warm in reported]
    assert (2, False) in states
    assert (2, True) == states[-1]
    assert states == sorted(states)
    assert [] == container.query.started


def test_a_warm_up_that_does_not_end_does_not_keep_a_standby_from_being_ready() -> None:
    container = a_standby()
    container.query.warm_up_looks = 1_000_000
    begun_ms = container.clock.monotonic_ms()
    ready_ms: list[int] = []

    def look() -> None:
        warm = container.heartbeats.contents[-1].warm
        if warm is not None and warm.is_query_warm:
            ready_ms.append(container.clock.monotonic_ms() - begun_ms)
            container.stop.asked = True

    container.while_pausing = look
    container.run()

    assert 60_000 <= ready_ms[0] < 70_000
    assert "stop query" in container.trace


def test_a_standby_that_is_granted_tasks_during_its_warm_up_starts_at_once() -> None:
    container = a_standby()
    container.query.warm_up_looks = 1_000_000

    def promote() -> None:
        assert container.query.warmed_up
        container.stream.records += [
            PlacedPut(processor_id=ProcessorId("0"), execution_id=ExecutionId("e1"), uuid="u"),
            *(GrantPut(grant=a_task(name, epoch=2, offset_next=5)) for name in "ab"),
        ]

    at_pauses(container, p40=promote)
    container.run()

    assert 1 == len(container.query.started)
    # A container that runs has tried it out.
    assert container.heartbeats.contents[-1].warm is None


def a_joining_container(*, debounce_ms: str = "20000") -> AContainer:
    """Execution e1 of processor 1, new in a job whose tasks r1 of processor 0 runs."""
    container = AContainer(grants=(), job_debounce_time_ms=debounce_ms)
    container.stream.records += [
        *plan_in_force(1, a="0", b="0"),
        ContainerPut(container=a_container("r1", host="host-b")),
        *(GrantPut(grant=a_task(name, execution_id="r1")) for name in "ab"),
        ContainerPut(container=a_container("e1", processor_id="1", phase=ContainerPhase.STARTED)),
    ]
    container.query.warm_up_looks = 3
    return container


def test_a_container_that_joins_warms_its_query_up_while_it_waits_for_a_plan() -> None:
    container = a_joining_container()
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    ((plan, _, _),) = container.query.warmed_up
    assert ({"a", "b"}, {""}) == (
        {route.task_name for route in plan.routes},
        {route.environment_dir for route in plan.routes},
    )
    assert not [effect for effect in container.trace if effect.startswith(("fence", "own", "remove", "progress"))]


@pytest.mark.parametrize(
    "why",
    ["debounce", "lost", "released", "its own", "not registered", "launched"],
)
def test_a_container_that_may_get_tasks_at_any_moment_does_no_warm_up(why: str) -> None:
    container = a_joining_container(debounce_ms="9999" if why == "debounce" else "20000")
    if why == "lost":
        container.stream.records.append(ContainerPut(container=a_container("r1", phase=ContainerPhase.LOST)))
    if why == "released":
        container.stream.records.append(GrantPut(grant=replace(a_task("b", execution_id="r1"), released=True)))
    if why == "its own":
        container.stream.records += plan_in_force(2, a="0", b="1")
    if why == "launched":
        container.stream.records.append(LaunchPut(launch=a_launch("e1", role=LaunchRole.ACTIVE)))
    if why == "not registered":
        del container.stream.records[-1]
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    assert [] == container.query.warmed_up


def test_a_joining_container_that_is_granted_tasks_during_its_warm_up_starts_at_once() -> None:
    container = a_joining_container()
    container.query.warm_up_looks = 1_000_000

    def granted() -> None:
        assert container.query.warmed_up
        container.stream.records += [
            *plan_in_force(2, a="0", b="1"),
            GrantPut(grant=a_task("b", epoch=2, offset_next=5)),
        ]

    at_pauses(container, p40=granted)
    container.run()

    ((plan, _),) = container.query.started
    assert ["b"] == [route.task_name for route in plan.routes]


def test_a_promoted_standby_starts_with_its_warm_state() -> None:
    container = a_standby()

    def promote() -> None:
        # The outputs of its runner until it released its tasks.
        container.kafka.write(changelog_topic(container.config.job, "sums"), 0, [(changelog_key(b"l", b""), b"2")])
        container.stream.records += [
            PlacedPut(processor_id=ProcessorId("0"), execution_id=ExecutionId("e1"), uuid="u"),
            *(GrantPut(grant=a_task(name, epoch=2, offset_next=5)) for name in "ab"),
        ]

    at_pauses(container, p40=promote)
    container.run()

    ((plan, starts),) = container.query.started
    assert {"a", "b"} == {route.task_name for route in plan.routes}
    assert {ORDERS_0: 5, ORDERS_1: 5} == starts
    # No rebuild: each task reads from the last entry of its own on.
    assert [("sums", 0, 0)] * 2 == container.topics.changelog_reads
    assert 2 == len(container.disks["a"].contents.entries)
    assert container.heartbeats.contents[-1].warm is None


def test_a_release_by_the_runner_does_not_restart_the_standby() -> None:
    """It comes at the moment at which the tasks do not run."""
    container = a_standby()

    def release_grants() -> None:
        released = (replace(a_task(name, execution_id="r1"), released=True) for name in "ab")
        container.stream.records += [GrantPut(grant=grant) for grant in released]

    at_pauses(container, p40=release_grants, p80=container.ask_to_stop)
    container.run()

    assert [{("sums", 0): 0}, {}] == container.changelog_follower.assigned
    warm = [content.warm for content in container.heartbeats.contents if content.warm is not None]
    assert 2 == warm[-1].level


def test_where_the_runner_is_on_the_same_host_a_reserve_touches_nothing() -> None:
    container = a_standby(LaunchRole.RESERVE)
    container.stream.records.append(ContainerPut(container=a_container("r1", host="host-a")))
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    assert StandbyProgress(tasks=2, level=2, at_hand=2) == container.heartbeats.contents[-2].warm
    assert [] == [name for name, disk in container.disks.items() if disk.number]


def test_an_active_container_that_waits_for_its_grants_keeps_nothing_warm() -> None:
    container = a_standby(LaunchRole.ACTIVE)
    at_pauses(container, p40=container.ask_to_stop)

    container.run()

    assert container.heartbeats.contents[-2].warm is None
    assert [] == container.changelog_follower.assigned


def test_a_standby_follows_a_plan_that_gives_its_processor_other_tasks() -> None:
    container = a_standby()

    def plan() -> None:
        container.stream.records += plan_in_force(2, a="0", b="1")

    at_pauses(container, p40=plan, p80=container.ask_to_stop)
    container.run()

    warm = [content.warm for content in container.heartbeats.contents if content.warm is not None]
    assert StandbyProgress(tasks=1, level=1, restored=1, total=1) == warm[-1]
