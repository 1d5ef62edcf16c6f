"""Avro single-object values.

A value is the marker C3 01, the CRC-64-AVRO fingerprint of the schema (little endian), and the body.

Shared by the codecs of the topics that hold Avro (`stream.codec`, `stream.placement`). Schemas come from `schemas/`
only, never from a topic. A value that an earlier release wrote in a schema that has changed since is read by that
release's schema, `schemas/<release>/`, and takes the defaults of today's for the fields that came later (Avro's schema
resolution).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

MARKER = b"\xc3\x01"
HEADER_BYTES = 10
_RELEASES_READ = ("0.1.0",)
"""Those that wrote in schemas which this one does not write in."""


class WrittenIn(NamedTuple):
    """A schema, and the header of the values that are written in it."""

    schema: Any
    schema_json: str
    fingerprint: str
    header: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of one class: its schema, and the conversions to Avro's dict and back.

    `older`: the schemas in which earlier releases wrote it, by the header of their values; `of_release`: by the
    release, of those that wrote it otherwise.
    """

    record_type: type[Any]
    schema_name: str
    schema: Any
    schema_json: str
    fingerprint: str
    header: bytes
    older: Mapping[bytes, Any]
    of_release: Mapping[str, WrittenIn]
    to_avro: Callable[[Any], dict[str, Any]]
    from_avro: Callable[[dict[str, Any]], Any]

    def encode(self, record: object) -> bytes:
        """Encode a value.

        Raises ValueError or TypeError if a field has a value that the schema does not allow.
        """
        return self._encoded(record, self.header, self.schema)

    def encode_as_of(self, record: object, release: str) -> bytes:
        """As `release` wrote it.

        Fields that its schema lacks are left out, so the caller must know that they say nothing.

        Raises: as `encode`.
        """
        wanted = self.as_of(release)
        return self._encoded(record, wanted.header, wanted.schema)

    def as_of(self, release: str) -> WrittenIn:
        """The form in which `release`, which had this class, wrote it."""
        now = WrittenIn(self.schema, self.schema_json, self.fingerprint, self.header)
        return self.of_release.get(release, now)

    def datum(self, value: bytes) -> dict[str, Any]:
        """The fields of a value that begins with one of this form's headers.

        Bytes left over are refused.

        Raises:
            Exception: any type that fastavro raises; the codecs turn it into errors of their own.
        """
        body = io.BytesIO(value)
        body.seek(HEADER_BYTES)
        older = self.older.get(value[:HEADER_BYTES])
        if older is None:
            datum = schemaless_reader(body, self.schema, None)
        else:
            datum = schemaless_reader(body, older, self.schema)
        if body.tell() != len(value):
            raise ValueError(f"wanted {body.tell()} bytes for a {self.schema_name}, found {len(value)}")
        return cast("dict[str, Any]", datum)

    def _encoded(self, record: object, header: bytes, schema: Any) -> bytes:
        buffer = io.BytesIO()
        buffer.write(header)
        schemaless_writer(buffer, schema, self.to_avro(record))
        return buffer.getvalue()


def fingerprint_of_schema(declared: Any) -> str:
    """CRC-64-AVRO of the parsing canonical form.

    It is spelled in the order of the bytes in a value's header.
    """
    digits: str = fingerprint(to_parsing_canonical_form(declared), "CRC-64-AVRO")
    return digits


def form(
    record_type: type[Any],
    schema_name: str,
    to_avro: Callable[[Any], dict[str, Any]],
    from_avro: Callable[[dict[str, Any]], Any],
) -> Form:
    """The form of a class, with the schema `schemas/<schema_name>.avsc`."""
    declared = _declared(f"{schema_name}.avsc")
    assert declared is not None, f"no schema {schema_name}"
    written_in = _written_in(declared)
    of_release = {
        release: _written_in(older)
        for release in _RELEASES_READ
        if (older := _declared(f"{release}/{schema_name}.avsc")) is not None
    }
    return Form(
        record_type=record_type,
        schema_name=schema_name,
        schema=written_in.schema,
        schema_json=written_in.schema_json,
        fingerprint=written_in.fingerprint,
        header=written_in.header,
        older={older.header: older.schema for older in of_release.values()},
        of_release=of_release,
        to_avro=to_avro,
        from_avro=from_avro,
    )


def _written_in(declared: Any) -> WrittenIn:
    digits = fingerprint_of_schema(declared)
    return WrittenIn(
        schema=parse_schema(declared),
        schema_json=json.dumps(declared, separators=(",", ":")),
        fingerprint=digits,
        header=MARKER + bytes.fromhex(digits),
    )


def _declared(path: str) -> Any:
    """The schema in a file below `schemas/`; None where there is none."""
    file = resources.files("samzapy").joinpath("schemas", *path.split("/"))
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
