"""Timers that a task class declares as its attributes.

```python
class Sessions(samzapy.Task[str, Click]):
    quiet = samzapy.timer("processing")

    def process(self, message, out):
        self.quiet.set(self.quiet.now_ms() + 30_000)

    @quiet.fires
    def closed(self, timer: samzapy.Firing[str], out: samzapy.Output) -> None:
        out.send(sessions, "closed", key=timer.key)
```

A timer belongs to the key of the message in hand, and moves with it. It is an entry of the store `_timers`, so setting
and firing it are committed with state and outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar

from samzapy.durations import DURATION_MAX_MS, is_duration
from samzapy.errors import TaskError, TaskModuleError
from samzapy.model.reach import Reach, Unbound
from samzapy.model.timer_entry import (
    MOMENT_MAX,
    STORE,
    Domain,
    clear_moment,
    moment_of,
    set_moment,
    sub_key_of,
)
from samzapy.streams import Output, Place, place_in_class

K = TypeVar("K")
Own = TypeVar("Own")
_DOMAINS: Final = {"processing": Domain.PROCESSING, "event": Domain.EVENT}
TIMER_OF_HANDLER: Final = "__samzapy_timer__"
"""The attribute of a method that `Timer.fires` has marked."""


@dataclass(frozen=True, slots=True)
class Firing(Generic[K]):
    """A timer that fires.

    Attributes:
        key: of the message that set it.
        name: of the attribute that declares the timer.
        tag: as given to `set`.
        time_ms: the moment that it was set for, milliseconds since 1970.
    """

    key: K
    name: str
    tag: str
    time_ms: int


class Timer:
    """A declared timer: at most one moment per key and tag."""

    # As of `State`.
    __slots__ = ("_now_ms", "_on_set", "_reach", "_resolution_ms", "_without_tag", "domain", "name", "place")

    def __init__(self, domain: Domain, resolution_ms: int, place: Place) -> None:
        """Declare it; `bound` makes the timer of one task."""
        self.domain = domain
        self.place = place
        self.name = ""
        # The sub-key of the timer without a tag, which most timers are.
        self._without_tag = b""
        self._resolution_ms = resolution_ms
        self._reach: Reach = Unbound("timer", self)
        self._now_ms: Callable[[], int] | None = None
        self._on_set: Callable[[int], bool] | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name
        self._without_tag = sub_key_of(self.name, "")

    def bound(self, reach: Reach, now_ms: Callable[[], int], on_set: Callable[[int], bool] | None = None) -> Self:
        """This timer in one task.

        Args:
            reach: gives the stores of the message in hand.
            now_ms: the clock that it goes by.
            on_set: called with each moment, also one that is too far; returns whether it may be set.
        """
        new = copy(self)
        new._reach, new._now_ms, new._on_set = reach, now_ms, on_set
        return new

    def now_ms(self) -> int:
        """The present time in milliseconds since 1970, as the timer goes by it.

        In event time this is the watermark of the task, 0 while there is none. At the end of bounded inputs it is
        2**62 - 1, which is later than each moment.
        """
        if self._now_ms is None:
            raise Unbound("timer", self).error()
        return self._now_ms()

    def set(self, time_ms: int, *, tag: str = "") -> None:
        """Let the timer fire at a moment, in place of the moment before.

        A moment that is past fires at once, after the message.

        Args:
            time_ms: milliseconds since 1970.
            tag: tells several timers of one key apart.

        Raises:
            TaskError: no such moment, a message without a key, or one of a broadcast input.
        """
        if not isinstance(time_ms, int) or isinstance(time_ms, bool) or time_ms < 0:
            raise self._no_moment(time_ms)
        entries, sub_key = self._reach.in_hand[STORE], self._without_tag if tag == "" else self._sub_key(tag)
        # Behind the end of the inputs, where no timer is set any more, a time from now on is past all moments.
        if self._on_set is None or self._on_set(time_ms):
            if time_ms >= MOMENT_MAX:
                raise self._no_moment(time_ms)
            # Rounded up: a timer never fires before its moment.
            set_moment(entries, sub_key, self.domain, time_ms, self._resolution_ms)

    def clear(self, *, tag: str = "") -> None:
        """Let the timer not fire; nothing happens if it is not set."""
        clear_moment(self._reach.in_hand[STORE], self._sub_key(tag))

    def get(self, *, tag: str = "") -> int | None:
        """The moment at which the timer fires; None if it is not set."""
        value: bytes | None = self._reach.in_hand[STORE].get(self._sub_key(tag))
        return None if value is None else moment_of(value)

    def fires(self, method: Callable[[Own, Firing[K], Output], None]) -> Callable[[Own, Firing[K], Output], None]:
        """Mark the method of the task that is called when the timer fires.

        Its arguments are `(self, timer, out)`. State and timers are those of the timer's key.
        """
        setattr(method, TIMER_OF_HANDLER, self)
        return method

    def _no_moment(self, time_ms: object) -> TaskError:
        return TaskError(
            f"timer {self.name}: wanted a moment in whole milliseconds since 1970, found {time_ms!r}; for a time from "
            "now on, add to now_ms()"
        )

    def _sub_key(self, tag: str) -> bytes:
        if tag == "":
            return self._without_tag
        if not isinstance(tag, str) or "\0" in tag:
            raise TaskError(f"timer {self.name}: wanted a tag as text without a zero character, found {tag!r}")
        return sub_key_of(self.name, tag)


def timer(domain: str, *, resolution_ms: int = 1) -> Timer:
    """Declare a timer.

    Args:
        domain: `processing`: it goes by the clock of the host. `event`: it goes by the event time of the messages
            (docs/guides/time.md).
        resolution_ms: moments are rounded up to a multiple of this. Fewer moments are fewer transactions, and a timer
            that is set to the same moment again writes nothing.

    Raises:
        TaskModuleError: a domain that there is not, or a resolution below 1 or too long.
    """
    place = place_in_class()
    if domain not in _DOMAINS:
        raise TaskModuleError(
            f"{place}: wanted a timer of the domain {' or '.join(map(repr, _DOMAINS))}, found {domain!r}"
        )
    if not is_duration(resolution_ms):
        raise TaskModuleError(
            f"{place}: wanted resolution_ms of 1 or more, at most {DURATION_MAX_MS}, found {resolution_ms!r}"
        )
    return Timer(_DOMAINS[domain], resolution_ms, place)
