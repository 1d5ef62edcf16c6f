"""One task's part in transactions, with that of its local store.

Kafka's own transaction is of one task or of several (`joint_transaction`).

Theory. Outputs, changelog entries and checkpoints are produced and committed by Kafka, and after that the local store
is committed. So local state is equal to what Kafka committed or behind it, never ahead. A process that dies between
two of these effects leaves nothing that the next start cannot catch up with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from samzapy.container.task.changelog_mark import ChangelogMark, mark_of
from samzapy.container.task.measures import Fired
from samzapy.container.task.message_scope import Place
from samzapy.container.task.ports import LocalPosition, LocalTransaction, Producer
from samzapy.container.task.ports import TaskEnvironment as Environment
from samzapy.container.task.stores import TaskState
from samzapy.container.task.work_plan import Report, ReportKind, Route, WorkPlan
from samzapy.errors import FencedError, LostContainerError, ProducerError, SlowMessageError, UndeliveredError
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.store_size import StoreSize
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.stream.codec import encode
from samzapy.stream.records import CheckpointPut

_DISK_SEEN_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLimits:
    """When a transaction is closed although rows remain.

    `now_s` is any clock that only goes forward; `wall_ms` tells when a local store was last level with its changelog.
    `boot_ms` is the host's clock since its boot, by which clocks of event time run.
    """

    duration_max_s: float
    bytes_max: int
    now_s: Callable[[], float]
    wall_ms: Callable[[], int]
    boot_ms: Callable[[], int]


@dataclass(slots=True)
class Handled:
    """The counts of one route's rows, and the offset behind the last one."""

    offset_next: int
    records_in: int = 0
    records_out: int = 0
    dead_letters: int = 0
    commits: int = 0


@dataclass(frozen=True, slots=True)
class LastMessage:
    """The message that was handled last, and how long it took."""

    place: Place
    took_s: float


@dataclass(slots=True, kw_only=True)
class Transaction:
    """An open transaction, its counts by route, and the timers that fired in it.

    Attributes:
        begun_at_s: when Kafka's transaction began.
    """

    producer: Producer
    local: LocalTransaction
    position: LocalPosition
    begun_at_s: float
    handled: dict[int, Handled] = field(default_factory=dict)
    fired: Fired = field(default_factory=Fired)
    last: LastMessage | None = None
    written: dict[str, ChangelogMark] = field(default_factory=dict)

    def handled_of(self, route: int, ssp_kb: SspKeyBucket) -> Handled:
        """The counts of a route's rows in this transaction.

        They begin at the position of the local store.
        """
        if route not in self.handled:
            self.handled[route] = Handled(self.position.offsets_next[str(ssp_kb)])
        return self.handled[route]

    def is_full(self, limits: TransactionLimits, bytes_held: int) -> bool:
        return bytes_held > limits.bytes_max or limits.now_s() >= self.begun_at_s + limits.duration_max_s


class Transactions:
    """One task's part in transactions."""

    def __init__(
        self,
        plan: WorkPlan,
        route: Route,
        environment: Environment,
        state: TaskState,
        limits: TransactionLimits,
    ) -> None:
        """Take `route`, any of the task's, for the task's name, epoch and changelog.

        These are the same in all routes of a task.
        """
        self._plan = plan
        self._route = route
        self._environment = environment
        self._state = state
        self._limits = limits
        self._disk_bytes = 0
        # When they were looked at; a tail commits hundreds of transactions a second.
        self._disk_seen_s: float | None = None
        # Of the last commit since they were taken.
        self._sizes: Mapping[str, StoreSize] = {}

    def begin(self, producer: Producer, begun_at_s: float) -> Transaction:
        """Begin the local transaction; Kafka's has begun.

        Args:
            begun_at_s: when Kafka's has begun, which may have been for another task.

        Raises:
            LostContainerError: another execution or epoch works on this task.
        """
        local = self._environment.begin()
        try:
            position = local.position()
            self._check_owner(position)
        except BaseException:
            local.abort()
            raise
        assert position is not None
        self._state.local = local
        return Transaction(producer=producer, local=local, position=position, begun_at_s=begun_at_s)

    def _check_owner(self, position: LocalPosition | None) -> None:
        route = self._route
        owner = None if position is None else (position.execution_id, position.epoch)
        if owner != (self._plan.execution_id, route.epoch):
            raise LostContainerError(
                f"task {route.task_name}: wanted local state of execution {self._plan.execution_id}, "
                f"epoch {route.epoch}, found {owner}: another execution works in this directory"
            )

    def produce(self, transaction: Transaction) -> None:
        """Produce the changelog entries and checkpoints of the transaction."""
        self._produce_changelog(transaction.producer, transaction.written)
        self._produce_checkpoints(transaction)
        # A task may have caught the error of a damaged store.
        transaction.local.check()

    def is_of_a_slow_message(self, error: BaseException, transaction: Transaction) -> bool:
        """Whether one message may have kept the transaction open for too long.

        The broker ends such a transaction.
        """
        if not isinstance(error, FencedError | ProducerError) or isinstance(error, UndeliveredError):
            return False
        timeout_s = self._plan.config.transaction_timeout_ms / 1000
        is_late = self._limits.now_s() - transaction.begun_at_s > timeout_s
        # Before it the transaction was open for `task.transaction.max.ms` at most, which is at most half of it.
        return is_late and transaction.last is not None and transaction.last.took_s > timeout_s / 2

    def slow_message(self, transaction: Transaction) -> SlowMessageError:
        """The error of a message that kept its transaction open for too long."""
        last = transaction.last
        assert last is not None
        open_ms = (self._limits.now_s() - transaction.begun_at_s) * 1000
        return SlowMessageError(
            f"task {self._route.task_name} failed at {last.place()}: wanted it handled and committed within "
            f"task.transaction.timeout.ms ({self._plan.config.transaction_timeout_ms}), found it to take "
            f"{last.took_s * 1000:.0f} ms, with its transaction open for {open_ms:.0f} ms, which the broker had ended "
            "meanwhile; let the task take less time, or raise task.transaction.timeout.ms"
        )

    def bytes_on_disk(self) -> int:
        """The size of the local store, at most a second old; 0 when that is not known."""
        now_s = self._limits.now_s()
        if self._disk_seen_s is None or now_s >= self._disk_seen_s + _DISK_SEEN_EVERY_S:
            self._disk_bytes, self._disk_seen_s = self._environment.bytes_on_disk(), now_s
        return self._disk_bytes

    def take_sizes(self) -> Mapping[str, StoreSize]:
        """The sizes of the stores at the last commit.

        Empty if there was none since the last call. Another worker may have served the task since then, so they are
        given once.
        """
        sizes, self._sizes = self._sizes, {}
        return sizes

    def _produce_changelog(self, producer: Producer, written: dict[str, ChangelogMark]) -> None:
        """Produce one record per changed entry.

        Only the last of several writes to one key matters. After `flush`, `written` has the last record by store.
        """
        for store, entries in self._state.changes():
            topic = changelog_topic(self._plan.config.job, store)
            partition, produce = self._route.changelog_partition, producer.produce
            *others, (last_key, last_value) = entries.items()
            for key, value in others:
                produce(topic, key, value, partition)
            # All go to one partition, and an idempotent producer keeps their order. So the last offset is the highest,
            # and one callback is enough: a callback for each costs as much as sending it.
            on_offset = _setter(written, store, last_key, last_value)
            produce(topic, last_key, last_value, partition, None, None, on_offset)

    def _produce_checkpoints(self, transaction: Transaction) -> None:
        topic = checkpoint_topic(self._plan.config.job)
        for ssp_kb, offset_next in self._positions(transaction):
            checkpoint = Checkpoint(
                ssp_kb=ssp_kb,
                offset_next=offset_next,
                epoch=self._route.epoch,
                task_name=self._route.task_name,
                execution_id=self._plan.execution_id,
            )
            transaction.producer.produce(topic, *encode(CheckpointPut(checkpoint=checkpoint)), 0)

    def commit(self, transaction: Transaction) -> None:
        """Commit the local store, after Kafka's commit."""
        local, written = transaction.local, transaction.written
        for store, entries in self._state.changes_to_write():
            local.write(store, entries)
        moved = {str(ssp_kb): offset_next for ssp_kb, offset_next in self._positions(transaction)}
        position = transaction.position
        changelog_moved = {store: mark.offset + 1 for store, mark in written.items()}
        local.set_position(
            LocalPosition(
                execution_id=position.execution_id,
                epoch=position.epoch,
                offsets_next={**position.offsets_next, **moved},
                changelog_next={**position.changelog_next, **changelog_moved},
                caught_up_at_ms=self._limits.wall_ms(),
                changelog_topic_ids=position.changelog_topic_ids,
                changelog_last={**position.changelog_last, **written},
            )
        )
        sizes = {store.name: local.size(store.name) for store in self._plan.config.stores}
        local.commit()
        self._sizes = sizes

    def _positions(self, transaction: Transaction) -> Sequence[tuple[SspKeyBucket, int]]:
        """The positions of the transaction's routes behind it."""
        routes = self._plan.routes
        return [(routes[route].ssp_kb, handled.offset_next) for route, handled in transaction.handled.items()]


def _setter(written: dict[str, ChangelogMark], store: str, key: bytes, value: bytes | None) -> Callable[[int], None]:
    def remember(offset: int) -> None:
        written[store] = mark_of(offset, key, value)

    return remember


class Tally:
    """The committed counts of one micro-batch, by route."""

    def __init__(self) -> None:
        self._committed: dict[int, Handled] = {}

    def add(self, transaction: Transaction) -> None:
        """Count a transaction that was committed."""
        for route, handled in transaction.handled.items():
            total = self._committed.setdefault(route, Handled(-1))
            total.offset_next = handled.offset_next
            total.records_in += handled.records_in
            total.records_out += handled.records_out
            total.dead_letters += handled.dead_letters
            total.commits += 1

    def reports(self) -> Sequence[Report]:
        """A report for each route that had rows."""
        return [self._report(route, ReportKind.COMMITTED, "") for route in self._committed]

    def idle(self, route: int) -> Sequence[Report]:
        """The report of a task that had neither rows nor timers."""
        return [self._report(route, ReportKind.COMMITTED, "")]

    def failed(self, route: int, error: str) -> Sequence[Report]:
        """The reports when the task failed at a row of `route`."""
        committed = [report for report in self.reports() if report.route != route]
        return [*committed, self._report(route, ReportKind.TASK_FAILED, error)]

    def _report(self, route: int, kind: ReportKind, error: str) -> Report:
        handled = self._committed.get(route, Handled(-1))
        return Report(
            kind=kind,
            route=route,
            offset_next=handled.offset_next,
            records_in=handled.records_in,
            records_out=handled.records_out,
            dead_letters=handled.dead_letters,
            commits=handled.commits,
            error=error,
        )
