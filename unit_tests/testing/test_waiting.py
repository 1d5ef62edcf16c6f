from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from samzapy.errors import DeadlineError
from samzapy.testing import waiting
from samzapy.testing.waiting import wait_until


def answers(*given: object) -> Callable[[], object]:
    """A condition that gives these answers in turn, then the last one for ever."""
    remaining = list(given)
    return lambda: remaining.pop(0) if len(remaining) > 1 else remaining[0]


@pytest.mark.parametrize("given", [["yes"], [None, "yes"], [0, False, "", "yes"]])
def test_the_first_true_answer_is_returned(given: Sequence[object]) -> None:
    assert "yes" == wait_until(answers(*given), 10.0, "a yes", poll_interval_s=0.001)


def test_the_deadline_names_the_awaited_condition_and_the_last_answer() -> None:
    with pytest.raises(DeadlineError, match=r"Waited 0\.01 s for rain; the last answer was \[\]\."):
        wait_until(answers([]), 0.01, "rain", poll_interval_s=0.001)


def test_a_condition_is_asked_even_when_there_is_no_time() -> None:
    assert "now" == wait_until(answers("now"), 0.0, "now")


def test_an_error_of_the_condition_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, 10.0, "the impossible")


@pytest.mark.parametrize(("takes_s", "pause_s"), [(0.0, 0.05), (0.03, 0.12), (3.0, 0.5)])
def test_a_condition_that_takes_long_is_asked_less_often(
    monkeypatch: pytest.MonkeyPatch, takes_s: float, pause_s: float
) -> None:
    now_s, pauses_s = 0.0, []

    def pause(duration_s: float) -> None:
        pauses_s.append(duration_s)

    def condition() -> bool:
        nonlocal now_s
        now_s += takes_s
        return len(pauses_s) == 2

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=pause))

    assert wait_until(condition, 100.0, "two pauses")
    assert [pytest.approx(pause_s)] * 2 == pauses_s
