"""A container's side of tails: positions, failures, hangs, and queries with tails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from samzapy.container.ports import QueryFailed, TailProgress, TopicBounds
from samzapy.container.task.work_plan import Report, ReportKind
from samzapy.errors import ExitCode, SamzapyError, TaskError
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ProcessorId
from samzapy.stream.records import ContainerPut, InputEndPut, RestartPut, RunPut
from samzapy.testing.builders import a_container
from unit_tests.fixtures.running_container import ORDERS_0, ORDERS_1, AContainer, a_batch, a_report

QUIET = [None] * 6
"""Long enough for another heartbeat."""


def a_tail(*reports: Report, read_to: Mapping[int, int] | None = None, **fields: Any) -> TailProgress:
    return TailProgress(reports=reports, read_to=read_to or {}, **fields)


def with_inputs_to(offset_end: int, **properties: str) -> AContainer:
    container = AContainer(**properties)
    for ssp_kb in (ORDERS_0, ORDERS_1):
        container.topics.inputs[ssp_kb.ssp] = TopicBounds(offset_first=0, offset_end=offset_end)
    return container


def positions(container: AContainer) -> Mapping[str, Any]:
    """The positions in the last heartbeat before the end."""
    reported = [content.figures["positions"] for content in container.heartbeats.contents]
    return [of_one_task for of_one_task in reported if of_one_task][-1]


def offsets(container: AContainer) -> list[int]:
    return [positions(container)[str(ssp_kb)]["offsetNext"] for ssp_kb in (ORDERS_0, ORDERS_1)]


def test_each_route_moves_to_where_a_tail_has_read_it() -> None:
    container = with_inputs_to(100)

    container.run(a_tail(a_report(0, offset_next=40), read_to={0: 45, 1: 7}), *QUIET)

    assert [45, 7] == offsets(container)


def test_a_route_without_news_from_a_tail_stays_where_it_is() -> None:
    container = with_inputs_to(100)

    container.run(a_tail(read_to={0: 45, 1: 7}), a_tail(read_to={1: 9}), a_tail(), *QUIET)

    assert [45, 9] == offsets(container)


def test_no_route_moves_back_when_a_micro_batch_repeats_the_messages_of_a_tail() -> None:
    container = with_inputs_to(100)

    container.run(a_tail(read_to={0: 45}), a_batch(a_report(0, offset_next=20), orders_0=20), *QUIET)

    assert [45, 0] == offsets(container)


def test_the_read_position_of_a_tail_without_commits_is_written_as_progress() -> None:
    container = with_inputs_to(100)

    container.run(a_tail(a_report(0, offset_next=40), read_to={0: 40, 1: 50}), *[None] * 20)

    assert [(ORDERS_1, 50)] == [(progress.ssp_kb, progress.offset_next) for progress in container.progress.written]


def test_a_task_that_fails_in_a_tail_ends_the_container_and_moves_no_position() -> None:
    container = with_inputs_to(100)
    failed = a_report(1, kind=ReportKind.TASK_FAILED, error="task b failed at offset 3", commits=0)

    with pytest.raises(TaskError, match="task b failed at offset 3"):
        container.run(*QUIET, a_tail(a_report(0, offset_next=40), failed, read_to={0: 40, 1: 40}))

    (last,) = container.heartbeats.sent
    assert ExitCode.TASK_FAILED == last.exit_code
    assert [0, 0] == [last.figures["positions"][str(ssp_kb)]["offsetNext"] for ssp_kb in (ORDERS_0, ORDERS_1)]


def test_a_commit_in_a_tail_resets_the_count_of_failed_starts() -> None:
    container = AContainer(task_query_retry_ms="0")
    failed = QueryFailed(reason="again")

    container.run(failed, failed, a_tail(a_report()), failed, failed)

    assert 5 == len(container.query.started)


def test_a_tail_that_committed_nothing_resets_no_count() -> None:
    container = AContainer(task_query_retry_ms="0")
    failed = QueryFailed(reason="again")

    with pytest.raises(SamzapyError, match="in 3 starts"):
        container.run(failed, failed, a_tail(read_to={0: 1}), failed)


def a_second_later(container: AContainer, stalled_ms: int) -> Callable[[], TailProgress]:
    def progress() -> TailProgress:
        container.clock.advance(1000)
        return a_tail(stalled_ms=stalled_ms)

    return progress


def test_a_tail_that_does_not_look_up_from_its_work_hangs() -> None:
    container = with_inputs_to(5, task_hang_timeout_ms="10000")

    with pytest.raises(SamzapyError, match="found one running for 10001 ms"):
        container.run(*[a_second_later(container, 20)] * 20, a_tail(stalled_ms=10_001))


def test_a_long_tail_that_is_at_work_does_not_hang() -> None:
    container = with_inputs_to(5, task_hang_timeout_ms="10000")

    container.run(*[a_second_later(container, 20)] * 60)

    assert 1 == len(container.query.started)


def test_the_work_of_tails_until_the_end_of_a_drain_is_counted() -> None:
    container = with_inputs_to(100)

    container.run(None, container.ask_to_stop, a_tail(a_report()), a_batch(a_report()), a_tail(a_report()))

    assert 3 == container.heartbeats.sent[0].figures["commits"]


def test_the_work_of_tails_during_the_drain_of_a_restart_moves_positions_before_the_next_query() -> None:
    container = with_inputs_to(100)
    container.stream.records.append(ContainerPut(container=a_container("e1")))
    order = RestartPut(processor_id=ProcessorId("0"), number=1, uuid="u")

    def ordered() -> None:
        container.stream.records.append(order)
        container.commit(40)

    container.run(ordered, a_tail(a_report(0, offset_next=40), read_to={0: 40}, tailing=(0, 1)), *QUIET)

    assert [{ORDERS_0: 0, ORDERS_1: 0}, {ORDERS_0: 40, ORDERS_1: 0}] == [
        starts for _, starts in container.query.started
    ]


def tailing(container: AContainer) -> list[bool]:
    """Whether a tail reported a position, in each heartbeat unlike the one before."""
    states = [
        any("tailing" in position for position in content.figures["positions"].values())
        for content in container.heartbeats.contents
        if content.figures["positions"]
    ]
    return [state for index, state in enumerate(states) if index == 0 or states[index - 1] != state]


def test_heartbeats_report_positions_in_a_tail_while_tails_run() -> None:
    container = with_inputs_to(100)

    container.run(*QUIET, a_tail(tailing=(0, 1)), *QUIET, a_batch(), *QUIET)

    assert [False, True, False] == tailing(container)


def test_no_position_is_in_a_tail_after_the_query_failed() -> None:
    container = with_inputs_to(100)
    states: list[Any] = []

    def look() -> None:
        states.append(container.heartbeats.contents[-1].figures["positions"])

    container.run(*QUIET, a_tail(tailing=(0, 1)), *QUIET, QueryFailed(reason="again"), look, *QUIET)

    assert [False, True, False] == tailing(container)
    assert [] == [position for position in states[0].values() if "tailing" in position]


# --- which queries have tails ---


def test_a_query_has_tails_from_its_starts_on() -> None:
    container = AContainer(task_tail_ms="7000", task_tail_lag_max="70")
    container.commit(40)

    container.run()

    ((plan, _),) = container.query.started
    assert plan.tail is not None
    assert ((40, 0), 7000, 70) == (plan.tail.starts, plan.tail.duration_ms, plan.tail.lag_max)


@pytest.mark.parametrize(
    "properties", [{"task_tail_ms": "0"}, {"task_batch_interval_ms": "1000"}], ids=["off", "interval"]
)
def test_a_query_has_no_tails_if_they_are_off_or_micro_batches_have_an_interval(properties: dict[str, str]) -> None:
    container = AContainer(**properties)

    container.run()

    assert [None] == [plan.tail for plan, _ in container.query.started]


def test_a_query_whose_inputs_end_has_no_tails() -> None:
    container = with_inputs_to(99, systems_kafka_samza_offset_end="head")
    container.stream.records[:0] = [
        ContainerPut(container=a_container("e1", phase=ContainerPhase.STARTED)),
        RunPut(run_id="r", ended=False),
        InputEndPut(ssp=ORDERS_0.ssp, run_id="r", offset_end=10),
        InputEndPut(ssp=ORDERS_1.ssp, run_id="r", offset_end=10),
    ]

    container.run()

    assert [None] == [plan.tail for plan, _ in container.query.started]


def test_a_query_whose_tails_are_far_ahead_of_spark_is_followed_by_another_one() -> None:
    container = with_inputs_to(100)

    def run_ahead() -> TailProgress:
        container.query.is_far_ahead = True
        container.commit(40)
        return a_tail(a_report(0, offset_next=40), read_to={0: 40})

    container.run(run_ahead, *QUIET)

    assert 2 == len(container.query.started)
    assert [40, 0] == offsets(container)
