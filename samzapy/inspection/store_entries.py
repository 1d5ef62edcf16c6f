"""The entries of a store, folded from its changelog.

The last record of a key counts, and a tombstone removes it. Only committed records are given to this, so the result is
the state at the moment of reading, whatever the container does.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from samzapy.config import StoreConfig
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
    """The serdes with which the entries of a store are shown, by name."""

    key: str
    name: str
    value: str
    # Whether sub-keys are those of a map or list, and values stand behind their flags.
    is_ordered: bool = False

    @classmethod
    def of(cls, store: StoreConfig, key_serde: str) -> EntrySerdes:
        """Those of a store of a job whose inputs have keys of `key_serde`."""
        key = key_serde if store.scope == "key" else "string"
        return cls(key=key, name=store.key_serde, value=store.msg_serde, is_ordered=store.is_ordered)

    def as_json(self, entry: StoreEntry) -> dict[str, Any]:
        """An entry, decoded.

        Bytes that a serde refuses, and plain bytes that are no text, are given in base64.
        """
        value = serde_of(self.value)
        return {
            **_field("key", entry.owner, key_serde_of(self.key)),
            **_field("name", entry.name, ordered_of(self.name) if self.is_ordered else serde_of(self.name)),
            **_field("value", entry.value, with_flags(value) if self.is_ordered else value),
            "partition": entry.partition,
            "offset": entry.offset,
            "timestampMs": entry.timestamp_ms,
        }

    def key_bytes(self, text: str) -> bytes:
        """The bytes of a key that an operator gives as text.

        Raises:
            SerdeError: the text is no such key.
        """
        if self.key in ("bytes", "string"):
            return text.encode()
        try:
            value = _PARSERS[self.key](text)
        except ValueError as error:
            raise SerdeError(f"serde {self.key}: wanted a key as text, found {text!r}: {error}") from error
        raw = key_serde_of(self.key).encode(value)
        if raw is None:
            raise SerdeError(f"serde {self.key}: wanted a key, found null")
        return raw


def _field(name: str, raw: bytes, serde: NamedSerde) -> dict[str, Any]:
    try:
        value = serde.decode(raw)
        return {name: [_as_json(part) for part in value] if isinstance(value, tuple) else _as_json(value)}
    except (SerdeError, UnicodeDecodeError):
        return {f"{name}Base64": base64.b64encode(raw).decode()}


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str | int | float | dict | list) or value is None else str(value)


def _of_json(text: str) -> Any:
    return serde_of("json").decode(text.encode())


_PARSERS: Mapping[str, Any] = {
    "integer": int,
    "long": int,
    "timestamp": int,
    "uuid": UUID,
    "json": _of_json,
    "msgpack": _of_json,
}
