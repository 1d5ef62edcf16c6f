"""The loop of a container: grants, heartbeats, orders and the end."""

from __future__ import annotations

from typing import Any

import pytest

from samzapy.container.ports import BatchDone, QueryFailed, TailProgress
from samzapy.container.task.work_plan import ReportKind
from samzapy.errors import (
    BrokerUnavailableError,
    DeadlineError,
    TaskError,
)
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ProcessorId
from samzapy.model.launch import LaunchPhase
from samzapy.model.topics import OUTPUTS_NAMED_MAX
from samzapy.stream.records import (
    ContainerPut,
    GrantPut,
    LaunchPut,
    RestartPut,
    TermPut,
)
from samzapy.testing.builders import a_container, a_launch
from unit_tests.fixtures.container_worlds import plan_in_force
from unit_tests.fixtures.running_container import (
    AContainer,
    a_batch,
    a_report,
    a_task,
    at_pauses,
)


def test_the_driver_s_producer_is_served_while_it_waits_and_while_nothing_comes_in() -> None:
    idle = AContainer(grants=())
    idle.while_pausing = lambda: idle.ask_to_stop() if len(idle.pauses_ms) == 5 else None
    running = AContainer()

    idle.run()
    running.run(*[None] * 100)

    assert idle.progress.served >= 5
    assert running.progress.served >= 100


def test_grants_of_one_plan_are_waited_for_and_started_together() -> None:
    container = AContainer(grants=(a_task("a"),))

    def second_grant() -> None:
        if len(container.pauses_ms) == 3:
            container.stream.records.append(GrantPut(grant=a_task("b")))

    container.while_pausing = second_grant

    container.run()

    ((plan, _),) = container.query.started
    assert ["a", "b"] == [route.task_name for route in plan.routes]
    # They are waited for from the last one that came on.
    assert sum(container.pauses_ms[3:]) >= 300


def test_a_container_with_all_its_planned_tasks_starts_at_once() -> None:
    container = AContainer(grants=())
    container.stream.records[0:0] = [ContainerPut(container=a_container("e1", processor_id="0"))]

    def grant() -> None:
        if len(container.pauses_ms) == 10:
            container.stream.records += [
                *plan_in_force(1, a="0", b="1"),
                GrantPut(grant=a_task("a")),
            ]

    container.while_pausing = grant

    container.run()

    ((plan, _),) = container.query.started
    assert ["a"] == [route.task_name for route in plan.routes]
    # At most the look that found it.
    assert sum(container.pauses_ms[10:]) <= 50


def test_grants_of_other_executions_start_nothing() -> None:
    container = AContainer(grants=(a_task("a", execution_id="e2"),))
    container.while_pausing = lambda: container.ask_to_stop() if len(container.pauses_ms) > 50 else None

    container.run()

    assert [] == container.query.started


def test_a_container_that_is_stopped_before_it_was_granted_anything_stops_cleanly() -> None:
    container = AContainer(grants=())
    container.ask_to_stop()

    container.run()

    assert [("STOPPED", ())] == [(content.state, content.held) for content in container.heartbeats.sent]


def test_a_heartbeat_names_the_newest_undeclared_outputs() -> None:
    container = AContainer(grants=())
    container.outputs = [f"out-{number}" for number in range(OUTPUTS_NAMED_MAX + 3)]
    container.ask_to_stop()

    container.run()

    (content,) = container.heartbeats.sent
    assert tuple(container.outputs[3:]) == content.outputs


def test_changed_grants_restart_the_query_after_a_drain() -> None:
    container = AContainer(grants=(a_task("a"),))

    container.run(None, lambda: container.stream.records.append(GrantPut(grant=a_task("b", epoch=2))))

    assert [["a"], ["a", "b"]] == [[route.task_name for route in plan.routes] for plan, _ in container.query.started]
    assert ["start query 1", "input bounds", "drain", "take slots"] == container.trace.since("start query 1")[:4]


def an_order(number: int, processor_id: str = "0") -> RestartPut:
    return RestartPut(processor_id=ProcessorId(processor_id), number=number, uuid="u")


def test_a_restart_order_drains_and_starts_the_query_again_and_is_then_reported_as_done() -> None:
    container = AContainer()
    container.stream.records.append(ContainerPut(container=a_container("e1")))
    reported: list[int] = []

    def ordered() -> None:
        container.stream.records.append(an_order(1))

    container.run(None, ordered, None, lambda: reported.append(container.heartbeats.contents[-1].restart), None)

    assert 2 == len(container.query.started)
    assert ["start query 1", "input bounds", "drain", "take slots"] == container.trace.since("start query 1")[:4]
    assert [1] == reported
    # Not before the new query was started: the old one ran without knowing the order.
    before = [content.restart for content in container.heartbeats.contents]
    assert before == sorted(before)
    assert container.trace.index("start query 2") > container.trace.index("drain")


def test_an_order_that_was_read_before_the_start_restarts_nothing_and_is_done_by_it() -> None:
    container = AContainer()
    container.stream.records.extend([ContainerPut(container=a_container("e1")), an_order(7)])

    container.run(None, None)

    assert 1 == len(container.query.started)
    assert 7 == container.heartbeats.contents[-1].restart


def test_an_order_for_another_processor_is_no_matter() -> None:
    container = AContainer()
    container.stream.records.append(ContainerPut(container=a_container("e1")))

    container.run(None, lambda: container.stream.records.append(an_order(1, "1")), None)

    assert 1 == len(container.query.started)
    assert 0 == container.heartbeats.contents[-1].restart


def test_a_failover_alone_does_not_stop_the_query() -> None:
    container = AContainer()
    term = TermPut(
        term=2,
        coordinator_id="c",
        host="h",
        boot_id="b",
        pid=1,
        process_started_ms=1,
        url="http://h:1",
        started_at_ms=1,
    )

    container.run(None, lambda: container.stream.records.append(term), None)

    assert 1 == len(container.query.started)
    assert (2, "http://h:1") == (
        container.heartbeats.contents[-1].term,
        container.heartbeats.contents[-1].coordinator_url,
    )


def test_the_state_is_started_running_stopped() -> None:
    container = AContainer()

    container.run(None)

    assert ["STARTED", "RUNNING", "STOPPED"] == list(
        dict.fromkeys(content.state for content in container.heartbeats.contents)
    )


def test_a_stop_drains_closes_the_state_and_reports_that_nothing_is_held() -> None:
    container = AContainer()

    container.run(None)

    assert [
        *("drain", "take slots", "block 2", "close tasks within 3000 ms", "send heartbeat")
    ] == container.trace.since("drain")
    for disk in container.disks.values():
        assert disk.contents.position is not None
        assert disk.contents.is_synced and not disk.opened[-1].is_open
    assert [("STOPPED", ())] == [(content.state, content.held) for content in container.heartbeats.sent]


def test_a_container_drains_and_ends_when_the_coordinator_stops_it() -> None:
    container = AContainer()
    started = LaunchPut(launch=a_launch("e1"))
    stopping = LaunchPut(launch=a_launch("e1", phase=LaunchPhase.STOPPING))
    container.stream.records.append(started)

    container.run(None, None, lambda: container.stream.records.append(stopping), *[None] * 50)

    last = container.heartbeats.contents[-1]
    assert ("STOPPED", "drained", ()) == (last.state, last.reason, last.held)
    # Not because its script was over.
    assert len(container.query.steps) > 40


def test_batches_that_end_during_the_drain_are_counted() -> None:
    container = AContainer()

    container.run(None, container.ask_to_stop, a_batch(a_report(), orders_0=5), a_batch(a_report(), orders_0=6))

    assert 2 == container.heartbeats.sent[0].figures["commits"]


@pytest.mark.parametrize(
    "late", [a_batch(orders_0=5), TailProgress(reports=(), read_to={0: 5})], ids=["tick", "tail"]
)
def test_a_late_event_of_a_query_whose_tasks_are_released_does_not_break_a_clean_stop(
    late: BatchDone | TailProgress,
) -> None:
    container = AContainer()

    def fail_as_the_tasks_go_elsewhere() -> QueryFailed:
        grants = [a_task(name, epoch=2, execution_id="e2") for name in ("a", "b")]
        container.stream.records += [GrantPut(grant=grant) for grant in grants]
        at_pauses(container, **{f"p{len(container.pauses_ms) + 5}": container.ask_to_stop})
        return QueryFailed(reason="a worker died")

    container.run(fail_as_the_tasks_go_elsewhere, late)

    assert [] == container.query.steps
    assert [("STOPPED", ())] == [(content.state, content.held) for content in container.heartbeats.sent]
    assert {} == container.heartbeats.sent[0].figures["positions"]


def test_a_transaction_that_a_worker_left_open_is_aborted_and_everything_released() -> None:
    container = AContainer()

    container.run(lambda: container.slots.open_slots.add(1))

    assert [
        *("drain", "take slots", "block 2", "fence samzapy/flights-1/e1/1", "renew [1]", "to the end"),
        *("close tasks within 3000 ms", "send heartbeat"),
    ] == container.trace.since("drain")
    assert [("STOPPED", ())] == [(content.state, content.held) for content in container.heartbeats.sent]


@pytest.mark.parametrize("finishes", [True, False])
def test_nothing_is_released_while_a_transaction_is_open_that_could_not_be_aborted(finishes: bool) -> None:
    container = AContainer()
    container.query.drains_in_time = finishes
    container.fence.fails.append(BrokerUnavailableError("nobody answers"))

    container.run(lambda: container.slots.open_slots.add(1))

    assert [] == container.heartbeats.sent
    assert not [step for step in container.trace if step.startswith("close tasks")]
    assert (("a", 1), ("b", 1)) == container.heartbeats.contents[-1].held
    assert all(
        disk.contents.position is not None and not disk.contents.is_synced for disk in container.disks.values()
    )


def test_a_container_that_was_given_up_meanwhile_does_not_report_a_clean_end() -> None:
    container = AContainer()
    lost = ContainerPut(container=a_container("e1", phase=ContainerPhase.LOST, reason="no heartbeat for 15 s"))
    fence = container.fence.fence

    def fence_and_be_lost(transactional_ids: Any) -> None:
        fence(transactional_ids)
        container.stream.records.append(lost)

    container.fence.fence = fence_and_be_lost  # type: ignore[method-assign]
    container.run(lambda: container.slots.open_slots.add(1))

    assert [] == container.heartbeats.sent


def test_a_batch_that_does_not_finish_in_time_is_cancelled_and_its_open_transactions_aborted() -> None:
    container = AContainer()
    container.query.drains_in_time = False

    container.run(lambda: container.slots.open_slots.add(0))

    assert [
        *("drain", "kill holders", "take slots", "block 2"),
        *("fence samzapy/flights-1/e1/0", "renew [0]", "to the end"),
        *("close tasks within 1000 ms", "send heartbeat"),
    ] == container.trace.since("drain")


def test_a_container_that_ends_by_name_leaves_no_transaction_open() -> None:
    container = AContainer()

    def failed() -> BatchDone:
        container.slots.open_slots.add(1)
        return a_batch(a_report(kind=ReportKind.TASK_FAILED, error="task a failed"))

    with pytest.raises(TaskError, match="task a failed"):
        container.run(failed)

    assert [
        *("stop query", "kill holders", "take slots", "block 2"),
        *("fence samzapy/flights-1/e1/1", "renew [1]", "to the end"),
        *("close tasks within 1000 ms", "send heartbeat"),
    ] == container.trace.since("stop query")


@pytest.mark.parametrize("drains_in_time", [True, False])
def test_a_task_that_fails_in_the_last_micro_batch_ends_its_container_like_any_other(drains_in_time: bool) -> None:
    def failed() -> BatchDone:
        return a_batch(a_report(), a_report(1, kind=ReportKind.TASK_FAILED, error="task b failed at offset 3"))

    running, draining = AContainer(), AContainer()
    draining.query.drains_in_time = drains_in_time
    for container, steps in (running, [failed]), (draining, [draining.ask_to_stop, failed()]):
        container.slots.open_slots.add(1)
        with pytest.raises(TaskError, match="task b failed at offset 3"):
            container.run(*steps)

    assert "drain" in draining.trace
    assert running.trace.since("stop query") == draining.trace.since("stop query")
    assert [("RUNNING", 7, (("a", 1), ("b", 1)), "task b failed at offset 3")] == [
        (content.state, content.exit_code, content.held, content.reason) for content in draining.heartbeats.sent
    ]


def test_a_worker_that_cannot_be_killed_after_a_drain_does_not_keep_the_end_from_the_leader() -> None:
    container = AContainer()
    container.query.drains_in_time = False

    def be_stuck() -> None:
        container.slots.stuck = DeadlineError("worker 7 still holds slot-0 10 s after it was killed")
        container.ask_to_stop()

    with pytest.raises(DeadlineError, match="worker 7"):
        container.run(be_stuck)

    assert [str(container.slots.stuck)] == [content.reason for content in container.heartbeats.sent]


def test_a_worker_that_cannot_be_killed_hides_no_error_from_the_leader(caplog: pytest.LogCaptureFixture) -> None:
    container = AContainer()

    def failed() -> BatchDone:
        container.slots.stuck = DeadlineError("worker 7 still holds slot-0 10 s after it was killed")
        return a_batch(a_report(kind=ReportKind.TASK_FAILED, error="task a failed"))

    with pytest.raises(TaskError, match="task a failed"):
        container.run(failed)

    assert ["task a failed"] == [content.reason for content in container.heartbeats.sent]
    assert f"this process ends all the same: {container.slots.stuck}" in caplog.text
