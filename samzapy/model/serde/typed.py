"""Serdes as objects with a type, for streams and state that a job file declares.

`Serde[T]` is the interface; an object of the user's own needs `encode` and `decode`, and may raise anything. mypy then
finds a value of a wrong type where it is sent, stored or handled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import getattr_static, isfunction
from math import isfinite
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar, get_origin, overload
from uuid import UUID

import msgspec

from samzapy.model.first_bytes import looks_like
from samzapy.model.serde.base import NamedSerde, SerdeError
from samzapy.model.serde.named import key_serde_of, serde_of
from samzapy.model.text import error_text

T = TypeVar("T")
_OWN: Final = "bytes"
"""The name in the configuration of a serde that has no name of its own."""
_METHODS: Final = ("encode", "decode")
_OF_CLASS: Final[Mapping[type, str]] = {bytes: "Bytes", str: "String", int: "Long", float: "Double", UUID: "Uuid"}
"""The serdes that are meant where a class is declared."""


class Serde(Protocol[T]):
    """How a value becomes bytes, and back."""

    def encode(self, value: T, /) -> bytes: ...
    def decode(self, raw: bytes, /) -> T: ...


@dataclass(frozen=True, slots=True)
class Builtin(Generic[T]):
    """A serde that the configuration knows by its name."""

    name: str

    def encode(self, value: T, /) -> bytes:
        """Raises SerdeError for a value of another type."""
        if value is None:
            raise SerdeError(f"serde {self.name}: wanted a value, found None")
        raw = serde_of(self.name).encode(value)
        assert raw is not None
        return raw

    def decode(self, raw: bytes, /) -> T:
        """Raises SerdeError for bytes that are no such value."""
        value: T = serde_of(self.name).decode(raw)
        return value


Bytes: Final[Builtin[bytes]] = Builtin("bytes")
String: Final[Builtin[str]] = Builtin("string")
Integer: Final[Builtin[int]] = Builtin("integer")
Long: Final[Builtin[int]] = Builtin("long")
Double: Final[Builtin[float]] = Builtin("double")
Timestamp: Final[Builtin[int]] = Builtin("timestamp")
Uuid: Final[Builtin[UUID]] = Builtin("uuid")


@dataclass(frozen=True, slots=True)
class Structured(Generic[T]):
    """A serde of msgspec for one type. Made by `Json` and `Msgpack`.

    `upgrade` turns a value of an older form, as builtins, into one of the type.
    """

    name: str
    type: Any
    # The class of every value; None for types that are no classes, such as `dict[str, int]`.
    _class: type | None = field(repr=False)
    _encode: Callable[[Any], bytes] = field(repr=False)
    _decode: Callable[[bytes], T] = field(repr=False)
    _decode_any: Callable[[bytes], Any] = field(repr=False)
    upgrade: Callable[[Any], T] | None = None

    def encode(self, value: T, /) -> bytes:
        """Raises SerdeError for a value that `decode` would refuse, NaN and infinity.

        Python does not check the fields of a value, and msgspec writes them as they are.
        """
        of = self._class
        # To Python True is an int. msgspec writes a boolean, which it does not read as an int.
        if of is not None and (not isinstance(value, of) or (of is int and isinstance(value, bool))):
            raise SerdeError(f"serde {self}: wanted {of.__name__}, found {type(value).__name__}")
        try:
            raw = self._encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SerdeError(f"serde {self}: {error}") from error
        # In JSON msgspec writes null for a number that JSON does not have.
        if self.name == "json" and b"null" in raw and not _is_finite(msgspec.to_builtins(value)):
            raise SerdeError(f"serde {self}: wanted numbers that JSON has, found NaN or infinity")
        try:
            self.decode(raw)
        except SerdeError as error:
            raise SerdeError(f"wanted a value that can be read again, found one that cannot: {error}") from error
        return raw

    def decode(self, raw: bytes, /) -> T:
        """Raises SerdeError for bytes that are no such value, also after `upgrade`."""
        try:
            return self._decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if self.upgrade is None or not isinstance(error, msgspec.ValidationError):
                raise SerdeError(f"serde {self}: {error}{looks_like(raw)}") from error
            refusal = error
        value = self.upgrade(self._decode_any(raw))
        if self._class is not None and not isinstance(value, self._class):
            raise SerdeError(
                f"serde {self}: {refusal}; upgrade was tried: wanted {self._class.__name__} of it, found "
                f"{type(value).__name__}"
            )
        return value

    def __str__(self) -> str:
        return f"{self.name}({getattr(self.type, '__name__', self.type)})"


@overload
def Json() -> Builtin[Any]: ...


@overload
def Json(of: type[T], *, upgrade: Callable[[Any], T] | None = None) -> Structured[T]: ...


def Json(of: Any = None, *, upgrade: Callable[[Any], Any] | None = None) -> Any:
    """JSON of one type.

    The type is a `Struct`, a dataclass, a TypedDict or a builtin such as `dict[str, int]`. Without a type, it is the
    serde `json`, of anything. Fields that the type does not have are ignored, unless a Struct is declared with
    `forbid_unknown_fields=True`.

    Raises:
        TypeError: msgspec has no JSON for the type.
    """
    if of is None:
        return Builtin("json")
    return _structured("json", of, msgspec.json.Encoder().encode, msgspec.json.Decoder, upgrade)


def Msgpack(of: type[T], *, upgrade: Callable[[Any], T] | None = None) -> Structured[T]:
    """MessagePack of one type, as `Json`.

    Raises:
        TypeError: msgspec has no MessagePack for the type.
    """
    return _structured("msgpack", of, msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder, upgrade)


def _structured(
    name: str,
    of: Any,
    encode: Callable[[Any], bytes],
    decoder: Callable[..., Any],
    upgrade: Callable[[Any], T] | None,
) -> Structured[T]:
    # A TypedDict has no instances, and mypy lets an int be a float.
    is_class = isinstance(of, type) and get_origin(of) is None and not hasattr(of, "__total__") and of is not float
    return Structured(name, of, of if is_class else None, encode, decoder(of).decode, decoder().decode, upgrade)


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))


def name_of(serde: Serde[Any]) -> str:
    """The name of a serde in the configuration."""
    return serde.name if isinstance(serde, Builtin | Structured) else _OWN


def named(serde: Serde[Any], *, is_key: bool = False) -> NamedSerde:
    """A serde as the runtime calls it.

    None passes through, and every error is a SerdeError.
    """
    if isinstance(serde, Builtin):
        return key_serde_of(serde.name) if is_key else serde_of(serde.name)
    name = str(serde) if isinstance(serde, Structured) else type(serde).__name__
    where = " (the key)" if is_key else ""

    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            # Within `try`: also the attribute may be missing.
            raw: object = serde.encode(value)
        except Exception as error:  # A serde of the user's may raise anything.
            _refuse(error, name, where)
        if not isinstance(raw, bytes):
            raise SerdeError(f"serde {name}: wanted bytes of encode, found {type(raw).__name__}{where}")
        return raw

    def decode(raw: bytes | None) -> Any:
        if raw is None:
            return None
        try:
            return serde.decode(raw)
        except Exception as error:  # As above.
            _refuse(error, name, where)

    return NamedSerde(name=name, encode=encode, decode=decode)


def _refuse(error: Exception, name: str, where: str) -> NoReturn:
    """Raise an error of a serde as a SerdeError."""
    if not isinstance(error, SerdeError):
        raise SerdeError(f"serde {name}: {error_text(error)}{where}") from error
    if where:
        raise SerdeError(f"{error}{where}") from error
    raise error


def fault_of(given: object) -> str:
    """The end of the error for what is no serde, from `found` on.

    Empty for a serde, whose methods are not called here.
    """
    has_methods = all(callable(getattr(given, method, None)) for method in _METHODS)
    if has_methods and not (isinstance(given, type) and _needs_object(given)):
        return ""
    if given is Json:
        return "found the function samzapy.Json; call it: samzapy.Json(), or samzapy.Json(T) for values of a type T"
    if given is Msgpack:
        return "found the function samzapy.Msgpack; call it: samzapy.Msgpack(T) for values of a type T"
    if not isinstance(given, type):
        # Such as `dict[str, int]` and `int | None`.
        is_type = get_origin(given) is not None
        shown = repr(given) if is_type or given is None or isinstance(given, str) else type(given).__name__
        wanted = f"samzapy.Json({shown})" if is_type else "samzapy.Json() or another serde"
        return f"found {shown}; write {wanted}, or an object with encode(value) and decode(raw)"
    shown = given.__name__
    if has_methods:
        return f"found the class {shown}; make an object of it: {shown}()"
    return f"found the class {shown}; write samzapy.{_OF_CLASS.get(given, f'Json({shown})')}"


def _needs_object(given: type) -> bool:
    """Whether the methods of a class are called on its objects only."""
    return any(isfunction(getattr_static(given, method)) for method in _METHODS)
