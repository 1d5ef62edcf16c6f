"""The entries of a store, folded from its changelog.

The last record of a key counts, and a tombstone removes it. Only committed records are given to this, so the result is
the state at the moment of reading, whatever the container does.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from samzapy.config import JobConfig, StoreConfig
from samzapy.errors import CorruptRecordError
from samzapy.model.serde import NamedSerde, SerdeError, key_serde_of, ordered_of, serde_of, with_flags
from samzapy.stream.changelog import split_changelog_key, split_task_entry_key
from samzapy.stream.log import LogRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """One entry, as bytes.

    Attributes:
        owner: the message key, or the task's name where the store belongs to tasks.
        name: the sub-key; empty for the entry without a name.
        partition, offset, timestamp_ms: of its record on the changelog.
    """

    owner: bytes
    name: bytes
    value: bytes
    partition: int
    offset: int
    timestamp_ms: int


def fold(
    records: Iterable[LogRecord], store: StoreConfig, partition: int, *, topic: str
) -> Mapping[bytes, StoreEntry]:
    """The entries of one partition, by changelog key.

    Raises:
        CorruptRecordError: a key that no task wrote.
    """
    entries: dict[bytes, StoreEntry] = {}
    for record in records:
        key = record.key or b""
        if record.value is None:
            entries.pop(key, None)
            continue
        try:
            owner, name = _split(key, store)
        except ValueError as error:
            raise CorruptRecordError(f"{topic}-{partition}, offset {record.offset}: {error}") from error
        if name is None:
            continue
        entries[key] = StoreEntry(
            owner=owner,
            name=name,
            value=record.value,
            partition=partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
        )
    return entries


def _split(key: bytes, store: StoreConfig) -> tuple[bytes, bytes | None]:
    if store.scope == "key":
        return split_changelog_key(key)
    parts = split_task_entry_key(key)
    return (b"", None) if parts is None else (parts[0].encode(), parts[1])


def in_order(entries: Iterable[StoreEntry]) -> list[StoreEntry]:
    """By owner and name, as bytes."""
    return sorted(entries, key=lambda entry: (entry.owner, entry.name, entry.partition))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySerdes:
    """The serdes with which the entries of a store are shown, by name.

    Attributes:
        keys: of the message keys. A task whose streams have keys of several serdes keeps the entries of all of them.
        is_ordered: whether sub-keys are those of a map or list, and values stand behind their flags.
    """

    keys: Sequence[str]
    name: str
    value: str
    is_ordered: bool = False

    @classmethod
    def of(cls, store: StoreConfig, config: JobConfig) -> EntrySerdes:
        """Those of a store of a job."""
        of_streams = dict.fromkeys(config.key_serde(stream) for stream in config.streams_divided)
        keys = tuple(of_streams) if store.scope == "key" else ("string",)
        return cls(keys=keys, name=store.key_serde, value=store.msg_serde, is_ordered=store.is_ordered)

    def as_json(self, entry: StoreEntry) -> dict[str, Any]:
        """An entry, decoded.

        Bytes that a serde refuses, and plain bytes that are no text, are given in base64.
        """
        value = serde_of(self.value)
        return {
            **_field("key", entry.owner, key_serde_of(self._key_of(entry.owner))),
            **_field("name", entry.name, ordered_of(self.name) if self.is_ordered else serde_of(self.name)),
            **_field("value", entry.value, with_flags(value) if self.is_ordered else value),
            "partition": entry.partition,
            "offset": entry.offset,
            "timestampMs": entry.timestamp_ms,
        }

    def _key_of(self, owner: bytes) -> str:
        """The serde of one key: that of text if it is text, else the first that takes it."""
        if len(self.keys) == 1:
            return self.keys[0]
        of_text = [name for name in self.keys if name in _TEXT]
        if of_text and _is_printable(owner):
            return of_text[0]
        return next((name for name in self.keys if _is_decoded(name, owner)), self.keys[0])

    def owners(self, text: str) -> Callable[[bytes], bool]:
        """Whether a key, as bytes, is the one that an operator gives as text.

        One value has several texts in JSON and several encodings in MessagePack, so those are compared decoded.

        Raises:
            SerdeError: the text is no such key.
        """
        raw: set[bytes] = set()
        values: dict[str, Any] = {}
        refused: list[SerdeError] = []
        for name in self.keys:
            try:
                value = _key_of_text(name, text)
                raw |= {key_serde_of(name).encode(value) or b""}
                values |= {name: value} if name in _OF_ANY_SHAPE else {}
            except SerdeError as error:
                refused.append(error)
        if len(refused) == len(self.keys):
            raise refused[0]
        return lambda owner: owner in raw or any(_is(name, owner, value) for name, value in values.items())


def _key_of_text(name: str, text: str) -> Any:
    if name in _TEXT:
        return text.encode() if name == "bytes" else text
    try:
        value = _PARSERS[name](text)
    except ValueError as error:
        raise SerdeError(f"serde {name}: wanted a key as text, found {text!r}: {error}") from error
    if value is None:
        raise SerdeError(f"serde {name}: wanted a key, found null")
    return value


def _is(name: str, owner: bytes, value: Any) -> bool:
    try:
        decoded = key_serde_of(name).decode(owner)
    except (SerdeError, UnicodeDecodeError):
        return False
    # In Python 1 is True.
    return bool(decoded == value and json.dumps(decoded, sort_keys=True) == json.dumps(value, sort_keys=True))


def _is_decoded(name: str, owner: bytes) -> bool:
    try:
        key_serde_of(name).decode(owner)
    except (SerdeError, UnicodeDecodeError):
        return False
    return True


def _is_printable(raw: bytes) -> bool:
    try:
        return raw.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _field(name: str, raw: bytes, serde: NamedSerde) -> dict[str, Any]:
    try:
        value = serde.decode(raw)
        if isinstance(value, tuple):
            return {name: [_as_json(_text(part)) for part in value]}
        return {name: _as_json(_text(value))}
    except (SerdeError, UnicodeDecodeError):
        return {f"{name}Base64": base64.b64encode(raw).decode()}


def _text(value: Any) -> Any:
    """Plain bytes as text."""
    return value.decode() if isinstance(value, bytes) else value


def _as_json(value: Any) -> Any:
    """A value of a serde as JSON has it, at every depth."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case dict():
            return {
                key if isinstance(key, str) else str(_as_json(key)): _as_json(each) for key, each in value.items()
            }
        case list() | tuple():
            return [_as_json(each) for each in value]
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


def _of_json(text: str) -> Any:
    return serde_of("json").decode(text.encode())


_TEXT: Final = frozenset({"bytes", "string"})
_OF_ANY_SHAPE: Final = frozenset({"json", "msgpack"})
_PARSERS: Mapping[str, Any] = {
    "integer": int,
    "long": int,
    "timestamp": int,
    "uuid": UUID,
    "json": _of_json,
    "msgpack": _of_json,
}
