"""The cost of a key's hash, from times that are known.

An integration test measures it in Spark.
"""

from __future__ import annotations

from typing import Any

import pytest

from samzapy.adapters.spark import keyhash
from samzapy.adapters.spark.keyhash import KeyhashCost, per_key_ns

KEYS = 1 << 20


def test_the_cost_of_a_key_hash_compares_the_quickest_passes() -> None:
    assert 12.0 == per_key_ns([9 * KEYS, 5 * KEYS, 6 * KEYS], [40 * KEYS, 18 * KEYS, 17 * KEYS])


def test_noise_never_makes_the_cost_of_a_key_hash_negative() -> None:
    assert 0.0 == per_key_ns([5 * KEYS], [4 * KEYS])


def test_a_time_with_the_wait_for_a_core_is_no_cost_of_a_key_hash() -> None:
    """A tail may hold the only core for seconds."""
    assert 0.0 == per_key_ns([10**10] * 3, [2 * 10**10] * 3)


def test_the_measured_cost_of_a_key_hash_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyhash, "keyhash_ns", lambda session: 2.5)
    cost, session = KeyhashCost(), Any

    assert 0.0 == cost.ns
    cost._measure(session)  # type: ignore[arg-type]  # looked at by nothing here

    assert 2.5 == cost.ns
