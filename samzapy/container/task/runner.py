"""Runs user code over the messages of tasks, inside Spark's Python workers; knows neither Spark nor Kafka.

Theory. A worker is called with the rows of one Spark partition and holds a *slot* meanwhile. Per task it opens a
Kafka transaction and, inside it, a local one; messages are handled in the order in which they come, which of each SSP
is offset order; then outputs, changelog and checkpoints are committed by Kafka, and after that the local store. So
local state is equal to what Kafka committed or behind it, never ahead, and whatever dies in between
is caught up at the next start. A transaction is of one task, and may be of several of its SSPs.

A message is all or nothing: what it sends and writes is held back until `process` returns. A failed one leaves no
trace, or, under policy `dead-letter`, its dead letter only.

Nothing here recovers. Any error ends the batch, the driver ends the query, and the start procedure runs again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from sys import getrefcount
from typing import Any

from samzapy.config import FRAME_BYTES, JobConfig
from samzapy.container.task.dead_letter_limit import DeadLetterBound
from samzapy.container.task.dead_letters import DeadLetter
from samzapy.container.task.measures import Meter, Stopwatch
from samzapy.container.task.message_scope import MessageScope, Place, Thread, in_init
from samzapy.container.task.outputs import Collector, without_zero_characters
from samzapy.container.task.ports import CrashPoints, LocalPosition, LocalTransaction, Producer, SlotGuard
from samzapy.container.task.ports import TaskEnvironment as Environment
from samzapy.container.task.record_size import record_bytes, too_large
from samzapy.container.task.stores import Store, TaskState
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.container.task.user_errors import shown_key, user_traceback
from samzapy.container.task.work_plan import Message, Refusal, Report, ReportKind, Route, Rows, WorkPlan
from samzapy.errors import (
    ConfigError,
    FencedError,
    LocalStateError,
    LostContainerError,
    MissingTopicError,
    OutsideMessageError,
    ProducerError,
    SlowMessageError,
    TaskError,
    UndeclaredError,
    UndeliveredError,
    WorkerDiedError,
)
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.serde import Serde, key_serde_of, serde_of
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.text import error_text
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.stream.codec import encode
from samzapy.stream.records import CheckpointPut
from samzapy.task import IncomingMessageEnvelope, LoadedTask, MessageCollector, TaskContext

_LOG = logging.getLogger(__name__)
_OURS = (serde_of, Store.put, Collector.send, Stopwatch.timed)
_NOT_THE_USERS = {__file__, *(ours.__code__.co_filename for ours in _OURS)}


_MISTAKES = (UndeclaredError, ImportError, NameError)
"""Mistakes of the job's that fail no message: with the next one it is the same. So they end the job under every policy.
A local variable without a value, which is a NameError too, may be of one message."""


def _is_mistake(error: BaseException) -> bool:
    return isinstance(error, _MISTAKES) and not isinstance(error, UnboundLocalError)


class MessageFailed(Exception):
    """User code or a serde refused a message under policy `fail`; the text names task, SSP, offset and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLimits:
    """When a transaction is closed although rows remain.

    `now_s` is any clock that only goes forward; `wall_ms` tells when a local store was last level with its changelog.
    """

    duration_max_s: float
    bytes_max: int
    now_s: Callable[[], float]
    wall_ms: Callable[[], int]


class TaskRunner:
    """One task in one worker process, for one query: the user's instance and what it is handed."""

    def __init__(
        self,
        *,
        plan: WorkPlan,
        routes: Sequence[int],
        new_task: Callable[[], LoadedTask],
        environment: Environment,
        limits: TransactionLimits,
        crash_points: CrashPoints,
        is_interrupted: Callable[[], bool],
        current_thread: Callable[[], Thread],
    ) -> None:
        """Make the user's instance and call its `init`.

        `is_interrupted` says whether a signal interrupted this process. What user code raises then is the interrupt's
        doing; the same class of error without a signal is the message's.
        """
        self._plan = plan
        self._first_route = routes[0]
        # Of messages of the task, in this process.
        self._message_count = 0
        self._bound = DeadLetterBound(plan.config)
        self._is_interrupted = is_interrupted
        # What is the task's is the same in all its routes.
        self._route = plan.routes[routes[0]]
        self._inputs = {index: _Input.of(plan.routes[index], plan.config) for index in routes}
        self._task: LoadedTask | None = None
        self._environment = environment
        self._limits = limits
        self._crash_points = crash_points
        config = plan.config
        self._partition_counts: dict[str, int] = {}
        self._topic_limits: dict[str, TopicLimits | None] = {}
        self._meter = Meter(limits.now_s)
        self._scope = MessageScope(self._route.task_name, current_thread)
        self._state = TaskState(
            self._route.task_name,
            config.stores,
            config.record_bytes_max,
            undoes=config.error_policy != "fail",
            costs=self._meter.stores,
            scope=self._scope,
        )
        self.collector = Collector(config, self._scope)
        intermediates = {item.name: item.system_stream for item in config.intermediates}
        self.context = Context(self._route, config.properties, intermediates, self._state)
        self._failed_at_init = self._init(new_task)

    def _init(self, new_task: Callable[[], LoadedTask]) -> str:
        """Make the user's instance and tell it of its beginning; what became of it when that failed."""
        try:
            self._task = new_task()
            if self._task.init is not None:
                self._task.init(self.context)
        except BaseException as error:  # User code may raise anything, and no message is to blame.
            if self._is_interrupted():
                raise
            trace = user_traceback(error, _NOT_THE_USERS)
            return f"task {self._route.task_name} failed in init: {error_text(error)}\n{trace}".rstrip()
        return ""

    def close(self) -> None:
        """Let go of the user's instance.

        Whatever the policy, a failure of it is told and nothing more: what the instance handled is committed, and the
        next query, which this stands in front of, is not to pay for it.
        """
        if self._task is None or self._task.close is None:
            return
        try:
            self._task.close()
        except BaseException as error:  # User code may raise anything.
            if self._is_interrupted():
                raise
            what = f"{error_text(error)}\n{user_traceback(error, _NOT_THE_USERS)}".rstrip()
            _LOG.warning(
                "task %s failed in close: %s\nEverything it handled is committed, and the job goes on",
                self._route.task_name,
                what,
            )

    def run(self, chunks: Iterable[Rows], slot: SlotGuard) -> Sequence[Report]:
        """Handle all rows, in one transaction or several; everything handled is committed when this returns.

        Args:
            chunks: rows of this task; of each route in offset order.

        Returns:
            A report for each route that had rows.

        Raises:
            LostContainerError: another execution or epoch works on this task, or the lease has run out.
            SlowMessageError: a message took longer than the broker lets a transaction be open.
            SamzapyError: the transaction failed; nothing of it is visible, or its outcome is unknown.
        """
        reports = self._run(self._meter.begin(chunks), slot)
        return self._meter.told(reports, self._environment.bytes_on_disk())

    def _run(self, chunks: Iterable[Rows], slot: SlotGuard) -> Sequence[Report]:
        tally = _Tally()
        transaction: _Transaction | None = None
        route = self._first_route
        try:
            for rows in chunks:
                self._state.time_next_calls()
                route = rows.route
                self._check_scope()
                if self._failed_at_init:
                    return tally.failed(rows.route, self._failed_at_init)
                position = 0
                rows = _up_to(rows, self._plan.routes[rows.route].offset_end)
                while position < len(rows.offsets):
                    transaction = transaction or self._begin(slot)
                    position = self._meter.process.timed(self._handle, rows, position, transaction, slot)
                    if position < len(rows.offsets) or transaction.is_full(self._limits, self._bytes_held()):
                        self._meter.commit.timed(self._commit, transaction, slot, tally)
                        transaction = None
            if transaction is not None:
                self._meter.commit.timed(self._commit, transaction, slot, tally)
        except MessageFailed as failed:
            if transaction is not None:
                self._abort(transaction, slot)
            return tally.failed(route, str(failed))
        except BaseException as error:
            # Whatever it was, the local transaction must not keep the environment's lock; the slot stays open.
            if transaction is not None:
                transaction.local.abort()
            self._forget()
            if transaction is not None and self._is_of_a_slow_message(error, transaction):
                # Else somebody else may have ended the transaction.
                slot.check_lease()
                raise self._slow_message(transaction) from error
            raise
        return tally.reports()

    def _is_of_a_slow_message(self, error: BaseException, transaction: _Transaction) -> bool:
        """Whether the broker may have ended the transaction because one message kept it open for too long."""
        if not isinstance(error, FencedError | ProducerError) or isinstance(error, UndeliveredError):
            return False
        timeout_s = self._plan.config.transaction_timeout_ms / 1000
        is_late = self._limits.now_s() - transaction.begun_at_s > timeout_s
        # Before it the transaction was open for `task.transaction.max.ms` at most, which is at most half of it.
        return is_late and transaction.last is not None and transaction.last.took_s > timeout_s / 2

    def _slow_message(self, transaction: _Transaction) -> SlowMessageError:
        last = transaction.last
        assert last is not None
        open_ms = (self._limits.now_s() - transaction.begun_at_s) * 1000
        return SlowMessageError(
            f"{self._place(last.rows, last.index)}: wanted it handled and committed within "
            f"task.transaction.timeout.ms ({self._plan.config.transaction_timeout_ms}), found it to take "
            f"{last.took_s * 1000:.0f} ms, with its transaction open for {open_ms:.0f} ms, which the broker had ended "
            "meanwhile; let the task take less time, or raise task.transaction.timeout.ms"
        )

    def _begin(self, slot: SlotGuard) -> _Transaction:
        slot.check_lease()
        producer = slot.producer()
        slot.mark_open()
        self._crash_points.hit("before-begin")
        producer.begin()
        local = self._environment.begin()
        try:
            position = local.position()
            self._check_owner(position)
        except BaseException:
            local.abort()
            raise
        assert position is not None
        self._state.local = local
        return _Transaction(
            producer=producer,
            local=local,
            position=position,
            begun_at_s=self._limits.now_s(),
        )

    def _check_owner(self, position: LocalPosition | None) -> None:
        route = self._route
        found = None if position is None else (position.execution_id, position.epoch)
        if found != (self._plan.execution_id, route.epoch):
            raise LostContainerError(
                f"task {route.task_name}: wanted local state of execution {self._plan.execution_id}, "
                f"epoch {route.epoch}, found {found}: another execution works in this directory"
            )

    def _handle(self, rows: Rows, start: int, transaction: _Transaction, slot: SlotGuard) -> int:
        """Handle rows from index `start` until the end or until the transaction is full; return the next index."""
        assert self._task is not None, "a task that could not be made fails at its first row"
        state, process = self._state, self._task.process
        given = self._inputs[rows.route]
        key_decode, value_decode, intermediate = given.key_decode, given.value_decode, given.intermediate
        journal, now_s = state.journal, self._limits.now_s
        produce, deadline_s = transaction.producer.produce, transaction.begun_at_s + self._limits.duration_max_s
        handled = transaction.handled_of(rows.route, given)
        messages = rows.messages(start)
        if now_s() < self._plan.notes_until_s:
            messages = _noted(messages, rows.route, slot)
        refused = {found.offset: found for found in self._plan.refusals if found.ssp_kb == given.ssp_kb}
        if refused:
            gate = _Gate(refused, messages)
            messages, key_decode, value_decode = iter(gate), gate.checked(key_decode), gate.checked(value_decode)
        bytes_max, ssp, skip_below = self._limits.bytes_max, given.ssp_kb.ssp, handled.offset_next
        state.is_broadcast = bool(given.ssp_kb.reader)
        index, offset, skipped, records_out, is_full, since_s = start, rows.offsets[start], 0, 0, False, now_s()
        self._scope.begin()
        collector, context, stores = self._renew()
        outputs = collector.held
        # How many references there are while user code keeps none.
        refs, collector_refs, context_refs = getrefcount, getrefcount(collector), getrefcount(context)
        store_refs = max((getrefcount(store) for store in stores), default=0)
        try:
            for index, offset, key, value, timestamp_ms, headers in messages:
                if offset < skip_below:
                    skipped += 1
                    continue
                if stores:
                    state.message_key, state.key_prefix = key, None
                try:
                    process(
                        IncomingMessageEnvelope(
                            ssp,
                            offset,
                            key if key_decode is None else key_decode(key),
                            value if value_decode is None else value_decode(value),
                            key,
                            value,
                            timestamp_ms,
                            headers,
                            intermediate,
                        ),
                        collector,
                        context,
                    )
                    if collector.must_be_checked:
                        self._check_outputs(transaction.producer)
                except (LocalStateError, ProducerError, FencedError):
                    raise  # The disk's or the broker's fault, not the message's.
                except (MissingTopicError, ConfigError, OutsideMessageError) as error:
                    # The job's mistake, under every policy: as dead letters all messages would go there.
                    raise MessageFailed(f"{self._place(rows, index)}: {error}") from error
                except BaseException as error:  # User code may raise anything; the policy decides.
                    if self._is_interrupted():
                        raise
                    outputs.clear()
                    state.roll_back_message()
                    self._refuse(rows, index, error, transaction.producer)
                    handled.dead_letters += 1
                    self._check_bound(rows, index, error, self._message_count + index - start - skipped)
                is_kept = refs(collector) > collector_refs
                if stores:
                    is_full = collector.bytes_sent + state.bytes_held > bytes_max
                    if journal:
                        journal.clear()
                    # Without stores a context cannot be misused.
                    is_kept = is_kept or refs(context) > context_refs
                    if context.has_given:
                        context.has_given = False
                        for store in stores:
                            if refs(store) > store_refs:
                                is_kept = True
                if is_kept:
                    # User code keeps a handle, and may use it when it should not.
                    self._expire(rows, index)
                    collector, context, stores = self._renew()
                    sent, outputs = outputs, collector.held
                    outputs.extend(sent)
                if outputs:
                    for output in outputs:
                        produce(*output)
                    records_out += len(outputs)
                    outputs.clear()
                    if not stores:
                        is_full = collector.bytes_sent > bytes_max
                ended_s = now_s()
                if is_full or ended_s >= deadline_s:
                    break
                since_s = ended_s
        finally:
            # A message that takes the transaction past its time is the last one in it.
            transaction.last = _Last(rows, index, now_s() - since_s)
            self._expire(rows, index)
            self._scope.end()
        handled.offset_next = max(handled.offset_next, offset + 1)
        handled.records_in += index + 1 - start - skipped
        handled.records_out += records_out
        self._message_count += index + 1 - start - skipped
        self._meter.skipped += skipped
        return index + 1

    def _renew(self) -> tuple[Collector, Context, tuple[Store, ...]]:
        """What the next message is handed."""
        self.collector, self.context = self.collector.successor(), self.context.successor()
        return self.collector, self.context, self._state.renew_stores()

    def _expire(self, rows: Rows, index: int) -> None:
        """Its message is over: what was handed out for it may act on no other one."""

        # Not of the rows: user code may keep it for long.
        over = partial(_place, self._inputs[rows.route].ssp_kb.ssp, rows.offsets[index], rows.keys[index])
        self.collector.over = self.context.over = over
        for store in self._state.stores.values():
            store.over = over

    def _check_outputs(self, producer: Producer) -> None:
        """Whether there are the topics, and the partitions, that the message in hand sends to, and they take it."""
        collector, counts = self.collector, self._partition_counts
        for topic, key, value, partition, headers, timestamp_ms in collector.held:
            count = counts.get(topic)
            # Asked again before a partition is refused: topics grow.
            if count is None or (partition is not None and partition >= count):
                count = producer.partition_count(topic)
                if count is None:
                    raise MissingTopicError(
                        f"wanted the topic {topic} for its outputs, found no such topic; create it, or correct the name"
                    )
                counts[topic] = count
                self._ask_limits(producer, topic)
            size, size_max = record_bytes(key, value, headers or ()), collector.record_bytes_max[topic]
            if size > size_max:
                raise TaskError(too_large(f"an output to {topic}", size, size_max))
            if partition is not None and partition >= count:
                raise TaskError(f"an output to {topic}: wanted a partition below {count}, found {partition}")
            now_ms = self._limits.wall_ms()
            if self._refusal(topic, key, timestamp_ms, now_ms):
                # Asked again before it is refused: somebody may have done what the last refusal said.
                self._ask_limits(producer, topic)
                refusal = self._refusal(topic, key, timestamp_ms, now_ms)
                if refusal:
                    raise TaskError(f"an output to {topic}: {refusal}")
        # A stream that only failed messages have sent to so far is still to be asked for.
        collector.must_be_checked = not collector.topics() <= counts.keys()

    def _refusal(self, topic: str, key: bytes | None, timestamp_ms: int | None, now_ms: int) -> str:
        limits = self._topic_limits[topic]
        return "" if limits is None else limits.refusal(key, timestamp_ms, now_ms)

    def _ask_limits(self, producer: Producer, topic: str) -> None:
        """Ask which records `topic` takes.

        One that it does not take, or that stands in a batch that is too large, ends a transaction, and nobody can
        tell any more which message it came from.

        Raises:
            ConfigError: the topic takes no batch as large as producers send.
        """
        config, collector = self._plan.config, self.collector
        found = producer.topic_limits(topic)
        if found is None:
            collector.record_bytes_max[topic] = config.record_bytes_max
            self._topic_limits[topic] = None
            return
        if found.batch_bytes_max < config.batch_bytes:
            raise ConfigError(
                f"wanted the topic {topic} to take batches of {config.batch_bytes} bytes, found max.message.bytes "
                f"{found.batch_bytes_max}; raise it, or set systems.{config.default_system}.client.batch.size to at "
                "most that"
            )
        collector.record_bytes_max[topic] = min(config.record_bytes_max, max(0, found.batch_bytes_max - FRAME_BYTES))
        self._topic_limits[topic] = found
        if found.wants_keys:
            collector.compacted.add(topic)
        else:
            collector.compacted.discard(topic)

    def _place(self, rows: Rows, index: int) -> str:
        return (
            f"task {self._route.task_name} failed at "
            f"{_place(self._inputs[rows.route].ssp_kb.ssp, rows.offsets[index], rows.keys[index])}"
        )

    def _refuse(self, rows: Rows, index: int, error: BaseException, producer: Producer) -> None:
        """Apply the error policy to one message: raise MessageFailed, or produce its dead letter."""
        config = self._plan.config
        what, trace = error_text(error), user_traceback(error, _NOT_THE_USERS)
        failed = f"{self._place(rows, index)}: {what}"
        if config.error_policy == "fail" or _is_mistake(error):
            raise MessageFailed(f"{failed}\n{trace}".rstrip())
        assert config.dead_letter_output is not None
        topic = config.dead_letter_output.partition(".")[2]
        limits = self._dead_letter_limits(producer, topic)
        timestamp_ms, now_ms = rows.timestamps_ms[index], self._limits.wall_ms()
        # Brokers refuse what lies too far from now, and that would be a batch that never ends well.
        # The client takes 0 for the time of sending.
        is_taken = 0 != timestamp_ms <= now_ms and (limits is None or not limits.refusal(b"", timestamp_ms, now_ms))
        letter = DeadLetter(
            key=rows.keys[index],
            value=rows.values[index],
            own_headers=tuple(
                without_zero_characters((rows.headers[index] if rows.headers is not None else None) or ())
            ),
            place=(
                ("task", self._route.task_name.encode()),
                ("ssp", str(self._inputs[rows.route].ssp_kb.ssp).encode()),
                ("offset", str(rows.offsets[index]).encode()),
                *(() if is_taken else (("timestamp", str(timestamp_ms).encode()),)),
            ),
            error=what.encode(),
            traceback=(trace or what).encode(),
        )
        if letter.key is None and limits is not None and limits.wants_keys:
            letter = letter.with_key(f"{self._inputs[rows.route].ssp_kb.ssp}@{rows.offsets[index]}".encode())
        size_max = self.collector.record_bytes_max[topic]
        letter = letter.fitted(size_max)
        if letter.size > size_max:
            raise MessageFailed(f"{failed}\n{too_large(f'its dead letter to {topic}', letter.size, size_max)}")
        producer.produce(topic, letter.key, letter.value, None, letter.headers, timestamp_ms if is_taken else now_ms)

    def _check_bound(self, rows: Rows, index: int, error: BaseException, number: int) -> None:
        """Raise MessageFailed when message `number` of the task was one dead letter too many."""
        too_many = self._bound.failed(number)
        if too_many:
            raise MessageFailed(f"{self._place(rows, index)}: {error_text(error)}\n{too_many}")

    def _dead_letter_limits(self, producer: Producer, topic: str) -> TopicLimits | None:
        if topic not in self._topic_limits:
            try:
                self._ask_limits(producer, topic)
            except ConfigError as error:
                raise MessageFailed(f"task.dead.letter.output: {error}") from error
        return self._topic_limits[topic]

    def _commit(self, transaction: _Transaction, slot: SlotGuard, tally: _Tally) -> None:
        """Outputs, changelog and checkpoints by Kafka; then the local store; then the slot is clean."""
        self._check_scope()
        producer = transaction.producer
        changelog_next = dict(transaction.position.changelog_next)
        self._produce_changelog(producer, changelog_next)
        for ssp_kb, offset_next in self._positions(transaction):
            checkpoint = Checkpoint(
                ssp_kb=ssp_kb,
                offset_next=offset_next,
                epoch=self._route.epoch,
                task_name=self._route.task_name,
                execution_id=self._plan.execution_id,
            )
            producer.produce(
                checkpoint_topic(self._plan.config.job), *encode(CheckpointPut(checkpoint=checkpoint)), 0
            )
        self._crash_points.hit("after-produce")
        # A task may have caught what a store raised.
        transaction.local.check()
        producer.flush()
        slot.check_lease()
        self._crash_points.hit("before-commit")
        producer.commit()
        self._crash_points.hit("after-kafka-commit")
        self._commit_locally(transaction, changelog_next)
        self._crash_points.hit("after-local-commit")
        slot.mark_clean()
        self._forget()
        tally.add(transaction)

    def _check_scope(self) -> None:
        """Raise MessageFailed once something was used outside of its message: what it was to do is lost else."""
        if self._scope.misuse:
            raise MessageFailed(self._scope.misuse)

    def _abort(self, transaction: _Transaction, slot: SlotGuard) -> None:
        """Of a message that failed. Its words count, also when it took longer than the transaction may be open."""
        try:
            transaction.abort()
            slot.mark_clean()
        except (FencedError, ProducerError) as error:
            _LOG.warning(
                "the broker, or whoever comes next, ends what task %s began: %s", self._route.task_name, error
            )
        self._forget()

    def _produce_changelog(self, producer: Producer, changelog_next: dict[str, int]) -> None:
        """One record per changed entry: of several writes to one key only the last matters."""
        for store, entries in self._state.changes():
            topic = changelog_topic(self._plan.config.job, store)
            partition, last = self._route.changelog_partition, len(entries)
            for number, (key, value) in enumerate(entries.items(), start=1):
                # All go to one partition, and an idempotent producer keeps their order: the last one's offset is the
                # highest, and a callback for each costs as much as sending it.
                on_offset = _setter(changelog_next, store) if number == last else None
                producer.produce(topic, key, value, partition, None, None, on_offset)

    def _commit_locally(self, transaction: _Transaction, changelog_next: Mapping[str, int]) -> None:
        local = transaction.local
        for store, entries in self._state.changes():
            local.write(store, entries)
        moved = {str(ssp_kb): offset_next for ssp_kb, offset_next in self._positions(transaction)}
        offsets_next = {**transaction.position.offsets_next, **moved}
        local.set_position(
            replace(
                transaction.position,
                offsets_next=offsets_next,
                changelog_next=dict(changelog_next),
                caught_up_at_ms=self._limits.wall_ms(),
            )
        )
        local.commit()

    def _positions(self, transaction: _Transaction) -> Sequence[tuple[SspKeyBucket, int]]:
        """Where the transaction's routes stand after it."""
        return [(self._inputs[route].ssp_kb, done.offset_next) for route, done in transaction.handled.items()]

    def _bytes_held(self) -> int:
        return self.collector.bytes_sent + self._state.bytes_held

    def _forget(self) -> None:
        self._state.forget()
        self.collector.forget()


def _setter(changelog_next: dict[str, int], store: str) -> Callable[[int], None]:
    def remember(offset: int) -> None:
        changelog_next[store] = offset + 1

    return remember


@dataclass(frozen=True, slots=True)
class _Input:
    """What the rows of a route are: where they come from, and how they are read (None: they are taken as they are)."""

    ssp_kb: SspKeyBucket
    key_decode: Callable[[bytes | None], Any] | None
    value_decode: Callable[[bytes | None], Any] | None
    intermediate: str

    @classmethod
    def of(cls, route: Route, config: JobConfig) -> _Input:
        stream = str(route.ssp_kb.ssp.system_stream)
        own = config.intermediate_of(stream)
        return cls(
            route.ssp_kb,
            _decode(key_serde_of(config.key_serde(stream))),
            _decode(serde_of(config.msg_serde(stream))),
            "" if own is None else own.name,
        )


def _decode(serde: Serde) -> Callable[[bytes | None], Any] | None:
    """None for bytes: to call what gives back what it got costs a twentieth of what a record does in the worker."""
    return None if serde.name == "bytes" else serde.decode


@dataclass(slots=True)
class _Handled:
    """What was done of one route's rows."""

    offset_next: int
    records_in: int = 0
    records_out: int = 0
    dead_letters: int = 0
    commits: int = 0


@dataclass(frozen=True, slots=True)
class _Last:
    """The message that was handled last: where it stands in its rows, and what it took."""

    rows: Rows
    index: int
    took_s: float


@dataclass(slots=True, kw_only=True)
class _Transaction:
    producer: Producer
    local: LocalTransaction
    position: LocalPosition
    begun_at_s: float
    handled: dict[int, _Handled] = field(default_factory=dict)
    last: _Last | None = None

    def handled_of(self, route: int, given: _Input) -> _Handled:
        """What this transaction has done of a route's rows; it begins where the local store stands."""
        if route not in self.handled:
            self.handled[route] = _Handled(self.position.offsets_next[str(given.ssp_kb)])
        return self.handled[route]

    def is_full(self, limits: TransactionLimits, bytes_held: int) -> bool:
        return bytes_held > limits.bytes_max or limits.now_s() >= self.begun_at_s + limits.duration_max_s

    def abort(self) -> None:
        self.local.abort()
        self.producer.abort()


class _Tally:
    """What was committed, by route."""

    def __init__(self) -> None:
        self._committed: dict[int, _Handled] = {}

    def add(self, transaction: _Transaction) -> None:
        for route, done in transaction.handled.items():
            total = self._committed.setdefault(route, _Handled(-1))
            total.offset_next = done.offset_next
            total.records_in += done.records_in
            total.records_out += done.records_out
            total.dead_letters += done.dead_letters
            total.commits += 1

    def reports(self) -> Sequence[Report]:
        return [self._report(route, ReportKind.COMMITTED, "") for route in self._committed]

    def failed(self, route: int, error: str) -> Sequence[Report]:
        """The reports when the task failed at a row of `route`."""
        committed = [report for report in self.reports() if report.route != route]
        return [*committed, self._report(route, ReportKind.TASK_FAILED, error)]

    def _report(self, route: int, kind: ReportKind, error: str) -> Report:
        done = self._committed.get(route, _Handled(-1))
        return Report(
            kind=kind,
            route=route,
            offset_next=done.offset_next,
            records_in=done.records_in,
            records_out=done.records_out,
            dead_letters=done.dead_letters,
            commits=done.commits,
            error=error,
        )


def _place(ssp: SystemStreamPartition, offset: int, key: bytes | None) -> str:
    return f"{ssp} offset {offset}, key {shown_key(key)}"


def _noted(messages: Iterator[Message], route: int, slot: SlotGuard) -> Iterator[Message]:
    """`messages`, each of them noted before it is handled."""
    for message in messages:
        slot.note(route, message[1])
        yield message


class _Gate:
    """Lets all messages of a route pass but those that end their process: to decode them raises WorkerDiedError."""

    def __init__(self, refusals: Mapping[int, Refusal], messages: Iterator[Message]) -> None:
        self._refusals = refusals
        self._messages = messages
        self._refusal: Refusal | None = None

    def __iter__(self) -> Iterator[Message]:
        for message in self._messages:
            self._refusal = self._refusals.get(message[1])
            yield message

    def checked(self, decode: Callable[[bytes | None], Any] | None) -> Callable[[bytes | None], Any]:
        """`decode` behind the gate: a serde may be what ends the process."""

        def checked(raw: bytes | None) -> Any:
            if self._refusal is not None:
                raise WorkerDiedError(self._refusal.reason)
            return raw if decode is None else decode(raw)

        return checked


class Context:
    """What a task may know of its surroundings (`task.TaskContext`)."""

    def __init__(
        self, route: Route, properties: Mapping[str, str], intermediates: Mapping[str, str], state: TaskState
    ) -> None:
        self._route = route
        self._properties = properties
        self._intermediates = intermediates
        self._state = state
        # Where its message was; None while that is in hand.
        self.over: Place | None = in_init
        # Whether the message in hand asked for a store.
        self.has_given = False

    def successor(self) -> Context:
        """The one of the next message."""
        new = Context(self._route, self._properties, self._intermediates, self._state)
        new.over = None
        return new

    @property
    def task_name(self) -> str:
        return self._route.task_name

    @property
    def partition_id(self) -> int:
        return self._route.partition_id

    @property
    def config(self) -> Mapping[str, str]:
        return self._properties

    def intermediate(self, name: str) -> str:
        found = self._intermediates.get(name)
        if found is None:
            declared = ", ".join(self._intermediates) or "none"
            raise UndeclaredError(
                f"wanted the intermediate stream {name!r}, found {declared}; declare it with "
                f"task.intermediate.{name}.partitions=..."
            )
        return found

    def store(self, name: str) -> Store:
        # The thread that handles messages may keep a context, which acts on the message in hand.
        if self.over is not None and not self._state.scope.is_own_thread():
            self._state.scope.refuse("context.store", self.over)
        found = self._state.stores.get(name)
        if found is None:
            declared = ", ".join(self._state.stores) or "none"
            raise UndeclaredError(
                f"wanted store {name!r}, found {declared}; declare it with stores.{name}.msg.serde=..."
            )
        self.has_given = True
        return found


def _kept_protocols(collector: Collector, context: Context) -> tuple[MessageCollector, TaskContext]:
    """Checked by mypy alone: what user code is handed is what `samzapy.task` promises."""
    return collector, context


def _up_to(rows: Rows, offset_end: int | None) -> Rows:
    """Without the rows at or behind the end of a bounded input: the source cannot be told to stop there."""
    if offset_end is None or not rows.offsets or rows.offsets[-1] < offset_end:
        return rows
    count = bisect_left(rows.offsets, offset_end)
    return Rows(
        route=rows.route,
        offsets=rows.offsets[:count],
        keys=rows.keys[:count],
        values=rows.values[:count],
        timestamps_ms=rows.timestamps_ms[:count],
        headers=None if rows.headers is None else rows.headers[:count],
    )
