"""The index of timers in LMDB agrees with a sorted list of their entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from samzapy.adapters.lmdb.store import LmdbEnvironment, LmdbTransaction
from samzapy.config import StoreConfig
from samzapy.errors import DamagedStateError
from samzapy.model.timer_entry import STORE, Domain, due_prefix, moment_of, sub_key_of, timer_value
from samzapy.stream.changelog import changelog_key


def a_store(name: str, kind: str = "value") -> StoreConfig:
    return StoreConfig(
        name=name, msg_serde="bytes", key_serde="bytes", replication_factor=None, size_max_bytes=1 << 24, kind=kind
    )


STORES = (a_store("sums"), a_store(STORE, "timer"))
KEYS = [
    changelog_key(owner, sub_key_of(name, tag))
    for owner in (b"", b"a", b"b" * 201, b"c" * 202, b"d" * 700)
    for name, tag in (("quiet", ""), ("quiet", "t" * 200), ("late", ""))
]
MOMENTS = st.integers(-3, 5) | st.sampled_from([-(2**62), -(2**40), 2**40, 2**62 - 1])
VALUES = st.builds(timer_value, st.sampled_from(Domain), MOMENTS)


class Timers(RuleBasedStateMachine):
    """Timers that are set, cleared, rolled back and handed over."""

    @initialize()
    def begin(self) -> None:
        self.directory = TemporaryDirectory()
        self.number = 1
        self.committed: dict[bytes, bytes] = {}
        self.current: dict[bytes, bytes] = {}
        self._open()

    def _open(self) -> None:
        self.environment = LmdbEnvironment(Path(self.directory.name) / str(self.number), STORES)
        self.transaction = self.environment.begin()

    @rule(entries=st.dictionaries(st.sampled_from(KEYS), VALUES | st.none(), min_size=1, max_size=8))
    def write(self, entries: Mapping[bytes, bytes | None]) -> None:
        self.transaction.write(STORE, entries)
        for key, value in entries.items():
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

    @rule()
    def hand_over(self) -> None:
        """The target has no index, so the next process that opens it makes one."""
        self.transaction.abort()
        self.current = dict(self.committed)
        self.number += 1
        target = LmdbEnvironment(Path(self.directory.name) / str(self.number), STORES)
        self.environment.hand_over([STORE], [target], [0])
        target.close()
        self.environment.close()
        self._open()

    @rule(domain=st.sampled_from(Domain), until_ms=st.none() | MOMENTS, count_max=st.integers(1, 20))
    def due(self, domain: Domain, until_ms: int | None, count_max: int) -> None:
        self._check_due(domain, until_ms, count_max)

    @invariant()
    def all_due_timers_are_found(self) -> None:
        """A look that is drawn meets a timer in one of fifty calls at most."""
        if hasattr(self, "current"):
            for domain in Domain:
                for until_ms in (-(2**41), -1, 0, 3, None):
                    self._check_due(domain, until_ms, 4)

    def _check_due(self, domain: Domain, until_ms: int | None, count_max: int) -> None:
        rows = self.transaction.due(STORE, domain, until_ms, count_max)

        of_domain = [(key, value) for key, value in self.current.items() if value[1] == domain]
        # Those before 1970 are found apart.
        moments = [moment_of(value) for _, value in of_domain]
        least_ms = 0 if until_ms is None or until_ms >= 0 else -(2**63)
        due = [moment for moment in moments if least_ms <= moment <= (2**63 if until_ms is None else until_ms)]
        assert sorted(due)[:count_max] == [moment for moment, _, _ in rows]
        assert all(self.current[key] == value and moment_of(value) == moment for moment, key, value in rows)
        assert len({key for _, key, _ in rows}) == len(rows)

    @invariant()
    def entries_are_counted_with_those_of_the_transaction(self) -> None:
        if hasattr(self, "current"):
            assert len(self.current) == self.transaction.size(STORE).entries

    @invariant()
    def check_entries_by_key(self) -> None:
        if hasattr(self, "current"):
            for key in KEYS:
                assert self.current.get(key) == self.transaction.get(STORE, key)

    def teardown(self) -> None:
        if hasattr(self, "transaction"):
            self.transaction.abort()
            self.environment.close()
            self.directory.cleanup()


Timers.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTimers = Timers.TestCase


@pytest.mark.parametrize(
    ("until_ms", "moments"),
    [(-2, [-5, -2]), (-1, [-5, -2, -1]), (0, [0]), (7, [0, 7]), (None, [0, 7, 2**62 - 1]), (-(2**62), [])],
)
def test_timers_of_moments_before_1970_are_found_apart(
    tmp_path: Path, until_ms: int | None, moments: list[int]
) -> None:
    environment = LmdbEnvironment(tmp_path / "1", STORES)
    transaction = environment.begin()
    set_to = [(KEYS[number], moment) for number, moment in enumerate((7, -1, -5, 0, 2**62 - 1, -2))]
    for domain in Domain:
        transaction.write(STORE, {key + bytes([domain]): timer_value(domain, moment) for key, moment in set_to})

    rows = transaction.due(STORE, Domain.EVENT, until_ms, 9)

    assert moments == [moment for moment, _, _ in rows]
    transaction.abort()
    environment.close()


def test_a_scan_from_the_timer_that_was_due_last_would_lose_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer may be set to an earlier moment."""
    due, seen_ms = LmdbTransaction.due, [-1]

    def due_later(
        self: LmdbTransaction, store: str, domain: int, until_ms: int | None, count_max: int
    ) -> Sequence[tuple[int, bytes, bytes]]:
        rows = [row for row in due(self, store, domain, until_ms, count_max) if row[0] >= seen_ms[0]]
        seen_ms[0] = max([seen_ms[0], *(row[0] for row in rows)])
        return rows

    monkeypatch.setattr(LmdbTransaction, "due", due_later)
    timers = Timers()
    timers.begin()
    timers.write({KEYS[0]: timer_value(Domain.PROCESSING, 5)})
    timers.due(Domain.PROCESSING, None, 20)
    timers.write({KEYS[1]: timer_value(Domain.PROCESSING, 1)})

    with pytest.raises(AssertionError):
        timers.due(Domain.PROCESSING, None, 20)
    timers.teardown()


def test_the_size_of_timers_has_the_pages_of_their_index(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path / "1", STORES)
    transaction = environment.begin()
    transaction.write(STORE, {KEYS[0]: timer_value(Domain.PROCESSING, 7)})
    transaction.write("sums", {b"a": b"1"})

    timers, sums = transaction.size(STORE), transaction.size("sums")
    transaction.abort()
    environment.close()

    assert (1, 1) == (timers.entries, sums.entries)
    assert 2 * sums.bytes_used == timers.bytes_used


def test_timers_of_one_moment_are_due_in_the_order_of_their_keys(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path / "1", STORES)
    transaction = environment.begin()
    keys = [changelog_key(owner, sub_key_of("quiet", "")) for owner in (b"b", b"c", b"a")]
    transaction.write(STORE, dict.fromkeys(keys, timer_value(Domain.PROCESSING, 7)))

    assert sorted(keys) == [key for _, key, _ in transaction.due(STORE, Domain.PROCESSING, 7, 9)]

    transaction.abort()
    environment.close()


@pytest.mark.parametrize("part", ["index", "entry"])
def test_a_changed_timer_is_damage(tmp_path: Path, part: str) -> None:
    environment = LmdbEnvironment(tmp_path / "1", STORES)
    transaction = environment.begin()
    key, value = changelog_key(b"a", sub_key_of("quiet", "")), timer_value(Domain.PROCESSING, 7)
    transaction.write(STORE, {key: value})
    stored = b"\x00" + key
    database, place = (
        (environment.due, due_prefix(value) + stored) if part == "index" else (environment.stores[STORE], stored)
    )
    raw = transaction._transaction.get(place, None, database)
    transaction._transaction.put(place, raw[:-1] + bytes((raw[-1] ^ 1,)), db=database)

    with pytest.raises(DamagedStateError, match="another timer"):
        transaction.due(STORE, Domain.PROCESSING, 7, 9)

    transaction.abort()
    environment.close()
