"""Measurements of a task, as they travel from worker to coordinator.

For people and for controllers of a job's size: nothing that keeps data safe looks at it. Figures are sums since the
execution began, so one that is lost on the way loses nothing, and a rate is a difference of two of them. Times are in
nanoseconds, as SEP-32 names them; they end where they are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypeVar

from samzapy.model.store_size import StoreSize, sizes_from_json, sizes_json
from samzapy.model.text import camel_case
from samzapy.model.time_figures import TimeFigures

_Key = TypeVar("_Key")
KEYS_KEPT: Final = 8
SAMPLED_MAX: Final = 2048
"""Beyond so many sampled keys a sketch counts the older ones half, so that it shows the present keys."""
_KEY_LENGTH_MAX = 60
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class KeySketch:
    """The frequent keys of a sample, in bounded memory (Misra and Gries, 1982).

    A count is never too large, and at most `sampled / (KEYS_KEPT + 1)` too small; a key that is not named came at most
    that often. Sketches can be merged without losing that (Agarwal et al., 2012).

    Attributes:
        sampled: how many messages it tells of, those without a key among them.
        counts: by key, as text (`key_text`); at most `KEYS_KEPT`.
    """

    sampled: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: Sequence[bytes | None]) -> KeySketch:
        """The sketch of some keys.

        Messages without one are no key that is frequent: they go by their offsets.
        """
        counted = Counter(keys)
        del counted[None]
        return cls(len(keys), {key_text(key): count for key, count in _kept(counted).items() if key is not None})

    def merged(self, other: KeySketch) -> KeySketch:
        """The sketch of both sets of messages."""
        counts = Counter(self.counts)
        counts.update(other.counts)
        sampled, kept = self.sampled + other.sampled, _kept(counts)
        if sampled <= SAMPLED_MAX:
            return KeySketch(sampled, kept)
        return KeySketch(sampled // 2, {key: count // 2 for key, count in kept.items() if count > 1})

    def busiest(self) -> tuple[str, float] | None:
        """The most frequent key, and a lower bound of its share of the messages.

        None when no key is frequent enough.
        """
        if not self.counts:
            return None
        key, count = min(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return key, count / self.sampled


def _kept(counts: Mapping[_Key, int]) -> dict[_Key, int]:
    """The `KEYS_KEPT` largest counts, less the largest count that is dropped.

    This keeps the promise of `KeySketch`.
    """
    if len(counts) <= KEYS_KEPT:
        return dict(counts)
    dropped = sorted(counts.values(), reverse=True)[KEYS_KEPT]
    return {key: count - dropped for key, count in counts.items() if count > dropped}


def key_text(key: bytes) -> str:
    """A key as people read it: its text, else its bytes in hex.

    The middle of a long key is left out.
    """
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        text = f"0x{key.hex()}"
    if len(text) <= _KEY_LENGTH_MAX:
        return text
    half = _KEY_LENGTH_MAX // 2
    return f"{text[:half]}…{text[-half:]}"


NO_KEYS: Final = KeySketch()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStats:
    """The work and cost of a task since its execution began.

    Attributes:
        records_in, records_out, dead_letters: of what was committed.
        skipped: rows that reached a worker and were done already.
        transactions: committed ones; `commit_ns` is their end, from the changelog's records to the local commit.
        busy_ns: the task's share of the micro-batch: time in a worker, without waiting for rows.
        process_ns: handling messages: serdes, user code, and handing outputs to the producer.
        input_ns: waiting for rows, and unpacking them.
        gets_timed, get_ns: of reads of a store, the first in each chunk of rows is timed; the same for the others.
        disk_bytes: size of the local state on disk.
        store_identify_ns: time of the last start to find the task's own entries and to catch them up.
        timers_fired: timers whose handlers were called. Of those in processing time, which are `timers_timed`,
            `timer_lag_ns` is how late they fired.
        late: messages whose event time was less than the watermark of their key.
        ahead: messages whose event time was further ahead of the host's clock than counts.
        expired: entries that were removed at the end of their ttl.
        keys: the keys that are frequent now.
        time: the watermark and the timers now; None for a task that has neither, and while they are not known.
        stores: the sizes of the stores, empty while they are not known; from worker to driver only, which adds up those
            of its tasks.
    """

    records_in: int = 0
    records_out: int = 0
    dead_letters: int = 0
    skipped: int = 0
    transactions: int = 0
    busy_ns: int = 0
    process_ns: int = 0
    commit_ns: int = 0
    input_ns: int = 0
    gets_timed: int = 0
    get_ns: int = 0
    puts_timed: int = 0
    put_ns: int = 0
    deletes_timed: int = 0
    delete_ns: int = 0
    disk_bytes: int = 0
    store_identify_ns: int = 0
    timers_fired: int = 0
    timers_timed: int = 0
    timer_lag_ns: int = 0
    late: int = 0
    ahead: int = 0
    expired: int = 0
    keys: KeySketch = NO_KEYS
    time: TimeFigures | None = None
    stores: Mapping[str, StoreSize] = field(default_factory=dict)

    @classmethod
    def total(cls, figures: Collection[TaskStats]) -> TaskStats:
        """The sums over several tasks, with the watermark that is furthest behind.

        They have no keys: a share of one task's messages says nothing about all tasks. They have no stores either.
        """
        sums = {name: sum(getattr(item, name) for item in figures) for name in _COUNTS}
        return cls(**sums, time=TimeFigures.worst([item.time for item in figures]))

    def followed_by(self, later: TaskStats) -> TaskStats:
        """The sums of one task and its successor. The size on disk is not added up."""
        return TaskStats.in_turn((self, later))

    @classmethod
    def in_turn(cls, figures: Sequence[TaskStats]) -> TaskStats:
        """The sums of a task over several periods, in their order.

        The sizes on disk and of stores are the last ones, and so are the watermark and the timers.
        """
        keys = NO_KEYS
        for item in figures:
            keys = keys if item.keys is NO_KEYS else keys.merged(item.keys)
        disk_bytes = next((item.disk_bytes for item in reversed(figures) if item.disk_bytes), 0)
        time = TimeFigures.newest([item.time for item in figures])
        stores = next((item.stores for item in reversed(figures) if item.stores), {})
        return replace(TaskStats.total(figures), disk_bytes=disk_bytes, keys=keys, time=time, stores=stores)

    def as_json(self) -> dict[str, object]:
        """The non-zero figures: most are zero for most tasks."""
        as_json: dict[str, object] = {
            json_name: count for name, json_name in _COUNTS.items() if (count := getattr(self, name))
        }
        if self.keys.sampled:
            as_json |= {"keysSampled": self.keys.sampled, "keys": dict(sorted(self.keys.counts.items()))}
        if self.time is not None:
            as_json["time"] = self.time.as_json()
        if self.stores:
            as_json["stores"] = sizes_json(self.stores)
        return as_json

    @classmethod
    def from_json(cls, figures: Mapping[str, object]) -> TaskStats:
        """The inverse of `as_json`, also for another release.

        A missing figure is zero, and an unknown one is ignored.

        Raises:
            ValueError: a figure is no whole number of 0 or more, there are more keys than a sketch has, or `time` or
                `stores` is not as `TimeFigures` or `StoreSize` has it.
        """
        counts = {name: _count(json_name, figures.get(json_name, 0)) for name, json_name in _COUNTS.items()}
        keys = figures.get("keys", {})
        if not isinstance(keys, dict) or len(keys) > KEYS_KEPT:
            raise ValueError(f"keys: wanted counts of at most {KEYS_KEPT} keys, found {repr(keys)[:100]}")
        sampled = _count("keysSampled", figures.get("keysSampled", 0))
        sketched = {_printable(key): _count("each of keys", count) for key, count in sorted(keys.items())}
        if 0 in sketched.values():
            raise ValueError("keys: wanted counts of 1 or more, found 0")
        if sum(sketched.values()) > sampled:
            raise ValueError(f"keys: wanted counts of {sampled} sampled keys, found {sum(sketched.values())}")
        time = figures.get("time")
        if time is not None and not isinstance(time, dict):
            raise ValueError(f"time: wanted an object, found {repr(time)[:100]}")
        return cls(
            **counts,
            keys=KeySketch(sampled, sketched),
            time=None if time is None else TimeFigures.from_json(time),
            stores=sizes_from_json(figures.get("stores", {})),
        )


_COUNTS: Final = {
    field.name: camel_case(field.name) for field in fields(TaskStats) if field.name not in ("keys", "time", "stores")
}
NOTHING_MEASURED: Final = TaskStats()


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LONG_MAX:
        raise ValueError(f"{name}: wanted a whole number from 0 to {_LONG_MAX}, found {repr(value)[:100]}")
    return value


def _printable(key: str) -> str:
    """Lone surrogates are legal in JSON, and cannot be shown."""
    return key[: _KEY_LENGTH_MAX + 1].encode(errors="replace").decode()
