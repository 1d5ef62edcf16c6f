"""Stores as a task sees them: what its transaction wrote, over what the local store holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from samzapy.config import StoreConfig
from samzapy.container.measures import Stopwatch, StoreCosts
from samzapy.container.ports import LocalTransaction
from samzapy.container.record_size import too_large
from samzapy.errors import TaskError
from samzapy.model.job import TaskName
from samzapy.model.serde import SerdeError, serde_of
from samzapy.stream.changelog import changelog_key, task_entry_key


class TaskState:
    """State as the current transaction sees it: what it wrote, over what the local store holds.

    Writes are held in memory until the Kafka commit (bounded by task.transaction.max.bytes). `journal` lists
    what the current message overwrote, newest last, so that a failed message can be undone. It is kept only where
    that can happen: under policy `fail` the whole transaction goes.
    """

    def __init__(
        self,
        task_name: TaskName,
        stores: Sequence[StoreConfig],
        record_bytes_max: int,
        *,
        undoes: bool,
        costs: StoreCosts,
    ) -> None:
        self.costs = costs
        self.record_bytes_max = record_bytes_max
        self.undoes = undoes
        self.local: LocalTransaction | None = None
        self.message_key: bytes | None = None
        # Every task gets the message in hand, so its key is no task's own.
        self.is_broadcast = False
        # The message key as it stands in front of changelog keys, once it was asked for.
        self.key_prefix: bytes | None = None
        self.bytes_held = 0
        self.journal: list[tuple[dict[bytes, bytes | None], bytes, bool, bytes | None]] = []
        self._written: dict[str, dict[bytes, bytes | None]] = {store.name: {} for store in stores}
        self.stores: Mapping[str, Store] = {
            store.name: _STORES[store.scope](store, self, self._written[store.name], task_name) for store in stores
        }

    def changes(self) -> Sequence[tuple[str, Mapping[bytes, bytes | None]]]:
        """What this transaction wrote: per store, entries by changelog key; None means removed."""
        return [(store, entries) for store, entries in sorted(self._written.items()) if entries]

    def time_next_calls(self) -> None:
        """Let the next call of each kind be timed, of each store."""
        for store in self.stores.values():
            store.time_next_calls()

    def roll_back_message(self) -> None:
        for entries, key, was_there, before in reversed(self.journal):
            if was_there:
                entries[key] = before
            else:
                del entries[key]
        self.journal.clear()

    def forget(self) -> None:
        """Drop what was written: it is committed, or it never will be."""
        for entries in self._written.values():
            entries.clear()
        self.journal.clear()
        self.bytes_held, self.local, self.message_key, self.key_prefix = 0, None, None, None


class Store:
    """A keyed store, scoped to the key of the message in hand (`task.KeyedStore`)."""

    def __init__(
        self, config: StoreConfig, state: TaskState, written: dict[bytes, bytes | None], task_name: TaskName
    ) -> None:
        self._name = config.name
        self._serde = serde_of(config.msg_serde)
        self._name_encode = serde_of(config.key_serde).encode
        self._state = state
        self._written = written

    def get(self, name: Any = "") -> Any:
        key = self._key(name)
        written = self._written
        if key in written:
            return self._serde.decode(written[key])
        local = self._state.local
        assert local is not None, "a store is read only while a message is handled"
        return self._serde.decode(local.get(self._name, key))

    def put(self, value: Any, name: Any = "") -> None:
        raw = self._serde.encode(value)
        if raw is None:
            raise SerdeError(f"store {self._name}: wanted a value, found None; use delete() to remove an entry")
        self._write(self._key(name), raw)

    def delete(self, name: Any = "") -> None:
        self._write(self._key(name), None)

    def time_next_calls(self) -> None:
        """Let the next call of each kind be timed.

        It stands in front of the method, on the instance, until it was called. A counter of calls, however cheap,
        was 4 to 7 % of every read and write; so the calls that are not timed cost what they did.
        """
        costs = self._state.costs
        for name, watch in (("get", costs.gets), ("put", costs.puts), ("delete", costs.deletes)):
            vars(self)[name] = self._timed_once(name, watch)

    def _timed_once(self, name: str, watch: Stopwatch) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            # Whoever keeps this very object has all its calls timed.
            vars(self).pop(name, None)
            return watch.timed(getattr(self, name), *args, **kwargs)

        return call

    def _write(self, key: bytes, raw: bytes | None) -> None:
        state, written = self._state, self._written
        size = len(key) + (0 if raw is None else len(raw))
        if size > state.record_bytes_max:
            raise TaskError(too_large(f"an entry of store {self._name}", size, state.record_bytes_max))
        if state.undoes:
            state.journal.append((written, key, key in written, written.get(key)))
        written[key] = raw
        state.bytes_held += size

    def _key(self, name: Any) -> bytes:
        prefix = self._state.key_prefix or self._prefix()
        if name == "":
            return prefix
        encoded = self._name_encode(name)
        assert encoded is not None
        return prefix + encoded

    def _prefix(self) -> bytes:
        """The changelog key of this message's entry without a name, in front of which all its keys begin."""
        state = self._state
        if state.is_broadcast:
            raise TaskError(
                f"store {self._name}: wanted a message of an input of the task's own, found one of a broadcast input; "
                "every task gets that one, and the entries of a keyed store belong to a key in one task"
            )
        if state.message_key is None:
            raise TaskError(
                f"store {self._name}: wanted a message with a key, found one without; "
                "a keyed store belongs to the message's key, so check envelope.key before using it"
            )
        state.key_prefix = changelog_key(state.message_key, b"")
        return state.key_prefix


class TaskStore(Store):
    """A store of scope `task`: the same entries whatever message is in hand."""

    def __init__(
        self, config: StoreConfig, state: TaskState, written: dict[bytes, bytes | None], task_name: TaskName
    ) -> None:
        super().__init__(config, state, written, task_name)
        self._task_prefix = task_entry_key(task_name, b"")

    def _key(self, name: Any) -> bytes:
        if name == "":
            return self._task_prefix
        encoded = self._name_encode(name)
        assert encoded is not None
        return self._task_prefix + encoded


class BroadcastStore(TaskStore):
    """A store of scope `broadcast`: of each task its own copy, made by the same messages."""

    def _write(self, key: bytes, raw: bytes | None) -> None:
        if not self._state.is_broadcast:
            raise TaskError(
                f"store {self._name}: wanted a message of a broadcast input, found one of the task's own; a store of "
                "scope broadcast holds the same in every task, so only what every task gets may change it. Write it "
                "while a message of task.broadcast.inputs is handled, or give the store another scope"
            )
        super()._write(key, raw)


_STORES: Mapping[str, type[Store]] = {"key": Store, "broadcast": BroadcastStore, "task": TaskStore}
