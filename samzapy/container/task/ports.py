"""The ports of a task: producer, slot, local state, crash points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from samzapy.container.task.changelog_mark import ChangelogMark
    from samzapy.container.task.topic_limits import TopicLimits
    from samzapy.container.task.work_plan import InputRecord, Report
    from samzapy.model.store_size import StoreSize

Headers = Sequence[tuple[str, bytes | None]]
Place = tuple[str, int]
"""Topic and partition."""


class Producer(Protocol):
    """A transactional producer of one worker slot."""

    def begin(self) -> None: ...

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_offset: Callable[[int], None] | None = None,
    ) -> None: ...

    def partition_count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None without such a topic.

        Asks the cluster.
        """
        ...

    def topic_limits(self, topic: str) -> TopicLimits | None:
        """The records that a topic takes; None when we may not know. Asks the cluster."""
        ...

    def flush(self) -> None:
        """Wait until everything produced is acknowledged; raises if anything was refused."""
        ...

    def commit(self) -> None: ...
    def abort(self) -> None: ...


class SlotGuard(Protocol):
    """A worker slot while this process holds it."""

    def producer(self) -> Producer:
        """The slot's producer.

        It is made again when the slot's instance number is not this process's own.
        """
        ...

    def mark_open(self) -> None:
        """Durably note that a transaction may be open. Comes before `begin`."""
        ...

    def mark_clean(self) -> None:
        """Durably note that no transaction is open and the local store is level.

        Comes after the local commit.
        """
        ...

    def note(self, route: int, offset: int) -> None:
        """Note the message in hand, so that it is known when this process dies of it.

        The note survives the process.
        """
        ...

    def check_lease(self) -> None:
        """Raise LostContainerError when the container's lease has run out.

        Then no transaction may begin or commit.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPosition:
    """The position of a task's local environment, as the environment has it.

    Attributes:
        offsets_next: per SSP, the next input offset.
        changelog_next: per store, the changelog offset from which on entries are not in it yet.
        changelog_last: per store, the last record of the task that it contains; absent where that is not known.
    """

    execution_id: str
    epoch: int
    offsets_next: Mapping[str, int]
    changelog_next: Mapping[str, int]
    caught_up_at_ms: int
    changelog_topic_ids: Mapping[str, str]
    changelog_last: Mapping[str, ChangelogMark] = field(default_factory=dict)


class LocalTransaction(Protocol):
    """One local transaction of a task's environment.

    It spans the Kafka transaction and commits after it.
    """

    def position(self) -> LocalPosition | None:
        """None in a fresh environment. Raises LocalStateError when it cannot be read."""
        ...

    def get(self, store: str, key: bytes) -> bytes | None:
        """The value of an entry; None without one.

        Raises DamagedStateError when the entry, or one beside its place, was changed since it was written.
        """
        ...

    def scan(
        self, store: str, prefix: bytes, first: bytes, end: bytes | None, *, reverse: bool, count_max: int
    ) -> Sequence[tuple[bytes, bytes]]:
        """Entries whose keys begin with `prefix`: the rest of the key, and the value.

        They are in the order of the keys.
        The store is ordered, and what this transaction has written is there. Raises DamagedStateError as `get`.

        Args:
            first, end: the rest of the first key, and of the key that is behind the last one; None: to the end.
            reverse: from the last one on.
        """
        ...

    def owners(self, store: str, place: bytes, count_max: int) -> tuple[Sequence[bytes], bytes | None]:
        """The message keys that have entries, each once, in no particular order.

        `store` has the scope `key`, and what this transaction has written is there. Raises DamagedStateError as `get`.

        Args:
            place: where to begin: empty, or as returned.

        Returns:
            The next keys, and where to go on; None at the end.
        """
        ...

    def due(
        self, store: str, domain: int, until_ms: int | None, count_max: int
    ) -> Sequence[tuple[int, bytes, bytes]]:
        """The first timers up to a moment: moment, changelog key and value.

        `store` keeps timers (`model.timer_entry`), and what this transaction has written is there. Raises
        DamagedStateError as `get`.

        Args:
            until_ms: the last moment, None for any from 1970 on. One before 1970 has the timers before 1970 up to it.
        """
        ...

    def remove_due(self, store: str, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Remove timers, as `due` has returned them; nothing has written them since."""
        ...

    def size(self, store: str) -> StoreSize:
        """The size of a store, with the entries that this transaction has written.

        It is read off the tree, so it takes the same time for any number of entries.
        """
        ...

    def check(self) -> None:
        """Raise DamagedStateError when a `get` of this transaction has.

        A task may have caught the error of that call.
        """
        ...

    def write(self, store: str, entries: Mapping[bytes, bytes | None]) -> None:
        """Set entries, or remove those whose value is None."""
        ...

    def set_position(self, position: LocalPosition) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


class TaskEnvironment(Protocol):
    """The local environment of one task.

    It is one file, with one writer at a time over all processes.
    """

    def begin(self) -> LocalTransaction:
        """Begin a transaction.

        Raises DeadlineError when another process keeps the lock, LocalStateError when the environment is damaged.
        """
        ...

    def bytes_on_disk(self) -> int:
        """The bytes that it takes on disk; 0 when that is not known."""
        ...


class TailEndedError(Exception):
    """A worker cannot read its inputs by itself any more.

    The next micro-batch meets the same state of the topics.
    """


BUNCH_MAX: Final = 1000
"""How many records a tail reads at once."""


class TailReader(Protocol):
    """Reads input partitions in a worker, as Spark's source does in the JVM."""

    def assign(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on.

        A partition that is read already, and is a little before its offset, may keep its place.
        """
        ...

    def poll(self, timeout_s: float, count_max: int) -> Sequence[InputRecord]:
        """Committed records, in offset order within each partition.

        Waits for the first one. Raises TailEndedError.
        """
        ...

    def offsets_next(self) -> Mapping[Place, int]:
        """The offset to read next, by partition."""
        ...

    def lag(self) -> int:
        """How many offsets are not read yet, as far as brokers have answered."""
        ...


class TailBoard(Protocol):
    """The signals between the tails of a micro-batch and the driver."""

    def must_end(self) -> bool:
        """Whether the tails have been ended, or their common end has come."""
        ...

    def end_all(self, reason: str) -> None:
        """End the tails of all workers of this micro-batch."""
        ...

    def publish(self, reports: Sequence[Report], read_to: Mapping[int, int]) -> None:
        """Give the driver the reports since the last call.

        Args:
            read_to: by route, the offset up to which everything is handled.
        """
        ...


class CrashPoints(Protocol):
    """Named places at which a test may end the process. Does nothing unless armed."""

    def hit(self, name: str) -> None: ...
