"""Wait for a condition, with a deadline; tests do this instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from samzapy.errors import DeadlineError

T = TypeVar("T")
_PAUSE_PER_ASKING = 4
_PAUSE_MAX_S = 0.5


def wait_until(
    condition: Callable[[], T | None], deadline_s: float, what: str, *, poll_interval_s: float = 0.05
) -> T:
    """Asks `condition` until it answers with something true, and returns that answer.

    Args:
        condition: asked at once, then every `poll_interval_s`, and once more when the time is up. An error that it
            raises is not caught: a condition that breaks should not look like one that is late.
        deadline_s: how long to wait altogether.
        what: the awaited condition, to complete "waited 5 s for ...".
        poll_interval_s: the least pause. After a condition that takes long the pause is longer, half a second at most:
            a test that reads a topic each time would else keep the broker from the work it waits for.

    Raises:
        DeadlineError: names the condition and the last answer.
    """
    give_up_at = time.monotonic() + deadline_s
    while True:
        asked_at = time.monotonic()
        last_chance = asked_at >= give_up_at
        answer = condition()
        if answer:
            return answer
        if last_chance:
            raise DeadlineError(f"Waited {deadline_s:g} s for {what}; the last answer was {answer!r}.")
        took_s = time.monotonic() - asked_at
        time.sleep(max(poll_interval_s, min(_PAUSE_PER_ASKING * took_s, _PAUSE_MAX_S)))
