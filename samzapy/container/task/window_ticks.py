"""Calls the `window` of a task at each tick, once.

Theory. The moment of the last tick is an entry of the task, written in the transaction of the tick. Ticks lie at
multiples of the interval, and a moment that is not later than the entry is never done again. The first transaction of a
job's task writes the entry without a call, so it begins with the present tick.

When the factor changes, a task begins behind the entries of all tasks that had its keys, as for clocks
(`container.task.clocks`). Its own may be an old one, of an earlier time at which it had these keys.

At a merge the greatest entry counts. Where the tasks before were stopped around a tick, some have done it and others
have not. With a lesser entry that tick would be done twice for the keys of those that have done it. The keys of the
others lose nothing: their state is there, and for them the tick is done as one with the next, as missed ticks are.

A clock that was ahead and is corrected leaves an entry in the future. No tick is done until the clock is there again,
because a tick may not be done twice. A warning says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from samzapy.container.task.owners import task_entries
from samzapy.container.task.ports import LocalTransaction
from samzapy.container.task.transaction import Handled, Transaction
from samzapy.container.task.user_calls import TimedCall, UserCalls
from samzapy.model.job import TaskName
from samzapy.model.serde import serde_of
from samzapy.model.window_entry import STORE, next_tick_ms, tick_at
from samzapy.stream.changelog import task_entry_key
from samzapy.windows import Tick

_LOG = logging.getLogger(__name__)
_NONE_MS: Final = -1
"""The last tick of a task without one: the tick behind it is at 0."""


class WindowTicks:
    """The ticks of one task.

    Attributes:
        handler: the user's `window`, `(tick, out)`.
    """

    def __init__(self, calls: UserCalls, task_name: TaskName, interval_ms: int) -> None:
        self.handler: Callable[[Tick, Any], None] | None = None
        self._calls = calls
        self._task_name = task_name
        self._key = task_entry_key(task_name, b"")
        self._interval_ms = interval_ms
        # The last tick at the first look. The entries of other tasks do not change under a grant.
        self._first_ms: int | None = None
        # The last tick that the log has named as ahead of the clock.
        self._warned_of_ms = _NONE_MS
        self._decode = serde_of("long").decode

    def next_ms(self, local: LocalTransaction) -> int:
        """The moment of the next tick, also behind one of this transaction.

        0 while the task has none yet.
        """
        if self._first_ms is None:
            self._first_ms = max(map(self._decode, task_entries(local, STORE).values()), default=_NONE_MS)
        raw = self._calls.state.written(STORE).get(self._key) or local.get(STORE, self._key)
        last_ms = self._first_ms if raw is None else max(self._first_ms, self._decode(raw))
        self._warn_if_ahead(last_ms)
        return next_tick_ms(last_ms, self._interval_ms)

    def _warn_if_ahead(self, last_ms: int) -> None:
        """Warn once of a last tick that is further ahead than clocks of hosts differ."""
        ahead_ms = last_ms - self._calls.limits.wall_ms()
        if ahead_ms <= self._interval_ms or last_ms == self._warned_of_ms:
            return
        self._warned_of_ms = last_ms
        _LOG.warning(
            "task %s: its last window is of a moment %d s ahead of this host's clock, and none is done until then; "
            "check the clocks of the hosts (NTP): this one is behind, or one that had the task was ahead",
            self._task_name,
            ahead_ms // 1000,
        )

    def do(self, transaction: Transaction, handled: Handled) -> bool:
        """Do the newest tick that is due; False if there is none.

        Raises:
            MessageFailed: `window` failed, and the error policy ends the batch.
        """
        state, handler = self._calls.state, self.handler
        tick_ms = tick_at(self._calls.limits.wall_ms(), self._interval_ms)
        next_ms = self.next_ms(transaction.local)
        if handler is None or (next_ms and tick_ms < next_ms):
            return False
        if not next_ms:
            self._calls.handles.renew()
            state.stores[STORE].put(tick_ms)
            self._calls.end()
            return False
        tick = Tick(tick_ms // self._interval_ms, tick_ms)

        def call(out: Any) -> None:
            with state.keys.walking():
                handler(tick, out)

        headers = (("window", str(tick.number).encode()), ("moment", str(tick_ms).encode()))
        place = f"window {tick.number}, of {tick_ms}"
        # By name at each call: stores are made anew for a message whose handles user code has kept.
        timed = TimedCall(
            call=call,
            note=lambda: state.stores[STORE].put(tick_ms),
            place=lambda: place,
            key=None,
            headers=headers,
        )
        self._calls.make(timed, transaction, handled)
        return True
