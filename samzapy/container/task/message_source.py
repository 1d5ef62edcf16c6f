"""The source of the messages of a route, and their decoders."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from samzapy.config import JobConfig
from samzapy.container.task.ports import SlotGuard
from samzapy.container.task.work_plan import Message as Row
from samzapy.container.task.work_plan import Refusal, Route, Rows
from samzapy.declared_task import Declared
from samzapy.errors import WorkerDiedError
from samzapy.model.serde import NamedSerde
from samzapy.model.ssp import SspKeyBucket
from samzapy.streams import IncomingMessageEnvelope


class Source(NamedTuple):
    """The input of a route's rows, and its decoders.

    None in the place of a decoder: keys or values are taken as they are.
    """

    ssp_kb: SspKeyBucket
    key_decode: Callable[[bytes | None], Any] | None
    value_decode: Callable[[bytes | None], Any] | None
    intermediate: str
    # The class of its messages.
    new_message: Callable[..., IncomingMessageEnvelope]

    @classmethod
    def of(cls, route: Route, config: JobConfig, declared: Declared) -> Source:
        stream = str(route.ssp_kb.ssp.system_stream)
        own = config.intermediate_of(stream)
        key, value = declared.stream_serdes(stream, config)
        return cls(
            route.ssp_kb,
            _decode(key),
            _decode(value),
            "" if own is None else own.name,
            declared.streams[stream].message_type if stream in declared.streams else IncomingMessageEnvelope,
        )


def _decode(serde: NamedSerde) -> Callable[[bytes | None], Any] | None:
    """The decoder of a serde; None for bytes.

    A call that returns its argument would cost 5 % of a record's time.
    """
    return None if serde.name == "bytes" else serde.decode


def noted(messages: Iterator[Row], route: int, slot: SlotGuard) -> Iterator[Row]:
    """`messages`, each one noted before it is handled."""
    for message in messages:
        slot.note(route, message[1])
        yield message


class Gate:
    """Passes messages on, but for those that end their process.

    Decoding one of these raises WorkerDiedError.
    """

    def __init__(self, refusals: Mapping[int, Refusal], messages: Iterator[Row]) -> None:
        self._refusals = refusals
        self._messages = messages
        self._refusal: Refusal | None = None

    def __iter__(self) -> Iterator[Row]:
        for message in self._messages:
            self._refusal = self._refusals.get(message[1])
            yield message

    def checked(self, decode: Callable[[bytes | None], Any] | None) -> Callable[[bytes | None], Any]:
        """`decode` behind the gate: a serde may end the process, too."""

        def checked(raw: bytes | None) -> Any:
            if self._refusal is not None:
                raise WorkerDiedError(self._refusal.reason)
            return raw if decode is None else decode(raw)

        return checked


def up_to(rows: Rows, offset_end: int | None) -> Rows:
    """The rows before the end of a bounded input.

    Spark's source cannot stop there by itself.
    """
    if offset_end is None or not rows.offsets or rows.offsets[-1] < offset_end:
        return rows
    count = bisect_left(rows.offsets, offset_end)
    return Rows(
        route=rows.route,
        offsets=rows.offsets[:count],
        keys=rows.keys[:count],
        values=rows.values[:count],
        timestamps_ms=rows.timestamps_ms[:count],
        headers=None if rows.headers is None else rows.headers[:count],
    )
