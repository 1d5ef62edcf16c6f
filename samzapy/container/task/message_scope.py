"""Finds handles that are used outside of their message.

A collector, a context and its stores act on the message in hand. Used later (by a thread, a callback, `close`), they
would act on another message or on none, and their outputs would be lost. So each handle belongs to one message. Once
`process` has returned, a handle that user code still refers to expires, and the next message gets new ones. In nearly
all cases there is no such reference, and the next message gets the same handles.

State and timers of a task class belong to the instance, so they have no message of their own. They reach the stores by
the thread that uses them: only the one that handles a message has any (`Threads.reach`).

A handle that is used after its message raises OutsideMessageError there. User code may swallow the error, as a thread
pool does, so the error is also kept here, and the task fails at its next commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn, Protocol

from samzapy.errors import OutsideMessageError
from samzapy.model.job import TaskName
from samzapy.model.reach import Reach, Stores

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


class Threads(Protocol):
    """The threads of the worker process."""

    def current(self) -> Thread: ...

    def reach(self, elsewhere: Stores) -> Reach:
        """A value of each thread, which begins with `elsewhere`."""
        ...


class MessageScope:
    """The thread that runs one task, and the first misuse of a handle.

    A misuse is a use outside of the handle's message.

    Attributes:
        stores: set by the owner of the stores.
        has_begun: whether a message was ever in hand.
    """

    def __init__(self, task_name: TaskName, threads: Threads) -> None:
        self._task_name = task_name
        self._current_thread = threads.current
        self._thread = threads.current()
        self._is_open = self.has_begun = False
        self.misuse = ""
        self.stores: Stores = {}
        self._elsewhere = _Elsewhere(self)
        self.reachable = threads.reach(self._elsewhere)

    def begin(self) -> None:
        """Let this thread handle messages."""
        self._thread, self._is_open, self.has_begun = self._current_thread(), True, True
        self.reachable.in_hand = self.stores

    def end(self) -> None:
        """Let no message be in hand."""
        self._is_open = False
        self.reachable.in_hand = self._elsewhere

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


class _Elsewhere:
    """The stores of a thread that handles no message."""

    def __init__(self, scope: MessageScope) -> None:
        self._scope = scope

    def __getitem__(self, name: str) -> NoReturn:
        self._scope.refuse(f"state or a timer (store {name})", self._place)

    def _place(self) -> str:
        return "its message" if self._scope.has_begun else in_init()
