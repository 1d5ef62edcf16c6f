"""Readers of values: serdes by name and type, sub-keys, samzapy's own entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from samzapy.model import clock_entry, timer_entry
from samzapy.model.clock_entry import ClockEntry, InputClock, PartWatermark
from samzapy.model.serde import SerdeError, serde_of
from samzapy.model.serde.base import NamedSerde
from samzapy.model.serde.ordered import ordered_of, with_flags
from samzapy.model.serde.typed import Json, Msgpack, named
from samzapy.model.timer_entry import Domain
from samzapy.model.window_entry import STORE as WINDOW
from samzapy.stream.changelog import changelog_key
from samzapy.stream.log import LogRecord
from unit_tests.hostile.codec import Codec, Mutate
from unit_tests.hostile.mutations import mutated_binary, mutated_json

_A_UUID = UUID("88b0d30c-d518-4307-9e8e-c8529eb30f04")
_JSON = (b'{"count":3,"last":"2026-01-01","by":{"a":[1,2.5,null,true]}}', '"\u00e4\u20ac"'.encode(), b"[]", b"0")
_TEXTS = ("\u00e4\u20ac", "", "a" * 300)


class _Inner(msgspec.Struct):
    name: str
    amounts: list[float]


class _Order(msgspec.Struct):
    number: int
    by_name: dict[str, _Inner]
    note: str | None = None


@dataclass
class _Place:
    host: str
    ports: tuple[int, ...]


_AN_ORDER = _Order(number=7, by_name={"a": _Inner(name="\u00e4", amounts=[0.5, 2.0])}, note="n")
_A_PLACE = _Place(host="h", ports=(1, 2))
_VALUES: Mapping[str, Sequence[object]] = {
    "msgpack": [{"count": 3, "by": {"a": [1, 2.5, None, True]}}, "\u20ac", [], 0, b"bytes", {1: [[[]]]}],
    "integer": [7],
    "long": [-(2**63)],
    "double": [2.5],
    "timestamp": [1_767_225_600_000],
    "uuid": [_A_UUID],
}
_SUB_KEYS: Mapping[str, Sequence[object]] = {
    "string": _TEXTS[:2],
    "long": [-7],
    "string,timestamp": [("a\0b", 5), ("", -1)],
    "bytes,uuid,integer": [(b"\0\xff", _A_UUID, -3)],
}
_CLOCKS = ClockEntry(
    epoch=3,
    execution_id="e1",
    boot_ms=5,
    wall_ms=1_767_225_600_000,
    watermark_ms=None,
    inputs={"kafka.a.0": InputClock(clock_ms=4, offset_next=9, quiet_since_ms=2, is_known=False, message_at_ms=8)},
    parts=(PartWatermark(bucket=1, factor=4, watermark_ms=7),),
)


def _reader(serde: NamedSerde) -> Callable[[LogRecord], object]:
    def read(record: LogRecord) -> object:
        # An object from a store can be put into it again.
        return serde.encode(serde.decode(record.value))

    return read


def _values(name: str, serde: NamedSerde, originals: Sequence[object], mutate: Mutate) -> Codec:
    return _codec(name, [serde.encode(value) or b"" for value in originals], mutate, _reader(serde))


def _codec(
    name: str,
    originals: Sequence[bytes],
    mutate: Mutate,
    read: Callable[[LogRecord], object],
    refusal: type[Exception] = SerdeError,
) -> Codec:
    return Codec(
        name=name,
        originals=[(changelog_key(b"k", b""), value) for value in originals],
        mutate_key=None,
        mutate_value=mutate,
        read=read,
        refusal=refusal,
        listed=None,
    )


def _read_sub_key(names: str) -> Callable[[LogRecord], object]:
    """A sub-key as a map reads it, written again to the same bytes.

    So a key has one spelling.
    """
    serde = ordered_of(names)

    def read(record: LogRecord) -> None:
        value = serde.decode(record.value)
        assert value is not None
        if len(record.value or b"") <= 255:
            assert serde.encode(value) == record.value

    return read


def _read_clocks(record: LogRecord) -> None:
    entry = clock_entry.decoded(record.value or b"")
    assert entry == clock_entry.decoded(clock_entry.encoded(entry))


def _read_timer(record: LogRecord) -> None:
    value = record.value or b""
    timer_entry.moment_of(value)
    assert timer_entry.DUE_BYTES == len(timer_entry.due_prefix(value))


def _read_name_of_timer(record: LogRecord) -> None:
    sub_key = record.value or b""
    timer_entry.name_and_tag(sub_key)
    timer_entry.expiring_entry(sub_key)


VALUES = (
    *(_codec(f"changelog-{name}", _JSON, mutated_json, _reader(serde_of(name))) for name in ("json", "string")),
    *(_values(f"changelog-{name}", serde_of(name), given, mutated_binary) for name, given in _VALUES.items()),
    _values("json-of-a-struct", named(Json(_Order)), [_AN_ORDER], mutated_json),
    _values("msgpack-of-a-struct", named(Msgpack(_Order)), [_AN_ORDER], mutated_binary),
    _values("json-of-a-dataclass", named(Json(_Place)), [_A_PLACE], mutated_json),
    _values("value-with-flags", with_flags(serde_of("json")), [{"a": 1}], mutated_json),
    *(
        _codec(
            f"sub-key-{names}",
            [ordered_of(names).encode(value) or b"" for value in values],
            mutated_binary,
            _read_sub_key(names),
        )
        for names, values in _SUB_KEYS.items()
    ),
    _codec("entry-of-clocks", [clock_entry.encoded(_CLOCKS)], mutated_json, _read_clocks),
    _codec(
        "entry-of-a-timer",
        [timer_entry.timer_value(domain, 1_767_225_600_000) for domain in Domain],
        mutated_binary,
        _read_timer,
        ValueError,
    ),
    _codec(
        "name-of-a-timer",
        [timer_entry.sub_key_of("\u00e4", "tag"), timer_entry.expiry_of("seen", b"a\0b")],
        mutated_binary,
        _read_name_of_timer,
        ValueError,
    ),
    _values(f"entry-of-{WINDOW.strip('_')}s", serde_of("long"), [1_767_225_600_000], mutated_binary),
)
