"""Calls the `window` of a task at each tick, once.

Theory. The moment of the last tick is an entry of the task, written in the transaction of the tick. Ticks lie at
multiples of the interval, and a moment that is not later than the entry is never done again. The first transaction of a
task writes the entry without a call, so a task that a factor has just made begins with the present tick: the tasks
before it have done the earlier ones, for the same keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samzapy.container.task.ports import LocalTransaction
from samzapy.container.task.transaction import Handled, Transaction
from samzapy.container.task.user_calls import TimedCall, UserCalls
from samzapy.model.job import TaskName
from samzapy.model.serde import serde_of
from samzapy.model.window_entry import STORE, next_tick_ms, tick_at
from samzapy.stream.changelog import task_entry_key
from samzapy.windows import Tick


class WindowTicks:
    """The ticks of one task.

    Attributes:
        handler: the user's `window`, `(tick, out)`.
    """

    def __init__(self, calls: UserCalls, task_name: TaskName, interval_ms: int) -> None:
        self.handler: Callable[[Tick, Any], None] | None = None
        self._calls = calls
        self._key = task_entry_key(task_name, b"")
        self._interval_ms = interval_ms
        self._decode = serde_of("long").decode

    def next_ms(self, local: LocalTransaction) -> int:
        """The moment of the next tick, also behind one of this transaction.

        0 while the task has none yet.
        """
        raw = self._calls.state.written(STORE).get(self._key) or local.get(STORE, self._key)
        return 0 if raw is None else next_tick_ms(self._decode(raw), self._interval_ms)

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
