"""Describes bytes that a serde refuses, by their beginning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SHOWN_BYTES = 8
_SCHEMA_FRAME_BYTES = 5

# The longer ones stand before those that they begin with.
_BEGINNINGS: Final[Mapping[bytes, str]] = {
    b"\xef\xbb\xbf": "a UTF-8 byte order mark; let the producer write UTF-8 without it",
    b"\xff\xfe\x00\x00": "a byte order mark of UTF-32; let the producer write UTF-8",
    b"\x00\x00\xfe\xff": "a byte order mark of UTF-32; let the producer write UTF-8",
    b"\xff\xfe": "a byte order mark of UTF-16; let the producer write UTF-8",
    b"\xfe\xff": "a byte order mark of UTF-16; let the producer write UTF-8",
    b"\x1f\x8b": "gzip; use serde bytes and gzip.decompress in the task, or let the producer set compression.type, "
    "which Kafka's clients undo",
    b"\x28\xb5\x2f\xfd": "zstd; use serde bytes and decompress it in the task, or let the producer set "
    "compression.type, which Kafka's clients undo",
    b"\x04\x22\x4d\x18": "an LZ4 frame; use serde bytes and decompress it in the task, or let the producer set "
    "compression.type, which Kafka's clients undo",
    b"\x82SNAPPY": "snappy; use serde bytes and decompress it in the task, or let the producer set compression.type, "
    "which Kafka's clients undo",
    b"PK\x03\x04": "a zip file; use serde bytes and open it in the task",
    b"\xc3\x01": "an Avro single object; use serde bytes and decode it in the task",
    b"Obj\x01": "an Avro file; use serde bytes and decode it in the task",
    b"\xac\xed\x00\x05": "an object that Java serialized; let the producer write text or JSON",
    b"\x80\x04\x95": "a Python pickle; let the producer write text or JSON",
    b"\x80\x05\x95": "a Python pickle; let the producer write text or JSON",
}


def looks_like(raw: bytes) -> str:
    """`; it begins with ..., which looks like ...` for the end of a message.

    Empty for an unknown format.

    Sources of the beginnings: the wire format of Confluent's schema registry (a zero, the schema's id in four bytes),
    the Unicode standard for byte order marks, RFC 1952 (gzip), RFC 8878 (zstd), and the formats' own specifications.
    """
    for beginning, meaning in _BEGINNINGS.items():
        if raw.startswith(beginning):
            return f"; it begins with {_hex(beginning)}, which looks like {meaning}"
    if raw[:1] == b"\0" and len(raw) > _SCHEMA_FRAME_BYTES:
        schema_id = int.from_bytes(raw[1:_SCHEMA_FRAME_BYTES], "big")
        return (
            f"; it begins with {_hex(raw[:_SCHEMA_FRAME_BYTES])}, which looks like the framing of a schema registry "
            f"(a zero, then the schema's id, {schema_id}); use serde bytes and decode it in the task, or let the "
            "producer write without a registry"
        )
    return ""


def _hex(raw: bytes) -> str:
    return raw[:_SHOWN_BYTES].hex(" ")
