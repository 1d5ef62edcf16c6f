"""Records as bytes: text keys (`stream.keys`) and Avro single-object values.

A value is the marker C3 01, the CRC-64-AVRO fingerprint of its schema (little endian), and the body. So each record
names its schema. A reader that does not ship that schema knows it at once (`UnknownSchemaError`) and does not guess.
Schemas come from `schemas/` only, never from the topic; those of earlier releases that differ are there too, so their
records stay readable.

Input may be hostile or broken, and one record that crashes its reader would crash every coordinator and container in a
loop. Hence the size is checked before anything is decoded, bytes left over are refused, the key must belong to the
value, and `decode` raises only `CorruptRecordError` and its child. fastavro crashes the interpreter on recursive
schemas and swells on arrays of zero-width items; a unit test keeps both out of `schemas/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from samzapy.errors import CorruptRecordError, UnknownSchemaError
from samzapy.model.strict_json import parse_json_text
from samzapy.stream.keys import key_of, parse_key
from samzapy.stream.kinds import KINDS, RecordKind
from samzapy.stream.log import LogRecord
from samzapy.stream.placement import MESSAGE_FORMS
from samzapy.stream.records import Record, Removed, SchemaPut
from samzapy.stream.single_object import HEADER_BYTES, MARKER, Form, fingerprint_of_schema, form

VALUE_BYTES_MAX = 1024 * 1024
"""Nothing longer is decoded."""
RECORD_BYTES_MAX = VALUE_BYTES_MAX - 8 * 1024
"""The longest key and value together. With its headers, and Kafka's own fields, a record must be within the limit of
our producers and topics (`config.MESSAGE_BYTES_MAX`), 12 bytes more than 1 MiB."""


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of `record` for the topic; a `Removed` has no value.

    Raises:
        ValueError: the record is too large, a field has a value that its schema does not allow, or a name in the
            key is empty.
    """
    if isinstance(record, Removed):
        return _key_to_write(record), None
    return _fitting(record, _FORM_OF_TYPE[type(record)].encode(record))


def encode_as_of(record: Record, release: str) -> tuple[bytes, bytes]:
    """The key and the value of `record` as `release` wrote them.

    `record` is no tombstone, and `release` had its kind.

    Fields that the schema of `release` lacks are left out: the caller knows that they say nothing.

    Raises: as `encode`.
    """
    return _fitting(record, _FORM_OF_TYPE[type(record)].encode_as_of(record, release))


def decode(record: LogRecord, *, topic: str, partition: int = 0) -> Record:
    """The fact of `record`, or `Removed` for a tombstone.

    `topic` and `partition` are for messages.

    Raises:
        UnknownSchemaError: written by a release that has a schema which this one does not ship.
        CorruptRecordError: any other bytes. No other exception is raised.
    """
    try:
        return _decode(record.key, record.value)
    except _UnknownFingerprintError as error:
        raise UnknownSchemaError(_described(record, topic, partition, error)) from None
    except Exception as error:
        # As broad as this on purpose: fastavro raises many types (EOFError, UnicodeDecodeError, IndexError).
        raise CorruptRecordError(_described(record, topic, partition, error)) from error


def unreadable_reason(record: LogRecord) -> str:
    """Why `decode` refuses the record; empty where it does not."""
    try:
        _decode(record.key, record.value)
    except Exception as error:
        # As wide as in `decode`.
        return _reason(error)
    return ""


def plain_fields(record: Record) -> dict[str, Any]:
    """The fields of `record` by the names in its schema, as Avro and JSON.

    SSPs are in their text form.
    """
    return _FORM_OF_TYPE[type(record)].to_avro(record)


def schema_name_of(record: Record) -> str:
    """The name of the schema of `record`: the name of its file in `schemas/`.

    For instance `planned_task`.
    """
    return _FORM_OF_TYPE[type(record)].schema_name


def schemas_by_name() -> Mapping[str, str]:
    """The schemas that this release writes, as JSON."""
    return {form.schema_name: form.schema_json for form in _FORMS}


def schema_as_of(record_type: type[Record], release: str) -> SchemaPut:
    """The schema in which `release` wrote that kind of record.

    Its text is today's if the schema has not changed since.
    """
    form = _FORM_OF_TYPE[record_type].as_of(release)
    return SchemaPut(fingerprint=form.fingerprint, schema_json=form.schema_json)


def fingerprint_of(value: bytes) -> str:
    """The fingerprint of a value's schema, as `SchemaPut` spells it."""
    return value[len(MARKER) : HEADER_BYTES].hex()


def is_schema_of(schema_json: str, digits: str) -> bool:
    """Whether `schema_json` is the schema with that fingerprint.

    It may come from anywhere; only its text is used.
    """
    try:
        fingerprint = fingerprint_of_schema(parse_json_text(schema_json))
    except Exception:
        # As broad as in `decode`: fastavro raises many types for hostile text.
        return False
    return fingerprint == digits


@cache
def schema_records() -> tuple[SchemaPut, ...]:
    """The schemas that this release writes, in a fixed order.

    They include messages of the placement topic, and are recorded on the coordinator stream.
    """
    forms = (*_FORMS, *MESSAGE_FORMS)
    schemas = [SchemaPut(fingerprint=known.fingerprint, schema_json=known.schema_json) for known in forms]
    return tuple(sorted(schemas, key=lambda schema: schema.fingerprint))


class RecordHeaders(NamedTuple):
    """The headers of each coordinator record.

    Term and number tell a leader's record from any other one (`stream.numbering`); the rest is evidence for people.

    Attributes:
        seq: gapless within the stream as written.
        event: past tense, for instance `TaskGranted` (`stream.audit.event_name`).
        cause: id of the command or request that led to the record.
        actor: the person or program that asked for it.
    """

    term: int
    seq: int
    event: str
    cause: str
    actor: str


def headers(*, term: int, seq: int, event: str, cause: str, actor: str) -> Mapping[str, bytes]:
    """The headers of a coordinator record, UTF-8 text each."""
    return {
        "term": str(term).encode(),
        "seq": str(seq).encode(),
        "event": event.encode(),
        "cause": cause.encode(),
        "actor": actor.encode(),
    }


def parse_headers(headers: Iterable[tuple[str, bytes | None]]) -> RecordHeaders | None:
    """Parse `headers`; None if they are missing or not as we write them.

    Any client can write headers.
    """
    texts = {name: value for name, value in headers if value is not None}
    try:
        term, seq = texts["term"], texts["seq"]
        if not (term.isdigit() and seq.isdigit()):
            return None
        return RecordHeaders(
            int(term),
            int(seq),
            str(texts["event"], "utf-8", "backslashreplace"),
            str(texts["cause"], "utf-8", "backslashreplace"),
            str(texts["actor"], "utf-8", "backslashreplace"),
        )
    except (KeyError, ValueError):
        return None


def _key_to_write(record: Record) -> bytes:
    text = key_of(record)
    # A record that `decode` would refuse is not written: it would stop every reader.
    parse_key(text)
    return text.encode()


def _fitting(record: Record, value: bytes) -> tuple[bytes, bytes]:
    key = _key_to_write(record)
    if len(key) + len(value) > RECORD_BYTES_MAX:
        raise ValueError(
            f"wanted a record of at most {RECORD_BYTES_MAX} bytes, found {len(key) + len(value)} for key "
            f"{key_of(record)!r}: no topic of ours would take it, so it is not written; make the task or the setting "
            "smaller"
        )
    return key, value


class _UnknownFingerprintError(Exception):
    """Not raised to callers: `decode` turns it into `UnknownSchemaError`."""


def _decode(key_bytes: bytes | None, value: bytes | None) -> Record:
    if key_bytes is None:
        raise ValueError("wanted a key, found none")
    key = key_bytes.decode()
    if value is None:
        parse_key(key)
        return Removed(key=key)
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"wanted a value of at most {VALUE_BYTES_MAX} bytes, found {len(value)}")
    header = value[:HEADER_BYTES]
    if len(header) < HEADER_BYTES or not header.startswith(MARKER):
        raise ValueError(
            f"wanted an Avro single-object value (C3 01 and a fingerprint), found {len(value)} bytes that "
            f"start with {header.hex(' ') or 'nothing'}"
        )
    known = _KNOWN_OF_HEADER.get(header)
    if known is None:
        raise _UnknownFingerprintError(
            f"wanted one of the {len(_FORMS)} schemas of this release, found the fingerprint "
            f"{header[2:].hex()}; a newer release wrote this: upgrade this process"
        )
    kind, written = known
    record: Record = written.from_avro(written.datum(value))
    key_wanted = kind.key_of(record)
    if key_wanted != key:
        raise ValueError(f"wanted the key of the value, {key_wanted!r}, found another")
    # A key that does not parse back would be a fact that cannot be removed. Its first word is the kind's.
    kind.parts_of(key, key.partition("/")[2])
    return record


def _described(record: LogRecord, topic: str, partition: int, error: Exception) -> str:
    key = "no key" if record.key is None else f"key {_shortened(record.key.decode(errors='backslashreplace'))!r}"
    return (
        f"{topic}-{partition} at offset {record.offset}, {key}: cannot be read ({_reason(error)}). Nothing was "
        "skipped; see it with `samzapy stream replay`"
    )


def _reason(error: Exception) -> str:
    reason = str(error) or "it ends too early or holds what its schema does not allow"
    return f"{type(error).__name__.strip('_')}: {_shortened(reason)}"


def _shortened(text: str, length_max: int = 400) -> str:
    return text if len(text) <= length_max else f"{text[:length_max]}..."


_FORMS: tuple[Form, ...] = tuple(
    form(kind.record_type, kind.schema_name, kind.to_avro, kind.from_avro) for kind in KINDS
)
_FORM_OF_TYPE: Mapping[type[Any], Form] = {known.record_type: known for known in _FORMS}
_KNOWN_OF_HEADER: Mapping[bytes, tuple[RecordKind, Form]] = {
    header: (kind, written)
    for kind, written in zip(KINDS, _FORMS, strict=True)
    for header in (written.header, *written.older)
}
