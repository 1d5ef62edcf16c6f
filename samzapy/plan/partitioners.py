"""How producers take a key to a partition: the hashes of Kafka's clients.

They tell which client wrote a topic.

| partitioner | clients with this default |
|---|---|
| murmur2 | Java's client and all on top of it (Kafka Streams, Connect, ksqlDB, Spark, Samza), samzapy, kafka-python, KafkaJS, franz-go; librdkafka as `murmur2`, `murmur2_random` |
| CRC32 | librdkafka (`consistent`, `consistent_random`) and so confluent-kafka for Python, Go and .NET, node-rdkafka, rust-rdkafka |
| FNV-1a | Sarama and kafka-go's `Hash`; librdkafka as `fnv1a`, `fnv1a_random` |

They differ where there is no key too, and `consistent_random` takes the empty key for none; so keys that are null or
empty tell nothing, and are not looked at.

Source: `org.apache.kafka.common.utils.Utils.murmur2`, librdkafka's `rdmurmur2.c`, `rdcrc32.c` and `rdfnv1a.c`.
"""  # noqa: E501

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

_MURMUR_M: Final = 0x5BD1E995
_MURMUR_SEED: Final = 0x9747B28C
_FNV_PRIME: Final = 0x01000193
_FNV_OFFSET: Final = 0x811C9DC5
_U32: Final = 0xFFFFFFFF
_BLOCK: Final = struct.Struct("<I")


class Partitioner(StrEnum):
    MURMUR2 = "murmur2"
    CRC32 = "CRC32"
    FNV1A = "FNV-1a"


def murmur2(key: bytes) -> int:
    """Java's `toPositive(murmur2(key))`, from 0 to 2**31 - 1."""
    count = len(key)
    hashed = _MURMUR_SEED ^ count
    whole = count & ~3
    for (block,) in _BLOCK.iter_unpack(key[:whole]):
        block = block * _MURMUR_M & _U32
        block ^= block >> 24
        hashed = hashed * _MURMUR_M & _U32 ^ block * _MURMUR_M & _U32
    if count > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MURMUR_M & _U32
    hashed ^= hashed >> 13
    hashed = hashed * _MURMUR_M & _U32
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF


def fnv1a(key: bytes) -> int:
    """32-bit FNV-1a as a signed number without its sign, as Sarama has it."""
    hashed = _FNV_OFFSET
    for byte in key:
        hashed = (hashed ^ byte) * _FNV_PRIME & _U32
    return hashed if hashed < 1 << 31 else (1 << 32) - hashed


HASHES: Final[Mapping[Partitioner, Callable[[bytes], int]]] = {
    Partitioner.MURMUR2: murmur2,
    Partitioner.CRC32: zlib.crc32,
    Partitioner.FNV1A: fnv1a,
}
"""A key's partition is its hash modulo the number of partitions."""
