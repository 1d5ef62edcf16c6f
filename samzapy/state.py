"""State that a task class declares as its attributes.

```python
class Totals(samzapy.Task[str, Order]):
    total = samzapy.value(samzapy.Double, default=0.0)
    orders = samzapy.counter()

    def process(self, message, out):
        self.total.set(self.total.get() + message.value.amount)
        self.orders.add()
```

Each attribute is a store of that name, so it is kept, moved and restored as every store. In a task it acts on the
entry of the message in hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Final, Generic, NoReturn, Protocol, Self, TypeVar, overload

from samzapy.errors import OutsideMessageError, TaskModuleError
from samzapy.model.serde import Long, Serde
from samzapy.streams import place_of_caller

T = TypeVar("T")
D = TypeVar("D")
SCOPES: Final = ("key", "task", "broadcast")


class Entry(Protocol):
    """The store of a state, at the message in hand."""

    def get(self) -> Any: ...
    def put(self, value: Any) -> None: ...
    def delete(self) -> None: ...


class State:
    """A declared state. In a task's instance it is bound to the task's stores."""

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
