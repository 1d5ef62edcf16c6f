"""Serdes whose bytes have the order of their values, for the sub-keys of maps.

| serde | order |
|---|---|
| `string` | by code point |
| `bytes` | byte by byte |
| `integer`, `long`, `timestamp` | by number; the sign bit is turned, so that -1 comes before 0 |
| `uuid` | by its bytes |
| several, `string,timestamp` | by the first, then by the second, and so on |

In a tuple, text and bytes end with `00 01`, and each `00` in them is written as `00 ff`. So `("a", "b")` and
`("ab", "")` are different keys, and a shorter text comes before the texts that begin with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from samzapy.model.serde.base import NamedSerde, SerdeError
from samzapy.model.serde.named import serde_of

SUB_KEY_BYTES_MAX: Final = 255
"""The most bytes of a sub-key."""
_WIDTHS: Final = {"integer": 4, "long": 8, "timestamp": 8, "uuid": 16}
_SIGNED: Final = ("integer", "long", "timestamp")
ORDERED: Final = ("string", "bytes", *_WIDTHS)
"""The serdes that have an order."""
_SIGN, _ZERO, _WRITTEN_ZERO, _END = 0x80, b"\x00", b"\x00\xff", b"\x00\x01"


@cache
def ordered_of(names: str) -> NamedSerde:
    """The ordered serde of these names.

    Several names, with commas between, are a serde of tuples.

    Raises:
        ValueError: a name that has no order.
    """
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in ORDERED:
            raise ValueError(f"wanted serdes that have an order ({', '.join(ORDERED)}), found {name!r}")
    serde = _of_one(wanted[0]) if len(wanted) == 1 else _of_tuple(wanted)

    def encode(value: Any) -> bytes | None:
        raw = None if value is None else serde.encode(value)
        if raw is None:
            raise SerdeError(f"serde {names}: wanted a sub-key, found None")
        if len(raw) > SUB_KEY_BYTES_MAX:
            raise SerdeError(
                f"serde {names}: wanted a sub-key of at most {SUB_KEY_BYTES_MAX} bytes, found {len(raw)} "
                f"({raw[:20]!r}...); put the long part into the value, or its digest into the sub-key"
            )
        return raw

    return NamedSerde(name=names, encode=encode, decode=serde.decode)


def _of_one(name: str) -> NamedSerde:
    """The ordered serde of one name, without the end that a tuple needs."""
    serde = serde_of(name)
    if name not in _SIGNED:
        return serde

    def encode(value: Any) -> bytes | None:
        raw = serde.encode(value)
        return None if raw is None else _sign_turned(raw)

    def decode(raw: bytes | None) -> Any:
        return serde.decode(_sign_turned(raw) if raw else raw)

    return NamedSerde(name=name, encode=encode, decode=decode)


def _sign_turned(raw: bytes) -> bytes:
    return bytes((raw[0] ^ _SIGN,)) + raw[1:]


def _of_tuple(names: Sequence[str]) -> NamedSerde:
    serdes = [_of_one(name) for name in names]
    what = f"serde ({', '.join(names)})"

    def encode(value: Any) -> bytes:
        if not isinstance(value, tuple) or len(value) != len(serdes):
            raise SerdeError(f"{what}: wanted a tuple of {len(serdes)}, found {value!r}")
        return b"".join(_part(serde, part) for serde, part in zip(serdes, value, strict=True))

    def decode(raw: bytes | None) -> Any:
        if raw is None:
            return None
        parts, rest = [], raw
        for serde in serdes:
            part, rest = _split(serde.name, rest, what)
            parts.append(serde.decode(part))
        if rest:
            raise SerdeError(f"{what}: wanted no bytes behind the last part, found {rest[:20]!r}")
        return tuple(parts)

    return NamedSerde(name=",".join(names), encode=encode, decode=decode)


def _part(serde: NamedSerde, value: Any) -> bytes:
    raw = serde.encode(value)
    if raw is None:
        raise SerdeError(f"serde {serde.name}: wanted a part of a sub-key, found None")
    return raw if serde.name in _WIDTHS else raw.replace(_ZERO, _WRITTEN_ZERO) + _END


def _split(name: str, raw: bytes, what: str) -> tuple[bytes, bytes]:
    """The first part of a tuple's bytes, and the rest."""
    width = _WIDTHS.get(name)
    if width is not None:
        return raw[:width], raw[width:]
    # A zero in the text is followed by ff, so the first 00 01 is the end.
    text, end, rest = raw.partition(_END)
    if not end:
        raise SerdeError(f"{what}: wanted the end of a {name}, found {raw[:20]!r}")
    if text.count(_ZERO) != text.count(_WRITTEN_ZERO):
        # Else one value had several spellings, and a map several entries for one sub-key.
        raise SerdeError(f"{what}: wanted each 00 of a {name} written as 00 ff, found {raw[:20]!r}")
    return text.replace(_WRITTEN_ZERO, _ZERO), rest


def with_flags(serde: NamedSerde) -> NamedSerde:
    """A serde of values behind a byte of flags, as maps and lists keep them.

    No flag has a meaning yet, so that entries can get an expiry later.
    """
    encode_plain, decode_plain = serde.encode, serde.decode

    def encode(value: Any) -> bytes | None:
        raw = encode_plain(value)
        return None if raw is None else _ZERO + raw

    def decode(raw: bytes | None) -> Any:
        if raw is None:
            return None
        if raw[:1] != _ZERO:
            raise SerdeError(
                f"serde {serde.name}: wanted a value behind a byte of flags 00, found {raw[:1].hex() or 'nothing'}; "
                "a newer release wrote it"
            )
        return decode_plain(raw[1:])

    return NamedSerde(name=serde.name, encode=encode, decode=decode)
