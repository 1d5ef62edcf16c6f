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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from samzapy.container.task.context import Context, Handles
from samzapy.container.task.error_policy import ErrorPolicy, MessageFailed
from samzapy.container.task.event_time import EventTime, TaskTime
from samzapy.container.task.firing import FIRE_S, Timers
from samzapy.container.task.handling import Handling
from samzapy.container.task.joint_transaction import AbortedError, JointTransaction, Part, Work
from samzapy.container.task.measures import Meter
from samzapy.container.task.message_scope import MessageScope, Thread
from samzapy.container.task.message_source import Gate, Source, noted, up_to
from samzapy.container.task.output_checks import OutputChecks
from samzapy.container.task.outputs import Collector
from samzapy.container.task.ports import CrashPoints, SlotGuard
from samzapy.container.task.ports import TaskEnvironment as Environment
from samzapy.container.task.stores import TaskState
from samzapy.container.task.transaction import (
    Tally,
    Transaction,
    TransactionLimits,
    Transactions,
)
from samzapy.container.task.user_calls import UserCalls
from samzapy.container.task.user_errors import user_traceback
from samzapy.container.task.window_ticks import WindowTicks
from samzapy.container.task.work_plan import NO_TIMER, Message, Report, Rows, WorkPlan
from samzapy.declared_task import Declared
from samzapy.model.text import error_text
from samzapy.task import LoadedTask, ProcessFunction

_LOG = logging.getLogger(__name__)


class TaskRunner:
    """One task in one worker process, for one query."""

    def __init__(
        self,
        *,
        plan: WorkPlan,
        routes: Sequence[int],
        new_task: Callable[[], LoadedTask],
        declared: Declared | None = None,
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
        config, route, declared = plan.config, plan.routes[routes[0]], declared or Declared()
        self._plan = plan
        self._task_name = route.task_name
        self._is_interrupted = is_interrupted
        self._sources = {index: Source.of(plan.routes[index], config, declared) for index in routes}
        self.routes = tuple(routes)
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
            declared=declared,
        )
        collector = Collector(config, self._scope, declared)
        intermediates = {item.name: item.system_stream for item in config.intermediates}
        self._handles = Handles(collector, Context(route, config.properties, intermediates, self._state), self._state)
        checks = OutputChecks(config, collector, limits.wall_ms)
        policy = ErrorPolicy(config, route.task_name, checks, limits.wall_ms)
        calls = UserCalls(
            handles=self._handles,
            state=self._state,
            checks=checks,
            policy=policy,
            limits=limits,
            is_interrupted=is_interrupted,
        )
        self._event_time: EventTime | None = None
        if declared.keeps_time:
            own_routes = {index: plan.routes[index] for index in routes}
            self._event_time = EventTime(plan, own_routes, declared.streams, self._state, limits)
            self._state.watermark_ms = self._event_time.watermark_ms
        self._timers: Timers | None = None
        if declared.acts_by_time:
            self._state.key_decode = declared.timer_key(config).decode
            self._timers = Timers(
                calls,
                self._scope,
                crash_points,
                has_timers=declared.has_timers,
                window=WindowTicks(calls, route.task_name, config.window_ms) if declared.has_window else None,
                event_time=self._event_time,
            )
        self._handling = Handling(calls)
        self._environment = environment
        self._transactions = Transactions(plan, route, environment, self._state, limits)
        self._crash_points = crash_points
        # The transaction in which timers fire now.
        self._firing: Transaction | None = None
        self._task: LoadedTask | None = None
        # By route, what handles its messages.
        self._processes: dict[int, ProcessFunction] = {}
        self._failed_at_init = self._init(new_task)

    def _init(self, new_task: Callable[[], LoadedTask]) -> str:
        """Make the user's instance and call its `init`.

        Returns the error when that failed, else an empty text.
        """
        try:
            self._task = task = new_task()
            for route, source in self._sources.items():
                process = task.handlers.get(str(source.ssp_kb.ssp.system_stream), task.process)
                timed = process if self._event_time is None else self._event_time.timed(route, process)
                self._processes[route] = timed
            if task.bind is not None:
                task.bind(self._state.stores, self._handles.context, TaskTime(self._limits.wall_ms, self._event_time))
            if self._timers is not None:
                self._timers.handlers = task.timers
                self._timers.end_of_stream = task.end_of_stream
                if self._timers.window is not None:
                    self._timers.window.handler = task.window
            if task.init is not None:
                task.init(self._handles.context)
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
        """As `run`, in transactions that may be of other tasks, too.

        Timers that are due fire before and behind the rows, also without any.
        """
        tally = Tally()
        reports = yield from self._work(self._meter.begin(chunks), joint, tally)
        if self._timers is not None or self._event_time is not None:
            # A task that had nothing to do reports its next timer.
            reports = [
                replace(
                    report,
                    due_ms=self._due_ms(),
                    due_when_quiet_ms=self._due_when_quiet_ms(),
                    has_ended=self._event_time is not None and self._event_time.clocks.has_ended,
                )
                for report in reports or tally.idle(self.routes[0])
            ]
        return self._meter.attach(reports, self._transactions.bytes_on_disk())

    def begin_batch(self) -> None:
        """Forget what another worker may have changed since this one last served the task."""
        if self._timers is not None:
            self._timers.is_known = False
        self.covered({})

    def covered(self, covered_ms: Mapping[int, int]) -> None:
        """Note up to which moment everything is handled once the next rows are.

        As of `TaskClocks.pass_time`.
        """
        if self._event_time is not None:
            self._event_time.covered_ms = covered_ms

    def due_ms(self) -> int:
        """The next moment at which a timer is due; `NO_TIMER` without any.

        0 where one in event time is due now, given what is covered.
        """
        if self._timers is not None:
            self._timers.look(self._environment)
        return 0 if self._is_due_when_covered() else self._due_ms()

    def due_when_quiet_ms(self) -> int:
        """The same for timers in event time, as `Report.due_when_quiet_ms`."""
        if self._timers is not None:
            self._timers.look(self._environment)
        return self._due_when_quiet_ms()

    def _due_when_quiet_ms(self) -> int:
        return NO_TIMER if self._event_time is None else self._event_time.due_when_quiet_ms()

    def _is_due_when_covered(self) -> bool:
        event_time = self._event_time
        return event_time is not None and (
            event_time.clocks.is_due or event_time.clocks.would_be_due(event_time.covered_ms)
        )

    def _due_ms(self) -> int:
        """The same, without a look at the local store.

        0, due at once, where only a look can tell.
        """
        if self._timers is None:
            return NO_TIMER
        if not self._timers.is_known:
            return 0
        return NO_TIMER if self._timers.next_ms is None else self._timers.next_ms

    def _work(self, chunks: Iterable[Rows], joint: JointTransaction, tally: Tally) -> Work:
        transaction: Transaction | None = None
        route = self.routes[0]
        try:
            transaction = yield from self._fired(transaction, joint, tally)
            for rows in chunks:
                self._state.time_next_calls()
                route = rows.route
                self._check_scope()
                if self._failed_at_init:
                    return tally.failed(rows.route, self._failed_at_init)
                position = 0
                rows = up_to(rows, self._plan.routes[rows.route].offset_end)
                while position < len(rows.offsets):
                    transaction = transaction or self._begin(joint)
                    position = self._meter.process.timed(self._handle, rows, position, transaction, joint.slot)
                    has_fired = self._timers is not None and self._timers.is_event_due
                    if has_fired:
                        transaction = yield from self._fired_events(transaction, rows.route, joint, tally)
                    is_cut = position < len(rows.offsets)
                    is_full = transaction.is_full(self._limits, self._handles.bytes_held)
                    if is_cut and not is_full and (has_fired or rows.budget_s is not None):
                        if joint.must_end():
                            yield from self._committed(transaction, tally, is_last=True)
                            return tally.reports()
                    elif is_cut or is_full:
                        yield from self._committed(transaction, tally, is_last=False)
                        transaction = None
            if self._event_time is not None:
                self._look_behind_rows(self._event_time)
            transaction = yield from self._fired(transaction, joint, tally)
            if self._event_time is not None and self._event_time.is_at_end:
                transaction = yield from self._ended(self._event_time, transaction, joint, tally)
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

    def _fired(
        self, transaction: Transaction | None, joint: JointTransaction, tally: Tally
    ) -> Generator[Part, float, Transaction | None]:
        """Fire the timers that are due.

        Returns:
            The transaction that is open then.
        """
        timers = self._timers
        if timers is None:
            return transaction
        if self._failed_at_init and timers.is_due(self._environment):
            raise MessageFailed(self._failed_at_init)
        until_s = self._limits.now_s() + FIRE_S
        try:
            return (yield from self._fire_until(timers, until_s, transaction, joint, tally))
        except BaseException:
            # The caller does not know a transaction that was begun here.
            self._forget(self._firing)
            raise
        finally:
            self._firing = None

    def _fire_until(
        self,
        timers: Timers,
        until_s: float,
        transaction: Transaction | None,
        joint: JointTransaction,
        tally: Tally,
    ) -> Generator[Part, float, Transaction | None]:
        while transaction is not None or timers.is_due(self._environment):
            transaction = self._firing = transaction or self._begin(joint)
            # A transaction of timers alone has the position of one route, which does not move.
            route = next(iter(transaction.handled), self.routes[0])
            handled = transaction.handled_of(route, self._sources[route].ssp_kb)
            is_done = self._meter.process.timed(timers.fire, transaction, handled, joint.must_end)
            # Timers in event time fire before the next message, however many there are.
            is_late = self._limits.now_s() >= until_s and not timers.is_event_due
            if is_done or is_late or joint.must_end():
                break
            yield from self._committed(transaction, tally, is_last=False)
            transaction = None
        return transaction

    def _fired_events(
        self, transaction: Transaction, route: int, joint: JointTransaction, tally: Tally
    ) -> Generator[Part, float, Transaction]:
        """Fire the timers that the last message of a route has made due.

        Returns:
            The transaction that is open then.
        """
        assert self._timers is not None
        while True:
            handled = transaction.handled_of(route, self._sources[route].ssp_kb)
            is_done = self._meter.process.timed(self._timers.fire_events, transaction, handled, joint.must_end)
            if is_done or joint.must_end():
                return transaction
            yield from self._committed(transaction, tally, is_last=False)
            transaction = self._begin(joint)

    def _look_behind_rows(self, event_time: EventTime) -> None:
        """Let quiet inputs' clocks run, now that all rows are handled."""
        if self._timers is not None and event_time.covered_ms:
            self._timers.look(self._environment)
        event_time.look_behind_rows()

    def _ended(
        self, event_time: EventTime, transaction: Transaction | None, joint: JointTransaction, tally: Tally
    ) -> Generator[Part, float, Transaction]:
        """Fire all timers in event time, and call `end_of_stream`.

        Returns:
            The transaction that is open then.
        """
        if self._failed_at_init:
            raise MessageFailed(self._failed_at_init)
        transaction = self._firing = transaction or self._begin(joint)
        event_time.clocks.close()
        route = next(iter(transaction.handled), self.routes[0])
        if self._timers is not None:
            transaction = yield from self._fired_events(transaction, route, joint, tally)
        self._firing = transaction
        if self._timers is None or self._timers.end_of_stream is None:
            event_time.clocks.end()
        else:
            handled = transaction.handled_of(route, self._sources[route].ssp_kb)
            self._meter.process.timed(self._timers.end, transaction, handled)
        self._firing = None
        return transaction

    def _begin(self, joint: JointTransaction) -> Transaction:
        """Begin a transaction, with the clocks that were committed last."""
        transaction = self._transactions.begin(joint.begin())
        try:
            if self._timers is not None:
                self._timers.begin(transaction.local)
            elif self._event_time is not None:
                self._event_time.begin(transaction.local)
        except BaseException:
            transaction.local.abort()
            raise
        return transaction

    def _forget(self, transaction: Transaction | None) -> None:
        """Give up the local transaction, which has the environment's lock."""
        if transaction is not None:
            transaction.local.abort()
        if self._timers is not None:
            self._timers.is_known = False
        if self._event_time is not None:
            self._event_time.forget()
        self._handles.forget()

    def _committed(self, transaction: Transaction, tally: Tally, *, is_last: bool) -> Generator[Part, float, None]:
        """Have the transaction committed."""
        self._check_scope()
        if self._event_time is not None:
            self._event_time.write(transaction)
        if self._timers is not None:
            self._timers.note_next(transaction.local)
        begun_s = self._limits.now_s()
        self._transactions.produce(transaction)
        produced_s = self._limits.now_s()
        share_s = yield Part(partial(self._transactions.commit, transaction), is_last)
        self._meter.committed(begun_s, produced_s, share_s)
        if self._event_time is not None:
            self._event_time.committed()
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
        source, messages = self._opened(rows, start, slot)
        handled = transaction.handled_of(rows.route, source.ssp_kb)
        self._state.is_broadcast = bool(source.ssp_kb.reader)
        self._scope.begin()
        try:
            count, offset_next, skipped, records_out = self._handling.each(
                self._processes[rows.route], rows, start, messages, source, transaction
            )
        finally:
            self._scope.end()
        handled.offset_next = max(handled.offset_next, offset_next)
        handled.records_in += count - skipped
        handled.records_out += records_out
        self._meter.skipped += skipped
        return start + count

    def _opened(self, rows: Rows, start: int, slot: SlotGuard) -> tuple[Source, Iterator[Message]]:
        """The source and the messages of the rows.

        Messages are noted and refused as the plan asks.
        """
        source, messages = self._sources[rows.route], rows.messages(start)
        if self._limits.now_s() < self._plan.notes_until_s:
            messages = noted(messages, rows.route, slot)
        refusals = {refusal.offset: refusal for refusal in self._plan.refusals if refusal.ssp_kb == source.ssp_kb}
        if refusals:
            gate = Gate(refusals, messages)
            key_decode, value_decode = gate.checked(source.key_decode), gate.checked(source.value_decode)
            return source._replace(key_decode=key_decode, value_decode=value_decode), iter(gate)
        return source, messages
