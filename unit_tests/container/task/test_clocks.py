"""The clocks of a task, and its watermark."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.container.task.clocks import (
    END_MS,
    FAR_MS,
    UNKNOWN_MS,
    ClockRules,
    Inherited,
    Moment,
    StillSpan,
    TaskClocks,
    inherited,
    reopened,
)
from samzapy.model.clock_entry import ClockEntry, InputClock, PartWatermark, decoded, encoded
from samzapy.model.grant import BucketStart, Floor
from samzapy.model.job import TaskName
from samzapy.model.serde import SerdeError
from samzapy.model.ssp import SspKeyBucket
from samzapy.plan.elasticity import key_bucket

IDLE_MS = 1000
BOOTED_MS = 1_700_000_000_000
NOW = Moment(0, BOOTED_MS)
SSP_OF = {0: "kafka.orders.0", 1: "kafka.rates.0"}


def the_clocks(count: int = 1, *, idle_ms: int = IDLE_MS, disorder_ms: int = 0) -> TaskClocks:
    clocks = TaskClocks(ClockRules(disorder_ms=dict.fromkeys(range(count), disorder_ms), idle_ms=idle_ms))
    clocks.begin(Inherited(watermark_ms=None, inputs={}, parts=()), dict(list(SSP_OF.items())[:count]), NOW)
    return clocks


def commit(clocks: TaskClocks, now_ms: int, count: int = 1) -> ClockEntry:
    now = Moment(now_ms, now_ms + BOOTED_MS)
    entry = clocks.entry(1, "e1", dict(list(SSP_OF.items())[:count]), dict.fromkeys(range(count), 7), now)
    clocks.committed()
    return entry


# --- the end of the inputs ---


def test_the_watermark_from_before_the_end_is_kept_and_counts_when_the_inputs_continue() -> None:
    clocks = the_clocks()
    clocks.advance(0, 500)
    clocks.close()
    clocks.end()

    entry = decoded(encoded(commit(clocks, now_ms=0)))

    assert (END_MS, True, 500) == (entry.watermark_ms, entry.has_ended, entry.before_end_ms)
    again = reopened(entry)
    assert (500, False, None) == (again.watermark_ms, again.has_ended, again.before_end_ms)


def test_a_bucket_that_had_ended_before_a_merge_is_not_late_for_ever_when_the_inputs_continue() -> None:
    clocks = the_clocks()
    clocks.advance(0, 500)
    ended = PartWatermark(bucket=0, factor=2, watermark_ms=END_MS)
    ahead = PartWatermark(bucket=1, factor=2, watermark_ms=900)

    entry = msgspec.structs.replace(commit(clocks, now_ms=0), parts=(ended, ahead))

    assert (500, (ahead,)) == (reopened(entry).watermark_ms, reopened(entry).parts)


# --- messages ---


def test_the_span_of_messages_that_concern_no_clock_ends_where_event_times_are_too_far_ahead() -> None:
    span = StillSpan()

    span.open(below_ms=400, clock_ms=500, disorder_ms=100, no_later_ms=550)

    assert (400, 550) == (span.first_ms, span.last_ms)


def test_an_input_that_has_ended_has_no_span_of_messages_that_concern_no_clock() -> None:
    span = StillSpan()

    span.open(below_ms=400, clock_ms=FAR_MS, disorder_ms=100, no_later_ms=10_000)

    assert span.last_ms < span.first_ms


def test_the_watermark_is_the_newest_event_time_less_the_disorder() -> None:
    clocks = the_clocks(disorder_ms=10)

    for event_ms in (100, 90, 120, 50):
        clocks.advance(0, event_ms)

    assert 110 == clocks.watermark_ms


def test_the_input_that_is_furthest_behind_holds_the_watermark() -> None:
    clocks = the_clocks(2)

    clocks.advance(0, 500)
    assert UNKNOWN_MS == clocks.watermark_ms and clocks.watermark_of(b"a") is None

    clocks.advance(1, 300)
    clocks.advance(0, 900)
    assert 300 == clocks.watermark_ms


def test_a_message_that_moves_no_clock_still_ends_the_quiet_of_its_input() -> None:
    clocks = the_clocks()
    clocks.advance(0, 500)
    commit(clocks, now_ms=0)
    clocks.note_timer(600)

    clocks.advance(0, 400)
    commit(clocks, now_ms=5000)

    assert 5000 + IDLE_MS + 100 == clocks.due_when_quiet_ms()


def test_a_timer_is_due_before_the_message_that_is_as_late_as_it() -> None:
    clocks = the_clocks()
    clocks.advance(0, 100)
    clocks.note_timer(200)

    assert not clocks.makes_due(0, 199) and clocks.makes_due(0, 200)
    assert 100 == clocks.watermark_ms and not clocks.is_due, "that moves no clock"


def test_a_timer_that_a_message_has_made_due_comes_before_a_message_of_any_time() -> None:
    clocks = the_clocks()
    clocks.note_timer(200)

    clocks.advance(0, 300)

    assert clocks.is_due and clocks.next_due_ms <= 0


def test_no_timer_is_due_before_a_message_while_another_input_holds_the_watermark() -> None:
    clocks = the_clocks(2)
    clocks.advance(0, 100)
    clocks.advance(1, 100)
    clocks.note_timer(200)

    assert not clocks.makes_due(0, 900)
    clocks.advance(0, 900)
    assert clocks.makes_due(1, 250)


# --- time without messages ---


def quiet_clocks() -> TaskClocks:
    """A clock at 500 and a timer for 2000; the input is quiet since 10,000."""
    clocks = the_clocks()
    clocks.advance(0, 500)
    commit(clocks, now_ms=10_000)
    clocks.note_timer(2000)
    return clocks


def test_the_clock_of_a_quiet_input_runs_once_it_was_idle() -> None:
    clocks = quiet_clocks()

    assert 12_500 == clocks.due_when_quiet_ms()
    assert not clocks.pass_time({0: 12_499}) and 500 == clocks.watermark_ms
    assert clocks.pass_time({0: 12_500}) and 2000 == clocks.watermark_ms


def test_the_clock_of_an_input_that_is_not_covered_does_not_advance() -> None:
    assert not quiet_clocks().pass_time({})
    assert not quiet_clocks().pass_time({1: 99_999})


def test_a_clock_continues_from_its_last_value() -> None:
    clocks = quiet_clocks()
    clocks.pass_time({0: 13_000})
    assert 2500 == clocks.watermark_ms
    clocks.next_due_ms = 2600

    assert 13_100 == clocks.due_when_quiet_ms()
    assert clocks.pass_time({0: 13_100}) and 2600 == clocks.watermark_ms


def test_the_clock_of_an_input_with_messages_in_the_transaction_does_not_run() -> None:
    clocks = quiet_clocks()

    clocks.advance(0, 600)

    assert not clocks.pass_time({0: 99_999}) and 600 == clocks.watermark_ms


def test_no_clock_runs_where_quiet_inputs_hold_the_watermark_for_ever() -> None:
    clocks = the_clocks(idle_ms=0)
    clocks.advance(0, 500)
    commit(clocks, now_ms=0)
    clocks.note_timer(600)

    assert clocks.due_when_quiet_ms() is None and not clocks.pass_time({0: 10**9})


def test_an_input_that_never_had_a_message_holds_nothing_once_it_is_covered() -> None:
    clocks = the_clocks(2)
    clocks.advance(0, 500)
    commit(clocks, now_ms=0, count=2)
    clocks.note_timer(400)

    assert 0 == clocks.due_when_quiet_ms() and not clocks.pass_time({0: 10})
    assert clocks.pass_time({0: 10, 1: 10}) and 500 == clocks.watermark_ms
    entry = commit(clocks, now_ms=10, count=2)
    assert entry.inputs["kafka.rates.0"].clock_ms is None

    clocks.advance(1, 100)
    assert 500 == clocks.watermark_ms, "it never falls"


def test_without_any_message_no_time_passes() -> None:
    clocks = the_clocks(2)
    clocks.note_timer(400)

    assert clocks.due_when_quiet_ms() is None and not clocks.pass_time({0: 10, 1: 10})


@st.composite
def some_clocks(draw: st.DrawFn) -> TaskClocks:
    clocks = the_clocks(2, idle_ms=draw(st.sampled_from([0, 1, 50])))
    when_covered = draw(st.dictionaries(st.sampled_from(sorted(SSP_OF.values())), st.integers(0, 100)))
    clocks.begin(
        Inherited(watermark_ms=None, inputs={}, parts=(), when_covered=when_covered), SSP_OF, Moment(7, 7 + BOOTED_MS)
    )
    for _ in range(draw(st.integers(0, 4))):
        clocks.advance(draw(st.integers(0, 1)), draw(st.integers(0, 100)))
        commit(clocks, draw(st.integers(0, 100)), count=2)
    clocks.note_timer(draw(st.integers(0, 200)))
    return clocks


@given(some_clocks(), st.integers(0, 500))
def test_a_timer_becomes_due_at_the_moment_that_was_reported_and_not_before(clocks: TaskClocks, at_ms: int) -> None:
    due_ms, before_ms, was_due = clocks.due_when_quiet_ms(), clocks.watermark_ms, clocks.is_due

    becomes_due = clocks.pass_time({0: at_ms, 1: at_ms})

    assert becomes_due == (due_ms is not None and due_ms <= at_ms)
    assert clocks.is_due == (was_due or becomes_due)
    assert before_ms <= clocks.watermark_ms


# --- entries ---


def test_an_entry_brings_the_clocks_back() -> None:
    clocks = the_clocks(2)
    clocks.advance(0, 500)
    clocks.advance(1, 300)
    entry = commit(clocks, now_ms=10_000, count=2)

    again = the_clocks(2)
    again.load(decoded(encoded(entry)), SSP_OF, None)

    again.note_timer(400)
    assert (300, 10_000 + IDLE_MS + 100) == (again.watermark_ms, again.due_when_quiet_ms())


def test_an_input_was_quiet_also_while_the_job_was_down() -> None:
    """The other host was booted at another moment; the commit was a minute ago."""
    entry = commit(quiet_clocks(), now_ms=10_500)
    again = the_clocks()

    again.load(entry, {0: SSP_OF[0]}, Moment(5_000_000, 10_500 + BOOTED_MS + 60_000))

    again.note_timer(2000)
    assert 5_000_000 - 60_000 - 500 + IDLE_MS + 1500 == again.due_when_quiet_ms()


def test_a_host_whose_clock_is_behind_lets_no_time_pass_backwards() -> None:
    entry = commit(quiet_clocks(), now_ms=10_000)
    again = the_clocks()

    again.load(entry, {0: SSP_OF[0]}, Moment(5_000_000, 77))

    again.note_timer(2000)
    assert 5_000_000 + IDLE_MS + 1500 == again.due_when_quiet_ms()


def test_a_wall_clock_that_jumps_moves_no_clock_of_the_same_execution() -> None:
    entry = commit(quiet_clocks(), now_ms=10_000)
    again = the_clocks()

    again.load(entry, {0: SSP_OF[0]}, None)

    again.note_timer(2000)
    assert 12_500 == again.due_when_quiet_ms()


def test_other_bytes_than_those_of_an_entry_are_refused() -> None:
    with pytest.raises(SerdeError, match="wanted the clocks of a task"):
        decoded(b'{"epoch": 1}')


# --- a change of the factor ---

BASE = "SystemStreamPartition_kafka.orders.0"


def a_start(offset_next: int, bucket: int = 0, factor: int = 1, *floors: tuple[int, int, int]) -> BucketStart:
    return BucketStart(
        ssp_kb=SspKeyBucket.parse(f"kafka.orders.0:{bucket}/{factor}"),
        offset_next=offset_next,
        floors=tuple(
            Floor(ssp_kb=SspKeyBucket.parse(f"kafka.orders.0:{b}/{f}"), offset_next=offset) for b, f, offset in floors
        ),
    )


def an_entry(epoch: int, watermark_ms: int, offset_next: int = 5, *parts: tuple[int, int, int]) -> ClockEntry:
    return ClockEntry(
        epoch=epoch,
        execution_id="e1",
        boot_ms=0,
        wall_ms=BOOTED_MS,
        watermark_ms=watermark_ms,
        inputs={"kafka.orders.0": InputClock(watermark_ms, offset_next, 0)},
        parts=tuple(PartWatermark(*part) for part in parts),
    )


def test_a_child_has_the_clocks_of_its_parent() -> None:
    clocks = inherited({TaskName(BASE): an_entry(1, 400)}, 1, 2, [a_start(5, 1, 2)])

    assert (400, {"kafka.orders.0": 400}, ()) == (clocks.watermark_ms, clocks.inputs, clocks.parts)


def test_at_a_merge_the_least_watermark_counts_and_the_part_ahead_keeps_its_own() -> None:
    entries = {TaskName(f"{BASE}-0-2"): an_entry(2, 400), TaskName(f"{BASE}-1-2"): an_entry(3, 700)}

    clocks = inherited(entries, 0, 1, [a_start(5)])

    assert (400, {"kafka.orders.0": 400}) == (clocks.watermark_ms, clocks.inputs)
    assert (PartWatermark(1, 2, 700),) == clocks.parts


def test_the_entry_of_the_newest_grant_decides() -> None:
    entries = {TaskName(BASE): an_entry(9, 300, 5, (1, 2, 900)), TaskName(f"{BASE}-0-2"): an_entry(4, 800)}

    clocks = inherited(entries, 0, 2, [a_start(5, 0, 2)])

    assert 300 == clocks.watermark_ms and () == clocks.parts


def test_a_bucket_without_an_entry_has_no_watermark() -> None:
    clocks = inherited({TaskName(f"{BASE}-0-2"): an_entry(4, 800)}, 0, 1, [a_start(5)])

    assert (None, {}, {"kafka.orders.0": 800}) == (clocks.watermark_ms, clocks.inputs, clocks.when_covered)
    assert (PartWatermark(0, 2, 800),) == clocks.parts


def test_a_rewound_input_has_no_clock_and_its_task_no_watermark() -> None:
    clocks = inherited({TaskName(BASE): an_entry(1, 400, 5)}, 0, 1, [a_start(4)])

    assert (None, {}, {"kafka.orders.0": 400}) == (clocks.watermark_ms, clocks.inputs, clocks.when_covered)


def test_an_input_that_is_not_known_has_its_clock_from_before_once_it_is_covered_without_a_message() -> None:
    before = Inherited(watermark_ms=None, inputs={}, parts=(), when_covered={SSP_OF[0]: 400})
    clocks = the_clocks()
    clocks.begin(before, {0: SSP_OF[0]}, Moment(10_000, BOOTED_MS))
    clocks.note_timer(500)
    assert UNKNOWN_MS == clocks.watermark_ms and 10_000 + IDLE_MS + 100 == clocks.due_when_quiet_ms()

    entry = commit(clocks, 0)
    again = the_clocks()
    again.load(decoded(encoded(entry)), {0: SSP_OF[0]}, None)
    again.note_timer(400)

    assert again.pass_time({0: 10_000}) and 400 == again.watermark_ms
    assert not clocks.pass_time({0: 10_000})


def test_the_first_message_of_an_input_that_is_not_known_is_its_clock() -> None:
    clocks = the_clocks()
    clocks.begin(
        Inherited(watermark_ms=None, inputs={}, parts=(), when_covered={SSP_OF[0]: 400}), {0: SSP_OF[0]}, NOW
    )

    clocks.advance(0, 300)

    assert 300 == clocks.watermark_ms


def test_a_part_that_was_ahead_is_not_taken_for_rewound() -> None:
    entries = {TaskName(f"{BASE}-0-2"): an_entry(2, 400, 5), TaskName(f"{BASE}-1-2"): an_entry(3, 700, 9)}

    clocks = inherited(entries, 0, 1, [a_start(5, 0, 1, (1, 2, 9))])

    assert 400 == clocks.watermark_ms and (PartWatermark(1, 2, 700),) == clocks.parts


def test_at_a_merge_the_clock_of_a_quiet_input_runs_as_that_of_the_part_furthest_behind_did() -> None:
    ahead, behind = an_entry(2, 700), an_entry(3, 400)
    # The part whose clock is ahead has been quiet for much shorter, so its clock has run on less.
    ahead.inputs["kafka.orders.0"] = InputClock(700, 5, 9000)

    clocks = inherited({TaskName(f"{BASE}-0-2"): ahead, TaskName(f"{BASE}-1-2"): behind}, 0, 1, [a_start(5)])

    assert {"kafka.orders.0": BOOTED_MS + 9000 - 300} == clocks.quiet_since_wall_ms


def test_messages_of_a_part_that_was_ahead_are_late_by_its_watermark_until_the_task_has_passed_it() -> None:
    clocks = the_clocks()
    clocks.begin(
        Inherited(watermark_ms=400, inputs={SSP_OF[0]: 400}, parts=(PartWatermark(1, 2, 700),)), {0: SSP_OF[0]}, NOW
    )
    ahead = next(key for key in map(str.encode, "abcdefgh") if key_bucket(key, 0, 2) == 1)
    behind = next(key for key in map(str.encode, "abcdefgh") if key_bucket(key, 0, 2) == 0)

    assert (700, 400) == (clocks.watermark_of(ahead), clocks.watermark_of(behind))
    assert 700 == clocks.lateness.below_ms
    assert (PartWatermark(1, 2, 700),) == commit(clocks, 0).parts

    clocks.advance(0, 500)
    assert 700 == clocks.lateness.below_ms
    for key, event_ms in ((ahead, 600), (behind, 600), (behind, 500), (behind, 499)):
        clocks.lateness.note(event_ms, clocks.watermark_of(key))
    assert 2 == clocks.lateness.count

    clocks.advance(0, 700)
    assert 700 == clocks.watermark_of(ahead) and () == commit(clocks, 0).parts
    assert (700, 0) == (clocks.lateness.below_ms, clocks.lateness.count)


# --- a model: windows over splits and merges ---

SIZE, FINEST = 10, 4
KEYS = tuple(map(str.encode, "abcdefghij"))
Inherit = Callable[[Mapping[TaskName, ClockEntry], int, int, Sequence[BucketStart]], Inherited]


@dataclass
class _Part:
    """A task of a key bucket, with its positions by finest bucket and its windows."""

    bucket: int
    factor: int
    positions: dict[int, int]
    clocks: TaskClocks
    epoch: int
    windows: dict[tuple[bytes, int], list[int]] = field(default_factory=dict)

    @property
    def name(self) -> TaskName:
        return TaskName(BASE if self.factor == 1 else f"{BASE}-{self.bucket}-{self.factor}")


class _Model:
    """One partition, whose tasks split and merge as they handle its messages in turn."""

    def __init__(self, chance: random.Random, inherit: Inherit = inherited) -> None:
        self._chance = chance
        self._inherit = inherit
        event_ms, self.log = 0, []
        for _ in range(chance.randint(5, 60)):
            event_ms += chance.randint(0, 8)
            self.log.append((chance.choice(KEYS), max(0, event_ms - chance.choice([0, 0, 0, 3, 12, 25]))))
        self.results: dict[tuple[bytes, int], list[list[int]]] = {}
        self.late: list[int] = []
        self._entries: dict[TaskName, ClockEntry] = {}
        self._epoch = 0
        self.tasks = [self._begin(0, 1, dict.fromkeys(range(FINEST), 0), {})]

    def _begin(
        self, bucket: int, factor: int, positions: dict[int, int], windows: dict[tuple[bytes, int], list[int]]
    ) -> _Part:
        self._epoch += 1
        first = min(positions.values())
        floors = [(b, FINEST, offset) for b, offset in positions.items() if offset > first]
        own = _Part(bucket, factor, positions, the_clocks(), self._epoch, windows)
        names = {name: entry for name, entry in self._entries.items() if _shares(name, bucket, factor)}
        start = a_start(first, bucket, factor, *floors)
        own.clocks.begin(self._inherit(names, bucket, factor, [start]), {0: SSP_OF[0]}, NOW)
        return own

    def _commit(self, task: _Part) -> None:
        first = min(task.positions.values())
        entry = task.clocks.entry(task.epoch, "e1", {0: SSP_OF[0]}, {0: first}, NOW)
        self._entries[task.name] = decoded(encoded(entry))
        task.clocks.committed()

    def step(self, task: _Part) -> bool:
        offset = min(task.positions.values())
        while offset < len(self.log):
            key, event_ms = self.log[offset]
            bucket = key_bucket(key, 0, FINEST)
            if task.positions.get(bucket, offset + 1) <= offset:
                break
            offset += 1
        done = min(offset + 1, len(self.log))
        is_over = offset >= len(self.log)
        if not is_over:
            start = event_ms // SIZE * SIZE
            watermark_ms = task.clocks.watermark_of(key)
            if watermark_ms is not None and start + SIZE <= watermark_ms:
                self.late.append(offset)
            else:
                task.windows.setdefault((key, start), []).append(offset)
            task.clocks.advance(0, event_ms)
            self._fire(task, task.clocks.watermark_ms)
        task.positions = {b: max(position, done) for b, position in task.positions.items()}
        self._commit(task)
        return not is_over

    def _fire(self, task: _Part, watermark_ms: int) -> None:
        for key, start in sorted(task.windows):
            if start + SIZE <= watermark_ms:
                self.results.setdefault((key, start), []).append(task.windows.pop((key, start)))

    def split(self, task: _Part) -> None:
        if task.factor < FINEST:
            self.tasks.remove(task)
            for bucket in (task.bucket, task.bucket + task.factor):
                self.tasks.append(self._part_of([task], bucket, 2 * task.factor))

    def merge(self, task: _Part) -> None:
        factor = task.factor // 2
        others = [
            other
            for other in self.tasks
            if factor
            and other.factor == task.factor
            and other is not task
            and (other.bucket - task.bucket) % factor == 0
        ]
        if others:
            self.tasks = [kept for kept in self.tasks if kept is not task and kept is not others[0]]
            self.tasks.append(self._part_of([task, others[0]], task.bucket % factor, factor))

    def _part_of(self, before: Sequence[_Part], bucket: int, factor: int) -> _Part:
        positions = {b: at for task in before for b, at in task.positions.items() if b % factor == bucket}
        windows = {
            place: list(offsets)
            for task in before
            for place, offsets in task.windows.items()
            if key_bucket(place[0], 0, factor) == bucket
        }
        part = self._begin(bucket, factor, positions, windows)
        if part.clocks.watermark_ms != UNKNOWN_MS:
            self._fire(part, part.clocks.watermark_ms)
        return part

    def run(self) -> None:
        for _ in range(200):
            task, act = self._chance.choice(self.tasks), self._chance.random()
            if act < 0.8:
                self.step(task)
            else:
                (self.split if act < 0.9 else self.merge)(task)
        for task in self.tasks:
            while self.step(task):
                pass
            self._fire(task, FAR_MS)

    @property
    def closed_twice(self) -> bool:
        return any(len(results) > 1 for results in self.results.values())

    @property
    def is_whole(self) -> bool:
        handled = [offset for results in self.results.values() for offsets in results for offset in offsets]
        return sorted(handled + self.late) == list(range(len(self.log)))


def _shares(name: TaskName, bucket: int, factor: int) -> bool:
    rest = name.removeprefix(BASE)
    other, of = (0, 1) if not rest else map(int, rest[1:].split("-"))
    return bucket % min(factor, of) == other % min(factor, of)


def histories(count: int, inherit: Inherit = inherited) -> list[_Model]:
    models = [_Model(random.Random(seed), inherit) for seed in range(count)]
    for model in models:
        model.run()
    return models


def test_over_splits_and_merges_each_window_closes_once_and_each_message_counts_once() -> None:
    models = histories(300)

    assert not any(model.closed_twice for model in models)
    assert all(model.is_whole for model in models)
    assert any(model.late for model in models) and any(model.results for model in models)


def without_lateness_by_part(*arguments: object) -> Inherited:
    clocks = inherited(*arguments)  # type: ignore[arg-type]
    return Inherited(watermark_ms=clocks.watermark_ms, inputs=clocks.inputs, parts=())


def with_the_larger_watermark(*arguments: object) -> Inherited:
    clocks = inherited(*arguments)  # type: ignore[arg-type]
    largest = max((clocks.watermark_ms or UNKNOWN_MS, *(part.watermark_ms for part in clocks.parts)))
    is_known = largest != UNKNOWN_MS
    inputs = dict.fromkeys(clocks.inputs, largest) if is_known else clocks.inputs
    return Inherited(watermark_ms=largest if is_known else None, inputs=inputs, parts=())


def test_without_lateness_by_part_a_window_would_close_twice() -> None:
    assert any(model.closed_twice for model in histories(300, without_lateness_by_part))


def test_with_the_larger_watermark_at_a_merge_more_messages_would_be_late() -> None:
    late = sum(len(model.late) for model in histories(300))

    assert sum(len(model.late) for model in histories(300, with_the_larger_watermark)) > 1.2 * late


def test_with_clocks_of_an_earlier_grant_a_window_would_close_twice() -> None:
    def of_the_oldest_grant(
        entries: Mapping[TaskName, ClockEntry], bucket: int, factor: int, starts: Sequence[BucketStart]
    ) -> Inherited:
        oldest = {name: msgspec.structs.replace(entry, epoch=-entry.epoch) for name, entry in entries.items()}
        return inherited(oldest, bucket, factor, starts)

    assert any(model.closed_twice for model in histories(300, of_the_oldest_grant))
