"""Whether what a task was handed is used for the message that it was handed for.

A collector, a context and its stores act on the message in hand. Used later (by a thread, a callback, `close`), they
would act on another message, or on none, and what was sent would be lost. So each of them is of one message: once
`process` has returned, a handle that something still refers to is expired, and the next message gets new ones.
Where nothing refers to a handle any more, the next message gets the same one; that is nearly always so.

A handle that is used after its message raises OutsideMessageError there. User code may swallow that, as a thread pool
does, so it is also kept here, and the task fails at its next commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn, Protocol

from samzapy.errors import OutsideMessageError
from samzapy.model.job import TaskName

_LOG = logging.getLogger(__name__)
Place = Callable[[], str]
"""Says which message it was, for an error."""


def in_init() -> str:
    """The place of handles that `init` got: they act on whichever message is in hand."""
    return "init"


class Thread(Protocol):
    """A thread of the worker process."""

    @property
    def name(self) -> str: ...


class MessageScope:
    """Of one task: the thread that runs `process`, and the first use of a handle outside of its message."""

    def __init__(self, task_name: TaskName, current_thread: Callable[[], Thread]) -> None:
        self._task_name = task_name
        self._current_thread = current_thread
        self._thread = current_thread()
        self._is_open = False
        self.misuse = ""

    def begin(self) -> None:
        """From now on this thread handles messages."""
        self._thread, self._is_open = self._current_thread(), True

    def end(self) -> None:
        """No message is in hand."""
        self._is_open = False

    def is_own_thread(self) -> bool:
        """Whether this is the thread that runs user code."""
        return self._current_thread() is self._thread

    def is_in_hand(self) -> bool:
        """Whether a message is in hand, and this is the thread that handles it."""
        return self._is_open and self.is_own_thread()

    def refuse(self, what: str, place: Place) -> NoReturn:
        """Raise OutsideMessageError for a use of `what`, a handle of the message at `place`."""
        text = (
            f"task {self._task_name}: wanted {what} to be called only while process handles its message, found it "
            f"called after {place()}, in thread {self._current_thread().name}; let process wait for its threads "
            "and callbacks, and use the collector and the context that process was called with"
        )
        if not self.misuse:
            self.misuse = text
            _LOG.error("%s", text)
        raise OutsideMessageError(text)
