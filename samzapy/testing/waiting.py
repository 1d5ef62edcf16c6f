"""Wait for a condition, with a deadline; tests do this instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from samzapy.errors import DeadlineError

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None], deadline_s: float, what: str, *, poll_interval_s: float = 0.05
) -> T:
    """Asks `condition` until it answers with something true, and returns that answer.

    Args:
        condition: asked at once, then every `poll_interval_s`, and once more when the time is up. An error that it
            raises is not caught: a condition that breaks should not look like one that is late.
        deadline_s: how long to wait altogether.
        what: the awaited condition, to complete "waited 5 s for ...".

    Raises:
        DeadlineError: names the condition and the last answer.
    """
    give_up_at = time.monotonic() + deadline_s
    while True:
        last_chance = time.monotonic() >= give_up_at
        answer = condition()
        if answer:
            return answer
        if last_chance:
            raise DeadlineError(f"Waited {deadline_s:g} s for {what}; the last answer was {answer!r}.")
        time.sleep(poll_interval_s)
