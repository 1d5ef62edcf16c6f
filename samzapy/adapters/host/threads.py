"""The threads of this process, as the scope of messages asks for them."""

from __future__ import annotations

import threading

from samzapy.model.reach import Stores


class HostThreads:
    """A `container.task.message_scope.Threads`."""

    def current(self) -> threading.Thread:
        return threading.current_thread()

    def reach(self, elsewhere: Stores) -> ThreadReach:
        return ThreadReach(elsewhere)


class ThreadReach(threading.local):
    """A `model.reach.Reach` whose stores belong to the thread that set them."""

    def __init__(self, elsewhere: Stores) -> None:
        """Each thread that comes begins with `elsewhere`."""
        self.in_hand = elsewhere
