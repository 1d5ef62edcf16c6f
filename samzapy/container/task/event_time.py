"""Keeps event time in a task.

It reads and writes the clocks of the task (`container.task.clocks`), and moves them with its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final

from samzapy.container.task.clocks import (
    END_MS,
    FAR_MS,
    UNKNOWN_MS,
    ClockRules,
    Moment,
    TaskClocks,
    due_at,
    ended,
    inherited,
    reopened,
)
from samzapy.container.task.entry_time import EntryTime
from samzapy.container.task.handling import Handler, TimersFirstError, without_time
from samzapy.container.task.owners import task_entries
from samzapy.container.task.ports import LocalPosition, LocalTransaction
from samzapy.container.task.stores import TaskState
from samzapy.container.task.transaction import Transaction, TransactionLimits
from samzapy.container.task.work_plan import NO_TIMER, Route, WorkPlan
from samzapy.errors import TaskError
from samzapy.model.clock_entry import STORE, decoded, encoded
from samzapy.model.grant import BucketStart
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.time_figures import TimeFigures
from samzapy.model.timer_entry import Domain
from samzapy.state import ExpiryClock
from samzapy.stream.changelog import task_entry_key
from samzapy.streams import AnyStream
from samzapy.task import ProcessFunction

_NOT_WRITTEN: Final = -1
"""The time of a record whose producer wrote none."""
_UNREAD: Final = b""


class EventTime:
    """The event time of one task.

    Attributes:
        clocks: as of the open transaction.
        entries: the time by which entries expire.
        covered_ms: by route, up to which moment everything is handled once the rows in hand are (`TaskClocks`);
            `FAR_MS` for one that has ended.
        is_known: whether the clocks are those of the task now. Another worker may have moved them since the micro-batch
            before.
    """

    def __init__(
        self,
        plan: WorkPlan,
        routes: Mapping[int, Route],
        streams: Mapping[str, AnyStream],
        state: TaskState,
        limits: TransactionLimits,
    ) -> None:
        """Take the routes of the task, by their index. Broadcast inputs keep no time.

        A query may leave out inputs of the task: until the bootstrap inputs have caught up, while it looks for a
        message that ends its process, and where a topic is gone. Their clocks stand, and hold the watermark.
        """
        own = {index: route for index, route in routes.items() if not route.ssp_kb.reader}
        first = next(iter(routes.values()))
        self.covered_ms: Mapping[int, int] = {}
        self.is_known = False
        self._all_routes = tuple(routes)
        self._plan = plan
        self._streams = {index: streams[str(route.ssp_kb.ssp.system_stream)] for index, route in own.items()}
        # By route, its input; inputs that are left out have numbers below 0. None: they are not known yet.
        self._ssp_kb_of: Mapping[int, SspKeyBucket] | None = None
        self._ssp_of: Mapping[int, str] = {}
        self._leaves_out = False
        self._epoch = first.epoch
        self._key = task_entry_key(first.task_name, b"")
        self._state = state
        self._limits = limits
        rules = ClockRules(
            disorder_ms={index: stream.disorder_ms for index, stream in self._streams.items()},
            idle_ms=plan.config.event_time_idle_ms,
        )
        self.clocks = TaskClocks(rules)
        self.entries = EntryTime(self.clocks, state, limits.wall_ms)
        # The entry that `clocks` are of; empty where they must be read.
        self._raw: bytes | None = _UNREAD

    # --- messages ---

    def handler(self, route: int, process: ProcessFunction) -> Handler:
        """`process`, which moves the clock of its input after each message."""
        stream = self._streams.get(route)
        if stream is None:
            return without_time(process)
        clocks, clock_of, seen, state = self.clocks, self.clocks.clock_of, self.clocks.with_messages, self._state
        lateness, disorder_ms, has_own_time = clocks.lateness, stream.disorder_ms, stream.event_time is not None
        wall_ms, ahead_max_ms, no_later_ms = self._limits.wall_ms, self._plan.config.event_time_ahead_max_ms, 0
        time_of = attrgetter("time_ms" if has_own_time else "timestamp_ms")
        process, process_without_time = self.entries.acting(process, time_of), self.entries.acting(process, None)
        takes_context = state.declared.takes_context
        # The loop over messages knows their times, unless the stream takes them from values.
        still = None if has_own_time else clocks.still

        def handle(message: Any, out: Any, context: Any = None) -> None:
            nonlocal no_later_ms
            event_ms = message.time_ms if has_own_time else message.timestamp_ms
            # Most messages pass these comparisons; more of them for each message would be measurable.
            if type(event_ms) is not int or not _NOT_WRITTEN < event_ms <= no_later_ms:
                if clocks.is_due:
                    raise TimersFirstError
                # The limit of before is the stricter one.
                no_later_ms = wall_ms() + ahead_max_ms
                if not _is_time(stream, message, event_ms, no_later_ms):
                    lateness.ahead_count += event_ms > no_later_ms
                    process_without_time(message, out, *((context,) if takes_context else ()))
                    clocks.saw(route)
                    return
            if clocks.next_due_ms <= event_ms and self._must_fire_before(route, event_ms):
                raise TimersFirstError
            if event_ms < lateness.below_ms:
                lateness.note(event_ms, clocks.watermark_of(state.message_key))
            if takes_context:
                process(message, out, context)
            else:
                process(message, out)
            if event_ms - disorder_ms > clock_of[route] or route not in seen:
                clocks.advance(route, event_ms)
            elif still is not None and not clocks.is_due:
                still.open(lateness.below_ms, clock_of[route], disorder_ms, no_later_ms)

        # A message that fails moves no clock, but its input was not quiet.
        return Handler(handle, process, still, partial(clocks.saw, route))

    def _must_fire_before(self, route: int, event_ms: int) -> bool:
        """Whether a timer is due before a message; its clock is moved then.

        So a timer fires before the messages of its moment and later, whatever other keys the task has, and before a
        late message behind the one that made it due.
        """
        clocks, local = self.clocks, self._state.local
        if clocks.is_due:
            return True
        if not clocks.makes_due(route, event_ms):
            return False
        # A message of this transaction may have replaced or cleared the timer. Then the clock must not move: `now_ms`
        # of a message would depend on where transactions end.
        assert local is not None, "a transaction is open"
        self.note_next_due(local)
        if not clocks.makes_due(route, event_ms):
            return False
        clocks.advance(route, event_ms)
        return True

    def note_next_due(self, local: LocalTransaction) -> None:
        """Note the moment of the first timer, also of those that were just set."""
        first = self._state.due_timers(local, Domain.EVENT, None, 1)
        self.clocks.next_due_ms = due_at(first[0][0], self.clocks.watermark_ms) if first else FAR_MS

    def watermark_ms(self) -> int | None:
        """The watermark for the key in hand; None while an input is not known."""
        return self.clocks.watermark_of(self._state.message_key)

    def now_ms(self) -> int:
        """The present time for timers: the watermark, or 0 without one."""
        return max(0, self.watermark_ms() or 0)

    # --- without messages ---

    def look_behind_rows(self) -> None:
        """Let time pass that no message brings, once all rows are handled."""
        self.clocks.end_inputs(ended(self.covered_ms))
        self.clocks.pass_time(self.covered_ms)

    @property
    def is_at_end(self) -> bool:
        """Whether all inputs have ended, and the task has not acted on it."""
        return (
            ended(self.covered_ms).keys() >= {*self._all_routes}
            and not self._leaves_out
            and not self.clocks.has_ended
        )

    def due_when_quiet_ms(self) -> int:
        """The moment as of `Report.due_when_quiet_ms`.

        In a bounded run the end of the inputs is one, too.
        """
        clocks = self.clocks
        left_out = [clock_ms for route, clock_ms in clocks.clock_of.items() if route < 0]
        # Where one that is left out holds the watermark, no moment lets it go.
        quiet_ms = clocks.due_when_quiet_ms() if min(left_out, default=FAR_MS) >= clocks.next_act_ms else None
        if quiet_ms is None:
            return FAR_MS if self._plan.config.is_bounded_job and not self.clocks.has_ended else NO_TIMER
        return quiet_ms

    # --- transactions ---

    def begin(self, local: LocalTransaction) -> None:
        """Take over the committed clocks, which another worker may have moved."""
        self.is_known = True
        raw = local.get(STORE, self._key)
        if raw == self._raw:
            return
        position = local.position()
        assert position is not None, "the task has taken its environment over"
        if self._ssp_kb_of is None:
            self._know_inputs([SspKeyBucket.parse(text) for text in position.offsets_next])
        entry = None if raw is None else decoded(raw)
        if entry is not None and entry.epoch == self._epoch:
            is_own = entry.execution_id == self._plan.execution_id
            self.clocks.load(entry, self._ssp_of, None if is_own else self._now())
        else:
            self._inherit(local, position)
        self._raw = raw

    def _know_inputs(self, ssp_kbs: Collection[SspKeyBucket]) -> None:
        """Take all positions of the task, also those of inputs that this query leaves out."""
        routes = {index: self._plan.routes[index].ssp_kb for index in self._streams}
        left_out = sorted(ssp_kb for ssp_kb in ssp_kbs if not ssp_kb.reader and ssp_kb not in routes.values())
        self._ssp_kb_of = routes | {-1 - number: ssp_kb for number, ssp_kb in enumerate(left_out)}
        self._ssp_of = {index: str(ssp_kb.ssp) for index, ssp_kb in self._ssp_kb_of.items()}
        self._leaves_out = len(ssp_kbs) > len(self._all_routes)
        self.clocks.hold(self._ssp_of)

    def _inherit(self, local: LocalTransaction, position: LocalPosition) -> None:
        starts = []
        for index, ssp_kb in self._inputs.items():
            offset = position.offsets_next[str(ssp_kb)]
            route = self._plan.routes[index] if index in self._streams else None
            starts.append(BucketStart(ssp_kb=ssp_kb, offset_next=offset) if route is None else route.start_at(offset))
        own = starts[0].ssp_kb
        # The entries of all tasks that have had keys of this one.
        entries = {name: decoded(raw) for name, raw in task_entries(local, STORE).items()}
        if not self._plan.config.is_bounded_job:
            entries = {name: reopened(entry) for name, entry in entries.items()}
        self.clocks.begin(inherited(entries, own.bucket, own.factor, starts), self._ssp_of, self._now())

    @property
    def _inputs(self) -> Mapping[int, SspKeyBucket]:
        assert self._ssp_kb_of is not None, "a transaction has begun"
        return self._ssp_kb_of

    def _now(self) -> Moment:
        return Moment(self._limits.boot_ms(), self._limits.wall_ms())

    def write(self, transaction: Transaction) -> None:
        """Write the clocks, if they have moved in this transaction."""
        if not self.clocks.has_moved:
            return
        positions = transaction.position.offsets_next
        offsets = {index: positions[str(ssp_kb)] for index, ssp_kb in self._inputs.items()}
        offsets |= {index: done.offset_next for index, done in transaction.handled.items() if index in offsets}
        entry = self.clocks.entry(self._epoch, self._plan.execution_id, self._ssp_of, offsets, self._now())
        self._raw = self._state.written(STORE)[self._key] = encoded(entry)

    def committed(self) -> None:
        """Note that the transaction was committed."""
        self.clocks.committed()

    def forget(self) -> None:
        """Forget the clocks, because the transaction was given up."""
        self._raw, self.is_known = _UNREAD, False

    def seen(self) -> TimeFigures:
        """The watermark and the clocks, for reports."""
        watermark_ms = self.clocks.watermark_ms
        has_one = UNKNOWN_MS < watermark_ms < END_MS
        return TimeFigures(
            at_ms=self._limits.boot_ms(),
            watermark_ms=watermark_ms if has_one else None,
            inputs={} if watermark_ms == END_MS else self.clocks.seen(self._inputs),
        )


class TaskTime:
    """The clocks that a task's timers and entries go by (`declared_task.Time`)."""

    def __init__(self, wall_ms: Callable[[], int], event_time: EventTime | None, expiry: ExpiryClock) -> None:
        self.wall_ms = wall_ms
        self.expiry = expiry
        self._event_time = event_time

    def event_ms(self) -> int:
        return 0 if self._event_time is None else self._event_time.now_ms()

    def note_event_timer(self, moment_ms: int) -> bool:
        if self._event_time is None:
            return True
        may_be_set = self._event_time.clocks.note_timer(moment_ms)
        if may_be_set:
            self._event_time.entries.note_timer(moment_ms)
        return may_be_set


def _is_time(stream: AnyStream, message: Any, event_ms: Any, no_later_ms: int) -> bool:
    """Whether an event time moves the clock of its input.

    Raises:
        TaskError: it is none, or is too far ahead and the stream refuses that. Names the stream and the time.
    """
    if type(event_ms) is not int:
        raise TaskError(
            f"{stream.place}: event_time of {stream.name}: wanted whole milliseconds since 1970, found {event_ms!r}"
        )
    if event_ms > no_later_ms and stream.event_time_ahead == "refuse":
        raise TaskError(
            f"{stream.name}@{message.offset}: wanted an event time of at most {no_later_ms}, which is "
            f"task.event.time.ahead.max.ms ahead of the clock, found {event_ms}; event_time_ahead='take' handles such "
            "a message, and it moves no clock"
        )
    return event_ms <= no_later_ms and (event_ms != _NOT_WRITTEN or stream.event_time is not None)
