"""Runs user code over the messages of a task, inside Spark's Python workers.

Theory. A worker is called with the rows of one Spark partition, and holds a *slot* meanwhile. It opens transactions for
each task (`transaction`); one may be of several of the task's SSPs. Messages are handled in the order of the rows,
which is offset order within each SSP.

A message is all or nothing: its outputs and writes are held back until `process` returns. A failed message leaves no
trace, or, under policy `dead-letter`, only its dead letter (`error_policy`).

There is no recovery here. Any error ends the batch, the driver ends the query, and the start procedure runs again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from sys import getrefcount
from typing import Any, NamedTuple

from samzapy.config import JobConfig
from samzapy.container.task.context import Context, Handles
from samzapy.container.task.error_policy import ErrorPolicy, MessageFailed, message_place
from samzapy.container.task.joint_transaction import AbortedError, JointTransaction, Part, Work
from samzapy.container.task.measures import Meter
from samzapy.container.task.message_scope import MessageScope, Thread
from samzapy.container.task.output_checks import OutputChecks
from samzapy.container.task.outputs import Collector
from samzapy.container.task.ports import CrashPoints, Producer, SlotGuard
from samzapy.container.task.ports import TaskEnvironment as Environment
from samzapy.container.task.stores import TaskState
from samzapy.container.task.transaction import (
    LastMessage,
    Tally,
    Transaction,
    TransactionLimits,
    Transactions,
)
from samzapy.container.task.user_errors import user_traceback
from samzapy.container.task.work_plan import Message, Refusal, Report, Route, Rows, WorkPlan
from samzapy.errors import (
    ConfigError,
    FencedError,
    LocalStateError,
    MissingTopicError,
    OutsideMessageError,
    ProducerError,
    WorkerDiedError,
)
from samzapy.model.serde import Serde, key_serde_of, serde_of
from samzapy.model.ssp import SspKeyBucket, SystemStreamPartition
from samzapy.model.text import error_text
from samzapy.task import IncomingMessageEnvelope, LoadedTask

_LOG = logging.getLogger(__name__)


class TaskRunner:
    """One task in one worker process, for one query."""

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

        `is_interrupted` says whether a signal interrupted this process. An error of user code then comes from the
        interrupt; the same class of error without a signal is a failure of the message.
        """
        config, route = plan.config, plan.routes[routes[0]]
        self._plan = plan
        self._task_name = route.task_name
        # Messages of the task that this process has handled.
        self._message_count = 0
        self._is_interrupted = is_interrupted
        self._sources = {index: _Source.of(plan.routes[index], config) for index in routes}
        self._limits = limits
        self._meter = Meter(limits.now_s)
        self._scope = MessageScope(route.task_name, current_thread)
        self._state = TaskState(
            route.task_name,
            config.stores,
            config.record_bytes_max,
            keeps_journal=config.error_policy != "fail",
            costs=self._meter.stores,
            scope=self._scope,
        )
        collector = Collector(config, self._scope)
        intermediates = {item.name: item.system_stream for item in config.intermediates}
        self._handles = Handles(collector, Context(route, config.properties, intermediates, self._state), self._state)
        self._checks = OutputChecks(config, collector, limits.wall_ms)
        self._policy = ErrorPolicy(config, route.task_name, self._checks, limits.wall_ms)
        self._transactions = Transactions(plan, route, environment, self._state, limits)
        self._crash_points = crash_points
        self._task: LoadedTask | None = None
        self._failed_at_init = self._init(new_task)

    def _init(self, new_task: Callable[[], LoadedTask]) -> str:
        """Make the user's instance and call its `init`.

        Returns the error when that failed, else an empty text.
        """
        try:
            self._task = new_task()
            if self._task.init is not None:
                self._task.init(self._handles.context)
        except BaseException as error:  # User code may raise anything, and no message is in hand.
            if self._is_interrupted():
                raise
            trace = user_traceback(error)
            return f"task {self._task_name} failed in init: {error_text(error)}\n{trace}".rstrip()
        return ""

    def close(self) -> None:
        """Close the user's instance.

        A failure is logged and nothing more, under every policy: the messages that the instance handled are committed,
        and the next query must not fail for it.
        """
        if self._task is None or self._task.close is None:
            return
        try:
            self._task.close()
        except BaseException as error:  # User code may raise anything.
            if self._is_interrupted():
                raise
            text = f"{error_text(error)}\n{user_traceback(error)}".rstrip()
            _LOG.warning(
                "task %s failed in close: %s\nEverything it handled is committed, and the job goes on",
                self._task_name,
                text,
            )

    def run(self, chunks: Iterable[Rows], slot: SlotGuard) -> Sequence[Report]:
        """Handle all rows, in one transaction or several.

        Everything handled is committed when this returns.

        Args:
            chunks: rows of this task; of each route in offset order.

        Returns:
            A report for each route that had rows.

        Raises:
            LostContainerError: another execution or epoch works on this task, or the lease has run out.
            SlowMessageError: a message took longer than the broker lets a transaction be open.
            SamzapyError: the transaction failed; nothing of it is visible, or its outcome is unknown.
        """
        joint = JointTransaction(slot, self._crash_points, self._limits.now_s)
        return joint.run([self.work(chunks, joint)])

    def work(self, chunks: Iterable[Rows], joint: JointTransaction) -> Work:
        """As `run`, in transactions that may be of other tasks, too."""
        reports = yield from self._work(self._meter.begin(chunks), joint)
        return self._meter.attach(reports, self._transactions.bytes_on_disk())

    def _work(self, chunks: Iterable[Rows], joint: JointTransaction) -> Work:
        tally = Tally()
        transaction: Transaction | None = None
        route = next(iter(self._sources))
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
                    transaction = transaction or self._transactions.begin(joint.begin())
                    position = self._meter.process.timed(self._handle, rows, position, transaction, joint.slot)
                    is_cut = position < len(rows.offsets)
                    is_full = transaction.is_full(self._limits, self._handles.bytes_held)
                    if is_cut and not is_full and rows.budget_s is not None:
                        if joint.must_end():
                            yield from self._committed(transaction, tally, is_last=True)
                            return tally.reports()
                    elif is_cut or is_full:
                        yield from self._committed(transaction, tally, is_last=False)
                        transaction = None
            if transaction is not None:
                yield from self._committed(transaction, tally, is_last=True)
        except MessageFailed as failed:
            self._forget(transaction)
            return tally.failed(route, str(failed))
        except AbortedError:
            self._forget(transaction)
        except BaseException as error:
            self._forget(transaction)
            if transaction is not None and self._transactions.is_of_a_slow_message(error, transaction):
                # After a lapsed lease the coordinator may have had the transaction ended.
                joint.slot.check_lease()
                raise self._transactions.slow_message(transaction) from error
            raise
        return tally.reports()

    def _forget(self, transaction: Transaction | None) -> None:
        """Give up the local transaction, which has the environment's lock."""
        if transaction is not None:
            transaction.local.abort()
        self._handles.forget()

    def _committed(self, transaction: Transaction, tally: Tally, *, is_last: bool) -> Generator[Part, float, None]:
        """Have the transaction committed."""
        self._check_scope()
        begun_s = self._limits.now_s()
        self._transactions.produce(transaction)
        produced_s = self._limits.now_s()
        share_s = yield Part(partial(self._transactions.commit, transaction), is_last)
        self._meter.committed(begun_s, produced_s, share_s)
        self._handles.forget()
        tally.add(transaction)

    def _check_scope(self) -> None:
        """Raise MessageFailed once a handle was used outside of its message.

        Otherwise that use would be lost silently.
        """
        if self._scope.misuse:
            raise MessageFailed(self._scope.misuse)

    def _handle(self, rows: Rows, start: int, transaction: Transaction, slot: SlotGuard) -> int:
        """Handle rows from `start` until the transaction is full; return the next index."""
        assert self._task is not None, "a task that could not be made fails at its first row"
        source, messages = self._opened(rows, start, slot)
        handled = transaction.handled_of(rows.route, source.ssp_kb)
        self._state.is_broadcast = bool(source.ssp_kb.reader)
        self._scope.begin()
        try:
            index, offset, skipped, records_out = self._handle_each(
                self._task.process, rows, start, messages, source, transaction
            )
        finally:
            self._scope.end()
        count = index + 1 - start - skipped
        handled.offset_next = max(handled.offset_next, offset + 1)
        handled.records_in += count
        handled.records_out += records_out
        self._message_count += count
        self._meter.skipped += skipped
        return index + 1

    def _opened(self, rows: Rows, start: int, slot: SlotGuard) -> tuple[_Source, Iterator[Message]]:
        """The source and the messages of the rows.

        Messages are noted and refused as the plan asks.
        """
        source, messages = self._sources[rows.route], rows.messages(start)
        if self._limits.now_s() < self._plan.notes_until_s:
            messages = _noted(messages, rows.route, slot)
        refusals = {refusal.offset: refusal for refusal in self._plan.refusals if refusal.ssp_kb == source.ssp_kb}
        if refusals:
            gate = _Gate(refusals, messages)
            key_decode, value_decode = gate.checked(source.key_decode), gate.checked(source.value_decode)
            return source._replace(key_decode=key_decode, value_decode=value_decode), iter(gate)
        return source, messages

    def _handle_each(
        self,
        process: Callable[..., object],
        rows: Rows,
        start: int,
        messages: Iterator[Message],
        source: _Source,
        transaction: Transaction,
    ) -> tuple[int, int, int, int]:
        """The loop over messages.

        It is in one piece, because one more call for each message would be measurable.

        Returns:
            Index and offset of the last message, how many were skipped, and how many outputs there were.
        """
        ssp, (_, key_decode, value_decode, intermediate) = source.ssp_kb.ssp, source
        producer, handled = transaction.producer, transaction.handled[rows.route]
        produce, state, journal = producer.produce, self._state, self._state.journal
        limits, now_s, bytes_max = self._limits, self._limits.now_s, self._limits.bytes_max
        skip_below, deadline_s = handled.offset_next, transaction.begun_at_s + limits.duration_max_s
        if rows.budget_s is not None:
            deadline_s = min(deadline_s, now_s() + rows.budget_s)
        index, offset, skipped, records_out, is_full = start, rows.offsets[start], 0, 0, False
        collector, context, stores = self._handles.renew()
        outputs = collector.held
        # How many references there are while user code keeps none.
        references, of_collector, of_context = getrefcount, getrefcount(collector), getrefcount(context)
        of_store = max((getrefcount(store) for store in stores), default=0)
        since_s = now_s()
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
                        self._checks.check(collector, producer)
                except BaseException as error:  # User code may raise anything; the policy decides.
                    message = (index, offset, key, value, timestamp_ms, headers)
                    self._fail(ssp, message, error, producer, self._message_count + index - start - skipped)
                    handled.dead_letters += 1
                is_kept = references(collector) > of_collector
                if stores:
                    is_full = collector.bytes_sent + state.bytes_held > bytes_max
                    if journal:
                        journal.clear()
                    # Without stores a context cannot be misused.
                    is_kept = is_kept or references(context) > of_context
                    if context.has_given:
                        context.has_given = False
                        for store in stores:
                            if references(store) > of_store:
                                is_kept = True
                if is_kept:
                    # User code keeps a handle, and may use it when it should not.
                    self._handles.expire(partial(message_place, ssp, offset, key))
                    collector, context, stores = self._handles.renew()
                    collector.held.extend(outputs)
                    outputs = collector.held
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
            place = partial(message_place, ssp, rows.offsets[index], rows.keys[index])
            # A message that takes the transaction past its time is the last one in it.
            transaction.last = LastMessage(place, now_s() - since_s)
            self._handles.expire(place)
        return index, offset, skipped, records_out

    def _fail(
        self, ssp: SystemStreamPartition, message: Message, error: BaseException, producer: Producer, number: int
    ) -> None:
        """Roll a failed message back and apply the error policy.

        Errors that are not of one message are raised again.
        """
        if isinstance(error, LocalStateError | ProducerError | FencedError):
            raise error  # An error of the disk or the broker, not of the message.
        if isinstance(error, MissingTopicError | ConfigError | OutsideMessageError):
            # A mistake of the job under every policy: otherwise each message would become a dead letter.
            raise self._policy.failed(ssp, message, error) from error
        if self._is_interrupted():
            raise error
        self._handles.collector.held.clear()
        self._state.roll_back_message()
        self._policy.apply(ssp, message, error, producer, number)


class _Source(NamedTuple):
    """The input of a route's rows, and its decoders.

    None in the place of a decoder: keys or values are taken as they are.
    """

    ssp_kb: SspKeyBucket
    key_decode: Callable[[bytes | None], Any] | None
    value_decode: Callable[[bytes | None], Any] | None
    intermediate: str

    @classmethod
    def of(cls, route: Route, config: JobConfig) -> _Source:
        stream = str(route.ssp_kb.ssp.system_stream)
        own = config.intermediate_of(stream)
        return cls(
            route.ssp_kb,
            _decode(key_serde_of(config.key_serde(stream))),
            _decode(serde_of(config.msg_serde(stream))),
            "" if own is None else own.name,
        )


def _decode(serde: Serde) -> Callable[[bytes | None], Any] | None:
    """The decoder of a serde; None for bytes.

    A call that returns its argument would cost 5 % of a record's time.
    """
    return None if serde.name == "bytes" else serde.decode


def _noted(messages: Iterator[Message], route: int, slot: SlotGuard) -> Iterator[Message]:
    """`messages`, each one noted before it is handled."""
    for message in messages:
        slot.note(route, message[1])
        yield message


class _Gate:
    """Passes messages on, but for those that end their process.

    Decoding one of these raises WorkerDiedError.
    """

    def __init__(self, refusals: Mapping[int, Refusal], messages: Iterator[Message]) -> None:
        self._refusals = refusals
        self._messages = messages
        self._refusal: Refusal | None = None

    def __iter__(self) -> Iterator[Message]:
        for message in self._messages:
            self._refusal = self._refusals.get(message[1])
            yield message

    def checked(self, decode: Callable[[bytes | None], Any] | None) -> Callable[[bytes | None], Any]:
        """`decode` behind the gate: a serde may end the process, too."""

        def checked(raw: bytes | None) -> Any:
            if self._refusal is not None:
                raise WorkerDiedError(self._refusal.reason)
            return raw if decode is None else decode(raw)

        return checked


def _up_to(rows: Rows, offset_end: int | None) -> Rows:
    """The rows before the end of a bounded input.

    Spark's source cannot stop there by itself.
    """
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
