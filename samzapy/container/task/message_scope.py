"""Finds handles that are used outside of their message.

A collector, a context and its stores act on the message in hand. Used later (by a thread, a callback, `close`), they
would act on another message or on none, and their outputs would be lost. So each handle belongs to one message. Once
`process` has returned, a handle that user code still refers to expires, and the next message gets new ones. In nearly
all cases there is no such reference, and the next message gets the same handles.

A handle that is used after its message raises OutsideMessageError there. User code may swallow the error, as a thread
pool does, so the error is also kept here, and the task fails at its next commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn, Protocol

from samzapy.errors import OutsideMessageError
from samzapy.model.job import TaskName

_LOG = logging.getLogger(__name__)
Place = Callable[[], str]
"""Names a message, for an error."""


def in_init() -> str:
    """The place of handles that `init` got: they act on the message in hand."""
    return "init"


class Thread(Protocol):
    """A thread of the worker process."""

    @property
    def name(self) -> str: ...


class MessageScope:
    """The thread that runs one task, and the first misuse of a handle.

    A misuse is a use outside of the handle's message.
    """

    def __init__(self, task_name: TaskName, current_thread: Callable[[], Thread]) -> None:
        self._task_name = task_name
        self._current_thread = current_thread
        self._thread = current_thread()
        self._is_open = False
        self.misuse = ""

    def begin(self) -> None:
        """Let this thread handle messages."""
        self._thread, self._is_open = self._current_thread(), True

    def end(self) -> None:
        """Let no message be in hand."""
        self._is_open = False

    def is_own_thread(self) -> bool:
        """Whether this is the thread that runs user code."""
        return self._current_thread() is self._thread

    def is_in_hand(self) -> bool:
        """Whether a message is in hand, and this is the thread that handles it."""
        return self._is_open and self.is_own_thread()

    def refuse(self, call: str, place: Place) -> NoReturn:
        """Raise OutsideMessageError for a call after its message.

        Args:
            place: the message that the handle was for.
        """
        text = (
            f"task {self._task_name}: wanted {call} to be called only while process handles its message, found it "
            f"called after {place()}, in thread {self._current_thread().name}; let process wait for its threads "
            "and callbacks, and use the collector and the context that process was called with"
        )
        if not self.misuse:
            self.misuse = text
            _LOG.error("%s", text)
        raise OutsideMessageError(text)
