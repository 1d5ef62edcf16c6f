"""Serdes by name: bytes, text, JSON, MessagePack, and those of `fixed_width`.

JSON is strict both ways: no NaN or Infinity, no number that overflows, no object with the same key twice. A value that
was read can be written again. JSON is written compactly, with keys in the order given.

The error of a value that cannot be read describes its first bytes (`model.first_bytes`).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from samzapy.model.first_bytes import looks_like
from samzapy.model.serde.base import NamedSerde, SerdeError
from samzapy.model.serde.fixed_width import fixed_width
from samzapy.model.strict_json import may_be_deep, parse_json, parse_json_text


def serde_of(name: str) -> NamedSerde:
    """The serde called `name`.

    Raises KeyError: the configuration has checked the name already.
    """
    return _SERDES[name]


def key_serde_of(name: str) -> NamedSerde:
    """As `serde_of`, for keys of messages: its errors say that it was the key."""
    return _KEY_SERDES[name]


# Kept: json.dumps with options builds an encoder at each call.
_JSON_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ESCAPING_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_NESTED = (dict, list, tuple)
_REASON_SHOWN_MAX = 300


def _json_text(value: Any) -> bytes:
    text = _JSON_ENCODER.encode(value)
    if may_be_deep(text) or not _has_text_keys_only(value):
        # Different keys in Python may be one key in JSON ({1: ..., "1": ...}), which could not be read again.
        parse_json_text(text)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, as of an emoji that was cut: JSON can say it, as an escape, and UTF-8 cannot.
        return _ESCAPING_ENCODER.encode(value).encode()


def _has_text_keys_only(value: Any) -> bool:
    """Whether no object in `value` has a key that JSON turns into text.

    `value` was encoded before, so it has no cycle.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if type(key) is not str or (isinstance(inner, _NESTED) and not _has_text_keys_only(inner)):
                return False
    elif isinstance(value, list | tuple):
        for inner in value:
            if isinstance(inner, _NESTED) and not _has_text_keys_only(inner):
                return False
    return True


def _bytes(where: str) -> NamedSerde:
    def encode(value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise SerdeError(f"serde bytes: wanted bytes or None, found {type(value).__name__}{where}")

    return NamedSerde(name="bytes", encode=encode, decode=lambda raw: raw)


def _string(where: str) -> NamedSerde:
    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise SerdeError(f"serde string: wanted str or None, found {type(value).__name__}{where}")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SerdeError(f"serde string: {error}{where}") from error

    def decode(raw: bytes | None) -> str | None:
        if raw is None:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise SerdeError(f"serde string: {error}{looks_like(raw)}{where}") from error

    return NamedSerde(name="string", encode=encode, decode=decode)


def _json(where: str) -> NamedSerde:
    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return _json_text(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise SerdeError(f"serde json: {error}{where}") from error

    def decode(raw: bytes | None) -> Any:
        if raw is None:
            return None
        try:
            return parse_json(raw)
        except ValueError as error:
            raise SerdeError(f"serde json: {error}{where}") from error

    return NamedSerde(name="json", encode=encode, decode=decode)


def _msgpack(where: str) -> NamedSerde:
    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return msgspec.msgpack.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SerdeError(f"serde msgpack: {error}{where}") from error

    def decode(raw: bytes | None) -> Any:
        if raw is None:
            return None
        try:
            return msgspec.msgpack.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # A path to a deep place is as long as the value.
            raise SerdeError(f"serde msgpack: {str(error)[:_REASON_SHOWN_MAX]}{looks_like(raw)}{where}") from error

    return NamedSerde(name="msgpack", encode=encode, decode=decode)


def _all(where: str) -> dict[str, NamedSerde]:
    serdes = (_bytes(where), _string(where), _json(where), _msgpack(where), *fixed_width(where))
    return {serde.name: serde for serde in serdes}


# Keys have their own functions, so that only a failure looks at the difference.
_SERDES = _all("")
_KEY_SERDES = _all(" (the key)")
