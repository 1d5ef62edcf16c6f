"""Batches of the query that runs: their bound, hangs, figures and ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from samzapy.container.batch_limit import COLD_MS
from samzapy.container.ports import TopicBounds
from samzapy.container.task.work_plan import ReportKind
from samzapy.errors import (
    ExitCode,
    SamzapyError,
    TaskError,
)
from samzapy.model.container import ContainerPhase
from samzapy.model.grant import BucketStart
from samzapy.stream.records import (
    ContainerPut,
    GrantPut,
    InputEndPut,
    RunPut,
)
from samzapy.testing.builders import a_container, an_ssp, an_ssp_kb
from unit_tests.fixtures.running_container import (
    ORDERS_0,
    ORDERS_1,
    AContainer,
    a_batch,
    a_report,
    a_task,
    reports_of_the_end,
)


def test_a_task_that_failed_by_policy_ends_the_container_with_the_error_of_its_report() -> None:
    container = AContainer()
    failed = a_report(1, kind=ReportKind.TASK_FAILED, error="task b failed at offset 3")

    with pytest.raises(TaskError, match="task b failed at offset 3"):
        container.run(a_batch(a_report(0), failed))

    assert ["stop query", "kill holders", "take slots"] == container.trace.since("stop query")[:3]
    assert [ExitCode.TASK_FAILED] == [content.exit_code for content in container.heartbeats.sent]


def test_a_batch_that_hangs_ends_the_container_by_name() -> None:
    container = AContainer(task_hang_timeout_ms="10000")
    container.topics.inputs[an_ssp("kafka.orders.0")] = TopicBounds(offset_first=0, offset_end=5)

    with pytest.raises(SamzapyError, match=r"wanted a micro-batch to end within task.hang.timeout.ms \(10000\)"):
        container.run(*[None] * 100)


def test_a_container_without_traffic_does_not_hang() -> None:
    container = AContainer(task_hang_timeout_ms="10000")
    for ssp in ("kafka.orders.0", "kafka.orders.1"):
        container.topics.inputs[an_ssp(ssp)] = TopicBounds(offset_first=0, offset_end=0)

    container.run(*[None] * 100)


def test_a_message_after_a_quiet_hour_has_the_whole_time_limit() -> None:
    container = AContainer(task_hang_timeout_ms="10000")
    inputs = container.topics.inputs
    for ssp in ("kafka.orders.0", "kafka.orders.1"):
        inputs[an_ssp(ssp)] = TopicBounds(offset_first=0, offset_end=0)
    quiet = [lambda: container.clock.advance(1000)] * 60
    more = [lambda: inputs.update({an_ssp("kafka.orders.0"): TopicBounds(offset_first=0, offset_end=1)})]
    slow = [lambda: container.clock.advance(1000)]

    container.run(*quiet, *more, *slow * 8, a_batch(a_report(), orders_0=1))
    assert 1 == len(container.query.started)

    hangs = AContainer(task_hang_timeout_ms="10000")
    hangs.topics.inputs = inputs
    with pytest.raises(SamzapyError, match="found one running for 10[0-9]{3} ms"):
        hangs.run(*[None] * 200)


# Before it a micro-batch has longer.
A_FIRST_BATCH = a_batch(a_report(0, offset_next=1), orders_0=1)


def test_a_micro_batch_that_takes_too_long_is_ended_and_the_next_ones_are_smaller() -> None:
    container = AContainer(task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def has_run(ms: int) -> Callable[[], None]:
        return lambda: setattr(container.query, "batch_has_run_ms", ms)

    container.run(A_FIRST_BATCH, has_run(1000), has_run(1001), None)

    assert [8000, 2000] == [plan.batch_offsets_max for plan, _ in container.query.started]
    assert ["start query 1", "input bounds", "drain", "take slots"] == container.trace.since("start query 1")[:4]


def test_the_first_micro_batch_of_a_process_has_longer_and_the_next_ones_of_another_query_have_not() -> None:
    container = AContainer(task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def has_run(ms: int) -> Callable[[], None]:
        return lambda: setattr(container.query, "batch_has_run_ms", ms)

    container.run(has_run(1000 + COLD_MS), has_run(1001 + COLD_MS), None, A_FIRST_BATCH, has_run(1001), None)

    assert [8000, 2000, 500] == [plan.batch_offsets_max for plan, _ in container.query.started]


def test_full_micro_batches_that_are_short_may_be_larger_again() -> None:
    container = AContainer(task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def overruns() -> None:
        container.query.batch_has_run_ms = 1001

    full = replace(a_batch(a_report(0, offset_next=2000), orders_0=2000), duration_ns=125_000_000)
    container.run(A_FIRST_BATCH, overruns, None, full, None)

    assert [8000, 2000, 8000] == [plan.batch_offsets_max for plan, _ in container.query.started]


def test_broadcast_messages_fill_a_micro_batch_too_so_it_does_not_stay_small_for_ever() -> None:
    """While rules are caught up, a batch has hardly any other messages in it.

    Spark bounds a batch over all partitions.
    """
    rules = an_ssp_kb("kafka.rules.0@a")
    grant = replace(
        a_task("a"),
        starts=tuple(BucketStart(ssp_kb=input_bucket, offset_next=0) for input_bucket in (ORDERS_0, rules)),
    )
    container = AContainer(grants=(grant,), task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def overruns() -> None:
        container.query.batch_has_run_ms = 1001

    full = replace(a_batch(a_report(0, offset_next=1990), orders_0=10, rules_0=1990), duration_ns=125_000_000)
    container.run(A_FIRST_BATCH, overruns, None, full, None)

    assert [8000, 2000, 8000] == [plan.batch_offsets_max for plan, _ in container.query.started]


def test_a_batch_that_ends_while_its_query_is_drained_for_it_took_too_long_all_the_same() -> None:
    container = AContainer(task_batch_max_ms="1000", task_batch_offsets_max="8000")

    def overruns() -> None:
        container.query.batch_has_run_ms = 1001

    ended = replace(a_batch(a_report(0, offset_next=8000), orders_0=8000), duration_ns=1_100_000_000)
    container.run(A_FIRST_BATCH, overruns, ended, None)

    assert [8000, 2000] == [plan.batch_offsets_max for plan, _ in container.query.started]


def test_figures_count_the_committed_messages_and_show_the_end_of_the_input() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.topics.inputs[an_ssp("kafka.orders.0")] = TopicBounds(offset_first=0, offset_end=100)

    container.run(None, a_batch(a_report(), a_report(), orders_0=40), *[None] * 6)

    figures = container.heartbeats.contents[-1].figures
    assert (20, 40, 2, 2, 1, 0) == (
        figures["recordsIn"],
        figures["recordsOut"],
        figures["deadLetters"],
        figures["commits"],
        figures["batches"],
        figures["recoveries"],
    )
    assert {"kafka.orders.0:0/1": {"offsetNext": 40, "offsetEnd": 100, "recordsIn": 20}} == figures["positions"]


class ABoundedContainer(AContainer):
    """Its inputs end at 10, where the topics continue.

    `finishes` is the leader's record of the run.
    """

    def __init__(self, **properties: str) -> None:
        super().__init__(systems_kafka_samza_offset_end="head", **properties)
        ends = [InputEndPut(ssp=ssp_kb.ssp, run_id="r", offset_end=10) for ssp_kb in (ORDERS_0, ORDERS_1)]
        registered = ContainerPut(container=a_container("e1", phase=ContainerPhase.STARTED))
        self.stream.records[:0] = [registered, RunPut(run_id="r", ended=False), *ends]
        for ssp_kb in (ORDERS_0, ORDERS_1):
            self.topics.inputs[ssp_kb.ssp] = TopicBounds(offset_first=0, offset_end=99)

    def finishes(self) -> Callable[[], None]:
        return lambda: self.stream.records.append(RunPut(run_id="r", ended=False, finished=True))


def test_a_container_reports_that_it_has_finished_when_all_its_tasks_were_read_to_their_ends() -> None:
    container = ABoundedContainer()

    container.run(None, a_batch(a_report(0), orders_0=15, orders_1=9), a_batch(a_report(1), orders_1=10), *[None] * 8)

    first = next(content for content in container.heartbeats.contents if content.finished)
    assert [False, True, False] == reports_of_the_end(container)
    assert {("a", 1), ("b", 1)} == set(first.held)
    # Records behind the end are no lag, and no position.
    positions = container.heartbeats.contents[-2].figures["positions"]
    assert [{"offsetNext": 10, "offsetEnd": 10, "recordsIn": 10}] * 2 == [
        positions[name] for name in sorted(positions)
    ]


def test_inputs_that_begin_at_their_end_are_finished_from_the_start() -> None:
    container = ABoundedContainer()
    container.commit(10, task="a")
    container.commit(10, task="b")

    container.run(None)

    assert True in reports_of_the_end(container)


def test_an_input_without_an_end_is_never_finished() -> None:
    container = ABoundedContainer()
    container.stream.records[:] = [
        record for record in container.stream.records if not isinstance(record, InputEndPut) or record.ssp.partition
    ]

    container.run(None, a_batch(a_report(0), a_report(1), orders_0=99, orders_1=99), *[None] * 8)

    assert [False] == reports_of_the_end(container)


def test_a_container_stops_by_itself_when_the_run_is_finished() -> None:
    container = ABoundedContainer()

    container.run(None, container.finishes(), *[None] * 50)

    last = container.heartbeats.contents[-1]
    assert ("STOPPED", "finished", ()) == (last.state, last.reason, last.held)
    # Not because its script was over.
    assert len(container.query.steps) > 40


def test_a_new_grant_revokes_the_report_that_the_run_is_finished() -> None:
    container = ABoundedContainer()
    container.stream.records[:] = [
        record for record in container.stream.records if record != GrantPut(grant=a_task("b"))
    ]
    granted = GrantPut(grant=a_task("b"))

    container.run(
        None,
        a_batch(a_report(0), orders_0=10),
        *[None] * 8,
        lambda: container.stream.records.append(granted),
        *[None] * 20,
    )

    held_when_finished = {content.held for content in container.heartbeats.contents if content.finished}
    assert {(("a", 1),)} == held_when_finished
