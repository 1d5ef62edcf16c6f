"""The port of traces.

They are spans with attributes, which an adapter sends to a collector.
The core calls it as it goes on, and it never fails and never waits. Without tracing it is `NO_TRACER`, whose calls
cost a fraction of a microsecond. Attributes have names, counts and ids: never a message, a key or a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

Value = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Value]
NO_ATTRIBUTES: Final[Attributes] = {}


class Span(Protocol):
    """A piece of work with a begin and an end."""

    def note(self, event: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Note an event, which happens now."""
        ...

    def put(self, attributes: Attributes) -> None:
        """Set attributes, over those of the same names."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """End the span now.

        Of an error only the class is kept: its text may quote a message.
        """
        ...


class Tracer(Protocol):
    """Begins spans.

    Attributes:
        is_on: whether spans go anywhere; if not, attributes need not be computed.
    """

    is_on: bool

    def begin(
        self,
        name: str,
        attributes: Attributes = NO_ATTRIBUTES,
        *,
        age_ns: int = 0,
        inside: Sequence[Span] = (),
        requests: Sequence[str] = (),
    ) -> Span:
        """Begin a span.

        Args:
            age_ns: how long ago its work began.
            inside: the spans that it is a part of: the child of the first, with links to the others.
            requests: the ids of the operator's requests that it serves. All spans of one request are one trace, also
                of several leaders; a span of several has links to their traces.
        """
        ...


class _NoSpan:
    __slots__ = ()

    def note(self, event: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        pass

    def put(self, attributes: Attributes) -> None:
        pass

    def end(self, error: BaseException | None = None) -> None:
        pass


NO_SPAN: Final[Span] = _NoSpan()


class _NoTracer:
    __slots__ = ("is_on",)

    def __init__(self) -> None:
        self.is_on = False

    def begin(
        self,
        name: str,
        attributes: Attributes = NO_ATTRIBUTES,
        *,
        age_ns: int = 0,
        inside: Sequence[Span] = (),
        requests: Sequence[str] = (),
    ) -> Span:
        return NO_SPAN


NO_TRACER: Final[Tracer] = _NoTracer()
"""The tracer of a process that traces nothing."""
