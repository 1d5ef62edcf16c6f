"""The decisions of `scripts/chaos --cluster`: next fault, whole job, late writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from integration_tests.chaos_plan import KINDS, Seat, Whole, Written, disturbed, plan_of, whole_of, zombie_writes


def a_container(name: str, processor_id: str, host: str = "w1", **fields: object) -> Mapping[str, Any]:
    return {
        "executionId": name,
        "processorId": processor_id,
        "host": host,
        "phase": "RUNNING",
        "standby": None,
        "warm": None,
        "heartbeatAgeMs": 300,
        **fields,
    }


def a_standby(**warm: object) -> Mapping[str, Any]:
    return a_container("s0", "0", "w2", standby="0-0", warm={"tasks": 1, "level": 1, "lag": 9, **warm})


def a_status(**fields: object) -> dict[str, Any]:
    """Of a job of two containers and a standby that lacks nothing."""
    return {
        "term": 3,
        "containers": [a_container("e0", "0"), a_container("e1", "1", "w3"), a_standby()],
        "tasks": [{"processorId": "0", "owner": "e0"}, {"processorId": "1", "owner": "e1"}],
        "totals": {"lag": 40},
        **fields,
    }


def wholeness(status: Mapping[str, Any] | None) -> Whole | str:
    return whole_of(status, containers=2, standbys=1, lag_max=100)


def a_whole(**executions: str) -> Whole:
    runners = {
        name.removeprefix("p"): Seat(processor_id=name.removeprefix("p"), execution_id=execution_id, host="w1")
        for name, execution_id in executions.items()
    }
    return Whole(runners=runners, standbys={}, term=1)


def test_one_pass_has_each_kind_once() -> None:
    assert sorted(KINDS) == sorted(plan_of(7, len(KINDS)))


def test_each_pass_has_an_order_of_its_own_and_so_has_each_seed() -> None:
    count = len(KINDS)
    two_passes = plan_of(7, 2 * count)

    assert sorted(two_passes[:count]) == sorted(two_passes[count:])
    assert two_passes[:count] != two_passes[count:]
    assert plan_of(8, count) != plan_of(7, count)


def test_a_seed_gives_the_same_plan_each_time_in_whatever_order_kinds_are_listed() -> None:
    assert plan_of(7, 25) == plan_of(7, 25, list(reversed(KINDS)))
    assert plan_of(7, 25)[:4] == plan_of(7, 4)


def test_only_the_kinds_that_are_asked_for_come() -> None:
    assert ("zombie",) * 3 == plan_of(1, 3, ["zombie"])
    assert () == plan_of(1, 3, [])


def test_a_job_that_lacks_nothing_is_whole() -> None:
    whole = wholeness(a_status())

    assert isinstance(whole, Whole)
    assert {"0": "e0", "1": "e1"} == {name: seat.execution_id for name, seat in whole.runners.items()}
    assert {"0": Seat(processor_id="0", execution_id="s0", host="w2")} == whole.standbys
    assert 3 == whole.term


@pytest.mark.parametrize(
    ("status", "lacks"),
    [
        (None, "no leader answers"),
        (a_status(tasks=[{"processorId": "0", "owner": None}]), "a task that no container runs"),
        (a_status(tasks=[]), "a task that no container runs"),
        (a_status(tasks=[{"processorId": "0", "owner": "gone"}]), "a task that no container runs"),
        (a_status(tasks=[{"processorId": "0", "owner": "e0"}]), "1 containers that run tasks, not 2"),
        (
            a_status(containers=[a_container("e0", "0", heartbeatAgeMs=6000), a_container("e1", "1"), a_standby()]),
            "nothing heard of e0",
        ),
        (
            a_status(containers=[a_container("e0", "0"), a_container("e1", "1", heartbeatAgeMs=None), a_standby()]),
            "nothing heard of e1",
        ),
        (
            a_status(containers=[a_container("e0", "0", phase="STARTED"), a_container("e1", "1"), a_standby()]),
            "an owner that is STARTED",
        ),
        (
            a_status(containers=[a_container("e0", "0"), a_container("e1", "1")]),
            "0 containers beside those, not 1",
        ),
        (
            a_status(containers=[a_container("e0", "0"), a_container("e1", "1"), a_standby(level=0)]),
            "s0 is not ready to take over",
        ),
        (
            a_status(containers=[a_container("e0", "0"), a_container("e1", "1"), a_standby(rehearsed=False)]),
            "s0 is not ready to take over",
        ),
        (
            a_status(containers=[a_container("e0", "0"), a_container("e1", "1"), a_container("e2", "1")]),
            "e2 is not ready to take over",
        ),
        (a_status(totals={"lag": 101}), "a lag of 101, not 100 at most"),
        (a_status(totals={"lag": None}), "a lag of None, not 100 at most"),
    ],
)
def test_the_missing_parts_of_a_job_are_reported(status: Mapping[str, Any] | None, lacks: str) -> None:
    assert lacks == wholeness(status)


def test_a_container_that_was_not_hit_and_was_replaced_all_the_same_is_named() -> None:
    before = a_whole(p0="e0", p1="e1", p2="e2")

    assert ["2"] == disturbed(before, a_whole(p0="e0", p1="e1-new", p2="e2-new"), ["e1"])
    assert [] == disturbed(before, before, [])


def test_a_commit_of_a_fenced_execution_is_a_violation() -> None:
    written = [
        Written(at=4, execution_id="e0", position="checkpoint/a"),
        Written(at=5, execution_id="e0", position="checkpoint/b"),
        Written(at=6, execution_id="e1", position="checkpoint/c"),
    ]

    (violation,) = zombie_writes(written, {"e0": 5, "e1": 7})

    assert "Z" == violation.rule
    assert violation.text.startswith("checkpoint/b at 5 is of e0")
