"""Messages, and streams that a job file declares with their types.

```python
payments = samzapy.Stream("kafka.payments", key=samzapy.String, value=samzapy.Json(Payment))
```
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from samzapy.durations import DURATION_MAX_MS, is_duration
from samzapy.errors import TaskModuleError
from samzapy.model.serde import Serde, fault_of, name_of
from samzapy.model.ssp import SystemStreamPartition

K = TypeVar("K")
V = TypeVar("V")
Own = TypeVar("Own")
Struct = msgspec.Struct
"""The base of a message or state with fields: decoded four times as fast as a dict, and checked."""
Headers = tuple[tuple[str, bytes | None], ...]
HeadersToSend = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
_AHEAD = ("take", "refuse")
STREAM_OF_HANDLER = "__samzapy_stream__"
"""The attribute of a method that `Stream.each` has marked."""


class IncomingMessageEnvelope(msgspec.Struct, eq=False):
    """One message of an input.

    Attributes:
        ssp: where it was read.
        offset: its offset there.
        key, value: decoded by the stream's serdes; `None` for a message without a key and for a tombstone.
        key_bytes, value_bytes: exactly as on the topic.
        timestamp_ms: the record's timestamp as its producer wrote it, milliseconds since 1970; -1 if it
            wrote none.
        headers: in order, names may repeat.
        intermediate: name of the intermediate stream that it comes from; empty for a message of another input.
    """

    ssp: SystemStreamPartition
    offset: int
    key: Any
    value: Any
    key_bytes: bytes | None
    value_bytes: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    intermediate: str = ""

    def __repr__(self) -> str:
        return f"IncomingMessageEnvelope({self.ssp}@{self.offset}, key={self.key!r})"


class Message(IncomingMessageEnvelope, Generic[K, V], eq=False):
    """One message of a declared input, with the types of its key and value.

    Attributes:
        key, value: None for a message without a key, and for a tombstone; the types do not tell.
    """

    key: K
    value: V

    @property
    def time_ms(self) -> int:
        """The time of the message, milliseconds since 1970.

        It is what `event_time` of its stream gives, by default the record's timestamp.
        """
        return self.timestamp_ms


def _timed_message(event_time: Callable[[Any], int]) -> type[Message[Any, Any]]:
    """The class of the messages of a stream with event times of its own."""
    return type("Message", (Message,), {"time_ms": property(event_time)})


class Output(Protocol):
    """Takes the messages that a task class sends.

    As `MessageCollector`, with the types of the stream.
    """

    def send(
        self,
        stream: Stream[K, V],
        value: V,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: HeadersToSend | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send a message to a declared output. See `MessageCollector.send`.

        Raises:
            SerdeError, TaskError: as there.
            UndeclaredError: the stream is not in `outputs=[...]`.
        """
        ...


class Stream(Generic[K, V]):
    """An input or output of the job.

    Attributes:
        name: `kafka.payments`: the system, a dot, the topic.
        key, value: their serdes.
        event_time, disorder_ms, event_time_ahead: as declared.
        message_type: the class of its messages.
        place: where it is declared, `job.py:12`.
    """

    __slots__ = ("disorder_ms", "event_time", "event_time_ahead", "key", "message_type", "name", "place", "value")

    def __init__(
        self,
        name: str,
        *,
        key: Serde[K],
        value: Serde[V],
        event_time: Callable[[Message[K, V]], int] | None = None,
        disorder_ms: int = 0,
        event_time_ahead: str = "take",
    ) -> None:
        """Declare a stream.

        Args:
            event_time: the time of a message, milliseconds since 1970; by default the record's timestamp.
            disorder_ms: how much older than the newest message a message may be without being late.
            event_time_ahead: what becomes of a message whose event time is further ahead of the clock than
                task.event.time.ahead.max.ms. `take`: it is handled, and moves no clock. `refuse`: it fails, and
                task.error.policy says what follows.

        Raises:
            TaskModuleError: the name has no system or is a pattern, the key or value is no serde, the key's serde does
                not give one spelling to equal keys, or there is no such disorder or choice.
        """
        self.name = name
        self.key = key
        self.value = value
        self.event_time = event_time
        self.disorder_ms = disorder_ms
        self.event_time_ahead = event_time_ahead
        self.message_type: type[Message[K, V]] = Message if event_time is None else _timed_message(event_time)
        self.place = place_of_caller()
        self._check_times()
        system, _, topic = name.partition(".")
        if not system or not topic:
            raise TaskModuleError(
                f"{self.place}: wanted a stream as system.topic, for instance kafka.payments, found {name!r}"
            )
        if topic.startswith("~"):
            raise TaskModuleError(
                f"{self.place}: wanted the name of one topic, found the pattern {name}; declare each topic, or name "
                "the pattern in task.inputs and mark a function with @samzapy.task"
            )
        self._check_serdes()

    def _check_serdes(self) -> None:
        for of, serde in (("key", self.key), ("value", self.value)):
            fault = fault_of(serde)
            if fault:
                raise TaskModuleError(f"{self.place}: stream {self.name}: wanted a serde as {of}, {fault}")
        if name_of(self.key) == "double":
            raise TaskModuleError(
                f"{self.place}: stream {self.name}: wanted a serde for keys, found double: 0.0 and -0.0 are equal and "
                "have different bytes, so one key would be two"
            )

    def _check_times(self) -> None:
        # A stream in order has a disorder of 0, which is no duration.
        if not is_duration(self.disorder_ms) and (type(self.disorder_ms) is not int or self.disorder_ms != 0):
            raise TaskModuleError(
                f"{self.place}: stream {self.name}: wanted disorder_ms in whole milliseconds, 0 or more, at most "
                f"{DURATION_MAX_MS}, for instance samzapy.seconds(5), found {self.disorder_ms!r}"
            )
        if self.event_time is not None and not callable(self.event_time):
            raise TaskModuleError(
                f"{self.place}: stream {self.name}: wanted event_time as a function of the message, found "
                f"{self.event_time!r}"
            )
        if self.event_time_ahead not in _AHEAD:
            raise TaskModuleError(
                f"{self.place}: stream {self.name}: wanted event_time_ahead as {' or '.join(_AHEAD)}, found "
                f"{self.event_time_ahead!r}"
            )

    def each(
        self, method: Callable[[Own, Message[K, V], Output], None]
    ) -> Callable[[Own, Message[K, V], Output], None]:
        """Mark the method of a task class that handles this stream.

        Its arguments are those of `Task.process`: `(self, message, out)`.
        """
        setattr(method, STREAM_OF_HANDLER, self)
        return method

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    def __str__(self) -> str:
        return self.name


def place_of_caller(depth: int = 2) -> str:
    """The file and line that declares something, `job.py:12`."""
    frame = sys._getframe(depth)
    return f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"


class Place(str):
    """Where a class declares something, `job.py:12`.

    Attributes:
        before: the names that the class had by then.
    """

    before: Mapping[str, object]


def place_in_class() -> Place:
    """The place of the declaration whose function calls this."""
    place, names = Place(place_of_caller(3)), sys._getframe(2).f_locals
    # Elsewhere than in the body of a class, a second declaration replaces no attribute.
    place.before = dict(names) if "__qualname__" in names else {}
    return place


AnyStream = Stream[Any, Any]
