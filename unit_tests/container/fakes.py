"""The world of a container in memory, with the manners of the real one: the unpleasant ones are the point.

`MemoryKafka` keeps topics with transactions over several of them: offsets have gaps (markers), an open transaction
hides what lies behind it, and the latest owner of a transactional id wins. `MemoryStateDirectory` is a task's local
state: it outlives the process, an uncommitted transaction does not. `Trace` notes the order of effects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from samzapy.config import JobConfig
from samzapy.container.ports import BatchDone, ChangelogPlace, HeartbeatContent, QueryEvent, TailRead, TopicBounds
from samzapy.container.task.ports import Headers, LocalPosition
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.container.task.work_plan import WorkPlan
from samzapy.errors import (
    DamagedStateError,
    DeadlineError,
    FencedError,
    LocalStateError,
    LostContainerError,
    MissingTopicError,
    ProducerError,
)
from samzapy.model.checkpoint import Progress
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import split_changelog_key
from samzapy.stream.codec import decode, encode, headers
from samzapy.stream.log import LogRecord
from samzapy.stream.records import ProgressPut, Record, TermPut
from samzapy.testing.virtual_clock import VirtualClock


class Crash(BaseException):
    """The process is gone. Nothing may catch it but the test."""


class CrashAt:
    """Crash points of one process: the `at_hit`-th hit of `name` ends it."""

    def __init__(self, name: str = "", at_hit: int = 1) -> None:
        self._name = name
        self._at_hit = at_hit
        self.hits: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        self.hits[name] += 1
        if name == self._name and self.hits[name] == self._at_hit:
            raise Crash(f"{name}, hit {self._at_hit}")


class Trace(list[str]):
    """What was done, in order."""

    def since(self, effect: str) -> list[str]:
        return list(self[self.index(effect) :])


# --- Kafka ---


class _Outcome(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class _Transaction:
    outcome: _Outcome = _Outcome.OPEN
    partitions: list[tuple[str, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    transaction: _Transaction
    record: LogRecord | None
    timestamp_ms: int | None = None


class MemoryKafka:
    """Topics in memory. A partition exists as soon as it is named; topic ids change when a topic is made again."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, str] = {}
        self.absent: set[str] = set()
        self.topic_limits: dict[str, TopicLimits | None] = {}
        self._partitions: dict[tuple[str, int], list[_Entry]] = {}
        self._offset_ends: Counter[tuple[str, int]] = Counter()
        self._epochs: Counter[str] = Counter()
        self._open: dict[str, _Transaction] = {}
        self.fenced: list[str] = []

    def committed(
        self, topic: str, partition: int = 0, offset_from: int = 0, offset_to: int | None = None
    ) -> list[LogRecord]:
        """What a `read_committed` reader sees; it waits at an open transaction, which here is to give up."""
        found = []
        for entry in self._partitions.get((topic, partition), []):
            if entry.offset < offset_from or (offset_to is not None and entry.offset >= offset_to):
                continue
            if entry.transaction.outcome is _Outcome.OPEN:
                raise DeadlineError(f"{topic}-{partition}: an open transaction from offset {entry.offset} on")
            if entry.transaction.outcome is _Outcome.COMMITTED and entry.record is not None:
                found.append(entry.record)
        return found

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.committed(topic, partition)]

    def offset_end(self, topic: str, partition: int = 0) -> int:
        return self._offset_ends[topic, partition]

    def offset_stable(self, topic: str, partition: int = 0) -> int:
        """The first offset of an open transaction, else the end."""
        entries = self._partitions.get((topic, partition), [])
        open_ones = (entry.offset for entry in entries if entry.transaction.outcome is _Outcome.OPEN)
        return min(open_ones, default=self.offset_end(topic, partition))

    def init(self, transactional_id: str) -> int:
        """A new owner: what the one before left open is aborted, and it is fenced."""
        self._end(transactional_id, _Outcome.ABORTED)
        self._epochs[transactional_id] += 1
        self.fenced.append(transactional_id)
        return self._epochs[transactional_id]

    def has_open_transaction(self, transactional_id: str) -> bool:
        return transactional_id in self._open

    def write(self, topic: str, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Somebody else's committed records."""
        for key, value in records:
            self._append(_Transaction(outcome=_Outcome.COMMITTED), topic, partition, key, value, (), 0)

    def check_owner(self, transactional_id: str, epoch: int) -> None:
        if self._epochs[transactional_id] != epoch:
            raise FencedError(f"{transactional_id} has a newer owner")

    def begin(self, transactional_id: str) -> None:
        assert transactional_id not in self._open, "a transaction is open already"
        self._open[transactional_id] = _Transaction()

    def append(
        self,
        transactional_id: str,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> int:
        transaction = self._open[transactional_id]
        if (topic, partition) not in transaction.partitions:
            transaction.partitions.append((topic, partition))
        return self._append(transaction, topic, partition, key, value, headers, timestamp_ms)

    def end(self, transactional_id: str, *, committed: bool) -> None:
        self._end(transactional_id, _Outcome.COMMITTED if committed else _Outcome.ABORTED)

    def _append(
        self,
        transaction: _Transaction,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> int:
        place = (topic, partition)
        offset = self._offset_ends[place]
        record = LogRecord(
            offset=offset, timestamp_ms=timestamp_ms or 0, key=key, value=value, headers=tuple(headers)
        )
        self._partitions.setdefault(place, []).append(_Entry(offset, transaction, record))
        self._offset_ends[place] += 1
        return offset

    def _end(self, transactional_id: str, outcome: _Outcome) -> None:
        transaction = self._open.pop(transactional_id, None)
        if transaction is None:
            return
        transaction.outcome = outcome
        for place in transaction.partitions:
            self._partitions[place].append(_Entry(self._offset_ends[place], transaction, None))
            self._offset_ends[place] += 1


CLIENT_NOW_MS = 1_700_000_000_000
"""The clock of the producers in memory."""


class MemoryProducer:
    """A transactional producer (`container.ports.Producer`). Acknowledges in `flush`, as the real one may.

    `commit_fails`: "unknown-committed" and "unknown-aborted" make one commit raise although, or because.
    """

    def __init__(self, kafka: MemoryKafka, transactional_id: str, trace: Trace, crash_points: CrashAt) -> None:
        self.transactional_id = transactional_id
        self.commit_fails = ""
        self.while_flushing: Callable[[], None] = lambda: None
        self._kafka = kafka
        self._trace = trace
        self._crash_points = crash_points
        self._epoch = kafka.init(transactional_id)
        self._unacknowledged: list[tuple[Callable[[int], None], int]] = []

    def begin(self) -> None:
        self._kafka.check_owner(self.transactional_id, self._epoch)
        self._kafka.begin(self.transactional_id)
        self._trace.append("begin")

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_offset: Callable[[int], None] | None = None,
    ) -> None:
        self._kafka.check_owner(self.transactional_id, self._epoch)
        # As librdkafka does: no time is now, and so is 0; a header's name ends at a zero character.
        sent = [(name.encode().partition(b"\0")[0].decode(), content) for name, content in headers or ()]
        offset = self._kafka.append(
            self.transactional_id, topic, partition or 0, key, value, sent, timestamp_ms or CLIENT_NOW_MS
        )
        self._trace.append(f"produce {topic}")
        if on_offset is not None:
            self._unacknowledged.append((on_offset, offset))

    def partition_count(self, topic: str) -> int | None:
        return None if topic in self._kafka.absent else 4

    def topic_limits(self, topic: str) -> TopicLimits | None:
        return self._kafka.topic_limits.get(topic, TopicLimits(batch_bytes_max=1_048_588))

    def flush(self) -> None:
        self.while_flushing()
        for on_offset, offset in self._unacknowledged:
            on_offset(offset)
        self._unacknowledged.clear()
        self._trace.append("flush")

    def commit(self) -> None:
        self._kafka.check_owner(self.transactional_id, self._epoch)
        if self.commit_fails:
            committed, self.commit_fails = self.commit_fails == "unknown-committed", ""
            self._kafka.end(self.transactional_id, committed=committed)
            raise ProducerError("the connection broke at the commit: its outcome is unknown")
        self._crash_points.hit("kafka-commit")
        self._kafka.end(self.transactional_id, committed=True)
        self._trace.append("commit")

    def abort(self) -> None:
        self._kafka.check_owner(self.transactional_id, self._epoch)
        self._kafka.end(self.transactional_id, committed=False)
        self._trace.append("abort")


class MemoryTopics:
    """What a container reads of Kafka to start (`container.ports.Topics`)."""

    def __init__(
        self, kafka: MemoryKafka, config: JobConfig, inputs: Mapping[SystemStreamPartition, TopicBounds] | None = None
    ) -> None:
        self._kafka = kafka
        self._config = config
        self.inputs = dict(inputs or {})
        self.absent: set[str] = set()
        self.changelog_reads: list[ChangelogPlace] = []
        self.read_aheads: list[list[ChangelogPlace]] = []
        self.fails: list[Exception] = []
        self.trace = Trace()

    def checkpoint_records(self) -> Sequence[LogRecord]:
        if self.fails:
            raise self.fails.pop(0)
        self.trace.append("read checkpoints")
        return self._kafka.committed(checkpoint_topic(self._config.job))

    def changelog_records(self, store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        self.changelog_reads.append((store, partition, offset_from))
        self.trace.append("read changelog")
        return iter(self._kafka.committed(changelog_topic(self._config.job, store), partition, offset_from))

    def read_ahead(self, places: Sequence[ChangelogPlace]) -> None:
        self.read_aheads.append(list(places))

    def changelog_bounds(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], TopicBounds]:
        return {
            (store, partition): TopicBounds(
                offset_first=0,
                offset_end=self._kafka.offset_end(changelog_topic(self._config.job, store), partition),
            )
            for store, partition in places
        }

    def input_bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        self.trace.append("input bounds")
        missing = [ssp for ssp in ssps if str(ssp.system_stream) in self.absent]
        if missing:
            raise MissingTopicError(f"wanted the offsets of {missing[0]}, found no such topic")
        return {ssp: self.inputs.get(ssp, TopicBounds(offset_first=0, offset_end=1_000_000)) for ssp in ssps}

    def changelog_topic_ids(self, stores: Sequence[str]) -> Mapping[str, str]:
        return {store: self._kafka.topic_ids.get(store, f"id-of-{store}") for store in stores}

    def input_topic_ids(self, streams: Sequence[SystemStream]) -> Mapping[SystemStream, str]:
        return {
            stream: self._kafka.topic_ids.get(str(stream), f"id-of-{stream}")
            for stream in streams
            if str(stream) not in self.absent
        }


class MemoryTail:
    """Follows changelogs (`container.ports.Tail`). Like the real one it waits at an open transaction, and says so."""

    def __init__(self, kafka: MemoryKafka, config: JobConfig) -> None:
        self._kafka = kafka
        self._config = config
        self.offsets: dict[tuple[str, int], int] = {}
        self.assigned: list[Mapping[tuple[str, int], int]] = []
        self.fails: list[Exception] = []
        self.records_max = 1_000_000

    def assign(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.offsets = dict(offsets)
        self.assigned.append(dict(offsets))

    def poll(self, count_max: int) -> Mapping[tuple[str, int], TailRead]:
        if self.fails:
            raise self.fails.pop(0)
        return {place: self._read(place, min(count_max, self.records_max)) for place in sorted(self.offsets)}

    def _read(self, place: tuple[str, int], count_max: int) -> TailRead:
        store, partition = place
        topic = changelog_topic(self._config.job, store)
        stable, end = self._kafka.offset_stable(topic, partition), self._kafka.offset_end(topic, partition)
        found = self._kafka.committed(topic, partition, self.offsets[place], stable)
        read = found[:count_max]
        is_at_end = len(read) == len(found)
        self.offsets[place] = max(self.offsets[place], stable if is_at_end else read[-1].offset + 1)
        return TailRead(records=read, offset_next=self.offsets[place], offset_end=end, is_at_end=is_at_end)


# --- local state ---


@dataclass(slots=True)
class _Contents:
    """What is on the disk."""

    position: LocalPosition | None = None
    entries: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    # Whether nothing was committed since the last sync.
    is_synced: bool = False
    is_damaged: bool = False

    def copy(self) -> _Contents:
        return _Contents(self.position, dict(self.entries))


class MemoryEnvironment:
    """A task's environment while somebody has it open (`container.ports.StateEnvironment`)."""

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
        self, stores: Sequence[str], heirs: Sequence[MemoryEnvironment], heir_of_bucket: Sequence[int]
    ) -> None:
        assert self.is_open, "it was closed"
        for (store, key), value in sorted(self.contents.entries.items()):
            heir = heir_of_bucket[key_bucket(split_changelog_key(key)[0], 0, len(heir_of_bucket))]
            if store in stores and heir >= 0:
                self._crash_points.hit("hand-over")
                heirs[heir].contents.entries[store, key] = value

    def close(self) -> None:
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


class MemoryLocalTransaction:
    """Works on a copy, which takes the original's place at the commit (`container.ports.LocalTransaction`)."""

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
    """One task's local state on one host (`container.ports.StateDirectory`); `number` counts fresh environments."""

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
        """The host was rebooted; nobody has it open."""
        self.is_in_doubt = not self.contents.is_synced

    def damage_position(self, **changes: object) -> None:
        """Change what the environment says of itself."""
        assert self.contents.position is not None
        self.contents.position = replace(self.contents.position, **changes)  # type: ignore[arg-type]


# --- a worker's slot ---


class MemorySlot:
    """A slot while this process holds it (`container.ports.SlotGuard`). The lease runs out after `lease_checks`."""

    def __init__(
        self,
        kafka: MemoryKafka,
        transactional_id: str = "samzapy/flights-1/e1/0",
        *,
        trace: Trace | None = None,
        crash_points: CrashAt | None = None,
    ) -> None:
        self.trace = Trace() if trace is None else trace
        self.state = "clean"
        self.lease_checks: int | None = None
        self.notes: list[tuple[int, int]] = []
        self._kafka = kafka
        self._transactional_id = transactional_id
        self._crash_points = crash_points or CrashAt()
        self._producer: MemoryProducer | None = None

    def producer(self) -> MemoryProducer:
        if self._producer is None:
            self._producer = MemoryProducer(self._kafka, self._transactional_id, self.trace, self._crash_points)
        return self._producer

    def mark_open(self) -> None:
        self.state = "open"
        self.trace.append("open")

    def mark_clean(self) -> None:
        self.state = "clean"
        self.trace.append("clean")

    def note(self, route: int, offset: int) -> None:
        self.notes.append((route, offset))

    def check_lease(self) -> None:
        self.trace.append("lease")
        if self.lease_checks is not None:
            if self.lease_checks == 0:
                raise LostContainerError("the container's lease ran out")
            self.lease_checks -= 1


# --- the driver's side ---


def _leaders_headers(term: int, seq: int) -> tuple[tuple[str, bytes], ...]:
    return tuple(headers(term=term, seq=seq, event="e", cause="c", actor="a").items())


class MemoryStream:
    """The coordinator stream (`container.ports.CoordinatorStream`): records appended here are read once each."""

    def __init__(self, trace: Trace) -> None:
        self.records: list[Record] = []
        self.silence_ms = 0
        self._handed_out = 0
        self._term = 1
        self._trace = trace

    def silent_ms(self) -> int:
        return self.silence_ms

    def poll(self) -> Sequence[LogRecord]:
        found = []
        for offset, record in enumerate(self.records[self._handed_out :], start=self._handed_out):
            key, value = encode(record)
            self._term = record.term if isinstance(record, TermPut) else self._term
            found.append(LogRecord(offset, 0, key, value, _leaders_headers(self._term, offset)))
        self._handed_out = len(self.records)
        return found

    def to_the_end(self) -> Sequence[LogRecord]:
        self._trace.append("to the end")
        return self.poll()

    def offset_next(self) -> int:
        return self._handed_out


class MemorySlots:
    """All slots, from the driver's side (`container.ports.Slots`)."""

    def __init__(self, trace: Trace) -> None:
        self.open_slots: set[int] = set()
        # By query and slot: the route and the offset of the message in hand.
        self.noted: dict[tuple[int, int], tuple[int, int]] = {}
        self._trace = trace

    def take_all(self, wait_ms: int) -> Sequence[int]:
        self._trace.append("take slots")
        return sorted(self.open_slots)

    def block(self, query_number: int) -> None:
        self._trace.append(f"block {query_number}")

    def in_hand(self, slots: Sequence[int], query_number: int) -> Sequence[tuple[int, int]]:
        return [self.noted[query_number, slot] for slot in slots if (query_number, slot) in self.noted]

    def renew(self, slots: Sequence[int]) -> None:
        self._trace.append(f"renew {slots}")
        self.open_slots -= set(slots)

    def admit(self, query_number: int) -> None:
        self._trace.append(f"admit {query_number}")

    def kill_holders(self) -> None:
        self._trace.append("kill holders")


class MemoryFence:
    """Initialises ids (`container.ports.Fence`); `fails` are raised first, one per call."""

    def __init__(self, trace: Trace) -> None:
        self.fails: list[Exception] = []
        self._trace = trace

    def fence(self, transactional_ids: Sequence[str]) -> None:
        if self.fails:
            raise self.fails.pop(0)
        self._trace.append(f"fence {', '.join(transactional_ids)}")


class MemoryProgressLog:
    """Takes progress records (`container.ports.ProgressLog`); `fails` are raised first, one per append."""

    def __init__(self, trace: Trace) -> None:
        self.written: list[Progress] = []
        self.removed: list[tuple[str, int, Sequence[bytes]]] = []
        self.fails: list[Exception] = []
        self.served = 0
        self._is_owned = False
        self._trace = trace

    def is_owned(self) -> bool:
        return self._is_owned

    def serve(self) -> None:
        self.served += 1

    def own(self) -> None:
        self._trace.append("own progress")
        self._is_owned = True

    def append(self, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._may_fail()
        for key, value in writes:
            record = decode(LogRecord(offset=0, timestamp_ms=0, key=key, value=value), topic="checkpoints")
            assert isinstance(record, ProgressPut)
            self.written.append(record.progress)
        self._trace.append("progress")

    def write(self, topic: str, partition: int, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._may_fail()
        assert all(value is None for _, value in writes), "only tombstones are expected here"
        self.removed.append((topic, partition, [key for key, _ in writes]))
        self._trace.append(f"remove {topic}")

    def close(self) -> None:
        self._is_owned = False

    def _may_fail(self) -> None:
        assert self._is_owned, "own comes first"
        if self.fails:
            self._is_owned = False
            raise self.fails.pop(0)


Step = QueryEvent | Callable[[], QueryEvent | None] | None


class ScriptedQuery:
    """A query whose events a test writes down (`container.ports.Query`). A step may also do something.

    Time goes by while nothing happens; when the script is over, `at_the_end` is called, which ends the test.
    """

    def __init__(self, trace: Trace, clock: VirtualClock, at_the_end: Callable[[], None]) -> None:
        self.steps: list[Step] = []
        self.started: list[tuple[WorkPlan, Mapping[SspKeyBucket, int]]] = []
        self.drains_in_time = True
        self.runs = False
        self.rehearsed: list[tuple[WorkPlan, SystemStreamPartition, int]] = []
        # How often a rehearsal is found to go on.
        self.rehearsal_looks = 0
        self.batch_has_run_ms = 0
        self._trace = trace
        self._clock = clock
        self._at_the_end = at_the_end

    def start(self, plan: WorkPlan, starts: Mapping[SspKeyBucket, int]) -> None:
        assert not self.runs, "at most one runs"
        self.runs = True
        self.started.append((plan, dict(starts)))
        self._trace.append(f"start query {plan.query_number}")

    def rehearse(self, plan: WorkPlan, ssp: SystemStreamPartition, offset: int) -> None:
        assert not self.runs, "only where nothing runs"
        self.rehearsed.append((plan, ssp, offset))

    def rehearses(self) -> bool:
        self.rehearsal_looks -= 1
        return self.rehearsal_looks >= 0

    def next_event(self, timeout_ms: int) -> QueryEvent | None:
        if not self.started:
            return None
        if timeout_ms == 0:
            # What ended while the query drained.
            is_batch = bool(self.steps) and isinstance(self.steps[0], BatchDone)
            event = self.steps.pop(0) if is_batch else None
            assert event is None or isinstance(event, BatchDone)
            return event
        if not self.steps:
            self._at_the_end()
            return None
        step = self.steps.pop(0)
        event = step() if callable(step) else step
        if event is None:
            self._clock.advance(timeout_ms)
        return event

    def batch_runs_ms(self) -> int:
        return self.batch_has_run_ms

    def drain(self, timeout_ms: int) -> bool:
        self._trace.append("drain")
        self.runs, self.batch_has_run_ms = False, 0
        return self.drains_in_time

    def stop(self) -> None:
        self._trace.append("stop query")
        self.runs = False


class MemoryHeartbeats:
    """Keeps what heartbeats say (`container.ports.Heartbeats`)."""

    def __init__(self, trace: Trace) -> None:
        self.contents: list[HeartbeatContent] = []
        self.sent: list[HeartbeatContent] = []
        self.reason: str | None = None
        self.ran_out_at_ms: int | None = None
        self._trace = trace

    def publish(self, content: HeartbeatContent) -> None:
        self.contents.append(content)

    def given_up(self) -> str | None:
        return self.reason

    def lease_ran_out_at_ms(self) -> int | None:
        return self.ran_out_at_ms

    def send_now(self, timeout_ms: int) -> bool:
        self._trace.append("send heartbeat")
        self.sent.append(self.contents[-1])
        return True


class StopFlag:
    """A stop request (`container.ports.StopRequest`)."""

    def __init__(self) -> None:
        self.asked = False

    def is_set(self) -> bool:
        return self.asked
