"""Fires the timers of a task, and has its window called.

Theory. A timer is an entry of the store `_timers`. It fires in the transaction that removes the entry, so it fires once
with its outputs and writes, or not at all. The timers that are due are always looked up from the first one on, through
what the transaction has written: a handler may set and clear timers, and a timer may be set to a moment that is past.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from samzapy.container.task.clocks import FAR_MS
from samzapy.container.task.event_time import EventTime
from samzapy.container.task.message_scope import MessageScope
from samzapy.container.task.ports import CrashPoints, LocalTransaction
from samzapy.container.task.ports import TaskEnvironment as Environment
from samzapy.container.task.transaction import Handled, Transaction
from samzapy.container.task.user_calls import TimedCall, UserCalls
from samzapy.container.task.user_errors import shown_key
from samzapy.container.task.window_ticks import WindowTicks
from samzapy.errors import UndeclaredError
from samzapy.model.timer_entry import STORE, Domain, expiring_entry, name_and_tag
from samzapy.stream.changelog import split_changelog_key
from samzapy.timers import Firing

_PAGE: Final = 100
_LOOK_S: Final = 0.02
"""How often the loop asks whether it must end."""
FIRE_S: Final = 2.0
"""After so long the loop leaves the rest to the next one, so that a drain need not wait for a million timers."""


class _Due(NamedTuple):
    moment_ms: int
    key: bytes
    name: str
    tag: str
    # Of the entry that expires: its store and sub-key. None for a timer of the task's.
    expires: tuple[str, bytes] | None = None

    def place(self) -> str:
        return f"timer {self.name} of key {shown_key(self.key)}, set for {self.moment_ms}"


class Timers:
    """The timers of one task, and its window.

    Attributes:
        handlers: by name of a timer, what is called when it fires.
        end_of_stream: what is called at the end of bounded inputs.
        event_time: the clocks of a task that keeps event time.
        next_ms: the next moment at which one is due, None without any; only right while it `is_known`.
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
        """Know no next moment yet.

        Args:
            has_timers: whether the task sets timers; else it has a window only.
        """
        self.handlers: Mapping[str, Callable[[Any, Any], None]] = {}
        self.end_of_stream: Callable[[Any], None] | None = None
        self.window = window
        self.event_time = event_time
        self.next_ms: int | None = None
        self.is_known = False
        self._calls = calls
        self._handles = calls.handles
        self._state = calls.state
        self._limits = calls.limits
        self._scope = scope
        self._crash_points = crash_points
        self._has_timers = has_timers

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
        """Whether a timer is due now."""
        next_ms = self.look(environment)
        return (next_ms is not None and next_ms <= self._limits.wall_ms()) or self.is_event_due

    @property
    def is_event_due(self) -> bool:
        """Whether a timer in event time is due."""
        return self.event_time is not None and self.event_time.clocks.is_due

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

        def call(out: Any) -> None:
            with state.walking():
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
        """Fire the timers that are due; False if some may be left."""
        if not self._has_timers:
            return True
        until_ms = self._limits.wall_ms()
        return self._fire_domain(
            Domain.PROCESSING, until_ms, transaction, handled, until_s, must_end
        ) and self._fire_events(transaction, handled, until_s, must_end)

    def _fire_events(
        self, transaction: Transaction, handled: Handled, until_s: float, must_end: Callable[[], bool]
    ) -> bool:
        """Fire the timers in event time up to the watermark; False if some may be left."""
        if self.event_time is None or not self._has_timers:
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
        may_go_on, rows_left = True, until_ms >= 0
        while may_go_on and rows_left:
            rows = self._due(transaction.local, domain, until_ms, _PAGE)
            may_go_on = self._fire_page(rows, transaction, handled, until_s, must_end)
            self._remove_fired(rows, transaction.local)
            rows_left = len(rows) == _PAGE
        return may_go_on

    def _fire_page(
        self,
        rows: Sequence[tuple[int, bytes, bytes]],
        transaction: Transaction,
        handled: Handled,
        until_s: float,
        must_end: Callable[[], bool],
    ) -> bool:
        """Fire timers one by one; False if the loop must end before the last one."""
        written, now_s = self._state.written(STORE), self._limits.now_s
        look_at_s = now_s() + _LOOK_S
        for moment_ms, changelog_key, value in rows:
            # A handler before may have moved or cleared it.
            if written.get(changelog_key, value) == value:
                self._fire(_due(moment_ms, changelog_key), changelog_key, transaction, handled)
            at_s = now_s()
            if at_s >= until_s or transaction.is_full(self._limits, self._handles.bytes_held):
                return False
            if at_s >= look_at_s:
                look_at_s = at_s + _LOOK_S
                if must_end():
                    return False
        return True

    def _remove_fired(self, rows: Sequence[tuple[int, bytes, bytes]], local: LocalTransaction) -> None:
        """Remove the entries of timers that have fired, all at once.

        That is several times as fast as one by one.
        """
        written = self._state.written(STORE)
        local.write(STORE, {key: None for _, key, _ in rows if written.get(key, b"") is None})

    def _remove(self, changelog_key: bytes) -> None:
        """Let a timer be set no more, as its handler and the changelog see it."""
        state, written = self._state, self._state.written(STORE)
        if state.keeps_journal:
            state.journal.append((written, changelog_key, changelog_key in written, written.get(changelog_key)))
        written[changelog_key] = None
        state.bytes_held += len(changelog_key)

    def note_next(self, local: LocalTransaction) -> None:
        """Note the next moment, when a transaction is about to be committed."""
        first = self._due(local, Domain.PROCESSING, None, 1) if self._has_timers else ()
        moments = [moment_ms for moment_ms, _, _ in first]
        if self.window is not None:
            moments.append(self.window.next_ms(local))
        self._note_next_event(local)
        self.next_ms, self.is_known = min(moments, default=None), True

    def _due(
        self, local: LocalTransaction, domain: Domain, until_ms: int | None, count_max: int
    ) -> Sequence[tuple[int, bytes, bytes]]:
        """As `LocalTransaction.due`, with the timers that were just set."""
        self._state.write_timers(local)
        return local.due(STORE, domain, until_ms, count_max)

    def _note_next_event(self, local: LocalTransaction) -> None:
        if self.event_time is not None and self._has_timers:
            first = self._due(local, Domain.EVENT, None, 1)
            self.event_time.clocks.next_due_ms = first[0][0] if first else FAR_MS

    def _fire(self, due: _Due, changelog_key: bytes, transaction: Transaction, handled: Handled) -> None:
        """Fire one timer, of the task or of an entry that expires."""
        self._crash_points.hit("before-fire")
        if due.expires is None:
            self._call(due, changelog_key, transaction, handled)
        else:
            self._state.message_key, self._state.key_prefix = due.key, None
            self._expire(*due.expires)
            self._remove(changelog_key)
            self._calls.end()
        self._crash_points.hit("after-fire")

    def _call(self, due: _Due, changelog_key: bytes, transaction: Transaction, handled: Handled) -> None:
        """Call the handler of a timer, and send its outputs."""

        def call(out: Any) -> None:
            self._handler(due.name)(Firing(self._state.key_decode(due.key), due.name, due.tag, due.moment_ms), out)

        timed = TimedCall(
            call=call,
            note=lambda: self._remove(changelog_key),
            place=due.place,
            key=due.key,
            headers=(
                ("timer", due.name.encode()),
                ("tag", due.tag.encode()),
                ("moment", str(due.moment_ms).encode()),
            ),
        )
        self._calls.make(timed, transaction, handled)

    def _expire(self, store: str, sub_key: bytes) -> None:
        """Remove an entry, unless its state has no ttl any more."""
        state = self._state.declared.states.get(store)
        if state is not None and state.ttl_ms is not None:
            self._state.stores[store].delete_encoded(sub_key)

    def _handler(self, name: str) -> Callable[[Any, Any], None]:
        handler = self.handlers.get(name)
        if handler is None:
            raise UndeclaredError(
                f"wanted a timer that the task declares ({', '.join(self.handlers)}), found {name}, which an earlier "
                "form of the task has set; declare it again, with a method that does what is left to do"
            )
        return handler


def _due(moment_ms: int, changelog_key: bytes) -> _Due:
    key, sub_key = split_changelog_key(changelog_key)
    expires = expiring_entry(sub_key)
    if expires is not None:
        return _Due(moment_ms, key, f"ttl of {expires[0]}", "", expires)
    return _Due(moment_ms, key, *name_and_tag(sub_key))
