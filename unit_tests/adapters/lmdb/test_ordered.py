"""Ranges of an ordered store in LMDB agree with a sorted dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from samzapy.adapters.lmdb.store import LmdbEnvironment, LmdbTransaction
from samzapy.config import StoreConfig
from samzapy.errors import DamagedStateError
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import changelog_key, split_changelog_key, task_entry_key

STORE = StoreConfig(
    name="map", msg_serde="bytes", key_serde="bytes", replication_factor=None, size_max_bytes=1 << 24, kind="map"
)
PLAIN = replace(STORE, name="plain", kind="value")
STORES = (STORE, PLAIN)
# Owners whose keys are whole in the file, at the bound, and under a digest; one is the beginning of another.
OWNERS = [b"", b"a", b"a\xff", b"\xff" * 20, b"k" * 199, b"k" * 200, b"k" * 201, b"k" * 202, b"x" * 700]
PREFIXES = [changelog_key(owner, b"") for owner in OWNERS] + [task_entry_key("t" * size, b"") for size in (9, 400)]
SUB_KEYS = st.binary(max_size=3) | st.sampled_from([b"\xff" * 255, b"\x00", b"\xff", b"m" * 254])
VALUES = st.binary(max_size=4)


class Ranges(RuleBasedStateMachine):
    """Puts, deletes, rollbacks and restarts in one environment, beside dicts."""

    @initialize()
    def begin(self) -> None:
        self.directory = TemporaryDirectory()
        self.committed: dict[bytes, bytes] = {}
        self.current: dict[bytes, bytes] = {}
        self._open()

    def _open(self) -> None:
        self.environment = LmdbEnvironment(Path(self.directory.name) / "1", STORES)
        self.transaction = self.environment.begin()

    @rule(prefix=st.sampled_from(PREFIXES), entries=st.dictionaries(SUB_KEYS, VALUES | st.none(), max_size=5))
    def write(self, prefix: bytes, entries: Mapping[bytes, bytes | None]) -> None:
        keyed = {prefix + sub_key: value for sub_key, value in entries.items()}
        self.transaction.write("map", keyed)
        for key, value in keyed.items():
            self.current.pop(key, None)
            if value is not None:
                self.current[key] = value

    @rule()
    def commit(self) -> None:
        self.transaction.commit()
        self.committed = dict(self.current)
        self.transaction = self.environment.begin()

    @rule()
    def roll_back(self) -> None:
        self.transaction.abort()
        self.current = dict(self.committed)
        self.transaction = self.environment.begin()

    @rule()
    def restart(self) -> None:
        self.transaction.abort()
        self.environment.close()
        self.current = dict(self.committed)
        self._open()

    @rule(
        prefix=st.sampled_from(PREFIXES),
        first=st.just(b"") | SUB_KEYS,
        end=st.none() | SUB_KEYS,
        reverse=st.booleans(),
        count_max=st.integers(1, 4),
    )
    def scan(self, prefix: bytes, first: bytes, end: bytes | None, reverse: bool, count_max: int) -> None:
        # Owners are distinguished by their length, so no key of another owner begins with this prefix.
        own = sorted((key[len(prefix) :], value) for key, value in self.current.items() if key.startswith(prefix))
        expected = [row for row in own if row[0] >= first and (end is None or row[0] < end)]
        if reverse:
            expected.reverse()

        rows = self.transaction.scan("map", prefix, first, end, reverse=reverse, count_max=count_max)

        assert expected[:count_max] == rows

    @rule(count_max=st.integers(1, 4))
    def owners(self, count_max: int) -> None:
        owners, place = list[bytes](), b""
        while True:
            page, behind = self.transaction.owners("map", place, count_max)
            assert len(page) == count_max or behind is None
            owners += page
            if behind is None:
                break
            place = behind

        assert sorted({split_changelog_key(key)[0] for key in self.current}) == sorted(owners)

    @invariant()
    def check_entries_by_key(self) -> None:
        if hasattr(self, "current"):
            for key, value in self.current.items():
                assert value == self.transaction.get("map", key)

    def teardown(self) -> None:
        if hasattr(self, "transaction"):
            self.transaction.abort()
            self.environment.close()
            self.directory.cleanup()


Ranges.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRanges = Ranges.TestCase


def a_filled(transaction: LmdbTransaction, count: int = 5) -> bytes:
    prefix = changelog_key(b"a", b"")
    transaction.write("map", {prefix + bytes((number,)): b"value" for number in range(count)})
    return prefix


def test_a_changed_entry_in_a_range_is_damage(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path / "1", STORES)
    transaction = environment.begin()
    prefix = a_filled(transaction)
    cursor = transaction._transaction.cursor(db=environment.stores["map"])
    assert cursor.set_range(b"\x00" + prefix + b"\x03")
    cursor.put(cursor.key(), cursor.value()[:-1] + b"x")
    cursor.close()

    assert 3 == len(transaction.scan("map", prefix, b"", b"\x03", reverse=False, count_max=9))
    with pytest.raises(DamagedStateError, match="another entry"):
        transaction.scan("map", prefix, b"", None, reverse=False, count_max=9)

    transaction.abort()
    environment.close()


def test_each_owner_of_a_store_without_order_is_listed_once(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path / "1", STORES)
    transaction = environment.begin()
    keys = {bytes((letter,)) * size for letter in b"ab\xff" for size in (1, 200, 511, 600, 700)}
    transaction.write("plain", {changelog_key(key, b""): b"value" for key in keys})
    owners, place = list[bytes](), b""
    for _ in range(8):
        page, behind = transaction.owners("plain", place, 2)
        owners, place = owners + list(page), behind or b""

    assert (None, sorted(keys)) == (behind, sorted(owners))
    assert ([], None) == transaction.owners("map", b"", 2)
    transaction.abort()
    environment.close()


def test_the_entries_of_long_keys_move_to_the_environment_of_their_bucket(tmp_path: Path) -> None:
    source = LmdbEnvironment(tmp_path / "a" / "1", STORES)
    targets = [LmdbEnvironment(tmp_path / name / "1", STORES) for name in ("b", "c")]
    owners = [letter * 300 for letter in (b"a", b"b", b"c", b"d", b"e")]
    transaction = source.begin()
    for owner in owners:
        transaction.write("map", {changelog_key(owner, b"1"): owner[:1], changelog_key(owner, b"2"): b"2"})
    transaction.commit()

    source.hand_over(["map"], targets, [0, 1])

    for bucket, target in enumerate(targets):
        transaction = target.begin()
        for owner in owners:
            rows = transaction.scan("map", changelog_key(owner, b""), b"", None, reverse=True, count_max=9)
            is_here = key_bucket(owner, 0, 2) == bucket
            assert ([(b"2", b"2"), (b"1", owner[:1])] if is_here else []) == rows
        transaction.abort()
        target.close()
    source.close()
