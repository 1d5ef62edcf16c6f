"""How long questions wait for a cluster that does not answer.

A question has a deadline of its own (`QuestionWait`). A command asks several, over several clients. Its `CommandWait`
replaces their deadlines, so that a dead cluster ends the command after one deadline, and not after several in a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType

from confluent_kafka import KafkaError

from samzapy.adapters.kafka.errors import reported
from samzapy.errors import TemporaryError

NOTICE_AFTER_S = 2.0
_TRY_LEAST_S = 0.1
_LAST_CHANCE_S = 1.0


class QuestionWait:
    """The wait for the answer to one question."""

    def __init__(self, deadline_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.deadline_s = deadline_s
        self._clock = clock
        self._began_s = clock()

    def __enter__(self) -> None:
        """Begin the wait."""
        self._began_s = self._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the wait.

        A TemporaryError says that no broker answered. Every other end is an answer.
        """

    @property
    def waited_s(self) -> float:
        return self._clock() - self._began_s

    @property
    def is_over(self) -> bool:
        return self.waited_s >= self.deadline_s

    def try_s(self, wanted_s: float) -> float:
        """The time of the next try of the question, `wanted_s` at most."""
        return min(wanted_s, self.deadline_s)

    def remind(self, servers: str, events: Callable[[], Iterable[KafkaError]], waited_s: float | None = None) -> None:
        """Tell the operator that no broker answers, where an operator waits.

        Args:
            waited_s: since when, if another clock than that of the question counts.
        """


class CommandWait(QuestionWait):
    """The wait of one command, common to all its questions.

    The time runs from the start of the command, on through questions without an answer. An answer ends it, and the next
    question begins it anew.

    Args:
        say: shows a line to the operator, once, after two seconds without an answer.
        began_s: when the process of the command began, by `clock`; None: the time runs from the first question.
        is_for_first_answer: only the first question has this wait, and later ones have their own deadlines.
    """

    def __init__(
        self,
        deadline_s: float,
        say: Callable[[str], None],
        *,
        began_s: float | None = None,
        is_for_first_answer: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(deadline_s, clock)
        self._say = say
        self._command_began_s = began_s
        self._is_for_first_answer = is_for_first_answer
        self._is_running = False
        self._has_said = False
        self.is_done = False

    def __enter__(self) -> None:
        if not self._is_running:
            self.restart()
            if self._command_began_s is not None:
                self._began_s, self._command_began_s = self._command_began_s, None
        # After the time is over, a broker of another partition may still answer.
        chance_s = min(_LAST_CHANCE_S, self.deadline_s)
        self._began_s = max(self._began_s, self._clock() - self.deadline_s + chance_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, TemporaryError):
            self._is_running = False
            self.is_done = self._is_for_first_answer

    def restart(self) -> None:
        """Begin the time anew, for a command that goes on without an answer."""
        self._is_running, self._began_s = True, self._clock()

    @property
    def is_over(self) -> bool:
        return self.waited_s >= self.deadline_s - _TRY_LEAST_S / 2

    def try_s(self, wanted_s: float) -> float:
        """A try ends when the operator must be told, and when the time is over."""
        waited_s = self.waited_s
        notice_at_s = self.deadline_s if self._has_said else NOTICE_AFTER_S
        return max(min(wanted_s, notice_at_s - waited_s, self.deadline_s - waited_s), _TRY_LEAST_S)

    def remind(self, servers: str, events: Callable[[], Iterable[KafkaError]], waited_s: float | None = None) -> None:
        waited_s = self.waited_s if waited_s is None else waited_s
        if waited_s < NOTICE_AFTER_S or self._has_said:
            return
        self._has_said = True
        self._say(
            f"waiting for a broker of {servers}, which has not answered for {waited_s:.0f} s: {reported(events())}; "
            f"gives up after {self.deadline_s:g} s"
        )
