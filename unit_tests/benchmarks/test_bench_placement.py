"""The figures that `scripts/bench placement` computes from its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from bench_placement import PLACEMENTS
from bench_placement_job import Runner, has_warm_standby, runner_of
from bench_placement_loss import DELETED, KEPT, STANDBY, Loss, loss_rows
from bench_placement_move import STOPPED, WARM, Move, move_rows, reached, runs_again_ms
from bench_report import PLACEMENT
from bench_scale_probe import Received, back_after_s

from samzapy.errors import SamzapyError

RUNNER = Runner(execution_id="e1", host="h1")


def a_container(execution_id: str = "e1", **fields: object) -> Mapping[str, object]:
    return {"executionId": execution_id, "host": "h1", "phase": "RUNNING", "standby": None, "warm": None, **fields}


def a_standby(**warmth: int) -> Mapping[str, object]:
    warm = {"tasks": 2, "level": 2, "lag": 0, "rehearsed": True, **warmth}
    return a_container("e2", host="h2", standby="0-0", warm=warm)


def a_status(*containers: Mapping[str, object], owners: tuple[str | None, ...] = ("e1", "e1")) -> Mapping[str, Any]:
    return {"containers": containers, "tasks": [{"owner": owner} for owner in owners]}


def a_move(kind: str = WARM, *silences_ms: float, reported_ms: int = 7) -> Move:
    return Move(kind=kind, silences_ms=silences_ms, reported_ms=reported_ms, took_s=30.0)


def a_loss(kind: str, *back_s: float) -> Loss:
    return Loss(kind=kind, back_s=back_s, identify_s=1.0)


def test_a_key_is_back_with_the_first_record_that_was_sent_after_the_kill() -> None:
    records = [Received(b"a", 0.9, 1.5), Received(b"a", 1.1, 5.0), Received(b"b", 1.2, 6.0), Received(b"a", 1.3, 7.0)]

    assert [4.0, 5.0] == back_after_s(records, [b"a", b"b"], 1.0)


def test_a_key_without_a_later_record_is_not_back() -> None:
    with pytest.raises(ValueError, match="found no record of 1, of b'b' too"):
        back_after_s([Received(b"a", 1.1, 5.0), Received(b"b", 0.9, 5.0)], [b"a", b"b"], 1.0)


def test_the_execution_that_owns_every_task_and_runs_is_the_runner() -> None:
    assert Runner(execution_id="e2", host="h1") == runner_of(
        a_status(a_container(), a_container("e2"), owners=("e2", "e2"))
    )


@pytest.mark.parametrize(
    "status",
    [
        {},
        a_status(a_container(), owners=("e1", None)),
        a_status(a_container(), a_container("e2"), owners=("e1", "e2")),
        a_status(a_container(phase="REGISTERED")),
    ],
)
def test_tasks_without_a_running_owner_count_as_not_running(status: Mapping[str, Any]) -> None:
    assert runner_of(status) is None


def test_a_standby_with_the_state_of_every_task_is_ready() -> None:
    assert has_warm_standby(a_status(a_container(), a_standby()), RUNNER)


@pytest.mark.parametrize(
    "behind", [a_standby(level=1), a_standby(tasks=1, level=1), a_standby(lag=50_001), a_standby(rehearsed=False)]
)
def test_a_standby_that_is_behind_is_not_ready(behind: Mapping[str, object]) -> None:
    assert not has_warm_standby(a_status(a_container(), behind), RUNNER)


def test_a_standby_that_took_over_is_not_its_own_standby() -> None:
    assert not has_warm_standby(a_status(a_standby(), owners=("e2", "e2")), Runner(execution_id="e2", host="h2"))


def test_the_pause_is_in_the_answer() -> None:
    text = "SUCCEEDED: 4 tasks of processor 0 run in e2 on h2; their query runs again after 1234 ms"

    assert 1234 == runs_again_ms(text)


def test_an_answer_without_a_pause_is_refused() -> None:
    with pytest.raises(SamzapyError, match="wanted an answer with .*found SUCCEEDED: done"):
        runs_again_ms("SUCCEEDED: done")


def test_a_row_of_moves_is_of_all_keys_of_its_kind() -> None:
    moves = [
        a_move(WARM, 100.0, 200.0),
        a_move(STOPPED, 9000.0, reported_ms=8000),
        a_move(WARM, 300.0, reported_ms=9),
    ]

    assert [
        (WARM, "2", "200", "**300**", "300", "200, 300", "8", "9", "30"),
        (STOPPED, "1", "9000", "**9000**", "9000", "9000", "8000", "8000", "30"),
    ] == move_rows(moves)


def test_the_goal_is_to_be_reached_with_a_warm_reserve() -> None:
    stopped = a_move(STOPPED, 9000.0)

    assert reached([a_move(WARM, 3000.0), stopped]).endswith("found 3.0 s: pass.")
    assert reached([a_move(WARM, 3001.0), stopped]).endswith("**fail**.")


def test_every_kill_of_a_kind_must_reach_its_goal_with_its_last_key() -> None:
    losses = [
        *(a_loss(KEPT, 1.0, 20.0), a_loss(KEPT, 2.0, 10.0), a_loss(KEPT, 3.0, 12.0)),
        *(a_loss(DELETED, 60.1), a_loss(DELETED, 30.0)),
        a_loss(STANDBY, 11.0),
    ]

    assert [
        (KEPT, "<= 20", "**12.0**", "10.0, 12.0, 20.0", "pass", "1.00"),
        (DELETED, "<= 60", "**45.0**", "30.0, 60.1", "**fail**", "1.00"),
        (STANDBY, "<= 12", "**11.0**", "11.0", "pass", "1.00"),
    ] == loss_rows(losses)


def test_the_page_has_a_place_for_each_part() -> None:
    assert tuple(PLACEMENTS) == PLACEMENT
