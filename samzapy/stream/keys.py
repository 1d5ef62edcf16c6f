"""The keys of records: frozen readable text, `namespace/rest` in UTF-8.

A key of the coordinator stream or of the checkpoint topic follows the pattern in its kind's row (`stream.kinds`). This
module takes such keys apart. At the end are the keys of the placement topic, which operators write too and which have a
second form, Samza's.

Never Avro: one more field in a schema, even with a default, changes the fingerprint and so the bytes, and
compaction would keep both the old and the new key for ever. For the same reason a key has exactly one
spelling: `parse_key` refuses every text that `key_of` would not have written.

A name may be any topic name, and config keys and processor ids any text. So a key is split where there is no doubt: a
free part is always the last one, or between fixed words, and `grant/<task>/<epoch>` is read from the right.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from samzapy.model.job import ExecutionId
from samzapy.model.placement import REQUEST_TYPE, RESPONSE_TYPE, PlacementNamespace, is_uuid
from samzapy.model.strict_json import parse_json_text
from samzapy.stream.kinds import KIND_OF_NAMESPACE, KIND_OF_TYPE
from samzapy.stream.kinds import Namespace as Namespace
from samzapy.stream.kinds import is_number as is_number
from samzapy.stream.records import Record, Removed


class ParsedKey(NamedTuple):
    """A key taken apart; `parts` as in the table of `parse_key`."""

    namespace: Namespace
    parts: tuple[str, ...]


def key_of(record: Record) -> str:
    """The key under which `record` stands on its topic."""
    if isinstance(record, Removed):
        return record.key
    return KIND_OF_TYPE[type(record)].key_of(record)


def launch_key(execution_id: ExecutionId) -> str:
    """The key of the record of an execution's launch."""
    return f"launch/{execution_id}"


def container_key(execution_id: ExecutionId) -> str:
    """The key of an execution's record."""
    return f"container/{execution_id}"


def parse_key(text: str) -> ParsedKey:
    """Take a key apart.

    | key | parts |
    |---|---|
    | `job`, and each other key that is one fixed word | none |
    | `format/level` | `level` |
    | `plan/<generation>/task/<task>` | generation, task |
    | `grant/<task>/<epoch>` | task, epoch |
    | `<namespace>/<rest>` | rest |

    Raises:
        ValueError: no key of ours, or one that is spelled otherwise than `key_of` spells it.
    """
    namespace, _, rest = text.partition("/")
    kind = KIND_OF_NAMESPACE.get(namespace)
    if kind is None:
        known = ", ".join(Namespace)
        raise ValueError(f"wanted a key in one of the namespaces {known}; found {text!r}")
    return ParsedKey(kind.namespace, kind.parts_of(text, rest))


class KeyForm(StrEnum):
    """The spelling of a placement topic's key: as all our keys, or as Samza's."""

    TEXT = "text"
    SAMZA = "samza"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementKey:
    """A key of the placement topic. `message_type` is REQUEST_TYPE or RESPONSE_TYPE."""

    namespace: PlacementNamespace
    uuid: str
    message_type: str
    form: KeyForm = KeyForm.TEXT


_PLACEMENT_KEY_BYTES_MAX = 512


def placement_key(key: PlacementKey) -> bytes:
    """The key of a message on the placement topic.

    `samza-place-container-v1/<uuid>.<type>`, or `[1,"samza-place-container-v1","<uuid>.<type>"]` as Samza's.
    """
    name = f"{key.uuid}.{key.message_type}"
    if key.form is KeyForm.SAMZA:
        return json.dumps([1, key.namespace.value, name], separators=(",", ":")).encode()
    return f"{key.namespace}/{name}".encode()


def parse_placement_key(raw: bytes | None) -> PlacementKey:
    """Take a key of the placement topic apart.

    Each form has one spelling (no blanks), because compaction tells keys apart by their bytes.

    Raises:
        ValueError: no key of a request or a response, or one that is spelled otherwise than `placement_key` does.
    """
    if raw is None:
        raise ValueError("wanted a key, found none")
    if len(raw) > _PLACEMENT_KEY_BYTES_MAX:
        raise ValueError(f"wanted a key of at most {_PLACEMENT_KEY_BYTES_MAX} bytes, found {len(raw)}")
    text = raw.decode()
    namespace, name, form = _samza_parts(text) if text.startswith("[") else _text_parts(text)
    uuid, dot, message_type = name.partition(".")
    if not dot or message_type not in (REQUEST_TYPE, RESPONSE_TYPE) or not is_uuid(uuid):
        raise ValueError(f"wanted <uuid>.{REQUEST_TYPE} or <uuid>.{RESPONSE_TYPE}, found {name!r}")
    key = PlacementKey(namespace=PlacementNamespace(namespace), uuid=uuid, message_type=message_type, form=form)
    if placement_key(key) != raw:
        raise ValueError(f"wanted {placement_key(key).decode()!r}, found another spelling of it: {text!r}")
    return key


def _text_parts(text: str) -> tuple[str, str, KeyForm]:
    namespace, _, name = text.partition("/")
    if namespace not in list(PlacementNamespace):
        raise ValueError(f"wanted a key in {' or '.join(PlacementNamespace)}, found {text!r}")
    return namespace, name, KeyForm.TEXT


def _samza_parts(text: str) -> tuple[str, str, KeyForm]:
    try:
        parts = parse_json_text(text)
    except ValueError:
        parts = None
    match parts:
        case [1, str(namespace), str(name)] if namespace in list(PlacementNamespace):
            return namespace, name, KeyForm.SAMZA
        case _:
            raise ValueError(f'wanted [1,"<namespace>","<uuid>.<type>"], found {text!r}')
