"""Event time in one task: the clocks of its inputs, and its watermark.

Theory. The clock of an input is the largest event time that the task has seen there, less the disorder that the stream
declares. The *watermark* is the least clock of the task's inputs. It never falls under one grant. Both are committed in
the transaction that moved them, as an entry of the store `_clocks` (`model.clock_entry`), so what is late follows from
the order of the inputs alone.

An input without messages holds the watermark back only until it is *covered*: until everything that stood in it at some
moment was read (`container.task.coverage`). From then on the clock of the input runs with the host's clock, beginning
task.event.time.idle.ms after its last message. No clock runs while a task lags, is restored, or does not run: what came
in that time is read first. If nothing came, the input was quiet for that time, too. Time that passes so is committed
only when a timer is due by it.

When the factor changes, a task begins with the entries of all tasks that had its keys. The newest one decides for each
bucket, as for positions (`coordinator.assignment.starts`). At a merge the least watermark counts, and each bucket that
was ahead keeps its own until the task has passed it. Otherwise it would take messages that were late already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from samzapy.model.clock_entry import ClockEntry, InputClock, PartWatermark
from samzapy.model.grant import BucketStart
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.time_figures import SeenClock
from samzapy.plan.elasticity import key_bucket
from samzapy.plan.task_names import TaskNameParts

END_MS: Final = 2**62 - 1
"""The watermark of a task whose inputs have ended."""
UNKNOWN_MS: Final = -(2**62)
"""The watermark of a task of whose inputs one is not known."""
FAR_MS: Final = 2**62
"""The clock of an input that holds nothing back, and the moment of a timer that is not set."""
_REMOVAL_STEP_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRules:
    """The rules for the inputs of a task that keeps event time.

    Attributes:
        disorder_ms: by route, how much older than the newest message a message may be without being late.
        idle_ms: how long a covered input is quiet before its clock runs; 0: it never runs.
    """

    disorder_ms: Mapping[int, int]
    idle_ms: int


class Moment(NamedTuple):
    """A moment, on the host's clock since its boot, and in milliseconds since 1970."""

    boot_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """The first clocks of a task under a grant.

    Attributes:
        inputs: by SSP, clocks that are known; None for an input that has had no message.
        when_covered: by SSP, the clock of an input that is not known, once the input is covered without a message.
        quiet_since_wall_ms: by SSP, since when an input has had no message, milliseconds since 1970.
        before_end_ms: as of `TaskClocks`.
    """

    watermark_ms: int | None
    inputs: Mapping[str, int | None]
    parts: tuple[PartWatermark, ...]
    when_covered: Mapping[str, int] = field(default_factory=dict)
    quiet_since_wall_ms: Mapping[str, int] = field(default_factory=dict)
    has_ended: bool = False
    before_end_ms: int = UNKNOWN_MS


class Lateness:
    """The messages that were late since the last commit.

    Attributes:
        below_ms: a message of this event time or later is not late, whatever its key.
        ahead_count: likewise, the messages that were too far ahead of the host's clock.
    """

    def __init__(self) -> None:
        self.below_ms = UNKNOWN_MS
        self.forget()

    def forget(self) -> None:
        """Begin to count anew."""
        self.count = self.ahead_count = 0

    def note(self, event_ms: int, watermark_ms: int | None) -> None:
        """Count a message, if it is late by the watermark of its key."""
        if watermark_ms is not None and event_ms < watermark_ms:
            self.count += 1


class StillSpan:
    """Event times of the input in hand whose messages concern no clock.

    They move none, are not late, and no timer is due before them. So the loop over messages needs no code that keeps
    time for them, which would be most of the cost of event time.

    Attributes:
        first_ms, last_ms: the span, both ends included; it is empty where the last one is the smaller one.
    """

    __slots__ = ("first_ms", "last_ms")

    def __init__(self) -> None:
        self.first_ms, self.last_ms = 0, -1

    def open(self, below_ms: int, clock_ms: int, disorder_ms: int, no_later_ms: int) -> None:
        """Begin a span, after a message that moved no clock, while no timer is due.

        Args:
            below_ms: a message before this moment may be late.
            clock_ms: of the input.
            no_later_ms: a message after this moment is too far ahead.
        """
        if clock_ms < FAR_MS:
            self.first_ms, self.last_ms = max(0, below_ms), min(clock_ms + disorder_ms, no_later_ms)

    def close(self) -> None:
        """Let it be empty."""
        self.last_ms = -1


class TaskClocks:
    """The clocks of one task, by route, as the open transaction has them.

    Attributes:
        watermark_ms: of the task; `UNKNOWN_MS` while an input is not known.
        next_due_ms: the moment of the first timer in event time; `FAR_MS` without one, and `UNKNOWN_MS` for one that
            is due: it comes before any message, also a late one.
        next_expiry_ms: the moment of the first entry that expires in event time; `FAR_MS` without one.
        before_end_ms: the watermark before the inputs ended; `UNKNOWN_MS` while they have not.
        clock_of: by route, the clock of its input.
        with_messages: the routes that had messages since the last commit.
        has_moved: whether a clock has moved since then.
        lateness: the messages that were late since then.
        still: of the route in hand. The loop over its messages closes it first.
        has_ended: whether the inputs have ended, and the task knows it.
    """

    def __init__(self, rules: ClockRules) -> None:
        self.watermark_ms = UNKNOWN_MS
        self.next_due_ms = self.next_expiry_ms = FAR_MS
        self.before_end_ms = UNKNOWN_MS
        self.has_moved = self.has_ended = False
        self.lateness, self.still = Lateness(), StillSpan()
        self._rules = rules
        self.clock_of: dict[int, int] = dict.fromkeys(rules.disorder_ms, UNKNOWN_MS)
        # Of inputs that are not known, the clock once they are covered without a message.
        self._when_covered_of: dict[int, int] = {}
        self._quiet_since_ms: dict[int, int] = {}
        self._message_at_ms: dict[int, int | None] = {}
        self.with_messages: set[int] = set()
        self._parts: tuple[PartWatermark, ...] = ()

    def hold(self, routes: Collection[int]) -> None:
        """Know these inputs, whose clocks are not known yet.

        No message may come of some of them.
        """
        self.clock_of.update(dict.fromkeys(routes, UNKNOWN_MS))

    # --- messages ---

    def advance(self, route: int, event_ms: int) -> None:
        """Move the clock of an input, after a message of it was handled.

        A message may move nothing; its input was not quiet all the same.
        """
        self.with_messages.add(route)
        self.has_moved = True
        clock_ms, clock_of = event_ms - self._rules.disorder_ms[route], self.clock_of
        if clock_ms <= clock_of[route] < FAR_MS:
            return
        clock_of[route] = clock_ms
        least_ms = clock_ms if len(clock_of) == 1 else min(clock_of.values())
        if least_ms > self.watermark_ms:
            self._follow(least_ms)

    def makes_due(self, route: int, event_ms: int) -> bool:
        """Whether a message would make the timer of `next_due_ms` due."""
        clock_ms = event_ms - self._rules.disorder_ms[route]
        if clock_ms < self.next_due_ms or clock_ms <= self.clock_of[route] < FAR_MS:
            return False
        least_ms = min(clock_ms, *(of for other, of in self.clock_of.items() if other != route), FAR_MS)
        return least_ms >= self.next_due_ms

    def saw(self, route: int) -> None:
        """Note that an input had a message, which moves no clock by itself."""
        self.with_messages.add(route)
        self.has_moved = True

    def _follow(self, least_ms: int) -> None:
        """Let the watermark follow the least clock; it never falls."""
        if self.watermark_ms < least_ms < FAR_MS:
            self.watermark_ms = self.lateness.below_ms = least_ms
            # As `close` and `due_at`, without calls for each message.
            self.still.last_ms = -1
            if self.next_due_ms <= least_ms:
                self.next_due_ms = UNKNOWN_MS
            if self._parts:
                self._parts = tuple(part for part in self._parts if part.watermark_ms > least_ms)
                self.lateness.below_ms = max((part.watermark_ms for part in self._parts), default=least_ms)

    @property
    def is_due(self) -> bool:
        """Whether a timer is due."""
        return self.next_due_ms <= self.watermark_ms

    def note_timer(self, moment_ms: int) -> bool:
        """Note that a timer is about to be set.

        Returns False once the inputs have ended: it would set itself again for ever.
        """
        if self.watermark_ms == END_MS:
            return False
        if moment_ms < self.next_due_ms:
            self.next_due_ms = due_at(moment_ms, self.watermark_ms)
            if self.is_due:
                self.still.close()
        return True

    def watermark_of(self, message_key: bytes | None) -> int | None:
        """The watermark by which a message of this key is late; None without one."""
        watermark_ms = self.watermark_ms
        if self._parts and message_key is not None:
            bucket = key_bucket(message_key, 0, max(part.factor for part in self._parts))
            for part in self._parts:
                if bucket % part.factor == part.bucket:
                    watermark_ms = max(watermark_ms, part.watermark_ms)
        return None if watermark_ms == UNKNOWN_MS else watermark_ms

    # --- the end of inputs ---

    def end_inputs(self, routes: Collection[int]) -> None:
        """Let inputs that were read to their ends hold nothing back."""
        for route in routes:
            if self.clock_of.get(route, FAR_MS) != FAR_MS:
                self.clock_of[route], self.has_moved = FAR_MS, True
        self._follow(min(self.clock_of.values()))

    def close(self) -> None:
        """Let all timers be due, because all inputs have ended."""
        if self.watermark_ms != END_MS:
            self.before_end_ms = self.watermark_ms
        self.watermark_ms, self.has_moved, self._parts = END_MS, True, ()

    def end(self) -> None:
        """Note that the task knows of the end."""
        self.has_ended = self.has_moved = True

    # --- time without messages ---

    @property
    def next_act_ms(self) -> int:
        """The moment at which a quiet task has something to do; `FAR_MS` without one.

        Entries that expire wait for the minute, so that they cost a quiet job at most one transaction a minute.
        """
        return min(self.next_due_ms, removal_of(self.next_expiry_ms))

    def pass_time(self, covered_ms: Mapping[int, int]) -> bool:
        """Let the clocks of quiet inputs run, if a timer is due by that.

        Args:
            covered_ms: by route, the newest moment, on the host's clock since its boot, of which all messages are
                handled; routes of which that is not known may be missing.
        """
        if not self.would_be_due(covered_ms):
            return False
        moved = self._moved(covered_ms)
        for route, clock_ms in moved.items():
            if clock_ms != self.clock_of[route] and clock_ms < FAR_MS:
                self._quiet_since_ms[route] += ran_ms(
                    covered_ms[route], self._quiet_since_ms[route], self._rules.idle_ms
                )
        # In place: the code that handles messages keeps them.
        self.clock_of.update(moved)
        self.has_moved = True
        self._follow(min(moved.values()))
        return True

    def would_be_due(self, covered_ms: Mapping[int, int]) -> bool:
        """Whether `pass_time` would make a timer due, or let entries expire."""
        if not covered_ms or self.is_due:
            return False
        return self.next_act_ms <= min(self._moved(covered_ms).values()) < FAR_MS

    def _moved(self, covered_ms: Mapping[int, int]) -> dict[int, int]:
        """The clocks by route, with those of quiet inputs run on."""
        return {route: self._run_until(route, covered_ms.get(route)) for route in self.clock_of}

    def _run_until(self, route: int, covered_ms: int | None) -> int:
        """The clock of an input at a moment up to which it is covered."""
        clock_ms = self.clock_of[route]
        if covered_ms is None or route in self.with_messages:
            return clock_ms
        if clock_ms == UNKNOWN_MS:
            clock_ms = self._when_covered_of.get(route, FAR_MS)
        if clock_ms == FAR_MS:
            return clock_ms
        return clock_ms + ran_ms(covered_ms, self._quiet_since_ms[route], self._rules.idle_ms)

    def due_when_quiet_ms(self) -> int | None:
        """Up to which moment the inputs must be covered and quiet for a timer to be due.

        On the host's clock since its boot; None if that changes nothing.
        """
        clocks = {
            route: self._when_covered_of.get(route, FAR_MS) if clock_ms == UNKNOWN_MS else clock_ms
            for route, clock_ms in self.clock_of.items()
        }
        next_ms = self.next_act_ms
        held = {route: clock_ms for route, clock_ms in clocks.items() if clock_ms < next_ms}
        holds_nothing = all(clock_ms == FAR_MS for clock_ms in clocks.values())
        if next_ms == FAR_MS or self.is_due or holds_nothing or (held and not self._rules.idle_ms):
            return None
        quiet = [
            self._quiet_since_ms[route] + self._rules.idle_ms + next_ms - clock_ms for route, clock_ms in held.items()
        ]
        return max(quiet, default=0)

    # --- entries ---

    def load(self, entry: ClockEntry, ssp_of: Mapping[int, str], now: Moment | None) -> None:
        """Take over the committed clocks.

        Args:
            ssp_of: by route, its input.
            now: if another execution wrote the entry, whose host may have another clock since boot. None: this one did.
        """
        clocks = Inherited(
            watermark_ms=entry.watermark_ms,
            inputs={ssp: clock.clock_ms for ssp, clock in entry.inputs.items() if clock.is_known},
            parts=entry.parts,
            when_covered={ssp: _or(c.clock_ms, FAR_MS) for ssp, c in entry.inputs.items() if not c.is_known},
            has_ended=entry.has_ended,
            before_end_ms=_or(entry.before_end_ms, UNKNOWN_MS),
        )
        self._take(clocks, ssp_of)
        self._quiet_since_ms = {
            route: since_ms if now is None else _here(since_ms - entry.boot_ms + entry.wall_ms, now)
            for route, ssp in ssp_of.items()
            if ssp in entry.inputs
            for since_ms in [entry.inputs[ssp].quiet_since_ms]
        }
        self._message_at_ms = {
            route: entry.inputs[ssp].message_at_ms for route, ssp in ssp_of.items() if ssp in entry.inputs
        }

    def begin(self, clocks: Inherited, ssp_of: Mapping[int, str], now: Moment) -> None:
        """Take over the clocks of the tasks before."""
        self._take(clocks, ssp_of)
        self._quiet_since_ms = {
            route: _here(clocks.quiet_since_wall_ms.get(ssp, now.wall_ms), now) for route, ssp in ssp_of.items()
        }

    def _take(self, clocks: Inherited, ssp_of: Mapping[int, str]) -> None:
        self.watermark_ms = UNKNOWN_MS if clocks.watermark_ms is None else clocks.watermark_ms
        for route, ssp in ssp_of.items():
            clock_ms = clocks.inputs.get(ssp, UNKNOWN_MS)
            self.clock_of[route] = FAR_MS if clock_ms is None else clock_ms
        self._when_covered_of = {
            route: clocks.when_covered[ssp] for route, ssp in ssp_of.items() if ssp in clocks.when_covered
        }
        self._parts = clocks.parts
        self.lateness.below_ms = max((self.watermark_ms, *(part.watermark_ms for part in clocks.parts)))
        self.lateness.forget()
        self.with_messages.clear()
        self.has_moved, self.has_ended, self.before_end_ms = False, clocks.has_ended, clocks.before_end_ms

    def entry(
        self,
        epoch: int,
        execution_id: str,
        ssp_of: Mapping[int, str],
        offsets_next: Mapping[int, int],
        now: Moment,
    ) -> ClockEntry:
        """The entry to commit.

        Args:
            offsets_next: by route, the position behind the transaction.
        """
        for route in self.with_messages:
            self._quiet_since_ms[route], self._message_at_ms[route] = now
        return ClockEntry(
            epoch=epoch,
            execution_id=execution_id,
            boot_ms=now.boot_ms,
            wall_ms=now.wall_ms,
            watermark_ms=None if self.watermark_ms == UNKNOWN_MS else self.watermark_ms,
            inputs={
                ssp: self._input_clock(route, offsets_next[route], now.boot_ms)
                for route, ssp in ssp_of.items()
                if self.clock_of[route] != UNKNOWN_MS or route in self._when_covered_of
            },
            parts=self._parts,
            has_ended=self.has_ended,
            before_end_ms=None if self.before_end_ms == UNKNOWN_MS else self.before_end_ms,
        )

    def _input_clock(self, route: int, offset_next: int, now_ms: int) -> InputClock:
        clock_ms = self.clock_of[route]
        is_known = clock_ms != UNKNOWN_MS
        clock_ms = clock_ms if is_known else self._when_covered_of[route]
        return InputClock(
            clock_ms=None if clock_ms == FAR_MS else clock_ms,
            offset_next=offset_next,
            quiet_since_ms=self._quiet_since_ms.get(route, now_ms),
            is_known=is_known,
            message_at_ms=self._message_at_ms.get(route),
        )

    def committed(self) -> None:
        """Note that the entry was committed."""
        self.with_messages.clear()
        self.has_moved = False
        self.lateness.forget()

    def seen(self, inputs: Mapping[int, SspKeyBucket]) -> Mapping[str, SeenClock]:
        """The clocks that may hold the watermark back, by the text of their inputs."""
        seen = {}
        for route, ssp_kb in inputs.items():
            clock_ms = self.clock_of[route]
            is_known = clock_ms != UNKNOWN_MS
            if not is_known:
                clock_ms = self._when_covered_of.get(route, FAR_MS)
            if not is_known or clock_ms != FAR_MS:
                seen[str(ssp_kb)] = SeenClock(clock_ms, self._quiet_since_ms.get(route, 0), is_known)
        return seen


def ran_ms(covered_ms: int, quiet_since_ms: int, idle_ms: int) -> int:
    """For how long the clock of a quiet input that is covered up to a moment has run."""
    return max(0, covered_ms - quiet_since_ms - idle_ms) if idle_ms else 0


def due_at(moment_ms: int, watermark_ms: int) -> int:
    """`TaskClocks.next_due_ms` for the moment of the first timer."""
    return UNKNOWN_MS if moment_ms <= watermark_ms else moment_ms


def removal_of(expiry_ms: int) -> int:
    """The moment at which a quiet task removes an entry."""
    return min(FAR_MS, -(-expiry_ms // _REMOVAL_STEP_MS) * _REMOVAL_STEP_MS)


def reopened(entry: ClockEntry) -> ClockEntry:
    """The entry of a task whose inputs may have ended, for a run in which they go on."""
    parts = tuple(part for part in entry.parts if part.watermark_ms != END_MS)
    is_at_end = entry.watermark_ms == END_MS
    watermark_ms = entry.before_end_ms if is_at_end else entry.watermark_ms
    return msgspec.structs.replace(entry, watermark_ms=watermark_ms, parts=parts, has_ended=False, before_end_ms=None)


def ended(covered_ms: Mapping[int, int]) -> Mapping[int, int]:
    """The covered routes whose inputs have ended.

    An ended input brings no more messages, so this holds also while other routes have rows that are not handled yet.
    """
    return {route: moment_ms for route, moment_ms in covered_ms.items() if moment_ms == FAR_MS}


def inherited(
    entries: Mapping[TaskName, ClockEntry], bucket: int, factor: int, starts: Sequence[BucketStart]
) -> Inherited:
    """The first clocks of a task, from the entries of the tasks that had its keys.

    Args:
        entries: of tasks of the same base that share keys with the bucket.
        bucket, factor: the task's own.
        starts: of the inputs that keep time, where the task begins.
    """
    parts_of = {name: TaskNameParts.parse(name) for name in entries}
    finest = max((factor, *_factors(entries, parts_of.values(), starts)))
    inputs = {str(start.ssp_kb.ssp): _InheritedInput(start, finest) for start in starts}
    watermarks: dict[int, int] = {}
    has_ended = bool(entries)
    for piece in range(bucket, finest, factor):
        having = [name for name, parts in parts_of.items() if piece % parts.factor == parts.bucket]
        newest = entries[max(having, key=lambda name: entries[name].epoch)] if having else None
        rewinds = [of_input.add(piece, newest) for of_input in inputs.values()]
        # The entry that still holds for the piece.
        kept = None if any(rewinds) else newest
        has_ended = has_ended and kept is not None and kept.has_ended
        watermarks[piece] = UNKNOWN_MS if kept is None else _watermark_in(kept, piece)
    return _inherited(inputs, watermarks, finest, has_ended=has_ended, before_end_ms=_before_end_ms(entries))


def _inherited(
    inputs: Mapping[str, _InheritedInput],
    watermarks: Mapping[int, int],
    finest: int,
    *,
    has_ended: bool,
    before_end_ms: int,
) -> Inherited:
    """The first clocks of a task, from the watermarks of its pieces.

    `finest` is the number of pieces of all tasks.
    """
    least_ms = min(watermarks.values())
    covered = {ssp: of_input for ssp, of_input in inputs.items() if of_input.when_covered_ms is not None}
    return Inherited(
        watermark_ms=None if least_ms == UNKNOWN_MS else least_ms,
        inputs={
            ssp: None if of_input.least_ms == FAR_MS else of_input.least_ms
            for ssp, of_input in inputs.items()
            if of_input.is_known
        },
        when_covered={
            ssp: _or(of_input.when_covered_ms, FAR_MS) for ssp, of_input in covered.items() if not of_input.is_known
        },
        quiet_since_wall_ms={ssp: of_input.quiet_since_wall_ms for ssp, of_input in covered.items()},
        parts=tuple(
            PartWatermark(piece, finest, watermark_ms)
            for piece, watermark_ms in watermarks.items()
            if watermark_ms > least_ms
        ),
        has_ended=has_ended,
        before_end_ms=before_end_ms,
    )


def _factors(
    entries: Mapping[TaskName, ClockEntry], parts: Iterable[TaskNameParts], starts: Iterable[BucketStart]
) -> Iterator[int]:
    """The factors at which a task's entries and starts divide its keys."""
    yield from (of_task.factor for of_task in parts)
    yield from (start.finest_factor for start in starts)
    yield from (part.factor for entry in entries.values() for part in entry.parts)


def _before_end_ms(entries: Mapping[TaskName, ClockEntry]) -> int:
    """The least watermark before the inputs ended."""
    known = (entry.before_end_ms for entry in entries.values() if entry.before_end_ms is not None)
    return min(known, default=UNKNOWN_MS)


class _InheritedInput:
    """The clocks of one input in the pieces of a task.

    Attributes:
        least_ms: `UNKNOWN_MS` while that of a piece is not known.
        when_covered_ms: the clock once the input is covered without a message; None without any clock.
    """

    def __init__(self, start: BucketStart, finest: int) -> None:
        self._ssp = str(start.ssp_kb.ssp)
        self._positions = start.positions(finest)
        self.least_ms = FAR_MS
        self.when_covered_ms: int | None = None
        # How far the clocks are behind the moment since which the input is quiet, at most.
        self._behind_ms = UNKNOWN_MS

    @property
    def is_known(self) -> bool:
        return self.least_ms != UNKNOWN_MS

    @property
    def quiet_since_wall_ms(self) -> int:
        return _or(self.when_covered_ms, FAR_MS) + self._behind_ms

    def add(self, piece: int, entry: ClockEntry | None) -> bool:
        """Add the clock of a piece, as its newest entry has it.

        Returns:
            True for a rewind: the task begins before the position of that clock, which counts no more.
        """
        clock = None if entry is None else entry.inputs.get(self._ssp)
        if entry is None or clock is None:
            self.least_ms = UNKNOWN_MS
            return False
        is_rewound = clock.offset_next > self._positions[piece]
        own_ms = _or(clock.clock_ms, FAR_MS) if clock.is_known and not is_rewound else UNKNOWN_MS
        self.least_ms = min(self.least_ms, own_ms)
        if clock.clock_ms is not None:
            self.when_covered_ms = min(clock.clock_ms, _or(self.when_covered_ms, FAR_MS))
            since_ms = clock.quiet_since_ms - entry.boot_ms + entry.wall_ms
            self._behind_ms = max(since_ms - clock.clock_ms, self._behind_ms)
        return is_rewound


def _watermark_in(entry: ClockEntry, piece: int) -> int:
    """The watermark by which messages of a bucket were late."""
    own = [part.watermark_ms for part in entry.parts if piece % part.factor == part.bucket]
    return max((_or(entry.watermark_ms, UNKNOWN_MS), *own))


def _here(wall_ms: int, now: Moment) -> int:
    """A moment of the past on the clock of this host since its boot."""
    return min(now.boot_ms, wall_ms - now.wall_ms + now.boot_ms)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
