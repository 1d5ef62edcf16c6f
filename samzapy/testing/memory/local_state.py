"""A task's local state in memory.

It outlives the process. A transaction that was not committed does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from samzapy.container.task.ports import LocalPosition
from samzapy.errors import (
    DamagedStateError,
    DeadlineError,
    LocalStateError,
)
from samzapy.model.store_size import StoreSize
from samzapy.model.timer_entry import due_before, due_prefix, moment_of
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import split_changelog_key
from samzapy.testing.memory.process import CrashAt, Trace


@dataclass(slots=True)
class _Contents:
    """The contents of a file on the disk."""

    position: LocalPosition | None = None
    entries: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    # Whether nothing was committed since the last sync.
    is_synced: bool = False
    is_damaged: bool = False

    def copy(self) -> _Contents:
        return _Contents(self.position, dict(self.entries))


class MemoryEnvironment:
    """An environment while it is open (`container.ports.StateEnvironment`)."""

    def __init__(self, directory: str, contents: _Contents, trace: Trace, crash_points: CrashAt) -> None:
        self.directory = directory
        self.contents = contents
        self.is_open = True
        self.damaged_keys: set[bytes] = set()
        self._is_locked = False
        self._trace = trace
        self._crash_points = crash_points

    def begin(self) -> MemoryLocalTransaction:
        assert self.is_open, "it was closed"
        if self.contents.is_damaged:
            raise LocalStateError(f"{self.directory}: a page cannot be read")
        if self._is_locked:
            raise DeadlineError(f"{self.directory}: another transaction keeps the lock")
        self._is_locked = True
        return MemoryLocalTransaction(self)

    def bytes_on_disk(self) -> int:
        return sum(len(key) + len(value) for (_, key), value in self.contents.entries.items())

    def sync(self) -> None:
        self.contents.is_synced = True

    def hand_over(
        self, stores: Sequence[str], targets: Sequence[MemoryEnvironment], target_of_bucket: Sequence[int]
    ) -> None:
        assert self.is_open, "it was closed"
        for (store, key), value in sorted(self.contents.entries.items()):
            target = target_of_bucket[key_bucket(split_changelog_key(key)[0], 0, len(target_of_bucket))]
            if store in stores and target >= 0:
                self._crash_points.hit("hand-over")
                targets[target].contents.entries[store, key] = value

    def close(self) -> None:
        assert self.is_open, "it was closed"
        self.is_open = False

    @property
    def position(self) -> LocalPosition | None:
        return self.contents.position

    def values(self, store: str) -> dict[bytes, bytes]:
        return {key: value for (name, key), value in self.contents.entries.items() if name == store}

    def commit(self, contents: _Contents) -> None:
        self._crash_points.hit("local-commit")
        self.contents.position, self.contents.entries = contents.position, contents.entries
        self.contents.is_synced = False
        self._trace.append("local commit")

    def unlock(self) -> None:
        self._is_locked = False


def scanned(
    entries: Iterable[tuple[bytes, bytes]],
    bounds: tuple[bytes, bytes, bytes | None],
    *,
    reverse: bool,
    count_max: int,
) -> Sequence[tuple[bytes, bytes]]:
    """A range of entries, as `LocalTransaction.scan`.

    Args:
        entries: in any order.
        bounds: prefix, first and end.
    """
    prefix, first, end = bounds
    own = [(key[len(prefix) :], value) for key, value in entries if key.startswith(prefix)]
    rows = sorted(row for row in own if row[0] >= first and (end is None or row[0] < end))
    return (rows[::-1] if reverse else rows)[:count_max]


def owners_of(entries: Iterable[bytes], place: bytes, count_max: int) -> tuple[Sequence[bytes], bytes | None]:
    """The message keys of entries, as `LocalTransaction.owners`."""
    left = sorted({owner for owner, _ in map(split_changelog_key, entries) if not place or owner > place[1:]})
    page = left[:count_max]
    return page, b"\x00" + page[-1] if len(left) > len(page) else None


def timers_due(
    entries: Iterable[tuple[bytes, bytes]], domain: int, until_ms: int | None, count_max: int
) -> Sequence[tuple[int, bytes, bytes]]:
    """Timers in the order in which they are due, as `LocalTransaction.due`."""
    first, behind = due_before(domain, until_ms)
    rows = sorted((due_prefix(value), key, value) for key, value in entries)
    return [(moment_of(value), key, value) for due, key, value in rows if first <= due < behind][:count_max]


class MemoryLocalTransaction:
    """A local transaction (`container.task.ports.LocalTransaction`).

    It works on a copy, which takes the original's place at the commit.
    """

    def __init__(self, environment: MemoryEnvironment) -> None:
        self._environment: MemoryEnvironment | None = environment
        self._is_damaged = False
        self._contents = environment.contents.copy()

    def position(self) -> LocalPosition | None:
        return self._contents.position

    def get(self, store: str, key: bytes) -> bytes | None:
        assert self._environment is not None, "it has ended"
        self._is_damaged |= key in self._environment.damaged_keys
        self.check()
        return self._contents.entries.get((store, key))

    def scan(
        self, store: str, prefix: bytes, first: bytes, end: bytes | None, *, reverse: bool, count_max: int
    ) -> Sequence[tuple[bytes, bytes]]:
        assert self._environment is not None, "it has ended"
        return scanned(
            ((key, value) for (name, key), value in self._contents.entries.items() if name == store),
            (prefix, first, end),
            reverse=reverse,
            count_max=count_max,
        )

    def owners(self, store: str, place: bytes, count_max: int) -> tuple[Sequence[bytes], bytes | None]:
        assert self._environment is not None, "it has ended"
        return owners_of((key for name, key in self._contents.entries if name == store), place, count_max)

    def due(
        self, store: str, domain: int, until_ms: int | None, count_max: int
    ) -> Sequence[tuple[int, bytes, bytes]]:
        assert self._environment is not None, "it has ended"
        own = ((key, value) for (name, key), value in self._contents.entries.items() if name == store)
        return timers_due(own, domain, until_ms, count_max)

    def remove_due(self, store: str, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        assert all(value == self._contents.entries[store, key] for _, key, value in rows), "it was written since"
        self.write(store, {key: None for _, key, _ in rows})

    def size(self, store: str) -> StoreSize:
        own = [len(key) + len(value) for (name, key), value in self._contents.entries.items() if name == store]
        return StoreSize(bytes_used=sum(own), entries=len(own))

    def check(self) -> None:
        if self._is_damaged:
            raise DamagedStateError("an entry is not what was written")

    def write(self, store: str, entries: Mapping[bytes, bytes | None]) -> None:
        for key, value in entries.items():
            if value is None:
                self._contents.entries.pop((store, key), None)
            else:
                self._contents.entries[store, key] = value

    def set_position(self, position: LocalPosition) -> None:
        self._contents.position = position

    def commit(self) -> None:
        assert self._environment is not None, "it has ended"
        environment, self._environment = self._environment, None
        try:
            environment.commit(self._contents)
        finally:
            environment.unlock()

    def abort(self) -> None:
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.unlock()


class MemoryStateDirectory:
    """One task's local state on one host (`container.ports.StateDirectory`).

    `number` counts fresh environments.
    """

    def __init__(self, name: str = "task") -> None:
        self.name = name
        self.number = 0
        # Whether another process keeps its lock.
        self.is_locked = False
        # Whether the host was rebooted before it was synced.
        self.is_in_doubt = False
        # Whether another process has it open.
        self.is_open_elsewhere = False
        self.written_at_ms = 0
        self.contents = _Contents()
        self.trace = Trace()
        self.crash_points = CrashAt()
        self.opened: list[MemoryEnvironment] = []

    def open(self) -> MemoryEnvironment:
        return self.fresh() if self.number == 0 or self.is_in_doubt else self._opened()

    def _opened(self) -> MemoryEnvironment:
        environment = MemoryEnvironment(f"{self.name}/{self.number}", self.contents, self.trace, self.crash_points)
        self.opened.append(environment)
        return environment

    def existing(self) -> MemoryEnvironment | None:
        if self.is_locked:
            raise DeadlineError("another process keeps the lock of the local state")
        return None if self.number == 0 or self.is_in_doubt else self._opened()

    def remove(self) -> None:
        self.number, self.contents, self.is_in_doubt = 0, _Contents(), False

    def unused_since_ms(self) -> int | None:
        return None if self.is_open_elsewhere else self.written_at_ms

    def fresh(self) -> MemoryEnvironment:
        self.number += 1
        self.contents, self.is_in_doubt = _Contents(), False
        return self._opened()

    def reboot(self) -> None:
        """Reboot the host; no process has the environment open."""
        self.is_in_doubt = not self.contents.is_synced

    def damage_position(self, **changes: object) -> None:
        """Change the position that the environment contains."""
        assert self.contents.position is not None
        self.contents.position = replace(self.contents.position, **changes)  # type: ignore[arg-type]
