"""Serdes of a fixed number of bytes, big-endian as those of Kafka and Samza.

| serde | bytes | value in Python |
|---|---|---|
| `integer` | 4 | int from -2^31 to 2^31 - 1 |
| `long` | 8 | int from -2^63 to 2^63 - 1 |
| `double` | 8 | float; an int is taken, too |
| `timestamp` | 8 | int, milliseconds since 1970 |
| `uuid` | 16 | `uuid.UUID` |

Source: `IntegerSerde`, `LongSerde`, `DoubleSerde` and `UUIDSerde` of Samza, and Kafka's serializers of these names.
Kafka's own `UUIDSerializer` writes 36 characters of text; for that, use the serde `string`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from uuid import UUID

from samzapy.model.first_bytes import looks_like
from samzapy.model.serde.base import NamedSerde, SerdeError

_FORMATS: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "integer": (">i", (int,)),
    "long": (">q", (int,)),
    "double": (">d", (float, int)),
    "timestamp": (">q", (int,)),
}
LONG: Final = Struct(_FORMATS["long"][0])
"""The layout of the serde `long`."""
_UUID_BYTES: Final = 16


def fixed_width(where: str) -> Sequence[NamedSerde]:
    """The serdes of this module. `where` ends their errors."""
    return [*(_number(name, *_FORMATS[name], where) for name in _FORMATS), _uuid(where)]


def _number(name: str, layout: str, types: tuple[type, ...], where: str) -> NamedSerde:
    struct, exact = Struct(layout), types[0]
    pack, unpack = struct.pack, struct.unpack

    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        # True and False are of type int, and would come back as 1 and 0.
        if type(value) is not exact and (type(value) is bool or not isinstance(value, types)):
            raise SerdeError(f"serde {name}: wanted {exact.__name__} or None, found {type(value).__name__}{where}")
        try:
            return pack(value)
        except (StructError, OverflowError) as error:
            raise SerdeError(f"serde {name}: wanted a number of {struct.size} bytes, found {error}{where}") from error

    def decode(raw: bytes | None) -> Any:
        if raw is None:
            return None
        try:
            return unpack(raw)[0]
        except StructError:
            raise _other_length(name, struct.size, raw, where) from None

    return NamedSerde(name=name, encode=encode, decode=decode)


def _uuid(where: str) -> NamedSerde:
    def encode(value: Any) -> bytes | None:
        if value is None or isinstance(value, UUID):
            return None if value is None else value.bytes
        raise SerdeError(f"serde uuid: wanted uuid.UUID or None, found {type(value).__name__}{where}")

    def decode(raw: bytes | None) -> Any:
        if raw is None:
            return None
        if len(raw) != _UUID_BYTES:
            raise _other_length("uuid", _UUID_BYTES, raw, where)
        return UUID(bytes=raw)

    return NamedSerde(name="uuid", encode=encode, decode=decode)


def _other_length(name: str, size: int, raw: bytes, where: str) -> SerdeError:
    return SerdeError(f"serde {name}: wanted {size} bytes, found {len(raw)}{looks_like(raw)}{where}")
