"""State that a task class declares as its attributes.

```python
class Totals(samzapy.Task[str, Order]):
    total = samzapy.value(samzapy.Double, default=0.0)
    orders = samzapy.counter()
    recent = samzapy.map(samzapy.Timestamp, samzapy.Json(Order))

    def process(self, message, out):
        self.total.set(self.total.get() + message.value.amount)
        self.orders.add()
        self.recent.put(message.time_ms, message.value)
```

Each attribute is a store of that name, so it is kept, moved and restored as every store. In a task it acts on the
entry of the message in hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from itertools import islice
from typing import Any, Final, Generic, NoReturn, Protocol, Self, TypeVar, cast, overload

from samzapy.errors import OutsideMessageError, TaskModuleError
from samzapy.model.serde import ORDERED, Bytes, Integer, Long, Serde, String, Timestamp, Uuid, name_of
from samzapy.streams import place_of_caller

T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
SCOPES: Final = ("key", "task", "broadcast")


class Entry(Protocol):
    """The store of a state, at the message in hand.

    A map and a list have an entry for each sub-key.
    """

    def get(self, name: Any = "") -> Any: ...
    def put(self, value: Any, name: Any = "") -> None: ...
    def delete(self, name: Any = "") -> None: ...


class Range(Entry, Protocol):
    """The store of a map or list."""

    def entries(self, first: Any = None, last: Any = None, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]: ...


class State:
    """A declared state. In a task's instance it is bound to the task's stores.

    Attributes:
        kind: as in `stores.<name>.kind`.
        sub_keys: the names of the serdes of sub-keys, with commas between.
    """

    kind = "value"
    sub_keys = "string"

    def __init__(self, serde: Serde[Any], scope: str, place: str) -> None:
        self.serde = serde
        self.scope = scope
        self.place = place
        self.name = ""
        self._entries: Mapping[str, Entry] = _Unbound(self)
        if scope not in SCOPES:
            raise TaskModuleError(f"{place}: wanted a scope of {', '.join(SCOPES)}, found {scope!r}")

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def bound(self, entries: Mapping[str, Entry]) -> Self:
        """This state in one task.

        Args:
            entries: by name, the store of the message in hand.
        """
        new = copy(self)
        new._entries = entries
        return new


class Value(State, Generic[T, D]):
    """One value per key, or per task in scope `task`."""

    def __init__(self, serde: Serde[T], default: D, scope: str, place: str) -> None:
        super().__init__(serde, scope, place)
        self._default = default
        if getattr(default, "__hash__", None) is None:
            raise TaskModuleError(
                f"{place}: wanted a default that does not change, found {type(default).__name__}; it would be shared "
                "by all keys. Leave it out, and test for None"
            )

    def get(self) -> T | D:
        """The value; the default without one."""
        value: T | None = self._entries[self.name].get()
        return self._default if value is None else value

    def set(self, value: T) -> None:
        """Set the value. Raises SerdeError for one of another type, and for None."""
        self._entries[self.name].put(value)

    def clear(self) -> None:
        """Remove the value; nothing happens if there is none."""
        self._entries[self.name].delete()


class Counter(State):
    """A whole number of 64 bits per key, or per task in scope `task`."""

    def get(self) -> int:
        """The number; 0 without one."""
        value: int | None = self._entries[self.name].get()
        return 0 if value is None else value

    def add(self, amount: int = 1) -> int:
        """Add to the number, and return the sum."""
        entry = self._entries[self.name]
        total: int = (entry.get() or 0) + amount
        entry.put(total)
        return total

    def clear(self) -> None:
        """Remove the number; nothing happens if there is none."""
        self._entries[self.name].delete()


class Map(State, Generic[S, T]):
    """Values by sub-key and in its order, per key, or per task in scope `task`."""

    kind = "map"

    def __init__(self, sub_keys: str, serde: Serde[T], scope: str, place: str) -> None:
        super().__init__(serde, scope, place)
        self.sub_keys = sub_keys

    def get(self, sub_key: S) -> T | None:
        """The value of a sub-key; None without one."""
        value: T | None = self._entries[self.name].get(sub_key)
        return value

    def put(self, sub_key: S, value: T) -> None:
        """Set the value of a sub-key.

        Raises SerdeError for one of another type, for None, and for a sub-key of more than 255 bytes.
        """
        self._entries[self.name].put(value, sub_key)

    def delete(self, sub_key: S) -> None:
        """Remove a sub-key; nothing happens if it is not there."""
        self._entries[self.name].delete(sub_key)

    def items(self, first: S | None = None, last: S | None = None, *, reverse: bool = False) -> Iterator[tuple[S, T]]:
        """Pairs from the sub-key `first` to `last`, both included, in order.

        None stands for the first or last one.
        The map may be changed meanwhile. Whether a change beyond the pair in hand is seen is not defined.
        """
        return _range_of(self._entries[self.name], first, last, reverse=reverse)

    def last(self, count: int) -> list[tuple[S, T]]:
        """The `count` pairs with the greatest sub-keys, in order, or all."""
        return list(islice(self.items(reverse=True), count))[::-1]

    def delete_range(self, first: S | None = None, last: S | None = None) -> int:
        """Remove the pairs from `first` to `last`, both included.

        Returns how many there were.
        """
        entry = self._entries[self.name]
        count = 0
        for sub_key, _ in _range_of(entry, first, last):
            entry.delete(sub_key)
            count += 1
        return count

    def clear(self) -> None:
        """Remove all pairs."""
        self.delete_range()


class ListState(State, Generic[T]):
    """Values in order of arrival, per key, or per task in scope `task`."""

    kind = "list"
    sub_keys = "long"

    def append(self, value: T) -> None:
        """Put a value behind the last one.

        Raises SerdeError for one of another type, and for None.
        """
        entry = self._entries[self.name]
        entry.put(value, self._end(entry))

    def __iter__(self) -> Iterator[T]:
        """The values, the oldest first."""
        return (value for _, value in _range_of(self._entries[self.name], None, None))

    def __len__(self) -> int:
        entry = self._entries[self.name]
        return self._end(entry) - next((number for number, _ in _range_of(entry, None, None)), 0)

    def pop_first(self, count: int = 1) -> list[T]:
        """Remove and return the `count` oldest values; fewer if there are fewer."""
        entry = self._entries[self.name]
        oldest = list(islice(_range_of(entry, None, None), count))
        # The number of the last one goes on, so that numbers never return while values are there.
        for number, _ in oldest:
            entry.delete(number)
        return [value for _, value in oldest]

    def clear(self) -> None:
        """Remove all values."""
        entry = self._entries[self.name]
        for number, _ in _range_of(entry, None, None):
            entry.delete(number)

    def _end(self, entry: Entry) -> int:
        """The number behind that of the last value."""
        last = next((number for number, _ in _range_of(entry, None, None, reverse=True)), -1)
        return int(last) + 1


def _range_of(entry: Entry, first: Any, last: Any, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
    return cast(Range, entry).entries(first, last, reverse=reverse)


@overload
def value(serde: Serde[T], *, default: T, scope: str = "key") -> Value[T, T]: ...


@overload
def value(serde: Serde[T], *, scope: str = "key") -> Value[T, None]: ...


def value(serde: Serde[Any], *, default: Any = None, scope: str = "key") -> Value[Any, Any]:
    """Declare one value per key.

    Args:
        default: the value of `get` where nothing is set.
        scope: `key`, `task` or `broadcast`, as `stores.<name>.scope`.

    Raises:
        TaskModuleError: a scope that there is not, or a default that can change.
    """
    return Value(serde, default, scope, place_of_caller())


def counter(*, scope: str = "key") -> Counter:
    """Declare a whole number of 64 bits per key, which starts at 0.

    Raises:
        TaskModuleError: as `value`.
    """
    return Counter(Long, scope, place_of_caller())


@overload
def map(sub_key: Serde[S], serde: Serde[T], *, scope: str = "key") -> Map[S, T]: ...


@overload
def map(sub_key: tuple[Serde[A], Serde[B]], serde: Serde[T], *, scope: str = "key") -> Map[tuple[A, B], T]: ...


@overload
def map(
    sub_key: tuple[Serde[A], Serde[B], Serde[C]], serde: Serde[T], *, scope: str = "key"
) -> Map[tuple[A, B, C], T]: ...


def map(sub_key: Any, serde: Serde[Any], *, scope: str = "key") -> Map[Any, Any]:
    """Declare values by sub-key, which are read in the order of the sub-keys.

    Args:
        sub_key: the serde of sub-keys, or a tuple of serdes for sub-keys that are tuples. It is one of `String`,
            `Bytes`, `Long`, `Integer`, `Timestamp` and `Uuid`, whose bytes can be put in order.

    Raises:
        TaskModuleError: a serde without order, or a scope that there is not.
    """
    place = place_of_caller()
    serdes = sub_key if isinstance(sub_key, tuple) else (sub_key,)
    names = [name_of(one) for one in serdes]
    for name, one in zip(names, serdes, strict=True):
        if name not in ORDERED or one not in _ORDERED:
            shown = getattr(one, "name", type(one).__name__)
            raise TaskModuleError(
                f"{place}: wanted a serde of sub-keys that has an order ({', '.join(ORDERED)}), found {shown}; a range "
                "of sub-keys would have none"
            )
    if not names:
        raise TaskModuleError(f"{place}: wanted a serde of sub-keys, found an empty tuple")
    return Map(",".join(names), serde, scope, place)


def list_(serde: Serde[T], *, scope: str = "key") -> ListState[T]:
    """Declare values in the order in which they are appended.

    Raises:
        TaskModuleError: as `value`.
    """
    return ListState(serde, scope, place_of_caller())


_ORDERED: Final[tuple[object, ...]] = (Bytes, Integer, Long, String, Timestamp, Uuid)


class _Unbound(Mapping[str, Entry]):
    """The stores of a state that belongs to no task."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> NoReturn:
        raise OutsideMessageError(
            f"state {name} ({self._state.place}): wanted a use by an instance of its task while it handles a message, "
            "found one before or elsewhere; in a test, run the task with samzapy.testing.task_kit.run_task"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError("the stores of a state are not listed")

    def __len__(self) -> int:
        return 0
