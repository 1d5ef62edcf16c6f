"""The outputs of a message, held back until it has been handled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from samzapy.config import JobConfig
from samzapy.container.task.message_scope import MessageScope, Place
from samzapy.container.task.record_size import record_bytes, too_large
from samzapy.declared_task import Declared
from samzapy.errors import TaskError, UndeclaredError
from samzapy.streams import AnyStream, HeadersToSend

_Encoders = tuple[str, Callable[[Any], bytes | None], Callable[[Any], bytes | None]]
"""The topic of an output, and the encoders of its keys and values."""
TIMESTAMP_MS_MIN: Final = -(2**63)
TIMESTAMP_MS_MAX: Final = 2**63 - 1


class Collector:
    """Holds outputs back until their message is done (`task.MessageCollector`)."""

    def __init__(self, config: JobConfig, scope: MessageScope, declared: Declared | None = None) -> None:
        """Hold nothing yet.

        Args:
            declared: of the job file; one that declares nothing names streams by text.
        """
        self._scope = scope
        self._declared = declared or Declared()
        # The place of its message; None while that message is in hand.
        self.expired_at: Place | None = None
        self.held: list[tuple[Any, ...]] = []
        self.bytes_sent = 0
        # Set by the first output to a stream, and by each output whose partition, time or key its topic may refuse.
        self.must_be_checked = False
        # Topics that are known to take no record without a key.
        self.compacted: set[str] = set()
        self._config = config
        # By topic, as far as topics were asked; others have the default of the cluster.
        self.record_bytes_max: dict[str, int] = {}
        self._record_bytes_max = config.record_bytes_max
        self._streams: dict[str | AnyStream, _Encoders] = {}
        self._intermediates: set[str | AnyStream] = set()

    def send(
        self,
        stream: str | AnyStream,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersToSend | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        topic, key_encode, value_encode = self._streams.get(stream) or self._stream(stream)
        raw_key, raw_value = key_encode(key), value_encode(value)
        size = (0 if raw_key is None else len(raw_key)) + (0 if raw_value is None else len(raw_value))
        if partition is not None or headers is not None or timestamp_ms is not None:
            self._check_placed(stream, partition, timestamp_ms)
        if raw_key is None and topic in self.compacted:
            self.must_be_checked = True
        pairs = None if headers is None else _pairs(stream, headers)
        if pairs:
            size = record_bytes(raw_key, raw_value, pairs)
        if size > self.record_bytes_max.get(topic, self._record_bytes_max):
            size_max = self.record_bytes_max.get(topic, self._record_bytes_max)
            raise TaskError(too_large(f"an output to {stream}", size, size_max))
        self.bytes_sent += size
        self.held.append((topic, raw_key, raw_value, partition, pairs, timestamp_ms))
        # At the end: the message may have ended while a thread was in this method.
        if self.expired_at is not None:
            self.held.clear()
            self._scope.refuse("collector.send", self.expired_at)

    def successor(self) -> Collector:
        """The collector of the next message."""
        # One attribute after the other: after `__dict__.update` each attribute would be slower to read.
        new = Collector(self._config, self._scope, self._declared)
        new.bytes_sent, new.must_be_checked, new.compacted = self.bytes_sent, self.must_be_checked, self.compacted
        new.record_bytes_max, new._streams = self.record_bytes_max, self._streams
        new._intermediates = self._intermediates
        return new

    def forget(self) -> None:
        self.held.clear()
        self.bytes_sent = 0

    def topics(self) -> set[str]:
        """Every topic that was sent to so far."""
        return {topic for topic, _, _ in self._streams.values()}

    def _check_placed(self, stream: str | AnyStream, partition: int | None, timestamp_ms: int | None) -> None:
        """Raise TaskError for a partition or a time that no topic takes.

        `OutputChecks` checks the others against their topic.
        """
        if partition is None and timestamp_ms is None:
            return
        _check_partition(stream, partition)
        _check_timestamp(stream, timestamp_ms)
        if stream in self._intermediates:
            _check_intermediate(stream, partition, timestamp_ms)
        self.must_be_checked = True

    def _stream(self, stream: str | AnyStream) -> _Encoders:
        if self._declared.inputs and stream not in self._declared.outputs:
            names = ", ".join(output.name for output in self._declared.outputs) or "none"
            raise UndeclaredError(
                f"wanted an output that the task declares ({names}), found {stream!r}; add it to outputs=[...]"
            )
        qualified = self._config.qualified(str(stream))
        system, _, topic = qualified.partition(".")
        if not topic or system != self._config.inputs[0].partition(".")[0]:
            raise UndeclaredError(f"wanted an output stream of the job's cluster (kafka.orders), found {stream!r}")
        key, value = self._declared.stream_serdes(qualified, self._config)
        encoders = (topic, key.encode, value.encode)
        own = self._config.intermediate_of(qualified)
        if own is not None:
            encoders = (topic, _keyed(own.name, encoders[1]), encoders[2])
            self._intermediates.add(stream)
        self._streams[stream] = encoders
        self.must_be_checked = True
        return encoders


def _check_partition(stream: str | AnyStream, partition: int | None) -> None:
    """Raise TaskError for a partition that the producer would refuse.

    It would do so later, when the message is no longer known.
    """
    if partition is not None and (not _is_number(partition) or partition < 0):
        raise TaskError(f"output to {stream}: wanted a partition of 0 or more, found {partition!r}")


def _check_timestamp(stream: str | AnyStream, timestamp_ms: int | None) -> None:
    if timestamp_ms is None:
        return
    if not _is_number(timestamp_ms) or not TIMESTAMP_MS_MIN <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise TaskError(
            f"output to {stream}: wanted a timestamp_ms in whole milliseconds, in 64 bits, found {timestamp_ms!r}"
        )
    if timestamp_ms == 0:
        raise TaskError(
            f"output to {stream}: wanted another timestamp_ms than 0, which the Kafka client (librdkafka) takes for "
            "the time of sending; put the time into the value or a header, or send 1"
        )


def without_zero_characters(headers: Sequence[tuple[str, bytes | None]]) -> Iterator[tuple[str, bytes | None]]:
    """`headers` with `\\0` written out in names.

    The Kafka client would cut a name off there.
    """
    return ((name.replace("\0", "\\0"), value) for name, value in headers)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _pairs(stream: str | AnyStream, headers: HeadersToSend) -> tuple[tuple[str, bytes | None], ...]:
    """`headers` as the producer takes them.

    Raises TaskError for headers that the producer would refuse, cut off or crash of.
    """
    pairs = header_pairs("output to", stream, headers)
    for name, _ in pairs:
        if not name.isascii() or "\0" in name:
            _check_name(stream, name)
    return pairs


def header_pairs(what: str, stream: str | AnyStream, headers: HeadersToSend) -> tuple[tuple[str, bytes | None], ...]:
    """`headers` of a mapping or of pairs, as pairs.

    `what` and `stream` name the message in errors.

    Raises TaskError for others than of text to bytes.
    """
    given = headers.items() if isinstance(headers, Mapping) else headers
    try:
        pairs = tuple((name, value) for name, value in given)
    except (TypeError, ValueError) as error:
        raise TaskError(
            f"{what} {stream}: wanted headers as a mapping or as pairs of text and bytes, as envelope.headers, "
            f"found {type(headers).__name__}: {error}"
        ) from error
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, bytes | None):
            raise TaskError(
                f"{what} {stream}: wanted headers of text to bytes, found {name!r}: {type(value).__name__}"
            )
    return pairs


def _check_name(stream: str | AnyStream, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise TaskError(f"output to {stream}: wanted a header's name that UTF-8 can say, found {name!r}") from error
    if "\0" in name:
        raise TaskError(
            f"output to {stream}: wanted a header's name without a zero character, at which the Kafka client "
            f"(librdkafka) would cut it off, found {name!r}; send it under another name"
        )


def _keyed(name: str, encode: Callable[[Any], bytes | None]) -> Callable[[Any], bytes | None]:
    """`encode`, which refuses a message without a key for an intermediate stream.

    Such a message would go to any partition, and belong to no key there.
    """

    def encoded(key: Any) -> bytes | None:
        raw = encode(key)
        if raw is None:
            raise TaskError(
                f"an output to the intermediate stream {name}: wanted a key, by which its partition and its task are "
                "chosen, found none; pass key=..."
            )
        return raw

    return encoded


def _check_intermediate(stream: str | AnyStream, partition: int | None, timestamp_ms: int | None) -> None:
    if partition is not None:
        raise TaskError(
            f"an output to the intermediate stream {stream}: wanted no partition, because the key chooses it, whatever "
            f"the number of partitions is by now; found partition={partition}. Send another key"
        )
    if timestamp_ms is not None:
        raise TaskError(
            f"an output to the intermediate stream {stream}: wanted no timestamp_ms, because its messages have the "
            f"time at which the broker took them; found timestamp_ms={timestamp_ms}. Put it into the value or a header"
        )
