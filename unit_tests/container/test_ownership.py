"""Grants that are held, released, and fenced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from samzapy.container.orders import Orders
from samzapy.container.ports import TopicBounds
from samzapy.errors import (
    BrokerUnavailableError,
    LostContainerError,
)
from samzapy.model.container import ContainerPhase
from samzapy.stream.records import (
    ContainerPut,
    GrantPut,
)
from samzapy.testing.builders import a_container, an_ssp
from unit_tests.fixtures.container_worlds import plan_in_force
from unit_tests.fixtures.running_container import (
    AContainer,
    a_batch,
    a_report,
    a_task,
)


def test_a_poll_without_new_records_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup is done many times a second, in a list as long as the job is large."""
    folded: list[int] = []
    own_grants = Orders.own_grants
    monkeypatch.setattr(Orders, "own_grants", lambda self: folded.append(1) or own_grants(self))
    container = AContainer()

    container.run(*[None] * 50)

    assert 1 == len(folded)


def test_a_container_that_no_broker_answers_reports_it_in_heartbeats_until_one_answers() -> None:
    container = AContainer()

    def silent(ms: int) -> Callable[[], None]:
        def step() -> None:
            container.stream.silence_ms = ms

        return step

    container.run(silent(900), silent(12_000), silent(0))

    silences = [content.kafka_silent_ms for content in container.heartbeats.contents]
    assert [0, 12_000, 0] == [ms for ms, before in zip(silences, [None, *silences], strict=False) if ms != before]


def test_an_execution_that_was_given_up_notices_it_after_its_ids_are_initialised() -> None:
    container = AContainer()
    container.slots.open_slots = {0}
    lost = ContainerPut(container=a_container("e1", phase=ContainerPhase.FENCED, reason="no heartbeat for 15 s"))
    fence = container.fence.fence

    def fence_and_be_lost(transactional_ids: Any) -> None:
        fence(transactional_ids)
        container.stream.records.append(lost)

    container.fence.fence = fence_and_be_lost  # type: ignore[method-assign]

    with pytest.raises(
        LostContainerError, match="was given up by the coordinator .no heartbeat for 15 s.; its tasks"
    ):
        container.run()

    assert ["to the end", "stop query", "kill holders"] == container.trace[-3:]


@pytest.mark.parametrize("reason", ["record", "heartbeat"])
def test_a_container_that_is_given_up_while_it_runs_kills_its_workers_and_ends(reason: str) -> None:
    container = AContainer()

    def give_up() -> None:
        if reason == "record":
            lost = a_container("e1", phase=ContainerPhase.LOST, reason="away")
            container.stream.records.append(ContainerPut(container=lost))
        else:
            container.heartbeats.reason = "away"

    with pytest.raises(LostContainerError, match="given up by the coordinator .away."):
        container.run(give_up)

    assert ["stop query", "kill holders"] == container.trace[-2:]
    assert [] == container.heartbeats.sent


def test_without_a_lease_no_query_runs_and_with_a_new_lease_it_starts_again() -> None:
    container = AContainer()

    def lose_the_lease() -> None:
        container.heartbeats.ran_out_at_ms = container.clock.monotonic_ms()

    def give_lease_back() -> None:
        if container.heartbeats.ran_out_at_ms is not None and len(container.pauses_ms) > 100:
            assert not container.query.runs
            container.heartbeats.ran_out_at_ms = None

    container.while_pausing = give_lease_back

    container.run(lose_the_lease)

    assert [1, 2] == [plan.query_number for plan, _ in container.query.started]
    assert ["input bounds", "drain", "take slots"] == container.trace.since("start query 1")[1:4]


def test_after_the_grace_without_a_coordinator_the_container_ends_by_name() -> None:
    container = AContainer(job_container_grace_ms="60000")
    container.heartbeats.ran_out_at_ms = container.clock.monotonic_ms()
    begun_at_ms = container.clock.monotonic_ms()

    with pytest.raises(LostContainerError, match=r"within job.container.grace.ms \(60000\) after the lease ran out"):
        container.run()

    assert 60_000 < container.clock.monotonic_ms() - begun_at_ms < 61_000
    assert [] == container.query.started


def handing_over(container: AContainer) -> None:
    """Processor 0 is ours; a new plan gives task b to processor 1."""
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))

    def plan_again() -> None:
        container.stream.records.extend(plan_in_force(2, a="0", b="1"))

    container.query.steps.extend([None, plan_again])


def listed(container: AContainer) -> list[tuple[int, list[str]]]:
    """The grants and the offset of each heartbeat; each once."""
    offsets_and_tasks = [
        (sent.stream_offset, [task for task, _ in sent.held]) for sent in container.heartbeats.contents
    ]
    return [now for before, now in zip([None, *offsets_and_tasks], offsets_and_tasks, strict=False) if now != before]


def test_revoked_tasks_are_released_after_the_drain_and_the_others_run_on() -> None:
    container = AContainer()
    container.heartbeats.publish = traced_in(container)  # type: ignore[method-assign]
    handing_over(container)

    container.run()

    assert [["a", "b"], ["a"]] == [[route.task_name for route in plan.routes] for plan, _ in container.query.started]
    trace = container.trace
    assert trace.index("drain") < trace.index("block 2") < trace.index("holds a")
    assert trace.index("holds a") < trace.index("start query 3")
    # It had read the plan before that, and still listed b.
    assert (3, ["a", "b"]) in listed(container)
    assert container.disks["b"].contents.is_synced


def traced_in(container: AContainer) -> Callable[[Any], None]:
    def publish(content: Any) -> None:
        container.heartbeats.contents.append(content)
        container.trace.append(f"holds {', '.join(task for task, _ in content.held)}")

    return publish


def test_an_open_transaction_of_a_cancelled_batch_is_aborted_before_the_release() -> None:
    container = AContainer()
    container.heartbeats.publish = traced_in(container)  # type: ignore[method-assign]
    container.query.drains_in_time = False
    handing_over(container)
    container.query.steps.insert(1, lambda: container.slots.open_slots.add(1))

    container.run()

    trace = container.trace
    fenced = next(index for index, effect in enumerate(trace) if effect.startswith("fence"))
    assert trace.index("drain") < fenced < trace.index("renew [1]") < trace.index("holds a")


def test_no_grant_is_released_while_a_transaction_cannot_be_aborted() -> None:
    container = AContainer()
    handing_over(container)
    container.query.steps.insert(1, lambda: container.slots.open_slots.add(1))
    held_at_each_try: list[list[str]] = []

    class Broker:
        def fence(self, ids: Any) -> None:
            held_at_each_try.append([task for task, _ in container.heartbeats.contents[-1].held])
            if len(held_at_each_try) < 3:
                raise BrokerUnavailableError("no broker answered")

    container.fence.fence = Broker().fence  # type: ignore[method-assign]

    container.run()

    assert [["a", "b"]] * 3 == held_at_each_try[:3]
    assert ["a"] == [route.task_name for route in container.query.started[-1][0].routes]


def test_a_container_without_grants_waits_and_starts_again_with_new_ones() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    container.query.steps.extend(
        [None, lambda: container.stream.records.extend(plan_in_force(2, a="1"))]  # type: ignore[list-item]
    )

    def plan_back() -> None:
        if not container.heartbeats.contents[-1].held and container.stream.records[-1] != returned[-1]:
            container.stream.records.extend(returned)

    returned = (*plan_in_force(3, a="0"), GrantPut(grant=a_task("a", epoch=5)))
    container.while_pausing = plan_back

    container.run()

    assert [[1], [5]] == [[route.epoch for route in plan.routes] for plan, _ in container.query.started]
    assert [] in [held for _, held in listed(container)]


def test_a_released_task_has_no_positions_in_heartbeats() -> None:
    container = AContainer()
    for partition in range(2):
        container.topics.inputs[an_ssp(f"kafka.orders.{partition}")] = TopicBounds(offset_first=0, offset_end=100)
    container.query.steps.extend([a_batch(orders_0=40, orders_1=50), *[None] * 6])
    handing_over(container)

    container.run()

    reported = [
        ([task for task, _ in sent.held], sent.figures["positions"].keys()) for sent in container.heartbeats.contents
    ]
    assert (["a", "b"], {"kafka.orders.0:0/1", "kafka.orders.1:0/1"}) in reported
    assert {frozenset({"kafka.orders.0:0/1"})} == {
        frozenset(positions) for held, positions in reported if held == ["a"] and positions
    }


def test_a_stopped_container_without_tasks_has_no_progress_to_write() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    # The first progress is written at once, the second one would be three seconds later.
    container.query.steps.extend(
        [
            a_batch(orders_0=40),
            None,
            a_batch(orders_0=50),
            lambda: container.stream.records.extend(plan_in_force(2, a="1")),  # type: ignore[list-item]
        ]
    )

    def stop_with_nothing() -> None:
        container.stop.asked |= not container.heartbeats.contents[-1].held

    container.while_pausing = stop_with_nothing

    container.run()

    assert [40] == [progress.offset_next for progress in container.progress.written]
    assert "STOPPED" == container.heartbeats.contents[-1].state


def test_a_batch_that_ends_during_the_drain_counts_before_its_tasks_are_released() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    container.query.steps.extend(
        [
            lambda: container.stream.records.extend(plan_in_force(2, a="1")),  # type: ignore[list-item]
            a_batch(a_report(offset_next=40), orders_0=50),
        ]
    )
    released_with: list[Any] = []

    def stop_with_nothing() -> None:
        if not container.heartbeats.contents[-1].held:
            released_with.append(container.heartbeats.contents[-1].figures)
            container.stop.asked = True

    container.while_pausing = stop_with_nothing

    container.run()

    # Not only when the container stops, by when the epoch of the read is no longer known.
    assert 1 == released_with[0]["commits"]
    assert ([], "STOPPED") == (container.progress.written, container.heartbeats.contents[-1].state)


def test_a_task_that_is_revoked_during_the_start_is_not_started() -> None:
    """The task is another execution's from the first heartbeat on that lacks it.

    The grant is read after the ids were initialised.
    """
    container = AContainer()
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    to_the_end = container.stream.to_the_end

    def meanwhile() -> Any:
        if not container.query.started and container.stream.records[-1] != plan_in_force(2, a="0", b="1")[-1]:
            container.stream.records.extend(plan_in_force(2, a="0", b="1"))
        return to_the_end()

    container.stream.to_the_end = meanwhile  # type: ignore[method-assign]

    container.run()

    assert [["a"]] == [[route.task_name for route in plan.routes] for plan, _ in container.query.started]


def test_a_plan_that_changes_only_others_stops_nothing() -> None:
    container = AContainer()
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))

    container.run(None, lambda: container.stream.records.extend(plan_in_force(2, a="0", b="0")), None)

    assert 1 == len(container.query.started)
    # At the end, when it is asked to stop.
    assert 1 == container.trace.count("drain")


def test_a_grant_is_listed_from_when_it_is_read_and_offset_and_list_are_of_one_moment() -> None:
    container = AContainer(grants=(a_task("a", epoch=4),))
    container.while_pausing = lambda: (
        container.stream.records.append(GrantPut(grant=a_task("b", epoch=5)))
        if len(container.pauses_ms) == 2
        else None
    )

    container.run()

    seen = list(dict.fromkeys((content.stream_offset, content.held) for content in container.heartbeats.contents))
    assert [(1, (("a", 4),)), (2, (("a", 4), ("b", 5))), (2, ())] == seen
