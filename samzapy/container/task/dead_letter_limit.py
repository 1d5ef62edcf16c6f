"""Stops a job most of whose messages fail: its fault is in the job or in all of its input, not in single messages."""

from __future__ import annotations

from collections import deque

from samzapy.config import JobConfig


class DeadLetterBound:
    """Counts a task's dead letters among its last messages, in one worker process.

    A look costs nothing while messages are handled: they are counted anyway, and only a failed one is looked at.
    """

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        self._limit, self._window = config.dead_letter_limit, config.dead_letter_window
        # Their numbers among the task's messages; as many as end the job.
        self._failed: deque[int] = deque(maxlen=self._limit)

    def failed(self, number: int) -> str:
        """The task's message `number` failed; what is wrong when that was one too many, else empty."""
        self._failed.append(number)
        if len(self._failed) < self._limit or number - self._failed[0] >= self._window:
            return ""
        return (
            f"wanted fewer than {self._limit} of the task's last {self._window} messages to fail "
            f"(task.dead.letter.max={self._config.dead_letter_max}, task.dead.letter.window={self._window}), found "
            f"{self._limit}; correct the task or its input, or raise task.dead.letter.max"
        )
