"""Stores: the writes of a task's transaction on top of the local store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from struct import error as StructError
from typing import Any, ClassVar, Final

from samzapy.config import StoreConfig
from samzapy.container.task.measures import Stopwatch, StoreCosts
from samzapy.container.task.message_scope import MessageScope, Place, in_init
from samzapy.container.task.owners import owners_in
from samzapy.container.task.ports import LocalTransaction
from samzapy.container.task.record_size import too_large
from samzapy.declared_task import Declared
from samzapy.errors import TaskError
from samzapy.model import timer_entry
from samzapy.model.job import TaskName
from samzapy.model.serde import LONG, SUB_KEY_BYTES_MAX, SerdeError, ordered_of, serde_of
from samzapy.stream.changelog import changelog_key, split_changelog_key, task_entry_key

_READ_AND_WRITE: Final = frozenset({"get", "put"})
_METHODS: Final = _READ_AND_WRITE | {"delete"}
_packed, _unpacked, _LONG_BYTES = LONG.pack, LONG.unpack, LONG.size
_PAGE: Final = 100
"""Entries that are read at once."""


class Journal:
    """The entries that the call in hand overwrote, newest last.

    They are there to roll back a call that fails.

    Attributes:
        is_kept: only where a call can be rolled back. Under policy `fail` the whole transaction is aborted.
        entries: in the writes that are held in memory.
        local: in the local transaction; empty while `entries` is.
    """

    def __init__(self, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.entries: list[tuple[dict[bytes, bytes | None], bytes, bool, bytes | None]] = []
        self.local: list[tuple[str, bytes, bytes | None]] = []

    def clear(self) -> None:
        """Keep the writes."""
        self.entries.clear()
        self.local.clear()

    def roll_back(self, local: LocalTransaction | None) -> None:
        """Undo the writes."""
        for entries, key, was_there, before in reversed(self.entries):
            if was_there:
                entries[key] = before
            else:
                # Threads that made an entry at once have a row each.
                entries.pop(key, None)
        for store, key, before in reversed(self.local):
            assert local is not None
            local.write(store, {key: before})
        self.clear()


class TaskState:
    """State as the current transaction sees it: its writes on top of the local store.

    Writes are held in memory until the Kafka commit (bounded by task.transaction.max.bytes). Those of ordered stores go
    into the local transaction at once, so that a range is read with them in it. Timers are read in their order only
    between messages, so theirs go there together, before that (`due_timers`).

    Attributes:
        journal: the entries that the current message overwrote.
        keys: the keys of the task, for calls that no message causes.
    """

    def __init__(
        self,
        task_name: TaskName,
        stores: Sequence[StoreConfig],
        record_bytes_max: int,
        *,
        keeps_journal: bool,
        costs: StoreCosts,
        scope: MessageScope,
        declared: Declared | None = None,
    ) -> None:
        self.declared = declared or Declared()
        self.scope = scope
        self.costs = costs
        self.record_bytes_max = record_bytes_max
        self.local: LocalTransaction | None = None
        self.message_key: bytes | None = None
        # Every task gets the message in hand, so its key belongs to no task.
        self.is_broadcast = False
        # The message key as the prefix of changelog keys, once it was needed.
        self.key_prefix: bytes | None = None
        self.bytes_held = 0
        self.journal = Journal(is_kept=keeps_journal)
        # The timers whose writes are not in the local transaction yet.
        self.timers_to_write: set[bytes] = set()
        self._written: dict[str, dict[bytes, bytes | None]] = {store.name: {} for store in stores}
        self.keys = TaskKeys(self, stores)
        self._ordered = frozenset(store.name for store in stores if store.is_ordered)
        self.stores: dict[str, Store] = {
            store.name: _STORES[form_of(store)](store, self, self._written[store.name], task_name) for store in stores
        }
        scope.stores = self.stores

    def renew_stores(self) -> tuple[Store, ...]:
        """Make the stores of the next message."""
        for name, store in self.stores.items():
            self.stores[name] = store.successor()
        return tuple(self.stores.values())

    def changes(self) -> Sequence[tuple[str, Mapping[bytes, bytes | None]]]:
        """The writes of this transaction, by store and changelog key.

        None means removed.
        """
        return [(store, entries) for store, entries in sorted(self._written.items()) if entries]

    def written(self, store: str) -> dict[bytes, bytes | None]:
        """The writes of this transaction to a store, by changelog key."""
        return self._written[store]

    def changes_to_write(self) -> Sequence[tuple[str, Mapping[bytes, bytes | None]]]:
        """The changes that are not in the local transaction yet."""
        return [(store, entries) for store, entries in self.changes() if store not in self._ordered]

    def is_ordered(self, store: str) -> bool:
        return store in self._ordered

    def due_timers(
        self, local: LocalTransaction, domain: timer_entry.Domain, until_ms: int | None, count_max: int
    ) -> Sequence[tuple[int, bytes, bytes]]:
        """As `LocalTransaction.due`, with the timers that were just set.

        Those of moments before 1970 come first.
        """
        self._write_timers(local)
        before: Sequence[tuple[int, bytes, bytes]] = ()
        if domain is timer_entry.Domain.EXPIRY:
            # Only entries expire at such moments, which are looked up apart and come first.
            before = local.due(timer_entry.STORE, domain, -1 if until_ms is None else min(-1, until_ms), count_max)
        if len(before) == count_max or (until_ms is not None and until_ms < 0):
            return before
        return [*before, *local.due(timer_entry.STORE, domain, until_ms, count_max - len(before))]

    def _write_timers(self, local: LocalTransaction) -> None:
        """Write the timers that were set and cleared into the local transaction."""
        if self.timers_to_write:
            written = self._written[timer_entry.STORE]
            # A message that failed has no write any more.
            local.write(timer_entry.STORE, {key: written[key] for key in self.timers_to_write if key in written})
            self.timers_to_write.clear()

    def time_next_calls(self) -> None:
        """Time the next call of each kind, for each store."""
        for store in self.stores.values():
            store.time_next_calls()

    def forget(self) -> None:
        """Drop the writes: they are committed, or they never will be."""
        for entries in self._written.values():
            entries.clear()
        self.journal.clear()
        self.timers_to_write.clear()
        self.bytes_held, self.local, self.message_key, self.key_prefix = 0, None, None, None


class TaskKeys:
    """The keys of a task, for calls that no message causes.

    Attributes:
        decode: decodes the key in hand.
        watermark_ms: the watermark for the key in hand, of a task that keeps event time.
    """

    def __init__(self, state: TaskState, stores: Sequence[StoreConfig]) -> None:
        self.decode: Callable[[bytes | None], Any] = lambda key: key
        self.watermark_ms: Callable[[], int | None] = lambda: None
        self._state = state
        self._by_key = frozenset(store.name for store in stores if store.scope == "key" and not store.is_own)
        # The window in which user code may walk over keys.
        self._window: object | None = None

    @property
    def without_key(self) -> str:
        """What is in hand when there is no key, for an error."""
        if self._window is not None:
            return "a window without one; go through the keys with `for key in self.context.keys(...)`"
        return "one without; a keyed store belongs to the message's key, so check envelope.key before using it"

    @contextmanager
    def walking(self) -> Iterator[None]:
        """Let user code walk over the keys of its state; no message is in hand."""
        self._window = object()
        try:
            yield
        finally:
            self._window = None
            self._state.message_key = self._state.key_prefix = None

    def of(self, store: str) -> Iterator[Any]:
        """The message keys that have entries in a store.

        Each is in hand until the next one.

        Raises:
            TaskError: outside of a window, or no such store with entries of keys.
        """
        if store not in self._by_key:
            declared = ", ".join(sorted(self._by_key)) or "none"
            raise TaskError(f"context.keys: wanted a state of scope key of the task ({declared}), found {store!r}")
        window, state = self._window, self._state
        # With its prefix, by which the entries of that key go on.
        before = state.message_key, state.key_prefix
        self._check_walk(store, window)
        try:
            for owner in self._owners(store):
                state.message_key, state.key_prefix = owner, None
                yield self.decode(owner)
                self._check_walk(store, window)
        finally:
            # A walk that user code keeps may end at any time later.
            if window is self._window:
                state.message_key, state.key_prefix = before

    def _owners(self, store: str) -> Iterator[bytes]:
        written = self._state.written(store)
        for owner in owners_in(self._local, store):
            # An ordered store has no writes that are not in the local store.
            if written.get(changelog_key(owner, b""), b"") is not None or self._state.is_ordered(store):
                yield owner
        if not self._state.is_ordered(store):
            for key, value in tuple(written.items()):
                if value is not None and self._local.get(store, key) is None:
                    yield split_changelog_key(key)[0]

    @property
    def _local(self) -> LocalTransaction:
        local = self._state.local
        assert local is not None, "keys are walked over only in a window"
        return local

    def _check_walk(self, store: str, window: object) -> None:
        """Refuse a walk outside of a window, and one that goes on after its window."""
        if window is None or window is not self._window or not self._state.scope.is_in_hand():
            raise TaskError(
                f"context.keys: wanted a walk over the keys of {store} within window, found one elsewhere; while a "
                "message is handled, only the state of its own key is there"
            )


class Store:
    """A keyed store, scoped to the key of the message in hand (`task.KeyedStore`)."""

    # Slots: where an object changes its class (`time_next_calls`), attributes in a dictionary would be slower to read.
    __slots__ = (
        "_has_sub_keys",
        "_name",
        "_name_decode",
        "_name_encode",
        "_own_prefix",
        "_serde",
        "_state",
        "_written",
        "expired_at",
    )
    # Names its class in `_STORES` while no call is to be timed (`form_of`).
    form: ClassVar[str] = "key"

    def __init__(
        self, config: StoreConfig, state: TaskState, written: dict[bytes, bytes | None], task_name: TaskName
    ) -> None:
        self._name = config.name
        self._serde = state.declared.store_serde(config)
        names = ordered_of(config.key_serde) if config.is_ordered else serde_of(config.key_serde)
        self._name_encode, self._name_decode = names.encode, names.decode
        # Every entry of an ordered store has a sub-key, and "" is one; elsewhere it is the entry without a name.
        self._has_sub_keys = config.is_ordered
        self._state = state
        self._written = written
        # The prefix of all its keys; None: the message's key is the prefix.
        self._own_prefix: bytes | None = None
        # The place of its message; None while that message is in hand.
        self.expired_at: Place | None = in_init

    def successor(self) -> Store:
        """The store of the next message."""
        new = type(self).__new__(type(self))
        new._name, new._serde = self._name, self._serde
        new._name_encode, new._name_decode = self._name_encode, self._name_decode
        new._has_sub_keys = self._has_sub_keys
        new._state, new._written, new._own_prefix, new.expired_at = self._state, self._written, self._own_prefix, None
        return new

    def get(self, name: Any = "") -> Any:
        key = self._own_prefix or self._state.key_prefix or self._prefix()
        # After the key was read: from here on the key of another message does no harm.
        if self.expired_at is not None:
            self._check_scope(self.expired_at)
        if name != "" or self._has_sub_keys:
            key += self._encoded(name)
        written = self._written
        if key in written:
            raw = written[key]
        else:
            local = self._state.local
            assert local is not None, "a store is read only while a message is handled"
            raw = local.get(self._name, key)
        try:
            return self._serde.decode(raw)
        except SerdeError as error:
            raise self._unreadable(error) from error

    def put(self, value: Any, name: Any = "") -> None:
        raw = self._serde.encode(value)
        if raw is None:
            raise SerdeError(f"store {self._name}: wanted a value, found None; use delete() to remove an entry")
        self._write(self._key(name), raw)

    def delete(self, name: Any = "") -> None:
        self._write(self._key(name), None)

    def add(self, amount: int) -> int:
        """Add to the number of the entry without a name, and return the sum.

        As `get` and `put`, in one call. There is 0 without an entry.
        """
        state, written = self._state, self._written
        key = self._own_prefix or state.key_prefix or self._prefix()
        if self.expired_at is not None:
            self._check_scope(self.expired_at)
        raw = written[key] if key in written else self._stored(key)
        try:
            # As the serde of counters does, without its calls.
            total: int = amount if raw is None else _unpacked(raw)[0] + amount
            encoded: bytes | None = _packed(total)
        except StructError:
            total, encoded = self._sum(raw, amount)
        size = len(key) + _LONG_BYTES
        if size > state.record_bytes_max or state.journal.is_kept:
            self._write(key, encoded)
            return total
        # As `_write` does, whose call would be 7 % of the time of this one. Classes that extend it extend `add`, too.
        written[key] = encoded
        state.bytes_held += size
        if self.expired_at is not None:
            self._check_scope(self.expired_at)
        return total

    def _add_by_calls(self, amount: int) -> int:
        """As `add`, by the calls that a subclass extends."""
        value = self.get()
        total: int = amount if value is None else value + amount
        self.put(total)
        return total

    def _sum(self, raw: bytes | None, amount: int) -> tuple[int, bytes | None]:
        """The sum, and its bytes.

        Raises SerdeError for an entry or a sum that is no whole number of 64 bits.
        """
        try:
            total: int = (self._serde.decode(raw) or 0) + amount
        except SerdeError as error:
            raise self._unreadable(error) from error
        return total, self._serde.encode(total)

    def _stored(self, key: bytes) -> bytes | None:
        local = self._state.local
        assert local is not None, "a store is read only while a message is handled"
        return local.get(self._name, key)

    def delete_encoded(self, sub_key: bytes) -> None:
        """Remove an entry, given the bytes of its sub-key."""
        self._write((self._own_prefix or self._state.key_prefix or self._prefix()) + sub_key, None)

    def time_next_calls(self) -> None:
        """Time the next call of each kind.

        The object gets a class whose methods time themselves once. So a call that is not timed costs no more, while a
        counter of calls, however cheap, was 4 to 7 % of every read and write.
        """
        self.__class__ = _timed(self.form, _METHODS)

    def watch(self, kind: str) -> Stopwatch:
        """The stopwatch for calls of a kind."""
        costs = self._state.costs
        return {"get": costs.gets, "put": costs.puts, "delete": costs.deletes}[kind]

    def _unreadable(self, error: SerdeError) -> SerdeError:
        """The error of an entry that its serde refuses.

        The error of the message names key and task.
        """
        return SerdeError(f"store {self._name}: {error}")

    def _check_scope(self, place: Place) -> None:
        """Refuse the use of a store after its message.

        The thread that handles messages may keep one.
        """
        if not self._state.scope.is_in_hand():
            self._state.scope.refuse(f"a store ({self._name})", place)

    def _write(self, key: bytes, raw: bytes | None) -> None:
        state, written = self._state, self._written
        size = len(key) + (0 if raw is None else len(raw))
        if size > state.record_bytes_max:
            raise TaskError(too_large(f"an entry of store {self._name}", size, state.record_bytes_max))
        journal = state.journal
        if journal.is_kept:
            journal.entries.append((written, key, key in written, written.get(key)))
        written[key] = raw
        state.bytes_held += size
        # At the end: the message may have ended while a thread was in this method. Its write is never committed then.
        if self.expired_at is not None:
            self._check_scope(self.expired_at)

    def _key(self, name: Any) -> bytes:
        """The changelog key of an entry; `get` repeats this inline, which saves a call."""
        key = self._own_prefix or self._state.key_prefix or self._prefix()
        return key + self._encoded(name) if name != "" or self._has_sub_keys else key

    def _encoded(self, name: Any) -> bytes:
        encoded = self._name_encode(name)
        assert encoded is not None
        return encoded

    def _prefix(self) -> bytes:
        """The changelog key of this message's entry without a name.

        It is the prefix of all keys of the message.
        """
        if self.expired_at is not None:
            self._check_scope(self.expired_at)
        state = self._state
        if state.is_broadcast:
            raise TaskError(
                f"store {self._name}: wanted a message of an input of the task's own, found one of a broadcast input; "
                "every task gets that one, and the entries of a keyed store belong to a key in one task"
            )
        if state.message_key is None:
            raise TaskError(f"store {self._name}: wanted a message with a key, found {state.keys.without_key}")
        state.key_prefix = changelog_key(state.message_key, b"")
        return state.key_prefix


class TaskStore(Store):
    """A store of scope `task`: the same entries whatever message is in hand."""

    __slots__ = ()
    form = "task"

    def __init__(
        self, config: StoreConfig, state: TaskState, written: dict[bytes, bytes | None], task_name: TaskName
    ) -> None:
        super().__init__(config, state, written, task_name)
        self._own_prefix = task_entry_key(task_name, b"")


class BroadcastStore(TaskStore):
    """A store of scope `broadcast`.

    Each task has its own copy, made by the same messages.
    """

    __slots__ = ()
    form = "broadcast"

    def _write(self, key: bytes, raw: bytes | None) -> None:
        if not self._state.is_broadcast:
            raise TaskError(
                f"store {self._name}: wanted a message of a broadcast input, found one of the task's own; a store of "
                "scope broadcast holds the same in every task, so only what every task gets may change it. Write it "
                "while a message of task.broadcast.inputs is handled, or give the store another scope"
            )
        super()._write(key, raw)

    def add(self, amount: int) -> int:
        return self._add_by_calls(amount)


class OrderedStore(Store):
    """A store whose entries of one key can be read in the order of their sub-keys."""

    __slots__ = ()
    form = "ordered key"

    def add(self, amount: int) -> int:
        return self._add_by_calls(amount)

    def entries(self, first: Any = None, last: Any = None, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """The entries from sub-key `first` to sub-key `last`, both included.

        None stands for the first or last one.
        They are read in pages. A write of the message in hand is seen unless its page has been read already.
        """
        prefix = self._own_prefix or self._state.key_prefix or self._prefix()
        low = b"" if first is None else self._encoded(first)
        end = None if last is None else self._encoded(last) + b"\x00"
        return self._read(prefix, low, end, reverse=reverse)

    def _read(self, prefix: bytes, low: bytes, end: bytes | None, *, reverse: bool) -> Iterator[tuple[Any, Any]]:
        state, is_of_key = self._state, self._own_prefix is None
        while True:
            self._check_is_of(prefix)
            local = state.local
            assert local is not None, "a store is read only while a message is handled"
            page = local.scan(self._name, prefix, low, end, reverse=reverse, count_max=_PAGE)
            for name, raw in page:
                try:
                    entry = self._name_decode(name), self._serde.decode(raw)
                except SerdeError as error:
                    raise self._unreadable(error) from error
                yield entry
                # User code may have kept the iterator for the message of another key. All of the check, for each
                # entry, would double the time of a walk.
                if is_of_key and state.key_prefix is not prefix:
                    self._check_is_of(prefix)
            if len(page) < _PAGE:
                return
            if reverse:
                end = page[-1][0]
            else:
                low = page[-1][0] + b"\x00"

    def _check_is_of(self, prefix: bytes) -> None:
        """Refuse to read on after the message, which another one may have followed."""
        state = self._state
        if not state.scope.is_in_hand() or (self._own_prefix is None and state.key_prefix is not prefix):
            state.scope.refuse(f"the next entry of store {self._name}", self.expired_at or _its_message)

    def _write(self, key: bytes, raw: bytes | None) -> None:
        state = self._state
        assert state.local is not None, "a store is written only while a message is handled"
        if state.journal.is_kept:
            state.journal.local.append((self._name, key, state.local.get(self._name, key)))
        super()._write(key, raw)
        state.local.write(self._name, {key: raw})


class TimerStore(OrderedStore):
    """The store of timers."""

    __slots__ = ()
    form = "timer"

    def replace(self, value: bytes, name: bytes) -> None:
        """Set an entry; nothing is written if it has that value."""
        if len(name) > SUB_KEY_BYTES_MAX:
            # Refuses it. The local store would do so only at the commit, where the error is no message's.
            self._encoded(name)
        # The bytes of a name are the name.
        key, written = (self._own_prefix or self._state.key_prefix or self._prefix()) + name, self._written
        if self.expired_at is not None:
            self._check_scope(self.expired_at)
        if (written[key] if key in written else self._stored(key)) != value:
            self._write(key, value)

    def _write(self, key: bytes, raw: bytes | None) -> None:
        Store._write(self, key, raw)
        self._state.timers_to_write.add(key)


class OrderedTaskStore(OrderedStore, TaskStore):
    """An ordered store of scope `task`."""

    __slots__ = ()
    form = "ordered task"


class OrderedBroadcastStore(OrderedStore, BroadcastStore):
    """An ordered store of scope `broadcast`."""

    __slots__ = ()
    form = "ordered broadcast"


def _its_message() -> str:
    return "its message"


def form_of(store: StoreConfig) -> str:
    """The name of the class of a store."""
    if store.scope == "bucket":
        # Of clocks, which user code does not use.
        return "task"
    if store.kind == "timer":
        return store.kind
    return f"ordered {store.scope}" if store.is_ordered else store.scope


@cache
def _timed(form: str, kinds: frozenset[str]) -> type[Store]:
    """The class of a store whose first call of each of `kinds` is timed."""
    plain = _STORES[form]
    if not kinds:
        return plain
    timed = {kind: _timed_once(form, kind, kinds - {kind}) for kind in kinds}
    if kinds & _READ_AND_WRITE:
        # No longer than that: a counter never deletes, and would stay slow.
        timed |= {"add": Store._add_by_calls, "replace": _replace_by_calls}
    return type(plain.__name__, (plain,), {"__slots__": (), **timed})


def _replace_by_calls(store: Store, value: bytes, name: bytes) -> None:
    """As `TimerStore.replace`, by the calls that may be timed."""
    if store.get(name) != value:
        store.put(value, name)


def _timed_once(form: str, kind: str, others: frozenset[str]) -> Callable[..., Any]:
    method = getattr(_STORES[form], kind)

    def call(self: Store, *args: Any, **kwargs: Any) -> Any:
        # Code that keeps this bound method has all its calls timed.
        self.__class__ = _timed(form, others)
        return self.watch(kind).timed(method, self, *args, **kwargs)

    return call


_STORES: Mapping[str, type[Store]] = {
    store.form: store
    for store in (Store, BroadcastStore, TaskStore, OrderedStore, TimerStore, OrderedBroadcastStore, OrderedTaskStore)
}
