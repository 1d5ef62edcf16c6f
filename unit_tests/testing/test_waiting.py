from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from samzapy.errors import DeadlineError
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
