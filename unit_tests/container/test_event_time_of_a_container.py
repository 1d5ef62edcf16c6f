"""The event time that a container sends to its workers, and the ticks it orders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samzapy.container.ports import QueryFailed
from samzapy.container.task.clocks import FAR_MS
from samzapy.container.task.work_plan import NO_TIMER, Report
from samzapy.container.ticks import Ticks
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.task_stats import TaskStats
from samzapy.model.time_figures import SeenClock, TimeFigures
from unit_tests.container.test_running_query import ABoundedContainer, reports_of_the_end
from unit_tests.container.test_ticks import a_tick
from unit_tests.container.test_worker_deaths import DIED
from unit_tests.fixtures.container_worlds import SSP_KB, a_job, a_plan
from unit_tests.fixtures.running_container import ORDERS_0, ORDERS_1, AContainer, a_batch, a_report, a_task

CLOCKS = {"stores_clocks_kind": "clock", "stores_clocks_msg_serde": "json"}
ROUTES = a_plan(a_job(), ssp_kbs=(SSP_KB,)).routes
TASK = ROUTES[0].task_name


def quiet(due_ms: int, route: int = 0) -> Report:
    return replace(a_report(route, due_ms=NO_TIMER), due_when_quiet_ms=due_ms)


def the_high_watermarks(container: AContainer, **ends: int) -> None:
    """Let the inputs have these ends, of orders.0 and orders.1, from now on."""
    high = {SystemStreamPartition("kafka", "orders", int(name[-1])): end for name, end in ends.items()}
    container.topics.input_high_watermarks = lambda ssps, wait_ms: high  # type: ignore[method-assign]


def test_a_tick_is_due_once_the_inputs_of_a_task_are_covered_up_to_its_moment() -> None:
    ticks = Ticks(a_job(**CLOCKS))
    ticks.query_starts(ROUTES)
    ticks.reported([quiet(5000)], ROUTES)

    due = [bool(ticks.due_tasks(10**15, 0, covered_ms)) for covered_ms in ({}, {TASK: 4999}, {TASK: 5000})]

    assert [False, False, True] == due


def test_workers_are_sent_the_moment_up_to_which_the_inputs_are_covered() -> None:
    container = AContainer(**CLOCKS)
    the_high_watermarks(container, orders_0=5, orders_1=9)
    begun_ms = container.clock.boot_ms()

    container.run(a_batch(a_report(offset_next=5), orders_0=5, orders_1=3), *[None] * 15)

    seen = container.query.ends_seen[-1]
    assert {5, 9} == {*seen.ends.values()}
    assert begun_ms < seen.at_ms
    assert {ORDERS_0: seen.at_ms} == seen.covered_ms, "the messages in orders.1 are not read"


def test_heartbeats_have_the_watermark_of_a_quiet_input_whose_clock_runs() -> None:
    container = AContainer(**CLOCKS, task_event_time_idle_ms="1000")
    the_high_watermarks(container, orders_0=5, orders_1=0)
    quiet_ms = container.clock.boot_ms()
    time = TimeFigures(
        at_ms=quiet_ms, watermark_ms=7000, inputs={str(ORDERS_0): SeenClock(7000, quiet_ms, is_known=True)}
    )
    report = replace(a_report(offset_next=5), measured=TaskStats(time=time))

    container.run(a_batch(report, orders_0=5, orders_1=0), *[None] * 30)

    ran_ms = container.query.ends_seen[-1].covered_ms[ORDERS_0] - quiet_ms - 1000
    time_figures = container.heartbeats.sent[-1].figures["tasks"]["a"]["time"]
    assert ran_ms > 0
    assert (7000 + ran_ms, str(ORDERS_0)) == (time_figures["watermarkMs"], time_figures["heldBy"])


def test_an_open_transaction_in_an_input_keeps_it_from_being_covered() -> None:
    """All that is committed is read.

    Messages that others committed after the transaction cannot be read.
    """
    container = AContainer(**CLOCKS)
    the_high_watermarks(container, orders_0=6, orders_1=0)

    container.run(a_batch(a_report(offset_next=5), orders_0=5, orders_1=0), *[None] * 15)

    assert {ORDERS_1} == container.query.ends_seen[-1].covered_ms.keys()


def test_a_job_without_event_time_asks_for_no_high_watermarks() -> None:
    container = AContainer()
    container.topics.input_high_watermarks = lambda *_: 1 / 0  # type: ignore[method-assign,return-value]

    container.run(a_batch(a_report(offset_next=5), orders_0=5), *[None] * 15)

    assert [] == container.query.ends_seen


@pytest.mark.parametrize("in_ms", [4100, 4300, 4500, 4700, 4900])
def test_a_tick_comes_at_once_for_a_timer_that_is_due_when_its_input_is_quiet(in_ms: int) -> None:
    """Also between two looks at the ends of the inputs, which come each second."""
    container = AContainer(**CLOCKS)
    the_high_watermarks(container, orders_0=5, orders_1=0)
    due_ms = container.clock.boot_ms() + in_ms

    container.run(None, a_tick(quiet(due_ms), quiet(NO_TIMER, 1)), a_batch(orders_0=5, orders_1=0), *[None] * 30)

    ticked_ms = [at_ms for at_ms in container.query.ticked_at_ms if at_ms > due_ms - 2000]
    assert ticked_ms and due_ms <= ticked_ms[0] <= due_ms + 300


@pytest.mark.parametrize("kind", [AContainer, ABoundedContainer])
def test_the_end_of_a_trial_of_a_suspect_message_is_no_end_of_its_input(kind: type[AContainer]) -> None:
    container = kind(grants=(a_task("a"),), **CLOCKS)
    the_high_watermarks(container, orders_0=40)

    def die() -> QueryFailed:
        plan, _ = container.query.started[-1]
        container.slots.open_slots = {0}
        container.slots.noted[plan.query_number, 0] = (0, 5)
        return DIED

    def read_up_to_the_message() -> Any:
        container.query.ends_seen.clear()
        container.clock.advance(2000)
        return a_batch(orders_0=40)

    container.run(die, die, read_up_to_the_message)

    assert 5 == container.query.started[2][0].routes[0].offset_end
    in_trial = container.query.ends_seen
    assert in_trial and {} == in_trial[-1].covered_ms


def ended(*routes: int) -> list[Any]:
    return [replace(quiet(NO_TIMER, route), has_ended=True) for route in routes]


def test_a_bounded_run_is_over_once_each_task_has_acted_on_the_end_of_its_inputs() -> None:
    container = ABoundedContainer(**CLOCKS)
    the_high_watermarks(container, orders_0=99, orders_1=99)
    begins = a_tick(quiet(FAR_MS, 0), quiet(FAR_MS, 1))
    read = a_batch(quiet(FAR_MS, 0), quiet(FAR_MS, 1), orders_0=15, orders_1=10)

    container.run(None, begins, read, *[None] * 15, a_tick(*ended(0)), *[None] * 8)
    assert {FAR_MS} == {*container.query.ends_seen[-1].covered_ms.values()}
    assert len(container.query.ticked_at_ms) > 2
    assert [False] == reports_of_the_end(container)

    other = ABoundedContainer(**CLOCKS)
    the_high_watermarks(other, orders_0=99, orders_1=99)
    other.run(None, begins, read, *[None] * 15, a_tick(*ended(0, 1)), *[None] * 8)
    assert True in reports_of_the_end(other)
