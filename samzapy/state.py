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

from collections.abc import Iterator
from copy import copy
from itertools import islice
from typing import Any, Final, Generic, Protocol, Self, TypeVar, overload

from samzapy.durations import DURATION_MAX_MS, is_duration
from samzapy.errors import TaskModuleError
from samzapy.model.reach import Reach, Unbound
from samzapy.model.serde import (
    ORDERED,
    Bytes,
    Integer,
    Long,
    Serde,
    SerdeError,
    String,
    Timestamp,
    Uuid,
    fault_of,
    name_of,
    ordered_of,
)
from samzapy.model.timer_entry import (
    EXPIRING_SUB_KEY_BYTES_MAX,
    STORE,
    Domain,
    Entry,
    clear_moment,
    domain_of,
    expiry_of,
    moment_of,
    put_off,
    set_moment,
)
from samzapy.streams import Place, place_in_class

T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
SCOPES: Final = ("key", "task", "broadcast")
REFRESHES: Final = ("write", "read")
_STEPS: Final = 50
"""An entry lives for its ttl, and for up to a fiftieth of it more."""


class Range(Entry, Protocol):
    """The store of a map or list."""

    def entries(self, first: Any = None, last: Any = None, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]: ...


class Number(Entry, Protocol):
    """The store of a counter."""

    def add(self, amount: int) -> int:
        """Add to the number, 0 without one, and return the sum."""
        ...


class ExpiryClock(Protocol):
    """The clock by which the entries of a task expire.

    Attributes:
        domain: of the expiries that are set.
    """

    domain: Domain

    def expired_ms(self, domain: Domain) -> int:
        """The moment up to which entries have expired for the call in hand.

        Args:
            domain: of an expiry. One of another clock was set by an earlier form of the task.
        """
        ...

    def written_ms(self) -> int:
        """The time of a write by the call in hand."""
        ...


class State:
    """A declared state. In a task's instance it is bound to the task's stores.

    Attributes:
        kind: as in `stores.<name>.kind`.
        sub_keys: the names of the serdes of sub-keys, with commas between.
        ttl_ms: for how long an entry is kept after its last write; None for ever.
    """

    # Slots: a copy (`bound`) has its attributes in a dictionary otherwise, where they are slower to read.
    __slots__ = ("_clock", "_is_refreshed_by_reads", "_reach", "name", "place", "scope", "serde", "ttl_ms")
    kind = "value"
    sub_keys = "string"

    def __init__(
        self, serde: Serde[Any], scope: str, place: Place, ttl: int | None = None, refresh: str = "write"
    ) -> None:
        self.serde = serde
        self.scope = scope
        self.place = place
        self.ttl_ms = ttl
        self.name = ""
        self._reach: Reach = Unbound("state", self)
        self._clock: ExpiryClock | None = None
        self._is_refreshed_by_reads = refresh == "read"
        fault = fault_of(serde)
        if fault:
            raise TaskModuleError(f"{place}: wanted a serde of values, {fault}")
        if scope not in SCOPES:
            raise TaskModuleError(f"{place}: wanted a scope of {', '.join(SCOPES)}, found {scope!r}")
        if refresh not in REFRESHES:
            raise TaskModuleError(f"{place}: wanted refresh to be {' or '.join(REFRESHES)}, found {refresh!r}")
        if ttl is not None:
            self._check_ttl(ttl)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def bound(self, reach: Reach, clock: ExpiryClock) -> Self:
        """This state in one task.

        Args:
            reach: gives the stores of the message in hand.
            clock: by which entries expire.
        """
        new = copy(self)
        new._reach, new._clock = reach, clock
        return new

    def _check_ttl(self, ttl: int) -> None:
        if not is_duration(ttl):
            raise TaskModuleError(
                f"{self.place}: wanted ttl in whole milliseconds, 1 or more, at most {DURATION_MAX_MS}, for instance "
                f"samzapy.hours(1), found {ttl!r}"
            )
        if self.scope != "key":
            raise TaskModuleError(
                f"{self.place}: wanted ttl for a state of scope key, found scope {self.scope}, whose entries belong to "
                "no key"
            )

    # An entry expires by a timer of its key (`model.timer_entry`), so its expiry moves with it.

    def _touch(self, sub_key: bytes = b"") -> None:
        """Let an entry expire `ttl_ms` from now on.

        Moments are rounded up, so that most writes of an entry need not write its expiry again.
        """
        if self.ttl_ms is None:
            return
        clock = self._bound_clock
        expiry, step_ms = expiry_of(self.name, sub_key), max(1, self.ttl_ms // _STEPS)
        # An older message that comes later shortens no life: the order in which inputs are read counts for nothing.
        set_to = put_off if clock.domain is Domain.EXPIRY else set_moment
        set_to(self._reach.in_hand[STORE], expiry, clock.domain, clock.written_ms() + self.ttl_ms, step_ms)

    def _forget(self, sub_key: bytes = b"") -> None:
        """Let an entry that is removed not expire."""
        if self.ttl_ms is not None:
            clear_moment(self._reach.in_hand[STORE], expiry_of(self.name, sub_key))

    def _is_over(self, sub_key: bytes = b"") -> bool:
        """Whether an entry has expired.

        One without an expiry by the task's clock gets one now.
        """
        if self.ttl_ms is None:
            return False
        clock, raw = self._bound_clock, self._reach.in_hand[STORE].get(expiry_of(self.name, sub_key))
        domain = None if raw is None else domain_of(raw)
        if raw is not None and domain is not None and moment_of(raw) <= clock.expired_ms(domain):
            return True
        if domain is not clock.domain or self._is_refreshed_by_reads:
            self._touch(sub_key)
        return False

    @property
    def _bound_clock(self) -> ExpiryClock:
        assert self._clock is not None, "the entries of a state that is not bound are refused before"
        return self._clock


class Value(State, Generic[T, D]):
    """One value per key, or per task in scope `task`."""

    __slots__ = ("_default",)

    def __init__(
        self, serde: Serde[T], default: D, scope: str, place: Place, ttl: int | None = None, refresh: str = "write"
    ) -> None:
        super().__init__(serde, scope, place, ttl, refresh)
        self._default = default
        if getattr(default, "__hash__", None) is None:
            raise TaskModuleError(
                f"{place}: wanted a default that does not change, found {type(default).__name__}; it would be shared "
                "by all keys. Leave it out, and test for None"
            )

    def get(self) -> T | D:
        """The value; the default without one."""
        value: T | None = self._reach.in_hand[self.name].get()
        if value is None or (self.ttl_ms is not None and self._is_over()):
            return self._default
        return value

    def set(self, value: T) -> None:
        """Set the value. Raises SerdeError for one of another type, and for None."""
        self._reach.in_hand[self.name].put(value)
        if self.ttl_ms is not None:
            self._touch()

    def clear(self) -> None:
        """Remove the value; nothing happens if there is none."""
        self._reach.in_hand[self.name].delete()
        self._forget()


class Counter(State):
    """A whole number of 64 bits per key, or per task in scope `task`."""

    __slots__ = ()

    def get(self) -> int:
        """The number; 0 without one."""
        value: int | None = self._reach.in_hand[self.name].get()
        return 0 if value is None or (self.ttl_ms is not None and self._is_over()) else value

    def add(self, amount: int = 1) -> int:
        """Add to the number, and return the sum."""
        entry: Number = self._reach.in_hand[self.name]
        if self.ttl_ms is None:
            return entry.add(amount)
        value: int | None = entry.get()
        total = amount if value is None or self._is_over() else value + amount
        entry.put(total)
        self._touch()
        return total

    def clear(self) -> None:
        """Remove the number; nothing happens if there is none."""
        self._reach.in_hand[self.name].delete()
        self._forget()


class Map(State, Generic[S, T]):
    """Values by sub-key and in its order, per key, or per task in scope `task`."""

    __slots__ = ("sub_keys",)
    kind = "map"

    def __init__(
        self, sub_keys: str, serde: Serde[T], scope: str, place: Place, ttl: int | None = None, refresh: str = "write"
    ) -> None:
        super().__init__(serde, scope, place, ttl, refresh)
        self.sub_keys = sub_keys

    def get(self, sub_key: S) -> T | None:
        """The value of a sub-key; None without one."""
        value: T | None = self._reach.in_hand[self.name].get(sub_key)
        return None if value is None or self._is_over(self._expiring(sub_key)) else value

    def put(self, sub_key: S, value: T) -> None:
        """Set the value of a sub-key.

        Raises SerdeError for one of another type, for None, and for a sub-key of more than 255 bytes.
        """
        expiring = self._expiring(sub_key)
        self._reach.in_hand[self.name].put(value, sub_key)
        self._touch(expiring)

    def delete(self, sub_key: S) -> None:
        """Remove a sub-key; nothing happens if it is not there."""
        self._reach.in_hand[self.name].delete(sub_key)
        self._forget(self._expiring(sub_key))

    def items(self, first: S | None = None, last: S | None = None, *, reverse: bool = False) -> Iterator[tuple[S, T]]:
        """Pairs from the sub-key `first` to `last`, both included, in order.

        None stands for the first or last one. The map may be changed meanwhile. Whether a change beyond the pair in
        hand is seen is not defined.
        """
        pairs: Iterator[tuple[S, T]] = self._reach.in_hand[self.name].entries(first, last, reverse=reverse)
        if self.ttl_ms is None:
            return pairs
        return (pair for pair in pairs if not self._is_over(self._expiring(pair[0])))

    def last(self, count: int) -> list[tuple[S, T]]:
        """The `count` pairs with the greatest sub-keys, in order, or all."""
        return list(islice(self.items(reverse=True), count))[::-1]

    def delete_range(self, first: S | None = None, last: S | None = None) -> int:
        """Remove the pairs from `first` to `last`, both included.

        Returns how many there were.
        """
        count = 0
        for sub_key, _ in self._reach.in_hand[self.name].entries(first, last):
            # One that has expired goes too: in event time, an older message would see it after this.
            count += not self._is_over(self._expiring(sub_key))
            self.delete(sub_key)
        return count

    def clear(self) -> None:
        """Remove all pairs."""
        self.delete_range()

    def _expiring(self, sub_key: S) -> bytes:
        """The bytes of a sub-key, where its entry can expire."""
        if self.ttl_ms is None:
            return b""
        raw = ordered_of(self.sub_keys).encode(sub_key)
        assert raw is not None
        if len(raw) > EXPIRING_SUB_KEY_BYTES_MAX:
            raise SerdeError(
                f"serde {self.sub_keys}: wanted a sub-key of at most {EXPIRING_SUB_KEY_BYTES_MAX} bytes in a map with "
                f"ttl, found {len(raw)}; put the long part into the value, or its digest into the sub-key"
            )
        return raw


class ListState(State, Generic[T]):
    """Values in order of arrival, per key, or per task in scope `task`."""

    __slots__ = ()
    kind = "list"
    sub_keys = "long"

    def append(self, value: T) -> None:
        """Put a value behind the last one.

        Raises SerdeError for one of another type, and for None.
        """
        entry = self._reach.in_hand[self.name]
        number = self._end(entry)
        entry.put(value, number)
        self._touch(_number_bytes(number))

    def __iter__(self) -> Iterator[T]:
        """The values, the oldest first."""
        return (value for _, value in self._numbered())

    def __len__(self) -> int:
        if self.ttl_ms is not None:
            # Values expire in any order: older messages append later, and a read may be of a part only.
            return sum(1 for _ in self._numbered())
        entry = self._reach.in_hand[self.name]
        first = next((number for number, _ in self._numbered()), None)
        return 0 if first is None else self._end(entry) - first

    def __bool__(self) -> bool:
        # Not by the length, which with a ttl is a look at each value.
        return next(self._numbered(), None) is not None

    def pop_first(self, count: int = 1) -> list[T]:
        """Remove and return the `count` oldest values; fewer if there are fewer."""
        # The number of the last one goes on, so that numbers never return while values are there.
        oldest = list(islice(self._numbered(), count))
        for number, _ in oldest:
            self._remove(number)
        return [value for _, value in oldest]

    def clear(self) -> None:
        """Remove all values."""
        # As in a map, also those that have expired for this message.
        for number, _ in self._reach.in_hand[self.name].entries():
            self._remove(number)

    def _numbered(self) -> Iterator[tuple[int, T]]:
        pairs: Iterator[tuple[int, T]] = self._reach.in_hand[self.name].entries()
        if self.ttl_ms is None:
            return pairs
        return (pair for pair in pairs if not self._is_over(_number_bytes(pair[0])))

    def _remove(self, number: int) -> None:
        self._reach.in_hand[self.name].delete(number)
        self._forget(_number_bytes(number))

    def _end(self, entry: Range) -> int:
        """The number behind that of the last value."""
        last = next((number for number, _ in entry.entries(reverse=True)), -1)
        return int(last) + 1


def _number_bytes(number: int) -> bytes:
    raw = ordered_of(ListState.sub_keys).encode(number)
    assert raw is not None
    return raw


@overload
def value(
    serde: Serde[T], *, default: T, scope: str = "key", ttl: int | None = None, refresh: str = "write"
) -> Value[T, T]: ...


@overload
def value(
    serde: Serde[T], *, scope: str = "key", ttl: int | None = None, refresh: str = "write"
) -> Value[T, None]: ...


def value(
    serde: Serde[Any], *, default: Any = None, scope: str = "key", ttl: int | None = None, refresh: str = "write"
) -> Value[Any, Any]:
    """Declare one value per key.

    Args:
        default: the value of `get` where nothing is set.
        scope: `key`, `task` or `broadcast`, as `stores.<name>.scope`.
        ttl: an entry is removed so many milliseconds after its last write, for instance `samzapy.hours(1)`. By event
            time where the task keeps it (docs/guides/state.md), else by the clock of the host.
        refresh: `write`, or `read`: also after its last read.

    Raises:
        TaskModuleError: an object that is no serde, a scope or refresh that there is not, a default that can change,
            or a ttl without keys.
    """
    return Value(serde, default, scope, place_in_class(), ttl, refresh)


def counter(*, scope: str = "key", ttl: int | None = None, refresh: str = "write") -> Counter:
    """Declare a whole number of 64 bits per key, which starts at 0.

    Args and errors are those of `value`.
    """
    return Counter(Long, scope, place_in_class(), ttl, refresh)


@overload
def map(
    sub_key: Serde[S], serde: Serde[T], *, scope: str = "key", ttl: int | None = None, refresh: str = "write"
) -> Map[S, T]: ...


@overload
def map(
    sub_key: tuple[Serde[A], Serde[B]],
    serde: Serde[T],
    *,
    scope: str = "key",
    ttl: int | None = None,
    refresh: str = "write",
) -> Map[tuple[A, B], T]: ...


@overload
def map(
    sub_key: tuple[Serde[A], Serde[B], Serde[C]],
    serde: Serde[T],
    *,
    scope: str = "key",
    ttl: int | None = None,
    refresh: str = "write",
) -> Map[tuple[A, B, C], T]: ...


def map(
    sub_key: Any, serde: Serde[Any], *, scope: str = "key", ttl: int | None = None, refresh: str = "write"
) -> Map[Any, Any]:
    """Declare values by sub-key, which are read in the order of the sub-keys.

    Args:
        sub_key: the serde of sub-keys, or a tuple of serdes for sub-keys that are tuples. It is one of `String`,
            `Bytes`, `Long`, `Integer`, `Timestamp` and `Uuid`, whose bytes can be put in order.
        ttl, refresh: as of `value`, for each entry.

    Raises:
        TaskModuleError: a serde without order, or as `value`.
    """
    place = place_in_class()
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
    return Map(",".join(names), serde, scope, place, ttl, refresh)


def list_(serde: Serde[T], *, scope: str = "key", ttl: int | None = None, refresh: str = "write") -> ListState[T]:
    """Declare values in the order in which they are appended.

    Args and errors are those of `value`; a ttl is of each value.
    """
    return ListState(serde, scope, place_in_class(), ttl, refresh)


_ORDERED: Final[tuple[object, ...]] = (Bytes, Integer, Long, String, Timestamp, Uuid)
