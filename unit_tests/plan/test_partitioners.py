"""The hashes of Kafka's clients, by the vectors of their own tests.

Integration tests hold them against librdkafka.
"""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.plan.partitioners import HASHES, Partitioner, fnv1a, murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        # The same in librdkafka: unsigned, and of keys that are shorter than four bytes.
        (b"kafka", 0xD067CF64),
        (b"34", 0x873930DA),
        (b"4", 0x5A4B5CA1),
        (b"", 0x106E08D9),
    ],
)
def test_murmur2_is_java_s_made_positive(key: bytes, signed: int) -> None:
    assert signed & 0x7FFFFFFF == murmur2(key)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"kafka", 0x0D33C4E1),
        (b"giberish123456789", 0x77A58295),
        (b"1234", 0x23BDD03),
        (b"34", 0x740FA83E),
        (b"", 0x7EE3623B),
    ],
)
def test_fnv1a_is_librdkafka_s(key: bytes, expected: int) -> None:
    assert expected == fnv1a(key)


def test_crc32_is_the_check_value_of_its_definition() -> None:
    assert 0xCBF43926 == HASHES[Partitioner.CRC32](b"123456789") == zlib.crc32(b"123456789")


@given(st.binary(max_size=40))
def test_no_hash_is_negative_or_longer_than_32_bits(key: bytes) -> None:
    assert all(0 <= hash_of(key) < 1 << 32 for hash_of in HASHES.values())
