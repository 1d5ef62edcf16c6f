"""Runs user code over the messages of a task, inside Spark's Python workers.

Theory. A worker is called with the rows of one Spark partition, and holds a *slot* meanwhile. It opens transactions for
each task (`transaction`); one may be of several of the task's SSPs. Messages are handled in the order of the rows,
which is offset order within each SSP.

A message is all or nothing: its outputs and writes are held back until `process` returns. A failed message leaves no
trace, or, under policy `dead-letter`, only its dead letter (`error_policy`).

There is no recovery here. Any error ends the batch, the driver ends the query, and the start procedure runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial

from samzapy.container.task.commit_trace import NOT_TRACED, CommitTraces
from samzapy.container.task.context import Context, Handles
from samzapy.container.task.error_policy import ErrorPolicy, MessageFailed
from samzapy.container.task.event_time import EventTime
from samzapy.container.task.firing import FIRE_S, Timers
from samzapy.container.task.handling import Handling
from samzapy.container.task.joint_transaction import AbortedError, JointTransaction, Part, Work
from samzapy.container.task.measures import Meter
from samzapy.container.task.message_scope import MessageScope, Threads
from samzapy.container.task.message_source import Gate, Source, noted, up_to
from samzapy.container.task.output_checks import OutputChecks
from samzapy.container.task.outputs import Collector
from samzapy.container.task.ports import CrashPoints, SlotGuard
from samzapy.container.task.ports import TaskEnvironment as Environment
from samzapy.container.task.stores import TaskState
from samzapy.container.task.time_keeping import TimeKeeping
from samzapy.container.task.transaction import Tally, Transaction, TransactionLimits, Transactions
from samzapy.container.task.user_calls import UserCalls
from samzapy.container.task.user_instance import UserInstance
from samzapy.container.task.work_plan import Message, Report, Rows, WorkPlan
from samzapy.model.task_stats import TaskStats
from samzapy.task import TaskFactory


class _OpenWork:
    """A work of the task, with its open transaction.

    Attributes:
        route: the one in hand.
        tally: the counts of the transactions that were committed.
    """

    def __init__(self, joint: JointTransaction, route: int) -> None:
        self.joint = joint
        self.route = route
        self.tally = Tally()
        self.transaction: Transaction | None = None


class TaskRunner:
    """One task in one worker process, for one query."""

    def __init__(
        self,
        *,
        plan: WorkPlan,
        routes: Sequence[int],
        new_task: TaskFactory,
        environment: Environment,
        limits: TransactionLimits,
        crash_points: CrashPoints,
        is_interrupted: Callable[[], bool],
        threads: Threads,
    ) -> None:
        """Make the user's instance and call its `init`.

        `is_interrupted` says whether a signal interrupted this process. An error of user code then comes from the
        interrupt; the same class of error without a signal is a failure of the message.
        """
        config, route, declared = plan.config, plan.routes[routes[0]], new_task.declared
        self.routes = tuple(routes)
        self._plan = plan
        self._limits = limits
        self._crash_points = crash_points
        self._sources = {index: Source.of(plan.routes[index], config, declared) for index in routes}
        self._meter = Meter(limits.now_s)
        self._scope = MessageScope(route.task_name, threads)
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
        calls = UserCalls(
            handles=self._handles,
            state=self._state,
            checks=checks,
            policy=ErrorPolicy(config, route.task_name, checks, limits.wall_ms),
            limits=limits,
            is_interrupted=is_interrupted,
        )
        self._time = TimeKeeping(plan, routes, declared, calls, self._scope, crash_points, environment)
        self._handling = Handling(calls)
        self._transactions = Transactions(plan, route, environment, self._state, limits)
        self._instance = UserInstance(route.task_name, new_task, self._sources, calls, self._time)

    def close(self) -> None:
        """Close the user's instance (`UserInstance.close`)."""
        self._instance.close()

    def run(self, chunks: Iterable[Rows], slot: SlotGuard, traces: CommitTraces = NOT_TRACED) -> Sequence[Report]:
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
        joint = JointTransaction(slot, self._crash_points, self._limits.now_s, traces=traces)
        return joint.run([self.work(chunks, joint)])

    def work(self, chunks: Iterable[Rows], joint: JointTransaction) -> Work:
        """As `run`, in transactions that may be of other tasks, too.

        Timers that are due fire before and behind the rows, also without any.
        """
        work = _OpenWork(joint, self.routes[0])
        reports = yield from self._work(self._meter.begin(chunks), work)
        if self._time.is_reported:
            # A task that had nothing to do reports its next timer.
            reports = self._time.dated(reports or work.tally.idle(self.routes[0]))
        transactions = self._transactions
        sizes = transactions.take_sizes()
        return self._meter.attach(reports, transactions.bytes_on_disk(), sizes, self._time.figures())

    @property
    def in_hand(self) -> tuple[int, int] | None:
        """Route and offset of the message that user code handles now; any thread may ask."""
        route, offset = self._handling.route, self._handling.offset
        return None if offset < 0 else (route, offset)

    def so_far(self, *, only_open: bool) -> TaskStats:
        """The cost before the report (`Meter.so_far`)."""
        return self._meter.so_far(only_open=only_open)

    def begin_batch(self) -> None:
        """Forget what another worker may have changed since this one last served the task."""
        self._meter.forget()
        self._time.begin_batch()

    def covered(self, covered_ms: Mapping[int, int]) -> None:
        """Note up to which moment everything is handled once the next rows are.

        As of `TaskClocks.pass_time`.
        """
        self._time.covered(covered_ms)

    def due_ms(self) -> int:
        """The next moment at which a timer is due; `NO_TIMER` without any.

        0 where one in event time is due now, given what is covered.
        """
        return self._time.due_ms()

    def due_when_quiet_ms(self) -> int:
        """The same for timers in event time, as `Report.due_when_quiet_ms`."""
        return self._time.due_when_quiet_ms()

    # --- rows ---

    def _work(self, chunks: Iterable[Rows], work: _OpenWork) -> Work:
        try:
            is_cut = yield from self._handle_chunks(chunks, work)
            if not is_cut:
                yield from self._act_behind_rows(work)
            transaction = work.transaction
            if transaction is not None:
                # One that is full does not wait for the works of other tasks.
                yield from self._commit(work, is_last=not transaction.is_full(self._limits, self._handles.bytes_held))
        except MessageFailed as failed:
            self._forget(work)
            return work.tally.failed(work.route, str(failed))
        except AbortedError:
            self._forget(work)
        except BaseException as error:
            self._forget(work)
            transaction = work.transaction
            if transaction is not None and self._transactions.is_of_a_slow_message(error, transaction):
                # After a lapsed lease the coordinator may have had the transaction ended.
                work.joint.slot.check_lease()
                raise self._transactions.slow_message(transaction) from error
            raise
        return work.tally.reports()

    def _handle_chunks(self, chunks: Iterable[Rows], work: _OpenWork) -> Generator[Part, float, bool]:
        """Handle all rows, behind the timers that are due.

        Returns:
            True if the loop must end before the last row.
        """
        has_rows, limits = False, self._limits
        for rows in chunks:
            if work.joint.must_end():
                # These rows are left: the clocks must not run as if they had been handled.
                return True
            if not has_rows:
                has_rows = True
                yield from self._fire(work, leaves_events=False)
                if work.transaction is not None and work.transaction.is_full(limits, self._handles.bytes_held):
                    # A window may have taken long.
                    yield from self._commit(work, is_last=False)
            self._state.time_next_calls()
            work.route = rows.route
            self._check_scope()
            self._check_init()
            is_cut = yield from self._handle_rows(up_to(rows, self._plan.routes[rows.route].offset_end), work)
            if is_cut:
                return True
        return False

    def _handle_rows(self, rows: Rows, work: _OpenWork) -> Generator[Part, float, bool]:
        """As `_handle_chunks`, for the rows of one route."""
        position, joint = 0, work.joint
        while position < len(rows.offsets):
            transaction = self._opened(work)
            position = self._meter.process.timed(self._handle, rows, position, transaction, joint.slot)
            has_fired = self._time.is_event_due
            if has_fired:
                transaction = yield from self._fire_events(work, rows.route)
            is_cut = position < len(rows.offsets)
            is_full = transaction.is_full(self._limits, self._handles.bytes_held)
            if is_cut and not is_full and (has_fired or rows.budget_s is not None):
                if joint.must_end():
                    return True
            elif is_cut or is_full:
                yield from self._commit(work, is_last=False)
        return False

    def _act_behind_rows(self, work: _OpenWork) -> Generator[Part, float, None]:
        """Fire the timers that are due behind the rows."""
        self._time.look_behind_rows()
        yield from self._fire(work, leaves_events=True)
        event_time = self._time.event_time
        if event_time is not None and event_time.is_at_end:
            yield from self._end(event_time, work)

    def _handle(self, rows: Rows, start: int, transaction: Transaction, slot: SlotGuard) -> int:
        """Handle rows from `start` until the transaction is full; return the next index."""
        source, messages = self._messages(rows, start, slot)
        handled = transaction.handled_of(rows.route, source.ssp_kb)
        self._state.is_broadcast = bool(source.ssp_kb.reader)
        self._scope.begin()
        try:
            count, offset_next, skipped, records_out = self._handling.each(
                self._instance.handlers[rows.route], rows, start, messages, source, transaction
            )
        finally:
            self._scope.end()
        handled.offset_next = max(handled.offset_next, offset_next)
        handled.records_in += count - skipped
        handled.records_out += records_out
        self._meter.skipped += skipped
        return start + count

    def _messages(self, rows: Rows, start: int, slot: SlotGuard) -> tuple[Source, Iterator[Message]]:
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

    # --- timers ---

    def _fire(self, work: _OpenWork, *, leaves_events: bool) -> Generator[Part, float, None]:
        """Fire the timers that are due.

        Args:
            leaves_events: whether timers in event time may be left, too, once `FIRE_S` have passed. Before a message
                all of them fire, however many there are.
        """
        timers = self._time.timers
        if timers is None:
            return
        if self._instance.failed_at_init and self._time.is_due:
            raise MessageFailed(self._instance.failed_at_init)
        has_messages = work.transaction is not None
        try:
            yield from self._fire_until(timers, self._limits.now_s() + FIRE_S, work, leaves_events)
        except BaseException:
            if not has_messages:
                # A transaction of timers alone has no message that may have been slow.
                self._forget(work)
                work.transaction = None
            raise

    def _fire_until(
        self, timers: Timers, until_s: float, work: _OpenWork, leaves_events: bool
    ) -> Generator[Part, float, None]:
        joint = work.joint
        while work.transaction is not None or self._time.is_due:
            transaction = self._opened(work)
            # A transaction of timers alone has the position of one route, which does not move.
            route = next(iter(transaction.handled), self.routes[0])
            handled = transaction.handled_of(route, self._sources[route].ssp_kb)
            is_done = self._meter.process.timed(timers.fire, transaction, handled, joint.must_end)
            is_late = self._limits.now_s() >= until_s and (leaves_events or not timers.is_event_due)
            if is_done or is_late or joint.must_end():
                break
            yield from self._commit(work, is_last=False)

    def _fire_events(self, work: _OpenWork, route: int) -> Generator[Part, float, Transaction]:
        """Fire the timers that the last message of a route has made due.

        Returns:
            The transaction that is open then.
        """
        timers, joint = self._time.timers, work.joint
        assert timers is not None
        while True:
            transaction = self._opened(work)
            handled = transaction.handled_of(route, self._sources[route].ssp_kb)
            is_done = self._meter.process.timed(timers.fire_events, transaction, handled, joint.must_end)
            if is_done or joint.must_end():
                return transaction
            yield from self._commit(work, is_last=False)

    def _end(self, event_time: EventTime, work: _OpenWork) -> Generator[Part, float, None]:
        """Fire all timers in event time, and call `end_of_stream`."""
        self._check_init()
        transaction, timers = self._opened(work), self._time.timers
        event_time.clocks.close()
        route = next(iter(transaction.handled), self.routes[0])
        if timers is not None:
            transaction = yield from self._fire_events(work, route)
        if timers is None or timers.end_of_stream is None:
            event_time.clocks.end()
        else:
            handled = transaction.handled_of(route, self._sources[route].ssp_kb)
            self._meter.process.timed(timers.end, transaction, handled)

    # --- transactions ---

    def _opened(self, work: _OpenWork) -> Transaction:
        """The open transaction; a new one has the clocks that were committed last."""
        if work.transaction is None:
            producer = work.joint.begin()
            transaction = self._transactions.begin(producer, work.joint.begun_at_s)
            try:
                self._time.begin(transaction.local)
            except BaseException:
                transaction.local.abort()
                raise
            work.transaction = transaction
        return work.transaction

    def _forget(self, work: _OpenWork) -> None:
        """Give up the local transaction, which has the environment's lock."""
        if work.transaction is not None:
            work.transaction.local.abort()
        self._time.forget()
        self._handles.forget()

    def _commit(self, work: _OpenWork, *, is_last: bool) -> Generator[Part, float, None]:
        """Have the open transaction committed."""
        transaction = work.transaction
        assert transaction is not None
        self._check_scope()
        self._time.write(transaction)
        begun_s = self._limits.now_s()
        self._transactions.produce(transaction)
        produced_s = self._limits.now_s()
        commit = partial(self._transactions.commit, transaction)
        share_s = yield Part(commit, is_last, transaction.handled, produced_s - begun_s)
        self._meter.committed(begun_s, produced_s, share_s)
        self._meter.acted(transaction.fired, *self._time.off_time_counts)
        self._time.committed()
        self._handles.forget()
        work.tally.add(transaction)
        work.transaction = None

    def _check_init(self) -> None:
        """Raise MessageFailed if the user's instance could not be made."""
        if self._instance.failed_at_init:
            raise MessageFailed(self._instance.failed_at_init)

    def _check_scope(self) -> None:
        """Raise MessageFailed once a handle was used outside of its message.

        Otherwise that use would be lost silently.
        """
        if self._scope.misuse:
            raise MessageFailed(self._scope.misuse)
