from __future__ import annotations

import pytest

from samzapy.adapters.spark.partitioning import hash_of_int, keys_by_partition


def test_the_hash_of_an_int_is_that_of_spark() -> None:
    """The result of `SELECT hash(0), hash(1), hash(2), hash(1000000)`."""
    assert [933211791, -559580957, 1765031574, -2101434080] == [hash_of_int(value) for value in (0, 1, 2, 1_000_000)]


@pytest.mark.parametrize("partition_count", [1, 2, 7, 64])
def test_each_partition_has_a_key_whose_hash_leads_to_it(partition_count: int) -> None:
    keys = keys_by_partition(partition_count)

    assert list(range(partition_count)) == [hash_of_int(key) % partition_count for key in keys]
