from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from samzapy.container.task.ports import Place, TailEndedError
from samzapy.container.task.tail import POLL_S, InputEnds, Tail, TailPorts, TaskRows, joined
from samzapy.container.task.work_plan import NO_TIMER, InputRecord, Report, ReportKind
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.task_stats import TaskStats
from samzapy.testing.memory.process import Crash, CrashAt
from unit_tests.fixtures.container_worlds import sum_up
from unit_tests.fixtures.running_container import a_report
from unit_tests.fixtures.tail_worlds import MemoryTailBoard, MemoryTailReader, Tasks

A, B = SspKeyBucket.parse("kafka.orders.0:0/1"), SspKeyBucket.parse("kafka.orders.1:0/1")


def a_record(offset: int, value: int = 1, *, partition: int = 0, key: str = "x") -> InputRecord:
    return InputRecord("orders", partition, offset, key.encode(), json.dumps(value).encode(), 1000, ())


def totals(tasks: Tasks) -> list[int]:
    return [json.loads(record.value or b"")["total"] for record in tasks.kafka.committed("totals")]


def test_each_bunch_of_records_is_one_transaction() -> None:
    tasks, board = Tasks(A, B), MemoryTailBoard()
    reader = MemoryTailReader([a_record(0), a_record(0, partition=1, key="y")], [a_record(1)])

    tasks.tail(reader, board).run()

    assert 2 == tasks.trace.count("commit")
    assert [2, 1] == tasks.offsets()
    assert {0: 2, 1: 1} == board.read_to
    assert [(0, 2, 2), (1, 1, 1)] == [(report.route, report.offset_next, report.commits) for report in board.reports]


class Timers:
    """When the next timer of each task is due; a run fires it and sets a later one."""

    def __init__(self, tasks: Tasks, **due_ms: int) -> None:
        self.due_ms = {int(name[1:]): moment for name, moment in due_ms.items()}
        self.wall_ms = 0
        self.ends: InputEnds | None = None
        # The coverage at each look at a task.
        self.covered_ms: list[Mapping[int, int]] = []
        self.fired: list[tuple[int, int]] = []
        self.rows: list[int] = []
        self._tasks = tasks

    def tail(self, reader: MemoryTailReader, board: MemoryTailBoard) -> Tail:
        ports = TailPorts(
            reader=reader,
            board=board,
            slot=self._tasks.slot,
            crash_points=self._tasks.crash_points,
            now_s=lambda: 0.0,
            wall_ms=lambda: self.wall_ms,
            due_ms=self._due_ms,
            ends=self.ends,
        )
        return Tail(self._tasks.plan, self._tasks.plan.tasks, [0, 0], ports, self._run)

    def _due_ms(self, routes: Sequence[int], covered_ms: Mapping[int, int]) -> int:
        self.covered_ms.append(dict(covered_ms))
        return self.due_ms.get(routes[0], NO_TIMER)

    def _run(self, works: Sequence[TaskRows], must_end: object) -> Sequence[Report]:
        reports = []
        for routes, chunks in works:
            count = sum(len(rows.offsets) for rows in chunks)
            self.rows.append(count)
            if 0 <= self.due_ms.get(routes[0], NO_TIMER) <= self.wall_ms:
                self.fired.append((routes[0], self.wall_ms))
                self.due_ms[routes[0]] = self.wall_ms + 500
            reports.append(a_report(routes[0], offset_next=count))
        return reports


def test_a_tail_fires_timers_at_their_moment_without_records() -> None:
    tasks, board = Tasks(A, B), MemoryTailBoard(looks=60)
    timers, reader = Timers(tasks, t0=7, t1=600), MemoryTailReader()

    def time_passes() -> None:
        timers.wall_ms += max(1, round(1000 * reader.waits_s[-1]))

    reader.when_empty = time_passes
    timers.tail(reader, board).run()

    assert [(0, 7), (0, 507), (1, 600)] == timers.fired[:3]
    assert {0} == set(timers.rows)
    assert 0.007 == reader.waits_s[0] and max(reader.waits_s) == POLL_S


def test_a_tail_with_timers_hands_a_task_only_its_records() -> None:
    tasks, board = Tasks(A, B), MemoryTailBoard(looks=20)
    timers, reader = Timers(tasks, t1=0), MemoryTailReader([a_record(0)])

    timers.tail(reader, board).run()

    # One record for task 0, and the timer of task 1, in one transaction.
    assert [1, 0] == timers.rows
    assert [(1, 0)] == timers.fired
    assert {0: 1, 1: 0} == board.read_to


class Ends:
    """Ends of inputs that were seen at 1000, of orders.0 at 2 and of orders.1 at 5."""

    def look(self) -> bool:
        return True

    def covered_ms(self, place: Place, offset_next: int) -> int | None:
        return 1000 if offset_next >= {0: 2, 1: 5}[place[1]] else None


def test_a_tail_passes_tasks_the_moment_up_to_which_their_inputs_are_read() -> None:
    tasks, board = Tasks(A, B), MemoryTailBoard(looks=20)
    timers, reader = Timers(tasks), MemoryTailReader([a_record(0)], [a_record(1), a_record(3, partition=1)])
    timers.ends = Ends()

    timers.tail(reader, board).run()

    assert [{}, {0: 1000}] == [timers.covered_ms[0], timers.covered_ms[-1]], "orders.1 is not read to 5"


def test_reading_begins_where_the_micro_batch_ended() -> None:
    tasks, board = Tasks(A, B), MemoryTailBoard(looks=0)
    reader = MemoryTailReader()

    tasks.tail(reader, board, read_from=[7, 9]).run()

    assert {("orders", 0): 7, ("orders", 1): 9} == reader.assigned


def test_records_below_the_end_of_the_micro_batch_are_not_handled_again() -> None:
    """The consumer may keep its place from an earlier tail."""
    tasks, board = Tasks(A), MemoryTailBoard()
    tasks.environments[0].contents.position = replace(
        tasks.environments[0].contents.position, offsets_next={str(A): 2}
    )
    reader = MemoryTailReader([a_record(0), a_record(1), a_record(2, 40)])

    tasks.tail(reader, board, read_from=[2]).run()

    assert [40] == totals(tasks)
    assert [1] == [report.records_in for report in board.reports]


def test_records_that_a_store_has_already_are_skipped() -> None:
    tasks, board = Tasks(A), MemoryTailBoard()
    tasks.environments[0].contents.position = replace(
        tasks.environments[0].contents.position, offsets_next={str(A): 2}
    )

    tasks.tail(MemoryTailReader([a_record(1), a_record(2, 40)]), board, read_from=[0]).run()

    assert [40] == totals(tasks)


def test_records_of_other_key_buckets_are_left_out_and_still_count_as_read() -> None:
    bucket = SspKeyBucket.parse("kafka.orders.0:1/2")
    tasks, board = Tasks(bucket), MemoryTailBoard()
    keys = [f"key {number}" for number in range(20)]

    tasks.tail(MemoryTailReader([a_record(n, key=key) for n, key in enumerate(keys)]), board).run()

    assert 0 < len(totals(tasks)) < 20
    assert {0: 20} == board.read_to


def test_a_place_past_the_last_record_counts_as_read() -> None:
    """Markers of transactions are no records."""
    tasks, board = Tasks(A), MemoryTailBoard()
    reader = MemoryTailReader()
    reader.when_empty = lambda: reader.assigned.update({("orders", 0): 12})

    tasks.tail(reader, board).run()

    assert {0: 12} == board.read_to and [] == board.reports


def test_a_tail_ends_at_the_common_end() -> None:
    points = CrashAt("tail-at-the-common-end")
    tasks, board = Tasks(A, crash_points=points), MemoryTailBoard(looks=3)
    reader = MemoryTailReader([a_record(0)])

    with pytest.raises(Crash):
        tasks.tail(reader, board).run()

    assert [1] == totals(tasks) and {0: 1} == board.read_to


def test_a_tail_without_a_lease_begins_nothing() -> None:
    tasks, board = Tasks(A), MemoryTailBoard()
    tasks.slot.lease_checks = 0

    tasks.tail(MemoryTailReader([a_record(0)]), board).run()

    assert [] == totals(tasks) and "begin" not in tasks.trace


def test_the_rest_of_a_bunch_is_left_when_the_tails_end_in_its_middle() -> None:
    tasks, board = Tasks(A), MemoryTailBoard()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        if envelope.offset == 5:
            # A slow message behind fast ones.
            tasks.now_s += 0.5
            board.end_all("a grant changed")

    tasks.process = process
    tasks.tail(MemoryTailReader([a_record(offset) for offset in range(9)]), board).run()

    assert [1, 2, 3, 4, 5, 6] == totals(tasks), "the handled messages are committed"
    assert {0: 6} == board.read_to, "the next micro-batch reads the rest"
    assert 1 == tasks.trace.count("commit")


def test_several_slow_messages_are_one_transaction_while_the_tails_run() -> None:
    tasks, board = Tasks(A), MemoryTailBoard()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        tasks.now_s += 0.03

    tasks.process = process
    tasks.tail(MemoryTailReader([a_record(offset) for offset in range(4)]), board).run()

    assert [1, 2, 3, 4] == totals(tasks) and {0: 4} == board.read_to
    assert 1 == tasks.trace.count("commit")


def test_tasks_that_had_no_turn_leave_their_records() -> None:
    tasks, board = Tasks(A, B), MemoryTailBoard()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        board.end_all("a grant changed")

    tasks.process = process
    tasks.tail(MemoryTailReader([a_record(0), a_record(0, partition=1)]), board).run()

    assert {0: 1, 1: 0} == board.read_to


def test_a_failed_task_ends_all_tails_and_moves_nothing() -> None:
    tasks, board = Tasks(A, B), MemoryTailBoard()

    def process(envelope: Any, collector: Any, context: Any) -> None:
        if envelope.value == 13:
            raise ValueError("a bad message")
        sum_up(envelope, collector, context)

    tasks.process = process
    tasks.tail(MemoryTailReader([a_record(0), a_record(0, 13, partition=1)], [a_record(1)]), board).run()

    assert ["a task failed"] == board.ended
    assert [ReportKind.TASK_FAILED] == [report.kind for report in board.reports]
    assert [] == totals(tasks) and {0: 0, 1: 0} == board.read_to


def test_a_tail_that_cannot_read_ends_all_tails() -> None:
    tasks, board = Tasks(A), MemoryTailBoard()
    reader = MemoryTailReader([a_record(0)], TailEndedError("the topic is gone"))

    tasks.tail(reader, board).run()

    assert ["the topic is gone"] == board.ended
    assert [1] == totals(tasks) and {0: 1} == board.read_to


def test_a_tail_that_falls_behind_ends_all_tails() -> None:
    tasks, board = Tasks(A, lag_max=500), MemoryTailBoard()
    reader = MemoryTailReader([a_record(offset) for offset in range(1000)])
    reader.lag_now = 501

    tasks.tail(reader, board).run()

    assert ["a tail fell behind"] == board.ended and {0: 1000} == board.read_to


def test_a_large_bunch_alone_does_not_end_a_tail() -> None:
    tasks, board = Tasks(A, lag_max=500), MemoryTailBoard()
    reader = MemoryTailReader([a_record(offset) for offset in range(1000)])
    reader.lag_now = 500

    tasks.tail(reader, board).run()

    assert [] == board.ended


def test_reports_are_published_while_the_tail_runs() -> None:
    tasks, board = Tasks(A), MemoryTailBoard()
    seen: list[int] = []
    reader = MemoryTailReader([a_record(0)])

    def tick() -> None:
        tasks.now_s += 0.6
        seen.append(len(board.reports))

    reader.when_empty = tick
    tasks.tail(reader, board).run()

    assert 1 == seen[-1] == len(board.reports), "published once, before the tail ended"


def test_two_reports_of_a_route_add_up() -> None:
    first = Report(
        kind=ReportKind.COMMITTED, route=3, offset_next=5, records_in=2, records_out=1, dead_letters=0, commits=1
    )
    later = replace(first, offset_next=9, records_in=4, dead_letters=1, measured=TaskStats(busy_ns=7))

    assert replace(
        first,
        offset_next=9,
        records_in=6,
        records_out=2,
        dead_letters=1,
        commits=2,
        measured=TaskStats(busy_ns=7),
    ) == joined([first, later])
