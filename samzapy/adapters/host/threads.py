"""The threads of this process, as the scope of messages asks for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any


class HostThreads:
    """A `container.task.message_scope.Threads`."""

    def current(self) -> threading.Thread:
        return threading.current_thread()

    def reach(self, elsewhere: Mapping[str, Any]) -> ThreadReach:
        return ThreadReach(elsewhere)


class ThreadReach(threading.local):
    """The stores that the state of a task class acts on, for the current thread.

    Attributes:
        in_hand: those of the task while this thread handles a message; at other times a mapping that refuses.
    """

    def __init__(self, elsewhere: Mapping[str, Any]) -> None:
        """Each thread that comes begins with `elsewhere`."""
        self.in_hand = elsewhere
