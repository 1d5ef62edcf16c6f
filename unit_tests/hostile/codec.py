"""One reader of bytes that come from outside, as `assault` and `fuzz` call it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from samzapy.stream.log import LogRecord

Mutate = Callable[[bytes, Random], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """One reader.

    Attributes:
        originals: good bytes as (key, value).
        mutate_key, mutate_value: None where that part is left alone.
        read: reads and uses a record as the product does; raises `refusal` and nothing else.
        listed: the offsets that the reader for people lists as unreadable; None where there is no such reader.
    """

    name: str
    originals: Sequence[tuple[bytes, bytes | None]]
    mutate_key: Mutate | None
    mutate_value: Mutate | None
    read: Callable[[LogRecord], object]
    refusal: type[Exception]
    listed: Callable[[Sequence[LogRecord]], Collection[int]] | None


def record_of(codec: Codec, data: bytes) -> LogRecord:
    """The record of a fuzzer's bytes.

    The first byte chooses the good record to begin from, and whether the rest takes the place of its key.
    """
    choice, rest = data[:1] or b"\0", data[1:]
    key, value = codec.originals[(choice[0] >> 1) % len(codec.originals)]
    is_key = codec.mutate_value is None or (codec.mutate_key is not None and bool(choice[0] & 1))
    key, value = (rest, value) if is_key else (key, rest)
    return LogRecord(offset=1, timestamp_ms=0, key=key, value=value, headers=())


def seeds(codec: Codec) -> list[bytes]:
    """Bytes for each of the good records."""
    examples = []
    for number, (key, value) in enumerate(codec.originals[:128]):
        if codec.mutate_value is not None and value is not None:
            examples.append(bytes([number << 1]) + value)
        if codec.mutate_key is not None:
            examples.append(bytes([number << 1 | 1]) + key)
    return examples
