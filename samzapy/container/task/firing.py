"""Fires the timers of a task, and has its window called.

Theory. A timer is an entry of the store `_timers`. It fires in the transaction that removes the entry, so it fires once
with its outputs and writes, or not at all. The timers that are due are always looked up from the first one on, through
what the transaction has written: a handler may set and clear timers, and a timer may be set to a moment that is past.

Entries of a state with a ttl are removed by timers, too. Those that expire in event time go when no timer of the task
is due any more, so that each timer finds the entries that had not expired at its moment (`entry_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from samzapy.container.task.clocks import END_MS, FAR_MS, removal_of
from samzapy.container.task.event_time import EventTime
from samzapy.container.task.message_scope import MessageScope
from samzapy.container.task.ports import CrashPoints, LocalTransaction
from samzapy.container.task.ports import TaskEnvironment as Environment
from samzapy.container.task.timer_calls import Row, TimerCalls
from samzapy.container.task.transaction import Handled, Transaction
from samzapy.container.task.user_calls import TimedCall, UserCalls
from samzapy.container.task.window_ticks import WindowTicks
from samzapy.model.timer_entry import STORE, Domain

_PAGE: Final = 100
FIRE_S: Final = 2.0
"""After so long the loop leaves the rest to the next one, so that a drain need not wait for a million timers."""


class Timers:
    """The timers of one task, and its window.

    Attributes:
        calls: the handlers of timers, and how they are called.
        end_of_stream: what is called at the end of bounded inputs.
        event_time: the clocks of a task that keeps event time.
        next_ms: the next moment at which one is due, None without any; only right while it `is_known`. Event time does
            not count.
        next_expiry_ms: the first moment in event time at which an entry expires; `FAR_MS` without any.
        pending: how many entries the store of timers has; only right while it `is_known`.
        has_timers: whether the task sets timers; else it has a window only.
        is_known: whether this process knows the next moment. Each micro-batch begins without: another worker may have
            served the task since the last one that this process served.
    """

    def __init__(
        self,
        calls: UserCalls,
        scope: MessageScope,
        crash_points: CrashPoints,
        *,
        has_timers: bool,
        window: WindowTicks | None,
        event_time: EventTime | None = None,
    ) -> None:
        """Know no next moment yet."""
        self.calls = TimerCalls(calls, crash_points, event_time)
        self.end_of_stream: Callable[[Any], None] | None = None
        self.window = window
        self.event_time = event_time
        self.next_ms: int | None = None
        self.next_expiry_ms = FAR_MS
        self.pending = 0
        self.has_timers = has_timers
        self.is_known = False
        self._calls = calls
        self._state = calls.state
        self._limits = calls.limits
        self._scope = scope

    def look(self, environment: Environment) -> int | None:
        """The next moment at which a timer is due; None without any."""
        if not self.is_known:
            local = environment.begin()
            try:
                self.begin(local)
            finally:
                local.abort()
        return self.next_ms

    def is_due(self, environment: Environment) -> bool:
        """Whether a timer is due now, or entries are to be removed."""
        next_ms = self.look(environment)
        if (next_ms is not None and next_ms <= self._limits.wall_ms()) or self.is_event_due:
            return True
        # Expired entries are removed without a message, too.
        return self._expires_in_event_time and removal_of(self.next_expiry_ms) <= self._removable_ms()

    @property
    def is_event_due(self) -> bool:
        """Whether a timer in event time is due."""
        return self.event_time is not None and self.event_time.clocks.is_due

    @property
    def _expires_in_event_time(self) -> bool:
        return self.event_time is not None and self._state.declared.goes_by_event_time

    def _removable_ms(self) -> int:
        """The moment up to which entries that expire in event time may be removed.

        They go by the host's clock where the task has stopped to go by event time.
        """
        if self.event_time is None or not self._expires_in_event_time:
            return self._limits.wall_ms()
        clocks = self.event_time.clocks
        return clocks.before_end_ms if clocks.watermark_ms == END_MS else clocks.watermark_ms

    def begin(self, local: LocalTransaction) -> None:
        """Read what another worker may have changed, when a transaction begins."""
        if self.event_time is not None:
            self.event_time.begin(local)
        if not self.is_known:
            self.note_next(local)

    def fire(self, transaction: Transaction, handled: Handled, must_end: Callable[[], bool]) -> bool:
        """Fire the timers that are due, and call the window.

        Ends early when the transaction is full, or the loop must end.

        Args:
            handled: the counts to which the outputs are added.

        Returns:
            False if timers may be left that are due.

        Raises:
            MessageFailed: a handler failed, and the error policy ends the batch.
        """
        self._state.local, self._state.is_broadcast = transaction.local, False
        until_s = self._limits.now_s() + FIRE_S
        self._scope.begin()
        try:
            if not self._fire_due(transaction, handled, until_s, must_end):
                return False
            self._act_at(None)
            if self.window is None or not self.window.do(transaction, handled):
                return True
            # The window may have set some.
            return self._fire_due(transaction, handled, until_s, must_end)
        finally:
            self._scope.end()

    def fire_events(self, transaction: Transaction, handled: Handled, must_end: Callable[[], bool]) -> bool:
        """Fire the timers in event time that a message has made due, as `fire`."""
        self._state.is_broadcast = False
        self._scope.begin()
        try:
            return self._fire_events(transaction, handled, self._limits.now_s() + FIRE_S, must_end)
        finally:
            self._scope.end()

    def end(self, transaction: Transaction, handled: Handled) -> None:
        """Call `end_of_stream`, once.

        Raises:
            MessageFailed: it failed, and the error policy ends the batch.
        """
        handler, event_time, state = self.end_of_stream, self.event_time, self._state
        assert handler is not None and event_time is not None
        state.local, state.is_broadcast = transaction.local, False
        self._act_at(None)

        def call(out: Any) -> None:
            with state.keys.walking():
                handler(out)

        timed = TimedCall(
            call=call,
            note=event_time.clocks.end,
            place=lambda: "end_of_stream",
            key=None,
            headers=(("end_of_stream", b""),),
        )
        self._scope.begin()
        try:
            self._calls.make(timed, transaction, handled)
        finally:
            self._scope.end()

    def _fire_due(
        self, transaction: Transaction, handled: Handled, until_s: float, must_end: Callable[[], bool]
    ) -> bool:
        """Fire the timers that are due, and remove expired entries.

        Returns False if some may be left.
        """
        if not self.has_timers:
            return True
        # A timer of the host's clock acts at the watermark, so those in event time up to there come first.
        if self.is_event_due and not self._fire_events(transaction, handled, until_s, must_end):
            return False
        until_ms = self._limits.wall_ms()
        is_done = self._fire_domain(
            Domain.PROCESSING, until_ms, transaction, handled, until_s, must_end
        ) and self._fire_events(transaction, handled, until_s, must_end)
        if not is_done or self.next_expiry_ms > self._removable_ms():
            return is_done
        is_done = self._fire_domain(Domain.EXPIRY, self._removable_ms(), transaction, handled, until_s, must_end)
        self._note_next_expiry(transaction.local)
        return is_done

    def _fire_events(
        self, transaction: Transaction, handled: Handled, until_s: float, must_end: Callable[[], bool]
    ) -> bool:
        """Fire the timers in event time up to the watermark; False if some may be left."""
        if self.event_time is None or not self.has_timers:
            return True
        watermark_ms = self.event_time.clocks.watermark_ms
        is_done = self._fire_domain(Domain.EVENT, watermark_ms, transaction, handled, until_s, must_end)
        self._note_next_event(transaction.local)
        return is_done

    def _fire_domain(
        self,
        domain: Domain,
        until_ms: int,
        transaction: Transaction,
        handled: Handled,
        until_s: float,
        must_end: Callable[[], bool],
    ) -> bool:
        may_go_on = are_left = True
        while may_go_on and are_left:
            rows = self._state.due_timers(transaction.local, domain, until_ms, _PAGE)
            if not rows:
                break
            done, may_go_on = self.calls.fire_page(domain, rows, transaction, handled, until_s, must_end)
            self._remove_fired(rows, transaction.local)
            # A handler may have set one that is due. A page looks at the limits of the transaction after each timer, so
            # one that is due again and again ends there, too.
            are_left = len(rows) == _PAGE or done < len(rows) or bool(self._state.timers_to_write)
        return may_go_on

    def _remove_fired(self, rows: Sequence[Row], local: LocalTransaction) -> None:
        """Remove the entries of timers that have fired, all at once.

        That is several times as fast as one by one.
        """
        written = self._state.written(STORE)
        local.remove_due(STORE, [row for row in rows if written.get(row[1], b"") is None])

    def note_next(self, local: LocalTransaction) -> None:
        """Note the next moment, when a transaction is about to be committed."""
        first = self._state.due_timers(local, Domain.PROCESSING, None, 1) if self.has_timers else ()
        self.pending = local.size(STORE).entries if self.has_timers else 0
        moments = [moment_ms for moment_ms, _, _ in first]
        if self.window is not None:
            moments.append(self.window.next_ms(local))
        self._note_next_event(local)
        # The first look tells whether an earlier form of the task has left any.
        if self._state.declared.has_ttl or self.next_expiry_ms != FAR_MS or not self.is_known:
            self._note_next_expiry(local)
        if not self._expires_in_event_time and self.next_expiry_ms != FAR_MS:
            # A moment before 1970 is no moment of a report.
            moments.append(max(0, self.next_expiry_ms))
        self.next_ms, self.is_known = min(moments, default=None), True

    def _note_next_event(self, local: LocalTransaction) -> None:
        if self.event_time is not None and self.has_timers:
            self.event_time.note_next_due(local)

    def _note_next_expiry(self, local: LocalTransaction) -> None:
        first = self._state.due_timers(local, Domain.EXPIRY, None, 1) if self.has_timers else ()
        self.next_expiry_ms = first[0][0] if first else FAR_MS
        if self.event_time is not None and self._expires_in_event_time:
            self.event_time.clocks.next_expiry_ms = self.next_expiry_ms

    def _act_at(self, moment_ms: int | None) -> None:
        """Let a call act at a moment in event time, None for the watermark."""
        if self.event_time is not None:
            self.event_time.entries.act_at(moment_ms)
