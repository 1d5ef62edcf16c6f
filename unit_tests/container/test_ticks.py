"""When the driver has timers fire that no micro-batch and no tail fires."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from samzapy.container.ports import BatchDone, TailProgress
from samzapy.container.task.work_plan import NO_TIMER
from samzapy.container.ticks import Ticks
from unit_tests.fixtures.container_worlds import SSP_KB, a_job, a_plan
from unit_tests.fixtures.running_container import AContainer, a_batch, a_report

TIMERS = {"stores_timers_kind": "timer", "stores_timers_key_serde": "bytes", "stores_timers_msg_serde": "bytes"}
ROUTES = a_plan(a_job(), ssp_kbs=(SSP_KB,)).routes
OTHER = replace(ROUTES[0], task_name="other")


def a_tick(*reports: Any) -> BatchDone:
    return BatchDone(reports=reports, offsets_end={}, is_tick=True)


def test_a_query_begins_with_a_tick_that_looks_at_the_timers() -> None:
    ticks = Ticks(a_job(**TIMERS))
    assert not ticks.due_tasks(0, 0, {})

    ticks.query_starts([*ROUTES, OTHER])
    assert {ROUTES[0].task_name, "other"} == ticks.due_tasks(0, 0, {})

    ticks.reported([a_report(0, due_ms=NO_TIMER)], ROUTES)
    assert {"other"} == ticks.due_tasks(0, 0, {}), "its timers are not known"

    ticks.reported([a_report(1, due_ms=NO_TIMER)], [*ROUTES, OTHER])
    assert not ticks.due_tasks(10**15, 0, {})


def test_a_job_without_timers_has_no_ticks() -> None:
    ticks = Ticks(a_job())

    ticks.query_starts(ROUTES)
    ticks.reported([a_report(0, due_ms=0)], ROUTES)

    assert not ticks.due_tasks(10**15, 0, {})


def test_a_tick_is_due_from_the_moment_of_the_first_timer_on() -> None:
    ticks = Ticks(a_job(**TIMERS))
    ticks.query_starts([*ROUTES, OTHER])

    ticks.reported([a_report(0, due_ms=500), a_report(1, due_ms=300)], [*ROUTES, OTHER])

    assert [set(), {"other"}] == [ticks.due_tasks(wall_ms, 0, {}) for wall_ms in (299, 300)]


def test_ticks_keep_the_resolution_apart() -> None:
    ticks = Ticks(a_job(**TIMERS, task_timer_resolution_ms="250"))
    ticks.query_starts(ROUTES)

    ticks.ticked(1000)

    assert [False, True] == [bool(ticks.due_tasks(0, now_ms, {})) for now_ms in (1249, 1250)]


def test_the_timers_of_an_earlier_query_are_not_known_to_the_next_one() -> None:
    ticks = Ticks(a_job(**TIMERS))
    ticks.query_starts(ROUTES)
    ticks.reported([a_report(0, due_ms=NO_TIMER)], ROUTES)

    ticks.query_starts([OTHER])

    assert ticks.due_tasks(0, 0, {})


def ticked(container: AContainer) -> int:
    return len(container.query.ticked_at_ms)


def test_a_container_ticks_once_where_no_timer_is_set() -> None:
    container = AContainer(**TIMERS)

    container.run(None, a_tick(a_report(0), a_report(1)), *[None] * 50)

    assert 1 == ticked(container)


def test_a_container_ticks_again_when_a_timer_is_due() -> None:
    container = AContainer(**TIMERS)
    due_ms = container.clock.wall_ms() + 5000

    container.run(None, a_tick(a_report(0, due_ms=due_ms), a_report(1)), *[None] * 15)
    assert 1 == ticked(container)

    container = AContainer(**TIMERS)
    due_ms = container.clock.wall_ms() + 5000
    container.run(None, a_tick(a_report(0, due_ms=due_ms), a_report(1)), *[None] * 30)

    # It is due until a worker reports the next one.
    assert container.query.ticked_at_ms[1] - container.query.ticked_at_ms[0] >= 4000
    assert 2 <= ticked(container) <= 4


def test_timers_that_batches_and_tails_report_need_no_tick() -> None:
    container = AContainer(**TIMERS)

    container.run(
        None,
        a_batch(a_report(0), orders_0=1),
        TailProgress(reports=[a_report(1)], read_to={}),
        *[None] * 50,
    )

    assert 1 == ticked(container)


def test_a_container_of_a_job_without_timers_never_ticks() -> None:
    container = AContainer()

    container.run(*[None] * 50)

    assert 0 == ticked(container)


def test_a_tick_is_no_first_micro_batch_and_moves_no_position() -> None:
    container = AContainer(**TIMERS)
    container.run(None, a_tick(a_report(0, commits=0, offset_next=-1)), *[None] * 20)

    positions = [content.figures["positions"] for content in container.heartbeats.contents][-1]
    assert {0} == {position["offsetNext"] for position in positions.values()}
