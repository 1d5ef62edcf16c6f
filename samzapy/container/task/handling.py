"""The loop over the messages of a task, which calls user code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from sys import getrefcount
from typing import NamedTuple

from samzapy.container.task.clocks import StillSpan
from samzapy.container.task.context import Context
from samzapy.container.task.error_policy import message_place
from samzapy.container.task.message_scope import Place
from samzapy.container.task.message_source import Source
from samzapy.container.task.outputs import Collector
from samzapy.container.task.stores import Store
from samzapy.container.task.transaction import LastMessage, Transaction
from samzapy.container.task.user_calls import UserCalls
from samzapy.container.task.work_plan import Message, Rows
from samzapy.task import ProcessFunction


class TimersFirstError(Exception):
    """Timers are due before the message in hand.

    It has had no effect yet, and comes again.
    """


class Handler(NamedTuple):
    """The handler of one route's messages.

    Attributes:
        process: handles any of them, and keeps event time where the task has it.
        process_still: handles those within `still`, without keeping time.
        still: None where `process` has to handle all.
        note_failed: called after a message became a dead letter, also one that no serde could read.
    """

    process: ProcessFunction
    process_still: ProcessFunction
    still: StillSpan | None
    note_failed: Callable[[], None]


def without_time(process: ProcessFunction) -> Handler:
    """The handler of a route whose messages move no clock."""
    return Handler(process, process, None, lambda: None)


class Handling:
    """Hands messages to `process`, one at a time.

    Attributes:
        route, offset: the message in hand, for another thread; the offset is -1 between two loops.
    """

    def __init__(self, calls: UserCalls) -> None:
        self._calls = calls
        self._takes_context = calls.state.declared.takes_context
        self._handles = calls.handles
        # Messages of the task that this process has handled before these rows.
        self._handled_before = 0
        self.route, self.offset = -1, -1

    def each(
        self,
        handler: Handler,
        rows: Rows,
        start: int,
        messages: Iterator[Message],
        source: Source,
        transaction: Transaction,
    ) -> tuple[int, int, int, int]:
        """The loop over messages.

        It is in one piece, because one more call for each message would be measurable.

        Returns:
            How many messages were handled, the offset behind the last one, how many of them were skipped, and how many
            outputs there were.
        """
        process, process_still, still, note_failed = handler
        handle = process
        if still is not None:
            # It may be of another route.
            still.close()
        ssp, (_, key_decode, value_decode, intermediate, new_message) = source.ssp_kb.ssp, source
        producer, handled = transaction.producer, transaction.handled[rows.route]
        produce, state = producer.produce, self._calls.state
        overwritten = state.journal.entries
        limits = self._calls.limits
        now_s, bytes_max = limits.now_s, limits.bytes_max
        skip_below, deadline_s = handled.offset_next, transaction.begun_at_s + limits.duration_max_s
        if rows.budget_s is not None:
            deadline_s = min(deadline_s, now_s() + rows.budget_s)
        index, offset, skipped, records_out, is_full, is_put_back = start, rows.offsets[start], 0, 0, False, False
        collector, context, stores = self._handles.renew()
        takes_context, outputs = self._takes_context, collector.held
        # How many references there are while user code keeps none.
        references, of_collector, of_context = getrefcount, getrefcount(collector), getrefcount(context)
        of_store = max((getrefcount(store) for store in stores), default=0)
        since_s = now_s()
        self.route = rows.route
        try:
            for index, offset, key, value, timestamp_ms, headers in messages:
                if offset < skip_below:
                    skipped += 1
                    continue
                self.offset = offset
                if stores:
                    state.message_key, state.key_prefix = key, None
                try:
                    message = new_message(
                        ssp,
                        offset,
                        key if key_decode is None else key_decode(key),
                        value if value_decode is None else value_decode(value),
                        key,
                        value,
                        timestamp_ms,
                        headers,
                        intermediate,
                    )
                    if still is not None:
                        handle = process_still if still.first_ms <= timestamp_ms <= still.last_ms else process
                    if takes_context:
                        handle(message, collector, context)
                    else:
                        handle(message, collector)
                    if collector.must_be_checked:
                        self._calls.checks.check(collector, producer)
                except TimersFirstError:
                    is_put_back = True
                    break
                except BaseException as error:  # User code may raise anything; the policy decides.
                    row = (index, offset, key, value, timestamp_ms, headers)
                    self._calls.roll_back(error)
                    number = self._handled_before + index - start - skipped
                    self._calls.policy.apply(ssp, row, error, producer, number)
                    note_failed()
                    handled.dead_letters += 1
                is_kept = references(collector) > of_collector
                if stores:
                    is_full = collector.bytes_sent + state.bytes_held > bytes_max
                    if overwritten:
                        state.journal.clear()
                    # Without stores a context cannot be misused.
                    is_kept = is_kept or references(context) > of_context
                    if context.has_given:
                        context.has_given = False
                        for store in stores:
                            if references(store) > of_store:
                                is_kept = True
                if is_kept:
                    # User code keeps a handle, and may use it when it should not.
                    collector, context, stores = self._renew(partial(message_place, ssp, offset, key))
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
            self.offset = -1
            place = partial(message_place, ssp, rows.offsets[index], rows.keys[index])
            # A message that takes the transaction past its time is the last one in it.
            transaction.last = LastMessage(place, now_s() - since_s)
            self._handles.expire(place)
        count = index - start if is_put_back else index + 1 - start
        self._handled_before += count - skipped
        return count, offset if is_put_back else offset + 1, skipped, records_out

    def _renew(self, place: Place) -> tuple[Collector, Context, tuple[Store, ...]]:
        """The handles of the next message, with the outputs of the message at `place`."""
        outputs = self._handles.collector.held
        self._handles.expire(place)
        collector, context, stores = self._handles.renew()
        collector.held.extend(outputs)
        return collector, context, stores
