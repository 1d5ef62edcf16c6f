"""Stops a job most of whose messages fail.

The fault is then in the job or in its input, not in single messages.
"""

from __future__ import annotations

from collections import deque

from samzapy.config import JobConfig


class DeadLetterLimit:
    """Counts a task's dead letters among its last messages, in one worker process.

    It costs nothing while messages succeed: they are counted anyway, and this looks at failed ones only.
    """

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        self._limit, self._window = config.dead_letter_limit, config.dead_letter_window
        # The numbers of failed messages among the task's; at most as many as end the job.
        self._failed: deque[int] = deque(maxlen=self._limit)

    def failed(self, number: int) -> str:
        """Count a failed message; returns the error when it is one too many, else "".

        Args:
            number: the message's number among those of the task.
        """
        self._failed.append(number)
        if len(self._failed) < self._limit or number - self._failed[0] >= self._window:
            return ""
        return (
            f"wanted fewer than {self._limit} of the task's last {self._window} messages to fail "
            f"(task.dead.letter.max={self._config.dead_letter_max}, task.dead.letter.window={self._window}), found "
            f"{self._limit}; correct the task or its input, or raise task.dead.letter.max"
        )
