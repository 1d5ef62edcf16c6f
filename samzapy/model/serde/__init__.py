"""Serdes: how a value of Python becomes bytes, and back."""

from __future__ import annotations

from samzapy.model.serde.base import NamedSerde, SerdeError
from samzapy.model.serde.fixed_width import LONG
from samzapy.model.serde.named import key_serde_of, serde_of
from samzapy.model.serde.ordered import ORDERED, SUB_KEY_BYTES_MAX, ordered_of, with_flags
from samzapy.model.serde.typed import (
    Bytes,
    Double,
    Integer,
    Json,
    Long,
    Msgpack,
    Serde,
    String,
    Structured,
    Timestamp,
    Uuid,
    fault_of,
    name_of,
    named,
)

__all__ = [
    "LONG",
    "ORDERED",
    "SUB_KEY_BYTES_MAX",
    "Bytes",
    "Double",
    "Integer",
    "Json",
    "Long",
    "Msgpack",
    "NamedSerde",
    "Serde",
    "SerdeError",
    "String",
    "Structured",
    "Timestamp",
    "Uuid",
    "fault_of",
    "key_serde_of",
    "name_of",
    "named",
    "ordered_of",
    "serde_of",
    "with_flags",
]
