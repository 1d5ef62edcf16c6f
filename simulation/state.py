"""The state of a simulated job: local environments on hosts, and changelogs.

The container's own code restores, splits, merges and copies state (`container.local_state.restore`,
`container.local_state.split_and_merge`); here is only its data. A disk outlives the processes of its host, an
uncommitted local transaction does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from samzapy.container.ports import ChangelogPlace, ChangelogRead, TopicBounds
from samzapy.container.task.ports import LocalPosition
from samzapy.errors import DeadlineError
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.store_size import StoreSize
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import split_changelog_key
from samzapy.stream.log import LogRecord
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from simulation.inputs import Inputs

HOSTS = ("host-a", "host-b")
"""Each has a disk."""

KEYED, BROADCAST = "seen", "rules"
"""The stores of a simulated job, by their scope."""

_REMOVED_AT = 7


def one_more(value: bytes | None) -> bytes | None:
    """The running value of an entry after another message: 1, 2, ...

    From time to time it is removed.
    """
    count = 1 if value is None else int(value) + 1
    return None if count == _REMOVED_AT else b"%d" % count


def entry_of(ssp_kb: SspKeyBucket, key: bytes | None) -> bytes | None:
    """The entry that counts a message, without its owner.

    None for a message that may write nothing.
    """
    if ssp_kb.reader:
        return b"%s/%s" % (str(ssp_kb.ssp).encode(), key or b"")
    return key


Effect = Callable[[], None]
"""Called before each effect on a disk or a changelog; may be the end of the process that has it."""


class LocalState:
    """One environment of a task: the disk, and the owner of its lock.

    A replaced environment has no owner.
    """

    def __init__(self) -> None:
        self.position: LocalPosition | None = None
        self.entries: dict[str, dict[bytes, bytes]] = {}
        self.holder: LocalTransaction | None = None

    def of(self, store: str) -> dict[bytes, bytes]:
        return self.entries.setdefault(store, {})


class LocalTransaction:
    """A `container.ports.LocalTransaction`.

    Its writes are on the disk when it is committed, or never.
    """

    def __init__(self, state: LocalState, effect: Effect) -> None:
        if state.holder is not None:
            raise DeadlineError("another process keeps the lock of the local state")
        state.holder = self
        self._state = state
        self._effect = effect
        self._position = state.position
        self._written: dict[str, dict[bytes, bytes | None]] = {}

    def position(self) -> LocalPosition | None:
        return self._position

    def get(self, store: str, key: bytes) -> bytes | None:
        written = self._written.get(store)
        if written is not None and key in written:
            return written[key]
        return self._state.of(store).get(key)

    def scan(
        self, store: str, prefix: bytes, first: bytes, end: bytes | None, *, reverse: bool, count_max: int
    ) -> Sequence[tuple[bytes, bytes]]:
        """No task of a simulation has an ordered store."""
        raise AssertionError("no store is ordered here")

    def owners(self, store: str, place: bytes, count_max: int) -> tuple[Sequence[bytes], bytes | None]:
        """No task of a simulation has a window."""
        raise AssertionError("no task has a window here")

    def due(
        self, store: str, domain: int, until_ms: int | None, count_max: int
    ) -> Sequence[tuple[int, bytes, bytes]]:
        """No task of a simulation has timers."""
        raise AssertionError("no task has timers here")

    def remove_due(self, store: str, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        """No task of a simulation has timers."""
        raise AssertionError("no task has timers here")

    def size(self, store: str) -> StoreSize:
        """Without the entries that this transaction has written: no check looks at it."""
        return StoreSize(bytes_used=0, entries=len(self._state.of(store)))

    def check(self) -> None:
        """Nothing is ever damaged here."""

    def write(self, store: str, entries: Mapping[bytes, bytes | None]) -> None:
        self._written.setdefault(store, {}).update(entries)

    def set_position(self, position: LocalPosition) -> None:
        self._position = position

    def commit(self) -> None:
        assert self._state.holder is self, "it has ended"
        try:
            self._effect()
        finally:
            self.abort()
        self._state.position = self._position
        for store, written in self._written.items():
            entries = self._state.of(store)
            for key, value in written.items():
                if value is None:
                    entries.pop(key, None)
                else:
                    entries[key] = value

    def abort(self) -> None:
        if self._state.holder is self:
            self._state.holder = None


class Environment:
    """A `container.ports.StateEnvironment`."""

    def __init__(self, state: LocalState, effect: Effect) -> None:
        self.state = state
        self._effect = effect

    def begin(self) -> LocalTransaction:
        return LocalTransaction(self.state, self._effect)

    def bytes_on_disk(self) -> int:
        return 0

    def sync(self) -> None:
        pass

    def hand_over(
        self, stores: Sequence[str], targets: Sequence[Environment], target_of_bucket: Sequence[int]
    ) -> None:
        for store in stores:
            for key, value in self.state.of(store).items():
                target = target_of_bucket[key_bucket(split_changelog_key(key)[0], 0, len(target_of_bucket))]
                if target >= 0:
                    self._effect()
                    targets[target].state.of(store)[key] = value

    def close(self) -> None:
        pass

    @property
    def directory(self) -> str:
        return ""


class Disk:
    """The local state of all tasks on one host, by their names."""

    def __init__(self) -> None:
        self.states: dict[TaskName, LocalState] = {}

    def tasks_here(self) -> Sequence[TaskName]:
        return sorted(self.states)

    def directory(self, task_name: str, effect: Effect) -> Directory:
        return Directory(self.states, TaskName(task_name), effect)


class Directory:
    """A `container.ports.StateDirectory`."""

    def __init__(self, states: dict[TaskName, LocalState], task_name: TaskName, effect: Effect) -> None:
        self._states = states
        self._task_name = task_name
        self._effect = effect

    def open(self) -> Environment:
        try:
            return self.existing() or self.fresh()
        except DeadlineError:
            return self.fresh()

    def fresh(self) -> Environment:
        self._effect()
        state = self._states[self._task_name] = LocalState()
        return Environment(state, self._effect)

    def existing(self) -> Environment | None:
        state = self._states.get(self._task_name)
        if state is not None and state.holder is not None:
            raise DeadlineError("another process keeps the lock of the local state")
        return None if state is None else Environment(state, self._effect)

    def remove(self) -> None:
        self._effect()
        self._states.pop(self._task_name, None)

    def unused_since_ms(self) -> int | None:
        return None  # No history here is as long as state is kept.


class Changelogs:
    """The changelogs of the job's stores.

    It is `container.ports.Topics`, as far as a restore asks.

    Args:
        together_with: the topic whose transactions write to them, too.
    """

    def __init__(self, stores: Collection[str], together_with: MemoryTopic, inputs: Inputs) -> None:
        self.stores = sorted(stores)
        self.topics: dict[tuple[str, int], MemoryTopic] = {}
        self.checkpoints = together_with
        self._inputs = inputs

    def topic(self, store: str, partition: int) -> MemoryTopic:
        """A partition of the changelog of `store`; there as soon as it is asked for."""
        place = store, partition
        if place not in self.topics:
            self.topics[place] = MemoryTopic(f"{store}/{partition}", self.checkpoints)
        return self.topics[place]

    def compact(self) -> None:
        """Tombstones stay: no reader is away for as long as they would have to be kept."""
        for topic in self.topics.values():
            topic.compact()

    def checkpoint_records(self) -> Sequence[LogRecord]:
        return list(MemoryLog(self.checkpoints).read())

    def changelog_records(self, store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        return MemoryLog(self.topic(store, partition)).read(offset_from)

    def read_ahead(self, places: Sequence[ChangelogPlace]) -> None:
        """Everything is at hand."""

    def changelog_bounds(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], TopicBounds]:
        return {place: TopicBounds(offset_first=0, offset_end=self.topic(*place).end_offset) for place in places}

    def changelog_topic_ids(self, stores: Sequence[str]) -> Mapping[str, str]:
        return {store: f"id-of-{store}" for store in stores}

    def input_bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        return {ssp: TopicBounds(offset_first=0, offset_end=self._inputs.end(ssp)) for ssp in ssps}

    def input_high_watermarks(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, int]:
        return {ssp: self._inputs.end(ssp) for ssp in ssps}

    def input_topic_ids(self, streams: Sequence[SystemStream]) -> Mapping[SystemStream, str]:
        return {stream: f"id-of-{stream}" for stream in streams}


class MemoryChangelogFollower:
    """A `container.ports.ChangelogFollower` of the changelogs."""

    def __init__(self, changelogs: Changelogs) -> None:
        self._changelogs = changelogs
        self._offsets: dict[tuple[str, int], int] = {}

    def assign(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._offsets = dict(offsets)

    def poll(self, count_max: int) -> Mapping[tuple[str, int], ChangelogRead]:
        read = {}
        for place, offset in self._offsets.items():
            topic = self._changelogs.topic(*place)
            records, offset_next = topic.read_stable(offset, count_max)
            self._offsets[place] = offset_next
            is_at_end = offset_next >= topic.stable_offset
            read[place] = ChangelogRead(
                records=records, offset_next=offset_next, offset_end=topic.end_offset, is_at_end=is_at_end
            )
        return read
