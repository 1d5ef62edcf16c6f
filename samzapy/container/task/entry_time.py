"""The time by which the entries of a state with a ttl expire.

Theory. In event time each call has a moment of its own: a message its event time, a timer the moment that it was set
for. What has expired for a call follows from that moment, and so from the messages of its key alone. Which other keys
share the task does not matter, nor does the moment at which an entry is removed: it is removed once the watermark has
passed its expiry, and a call comes before the watermark only if it is late. One that is late acts at the watermark, so
that it never sees an entry that may be removed. A window and `end_of_stream` have no moment, and act at the watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samzapy.container.task.clocks import END_MS, UNKNOWN_MS, TaskClocks
from samzapy.container.task.stores import TaskState
from samzapy.model.timer_entry import Domain
from samzapy.state import ExpiryClock
from samzapy.task import ProcessFunction


class HostExpiry:
    """The host's clock, for a task that does not go by event time.

    An `ExpiryClock`.
    """

    domain = Domain.PROCESSING

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms

    def expired_ms(self, domain: Domain) -> int:
        return self._wall_ms()

    def written_ms(self) -> int:
        return self._wall_ms()


class EntryTime:
    """The moment of the call in hand, in a task that goes by event time.

    An `ExpiryClock`.
    """

    domain = Domain.EXPIRY

    def __init__(self, clocks: TaskClocks, state: TaskState, wall_ms: Callable[[], int]) -> None:
        self._clocks = clocks
        self._state = state
        self._wall_ms = wall_ms
        # Of the call in hand; None for one that acts at the watermark.
        self._acts_at_ms: int | None = None
        # In the handler of a timer in event time: a timer that it sets to an earlier moment is late. None elsewhere.
        self._late_before_ms: int | None = None
        # When a timer was last set to a moment that was past: the moment at which that call acted.
        self._set_late_at_ms = UNKNOWN_MS

    def acting(self, process: ProcessFunction, time_of: Callable[[Any], int] | None) -> ProcessFunction:
        """`process`, which acts at the time of its message.

        Args:
            time_of: None for messages whose time does not count; they act at the watermark.
        """
        if not self._state.declared.has_ttl:
            return process

        def act(message: Any, *handles: Any) -> None:
            self._late_before_ms = None
            self._acts_at_ms = None if time_of is None else max(time_of(message), self._watermark_ms())
            process(message, *handles)

        return act

    def act_at(self, moment_ms: int | None) -> None:
        """Let a timer act at the moment in event time that it was set for.

        Args:
            moment_ms: None for a call that has no such moment.
        """
        self._acts_at_ms = None if moment_ms is None else max(moment_ms, self._set_late_at_ms)
        self._late_before_ms = self._acts_at_ms

    def note_timer(self, moment_ms: int) -> None:
        """Note that a timer in event time is about to be set.

        One that is past fires next. It acts at the moment of the call that sets it, and so does no other one:

        - Of a message, a window or a timer of the host's clock, that moment is the watermark. No timer in event time is
          due then, so those that follow were set for later moments.
        - In the handler of a timer in event time, others may be due. They were set for its moment or later, wherever
          the watermark is.
        """
        if self._late_before_ms is not None:
            if moment_ms < self._late_before_ms:
                self._set_late_at_ms = self._late_before_ms
        elif moment_ms <= self._clocks.watermark_ms:
            self._set_late_at_ms = self._clocks.watermark_ms

    def expired_ms(self, domain: Domain) -> int:
        if domain is not self.domain:
            return self._wall_ms()
        return self._watermark_ms() if self._acts_at_ms is None else self._acts_at_ms

    def written_ms(self) -> int:
        time_ms = self.expired_ms(self.domain)
        # Without a watermark: later than any event time, so that the entry goes, but not too early.
        return self._wall_ms() if time_ms == UNKNOWN_MS else time_ms

    def _watermark_ms(self) -> int:
        """The watermark for the key in hand.

        It is the one before the end where the inputs have ended.
        """
        watermark_ms = self._clocks.watermark_of(self._state.message_key)
        if watermark_ms == END_MS:
            return self._clocks.before_end_ms
        return UNKNOWN_MS if watermark_ms is None else watermark_ms


def _kept_protocols(host: HostExpiry, event: EntryTime) -> tuple[ExpiryClock, ExpiryClock]:
    """Let mypy check that the clocks keep the protocol of `samzapy.state`."""
    return host, event
