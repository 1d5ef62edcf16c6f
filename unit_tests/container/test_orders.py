from __future__ import annotations

from dataclasses import replace

import pytest

from samzapy.container.orders import Orders, follow
from samzapy.model.container import ContainerPhase
from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SystemStream
from samzapy.model.startpoint import Startpoint
from samzapy.stream.keys import key_of
from samzapy.stream.records import (
    ContainerPut,
    EpochPut,
    GrantPut,
    InputEndPut,
    InputPut,
    Record,
    Removed,
    RunPut,
    StartpointPut,
    TermPut,
)
from samzapy.testing.builders import a_container, a_grant, an_ssp_kb
from unit_tests.fixtures.container_worlds import plan_in_force


def following(*records: Record, execution_id: str = "e1") -> Orders:
    return follow(Orders(execution_id=ExecutionId(execution_id)), records, len(records))


def a_term(term: int) -> TermPut:
    return TermPut(
        term=term, coordinator_id="c", host="h", boot_id="b", pid=1, process_started_ms=1, url="u", started_at_ms=1
    )


def granted(task: str, *, epoch: int, execution_id: str = "e1", ssp_kb: str = "kafka.orders.0:0/1") -> GrantPut:
    return GrantPut(grant=a_grant(task, epoch=epoch, execution_id=execution_id, ssp_kb=ssp_kb))


def test_an_empty_stream_orders_nothing() -> None:
    orders = following()

    assert (None, (), False, 0) == (orders.term, orders.own_grants(), orders.is_given_up, orders.offset_next)


def test_own_grants_come_in_the_order_of_task_names() -> None:
    orders = following(granted("b", epoch=1), granted("a", epoch=2), granted("c", epoch=3, execution_id="e2"))

    assert [("a", 2), ("b", 1)] == [(grant.task_name, grant.epoch) for grant in orders.own_grants()]


def test_the_newest_grant_of_a_task_counts_in_whatever_order_grants_are_read() -> None:
    newest_first = following(granted("a", epoch=5), granted("a", epoch=3))
    newest_last = following(granted("a", epoch=3), granted("a", epoch=5))

    assert [5] == [grant.epoch for grant in newest_first.own_grants()]
    assert newest_first.own_grants() == newest_last.own_grants()


def test_a_task_that_went_to_another_execution_is_not_ours_any_more() -> None:
    orders = following(granted("a", epoch=1), granted("a", epoch=2, execution_id="e2"))

    assert () == orders.own_grants()


def test_a_removed_grant_is_gone_and_its_removal_restores_no_older_one() -> None:
    first, second = granted("a", epoch=1), granted("a", epoch=2)

    assert () == following(first, Removed(key=key_of(first))).own_grants()
    assert [2] == [grant.epoch for grant in following(first, second, Removed(key=key_of(first))).own_grants()]


def test_a_tombstone_of_something_else_is_no_matter() -> None:
    assert 1 == len(following(granted("a", epoch=1), Removed(key="locality/0"), EpochPut(epoch=9)).own_grants())


@pytest.mark.parametrize(
    ("phase", "given_up"),
    [
        (ContainerPhase.STARTED, False),
        (ContainerPhase.RUNNING, False),
        (ContainerPhase.STOPPED, False),
        (ContainerPhase.LOST, True),
        (ContainerPhase.FENCED, True),
    ],
)
def test_an_execution_is_given_up_once_it_is_lost_or_fenced(phase: ContainerPhase, given_up: bool) -> None:
    orders = following(ContainerPut(container=a_container("e1", phase=phase, reason="no heartbeat")))

    assert (given_up, "no heartbeat") == (orders.is_given_up, orders.reason)


def test_the_end_of_another_execution_does_not_count() -> None:
    assert not following(ContainerPut(container=a_container("e2", phase=ContainerPhase.LOST))).is_given_up


@pytest.mark.parametrize("before", [(), (ContainerPut(container=a_container("e1")),)], ids=["compacted", "whole"])
def test_an_execution_that_is_forgotten_was_given_up(before: tuple[Record, ...]) -> None:
    assert following(*before, Removed(key="container/e1")).is_given_up
    assert not following(*before, Removed(key="container/e2")).is_given_up


def test_following_continues_at_its_offset_and_knows_the_latest_term() -> None:
    before = following(a_term(1), granted("a", epoch=1))

    after = follow(before, [a_term(2), granted("b", epoch=2)], 9)

    assert after.term is not None
    assert (2, 9, ["a", "b"]) == (
        after.term.term,
        after.offset_next,
        [grant.task_name for grant in after.own_grants()],
    )
    assert ["a"] == [grant.task_name for grant in before.own_grants()]


def test_the_recorded_identity_of_each_input_is_known() -> None:
    orders = following(
        an_input("kafka.orders", "id-1"), an_input("kafka.refunds", "id-2"), an_input("kafka.orders", "id-3")
    )

    assert {
        SystemStream("kafka", "orders"): "id-3",
        SystemStream("kafka", "refunds"): "id-2",
    } == orders.input_topic_ids


def test_a_topic_that_takes_the_place_of_an_input_revokes_the_grants_of_the_earlier_one() -> None:
    before = following(granted("a", epoch=3), granted("b", epoch=4, ssp_kb="kafka.refunds.0:0/1"))
    replaced = replace(an_input("kafka.orders", "id-2"), epoch_before=4)

    after = follow(before, [replaced], 9)
    again = follow(after, [granted("a", epoch=5)], 10)

    assert ["b"] == [grant.task_name for grant in after.own_grants()]
    assert [("a", 5), ("b", 4)] == [(grant.task_name, grant.epoch) for grant in again.own_grants()]


def an_input(stream: str, topic_id: str) -> InputPut:
    return InputPut(
        system_stream=SystemStream.parse(stream), partition_count=1, partition_count_first=1, topic_id=topic_id
    )


# --- tasks that a plan takes away ---


REGISTERED = ContainerPut(container=a_container("e1", processor_id="0"))


def test_a_plan_that_gives_the_task_to_another_processor_takes_it_away() -> None:
    grants = (REGISTERED, granted("a", epoch=1), granted("b", epoch=2, ssp_kb="kafka.orders.1:0/1"))

    kept = following(*grants, *plan_in_force(2, a="0", b="1"))

    assert ["a"] == [grant.task_name for grant in kept.own_grants()]
    assert ["a", "b"] == [
        grant.task_name for grant in following(*grants, *plan_in_force(2, a="0", b="0")).own_grants()
    ]


def test_a_plan_without_the_task_takes_it_away_and_one_that_gives_it_back_does_so() -> None:
    orders = following(REGISTERED, granted("a", epoch=1), *plan_in_force(2, b="0"))
    assert () == orders.own_grants()

    orders = follow(orders, plan_in_force(3, a="0", b="0"), 99)

    assert ["a"] == [grant.task_name for grant in orders.own_grants()]


def a_startpoint_put(ssp_kb: str, epoch: int) -> StartpointPut:
    return StartpointPut(startpoint=Startpoint(ssp_kb=an_ssp_kb(ssp_kb), offset_next=0, epoch=epoch, uuid="u"))


@pytest.mark.parametrize(
    ("ssp_kb", "epoch", "own"),
    [
        ("kafka.orders.0:0/1", 3, ["b"]),
        ("kafka.orders.0:3/4", 3, ["b"]),
        ("kafka.orders.2:0/1", 3, ["a", "b"]),
        ("kafka.orders.0@a", 3, ["a", "b"]),
        # The grant is the newer one.
        ("kafka.orders.0:0/1", 1, ["a", "b"]),
    ],
)
def test_a_startpoint_takes_older_grants_of_its_messages_away(ssp_kb: str, epoch: int, own: list[str]) -> None:
    grants = (granted("a", epoch=2), granted("b", epoch=1, ssp_kb="kafka.orders.1:0/1"))

    orders = following(REGISTERED, *grants, a_startpoint_put(ssp_kb, epoch))

    assert own == [grant.task_name for grant in orders.own_grants()]
    # The next grant is left to it, with the startpoint and without.
    again = follow(orders, [granted("a", epoch=4)], 99)
    assert [("a", 4), ("b", 1)] == [(grant.task_name, grant.epoch) for grant in again.own_grants()]
    removed = follow(again, [Removed(key=key_of(a_startpoint_put(ssp_kb, epoch)))], 100)
    assert (again.own_grants(), {}) == (removed.own_grants(), removed.startpoints)


def test_a_plan_that_divides_the_task_differently_takes_it_away() -> None:
    *tasks, in_force = plan_in_force(2, a="0")
    recut = [replace(task, ssp_kbs=(an_ssp_kb("kafka.orders.0:0/2"),)) for task in tasks]

    assert () == following(REGISTERED, granted("a", epoch=1), *recut, in_force).own_grants()


def test_a_plan_that_is_not_in_force_takes_nothing_away() -> None:
    *tasks, _ = plan_in_force(3, a="1")

    orders = following(REGISTERED, granted("a", epoch=1), *plan_in_force(2, a="0"), *tasks)

    assert ["a"] == [grant.task_name for grant in orders.own_grants()]


def test_removed_tasks_of_an_old_plan_change_nothing() -> None:
    old = plan_in_force(2, a="1")

    orders = following(REGISTERED, granted("a", epoch=1), *old, *plan_in_force(3, a="0"), Removed(key=key_of(old[0])))

    assert ["a"] == [grant.task_name for grant in orders.own_grants()]
    assert {3} == {planned.generation for planned in orders.planned.values()}


def test_a_run_that_is_finished_and_not_over_is_an_order_to_stop() -> None:
    states = [(False, False), (True, False), (True, True)]
    runs = [RunPut(run_id="r", ended=ended, finished=finished) for finished, ended in states]

    assert [False, True, False] == [following(REGISTERED, run).is_finished for run in runs]
    assert not following(REGISTERED, *runs, RunPut(run_id="s", ended=False)).is_finished
    assert not following(REGISTERED).is_finished


def test_a_container_that_is_not_registered_waits_for_that_before_it_stops_for_a_finished_run() -> None:
    """Its earlier reports do not count; its next report may end the run."""
    finished = RunPut(run_id="r", ended=False, finished=True)

    assert [False, True] == [following(finished, *registered).is_finished for registered in ((), (REGISTERED,))]


def test_the_newest_end_of_an_input_counts() -> None:
    ends = [InputEndPut(ssp=an_ssp_kb().ssp, run_id=f"r{end}", offset_end=end) for end in (7, 9)]

    assert {an_ssp_kb().ssp: 9} == following(*ends).input_ends


# --- directories in use ---


def test_the_tasks_of_the_plan_in_force_are_in_use() -> None:
    orders = following(*plan_in_force(1, a="0", b="1"), *plan_in_force(2, b="1"))

    assert {"b"} == orders.tasks_in_use()


def test_a_task_that_left_the_plan_is_in_use_until_its_execution_released_it_or_is_gone() -> None:
    runs = ContainerPut(container=a_container("e2", phase=ContainerPhase.RUNNING))
    gone = ContainerPut(container=a_container("e2", phase=ContainerPhase.FENCED))
    lost = ContainerPut(container=a_container("e2", phase=ContainerPhase.LOST))
    has_a = granted("a", epoch=1, execution_id="e2")
    let_go = replace(has_a, grant=replace(has_a.grant, released=True))
    plan = plan_in_force(2, b="1")

    assert {"a", "b"} == following(runs, has_a, *plan).tasks_in_use()
    assert {"a", "b"} == following(runs, has_a, *plan, lost).tasks_in_use()
    assert {"b"} == following(runs, has_a, *plan, let_go).tasks_in_use()
    assert {"b"} == following(runs, has_a, *plan, gone).tasks_in_use()


def test_the_directories_in_use_are_unknown_before_there_is_a_plan() -> None:
    assert following(granted("a", epoch=1)).tasks_in_use() is None
