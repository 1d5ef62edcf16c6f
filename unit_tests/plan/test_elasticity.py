from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.plan.elasticity import key_bucket

GOLDEN = Path(__file__).parent / "golden" / "key_buckets.jsonl"

keys = st.none() | st.binary(max_size=40)
offsets = st.integers(0, 2**40)
factors_below_max = st.integers(0, 7).map(lambda power: 2**power)


@given(keys, offsets, factors_below_max)
def test_a_bucket_splits_into_itself_and_its_double(key: bytes | None, offset: int, factor: int) -> None:
    bucket = key_bucket(key, offset, factor)

    assert key_bucket(key, offset, 2 * factor) in (bucket, bucket + factor)


@given(st.binary(max_size=40), offsets, offsets)
def test_all_messages_of_a_key_fall_into_one_bucket(key: bytes, offset: int, other_offset: int) -> None:
    assert key_bucket(key, offset, 64) == key_bucket(key, other_offset, 64)


def test_messages_without_a_key_spread_by_offset() -> None:
    assert [key_bucket(None, offset, 4) for offset in range(6)] == [0, 1, 2, 3, 0, 1]


def test_an_empty_key_is_a_key() -> None:
    assert len({key_bucket(b"", offset, 256) for offset in range(10)}) == 1


@pytest.mark.parametrize("line", GOLDEN.read_text().splitlines())
def test_the_bucket_of_a_key_never_changes(line: str) -> None:
    """State is stored by these buckets. Never change a line.

    `xxhash64` is the result of Spark's function of that name for the key as binary (checked with Spark 4.2).
    """
    frozen = json.loads(line)
    key = bytes.fromhex(frozen["key"])

    assert frozen["buckets"] == {str(factor): key_bucket(key, 0, factor) for factor in (1, 2, 4, 16, 256)}
    # pmod of the signed value, as the filter in the JVM computes it.
    signed = frozen["xxhash64"]
    assert frozen["buckets"]["256"] == ((signed % 256) + 256) % 256


def test_keys_fill_the_buckets_evenly() -> None:
    counts = Counter(key_bucket(f"user-{number}".encode(), 0, 16) for number in range(16_000))

    assert len(counts) == 16
    assert max(counts.values()) < 1.15 * 1000


@pytest.mark.parametrize("factor", [0, -1, 3, 6, 512])
def test_a_factor_that_is_no_power_of_two_is_refused(factor: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        key_bucket(b"k", 0, factor)
