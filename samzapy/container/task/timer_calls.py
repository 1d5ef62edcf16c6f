"""Calls the handlers of timers that are due, a page of them at a time.

A page is one loop, as that over messages (`handling`): each firing keeps the handles of the one before unless user code
has kept one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from sys import getrefcount
from typing import Any, Final, NamedTuple

from samzapy.container.task.event_time import EventTime
from samzapy.container.task.outputs import Collector
from samzapy.container.task.ports import CrashPoints
from samzapy.container.task.stores import Store
from samzapy.container.task.transaction import Handled, LastMessage, Transaction
from samzapy.container.task.user_calls import UserCalls
from samzapy.container.task.user_errors import shown_key
from samzapy.errors import UndeclaredError
from samzapy.model.timer_entry import DUE_BYTES, STORE, Domain, domain_of, expiring_entry, name_and_tag
from samzapy.stream.changelog import split_changelog_key
from samzapy.timers import Firing

_LOOK_S: Final = 0.02
"""How often the loop asks whether it must end."""
_NAMES_MAX: Final = 1024
Row = tuple[int, bytes, bytes]
"""A timer that is due: its moment, changelog key and value."""


class _Named(NamedTuple):
    name: str
    tag: str
    # Of the entry that expires: its store and sub-key. None for a timer of the task's.
    expires: tuple[str, bytes] | None


class TimerCalls:
    """The handlers of one task's timers.

    Attributes:
        handlers: by name of a timer, what is called when it fires.
    """

    def __init__(self, calls: UserCalls, crash_points: CrashPoints, event_time: EventTime | None) -> None:
        """Know no handler yet."""
        self.handlers: Mapping[str, Callable[[Any, Any], None]] = {}
        self._calls = calls
        self._state = calls.state
        self._limits = calls.limits
        self._hit = crash_points.hit
        self._event_time = event_time
        # When the loop asks next whether it must end: a page may take less time than that.
        self._look_at_s = 0.0

    def fire_page(
        self,
        domain: Domain,
        rows: Sequence[Row],
        transaction: Transaction,
        handled: Handled,
        until_s: float,
        must_end: Callable[[], bool],
    ) -> tuple[int, bool]:
        """Fire timers one by one.

        Ends before a timer that comes behind one that a handler has set: those are in no page yet.

        Returns:
            How many rows are done, and whether more may fire in this transaction.
        """
        wall_ms, now_s, bytes_max = self._limits.wall_ms(), self._limits.now_s, self._limits.bytes_max
        written, moved, state = self._state.written(STORE), _Moved(self._state.timers_to_write), self._state
        stop_s = min(until_s, transaction.begun_at_s + self._limits.duration_max_s)
        collector, stores, kept = self._renewed()
        begun_s = since_s = at_s = now_s()
        done, last = 0, rows[0]
        try:
            for row in rows:
                moment_ms, changelog_key, value = row
                if moved.least <= value[1 : 1 + DUE_BYTES]:
                    return done, True
                # A handler before may have moved or cleared it.
                if written.get(changelog_key, value) == value:
                    if done == 1:
                        self._hit("in-the-middle-of-due")
                    last, since_s, is_kept = row, at_s, False
                    is_of_task = self._fire(row, collector, transaction, handled)
                    if domain is Domain.PROCESSING and is_of_task:
                        transaction.fired.timed += 1
                        # The clock may have been set back since the timers were looked up.
                        transaction.fired.lag_ms += max(0, wall_ms + int(1000 * (at_s - begun_s)) - moment_ms)
                    for store in stores:
                        is_kept = is_kept or getrefcount(store) > kept[1]
                    if is_kept or getrefcount(collector) > kept[0]:
                        # User code keeps a handle, and may use it when it should not.
                        self._calls.handles.expire(partial(_place, row))
                        collector, stores, kept = self._renewed()
                    moved.look(written, domain)
                done, at_s = done + 1, now_s()
                if at_s >= stop_s or collector.bytes_sent + state.bytes_held > bytes_max:
                    return done, False
                if at_s >= self._look_at_s:
                    self._look_at_s = at_s + _LOOK_S
                    if must_end():
                        return done, False
            return done, True
        finally:
            moved.give_back()
            transaction.last = LastMessage(partial(_place, last), now_s() - since_s)
            self._calls.handles.expire(partial(_place, last))

    def _renewed(self) -> tuple[Collector, tuple[Store, ...], tuple[int, int]]:
        """New handles, and their reference counts while user code keeps none."""
        collector, _, stores = self._calls.handles.renew()
        # The variables here refer to them as often as those of the loop.
        references = getrefcount(collector), max((getrefcount(store) for store in stores), default=0)
        return collector, stores, references

    def _fire(self, row: Row, collector: Collector, transaction: Transaction, handled: Handled) -> bool:
        """Fire one timer; False if it was that of an entry that expires."""
        moment_ms, changelog_key, value = row
        self._hit("before-fire")
        key, sub_key = split_changelog_key(changelog_key)
        named, state = _named(sub_key), self._state
        state.message_key, state.key_prefix = key, changelog_key[: len(changelog_key) - len(sub_key)]
        if named.expires is None:
            if self._event_time is not None:
                self._event_time.entries.act_at(moment_ms if domain_of(value) is Domain.EVENT else None)
            try:
                self._remove(changelog_key)
                handler = self.handlers.get(named.name) or self._undeclared(named.name)
                handler(Firing(state.keys.decode(key), named.name, named.tag, moment_ms), collector)
                if collector.must_be_checked:
                    self._calls.checks.check(collector, transaction.producer)
            except BaseException as error:  # User code may raise anything; the policy decides.
                self._give_up(row, error, transaction)
                handled.dead_letters += 1
            outputs = collector.held
            if outputs:
                for output in outputs:
                    transaction.producer.produce(*output)
                handled.records_out += len(outputs)
                outputs.clear()
            transaction.fired.timers += 1
        else:
            transaction.fired.expired += self._expire(*named.expires)
            self._remove(changelog_key)
        if state.journal.is_kept:
            self._calls.end()
        self._hit("after-fire")
        return named.expires is None

    def _give_up(self, row: Row, error: BaseException, transaction: Transaction) -> None:
        """Send the dead letter of a timer whose handler failed.

        Raises:
            MessageFailed: the error policy ends the batch.
        """
        moment_ms, changelog_key, _ = row
        key, sub_key = split_changelog_key(changelog_key)
        named = _named(sub_key)
        headers = (
            ("timer", named.name.encode()),
            ("tag", named.tag.encode()),
            ("moment", str(moment_ms).encode()),
        )
        self._calls.roll_back(error)
        self._calls.policy.apply_to_timed_call(headers, key, _place(row), error, transaction.producer)
        self._remove(changelog_key)

    def _remove(self, changelog_key: bytes) -> None:
        """Let a timer be set no more, as its handler and the changelog see it."""
        state, written = self._state, self._state.written(STORE)
        if state.journal.is_kept:
            state.journal.entries.append(
                (written, changelog_key, changelog_key in written, written.get(changelog_key))
            )
        written[changelog_key] = None
        state.bytes_held += len(changelog_key)

    def _expire(self, store: str, sub_key: bytes) -> bool:
        """Remove an entry; False if its state has no ttl any more."""
        state = self._state.declared.states.get(store)
        if state is None or state.ttl_ms is None:
            return False
        self._state.stores[store].delete_encoded(sub_key)
        return True

    def _undeclared(self, name: str) -> Callable[[Any, Any], None]:
        raise UndeclaredError(
            f"wanted a timer that the task declares ({', '.join(self.handlers)}), found {name}, which an earlier "
            "form of the task has set; declare it again, with a method that does what is left to do"
        )


class _Moved:
    """The timers that the handlers of a page have set, and the first moment of them."""

    def __init__(self, to_write: set[bytes]) -> None:
        self.least = _BEHIND_ALL
        self._to_write = to_write
        self._seen: set[bytes] = set()

    def look(self, written: Mapping[bytes, bytes | None], domain: Domain) -> None:
        """Note the timers that were set since the last look."""
        if not self._to_write:
            return
        for key in self._to_write:
            value = written.get(key)
            if value is not None and value[1] == domain:
                self.least = min(self.least, value[1 : 1 + DUE_BYTES])
        self._seen |= self._to_write
        self._to_write.clear()

    def give_back(self) -> None:
        """Leave all of them to be written."""
        self._to_write |= self._seen


_BEHIND_ALL: Final = b"\xff"


@lru_cache(maxsize=_NAMES_MAX)
def _named(sub_key: bytes) -> _Named:
    expires = expiring_entry(sub_key)
    if expires is not None:
        return _Named(f"ttl of {expires[0]}", "", expires)
    return _Named(*name_and_tag(sub_key), None)


def _place(row: Row) -> str:
    """A timer, named for an operator."""
    moment_ms, changelog_key, _ = row
    key, sub_key = split_changelog_key(changelog_key)
    return f"timer {_named(sub_key).name} of key {shown_key(key)}, set for {moment_ms}"
